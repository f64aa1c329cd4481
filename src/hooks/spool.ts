// Where lines wait while their sink is away: files beside a path, each owned by one runner at a time. No lock: a file is taken by renaming it,
// so that two runners at once lose and double nothing. It must never add beyond its bound, and never throw away what it has promised to keep.
//
// `<path>.<id>` waits for whoever comes; `<path>.<id>.<owner>` is somebody's own. An owner that was killed leaves the latter behind, and it is
// taken over when it is old: then lines can come twice (killed between append and removal), but are not lost.
import { mkdir, open, readFile, readdir, rename, stat, unlink } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

/** What was taken, for its one owner. Add to it, then give it back with `release` or end it with `discard`. Nothing here rejects. */
export interface Taken {
  /** Whole lines, oldest first; empty where nothing waited */
  readonly bytes: Buffer;
  /** Takes away what has been moved over: that many bytes from the start of `bytes`. */
  dropFirst(count: number): Promise<void>;
  /** Adds lines, each with its line break, while they fit. Gives how many were kept, from the first on. */
  add(lines: readonly string[]): Promise<number>;
  /** Adds to the count of lines that were lost, which is a line itself and may stand beyond the bound. Gives whether it is kept. */
  addLost(count: number): Promise<boolean>;
  /** Lets others have it. */
  release(): Promise<void>;
  /** Everything has been moved over. */
  discard(): Promise<void>;
}

/** Where lines wait. */
export interface Spool {
  /** Takes all that waits. Never rejects; what cannot be read stays where it is. */
  take(): Promise<Taken>;
}

/** The line that says how many lines were lost, with its line break. */
export function lostLine(lost: number): string {
  return `${JSON.stringify({ time: new Date().toISOString(), kind: 'hook_lost', lost })}\n`;
}

/** When a file whose owner has not come back is free again, `ms`. Owners hold theirs for a fraction of a second. */
const ORPHAN_MS = 60_000;
const LINE_BREAK = 0x0a;

let takes = 0;

/**
 * The spool at a path. `maxBytes` bounds what is added; its folder is made with mode 0700 when something has to be kept.
 * A file whose owner has not come back for `orphanMs` is taken over.
 */
