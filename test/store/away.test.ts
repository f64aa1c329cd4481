// Twin of redis.ts, postgres.ts and patience.ts: a server that is away, hangs, refuses or comes back, and what is said of it.
import { once } from 'node:events';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { StoreAway } from '../../src/store/store-error.ts';
import type { RecordStore } from '../../src/store/record-store.ts';
import { startDeaf } from '../support/deaf-port.ts';
import { freePort } from '../support/child-server.ts';
import { postgresMissing, startPostgres } from '../support/postgres-server.ts';
import type { PostgresServer } from '../support/postgres-server.ts';
import { redisMissing, startRedis } from '../support/redis-server.ts';
import type { RedisServer } from '../support/redis-server.ts';
import { logged, open } from './rig.ts';

const PATIENCE = { timeout: 15_000, interval: 50 };

async function awayWithin(ms: number, call: Promise<unknown>): Promise<string> {
  const began = performance.now();
  const error: unknown = await call.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(StoreAway);
  expect(performance.now() - began).toBeLessThan(ms);
  return (error as StoreAway).message;
}

interface Relay {
  readonly port: number;
  /** Forwards nothing any more on the connections that stand; new ones are forwarded. */
  silence(): void;
  close(): Promise<void>;
}

async function startRelay(to: number): Promise<Relay> {
  const standing = new Set<net.Socket>();
  const server = net.createServer((inward) => {
    const outward = net.connect(to, '127.0.0.1');
    for (const socket of [inward, outward]) {
      standing.add(socket);
      socket.on('error', () => undefined);
    }
    inward.pipe(outward).pipe(inward);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    silence: () => {
      for (const socket of standing) socket.unpipe().resume();
    },
    close: async () => {
      for (const socket of standing) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

async function expectAllAway(store: RecordStore, ms: number): Promise<string> {
  const calls = [
    store.get('credentials', 'a'),
    store.list('credentials', { limit: 1 }),
    store.put('credentials', 'a', {}, 'any'),
    store.delete('credentials', 'a'),
    store.lock('x', 1000),
  ];
  const [message = ''] = await Promise.all(calls.map((call) => awayWithin(ms, call)));
  expect(store.health()).toEqual({
    ok: false,
    since: expect.any(Number) as number,
    why: expect.stringContaining('is away') as string,
  });
  return message;
}

describe.each(['redis', 'postgresql'])('%s, at the start', (scheme) => {
  it('rejects within its time where nobody listens', async () => {
    const port = await freePort();
    const message = await awayWithin(2_800, open(`${scheme}://user:pa55word@127.0.0.1:${port}/0?password=pa55word`));
    expect(message).toBe(
      `the store at "${scheme}://127.0.0.1:${port}/0" is away: the connection is refused; start the server or correct store.uri`,
    );
  });

  it('rejects within its time where nobody answers', async () => {
    const deaf = await startDeaf();
    try {
      expect(await awayWithin(6_000, open(`${scheme}://user:pa55word@127.0.0.1:${deaf.port}/0`))).toContain('is away');
    } finally {
      await deaf.close();
    }
  });

  it('opens all the same where it is told to, and says how it is', async () => {
    const store = await open(`${scheme}://user:pa55word@127.0.0.1:${await freePort()}/0`, { evenIfAway: true });
    await expectAllAway(store, 2_800);
  });
});

describe.skipIf(redisMissing !== undefined)(`Redis that goes away ${redisMissing ?? ''}`, () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(() => server.end());

  it('fails at once while it is stopped, and is back by itself with all it held', async () => {
    const store = await open(server.uri(0));
    await store.put('credentials', 'a', { n: 1 }, 'any');
    await server.stop();
    await expectAllAway(store, 1_000);
    await server.start();
    await vi.waitFor(async () => expect((await store.get('credentials', 'a'))?.value).toEqual({ n: 1 }), PATIENCE);
    expect(store.health()).toEqual({ ok: true });
  });

  it('fails in time while it hangs, and is back by itself', async () => {
    const store = await open(server.uri(1));
    await store.put('credentials', 'a', { n: 1 }, 'any');
    server.pause();
    expect(await expectAllAway(store, 2_500)).toContain('no answer within 2 s');
    server.resume();
    await vi.waitFor(async () => expect((await store.get('credentials', 'a'))?.value).toEqual({ n: 1 }), PATIENCE);
  });

  it('is reached by a new connection where the old one stands and is silent', async () => {
    const relay = await startRelay(server.port);
    onTestFinished(() => relay.close());
    const store = await open(server.uri(3).replace(`:${server.port}`, `:${relay.port}`));
    await store.put('credentials', 'a', { n: 1 }, 'any');
    relay.silence();
    expect(await awayWithin(2_500, store.get('credentials', 'a'))).toContain('no answer within 2 s');
    await vi.waitFor(async () => expect((await store.get('credentials', 'a'))?.value).toEqual({ n: 1 }), {
      timeout: 4_000,
      interval: 50,
    });
  });

  it('is found by a store that was opened before it was there', async () => {
    await server.stop();
    const store = await open(server.uri(2), { evenIfAway: true });
    await server.start();
    await vi.waitFor(() => store.put('credentials', 'a', {}, 'any'), PATIENCE);
  });

  it.each([
    {
      name: 'a wrong password',
      uri: (port: number) => `redis://:pa55word@127.0.0.1:${port}`,
      says: 'refuses the user or the password',
    },
    { name: 'no password', uri: (port: number) => `redis://127.0.0.1:${port}`, says: 'refuses the user or the password' },
    {
      name: 'an unknown user',
      uri: (port: number) => `redis://somebody:pa55word@127.0.0.1:${port}`,
      says: 'refuses the user or the password',
    },
    { name: 'TLS where there is none', uri: (port: number) => `rediss://:pa55word@127.0.0.1:${port}`, says: 'is away' },
  ])('says what is wrong: $name', async ({ uri, says }) => {
    const message = await awayWithin(6_000, open(uri(server.port)));
    expect(message).toContain(says);
    expect(message).not.toMatch(/pa55word|somebody/);
  });
});

describe.skipIf(postgresMissing !== undefined)(`PostgreSQL that goes away ${postgresMissing ?? ''}`, () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server.end());

  it('fails at once while it is stopped, and is back by itself with all it held', async () => {
    const store = await open(await server.fresh());
    await store.put('credentials', 'a', { n: 1 }, 'any');
    await server.stop();
    await expectAllAway(store, 1_000);
    await server.start();
    await vi.waitFor(async () => expect((await store.get('credentials', 'a'))?.value).toEqual({ n: 1 }), PATIENCE);
    expect(store.health()).toEqual({ ok: true });
  });

  it('fails in time while a row is locked by somebody who hangs', async () => {
    const uri = await server.fresh();
    const store = await open(uri);
    await store.put('credentials', 'a', { n: 1 }, 'any');
    const database = new URL(uri).pathname.slice(1);
    const holding = server.query('BEGIN; LOCK TABLE sallyport_store; SELECT pg_sleep(3); COMMIT', database);
    await vi.waitFor(
      async () =>
        expect(await server.query(`SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock'`, database)).not.toEqual([]),
      PATIENCE,
    );
    expect(await expectAllAway(store, 2_600)).toContain('no answer within 2 s');
    await holding;
    await vi.waitFor(async () => expect(await store.get('credentials', 'a')).toBeDefined(), PATIENCE);
  });

  it('is reached by a new connection where the old one stands and is silent', async () => {
    const relay = await startRelay(server.port);
    onTestFinished(() => relay.close());
    const store = await open((await server.fresh()).replace(`:${server.port}`, `:${relay.port}`));
    await store.put('credentials', 'a', { n: 1 }, 'any');
    relay.silence();
    expect(await awayWithin(2_600, store.get('credentials', 'a'))).toContain('no answer within 2 s');
    await vi.waitFor(async () => expect((await store.get('credentials', 'a'))?.value).toEqual({ n: 1 }), {
      timeout: 4_000,
      interval: 50,
    });
  });

  it('makes its table when it is there at last', async () => {
    await server.stop();
    const store = await open(server.uri('postgres'), { evenIfAway: true });
    await server.start();
    await vi.waitFor(() => store.put('credentials', 'a', {}, 'any'), PATIENCE);
  });

  it('serves a user who may not make tables, once the table is there, and says so where it is not', async () => {
    await server.query(`CREATE ROLE modest LOGIN PASSWORD 'pa55word'`);
    const uri = await server.fresh();
    const modest = uri.replace(`${server.user}:${server.password}`, 'modest:pa55word');
    const message = await awayWithin(2_800, open(modest));
    expect(message).toContain('the user may not use the table "sallyport_store"; grant CREATE on schema public');
    await (await open(uri)).close();
    await server.query('GRANT SELECT, INSERT, UPDATE, DELETE ON sallyport_store TO modest', new URL(uri).pathname.slice(1));
    await (await open(modest)).put('credentials', 'a', {}, 'new');
  });

  it.each([
    { name: 'a wrong password', user: 'fleet:pa55word', database: 'postgres', says: 'refuses the user or the password (28P01)' },
    {
      name: 'an unknown user',
      user: 'somebody:pa55word',
      database: 'postgres',
      says: 'refuses the user or the password (28P01)',
    },
    { name: 'an unknown database', user: '', database: 'nowhere', says: 'the database does not exist' },
  ])('says what is wrong: $name', async ({ user, database, says }) => {
    const credentials = user === '' ? `${server.user}:${server.password}` : user;
    const message = await awayWithin(2_800, open(`postgres://${credentials}@127.0.0.1:${server.port}/${database}`));
    expect(message).toContain(says);
    expect(message).not.toMatch(/pa55word|somebody|fleet/);
  });
});

it('says once that a store is away and once that it is back, and never a password', () => {
  const text = logged.join('');
  expect(text).toContain('the store is back');
  expect(text).not.toMatch(/pa55word|redis-password|postgres-password/);
});
