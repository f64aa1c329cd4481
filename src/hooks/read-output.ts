// From what a hook printed to a JSON object, or the failure that it is (faults M04, M07, M09). Every dialect reads its answers from here.
// It must never put a part of the output into a message, and never guess: text beside the JSON makes all of it unreadable.
import { failed } from './failures.ts';
import type { HookFailure } from './failures.ts';
import { isJsonObject, kindOf, oneOf } from './json-reader.ts';
import { isTooDeep, readJson } from './json-text.ts';
import type { HookAnswer, HookDecision, HookHandler, JsonObject, RawRun } from './words.ts';

/** What was printed: an object, or nothing but blanks. */
export interface ReadOutput {
  readonly object: JsonObject | undefined;
}

/** Why a run has nothing to be read, by what the runner found or by its status; `undefined` where there may be something. */
export function failureOf(run: RawRun, kind: HookHandler['kind']): HookFailure | undefined {
  if (run.failure !== undefined) return run.failure;
  const { status } = run;
  if (kind === 'http')
    return status !== null && status >= 200 && status < 300 ? undefined : failed('http_status', `${status ?? 'none'}`);
  if (status === null) return failed('signal');
  return status === 0 ? undefined : failed('exit_status', `${status}`);
}

/** Reads what was printed, whatever the status. */
export function readOutput(output: string): ReadOutput | HookFailure {
  // A byte order mark counts as a blank here.
  const text = output.trim();
  if (text === '') return { object: undefined };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return unreadable(text);
  }
  if (!isJsonObject(value)) return failed('unknown_answer', `an object is wanted, and it is ${kindOf(value)}`);
  return isTooDeep(value) ? failed('unknown_answer', 'it is nested too deeply') : { object: value };
}

function unreadable(text: string): HookFailure {
  const banner = !text.startsWith('{') && /\n[ \t]*\{/.test(text);
  const hint = banner ? 'text stands before the JSON, as a shell profile prints it' : undefined;
  if (!text.startsWith('{') && !text.startsWith('[')) {
    return failed('not_json', hint ?? 'print one JSON object, and everything else to stderr');
  }
  const fault = readJson(text);
  return failed(
    'broken_json',
    hint ?? ('problem' in fault ? `${fault.problem} (line ${fault.line}, column ${fault.column})` : undefined),
  );
}

/** The decision that a value stands for, exactly as written in the table: blanks and capitals count (fault M09). */
export function readDecision(
  key: string,
  value: unknown,
  table: Readonly<Record<string, HookDecision>>,
): { readonly decision: HookDecision } | HookFailure {
  const decision = typeof value === 'string' && Object.hasOwn(table, value) ? table[value] : undefined;
  if (decision !== undefined) return { decision };
  const near = typeof value === 'string' && Object.hasOwn(table, value.trim().toLowerCase());
  const hint = near ? '; blanks and capital letters count' : '';
  return failed('unknown_answer', `"${key}" must be ${oneOf(Object.keys(table))}${hint}`);
}

/**
 * The words that go with a decision. One that is not text is left out: a deny stays a deny, whatever stands beside it.
 * `keys`: how the dialect spells reason, code and public message, each in order of precedence.
 */
export function readWords(
  object: JsonObject,
  keys: { readonly reason: readonly string[]; readonly code: readonly string[]; readonly message: readonly string[] },
): Pick<HookAnswer, 'reason' | 'reasonCode' | 'publicMessage'> {
  const reason = firstText(object, keys.reason);
  const reasonCode = firstText(object, keys.code);
  const publicMessage = firstText(object, keys.message);
  return {
    ...(reason === undefined ? {} : { reason }),
    ...(reasonCode === undefined || reasonCode === '' ? {} : { reasonCode }),
    ...(publicMessage === undefined || publicMessage === '' ? {} : { publicMessage }),
  };
}

function firstText(object: JsonObject, keys: readonly string[]): string | undefined {
  return keys.map((key) => object[key]).find((value) => typeof value === 'string');
}

/** An object without the members whose value is `undefined`, as JSON would write it. */
export function present(object: Readonly<Record<string, unknown>>): JsonObject {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}

/** What is said after a call whose effect is not certain; empty where it is. */
export function effectWords(verdict: { readonly effect: string; readonly alert: string | undefined }): JsonObject {
  return verdict.effect === 'known' ? {} : present({ effect: verdict.effect, alert: verdict.alert });
}
