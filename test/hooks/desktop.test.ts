import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { desktop } from '../../src/hooks/desktop.ts';
import { failed } from '../../src/hooks/failures.ts';
import type { EventName, HookAnswer, Verdict } from '../../src/hooks/words.ts';
import { event, readFile, run, verdict } from './examples.ts';

const COMMAND = { command: './scripts/x.sh' };

describe('reading a desktop hooks file', () => {
  it('reads grouped tool events and flat loop events, with the type left out or not', () => {
    const { rules, problems } = readFile('desktop', {
      'my-linter': {
        PostToolUse: [{ matcher: 'run_command', hooks: [{ type: 'command', command: './scripts/lint.sh', timeout: 10 }] }],
      },
      'safety-gate': { enabled: false, on_failure: 'review', PreToolUse: [{ matcher: 'run_command', hooks: [COMMAND] }] },
      reminder: {
        PreInvocation: [COMMAND, { type: 'command', command: 'true' }],
        Stop: [COMMAND],
        PostInvocation: [],
        SessionStart: [COMMAND],
      },
    });
    expect(problems).toEqual([]);
    expect(
      rules.map((rule) => [rule.event, rule.enabled, rule.matcher.source, rule.handlers.map(({ id }) => id).join()]),
    ).toEqual([
      ['PostToolUse', true, 'run_command', 'my-linter/PostToolUse[0].hooks[0]'],
      ['PreToolUse', false, 'run_command', 'safety-gate/PreToolUse[0].hooks[0]'],
      ['SessionStart', true, undefined, 'reminder/SessionStart[0]'],
      ['PreInvocation', true, undefined, 'reminder/PreInvocation[0]'],
      ['PreInvocation', true, undefined, 'reminder/PreInvocation[1]'],
      ['Stop', true, undefined, 'reminder/Stop[0]'],
    ]);
    expect(rules[1]?.handlers[0]).toEqual({
      id: 'safety-gate/PreToolUse[0].hooks[0]',
      kind: 'command',
      command: './scripts/x.sh',
      args: undefined,
      shell: 'sh',
      timeoutMs: 30_000,
      onFailure: 'review',
      requireDecision: false,
    });
  });

  it('reads a loop event with "hooks" around its handlers, as one of the texts has it, and says so', () => {
    const { rules, errors, warnings } = readFile('desktop', { g: { PreInvocation: [{ matcher: '[', hooks: [COMMAND] }] } });
    expect([errors, warnings]).toEqual([[], [expect.stringMatching(/^g\.PreInvocation\[0\]: .*without "hooks" around them/)]]);
    expect(rules[0]?.handlers[0]?.id).toBe('g/PreInvocation[0].hooks[0]');
    expect(rules[0]?.matcher.problem).toBeUndefined();
  });

  it.each([
    ['a flat tool event', { g: { PreToolUse: [COMMAND] } }, 'g.PreToolUse[0]', /a handler where a rule is wanted/, 'M13'],
    [
      'an HTTP handler',
      { g: { Stop: [{ type: 'http', url: 'https://h.example' }] } },
      'g.Stop[0].type',
      /must be "command"; it is "http"/,
      'M13',
    ],
    ['an unknown event', { g: { PreToolUse: [], BeforeTool: [] } }, 'g.BeforeTool', /did you mean "PreToolUse"/, 'M13'],
    [
      'an event of another dialect',
      { g: { Stop: [], pre_tool_execution: [] } },
      'g.pre_tool_execution',
      /did you mean "PreToolUse"/,
      'M13',
    ],
    ['a key of the settings dialect', { g: { Stop: [{ command: 'x', async: true }] } }, 'g.Stop[0].async', /unknown key/, 'M13'],
    ['a timeout as text', { g: { Stop: [{ command: 'x', timeout: '5' }] } }, 'g.Stop[0].timeout', /it is text/, 'M13'],
    ['a matcher of a flat entry', { g: { Stop: [{ command: 'x', matcher: '*' }] } }, 'g.Stop[0].matcher', /unknown key/, 'M13'],
  ] as const)('finds %s', (...[, file, path, message, fault]) => {
    const { errors } = readFile('desktop', file);
    expect(errors, fault).toEqual([expect.stringMatching(message)]);
    expect(errors[0]?.startsWith(`${path}: `)).toBe(true);
  });

  it.each([
    [{ g: { PreToolUse: [] } }, true],
    [{ g: { SessionStart: [] } }, true],
    [{ hooks: { PreToolUse: [] } }, false],
    [{ env: { Stop: 'x' } }, false],
    [{ g: { pre_tool_execution: [] } }, false],
    [{}, false],
    ['x', false],
  ])('knows its own: %j', (value, owns) => {
    expect(desktop.owns(value)).toBe(owns);
  });
});

