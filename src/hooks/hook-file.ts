// Reads one hooks file from disk as text: regular files of a bounded size, in UTF-8.
// It must never wait: a named pipe or a device in the place of a hooks file is an error, not a reader that hangs.
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';

/** The largest hooks file, in bytes. */
export const LARGEST_FILE = 1024 * 1024;

/** What was found at a path. */
export type FoundFile = { readonly text: string } | { readonly missing: true } | { readonly problem: string };

/** Reads a file. Never throws. */
export function readHookFile(path: string): FoundFile {
  let file: number;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    const code = codeOf(error);
    return code === 'ENOENT' || code === 'ENOTDIR'
      ? { missing: true }
      : { problem: `cannot be read (${code}); make it readable or remove it` };
  }
  try {
    return readOpen(file);
  } catch (error) {
    return { problem: `cannot be read (${codeOf(error)}); make it readable or remove it` };
  } finally {
    closeSync(file);
  }
}

function readOpen(file: number): FoundFile {
  const stat = fstatSync(file);
  if (!stat.isFile()) return { problem: 'is not a regular file' };
  if (stat.size > LARGEST_FILE) return { problem: `is larger than 1 MiB; it has ${stat.size} bytes` };
  // One byte more than it had, so that a file that grows meanwhile is seen.
  const bytes = Buffer.allocUnsafe(stat.size + 1);
  let length = 0;
  for (let read = -1; read !== 0 && length < bytes.length; length += read) {
    read = readSync(file, bytes, length, bytes.length - length, length);
  }
  if (length > stat.size) return { problem: 'was written to while it was read; try again' };
  try {
    return { text: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes.subarray(0, length)) };
  } catch {
    return { problem: 'is not UTF-8' };
  }
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : 'unknown error';
}
