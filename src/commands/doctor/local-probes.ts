// What lies in the sandbox and should not: keys, tokens, capabilities, sockets of engines, credentials, holes in NO_PROXY.
// It must never show what it finds, only where; nor change anything: rules are read, not written.
import { execFile } from 'node:child_process';
import { accessSync, constants, readdirSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import { together } from './finding.ts';
import type { Finding, Try } from './finding.ts';
import type { Probe } from './network-probes.ts';
import { readText } from './surroundings.ts';
import type { Surroundings } from './surroundings.ts';
import { reasonOf } from './wire.ts';

/** Where folders of a proxy are mounted, by our layouts and by habit. */
const MOUNTS = [
  ...['etc/sallyport', 'run/sallyport', 'run/sallyport/public', 'var/lib/sallyport', 'var/run/sallyport'],
  ...['certs', 'certs/public', 'state', 'app/certs', 'app/state', 'opt/sallyport', 'run/secrets', 'ca'],
];
const LARGEST_KEY_BYTES = 65_536;
const STATE_FILES = ['admin-token', 'store-key', 'store.json', 'state/admin-token', 'state/store-key', 'state/store.json'];

/** Private keys where the CA's certificate is. */
export const caKey: Probe = (around) => {
  const tries = folders(around).flatMap((folder) => [
    ...readableFiles(folder)
      .filter((path) => readText(path).includes('PRIVATE KEY-----'))
      .map((path): Try => ({ result: 'open', place: shown(path, around), why: 'a private key that can be read' })),
  ]);
  return lookedAt(tries, around, 'no private key can be read there');
};

/** The proxy's own files. */
export const stateFiles: Probe = (around) => {
  const tries = folders(around).flatMap((folder) =>
    STATE_FILES.map((name) => join(folder, name))
      .filter((path) => readText(path) !== '')
      .map((path): Try => ({ result: 'open', place: shown(path, around), why: 'can be read' })),
  );
  return lookedAt(tries, around, 'none of them can be read there');
};

/** Certificates' own folders, the ones above, and the usual mounts. */
function folders({ root, directory, caFiles }: Surroundings): string[] {
  const named = caFiles.flatMap((file) => {
    const beside = dirname(resolve(directory, file));
    return [beside, dirname(beside)];
  });
  const here = [directory, join(directory, 'certs'), join(directory, 'state')];
  // /etc and its like are above many files of certificates, and full of keys that are none of the proxy's
  const isOwn = (folder: string): boolean => !['/', '/etc', '/etc/ssl', '/usr', '/usr/share', '/tmp'].includes(folder);
  return [...new Set([...named.filter(isOwn), ...here, ...MOUNTS.map((mount) => join(root, mount))])];
}

function readableFiles(folder: string): string[] {
  try {
    return readdirSync(folder)
      .map((name) => join(folder, name))
      .filter((path) => {
        const found = statSync(path, { throwIfNoEntry: false });
        return found?.isFile() === true && found.size <= LARGEST_KEY_BYTES;
      });
  } catch {
    return []; // not there, or not for us to list
  }
}

function lookedAt(tries: readonly Try[], around: Surroundings, nothing: string): Finding {
  const tried = `${folders(around).length} folders: ${around.caFiles.length === 0 ? '' : 'those of the CA, '}the usual mounts, this one`;
  return tries.length === 0 ? { result: 'closed', tried, why: nothing } : { ...together(tries), tried };
}

function shown(path: string, { root }: Surroundings): string {
  return root === '/' || !path.startsWith(root) ? path : path.slice(root.length - 1);
}

const CAPABILITIES = [
  { name: 'NET_ADMIN', bit: 12n },
  { name: 'SYS_MODULE', bit: 16n },
  { name: 'SYS_PTRACE', bit: 19n },
  { name: 'SYS_ADMIN', bit: 21n },
] as const;

function effective({ root }: Surroundings): bigint | undefined {
  const mask = /^CapEff:\s*([0-9a-f]+)/m.exec(readText(join(root, 'proc/self/status')))?.[1];
  return mask === undefined ? undefined : BigInt(`0x${mask}`);
}

/** Capabilities in force. */
export const capabilities: Probe = (around) => {
  const tried = 'CapEff of /proc/self/status';
  const mask = effective(around);
  if (mask === undefined) return { result: 'unknown', tried, why: '/proc/self/status cannot be read' };
  const held = CAPABILITIES.filter(({ bit }) => (mask >> bit) & 1n).map(({ name }) => name);
  if (held.length === 0) return { result: 'closed', tried, why: 'none of them is in force' };
  return { result: 'open', tried, why: `in force: ${held.join(', ')}` };
};

/** Whether rules can be read, and so changed. */
export const firewall: Probe = async (around, signal) => {
  const tools: readonly (readonly string[])[] = [
    ['nft', 'list', 'ruleset'],
    ['iptables', '-S'],
    ['sudo', '-n', 'nft', 'list', 'ruleset'],
    ['sudo', '-n', 'iptables', '-S'],
  ];
  const run = (words: readonly string[]): Promise<Try[]> =>
    new Promise((done) => {
      const [tool = '', ...rest] = words;
      const place = words.join(' ');
      const options = { env: { PATH: `${around.env['PATH'] ?? ''}:/usr/sbin:/sbin` }, signal, killSignal: 'SIGKILL' as const };
      execFile(tool, rest, options, (error) => {
        if (error === null) done([{ result: 'open', place, why: 'the rules can be read, and so changed' }]);
        else if (error.name === 'AbortError') done([{ result: 'unknown', place, why: 'no answer in time' }]);
        else done(typeof error.code === 'string' ? [] : [{ result: 'closed', place, why: 'not permitted' }]);
      });
    });
  const tries = (await Promise.all(tools.map(run))).flat();
  const mask = effective(around);
  if (!tries.some(({ result }) => result === 'open') && mask !== undefined && (mask >> 12n) & 1n)
    return { result: 'open', tried: 'CapEff', why: 'NET_ADMIN is in force: a tool that one brings along can change the rules' };
  return together(tries, 'there is no nft, iptables or sudo here, and NET_ADMIN is not in force');
};

const ENGINES = [
  'var/run/docker.sock',
  'run/docker.sock',
  'run/podman/podman.sock',
  'run/containerd/containerd.sock',
  'run/crio/crio.sock',
];

/** Sockets of container engines. */
export const dockerSocket: Probe = async (around, signal) => {
  const named = /^unix:\/\/(\/.+)$/.exec(around.env['DOCKER_HOST'] ?? '')?.[1];
  const paths = [...new Set([...ENGINES.map((path) => join(around.root, path)), ...(named === undefined ? [] : [named])])];
  const one = (path: string): Promise<Try> =>
    new Promise((done) => {
      const place = shown(path, around);
      const socket = connect({ path });
      const end = (result: Try['result'], why: string): void => {
        socket.destroy();
        done({ result, place, why });
      };
      socket.once('connect', () => end('open', 'takes connections'));
      socket.on('error', (error) => end('closed', 'code' in error && error.code === 'ENOENT' ? 'not there' : reasonOf(error)));
      signal.addEventListener('abort', () => end('unknown', 'no answer in time'), { once: true });
    });
  return together(await Promise.all(paths.map(one)));
};

const SECRET_VARIABLES = [
  ...[
    'AWS_SECRET_ACCESS_KEY',
    'AWS_SESSION_TOKEN',
    'AZURE_CLIENT_SECRET',
    'GOOGLE_OAUTH_ACCESS_TOKEN',
    'CLOUDSDK_AUTH_ACCESS_TOKEN',
  ],
  ...['GITHUB_TOKEN', 'GH_TOKEN', 'GITLAB_TOKEN', 'DIGITALOCEAN_ACCESS_TOKEN', 'HCLOUD_TOKEN', 'VAULT_TOKEN'],
];
const FILE_VARIABLES = [
  ...['AWS_SHARED_CREDENTIALS_FILE', 'AWS_WEB_IDENTITY_TOKEN_FILE', 'GOOGLE_APPLICATION_CREDENTIALS'],
  ...['AZURE_FEDERATED_TOKEN_FILE', 'KUBECONFIG'],
];
const SECRET_FILES = [
  'var/run/secrets/kubernetes.io/serviceaccount/token',
  'var/run/secrets/eks.amazonaws.com/serviceaccount/token',
];
const HOME_FILES = [
  ...[
    '.aws/credentials',
    '.aws/sso/cache',
    '.config/gcloud/application_default_credentials.json',
    '.config/gcloud/credentials.db',
  ],
  ...['.azure/msal_token_cache.json', '.azure/accessTokens.json', '.kube/config', '.docker/config.json', '.netrc'],
  ...['.git-credentials', '.config/gh/hosts.yml', '.vault-token'],
];
/** What the door swaps for a credential is none. */
const PLACEHOLDER = /^__GEMINI_CRED_.+__$/;

/** Credentials that a sandbox should not hold. */
export const cloudCredentials: Probe = (around) => {
  const { env, root } = around;
  const isSecret = (name: string): boolean => (env[name] ?? '') !== '' && !PLACEHOLDER.test(env[name] ?? '');
  const home = env['HOME'] ?? '';
  const paths = [
    ...FILE_VARIABLES.flatMap((name) => ((env[name] ?? '') === '' ? [] : [env[name] ?? ''])),
    ...SECRET_FILES.map((path) => join(root, path)),
    ...(home === '' ? [] : HOME_FILES.map((path) => join(home, path))),
  ];
  const tries: Try[] = [
    ...SECRET_VARIABLES.filter(isSecret).map((name): Try => ({ result: 'open', place: name, why: 'is set' })),
    ...paths.filter(mayRead).map((path): Try => ({ result: 'open', place: shown(path, around), why: 'can be read' })),
  ];
  const tried = `${SECRET_VARIABLES.length} variables and ${paths.length} files`;
  return tries.length === 0 ? { result: 'closed', tried, why: 'none is there' } : { ...together(tries), tried };
};

function mayRead(path: string): boolean {
  try {
    accessSync(path, constants.R_OK);
    return true;
  } catch {
    return false; // not there, or not for us
  }
}

/** What NO_PROXY may hold: this machine alone. */
const LOOPBACK_ENTRY = /^(?:localhost|127(?:\.\d{1,3}){3}(?:\/\d+)?|\[?::1\]?(?:\/128)?)(?::\d+)?$/i;

/** Holes in the proxy variables. */
export const noProxy: Probe = ({ env }) => {
  const tries = ['NO_PROXY', 'no_proxy'].flatMap((variable): Try[] => {
    const entries = (env[variable] ?? '').split(/[\s,]+/).filter((entry) => entry !== '');
    return entries.map((entry): Try => {
      const place = `${variable}: "${entry}"`;
      if (LOOPBACK_ENTRY.test(entry)) return { result: 'closed', place, why: 'loopback' };
      const isWide = entry.includes('*') || entry.startsWith('.') || entry.includes('/');
      return isWide
        ? { result: 'open', place, why: 'whatever it covers is dialled past the door' }
        : { result: 'closed', place, why: 'one host, which is dialled past the door: see that it has to be' };
    });
  });
  return together(tries, 'neither is set');
};