const read = (name: EventName, output: unknown, more = {}) =>
  desktop.readAnswer(event(name, { dialect: 'desktop' }), run(output, more), 'command');

describe('reading a desktop answer before a tool', () => {
  it.each<[unknown, HookAnswer]>([
    [{ decision: 'allow' }, { decision: 'allow' }],
    [{ decision: 'auto_approve' }, { decision: 'auto_approve' }],
    [
      { decision: 'deny', reason: 'no' },
      { decision: 'deny', reason: 'no' },
    ],
    [{ decision: 'ask' }, { decision: 'ask' }],
    [{ decision: 'force_ask' }, { decision: 'force_ask' }],
    [{ decision: 'deny_unless_prior_grant' }, { decision: 'deny_unless_prior_grant' }],
    [
      { decision: 'ask', reason: 'why', permissionOverrides: ['command(npm test)'] },
      { decision: 'ask', reason: 'why', permissionOverrides: ['command(npm test)'] },
    ],
    [
      { decision: 'allow', overwrite: { CommandLine: 'npm ci' } },
      { decision: 'allow', overwrite: { CommandLine: 'npm ci' } },
    ],
    [{ decision: 'allow', overwrite: null, permissionOverrides: null }, { decision: 'allow' }],
    [{ decision: 'deny', overwrite: 'x', permissionOverrides: 5, reason: [] }, { decision: 'deny' }],
    [
      { decision: 'deny', reasonCode: 'a', publicMessage: 'b' },
      { decision: 'deny', reasonCode: 'a', publicMessage: 'b' },
    ],
    [
      { decision: 'deny', reason_code: 'a', public_message: 'b' },
      { decision: 'deny', reasonCode: 'a', publicMessage: 'b' },
    ],
    [
      { allowTool: false, denyReason: 'old' },
      { decision: 'deny', reason: 'old' },
    ],
    [{ allowTool: false }, { decision: 'deny' }],
    [{ allowTool: true }, { decision: 'allow' }],
    [{ allowTool: true, decision: 'deny' }, { decision: 'deny' }],
    ['{}', { decision: 'deny', reason: '' }],
    ['', {}],
    ['\n', {}],
  ])('reads %j', (output, answer) => {
    expect(read('PreToolUse', output)).toEqual(answer); // M09
  });

  it.each([
    ['plain text', 'hello', 'not_json'],
    ['null', 'null', 'unknown_answer'],
    ['a list', '[]', 'unknown_answer'],
    ['a blank behind the value', { decision: 'deny ' }, 'unknown_answer'],
    ['a capital letter', { decision: 'Allow' }, 'unknown_answer'],
    ['the old word of another dialect', { decision: 'block' }, 'unknown_answer'],
    ['a reason alone', { reason: 'x' }, 'unknown_answer'],
    ['arguments alone', { overwrite: {} }, 'unknown_answer'],
    ['allowTool as text', { allowTool: 'false' }, 'unknown_answer'],
    ['arguments that are a list', { decision: 'allow', overwrite: ['x'] }, 'unknown_answer'],
    ['overrides that are text', { decision: 'allow', permissionOverrides: 'x' }, 'unknown_answer'],
    ['overrides that hold a number', { decision: 'ask', permissionOverrides: ['x', 5] }, 'unknown_answer'],
    ['two objects', '{"decision":"allow"}\n{"decision":"allow"}', 'broken_json'],
    ['a banner before the JSON', 'hi\n{"decision":"allow"}', 'not_json'],
    ['JSON that was cut off', '{"decision":"allow","reason":"', 'broken_json'],
  ])('takes %s for a failure', (_, output, code) => {
    expect(read('PreToolUse', output)).toMatchObject({ code }); // M09, M04
  });

  it.each([1, 2, 3, 126, 127, 130])('takes status %i for a failure, whatever was printed', (status) => {
    expect(read('PreToolUse', { decision: 'allow' }, { status })).toMatchObject({ code: 'exit_status' }); // M07
  });

  it('takes a signal and what the runner found for failures, and lets each deny', () => {
    expect(read('PreToolUse', { decision: 'allow' }, { status: null })).toMatchObject({ code: 'signal' });
    expect(read('PreToolUse', '', { failure: failed('timeout'), status: null })).toMatchObject({ code: 'timeout' });
    expect(desktop.onFailure).toBe('deny');
  });
});

