// What the doctor knows of where it is: the proxy that the variables name, the gateway, the resolvers, the files of certificates.
// It must never keep a secret but the token of the proxy's own URL, which the sandbox has anyway, and shows that to nobody but the proxy.
import { lookup } from 'node:dns/promises';
import { readFileSync } from 'node:fs';
import { isIP, isIPv4 } from 'node:net';
import { networkInterfaces } from 'node:os';
import { dirname, join } from 'node:path';
import type { Place } from './wire.ts';

/** The proxy as the environment names it. */
export interface NamedProxy extends Place {
  /** As the variable has it; the place has an address where it resolves */
  readonly name: string;
  readonly username: string;
  readonly password: string;
}

/** Where probes go. */
export interface Targets {
  readonly publicTcp: readonly Place[];
  readonly publicTcp6: readonly Place[];
  readonly resolvers: readonly Place[];
  readonly quic: readonly Place[];
  readonly ping: readonly string[];
  readonly metadata: readonly Place[];
  readonly metadataName: string;
  /** Ports of the gateway and the proxy's host that are no door */
  readonly privatePorts: readonly number[];
  readonly adminPort: number;
  /** Where a proxy may listen that no variable names */
  readonly proxyPort: number;
  /** Names that a public resolver knows, and no allowlist has a reason to name */
  readonly refusedName: string;
  /** A name is made below it that nobody has asked for before */
  readonly freshUnder: string;
  /** Addresses that nobody has (RFC 5737, RFC 3849): who answers for them answers for all. Those near one of ours are left out */
  readonly nowhere: string;
  readonly nowhere6: string;
  /** Of the resolvers that resolv.conf names */
  readonly dnsPort: number;
}

/** Standard places: resolvers that everybody knows, and the addresses that clouds keep for themselves. */
export const TARGETS: Targets = {
  publicTcp: [
    { host: '1.1.1.1', port: 443 },
    { host: '8.8.8.8', port: 443 },
    { host: '1.1.1.1', port: 853 },
  ],
  publicTcp6: [
    { host: '2606:4700:4700::1111', port: 443 },
    { host: '2001:4860:4860::8888', port: 443 },
  ],
  resolvers: [
    { host: '1.1.1.1', port: 53 },
    { host: '8.8.8.8', port: 53 },
  ],
  quic: [
    { host: '1.1.1.1', port: 443 },
    { host: '8.8.8.8', port: 443 },
  ],
  ping: ['1.1.1.1', '8.8.8.8'],
  metadata: [
    { host: '169.254.169.254', port: 80 },
    { host: 'fd00:ec2::254', port: 80 },
    { host: '169.254.170.2', port: 80 },
    { host: '100.100.100.200', port: 80 },
  ],
  metadataName: 'metadata.google.internal',
  privatePorts: [22, 80, 443, 2375, 2376, 2379, 3306, 5432, 6379, 6443, 10250, 10255],
  adminPort: 9090,
  proxyPort: 8080,
  refusedName: 'dns.google',
  freshUnder: 'example.com',
  nowhere: '192.0.2.251',
  nowhere6: '2001:db8::251',
  dnsPort: 53,
};

/** Ports that the proxy's host opens to a sandbox on purpose. */
export const DOOR_PORTS: readonly number[] = [53, 80, 443, 5353, 8080, 8081, 8443];

/** All that probes are given. */
export interface Surroundings {
  readonly env: NodeJS.ProcessEnv;
  /** Where the file system begins; "/" but in tests */
  readonly root: string;
  readonly directory: string;
  readonly targets: Targets;
  /** Of each probe */
  readonly timeoutMs: number;
  readonly proxy: NamedProxy | undefined;
  /** A URL that the door lets through */
  readonly allowed: URL | undefined;
  readonly gateways: readonly string[];
  readonly hasRoute6: boolean;
  readonly nameservers: readonly string[];
  /** PEM of the door's certificate alone */
  readonly ca: string | undefined;
  /** PEM of all that the variables name; undefined where they name nothing readable */
  readonly trust: string | undefined;
  /** Files of certificates that variables name */
  readonly caFiles: readonly string[];
}

/** Variables that name files of certificates. Those that are added to other roots come first: they hold the CA alone. */
const CA_VARIABLES = [
  ...['NODE_EXTRA_CA_CERTS', 'DENO_CERT', 'SSL_CERT_FILE', 'CURL_CA_BUNDLE', 'REQUESTS_CA_BUNDLE', 'PIP_CERT'],
  ...['GIT_SSL_CAINFO', 'AWS_CA_BUNDLE', 'CARGO_HTTP_CAINFO', 'npm_config_cafile', 'GRPC_DEFAULT_SSL_ROOTS_FILE_PATH'],
];
const PROXY_VARIABLES = ['https_proxy', 'HTTPS_PROXY', 'http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY'];
const LOOKUP_MS = 1_000;

/** What the caller knows. */
export interface Asked {
  readonly env: NodeJS.ProcessEnv;
  readonly directory: string;
  readonly root?: string;
  readonly targets?: Partial<Targets>;
  readonly timeoutMs?: number;
  readonly allowed?: URL | undefined;
  /** In place of the one that variables name */
  readonly proxy?: URL | undefined;
}

