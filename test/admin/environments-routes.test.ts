import { beforeEach, describe, expect, it } from 'vitest';
import { AdminError } from '../../src/admin/admin-error.ts';
import type { AdminReply } from '../../src/admin/admin-routes.ts';
import { environmentsRoutes } from '../../src/admin/environments-routes.ts';
import type { EnvironmentParts } from '../../src/admin/environments-routes.ts';
import type { JsonObject, RecordKind, Records, StoredRecord } from '../../src/exchange/records.ts';

interface Parts extends EnvironmentParts {
  readonly network?: string;
}

/** A store in memory, with the store's own rules of versions. */
class Memory implements Records {
  readonly held = new Map<string, StoredRecord>();
  /** Runs before the next write of an environment */
  meanwhile: (() => void) | undefined;
  /** Runs after an environment is deleted */
  afterDelete: (() => void) | undefined;
  /** Kind and id of records that do not open */
  readonly broken = new Set<string>();
  away = false;

  ids(kind: RecordKind): string[] {
    return [...this.held.keys(), ...this.broken]
      .flatMap((key) => (key.startsWith(`${kind} `) ? [key.slice(kind.length + 1)] : []))
      .sort();
  }

  get(kind: RecordKind, id: string): Promise<StoredRecord | undefined> {
    if (this.away || this.broken.has(`${kind} ${id}`)) return Promise.reject(trouble(this.away ? 'StoreAway' : 'StoreBroken'));
    return Promise.resolve(this.held.get(`${kind} ${id}`));
  }

  list(kind: RecordKind, { after = '', limit }: { readonly after?: string; readonly limit: number }) {
    if (this.away) return Promise.reject(trouble('StoreAway'));
    const ids = this.ids(kind).filter((id) => id > after);
    const isBroken = (id: string): boolean => this.broken.has(`${kind} ${id}`);
    const page = ids.slice(0, limit);
    const records = page.filter((id) => !isBroken(id)).map((id) => this.held.get(`${kind} ${id}`) as StoredRecord);
    return Promise.resolve({
      records,
      broken: page.filter(isBroken),
      ...(ids.length > limit ? { next: ids[limit - 1] as string } : {}),
    });
  }

  put(kind: RecordKind, id: string, value: JsonObject, expected: number | 'new' | 'any'): Promise<StoredRecord> {
    if (kind === 'environments') {
      const act = this.meanwhile;
      this.meanwhile = undefined;
      act?.();
    }
    const key = `${kind} ${id}`;
    const old = this.held.get(key);
    if (expected !== 'any' && old?.version !== (expected === 'new' ? undefined : expected))
      return Promise.reject(trouble('StoreConflict'));
    const record = { id, value, version: (old?.version ?? 0) + 1, createdAt: 'then', updatedAt: 'now' };
    this.held.set(key, record);
    return Promise.resolve(record);
  }

  delete(kind: RecordKind, id: string, expected?: number): Promise<boolean> {
    const key = `${kind} ${id}`;
    if (expected !== undefined && this.held.get(key)?.version !== expected) return Promise.reject(trouble('StoreConflict'));
    const there = this.held.delete(key) || this.broken.has(key);
    this.broken.delete(key);
    const act = kind === 'environments' ? this.afterDelete : undefined;
    if (act !== undefined) this.afterDelete = undefined;
    act?.();
    return Promise.resolve(there);
  }

  lock(): Promise<undefined> {
    return Promise.resolve(undefined);
  }
}

const trouble = (name: string) => Object.assign(new Error(`in the words of ${name}`), { name });

let store: Memory;
let told: string[];
let count: number;

beforeEach(() => {
  store = new Memory();
  told = [];
  count = 0;
});

