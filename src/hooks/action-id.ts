// The ids that join the lines of one tool call: one for the call, the same before and after it, and the runtime's trace.
// Pure; it must never let a text of the payload into an id unless every character of it is harmless in a header, a log and a file name.
import { createHash } from 'node:crypto';
import { isJsonObject } from './json-reader.ts';
import type { JsonObject, ToolCall } from './words.ts';

const ID = /^[A-Za-z0-9._:-]{1,64}$/;

/** What an id can be made of, best first. */
export interface IdSource {
  readonly payload: JsonObject;
  /** The dialect's own id of the call */
  readonly own: string | undefined;
  /** Where the call happens: environment, conversation or session */
  readonly scope: string | undefined;
  readonly tool: ToolCall | undefined;
}

/**
 * `payload.action_id`, else the dialect's own, else `act_` and 16 hex digits of the SHA-256 over (scope, tool, arguments). A text that is not
 * `[A-Za-z0-9._:-]{1,64}` is hashed whole, so that no two of them become one.
 */
export function actionIdOf({ payload, own, scope, tool }: IdSource): string {
  const given = textOf(payload.action_id) ?? own;
  if (given !== undefined && given !== '') return ID.test(given) ? given : hashed(given);
  return hashed(canonical([scope ?? null, tool?.name ?? null, tool?.args ?? null]));
}

/** `payload.trace_id`, where it may be passed on as it is. */
export function traceIdOf(payload: JsonObject): string | undefined {
  const id = textOf(payload.trace_id);
  return id !== undefined && ID.test(id) ? id : undefined;
}

/** A member of a payload, where it is text. */
export function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

/** JSON with sorted keys: two runtimes may write the same arguments in another order. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, member: unknown) =>
    isJsonObject(member) ? Object.fromEntries(Object.entries(member).sort(([a], [b]) => (a < b ? -1 : 1))) : member,
  );
}

function hashed(text: string): string {
  return `act_${createHash('sha256').update(text).digest('hex').slice(0, 16)}`;
}