describe('reading a desktop answer elsewhere', () => {
  const step = { ephemeralMessage: 'Remember to lint' };
  it.each<[EventName, unknown, HookAnswer]>([
    ['PostToolUse', { decision: 'deny' }, {}],
    ['PostToolUse', 'lint ok', {}],
    [
      'SessionStart',
      { injectSteps: [{ systemMessage: { systemMessage: 'ready', metadata: { source: 'x' } } }] },
      { injectSteps: [{ systemMessage: { systemMessage: 'ready', metadata: { source: 'x' } } }] },
    ],
    ['PreInvocation', { injectSteps: [step] }, { injectSteps: [step] }],
    ['PreInvocation', { injectSteps: [], terminationBehavior: 'terminate' }, { injectSteps: [] }],
    ['PreInvocation', '{}', {}],
    ['PreInvocation', '', {}],
    [
      'PostInvocation',
      { injectSteps: [step], terminationBehavior: 'terminate' },
      { injectSteps: [step], terminationBehavior: 'terminate' },
    ],
    ['PostInvocation', { terminationBehavior: 'force_continue' }, { terminationBehavior: 'force_continue' }],
    ['PostInvocation', { injectSteps: null, terminationBehavior: '' }, { terminationBehavior: '' }],
    ['Stop', { decision: 'continue', reason: 'Not done yet' }, { continueLoop: true, reason: 'Not done yet' }],
    ['Stop', { decision: 'stop', reason: 'done' }, { continueLoop: false, reason: 'done' }],
    ['Stop', { decision: 'deny' }, { continueLoop: false }],
    ['Stop', { decision: '' }, { continueLoop: false }],
    ['Stop', '{}', {}],
    ['Stop', '', {}],
  ])('reads for %s %j', (name, output, answer) => {
    expect(read(name, output)).toEqual(answer);
  });

  it.each<[EventName, unknown, string]>([
    ['PreInvocation', 'hello', 'not_json'],
    ['PostInvocation', { terminationBehavior: 'stop' }, 'unknown_answer'],
    ['PostInvocation', { terminationBehavior: 'terminate ' }, 'unknown_answer'],
    ['PostInvocation', { terminationBehavior: true }, 'unknown_answer'],
    ['Stop', { decision: 'continue ' }, 'unknown_answer'],
    ['Stop', { decision: 'Continue' }, 'unknown_answer'],
    ['Stop', 'continue', 'not_json'],
  ])('takes for %s %j for a failure', (name, output, code) => {
    expect(read(name, output)).toMatchObject({ code });
  });

  it.each([
    ['no list', { ephemeralMessage: 'x' }],
    ['a step that is text', ['x']],
    ['a step that is null', [null]],
    ['a step that holds nothing', [{}]],
    ['a step of two kinds', [{ userMessage: 'a', ephemeralMessage: 'b' }]],
    ['a kind with something beside it', [{ userMessage: 'a', more: 1 }]],
    ['an unknown kind', [{ assistantMessage: 'a' }]],
    ['a kind that objects have anyway', [{ constructor: 'a' }]],
    ['a user message that is an object', [{ userMessage: { text: 'a' } }]],
    ['an ephemeral message that is a number', [{ ephemeralMessage: 5 }]],
    ['a system message that is text', [{ systemMessage: 'a' }]],
    ['a system message without its text', [{ systemMessage: { text: 'a' } }]],
    ['a tool call that is text', [{ toolCall: 'run_command' }]],
    ['a tool call without a name', [{ toolCall: { args: {} } }]],
    ['arguments that are a list', [{ toolCall: { name: 'x', args: [] } }]],
    ['a wrong step behind a right one', [{ userMessage: 'a' }, { userMessage: 5 }]],
  ])('takes steps for a failure: %s', (_, injectSteps) => {
    expect(read('PreInvocation', { injectSteps })).toMatchObject({ code: 'unknown_answer' });
  });

  it('takes each kind of step', () => {
    const injectSteps = [
      { toolCall: { name: 'x', args: { a: 1 } } },
      { toolCall: { name: 'x' } },
      { userMessage: 'a' },
      { ephemeralMessage: '' },
      { systemMessage: { systemMessage: 'a' } },
    ];
    expect(read('SessionStart', { injectSteps })).toEqual({ injectSteps });
  });
});

