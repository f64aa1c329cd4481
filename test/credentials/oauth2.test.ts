// Twin of src/credentials/oauth2.ts, token-endpoint.ts, token-records.ts and token-renewal.ts, over src/upstream/post-form.ts and
// src/network/reach.ts: a real authorization server over TLS on loopback, a store in memory, a clock that the test moves.
import type { ServerResponse } from 'node:http';
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { FreshValue, RenewingSource } from '../../src/credentials/fresh-source.ts';
import type { FreshFields } from '../../src/credentials/in-use.ts';
import { createOauth2 } from '../../src/credentials/oauth2.ts';
import type { Oauth2 } from '../../src/credentials/oauth2.ts';
import { openCredential } from '../../src/credentials/stored-credential.ts';
import type { FetchToken } from '../../src/credentials/token-endpoint.ts';
import { TOKEN_DEADLINE_MS } from '../../src/credentials/token-endpoint.ts';
import { Secret } from '../../src/foundation/secret.ts';
import { parseRanges } from '../../src/network/address-ranges.ts';
import { createGuard } from '../../src/network/guard.ts';
import { createReach } from '../../src/network/reach.ts';
import { createPostForm } from '../../src/upstream/post-form.ts';
import { createTrust } from '../../src/upstream/secure.ts';
import { CLIENT, startAuthorizationServer } from '../support/authorization-server.ts';
import type { AuthorizationServer } from '../support/authorization-server.ts';
import { HandClock } from '../support/hand-clock.ts';
import { MemoryRecords } from '../support/memory-records.ts';
import { openOutside } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';

const HOUR = 3_600_000;
const LOOPBACK = rangesOf('127.0.0.0/8');

let outside: Outside;
let server: AuthorizationServer;
let records: MemoryRecords;
let clock: HandClock;
let failures: string[];
let ends: (number | undefined)[];

beforeAll(async () => {
  outside = await openOutside();
});

afterAll(() => outside.close());

beforeEach(async () => {
  server = await startAuthorizationServer(outside);
  records = new MemoryRecords();
  clock = new HandClock();
  failures = [];
  ends = [];
  return () => server.close();
});

function rangesOf(cidr: string) {
  const parsed = parseRanges([cidr]);
  if ('problem' in parsed) throw new Error(parsed.problem);
  return parsed.ranges;
}

/** The way out of a proxy, its names on loopback. */
function wayOut(trusted = true): FetchToken {
  const guard = createGuard({ listeners: () => [], interfaces: () => [] });
  const reach = createReach({ resolver: { resolve: () => Promise.resolve(['127.0.0.1']) }, guard });
  const trust = createTrust(trusted ? [readFileSync(outside.caPath, 'utf8')] : []);
  return createPostForm({ reach, trust: () => trust });
}

/** Opens loopback for every question, as `token_addresses` does for a declared client. */
function opened(fetchToken: FetchToken): FetchToken {
  return (request) => fetchToken({ ...request, opened: LOOPBACK });
}

function proxy(fetchToken = opened(wayOut())): Oauth2 {
  return createOauth2({ records, fetchToken, clock, onFailure: (_id, failed) => failures.push(failed) });
}

function value(over: object = {}) {
  return { type: 'oauth2', ...CLIENT, refresh_token: 'refresh-0', token_url: server.url, scopes: [], status: 'active', ...over };
}

/** The source that a proxy makes of the stored credential "crm". */
function sourceOf(oauth2: Oauth2): FreshFields {
  const record = records.kept.get('credentials:crm') ?? records.set('credentials', 'crm', value());
  const credential = openCredential(record);
  if ('unavailable' in credential || credential.type !== 'oauth2') throw new Error('the test holds no client');
  const made = oauth2.maker(credential, record, (end) => ends.push(end));
  if (!('source' in made)) throw new Error('the maker makes no source');
  return made;
}

async function now({ source }: FreshFields): Promise<string> {
  const current = source.current();
  return shown(current instanceof Promise ? await clock.until(current) : current);
}

