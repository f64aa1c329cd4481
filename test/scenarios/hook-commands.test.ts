// `sallyport-hook list`, `check`, `map` and the command line itself, as an operator uses them: what they print, in which form, and how they end.
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { buildCli } from '../support/cli.ts';
import { openHookWorkspace } from '../support/hook-workspace.ts';
import type { HookWorkspace } from '../support/hook-workspace.ts';

let space: HookWorkspace;
beforeAll(buildCli, 120_000);
beforeEach(async () => {
  space = await openHookWorkspace();
});
afterEach(() => space.close());

const GATE = {
  'security-gate': {
    on_failure: 'deny',
    pre_tool_execution: [{ matcher: 'refund', hooks: [{ type: 'command', command: './gate.sh', timeout: 10 }] }],
  },
  'audit-logging': {
    enabled: false,
    post_tool_execution: [{ hooks: [{ type: 'http', url: 'https://telemetry.example.com/events' }] }],
  },
};

describe('list', () => {
  beforeEach(async () => {
    await space.write('.git/HEAD', '');
    await space.write('.agents/hooks.json', GATE);
    await space.write('app/.agents/hooks.json', { reminder: { PreInvocation: [{ command: './remind.sh' }] } });
    await space.write('plugin.json', { plugged: { Stop: [{ command: './stop.sh' }] } });
  });
  const WORDS = ['--workspace', 'app', '--plugin', 'plugin.json'];

  it('gives in a pipe what is active as JSON, from which file, in the order in which it runs', async () => {
    const end = await space.cli(['list', ...WORDS]);
    expect(end).toMatchObject({ code: 0, stderr: '' });
    const { files, hooks } = end.json() as { files: { path: string; dialect: string }[]; hooks: Record<string, unknown>[] };
    expect(files.map(({ dialect }) => dialect)).toEqual(['desktop', 'managed', 'desktop']);
    expect(hooks).toEqual([
      expect.objectContaining({ group: 'plugged', event: 'Stop', kind: 'command', runs: './stop.sh' }),
      {
        group: 'security-gate',
        event: 'pre_tool_execution',
        matcher: 'refund',
        kind: 'command',
        runs: './gate.sh',
        timeout_s: 10,
        on_failure: 'deny',
        enabled: true,
        dialect: 'managed',
        file: space.at('.agents/hooks.json'),
      },
      expect.objectContaining({
        group: 'audit-logging',
        enabled: false,
        kind: 'http',
        runs: 'https://telemetry.example.com/events',
      }),
      expect.objectContaining({ group: 'reminder', file: space.at('app/.agents/hooks.json') }),
    ]);
  });

  it('gives one tab-separated line for each with --tsv', async () => {
    const { stdout } = await space.cli(['list', '--tsv', ...WORDS]);
    const rows = stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split('\t'));
    expect(rows.map((row) => [row.length, row[0]])).toEqual([
      [10, 'plugged'],
      [10, 'security-gate'],
      [10, 'audit-logging'],
      [10, 'reminder'],
    ]);
  });

  it('gives a table on a terminal', async () => {
    const end = await space.terminal(['list', ...WORDS]);
    expect(end).toMatch(/group .*event .*matcher/);
    expect(end).toMatch(/security-gate .*pre_tool_execution .*refund/);
  });

  it('ends with 78 where a file cannot be used, and says why', async () => {
    await space.write('plugin.json', '{');
    const end = await space.cli(['list', ...WORDS]);
    expect(end.code).toBe(78);
    expect(end.stderr).toContain(space.at('plugin.json'));
    expect(end.json()).toMatchObject({ hooks: [{ group: 'security-gate' }, { group: 'audit-logging' }, { group: 'reminder' }] });
  });

  it('shows no header of an http hook', async () => {
    await space.write('h.json', {
      g: { pre_tool_execution: [{ hooks: [{ type: 'http', url: 'https://h.example/', headers: { 'X-Key': 'marker' } }] }] },
    });
    const end = await space.cli(['list', '--hooks', 'h.json']);
    expect(end.json()).toMatchObject({ hooks: [{ runs: 'https://h.example/' }] });
    expect(end.stdout + end.stderr).not.toContain('marker');
  });
});

