// Runs a command handler: a child with a process group of its own, the payload on its stdin, its output capped, its time limited.
// It knows processes and pipes. It must never wait for a stream without a limit (fault M01), never reject, and never put anything
// of the event into the command's text (fault M18): the payload goes in by stdin alone.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { statSync } from 'node:fs';
import { CappedText } from './capped-text.ts';
import { failed } from './failures.ts';
import type { HookFailure } from './failures.ts';
import { signalGroup } from './process-group.ts';
import type { CommandHandler, RawRun } from './words.ts';

/** What a run needs beside its handler. */
export interface CommandOptions {
  /** The payload: one JSON document */
  readonly input: string;
  /** Where it runs: an absolute folder */
  readonly directory: string;
  /** Every variable that it gets */
  readonly env: Readonly<Record<string, string>>;
  /** Ends the run early, as its deadline would */
  readonly signal?: AbortSignal | undefined;
}

/** From SIGTERM to SIGKILL, `ms` */
const GRACE_MS = 500;
/** How long the pipes may stay open after the command has ended, and how long a killed one may take to be gone, `ms` */
const LINGER_MS = 250;
/** How often a group that was told to end is looked at, `ms`: nothing reports the end of a process that is not our child */
const LOOK_MS = 20;
/** The longest that a timer of Node can wait, `ms`; more would fire at once */
const LONGEST_MS = 2 ** 31 - 1;

/**
 * Runs the command. Never rejects; resolves at the latest at the deadline + 750 ms, whatever the command or its children do.
 *
 * `/bin/sh -c` or `bash --norc -c` (no login, not interactive, no profile), or without a shell where the handler has `args`. The deadline counts from the moment
 * the process was there (fault M14). At the deadline the whole group gets SIGTERM, and 500 ms later SIGKILL. Once the command has ended its
 * pipes get 250 ms to close; then they are closed from our side, and what is left of its group is killed. A process that has called setsid has
 * left the group: it is not waited for and not killed.
 *
 * `failure`: `not_started` (no such folder or program, not executable, a shell's status 126 or 127), `timeout`, `signal`, `exit_status`, or
 * `output_too_large` where stdout alone was over the cap. `status` is kept beside `exit_status`, for it may be an answer (fault M07).
 */
export function runCommand(handler: CommandHandler, options: CommandOptions): Promise<RawRun> {
  return new Promise((resolve) => {
    new CommandRun(handler, resolve).start(options);
  });
}

