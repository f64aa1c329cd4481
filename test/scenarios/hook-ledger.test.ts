// What is known afterwards: ids that join a call's hooks with the proxy's own audit, one line and one count for each run, lines that outlive a sink
// that is away, and what holds a call up where its evidence or its hooks cannot be had. By the command, as a runtime calls it.
import { mkdir, readFile, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/hooks/index.ts';
import { PAYLOADS, settingsPayload } from '../hooks/examples.ts';
import { buildCli } from '../support/cli.ts';
import { openHookWorkspace } from '../support/hook-workspace.ts';
import type { HookWorkspace } from '../support/hook-workspace.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';

const SECRET = 'Bearer marker-of-the-door';

let outside: Outside;
let endpoint: Upstream;
let house: House;
let space: HookWorkspace;

beforeAll(async () => {
  await buildCli();
  outside = await openOutside();
  endpoint = await startUpstream({ tls: outside, answer: (_, response) => response.end('{"decision":"allow"}') });
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: {
        allowlist: [{ domain: 'hooks.test', transform: { Authorization: SECRET }, ports: [endpoint.port], addresses: LOOPBACK }],
      },
    },
    { names: { 'hooks.test': ['127.0.0.1'] } },
  );
}, 120_000);
afterAll(async () => {
  await house.stop();
  await endpoint.close();
  await outside.close();
});

beforeEach(async () => {
  const hooks = [{ type: 'http', url: `https://hooks.test:${endpoint.port}/gate`, timeout: 10 }];
  const command = { type: 'command', command: 'cat >/dev/null; echo "$SALLYPORT_ACTION_ID" >> ids' };
  space = await openHookWorkspace({
    gate: { pre_tool_execution: [{ hooks: [...hooks, command] }], post_tool_execution: [{ hooks: [command, ...hooks] }] },
  });
});
afterEach(() => space.close());

const out = (): string[] => ['--proxy', `http://127.0.0.1:${house.port}`, '--ca', join(house.folder, 'public', 'ca.pem')];
const admin = (): string[] => [
  '--admin',
  `http://127.0.0.1:${house.adminPort}`,
  '--token-file',
  join(house.folder, 'admin-token'),
];
const CALL = { tool_call: { name: 'refund', args: { order: '7412', amount: 20 } }, environment_id: 'env_1', trace_id: 'tr_1' };