function shown(current: FreshValue): string {
  return 'unavailable' in current ? `unavailable: ${current.unavailable}` : current.value.reveal();
}

describe('an access token', () => {
  it('is fetched with the refresh token and put on as a bearer token', async () => {
    records.set('credentials', 'crm', value({ scopes: ['read', 'write:all'] }));
    const fields = sourceOf(proxy());
    expect(await now(fields)).toBe('access-1');
    expect(Object.fromEntries(server.asks[0]?.form ?? [])).toEqual({
      grant_type: 'refresh_token',
      refresh_token: 'refresh-0',
      scope: 'read write:all',
      ...CLIENT,
    });
    expect(server.asks[0]?.fields).toMatchObject({
      host: `localhost:${server.port}`,
      'content-type': 'application/x-www-form-urlencoded',
      accept: 'application/json',
    });
    const put = fields.fields(new Secret('access-1'));
    if (!('fields' in put)) throw new Error('no fields');
    expect(put.fields.map((field) => `${field.name}: ${field.value.reveal()}`)).toEqual(['Authorization: Bearer access-1']);
    expect(put.secrets?.map((secret) => secret.reveal())).toEqual(['access-1']);
  });

  it('costs one refresh where a hundred requests come at its end', async () => {
    const fields = sourceOf(proxy());
    await now(fields);
    fields.source.close();
    const later = sourceOf(proxy());
    clock.pass(2 * HOUR);
    const hundred = Promise.all(Array.from({ length: 100 }, async () => later.source.current()));
    expect(new Set((await clock.until(hundred)).map(shown))).toEqual(new Set(['access-2']));
    expect(server.asks).toHaveLength(2);
  });

  it('costs one refresh where two proxies share the store', async () => {
    const proxies = [sourceOf(proxy()), sourceOf(proxy())] as const;
    const both = Promise.all(proxies.flatMap(({ source }) => Array.from({ length: 50 }, async () => source.current())));
    expect(new Set((await clock.until(both)).map(shown))).toEqual(new Set(['access-1']));
    expect(server.asks).toHaveLength(1);
  });

  it('is renewed a minute before its end, once for two proxies, with nobody asking', async () => {
    server.rotates = true;
    const [one, two] = [sourceOf(proxy()), sourceOf(proxy())];
    await now(one);
    await now(two);
    clock.pass(HOUR - 60_000);
    const renewedAt = clock.now();
    await clock.until(Promise.all([one, two].map(({ source }) => (source as RenewingSource).settled())));
    expect([await now(one), await now(two)]).toEqual(['access-2', 'access-2']);
    expect(server.asks).toHaveLength(2);
    expect(ends.at(-1)).toBe(ends.at(-2));
    expect(ends.at(-1)).toBeGreaterThanOrEqual(renewedAt + HOUR);
  });

  it('is at hand after a restart, without asking again', async () => {
    await now(sourceOf(proxy()));
    expect(await now(sourceOf(proxy()))).toBe('access-1');
    expect(server.asks).toHaveLength(1);
  });

  it('counts as good for an hour where the answer does not say', async () => {
    server.life = undefined;
    const fields = sourceOf(proxy());
    await now(fields);
    expect(ends).toEqual([clock.now() + HOUR]);
  });

  it('is used though it cannot be kept, where the refresh token is the old one', async () => {
    const fields = sourceOf(proxy());
    records.trouble = (call) => (call === 'put' ? 'StoreAway' : undefined);
    expect(await now(fields)).toBe('access-1');
  });

  it('is not asked for while the store is away, since a new refresh token could be lost', async () => {
    const fields = sourceOf(proxy());
    records.trouble = () => 'StoreAway';
    expect(await now(fields)).toBe('unavailable: the store is away');
    expect(server.asks).toHaveLength(0);
    expect(failures).toEqual(['store_away']);
  });
});

