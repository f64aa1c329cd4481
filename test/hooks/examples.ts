// Events, runs and verdicts for the tests of the dialects: everything has a harmless default, and a test writes only what it is about.
// Values alone; nothing here runs anything.
import { dialects } from '../../src/hooks/dialects.ts';
import { readEvent } from '../../src/hooks/read-event.ts';
import type { DialectName, EventName, HookEvent, JsonObject, RawRun, Verdict } from '../../src/hooks/words.ts';

const CONVERSATION = {
  conversationId: 'ec33ebf9-0cba-4100-8142-c61503f6c587',
  workspacePaths: ['/workspace/project'],
  transcriptPath: '/tmp/transcript.jsonl',
  artifactDirectoryPath: '/tmp/artifacts',
  modelName: 'gemini-3.6-flash-medium',
};
const CALL = { name: 'run_command', args: { CommandLine: 'npm test', Cwd: '/workspace/project' } };

/** A payload of each event, as its dialect's own documents show it. */
export const PAYLOADS: Readonly<Record<string, JsonObject>> = {
  pre_tool_execution: {
    tool_call: { name: 'code_execution', args: { code: 'rm -rf /tmp/forbidden', language: 'bash' } },
    environment_id: 'env_xyz789',
  },
  post_tool_execution: {
    tool_call: { name: 'code_execution', args: { code: 'python3 /workspace/app.py', language: 'bash' } },
    environment_id: 'env_xyz789',
    error: 'exit status 1',
  },
  SessionStart: CONVERSATION,
  PreToolUse: { toolCall: CALL, stepIdx: 19, ...CONVERSATION },
  PostToolUse: { toolCall: CALL, stepIdx: 19, error: '', ...CONVERSATION },
  PreInvocation: { invocationNum: 3, initialNumSteps: 10, ...CONVERSATION },
  PostInvocation: { invocationNum: 3, initialNumSteps: 10, ...CONVERSATION },
  Stop: { executionNum: 1, terminationReason: 'model_stop', error: '', fullyIdle: true, ...CONVERSATION },
};

/** A payload of the settings dialect. */
export function settingsPayload(event: 'PreToolUse' | 'PostToolUse', more: JsonObject = {}): JsonObject {
  return {
    session_id: 'abc123',
    transcript_path: '/tmp/t.jsonl',
    cwd: '/workspace/project',
    permission_mode: 'default',
    hook_event_name: event,
    tool_name: 'Bash',
    tool_input: { command: 'npm test', timeout: 5 },
    tool_use_id: 'toolu_01ABC',
    ...more,
  };
}

/** An event as `readEvent` makes it. */
export function event(name: EventName, { dialect, payload }: { dialect?: DialectName; payload?: JsonObject } = {}): HookEvent {
  const shown = dialect === 'settings' ? settingsPayload(name as 'PreToolUse') : PAYLOADS[name];
  const read = readEvent({ event: name, payload: payload ?? shown, dialect });
  if ('problem' in read) throw new Error(read.problem);
  return read;
}

/** A run that ended well and printed `output`. */
export function run(output: unknown, more: Partial<RawRun> = {}): RawRun {
  const text = typeof output === 'string' ? output : JSON.stringify(output);
  return { failure: undefined, status: 0, output: text, complaint: '', truncated: false, durationMs: 1, startMs: 1, ...more };
}

/** A verdict; without anything: no hook had an opinion. */
export function verdict(more: Partial<Verdict> = {}): Verdict {
  return { decision: 'allow', answer: {}, changedKeys: [], effect: 'known', alert: undefined, runs: [], ...more };
}

/** Reads a file's value in a dialect. */
export function readFile(dialect: DialectName, value: unknown, path = '/w/.agents/hooks.json') {
  const read = dialects[dialect].readHooks({ path, value });
  return {
    ...read,
    errors: read.problems.filter(({ severity }) => severity === 'error').map((problem) => `${problem.path}: ${problem.message}`),
    warnings: read.problems
      .filter(({ severity }) => severity === 'warning')
      .map((problem) => `${problem.path}: ${problem.message}`),
  };
}
