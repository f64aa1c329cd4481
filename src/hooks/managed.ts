// The dialect of the managed agents: `.agents/hooks.json` with pre_tool_execution and post_tool_execution, snake_case, RE2, allow or deny.
// Whatever fails is an approval there, and so it is here unless the file says `on_failure`. It knows no asking: a call to be reviewed is denied.
import { actionIdOf, textOf, traceIdOf } from './action-id.ts';
import type { Dialect, HookDocument, ReadHooks, ReadPayload } from './dialect.ts';
import { failed } from './failures.ts';
import type { HookFailure } from './failures.ts';
import { isJsonObject, ShapeReader } from './json-reader.ts';
import { wholeMatcher } from './matcher.ts';
import { effectWords, failureOf, present, readDecision, readOutput, readWords } from './read-output.ts';
import { readGroups } from './read-rules.ts';
import type { RuleShape } from './read-rules.ts';
import type { EventName, HookAnswer, HookEvent, HookHandler, JsonObject, Moment, RawRun, ToolCall, Verdict } from './words.ts';

/** Where an inline source with the target `.agents/hooks.json` lands: its commands run in `/`. */
export const SYSTEM_FILE = '/.agents/hooks.json';

const EVENTS: ReadonlyMap<EventName, Moment> = new Map([
  ['pre_tool_execution', 'before'],
  ['post_tool_execution', 'after'],
]);
const TIMEOUT_MS = 30_000;
const DECISIONS = { allow: 'allow', deny: 'deny', require_review: 'review' } as const;
const WORDS = { reason: ['reason'], code: ['reason_code'], message: ['public_message'] };

const SHAPE: RuleShape = {
  dialect: 'managed',
  events: [...EVENTS.keys()],
  flat: new Set(),
  matcher: wholeMatcher,
  handler: {
    kinds: ['command', 'http'],
    defaultKind: undefined,
    kindsNotRun: [],
    defaultTimeoutMs: TIMEOUT_MS,
    fractions: false,
    keys: { command: [], http: ['allowed_env_vars'] },
    withoutEffect: {},
    shell: 'sh',
    variablesKey: 'allowed_env_vars',
  },
};

/** The managed agents' hooks. */
export const managed: Dialect = {
  name: 'managed',
  events: EVENTS,
  defaultTimeoutMs: TIMEOUT_MS,
  onFailure: 'allow',
  twinsRunOnce: false,
  environment: 'clean',
  owns: (value) =>
    isJsonObject(value) &&
    Object.values(value).some((group) => isJsonObject(group) && SHAPE.events.some((event) => Object.hasOwn(group, event))),
  ownsPayload: (payload) => Object.hasOwn(payload, 'tool_call'),
  readHooks,
  readPayload,
  withArguments: (payload, args) => {
    const call = isJsonObject(payload.tool_call) ? payload.tool_call : {};
    return { ...payload, tool_call: { ...call, args } };
  },
  readAnswer,
  // The page's own samples call scripts by absolute path; where a relative one starts is ours to say.
  directory: (rule, _event, _command, workspace) => rule.root ?? (rule.file === SYSTEM_FILE ? '/' : workspace),
  variables: () => ({}),
  word,
};

function readHooks(document: HookDocument): ReadHooks {
  const reader = new ShapeReader(document.path);
  const rules = readGroups(reader, document.path, document.value, SHAPE);
  return { rules, problems: reader.problems };
}

function readPayload(_event: EventName, payload: JsonObject): ReadPayload {
  const tool = readToolCall(payload.tool_call, 'tool_call');
  if ('problem' in tool) return tool;
  const scope = textOf(payload.environment_id);
  return { tool, actionId: actionIdOf({ payload, own: undefined, scope, tool }), traceId: traceIdOf(payload) };
}

/** `{ name, args }` as two dialects have it, under their own key. Absent arguments are none. */
export function readToolCall(call: unknown, key: string): ToolCall | { readonly problem: string } {
  if (!isJsonObject(call)) return { problem: `the payload needs "${key}": { "name": "...", "args": { ... } }` };
  const { name, args = {} } = call;
  if (typeof name !== 'string' || name === '') return { problem: `"${key}.name" of the payload must be the name of a tool` };
  return isJsonObject(args) ? { name, args } : { problem: `"${key}.args" of the payload must be an object` };
}

function readAnswer(event: HookEvent, run: RawRun, kind: HookHandler['kind']): HookAnswer | HookFailure {
  // A status other than 0 beats even a deny that was printed: that is what the guide says of a crash.
  const failure = failureOf(run, kind);
  if (failure !== undefined) return failure;
  if (event.moment !== 'before') return {};
  const read = readOutput(run.output);
  if ('code' in read) return read;
  const { object } = read;
  if (object === undefined) return {};
  if (!Object.hasOwn(object, 'decision')) return failed('unknown_answer', '"decision" is missing; write "allow" or "deny"');
  const decided = readDecision('decision', object.decision, DECISIONS);
  return 'code' in decided ? decided : { ...decided, ...readWords(object, WORDS) };
}

function word(event: HookEvent, verdict: Verdict): JsonObject {
  if (event.moment !== 'before') return effectWords(verdict);
  const { reason, reasonCode, publicMessage } = verdict.answer;
  const spoken = { reason_code: reasonCode, public_message: publicMessage };
  switch (verdict.decision) {
    case 'allow':
    case 'auto_approve':
      return present({ decision: 'allow', ...spoken });
    case 'deny':
    case 'deny_unless_prior_grant':
      return present({ decision: 'deny', reason: reason ?? 'a hook denied this call and gave no reason', ...spoken });
    // A runtime of this dialect takes every value that it does not know for an approval, so a call that waits for a human is denied.
    case 'ask':
    case 'force_ask':
    case 'review':
      return present({
        decision: 'deny',
        reason: reason ?? 'a human has to review this call before it runs',
        ...spoken,
        reason_code: reasonCode ?? 'review_required',
      });
  }
}
