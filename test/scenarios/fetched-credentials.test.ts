// Credentials that are fetched, through real sockets: a client of OAuth 2.0 that the config declares or the store keeps, and a command.
// An authorization server beside the upstream hands out the tokens that reach it.
import { readdirSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rest } from '../support/admin-rest.ts';
import { CLIENT, startAuthorizationServer } from '../support/authorization-server.ts';
import type { AuthorizationServer } from '../support/authorization-server.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Seen, Upstream } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';

let outside: Outside;
let secure: Upstream;
let tokens: AuthorizationServer;
let house: House;

const NAMES: Record<string, readonly string[]> = new Proxy({}, { get: () => ['127.0.0.1'] });

const client = (over: object = {}) => ({
  type: 'oauth2',
  ...CLIENT,
  refresh_token: 'refresh-0',
  token_url: tokens.url,
  token_addresses: LOOPBACK,
  ...over,
});

const command = (script: string) => ({ type: 'exec', command: ['/bin/sh', '-c', script] });

function configOf(credentials: object): object {
  const rules = ['crm', 'printed', 'kept', 'walled'].map((id) => ({
    domain: `${id}.test`,
    credential: id,
    ports: [secure.port],
    addresses: LOOPBACK,
  }));
  return { upstream: { ca: [outside.caPath] }, credentials, network: { allowlist: rules } };
}

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({
    tls: outside,
    answer: (_, response) => response.writeHead(200, { 'content-length': 2 }).end('ok'),
  });
  tokens = await startAuthorizationServer(outside);
  tokens.rotates = true;
  house = await startHouse(configOf({ crm: client(), printed: command('echo printed-1') }), {
    names: NAMES,
    env: { PATH: process.env['PATH'] },
  });
});

afterAll(async () => {
  await house.stop();
  await tokens.close();
  await secure.close();
  await outside.close();
});

/** The Authorization that reached the upstream, or why nothing did. */
async function borne(id: string, of = house): Promise<string> {
  const before = secure.seen.length;
  const answer = await ask({ port: of.port, ca: of.ca }, `https://${id}.test:${secure.port}/`);
  if (answer.status !== 200) return `${answer.status} ${valuesOf(answer.fields, 'x-sallyport-reason').join()}`;
  return valuesOf((secure.seen[before] as Seen).fields, 'authorization').join();
}

async function sample(name: string, id: string): Promise<number | undefined> {
  const line = (await house.scrape())
    .split('\n')
    .find((each) => each.startsWith(`${name}{`) && each.includes(`credential="${id}"`));
  return line === undefined ? undefined : Number(line.split(' ')[1]);
}

async function health(id: string): Promise<unknown> {
  const { json } = await rest(house, 'GET /v1/status');
  return (json['credentials'] as { id: string }[]).find((each) => each.id === id);
}

async function until(found: () => Promise<boolean>): Promise<void> {
  while (!(await found())) await new Promise((resolve) => setImmediate(resolve));
}