describe('a client', () => {
  it('that shows itself by Basic alone is found out once, and remembered over a restart', async () => {
    server.auth = 'basic';
    const fields = sourceOf(proxy());
    expect(await now(fields)).toBe('access-1');
    expect(server.asks.map(({ fields }) => 'authorization' in fields)).toEqual([false, true]);
    expect(server.asks.map(({ form }) => form.has('client_secret'))).toEqual([true, false]);
    fields.source.close();
    clock.pass(2 * HOUR);
    expect(await now(sourceOf(proxy()))).toBe('access-2');
    expect(server.asks).toHaveLength(3);
  });

  it('whose secret is wrong is refused by name, and not taken for revoked', async () => {
    records.set('credentials', 'crm', value({ client_secret: 'marker-wrong' }));
    expect(await now(sourceOf(proxy()))).toBe('unavailable: the token endpoint refuses: invalid_client');
    expect(failures).toEqual(['refused']);
    expect(records.value('credentials', 'crm')['status']).toBe('active');
  });
});

describe('a rotated refresh token', () => {
  beforeEach(() => {
    server.rotates = true;
  });

  it('is kept, and survives a restart', async () => {
    const fields = sourceOf(proxy());
    await now(fields);
    expect(records.value('credentials', 'crm')).toMatchObject({ refresh_token: 'refresh-1', status: 'active' });
    fields.source.close();
    clock.pass(2 * HOUR);
    expect(await now(sourceOf(proxy()))).toBe('access-2');
    expect(server.asks[1]?.form.get('refresh_token')).toBe('refresh-1');
  });

  it('is written down before the access token is used, at the next try where the first fails', async () => {
    const fields = sourceOf(proxy());
    records.trouble = (call) => (call === 'put' ? 'StoreAway' : undefined);
    expect(await now(fields)).toBe('unavailable: the store is away');
    records.trouble = () => undefined;
    clock.pass(5_000);
    expect(await now(fields)).toBe('access-1');
    expect(records.value('credentials', 'crm')['refresh_token']).toBe('refresh-1');
    expect(server.asks).toHaveLength(1);
  });

  it('is found written where the store answered too late', async () => {
    const fields = sourceOf(proxy());
    let puts = 0;
    records.put = async (...write) => {
      const record = await Promise.resolve(records.set(...write));
      if ((puts += 1) === 1) throw Object.assign(new Error('late'), { name: 'StoreAway' });
      return record;
    };
    expect(await now(fields)).toBe('unavailable: the store is away');
    clock.pass(5_000);
    expect(await now(fields)).toBe('access-1');
    expect([puts, server.asks.length]).toEqual([1, 1]);
  });

  it('is found written where the store takes its own write for somebody else’s', async () => {
    const fields = sourceOf(proxy());
    records.put = async (...write) => {
      await Promise.resolve(records.set(...write));
      throw Object.assign(new Error('conflict'), { name: 'StoreConflict' });
    };
    expect(await now(fields)).toBe('access-1');
    expect(server.asks).toHaveLength(1);
  });

  it('yields to a refresh token that an operator has written meanwhile', async () => {
    const fields = sourceOf(proxy());
    let release: () => void = () => undefined;
    server.gate = new Promise<void>((resolve) => (release = resolve));
    const waiting = fields.source.current() as Promise<FreshValue>;
    while (server.asks.length === 0) await new Promise((resolve) => setImmediate(resolve));
    records.set('credentials', 'crm', value({ refresh_token: 'refresh-of-the-operator' }));
    release();
    expect(shown(await clock.until(waiting))).toContain('unavailable: ');
    expect(records.value('credentials', 'crm')['refresh_token']).toBe('refresh-of-the-operator');
    expect(failures).toEqual(['changed']);
  });

  it('is written over a record that was only touched meanwhile', async () => {
    const fields = sourceOf(proxy());
    let release: () => void = () => undefined;
    server.gate = new Promise<void>((resolve) => (release = resolve));
    const waiting = fields.source.current() as Promise<FreshValue>;
    while (server.asks.length === 0) await new Promise((resolve) => setImmediate(resolve));
    records.set('credentials', 'crm', value());
    release();
    expect(shown(await clock.until(waiting))).toBe('access-1');
    expect(records.value('credentials', 'crm')['refresh_token']).toBe('refresh-1');
  });
});