describe('check', () => {
  it('ends with 0 and says nothing where nothing is wrong', async () => {
    await space.write('.agents/hooks.json', GATE);
    const end = await space.cli(['check']);
    expect(end).toMatchObject({ code: 0, stderr: '' });
    expect(end.json()).toMatchObject({ problems: [] });
  });

  const rows = [
    {
      name: 'a matcher that does not compile',
      hooks: { g: { pre_tool_execution: [{ matcher: '*_file', hooks: [{ type: 'command', command: 'x' }] }] } },
      said: /warning: .*g\.pre_tool_execution\[0\]\.matcher: matches no tool/,
      fault: 'M10',
    },
    {
      name: 'a condition on arguments in a matcher',
      hooks: { hooks: { PreToolUse: [{ matcher: 'Bash(git *)', hooks: [{ type: 'command', command: 'x' }] }] } },
      said: /warning: .*hooks\.PreToolUse\[0\]\.matcher: /,
      fault: 'M11',
    },
    {
      name: 'a timeout in milliseconds',
      hooks: { g: { pre_tool_execution: [{ hooks: [{ type: 'command', command: 'x', timeout: 5000 }] }] } },
      said: /warning: .*timeout: is in seconds/,
      fault: 'M13',
    },
    {
      name: 'a kind of handler that is not run',
      hooks: { hooks: { PreToolUse: [{ hooks: [{ type: 'prompt', prompt: 'x' }] }] } },
      said: /warning: .*"prompt" are not run here/,
      fault: 'M13',
    },
    {
      name: 'an event of nobody',
      hooks: { g: { PreToolUsed: [{ command: 'x' }], Stop: [] } },
      said: /error: .*g\.PreToolUsed: .*did you mean "PreToolUse"/,
      fault: 'M13',
    },
    {
      name: 'an event outside of a group',
      hooks: { PreToolUse: [{ hooks: [{ command: 'x' }] }] },
      said: /error: .*PreToolUse: .*outside of a group/,
      fault: 'M13',
    },
    {
      name: 'two dialects in one file',
      hooks: { a: { pre_tool_execution: [] }, b: { Stop: [] } },
      said: /error: .*mixes the dialects managed and desktop/,
      fault: 'M13',
    },
    {
      name: 'a variable in a URL',
      hooks: { g: { pre_tool_execution: [{ hooks: [{ type: 'http', url: 'https://$HOST/' }] }] } },
      said: /error: .*url: takes no variables/,
      fault: 'M16',
    },
    {
      name: 'an http URL',
      hooks: { g: { pre_tool_execution: [{ hooks: [{ type: 'http', url: 'http://h.example/' }] }] } },
      said: /warning: .*url: is not https/,
    },
  ];
  it.each(rows)('ends with 78 and names $name with its place', async ({ hooks, said }) => {
    await space.write('.agents/hooks.json', hooks);
    const end = await space.cli(['check']);
    expect(end.code).toBe(78);
    expect(end.stderr).toMatch(said);
    expect(end.stderr).toContain(space.at('.agents/hooks.json'));
  });

  it('names what is wrong with the tool registry', async () => {
    await space.write('tools.json', { refund: { risk: 'hihg', unattended: true } });
    const end = await space.cli(['check', '--tools', 'tools.json']);
    expect(end.code).toBe(78);
    expect(end.stderr).toMatch(/tools\.json: refund\.risk: .*did you mean "high"/);
  });

  it('names a file that was asked for and is not there', async () => {
    const end = await space.cli(['check', '--hooks', 'gone.json']);
    expect(end.code).toBe(78);
    expect(end.stderr).toContain('gone.json: is not there');
  });
});

