// What each way to answer and each way to fail comes to, in each dialect: one table, run by the library with real commands and through a real
// Sallyport. A cell is `<outcome> <decision>`: what is written down of the run, and what the call comes to.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createHooks } from '../../src/hooks/index.ts';
import type { DialectName, EventName, HookResult, JsonObject } from '../../src/hooks/index.ts';
import { FAILURES } from '../../src/hooks/failures.ts';
import { PAYLOADS, settingsPayload } from '../hooks/examples.ts';
import { openHookWorkspace } from '../support/hook-workspace.ts';
import type { HookWorkspace } from '../support/hook-workspace.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startRaw, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { openScript } from '../support/scripted-upstream.ts';

const DIALECTS: readonly DialectName[] = ['managed', 'desktop', 'settings'];
const BEFORE = { managed: 'pre_tool_execution', desktop: 'PreToolUse', settings: 'PreToolUse' } as const;
const AFTER = { managed: 'post_tool_execution', desktop: 'PostToolUse', settings: 'PostToolUse' } as const;

/** A decision, as each dialect prints it. */
const SAYS: Readonly<Record<DialectName, (decision: string) => JsonObject>> = {
  managed: (decision) => ({ decision, reason: 'because' }),
  desktop: (decision) => ({ decision, reason: 'because' }),
  settings: (decision) => ({ hookSpecificOutput: { permissionDecision: decision, permissionDecisionReason: 'because' } }),
};

let space: HookWorkspace;
let outside: Outside;
let endpoint: Upstream;
let liar: Upstream;
let house: House;
const script = openScript();

beforeAll(async () => {
  space = await openHookWorkspace();
  outside = await openOutside();
  endpoint = await startUpstream({ tls: outside, raw: script.answer });
  liar = await startRaw((socket) => socket.destroy());
  const rule = { ports: [endpoint.port, liar.port], addresses: LOOPBACK };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: {
        allowlist: [
          { domain: 'hooks.test', ...rule },
          { domain: 'inside.test', ports: [endpoint.port] },
        ],
      },
    },
    { names: { 'hooks.test': ['127.0.0.1'], 'inside.test': ['127.0.0.1'] } },
  );
});
afterAll(async () => {
  await house.stop();
  await Promise.all([endpoint.close(), liar.close()]);
  await outside.close();
  await space.close();
});

interface Asked {
  readonly dialect: DialectName;
  readonly event: EventName;
  readonly handler: JsonObject;
  readonly env?: Readonly<Record<string, string>>;
  readonly proxy?: string;
  readonly ca?: readonly string[];
}

let files = 0;

/** One handler, in a file of its own, asked about one event. */
async function ask({ dialect, event, handler, ...options }: Asked): Promise<HookResult> {
  files += 1;
  const rules = { [event]: [{ matcher: '*', hooks: [handler] }] };
  const file = await space.write(`hooks-${files}.json`, dialect === 'settings' ? { hooks: rules } : { gate: rules });
  const payload =
    dialect === 'settings' ? settingsPayload(event as 'PreToolUse', { cwd: space.folder }) : (PAYLOADS[event] ?? {});
  const env = { PATH: process.env['PATH'] ?? '' };
  const hooks = createHooks({
    workspace: space.folder,
    files: [file],
    proxy: `http://127.0.0.1:${house.port}`,
    ca: [house.ca],
    ...options,
    env: { ...env, ...options.env },
  });
  try {
    return await hooks.run(event, payload as never);
  } finally {
    await hooks.close();
  }
}

function cellOf({ verdict }: HookResult): string {
  const [run, second] = verdict.runs;
  if (run === undefined || second !== undefined) throw new Error('one run is wanted');
  return `${run.outcome} ${verdict.decision}`;
}

type Cell = string | undefined;

interface CommandRow {
  readonly name: string;
  /** A shell line, or one for each dialect */
  readonly command: string | ((dialect: DialectName) => string);
  readonly more?: JsonObject;
  readonly managed: string;
  readonly desktop: string;
  readonly settings: string;
  readonly fault?: string;
}