/** Counts of one metric by its labels. */
async function counts(name: string): Promise<Record<string, number>> {
  const lines = (await house.scrape()).split('\n').filter((line) => line.startsWith(`${name}{`));
  return Object.fromEntries(
    lines.map((line) => [line.slice(name.length, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  );
}

describe('the ids of a call', () => {
  it.each([
    { name: 'made from the call', payload: CALL, id: /^act_[0-9a-f]{16}$/ },
    { name: 'given by the runtime', payload: { ...CALL, action_id: 'act_given' }, id: /^act_given$/ },
  ])(
    'are the same before and after it, in the ledger, for commands, and in the audit of the proxy for each POST: $name',
    async ({ payload, id }) => {
      const [seen, audited] = [endpoint.seen.length, (await house.audit()).length];
      for (const event of ['pre_tool_execution', 'post_tool_execution']) {
        const end = await space.cli([event, ...out(), '--audit', 'audit.ndjson'], { input: payload });
        expect({ code: end.code, stderr: end.stderr }).toEqual({ code: 0, stderr: '' });
      }
      const posts = endpoint.seen.slice(seen);
      expect(posts.map(({ fields }) => valuesOf(fields, 'authorization'))).toEqual([[SECRET], [SECRET]]);
      const lines = await space.lines('audit.ndjson');
      const own = (await readFile(space.at('ids'), 'utf8')).trim().split('\n');
      const audit = (await house.audit()).slice(audited);
      expect(audit).toHaveLength(2);
      const arrived = posts.flatMap(({ fields }) => valuesOf(fields, 'x-sallyport-action-id'));
      const ids = [...lines.map(({ action_id }) => action_id), ...own, ...arrived, ...audit.map(({ action_id }) => action_id)];
      expect(new Set(ids).size).toBe(1);
      expect(ids).toHaveLength(8);
      expect(ids[0]).toMatch(id);
      expect(lines.map(({ trace_id }) => trace_id)).toEqual(['tr_1', 'tr_1', 'tr_1', 'tr_1']);
    },
  );
});

describe('the ledger', () => {
  it('has one line for each run, with no argument, output or secret in it', async () => {
    await space.cli(['pre_tool_execution', ...out(), '--audit', 'audit.ndjson'], { input: CALL });
    const lines = await space.lines('audit.ndjson');
    expect(lines).toEqual([
      {
        time: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/) as string,
        kind: 'hook',
        event: 'pre_tool_execution',
        dialect: 'managed',
        tool: 'refund',
        handler: 'gate/pre_tool_execution[0].hooks[0]',
        handler_kind: 'http',
        file: space.at('.agents/hooks.json'),
        outcome: 'allow',
        decision: 'allow',
        reason_code: null,
        failure: null,
        truncated: false,
        duration_ms: expect.any(Number) as number,
        start_ms: expect.any(Number) as number,
        action_id: expect.any(String) as string,
        trace_id: 'tr_1',
      },
      expect.objectContaining({
        handler: 'gate/pre_tool_execution[0].hooks[1]',
        handler_kind: 'command',
        outcome: 'none',
        decision: 'allow',
      }),
    ]);
    expect(JSON.stringify(lines)).not.toMatch(/7412|marker/);
  });

  it('holds arguments where they are asked for', async () => {
    await space.cli(['post_tool_execution', ...out(), '--audit', 'audit.ndjson', '--record-arguments'], { input: CALL });
    expect((await space.lines('audit.ndjson')).map((line) => line['arguments'])).toEqual([
      CALL.tool_call.args,
      CALL.tool_call.args,
    ]);
  });

  it('keeps the lines of a sink that is away, and a later run moves them, in order', async () => {
    const run = (event: string): ReturnType<HookWorkspace['cli']> =>
      space.cli([event, ...out(), '--audit', 'mount/audit.ndjson'], { input: CALL });
    const away = await run('pre_tool_execution');
    expect({ code: away.code, output: away.json() }).toEqual({ code: 0, output: { decision: 'allow' } });
    expect(away.stderr).toContain(
      'the audit file "mount/audit.ndjson" cannot be written; its lines wait and are moved there by a later run',
    );
    await expect(readdir(space.at('mount'))).rejects.toThrow('ENOENT');
    await mkdir(space.at('mount'));
    expect((await run('post_tool_execution')).stderr).toBe('');
    const lines = await space.lines('mount/audit.ndjson');
    expect(lines.map(({ event }) => event)).toEqual([
      'pre_tool_execution',
      'pre_tool_execution',
      'post_tool_execution',
      'post_tool_execution',
    ]);
    expect(await readdir(join(space.home, '.local/state/sallyport'))).toEqual([]);
  });

  it('says which lines are lost where nothing takes them', async () => {
    await space.write('file', '');
    const end = await space.cli(['pre_tool_execution', ...out(), '--audit', 'gone/audit.ndjson'], {
      input: CALL,
      env: { XDG_STATE_HOME: space.at('file') },
    });
    expect(end.json()).toEqual({ decision: 'allow' });
    expect(end.stderr).toContain('its lines are lost');
  });
});

describe('the metrics', () => {
  it('count each run, through the admin listener', async () => {
    const name = 'sallyport_hook_runs_total';
    const [before, durations] = [await counts(name), await counts('sallyport_hook_duration_seconds_count')];
    expect((await space.cli(['pre_tool_execution', ...out(), ...admin()], { input: CALL })).code).toBe(0);
    // Without the way out its one handler fails, and that is counted as well.
    await space.cli(['post_tool_execution', '--proxy', 'http://127.0.0.1:9', ...admin()], { input: CALL });
    const after = await counts(name);
    const gained = Object.entries(after).map(([labels, count]) => [labels, count - (before[labels] ?? 0)]);
    expect(Object.fromEntries(gained.filter(([, count]) => count !== 0))).toEqual({
      '{event="pre_tool_execution",handler="http",outcome="allow"}': 1,
      '{event="pre_tool_execution",handler="command",outcome="none"}': 1,
      '{event="post_tool_execution",handler="command",outcome="none"}': 1,
      '{event="post_tool_execution",handler="http",outcome="unreachable"}': 1,
    });
    const timed = await counts('sallyport_hook_duration_seconds_count');
    const sum = (of: Record<string, number>): number => Object.values(of).reduce((total, count) => total + count, 0);
    expect(sum(timed) - sum(durations)).toBe(4);
  });

  it('hold no decision up where the admin listener is away, and need its token', async () => {
    const end = await space.cli(
      ['pre_tool_execution', ...out(), '--admin', 'http://127.0.0.1:9', '--token-file', join(house.folder, 'admin-token')],
      { input: CALL },
    );
    expect([end.code, end.json()]).toEqual([0, { decision: 'allow' }]);
    const bare = await space.cli(['pre_tool_execution', ...out(), '--admin', 'http://127.0.0.1:9'], { input: CALL });
    expect([bare.code, bare.json()['decision'], bare.json()['reason_code']]).toEqual([2, 'deny', 'event_invalid']);
    expect(bare.stderr).toContain('--admin needs --token-file');
  });
});

describe('a call is held up', () => {
  const run = async (
    words: readonly string[],
    input: unknown = CALL,
  ): Promise<{ code: number | null; output: JsonObject; stderr: string }> => {
    const end = await space.cli(words, { input });
    return { code: end.code, output: end.json(), stderr: end.stderr };
  };

  it('where a high-impact tool has no ledger, or one that is away', async () => {
    await space.write('tools.json', { refund: { risk: 'high', unattended: false, owner: 'payments-oncall' } });
    for (const audit of [[], ['--audit', 'away/audit.ndjson']]) {
      const { code, output } = await run(['pre_tool_execution', ...out(), '--tools', 'tools.json', ...audit]);
      expect({ code, output }).toEqual({
        code: 0,
        output: {
          decision: 'deny',
          reason: 'the audit line of this call could not be written, and a high-impact tool does not run without it',
          reason_code: 'evidence_missing',
        },
      });
    }
    const { output } = await run(['pre_tool_execution', ...out(), '--tools', 'tools.json', '--audit', 'audit.ndjson']);
    expect(output).toEqual({ decision: 'allow' });
  });

  it('where a high-impact tool has no hooks at all and no ledger', async () => {
    await rm(space.at('.agents/hooks.json'));
    await space.write('tools.json', { refund: { risk: 'high', unattended: false } });
    expect((await run(['pre_tool_execution', '--tools', 'tools.json'])).output).toMatchObject({
      reason_code: 'evidence_missing',
    });
    expect((await run(['pre_tool_execution', '--tools', 'tools.json', '--audit', 'audit.ndjson'])).output).toEqual({
      decision: 'allow',
    });
    expect(await space.lines('audit.ndjson')).toMatchObject([{ handler: null, tool: 'refund', decision: 'allow' }]);
  });

  it.each([
    { name: 'is not JSON', hooks: '{"gate": {', path: '', form: /line 1, column \d+/ },
    { name: 'has a trailing comma', hooks: '{"gate": {"pre_tool_execution": [],}}', path: '', form: /trailing comma|comma/i },
    {
      name: 'has a wrong-case type',
      hooks: { gate: { pre_tool_execution: [{ hooks: [{ type: 'Command', command: 'x' }] }] } },
      path: 'gate.pre_tool_execution[0].hooks[0].type',
      form: /did you mean "command"/,
    },
    {
      name: 'has an unknown event',
      hooks: { gate: { pre_tool_execution: [], preToolExecution: [] } },
      path: 'gate.preToolExecution',
      form: /unknown/,
    },
    {
      name: 'has a group twice',
      hooks: '{"gate": {"pre_tool_execution": []},\n "gate": {"pre_tool_execution": []}}',
      path: 'gate',
      form: /line 2.*twice.*line 1/,
    },
    {
      name: 'has a timeout as text',
      hooks: { gate: { pre_tool_execution: [{ hooks: [{ type: 'command', command: 'x', timeout: '30' }] }] } },
      path: 'timeout',
      form: /seconds/,
    },
  ])('by a hooks file that $name, with its place and the allowed form', async ({ hooks, path, form }) => {
    await space.write('.agents/hooks.json', hooks);
    const { code, output } = await run(['pre_tool_execution', '--audit', 'audit.ndjson']);
    expect(code).toBe(0);
    expect(output).toMatchObject({ decision: 'deny', reason_code: 'hooks_invalid' });
    expect(output['reason']).toContain(space.at('.agents/hooks.json'));
    expect(output['reason']).toContain(path);
    expect(output['reason']).toMatch(form);
    expect(await space.lines('audit.ndjson')).toMatchObject([{ handler: null, decision: 'deny', reason_code: 'hooks_invalid' }]);
    // What has happened cannot be held up, and goes on with a word of warning.
    const after = await run(['post_tool_execution']);
    expect([after.code, after.output]).toEqual([0, {}]);
    expect(after.stderr).toContain(space.at('.agents/hooks.json')); // fault M13
  });

  it.each([
    { name: 'no JSON', input: 'tool_call: x' },
    { name: 'a list', input: '[]' },
    { name: 'nothing', input: '' },
    { name: 'no tool', input: { environment_id: 'env_1' } },
  ])('by a payload that is $name, said on both outputs', async ({ input }) => {
    const { code, output, stderr } = await run(['pre_tool_execution'], input);
    expect({ code, output }).toMatchObject({ code: 2, output: { decision: 'deny', reason_code: 'event_invalid' } });
    expect(stderr).toContain(output['reason']);
  });
});

describe('arguments that a hook changes', () => {
  it('are what later hooks judge, and their names are told', async () => {
    const say = (answer: object): object => ({ command: `cat >/dev/null; echo '${JSON.stringify(answer)}'` });
    await space.write('.agents/hooks.json', {
      first: {
        PreToolUse: [
          { matcher: 'run_command', hooks: [say({ decision: 'allow', overwrite: { Cwd: '/safe', CommandLine: 'npm ci' } })] },
        ],
      },
      second: {
        PreToolUse: [
          {
            matcher: 'run_command',
            hooks: [{ command: 'cat > seen.json' }, say({ decision: 'allow', overwrite: { CommandLine: 'npm ci --offline' } })],
          },
        ],
      },
    });
    const end = await space.cli(['PreToolUse'], { input: PAYLOADS['PreToolUse'] });
    expect(end.json()).toEqual({
      decision: 'allow',
      overwrite: { Cwd: '/safe', CommandLine: 'npm ci --offline' },
      changedKeys: ['Cwd', 'CommandLine'],
    });
    const seen = JSON.parse(await readFile(space.at('.agents/seen.json'), 'utf8')) as { toolCall: { args: JsonObject } };
    expect(seen.toolCall.args).toMatchObject({ Cwd: '/safe', CommandLine: 'npm ci' });
  });

  it('are worded as the coding agent has it', async () => {
    const answer = {
      hookSpecificOutput: { hookEventName: 'PreToolUse', permissionDecision: 'allow', updatedInput: { command: 'ls' } },
    };
    await space.write('s.json', {
      hooks: { PreToolUse: [{ hooks: [{ type: 'command', command: `echo '${JSON.stringify(answer)}'` }] }] },
    });
    const end = await space.cli(['PreToolUse', '--hooks', 's.json'], {
      input: settingsPayload('PreToolUse', { cwd: space.folder }),
    });
    expect(end.json()).toEqual(answer);
  });
});

describe('a Stop hook that is never content', () => {
  it.each([
    { executionNum: 1, decision: 'continue' },
    { executionNum: 3, decision: 'continue' },
    { executionNum: 4, decision: 'stop' },
  ])('at execution $executionNum with 3 allowed comes to: $decision', async ({ executionNum, decision }) => {
    await space.write('.agents/hooks.json', {
      tests: { Stop: [{ command: `echo '{"decision":"continue","reason":"tests fail"}'` }] },
    });
    const end = await space.cli(['Stop', '--max-continuations', '3'], { input: { ...PAYLOADS['Stop'], executionNum } });
    expect(end.json()['decision']).toBe(decision);
    expect(end.json()['reason']).toMatch(decision === 'stop' ? /sent on 3 times/ : /^tests fail$/);
  });
});
