// A value that a command of the operator's prints: one line, or JSON with its end. From the config alone, never over REST.
// The command runs without a shell, in an environment of its own, within a time and a size. It must never put what the command printed
// into a reason, and of what it complained only the first line into the log, with every word of its output taken out.
import { z } from 'zod';
import type { Resolution } from '../exchange/snapshot.ts';
import { runChild } from '../foundation/child-run.ts';
import type { ChildEnd } from '../foundation/child-run.ts';
import type { Logger } from '../foundation/logger.ts';
import { Secret } from '../foundation/secret.ts';
import { looksLikeToken } from '../foundation/shown-key.ts';
import { showWire } from '../foundation/visible-text.ts';
import { headerName, tokenPrefix } from './credential-fields.ts';
import { bearerFields } from './credential.ts';
import { CLOCK, createFreshSource, heldFrom } from './fresh-source.ts';
import type { Clock, Failed, Held } from './fresh-source.ts';
import type { FreshFields } from './in-use.ts';
import { readSecretText, withoutSecrets } from './secret-source.ts';

/** A command as the config declares it. */
export interface ExecCommand {
  /** The program and its arguments */
  readonly command: readonly string[];
  readonly timeoutMs: number;
  /** Names of the proxy's own variables that it gets beside PATH and HOME */
  readonly env: readonly string[];
  readonly header_name: string;
  readonly prefix: string;
}

/** What running a command needs. */
export interface ExecOptions {
  readonly id: string;
  /** The proxy's own variables */
  readonly env: NodeJS.ProcessEnv;
  /** Where it runs: an absolute folder */
  readonly directory: string;
  readonly log: Logger;
  readonly onEnd: (endsAt: number | undefined) => void;
  readonly onFailure?: (failed: string) => void;
  readonly clock?: Clock;
}

/** Most bytes that are read of what a command prints. */
export const EXEC_CAP = 64 * 1024;
const ALWAYS = ['PATH', 'HOME'];
const SHOWN = 300;

/**
 * The fields of what the command prints. It is run at the first use and ahead of the value's end; a value without an end every five
 * minutes, since nothing else would tell of another one.
 */
export function execFields(command: ExecCommand, options: ExecOptions): FreshFields {
  const { clock = CLOCK } = options;
  const places = new WeakMap<Secret, Place>();
  let last: Secret | undefined;
  const leaving = new AbortController();
  const source = createFreshSource({
    renew: async () => {
      const askedAt = clock.now();
      const end = await run(command, options, leaving.signal);
      const printed = failureOf(end, command) ?? readPrinted(end.output, { askedAt, command });
      if ('failed' in printed) {
        if (!end.cutShort) complain(end, { failed: printed, last }, options);
        return printed;
      }
      last = printed.held.value;
      places.set(last, printed.place);
      return printed.held;
    },
    onChange: options.onEnd,
    onFailure: (failed) => options.onFailure?.(failed),
    clock,
  });
  const fields = (value: Secret): Resolution => {
    const { header_name, prefix } = places.get(value) ?? command;
    return bearerFields({ token: value, header_name, prefix });
  };
  const close = (): void => {
    source.close();
    leaving.abort();
  };
  return { source: { current: () => source.current(), close }, fields };
}

/** Where a value goes. */
interface Place {
  readonly header_name: string;
  readonly prefix: string;
}

function run(
  { command, env: names, timeoutMs }: ExecCommand,
  { env, directory }: ExecOptions,
  signal: AbortSignal,
): Promise<ChildEnd> {
  const [program = '', ...args] = command;
  const own = [...ALWAYS, ...names].flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]] as const]));
  return runChild({ program, args, directory, env: Object.fromEntries(own), input: '', timeoutMs, cap: EXEC_CAP, signal });
}