const print = (output: unknown): string => `printf '%s' '${JSON.stringify(output)}'`;
const says =
  (decision: string, end = '') =>
  (dialect: DialectName): string =>
    print(SAYS[dialect](decision)) + end;
/** Every dialect takes it for the same failure; only the desktop agent then denies by itself. */
const fails = (code: string): Pick<CommandRow, DialectName> => ({
  managed: `${code} allow`,
  desktop: `${code} deny`,
  settings: `${code} allow`,
});
const same = (cell: string): Pick<CommandRow, DialectName> => ({ managed: cell, desktop: cell, settings: cell });

const COMMANDS: readonly CommandRow[] = [
  { name: 'says allow', command: says('allow'), ...same('allow allow') },
  { name: 'says deny', command: says('deny'), ...same('deny deny') },
  { name: 'prints nothing', command: 'true', ...same('none allow'), fault: 'M09' },
  { name: 'prints blanks', command: `printf ' \\n\\t'`, ...same('none allow'), fault: 'M09' },
  {
    name: 'prints nothing where it must decide',
    command: 'true',
    more: { require_decision: true },
    ...fails('no_decision'),
    fault: 'M09',
  },
  {
    name: 'prints {}',
    command: print({}),
    managed: 'unknown_answer allow',
    desktop: 'deny deny',
    settings: 'none allow',
    fault: 'M09',
  },
  { name: 'prints null', command: print(null), ...fails('unknown_answer'), fault: 'M09' },
  { name: 'prints []', command: print([]), ...fails('unknown_answer'), fault: 'M09' },
  { name: 'prints JSON that means nothing', command: print({ verdict: 'no' }), ...fails('unknown_answer') },
  { name: 'says "deny " with a blank', command: says('deny '), ...fails('unknown_answer'), fault: 'M09' },
  { name: 'says "Block"', command: says('Block'), ...fails('unknown_answer'), fault: 'M09' },
  { name: 'prints plain text', command: 'echo denied', ...fails('not_json'), fault: 'M09' },
  { name: 'prints two objects', command: says('deny', `; ${print({})}`), ...fails('broken_json'), fault: 'M09' },
  {
    name: 'prints a banner before its JSON',
    command: (dialect) => `echo Welcome; ${says('deny')(dialect)}`,
    ...fails('not_json'),
    fault: 'M09',
  },
  {
    name: 'prints half of its JSON',
    command: `printf '{"decision":"deny","reason":"bec'`,
    ...fails('broken_json'),
    fault: 'M04',
  },
  { name: 'prints 10 MB', command: 'head -c 10000000 /dev/zero | tr "\\0" x', ...fails('output_too_large'), fault: 'M05' },
  {
    name: 'prints a decision and then 10 MB of blanks',
    command: says('allow', `; head -c 10000000 /dev/zero | tr "\\0" " "`),
    ...fails('output_too_large'),
    fault: 'M06',
  },
  { name: 'ends with 1', command: 'exit 1', ...fails('exit_status'), fault: 'M07' },
  {
    name: 'ends with 1 after a deny',
    command: says('deny', '; exit 1'),
    managed: 'exit_status allow',
    desktop: 'exit_status deny',
    settings: 'deny deny',
    fault: 'M07',
  },
  {
    name: 'ends with 1 after an allow',
    command: says('allow', '; exit 1'),
    managed: 'exit_status allow',
    desktop: 'exit_status deny',
    settings: 'allow allow',
    fault: 'M07',
  },
  {
    name: 'ends with 2',
    command: 'echo why >&2; exit 2',
    managed: 'exit_status allow',
    desktop: 'exit_status deny',
    settings: 'deny deny',
    fault: 'M07',
  },
  {
    name: 'ends with 2 after an allow',
    command: says('allow', '; exit 2'),
    managed: 'exit_status allow',
    desktop: 'exit_status deny',
    settings: 'deny deny',
    fault: 'M07',
  },
  { name: 'ends with 3', command: 'exit 3', ...fails('exit_status'), fault: 'M07' },
  { name: 'may not be executed', command: './hooks-1.json', ...fails('not_started'), fault: 'M08' },
  { name: 'is no such command', command: 'no-such-command-here', ...fails('not_started'), fault: 'M08' },
  { name: 'is killed', command: says('allow', '; kill -9 $$'), ...fails('signal'), fault: 'M07' },
  { name: 'crashes', command: 'kill -SEGV $$', ...fails('signal'), fault: 'M07' },
  { name: 'lets a grandchild crash', command: `sh -c 'kill -9 $$'; exit $?`, ...fails('exit_status'), fault: 'M07' },
  { name: 'does not answer in time', command: 'sleep 600 & sleep 600', more: { timeout: 1 }, ...fails('timeout'), fault: 'M01' },
  {
    name: 'answers and does not end in time',
    command: says('allow', '; sleep 600'),
    more: { timeout: 1 },
    ...fails('timeout'),
    fault: 'M01',
  },
];