describe('a revoked refresh token', () => {
  it('takes the credential out of use everywhere, and out of the gauge, until its record changes', async () => {
    const fields = sourceOf(proxy());
    await now(fields);
    server.refreshToken = 'another';
    clock.pass(2 * HOUR);
    expect(await now(fields)).toContain('unavailable: its refresh token is revoked');
    expect(ends.at(-1)).toBeUndefined();
    expect(failures).toEqual(['revoked']);
    expect(records.value('credentials', 'crm')).toMatchObject({ status: 'revoked', refresh_token: 'refresh-0' });
    clock.pass(24 * HOUR);
    expect(await now(fields)).toContain('unavailable: ');
    expect(server.asks).toHaveLength(2);
    records.set('credentials', 'crm', value({ refresh_token: 'another' }));
    expect(await now(sourceOf(proxy()))).toBe('access-2');
  });

  it('is not believed where somebody else has used it and written down what came of it', async () => {
    const fields = sourceOf(proxy());
    server.rotates = true;
    server.instead = (response: ServerResponse) => {
      // The other one got here first, without our lock.
      records.set('credentials', 'crm', value({ refresh_token: 'refresh-9', state: {} }));
      server.refreshToken = 'refresh-9';
      server.instead = undefined;
      answer(response, 400, '{"error":"invalid_grant"}');
    };
    expect(await now(fields)).toContain('unavailable: its record was changed meanwhile');
    expect(records.value('credentials', 'crm')['status']).toBe('active');
    clock.pass(5_000);
    expect(await now(fields)).toBe('access-1');
  });
});

function answer(response: ServerResponse, status: number, body: string, type = 'application/json'): void {
  response.writeHead(status, { 'content-type': type }).end(body);
}

const MARKER = 'marker-of-the-answer';
const misbehaviours: readonly {
  readonly name: string;
  readonly failed: string;
  readonly by: (response: ServerResponse) => void;
}[] = [
  { name: 'answers 500', failed: 'refused', by: (r) => answer(r, 500, `oops ${MARKER}`, 'text/html') },
  { name: 'answers 400 with a word of its own', failed: 'refused', by: (r) => answer(r, 400, `{"error":"${MARKER}"}`) },
  { name: 'answers 200 without JSON', failed: 'malformed', by: (r) => answer(r, 200, `<p>${MARKER}</p>`, 'text/html') },
  { name: 'answers 200 with a list', failed: 'malformed', by: (r) => answer(r, 200, `["${MARKER}"]`) },
  { name: 'answers 200 without a token', failed: 'malformed', by: (r) => answer(r, 200, `{"scope":"${MARKER}"}`) },
  {
    name: 'hands out a token with a line break',
    failed: 'malformed',
    by: (r) => answer(r, 200, `{"access_token":"${MARKER}\\r\\nX: 1"}`),
  }, // fault E08
  {
    name: 'hands out a token that is bound to a key',
    failed: 'malformed',
    by: (r) => answer(r, 200, `{"access_token":"a","token_type":"DPoP"}`),
  },
  { name: 'answers one byte more than 64 KiB', failed: 'too_large', by: (r) => answer(r, 200, sized(64 * 1024 + 1)) },
  { name: 'redirects to itself', failed: 'redirect', by: (r) => void r.writeHead(307, { location: '/token' }).end() }, // fault E14
  {
    name: 'breaks off in the middle',
    failed: 'malformed',
    by: (r) => void (r.writeHead(200, { 'content-length': 99 }).write('{'), r.socket?.destroy()),
  },
  { name: 'speaks no HTTP', failed: 'malformed', by: (r) => void r.socket?.end(`${MARKER}\r\n\r\n`) },
];

function sized(length: number): string {
  const frame = '{"access_token":"access-1","x":""}';
  return frame.replace('""}', `"${'x'.repeat(length - frame.length)}"}`);
}

