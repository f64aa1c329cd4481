// The store in a file, by LMDB: a commit is on the disk before it is acknowledged, and a process that is killed in the middle of
// one leaves the commit before it. Several processes of one machine may share the file; a write waits for the other's.
// It must never hand LMDB a file that is not whole: it maps the file, and a page that is not there ends the process.
import { constants } from 'node:fs';
import { chmod, lstat, mkdir, open as openFile, stat } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { KeyvStoreAdapter } from 'keyv';
import type * as Lmdb from 'lmdb';
import { driverCode, readsOver } from './engine.ts';
import type { Change, Engine, Range } from './engine.ts';

type Database = Lmdb.RootDatabase<string, string>;

/** Where LMDB's own mark and the size of a page stand in the first page; and the mark */
const MARK_AT = 24;
const MARK = 0xbeefc0de;
const PAGE_SIZE_AT = 48;
const LEAST_PAGE = 4096;
const LEAST_FILE = 2 * LEAST_PAGE;
const OTHERS = 0o077;
const COMMIT_FAILED = 'COMMIT_FAILED';

/**
 * Opens the file at `path`, made 0600 in a folder made 0700 where they are missing; its lock lies beside it as `<path>-lock`.
 * Throws an Error where it cannot be used or is not whole.
 */
export async function openEmbedded(path: string, warn: (message: string) => void): Promise<Engine> {
  await prepareFolder(path, warn);
  await prepareFile(path, warn);
  await prepareFile(`${path}-lock`, warn);
  if (!OPEN.has(path)) await refuseOtherFile(path);
  return embeddedEngine(path, await share(path));
}

/** A file that is open in this process, and by how many. */
interface Shared {
  readonly database: Promise<Database>;
  users: number;
}

/** Opened once for all of a process: with two openings of one file, one thread may wait for ever for the lock that the other holds. */
const OPEN = new Map<string, Shared>();

function share(path: string): Promise<Database> {
  const known = OPEN.get(path);
  if (known !== undefined) {
    known.users += 1;
    return known.database;
  }
  const database = openDatabase(path);
  OPEN.set(path, { database, users: 1 });
  database.catch(() => OPEN.delete(path));
  return database;
}

/** The last to leave closes it. */
async function leave(path: string, database: Database): Promise<void> {
  const known = OPEN.get(path);
  if (known !== undefined) {
    known.users -= 1;
    if (known.users > 0) return;
    OPEN.delete(path);
  }
  await database.close();
}

async function openDatabase(path: string): Promise<Database> {
  const { open } = await loadLmdb();
  const database: Database = open({
    path,
    noSubdir: true,
    encoding: 'string',
    // a commit is acknowledged when it is on the disk, not when others can see it
    overlappingSync: false,
    // a batch has a promise that nobody gets; when the disk is full it would end the process as an unhandled rejection
    eventTurnBatching: false,
  });
  const pages = database.getStats() as { readonly lastPageNumber: number; readonly pageSize: number };
  const { size } = await stat(path);
  if (size < (pages.lastPageNumber + 1) * pages.pageSize) {
    await database.close();
    throw new Error(`the store file "${path}" is cut short; restore it from a backup, or move it away to begin anew`);
  }
  return database;
}

function embeddedEngine(path: string, database: Database): Engine {
  const read = readsOver(adapterOver(database));
  let left: Promise<void> | undefined;
  const transact = <T>(work: () => T): Promise<T> => database.transaction(work).catch(commitFailed);
  return {
    place: `file:${path}`,
    read,
    swap: (change) =>
      transact(() => {
        // nothing may throw after a write: what a transaction has written stays when its callback throws
        if (!fits(database, change)) return false;
        if (change.after === undefined) database.removeSync(change.key);
        else database.putSync(change.key, change.after);
        return true;
      }),
    range: (range) => Promise.resolve(rangeOf(database, range)),
    claim: (name, { token, ttlMs }) =>
      transact(() => {
        const key = lockKey(name);
        if (Number(database.get(key)?.split(' ')[0] ?? 0) > Date.now()) return false;
        database.putSync(key, `${Date.now() + ttlMs} ${token}`);
        return true;
      }),
    release: (name, token) =>
      transact(() => {
        if (database.get(lockKey(name))?.split(' ')[1] === token) database.removeSync(lockKey(name));
      }),
    silent: () => undefined,
    reason: (error) => {
      const code = driverCode(error);
      return code === COMMIT_FAILED ? 'it cannot be written; see whether the disk is full' : `it cannot be used (${code})`;
    },
    close: () => (left ??= leave(path, database)),
  };
}

function fits(database: Database, { key, before, guard }: Change): boolean {
  return database.get(key) === before && (guard === undefined || database.get(guard.key) === guard.text);
}

