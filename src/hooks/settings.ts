// The dialect of the coding agent's settings.json: `hooks` with PreToolUse and PostToolUse, matchers that are lists or searches, exit status 2.
// Handlers run one after another here, where the original runs them side by side. It must never let JSON talk over exit status 2 (fault M07).
import { isAbsolute } from 'node:path';
import { actionIdOf, textOf, traceIdOf } from './action-id.ts';
import type { Dialect, HookDocument, ReadHooks, ReadPayload } from './dialect.ts';
import { failed } from './failures.ts';
import type { HookFailure } from './failures.ts';
import { at, isJsonObject, ShapeReader, unknownKey } from './json-reader.ts';
import { listOrSearchMatcher } from './matcher.ts';
import { effectWords, failureOf, present, readDecision, readOutput, readWords } from './read-output.ts';
import { readRules } from './read-rules.ts';
import type { RuleShape } from './read-rules.ts';
import type {
  EventName,
  HookAnswer,
  HookDecision,
  HookEvent,
  HookHandler,
  HookRule,
  JsonObject,
  Moment,
  RawRun,
  Verdict,
} from './words.ts';

const EVENTS: ReadonlyMap<EventName, Moment> = new Map([
  ['PreToolUse', 'before'],
  ['PostToolUse', 'after'],
]);
/** Events of the original that are not run here. */
const EVENTS_NOT_RUN = [
  ...['PostToolUseFailure', 'PostToolBatch', 'PermissionRequest', 'PermissionDenied', 'Notification', 'UserPromptSubmit'],
  ...['UserPromptExpansion', 'Stop', 'StopFailure', 'SubagentStart', 'SubagentStop', 'PreCompact', 'PostCompact', 'SessionStart'],
  ...['SessionEnd', 'Setup', 'TeammateIdle', 'TaskCreated', 'TaskCompleted', 'InstructionsLoaded', 'ConfigChange', 'CwdChanged'],
  ...['FileChanged', 'WorktreeCreate', 'WorktreeRemove', 'Elicitation', 'ElicitationResult'],
];
/** Limits of the original on hooks that are not held to here. */
const LIMITS = ['allowManagedHooksOnly', 'allowedHttpHookUrls', 'httpHookAllowedEnvVars'];
const TIMEOUT_MS = 600_000;
const PASCAL_CASE = /^[A-Z][A-Za-z]*$/;
// `defer` leaves the decision to somebody else and is stricter than allow; nobody else is there to be asked but a human.
const PERMISSIONS = { allow: 'allow', deny: 'deny', ask: 'ask', defer: 'ask' } as const;
const OLD_DECISIONS = { block: 'deny', approve: 'allow' } as const;
const KNOWN_KEYS = ['continue', 'stopReason', 'suppressOutput', 'systemMessage', 'decision', 'reason', 'hookSpecificOutput'];
const OLD_WORDS = { reason: ['reason'], code: ['reasonCode', 'reason_code'], message: ['publicMessage', 'public_message'] };
const DENYING_STATUS = 2;

const SHAPE: RuleShape = {
  dialect: 'settings',
  events: [...EVENTS.keys()],
  flat: new Set(),
  matcher: listOrSearchMatcher,
  handler: {
    kinds: ['command', 'http'],
    defaultKind: undefined,
    kindsNotRun: ['mcp_tool', 'prompt', 'agent'],
    defaultTimeoutMs: TIMEOUT_MS,
    fractions: true,
    keys: {
      command: ['args', 'shell', 'if', 'once', 'statusMessage', 'async', 'asyncRewake'],
      http: ['allowedEnvVars', 'if', 'once', 'statusMessage'],
    },
    withoutEffect: {
      if: 'is not looked at: the hook runs for every tool that its matcher names',
      once: 'has no effect: the hook runs each time',
      async: 'has no effect: the hook is waited for',
      asyncRewake: 'has no effect: the hook is waited for',
    },
    shell: 'bash',
    variablesKey: 'allowedEnvVars',
  },
};