describe('map', () => {
  const TOOLS = {
    refund: {
      risk: 'high',
      unattended: true,
      facts: ['the order, read from the shop'],
      owner: 'payments-oncall',
      after: 'the receipt job',
    },
    find_order: { risk: 'low', unattended: false },
  };

  it('draws six points for each tool, and ends with 0 where none is blank for one that runs unattended', async () => {
    await space.write('.agents/hooks.json', GATE);
    await space.write('tools.json', TOOLS);
    const end = await space.cli(['map', '--tools', 'tools.json', '--audit', 'audit.ndjson']);
    expect(end).toMatchObject({ code: 0, stderr: '' });
    const { rows, unready } = end.json() as { rows: Record<string, unknown>[]; unready: string[] };
    expect(unready).toEqual([]);
    expect(rows[0]).toMatchObject({
      tool: 'refund',
      before: [expect.stringContaining('security-gate/pre_tool_execution[0].hooks[0]')],
      after: ['the receipt job'],
      facts: ['the order, read from the shop'],
      failure: ['the call is denied'],
      logged: [expect.stringContaining('audit.ndjson')],
      owner: ['payments-oncall'],
      blank: [],
    });
    expect(rows[1]).toMatchObject({ tool: 'find_order', unattended: false });
  });

  it.each([
    {
      name: 'nobody to be alerted',
      tools: { refund: { ...TOOLS.refund, owner: undefined } },
      audit: ['--audit', 'a'],
      hooks: GATE,
    },
    { name: 'no trusted facts', tools: { refund: { ...TOOLS.refund, facts: [] } }, audit: ['--audit', 'a'], hooks: GATE },
    { name: 'no ledger', tools: TOOLS, audit: [], hooks: GATE },
    { name: 'nothing before it', tools: TOOLS, audit: ['--audit', 'a'], hooks: {} },
  ])('ends with 1 while a tool that runs unattended has $name', async ({ tools, audit, hooks }) => {
    await space.write('.agents/hooks.json', hooks);
    await space.write('tools.json', tools);
    const end = await space.cli(['map', '--tools', 'tools.json', ...audit]);
    expect(end.code).toBe(1);
    expect(end.stderr).toContain('not ready to run unattended: refund');
  });

  it('is a table on a terminal, with what is blank in it', async () => {
    await space.write('tools.json', TOOLS);
    const shown = await space.terminal(['map', '--tools', 'tools.json']);
    expect(shown).toMatch(/tool .*risk .*before .*owner/);
    expect(shown).toContain('blank');
  });

  it('ends with 2 without a registry, and with 78 where something is wrong with it', async () => {
    expect((await space.cli(['map'])).code).toBe(2);
    await space.write('tools.json', '[]');
    expect((await space.cli(['map', '--tools', 'tools.json'])).code).toBe(78);
  });
});

describe('the command line', () => {
  it.each([
    { name: 'an unknown event', words: ['PreToolUsed'], said: /Allowed choices/ },
    { name: 'no event', words: [], said: /missing required argument|Usage/ },
    { name: 'an unknown option', words: ['Stop', '--frobnicate'], said: /unknown option/ },
    { name: 'an unknown dialect', words: ['Stop', '--dialect', 'x'], said: /Allowed choices are managed, desktop, settings/ },
    { name: 'two forms at once', words: ['list', '--json', '--tsv'], said: /cannot be used with/ },
  ])('ends with 2 for $name', async ({ words, said }) => {
    const end = await space.cli(words);
    expect(end.code).toBe(2);
    expect(end.stderr).toMatch(said);
  });

  it('tells of itself', async () => {
    const [help, version] = [await space.cli(['--help']), await space.cli(['--version'])];
    expect([help.code, version.code]).toEqual([0, 0]);
    expect(help.stdout).toMatch(/list .*\n.*check .*\n.*map /s);
    expect(version.stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});
