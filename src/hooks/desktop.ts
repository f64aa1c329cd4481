// The dialect of the desktop agent: `hooks.json` with PascalCase events, camelCase payloads, asking, changed arguments and injected steps.
// Where its texts are silent on failures before a tool, a failure denies. It must never let an answer that cannot be read pass for an approval.
import { existsSync } from 'node:fs';
import { basename, dirname, isAbsolute, join } from 'node:path';
import { actionIdOf, textOf, traceIdOf } from './action-id.ts';
import type { Dialect, HookDocument, ReadHooks, ReadPayload } from './dialect.ts';
import { failed } from './failures.ts';
import type { HookFailure } from './failures.ts';
import { readSteps } from './inject-steps.ts';
import { isJsonObject, ShapeReader } from './json-reader.ts';
import { readToolCall } from './managed.ts';
import { wholeMatcher } from './matcher.ts';
import { effectWords, failureOf, present, readDecision, readOutput, readWords } from './read-output.ts';
import { readGroups } from './read-rules.ts';
import type { RuleShape } from './read-rules.ts';
import type {
  EventName,
  HookAnswer,
  HookEvent,
  HookHandler,
  HookRule,
  JsonObject,
  Moment,
  RawRun,
  ToolCall,
  Verdict,
} from './words.ts';

/** Folders that hold a hooks.json, in the order in which they are read. */
export const HOOK_FOLDERS = ['.agents', '.agent', '_agents', '_agent'] as const;

const EVENTS: ReadonlyMap<EventName, Moment> = new Map([
  ['SessionStart', 'loop'],
  ['PreToolUse', 'before'],
  ['PostToolUse', 'after'],
  ['PreInvocation', 'loop'],
  ['PostInvocation', 'loop'],
  ['Stop', 'loop'],
]);
const TIMEOUT_MS = 30_000;
const DECISIONS = {
  allow: 'allow',
  auto_approve: 'auto_approve',
  deny: 'deny',
  ask: 'ask',
  force_ask: 'force_ask',
  deny_unless_prior_grant: 'deny_unless_prior_grant',
} as const;
// The second spelling lets one script serve both dialects.
const WORDS = { reason: ['reason'], code: ['reasonCode', 'reason_code'], message: ['publicMessage', 'public_message'] };
const ENDINGS = ['force_continue', 'terminate', ''] as const;

const SHAPE: RuleShape = {
  dialect: 'desktop',
  events: [...EVENTS.keys()],
  flat: new Set(['SessionStart', 'PreInvocation', 'PostInvocation', 'Stop']),
  matcher: wholeMatcher,
  handler: {
    kinds: ['command'],
    defaultKind: 'command',
    kindsNotRun: [],
    defaultTimeoutMs: TIMEOUT_MS,
    fractions: false,
    keys: { command: [], http: [] },
    withoutEffect: {},
    shell: 'sh',
    variablesKey: 'allowed_env_vars',
  },
};

/** The desktop agent's hooks. */
export const desktop: Dialect = {
  name: 'desktop',
  events: EVENTS,
  defaultTimeoutMs: TIMEOUT_MS,
  onFailure: 'deny',
  twinsRunOnce: false,
  environment: 'clean',
  // A group called `hooks` with these events is how the settings dialect begins.
  owns: (value) =>
    isJsonObject(value) &&
    Object.entries(value).some(
      ([name, group]) => name !== 'hooks' && isJsonObject(group) && SHAPE.events.some((event) => hasList(group, event)),
    ),
  ownsPayload: (payload) => Object.hasOwn(payload, 'toolCall'),
  readHooks,
  readPayload,
  withArguments: (payload, args) => {
    const call = isJsonObject(payload.toolCall) ? payload.toolCall : {};
    return { ...payload, toolCall: { ...call, args } };
  },
  readAnswer,
  directory,
  variables: () => ({}),
  word,
};

function hasList(group: JsonObject, event: string): boolean {
  const list = Object.hasOwn(group, event) ? group[event] : undefined;
  return typeof list === 'object' && list !== null;
}

function readHooks(document: HookDocument): ReadHooks {
  const reader = new ShapeReader(document.path);
  const rules = readGroups(reader, document.path, document.value, SHAPE);
  return { rules, problems: reader.problems };
}

function readPayload(event: EventName, payload: JsonObject): ReadPayload {
  const aboutTool = EVENTS.get(event) !== 'loop';
  const tool = aboutTool ? readToolCall(payload.toolCall, 'toolCall') : undefined;
  if (tool !== undefined && 'problem' in tool) return tool;
  const scope = textOf(payload.conversationId);
  const own = scope === undefined ? undefined : ownId(scope, event, payload);
  return {
    tool,
    actionId: actionIdOf({ payload, own, scope, tool: tool ?? loopCall(event, payload) }),
    traceId: traceIdOf(payload),
  };
}

/** Steps, invocations and executions are counted apart, so that no two of them share an id. */
function ownId(conversation: string, event: EventName, payload: JsonObject): string | undefined {
  const { stepIdx, invocationNum, executionNum } = payload;
  if (EVENTS.get(event) !== 'loop') return typeof stepIdx === 'number' ? `${conversation}:${stepIdx}` : undefined;
  if (event === 'Stop') return typeof executionNum === 'number' ? `${conversation}:execution-${executionNum}` : undefined;
  if (event === 'SessionStart') return `${conversation}:start`;
  return typeof invocationNum === 'number' ? `${conversation}:invocation-${invocationNum}` : undefined;
}

/** What stands in for a call where the event is about none and has no number of its own. */
function loopCall(event: EventName, payload: JsonObject): ToolCall {
  return { name: event, args: payload };
}