async function ask(
  line: string,
  {
    body = {},
    query = {},
    ifMatch,
  }: { readonly body?: object; readonly query?: Record<string, string>; readonly ifMatch?: string | undefined } = {},
): Promise<AdminReply> {
  const [method, path = ''] = line.split(' ');
  const routes = environmentsRoutes<Parts>({
    records: store,
    read: (raw) => ({ credentials: [], ...(raw as Partial<Parts>) }),
    newId: () => `env_${(count += 1)}`,
    newToken: () => ({ token: `token-${(count += 1)}`, digest: `digest-${count}` }),
    value: (before, parts, kept) => ({
      ...before,
      ...(parts.network === undefined ? {} : { network: parts.network }),
      ...(parts.sources === undefined ? {} : { sources: kept.sources }),
      ...(kept.tokenDigest === undefined ? {} : { token: kept.tokenDigest }),
    }),
    view: ({ id, value }) => ({ id, network: value['network'] ?? null }),
    sourcesIdOf: ({ value }) => value['sources'] as string | undefined,
    proxyUrl: (id, token) => `http://${id}:${token}@proxy`,
    credentialType: (id) => Promise.resolve({ gh: 'bearer_token', slack: 'environment_variable' }[id]),
    changed: ({ id, version }) => {
      told.push(`${id} ${version}`);
      return Promise.resolve();
    },
    removed: (id) => void told.push(`${id} gone`),
  });
  const steps = path.split('/');
  const route = routes.find(({ method: own, url }) => {
    const wanted = url.split('/');
    return own === method && wanted.length === steps.length && wanted.every((step, at) => step === steps[at] || step === ':id');
  });
  if (route === undefined) throw new Error(`no route for ${line}`);
  return route.answer({ params: { id: steps[3] ?? '' }, query, body, ifMatch });
}

const refusal = async (answer: Promise<AdminReply>): Promise<string> => {
  const error = await answer.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  return error instanceof AdminError ? `${error.code}: ${error.message}` : `not refused: ${String(error)}`;
};

const URL = '/v1beta/environments';

describe('a new environment', () => {
  it('is kept with the digest of a token that its answer alone bears, and in force before it', async () => {
    const made = await ask(`POST ${URL}`, { body: { network: 'disabled' } });
    expect(made).toEqual({
      fields: { etag: '"1"' },
      body: { id: 'env_1', network: 'disabled', proxy_url: 'http://env_1:token-2@proxy' },
    });
    expect(told).toEqual(['env_1 1']);
    expect(store.held.get('environments env_1')?.value).toEqual({ network: 'disabled', token: 'digest-2' });
    expect((await ask(`GET ${URL}/env_1`)).body).toEqual({ id: 'env_1', network: 'disabled' });
  });

  it.each([
    { name: 'a rule with a stored credential', credentials: [{ id: 'gh', variable: false }], says: 'not refused' },
    { name: 'a variable with one of its type', credentials: [{ id: 'slack', variable: true }], says: 'not refused' },
    {
      name: 'a rule with none that is there',
      credentials: [{ id: 'nope', variable: false }],
      says: 'not_found: a rule of "network"',
    },
    {
      name: 'a variable with none that is there',
      credentials: [{ id: 'nope', variable: true }],
      says: 'not_found: a variable of "env"',
    },
    {
      name: 'a variable with one of another type',
      credentials: [{ id: 'gh', variable: true }],
      says: 'invalid_request: credential "gh" is of the type "bearer_token"',
    },
  ])('may name credentials that are there: $name', async ({ credentials, says }) => {
    expect(await refusal(ask(`POST ${URL}`, { body: { credentials } }))).toContain(says);
    expect(store.ids('environments')).toHaveLength(says === 'not refused' ? 1 : 0);
  });

  it('takes no query', async () => {
    expect(await refusal(ask(`POST ${URL}`, { query: { validate: '1' } }))).toContain('invalid_request');
  });
});

