// Twin of src/admin/credentials-routes.ts and resource-requests.ts: the resource over HTTP, on a store in memory with the real forms.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startAdmin } from '../../src/admin/admin-server.ts';
import type { AdminServer } from '../../src/admin/admin-server.ts';
import { credentialsRoutes } from '../../src/admin/credentials-routes.ts';
import { readNew, readPatch, view } from '../../src/credentials/stored-credential.ts';
import type { JsonObject, Records, StoredRecord } from '../../src/exchange/records.ts';
import { createLogger } from '../../src/foundation/logger.ts';

const TOKEN = 'tok-0123456789abcdef';
const SECRET = 'marker-5512';

/** The store's promises, in memory. */
class MemoryStore implements Records {
  readonly kept = new Map<string, StoredRecord>();
  trouble: string | undefined = undefined;
  /** Called once, between a read and the write that follows it */
  between: (() => void) | undefined = undefined;

  async get(_kind: string, id: string): Promise<StoredRecord | undefined> {
    this.#fail();
    return this.kept.get(id);
  }

  async list(_kind: string, { after = '', limit }: { after?: string; limit: number }) {
    this.#fail();
    const ids = [...this.kept.keys()].sort().filter((id) => id > after);
    const records = ids.slice(0, limit).flatMap((id) => this.kept.get(id) ?? []);
    const last = records.at(-1);
    return { records, broken: [], ...(ids.length > limit && last !== undefined ? { next: last.id } : {}) };
  }

  async put(_kind: string, id: string, value: JsonObject, expected: number | 'new' | 'any'): Promise<StoredRecord> {
    this.#fail();
    const { between } = this;
    this.between = undefined;
    between?.();
    const old = this.kept.get(id);
    if (expected !== 'any' && old?.version !== (expected === 'new' ? undefined : expected)) throw named('StoreConflict');
    const record = {
      id,
      version: (old?.version ?? 100) + 1,
      value,
      createdAt: '2026-12-01T00:00:00.000Z',
      updatedAt: '2026-12-01T00:00:00.000Z',
    };
    this.kept.set(id, record);
    return record;
  }

  async delete(_kind: string, id: string, expected?: number): Promise<boolean> {
    this.#fail();
    if (expected !== undefined && this.kept.get(id)?.version !== expected) throw named('StoreConflict');
    return this.kept.delete(id);
  }

  lock(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  #fail(): void {
    if (this.trouble !== undefined) throw named(this.trouble);
  }
}

function named(name: string): Error {
  return Object.assign(new Error(`${name}: in words for the operator`), { name });
}

let admin: AdminServer;
let store: MemoryStore;
let changed: string[];
let proved: (value: JsonObject) => { value: JsonObject } | { problem: string };
let logged: string;

beforeEach(async () => {
  store = new MemoryStore();
  changed = [];
  logged = '';
  proved = (value) => ({ value });
  admin = await startAdmin({
    host: '127.0.0.1',
    port: 0,
    token: TOKEN,
    ready: () => [],
    scrape: async () => ({ contentType: 'text/plain', body: '' }),
    reload: async () => ({ outcome: 'unchanged', generation: 1, problems: [] }),
    explain: () => ({}),
    status: () => ({}),
    denials: () => [],
    routes: credentialsRoutes({
      records: store,
      readNew,
      readPatch,
      view,
      prove: async (_id, value) => proved(value),
      declared: (id) => id === 'of-config',
      changed: (id) => changed.push(id),
    }),
    log: createLogger({ level: 'debug', stream: { write: (line: string) => void (logged += line) } }),
  });
});
afterEach(async () => {
  await admin.close();
  expect(logged).not.toContain(SECRET);
});

interface Asked {
  readonly method?: string;
  readonly body?: object;
  readonly headers?: Record<string, string>;
}