const BY_DIALECT = COMMANDS.flatMap((row) => DIALECTS.map((dialect) => ({ ...row, dialect, cell: row[dialect] })));
const handlerOf = ({ command, more }: CommandRow, dialect: DialectName): JsonObject => {
  const line = typeof command === 'string' ? command : command(dialect);
  // The outer shell would else become what it runs.
  return { type: 'command', command: `${line}\n`, timeout: 30, ...more };
};

describe('a command before a tool', () => {
  it.concurrent.each(BY_DIALECT)('that $name, in the dialect $dialect, comes to: $cell', async (row) => {
    const result = await ask({ dialect: row.dialect, event: BEFORE[row.dialect], handler: handlerOf(row, row.dialect) });
    expect(cellOf(result)).toBe(row.cell);
    expect(result.problems).toEqual([]);
    // The runtime hears of a denial and of nothing else that could be taken for one.
    const denies =
      (result.output['decision'] ?? (result.output['hookSpecificOutput'] as JsonObject | undefined)?.['permissionDecision']) ===
      'deny';
    expect(denies).toBe(row.cell.endsWith(' deny'));
  });

  const FAILING = BY_DIALECT.filter(({ cell }) => (cell.split(' ')[0] ?? '') in FAILURES);
  it.concurrent.each(FAILING.filter(({ dialect }) => dialect === 'managed'))(
    'that $name, denies where on_failure says deny, and waits for a human where it says review',
    async (row) => {
      const handler = handlerOf(row, row.dialect);
      const [denied, reviewed] = await Promise.all(
        ['deny', 'review'].map((on_failure) =>
          ask({ dialect: 'managed', event: BEFORE.managed, handler: { ...handler, on_failure } }),
        ),
      );
      const outcome = row.cell.split(' ')[0] ?? '';
      expect(denied?.output).toMatchObject({ decision: 'deny', reason_code: `hook_${outcome}` });
      expect(reviewed?.verdict).toMatchObject({ decision: 'review', answer: { reasonCode: `hook_${outcome}` } });
    },
  );

  it.concurrent.each(FAILING.filter(({ dialect, name }) => dialect === 'desktop' && !/time|10 MB/.test(name)))(
    'that $name, lets a desktop call pass where on_failure says allow',
    async (row) => {
      const handler = { ...handlerOf(row, 'desktop'), on_failure: 'allow' };
      expect((await ask({ dialect: 'desktop', event: BEFORE.desktop, handler })).output).toEqual({ decision: 'allow' });
    },
  );

  it('that denies by its status, gives what it wrote to standard error as the reason', async () => {
    const handler = { type: 'command', command: 'echo not on a Friday >&2; exit 2' };
    const { output } = await ask({ dialect: 'settings', event: 'PreToolUse', handler });
    expect(output).toEqual({
      hookSpecificOutput: {
        hookEventName: 'PreToolUse',
        permissionDecision: 'deny',
        permissionDecisionReason: 'not on a Friday',
      },
    }); // fault M07
  });

  it('in bash, reads no profile, which could print before it', async () => {
    await space.write('profile/.bashrc', 'echo Welcome\n');
    const handler = { type: 'command', command: print(SAYS.settings('deny')) };
    const env = { HOME: space.at('profile'), SHLVL: '0' };
    expect(cellOf(await ask({ dialect: 'settings', event: 'PreToolUse', handler, env }))).toBe('deny deny'); // fault M09
  });

  it('whose folder is gone, is a failure by name', async () => {
    const payload = settingsPayload('PreToolUse', { cwd: space.at('gone') });
    const file = await space.write('gone.json', { hooks: { PreToolUse: [{ hooks: [{ type: 'command', command: 'true' }] }] } });
    const { verdict } = await createHooks({ files: [file] }).run('PreToolUse', payload as never);
    expect(verdict.runs.map(({ outcome }) => outcome)).toEqual(['not_started']); // fault M08
  });
});

