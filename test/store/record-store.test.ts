// Twin of record-store.ts, record.ts, keyring.ts and the engines: what every engine keeps to, with the same tests for each.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openEngine } from '../../src/store/open-engine.ts';
import type { Engine } from '../../src/store/engine.ts';
import { StoreBroken, StoreConflict } from '../../src/store/store-error.ts';
import { engines, KEY, logged, open, OTHER_KEY, titleOf } from './rig.ts';

const SECRET = 'plain-secret-of-a-value';
const TOKEN = { type: 'bearer_token', token: SECRET };

/** The engine under a store, to look at and to damage what it holds. */
async function underneath(uri: string): Promise<Engine> {
  return openEngine({ uri, baseDirectory: '/', warn: () => undefined });
}

describe.each(engines)('$name', (engine) => {
  let fresh: () => Promise<string>;
  let end: () => Promise<void> = () => Promise.resolve();
  beforeAll(async () => {
    if (engine.missing === undefined) ({ fresh, end } = await engine.start());
  });
  afterAll(() => end());

  describe.skipIf(engine.missing !== undefined)(titleOf(engine, 'a record'), () => {
    it('is not there before it is put, is there with its dates after, and is gone after its deletion', async () => {
      const uri = await fresh();
      const store = await open(uri);
      expect(await store.get('credentials', 'github')).toBeUndefined();
      expect(await store.delete('credentials', 'github')).toBe(false);
      const put = await store.put('credentials', 'github', TOKEN, 'new');
      expect(put).toEqual({ ...put, id: 'github', value: TOKEN });
      expect(new Date(put.createdAt).toISOString()).toBe(put.createdAt);
      expect(await store.get('credentials', 'github')).toEqual(put);
      expect(await store.get('environments', 'github')).toBeUndefined();
      const other = await open(uri);
      expect(await other.get('credentials', 'github')).toEqual(put);
      expect(await other.delete('credentials', 'github')).toBe(true);
      expect(await store.get('credentials', 'github')).toBeUndefined();
    });

    it('keeps the date of its creation and gets another version with each write', async () => {
      const store = await open(await fresh());
      const first = await store.put('credentials', 'a', { n: 1 }, 'new');
      const second = await store.put('credentials', 'a', { n: 2 }, first.version);
      const third = await store.put('credentials', 'a', { n: 3 }, 'any');
      expect(new Set([first.version, second.version, third.version]).size).toBe(3);
      expect(third.createdAt).toBe(first.createdAt);
      expect((await store.get('credentials', 'a'))?.value).toEqual({ n: 3 });
    });

    it('keeps any text of any script, and a value of a megabyte', async () => {
      const store = await open(await fresh());
      const value = { text: 'ключ \u0000 \u{1f511} "\\', many: 'x'.repeat(2 ** 20), nested: [{ a: null }] };
      await store.put('environments', 'big', value, 'new');
      expect((await store.get('environments', 'big'))?.value).toEqual(value);
    });

    it.each(['', '../x', 'a:b', 'a b', 'x'.repeat(129), 'a\nb', '-a'])('has no id such as %j', async (id) => {
      const store = await open(await fresh());
      expect(await store.get('credentials', id)).toBeUndefined();
      expect(await store.delete('credentials', id)).toBe(false);
      await expect(store.put('credentials', id, {}, 'any')).rejects.toThrow('is no id of a record');
    });
  });

  describe.skipIf(engine.missing !== undefined)(titleOf(engine, 'two editors'), () => {
    it.each([
      { name: 'new where it is there', expected: 'new' as const },
      { name: 'an old version', expected: 1 },
    ])('are told of each other: $name', async ({ expected }) => {
      const store = await open(await fresh());
      const { version } = await store.put('credentials', 'a', TOKEN, 'new');
      const refused: unknown = await store.put('credentials', 'a', { n: 2 }, expected).catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(StoreConflict);
      expect(refused).toMatchObject({ version });
      expect(String(refused)).not.toContain(SECRET);
      await expect(store.delete('credentials', 'a', version + 1)).rejects.toThrow(StoreConflict);
      expect((await store.get('credentials', 'a'))?.value).toEqual(TOKEN);
      expect(await store.delete('credentials', 'a', version)).toBe(true);
    });

    it('are told that the record is gone', async () => {
      const store = await open(await fresh());
      await expect(store.put('credentials', 'a', {}, 5)).rejects.toThrow('does not exist any more');
      await expect(store.delete('credentials', 'a', 5)).rejects.toThrow(StoreConflict);
    });

    it('cannot take a record that was made anew for the one they read', async () => {
      const store = await open(await fresh());
      const { version } = await store.put('credentials', 'a', { n: 1 }, 'new');
      await store.delete('credentials', 'a');
      // the version begins at the clock in ms, so the clock has to move on
      while (Date.now() <= version) await new Promise(setImmediate);
      await store.put('credentials', 'a', { n: 2 }, 'new');
      await expect(store.put('credentials', 'a', { n: 3 }, version)).rejects.toThrow(StoreConflict);
    });

    it('who write at once lose no write: one of them wins each version', async () => {
      const uri = await fresh();
      const stores = [await open(uri), await open(uri), await open(uri)];
      await stores[0]!.put('credentials', 'counter', { n: 0 }, 'new');
      const addOnce = async (store: (typeof stores)[number]): Promise<number> => {
        for (let conflicts = 0; ; conflicts += 1) {
          const { version, value } = (await store.get('credentials', 'counter'))!;
          const written = await store
            .put('credentials', 'counter', { n: Number(value.n) + 1 }, version)
            .catch((error: unknown) => {
              if (error instanceof StoreConflict) return undefined;
              throw error;
            });
          if (written !== undefined) return conflicts;
        }
      };
      const addTen = async (store: (typeof stores)[number]): Promise<void> => {
        for (let n = 0; n < 10; n += 1) await addOnce(store);
      };
      await Promise.all(stores.map(addTen));
      expect((await stores[0]!.get('credentials', 'counter'))?.value).toEqual({ n: 30 });
    });

    it('who make the same record at once: exactly one of them makes it', async () => {
      const uri = await fresh();
      const stores = [await open(uri), await open(uri)];
      const made = await Promise.allSettled(
        stores.flatMap((store) => [1, 2, 3].map((n) => store.put('credentials', 'one', { n }, 'new'))),
      );
      expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    });
  });

  describe.skipIf(engine.missing !== undefined)(titleOf(engine, 'a list'), () => {
    it('is sorted by the bytes of the id, in pages, without the other kind', async () => {
      const store = await open(await fresh());
      expect(await store.list('credentials', { limit: 10 })).toEqual({ records: [], broken: [] });
      const ids = ['b', 'a', 'B', 'a-1', 'a_1', 'a.1', '9', 'Z', 'aa'];
      for (const id of ids) await store.put('credentials', id, { id }, 'new');
      await store.put('environments', 'c', {}, 'new');
      const seen: string[] = [];
      let after: string | undefined;
      do {
        const page = await store.list('credentials', { limit: 3, ...(after === undefined ? {} : { after }) });
        expect(page.records.every(({ id, value }) => value.id === id)).toBe(true);
        seen.push(...page.records.map(({ id }) => id));
        after = page.next;
      } while (after !== undefined);
      expect(seen).toEqual([...ids].sort());
      expect(await store.list('credentials', { after: 'b', limit: 3 })).toEqual({ records: [], broken: [] });
    });

    it('leaves out a record that does not open, names it, and shows the others', async () => {
      const uri = await fresh();
      const store = await open(uri);
      for (const id of ['a', 'b', 'c']) await store.put('credentials', id, TOKEN, 'new');
      const raw = await underneath(uri);
      const text = await raw.read('credentials:b');
      await raw.swap({ key: 'credentials:b', before: text, after: `${text}AAAA` });
      await raw.close();
      const { records, broken } = await store.list('credentials', { limit: 10 });
      expect([records.map(({ id }) => id), broken]).toEqual([['a', 'c'], ['b']]);
    });
  });

  describe.skipIf(engine.missing !== undefined)(titleOf(engine, 'sealing'), () => {
    it('does not open a record that was copied under another id or kind, names it, and lets it be deleted', async () => {
      const uri = await fresh();
      const store = await open(uri);
      await store.put('credentials', 'a', TOKEN, 'new');
      const raw = await underneath(uri);
      const text = await raw.read('credentials:a');
      expect(text).not.toContain(SECRET);
      await raw.swap({ key: 'credentials:b', before: undefined, after: text });
      await raw.swap({ key: 'environments:a', before: undefined, after: text });
      await raw.close();
      for (const [kind, id] of [
        ['credentials', 'b'],
        ['environments', 'a'],
      ] as const) {
        const broken: unknown = await store.get(kind, id).catch((error: unknown) => error);
        expect(broken).toBeInstanceOf(StoreBroken);
        expect(broken).toMatchObject({ record: { kind, id } });
        await expect(store.put(kind, id, {}, 'any')).rejects.toThrow(`${kind} "${id}" does not open`);
        expect(store.health()).toEqual({ ok: true });
        expect(await store.delete(kind, id)).toBe(true);
      }
      expect((await store.get('credentials', 'a'))?.value).toEqual(TOKEN);
    });

    it('tells a wrong key at the start in one line, also where the key check was lost', async () => {
      const uri = await fresh();
      const store = await open(uri);
      await store.put('credentials', 'a', TOKEN, 'new');
      await expect(open(uri, { key: OTHER_KEY })).rejects.toThrow(
        /^the store was sealed with another key; put the right one [^\n]+$/,
      );
      const raw = await underneath(uri);
      await raw.swap({ key: 'check', before: await raw.read('check'), after: undefined });
      await expect(open(uri, { key: OTHER_KEY })).rejects.toThrow('the store was sealed with another key');
      expect(await raw.read('check')).toBeUndefined();
      await raw.close();
      expect((await (await open(uri)).get('credentials', 'a'))?.value).toEqual(TOKEN);
    });

    it('lets one of two keys win where both open an empty store at once', async () => {
      const uri = await fresh();
      const opened = await Promise.allSettled([open(uri), open(uri, { key: OTHER_KEY })]);
      expect(opened.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    });
  });

  describe.skipIf(engine.missing !== undefined)(titleOf(engine, 'a lock'), () => {
    it('is held by one, given back to the next, and by nobody else', async () => {
      const uri = await fresh();
      const [one, two] = [await open(uri), await open(uri)];
      const release = await one.lock('refresh', 60_000);
      expect(release).toBeDefined();
      expect(await two.lock('refresh', 60_000)).toBeUndefined();
      expect(await one.lock('refresh', 60_000)).toBeUndefined();
      expect(await two.lock('another', 60_000)).toBeDefined();
      await release!();
      const again = await two.lock('refresh', 60_000);
      expect(again).toBeDefined();
      await release!();
      expect(await one.lock('refresh', 60_000)).toBeUndefined();
    });

    it('goes to exactly one of many who ask at once', async () => {
      const uri = await fresh();
      const stores = [await open(uri), await open(uri)];
      const asked = await Promise.all(stores.flatMap((store) => Array.from({ length: 8 }, () => store.lock('x', 60_000))));
      expect(asked.filter((release) => release !== undefined)).toHaveLength(1);
    });

    it('ends by itself, and is no record', async () => {
      const store = await open(await fresh());
      const release = await store.lock('short', 30);
      let next: Awaited<ReturnType<typeof store.lock>>;
      do next = await store.lock('short', 60_000);
      while (next === undefined);
      // the first holder's time is over: what it gives back is not what the second holds
      await release!();
      expect(await store.lock('short', 60_000)).toBeUndefined();
      expect(await store.list('credentials', { limit: 10 })).toEqual({ records: [], broken: [] });
    });
  });

  it.skipIf(engine.missing !== undefined)('rejects every call after it was closed, and closes twice', async () => {
    const store = await open(await fresh());
    await store.close();
    await store.close();
    await expect(store.get('credentials', 'a')).rejects.toThrow('it was closed');
  });
});

describe('the place of a store', () => {
  it.each([
    { name: 'an engine that there is not', uri: 'mysql://user:pa55@host/db', says: 'store.uri names no engine' },
    { name: 'a URI without a host', uri: 'redis://', says: 'store.uri cannot be read' },
    { name: 'a password that breaks the URI', uri: 'redis://:pa55/word@host:port', says: 'store.uri cannot be read' },
    { name: 'a file on another host', uri: 'file://pa55/store', says: 'store.uri is no path' },
  ])('is refused without being quoted: $name', async ({ uri, says }) => {
    const error: unknown = await open(uri).catch((thrown: unknown) => thrown);
    expect(String(error)).toContain(says);
    expect(String(error)).not.toContain('pa55');
  });

  it('is not opened with a key of another length', async () => {
    await expect(open('file:/nowhere/store', { key: KEY.subarray(1) })).rejects.toThrow('has 32 bytes, not 31');
  });
});

it('logs nothing of a value in all of this', () => {
  expect(logged.length).toBeGreaterThan(0);
  expect(logged.join('')).not.toContain(SECRET);
});
