// Twin of embedded.ts: the modes of its files, what is no store file, and other processes on the same file.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { StoreAway } from '../../src/store/store-error.ts';
import { buildCli } from '../support/cli.ts';
import { KEY, logged, open, temporaryFolder } from './rig.ts';

const modeOf = (path: string): string => (statSync(path).mode & 0o777).toString(8);
const ROOT = join(import.meta.dirname, '..', '..');

/** LMDB ends the process over a bad file, so that such files are opened in one of their own. */
async function openElsewhere(path: string): Promise<string> {
  const script = `
    import { openStore } from '${ROOT}/dist/store/record-store.js';
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    await openStore({ uri: 'file:' + process.argv[1], key: Buffer.alloc(32, 1), log }).then(
      async (store) => { console.log('opened', (await store.list('credentials', { limit: 100 })).records.length); await store.close(); },
      (error) => console.log(error.message));`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script, path]);
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  return code === 0 ? output.trim() : `ended with ${code ?? signal}`;
}

describe('the store file', () => {
  beforeAll(buildCli, 120_000);

  it('is 0600 in a folder 0700 whatever the umask, its lock beside it, and holds no plain text', async () => {
    const path = join(temporaryFolder(), 'deep', 'state', 'store.json');
    const before = process.umask(0);
    const store = await open(`file:${path}`).finally(() => process.umask(before));
    await store.put('credentials', 'github', { token: 'plain-secret' }, 'new');
    expect(readdirSync(join(path, '..')).sort()).toEqual(['store.json', 'store.json-lock']);
    expect([modeOf(path), modeOf(`${path}-lock`), modeOf(join(path, '..'))]).toEqual(['600', '600', '700']);
    expect(readFileSync(path).includes('plain-secret')).toBe(false);
    expect(readFileSync(path).includes('github')).toBe(true);
  });

  it('is closed to others again where it was open, with a warning', async () => {
    const path = join(temporaryFolder(), 'store.json');
    await (await open(`file:${path}`)).close();
    chmodSync(path, 0o644);
    chmodSync(join(path, '..'), 0o777);
    await open(`file:${path}`);
    expect(modeOf(path)).toBe('600');
    expect(logged.join('')).toContain('was open to other users; it is 0600 now');
    expect(logged.join('')).toContain('run chmod go-w on it');
  });

  it.each([
    {
      name: 'some JSON',
      plant: (path: string): unknown => writeFileSync(path, '{"a":1}'),
      says: 'is not a store file, or is damaged',
    },
    {
      name: 'zeros',
      plant: (path: string): unknown => writeFileSync(path, Buffer.alloc(16_384)),
      says: 'is not a store file, or is damaged',
    },
    { name: 'a folder', plant: (path: string): unknown => mkdirSync(path), says: 'is not a plain file' },
    { name: 'a symlink', plant: (path: string): unknown => symlinkSync('/etc/passwd', path), says: 'is not a plain file' },
    { name: 'nothing, as a new file is', plant: (path: string): unknown => writeFileSync(path, ''), says: 'opened 0' },
  ])('of $name: $says', async ({ plant, says }) => {
    const path = join(temporaryFolder(), 'store.json');
    plant(path);
    expect(await openElsewhere(path)).toContain(says);
  });

  it.each([
    { name: 'in its middle', keep: 0.5, says: 'is cut short; restore it from a backup' },
    { name: 'by a byte', keep: 0.999_99, says: 'is cut short' },
    { name: 'to one page', keep: 4096, says: 'is not a store file' },
    { name: 'not at all', keep: 1, says: 'opened 50' },
  ])('that was cut $name: $says', async ({ keep, says }) => {
    const path = join(temporaryFolder(), 'store.json');
    const store = await open(`file:${path}`, { key: Buffer.alloc(32, 1) });
    for (let n = 0; n < 50; n += 1) await store.put('credentials', `c${n}`, { text: 'x'.repeat(5000) }, 'new');
    await store.close();
    const { size } = statSync(path);
    truncateSync(path, keep > 1 ? keep : Math.floor(size * keep));
    expect(await openElsewhere(path)).toContain(says);
  });

  it('says what is wrong with its place', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'file'), '');
    await expect(open(`file:${join(folder, 'file', 'store')}`)).rejects.toThrow(
      /cannot use the store file ".*" \((?:EEXIST|ENOTDIR)\)/,
    );
  });

  it('is found from the base directory where its path is relative, and as a URL', async () => {
    const folder = temporaryFolder();
    const store = await open('file:state/store.json', { baseDirectory: folder });
    await store.put('credentials', 'a', {}, 'new');
    expect(await (await open(`file://${folder}/state/store.json`)).get('credentials', 'a')).toBeDefined();
  });
});