/** Of each probe, where nobody says otherwise. */
export const STANDARD_TIMEOUT_MS = 3_000;

/** Looks around. Never throws: what cannot be read is not there. */
export async function lookAround(asked: Asked): Promise<Surroundings> {
  const { env, directory, root = '/', targets = {}, timeoutMs = STANDARD_TIMEOUT_MS, allowed, proxy } = asked;
  const read = (path: string): string => readText(join(root, path));
  const caFiles = [...new Set(CA_VARIABLES.flatMap((name) => (isSet(env[name]) ? [env[name]] : [])))];
  const trust = [...new Set(caFiles.map(readText).filter((text) => text.includes('-----BEGIN CERTIFICATE-----')))];
  const gateways = gatewaysOf(read('proc/net/route'));
  const nameservers = nameserversOf(read('etc/resolv.conf'));
  return {
    env,
    root,
    directory,
    targets: { ...TARGETS, nowhere: nowhereFrom([...gateways, ...nameservers, ...ownAddresses()]), ...targets },
    timeoutMs,
    proxy: await named(proxy ?? proxyOf(env)),
    allowed,
    gateways,
    hasRoute6: hasDefaultRoute6(read('proc/net/ipv6_route')),
    nameservers,
    ca: caAlone(caFiles),
    trust: trust.length === 0 ? undefined : trust.join('\n'),
    caFiles,
  };
}

const NOWHERE = [TARGETS.nowhere, '198.51.100.251', '203.0.113.251'];

/** Some networks use a documentation range for themselves: there, another one. */
function nowhereFrom(near: readonly string[]): string {
  const network = (address: string): string => address.split('.').slice(0, 3).join('.');
  const taken = new Set(near.map(network));
  return NOWHERE.find((address) => !taken.has(network(address))) ?? TARGETS.nowhere;
}

function ownAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((each) => (each ?? []).map(({ address }) => address));
}

/** A file's text; empty where it cannot be read. */
export function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return ''; // not there, or not for us: the same to whoever looks for ways out
  }
}

/** Hosts where the proxy, and its admin listener, may be: the named one, else whoever routes or resolves for this sandbox. */
export function proxyHosts({ proxy, gateways, nameservers }: Surroundings): readonly string[] {
  return proxy === undefined ? [...new Set([...gateways, ...nameservers])] : [proxy.host];
}

/** Whether an address is this machine. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'));
}

/** What `Proxy-Authorization` bears for a name and a token; empty where there is neither. */
export function proxyAuthorization(username: string, password: string): readonly string[] {
  if (username === '' && password === '') return [];
  return [`Proxy-Authorization: Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`];
}

function isSet(value: string | undefined): value is string {
  return value !== undefined && value !== '';
}

function proxyOf(env: NodeJS.ProcessEnv): URL | undefined {
  for (const name of PROXY_VARIABLES) {
    const value = env[name] ?? '';
    const text = value === '' || /^[a-z0-9]+:\/\//i.test(value) ? value : `http://${value}`;
    if (URL.canParse(text)) return new URL(text);
  }
  return undefined;
}

async function named(url: URL | undefined): Promise<NamedProxy | undefined> {
  if (url === undefined) return undefined;
  const name = url.hostname.replace(/^\[|\]$/g, '');
  const port = url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : Number(url.port);
  const decode = (text: string): string => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text; // a lone percent sign: tools send it as it is
    }
  };
  return { name, host: await addressOf(name), port, username: decode(url.username), password: decode(url.password) };
}

/** Looked up once, so that no probe waits for a resolver; the name itself where that fails or takes long. */
async function addressOf(name: string): Promise<string> {
  if (isIP(name) !== 0) return name;
  const late = new Promise<string>((resolve) => setTimeout(resolve, LOOKUP_MS, name).unref());
  return Promise.race([
    late,
    lookup(name).then(
      ({ address }) => address,
      () => name,
    ),
  ]);
}

/** From /proc/net/route: the address is in hexadecimal, the lowest byte first. */
function gatewaysOf(table: string): string[] {
  return table.split('\n').flatMap((line) => {
    const [, destination, gateway] = line.trim().split(/\s+/);
    if (destination !== '00000000' || gateway === undefined || gateway === '00000000') return [];
    return [[...Buffer.from(gateway, 'hex').reverse()].join('.')];
  });
}

/** From /proc/net/ipv6_route. The kernel keeps one over `lo` that leads nowhere. */
function hasDefaultRoute6(table: string): boolean {
  return table.split('\n').some((line) => {
    const fields = line.trim().split(/\s+/);
    return fields[0] === '0'.repeat(32) && fields[1] === '00' && fields[9] !== undefined && fields[9] !== 'lo';
  });
}

function nameserversOf(text: string): string[] {
  return [...text.matchAll(/^\s*nameserver\s+(\S+)/gm)].flatMap(([, server = '']) => {
    const [address = ''] = server.split('%');
    return isIP(address) === 0 ? [] : [address];
  });
}

/** The first named file with a single certificate in it, or ca.pem beside a named bundle. */
function caAlone(files: readonly string[]): string | undefined {
  const candidates = [...files, ...files.map((file) => join(dirname(file), 'ca.pem'))];
  return candidates.map(readText).find((text) => text.split('-----BEGIN CERTIFICATE-----').length === 2);
}
