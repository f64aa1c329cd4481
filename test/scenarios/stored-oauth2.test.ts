// A client of OAuth 2.0 that is kept over the admin API, from its first exchange to its revocation, through a whole house: the endpoint is
// on loopback, which this house alone has open for it; any other refuses it (fetched-credentials.test.ts).
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { rest } from '../support/admin-rest.ts';
import { CLIENT, startAuthorizationServer } from '../support/authorization-server.ts';
import type { AuthorizationServer } from '../support/authorization-server.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { sampled, seriesOf, statusOf, untilIt } from '../support/operator.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { gate, inside } from '../support/probes.ts';
import { ask, openSecureTunnel } from '../support/sandbox-client.ts';

let outside: Outside;
let upstream: Upstream;
let tokens: AuthorizationServer;
let folder: string;
let houses: House[];

beforeAll(async () => {
  outside = await openOutside();
  upstream = await startUpstream({
    tls: outside,
    answer: (_, response) => response.writeHead(200, { 'content-length': 2 }).end('ok'),
  });
});
afterAll(async () => {
  await upstream.close();
  await outside.close();
});
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'stored-oauth2-'));
  houses = [];
  tokens = await startAuthorizationServer(outside);
});
afterEach(async () => {
  for (const house of houses) await house.stop();
  await tokens.close();
  await rm(folder, { recursive: true, force: true });
});

/** A house on the store that all of a test share. */
async function openHouse(): Promise<House> {
  const house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      store: { uri: `file:${join(folder, 'store')}`, key: { file: join(folder, 'key') } },
      network: { allowlist: [{ domain: 'crm.test', credential: 'crm', ports: [upstream.port], addresses: LOOPBACK }] },
    },
    { names: { 'crm.test': ['127.0.0.1'], localhost: ['127.0.0.1'] }, tokenRanges: LOOPBACK },
  );
  houses.push(house);
  return house;
}

const client = () => ({ id: 'crm', type: 'oauth2', ...CLIENT, refresh_token: tokens.refreshToken, token_url: tokens.url });

/** Stores the client. */
async function create(house: House): Promise<void> {
  const made = await rest(house, 'POST /v1beta/credentials', client());
  expect([made.status, made.json['status']], made.text).toEqual([200, 'active']);
}

/** What waits until every access token that was handed out before this call has ended. */
function endOf(house: House): () => Promise<unknown> {
  const end = Date.now() + (tokens.life ?? 0) * 1000;
  return () =>
    untilIt(
      () => statusOf(house),
      () => Date.now() > end,
    );
}

/** What a request through the door bears, or the reason why it was refused. */
async function borne(house: House): Promise<string> {
  const before = upstream.seen.length;
  const answer = await ask(house, `https://crm.test:${upstream.port}/`);
  if (answer.status !== 200) return `${answer.status} ${String(answer.headers['x-sallyport-reason'])}`;
  return valuesOf(upstream.seen[before]?.fields ?? [], 'authorization').join();
}

const EXPIRY = 'sallyport_credential_expiry_timestamp_seconds{credential="crm"}';
const expiry = async (house: House) => seriesOf(await house.scrape()).get(EXPIRY);
const failures = async (house: House, reason: string) =>
  sampled(await house.scrape(), 'sallyport_credential_failures_total', { credential: 'crm', reason });