describe('wording a desktop verdict', () => {
  it.each<[EventName, Partial<Verdict>, object]>([
    ['PreToolUse', {}, { decision: 'allow' }],
    ['PreToolUse', { decision: 'auto_approve' }, { decision: 'auto_approve' }],
    ['PreToolUse', { decision: 'deny', answer: { decision: 'deny', reason: '' } }, { decision: 'deny', reason: '' }],
    ['PreToolUse', { decision: 'deny_unless_prior_grant' }, { decision: 'deny_unless_prior_grant' }],
    [
      'PreToolUse',
      { decision: 'review', answer: { reason: 'big', reasonCode: 'amount', publicMessage: 'Wait.' } },
      { decision: 'force_ask', reason: 'big', reasonCode: 'amount', publicMessage: 'Wait.' },
    ],
    [
      'PreToolUse',
      {
        decision: 'ask',
        changedKeys: ['a'],
        answer: { reason: 'why', overwrite: { a: 1 }, permissionOverrides: ['command(npm test)'] },
      },
      { decision: 'ask', reason: 'why', overwrite: { a: 1 }, changedKeys: ['a'], permissionOverrides: ['command(npm test)'] },
    ],
    [
      'PreToolUse',
      { decision: 'deny', changedKeys: ['a'], answer: { overwrite: { a: 1 }, permissionOverrides: ['x'] } },
      { decision: 'deny' },
    ],
    ['PostToolUse', { decision: 'deny' }, {}],
    ['PostToolUse', { effect: 'unknown', alert: 'ops' }, { effect: 'unknown', alert: 'ops' }],
    ['SessionStart', {}, {}],
    ['SessionStart', { answer: { injectSteps: [{ userMessage: 'a' }] } }, { injectSteps: [{ userMessage: 'a' }] }],
    ['PreInvocation', { answer: { injectSteps: [], terminationBehavior: 'terminate' } }, { injectSteps: [] }],
    [
      'PostInvocation',
      { answer: { injectSteps: [], terminationBehavior: 'terminate' } },
      { injectSteps: [], terminationBehavior: 'terminate' },
    ],
    ['Stop', {}, { decision: 'stop' }],
    ['Stop', { answer: { continueLoop: true, reason: 'Not done yet' } }, { decision: 'continue', reason: 'Not done yet' }],
    ['Stop', { answer: { continueLoop: false, reason: 'enough' } }, { decision: 'stop', reason: 'enough' }],
  ])('says for %s %j', (name, given, json) => {
    expect(desktop.word(event(name, { dialect: 'desktop' }), verdict(given))).toEqual(json);
  });
});

describe('where a desktop command runs', () => {
  let root = '';
  beforeAll(() => {
    root = mkdtempSync(join(tmpdir(), 'desktop-'));
    for (const folder of ['.agents/scripts', 'scripts', 'sub/scripts', 'plugin'])
      mkdirSync(join(root, folder), { recursive: true });
    for (const file of ['.agents/scripts/here.sh', 'scripts/root.sh', 'sub/scripts/sub.sh', 'scripts/here.sh']) {
      writeFileSync(join(root, file), '#!/bin/sh\n');
      chmodSync(join(root, file), 0o755);
    }
  });
  afterAll(() => rmSync(root, { recursive: true, force: true }));

  it.each([
    ['a path beside the file', './scripts/here.sh', '.agents'],
    ['a path that only the root has', './scripts/root.sh', '.'],
    ['the same without a dot', 'scripts/root.sh --now', '.'],
    ['the same in quotes', '"./scripts/root.sh" --now', '.'],
    ['the script of an interpreter', 'python3 ./scripts/root.sh', '.'],
    ['a path that only the workspace has', './scripts/sub.sh', 'sub'],
    ['a path that nothing has', './scripts/none.sh', '.agents'],
    ['an absolute path', '/bin/true ./scripts/root.sh', '.agents'],
    ['no path', 'true', '.agents'],
    ['a path in a variable', '"$HOME"/scripts/root.sh', '.agents'],
  ])('for %s', (_, command, folder) => {
    const [rule] = readFile('desktop', { g: { Stop: [COMMAND] } }, join(root, '.agents/hooks.json')).rules;
    expect(desktop.directory(rule!, event('Stop'), command, join(root, 'sub'))).toBe(join(root, folder));
  });

  it('for a plugin in its own folder, else in the workspace', () => {
    const [rule] = readFile('desktop', { g: { Stop: [COMMAND] } }, join(root, 'plugin/hooks.json')).rules;
    expect(desktop.directory(rule!, event('Stop'), './scripts/none.sh', root)).toBe(join(root, 'plugin'));
    expect(desktop.directory(rule!, event('Stop'), './scripts/root.sh', root)).toBe(root);
  });
});
