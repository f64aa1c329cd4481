// The key to the operator's window: read from its file, or made there at the first start.
// It must never print the token, accept an empty one, or make a file that somebody else can read.
import { randomBytes } from 'node:crypto';
import { mkdir, open, unlink } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';

/** The admin token. `warning` is for the operator's log: something about the file is unsafe. */
export interface AdminToken {
  readonly token: string;
  /** Whether it was made just now */
  readonly created: boolean;
  readonly warning?: string;
}

const MAX_BYTES = 4096;

/**
 * Reads the token file, or makes it (32 random bytes, base64url, mode 0600, in a folder of mode 0700) where there is none.
 * Rejects where the file is empty, unreadable, no plain file, or holds what cannot stand in a header.
 */
export async function openAdminToken(path: string): Promise<AdminToken> {
  return (await makeToken(path)) ?? (await readToken(path));
}

/** `undefined` where the file is there already: the exclusive open decides, so that two starts at once agree on one token. */
async function makeToken(path: string): Promise<AdminToken | undefined> {
  let file: FileHandle;
  try {
    await makeFolder(dirname(path));
    file = await open(path, 'wx', 0o600);
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return undefined;
    // A mounted secret may lie in a folder that is read-only; whether the file is there shows when it is read.
    if (codeOf(error) === 'EROFS' || codeOf(error) === 'EACCES') return undefined;
    throw new Error(
      `cannot make the admin token file "${path}" (${codeOf(error)}); make its folder writable or name another path in admin.token.file`,
    );
  }
  const token = randomBytes(32).toString('base64url');
  try {
    await file.writeFile(`${token}\n`);
    await file.sync();
  } catch (error) {
    await unlink(path);
    throw new Error(
      `cannot write the admin token file "${path}" (${codeOf(error)}); free some space or name another path in admin.token.file`,
    );
  } finally {
    await file.close();
  }
  return { token, created: true };
}

/** A folder that is there stays as it is; what stands in its place shows when the file is opened. */
async function makeFolder(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 }).catch((error: unknown) => {
    if (codeOf(error) !== 'EEXIST') throw error;
  });
}

async function readToken(path: string): Promise<AdminToken> {
  const file = await open(path, 'r').catch((error: unknown) => {
    throw new Error(`cannot read the admin token file "${path}" (${codeOf(error)}); make it readable for this user only`);
  });
  try {
    const stat = await file.stat();
    if (!stat.isFile() || stat.size > MAX_BYTES)
      throw new Error(`the admin token file "${path}" is no small plain file; name another path in admin.token.file`);
    const token = (await file.readFile('utf8')).trim();
    if (token === '')
      throw new Error(`the admin token file "${path}" is empty; delete it to have one made, or write a token into it`);
    if (!/^[\x21-\x7e]+$/.test(token)) {
      throw new Error(`the admin token file "${path}" holds spaces or characters that no header can bear; use printable ASCII`);
    }
    if ((stat.mode & 0o077) === 0) return { token, created: false };
    const mode = (stat.mode & 0o777).toString(8).padStart(4, '0');
    return {
      token,
      created: false,
      warning: `the admin token file "${path}" can be read by others (mode ${mode}); chmod 600 it`,
    };
  } finally {
    await file.close();
  }
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
}
