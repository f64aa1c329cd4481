// The README's table of clients: which of the variables of `sallyport env` each reads, and whether its scenario runs.
// What stands here is held against the variables' own table, the scenarios, CI's packages and the README.
import { RUNNABLES } from './clients.ts';

/** One row. */
export interface ClientRow {
  readonly tool: string;
  /** Those that it needs, for https; `NO_PROXY` is read by all */
  readonly variables: readonly string[];
  /** In CI, where the tool is installed, or not at all */
  readonly tested: 'in CI' | 'where installed' | 'no';
  readonly note?: string;
}

/** Every client, in the order of the README. */
export const CLIENT_ROWS: readonly ClientRow[] = [
  { tool: 'curl', variables: ['https_proxy', 'http_proxy', 'all_proxy', 'CURL_CA_BUNDLE'], tested: 'in CI' },
  {
    tool: 'wget',
    variables: ['https_proxy', 'http_proxy', 'SYSTEM_WGETRC'],
    tested: 'in CI',
    note: 'in place of `/etc/wgetrc`, for GnuTLS reads no variable',
  },
  { tool: 'git', variables: ['https_proxy', 'GIT_SSL_CAINFO'], tested: 'in CI' },
  { tool: 'OpenSSL', variables: ['SSL_CERT_FILE'], tested: 'in CI', note: '`s_client` takes the proxy as `-proxy`' },
  {
    tool: 'Node fetch',
    variables: ['NODE_USE_ENV_PROXY', 'HTTPS_PROXY', 'HTTP_PROXY', 'NODE_EXTRA_CA_CERTS'],
    tested: 'where installed',
    note: 'from Node 22.21 and 24 on; older ones dial past the proxy',
  },
  {
    tool: 'undici',
    variables: ['HTTPS_PROXY', 'HTTP_PROXY', 'NODE_EXTRA_CA_CERTS'],
    tested: 'in CI',
    note: 'its `EnvHttpProxyAgent`, in any Node',
  },
  { tool: 'npm', variables: ['HTTPS_PROXY', 'npm_config_cafile'], tested: 'in CI' },
  {
    tool: 'pnpm',
    variables: ['HTTPS_PROXY', 'npm_config_cafile', 'SSL_CERT_FILE'],
    tested: 'where installed',
    note: 'the last from 12 on, which is no Node program',
  },
  {
    tool: 'yarn',
    variables: ['HTTPS_PROXY', 'npm_config_cafile', 'YARN_HTTP_PROXY', 'YARN_HTTPS_PROXY', 'NODE_EXTRA_CA_CERTS'],
    tested: 'where installed',
    note: 'the first two 1, the others from 2 on',
  },
  { tool: 'Python urllib', variables: ['https_proxy', 'SSL_CERT_FILE'], tested: 'in CI' },
  { tool: 'requests', variables: ['HTTPS_PROXY', 'REQUESTS_CA_BUNDLE'], tested: 'in CI' },
  { tool: 'httpx', variables: ['HTTPS_PROXY', 'ALL_PROXY', 'SSL_CERT_FILE'], tested: 'where installed' },
  { tool: 'pip', variables: ['HTTPS_PROXY', 'PIP_CERT'], tested: 'in CI' },
  { tool: 'uv', variables: ['HTTPS_PROXY', 'SSL_CERT_FILE', 'UV_NATIVE_TLS'], tested: 'where installed' },
  { tool: 'Go', variables: ['HTTPS_PROXY', 'SSL_CERT_FILE'], tested: 'where installed', note: 'grpc-go too' },
  { tool: 'cargo', variables: ['HTTPS_PROXY', 'CARGO_HTTP_CAINFO'], tested: 'where installed' },
  {
    tool: 'reqwest',
    variables: ['HTTPS_PROXY', 'SSL_CERT_FILE'],
    tested: 'no',
    note: 'not where it was built with `webpki-roots`, which trusts its own alone',
  },
  {
    tool: 'Java',
    variables: ['JAVA_TOOL_OPTIONS'],
    tested: 'where installed',
    note: 'a token takes an `Authenticator`; the password of `trust.p12` is `changeit`',
  },
  { tool: '.NET', variables: ['HTTPS_PROXY', 'SSL_CERT_FILE'], tested: 'no' },
  { tool: 'Ruby', variables: ['https_proxy', 'http_proxy', 'SSL_CERT_FILE'], tested: 'where installed' },
  { tool: 'Bundler', variables: ['https_proxy', 'BUNDLE_SSL_CA_CERT'], tested: 'no' },
  { tool: 'Deno', variables: ['HTTPS_PROXY', 'DENO_CERT'], tested: 'where installed' },
  { tool: 'AWS CLI', variables: ['HTTPS_PROXY', 'AWS_CA_BUNDLE'], tested: 'where installed', note: 'boto3 too' },
  { tool: 'gcloud', variables: ['HTTPS_PROXY', 'CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE'], tested: 'where installed' },
  { tool: 'gRPC', variables: ['grpc_proxy', 'GRPC_DEFAULT_SSL_ROOTS_FILE_PATH'], tested: 'in CI', note: 'C++, Python, Node' },
  {
    tool: 'Chromium',
    variables: ['https_proxy', 'http_proxy'],
    tested: 'in CI',
    note: 'roots by the `certutil` line of `sallyport ca`; takes no token: know the sandbox by its `sources`',
  },
];

/** The table as Markdown. */
export function clientTable(): string {
  const lines = CLIENT_ROWS.map(
    ({ tool, variables, tested, note = '' }) =>
      `| ${tool} | ${variables.map((name) => `\`${name}\``).join(', ')} | ${tested} | ${note} |`,
  );
  return ['| tool | reads | tested here | |', '|---|---|---|---|', ...lines, ''].join('\n');
}

/** Tools that have a scenario. */
export const TESTED_TOOLS: readonly string[] = Object.keys(RUNNABLES);
