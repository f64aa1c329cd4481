// What is written down about one run of a hook, and about a call that no hook was asked about. Pure: the same run always gives the same line.
// It names what it takes: no output, no header, no arguments unless they were asked for; every value is capped and shows no control character.
import { showUnseen, showWire } from '../foundation/visible-text.ts';
import type { HandlerRun, HookDecision, HookEvent, HookLine, JsonObject, Verdict } from './words.ts';

/** How a line is made. */
export interface HookLineOptions {
  /** Whether it holds the call's arguments. Default: no */
  readonly arguments?: boolean;
  /** When the run ended, epoch `ms`. Default: now */
  readonly endedAt?: number;
}

/** Longest texts, in characters. */
const CAPS = { tool: 128, place: 256, file: 1024, code: 64, message: 300, id: 64 } as const;
/** What is kept of arguments: texts are cut, deeper and further members are left out and counted. */
const ARGUMENTS = { text: 1024, depth: 6, members: 64, total: 16_384 } as const;

/** The line of one handler's run. */
export function hookLine(event: HookEvent, run: HandlerRun, options: HookLineOptions = {}): HookLine {
  const { handler, rule, raw, failure } = run;
  return {
    ...openingOf(event, options),
    handler: showWire(handler.id, CAPS.place),
    handler_kind: handler.kind,
    file: showWire(rule.file, CAPS.file),
    outcome: run.outcome,
    decision: event.moment === 'before' ? decisionOf(run) : null,
    reason_code: shownOrNull(run.answer.reasonCode, CAPS.code),
    failure: shownOrNull(failure?.message, CAPS.message),
    truncated: raw.truncated,
    duration_ms: rounded(raw.durationMs),
    start_ms: rounded(raw.startMs),
    ...closingOf(event, options),
  };
}

/** The line of a call that no handler ran for: it was refused without one, or its evidence is wanted all the same. */
export function callLine(event: HookEvent, verdict: Verdict, options: HookLineOptions = {}): HookLine {
  return {
    ...openingOf(event, options),
    handler: null,
    handler_kind: null,
    file: null,
    outcome: verdict.answer.decision ?? 'none',
    decision: event.moment === 'before' ? verdict.decision : null,
    reason_code: shownOrNull(verdict.answer.reasonCode, CAPS.code),
    failure: null,
    truncated: false,
    duration_ms: 0,
    start_ms: 0,
    ...closingOf(event, options),
  };
}

/** No opinion lets the call pass, and so does a failure that may be overlooked. */
function decisionOf({ answer, onFailure }: HandlerRun): HookDecision {
  return answer.decision ?? onFailure ?? 'allow';
}

function openingOf(
  event: HookEvent,
  { endedAt = Date.now() }: HookLineOptions,
): Pick<HookLine, 'time' | 'kind' | 'event' | 'dialect' | 'tool'> {
  return {
    time: new Date(endedAt).toISOString(),
    kind: 'hook',
    event: event.name,
    dialect: event.dialect,
    tool: shownOrNull(event.tool?.name, CAPS.tool),
  };
}

function closingOf(event: HookEvent, options: HookLineOptions): Pick<HookLine, 'action_id' | 'trace_id' | 'arguments'> {
  const wanted = options.arguments === true && event.tool !== undefined;
  return {
    action_id: showWire(event.actionId, CAPS.id),
    trace_id: shownOrNull(event.traceId, CAPS.id),
    ...(wanted ? { arguments: shownArguments(event.tool.args) } : {}),
  };
}

/** The arguments, small enough for a line; where even so they are too large, only their names and what was left out. */
function shownArguments(args: JsonObject): JsonObject {
  const shown = shownMembers(args, 1);
  const size = JSON.stringify(shown).length;
  if (size <= ARGUMENTS.total) return shown;
  return { '...': `${size} characters left out`, names: Object.keys(shown).map((name) => name.slice(0, 64)) };
}

function shownMembers(object: object, depth: number): JsonObject {
  const all = Object.entries(object);
  const members = all
    .slice(0, ARGUMENTS.members)
    .map(([name, value]): [string, unknown] => [showUnseen(name.slice(0, 128)), shownValue(value, depth)]);
  if (all.length > members.length) members.push(['...', `${all.length - members.length} members left out`]);
  return Object.fromEntries(members);
}

function shownValue(value: unknown, depth: number): unknown {
  if (typeof value === 'string') {
    const cut = value.length > ARGUMENTS.text ? `${value.slice(0, ARGUMENTS.text)}...` : value;
    return showUnseen(cut);
  }
  if (typeof value !== 'object' || value === null) return value;
  if (depth >= ARGUMENTS.depth) return '...';
  if (!Array.isArray(value)) return shownMembers(value, depth + 1);
  const shown: unknown[] = value.slice(0, ARGUMENTS.members).map((item: unknown) => shownValue(item, depth + 1));
  if (value.length > ARGUMENTS.members) shown.push(`... ${value.length - ARGUMENTS.members} left out`);
  return shown;
}

function shownOrNull(text: string | undefined, cap: number): string | null {
  return text === undefined ? null : showWire(text, cap);
}

function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