describe('a disk that is full', () => {
  beforeAll(buildCli, 120_000);

  it('refuses the writes that find no room, keeps the others, and ends nothing', async () => {
    const path = join(temporaryFolder(), 'store.json');
    const script = `
      import { openStore } from '${ROOT}/dist/store/record-store.js';
      const log = { debug() {}, info() {}, warn() {}, error() {} };
      const store = await openStore({ uri: 'file:' + process.argv[1], key: Buffer.alloc(32, 1), log });
      const outcomes = [];
      for (let n = 0; n < 4; n += 1) {
        const puts = [0, 1, 2, 3].map((m) => store.put('credentials', 'c' + n + m, { text: 'x'.repeat(20_000) }, 'new'));
        outcomes.push(...(await Promise.allSettled(puts)));
      }
      const there = (await store.list('credentials', { limit: 100 })).records.length;
      await store.delete('credentials', 'c00');
      await store.put('credentials', 'small', {}, 'new');
      const failed = outcomes.filter(({ status }) => status === 'rejected');
      await store.close();
      console.log(JSON.stringify({ done: outcomes.length - failed.length, there, names: [...new Set(failed.map(({ reason }) => reason.name + ': ' + reason.message))] }));`;
    // 300 KiB in blocks of 512 bytes; node ignores the signal, so that the write fails as it does on a full disk
    const command = 'ulimit -f 600; exec "$0" --input-type=module -e "$1" "$2"';
    const child = spawn('sh', ['-c', command, process.execPath, script, path], { stdio: ['ignore', 'pipe', 'ignore'] });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    expect(await once(child, 'close')).toEqual([0, null]);
    const { done, there, names } = JSON.parse(output) as { done: number; there: number; names: string[] };
    expect(names).toEqual([`StoreAway: the store at "file:${path}" is away: it cannot be written; see whether the disk is full`]);
    expect(done).toBeGreaterThan(0);
    expect(there).toBe(done);
  });
});

describe('two processes on one store file', () => {
  beforeAll(buildCli, 120_000);

  it('lose no write of each other, and see them', async () => {
    const path = join(temporaryFolder(), 'store.json');
    const store = await open(`file:${path}`);
    await store.put('credentials', 'counter', { n: 0 }, 'new');
    const children = [startCounter(path), startCounter(path)];
    await Promise.all(children.map((child) => once(child, 'exit')));
    expect(children.map(({ exitCode }) => exitCode)).toEqual([0, 0]);
    expect((await store.get('credentials', 'counter'))?.value).toEqual({ n: 50 });
  });

  it('do not hang for ever where one hangs with the file locked, nor stay locked when it dies', async () => {
    const path = join(temporaryFolder(), 'store.json');
    const store = await open(`file:${path}`);
    const holder = startHolder(path);
    await once(holder, 'message');
    const began = performance.now();
    await expect(store.put('credentials', 'a', { n: 1 }, 'any')).rejects.toThrow(StoreAway);
    expect(performance.now() - began).toBeLessThan(3_000);
    expect(store.health()).toMatchObject({ ok: false, why: expect.stringContaining('no answer within 2 s') as string });
    holder.kill('SIGKILL');
    await once(holder, 'exit');
    await store.put('credentials', 'b', { n: 2 }, 'any');
    expect(store.health()).toEqual({ ok: true });
    expect(await store.get('credentials', 'held')).toBeUndefined();
  });
});

function startCounter(path: string): ChildProcess {
  return spawnModule(
    path,
    `
    import { openStore } from '${ROOT}/dist/store/record-store.js';
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    const store = await openStore({ uri: 'file:' + process.argv[1], key: Buffer.from('${KEY.toString('hex')}', 'hex'), log });
    for (let n = 0; n < 25; ) {
      const { version, value } = await store.get('credentials', 'counter');
      await store.put('credentials', 'counter', { n: value.n + 1 }, version).then(() => (n += 1), (error) => {
        if (error.name !== 'StoreConflict') throw error;
      });
    }
    await store.close();`,
  );
}

/** Stops itself in the middle of a transaction. */
function startHolder(path: string): ChildProcess {
  return spawnModule(
    path,
    `
    import { open } from '${ROOT}/node_modules/lmdb/index.js';
    const database = open({ path: process.argv[1], noSubdir: true, encoding: 'string', overlappingSync: false });
    database.transactionSync(() => {
      database.putSync('credentials:held', 'x');
      process.send('held', () => process.kill(process.pid, 'SIGSTOP'));
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    });`,
  );
}

function spawnModule(path: string, script: string): ChildProcess {
  const child = spawn(process.execPath, ['--input-type=module', '-e', script, path], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}
