import { describe, expect, it } from 'vitest';
import { failed } from '../../src/hooks/failures.ts';
import { managed } from '../../src/hooks/managed.ts';
import type { HookAnswer, RawRun, Verdict } from '../../src/hooks/words.ts';
import { event, readFile, run, verdict } from './examples.ts';

const GATE = {
  'security-gate': {
    enabled: true,
    pre_tool_execution: [
      { matcher: 'code_execution', hooks: [{ type: 'command', command: 'python3 /.agents/hooks-scripts/gate.py', timeout: 10 }] },
    ],
  },
  'audit-logging': {
    on_failure: 'review',
    post_tool_execution: [
      {
        matcher: 'view_file|write_to_file',
        hooks: [
          {
            type: 'http',
            url: 'https://telemetry.example.com/api/v1/agent-events',
            headers: { 'X-Event-Source': 'agent-sandbox' },
          },
          { type: 'command', command: 'true', on_failure: 'allow', require_decision: true },
        ],
      },
      { on_failure: 'deny', hooks: [{ type: 'http', url: 'https://h.example/', allowed_env_vars: ['TOKEN'] }] },
    ],
  },
};

describe('reading a managed hooks file', () => {
  it('reads groups, rules and both kinds of handler', () => {
    const { rules, problems } = readFile('managed', GATE);
    expect(problems).toEqual([]);
    expect(rules.map(({ group, event: name, enabled, matcher }) => [group, name, enabled, matcher.source])).toEqual([
      ['security-gate', 'pre_tool_execution', true, 'code_execution'],
      ['audit-logging', 'post_tool_execution', true, 'view_file|write_to_file'],
      ['audit-logging', 'post_tool_execution', true, undefined],
    ]);
    expect(rules.flatMap(({ handlers }) => handlers)).toEqual([
      {
        id: 'security-gate/pre_tool_execution[0].hooks[0]',
        kind: 'command',
        command: 'python3 /.agents/hooks-scripts/gate.py',
        args: undefined,
        shell: 'sh',
        timeoutMs: 10_000,
        onFailure: undefined,
        requireDecision: false,
      },
      {
        id: 'audit-logging/post_tool_execution[0].hooks[0]',
        kind: 'http',
        url: 'https://telemetry.example.com/api/v1/agent-events',
        headers: [['X-Event-Source', 'agent-sandbox']],
        allowedVariables: [],
        timeoutMs: 30_000,
        onFailure: 'review',
        requireDecision: false,
      },
      expect.objectContaining({ onFailure: 'allow', requireDecision: true }),
      expect.objectContaining({ onFailure: 'deny', allowedVariables: ['TOKEN'] }),
    ]);
  });

  const rule = (hook: object, more: object = {}): object => ({
    g: { pre_tool_execution: [{ matcher: '*', hooks: [hook], ...more }] },
  });
  const command = (more: object): object => rule({ type: 'command', command: 'true', ...more });
  const http = (more: object): object => rule({ type: 'http', url: 'https://h.example/', ...more });
  const HOOK = 'g.pre_tool_execution[0].hooks[0]';

  it.each([
    [
      'an unknown event',
      { g: { pre_tool_execution: [], pre_tool_use: [] } },
      'g.pre_tool_use',
      /did you mean "pre_tool_execution"/,
      'M13',
    ],
    [
      'an event of another dialect',
      { g: { pre_tool_execution: [], PostToolUse: [] } },
      'g.PostToolUse',
      /did you mean "post_tool_execution"/,
      'M13',
    ],
    [
      'a type in the wrong case',
      rule({ type: 'Command', command: 'x' }),
      `${HOOK}.type`,
      /"command" or "http"; it is "Command"; did you mean "command"/,
      'M13',
    ],
    ['a handler without a type', rule({ command: 'x' }), `${HOOK}.type`, /must be "command" or "http"; it is missing/, 'M13'],
    ['an unknown key', command({ shell_line: 'x' }), `${HOOK}.shell_line`, /unknown key.*allowed are type, timeout/, 'M13'],
    ['a key of the other kind', command({ url: 'https://h.example' }), `${HOOK}.url`, /unknown key/, 'M13'],
    [
      'a flat entry',
      { g: { pre_tool_execution: [{ type: 'command', command: 'x' }] } },
      'g.pre_tool_execution[0]',
      /a handler where a rule is wanted; write \{ "matcher"/,
      'M13',
    ],
    ['a timeout as text', command({ timeout: '30' }), `${HOOK}.timeout`, /whole number of seconds.*it is text/, 'M13'],
    ['a timeout of 0', command({ timeout: 0 }), `${HOOK}.timeout`, /more than 0/, ''],
    ['a timeout below 0', command({ timeout: -1 }), `${HOOK}.timeout`, /more than 0/, ''],
    ['a fraction of a second', command({ timeout: 1.5 }), `${HOOK}.timeout`, /whole number/, ''],
    ['a timeout beyond a day', command({ timeout: 86_401 }), `${HOOK}.timeout`, /at most 86400/, ''],
    ['a timeout that is null', command({ timeout: null }), `${HOOK}.timeout`, /it is null/, ''],
    ['a timeout under another name', command({ timeoutMs: 5 }), `${HOOK}.timeoutMs`, /did you mean "timeout"/, 'M13'],
    ['a group that is a list', { g: [], h: { pre_tool_execution: [] } }, 'g', /must be an object.*it is a list/, 'M13'],
    [
      'an event that is no list',
      { g: { pre_tool_execution: {} } },
      'g.pre_tool_execution',
      /must be a list.*it is an object/,
      'M13',
    ],
    ['a rule that is text', { g: { pre_tool_execution: ['x'] } }, 'g.pre_tool_execution[0]', /must be an object/, 'M13'],
    [
      'a rule without hooks',
      { g: { pre_tool_execution: [{ matcher: '*' }] } },
      'g.pre_tool_execution[0].hooks',
      /must be a list.*it is missing/,
      'M13',
    ],
    [
      'an unknown key of a rule',
      rule({ type: 'command', command: 'x' }, { matchers: '*' }),
      'g.pre_tool_execution[0].matchers',
      /did you mean "matcher"/,
      'M13',
    ],
    [
      'a matcher that is no text',
      rule({ type: 'command', command: 'x' }, { matcher: ['x'] }),
      'g.pre_tool_execution[0].matcher',
      /must be text/,
      'M13',
    ],
    ['enabled as text', { g: { enabled: 'false', pre_tool_execution: [] } }, 'g.enabled', /true or false/, 'M13'],
    [
      'an unknown on_failure of a group',
      { g: { on_failure: 'block', pre_tool_execution: [] } },
      'g.on_failure',
      /"allow", "deny" or "review"/,
      '',
    ],
    [
      'an unknown on_failure of a rule',
      rule({ type: 'command', command: 'x' }, { on_failure: 'Deny' }),
      'g.pre_tool_execution[0].on_failure',
      /did you mean "deny"/,
      '',
    ],
    ['an unknown on_failure of a handler', command({ on_failure: true }), `${HOOK}.on_failure`, /it is true/, ''],
    ['require_decision as text', command({ require_decision: 'yes' }), `${HOOK}.require_decision`, /true or false/, ''],
    ['an empty command', rule({ type: 'command', command: ' ' }), `${HOOK}.command`, /must not be empty/, ''],
    ['a command with NUL', rule({ type: 'command', command: 'a\0b' }), `${HOOK}.command`, /NUL/, 'M18'],
    ['a missing command', rule({ type: 'command' }), `${HOOK}.command`, /it is missing/, ''],
    ['arguments, which this dialect lacks', command({ args: ['x'] }), `${HOOK}.args`, /unknown key/, ''],
    ['a relative URL', rule({ type: 'http', url: '/events' }), `${HOOK}.url`, /absolute URL/, ''],
    ['a URL of another scheme', rule({ type: 'http', url: 'file:///etc/passwd' }), `${HOOK}.url`, /https:/, ''],
    ['a variable in a URL', rule({ type: 'http', url: 'https://h.example/$TOKEN' }), `${HOOK}.url`, /takes no variables/, 'M16'],
    [
      'a password in a URL',
      rule({ type: 'http', url: 'https://u:pw-s3cret@h.example/' }),
      `${HOOK}.url`,
      /user name or password/,
      '',
    ],
    ['headers in a list', http({ headers: [] }), `${HOOK}.headers`, /must be an object/, ''],
    ['a header that is no text', http({ headers: { 'X-A': 5 } }), `${HOOK}.headers.X-A`, /it is a number/, ''],
    ['a header with a blank in its name', http({ headers: { 'X A': 'v' } }), `${HOOK}.headers["X A"]`, /name of a header/, ''],
    ['a line break in a header', http({ headers: { 'X-A': 'pw-s3cret\r\nX-B: v' } }), `${HOOK}.headers.X-A`, /line break/, 'M16'],
    ['variables that are no list', http({ allowed_env_vars: 'TOKEN' }), `${HOOK}.allowed_env_vars`, /must be a list/, ''],
    [
      'a variable with its dollar sign',
      http({ allowed_env_vars: ['$TOKEN'] }),
      `${HOOK}.allowed_env_vars[0]`,
      /without "\$"/,
      '',
    ],
    [
      'the settings spelling of them',
      http({ allowedEnvVars: ['TOKEN'] }),
      `${HOOK}.allowedEnvVars`,
      /did you mean "allowed_env_vars"/,
      'M13',
    ],
  ] as const)('finds %s', (...[, file, path, message, fault]) => {
    const { errors } = readFile('managed', file);
    expect(errors, fault).toEqual([expect.stringMatching(message)]);
    expect(errors[0]?.startsWith(`${path}: `)).toBe(true);
    expect(errors[0]).not.toContain('s3cret');
  });

  it('finds everything that is wrong at once', () => {
    const { errors } = readFile('managed', {
      a: { pre_tool_execution: [{ hooks: [{ type: 'x' }, { type: 'command', command: 1, foo: 2 }] }] },
      b: 3,
    });
    expect(errors).toHaveLength(4);
  });

  it.each([
    [
      'a matcher that does not compile',
      rule({ type: 'command', command: 'x' }, { matcher: '*_file' }),
      /matches no tool: "\*_file" is not an RE2/,
    ],
    ['a matcher with arguments', rule({ type: 'command', command: 'x' }, { matcher: 'Bash(git *)' }), /name of the tool alone/],
    ['a timeout that looks like milliseconds', command({ timeout: 30_000 }), /are 500 minutes; are milliseconds meant/],
    ['a URL without TLS', rule({ type: 'http', url: 'http://h.example/' }), /not_https/],
  ])('warns of %s and keeps the rule', (_, file, message) => {
    const { errors, warnings, rules } = readFile('managed', file);
    expect([errors, warnings]).toEqual([[], [expect.stringMatching(message)]]);
    expect(rules[0]?.handlers).toHaveLength(1);
  });

  it('keeps the rules of a group that is off, as off', () => {
    expect(readFile('managed', { g: { enabled: false, pre_tool_execution: [{ hooks: [] }] } }).rules[0]?.enabled).toBe(false);
  });
});

describe('a managed file', () => {
  it.each([
    [{ g: { pre_tool_execution: [] } }, true],
    [{ hooks: { post_tool_execution: [] } }, true],
    [{ g: { PreToolUse: [] } }, false],
    [{ pre_tool_execution: [] }, false],
    [{}, false],
    [[], false],
    [null, false],
  ])('is told by its events: %j', (value, owns) => {
    expect(managed.owns(value)).toBe(owns);
  });
});

describe('reading a managed answer before a tool', () => {
  const before = event('pre_tool_execution');
  const read = (raw: RawRun, kind: 'command' | 'http' = 'command') => managed.readAnswer(before, raw, kind);

  it.each<[string, unknown, HookAnswer]>([
    ['an approval', { decision: 'allow' }, { decision: 'allow' }],
    ['a denial', { decision: 'deny', reason: 'no' }, { decision: 'deny', reason: 'no' }],
    ['a denial without a reason', { decision: 'deny' }, { decision: 'deny' }],
    ['a denial with a reason that is null', { decision: 'deny', reason: null }, { decision: 'deny' }],
    ['a review, which is ours', { decision: 'require_review', reason: 'big' }, { decision: 'review', reason: 'big' }],
    [
      'codes and what else a policy says',
      { decision: 'deny', reason_code: 'tenant_mismatch', public_message: 'Not yours.', audit: { actor: 'x' } },
      { decision: 'deny', reasonCode: 'tenant_mismatch', publicMessage: 'Not yours.' },
    ],
    ['nothing', '', {}],
    ['blanks', ' \n\t ', {}],
    ['JSON after a byte order mark', '\uFEFF{"decision":"deny"}\n', { decision: 'deny' }],
  ])('takes %s', (_, output, answer) => {
    expect(read(run(output))).toEqual(answer);
    expect(read(run(output, { status: 204 }), 'http')).toEqual(answer);
  });

  it.each([
    ['plain text', 'hello', 'not_json', 'M09'],
    ['a script that prints its own name', 'undefined', 'not_json', 'M09'],
    ['null', 'null', 'unknown_answer', 'M09'],
    ['a list', '[]', 'unknown_answer', 'M09'],
    ['a number', '5', 'unknown_answer', 'M09'],
    ['text in quotes', '"deny"', 'unknown_answer', 'M09'],
    ['an empty object', '{}', 'unknown_answer', 'M09'],
    ['unknown JSON', '{"x":1}', 'unknown_answer', 'M09'],
    ['a blank behind the value', '{"decision":"deny "}', 'unknown_answer', 'M09'],
    ['a capital letter', '{"decision":"Deny"}', 'unknown_answer', 'M09'],
    ['a value of another dialect', '{"decision":"block"}', 'unknown_answer', 'M09'],
    ['a value that objects have anyway', '{"decision":"constructor"}', 'unknown_answer', 'M09'],
    ['a value that is no text', '{"decision":true}', 'unknown_answer', 'M09'],
    ['asking, which it does not know', '{"decision":"ask"}', 'unknown_answer', 'M09'],
    ['two objects', '{"decision":"allow"}\n{"decision":"deny"}', 'broken_json', 'M09'],
    ['a banner before the JSON', 'Welcome!\n{"decision":"deny"}', 'not_json', 'M09'],
    ['a banner in brackets before the JSON', '[profile] loaded\n{"decision":"deny"}', 'broken_json', 'M09'],
    ['JSON that was cut off', '{"decision":"deny","reason":"aaaaa', 'broken_json', 'M04'],
    ['a list that was cut off', '[{"decision":"deny"}', 'broken_json', 'M04'],
    ['a nesting without end', `{"decision":"deny","x":${'['.repeat(9999)}${']'.repeat(9999)}}`, 'unknown_answer', ''],
  ])('takes %s for a failure', (_, output, code, fault) => {
    expect(read(run(output)), fault).toMatchObject({ code });
    expect(read(run(output, { status: 200 }), 'http'), fault).toMatchObject({ code });
  });

  it.each([
    ['Welcome!\n{"decision":"deny"}', /text stands before the JSON/],
    ['{"decision":"allow"}{"decision":"deny"}', /something follows after the end/],
    ['{"decision":"de', /closing double quote is missing \(line 1, column 13\)/],
    ['{"decision":"deny "}', /blanks and capital letters count/],
    ['ok s3cret', /everything else to stderr/],
  ])('says what is wrong with %s and repeats none of it', (output, message) => {
    const failure = read(run(output));
    expect(failure).toMatchObject({ message: expect.stringMatching(message) as string });
    expect(JSON.stringify(failure)).not.toContain('s3cret');
  });

  it.each([
    ['status 1', { status: 1 }, 'exit_status'],
    ['status 2, which means nothing here', { status: 2, complaint: 'no' }, 'exit_status'],
    ['status 127', { status: 127 }, 'exit_status'],
    ['a signal', { status: null }, 'signal'],
    ['a timeout', { status: null, failure: failed('timeout') }, 'timeout'],
    ['what the runner found', { status: 3, failure: failed('exit_status', '3') }, 'exit_status'],
  ] as const)('lets %s beat a deny that was printed', (_, more, code) => {
    expect(read(run({ decision: 'deny' }, more))).toMatchObject({ code }); // M07
  });

  it.each([
    [199, 'http_status'],
    [302, 'http_status'],
    [404, 'http_status'],
    [500, 'http_status'],
  ])('takes HTTP status %i for a failure', (status, code) => {
    expect(read(run({ decision: 'deny' }, { status }), 'http')).toMatchObject({ code });
  });
});

describe('reading a managed answer after a tool', () => {
  it.each(['', '{}', 'formatted 3 files', '{"decision":"deny"}', '{'])('takes any output for nothing: %j', (output) => {
    expect(managed.readAnswer(event('post_tool_execution'), run(output), 'command')).toEqual({});
  });

  it('still sees that it failed', () => {
    expect(managed.readAnswer(event('post_tool_execution'), run('{}', { status: 1 }), 'command')).toMatchObject({
      code: 'exit_status',
    });
  });
});

describe('wording a managed verdict', () => {
  it.each<[string, Partial<Verdict>, object]>([
    ['no opinion', {}, { decision: 'allow' }],
    ['an approval', { decision: 'allow', answer: { decision: 'allow', reason: 'fine' } }, { decision: 'allow' }],
    ['a denial', { decision: 'deny', answer: { decision: 'deny', reason: 'no' } }, { decision: 'deny', reason: 'no' }],
    [
      'a denial without a reason',
      { decision: 'deny' },
      { decision: 'deny', reason: 'a hook denied this call and gave no reason' },
    ],
    [
      'a denial with its code',
      { decision: 'deny', answer: { reason: 'no', reasonCode: 'tenant_mismatch', publicMessage: 'Not yours.' } },
      { decision: 'deny', reason: 'no', reason_code: 'tenant_mismatch', public_message: 'Not yours.' },
    ],
    [
      'a review',
      { decision: 'review', answer: { reason: 'big' } },
      { decision: 'deny', reason: 'big', reason_code: 'review_required' },
    ],
    [
      'a review with its own code',
      { decision: 'review', answer: { reason: 'big', reasonCode: 'amount' } },
      { decision: 'deny', reason: 'big', reason_code: 'amount' },
    ],
    [
      'a question',
      { decision: 'force_ask' },
      { decision: 'deny', reason: 'a human has to review this call before it runs', reason_code: 'review_required' },
    ],
  ])('says %s', (_, given, json) => {
    expect(managed.word(event('pre_tool_execution'), verdict(given))).toEqual(json);
  });

  it.each<[Partial<Verdict>, object]>([
    [{ decision: 'deny', answer: { decision: 'deny', reason: 'late' } }, {}],
    [{ effect: 'degraded' }, { effect: 'degraded' }],
    [
      { effect: 'unknown', alert: 'payments@example.com' },
      { effect: 'unknown', alert: 'payments@example.com' },
    ],
  ])('says after a tool only what is not known of it: %j', (given, json) => {
    expect(managed.word(event('post_tool_execution'), verdict(given))).toEqual(json);
  });
});

describe('where a managed command runs', () => {
  it.each([
    ['/.agents/hooks.json', '/'],
    ['/srv/agent/.agents/hooks.json', '/srv/space'],
    ['/home/agent/.gemini/config/hooks.json', '/srv/space'],
  ])('for %s in %s', (file, folder) => {
    const [rule] = readFile('managed', GATE, file).rules;
    expect(managed.directory(rule!, event('pre_tool_execution'), 'x', '/srv/space')).toBe(folder);
  });
});

describe('other arguments in a managed payload', () => {
  it('replaces them and keeps the rest', () => {
    const { payload } = event('pre_tool_execution');
    expect(managed.withArguments(payload, { code: 'ls' })).toEqual({
      tool_call: { name: 'code_execution', args: { code: 'ls' } },
      environment_id: 'env_xyz789',
    });
  });
});