async function ask(path: string, { method = 'GET', body, headers = {} }: Asked = {}) {
  const answer = await fetch(`http://127.0.0.1:${admin.address.port}/v1beta/credentials${path}`, {
    method,
    headers: { 'x-goog-api-key': TOKEN, 'content-type': 'application/json', ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  expect(text).not.toContain(SECRET);
  return { status: answer.status, etag: answer.headers.get('etag'), json: JSON.parse(text) as Record<string, unknown> };
}

const bearer = (id: string, more: object = {}) => ({ id, type: 'bearer_token', token: SECRET, ...more });
const create = (body: object) => ask('', { method: 'POST', body });
const errorOf = ({ json }: { json: Record<string, unknown> }) => json['error'] as { code: string; message: string };

describe('the credentials resource', () => {
  it('asks for the admin token', async () => {
    expect((await ask('', { headers: { 'x-goog-api-key': 'wrong' } })).status).toBe(401);
    expect((await ask('', { headers: { 'x-goog-api-key': '', authorization: `Bearer ${TOKEN}` } })).status).toBe(200);
  });

  it('creates, shows, changes and deletes one, and says each time that it changed', async () => {
    const made = await create(bearer('gh'));
    expect(made).toMatchObject({
      status: 200,
      etag: '"101"',
      json: { id: 'gh', type: 'bearer_token', status: 'active', prefix: 'Bearer' },
    });
    expect(await ask('/gh')).toEqual(made);
    const patched = await ask('/gh', { method: 'PATCH', body: { type: 'bearer_token', prefix: 'Token' } });
    expect(patched).toMatchObject({ status: 200, etag: '"102"', json: { prefix: 'Token' } });
    expect(store.kept.get('gh')?.value).toMatchObject({ token: SECRET, prefix: 'Token' });
    expect(await ask('/gh', { method: 'DELETE' })).toMatchObject({ status: 200, json: {} });
    expect(changed).toEqual(['gh', 'gh', 'gh']);
    expect((await ask('/gh')).status).toBe(404);
  });

  it('keeps what proving made of a value, and keeps nothing that cannot be proved', async () => {
    proved = (value) => ({ value: { ...value, state: { access_token: SECRET } } });
    await create(bearer('gh'));
    expect(store.kept.get('gh')?.value).toMatchObject({ state: { access_token: SECRET } });
    proved = () => ({ problem: 'the token endpoint refuses the refresh token' });
    const refused = await create(bearer('other'));
    expect([refused.status, errorOf(refused)]).toEqual([
      400,
      { code: 'invalid_request', message: 'the token endpoint refuses the refresh token' },
    ]);
    expect(store.kept.has('other')).toBe(false);
    expect((await ask('/gh', { method: 'PATCH', body: { type: 'bearer_token', token: 'new' } })).status).toBe(400);
    expect(store.kept.get('gh')?.value).toMatchObject({ token: SECRET });
  });

  it('does not prove one whose id is taken: what proves it may be used up by it', async () => {
    await create(bearer('gh'));
    proved = () => {
      throw new Error('asked for nothing');
    };
    expect((await create(bearer('gh'))).status).toBe(409);
  });
});

describe('a list', () => {
  beforeEach(async () => {
    for (const id of ['c', 'a', 'b']) await create(bearer(id));
  });
  const ids = ({ json }: { json: Record<string, unknown> }) => (json['credentials'] as { id: string }[]).map(({ id }) => id);

  it('comes in pages, sorted by id, to the end', async () => {
    const first = await ask('?page_size=2');
    expect(ids(first)).toEqual(['a', 'b']);
    const second = await ask(`?page_size=2&page_token=${String(first.json['next_page_token'])}`);
    expect(ids(second)).toEqual(['c']);
    expect(second.json).not.toHaveProperty('next_page_token');
  });

  it.each([
    ['page_size=1', 200],
    ['page_size=1000', 200],
    ['page_token=', 200],
    ['page_size=0', 400],
    ['page_size=1001', 400],
    ['page_size=-1', 400],
    ['page_size=ten', 400],
    ['page_size=1&page_size=2', 400],
    ['page_token=made-up', 400],
    ['pageSize=1', 400],
  ])('with %s: %i', async (query, status) => {
    const answer = await ask(`?${query}`);
    expect(answer.status).toBe(status);
    if (query === 'pageSize=1') expect(errorOf(answer).message).toBe('unknown parameter "pageSize"; did you mean "page_size"?');
  });
});

describe('two editors', () => {
  beforeEach(() => create(bearer('gh')));
  const patch = (etag: string, body: object = { prefix: 'Token' }) =>
    ask('/gh', { method: 'PATCH', body: { type: 'bearer_token', ...body }, headers: { 'if-match': etag } });

  it.each([
    { etag: '"101"', status: 200 },
    { etag: 'W/"101"', status: 200 },
    { etag: '*', status: 200 },
    { etag: '"100"', status: 409 },
    { etag: '101', status: 400 },
    { etag: '"101", "102"', status: 400 },
  ])('patch and delete with If-Match $etag: $status', async ({ etag, status }) => {
    expect((await patch(etag)).status).toBe(status);
    const version = store.kept.get('gh')?.version ?? 0;
    const gone = await ask('/gh', { method: 'DELETE', headers: { 'if-match': etag === '"101"' ? `"${version}"` : etag } });
    expect(gone.status).toBe(etag === 'W/"101"' ? 409 : status);
  });

  it('do not overwrite each other unseen, between the read and the write either', async () => {
    const other = () =>
      void store.put('credentials', 'gh', { ...bearer('gh'), id: undefined, status: 'active', header_name: 'X-Other' }, 'any');
    store.between = other;
    const lost = await patch('"101"');
    expect([lost.status, errorOf(lost).code]).toEqual([409, 'aborted']);
    expect(store.kept.get('gh')?.value).toMatchObject({ header_name: 'X-Other' });
  });

  it('that name no version both have their say, as a patch leaves what it omits', async () => {
    store.between = () => {
      const old = store.kept.get('gh')?.value;
      void store.put('credentials', 'gh', { ...old, header_name: 'X-Other' }, 'any');
    };
    expect((await ask('/gh', { method: 'PATCH', body: { type: 'bearer_token', prefix: 'Token' } })).status).toBe(200);
    expect(store.kept.get('gh')?.value).toMatchObject({ header_name: 'X-Other', prefix: 'Token' });
  });
});

describe('what cannot be done', () => {
  beforeEach(() => create(bearer('gh')));

  it.each([
    { name: 'a second of one id', path: '', asked: { method: 'POST', body: bearer('gh') }, wanted: [409, 'aborted'] },
    {
      name: 'one that the config declares',
      path: '',
      asked: { method: 'POST', body: bearer('of-config') },
      wanted: [409, 'aborted'],
    },
    {
      name: 'a patch of one that the config declares',
      path: '/of-config',
      asked: { method: 'PATCH', body: { type: 'bearer_token' } },
      wanted: [409, 'aborted'],
    },
    { name: 'to read one that the config declares', path: '/of-config', asked: {}, wanted: [404, 'not_found'] },
    {
      name: 'an unknown field',
      path: '',
      asked: { method: 'POST', body: bearer('a', { headerName: 'X' }) },
      wanted: [400, 'invalid_request'],
    },
    { name: 'an unknown type', path: '', asked: { method: 'POST', body: { type: 'exec' } }, wanted: [400, 'invalid_request'] },
    {
      name: 'another type in a patch',
      path: '/gh',
      asked: { method: 'PATCH', body: { type: 'basic' } },
      wanted: [400, 'invalid_request'],
    },
    {
      name: 'a patch without type',
      path: '/gh',
      asked: { method: 'PATCH', body: { token: 'a' } },
      wanted: [400, 'invalid_request'],
    },
    { name: 'a patch without body', path: '/gh', asked: { method: 'PATCH' }, wanted: [400, 'invalid_request'] },
    {
      name: 'a mask that names nothing known',
      path: '/gh?update_mask=tokn',
      asked: { method: 'PATCH', body: { type: 'bearer_token' } },
      wanted: [400, 'invalid_request'],
    },
    {
      name: 'an unknown parameter',
      path: '/gh?updateMask=token',
      asked: { method: 'PATCH', body: { type: 'bearer_token' } },
      wanted: [400, 'invalid_request'],
    },
    { name: 'to read one that is not there', path: '/none', asked: {}, wanted: [404, 'not_found'] },
    {
      name: 'to patch one that is not there',
      path: '/none',
      asked: { method: 'PATCH', body: { type: 'bearer_token' } },
      wanted: [404, 'not_found'],
    },
    { name: 'to delete one that is not there', path: '/none', asked: { method: 'DELETE' }, wanted: [404, 'not_found'] },
    { name: 'an id that no file could have', path: '/..%2Fetc', asked: {}, wanted: [404, 'not_found'] },
    { name: 'to put one', path: '/gh', asked: { method: 'PUT', body: bearer('gh') }, wanted: [405, 'method_not_allowed'] },
  ])('is answered in the form of the dialect: $name', async ({ path, asked, wanted }) => {
    const answer = await ask(path, asked);
    expect([answer.status, errorOf(answer).code]).toEqual(wanted);
    expect(Object.keys(errorOf(answer)).sort()).toEqual(['code', 'message']);
  });

  it.each([
    { trouble: 'StoreAway', wanted: [503, 'unavailable'] },
    { trouble: 'StoreBroken', wanted: [500, 'internal'] },
  ])('is said of a store that fails: $trouble', async ({ trouble, wanted }) => {
    store.trouble = trouble;
    const asked: [string, Asked][] = [
      ['', {}],
      ['/gh', {}],
      ['', { method: 'POST', body: bearer('new') }],
      ['/gh', { method: 'PATCH', body: { type: 'bearer_token' } }],
      ['/gh', { method: 'DELETE' }],
    ];
    for (const [path, each] of asked) {
      const answer = await ask(path, each);
      expect([answer.status, errorOf(answer).code]).toEqual(wanted);
      expect(errorOf(answer).message).toContain('in words for the operator');
    }
  });

  it('takes a mask that also names the type', async () => {
    const body = { type: 'bearer_token', token: 'new', prefix: 'Token' };
    expect((await ask('/gh?update_mask=type,token', { method: 'PATCH', body })).status).toBe(200);
    expect(store.kept.get('gh')?.value).toMatchObject({ token: 'new', prefix: 'Bearer' });
  });
});
