import { describe, expect, it } from 'vitest';
import { hookMap } from '../../src/hooks/map.ts';
import type { MapContext, MapRow } from '../../src/hooks/map.ts';
import type { Tool } from '../../src/hooks/tools.ts';
import type { EventName, HookProblem, HookRule, HookSet, Moment } from '../../src/hooks/words.ts';
import { command, http, rule } from './samples.ts';

const events = new Map<EventName, Moment>([
  ['pre_tool_execution', 'before'],
  ['post_tool_execution', 'after'],
  ['PreToolUse', 'before'],
  ['PostToolUse', 'after'],
  ['Stop', 'loop'],
]);
const context: MapContext = {
  dialects: {
    managed: { onFailure: 'allow', events },
    desktop: { onFailure: 'deny', events },
    settings: { onFailure: 'allow', events },
  },
  audit: '/var/log/hooks.ndjson',
  recordArguments: false,
};

function tool(over: Partial<Tool> = {}): Tool {
  return {
    name: 'refund',
    risk: 'high',
    unattended: true,
    visibleTo: undefined,
    facts: [],
    failure: undefined,
    logged: undefined,
    owner: undefined,
    before: undefined,
    after: undefined,
    ...over,
  };
}

function row(
  one: Tool,
  rules: readonly HookRule[] = [],
  over: Partial<MapContext> = {},
  problems: readonly HookProblem[] = [],
): MapRow {
  const set: HookSet = { files: [], rules, problems };
  const { rows } = hookMap(new Map([[one.name, one]]), set, { ...context, ...over });
  if (rows[0] === undefined) throw new Error('no row');
  return rows[0];
}

const before = rule();
const after = rule({ event: 'PostToolUse', handlers: [http({ id: 'gate/PostToolUse[0].hooks[0]' })] });

describe('hookMap', () => {
  it('fills the six points from hooks and registry', () => {
    expect(row(tool({ facts: ['the order'], owner: 'payments', visibleTo: 'customers' }), [before, after])).toEqual({
      tool: 'refund',
      risk: 'high',
      unattended: true,
      visibleTo: 'customers',
      before: ['gate/PreToolUse[0].hooks[0]: a command, in /repo/.agents/hooks.json'],
      after: ['gate/PostToolUse[0].hooks[0]: POST https://hooks.example/gate, in /repo/.agents/hooks.json'],
      facts: ['the order'],
      failure: ['the call is denied'],
      logged: [
        'one line for each run in /var/log/hooks.ndjson: event, tool, handler, outcome, decision, reason_code, duration_ms, action_id, trace_id',
      ],
      owner: ['payments'],
      blank: [],
    });
  });

  it("takes the registry's own words where no hook of ours runs", () => {
    const known = tool({
      before: 'a gateway',
      after: 'a webhook',
      facts: ['f'],
      failure: 'stops',
      logged: 'a journal',
      owner: 'o',
    });
    expect(row(known)).toMatchObject({
      before: ['a gateway'],
      after: ['a webhook'],
      failure: ['stops'],
      logged: ['a journal'],
      blank: [],
    });
  });

  it('leaves every point blank of which nothing is known', () => {
    expect(row(tool()).blank).toEqual(['before', 'after', 'facts', 'failure', 'logged', 'owner']);
  });

  it.each([
    { name: 'that is off', rules: [rule({ enabled: false })] },
    { name: 'for another tool', rules: [rule({}, ['refund_all'])] },
    { name: 'of an event of the loop', rules: [rule({ event: 'Stop' })] },
    {
      name: 'of a file that cannot be used',
      rules: [before],
      problems: [{ file: before.file, path: '', severity: 'error', message: 'is not JSON' }] as const,
    },
  ])('does not count a rule $name', ({ rules, problems }) => {
    expect(row(tool(), rules, {}, problems).blank).toHaveLength(6);
  });

  it('counts a rule of a file that has warnings alone', () => {
    const problems = [{ file: before.file, path: '', severity: 'warning', message: 'x' }] as const;
    expect(row(tool(), [before], {}, problems).before).toHaveLength(1);
  });

  it.each([
    { name: 'of a low-risk tool', risk: 'low', onFailure: undefined, words: 'the call goes on' },
    {
      name: 'of a reversible one',
      risk: 'reversible',
      onFailure: undefined,
      words: 'a failure that may pass is tried once more; then a human has to look before the call goes on',
    },
    { name: 'of a high-impact one', risk: 'high', onFailure: undefined, words: 'the call is denied' },
    { name: 'that the handler chooses', risk: 'high', onFailure: 'allow', words: 'the call goes on' },
  ] as const)('words the failure behaviour $name', ({ risk, onFailure, words }) => {
    expect(row(tool({ risk }), [rule({ handlers: [command({ onFailure })] })]).failure).toEqual([words]);
  });

  it('tells handlers apart whose failures come to different things', () => {
    const handlers = [command({ id: 'a' }), command({ id: 'b', onFailure: 'allow' }), command({ id: 'c' })];
    expect(row(tool(), [rule({ handlers })]).failure).toEqual(['a, c: the call is denied', 'b: the call goes on']);
  });

  it('names what is logged only where something is, and arguments where they are', () => {
    expect(row(tool(), [after], { recordArguments: true }).logged[0]).toMatch(/, arguments$/);
    expect(row(tool(), [before], { audit: undefined }).blank).toContain('logged');
    expect(row(tool({ logged: 'a journal' }), [before], { audit: undefined }).logged).toEqual(['a journal']);
  });

  it('shows no command, header, password or query', () => {
    const handlers = [
      command({ command: 'KEY=SENTINEL ./gate.sh' }),
      http({ url: 'https://u:SENTINEL@hooks.example/gate?key=SENTINEL', headers: [['x-key', 'SENTINEL']] }),
      http({ url: 'SENTINEL' }),
    ];
    const made = row(tool(), [rule({ handlers })]);
    expect(JSON.stringify(made)).not.toContain('SENTINEL');
    expect(made.before[1]).toContain('POST https://hooks.example/gate,');
  });

  it('spells out what a terminal could act on', () => {
    expect(row(tool({ owner: 'a\u001b[31mb' })).owner).toEqual(['a\\u001b[31mb']);
  });

  it('names the tools that are not ready to run unattended', () => {
    const ready = tool({ name: 'ready', before: 'b', after: 'a', facts: ['f'], failure: 'x', logged: 'l', owner: 'o' });
    const tools = [tool({ name: 'unready', unattended: true }), tool({ name: 'watched', unattended: false }), ready];
    const { rows, unready } = hookMap(
      new Map(tools.map((one) => [one.name, one])),
      { files: [], rules: [], problems: [] },
      context,
    );
    expect(rows.map((each) => each.tool)).toEqual(['unready', 'watched', 'ready']);
    expect(unready).toEqual(['unready']);
  });
});
