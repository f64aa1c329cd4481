// What a runtime reports, read once: which event, in which dialect, about which tool, under which ids.
// Pure. It must never guess a dialect: a payload that two could claim, or none, is a problem, and the caller refuses it.
import { showWire } from '../foundation/visible-text.ts';
import { dialects } from './dialects.ts';
import type { Dialect } from './dialect.ts';
import { isJsonObject, kindOf, nearest, oneOf } from './json-reader.ts';
import { isTooDeep } from './json-text.ts';
import { EVENT_NAMES } from './words.ts';
import type { DialectName, EventName, HookEvent, JsonObject } from './words.ts';

/** What came in. */
export interface ReportedEvent {
  readonly event: string;
  /** Parsed JSON */
  readonly payload: unknown;
  /** Forced; else by the event's name, and where two dialects have it, by the payload */
  readonly dialect?: DialectName | undefined;
}

/** The event, or what is wrong with it in one line. Never throws. */
export function readEvent({ event, payload, dialect: forced }: ReportedEvent): HookEvent | { readonly problem: string } {
  const name = EVENT_NAMES.find((known) => known === event);
  if (name === undefined) return { problem: unknownEvent(event) };
  if (!isJsonObject(payload)) return { problem: `the payload must be a JSON object; it is ${kindOf(payload)}` };
  if (isTooDeep(payload)) return { problem: 'the payload is nested too deeply' };
  const dialect = forced === undefined ? dialectOf(name, payload) : dialects[forced];
  if ('problem' in dialect) return dialect;
  const moment = dialect.events.get(name);
  if (moment === undefined) {
    return { problem: `the dialect "${dialect.name}" has no event "${name}"; it has ${[...dialect.events.keys()].join(', ')}` };
  }
  const read = dialect.readPayload(name, payload);
  return 'problem' in read ? read : { dialect: dialect.name, name, moment, payload, ...read };
}

function dialectOf(name: EventName, payload: JsonObject): Dialect | { readonly problem: string } {
  const having = Object.values(dialects).filter(({ events }) => events.has(name));
  const owning = having.length === 1 ? having : having.filter((dialect) => dialect.ownsPayload(payload));
  const [only, second] = owning;
  if (only !== undefined && second === undefined) return only;
  return {
    problem: `the payload of "${name}" must hold either "toolCall" (desktop) or "tool_name" (settings); it holds ${only === undefined ? 'neither' : 'both'}`,
  };
}

function unknownEvent(event: string): string {
  const meant = nearest(event, EVENT_NAMES);
  const remedy = meant === undefined ? '' : `; did you mean "${meant}"`;
  return `unknown event "${showWire(event, 60)}"${remedy}; known are ${oneOf(EVENT_NAMES)}`;
}
