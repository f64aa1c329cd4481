// The examples that the guides of the managed agents and of the desktop agent give, each run as its text says, by the command as a runtime calls
// it. Of each hooks.json only the folder of the scripts and the endpoint's port are other than printed.
import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { runHooks } from '../../src/hooks/index.ts';
import { PAYLOADS } from '../hooks/examples.ts';
import { buildCli } from '../support/cli.ts';
import { openHookWorkspace } from '../support/hook-workspace.ts';
import type { HookWorkspace } from '../support/hook-workspace.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';

const SCRIPTS = '.agents/hooks-scripts';

/** The guide's scripts are Python. Nothing else of ours is. */
const hasPython = ((): boolean => {
  try {
    execFileSync('python3', ['-c', ''], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
})();

const GATE = `#!/usr/bin/env python3
import sys, json
data = json.load(sys.stdin)
cmd = str(data.get("tool_call", {}).get("args", {}))
if "rm -rf" in cmd:
    print(json.dumps({"decision": "deny", "reason": "Destructive command blocked by security gate."}))
else:
    print(json.dumps({"decision": "allow"}))
`;

const PRIVACY = `#!/usr/bin/env python3
import sys, json
data = json.load(sys.stdin)
path = str(data.get("tool_call", {}).get("args", {}).get("path", ""))

if "/private/" in path:
    resp = {
        "decision": "deny",
        "reason": "Access to confidential \`/private/\` records is blocked by PII compliance policy. Query approved \`/public/\` summary tables instead."
    }
else:
    resp = {"decision": "allow"}

print(json.dumps(resp))
`;

/** The guide does not print this one; it says that such a script formats what was written, and that what it decides is ignored. */
const AUTO_LINT = `#!/usr/bin/env python3
import sys, json, os
data = json.load(sys.stdin)
with open(os.path.join(os.path.dirname(__file__), "formatted"), "a") as log:
    log.write(json.dumps([data["tool_call"]["name"], data.get("error")]) + "\\n")
print(json.dumps({"decision": "deny", "reason": "too late"}))
`;

let space: HookWorkspace;
beforeAll(buildCli, 120_000);
afterEach(() => space.close());

const code = (text: string): object => ({
  tool_call: { name: 'code_execution', args: { code: text, language: 'bash' } },
  environment_id: 'env_xyz789',
});
const view = (path: string): object => ({ tool_call: { name: 'view_file', args: { path } }, environment_id: 'env_xyz789' });

describe.runIf(hasPython)('the gates of the managed agents', () => {
  async function open(): Promise<void> {
    space = await openHookWorkspace();
    const scripts = join(space.folder, SCRIPTS);
    await space.write('.agents/hooks.json', {
      'security-gate': {
        enabled: true,
        pre_tool_execution: [
          { matcher: 'code_execution', hooks: [{ type: 'command', command: `python3 ${scripts}/gate.py`, timeout: 10 }] },
        ],
      },
      'auto-format': {
        post_tool_execution: [
          { matcher: '*', hooks: [{ type: 'command', command: `python3 ${scripts}/auto_lint.py`, timeout: 15 }] },
        ],
      },
      'privacy-gate': {
        pre_tool_execution: [
          { matcher: 'view_file', hooks: [{ type: 'command', command: `python3 ${scripts}/check_privacy.py`, timeout: 5 }] },
        ],
      },
    });
    await space.write(`${SCRIPTS}/gate.py`, GATE);
    await space.write(`${SCRIPTS}/check_privacy.py`, PRIVACY);
    await space.write(`${SCRIPTS}/auto_lint.py`, AUTO_LINT);
  }

  const rows = [
    {
      name: 'denies rm -rf with its reason',
      payload: code('rm -rf /tmp/forbidden'),
      output: { decision: 'deny', reason: 'Destructive command blocked by security gate.' },
    },
    { name: 'lets another command pass', payload: code('ls /tmp'), output: { decision: 'allow' } },
    {
      name: 'denies a file below /private/ with the way out',
      payload: view('/workspace/private/employees.json'),
      output: {
        decision: 'deny',
        reason:
          'Access to confidential `/private/` records is blocked by PII compliance policy. Query approved `/public/` summary tables instead.',
      },
    },
    {
      name: 'lets a file below /public/ pass',
      payload: view('/workspace/public/summary.json'),
      output: { decision: 'allow' },
    },
    {
      name: 'does not ask about a tool that no gate names',
      payload: { tool_call: { name: 'list_dir', args: { path: '/private/' } }, environment_id: 'env_xyz789' },
      output: { decision: 'allow' },
    },
  ];
  it.each(rows)('$name', async ({ payload, output }) => {
    await open();
    const end = await space.cli(['pre_tool_execution'], { input: payload });
    expect({ code: end.code, output: end.json(), stderr: end.stderr }).toEqual({ code: 0, output, stderr: '' });
  });

  it('formats after every tool, with the error where there is one, and what the script decides counts for nothing', async () => {
    await open();
    const failedOne = { ...code('python3 /workspace/app.py'), error: 'exit status 1' };
    const ends = [
      await space.cli(['post_tool_execution'], { input: failedOne }),
      await space.cli(['post_tool_execution'], { input: view('/workspace/a') }),
    ];
    expect(ends.map((end) => [end.code, end.json()])).toEqual([
      [0, {}],
      [0, {}],
    ]);
    expect((await readFile(space.at(`${SCRIPTS}/formatted`), 'utf8')).split('\n')).toEqual([
      '["code_execution", "exit status 1"]',
      '["view_file", null]',
      '',
    ]);
  });
});

describe('the matchers that the guide explains', () => {
  const TOOLS = ['code_execution', 'view_file', 'write_to_file', 'replace_file_content', 'list_dir', 'delete_file'];
  const rows = [
    { matcher: 'code_execution', tools: ['code_execution'] },
    { matcher: 'write_to_file', tools: ['write_to_file'] },
    { matcher: 'view_file|write_to_file', tools: ['view_file', 'write_to_file'] },
    { matcher: '.*_file', tools: ['view_file', 'write_to_file', 'delete_file'] },
    { matcher: '*_file', tools: [] },
    { matcher: 'file', tools: [] },
    { matcher: 'Code_Execution', tools: [] },
    { matcher: '.*', tools: TOOLS },
    { matcher: '*', tools: TOOLS },
    { matcher: '', tools: TOOLS },
    { matcher: undefined, tools: TOOLS },
  ];
  it.each(rows)('run hooks of "$matcher" for $tools', async ({ matcher, tools }) => {
    space = await openHookWorkspace({
      gate: {
        pre_tool_execution: [
          { ...(matcher === undefined ? {} : { matcher }), hooks: [{ type: 'command', command: `echo '{"decision":"deny"}'` }] },
        ],
      },
    });
    const denied: string[] = [];
    for (const name of TOOLS) {
      const { output } = await runHooks(
        'pre_tool_execution',
        { tool_call: { name, args: {} } },
        { workspace: space.folder, home: space.home },
      );
      if (output.decision === 'deny') denied.push(name);
    }
    expect(denied).toEqual(tools); // fault M10
  });
});

describe('audit logging of the managed agents', () => {
  const TOKEN = 'Bearer telemetry_secret_token_123';
  let outside: Outside;
  let telemetry: Upstream;
  let house: House;
  let ca: string;

  beforeAll(async () => {
    outside = await openOutside();
    telemetry = await startUpstream({ tls: outside, answer: (_, response) => response.end('{}') });
    house = await startHouse(
      {
        upstream: { ca: [outside.caPath] },
        network: {
          allowlist: [
            {
              domain: 'telemetry.example.com',
              transform: { Authorization: TOKEN },
              ports: [telemetry.port],
              addresses: LOOPBACK,
            },
            { domain: '*' },
          ],
        },
      },
      { names: { 'telemetry.example.com': ['127.0.0.1'] } },
    );
    ca = join(house.folder, 'public', 'ca.pem');
  });
  afterAll(async () => {
    await house.stop();
    await telemetry.close();
    await outside.close();
  });

  it('posts each event through the door, which alone knows the token', async () => {
    space = await openHookWorkspace({
      'audit-logging': {
        post_tool_execution: [
          {
            matcher: 'view_file|write_to_file|replace_file_content',
            hooks: [{ type: 'http', url: `https://telemetry.example.com:${telemetry.port}/api/v1/agent-events`, timeout: 10 }],
          },
        ],
      },
    });
    const env = { HTTPS_PROXY: `http://127.0.0.1:${house.port}`, SSL_CERT_FILE: ca };
    const payloads = [
      {
        tool_call: { name: 'write_to_file', args: { path: '/workspace/audit.log', content: 'event 1' } },
        environment_id: 'env_1',
      },
      { tool_call: { name: 'view_file', args: { path: '/workspace/audit.log' } }, environment_id: 'env_1' },
    ];
    for (const input of payloads) {
      const end = await space.cli(['post_tool_execution'], { input, env });
      expect({ code: end.code, output: end.json(), stderr: end.stderr }).toEqual({ code: 0, output: {}, stderr: '' });
    }
    await space.cli(['post_tool_execution'], { input: code('ls'), env });
    expect(telemetry.seen.map(({ method, url, body }) => [method, url, JSON.parse(body) as unknown])).toEqual(
      payloads.map((payload) => ['POST', '/api/v1/agent-events', payload]),
    );
    expect(telemetry.seen.map(({ fields }) => valuesOf(fields, 'authorization'))).toEqual([[TOKEN], [TOKEN]]);
    // In the workspace, and so within reach of the agent, it stands nowhere.
    expect(await readFile(space.at('.agents/hooks.json'), 'utf8')).not.toContain('telemetry_secret');
  });
});

describe('the samples of the desktop agent', () => {
  /** Two guides' hooks.json, and scripts that say who was called. */
  async function open(hooks: object, scripts: Readonly<Record<string, string>>): Promise<void> {
    space = await openHookWorkspace(hooks);
    for (const [name, body] of Object.entries(scripts))
      await space.write(`scripts/${name}`, `#!/bin/sh\ncat >/dev/null\n${body}\n`);
  }
  const say = (output: object): string => `echo '${JSON.stringify(output)}'`;
  const run = async (event: string, more: object = {}): Promise<unknown> =>
    (await space.cli([event], { input: { ...PAYLOADS[event], ...more } })).json();

  const FIRST = {
    'safety-gate': {
      enabled: true,
      PreToolUse: [{ matcher: 'run_command', hooks: [{ type: 'command', command: './scripts/safety-check.sh', timeout: 30 }] }],
    },
    'code-linter': {
      PostToolUse: [
        {
          matcher: 'write_to_file|replace_file_content',
          hooks: [{ type: 'command', command: './scripts/lint.sh', timeout: 15 }],
        },
      ],
    },
    'context-injector': { PreInvocation: [{ hooks: [{ type: 'command', command: './scripts/inject-context.sh' }] }] },
  };

  it('gates, lints and injects context by scripts of the workspace', async () => {
    const asked = {
      decision: 'ask',
      reason: 'Requires confirmation for test execution.',
      permissionOverrides: ['command(npm test)'],
    };
    const injected = { injectSteps: [{ ephemeralMessage: 'Remember to lint' }] };
    await open(FIRST, {
      'safety-check.sh': say(asked),
      'lint.sh': 'touch linted; echo {}',
      'inject-context.sh': say(injected),
    });
    expect(await run('PreToolUse')).toEqual(asked);
    expect(await run('PreToolUse', { toolCall: { name: 'view_file', args: {} } })).toEqual({ decision: 'allow' });
    expect(await run('PostToolUse')).toEqual({});
    await expect(readFile(space.at('linted'))).rejects.toThrow('ENOENT');
    expect(await run('PostToolUse', { toolCall: { name: 'replace_file_content', args: {} } })).toEqual({});
    expect(await readFile(space.at('linted'), 'utf8')).toBe('');
    // This guide puts `hooks` around the handlers of a flat event, and the other one does not.
    const end = await space.cli(['PreInvocation'], { input: PAYLOADS['PreInvocation'] });
    expect(end.json()).toEqual(injected);
    expect(end.stderr).toContain(
      'context-injector.PreInvocation[0]: PreInvocation lists its handlers without "hooks" around them',
    );
  });

  it('runs flat events and a handler without a type, and not a group that is switched off', async () => {
    const begun = {
      injectSteps: [{ systemMessage: { systemMessage: 'Environment initialized for workspace /workspace/project' } }],
    };
    await open(
      {
        'my-linter-hook': {
          PostToolUse: [{ matcher: 'run_command', hooks: [{ type: 'command', command: './scripts/lint.sh', timeout: 10 }] }],
        },
        'safety-gate': {
          enabled: false,
          PreToolUse: [{ matcher: 'run_command', hooks: [{ command: './scripts/safety-check.sh' }] }],
        },
        'second-gate': { PreToolUse: [{ matcher: 'run_command|view_file', hooks: [{ command: './scripts/second.sh' }] }] },
        reminder: { PreInvocation: [{ type: 'command', command: './scripts/reminder.sh' }] },
        'session-init': { SessionStart: [{ type: 'command', command: './scripts/init-env.sh' }] },
      },
      {
        'lint.sh': 'touch linted; echo {}',
        'safety-check.sh': say({ decision: 'deny', reason: 'off' }),
        'second.sh': say({ decision: 'force_ask', reason: 'second' }),
        'reminder.sh': say({ injectSteps: [{ ephemeralMessage: 'Remember to lint' }] }),
        'init-env.sh': say(begun),
      },
    );
    expect(await run('SessionStart')).toEqual(begun);
    expect(await run('PreToolUse')).toEqual({ decision: 'force_ask', reason: 'second' });
    expect(await run('PostToolUse')).toEqual({});
    expect(await readFile(space.at('linted'), 'utf8')).toBe('');
    expect(await run('PreInvocation')).toEqual({ injectSteps: [{ ephemeralMessage: 'Remember to lint' }] });
  });

  it.each([
    { event: 'PostInvocation', answer: { injectSteps: [], terminationBehavior: '' } },
    {
      event: 'PostInvocation',
      answer: { injectSteps: [{ userMessage: 'and the tests' }], terminationBehavior: 'force_continue' },
    },
    { event: 'Stop', answer: { decision: 'continue', reason: 'Not done yet' } },
  ])('hands on what a $event hook answers, as the guide prints it', async ({ event, answer }) => {
    await open({ loop: { [event]: [{ type: 'command', command: './scripts/loop.sh' }] } }, { 'loop.sh': say(answer) });
    expect(await run(event)).toEqual(answer);
  });

  it.each(['browser_open', 'browser_'])('matches "browser_.*" for %s', async (name) => {
    await open(
      { gate: { PreToolUse: [{ matcher: 'browser_.*', hooks: [{ command: './scripts/no.sh' }] }] } },
      { 'no.sh': say({ decision: 'deny', reason: 'no browser' }) },
    );
    expect(await run('PreToolUse', { toolCall: { name, args: {} } })).toEqual({ decision: 'deny', reason: 'no browser' });
    expect(await run('PreToolUse', { toolCall: { name: 'a_browser_open', args: {} } })).toEqual({ decision: 'allow' });
  });
});