class CommandRun {
  readonly #handler: CommandHandler;
  readonly #resolve: (run: RawRun) => void;
  readonly #output = new CappedText();
  readonly #complaint = new CappedText();
  readonly #askedAt = performance.now();
  #startedAt: number | undefined;
  #endedAt: number | undefined;
  #child: ChildProcess | undefined;
  #status: number | null = null;
  #signal: NodeJS.Signals | null = null;
  #timedOut = false;
  #cutShort = false;
  #release: () => void = () => undefined;
  #groupGone = false;
  #settled = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(handler: CommandHandler, resolve: (run: RawRun) => void) {
    this.#handler = handler;
    this.#resolve = resolve;
  }

  start(options: CommandOptions): void {
    const [program, args] = commandLine(this.#handler);
    let child: ChildProcess;
    try {
      // Some errors are thrown (E2BIG, a NUL byte), others come as an event.
      child = spawn(program, args, { cwd: options.directory, env: { ...options.env }, detached: true, stdio: 'pipe' });
    } catch (error) {
      this.#settle(notStarted(error, program, options.directory));
      return;
    }
    this.#child = child;
    const { signal } = options;
    const cut = (): void => {
      this.#cutShort = true;
      this.#expire();
    };
    signal?.addEventListener('abort', cut, { once: true });
    this.#release = () => signal?.removeEventListener('abort', cut);
    if (signal?.aborted === true) cut();
    child.once('spawn', () => this.#started());
    child.on('error', (error) => {
      if (this.#startedAt === undefined) this.#settle(notStarted(error, program, options.directory));
    });
    child.once('exit', (status, signal) => this.#exited(status, signal));
    child.once('close', () => {
      if (!this.#timedOut) this.#settle();
    });
    for (const [stream, text] of [[child.stdout, this.#output] as const, [child.stderr, this.#complaint] as const]) {
      stream?.on('data', (piece: Buffer) => text.add(piece));
      stream?.on('error', () => undefined);
    }
    // A command need not read what it is given (EPIPE, ECONNRESET): what counts is how it ends (fault M03).
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(options.input.endsWith('\n') ? options.input : `${options.input}\n`);
  }

  #started(): void {
    this.#startedAt = performance.now();
    if (this.#timedOut) return;
    this.#after(Math.min(this.#handler.timeoutMs, LONGEST_MS), () => this.#expire());
  }

  #exited(status: number | null, signal: NodeJS.Signals | null): void {
    this.#endedAt = performance.now();
    this.#status = status;
    this.#signal = signal;
    // Asked at once: a group that is empty now must not be signalled later, when its number may be somebody else's.
    this.#groupGone = this.#child?.pid === undefined || !signalGroup(this.#child.pid, 0);
    if (!this.#timedOut) this.#after(LINGER_MS, () => this.#settle());
  }

  #expire(): void {
    if (this.#endedAt !== undefined || this.#timedOut) return;
    this.#timedOut = true;
    this.#signalGroup('SIGTERM');
    const killAt = performance.now() + GRACE_MS;
    const look = (): void => {
      if (this.#endedAt !== undefined && !this.#signalGroup(0)) this.#settle();
      else if (performance.now() < killAt) this.#after(LOOK_MS, look);
      else this.#kill();
    };
    this.#after(LOOK_MS, look);
  }

  #kill(): void {
    this.#signalGroup('SIGKILL');
    if (this.#endedAt !== undefined) {
      this.#settle();
      return;
    }
    // Until it is reaped it is a zombie; one that hangs in the kernel is not waited for.
    this.#child?.once('exit', () => this.#settle());
    this.#after(LINGER_MS, () => this.#settle());
  }

  /** One timer at a time. It acts after a round of I/O, so that an exit or output that came while the process was busy counts first. */
  #after(ms: number, act: () => void): void {
    clearTimeout(this.#timer);
    const timer = setTimeout(() => {
      setImmediate(() => {
        if (!this.#settled && this.#timer === timer) act();
      });
    }, ms);
    this.#timer = timer;
  }

  #signalGroup(signal: NodeJS.Signals | 0): boolean {
    const pid = this.#child?.pid;
    if (pid === undefined || this.#groupGone) return false;
    const left = signalGroup(pid, signal);
    if (!left) this.#groupGone = true;
    return left;
  }

  #settle(trouble?: HookFailure): void {
    if (this.#settled) return;
    this.#settled = true;
    clearTimeout(this.#timer);
    this.#release();
    if (this.#startedAt !== undefined) this.#signalGroup('SIGKILL');
    for (const stream of [this.#child?.stdin, this.#child?.stdout, this.#child?.stderr]) stream?.destroy();
    const endedAt = this.#endedAt ?? performance.now();
    const startedAt = this.#startedAt ?? endedAt;
    this.#resolve({
      failure: trouble ?? this.#failure(),
      status: this.#timedOut ? null : this.#status,
      output: this.#output.text(),
      complaint: this.#complaint.text(),
      truncated: this.#output.truncated || this.#complaint.truncated,
      durationMs: endedAt - startedAt,
      startMs: (this.#startedAt ?? performance.now()) - this.#askedAt,
    });
  }

  #failure(): HookFailure | undefined {
    const handler = this.#handler;
    if (this.#cutShort) return failed('signal', 'the runner itself was told to end');
    if (this.#timedOut) return failed('timeout', `${handler.timeoutMs} ms`);
    if (this.#signal !== null) return failed('signal', this.#signal);
    if (handler.args === undefined && this.#status === 127)
      return failed('not_started', 'the shell found no such command (status 127)');
    if (handler.args === undefined && this.#status === 126)
      return failed('not_started', 'the shell may not execute it (status 126)');
    if (this.#status !== 0) return failed('exit_status', String(this.#status));
    return this.#output.truncated ? failed('output_too_large', '1 MiB is kept') : undefined;
  }
}

function commandLine(handler: CommandHandler): [program: string, args: readonly string[]] {
  if (handler.args !== undefined) return [handler.command, handler.args];
  // Its stdin is a socket, which bash takes for a login from afar and reads ~/.bashrc (fault M09).
  return handler.shell === 'bash' ? ['bash', ['--norc', '-c', handler.command]] : ['/bin/sh', ['-c', handler.command]];
}

/** Node names the program where it is the folder that is not there, so the folder is looked at. */
function notStarted(error: unknown, program: string, directory: string): HookFailure {
  const code = (error as NodeJS.ErrnoException).code ?? 'unknown error';
  const folder = statSync(directory, { throwIfNoEntry: false });
  if (folder === undefined) return failed('not_started', `the folder "${directory}" is not there`);
  if (!folder.isDirectory()) return failed('not_started', `"${directory}" is not a folder`);
  if (code === 'ENOENT') return failed('not_started', `the program "${program}" is not there`);
  if (code === 'EACCES') return failed('not_started', `"${program}" may not be executed, or "${directory}" not entered`);
  if (code === 'E2BIG') return failed('not_started', 'the command and its variables are too large');
  return failed('not_started', code);
}