function failureOf(end: ChildEnd, { command, timeoutMs }: ExecCommand): Failed | undefined {
  if (end.notStarted !== undefined) {
    const code = (end.notStarted as NodeJS.ErrnoException).code ?? 'unknown error';
    return { failed: 'not_started', unavailable: `its command "${command[0] ?? ''}" could not be started (${code})` };
  }
  if (end.cutShort) return { failed: 'closed', unavailable: 'its definition has changed' };
  if (end.timedOut) return { failed: 'timeout', unavailable: `its command did not end within ${timeoutMs} ms` };
  if (end.signal !== null) return { failed: 'command_failed', unavailable: `its command was ended by ${end.signal}` };
  if (end.status !== 0) return { failed: 'command_failed', unavailable: `its command ended with status ${String(end.status)}` };
  return end.outputCut ? { failed: 'too_large', unavailable: 'its command printed more than 64 KiB' } : undefined;
}

const PRINTED = z.object({
  token: z.string().optional(),
  value: z.string().optional(),
  expires_at: z.union([z.string(), z.number()]).nullish(),
  header_name: headerName().optional(),
  prefix: tokenPrefix().optional(),
});

/** What a command printed: JSON where it begins with a brace, else one line that is the value. */
export function readPrinted(
  output: string,
  { askedAt, command }: { readonly askedAt: number; readonly command: Place },
): { readonly held: Held; readonly place: Place } | Failed {
  const members = output.trimStart().startsWith('{') ? readJson(output) : { value: output };
  if (members === undefined) return malformed('is JSON of another form; print {"token": "...", "expires_at": "..."}');
  const { token, value = token, expires_at: end, header_name = command.header_name, prefix = command.prefix } = members;
  if (token !== undefined && value !== token) return malformed('holds both a token and a value');
  const read = readSecretText(value ?? '', '');
  if (read.kind !== 'read') return malformed('holds no value that a header field can carry on one line');
  const endsAt = end === undefined || end === null ? undefined : readEnd(end);
  if (endsAt === null) return malformed('has an "expires_at" that is neither ISO 8601 with its zone nor seconds since 1970');
  if (endsAt !== undefined && endsAt <= askedAt)
    return { failed: 'ended', unavailable: 'its command printed a value that has ended' };
  return { held: heldFrom(read.secret, endsAt, askedAt), place: { header_name, prefix } };
}

function readJson(output: string): z.output<typeof PRINTED> | undefined {
  try {
    const read = PRINTED.safeParse(JSON.parse(output));
    return read.success ? read.data : undefined;
  } catch {
    // The error would quote the output.
    return undefined;
  }
}

const ISO_WITH_ZONE = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})$/;
/** The year 5138; a greater number of seconds is one of milliseconds. */
const MOST_SECONDS = 1e11;

/** Epoch `ms`; null where it is no time. */
function readEnd(end: string | number): number | null {
  if (typeof end === 'number') return end > 0 && end < MOST_SECONDS ? end * 1000 : null;
  const parsed = ISO_WITH_ZONE.test(end) ? Date.parse(end) : NaN;
  return Number.isNaN(parsed) ? null : parsed;
}

function malformed(what: string): Failed {
  return { failed: 'malformed', unavailable: `what its command printed ${what}` };
}

/** The first line of its complaint may hold what it printed, has printed before, or was about to print. */
function complain(
  end: ChildEnd,
  { failed, last }: { readonly failed: Failed; readonly last: Secret | undefined },
  { id, log }: ExecOptions,
): void {
  const [line = ''] = end.complaint.trim().split(/\r?\n/, 1);
  const words = (end.output.match(/[^\s"',:{}[\]]{6,}/g) ?? []).slice(0, 1000).map((word) => new Secret(word));
  const known = withoutSecrets(line, last === undefined ? words : [...words, last]);
  const stderr = showWire(
    known.replace(/[^\s"']+/g, (word) => (looksLikeToken(word) ? '[secret]' : word)),
    SHOWN,
  );
  log.warn(`credential "${id}" could not be renewed: ${failed.unavailable}`, stderr === '' ? {} : { stderr });
}
