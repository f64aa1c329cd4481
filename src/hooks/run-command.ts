// Runs a command handler: by a shell or without one, the payload on its stdin, and says what its end means to a hook.
// How a child is run and ended stands in the foundation. It must never reject, and never put anything of the event into the command's
// text (fault M18): the payload goes in by stdin alone.
import { statSync } from 'node:fs';
import { runChild } from '../foundation/child-run.ts';
import type { ChildEnd } from '../foundation/child-run.ts';
import { failed } from './failures.ts';
import type { HookFailure } from './failures.ts';
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

/**
 * Runs the command. Never rejects; resolves at the latest at the deadline + 750 ms, whatever the command or its children do (`runChild`).
 *
 * `/bin/sh -c` or `bash --norc -c` (no login, not interactive, no profile), or without a shell where the handler has `args`.
 *
 * `failure`: `not_started` (no such folder or program, not executable, a shell's status 126 or 127), `timeout`, `signal`, `exit_status`, or
 * `output_too_large` where stdout alone was over the cap. `status` is kept beside `exit_status`, for it may be an answer (fault M07).
 */
export async function runCommand(handler: CommandHandler, options: CommandOptions): Promise<RawRun> {
  const [program, args] = commandLine(handler);
  const { directory, env, input, signal } = options;
  const { timeoutMs } = handler;
  const line = input.endsWith('\n') ? input : `${input}\n`;
  const end = await runChild({ program, args, directory, env, input: line, timeoutMs, signal });
  return {
    failure: end.notStarted === undefined ? failureOf(end, handler) : notStarted(end.notStarted, program, directory),
    status: end.status,
    output: end.output,
    complaint: end.complaint,
    truncated: end.outputCut || end.complaintCut,
    durationMs: end.durationMs,
    startMs: end.startMs,
  };
}

function failureOf(end: ChildEnd, handler: CommandHandler): HookFailure | undefined {
  if (end.cutShort) return failed('signal', 'the runner itself was told to end');
  if (end.timedOut) return failed('timeout', `${handler.timeoutMs} ms`);
  if (end.signal !== null) return failed('signal', end.signal);
  if (handler.args === undefined && end.status === 127)
    return failed('not_started', 'the shell found no such command (status 127)');
  if (handler.args === undefined && end.status === 126) return failed('not_started', 'the shell may not execute it (status 126)');
  if (end.status !== 0) return failed('exit_status', String(end.status));
  return end.outputCut ? failed('output_too_large', '1 MiB is kept') : undefined;
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
