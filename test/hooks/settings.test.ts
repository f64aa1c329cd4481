import { describe, expect, it } from 'vitest';
import { failed } from '../../src/hooks/failures.ts';
import { settings } from '../../src/hooks/settings.ts';
import type { HookAnswer, RawRun, Verdict } from '../../src/hooks/words.ts';
import { event, readFile, run, settingsPayload, verdict } from './examples.ts';

const COMMAND = { type: 'command', command: 'gate' };
const rule = (hook: object): object => ({ hooks: { PreToolUse: [{ matcher: 'Bash', hooks: [hook] }] } });
const HOOK = 'hooks.PreToolUse[0].hooks[0]';

describe('reading a settings file', () => {
  it('reads both events, beside everything else that a settings file holds', () => {
    const { rules, problems } = readFile('settings', {
      permissions: { allow: ['Bash(git *)'] },
      hooks: {
        PreToolUse: [
          {
            matcher: 'Bash|Edit',
            hooks: [{ type: 'command', command: 'gate', args: ['--strict'], shell: 'bash', timeout: 0.5, statusMessage: 'x' }],
          },
          {
            on_failure: 'deny',
            hooks: [{ type: 'http', url: 'https://h.example/', headers: { A: 'Bearer $TOKEN' }, allowedEnvVars: ['TOKEN'] }],
          },
        ],
        PostToolUse: [{ matcher: '', hooks: [COMMAND] }],
      },
    });
    expect(problems).toEqual([]);
    expect(
      rules.flatMap(({ event: name, matcher, handlers }) => handlers.map((handler) => [name, matcher.source, handler])),
    ).toEqual([
      [
        'PreToolUse',
        'Bash|Edit',
        {
          id: 'hooks/PreToolUse[0].hooks[0]',
          kind: 'command',
          command: 'gate',
          args: ['--strict'],
          shell: 'bash',
          timeoutMs: 500,
          onFailure: undefined,
          requireDecision: false,
        },
      ],
      [
        'PreToolUse',
        undefined,
        {
          id: 'hooks/PreToolUse[1].hooks[0]',
          kind: 'http',
          url: 'https://h.example/',
          headers: [['A', 'Bearer $TOKEN']],
          allowedVariables: ['TOKEN'],
          timeoutMs: 600_000,
          onFailure: 'deny',
          requireDecision: false,
        },
      ],
      ['PostToolUse', '', expect.objectContaining({ timeoutMs: 600_000, shell: 'bash', args: undefined })],
    ]);
  });

  it.each([
    ['a handler of a kind that is not run', rule({ type: 'prompt', prompt: 'x' }), `${HOOK}.type`, /"prompt" are not run here/],
    ['a handler for mcp', rule({ type: 'mcp_tool', server: 'x', tool: 'y' }), `${HOOK}.type`, /not run here/],
    ['a handler for powershell', rule({ ...COMMAND, shell: 'powershell' }), `${HOOK}.shell`, /not run here/],
    [
      'an event that is not run',
      { hooks: { UserPromptSubmit: [{ hooks: [COMMAND] }] } },
      'hooks.UserPromptSubmit',
      /not run here/,
    ],
    ['a condition', rule({ ...COMMAND, if: 'Bash(rm *)' }), `${HOOK}.if`, /runs for every tool that its matcher names/],
    ['async', rule({ ...COMMAND, async: true }), `${HOOK}.async`, /is waited for/],
    ['once', rule({ ...COMMAND, once: true }), `${HOOK}.once`, /runs each time/],
    ['a limit of the original', { ...rule(COMMAND), allowManagedHooksOnly: true }, 'allowManagedHooksOnly', /not held to/],
    [
      'a search that RE2 does not know',
      { hooks: { PreToolUse: [{ matcher: '(?!x).*', hooks: [COMMAND] }] } },
      'hooks.PreToolUse[0].matcher',
      /matches no tool/,
    ],
  ])('warns of %s', (_, file, path, message) => {
    const { errors, warnings } = readFile('settings', file);
    expect([errors, warnings]).toEqual([[], [expect.stringMatching(message)]]); // M13, M11
    expect(warnings[0]?.startsWith(`${path}: `)).toBe(true);
  });

  it('runs a hook with a condition for every call, so that a condition that misfires lets nothing through', () => {
    expect(readFile('settings', rule({ ...COMMAND, if: 'Bash(rm *)' })).rules[0]?.handlers).toHaveLength(1); // M11
    expect(readFile('settings', rule({ type: 'prompt', prompt: 'x' })).rules[0]?.handlers).toEqual([]);
  });

  it.each([
    ['an unknown event', { hooks: { PreToolUse: [], PreTooluse: [] } }, 'hooks.PreTooluse', /did you mean "PreToolUse"/],
    ['a type in the wrong case', rule({ type: 'Command', command: 'x' }), `${HOOK}.type`, /did you mean "command"/],
    ['an unknown key', rule({ ...COMMAND, foo: 1 }), `${HOOK}.foo`, /unknown key/],
    [
      'our snake_case spelling',
      rule({ type: 'http', url: 'https://h.example/', allowed_env_vars: [] }),
      `${HOOK}.allowed_env_vars`,
      /did you mean "allowedEnvVars"/,
    ],
    ['arguments as text', rule({ ...COMMAND, args: '--x' }), `${HOOK}.args`, /must be a list/],
    ['an argument that is a number', rule({ ...COMMAND, args: ['x', 5] }), `${HOOK}.args[1]`, /it is a number/],
    ['an unknown shell', rule({ ...COMMAND, shell: 'zsh' }), `${HOOK}.shell`, /must be "bash"; it is "zsh"/],
    ['a timeout as text', rule({ ...COMMAND, timeout: '5' }), `${HOOK}.timeout`, /a number of seconds/],
    ['hooks in a list', { hooks: [], disableAllHooks: false }, 'hooks', /must be an object/],
    ['a flat entry', { hooks: { PreToolUse: [COMMAND] } }, 'hooks.PreToolUse[0]', /a handler where a rule is wanted/],
  ] as const)('finds %s', (_, file, path, message) => {
    const { errors } = readFile('settings', file);
    expect(errors).toEqual([expect.stringMatching(message)]); // M13
    expect(errors[0]?.startsWith(`${path}: `)).toBe(true);
  });

  it('turns every rule off where all hooks are disabled', () => {
    expect(readFile('settings', { disableAllHooks: true, ...rule(COMMAND) }).rules.map(({ enabled }) => enabled)).toEqual([
      false,
    ]);
  });

  it.each([
    [rule(COMMAND), true],
    [{ hooks: { Notification: [] } }, true],
    [{ hooks: {} }, true],
    [{ disableAllHooks: true }, true],
    [{ hooks: { pre_tool_execution: [] } }, false],
    [{ hooks: { PreToolUse: {} } }, false],
    [{ g: { PreToolUse: [] } }, false],
    [{}, false],
    [[], false],
  ])('knows its own: %j', (value, owns) => {
    expect(settings.owns(value)).toBe(owns);
  });
});

