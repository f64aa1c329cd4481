// The one table of variables that make a sandbox's tools use and trust the door, each with its reason (faults K01, K02).
// Two kinds of CA variable: one adds to the tool's own roots and gets our CA, the other replaces them and gets the bundle, which
// is the system's roots and our CA. SSL_CERT_DIR must stay untouched: a folder there would take the system's roots away.
import { TRUST_STORE_PASSWORD } from '../certificates/trust-store.ts';

/** What the values are made of. */
export interface SandboxFacts {
  /** URL of the proxy, with the sandbox's token where it has one */
  readonly proxy: string;
  /** Hosts inside the sandbox that tools reach directly */
  readonly direct: readonly string[];
  /** Path inside the sandbox of the CA's certificate */
  readonly ca: string;
  /** Path inside the sandbox of the system's roots and the CA in one file */
  readonly bundle: string;
  /** Path inside the sandbox of the same roots for Java; its password is public */
  readonly trustStore: string;
  /** Path inside the sandbox of the lines for wget; `undefined` where none fits the paths */
  readonly wgetrc: string | undefined;
}

/** One variable. */
export interface SandboxVariable {
  readonly name: string;
  /** `undefined` leaves the variable out */
  readonly value: (facts: SandboxFacts) => string | undefined;
  /** Who reads it, and what it does there */
  readonly why: string;
}

const proxy = (facts: SandboxFacts): string => facts.proxy;
const direct = (facts: SandboxFacts): string => facts.direct.join(',');
const added = (facts: SandboxFacts): string => facts.ca;
const replaced = (facts: SandboxFacts): string => facts.bundle;

/** All of them, in the order in which they are printed. */
export const SANDBOX_VARIABLES: readonly SandboxVariable[] = [
  { name: 'HTTP_PROXY', value: proxy, why: 'Go, Node, Python, Ruby, cargo and most others, for http' },
  { name: 'HTTPS_PROXY', value: proxy, why: 'the same, for https' },
  {
    name: 'ALL_PROXY',
    value: proxy,
    why: 'curl and httpx for every other scheme, so that it meets a refusal that says why and not a timeout',
  },
  { name: 'http_proxy', value: proxy, why: 'curl and gRPC read only the lower case for http' },
  { name: 'https_proxy', value: proxy, why: 'wget and gRPC read only the lower case' },
  { name: 'grpc_proxy', value: proxy, why: 'gRPC, before every other' },
  { name: 'YARN_HTTP_PROXY', value: proxy, why: 'Yarn from 2 on reads a name of its own, for http' },
  { name: 'YARN_HTTPS_PROXY', value: proxy, why: 'the same, for https' },
  { name: 'all_proxy', value: proxy, why: 'libcurl, lower case first' },
  { name: 'NO_PROXY', value: direct, why: 'services inside the sandbox stay direct; loopback means the sandbox, never the host' },
  { name: 'no_proxy', value: direct, why: 'the same, for those that read the lower case' },
  {
    name: 'NODE_USE_ENV_PROXY',
    value: () => '1',
    why: 'Node from 22.21 and 24 on: fetch and http use the proxy variables; older ones dial directly',
  },
  { name: 'NODE_EXTRA_CA_CERTS', value: added, why: 'Node, npm, pnpm, yarn; added to the roots that Node ships' },
  { name: 'DENO_CERT', value: added, why: 'Deno; added to its own roots' },
  { name: 'SSL_CERT_FILE', value: replaced, why: 'OpenSSL, Go, Ruby, Python ssl and httpx, uv, rustls; replaces the roots' },
  {
    name: 'SYSTEM_WGETRC',
    value: ({ wgetrc }) => wgetrc,
    why: "wget, in place of /etc/wgetrc: built with GnuTLS it reads no variable for its roots; added to the system's",
  },
  { name: 'CURL_CA_BUNDLE', value: replaced, why: 'curl; replaces the roots' },
  { name: 'REQUESTS_CA_BUNDLE', value: replaced, why: 'Python requests; replaces the roots of certifi' },
  { name: 'PIP_CERT', value: replaced, why: 'pip; replaces the roots of certifi' },
  { name: 'UV_NATIVE_TLS', value: () => 'true', why: "uv: the system's roots, which SSL_CERT_FILE names, in place of its own" },
  { name: 'GIT_SSL_CAINFO', value: replaced, why: 'git; replaces the roots' },
  { name: 'CARGO_HTTP_CAINFO', value: replaced, why: 'cargo; replaces the roots' },
  { name: 'npm_config_cafile', value: replaced, why: 'npm and pnpm; replaces the roots for the registry' },
  { name: 'AWS_CA_BUNDLE', value: replaced, why: 'AWS CLI and boto3; replaces the roots' },
  { name: 'CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE', value: replaced, why: 'gcloud; replaces the roots' },
  { name: 'GRPC_DEFAULT_SSL_ROOTS_FILE_PATH', value: replaced, why: 'gRPC; replaces the roots' },
  { name: 'BUNDLE_SSL_CA_CERT', value: replaced, why: 'Bundler; replaces the roots' },
  {
    name: 'JAVA_TOOL_OPTIONS',
    value: javaOptions,
    why: "every JVM: proxy host and port, and a trust store in place of Java's own; no password of a proxy, which takes an Authenticator",
  },
];

/** The variables with their values, in table order. */
export function sandboxVariables(facts: SandboxFacts): ReadonlyMap<string, string> {
  return new Map(
    SANDBOX_VARIABLES.flatMap(({ name, value }) => {
      const text = value(facts);
      return text === undefined ? [] : [[name, text] as const];
    }),
  );
}

/** What a JVM is told of the trust store. */
export function javaTrust(trustStore: string): string[] {
  return [
    `-Djavax.net.ssl.trustStore=${trustStore}`,
    '-Djavax.net.ssl.trustStoreType=PKCS12',
    `-Djavax.net.ssl.trustStorePassword=${TRUST_STORE_PASSWORD}`,
  ];
}

/** Where nothing stays direct the list is given as empty, for Java's own standard would keep loopback direct (fault B15). */
function javaOptions({ proxy: url, direct: hosts, trustStore }: SandboxFacts): string {
  const { hostname, port, protocol, username } = new URL(url);
  const at = port === '' ? (protocol === 'https:' ? '443' : '80') : port;
  const host = hostname.replace(/^\[|\]$/g, '');
  const nonProxyHosts = hosts.map((each) => (each.includes(':') ? `[${each}]` : each)).join('|');
  return [
    `-Dhttp.proxyHost=${host}`,
    `-Dhttp.proxyPort=${at}`,
    `-Dhttps.proxyHost=${host}`,
    `-Dhttps.proxyPort=${at}`,
    `-Dhttp.nonProxyHosts=${nonProxyHosts}`,
    // Basic is off for tunnels by Java's own standard, so that an Authenticator would never be asked.
    ...(username === '' ? [] : ['-Djdk.http.auth.tunneling.disabledSchemes=']),
    ...javaTrust(trustStore),
  ]
    .map(jvmOption)
    .join(' ');
}

/** The JVM splits JAVA_TOOL_OPTIONS at white space outside of quotes, and knows no escape within them. */
function jvmOption(option: string): string {
  return option.replace(/'+|["\s]+/g, (run) => (run.startsWith("'") ? `"${run}"` : `'${run}'`));
}
