// The words of the hook-runner: what happened (HookEvent), who is to be asked (HookRule, HookHandler), what came of one handler (HandlerRun),
// and what the runtime is to do (Verdict). Types and closed lists only; nothing here runs, reads or decides.
import { DECISIONS, EVENT_NAMES } from '../exchange/hook-words.ts';
import type { EventName, HookDecision, HookOutcome } from '../exchange/hook-words.ts';
import type { HookFailure } from './failures.ts';

// The closed lists stand where the record room sees them too.
export { DECISIONS, EVENT_NAMES };
export type { EventName, HookDecision };

/** The schemas that a hooks file can be written in. */
export type DialectName = 'managed' | 'desktop' | 'settings';

/** JSON that somebody else wrote. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** When in an agent's loop an event falls: a tool is about to run, has run, or the loop itself has come to a point. */
export type Moment = 'before' | 'after' | 'loop';

/** A tool call that hooks are asked about. */
export interface ToolCall {
  readonly name: string;
  readonly args: JsonObject;
}

/** An event as a runtime reported it, read once. */
export interface HookEvent {
  readonly dialect: DialectName;
  readonly name: EventName;
  readonly moment: Moment;
  /** Where the event is about a tool */
  readonly tool: ToolCall | undefined;
  /** What handlers get on stdin or as a POST: the runtime's own object */
  readonly payload: JsonObject;
  /** Shared by the `before` and the `after` of one call; `[A-Za-z0-9._:-]{1,64}` */
  readonly actionId: string;
  readonly traceId: string | undefined;
}

/** What becomes of a call whose hook failed. `review`: a human is asked, or where the dialect knows no asking, it is denied. */
export type OnFailure = 'allow' | 'deny' | 'review';

/** What both kinds of handler have. */
interface HandlerBase {
  /** `<group>/<event>[<rule>].hooks[<index>]`, or without `.hooks` in a flat array */
  readonly id: string;
  /** From the handler, else from its rule, else from its group; undefined: by the tool's risk, else the dialect's rule */
  readonly onFailure: OnFailure | undefined;
  /** Empty output counts as a failure (fault M09) */
  readonly requireDecision: boolean;
  readonly timeoutMs: number;
}

/** A shell line, or a program with its arguments. */
export interface CommandHandler extends HandlerBase {
  readonly kind: 'command';
  readonly command: string;
  /** Set: `command` is a program and is run without a shell */
  readonly args: readonly string[] | undefined;
  readonly shell: 'sh' | 'bash';
}

/** A POST. */
export interface HttpHandler extends HandlerBase {
  readonly kind: 'http';
  readonly url: string;
  /** Values may hold `$NAME` and `${NAME}`; `$$` is a dollar sign */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** Names that may be replaced in header values; any other fails the hook (fault M16) */
  readonly allowedVariables: readonly string[];
}

export type HookHandler = CommandHandler | HttpHandler;

/** Which tools a rule is for. A pattern that does not compile matches nothing; the problem says why. */
export interface Matcher {
  /** As written; `undefined` where the file has none */
  readonly source: string | undefined;
  readonly problem: string | undefined;
  matches(tool: string): boolean;
}

/** One matcher with its handlers, as one event of one group has it. */
export interface HookRule {
  /** Absolute path of its file */
  readonly file: string;
  /** The folder that stands for `/`, where the file came with an environment and lies there */
  readonly root?: string;
  readonly dialect: DialectName;
  readonly group: string;
  readonly event: EventName;
  readonly enabled: boolean;
  readonly matcher: Matcher;
  readonly handlers: readonly HookHandler[];
}

/** Something wrong in a hooks file. An `error` makes the whole file unusable: calls that it might have stopped are denied (fault M13). */
export interface HookProblem {
  readonly file: string;
  /** Place in the file, as `security-gate.pre_tool_execution[0].hooks[1].timeout`; '' for the file itself */
  readonly path: string;
  readonly severity: 'error' | 'warning';
  /** Lower case, what is wrong and the form that is allowed */
  readonly message: string;
}