/** The coding agent's hooks. */
export const settings: Dialect = {
  name: 'settings',
  events: EVENTS,
  defaultTimeoutMs: TIMEOUT_MS,
  onFailure: 'allow',
  twinsRunOnce: true,
  environment: 'inherited',
  owns,
  ownsPayload: (payload) => Object.hasOwn(payload, 'tool_name'),
  readHooks,
  readPayload,
  withArguments: (payload, args) => ({ ...payload, tool_input: present(args) }),
  readAnswer,
  directory: (rule, { payload }, _command, workspace) => {
    if (rule.root !== undefined) return rule.root;
    const folder = textOf(payload.cwd);
    return folder !== undefined && isAbsolute(folder) ? folder : workspace;
  },
  variables: (_event, workspace) => ({ CLAUDE_PROJECT_DIR: workspace }),
  word,
};

function owns(value: unknown): boolean {
  if (!isJsonObject(value)) return false;
  if (typeof value.disableAllHooks === 'boolean') return true;
  const { hooks } = value;
  if (!isJsonObject(hooks)) return false;
  const events = Object.entries(hooks);
  return events.length === 0 || events.some(([name, list]) => PASCAL_CASE.test(name) && Array.isArray(list));
}

function readHooks({ path: file, value }: HookDocument): ReadHooks {
  const reader = new ShapeReader(file);
  const object = reader.object(value, '', '{ "hooks": { "PreToolUse": [...] } }');
  const enabled = !reader.flag(object?.disableAllHooks, 'disableAllHooks', false);
  for (const limit of LIMITS) {
    if (object !== undefined && Object.hasOwn(object, limit)) reader.warn(limit, 'is not held to here');
  }
  const hooks = object?.hooks === undefined ? {} : reader.object(object.hooks, 'hooks', '{ "PreToolUse": [...] }');
  const rules: HookRule[] = [];
  for (const [name, list] of Object.entries(hooks ?? {})) {
    const event = SHAPE.events.find((known) => known === name);
    const path = at('hooks', name);
    if (event !== undefined) {
      rules.push(...readRules(reader, list, { file, group: 'hooks', event, enabled, onFailure: undefined, path }, SHAPE));
    } else if (EVENTS_NOT_RUN.includes(name)) reader.warn(path, `hooks of the event "${name}" are not run here`);
    else reader.fail(path, unknownKey(name, SHAPE.events));
  }
  return { rules, problems: reader.problems };
}

function readPayload(event: EventName, payload: JsonObject): ReadPayload {
  const { tool_name: name, tool_input: args = {}, hook_event_name: named } = payload;
  if (typeof name !== 'string' || name === '') return { problem: '"tool_name" of the payload must be the name of a tool' };
  if (!isJsonObject(args)) return { problem: '"tool_input" of the payload must be an object' };
  if (named !== undefined && named !== event) return { problem: `"hook_event_name" of the payload is not "${event}"` };
  const tool = { name, args };
  const source = {
    payload,
    own: textOf(payload.tool_use_id),
    scope: textOf(payload.environment_id) ?? textOf(payload.session_id),
    tool,
  };
  return { tool, actionId: actionIdOf(source), traceId: traceIdOf(payload) };
}

function readAnswer(event: HookEvent, run: RawRun, kind: HookHandler['kind']): HookAnswer | HookFailure {
  const failure = failureOf(run, kind);
  const exited = kind === 'command' && run.status !== null && (failure === undefined || failure.code === 'exit_status');
  if (failure !== undefined && !exited) return failure;
  if (exited && run.status === DENYING_STATUS) return { decision: 'deny', reason: run.complaint.trim() };
  const read = readOutput(run.output);
  const answer = 'code' in read ? read : readObject(event, read.object ?? {});
  if (failure === undefined) return answer;
  // A status other than 0 and 2 is a failure, unless valid JSON says something all the same.
  return 'code' in answer || Object.keys(answer).length === 0 ? failure : answer;
}

function readObject(event: HookEvent, object: JsonObject): HookAnswer | HookFailure {
  const keys = Object.keys(object);
  if (keys.length > 0 && !keys.some((key) => KNOWN_KEYS.includes(key))) {
    return failed('unknown_answer', `none of its keys is known; known are ${KNOWN_KEYS.join(', ')}`);
  }
  const old = readOld(object);
  if ('code' in old) return old;
  const specific = readSpecific(event, object.hookSpecificOutput);
  if ('code' in specific) return specific;
  if (object.continue !== undefined && typeof object.continue !== 'boolean') {
    return failed('unknown_answer', '"continue" must be true or false');
  }
  const systemMessage = textOf(object.systemMessage);
  return {
    // Of two decisions in one answer the strict one counts.
    ...(old.decision === 'deny' ? { ...specific, ...old } : { ...old, ...specific }),
    ...(object.continue === false ? { stopAgent: textOf(object.stopReason) ?? '' } : {}),
    ...(systemMessage === undefined ? {} : { systemMessage }),
  };
}

