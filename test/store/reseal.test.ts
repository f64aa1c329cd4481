// The rotation of the key, with each engine: while it goes on, after it was interrupted, and for those who share the store meanwhile.
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openEngine } from '../../src/store/open-engine.ts';
import { keyIdOf, sealKey } from '../../src/store/seal.ts';
import { engines, KEY, open, titleOf } from './rig.ts';

const NEXT = randomBytes(32);
const THIRD = randomBytes(32);
const RECORDS = 120;

async function keysInUse(uri: string): Promise<string[]> {
  const raw = await openEngine({ uri, baseDirectory: '/', warn: () => undefined });
  const ids = new Set<string>();
  for (const prefix of ['credentials:', 'environments:']) {
    for (const { text } of await raw.range({ prefix, after: undefined, limit: 1000 })) ids.add(keyIdOf(text) ?? 'none');
  }
  for (const each of (await raw.read('check'))?.split(' ') ?? []) ids.add(`check ${keyIdOf(each)}`);
  await raw.close();
  return [...ids].sort();
}

describe.each(engines)('$name', (engine) => {
  let fresh: () => Promise<string>;
  let end: () => Promise<void> = () => Promise.resolve();
  beforeAll(async () => {
    if (engine.missing === undefined) ({ fresh, end } = await engine.start());
  });
  afterAll(() => end());

  async function filled(): Promise<string> {
    const uri = await fresh();
    const store = await open(uri);
    const ids = Array.from({ length: RECORDS }, (_, n) => `c${n}`);
    await Promise.all(ids.map((id) => store.put('credentials', id, { id }, 'new')));
    await store.put('environments', 'e', { id: 'e' }, 'new');
    await store.close();
    return uri;
  }

  describe.skipIf(engine.missing !== undefined)(titleOf(engine, 'resealing'), () => {
    it('seals every record anew at its version, so that the new key opens all and the old one nothing', async () => {
      const uri = await filled();
      const store = await open(uri);
      const before = await store.list('credentials', { limit: 1000 });
      expect(await store.reseal(NEXT)).toBe(RECORDS + 1);
      expect(await keysInUse(uri)).toEqual([sealKey(NEXT).id, `check ${sealKey(NEXT).id}`].sort());
      expect(await store.list('credentials', { limit: 1000 })).toEqual(before);
      expect(await (await open(uri, { key: NEXT })).list('credentials', { limit: 1000 })).toEqual(before);
      await expect(open(uri)).rejects.toThrow('the store was sealed with another key');
      expect(await store.reseal(NEXT)).toBe(0);
    });

    it('is finished by doing it again, whichever key the store is opened with, and to no third key', async () => {
      const uri = await filled();
      const first = await open(uri);
      const cut = first.reseal(NEXT);
      // interrupted somewhere in the middle: what it had begun is awaited, nothing more is begun
      while (!(await keysInUse(uri)).includes(sealKey(NEXT).id)) await new Promise(setImmediate);
      await Promise.all([first.close(), cut.catch(() => undefined)]);
      const both = (await keysInUse(uri)).filter((id) => !id.startsWith('check'));
      expect(both.length).toBe(2);

      const old = await open(uri);
      await expect(old.reseal(THIRD)).rejects.toThrow('a rotation to another key was begun and not finished');
      const next = await open(uri, { key: NEXT, furtherKeys: () => Promise.resolve([KEY]) });
      const page = await next.list('credentials', { limit: 1000 });
      expect([page.records.length, page.broken]).toEqual([RECORDS, []]);
      expect(await old.reseal(NEXT)).toBeGreaterThan(0);
      expect(await keysInUse(uri)).toEqual([sealKey(NEXT).id, `check ${sealKey(NEXT).id}`].sort());
    });

    it('lets nobody seal with the old key from its first moment on', async () => {
      const uri = await filled();
      const [rotating, unaware] = [await open(uri), await open(uri)];
      await rotating.reseal(NEXT);
      await expect(unaware.put('credentials', 'new', {}, 'new')).rejects.toThrow('the key of the store was rotated');
      await expect(unaware.get('credentials', 'c1')).rejects.toThrow('the key of the store was rotated');
      expect(unaware.health()).toMatchObject({ ok: false });
      expect(await keysInUse(uri)).toEqual([sealKey(NEXT).id, `check ${sealKey(NEXT).id}`].sort());
    });

    it('leaves the old key nothing that it could bring back: a record sealed with it does not open any more', async () => {
      const uri = await filled();
      const store = await open(uri);
      const raw = await openEngine({ uri, baseDirectory: '/', warn: () => undefined });
      const old = await raw.read('credentials:c1');
      await store.reseal(NEXT);
      await raw.swap({ key: 'credentials:c1', before: await raw.read('credentials:c1'), after: old });
      await raw.close();
      await expect(store.get('credentials', 'c1')).rejects.toThrow('credentials "c1" does not open');
    });

    it('is followed by those who can find the new key, without a restart', async () => {
      const uri = await filled();
      const keys: Buffer[] = [];
      const [rotating, sharing] = [await open(uri), await open(uri, { furtherKeys: () => Promise.resolve(keys) })];
      keys.push(NEXT);
      await rotating.reseal(NEXT);
      expect((await sharing.get('credentials', 'c1'))?.value).toEqual({ id: 'c1' });
      await sharing.put('credentials', 'new', { id: 'new' }, 'new');
      expect((await rotating.get('credentials', 'new'))?.value).toEqual({ id: 'new' });
      expect(await keysInUse(uri)).toEqual([sealKey(NEXT).id, `check ${sealKey(NEXT).id}`].sort());
    });

    it('loses no write that others make meanwhile', async () => {
      const uri = await filled();
      const rotating = await open(uri);
      const writing = await open(uri, { furtherKeys: () => Promise.resolve([NEXT]) });
      let going = true;
      const write = async (): Promise<number> => {
        for (let n = 0; ; n += 1) {
          await writing.put('credentials', `c${n % RECORDS}`, { n }, 'any');
          await writing.put('credentials', `during-${n}`, { n }, 'new');
          if (!going) return n + 1;
        }
      };
      const written = write();
      await rotating.reseal(NEXT);
      going = false;
      const count = await written;
      expect(await keysInUse(uri)).toEqual([sealKey(NEXT).id, `check ${sealKey(NEXT).id}`].sort());
      for (let n = Math.max(0, count - RECORDS); n < count; n += 1) {
        expect((await rotating.get('credentials', `c${n % RECORDS}`))?.value).toEqual({ n });
        expect((await rotating.get('credentials', `during-${n}`))?.value).toEqual({ n });
      }
    });
  });
});
