// Runs a program: a child with a process group of its own, its input on stdin, its output capped, its time limited.
// It knows processes and pipes, and nothing of what the output means. It must never wait for a stream without a limit (fault M01),
// reject, or start a shell by itself.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { CappedText } from './capped-text.ts';
import { signalGroup } from './process-group.ts';

/** What is to be run, and within which limits. */
export interface ChildOrder {
  readonly program: string;
  readonly args: readonly string[];
  /** Where it runs: an absolute folder */
  readonly directory: string;
  /** Every variable that it gets */
  readonly env: Readonly<Record<string, string>>;
  readonly input: string;
  readonly timeoutMs: number;
  /** Most bytes that are kept of stdout, and of stderr; 1 MiB where left out */
  readonly cap?: number;
  /** Ends the run early, as its deadline would */
  readonly signal?: AbortSignal | undefined;
}

/** How a run ended. */
export interface ChildEnd {
  /** Why it was not started, as Node says it; `undefined` where it was */
  readonly notStarted: unknown;
  readonly timedOut: boolean;
  /** Whether the order's `signal` ended it */
  readonly cutShort: boolean;
  /** Exit status; null where a signal ended it, or the deadline */
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly output: string;
  /** What was written to stderr */
  readonly complaint: string;
  readonly outputCut: boolean;
  readonly complaintCut: boolean;
  /** From the moment it had started, `ms` (fault M14) */
  readonly durationMs: number;
  /** From being asked for to having started, `ms` */
  readonly startMs: number;
}

/** From SIGTERM to SIGKILL, `ms` */
const GRACE_MS = 500;
/** How long the pipes may stay open after the child has ended, and how long a killed one may take to be gone, `ms` */
const LINGER_MS = 250;
/** How often a group that was told to end is looked at, `ms`: nothing reports the end of a process that is not our child */
const LOOK_MS = 20;
/** The longest that a timer of Node can wait, `ms`; more would fire at once */
const LONGEST_MS = 2 ** 31 - 1;

/**
 * Runs the program. Never rejects; resolves at the latest at the deadline + 750 ms, whatever the child or its children do.
 *
 * The deadline counts from the moment the process was there (fault M14). At the deadline the whole group gets SIGTERM, and 500 ms later
 * SIGKILL. Once the child has ended its pipes get 250 ms to close; then they are closed from our side, and what is left of its group is
 * killed. A process that has called setsid has left the group: it is not waited for and not killed.
 */
export function runChild(order: ChildOrder): Promise<ChildEnd> {
  return new Promise((resolve) => {
    new ChildRun(order, resolve).start();
  });
}

class ChildRun {
  readonly #order: ChildOrder;
  readonly #resolve: (end: ChildEnd) => void;
  readonly #output: CappedText;
  readonly #complaint: CappedText;
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

  constructor(order: ChildOrder, resolve: (end: ChildEnd) => void) {
    this.#order = order;
    this.#resolve = resolve;
    this.#output = new CappedText(order.cap);
    this.#complaint = new CappedText(order.cap);
  }

  start(): void {
    const { program, args, directory, env, input, signal } = this.#order;
    let child: ChildProcess;
    try {
      // Some errors are thrown (E2BIG, a NUL byte), others come as an event.
      child = spawn(program, args, { cwd: directory, env: { ...env }, detached: true, stdio: 'pipe' });
    } catch (error) {
      this.#settle(error);
      return;
    }
    this.#child = child;
    const cut = (): void => {
      this.#cutShort = true;
      this.#expire();
    };
    signal?.addEventListener('abort', cut, { once: true });
    this.#release = () => signal?.removeEventListener('abort', cut);
    if (signal?.aborted === true) cut();
    child.once('spawn', () => this.#started());
    child.on('error', (error) => {
      if (this.#startedAt === undefined) this.#settle(error);
    });
    child.once('exit', (status, killer) => this.#exited(status, killer));
    child.once('close', () => {
      if (!this.#timedOut) this.#settle();
    });
    for (const [stream, text] of [[child.stdout, this.#output] as const, [child.stderr, this.#complaint] as const]) {
      stream?.on('data', (piece: Buffer) => text.add(piece));
      stream?.on('error', () => undefined);
    }
    // A child need not read what it is given (EPIPE, ECONNRESET): what counts is how it ends (fault M03).
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(input);
  }

  #started(): void {
    this.#startedAt = performance.now();
    if (this.#timedOut) return;
    this.#after(Math.min(this.#order.timeoutMs, LONGEST_MS), () => this.#expire());
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

  #settle(notStarted?: unknown): void {
    if (this.#settled) return;
    this.#settled = true;
    clearTimeout(this.#timer);
    this.#release();
    if (this.#startedAt !== undefined) this.#signalGroup('SIGKILL');
    for (const stream of [this.#child?.stdin, this.#child?.stdout, this.#child?.stderr]) stream?.destroy();
    const endedAt = this.#endedAt ?? performance.now();
    const startedAt = this.#startedAt ?? endedAt;
    this.#resolve({
      notStarted,
      timedOut: this.#timedOut,
      cutShort: this.#cutShort,
      status: this.#timedOut ? null : this.#status,
      signal: this.#signal,
      output: this.#output.text(),
      complaint: this.#complaint.text(),
      outputCut: this.#output.truncated,
      complaintCut: this.#complaint.truncated,
      durationMs: endedAt - startedAt,
      startMs: (this.#startedAt ?? performance.now()) - this.#askedAt,
    });
  }
}
