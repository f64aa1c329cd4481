// The vendor's own client, unmodified, drives the admin listener; what it has made is put on at the door, of this proxy and of others
// that share its store; and nobody can read it back.
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GoogleGenAI } from '@google/genai';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { freePort } from '../support/child-server.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { askAdmin, sampled, statusOf, untilIt } from '../support/operator.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';
import { engines, titleOf } from '../store/rig.ts';

let outside: Outside;
let upstream: Upstream;
let folder: string;
let houses: House[];

beforeAll(async () => {
  outside = await openOutside();
  upstream = await startUpstream({ tls: outside });
});
afterAll(async () => {
  await upstream.close();
  await outside.close();
});
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'shared-store-'));
  houses = [];
  // The client warns that these resources are new.
  vi.spyOn(console, 'warn').mockImplementation(() => undefined);
});
afterEach(async () => {
  for (const house of houses) await house.stop();
  await rm(folder, { recursive: true, force: true });
  vi.restoreAllMocks();
});

/** The engines that proxies of several machines can share */
const servers = engines.filter(({ name }) => name !== 'a file');

const NAMES = { 'api.test': ['127.0.0.1'] };
const url = () => `https://api.test:${upstream.port}/`;

async function house(more: object = {}, env: NodeJS.ProcessEnv = {}): Promise<House> {
  const started = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: { allowlist: [{ domain: 'api.test', credential: 'gh', ports: [upstream.port], addresses: LOOPBACK }] },
      ...more,
    },
    { names: NAMES, env },
  );
  houses.push(started);
  return started;
}

/** A house on the store that all of a test share. */
const sharing = (more: object = {}) =>
  house({ store: { uri: `file:${join(folder, 'store')}`, key: { file: join(folder, 'key') } }, ...more });

function clientOf({ adminPort, adminToken }: House): GoogleGenAI {
  return new GoogleGenAI({ apiKey: adminToken, httpOptions: { baseUrl: `http://127.0.0.1:${adminPort}` } });
}

/** What a request through the door bears, or the reason why it was refused. */
async function borne(through: House): Promise<string> {
  const answer = await ask(through, url());
  if (answer.status !== 200) return String(answer.headers['x-sallyport-reason']);
  return valuesOf(upstream.seen.at(-1)?.fields ?? [], 'authorization').join();
}

describe("the vendor's client", () => {
  it('creates, reads, lists, changes and deletes credentials, and the door follows at once', async () => {
    const here = await house();
    const { credentials } = clientOf(here);
    expect(await borne(here)).toBe('credential_unavailable');
    const made = await credentials.create({ id: 'gh', type: 'bearer_token', token: 'marker-one' });
    expect(made).toMatchObject({ id: 'gh', type: 'bearer_token', status: 'active' });
    expect(Date.parse(made.create_time ?? '')).toBeGreaterThan(0);
    expect(await borne(here)).toBe('Bearer marker-one');
    expect(await credentials.get('gh')).toMatchObject({ id: 'gh', create_time: made.create_time });
    await credentials.update('gh', { type: 'bearer_token', token: 'marker-two' });
    expect(await borne(here)).toBe('Bearer marker-two');
    await credentials.create({
      id: 'var',
      type: 'environment_variable',
      value: 'v',
      injection_location: ['header'],
      trusted_domains: ['api.test'],
    });
    const first = await credentials.list({ page_size: 1 });
    const rest = await credentials.list({ page_size: 50, page_token: first.next_page_token ?? '' });
    const ids = [...(first.credentials ?? []), ...(rest.credentials ?? [])].map(({ id }) => id);
    expect(ids).toEqual(expect.arrayContaining(['gh', 'var']));
    await credentials.delete('gh');
    expect(await borne(here)).toBe('credential_unavailable');
    await expect(credentials.get('gh')).rejects.toMatchObject({ message: expect.stringContaining('not_found') as string });
  });

  it('changes with an update mask only what the mask names', async () => {
    const here = await house();
    const { credentials } = clientOf(here);
    await credentials.create({ id: 'gh', type: 'bearer_token', token: 'marker-one' });
    await credentials.update('gh', { type: 'bearer_token', token: 'marker-two', prefix: 'Token', update_mask: 'prefix' });
    expect(await borne(here)).toBe('Token marker-one');
  });

  it('hears what is wrong in the form that it knows', async () => {
    const { credentials } = clientOf(await house());
    await credentials.create({ id: 'gh', type: 'bearer_token', token: 'marker-one' });
    const once = { retries: { strategy: 'none' }, maxRetries: 0 } as object;
    const twice = credentials.create({ id: 'gh', type: 'bearer_token', token: 'x' }, once);
    await expect(twice).rejects.toMatchObject({ message: expect.stringMatching(/409[\s\S]*aborted/) as string });
    const wrong = credentials.update('gh', { type: 'environment_variable', value: 'v' }, once);
    await expect(wrong).rejects.toMatchObject({ message: expect.stringMatching(/400[\s\S]*invalid_request/) as string });
  });

  it('needs the admin token', async () => {
    const here = await house();
    const stranger = clientOf({ ...here, adminToken: 'guessed' });
    await expect(stranger.credentials.list()).rejects.toMatchObject({ message: expect.stringContaining('401') as string });
  });
});

