// Twin of src/credentials/vault.ts, with in-use.ts: how old what was read may be, on a clock that the test moves; who waits for the
// store; and what is used while it is away.
import { beforeEach, describe, expect, it } from 'vitest';
import type { FreshValue } from '../../src/credentials/fresh-source.ts';
import { ABSENT_MS, AWAY_MS, createVault, FAILED_MS, FRESH_MS, OLD_MS, PLAIN_MAKERS } from '../../src/credentials/vault.ts';
import type { Makers, Vault } from '../../src/credentials/vault.ts';
import type { JsonObject, StoredRecord } from '../../src/exchange/records.ts';
import type { Resolution } from '../../src/exchange/snapshot.ts';
import { Secret } from '../../src/foundation/secret.ts';

/** A store whose answers the test lets go one by one. */
class SlowStore {
  readonly records = new Map<string, StoredRecord>();
  readonly waiting: (() => void)[] = [];
  reads = 0;
  trouble: string | undefined = undefined;
  held = false;
  #version = 0;

  put(id: string, value: JsonObject): StoredRecord {
    const record = { id, version: (this.#version += 1), value, createdAt: '', updatedAt: '' };
    this.records.set(id, record);
    return record;
  }

  async get(_kind: string, id: string): Promise<StoredRecord | undefined> {
    this.reads += 1;
    const found = this.records.get(id);
    const { trouble } = this;
    if (this.held) await new Promise<void>((resolve) => this.waiting.push(resolve));
    if (trouble !== undefined) throw Object.assign(new Error(trouble), { name: trouble });
    return found;
  }

  letGo(): void {
    for (const go of this.waiting.splice(0)) go();
  }
}

const NONE = new Map<string, Resolution>();
let now: number;
let store: SlowStore;
let vault: Vault;
let ends: [string, number | undefined][];

function open(makers: Makers = PLAIN_MAKERS): void {
  store = new SlowStore();
  ends = [];
  vault = createVault({ records: store, makers, now: () => now, onEnd: (id, endsAt) => ends.push([id, endsAt]) });
}

beforeEach(() => {
  now = 0;
  open();
});

const bearer = (token: string): JsonObject => ({ type: 'bearer_token', status: 'active', token });
const resolve = (id = 'gh') => vault.resolve(id, 'default', NONE);

/** What is put on, or why nothing is. */
function shown(resolution: Resolution): string {
  if ('unavailable' in resolution) return resolution.unavailable;
  return !('fields' in resolution)
    ? Object.keys(resolution).join()
    : resolution.fields.map(({ name, value }) => `${name}: ${value.reveal()}`).join(', ');
}

/** Resolves once everything that was under way without the store is done. */
const settled = () => new Promise<void>((done) => setImmediate(done));

describe('a credential', () => {
  it('of the config comes before a stored one of the same id', () => {
    store.put('gh', bearer('stored'));
    const own: Resolution = { fields: [] };
    expect(vault.resolve('gh', 'default', new Map([['gh', own]]))).toBe(own);
    expect(store.reads).toBe(0);
  });

  it.each([
    { name: 'a bearer token', value: bearer('t1'), wanted: 'Authorization: Bearer t1' },
    { name: 'a token in a header of its own', value: { ...bearer('t1'), header_name: 'X-Key', prefix: '' }, wanted: 'X-Key: t1' },
    {
      name: 'a user name and password',
      value: { type: 'basic', status: 'active', username: 'u', password: 'p' },
      wanted: `Authorization: Basic ${Buffer.from('u:p').toString('base64')}`,
    },
    {
      name: 'headers',
      value: { type: 'header', status: 'active', headers: { 'X-A': '1', 'X-B': '2' } },
      wanted: 'X-A: 1, X-B: 2',
    },
    { name: 'a revoked one', value: { ...bearer('t1'), status: 'revoked' }, wanted: 'it is revoked; give it new secrets' },
    {
      name: 'a type without a maker',
      value: {
        type: 'oauth2',
        status: 'active',
        client_id: 'a',
        client_secret: 'b',
        refresh_token: 'c',
        token_url: 'https://token.test/',
      },
      wanted: 'credentials of this type are not available in this version',
    },
    {
      name: 'keys that sign',
      value: { type: 'aws_sigv4', status: 'active', access_key_id: 'a', secret_access_key: 'b', region: 'r', service: 's' },
      wanted: 'signer,secrets',
    },
    {
      name: 'the value of a variable',
      value: { type: 'environment_variable', status: 'active', value: 'v', injection_location: 'header' },
      wanted: 'placeholder',
    },
    {
      name: 'a record of another form',
      value: { type: 'later', status: 'active' },
      wanted: 'it was stored in a form that this version does not know; make it anew',
    },
  ])('that is stored: $name', async ({ value, wanted }) => {
    store.put('gh', value);
    expect(shown(await resolve())).toBe(wanted);
  });

  it('brings along the bare values that no answer may show', async () => {
    store.put('token', bearer('t1'));
    store.put('login', { type: 'basic', status: 'active', username: 'u', password: 'p' });
    store.put('key', { type: 'basic', status: 'active', username: 'key', password: '' });
    const secrets = async (id: string) => {
      const found = await resolve(id);
      return 'secrets' in found ? found.secrets.map((secret) => secret.reveal()) : undefined;
    };
    expect(await secrets('token')).toEqual(['t1']);
    expect(await secrets('login')).toEqual(['p', Buffer.from('u:p').toString('base64')]);
    expect(await secrets('key')).toEqual(['key', Buffer.from('key:').toString('base64')]);
  });

  it('that nobody knows is not to be repeated, and one that was deleted may be', async () => {
    expect(await resolve('who')).toMatchObject({ unknown: true });
    store.put('gh', bearer('t1'));
    await resolve();
    store.records.clear();
    now = OLD_MS;
    const deleted = await resolve();
    expect(shown(deleted)).toBe('it was deleted from the store');
    expect(deleted).not.toHaveProperty('unknown');
  });
});

describe('what was read', () => {
  beforeEach(async () => {
    store.put('gh', bearer('t1'));
    await resolve();
    store.put('gh', bearer('t2'));
  });

  it('is used as it is while it is young, without a promise and as the same object', () => {
    now = FRESH_MS - 1;
    const first = resolve();
    expect(first).not.toBeInstanceOf(Promise);
    expect(resolve()).toBe(first);
    expect(store.reads).toBe(1);
  });

  it('is used once more when it is older, and read again meanwhile', async () => {
    now = FRESH_MS;
    expect(shown(resolve() as Resolution)).toContain('t1');
    await settled();
    expect(store.reads).toBe(2);
    expect(shown(resolve() as Resolution)).toContain('t2');
  });

  it('is read before it is used when it is old, once for all who wait', async () => {
    now = OLD_MS;
    const waiting = Array.from({ length: 50 }, () => resolve());
    for (const each of waiting) expect(shown(await each)).toContain('t2');
    expect(store.reads).toBe(2);
  });

  it('counts its age from the asking, however long the answer takes', async () => {
    now = OLD_MS;
    store.held = true;
    const waiting = resolve();
    now = OLD_MS + 1_900;
    store.held = false;
    store.letGo();
    await waiting;
    now = OLD_MS + FRESH_MS;
    void resolve();
    expect(store.reads).toBe(3);
  });

  it('stays the same object where the record has not changed', async () => {
    now = OLD_MS;
    const before = await resolve();
    now = 2 * OLD_MS;
    expect(await resolve()).toBe(before);
  });

  it('is forgotten at a write, also one that comes while it is read', async () => {
    vault.forget('gh');
    expect(shown(await resolve())).toContain('t2');
    now = OLD_MS;
    store.held = true;
    const waiting = resolve();
    store.put('gh', bearer('t3'));
    vault.forget('gh');
    store.held = false;
    store.letGo();
    expect(shown(await waiting)).toContain('t3');
  });
});

describe('an id that is not stored', () => {
  it('is remembered for a short while, and found once it is there', async () => {
    expect(shown(await resolve())).toBe('no credential of this id is declared or stored');
    store.put('gh', bearer('t1'));
    now = ABSENT_MS - 1;
    expect(resolve()).not.toBeInstanceOf(Promise);
    expect(store.reads).toBe(1);
    now = ABSENT_MS;
    expect(shown(await resolve())).toContain('t1');
  });
});

describe('while the store is away', () => {
  it('what was read is used, and nobody waits but the first who finds it old', async () => {
    store.put('gh', bearer('t1'));
    await resolve();
    store.trouble = 'StoreAway';
    now = OLD_MS;
    expect(shown(await resolve())).toContain('t1');
    store.held = true;
    now = OLD_MS + FAILED_MS;
    expect(shown(resolve() as Resolution)).toContain('t1');
    expect(store.reads).toBe(3);
    store.held = false;
    store.letGo();
    await settled();
    now = AWAY_MS - 1;
    expect(shown(await resolve())).toContain('t1');
    await settled();
    now = AWAY_MS + FAILED_MS;
    expect(shown(await resolve())).toBe('the store is away');
  });

  it('is asked once a second for one id', async () => {
    store.trouble = 'StoreAway';
    expect(shown(await resolve())).toBe('the store is away');
    now = FAILED_MS - 1;
    expect(resolve()).not.toBeInstanceOf(Promise);
    expect(store.reads).toBe(1);
    store.trouble = undefined;
    store.put('gh', bearer('t1'));
    now = FAILED_MS;
    expect(shown(await resolve())).toContain('t1');
  });

  it('is not taken for away where the record does not open: what was read before it is used no more', async () => {
    store.put('gh', bearer('t1'));
    await resolve();
    store.trouble = 'StoreBroken';
    now = OLD_MS;
    expect(shown(await resolve())).toBe('its record in the store does not open');
  });
});

describe('a value that ends', () => {
  let value: FreshValue;
  let closed: number;
  let made: number;
  const oauth2 = (refresh: string): JsonObject => ({
    ...{ type: 'oauth2', status: 'active', client_id: 'me', client_secret: 's', token_url: 'https://login.test/' },
    refresh_token: refresh,
  });

  beforeEach(() => {
    closed = 0;
    made = 0;
    open({
      oauth2: (_credential, record) => {
        made += 1;
        return {
          source: { current: () => value, close: () => (closed += 1) },
          fields: (secret) => ({ fields: [{ name: 'X-Token', value: secret }] }),
          adopt: (newer) => newer.value['client_id'] === record.value['client_id'],
        };
      },
    });
    value = { value: new Secret('a1'), endsAt: 5_000 };
    store.put('gh', oauth2('r1'));
  });

  it('gives the same object until it is renewed, and tells its end', async () => {
    const first = await resolve();
    expect(shown(first)).toBe('X-Token: a1');
    expect(resolve()).toBe(first);
    value = { value: new Secret('a2'), endsAt: 9_000 };
    expect(shown(resolve() as Resolution)).toBe('X-Token: a2');
    value = { unavailable: 'the refresh token was revoked' };
    expect(shown(resolve() as Resolution)).toBe('the refresh token was revoked');
    expect(ends).toEqual([
      ['gh', 5_000],
      ['gh', 9_000],
      ['gh', undefined],
    ]);
  });

  it('is not begun anew for a record that its source takes over, and closed for another', async () => {
    await resolve();
    store.put('gh', oauth2('r2'));
    now = OLD_MS;
    await resolve();
    expect([made, closed]).toEqual([1, 0]);
    store.put('gh', { ...oauth2('r2'), client_id: 'other' });
    now = 2 * OLD_MS;
    await resolve();
    expect([made, closed]).toEqual([2, 1]);
    store.records.clear();
    now = 3 * OLD_MS;
    await resolve();
    expect(closed).toBe(2);
  });

  it('ends with the vault', async () => {
    await resolve();
    vault.close();
    expect(closed).toBe(1);
  });

  it('is not fetched to tell how it is', async () => {
    const record = store.put('gh', oauth2('r1'));
    expect(vault.health(record)).toEqual({ health: 'unused' });
    await resolve();
    expect(vault.health(record)).toEqual({ health: 'ok', expires_at: '1970-01-01T00:00:05.000Z' });
    value = { unavailable: 'revoked' };
    await resolve();
    expect(vault.health(record)).toEqual({ health: 'unavailable', reason: 'revoked' });
  });
});

describe('a credential by its id', () => {
  it('is given with its values, whatever its type', async () => {
    store.put('var', {
      type: 'environment_variable',
      status: 'active',
      value: 'v',
      injection_location: ['query'],
      trusted_domains: [],
    });
    expect(await vault.credential('var')).toMatchObject({ type: 'environment_variable', injection_location: ['query'] });
    expect(await vault.credential('none')).toBeUndefined();
    store.trouble = 'StoreAway';
    expect(await vault.credential('other')).toEqual({ unavailable: 'the store is away', unknown: true });
  });
});
