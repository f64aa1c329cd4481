// The hook-runner's ledger: lines go to the end of a file, and wait in a spool while that file is away. One batch is one write, in order.
// It must never reject, never wait without an end, and never make the folder of its file: a mount that is away is not to be written under.
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join, resolve as absolute } from 'node:path';
import { lostLine, openSpool } from './spool.ts';
import type { Spool } from './spool.ts';
import type { HookLedger, HookLine } from './words.ts';

/** Where lines go, and how long it is tried. */
export interface HookLedgerOptions {
  /** File that lines are appended to (NDJSON, made with mode 0600) */
  readonly path: string;
  /** Where they wait; files are made beside this path. Default: `spoolPath(path)` */
  readonly spool?: string;
  /** Bound of what waits. Default: 1 MiB */
  readonly maxBytes?: number;
  /** How often a batch is tried. Default: 3 */
  readonly attempts?: number;
  /** Pause before the second try, `ms`; doubled before each further one. Default: 50 */
  readonly pauseMs?: number;
}

type Evidence = Awaited<ReturnType<HookLedger['write']>>;

/** Where lines for a sink wait: below XDG_STATE_HOME or `~/.local/state`, each sink apart, so that no line moves to another one's file. */
export function spoolPath(sink: string, env: Readonly<Record<string, string | undefined>> = process.env): string {
  const state = env['XDG_STATE_HOME'];
  const base = state !== undefined && isAbsolute(state) ? state : join(homedir(), '.local', 'state');
  const name = createHash('sha256').update(absolute(sink)).digest('hex').slice(0, 12);
  return join(base, 'sallyport', `hook-spool-${name}.ndjson`);
}

/**
 * The ledger of a file. `written` says that the system has taken the lines, not that they are on the disk. Writes that come while one is
 * under way are gathered into the next. Lines that fit nowhere are counted, and the next write that succeeds says how many
 * (`{"kind":"hook_lost","lost":n}`).
 */
export function openHookLedger(options: HookLedgerOptions): HookLedger {
  const { path, maxBytes = 1024 * 1024, attempts = 3, pauseMs = 50 } = options;
  const desk = { path, attempts, pauseMs, spool: openSpool(options.spool ?? spoolPath(path), maxBytes), unsaid: 0 };
  let waiting: Entry[] = [];
  let isWorking = false;
  const work = async (): Promise<void> => {
    isWorking = true;
    while (waiting.length > 0) {
      const batch = waiting;
      waiting = [];
      const end = await writeBatch(
        desk,
        batch.flatMap((entry) => entry.lines),
      ).catch((): BatchEnd => ({ written: 0, kept: 0 }));
      answer(batch, end);
    }
    isWorking = false;
  };
  return {
    write: (lines) =>
      new Promise((resolve) => {
        const texts = textsOf(lines);
        if (texts === undefined) desk.unsaid += lines.length;
        if (texts === undefined || texts.length === 0) resolve(texts === undefined ? 'lost' : 'written');
        else waiting.push({ lines: texts, resolve });
        if (!isWorking) void work();
      }),
  };
}

/** The ledger of those who named none: every line is lost, so that a tool whose evidence is required does not run. */
export function createNoLedger(): HookLedger {
  return { write: () => Promise.resolve('lost') };
}

interface Desk {
  readonly path: string;
  readonly attempts: number;
  readonly pauseMs: number;
  readonly spool: Spool;
  /** Lost lines of which neither the sink nor the spool has heard */
  unsaid: number;
}

/** One call of `write`. */
interface Entry {
  readonly lines: readonly string[];
  readonly resolve: (evidence: Evidence) => void;
}

/** How many lines of a batch, from its first on, were written, and how many of the rest are kept. */
interface BatchEnd {
  readonly written: number;
  readonly kept: number;
}

function answer(batch: readonly Entry[], { written, kept }: BatchEnd): void {
  let end = 0;
  for (const entry of batch) {
    end += entry.lines.length;
    entry.resolve(end <= written ? 'written' : end <= written + kept ? 'kept' : 'lost');
  }
}

