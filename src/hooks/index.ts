// `sallyport/hooks`: the hook-runner for a runtime in Node, and what the command `sallyport-hook` is made of.
// It joins the parts and holds no rule of its own; whatever goes wrong before a tool call ends as a verdict that denies, never as a throw.
import { homedir } from 'node:os';
import { resolve } from 'node:path';
import type { Dialect } from './dialect.ts';
import { dialects } from './dialects.ts';
import { commandEnvironment } from './environment.ts';
import { createNoLedger } from './ledger.ts';
import { loadHooks } from './load-hooks.ts';
import type { HookPayloads } from './payloads.ts';
import { readEvent } from './read-event.ts';
import type { ReportRuns } from './report-runs.ts';
import { runCommand } from './run-command.ts';
import { runEvent } from './run-event.ts';
import type { HttpOptions, RunHttp } from './run-http.ts';
import type { Tools } from './tools.ts';
import type {
  DialectName,
  EventName,
  HookEvent,
  HookHandler,
  HookLedger,
  HookProblem,
  HookRule,
  HookSet,
  JsonObject,
  RawRun,
  Verdict,
} from './words.ts';

export type * from './words.ts';
export type * from './payloads.ts';
export type { HookFailure, HookFailureCode } from './failures.ts';
export { loadHooks } from './load-hooks.ts';
export { openHookLedger } from './ledger.ts';
export { createReport } from './report-runs.ts';
export { readTools } from './tools.ts';

/** How hooks are found and run. Everything has a default. */
export interface HookOptions {
  /** The agent's workspace, absolute. Default: the working directory */
  readonly workspace?: string;
  /** Where `~` points. Default: the user's home */
  readonly home?: string;
  /** Further files, merged after the user's and before the workspace's */
  readonly plugins?: readonly string[];
  /** These files, and none that would be found */
  readonly files?: readonly string[];
  /** Hooks that were loaded before; then nothing is read */
  readonly hooks?: HookSet;
  /** Takes every file and payload as written in this dialect */
  readonly dialect?: DialectName;
  /** What is known of the tools: risk, owner */
  readonly tools?: Tools;
  /** Where HTTP hooks leave through. Default: HTTPS_PROXY or ALL_PROXY of `env` */
  readonly proxy?: string;
  /** PEM texts of the proxy's CA, trusted beside Node's own roots */
  readonly ca?: readonly string[];
  /** HTTP hooks leave without a proxy: the network itself leads through the door */
  readonly direct?: boolean;
  /** For tests: `http` URLs are let through */
  readonly allowHttp?: boolean;
  /** Where each run is written down. Default: nowhere */
  readonly ledger?: HookLedger;
  /** Hears of each run for the metrics */
  readonly report?: ReportRuns;
  /** Lines of the ledger hold the call's arguments. Default: no */
  readonly recordArguments?: boolean;
  /** Default: `process.env` */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Names of further variables that commands get */
  readonly passEnv?: readonly string[];
  /** Ends the commands that are running, with all of their group */
  readonly signal?: AbortSignal;
  /** `Stop`: how many times in a row the loop may be sent on. Default: 10 */
  readonly maxContinuations?: number;
}

/** What a runtime gets back. */
export interface HookResult {
  /** The JSON that the dialect has for it */
  readonly output: JsonObject;
  readonly verdict: Verdict;
  /** What is wrong with the hooks files, warnings included */
  readonly problems: readonly HookProblem[];
  /** What became of the lines for the ledger; nobody needs to wait for it */
  readonly recorded: ReturnType<HookLedger['write']>;
}

/** A runner that is used more than once: it keeps its connections. */
export interface Hooks {
  /** Never rejects, but with a TypeError where the payload is not one of the event's. */
  run<E extends EventName>(event: E, payload: HookPayloads[E]): Promise<HookResult>;
  close(): Promise<void>;
}

const MOST_CONTINUATIONS = 10;

/** Runs the hooks of one event. Rejects with a TypeError where the payload is not one of the event's; never otherwise. */
export async function runHooks<E extends EventName>(
  event: E,
  payload: HookPayloads[E],
  options: HookOptions = {},
): Promise<HookResult> {
  const hooks = createHooks(options);
  try {
    return await hooks.run(event, payload);
  } finally {
    await hooks.close();
  }
}

/** Makes a runner. Hooks files are read anew for each event, unless `hooks` is given. */
export function createHooks(options: HookOptions = {}): Hooks {
  const workspace = resolve(options.workspace ?? process.cwd());
  const http = httpWhenAsked({ ...options, env: options.env ?? process.env });
  return {
    run: async (name, payload) => {
      const set = options.hooks ?? loadHooks({ ...options, workspace, home: options.home ?? homedir() });
      const event = readEvent({
        event: name,
        payload: payload,
        ...(options.dialect === undefined ? {} : { dialect: options.dialect }),
      });
      if ('problem' in event) throw new TypeError(event.problem);
      return runRead(event, set, { options, workspace, http });
    },
    close: () => http.close(),
  };
}

/** Loaded with the first http handler: most runs have none, and a runtime waits for the start. */
function httpWhenAsked(options: HttpOptions): RunHttp {
  let made: Promise<RunHttp> | undefined;
  let closed = false;
  return {
    run: async (...asked) => {
      made ??= import('./run-http.ts').then(({ createRunHttp }) => createRunHttp(options));
      const http = await made;
      if (closed) await http.close();
      return http.run(...asked);
    },
    close: async () => {
      closed = true;
      await (await made)?.close();
    },
  };
}

interface Bench {
  readonly options: HookOptions;
  readonly workspace: string;
  readonly http: RunHttp;
}

async function runRead(event: HookEvent, set: HookSet, bench: Bench): Promise<HookResult> {
  const { options } = bench;
  const dialect = dialects[event.dialect];
  const { verdict, recorded } = await runEvent(event, set, {
    dialect,
    run: (handler, rule, current) => runHandler(handler, { rule, event: current, dialect }, bench),
    ledger: options.ledger ?? createNoLedger(),
    tool: event.tool === undefined ? undefined : options.tools?.get(event.tool.name),
    recordArguments: options.recordArguments ?? false,
    maxContinuations: options.maxContinuations ?? MOST_CONTINUATIONS,
  });
  void options.report?.(event, verdict.runs);
  return { output: dialect.word(event, verdict), verdict, problems: set.problems, recorded };
}

function runHandler(
  handler: HookHandler,
  { rule, event, dialect }: { readonly rule: HookRule; readonly event: HookEvent; readonly dialect: Dialect },
  { options, workspace, http }: Bench,
): Promise<RawRun> {
  const body = JSON.stringify(event.payload);
  if (handler.kind === 'http') return http.run(handler, { body, actionId: event.actionId, traceId: event.traceId });
  return runCommand(handler, {
    input: body,
    signal: options.signal,
    directory: dialect.directory(rule, event, handler.command, workspace),
    env: commandEnvironment(options.env ?? process.env, {
      kind: dialect.environment,
      pass: options.passEnv ?? [],
      actionId: event.actionId,
      traceId: event.traceId,
      more: dialect.variables(event, workspace),
    }),
  });
}