describe('a stored credential', () => {
  it('is in force on another proxy of the same store within ten seconds, as is its change and its end', async () => {
    const [one, other] = [await sharing(), await sharing()];
    await rotates(one, other);
  }, 40_000);

  for (const engine of servers) {
    it.skipIf(engine.missing !== undefined)(
      titleOf(engine, 'is so where two proxies share a store'),
      async () => {
        const server = await engine.start();
        try {
          const env = { STORE_KEY: Buffer.alloc(32, 9).toString('base64') };
          const store = { uri: await server.fresh(), key: { env: 'STORE_KEY' } };
          await rotates(await house({ store }, env), await house({ store }, env));
        } finally {
          for (const each of houses.splice(0)) await each.stop();
          await server.end();
        }
      },
      60_000,
    );
  }

  it('is there after a restart', async () => {
    const one = await sharing();
    await clientOf(one).credentials.create({ id: 'gh', type: 'bearer_token', token: 'marker-one' });
    await houses.pop()?.stop();
    expect(await borne(await sharing())).toBe('Bearer marker-one');
  });

  it('comes after one of the config, and cannot be made or changed under its id', async () => {
    const one = await sharing();
    await clientOf(one).credentials.create({ id: 'gh', type: 'bearer_token', token: 'marker-stored' });
    const other = await sharing({ credentials: { gh: { type: 'bearer_token', token: 'marker-config' } } });
    expect(await borne(other)).toBe('Bearer marker-config');
    const patch = clientOf(other).credentials.update('gh', { type: 'bearer_token', token: 'x' }, {
      maxRetries: 0,
      retries: { strategy: 'none' },
    } as object);
    await expect(patch).rejects.toMatchObject({ message: expect.stringContaining('declared in the config') as string });
    const { credentials } = (await statusOf(other)) as unknown as { credentials: Record<string, unknown>[] };
    expect(credentials).toEqual([
      { id: 'gh', type: 'bearer_token', source: 'config', health: 'ok' },
      {
        id: 'gh',
        type: 'bearer_token',
        source: 'store',
        health: 'unavailable',
        reason: 'the config declares this id, and comes first',
      },
    ]);
  });

  it('is explained as it would be put on', async () => {
    const here = await house();
    const question = { method: 'GET', url: url() };
    expect((await askAdmin(here, '/v1/explain', question)).json).toMatchObject({
      decision: 'refuse',
      reason: 'credential_unavailable',
    });
    await clientOf(here).credentials.create({ id: 'gh', type: 'bearer_token', token: 'marker-one', header_name: 'X-Key' });
    expect((await askAdmin(here, '/v1/explain', question)).json).toMatchObject({
      decision: 'allow',
      credentials: ['gh'],
      injects: ['X-Key'],
    });
  });

  it('is counted where it cannot be resolved, by its id once there was one', async () => {
    const here = await house();
    const failures = async (credential: string) =>
      sampled(await here.scrape(), 'sallyport_credential_failures_total', { credential });
    await borne(here);
    expect([await failures('gh'), await failures('_rule')]).toEqual([0, 1]);
  });

  it('is to be read nowhere: not in an answer, the log, the audit log, a scrape, nor in any file', async () => {
    const here = await house();
    const { credentials } = clientOf(here);
    const made = await credentials.create({ id: 'gh', type: 'bearer_token', token: 'marker-one' });
    await borne(here);
    const said = [
      JSON.stringify([made, await credentials.list(), await credentials.get('gh')]),
      (await askAdmin(here, '/v1/status')).text,
      (await askAdmin(here, '/v1/explain', { method: 'GET', url: url() })).text,
      await here.scrape(),
      JSON.stringify(await here.audit()),
      ...here.logged,
    ];
    expect(said.join('\n')).not.toContain('marker-one');
    for (const name of await readdir(here.folder, { recursive: true, withFileTypes: true })) {
      if (!name.isFile()) continue;
      expect((await readFile(join(name.parentPath, name.name))).includes('marker-one'), name.name).toBe(false);
    }
  });
});

