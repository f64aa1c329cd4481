// `sallyport-hook <event>`: payload from stdin, decision to stdout, what went wrong to stderr, lines to the ledger.
// Whatever is wrong with its input ends as a decision that denies, said on stdout, and never as silence: a runtime that hears nothing goes on.
import { readFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { dialects } from '../../hooks/dialects.ts';
import type { Dialect } from '../../hooks/dialect.ts';
import type { EnvironmentHooks } from '../../hooks/environment-hooks.ts';
import { createHooks } from '../../hooks/index.ts';
import type { HookOptions, HookResult } from '../../hooks/index.ts';
import { openHookLedger } from '../../hooks/ledger.ts';
import { createReport } from '../../hooks/report-runs.ts';
import type { ReportRuns } from '../../hooks/report-runs.ts';
import type { EventName, HookEvent, JsonObject } from '../../hooks/words.ts';
import { showUnseen } from '../../foundation/visible-text.ts';
import { adminOf, openEnvironment } from './environment.ts';
import { auditOf, hooksOf, problemText, readNamed, setting, toolsOf, workspaceOf } from './places.ts';
import type { PlaceOptions } from './places.ts';
import { EXIT } from '../exit-codes.ts';

/** Options of an event. */
export interface RunOptions extends PlaceOptions {
  readonly proxy?: string;
  readonly ca?: readonly string[];
  readonly direct?: boolean;
  readonly allowHttp?: boolean;
  readonly passEnv?: readonly string[];
  readonly maxContinuations?: string;
}

/** Largest payload, octets. */
const LARGEST_PAYLOAD = 16 * 1024 * 1024;

/** Runs an event. Exit 0 with the decision on stdout; 2 where input or options make no sense, a denying decision on stdout all the same. */
export async function run(name: string, options: RunOptions): Promise<number> {
  const event = name as EventName;
  let kept: EnvironmentHooks | undefined;
  try {
    const payload = await readPayload();
    kept = await openEnvironment(options);
    const { hookOptions, reported } = prepare(options, kept);
    const hooks = createHooks(hookOptions);
    // Whether the payload is one of the event's is for the reader of events to say.
    const result = await hooks.run(event, payload as never);
    say(JSON.stringify(result.output));
    complain(result);
    await Promise.all([settled(result, auditOf(options)), ...reported, hooks.close()]);
    return EXIT.ok;
  } catch (error) {
    const message = error instanceof Error ? error.message : 'internal error';
    say(JSON.stringify(refusalOf(event, options, message)));
    process.stderr.write(`sallyport-hook: ${showUnseen(message)}\n`);
    return EXIT.usage;
  } finally {
    kept?.close();
  }
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function readPayload(): Promise<unknown> {
  if (process.stdin.isTTY)
    throw new TypeError('the payload of the event is read from stdin, as one JSON object; nothing is piped in');
  const source = await text(process.stdin);
  if (source.length > LARGEST_PAYLOAD) throw new TypeError('the payload is larger than 16 MiB');
  try {
    return JSON.parse(source) as unknown;
  } catch {
    throw new TypeError('the payload on stdin is not one JSON document');
  }
}

function prepare(
  options: RunOptions,
  kept: EnvironmentHooks | undefined,
): { readonly hookOptions: HookOptions; readonly reported: Promise<boolean>[] } {
  const { tools, problems } = toolsOf(options);
  const broken = problems.find(({ severity }) => severity === 'error');
  if (broken !== undefined) throw new TypeError(`the tool registry cannot be used: ${problemText(broken)}`);
  const audit = auditOf(options);
  const reported: Promise<boolean>[] = [];
  const report = reportOf(options);
  const hookOptions: HookOptions = {
    workspace: workspaceOf(options),
    hooks: kept?.hooks ?? hooksOf(options),
    tools,
    ca: options.ca?.map(readCa) ?? rootsOfTheEnvironment(),
    signal: toldToEnd(),
    direct: options.direct ?? false,
    allowHttp: options.allowHttp ?? false,
    recordArguments: options.recordArguments ?? false,
    passEnv: options.passEnv ?? [],
    maxContinuations: continuations(options.maxContinuations),
    ...(options.dialect === undefined ? {} : { dialect: options.dialect }),
    ...(options.proxy === undefined ? {} : { proxy: options.proxy }),
    ...(audit === undefined ? {} : { ledger: openHookLedger({ path: audit }) }),
    ...(report === undefined ? {} : { report: (...ran: Parameters<ReportRuns>) => keep(reported, report(...ran)) }),
  };
  return { hookOptions, reported };
}

function keep<T>(list: Promise<T>[], promise: Promise<T>): Promise<T> {
  list.push(promise);
  return promise;
}

function reportOf(options: RunOptions): ReportRuns | undefined {
  const place = adminOf(options);
  return place === undefined ? undefined : createReport(place);
}

/** Files that other programs read roots from; one that is not there is passed over, as they do. */
function rootsOfTheEnvironment(): string[] {
  return ['SSL_CERT_FILE', 'NODE_EXTRA_CA_CERTS'].flatMap((name) => {
    const path = setting(name);
    if (path === undefined) return [];
    try {
      return [readFileSync(path, 'utf8')];
    } catch {
      process.stderr.write(`sallyport-hook: ${name} names a file that cannot be read; its roots are not trusted\n`);
      return [];
    }
  });
}

/** A runtime that gives up on this process must not leave the hook's command behind. */
function toldToEnd(): AbortSignal {
  const controller = new AbortController();
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.once(signal, () => controller.abort());
  return controller.signal;
}

function readCa(path: string): string {
  return readNamed(path, 'the CA');
}

function continuations(text = ''): number {
  const count = Number(text);
  if (!/^\d{1,6}$/.test(text) || count < 1) throw new TypeError('--max-continuations needs a whole number, at least 1');
  return count;
}

/** Every failure and every problem, for whoever reads stderr. */
function complain({ problems, verdict }: HookResult): void {
  for (const problem of problems) process.stderr.write(`sallyport-hook: ${showUnseen(problemText(problem))}\n`);
  for (const { handler, failure, raw, onFailure } of verdict.runs) {
    if (failure === undefined) continue;
    const end = onFailure === undefined ? '' : `; by its failure rule: ${onFailure}`;
    const cut = raw.truncated ? '; its output was cut' : '';
    process.stderr.write(`sallyport-hook: ${showUnseen(`${handler.id}: ${failure.message}${end}${cut}`)}\n`);
  }
}

async function settled({ recorded }: HookResult, audit: string | undefined): Promise<void> {
  const end = await recorded;
  if (audit === undefined || end === 'written') return;
  const fate = end === 'kept' ? 'its lines wait and are moved there by a later run' : 'its lines are lost';
  process.stderr.write(`sallyport-hook: the audit file "${showUnseen(audit)}" cannot be written; ${fate}\n`);
}

/** A decision for a runtime whose event could not even be read. */
function refusalOf(name: EventName, options: RunOptions, reason: string): JsonObject {
  const dialect = dialectFor(name, options);
  const event: HookEvent = {
    dialect: dialect.name,
    name,
    moment: dialect.events.get(name) ?? 'loop',
    tool: undefined,
    payload: {},
    actionId: 'unknown',
    traceId: undefined,
  };
  const answer = { decision: 'deny', reason, reasonCode: 'event_invalid' } as const;
  return dialect.word(event, { decision: 'deny', answer, changedKeys: [], effect: 'known', alert: undefined, runs: [] });
}

function dialectFor(name: EventName, { dialect }: RunOptions): Dialect {
  if (dialect !== undefined) return dialects[dialect];
  return Object.values(dialects).find(({ events }) => events.has(name)) ?? dialects.managed;
}