function readAnswer(event: HookEvent, run: RawRun, kind: HookHandler['kind']): HookAnswer | HookFailure {
  const failure = failureOf(run, kind);
  if (failure !== undefined) return failure;
  if (event.moment === 'after') return {};
  const read = readOutput(run.output);
  if ('code' in read) return read;
  const { object } = read;
  if (object === undefined) return {};
  if (event.moment === 'before') return readGate(object);
  return event.name === 'Stop' ? readStop(object) : readLoop(event, object);
}

function readGate(object: JsonObject): HookAnswer | HookFailure {
  const keys = Object.keys(object);
  // Seen of the agent since 1.0.3, and kept: a gate that answers with nothing in braces has not approved.
  if (keys.length === 0) return { decision: 'deny', reason: '' };
  const decided = readOldGate(object) ?? readDecision('decision', object.decision, DECISIONS);
  if ('code' in decided) return decided;
  const answer = { ...readWords(object, WORDS), ...decided };
  // What stands beside a deny cannot make it less of one.
  if (answer.decision === 'deny') return answer;
  const { overwrite, permissionOverrides } = object;
  if (overwrite !== undefined && overwrite !== null && !isJsonObject(overwrite)) {
    return failed('unknown_answer', '"overwrite" must be an object with the arguments to be replaced');
  }
  if (permissionOverrides !== undefined && permissionOverrides !== null && !isTexts(permissionOverrides)) {
    return failed('unknown_answer', '"permissionOverrides" must be a list of texts, as ["command(npm test)"]');
  }
  return {
    ...answer,
    ...(isJsonObject(overwrite) ? { overwrite } : {}),
    ...(isTexts(permissionOverrides) ? { permissionOverrides } : {}),
  };
}

/** `allowTool` and `denyReason`, which the agent took before there was a `decision`. */
function readOldGate(object: JsonObject): (HookAnswer & { readonly decision: 'allow' | 'deny' }) | undefined {
  if (Object.hasOwn(object, 'decision') || typeof object.allowTool !== 'boolean') return undefined;
  const reason = textOf(object.denyReason);
  return object.allowTool ? { decision: 'allow' } : { decision: 'deny', ...(reason === undefined ? {} : { reason }) };
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((text) => typeof text === 'string');
}

function readLoop(event: HookEvent, object: JsonObject): HookAnswer | HookFailure {
  const { injectSteps, terminationBehavior } = object;
  const steps = injectSteps === undefined || injectSteps === null ? undefined : readSteps(injectSteps);
  if (steps !== undefined && 'code' in steps) return steps;
  const answer = steps === undefined ? {} : { injectSteps: steps.steps };
  if (event.name !== 'PostInvocation' || terminationBehavior === undefined || terminationBehavior === null) return answer;
  const ending = ENDINGS.find((word) => word === terminationBehavior);
  if (ending === undefined) return failed('unknown_answer', '"terminationBehavior" must be "force_continue", "terminate" or ""');
  return { ...answer, terminationBehavior: ending };
}

function readStop(object: JsonObject): HookAnswer | HookFailure {
  const { decision } = object;
  if (decision === 'continue') return { continueLoop: true, ...readWords(object, WORDS) };
  // Any other value lets the loop end, but this one was meant to say something else.
  if (typeof decision === 'string' && decision.trim().toLowerCase() === 'continue') {
    return failed('unknown_answer', '"decision" must be "continue"; blanks and capital letters count');
  }
  return Object.hasOwn(object, 'decision') ? { continueLoop: false, ...readWords(object, WORDS) } : {};
}

/**
 * The folder that holds the hooks.json, as the agent's own guide says; but where the command begins with a relative path that is not there
 * and is in the workspace, the workspace, as another text says. Looks at the disk for that.
 */
function directory(rule: HookRule, _event: HookEvent, command: string, workspace: string): string {
  if (rule.root !== undefined) return join(rule.root, HOOK_FOLDERS[0]);
  const folder = dirname(rule.file);
  const path = relativePath(command);
  if (path === undefined || existsSync(join(folder, path))) return folder;
  const roots = HOOK_FOLDERS.some((name) => name === basename(folder)) ? [dirname(folder), workspace] : [workspace];
  return roots.find((root) => existsSync(join(root, path))) ?? folder;
}

/** The relative path that a command names as its program, or as the script of its interpreter. */
function relativePath(command: string): string | undefined {
  const words = command.trim().split(/\s+/).slice(0, 2);
  const named = words.map((text) => text.replace(/^(["'])(.*)\1$/, '$2')).find((text) => text.includes('/'));
  return named === undefined || isAbsolute(named) || /[$`~*"'\\]/.test(named) ? undefined : named;
}

function word(event: HookEvent, verdict: Verdict): JsonObject {
  const { answer } = verdict;
  if (event.moment === 'before') return wordGate(verdict);
  if (event.moment === 'after') return effectWords(verdict);
  if (event.name === 'Stop')
    return present({ decision: answer.continueLoop === true ? 'continue' : 'stop', reason: answer.reason });
  const ending = event.name === 'PostInvocation' ? answer.terminationBehavior : undefined;
  return present({ injectSteps: answer.injectSteps, terminationBehavior: ending });
}

function wordGate({ decision, answer, changedKeys }: Verdict): JsonObject {
  const spoken = { reason: answer.reason, reasonCode: answer.reasonCode, publicMessage: answer.publicMessage };
  if (decision === 'deny') return present({ decision, ...spoken });
  const changes = answer.overwrite === undefined ? {} : { overwrite: present(answer.overwrite), changedKeys };
  return present({
    decision: decision === 'review' ? 'force_ask' : decision,
    ...spoken,
    ...changes,
    permissionOverrides: answer.permissionOverrides,
  });
}