const before = event('PreToolUse', { dialect: 'settings' });
const after = event('PostToolUse', { dialect: 'settings' });
const gate = (specific: object, more: object = {}): object => ({
  hookSpecificOutput: { hookEventName: 'PreToolUse', ...specific },
  ...more,
});

describe('reading a settings answer before a tool', () => {
  const read = (raw: RawRun, kind: 'command' | 'http' = 'command') => settings.readAnswer(before, raw, kind);

  it.each<[string, unknown, HookAnswer]>([
    ['allow', gate({ permissionDecision: 'allow', permissionDecisionReason: 'ok' }), { decision: 'allow', reason: 'ok' }],
    ['deny', gate({ permissionDecision: 'deny', permissionDecisionReason: 'no' }), { decision: 'deny', reason: 'no' }],
    ['ask', gate({ permissionDecision: 'ask' }), { decision: 'ask' }],
    ['defer, as asking', gate({ permissionDecision: 'defer' }), { decision: 'ask' }],
    ['no hookEventName', { hookSpecificOutput: { permissionDecision: 'deny' } }, { decision: 'deny' }],
    ['context without a decision', gate({ additionalContext: 'c' }), { additionalContext: 'c' }],
    ['the old block', { decision: 'block', reason: 'no' }, { decision: 'deny', reason: 'no' }],
    ['the old approve', { decision: 'approve' }, { decision: 'allow' }],
    [
      'a block against an allow',
      gate({ permissionDecision: 'allow' }, { decision: 'block', reason: 'no' }),
      { decision: 'deny', reason: 'no' },
    ],
    ['a deny against an approve', gate({ permissionDecision: 'deny' }, { decision: 'approve' }), { decision: 'deny' }],
    ['the end of the agent', { continue: false, stopReason: 'enough' }, { stopAgent: 'enough' }],
    ['the end of the agent without a reason', { continue: false }, { stopAgent: '' }],
    ['continue', { continue: true, suppressOutput: true }, {}],
    ['a message', { systemMessage: 'careful' }, { systemMessage: 'careful' }],
    ['an empty object', '{}', {}],
    ['nothing', '', {}],
    [
      'another input, which takes away what it leaves out',
      gate({ permissionDecision: 'allow', updatedInput: { command: 'npm ci' } }),
      { decision: 'allow', overwrite: { command: 'npm ci', timeout: undefined } },
    ],
    ['another input beside a deny', gate({ permissionDecision: 'deny', updatedInput: 'x' }), { decision: 'deny' }],
  ])('reads %s', (_, output, answer) => {
    expect(read(run(output))).toStrictEqual(answer);
    expect(read(run(output, { status: 200 }), 'http')).toStrictEqual(answer);
  });

  it.each([
    ['plain text', 'hello', 'not_json'],
    ['null', 'null', 'unknown_answer'],
    ['a list', '[]', 'unknown_answer'],
    ['unknown JSON', { x: 1 }, 'unknown_answer'],
    ['an answer of another dialect', { decision: 'deny', reason: 'no' }, 'unknown_answer'],
    ['Block', { decision: 'Block' }, 'unknown_answer'],
    ['a blank behind the value', gate({ permissionDecision: 'deny ' }), 'unknown_answer'],
    ['an unknown value', gate({ permissionDecision: 'block' }), 'unknown_answer'],
    ['the words of another event', gate({ hookEventName: 'PostToolUse', permissionDecision: 'deny' }), 'unknown_answer'],
    ['hookSpecificOutput as text', { hookSpecificOutput: 'deny' }, 'unknown_answer'],
    ['another input that is text', gate({ permissionDecision: 'allow', updatedInput: 'x' }), 'unknown_answer'],
    ['continue as text', { continue: 'false' }, 'unknown_answer'],
    ['two objects', '{"decision":"block"}{"decision":"block"}', 'broken_json'],
    ['JSON that was cut off', '{"decision":"blo', 'broken_json'],
  ])('takes %s for a failure', (_, output, code) => {
    expect(read(run(output))).toMatchObject({ code }); // M09, M04
  });

  const ALLOW = gate({ permissionDecision: 'allow' });
  const DENY = gate({ permissionDecision: 'deny', permissionDecisionReason: 'json' });
  it.each<[string, number | null, unknown, string, object]>([
    ['status 0 and nothing', 0, '', 'text', {}],
    ['status 0 and an allow', 0, ALLOW, 'text', { decision: 'allow' }],
    ['status 0 and a deny', 0, DENY, 'text', { decision: 'deny', reason: 'json' }],
    ['status 2', 2, '', 'blocked\n', { decision: 'deny', reason: 'blocked' }],
    ['status 2 without a word', 2, '', '', { decision: 'deny', reason: '' }],
    ['status 2 against an allow', 2, ALLOW, 'blocked', { decision: 'deny', reason: 'blocked' }],
    ['status 2 against another deny', 2, DENY, 'blocked', { decision: 'deny', reason: 'blocked' }],
    ['status 2 and text that is no JSON', 2, 'hello', 'blocked', { decision: 'deny', reason: 'blocked' }],
    ['status 1', 1, '', 'text', { code: 'exit_status' }],
    ['status 1 and a deny', 1, DENY, 'text', { decision: 'deny', reason: 'json' }],
    ['status 1 and an allow', 1, ALLOW, 'text', { decision: 'allow' }],
    ['status 1 and no opinion', 1, '{}', 'text', { code: 'exit_status' }],
    ['status 1 and text', 1, 'hello', 'text', { code: 'exit_status' }],
    ['status 3', 3, '', '', { code: 'exit_status' }],
    ['status 126', 126, '', '', { code: 'exit_status' }],
    ['status 127', 127, '', 'sh: not found', { code: 'exit_status' }],
    ['status 130', 130, '', '', { code: 'exit_status' }],
    ['a signal', null, DENY, 'text', { code: 'signal' }],
  ])('reads %s', (...[, status, output, complaint, answer]) => {
    expect(read(run(output, { status, complaint }))).toMatchObject(answer); // M07
    // However the runner names it, the status stays an answer.
    const failure = status === 0 ? undefined : status === null ? failed('signal') : failed('exit_status', `${status}`);
    expect(read(run(output, { status, complaint, failure }))).toMatchObject(answer);
  });

  it('reads no status of an endpoint as one of a command', () => {
    expect(read(run(DENY, { status: 500 }), 'http')).toMatchObject({ code: 'http_status' });
    expect(read(run(DENY, { status: null, failure: failed('timeout') }), 'http')).toMatchObject({ code: 'timeout' });
    expect(settings.onFailure).toBe('allow');
  });
});