describe('a change', () => {
  beforeEach(async () => {
    await ask(`POST ${URL}`, { body: { network: 'one' } });
  });

  it.each([
    { name: 'a patch', line: `PATCH ${URL}/env_1`, body: { network: 'two' } },
    { name: 'a patch that says its id', line: `PATCH ${URL}/env_1`, body: { environmentId: 'env_1', network: 'two' } },
    { name: 'a create that names it', line: `POST ${URL}`, body: { environmentId: 'env_1', network: 'two' } },
  ])('replaces what it names, and bears no proxy URL: $name', async ({ line, body }) => {
    expect(await ask(line, { body })).toEqual({ fields: { etag: '"2"' }, body: { id: 'env_1', network: 'two' } });
    expect(told.at(-1)).toBe('env_1 2');
    expect(store.held.get('environments env_1')?.value['token']).toBe('digest-2');
  });

  it.each([
    { name: 'a patch', line: `PATCH ${URL}/env_9`, body: {} },
    { name: 'a create that names it', line: `POST ${URL}`, body: { environmentId: 'env_9' } },
    { name: 'a new token', line: `POST ${URL}/env_9/token`, body: {} },
    { name: 'its sources', line: `GET ${URL}/env_9/sources`, body: {} },
    { name: 'a look', line: `GET ${URL}/env_9`, body: {} },
    { name: 'a deletion', line: `DELETE ${URL}/env_9`, body: {} },
  ])('of one that is not there is not found: $name', async ({ line, body }) => {
    expect(await refusal(ask(line, { body }))).toBe('not_found: there is no environment of this id');
    expect(store.ids('environments')).toEqual(['env_1']);
  });

  it('of its id is refused', async () => {
    expect(await refusal(ask(`PATCH ${URL}/env_1`, { body: { environmentId: 'env_2' } }))).toContain('cannot be changed');
  });

  const write = (network: string) => () => {
    const old = store.held.get('environments env_1') as StoredRecord;
    store.held.set('environments env_1', { ...old, version: old.version + 1, value: { ...old.value, network } });
  };

  it('is made over what somebody else wrote meanwhile, where no version is asked for', async () => {
    store.meanwhile = write('theirs');
    expect((await ask(`POST ${URL}/env_1/token`)).body).toMatchObject({ id: 'env_1' });
    expect(store.held.get('environments env_1')?.value['network']).toBe('theirs');
  });

  it.each([
    { name: 'the version that is there', ifMatch: '"1"', meanwhile: false, says: 'not refused' },
    { name: 'any version', ifMatch: '*', meanwhile: true, says: 'not refused' },
    { name: 'an older version', ifMatch: '"0"', meanwhile: false, says: 'aborted' },
    { name: 'a version that is overtaken meanwhile', ifMatch: '"1"', meanwhile: true, says: 'aborted' },
    { name: 'what is no version', ifMatch: 'one', meanwhile: false, says: 'invalid_request' },
  ])('heeds If-Match: $name', async ({ ifMatch, meanwhile, says }) => {
    if (meanwhile) store.meanwhile = write('theirs');
    const body = { network: 'two', sources: [{ target: 'a' }] };
    expect(await refusal(ask(`PATCH ${URL}/env_1`, { body, ifMatch }))).toContain(says);
    // Nothing is left of what was refused.
    expect(store.ids('sources')).toHaveLength(says === 'not refused' ? 1 : 0);
  });

  it.each([
    { name: 'the version that is there', ifMatch: '"1"', says: 'not refused' },
    { name: 'another one', ifMatch: '"2"', says: 'aborted' },
  ])('heeds If-Match of a deletion: $name', async ({ ifMatch, says }) => {
    expect(await refusal(ask(`DELETE ${URL}/env_1`, { ifMatch }))).toContain(says);
    expect(store.ids('environments')).toHaveLength(says === 'not refused' ? 0 : 1);
  });

  it('gives a new token in one answer, and keeps its digest alone', async () => {
    expect((await ask(`POST ${URL}/env_1/token`)).body).toEqual({ id: 'env_1', proxy_url: 'http://env_1:token-3@proxy' });
    expect(store.held.get('environments env_1')?.value).toEqual({ network: 'one', token: 'digest-3' });
    expect(told.at(-1)).toBe('env_1 2');
  });
});