function rangeOf(database: Database, { prefix, after, limit }: Range): { key: string; text: string }[] {
  database.resetReadTxn();
  const entries: { key: string; text: string }[] = [];
  const begin = after === undefined ? { start: prefix } : { start: after, exclusiveStart: true };
  for (const { key, value } of database.getRange({ ...begin, limit })) {
    if (!key.startsWith(prefix)) break;
    entries.push({ key, text: value });
  }
  return entries;
}

/** The adapter that Keyv reads through. The store itself writes by `swap` alone. */
function adapterOver(database: Database): KeyvStoreAdapter {
  return {
    opts: {},
    on() {
      return this;
    },
    get: <Value>(key: string) => {
      // what another process wrote is seen from the next snapshot on
      database.resetReadTxn();
      return Promise.resolve(database.get(key) as Value | undefined);
    },
    set: async (key: string, text: string) => {
      await database.put(key, text);
    },
    delete: (key: string) => database.transaction(() => database.removeSync(key)),
    clear: () => database.clearAsync(),
  };
}

function lockKey(name: string): string {
  return `lock:${name}`;
}

/** A commit that fails rejects twice, the second time inside the error: what nobody waits for would end the process. */
function commitFailed(error: unknown): never {
  if (!(error instanceof Error) || !('commitError' in error)) throw error;
  if (error.commitError instanceof Promise) error.commitError.catch(() => undefined);
  throw Object.assign(new Error('the commit failed'), { code: COMMIT_FAILED });
}

async function loadLmdb(): Promise<typeof Lmdb> {
  try {
    return await import('lmdb');
  } catch (error) {
    throw new Error(
      `the engine of the store file does not load here (${driverCode(error)}); install again with optional packages, or set store.uri to redis:// or postgresql://`,
    );
  }
}

async function prepareFolder(path: string, warn: (message: string) => void): Promise<void> {
  const folder = dirname(path);
  try {
    await mkdir(dirname(folder), { recursive: true });
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    if (driverCode(error) !== 'EEXIST') throw unusable(path, error);
  }
  const { mode } = await stat(folder).catch((error: unknown) => {
    throw unusable(path, error);
  });
  if ((mode & 0o022) !== 0) warn(`other users may write to "${folder}", which holds the store: run chmod go-w on it`);
}

/** Makes a file, empty and 0600, before LMDB would make it open to others; or looks at the one that is there. */
async function prepareFile(path: string, warn: (message: string) => void): Promise<void> {
  try {
    const made = await openFile(path, 'wx', 0o600);
    await made.close();
    await syncFolder(dirname(path));
    return;
  } catch (error) {
    if (driverCode(error) !== 'EEXIST') throw unusable(path, error);
  }
  try {
    // By its name and not opened: LMDB's locks are the process's, and closing any descriptor of the file would end them.
    const found = await lstat(path);
    if (!found.isFile()) throw new Error(`"${path}" is not a plain file; set store.uri to another path`);
    if ((found.mode & OTHERS) === 0) return;
    await chmod(path, 0o600);
    warn(`"${path}" was open to other users; it is 0600 now`);
  } catch (error) {
    throw driverCode(error) === 'Error' ? error : unusable(path, error);
  }
}

async function refuseOtherFile(path: string): Promise<void> {
  let whole: boolean;
  try {
    const file = await openFile(path, constants.O_RDWR | constants.O_NOFOLLOW);
    whole = await isStoreFile(file).finally(() => file.close());
  } catch (error) {
    throw unusable(path, error);
  }
  if (whole) return;
  throw new Error(`"${path}" is not a store file, or is damaged; set store.uri to another path, or restore it from a backup`);
}

/** Both of the first two pages bear LMDB's mark, or there is nothing yet: with anything else LMDB ends the process. */
async function isStoreFile(file: FileHandle): Promise<boolean> {
  const { size } = await file.stat();
  if (size === 0) return true;
  if (size < LEAST_FILE) return false;
  const head = Buffer.alloc(PAGE_SIZE_AT + 4);
  await file.read(head, 0, head.length, 0);
  const pageSize = head.readUInt32LE(PAGE_SIZE_AT);
  if (head.readUInt32LE(MARK_AT) !== MARK || pageSize < LEAST_PAGE || size < 2 * pageSize) return false;
  await file.read(head, 0, head.length, pageSize);
  return head.readUInt32LE(MARK_AT) === MARK;
}

/** So that the file's name outlives a power cut as its commits do. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await openFile(folder, constants.O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function unusable(path: string, error: unknown): Error {
  const code = driverCode(error);
  return new Error(
    `cannot use the store file "${path}" (${code}); make its folder writable for this user, or set store.uri elsewhere`,
  );
}