function textsOf(lines: readonly HookLine[]): readonly string[] | undefined {
  try {
    return lines.map((line) => `${JSON.stringify(line)}\n`);
  } catch {
    return undefined; // arguments from code can hold what JSON cannot
  }
}

async function writeBatch(desk: Desk, lines: readonly string[]): Promise<BatchEnd> {
  let written = 0;
  let isTorn = false;
  for (let attempt = 0; attempt < desk.attempts; attempt += 1) {
    if (attempt > 0) await pause(desk.pauseMs * 2 ** (attempt - 1));
    const step = await tryOnce(desk, lines.slice(written), isTorn);
    written += step.written;
    isTorn = step.isTorn;
    if (written === lines.length && !isTorn) return { written, kept: 0 };
  }
  return { written, kept: await keep(desk, lines.slice(written), isTorn) };
}

/** How far one try came. `isTorn`: what the sink has taken ends inside a line, which is not among the `written`. */
interface Step {
  readonly written: number;
  readonly isTorn: boolean;
}

async function tryOnce(desk: Desk, lines: readonly string[], wasTorn: boolean): Promise<Step> {
  const file = await openSink(desk.path);
  if (file === undefined) return { written: 0, isTorn: wasTorn };
  try {
    const taken = await desk.spool.take();
    const front = Buffer.from(wasTorn ? '\n' : '');
    const said = Buffer.from(desk.unsaid > 0 ? lostLine(desk.unsaid) : '');
    const bytes = Buffer.concat([front, taken.bytes, said, Buffer.from(lines.join(''))]);
    const done = await appendTo(file, bytes);
    const moved = done - front.length;
    const ours = moved - taken.bytes.length;
    if (ours >= said.length) desk.unsaid = 0;
    if (done === bytes.length) await taken.discard();
    else {
      if (moved > 0) await taken.dropFirst(Math.min(moved, taken.bytes.length));
      await taken.release();
    }
    // Inside a line of the spool the tear is marked there.
    const isTorn = done === 0 ? wasTorn : ours > 0 && bytes[done - 1] !== 0x0a;
    return { written: wholeLines(lines, ours - said.length), isTorn };
  } finally {
    await file.close().catch(() => undefined);
  }
}

/** A pipe without a reader must not hold the runner up: hence O_NONBLOCK, which a plain file does not mind. */
async function openSink(path: string): Promise<FileHandle | undefined> {
  const { O_APPEND, O_CREAT, O_NONBLOCK, O_WRONLY } = constants;
  return open(path, O_APPEND | O_CREAT | O_NONBLOCK | O_WRONLY, 0o600).catch(() => undefined);
}

/** Appends in one write, or where the system takes less at once, in few. Gives how many bytes were taken; never rejects. */
export async function appendTo(file: Pick<FileHandle, 'write'>, bytes: Buffer): Promise<number> {
  let done = 0;
  try {
    while (done < bytes.length) {
      const { bytesWritten } = await file.write(bytes, done, bytes.length - done, null);
      if (bytesWritten === 0) break;
      done += bytesWritten;
    }
  } catch {
    // what was taken until then is the answer
  }
  return done;
}

function wholeLines(lines: readonly string[], bytes: number): number {
  let used = 0;
  const end = lines.findIndex((line) => (used += Buffer.byteLength(line)) > bytes);
  return end < 0 ? lines.length : end;
}

/** Gives how many lines the spool has taken. What it has not is counted there, or at last in this process. */
async function keep(desk: Desk, lines: readonly string[], isTorn: boolean): Promise<number> {
  const taken = await desk.spool.take();
  const kept = await taken.add(lines.map((line, index) => (isTorn && index === 0 ? `\n${line}` : line)));
  desk.unsaid += lines.length - kept;
  if (desk.unsaid > 0 && (await taken.addLost(desk.unsaid))) desk.unsaid = 0;
  await taken.release();
  return kept;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => void setTimeout(resolve, ms));
}
