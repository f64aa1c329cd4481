// The built program at its start and its end: what keeps it from starting is one line with the remedy and an exit code that says who
// has to act; and nothing in its environment switches the verification of upstreams off.
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import tls from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createLogger } from '../../src/foundation/logger.ts';
import { openStore } from '../../src/store/record-store.ts';
import { buildCli, cliFolder, runCli, startCli } from '../support/cli.ts';
import type { Ended } from '../support/cli.ts';
import { LOOPBACK } from '../support/house.ts';
import { openOddCertificates } from '../support/odd-certificates.ts';
import type { OddCertificates, Pair } from '../support/odd-certificates.ts';
import { startRaw } from '../support/outside.ts';
import type { Upstream } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';

const cleanup: (() => Promise<unknown>)[] = [];

beforeAll(buildCli, 180_000);

afterEach(async () => {
  for (const close of cleanup.splice(0).reverse()) await close();
});

async function startWith(
  config: object | string,
  options: { prepare?: (folder: string) => Promise<unknown>; words?: readonly string[]; env?: NodeJS.ProcessEnv } = {},
): Promise<Ended> {
  const made = await cliFolder(config);
  cleanup.push(made.close);
  await options.prepare?.(made.folder);
  return runCli(['start', ...(options.words ?? ['--config', made.config])], { folder: made.folder, env: options.env ?? {} });
}

interface Row {
  readonly name: string;
  readonly config: object | string;
  readonly prepare?: (folder: string) => Promise<unknown>;
  readonly words?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  readonly code: number;
  /** What the one line must hold: the path, then the remedy */
  readonly says: readonly RegExp[];
}

const QUIET = { network: { allowlist: [{ domain: 'api.test' }] } };

