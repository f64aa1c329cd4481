// Twin of src/store/rotation.ts and inspect.ts: a key that is a file or a variable, from the first step to the last, with each engine.
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { createLogger } from '../../src/foundation/logger.ts';
import { inspectStore, isThere, keysAtHand } from '../../src/store/inspect.ts';
import { openOnDemand } from '../../src/store/on-demand.ts';
import type { KeyPlace } from '../../src/store/on-demand.ts';
import { openEngine } from '../../src/store/open-engine.ts';
import { rotateKey } from '../../src/store/rotation.ts';
import { seal, sealKey } from '../../src/store/seal.ts';
import { engines, KEY, open, OTHER_KEY, temporaryFolder, titleOf } from './rig.ts';

const NEXT = randomBytes(32);
const warnings: string[] = [];
const log = createLogger({ level: 'warn', stream: { write: (line: string) => warnings.push(line) } });

function keyFile(path: string, key: Buffer): void {
  writeFileSync(path, `${key.toString('base64')}\n`, { mode: 0o600 });
}

const keyIn = (path: string): Buffer => Buffer.from(readFileSync(path, 'utf8'), 'base64');
const inspect = (uri: string) => inspectStore({ uri, baseDirectory: '/', warn: () => undefined });

describe.each(engines)('$name', (engine) => {
  let fresh: () => Promise<string>;
  let end: () => Promise<void> = () => Promise.resolve();
  beforeAll(async () => {
    if (engine.missing === undefined) ({ fresh, end } = await engine.start());
  });
  afterAll(() => end());

  /** A store with three records, the file of its key, and a rotation of it. */
  async function filled() {
    const uri = await fresh();
    const folder = temporaryFolder();
    const path = join(folder, 'key');
    keyFile(path, KEY);
    const store = await open(uri);
    await store.put('credentials', 'a', { a: 1 }, 'new');
    await store.put('credentials', 'b', { b: 1 }, 'new');
    await store.put('environments', 'e', { e: 1 }, 'new');
    await store.close();
    const place: KeyPlace = { kind: 'file', path };
    const rotate = (newKeyFile?: string, key: KeyPlace = place, env: NodeJS.ProcessEnv = {}) =>
      rotateKey({ uri, key, newKeyFile, env, baseDirectory: folder, log });
    return { uri, folder, path, place, rotate };
  }

  describe.skipIf(engine.missing !== undefined)(titleOf(engine, 'a rotation'), () => {
    it('makes a key, seals with it and puts it in the place of the old one', async () => {
      const { uri, path, place, rotate } = await filled();
      const rotation = await rotate();
      expect(rotation).toEqual({ records: 3, keyId: sealKey(keyIn(path)).id, unchanged: false });
      expect([keyIn(path).equals(KEY), existsSync(`${path}.next`), statSync(path).mode & 0o777]).toEqual([false, false, 0o600]);
      expect(await inspect(uri)).toMatchObject({ keys: [rotation.keyId], unreadable: 0 });
      expect(await keysAtHand(place, { env: {}, baseDirectory: '/' })).toEqual({ key: rotation.keyId });
      expect((await (await open(uri, { key: keyIn(path) })).get('credentials', 'a'))?.value).toEqual({ a: 1 });
    });

    it('takes the key of a file, relative to the same folder, and is done when it is repeated', async () => {
      const { folder, path, rotate } = await filled();
      keyFile(join(folder, 'new'), NEXT);
      expect(await rotate('new')).toEqual({ records: 3, keyId: sealKey(NEXT).id, unchanged: false });
      expect(keyIn(path).equals(NEXT)).toBe(true);
      expect(await rotate('new')).toEqual({ records: 0, keyId: sealKey(NEXT).id, unchanged: true });
    });

    it('makes the file of the new key where it is not there', async () => {
      const { folder, path, rotate } = await filled();
      await rotate('new');
      expect(keyIn(path).equals(keyIn(join(folder, 'new')))).toBe(true);
    });

    it('is followed by a proxy that shares the store and reads the same key file', async () => {
      const { uri, place, rotate } = await filled();
      const running = await openOnDemand({ uri, key: place, env: {}, baseDirectory: '/', log });
      onTestFinished(() => running.close());
      expect((await running.get('credentials', 'a'))?.value).toEqual({ a: 1 });
      await rotate();
      expect((await running.get('credentials', 'a'))?.value).toEqual({ a: 1 });
      expect(await running.put('credentials', 'c', { c: 1 }, 'new')).toMatchObject({ id: 'c' });
    });

    it('that was interrupted is finished to the same key, and to no other', async () => {
      const { uri, folder, path, rotate } = await filled();
      keyFile(`${path}.next`, NEXT);
      keyFile(join(folder, 'third'), OTHER_KEY);
      await expect(rotate('third')).rejects.toThrow('a rotation to another key was begun');
      expect((await inspect(uri)).keys).toEqual([sealKey(KEY).id]);
      expect(await rotate()).toMatchObject({ records: 3, keyId: sealKey(NEXT).id });
      expect([keyIn(path).equals(NEXT), existsSync(`${path}.next`)]).toEqual([true, false]);
    });

    it('that was interrupted after the last record still puts the key in its place', async () => {
      const { uri, path, rotate } = await filled();
      keyFile(`${path}.next`, NEXT);
      await (await open(uri)).reseal(NEXT);
      expect(await rotate()).toEqual({ records: 0, keyId: sealKey(NEXT).id, unchanged: false });
      expect(keyIn(path).equals(NEXT)).toBe(true);
    });

    it('of a key in a variable needs a file, and leaves the variable to whoever sets it', async () => {
      const { uri, folder, rotate } = await filled();
      const key: KeyPlace = { kind: 'env', name: 'STORE_KEY' };
      const env = { STORE_KEY: KEY.toString('base64') };
      await expect(rotate(undefined, key, env)).rejects.toThrow('the key is in the variable "STORE_KEY"');
      expect(await rotate('new', key, env)).toMatchObject({ records: 3, keyId: sealKey(keyIn(join(folder, 'new'))).id });
      await expect(open(uri)).rejects.toThrow('sealed with another key');
    });

    it('with another key than that of the store changes nothing', async () => {
      const { uri, path, rotate } = await filled();
      keyFile(path, OTHER_KEY);
      await expect(rotate()).rejects.toThrow('sealed with another key');
      expect(keyIn(path).equals(OTHER_KEY)).toBe(true);
      expect(await inspect(uri)).toMatchObject({ keys: [sealKey(KEY).id], unreadable: 0 });
    });

    it('without the key file makes no other in its place', async () => {
      const { folder, rotate } = await filled();
      const gone: KeyPlace = { kind: 'file', path: join(folder, 'gone') };
      await expect(rotate(undefined, gone)).rejects.toThrow('is not there; put it back first');
      expect([existsSync(gone.path), await keysAtHand(gone, { env: {}, baseDirectory: '/' })]).toEqual([false, {}]);
    });
  });

  describe.skipIf(engine.missing !== undefined)(titleOf(engine, 'a look at what is stored'), () => {
    it('needs no key, and counts what no key in use opens', async () => {
      const { uri } = await filled();
      const raw = await openEngine({ uri, baseDirectory: '/', warn: () => undefined });
      const stray = seal(sealKey(OTHER_KEY), { kind: 'tokens', id: 't' }, '{}');
      await raw.swap({ key: 'tokens:t', before: undefined, after: stray });
      await raw.close();
      const report = await inspect(uri);
      expect(report).toMatchObject({
        records: { credentials: 2, environments: 1, sources: 0, tokens: 1 },
        keys: [sealKey(KEY).id],
        unreadable: 1,
      });
      expect(report.place).not.toContain('@');
    });

    it('finds nothing in an empty place', async () => {
      expect(await inspect(await fresh())).toMatchObject({ keys: [], unreadable: 0 });
    });
  });
});

describe('a store that is not there', () => {
  it('is neither made nor rotated', async () => {
    const folder = temporaryFolder();
    expect(isThere('file:state/store', folder)).toBe(false);
    const options = { uri: 'file:state/store', newKeyFile: 'new', env: {}, baseDirectory: folder, log };
    await expect(rotateKey({ ...options, key: { kind: 'file', path: 'key' } })).rejects.toThrow('nothing is stored yet');
    expect([existsSync(join(folder, 'state')), existsSync(join(folder, 'new'))]).toEqual([false, false]);
  });

  it('is told from one that is away', async () => {
    await expect(inspect('redis://user:marker-password@127.0.0.1:1')).rejects.toThrow(
      /^the store at "redis:\/\/127\.0\.0\.1:1" is away: /,
    );
  });
});