describe('a token endpoint', () => {
  it.each(misbehaviours)('that $name gives nothing, and is asked again after 5 s', async ({ by, failed }) => {
    const fields = sourceOf(proxy());
    server.instead = by;
    const first = await now(fields);
    expect(first).toContain('unavailable: ');
    for (const secret of [MARKER, CLIENT.client_secret, 'refresh-0']) expect(first).not.toContain(secret);
    expect(failures).toEqual([failed]);
    server.instead = undefined;
    clock.pass(4_999);
    expect(await now(fields)).toBe(first);
    clock.pass(1);
    expect(await now(fields)).toMatch(/^access-/);
  });

  it('that answers exactly 64 KiB is heard', async () => {
    server.instead = (response) => answer(response, 200, sized(64 * 1024));
    expect(await now(sourceOf(proxy()))).toBe('access-1');
  });

  it('that answers with a form is understood', async () => {
    server.instead = (response) =>
      answer(response, 200, 'access_token=form%2Fed&expires_in=600&token_type=bearer', 'application/x-www-form-urlencoded');
    expect(await now(sourceOf(proxy()))).toBe('form/ed');
    expect(ends).toEqual([clock.now() + 600_000]);
  });

  it('that is silent is given up after 10 s', async () => {
    const fields = sourceOf(proxy());
    server.gate = new Promise(() => undefined);
    const waiting = fields.source.current() as Promise<FreshValue>;
    while (server.asks.length === 0) await new Promise((resolve) => setImmediate(resolve));
    clock.pass(TOKEN_DEADLINE_MS);
    expect(shown(await clock.until(waiting))).toBe('unavailable: the token endpoint did not answer in time');
    expect(failures).toEqual(['timeout']);
  });

  it('inside the walls is not dialled where nobody opened its range', async () => {
    expect(await now(sourceOf(proxy(wayOut())))).toBe('unavailable: the token endpoint leads to an address inside the walls');
    expect(server.upstream.connections).toBe(0);
    expect(failures).toEqual(['address_denied']);
  });

  it('whose certificate does not verify hears no secret', async () => {
    expect(await now(sourceOf(proxy(opened(wayOut(false)))))).toBe(
      'unavailable: the certificate of the token endpoint did not verify',
    );
    expect(server.asks).toHaveLength(0);
    expect(failures).toEqual(['tls']);
  });

  it('without TLS is never asked', async () => {
    const oauth2 = proxy();
    const grant = {
      ...CLIENT,
      client_secret: new Secret(CLIENT.client_secret),
      refresh_token: new Secret('refresh-0'),
      scopes: [],
    };
    const fields = oauth2.declared('crm', { ...grant, token_url: server.url.replace('https:', 'http:') }, () => undefined);
    expect(await now(fields)).toBe('unavailable: its token_url is no https URL');
    expect(server.upstream.connections).toBe(0);
  });
});

describe('a newer record', () => {
  it('that another proxy has written is taken over without asking', async () => {
    const [mine, theirs] = [sourceOf(proxy()), sourceOf(proxy())];
    await now(theirs);
    const record = records.kept.get('credentials:crm');
    if (record === undefined) throw new Error('no record');
    expect(mine.adopt?.(record)).toBe(true);
    expect(shown(mine.source.current() as FreshValue)).toBe('access-1');
    expect(server.asks).toHaveLength(1);
  });

  const others = [
    { name: 'an operator has patched', over: {} },
    { name: 'is of another client', over: { client_id: 'other', state: { access_token: 'a', ends_at: 4e12, renew_at: 4e12 } } },
    { name: 'has another secret', over: { client_secret: 'other', state: { access_token: 'a', ends_at: 4e12, renew_at: 4e12 } } },
    { name: 'has other scopes', over: { scopes: ['x'], state: { access_token: 'a', ends_at: 4e12, renew_at: 4e12 } } },
    { name: 'is revoked', over: { status: 'revoked', state: { access_token: 'a', ends_at: 4e12, renew_at: 4e12 } } },
  ];

  it.each(others)('that $name is not taken over', ({ over }) => {
    const fields = sourceOf(proxy());
    expect(fields.adopt?.(records.set('credentials', 'crm', value(over)))).toBe(false);
  });
});

