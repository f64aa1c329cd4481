// Keeps the CA's private key on disk: how it is created and on what conditions it is read again.
// It must never be readable by others, not even for a moment, and must never be followed through a symlink (fault F01),
// nor lie where sandboxes look for the certificate (fault F02).
import { constants } from 'node:fs';
import { link, lstat, mkdir, mkdtemp, open, realpath, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve, sep } from 'node:path';
import { AuthorityError, systemCode } from './authority-error.ts';

const PRIVATE_FILE = 0o600;
const PRIVATE_FOLDER = 0o700;
const OTHERS = 0o077;
const KEY_LIMIT = 65_536;

/** Throws an AuthorityError where the key would lie in, or below, the folder of the public certificate, symlinks resolved. */
export async function refuseSharedKey(key: string, certificate: string): Promise<void> {
  const publicFolder = await realFolder(dirname(resolve(certificate)));
  const keyFolder = await realFolder(dirname(resolve(key)));
  const way = relative(publicFolder, keyFolder);
  if (way !== '..' && !way.startsWith(`..${sep}`)) {
    throw new AuthorityError(
      `the CA key "${key}" lies in the folder of the public certificate, which sandboxes may see: ` +
        `set ca.key to a path outside "${dirname(certificate)}", and if there is a key already, treat it as compromised and make a new CA`,
    );
  }
}

async function realFolder(folder: string): Promise<string> {
  try {
    return await realpath(folder);
  } catch (error) {
    if (systemCode(error) === 'ENOENT' && dirname(folder) !== folder)
      return join(await realFolder(dirname(folder)), basename(folder));
    throw new AuthorityError(
      `cannot look up the folder "${folder}" (${systemCode(error) ?? 'unknown'}): check the paths under ca`,
      error,
    );
  }
}

/** When the key file was last written, in `ms` since 1970; `undefined` where there is none. Throws an AuthorityError for a symlink. */
export async function keyWrittenAt(path: string): Promise<number | undefined> {
  try {
    const found = await lstat(path);
    if (found.isSymbolicLink()) throw symlinkError(path);
    return found.mtimeMs;
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return undefined;
    if (error instanceof AuthorityError) throw error;
    throw unreadableError(path, error);
  }
}

/** The text of the key. Throws an AuthorityError unless it is a plain file that only its owner may read. */
export async function readKeyFile(path: string): Promise<string> {
  try {
    // O_NONBLOCK: a FIFO at this path must not hang the start.
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const found = await file.stat();
      if (!found.isFile() || found.size > KEY_LIMIT)
        throw new AuthorityError(`the CA key "${path}" is not a key file: restore it`);
      if ((found.mode & OTHERS) !== 0) {
        throw new AuthorityError(
          `the CA key "${path}" is open to other users (mode ${(found.mode & 0o777).toString(8).padStart(4, '0')}): treat it as compromised and make a new CA, ` +
            `or, if nobody else can have read it, run chmod 600 on it`,
        );
      }
      return await file.readFile('utf8');
    } finally {
      await file.close();
    }
  } catch (error) {
    if (error instanceof AuthorityError) throw error;
    throw systemCode(error) === 'ELOOP' ? symlinkError(path) : unreadableError(path, error);
  }
}

/** Makes the folder of the key, 0700, where it is missing; one that is there keeps its mode. Throws an AuthorityError. */
export async function makeKeyFolder(path: string): Promise<void> {
  const folder = dirname(resolve(path));
  try {
    await mkdir(dirname(folder), { recursive: true, mode: 0o755 });
    await mkdir(folder, { recursive: true, mode: PRIVATE_FOLDER });
  } catch (error) {
    throw unwritableError(path, error);
  }
}

/**
 * Puts a new key at `path`: written 0600 inside a 0700 folder of its own, then linked into place. False where something is at
 * `path` already, which stays as it is: a link, unlike a rename, cannot replace the key of a process that was quicker.
 */
export async function createKeyFile(path: string, keyPem: string): Promise<boolean> {
  const folder = dirname(resolve(path));
  let staging: string | undefined;
  try {
    // mkdtemp gives 0700 whatever the umask, so the folder around it may have any mode.
    staging = await mkdtemp(join(folder, `.${basename(path)}-`));
    const written = join(staging, 'key');
    const file = await open(
      written,
      constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
      PRIVATE_FILE,
    );
    try {
      await file.writeFile(keyPem);
      await file.sync();
    } finally {
      await file.close();
    }
    return await linkUnlessThere(written, path);
  } catch (error) {
    throw unwritableError(path, error);
  } finally {
    if (staging !== undefined) await rm(staging, { recursive: true, force: true });
  }
}

async function linkUnlessThere(written: string, path: string): Promise<boolean> {
  try {
    await link(written, path);
    return true;
  } catch (error) {
    if (systemCode(error) === 'EEXIST') return false;
    throw error;
  }
}

/** What is worth the operator's attention about the folder around the key; `undefined` where nothing is. */
export async function keyFolderWarning(path: string): Promise<string | undefined> {
  const folder = dirname(resolve(path));
  const { mode } = await stat(folder);
  return (mode & 0o002) === 0 ? undefined : `any user may write to "${folder}", which holds the CA key: run chmod o-w on it`;
}

function symlinkError(path: string): AuthorityError {
  return new AuthorityError(
    `the CA key "${path}" is a symlink: remove it and check who put it there, or set ca.key to the file itself`,
  );
}

function unwritableError(path: string, cause: unknown): AuthorityError {
  return new AuthorityError(
    `cannot write the CA key "${path}" (${systemCode(cause) ?? 'unknown'}): make its folder writable for this user, or set ca.key elsewhere`,
    cause,
  );
}

function unreadableError(path: string, cause: unknown): AuthorityError {
  return new AuthorityError(
    `cannot read the CA key "${path}" (${systemCode(cause) ?? 'unknown'}): make it readable for this user only`,
    cause,
  );
}
