// Where audit lines go: a file of mode 0600 or standard output, written in the background, in batches, at most 100 ms late.
// It must never crash the process or hold up an exchange: what a full disk or a closed pipe cannot take is counted as lost.
import { once } from 'node:events';
import { mkdir, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { pino } from 'pino';
import type { Logger } from '../foundation/logger.ts';
import { createAuditText } from './audit-line.ts';
import type { AuditLine } from './audit-line.ts';

/** An open audit log. */
export interface AuditSink {
  /** Takes one line. Never throws; a line that cannot be kept is counted in `lost`. */
  write(line: AuditLine): void;
  /** Resolves when what was written so far is handed to the system, or cannot be. */
  flush(): Promise<void>;
  /** Opens the path anew, for log rotation; keeps the old file where the new one cannot be opened. Never rejects. */
  reopen(): Promise<void>;
  /** Writes what is left, within two seconds, closes, and tells the operator how many lines were lost. Never rejects. */
  close(): Promise<void>;
  /** Lines that could not be kept */
  readonly lost: number;
}

/** Longest backlog while the disk takes nothing, in bytes. */
const MAX_BACKLOG = 8 * 1024 * 1024;
/** Characters that make a write worth its while: each write wakes another thread, 10 % of the CPU at a fifth of this size */
const BATCH = 60_000;
const LONGEST_WRITE = 128 * 1024;
/** How long a line waits for company, in `ms`; with the destination's own flush it is at most 100 late */
const GATHER_MS = 40;
const FLUSH_MS = 50;
const CLOSE_MS = 2000;

type Destination = ReturnType<typeof pino.destination>;

/**
 * Opens the audit log at a path, or standard output for `-`. Folders are made. Rejects with a message for the operator where the
 * file cannot be opened. `log` hears of write failures, once for each spell of them.
 */
export async function openAuditSink(path: string, log?: Logger): Promise<AuditSink> {
  if (path !== '-') await probe(path).catch((error: unknown) => Promise.reject(unusable(path, error)));
  const destination = pino.destination({
    dest: path === '-' ? 1 : path,
    sync: false,
    append: true,
    mode: 0o600,
    minLength: 1,
    maxLength: MAX_BACKLOG,
    maxWrite: LONGEST_WRITE,
    periodicFlush: FLUSH_MS,
  });
  await once(destination, 'ready').catch((error: unknown) => Promise.reject(unusable(path, error)));
  return sinkOver(destination, path, log);
}

function sinkOver(destination: Destination, path: string, log: Logger | undefined): AuditSink {
  const state = watch(destination, path, log);
  const auditText = createAuditText();
  const batch = new Batch((text) => destination.write(text));
  let closing: Promise<void> | undefined;
  return {
    write(line) {
      if (closing !== undefined || state.broken) state.lost += 1;
      else batch.add(`${auditText(line)}\n`);
    },
    async flush() {
      if (closing !== undefined) return;
      batch.handOver();
      // The first ends the write under way and may leave one batch behind it.
      await flushed(destination, state);
      await flushed(destination, state);
    },
    async reopen() {
      if (path === '-' || closing !== undefined || state.broken) return;
      try {
        // A failing reopen would leave listeners in the destination that close a wrong file later; so try the path first.
        await probe(path);
        const ready = once(destination, 'ready');
        batch.handOver();
        destination.flush();
        destination.reopen();
        await ready;
      } catch (error) {
        log?.error('the audit log could not be reopened and the old file stays in use', { path, cause: String(error) });
      }
    },
    close: () => {
      if (closing === undefined) batch.handOver();
      return (closing ??= closed(destination, state).then(() => {
        if (state.lost > 0) log?.error('lines of the audit log were lost', { path, lost: state.lost });
      }));
    },
    get lost() {
      return state.lost;
    },
  };
}

/**
 * Gathers lines into one write: handing each to the destination costs more than making it
 * (12 % of the CPU of a small kept-alive exchange, measured with --cpu-prof).
 */
class Batch {
  readonly #take: (text: string) => void;
  #text = '';
  #timer: NodeJS.Timeout | undefined = undefined;

  constructor(take: (text: string) => void) {
    this.#take = take;
  }

  add(line: string): void {
    this.#text += line;
    if (this.#text.length >= BATCH) this.handOver();
    else this.#timer ??= setTimeout(() => this.handOver(), GATHER_MS);
  }

  handOver(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#text === '') return;
    const text = this.#text;
    this.#text = '';
    this.#take(text);
  }
}

interface WriteState {
  lost: number;
  failing: boolean;
  /** The reader of a pipe has gone for good */
  broken: boolean;
}

function watch(destination: Destination, path: string, log: Logger | undefined): WriteState {
  const state: WriteState = { lost: 0, failing: false, broken: false };
  // On a full disk this one would spin for ever when the process exits.
  const flushSync = destination.flushSync.bind(destination);
  destination.flushSync = () => {
    if (!state.failing) flushSync();
  };
  destination.on('drop', (batch: string) => void (state.lost += batch.split('\n').length - 1));
  destination.on('write', () => {
    if (state.failing) log?.warn('the audit log can be written again', { path, lost: state.lost });
    state.failing = false;
  });
  destination.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') state.broken = true;
    if (!state.failing) log?.error('the audit log cannot be written', { path, cause: error.code ?? error.message });
    state.failing = true;
  });
  return state;
}

function flushed(destination: Destination, state: WriteState): Promise<void> {
  if (state.broken) return Promise.resolve();
  return new Promise((resolve) => destination.flush(() => resolve()));
}

async function closed(destination: Destination, state: WriteState): Promise<void> {
  if (state.broken) return;
  await new Promise<void>((resolve) => {
    const giveUp = (): void => destination.destroy();
    const deadline = setTimeout(giveUp, CLOSE_MS);
    destination.once('error', giveUp);
    destination.once('close', () => {
      clearTimeout(deadline);
      resolve();
    });
    destination.end();
  });
}

async function probe(path: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await (await open(path, 'a', 0o600)).close();
}

function unusable(path: string, error: unknown): Error {
  const cause = error instanceof Error && 'code' in error ? String(error.code) : String(error);
  return new Error(
    `cannot open the audit log "${path}" (${cause}); name a writable file in audit.path, or "-" for standard output`,
  );
}
