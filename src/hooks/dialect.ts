// What a dialect is: the one interface behind which the schemas differ. The runner knows it and no dialect by name.
// A dialect reads, matches and words; it must never run anything, and never decide what a failure comes to beyond naming its own rule.
import type { HookFailure } from './failures.ts';
import type {
  DialectName,
  EventName,
  HookAnswer,
  HookEvent,
  HookProblem,
  HookRule,
  JsonObject,
  Moment,
  OnFailure,
  RawRun,
  Verdict,
} from './words.ts';

/** A hooks file as it was read. */
export interface HookDocument {
  /** Absolute path */
  readonly path: string;
  /** The parsed JSON */
  readonly value: unknown;
}

/** What a dialect made of a file. With an `error` among the problems the rules are not used. */
export interface ReadHooks {
  readonly rules: readonly HookRule[];
  readonly problems: readonly HookProblem[];
}

/** An event that can be used, or what is wrong with it in one line. */
export type ReadPayload = Pick<HookEvent, 'tool' | 'actionId' | 'traceId'> | { readonly problem: string };

/** One schema of hooks. All functions are pure and never throw. */
export interface Dialect {
  readonly name: DialectName;
  readonly events: ReadonlyMap<EventName, Moment>;
  /** Time limit of a handler that names none, `ms` */
  readonly defaultTimeoutMs: number;
  /** Whether a parsed file is written in this dialect, by its own keys */
  owns(value: unknown): boolean;
  /** Whether a payload is of this dialect; asked only where the event's name alone does not tell */
  ownsPayload(payload: JsonObject): boolean;
  readHooks(document: HookDocument): ReadHooks;
  readPayload(event: EventName, payload: JsonObject): ReadPayload;
  /** The payload with other arguments: later handlers judge what will really run */
  withArguments(payload: JsonObject, args: JsonObject): JsonObject;
  /** What one run said, for this event; a failure where it cannot be read. Called for every run, failed ones included: a status may be an answer. */
  readAnswer(event: HookEvent, run: RawRun, kind: 'command' | 'http'): HookAnswer | HookFailure;
  /** What a failed hook comes to where nobody said otherwise, for an event with the moment `before` */
  readonly onFailure: OnFailure;
  /** Whether of handlers that are the same in all but their place only the first is run */
  readonly twinsRunOnce: boolean;
  /** Where a rule's commands run: an absolute folder */
  directory(rule: HookRule, event: HookEvent, command: string, workspace: string): string;
  /** `clean`: a short list of variables; `inherited`: all but those that hold secrets of ours */
  readonly environment: 'clean' | 'inherited';
  /** Further variables for commands */
  variables(event: HookEvent, workspace: string): Readonly<Record<string, string>>;
  /** The JSON that the runtime gets */
  word(event: HookEvent, verdict: Verdict): JsonObject;
}

/** Tells an answer from a failure. */
export function isFailure(value: HookAnswer | HookFailure): value is HookFailure {
  return 'code' in value;
}