describe('a command after a tool', () => {
  const ENDS = COMMANDS.filter(({ name }) =>
    /^(?:says deny|ends with 1$|prints plain|is no such|does not answer|prints nothing$)/.test(name),
  );
  it.concurrent.each(ENDS.flatMap((row) => DIALECTS.map((dialect) => ({ ...row, dialect }))))(
    'that $name, in the dialect $dialect, takes nothing back',
    async (row) => {
      const { output, verdict } = await ask({
        dialect: row.dialect,
        event: AFTER[row.dialect],
        handler: handlerOf(row, row.dialect),
      });
      expect({ output, decision: verdict.decision }).toEqual({ output: {}, decision: 'allow' });
    },
  );
});

describe('an http hook before a tool', () => {
  const at = (path: string, host = 'hooks.test', port = endpoint.port): string => `https://${host}:${port}${path}`;

  beforeAll(() => {
    const json = (path: string, body: unknown): void =>
      script.on(path, (_, response) => void response.end(typeof body === 'string' ? body : JSON.stringify(body)));
    json('/managed/allow', SAYS.managed('allow'));
    json('/managed/deny', SAYS.managed('deny'));
    json('/settings/allow', SAYS.settings('allow'));
    json('/settings/deny', SAYS.settings('deny'));
    json('/text', '<html>denied</html>');
    json('/unknown', { verdict: 'no' });
    json('/half', '{"decision":"deny","reas');
    json('/large', ' '.repeat(10_000_000));
    for (const status of [204, 302, 404, 407, 500]) {
      script.on(`/${status}`, (_, response) => {
        response
          .writeHead(status, status === 302 ? { location: at('/managed/deny') } : {})
          .end(status === 500 ? '{"decision":"deny"}' : '');
      });
    }
    script.on('/slow', () => undefined);
    script.on('/slow-body', (_, response) => void response.writeHead(200).write('{"decision":'));
    script.on('/broken', (_, response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('{"decision":', () => response.destroy());
    });
  });

  interface HttpRow {
    readonly name: string;
    readonly url: (dialect: DialectName) => string;
    readonly more?: JsonObject;
    readonly options?: () => Partial<Asked>;
    readonly managed: string;
    readonly settings: Cell;
    /** Detail that the failure's message holds */
    readonly detail?: string;
    readonly fault?: string;
  }
  const both = (cell: string): Pick<HttpRow, 'managed' | 'settings'> => ({ managed: cell, settings: cell });
  const rows: readonly HttpRow[] = [
    { name: 'allows', url: (dialect) => at(`/${dialect}/allow`), ...both('allow allow') },
    { name: 'denies', url: (dialect) => at(`/${dialect}/deny`), ...both('deny deny') },
    { name: 'answers 204', url: () => at('/204'), ...both('none allow'), fault: 'M08' },
    { name: 'answers 404', url: () => at('/404'), ...both('http_status allow') },
    { name: 'answers 407', url: () => at('/407'), ...both('http_status allow'), fault: 'M08' },
    { name: 'answers 500 with a deny', url: () => at('/500'), ...both('http_status allow'), fault: 'M08' },
    { name: 'answers with a redirect', url: () => at('/302'), ...both('redirect allow'), fault: 'M17' },
    { name: 'answers with text', url: () => at('/text'), ...both('not_json allow'), fault: 'M08' },
    { name: 'answers with JSON that means nothing', url: () => at('/unknown'), ...both('unknown_answer allow') },
    { name: 'answers with half of its JSON', url: () => at('/half'), ...both('broken_json allow') },
    { name: 'breaks off its answer', url: () => at('/broken'), ...both('unreachable allow') },
    { name: 'answers with 10 MB', url: () => at('/large'), ...both('output_too_large allow'), fault: 'M05' },
    { name: 'does not answer in time', url: () => at('/slow'), more: { timeout: 1 }, ...both('timeout allow'), fault: 'M08' },
    {
      name: 'does not end its answer in time',
      url: () => at('/slow-body'),
      more: { timeout: 1 },
      ...both('timeout allow'),
      fault: 'M08',
    },
    {
      name: 'trusts another CA than the one of the door',
      url: () => at('/204'),
      options: () => ({ ca: [] }),
      ...both('tls allow'),
      fault: 'M08',
    },
    {
      name: 'stands behind a broken TLS endpoint',
      url: () => at('/204', 'hooks.test', liar.port),
      ...both('refused_by_proxy allow'),
      detail: 'upstream_tls',
      fault: 'M08',
    },
    {
      name: 'is not in the allowlist',
      url: () => at('/204', 'stranger.test'),
      ...both('refused_by_proxy allow'),
      detail: 'not_allowlisted',
    },
    {
      name: 'lies on loopback by name',
      url: () => at('/204', 'inside.test'),
      ...both('refused_by_proxy allow'),
      detail: 'address_denied',
    },
    { name: 'lies on loopback', url: () => at('/204', '127.0.0.1'), ...both('refused_by_proxy allow') },
    {
      name: 'finds no proxy at its place',
      url: () => at('/204'),
      options: () => ({ proxy: 'http://127.0.0.1:9' }),
      ...both('unreachable allow'),
      fault: 'M08',
    },
    { name: 'is plain http', url: () => at('/204').replace('https', 'http'), ...both('not_https allow') },
    {
      name: 'needs a variable that is not set',
      url: () => at('/204'),
      more: { headers: { Authorization: 'Bearer ${TOKEN}' } },
      ...both('unresolved_variable allow'),
      fault: 'M16',
    },
  ];

  it.concurrent.each(
    rows.flatMap((row) => (['managed', 'settings'] as const).map((dialect) => ({ ...row, dialect, cell: row[dialect] }))),
  )('that $name, in the dialect $dialect, comes to: $cell', async ({ dialect, url, more, options, cell, detail }) => {
    const result = await ask({
      dialect,
      event: BEFORE[dialect],
      handler: { type: 'http', url: url(dialect), timeout: 20, ...more },
      ...options?.(),
    });
    expect(cellOf(result)).toBe(cell);
    if (detail !== undefined) expect(result.verdict.runs[0]?.failure?.message).toContain(detail);
  });

  it('is not a handler of the desktop agent', async () => {
    const { output } = await ask({
      dialect: 'desktop',
      event: 'PreToolUse',
      handler: { type: 'http', url: at('/managed/allow') },
    });
    expect(output).toMatchObject({ decision: 'deny', reasonCode: 'hooks_invalid' });
  });

  it('sends nothing where a header could not be filled', async () => {
    const before = endpoint.connections;
    await ask({
      dialect: 'managed',
      event: BEFORE.managed,
      handler: { type: 'http', url: at('/204'), headers: { 'X-Token': '$TOKEN' }, allowed_env_vars: ['TOKEN'] },
      env: { TOKEN: '' },
    });
    expect(endpoint.connections).toBe(before); // fault M16
  });
});