function readOld(object: JsonObject): HookAnswer | HookFailure {
  if (object.decision === undefined || object.decision === null) return {};
  const decided = readDecision('decision', object.decision, OLD_DECISIONS);
  return 'code' in decided ? decided : { ...decided, ...readWords(object, OLD_WORDS) };
}

function readSpecific(event: HookEvent, value: unknown): HookAnswer | HookFailure {
  if (value === undefined || value === null) return {};
  if (!isJsonObject(value)) return failed('unknown_answer', '"hookSpecificOutput" must be an object');
  if (value.hookEventName !== undefined && value.hookEventName !== event.name) {
    return failed('unknown_answer', `"hookSpecificOutput.hookEventName" must be "${event.name}"`);
  }
  const additionalContext = textOf(value.additionalContext);
  const context = additionalContext === undefined ? {} : { additionalContext };
  const { permissionDecision, updatedInput } = value;
  if (event.moment !== 'before') return context;
  const decided: HookAnswer | HookFailure =
    permissionDecision === undefined || permissionDecision === null
      ? {}
      : readDecision('hookSpecificOutput.permissionDecision', permissionDecision, PERMISSIONS);
  if ('code' in decided) return decided;
  const words = readWords(value, { ...OLD_WORDS, reason: ['permissionDecisionReason'] });
  const answer: HookAnswer = { ...words, ...context, ...decided };
  if (updatedInput === undefined || updatedInput === null || answer.decision === 'deny') return answer;
  if (!isJsonObject(updatedInput)) return failed('unknown_answer', '"hookSpecificOutput.updatedInput" must be an object');
  return { ...answer, overwrite: replacement(event, updatedInput) };
}

/** `updatedInput` is the whole input: what it leaves out is taken away, which a shallow merge does by `undefined`. */
function replacement(event: HookEvent, input: JsonObject): JsonObject {
  const gone = Object.keys(event.tool?.args ?? {}).filter((key) => !Object.hasOwn(input, key));
  return { ...Object.fromEntries(gone.map((key) => [key, undefined])), ...input };
}

const WORDED: Readonly<Record<HookDecision, 'allow' | 'ask' | 'deny'>> = {
  allow: 'allow',
  auto_approve: 'allow',
  ask: 'ask',
  force_ask: 'ask',
  review: 'ask',
  deny_unless_prior_grant: 'deny',
  deny: 'deny',
};

function word(event: HookEvent, verdict: Verdict): JsonObject {
  const { answer } = verdict;
  const stop =
    answer.stopAgent === undefined ? {} : { continue: false, stopReason: answer.stopAgent === '' ? undefined : answer.stopAgent };
  const specific =
    event.moment === 'before' ? gateWords(event, verdict) : present({ additionalContext: answer.additionalContext });
  // After the call a `block` takes nothing back: it puts the reason before the model.
  const blocked =
    event.moment === 'after' && answer.decision === 'deny' ? { decision: 'block', reason: answer.reason ?? '' } : {};
  return present({
    ...(event.moment === 'after' ? effectWords(verdict) : {}),
    ...blocked,
    hookSpecificOutput: Object.keys(specific).length === 0 ? undefined : { hookEventName: event.name, ...specific },
    ...stop,
    systemMessage: answer.systemMessage,
  });
}

function gateWords(event: HookEvent, { decision, answer }: Verdict): JsonObject {
  // Where no hook has an opinion the runtime's own rules decide; an `allow` would overrule them.
  const silent = decision === 'allow' && answer.decision === undefined;
  const permission = silent ? undefined : WORDED[decision];
  const changed = answer.overwrite !== undefined && permission !== 'deny';
  return present({
    permissionDecision: permission,
    permissionDecisionReason: silent ? undefined : answer.reason,
    updatedInput: changed ? present({ ...event.tool?.args, ...answer.overwrite }) : undefined,
    additionalContext: answer.additionalContext,
  });
}