describe('a client of OAuth 2.0 that is stored', () => {
  it('is proved by one exchange, and what that gave is put on', async () => {
    const house = await openHouse();
    await create(house);
    expect(tokens.asks.map(({ form }) => form.get('refresh_token'))).toEqual(['refresh-0']);
    expect(await borne(house)).toBe('Bearer access-1');
    expect(await borne(house)).toBe('Bearer access-1');
    expect(tokens.asks).toHaveLength(1);
    const left = ((await expiry(house)) ?? 0) - Date.now() / 1000;
    expect(left).toBeGreaterThan(3500);
    expect(left).toBeLessThanOrEqual(3600);
    expect((await statusOf(house)).credentials).toMatchObject([{ id: 'crm', type: 'oauth2', source: 'store', health: 'ok' }]);
  });

  it('is not kept where the exchange is refused, and can be made with a better refresh token then', async () => {
    const house = await openHouse();
    const refused = await rest(house, 'POST /v1beta/credentials', { ...client(), refresh_token: 'marker-guessed' });
    expect([refused.status, refused.text]).toEqual([400, expect.stringContaining('could not be exchanged') as string]);
    expect(refused.text).not.toContain('marker-guessed');
    expect((await rest(house, 'GET /v1beta/credentials/crm')).status).toBe(404);
    await create(house);
    expect(await borne(house)).toBe('Bearer access-1');
  });

  it.each([
    { name: 'that nobody has used yet', life: 1, use: () => Promise.resolve() },
    {
      name: 'that was in use, while its renewal is under way',
      life: 3,
      use: async (house: House) => {
        expect(await borne(house)).toBe('Bearer access-1');
      },
    },
  ])('costs one refresh where a hundred requests come at the end of a token $name', async ({ life, use }) => {
    tokens.life = life;
    const house = await openHouse();
    await create(house);
    const atEnd = endOf(house);
    const shut = gate();
    tokens.gate = shut.opened;
    await use(house);
    const authority = `crm.test:${upstream.port}`;
    const tunnels = await Promise.all(Array.from({ length: 100 }, () => openSecureTunnel(house, authority)));
    await atEnd();
    tokens.life = 3600;
    const before = upstream.seen.length;
    const hundred = Promise.all(tunnels.map((tunnel) => inside(tunnel, authority)));
    while (tokens.asks.length < 2) await new Promise((resolve) => setImmediate(resolve));
    shut.open();
    expect((await hundred).filter(({ status }) => status !== 200)).toEqual([]);
    for (const tunnel of tunnels) tunnel.destroy();
    const borneBy = upstream.seen.slice(before).map(({ fields }) => valuesOf(fields, 'authorization').join());
    expect(borneBy).toHaveLength(100);
    expect(new Set(borneBy)).toEqual(new Set(['Bearer access-2']));
    expect(tokens.asks).toHaveLength(2);
  });

  it('keeps the refresh token that was handed out in place of its own, over a restart', async () => {
    tokens.rotates = true;
    tokens.life = 1;
    const first = await openHouse();
    await create(first);
    await endOf(first)();
    expect(await borne(first)).toBe('Bearer access-2');
    await houses.pop()?.stop();
    const second = await openHouse();
    await endOf(second)();
    tokens.life = 3600;
    const asked = tokens.asks.length;
    expect(await borne(second)).toBe(`Bearer access-${asked + 1}`);
    expect(tokens.asks.map(({ form }) => form.get('refresh_token'))).toEqual(
      Array.from({ length: asked + 1 }, (_, turn) => `refresh-${turn}`),
    );
    expect(await failures(second, 'revoked')).toBe(0);
  });

  it('that is revoked refuses its requests on every proxy, counts it and leaves the gauge, until it is given a new refresh token', async () => {
    tokens.life = 1;
    const house = await openHouse();
    await create(house);
    expect(await borne(house)).toMatch(/^Bearer access-/);
    expect(await expiry(house)).toBeGreaterThan(0);
    tokens.refreshToken = 'refresh-mended';
    await untilIt(
      () => borne(house),
      (seen) => seen === '502 credential_unavailable',
    );
    expect(await failures(house, 'revoked')).toBe(1);
    expect(await failures(house, 'unavailable')).toBe(1);
    expect(await expiry(house)).toBeUndefined();
    expect((await rest(house, 'GET /v1beta/credentials/crm')).json['status']).toBe('revoked');
    expect((await statusOf(house)).credentials).toMatchObject([
      { id: 'crm', health: 'unavailable', reason: expect.stringContaining('revoked') as string },
    ]);
    const asked = tokens.asks.length;
    const other = await openHouse();
    expect(await borne(other)).toBe('502 credential_unavailable');
    expect(tokens.asks).toHaveLength(asked);

    tokens.life = 3600;
    const mended = await rest(house, 'PATCH /v1beta/credentials/crm', { type: 'oauth2', refresh_token: 'refresh-mended' });
    expect([mended.status, mended.json['status']]).toEqual([200, 'active']);
    const token = `Bearer ${tokens.handedOut.at(-1) ?? ''}`;
    expect(await borne(house)).toBe(token);
    expect(await expiry(house)).toBeGreaterThan(Date.now() / 1000 + 3500);
    await untilIt(
      () => borne(other),
      (seen) => seen === token,
    );
  });

  it('is to be read nowhere: not in an answer, the log, the audit log, a scrape, nor in any file', async () => {
    tokens.rotates = true;
    const house = await openHouse();
    const made = await rest(house, 'POST /v1beta/credentials', client());
    await borne(house);
    const said = [
      made.text,
      (await rest(house, 'GET /v1beta/credentials/crm')).text,
      (await rest(house, 'GET /v1/status')).text,
      await house.scrape(),
      JSON.stringify(await house.audit()),
      ...house.logged,
    ];
    for (const path of [house.folder, folder]) {
      for (const entry of await readdir(path, { recursive: true, withFileTypes: true })) {
        if (entry.isFile()) said.push(await readFile(join(entry.parentPath, entry.name), 'latin1'));
      }
    }
    for (const secret of [CLIENT.client_secret, 'refresh-0', 'refresh-1', 'access-1']) {
      expect(said.join('\n').includes(secret), secret).toBe(false);
    }
  });
});