describe('sources', () => {
  const sources = [
    { target: '.agents/hooks.json', content: '{}' },
    { target: '.agentsx', content: '' },
    { target: 'workspace/a', content: 'a' },
  ];

  it('are a record of their own, given whole or below a folder', async () => {
    await ask(`POST ${URL}`, { body: { sources } });
    expect(store.ids('sources')).toEqual([expect.stringMatching(/^env_1\.[0-9a-f]{16}$/)]);
    expect((await ask(`GET ${URL}/env_1/sources`)).body).toEqual({ id: 'env_1', sources });
    for (const under of ['.agents', '/.agents/']) {
      expect((await ask(`GET ${URL}/env_1/sources`, { query: { under } })).body).toEqual({ id: 'env_1', sources: [sources[0]] });
    }
    expect(await refusal(ask(`GET ${URL}/env_1/sources`, { query: { below: 'a' } }))).toContain('invalid_request');
  });

  it('are replaced whole, and the old ones are gone', async () => {
    await ask(`POST ${URL}`, { body: { sources } });
    await ask(`PATCH ${URL}/env_1`, { body: { sources: sources.slice(2) } });
    expect(store.ids('sources')).toHaveLength(1);
    expect((await ask(`GET ${URL}/env_1/sources`)).body).toEqual({ id: 'env_1', sources: sources.slice(2) });
    await ask(`PATCH ${URL}/env_1`, { body: { network: 'disabled' } });
    expect(store.ids('sources')).toHaveLength(1);
    await ask(`PATCH ${URL}/env_1`, { body: { sources: [] } });
    expect(store.ids('sources')).toEqual([]);
    expect((await ask(`GET ${URL}/env_1/sources`)).body).toEqual({ id: 'env_1', sources: [] });
  });

  it('go with their environment', async () => {
    await ask(`POST ${URL}`, { body: { sources } });
    expect((await ask(`DELETE ${URL}/env_1`)).body).toEqual({});
    expect([store.held.size, told.at(-1)]).toEqual([0, 'env_1 gone']);
  });

  it('go with an environment that leaves older ones behind, does not open, or is changed meanwhile, and those of others stay', async () => {
    const left = (id: string) => Promise.all([1, 2, 3, 4, 5].map((at) => store.put('sources', `${id}.left${at}`, {}, 'new')));
    await ask(`POST ${URL}`, { body: { sources } });
    await ask(`POST ${URL}`, { body: { sources } });
    await left('env_1');
    await left('env_10');
    expect((await ask(`DELETE ${URL}/env_1`)).body).toEqual({});
    await store.delete('environments', 'env_3');
    store.broken.add('environments env_3').add(`sources ${String(store.ids('sources').at(-1))}`);
    expect((await ask(`DELETE ${URL}/env_3`)).body).toEqual({});
    expect(store.ids('sources')).toEqual([1, 2, 3, 4, 5].map((at) => `env_10.left${at}`));
  });

  it('that a deletion could not reach go when it is asked for again', async () => {
    await ask(`POST ${URL}`, { body: { sources } });
    store.afterDelete = () => (store.away = true);
    expect(await refusal(ask(`DELETE ${URL}/env_1`))).toBe('unavailable: in the words of StoreAway');
    expect([store.ids('environments'), told.at(-1)]).toEqual([[], 'env_1 gone']);
    store.away = false;
    expect(await refusal(ask(`DELETE ${URL}/env_1`))).toBe('not_found: there is no environment of this id');
    expect(store.held.size).toBe(0);
  });

  it('that are lost are an error, and not none', async () => {
    await ask(`POST ${URL}`, { body: { sources } });
    for (const id of store.ids('sources')) store.held.delete(`sources ${id}`);
    expect(await refusal(ask(`GET ${URL}/env_1/sources`))).toBe(
      'internal: the sources of the environment are lost; send them anew',
    );
  });
});

describe('the list', () => {
  it('comes in pages', async () => {
    for (let made = 0; made < 3; made += 1) await ask(`POST ${URL}`, { body: { network: 'one' } });
    const first = (await ask(`GET ${URL}`, { query: { page_size: '2' } })).body as Record<string, unknown>;
    expect(first['environments']).toEqual([
      { id: 'env_1', network: 'one' },
      { id: 'env_3', network: 'one' },
    ]);
    const token = String(first['next_page_token']);
    expect((await ask(`GET ${URL}`, { query: { page_size: '2', page_token: token } })).body).toEqual({
      environments: [{ id: 'env_5', network: 'one' }],
    });
    expect(await refusal(ask(`GET ${URL}`, { query: { page_token: 'x' } }))).toContain('invalid_request');
  });
});

describe('while the store is away', () => {
  it('is said so, and nothing is in force that was not answered for', async () => {
    await ask(`POST ${URL}`, {});
    store.away = true;
    for (const line of [`GET ${URL}/env_1`, `PATCH ${URL}/env_1`, `DELETE ${URL}/env_1`, `POST ${URL}/env_1/token`]) {
      expect(await refusal(ask(line))).toBe('unavailable: in the words of StoreAway');
    }
    expect(told).toEqual(['env_1 1']);
  });
});