const ROWS: readonly Row[] = [
  {
    name: 'a config that does not exist',
    config: QUIET,
    words: ['--config', 'none.yaml'],
    code: 78,
    says: [/none\.yaml/, /does not exist/, /--config/],
  },
  {
    name: 'a config that cannot be read',
    config: QUIET,
    words: ['--config', 'folder'],
    prepare: (folder) => mkdir(join(folder, 'folder')),
    code: 78,
    says: [/folder/, /cannot be read \(EISDIR\)/, /--config/],
  },
  { name: 'a config that is no YAML', config: '{"network": ', code: 78, says: [/sallyport\.json/] },
  { name: 'a config with a misspelt key', config: { ...QUIET, lisen: {} }, code: 78, says: [/lisen/, /did you mean `listen`/] },
  {
    name: 'a secret of a transform that is missing',
    config: { network: { allowlist: [{ domain: 'api.test', transform: { 'X-Key': { env: 'UNSET_KEY' } } }] } },
    code: 78,
    says: [/transform/, /"UNSET_KEY" is not set/, /set it/],
  },
  {
    name: 'a token file of a sandbox that is missing',
    config: { ...QUIET, sandboxes: { a: { token: { file: 'none/token' } } } },
    code: 78,
    says: [/sandboxes\.a\.token/, /"none\/token" does not exist/, /create it/],
  },
  {
    name: 'a secret that could split a request',
    config: { ...QUIET, credentials: { main: { type: 'bearer_token', token: { env: 'SPLIT' } } } },
    env: { SPLIT: 'marker-secret\nX: 1' },
    code: 78,
    says: [/credentials\.main\.token/, /credential "main"/, /line break/],
  },
  {
    name: 'a root of upstreams that is missing',
    config: { ...QUIET, upstream: { ca: ['none.pem'] } },
    code: 78,
    says: [/upstream\.ca/, /"none\.pem" does not exist/],
  },
  {
    name: 'a place for the CA where no folder can be made',
    config: { ...QUIET, ca: { certificate: 'taken/public/ca.pem', key: 'ca.key' } },
    prepare: (folder) => writeFile(join(folder, 'taken'), ''),
    code: 1,
    says: [/taken\/public/, /ca\.certificate|folder/],
  },
  {
    name: 'a CA key in the folder that sandboxes may see',
    config: { ...QUIET, ca: { certificate: 'ca.pem', key: 'ca.key' } },
    code: 1,
    says: [/"ca\.key"/, /set ca\.key to a path outside/],
  },
  {
    name: 'an audit log that cannot be opened',
    config: { ...QUIET, audit: { path: 'taken/audit' } },
    prepare: (folder) => writeFile(join(folder, 'taken'), ''),
    code: 1,
    says: [/"taken\/audit"/, /audit\.path/],
  },
  {
    name: 'an admin token that cannot be kept',
    config: { ...QUIET, admin: { listen: '127.0.0.1:0', token: { file: 'taken/token' } } },
    prepare: (folder) => writeFile(join(folder, 'taken'), ''),
    code: 1,
    says: [/taken\/token/, /admin\.token/],
  },
  {
    name: 'another key than the one that the store is sealed with',
    config: QUIET,
    prepare: (folder) => storeUnder(folder, OTHER_KEY),
    code: 1,
    says: [/sealed with another key/, /put the right one in the place that store\.key names/],
  },
  {
    name: 'a key of the store that is lost',
    config: QUIET,
    prepare: (folder) => storeUnder(folder, undefined),
    code: 1,
    says: [/state\/store-key/],
  },
  {
    name: 'a key of the store that is none',
    config: QUIET,
    prepare: (folder) => storeUnder(folder, 'marker-secret'),
    code: 1,
    says: [/state\/store-key" holds no key of the store/, /openssl rand -base64 32/],
  },
];

const OTHER_KEY = Buffer.alloc(32, 5).toString('base64');

/** A store in its usual place with one record, and beside it a key file that holds `text` in place of the key; `undefined`: none. */
async function storeUnder(folder: string, text: string | undefined): Promise<void> {
  const state = join(folder, 'state');
  const store = await openStore({ uri: `file:${join(state, 'store.json')}`, key: Buffer.alloc(32, 9), log: SILENT });
  await store.put('credentials', 'kept', { type: 'bearer_token', token: 'marker-secret', status: 'active' }, 'new');
  await store.close();
  if (text !== undefined) await writeFile(join(state, 'store-key'), text, { mode: 0o600 });
}

const SILENT = createLogger({ level: 'error', stream: { write: () => undefined } });

function expectOneLine({ stdout, stderr }: Ended, says: readonly RegExp[]): void {
  expect(stdout).toBe('');
  expect(stderr).toMatch(/^sallyport: [^\n]+\n$/);
  expect(stderr).not.toMatch(/\n\s+at |node:internal|[A-Z]\w*Error:/);
  for (const text of says) expect(stderr).toMatch(text);
}

describe('a start that fails says one line with the remedy', () => {
  it.each(ROWS)('$name', async ({ config, prepare, words, env = {}, code, says }) => {
    // fault L04
    const end = await startWith(config, {
      env,
      ...(prepare === undefined ? {} : { prepare }),
      ...(words === undefined ? {} : { words }),
    });
    expectOneLine(end, says);
    expect(end.stderr).not.toContain('marker-secret');
    expect(end.code).toBe(code);
  });

  it.each([
    {
      name: 'the port of the proxy is in use',
      at: (taken: string) => ({ listen: { proxy: taken } }),
      remedy: /free the port.*listen\.proxy/,
    },
    {
      name: 'the port of the admin listener is in use',
      at: (taken: string) => ({ admin: { listen: taken, token: { file: 'admin-token' } } }),
      remedy: /free the port.*admin\.listen/,
    },
  ])('$name', async ({ at, remedy }) => {
    // fault L04
    const taken = await startRaw((socket) => socket.destroy());
    cleanup.push(() => taken.close());
    const address = `127.0.0.1:${taken.port}`;
    const end = await startWith({ ...QUIET, ...at(address) });
    expectOneLine(end, [new RegExp(`"${address}" \\(EADDRINUSE\\)`), remedy]);
    expect(end.code).toBe(1);
  });

  it('names every problem of a config at once, a line each', async () => {
    // fault L04
    const end = await startWith({ ...QUIET, lisen: {}, log: { level: 'loud' } });
    expect(
      end.stderr
        .trimEnd()
        .split('\n')
        .map((line) => line.slice(0, 11)),
    ).toEqual(['sallyport: ', 'sallyport: ']);
    expect(end.code).toBe(78);
  });
});

describe('the commands of the store, with another key than the one that it is sealed with,', () => {
  it.each([
    { words: ['store', 'status'], says: /sealed with another key than the one that store\.key names; put the right one there/ },
    { words: ['store', 'rekey'], says: /sealed with another key; put the right one in the place that store\.key names/ },
  ])('say so in one line and exit 1: $words', async ({ words, says }) => {
    const made = await cliFolder(QUIET);
    cleanup.push(made.close);
    await storeUnder(made.folder, OTHER_KEY);
    const { code, stdout, stderr } = await runCli([...words, '--config', made.config], { folder: made.folder });
    expectOneLine({ code, stdout: '', stderr }, [says]);
    expect(code).toBe(1);
    expect(stdout + stderr).not.toMatch(new RegExp(`marker-secret|${OTHER_KEY.slice(0, 40)}`));
    // Of two keys, which one is the right one shows in their ids.
    const facts = stdout === '' ? {} : (JSON.parse(stdout) as Record<string, unknown>);
    if (words[1] === 'status') {
      expect(facts).toMatchObject({ stored: true, records: { credentials: 1 }, unreadable: 0 });
      expect(facts['key_at_hand']).not.toBe(facts['key_in_use']);
    }
    // Nothing was changed: the right key still opens it.
    const store = await openStore({
      uri: `file:${join(made.folder, 'state', 'store.json')}`,
      key: Buffer.alloc(32, 9),
      log: SILENT,
    });
    expect((await store.get('credentials', 'kept'))?.value['token']).toBe('marker-secret');
    await store.close();
  });
});

describe('a start that succeeds', () => {
  it('warns of a credential whose secret is missing, runs, and stops with 0 on SIGTERM', async () => {
    // fault L04
    const made = await cliFolder({
      credentials: { main: { type: 'bearer_token', token: { env: 'UNSET_KEY' } } },
      network: { allowlist: [{ domain: 'api.test', credential: 'main' }] },
    });
    cleanup.push(made.close);
    const started = await startCli(made);
    const ready = await fetch(`http://127.0.0.1:${started.adminPort}/readyz`);
    expect(ready.status).toBe(200);
    expect(started.log()).toContainEqual(
      expect.objectContaining({
        level: 'warn',
        message: expect.stringMatching(/credential "main" is unavailable.*"UNSET_KEY" is not set/) as string,
      }),
    );
    const end = await started.stop();
    expect(end.code).toBe(0);
    expect(end.stdout).toBe('');
  });
});

describe('an environment that would switch verification off', () => {
  let odd: OddCertificates;

  beforeAll(async () => {
    odd = await openOddCertificates();
  });

  afterAll(() => odd.close());

  /** Starts a TLS upstream and the program in front of it, and asks it through the door. */
  async function askThrough(
    pair: Pair,
    options: { env: NodeJS.ProcessEnv; tls?: tls.SecureContextOptions; ca?: readonly string[] },
  ) {
    let heard = '';
    const upstream: Upstream = await startRaw((socket) => {
      const secured = new tls.TLSSocket(socket, { isServer: true, ...pair, ...options.tls });
      secured.on('error', () => socket.destroy()).on('end', () => socket.destroy());
      secured.on('data', (chunk: Buffer) => {
        heard += chunk.toString('latin1');
        secured.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
      });
    });
    cleanup.push(() => upstream.close());
    const rule = { domain: 'localhost', credential: 'main', ports: [upstream.port], addresses: [...LOOPBACK, '::1/128'] };
    const made = await cliFolder({
      upstream: { ca: options.ca ?? [] },
      credentials: { main: { type: 'bearer_token', token: 'marker-token' } },
      network: { allowlist: [rule] },
    });
    cleanup.push(made.close);
    const started = await startCli({ ...made, env: options.env });
    cleanup.push(() => started.stop());
    const got = await ask(started, `https://localhost:${upstream.port}/`);
    return { status: got.status, reason: got.headers['x-sallyport-reason'], heard: () => heard, log: started.log() };
  }

  const LEGACY = { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'DEFAULT@SECLEVEL=0' } as const;

  it('lets a good certificate pass as ever', async () => {
    const pair = await odd.mint({ commonName: 'x', names: 'DNS:localhost' });
    const { status, heard } = await askThrough(pair, { env: { NODE_TLS_REJECT_UNAUTHORIZED: '0' }, ca: [odd.rootPath] });
    expect(status).toBe(200);
    expect(heard()).toContain('marker-token');
  });

  it('has no effect as NODE_TLS_REJECT_UNAUTHORIZED=0, and the log warns of it', async () => {
    // fault H01
    const pair = await odd.mint({ commonName: 'localhost', names: 'DNS:localhost', by: 'itself' });
    const { status, reason, heard, log } = await askThrough(pair, { env: { NODE_TLS_REJECT_UNAUTHORIZED: '0' } });
    expect([status, reason]).toEqual([502, 'upstream_tls']);
    expect(heard()).toBe('');
    expect(log).toContainEqual(
      expect.objectContaining({
        level: 'warn',
        message: expect.stringContaining('NODE_TLS_REJECT_UNAUTHORIZED=0 has no effect') as string,
      }),
    );
  });

  it('does not bring old versions of TLS back as NODE_OPTIONS', async () => {
    // fault H01
    const pair = await odd.mint({ commonName: 'x', names: 'DNS:localhost' });
    const env = { NODE_OPTIONS: '--tls-min-v1.0 --tls-cipher-list=DEFAULT@SECLEVEL=0' };
    const { status, reason, heard } = await askThrough(pair, { env, tls: LEGACY, ca: [odd.rootPath] });
    expect([status, reason]).toEqual([502, 'upstream_tls']);
    expect(heard()).toBe('');
  });

  it('is not warned of where the variable is not set', async () => {
    // fault H01
    const pair = await odd.mint({ commonName: 'x', names: 'DNS:localhost' });
    const { log } = await askThrough(pair, { env: { NODE_TLS_REJECT_UNAUTHORIZED: '1' }, ca: [odd.rootPath] });
    expect(JSON.stringify(log)).not.toContain('NODE_TLS_REJECT_UNAUTHORIZED');
  });
});