describe('a client of OAuth 2.0 in the config', () => {
  it('is put on with a token that was fetched before anyone asked, and shows its end', async () => {
    await until(async () => (await sample('sallyport_credential_expiry_timestamp_seconds', 'crm')) !== undefined);
    const asked = tokens.asks.length;
    expect(await borne('crm')).toBe('Bearer access-1');
    expect(tokens.asks).toHaveLength(asked);
    const left = ((await sample('sallyport_credential_expiry_timestamp_seconds', 'crm')) ?? 0) - Date.now() / 1000;
    expect(left).toBeGreaterThan(3500);
    expect(left).toBeLessThanOrEqual(3600);
    expect(await health('crm')).toMatchObject({ type: 'oauth2', source: 'config', health: 'ok' });
  });

  it('is told of by explain without asking anyone', async () => {
    const asked = tokens.asks.length;
    const { json } = await rest(house, 'POST /v1/explain', { method: 'GET', url: `https://crm.test:${secure.port}/` });
    expect(json).toMatchObject({ decision: 'allow', credentials: ['crm'], injects: ['Authorization'] });
    expect(tokens.asks).toHaveLength(asked);
  });

  it('keeps its token over a reload that does not change it, and is fetched anew by one that does', async () => {
    const asked = tokens.asks.length;
    await house.reconfigure(configOf({ crm: client(), printed: command('echo printed-2') }));
    expect(await borne('crm')).toBe('Bearer access-1');
    expect(await borne('printed')).toBe('Bearer printed-2');
    expect(tokens.asks).toHaveLength(asked);
    tokens.refreshToken = 'refresh-by-hand';
    await house.reconfigure(configOf({ crm: client({ refresh_token: 'refresh-by-hand' }), printed: command('echo printed-2') }));
    expect(await borne('crm')).toBe('Bearer access-2');
  });

  it('that is revoked refuses its requests, and leaves the gauge', async () => {
    tokens.refreshToken = 'refresh-known-to-nobody';
    await house.reconfigure(configOf({ crm: client({ refresh_token: 'marker-revoked' }) }));
    expect(await borne('crm')).toBe('502 credential_unavailable');
    expect(await sample('sallyport_credential_expiry_timestamp_seconds', 'crm')).toBeUndefined();
    expect(await house.scrape()).toContain('sallyport_credential_failures_total{credential="crm",reason="revoked"} 1');
    expect(await health('crm')).toMatchObject({ health: 'unavailable', reason: expect.stringContaining('revoked') as string });
    tokens.refreshToken = 'refresh-mended';
    await house.reconfigure(configOf({ crm: client({ refresh_token: 'refresh-mended' }) }));
    expect(await borne('crm')).toMatch(/^Bearer access-/);
  });

  it('whose endpoint lies inside the walls is not asked where its range is not opened', async () => {
    const asked = tokens.upstream.connections;
    await house.reconfigure(configOf({ walled: client({ token_addresses: [] }) }));
    expect(await borne('walled')).toBe('502 credential_unavailable');
    expect(tokens.upstream.connections).toBe(asked);
    expect(await house.scrape()).toContain('{credential="walled",reason="address_denied"}');
  });

  it('cannot be led to the admin listener by any range', async () => {
    await house.reconfigure(configOf({ walled: client({ token_url: `https://localhost:${house.adminPort}/v1/reload` }) }));
    expect(await borne('walled')).toBe('502 credential_unavailable');
    expect(await health('walled')).toMatchObject({ reason: 'the token endpoint leads to an address inside the walls' });
  });

  it('is not begun by checking the config, and finds its rotated refresh token after a restart', async () => {
    tokens.refreshToken = 'refresh-before';
    const config = { ...configOf({ crm: client({ refresh_token: 'refresh-before' }) }) };
    const folder = house.folder;
    const store = { uri: `file:${join(folder, 'restarted.json')}`, key: { file: join(folder, 'restarted-key') } };
    const first = await startHouse({ ...config, store }, { names: NAMES });
    const token = await borne('crm', first);
    await first.stop();
    const asked = tokens.asks.length;
    const second = await startHouse({ ...config, store }, { names: NAMES });
    expect(await borne('crm', second)).toBe(token);
    await second.stop();
    expect(tokens.asks).toHaveLength(asked);
  });
});

describe('a command in the config', () => {
  it('that fails refuses its requests, and says why to the operator alone', async () => {
    await house.reconfigure(configOf({ printed: command('echo marker-printed; echo "no marker-printed" >&2; exit 7') }));
    expect(await borne('printed')).toBe('502 credential_unavailable');
    expect(await house.said('credential "printed" could not be renewed: its command ended with status 7')).toContain(
      'no [secret]',
    );
    expect(await house.scrape()).toContain('{credential="printed",reason="command_failed"}');
  });

  it('hears of its file without a reload, five minutes later at the latest', async () => {
    await writeFile(join(house.folder, 'value'), 'from-a-file\n');
    await house.reconfigure(configOf({ printed: { type: 'exec', command: ['/bin/cat', join(house.folder, 'value')] } }));
    expect(await borne('printed')).toBe('Bearer from-a-file');
    expect(await health('printed')).toEqual({ id: 'printed', type: 'exec', source: 'config', health: 'ok' });
  });
});

describe('over the admin API', () => {
  it('a client is proved before it is stored, on the same guarded way', async () => {
    const asked = tokens.upstream.connections;
    const made = await rest(house, 'POST /v1beta/credentials', { id: 'kept', ...client({ token_addresses: undefined }) });
    expect(made.status).toBe(400);
    expect(made.text).toContain(
      'the refresh token could not be exchanged: the token endpoint leads to an address inside the walls',
    );
    expect(tokens.upstream.connections).toBe(asked);
    expect((await rest(house, 'GET /v1beta/credentials/kept')).status).toBe(404);
  });

  it.each([
    { name: 'ranges for its endpoint', body: () => ({ id: 'kept', ...client() }), says: 'token_addresses' },
    { name: 'a command', body: () => ({ id: 'kept', ...command('echo') }), says: 'come from its config alone' },
  ])('nobody can declare $name', async ({ body, says }) => {
    const made = await rest(house, 'POST /v1beta/credentials', body());
    expect([made.status, made.text]).toEqual([400, expect.stringContaining(says)]);
  });
});

it('writes no token, secret or refresh token anywhere', () => {
  const written = readdirSync(house.folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !['sallyport.json', 'value'].includes(entry.name))
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), 'latin1'))
    .join('\n');
  const everything = written + house.logged.join('\n') + JSON.stringify(house.outcomes.map(({ trace }) => trace));
  for (const secret of [CLIENT.client_secret, 'access-', 'refresh-', 'printed-1', 'marker-', 'from-a-file']) {
    expect(everything.includes(secret), secret).toBe(false);
  }
});
