// Where the key of the store comes from: a file that is made at the first start, or an environment variable.
// It must never print a key, take a weak or half-written one, or use a file that any user of the machine can read. Links are
// followed: a mounted secret is one.
import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { link, mkdir, mkdtemp, open, rename, rm, unlink } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { KEY_BYTES } from './seal.ts';

/** The key of the store, 32 bytes. `warning` is for the operator's log. */
export interface StoreKey {
  readonly key: Buffer;
  /** Whether it was made just now */
  readonly created: boolean;
  readonly warning?: string;
}

const LONGEST_FILE = 4096;
const ANY_USER = 0o007;
const GROUP = 0o070;
const REMEDY = 'it must be 32 random bytes as base64 or hex; make one with: openssl rand -base64 32';

/**
 * Reads the key file, or makes it (mode 0600, in a folder of mode 0700, on the disk before this returns) where there is none.
 * Rejects where the file holds no key or any user of the machine may read or write it.
 */
export async function openKeyFile(path: string): Promise<StoreKey> {
  const found = await readKeyFile(path);
  if (found !== undefined) return found;
  const made = await makeKeyFile(path);
  const read = await readKeyFile(path);
  if (read === undefined) throw new Error(`the key file "${path}" of the store was removed while it was made; start again`);
  return { ...read, created: made };
}

/** The key of an environment variable. Throws where it is not set or is no key. */
export function keyFromEnvironment(name: string, env: NodeJS.ProcessEnv): Buffer {
  const text = env[name];
  if (text === undefined) throw new Error(`environment variable "${name}" is not set; set it to the key of the store`);
  return keyFromText(text, `environment variable "${name}"`);
}

/** Reads 32 bytes, written in base64, base64url or hex. Throws where it is anything else; `where` names it in the message. */
export function keyFromText(text: string, where: string): Buffer {
  const bare = text.trim();
  const key = /^[0-9a-f]{64}$/i.test(bare) ? Buffer.from(bare, 'hex') : fromBase64(bare);
  if (key?.length !== KEY_BYTES) throw new Error(`${where} holds no key of the store: ${REMEDY}`);
  return key;
}

/**
 * The key of a rotation that was begun and not finished: it lies beside the key file, as `<path>.next`. `undefined` where
 * none was begun. A store that is opened while a rotation goes on needs both.
 */
export async function readNextKey(path: string): Promise<Buffer | undefined> {
  return (await readKeyFile(nextPath(path)))?.key;
}

/**
 * Makes `<path>.next`, of the key that is given or of a new one, or takes the one that is there: a rotation that was interrupted goes
 * on to the same key. Rejects where another key is given than the one that is there.
 */
export async function beginKeyRotation(path: string, given?: Buffer): Promise<Buffer> {
  const next = nextPath(path);
  if (given !== undefined) await makeKeyFile(next, given);
  const { key } = await openKeyFile(next);
  if (given === undefined || key.equals(given)) return key;
  throw new Error(`a rotation to another key was begun, which lies in "${next}"; finish it by rotating without a new key first`);
}

/** Puts `<path>.next` in the place of the key file, in one step: there is no moment without a key. */
export async function finishKeyRotation(path: string): Promise<void> {
  try {
    await rename(nextPath(path), path);
    await syncFolder(dirname(resolve(path)));
  } catch (error) {
    throw new Error(`cannot put "${nextPath(path)}" in the place of "${path}" (${codeOf(error)}); rename it by hand`);
  }
}

function nextPath(path: string): string {
  return `${path}.next`;
}

async function readKeyFile(path: string): Promise<StoreKey | undefined> {
  try {
    // Without O_NONBLOCK the opening of a FIFO that nobody writes to would hang the start.
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const { size, mode } = await file.stat().then((found) => (found.isFile() ? found : { size: Infinity, mode: 0 }));
      if (size > LONGEST_FILE) throw new Error(`the key file "${path}" of the store is no key file; name the file itself`);
      const shown = (mode & 0o777).toString(8).padStart(4, '0');
      if ((mode & ANY_USER) !== 0) {
        throw new Error(
          `the key file "${path}" of the store is open to every user (mode ${shown}): treat the key as known and rotate it, ` +
            'or, if nobody else can have read it, run chmod 600 on it',
        );
      }
      const key = keyFromText(await file.readFile('utf8'), `the key file "${path}"`);
      if ((mode & GROUP) === 0) return { key, created: false };
      return {
        key,
        created: false,
        warning: `the key file "${path}" of the store is open to its group (mode ${shown}); chmod 600 it`,
      };
    } finally {
      await file.close();
    }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    if (codeOf(error) === 'unknown') throw error;
    throw new Error(
      `cannot read the key file "${path}" of the store (${codeOf(error)}); make it readable for this user only, or name another in store.key`,
    );
  }
}

/** False where a file is there by now: a link cannot replace the key of a process that was quicker, and is whole from the start. */
async function makeKeyFile(path: string, key: Buffer = randomBytes(KEY_BYTES)): Promise<boolean> {
  const folder = dirname(resolve(path));
  let staging: string | undefined;
  try {
    await mkdir(dirname(folder), { recursive: true });
    await mkdir(folder, { mode: 0o700 }).catch((error: unknown) => {
      if (codeOf(error) !== 'EEXIST') throw error;
    });
    staging = await mkdtemp(join(folder, `.${basename(path)}-`));
    const written = join(staging, 'key');
    const file = await open(written, 'wx', 0o600);
    try {
      await file.writeFile(`${key.toString('base64')}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await link(written, path);
    await unlink(written);
    // Records that outlive a power cut need their key to outlive it too.
    await syncFolder(folder);
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw new Error(
      `cannot make the key file "${path}" of the store (${codeOf(error)}); make its folder writable or name another in store.key`,
    );
  } finally {
    if (staging !== undefined) await rm(staging, { recursive: true, force: true });
  }
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function fromBase64(text: string): Buffer | undefined {
  const bytes = Buffer.from(text, 'base64');
  // Buffer.from skips what is not base64: only what comes out the same was all key.
  const plain = text.replaceAll('-', '+').replaceAll('_', '/').replace(/=+$/, '');
  return bytes.toString('base64').replace(/=+$/, '') === plain ? bytes : undefined;
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
}
