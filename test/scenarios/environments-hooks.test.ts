// The environment objects of the managed agents' guide, pasted whole: their hooks run from what the proxy keeps, their network holds, and an agent
// that rewrites its own .agents changes nothing. Only what leads to the test's own endpoint is other than printed.
import { execFileSync } from 'node:child_process';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { makeEnvironment, rest } from '../support/admin-rest.ts';
import type { MadeEnvironment } from '../support/admin-rest.ts';
import { buildCli } from '../support/cli.ts';
import { openHookWorkspace } from '../support/hook-workspace.ts';
import type { HookCliEnd, HookWorkspace } from '../support/hook-workspace.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { askAdmin, sampled } from '../support/operator.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';

const hasPython = ((): boolean => {
  try {
    execFileSync('python3', ['-c', ''], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
})();

/** As the guide prints it for curl, character for character. */
const PRIVACY = String.raw`{
          "type": "remote",
          "sources": [
              {
                  "type": "inline",
                  "target": ".agents/hooks.json",
                  "content": "{\"privacy-gate\": {\"pre_tool_execution\": [{\"matcher\": \"view_file\", \"hooks\": [{\"type\": \"command\", \"command\": \"python3 /.agents/hooks-scripts/check_privacy.py\", \"timeout\": 5}]}]}}"
              },
              {
                  "type": "inline",
                  "target": ".agents/hooks-scripts/check_privacy.py",
                  "content": "#!/usr/bin/env python3\nimport sys, json\ndata = json.load(sys.stdin)\npath = str(data.get(\"tool_call\", {}).get(\"args\", {}).get(\"path\", \"\"))\nif \"/private/\" in path:\n    resp = {\"decision\": \"deny\", \"reason\": \"Access to confidential ${'`'}/private/${'`'} records is blocked by PII compliance policy. Query approved ${'`'}/public/${'`'} summary tables instead.\"}\nelse:\n    resp = {\"decision\": \"allow\"}\nprint(json.dumps(resp))\n"
              },
              {
                  "type": "inline",
                  "target": "workspace/private/employees.json",
                  "content": "{\"employees\": [{\"id\": 1, \"salary\": 150000, \"ssn\": \"000-00-0000\"}]}"
              },
              {
                  "type": "inline",
                  "target": "workspace/public/summary.json",
                  "content": "{\"department\": \"Engineering\", \"team_size\": 42, \"status\": \"active\"}"
              }
          ]
      }`;

const AUDIT = String.raw`{
          "type": "remote",
          "sources": [
              {
                  "type": "inline",
                  "target": ".agents/hooks.json",
                  "content": "{\"audit-logging\": {\"post_tool_execution\": [{\"matcher\": \"view_file|write_to_file|replace_file_content\", \"hooks\": [{\"type\": \"http\", \"url\": \"https://telemetry.example.com/api/v1/agent-events\", \"timeout\": 10}]}]}}"
              }
          ],
          "network": {
              "allowlist": [
                  {
                      "domain": "telemetry.example.com",
                      "transform": {
                          "Authorization": "Bearer telemetry_secret_token_123"
                      }
                  },
                  {"domain": "*"}
              ]
          }
      }`;

const ALLOW_ALL = { gate: { pre_tool_execution: [{ matcher: '*', hooks: [{ type: 'command', command: 'echo "{}"' }] }] } };
const DENY_ALL = {
  gate: {
    pre_tool_execution: [
      { matcher: '*', hooks: [{ type: 'command', command: `echo '{"decision":"deny","reason":"the local one"}'` }] },
    ],
  },
};

const tool = (name: string, path: string) => ({ tool_call: { name, args: { path } }, environment_id: 'env_xyz789' });

let house: House;
let outside: Outside;
let telemetry: Upstream;
let space: HookWorkspace;

beforeAll(async () => {
  await buildCli();
  outside = await openOutside();
  telemetry = await startUpstream({ tls: outside, answer: (_seen, response) => void response.end('{}') });
  house = await startHouse(
    { upstream: { ca: [outside.caPath] } },
    { names: { 'telemetry.example.com': ['127.0.0.1'], 'inside.example.com': ['10.0.0.1'] } },
  );
}, 120_000);

afterAll(async () => {
  await house.stop();
  await telemetry.close();
  await outside.close();
});

beforeEach(async () => {
  space = await openHookWorkspace();
});

afterEach(() => space.close());

const place = () => [
  '--admin',
  `http://127.0.0.1:${house.adminPort}`,
  '--token-file',
  join(house.folder, 'admin-token'),
  '--workspace',
  space.folder,
];

/** Runs an event's hooks as a runtime outside of the sandbox does. */
async function event(
  name: 'pre_tool_execution' | 'post_tool_execution',
  made: Pick<MadeEnvironment, 'id'>,
  { input, more = [], env = {} }: { readonly input: object; readonly more?: readonly string[]; readonly env?: NodeJS.ProcessEnv },
): Promise<HookCliEnd> {
  return space.cli([name, '--environment', made.id, ...place(), ...more], { input, env });
}

describe.runIf(hasPython)('the privacy gate', () => {
  const secret = tool('view_file', '/workspace/private/employees.json');
  const open = tool('view_file', '/workspace/public/summary.json');

  it('denies the private file and allows the public one, whatever the agent has made of its own .agents', async () => {
    const made = await makeEnvironment(house, JSON.parse(PRIVACY) as object);
    for (const local of [undefined, ALLOW_ALL, DENY_ALL, 'no JSON at all']) {
      if (local !== undefined) {
        await space.write('.agents/hooks.json', local);
        await space.write('.agents/hooks-scripts/check_privacy.py', 'print(\'{"decision":"allow"}\')\n');
      }
      expect((await event('pre_tool_execution', made, { input: secret })).json()).toEqual({
        decision: 'deny',
        reason:
          'Access to confidential `/private/` records is blocked by PII compliance policy. Query approved `/public/` summary tables instead.',
      });
      expect((await event('pre_tool_execution', made, { input: open })).json()).toEqual({ decision: 'allow' });
    }
  });

  it('is not run by the local command either: without the environment the local files alone decide', async () => {
    await space.write('.agents/hooks.json', ALLOW_ALL);
    const end = await space.cli(['pre_tool_execution', '--workspace', space.folder], { input: secret });
    expect(end.json()).toEqual({ decision: 'allow' });
  });

  it('leaves no folder behind, and is counted and written down by its place in the environment', async () => {
    const made = await makeEnvironment(house, JSON.parse(PRIVACY) as object);
    const folder = join(space.home, 'tmp');
    await mkdir(folder);
    const audit = space.at('audit.ndjson');
    const env = { TMPDIR: folder };
    await event('pre_tool_execution', made, { input: secret, more: ['--audit', audit], env });
    expect(await readdir(folder)).toEqual([]);
    expect(await space.lines('audit.ndjson')).toMatchObject([
      { file: `/environments/${made.id}/.agents/hooks.json`, outcome: 'deny', tool: 'view_file' },
    ]);
    expect(sampled(await house.scrape(), 'sallyport_hook_runs_total', { outcome: 'deny' })).toBeGreaterThan(0);
  });

  it('runs what the environment holds now: new sources count from the next call on', async () => {
    const made = await makeEnvironment(house, JSON.parse(PRIVACY) as object);
    const sources = (JSON.parse(PRIVACY) as { sources: { target: string; content: string }[] }).sources.map((source) => ({
      ...source,
      content: source.content.replaceAll('/private/', '/public/'),
    }));
    await rest(house, `PATCH /v1beta/environments/${made.id}`, { sources });
    expect((await event('pre_tool_execution', made, { input: open })).json()['decision']).toBe('deny');
    await rest(house, `PATCH /v1beta/environments/${made.id}`, { sources: [] });
    expect((await event('pre_tool_execution', made, { input: open })).json()['decision']).toBe('allow');
  });

  it('denies where its hooks cannot be had', async () => {
    const made = await makeEnvironment(house, JSON.parse(PRIVACY) as object);
    const run = (words: readonly string[]) => space.cli(['pre_tool_execution', ...words], { input: open });
    const wrong = join(space.home, 'wrong-token');
    await writeFile(wrong, 'wrong');
    for (const words of [
      ['--environment', 'env_unknown', ...place()],
      ['--environment', made.id],
      ['--environment', made.id, '--admin', 'http://127.0.0.1:1', ...place().slice(2)],
      ['--environment', made.id, ...place(), '--token-file', wrong],
      ['--environment', made.id, ...place(), '--hooks', '/dev/null'],
    ]) {
      const end = await run(words);
      expect(end.json()).toMatchObject({ decision: 'deny', reason_code: 'event_invalid' });
      expect(end.code).toBe(2);
    }
  });
});

describe('the audit logging', () => {
  /** The pasted object, its endpoint led to the test's own. */
  const audit = (): object => {
    const pasted = JSON.parse(AUDIT) as { sources: { content: string }[]; network: { allowlist: object[] } };
    const [rule, any] = pasted.network.allowlist;
    const sources = pasted.sources.map((source) => ({
      ...source,
      content: source.content.replace('telemetry.example.com/', `telemetry.example.com:${telemetry.port}/`),
    }));
    return { ...pasted, sources, network: { allowlist: [{ ...rule, ports: [telemetry.port], addresses: LOOPBACK }, any] } };
  };

  it('is taken as it is printed, and judged as it says', async () => {
    const made = await makeEnvironment(house, JSON.parse(AUDIT) as object);
    const ask = async (url: string) => (await askAdmin(house, '/v1/explain', { method: 'POST', url, sandbox: made.id })).json;
    expect(await ask('https://telemetry.example.com/api/v1/agent-events')).toMatchObject({
      decision: 'allow',
      rule: 'telemetry.example.com',
      transform: ['Authorization'],
    });
    expect(await ask('https://elsewhere.example.com/')).toMatchObject({ decision: 'allow', rule: '*', transform: [] });
    expect(await ask('https://127.0.0.1/')).toMatchObject({ decision: 'refuse', reason: 'address_denied' });
  });

  it('POSTs each event out through the door, where the token is put on, whatever the agent has made of its own .agents', async () => {
    const made = await makeEnvironment(house, audit());
    const ca = join(space.home, 'ca.pem');
    await writeFile(ca, house.ca);
    await space.write('.agents/hooks.json', { none: { post_tool_execution: [] } });
    for (const name of ['view_file', 'write_to_file', 'list_dir']) {
      const input = tool(name, '/workspace/audit.log');
      expect((await event('post_tool_execution', made, { input, more: ['--proxy', made.proxyUrl, '--ca', ca] })).json()).toEqual(
        {},
      );
    }
    expect(telemetry.seen.map(({ url, body }) => [url, (JSON.parse(body) as ReturnType<typeof tool>).tool_call.name])).toEqual([
      ['/api/v1/agent-events', 'view_file'],
      ['/api/v1/agent-events', 'write_to_file'],
    ]);
    for (const { fields } of telemetry.seen)
      expect(valuesOf(fields, 'authorization')).toEqual(['Bearer telemetry_secret_token_123']);
    expect(house.outcomes.filter(({ trace }) => trace.sandbox === made.id).map(({ decision }) => decision)).toEqual([
      'allow',
      'allow',
    ]);
  });

  it('is refused at the door with the token of another environment, or none', async () => {
    const made = await makeEnvironment(house, audit());
    const other = await makeEnvironment(house, { network: 'disabled' });
    const ca = join(space.home, 'ca.pem');
    await writeFile(ca, house.ca);
    const sent = telemetry.seen.length;
    const input = tool('view_file', '/workspace/audit.log');
    for (const [proxy, reason] of [
      [other.proxyUrl, 'not_allowlisted'],
      [`http://127.0.0.1:${house.port}`, 'not_allowlisted'],
      [made.proxyUrl.replace(made.token, 'x'.repeat(43)), 'sandbox_unauthenticated'],
    ] as const) {
      const end = await event('post_tool_execution', made, { input, more: ['--proxy', proxy, '--ca', ca] });
      expect(end.stderr).toContain(reason);
    }
    expect(telemetry.seen).toHaveLength(sent);
  });
});

describe('list, check and map of an environment', () => {
  const FILES = (hooks: object) => ({
    sources: [
      { type: 'inline', target: '.agents/hooks.json', content: JSON.stringify(hooks) },
      { type: 'inline', target: '.agents/gate.py', content: 'print(1)\n' },
    ],
  });
  const GATE = (command: string) => ({
    gate: { on_failure: 'deny', pre_tool_execution: [{ matcher: 'view_file', hooks: [{ type: 'command', command }] }] },
  });
  const file = (id: string) => `/environments/${id}/.agents/hooks.json`;
  const show = (words: readonly string[], id: string, env: NodeJS.ProcessEnv = {}) =>
    space.cli([...words, '--environment', id, ...place()], { env });

  it('show what the proxy keeps and nothing that lies in the workspace, as it was written, and leave no folder behind', async () => {
    const made = await makeEnvironment(house, FILES(GATE('python3 /.agents/gate.py')));
    await space.write('.agents/hooks.json', { ...DENY_ALL, other: { Nonsense: [] } });
    await space.write('tools.json', {
      view_file: { risk: 'high', unattended: false },
      refund: { risk: 'high', unattended: false },
    });
    const folder = join(space.home, 'tmp');
    await mkdir(folder);
    const env = { TMPDIR: folder };
    const listed = await show(['list'], made.id, env);
    expect(listed).toMatchObject({ code: 0, stderr: '' });
    expect(listed.json()).toMatchObject({
      files: [{ path: file(made.id), dialect: 'managed' }],
      hooks: [{ group: 'gate', matcher: 'view_file', runs: 'python3 /.agents/gate.py', file: file(made.id) }],
    });
    expect((await show(['list', '--tsv'], made.id, env)).stdout.trimEnd().split('\t')).toContain(file(made.id));
    expect(await show(['check'], made.id, env)).toMatchObject({ code: 0, stderr: '' });
    const drawn = await show(['map', '--tools', 'tools.json'], made.id, env);
    expect([drawn.code, drawn.stderr]).toEqual([0, '']);
    const { rows } = drawn.json() as { rows: { tool: string; before: string[] }[] };
    expect(rows.map(({ tool: name, before }) => [name, before.length])).toEqual([
      ['view_file', 1],
      ['refund', 0],
    ]);
    expect(rows[0]?.before[0]).toContain(file(made.id));
    expect(await readdir(folder)).toEqual([]);
  });

  it.each([
    {
      name: 'a script that nobody sent',
      hooks: GATE('python3 /.agents/gone.py'),
      said: 'names "/.agents/gone.py"',
      codes: [0, 78],
    },
    { name: 'an event of nobody', hooks: { gate: { pre_tool: [] } }, said: 'gate.pre_tool', codes: [78, 78] },
  ])('name what is wrong by its place there: $name', async ({ hooks, said, codes }) => {
    const made = await makeEnvironment(house, FILES(hooks));
    const ends = [await show(['list'], made.id), await show(['check'], made.id)];
    expect(ends.map(({ code }) => code)).toEqual(codes);
    for (const { stderr } of ends) {
      expect(stderr).toContain(file(made.id));
      expect(stderr).toContain(said);
    }
  });

  it('end with 1 where its hooks are not to be had, and with 2 where the call makes no sense', async () => {
    const made = await makeEnvironment(house, FILES(GATE('true')));
    await space.write('tools.json', { refund: { risk: 'low' } });
    for (const command of [['list'], ['check'], ['map', '--tools', 'tools.json']]) {
      const gone = await show(command, 'env_unknown');
      expect([gone.code, gone.stdout, gone.stderr]).toEqual([
        1,
        '',
        `sallyport-hook: there is no environment "env_unknown" at "http://127.0.0.1:${house.adminPort}"\n`,
      ]);
      for (const words of [[], ['--admin', 'no URL', ...place().slice(2)], [...place(), '--hooks', 'tools.json']]) {
        const end = await space.cli([...command, '--environment', made.id, ...words]);
        expect([end.code, end.stdout, end.stderr]).toEqual([
          2,
          '',
          expect.stringMatching(/^sallyport-hook: --(?:environment|admin) /),
        ]);
      }
    }
  });

  it('say that it has none, and take the listener from the variables', async () => {
    const made = await makeEnvironment(house, {});
    const env = {
      SALLYPORT_ADMIN_URL: `http://127.0.0.1:${house.adminPort}`,
      SALLYPORT_ADMIN_TOKEN_FILE: join(house.folder, 'admin-token'),
    };
    await space.write('.agents/hooks.json', DENY_ALL);
    const end = await space.cli(['list', '--environment', made.id], { env });
    expect([end.code, end.json()]).toEqual([0, { files: [], hooks: [] }]);
  });
});