/** Every hooks file that was found, merged in a fixed order. */
export interface HookSet {
  readonly files: readonly { readonly path: string; readonly dialect: DialectName | undefined }[];
  readonly rules: readonly HookRule[];
  readonly problems: readonly HookProblem[];
}

/** What a handler said, read by its dialect. Everything absent: it has no opinion. */
export interface HookAnswer {
  readonly decision?: HookDecision;
  readonly reason?: string;
  /** Stable code for operators, as `tenant_mismatch` */
  readonly reasonCode?: string;
  /** What may be shown to the person that the agent serves */
  readonly publicMessage?: string;
  /** Arguments to be replaced, merged shallowly */
  readonly overwrite?: JsonObject;
  readonly permissionOverrides?: readonly string[];
  readonly injectSteps?: readonly JsonObject[];
  readonly terminationBehavior?: 'force_continue' | 'terminate' | '';
  /** `Stop`: the loop is to go on */
  readonly continueLoop?: boolean;
  /** `settings`: the agent is to stop altogether, with the reason */
  readonly stopAgent?: string;
  readonly additionalContext?: string;
  readonly systemMessage?: string;
}

/** What a handler gave back, before its dialect reads it. */
export interface RawRun {
  /** Why there is nothing to read, if so */
  readonly failure: HookFailure | undefined;
  /** Commands: exit status; null where a signal ended it. HTTP: the status. */
  readonly status: number | null;
  readonly output: string;
  /** Commands: what was written to stderr */
  readonly complaint: string;
  /** Whether output or complaint was cut at the cap (faults M05, M06) */
  readonly truncated: boolean;
  /** From the moment it had started, `ms` (fault M14) */
  readonly durationMs: number;
  /** From being asked for to having started, `ms` */
  readonly startMs: number;
}

/** One handler's run, as it is recorded. */
export interface HandlerRun {
  readonly handler: HookHandler;
  readonly rule: HookRule;
  /** `allow`, `deny`, … as it said; `none`: no opinion; else the name of the failure */
  readonly outcome: HookOutcome;
  readonly answer: HookAnswer;
  readonly failure: HookFailure | undefined;
  /** What the failure came to; undefined where there was none, or where its event decides nothing */
  readonly onFailure: OnFailure | undefined;
  readonly raw: RawRun;
}

/** What the runtime is to do. */
export interface Verdict {
  /** Meaningful before a tool call */
  readonly decision: HookDecision;
  readonly answer: HookAnswer;
  /** Keys of the arguments that `answer.overwrite` changes */
  readonly changedKeys: readonly string[];
  /** After a call whose hook failed: the effect of a consequential tool is not known */
  readonly effect: 'known' | 'degraded' | 'unknown';
  /** Who is to be alerted, from the tool registry, where the failure asks for it */
  readonly alert: string | undefined;
  readonly runs: readonly HandlerRun[];
}

/** What is written down about one handler's run. No arguments, no output and no header unless they were asked for. */
export interface HookLine {
  /** End of the run, ISO 8601 in UTC */
  readonly time: string;
  readonly kind: 'hook';
  readonly event: EventName;
  readonly dialect: DialectName;
  readonly tool: string | null;
  /** null: the line is about the call itself, whose evidence is wanted though no handler ran for it */
  readonly handler: string | null;
  readonly handler_kind: HookHandler['kind'] | null;
  /** Path of the hooks file */
  readonly file: string | null;
  readonly outcome: HandlerRun['outcome'];
  /** What the run came to for the call; null where its event decides nothing */
  readonly decision: HookDecision | null;
  readonly reason_code: string | null;
  /** A failure's own message; never output of the hook */
  readonly failure: string | null;
  readonly truncated: boolean;
  readonly duration_ms: number;
  readonly start_ms: number;
  readonly action_id: string;
  readonly trace_id: string | null;
  /** Only where they were asked for */
  readonly arguments?: JsonObject;
}

/** Where lines go. */
export interface HookLedger {
  /**
   * Hands over lines. `written`: they are where they belong; `kept`: their sink is away, and they wait in a bounded buffer that outlives the
   * process; `lost`: neither. Tries a bounded number of times. Never rejects.
   */
  write(lines: readonly HookLine[]): Promise<'written' | 'kept' | 'lost'>;
}