describe('reading a settings answer after a tool', () => {
  it.each<[unknown, Partial<RawRun>, HookAnswer]>([
    [{ decision: 'block', reason: 'lint' }, {}, { decision: 'deny', reason: 'lint' }],
    [
      { hookSpecificOutput: { hookEventName: 'PostToolUse', additionalContext: 'c', permissionDecision: 'deny' } },
      {},
      { additionalContext: 'c' },
    ],
    ['', { status: 2, complaint: 'lint\n' }, { decision: 'deny', reason: 'lint' }],
    ['{}', {}, {}],
  ])('reads %j with %j', (output, more, answer) => {
    expect(settings.readAnswer(after, run(output, more), 'command')).toEqual(answer);
  });
});

describe('wording a settings verdict', () => {
  const specific = (more: object): object => ({ hookSpecificOutput: { hookEventName: 'PreToolUse', ...more } });
  it.each<[string, Partial<Verdict>, object]>([
    ['no opinion', {}, {}],
    [
      'an approval',
      { answer: { decision: 'allow', reason: 'ok' } },
      specific({ permissionDecision: 'allow', permissionDecisionReason: 'ok' }),
    ],
    [
      'a denial',
      { decision: 'deny', answer: { decision: 'deny', reason: 'no' } },
      specific({ permissionDecision: 'deny', permissionDecisionReason: 'no' }),
    ],
    [
      'a denial that no hook spoke',
      { decision: 'deny', answer: { reason: 'broken' } },
      specific({ permissionDecision: 'deny', permissionDecisionReason: 'broken' }),
    ],
    [
      'a review',
      { decision: 'review', answer: { decision: 'review', reason: 'big' } },
      specific({ permissionDecision: 'ask', permissionDecisionReason: 'big' }),
    ],
    ['a question', { decision: 'ask', answer: { decision: 'ask' } }, specific({ permissionDecision: 'ask' })],
    [
      'another input, whole',
      {
        answer: { decision: 'allow', overwrite: { command: 'npm ci', timeout: undefined } },
        changedKeys: ['command', 'timeout'],
      },
      specific({ permissionDecision: 'allow', updatedInput: { command: 'npm ci' } }),
    ],
    [
      'another input that keeps the rest',
      { answer: { overwrite: { command: 'npm ci' } } },
      specific({ updatedInput: { command: 'npm ci', timeout: 5 } }),
    ],
    [
      'no other input beside a denial',
      { decision: 'deny', answer: { decision: 'deny', overwrite: { command: 'x' } } },
      specific({ permissionDecision: 'deny' }),
    ],
    ['context', { answer: { additionalContext: 'c' } }, specific({ additionalContext: 'c' })],
    [
      'the end of the agent',
      { answer: { stopAgent: 'enough', systemMessage: 'bye' } },
      { continue: false, stopReason: 'enough', systemMessage: 'bye' },
    ],
    ['the end of the agent without a reason', { answer: { stopAgent: '' } }, { continue: false }],
  ])('says %s', (_, given, json) => {
    expect(settings.word(before, verdict(given))).toStrictEqual(json);
  });

  it.each<[Partial<Verdict>, object]>([
    [{}, {}],
    [{ answer: { decision: 'deny', reason: 'lint' } }, { decision: 'block', reason: 'lint' }],
    [{ answer: { additionalContext: 'c' } }, { hookSpecificOutput: { hookEventName: 'PostToolUse', additionalContext: 'c' } }],
    [
      { effect: 'unknown', alert: 'ops' },
      { effect: 'unknown', alert: 'ops' },
    ],
  ])('says after a tool %j', (given, json) => {
    expect(settings.word(after, verdict(given))).toStrictEqual(json);
  });
});

describe('the surroundings of a settings command', () => {
  const [first] = readFile('settings', rule(COMMAND)).rules;
  it.each([
    ['/session', '/session'],
    ['relative', '/w'],
    [undefined, '/w'],
    [5, '/w'],
  ])('runs it for cwd %j in %s', (cwd, folder) => {
    const { payload } = before;
    expect(settings.directory(first!, { ...before, payload: { ...payload, cwd } }, 'x', '/w')).toBe(folder);
  });

  it('names the project, inherits the rest, and hands on other arguments without what was taken away', () => {
    expect(settings.variables(before, '/w')).toEqual({ CLAUDE_PROJECT_DIR: '/w' });
    expect(settings.environment).toBe('inherited');
    expect(settings.withArguments(settingsPayload('PreToolUse'), { command: 'x', timeout: undefined })).toStrictEqual({
      ...settingsPayload('PreToolUse'),
      tool_input: { command: 'x' },
    });
  });
});