export function openSpool(path: string, maxBytes: number, orphanMs: number = ORPHAN_MS): Spool {
  return {
    take: async () => {
      takes += 1;
      const owner = `${process.pid.toString(36)}-${takes.toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
      const parts: Part[] = [];
      for (const found of await waiting(path, orphanMs)) {
        const part = await takeOne(found, owner);
        if (part !== undefined) parts.push(part);
      }
      return takenOver({ path, owner, maxBytes, parts });
    },
  };
}

/** A file as it lies there, and the name under which others may take it. */
interface Found {
  readonly at: string;
  readonly shared: string;
}

/** One file of ours. */
interface Part {
  readonly shared: string;
  readonly own: string;
  bytes: Buffer;
}

async function waiting(path: string, orphanMs: number): Promise<readonly Found[]> {
  const folder = dirname(path);
  const prefix = `${basename(path)}.`;
  const names = await readdir(folder).catch(() => []);
  const found: Found[] = [];
  for (const name of names.filter((each) => each.startsWith(prefix)).sort()) {
    const [, id, owner] = /^([0-9a-z-]+)(?:\.([0-9a-z-]+))?$/.exec(name.slice(prefix.length)) ?? [];
    if (id === undefined) continue;
    const at = join(folder, name);
    if (owner === undefined || (await isOlder(at, orphanMs))) found.push({ at, shared: join(folder, prefix + id) });
  }
  return found;
}

/** Renaming sets ctime, which therefore says when its owner took a file. */
async function isOlder(path: string, ms: number): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found !== undefined && Date.now() - found.ctimeMs > ms;
}

async function takeOne({ at, shared }: Found, owner: string): Promise<Part | undefined> {
  const own = `${shared}.${owner}`;
  try {
    await rename(at, own);
  } catch {
    return undefined; // somebody else was faster
  }
  try {
    return { shared, own, bytes: await readFile(own) };
  } catch {
    await rename(own, shared).catch(leave);
    return undefined;
  }
}

interface Holding {
  readonly path: string;
  readonly owner: string;
  readonly maxBytes: number;
  readonly parts: Part[];
}

function takenOver(holding: Holding): Taken {
  const { parts } = holding;
  return {
    bytes: Buffer.concat(parts.map((part) => part.bytes)),
    async dropFirst(count) {
      let left = count;
      for (const part of parts) {
        const gone = Math.min(left, part.bytes.length);
        if (gone > 0) await dropFrom(part, gone);
        left -= gone;
      }
    },
    async add(lines) {
      const held = parts.reduce((sum, part) => sum + part.bytes.length, 0);
      const fitting = fit(lines, holding.maxBytes - held);
      return fitting.length > 0 && (await append(holding, { text: fitting.join(''), instead: 0 })) ? fitting.length : 0;
    },
    async addLost(count) {
      const { lost, length } = lastLost(parts.at(-1)?.bytes);
      return append(holding, { text: lostLine(lost + count), instead: length });
    },
    async release() {
      for (const part of parts) await (part.bytes.length === 0 ? unlink(part.own) : rename(part.own, part.shared)).catch(leave);
    },
    async discard() {
      for (const part of parts) await unlink(part.own).catch(leave);
    },
  };
}

/**
 * Keeps the rest in place, which takes no new room on a full disk. What was moved may end inside a line: then that line stays, whole,
 * behind a line break that ends its fragment in the sink.
 */
async function dropFrom(part: Part, gone: number): Promise<void> {
  const { bytes } = part;
  const isTorn = bytes[gone - 1] !== LINE_BREAK;
  const rest = isTorn
    ? Buffer.concat([Buffer.of(LINE_BREAK), bytes.subarray(bytes.lastIndexOf(LINE_BREAK, gone - 1) + 1)])
    : bytes.subarray(gone);
  await change(part, async (file) => {
    // One byte longer at most; it is asked for first, while the lines are still as they were.
    if (rest.length > bytes.length) await writeAll(file, rest.subarray(-1), rest.length - 1);
    await writeAll(file, rest, 0);
    await file.truncate(rest.length);
    part.bytes = rest;
  });
}

/** Writes text behind the last part, over its last `instead` bytes. Half a line would spoil the next one and is cut off again. */
async function append(
  holding: Holding,
  { text, instead }: { readonly text: string; readonly instead: number },
): Promise<boolean> {
  const part = holding.parts.at(-1) ?? (await newPart(holding));
  if (part === undefined) return false;
  const kept = part.bytes.subarray(0, part.bytes.length - instead);
  const whole = Buffer.concat([kept, Buffer.from(text)]);
  return change(part, async (file) => {
    try {
      await writeAll(file, whole.subarray(kept.length), kept.length);
      part.bytes = whole;
    } catch (error) {
      await file.truncate(kept.length);
      part.bytes = kept;
      throw error;
    }
  });
}

/** Makes a file of our own. Names are in the order of time, so that parts are read in the order in which they were begun. */
async function newPart({ path, owner, parts }: Holding): Promise<Part | undefined> {
  const shared = `${path}.${Date.now().toString(36)}-${owner}`;
  const part: Part = { shared, own: `${shared}.${owner}`, bytes: Buffer.alloc(0) };
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const file = await open(part.own, 'wx', 0o600);
    await file.close();
  } catch {
    return undefined;
  }
  parts.push(part);
  return part;
}

/** Gives whether it worked out; where it did not, lines may come twice, but none that was kept is lost. */
async function change(part: Part, work: (file: FileHandle) => Promise<void>): Promise<boolean> {
  try {
    const file = await open(part.own, 'r+');
    try {
      await work(file);
    } finally {
      await file.close();
    }
    return true;
  } catch {
    return false;
  }
}

function fit(lines: readonly string[], room: number): readonly string[] {
  let used = 0;
  const end = lines.findIndex((line) => (used += Buffer.byteLength(line)) > room);
  return end < 0 ? lines : lines.slice(0, end);
}

/** The count in the last line, where that is one of lost lines, and that line's length. */
function lastLost(bytes: Buffer | undefined): { readonly lost: number; readonly length: number } {
  if (bytes === undefined || bytes.length < 2) return { lost: 0, length: 0 };
  const line = bytes.subarray(bytes.lastIndexOf(LINE_BREAK, bytes.length - 2) + 1);
  const lost = /^\{"time":"[^"]*","kind":"hook_lost","lost":(\d+)\}\n$/.exec(line.toString('utf8'))?.[1];
  return lost === undefined ? { lost: 0, length: 0 } : { lost: Number(lost), length: line.length };
}

async function writeAll(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
  let done = 0;
  while (done < bytes.length) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position + done);
    if (bytesWritten === 0) throw new Error('the disk took nothing');
    done += bytesWritten;
  }
}

function leave(): void {
  // it is gone already, or its folder is: there is nothing left to do
}
