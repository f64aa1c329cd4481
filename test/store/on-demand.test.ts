// Twin of src/store/on-demand.ts: what a start makes and what it does not, and what a wrong or missing key comes to.
import { existsSync } from 'node:fs';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createLogger } from '../../src/foundation/logger.ts';
import { openOnDemand } from '../../src/store/on-demand.ts';
import type { KeyPlace } from '../../src/store/on-demand.ts';
import type { RecordStore } from '../../src/store/record-store.ts';
import { freePort } from '../support/child-server.ts';

let folder: string;
let open: RecordStore[];
let warned: string[];
beforeEach(async () => {
  warned = [];
  folder = await mkdtemp(join(tmpdir(), 'on-demand-'));
  open = [];
});
afterEach(async () => {
  for (const store of open) await store.close();
  await rm(folder, { recursive: true, force: true });
});

const KEY = { kind: 'file', path: 'state/key' } as const;

async function start(more: { uri?: string; key?: KeyPlace; env?: NodeJS.ProcessEnv } = {}): Promise<RecordStore> {
  const log = createLogger({ level: 'warn', stream: { write: (line) => warned.push(line) } });
  const store = await openOnDemand({ uri: 'file:state/store', key: KEY, env: {}, baseDirectory: folder, log, ...more });
  open.push(store);
  return store;
}

describe('a store in a file that is not there', () => {
  it('holds nothing and makes nothing until somebody writes, and is there for the next start', async () => {
    const store = await start();
    expect(await store.get('credentials', 'a')).toBeUndefined();
    expect(await store.list('credentials', { limit: 10 })).toEqual({ records: [], broken: [] });
    expect(await store.delete('credentials', 'a')).toBe(false);
    expect(store.health()).toEqual({ ok: true });
    expect(existsSync(join(folder, 'state'))).toBe(false);
    await Promise.all([store.put('credentials', 'a', { n: 1 }, 'new'), store.put('credentials', 'b', { n: 2 }, 'new')]);
    for (const file of ['store', 'key']) expect((await stat(join(folder, 'state', file))).mode & 0o777).toBe(0o600);
    await store.close();
    expect(await (await start()).get('credentials', 'b')).toMatchObject({ value: { n: 2 } });
  });

  it('is found by those that have begun without it, once another has written', async () => {
    const [one, other] = [await start(), await start()];
    expect(await other.get('credentials', 'a')).toBeUndefined();
    await one.put('credentials', 'a', { n: 1 }, 'new');
    expect(await other.get('credentials', 'a')).toMatchObject({ value: { n: 1 } });
  });

  it('says that it is away where it cannot be made, once in the log, and is tried again', async () => {
    await writeFile(join(folder, 'state'), 'a file in the place of the folder');
    const store = await start();
    for (let attempt = 0; attempt < 2; attempt += 1) {
      await expect(store.put('credentials', 'a', {}, 'new')).rejects.toMatchObject({ name: 'StoreAway' });
    }
    expect(store.health()).toMatchObject({ ok: false });
    expect(warned).toEqual([expect.stringContaining(join(folder, 'state'))]);
    await rm(join(folder, 'state'));
    await store.put('credentials', 'a', {}, 'new');
    expect(store.health()).toEqual({ ok: true });
  });

  it('takes nothing more once it is closed', async () => {
    const store = await start();
    await store.close();
    await expect(store.put('credentials', 'a', {}, 'new')).rejects.toMatchObject({ name: 'StoreAway' });
    expect(existsSync(join(folder, 'state'))).toBe(false);
  });
});

describe('a store in a file that is there', () => {
  beforeEach(async () => {
    const store = await start();
    await store.put('credentials', 'a', { n: 1 }, 'new');
    await store.close();
  });

  it('does not start with another key, and leaves saying so to whoever starts it', async () => {
    await writeFile(join(folder, 'other'), Buffer.alloc(32, 7).toString('base64'), { mode: 0o600 });
    await expect(start({ key: { kind: 'file', path: 'other' } })).rejects.toThrow(/sealed with another key/);
    expect(warned).toEqual([]);
  });

  it('does not start without its key, nor make another one', async () => {
    await rm(join(folder, 'state', 'key'));
    await expect(start()).rejects.toThrow('the key file "state/key" of the store is not there, and the store is');
    expect(existsSync(join(folder, 'state', 'key'))).toBe(false);
  });

  it('does not start where the variable of its key is not set', async () => {
    await expect(start({ key: { kind: 'env', name: 'STORE_KEY' } })).rejects.toThrow('"STORE_KEY" is not set');
  });
});

describe('a store on a server', () => {
  it('that is away is waited for, and its health and one line in the log say so', async () => {
    const key = Buffer.alloc(32, 1).toString('base64');
    const store = await start({
      uri: `redis://127.0.0.1:${await freePort()}`,
      key: { kind: 'env', name: 'STORE_KEY' },
      env: { STORE_KEY: key },
    });
    expect(store.health()).toMatchObject({ ok: false, why: expect.stringContaining('is away') as string });
    await expect(store.get('credentials', 'a')).rejects.toMatchObject({ name: 'StoreAway' });
    expect(warned).toEqual([expect.stringContaining('is away')]);
  });
});