describe('a client that the config declares', () => {
  const grantOf = (over: object = {}) => ({
    ...CLIENT,
    client_secret: new Secret(CLIENT.client_secret),
    refresh_token: new Secret('refresh-0'),
    token_url: server.url,
    scopes: [],
    opened: LOOPBACK,
    ...over,
  });

  it('keeps its rotated refresh token over a restart, beside the config', async () => {
    server.rotates = true;
    const first = proxy(wayOut()).declared('crm', grantOf(), () => undefined);
    expect(await now(first)).toBe('access-1');
    first.source.close();
    clock.pass(2 * HOUR);
    expect(await now(proxy(wayOut()).declared('crm', grantOf(), () => undefined))).toBe('access-2');
    expect(server.asks[1]?.form.get('refresh_token')).toBe('refresh-1');
    expect([...records.kept.keys()]).toEqual(['tokens:crm']);
  });

  it('begins with the declared refresh token again where that is another one', async () => {
    await now(proxy(wayOut()).declared('crm', grantOf(), () => undefined));
    server.refreshToken = 'refresh-new';
    const fields = proxy(wayOut()).declared('crm', grantOf({ refresh_token: new Secret('refresh-new') }), () => undefined);
    expect(await now(fields)).toBe('access-2');
    expect(server.asks[1]?.form.get('refresh_token')).toBe('refresh-new');
  });

  it('is out of use once it is revoked, and tried again after a restart', async () => {
    server.refreshToken = 'another';
    const fields = proxy(wayOut()).declared('crm', grantOf(), () => undefined);
    expect(await now(fields)).toContain('unavailable: its refresh token is revoked');
    clock.pass(HOUR);
    await now(fields);
    expect(server.asks).toHaveLength(1);
    server.refreshToken = 'refresh-0';
    expect(await now(proxy(wayOut()).declared('crm', grantOf(), () => undefined))).toBe('access-1');
  });
});

describe('an exchange at creation', () => {
  it('gives the value with what came of it, so that the first request need not wait', async () => {
    server.rotates = true;
    const made = await proxy().exchangeOnce('crm', value());
    expect(made).toMatchObject({ value: { refresh_token: 'refresh-1', state: { access_token: 'access-1' } } });
    if ('value' in made) records.set('credentials', 'crm', made.value);
    expect(await now(sourceOf(proxy()))).toBe('access-1');
    expect(server.asks).toHaveLength(1);
  });

  it('is not made again for the same value within a minute', async () => {
    server.rotates = true;
    const oauth2 = proxy();
    expect(await oauth2.exchangeOnce('crm', value())).toEqual(await oauth2.exchangeOnce('crm', value()));
    expect(server.asks).toHaveLength(1);
  });

  it('that fails is a problem without a secret', async () => {
    server.refreshToken = 'another';
    expect(await proxy().exchangeOnce('crm', value())).toEqual({
      problem: 'the refresh token could not be exchanged: its refresh token is revoked or has ended; give it a new one',
    });
  });

  it('leaves values of other types as they are', async () => {
    const bearer = { type: 'bearer_token', token: 't', status: 'active' };
    expect(await proxy().exchangeOnce('gh', bearer)).toEqual({ value: bearer });
    expect(server.asks).toHaveLength(0);
  });

  it('waits for a renewal of the old value', async () => {
    const release = await records.lock('oauth2 crm');
    const waiting = proxy().exchangeOnce('crm', value());
    clock.pass(200);
    await new Promise((resolve) => setImmediate(resolve));
    expect(server.asks).toHaveLength(0);
    await release?.();
    expect(await clock.until(waiting)).toHaveProperty('value');
  });
});

it('is settled when a rotated refresh token is written down', async () => {
  server.rotates = true;
  const oauth2 = proxy();
  const fields = sourceOf(oauth2);
  void fields.source.current();
  while (server.asks.length === 0) await new Promise((resolve) => setImmediate(resolve));
  fields.source.close();
  await oauth2.settled();
  expect(records.value('credentials', 'crm')['refresh_token']).toBe('refresh-1');
});