/** Made, changed and deleted on one proxy, and followed on the other. */
async function rotates(one: House, other: House): Promise<void> {
  const { credentials } = clientOf(one);
  expect(await borne(other)).toBe('credential_unavailable');
  const follows = (wanted: string) =>
    untilIt(
      () => borne(other),
      (seen) => seen === wanted,
    );
  await credentials.create({ id: 'gh', type: 'bearer_token', token: 'marker-one' });
  await follows('Bearer marker-one');
  await credentials.update('gh', { type: 'bearer_token', token: 'marker-two' });
  expect(await borne(one)).toBe('Bearer marker-two');
  await follows('Bearer marker-two');
  await credentials.delete('gh');
  expect(await borne(one)).toBe('credential_unavailable');
  await follows('credential_unavailable');
}

describe('the store of a proxy', () => {
  it('is not made by a start, nor by reading', async () => {
    const here = await house();
    await clientOf(here).credentials.list();
    await borne(here);
    expect(existsSync(join(here.folder, 'store.json'))).toBe(false);
    expect(existsSync(join(here.folder, 'store-key'))).toBe(false);
  });

  it('does not let a proxy start with another key', async () => {
    const one = await sharing();
    await clientOf(one).credentials.create({ id: 'gh', type: 'bearer_token', token: 'marker-one' });
    await houses.pop()?.stop();
    await writeFile(join(folder, 'key'), Buffer.alloc(32, 5).toString('base64'), { mode: 0o600 });
    await expect(sharing()).rejects.toThrow(/sealed with another key; put the right one in the place that store\.key names/);
  });

  it('is named by /readyz while it is away, and what does not need it is served', async () => {
    const env = { STORE_KEY: Buffer.alloc(32, 9).toString('base64') };
    const here = await house({ store: { uri: `redis://127.0.0.1:${await freePort()}`, key: { env: 'STORE_KEY' } } }, env);
    const ready = await fetch(`http://127.0.0.1:${here.adminPort}/readyz`);
    expect([ready.status, await ready.text()]).toEqual([
      503,
      expect.stringContaining('store (the store at \\"redis://127.0.0.1:'),
    ]);
    expect(await borne(here)).toBe('credential_unavailable');
    const { store } = (await statusOf(here)) as unknown as { store: Record<string, unknown> };
    expect(store).toMatchObject({ health: 'away', reason: expect.stringContaining('is away') as string });
  });
});
