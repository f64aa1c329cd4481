import { describe, expect, it } from 'vitest';
import { readEvent } from '../../src/hooks/read-event.ts';
import type { DialectName, EventName, JsonObject } from '../../src/hooks/words.ts';
import { PAYLOADS, settingsPayload } from './examples.ts';

const CONVERSATION = 'ec33ebf9-0cba-4100-8142-c61503f6c587';

describe('readEvent', () => {
  it.each<[EventName, JsonObject, DialectName, string, string | undefined]>([
    ['pre_tool_execution', PAYLOADS.pre_tool_execution!, 'managed', 'before', 'code_execution'],
    ['post_tool_execution', PAYLOADS.post_tool_execution!, 'managed', 'after', 'code_execution'],
    ['SessionStart', PAYLOADS.SessionStart!, 'desktop', 'loop', undefined],
    ['PreToolUse', PAYLOADS.PreToolUse!, 'desktop', 'before', 'run_command'],
    ['PostToolUse', PAYLOADS.PostToolUse!, 'desktop', 'after', 'run_command'],
    ['PreInvocation', PAYLOADS.PreInvocation!, 'desktop', 'loop', undefined],
    ['PostInvocation', PAYLOADS.PostInvocation!, 'desktop', 'loop', undefined],
    ['Stop', PAYLOADS.Stop!, 'desktop', 'loop', undefined],
    ['PreToolUse', settingsPayload('PreToolUse'), 'settings', 'before', 'Bash'],
    ['PostToolUse', settingsPayload('PostToolUse'), 'settings', 'after', 'Bash'],
  ])('reads %s by its name and payload', (...[event, payload, dialect, moment, tool]) => {
    const read = readEvent({ event, payload });
    expect(read).toMatchObject({ dialect, name: event, moment, payload });
    expect('tool' in read ? read.tool?.name : 'none').toBe(tool);
    expect(readEvent({ event, payload, dialect })).toEqual(read);
  });

  it.each<[string, { event: string; payload: unknown; dialect?: DialectName }, RegExp]>([
    ['an unknown event', { event: 'pre_tool_use', payload: {} }, /unknown event "pre_tool_use"; did you mean "PreToolUse"/],
    ['a slip of the pen', { event: 'pre_tool_executon', payload: {} }, /did you mean "pre_tool_execution"/],
    ['an event in another case', { event: 'pretooluse', payload: {} }, /did you mean "PreToolUse"/],
    ['an event of the coding agent that is not run', { event: 'UserPromptSubmit', payload: {} }, /unknown event/],
    ['a control character in the name', { event: 'a\u001b[31m', payload: {} }, /"a\\u001b\[31m"/],
    ['a payload that is a list', { event: 'Stop', payload: [] }, /must be a JSON object; it is a list/],
    ['no payload', { event: 'Stop', payload: undefined }, /it is missing/],
    [
      'a payload of neither dialect',
      { event: 'PreToolUse', payload: { tool_call: {} } },
      /"toolCall" \(desktop\) or "tool_name" \(settings\); it holds neither/,
    ],
    ['a payload of both', { event: 'PreToolUse', payload: { toolCall: {}, tool_name: 'x' } }, /it holds both/],
    [
      'an event that the forced dialect lacks',
      { event: 'Stop', payload: {}, dialect: 'managed' },
      /"managed" has no event "Stop"; it has pre_tool_execution/,
    ],
    [
      'a forced dialect whose payload it is not',
      { event: 'PreToolUse', payload: settingsPayload('PreToolUse'), dialect: 'desktop' },
      /needs "toolCall"/,
    ],
    ['no tool', { event: 'pre_tool_execution', payload: {} }, /needs "tool_call"/],
    ['a tool without a name', { event: 'pre_tool_execution', payload: { tool_call: { args: {} } } }, /"tool_call.name"/],
    ['a tool with an empty name', { event: 'pre_tool_execution', payload: { tool_call: { name: '' } } }, /"tool_call.name"/],
    ['a tool whose name is a list', { event: 'PostToolUse', payload: { toolCall: { name: ['x'] } } }, /"toolCall.name"/],
    [
      'arguments that are text',
      { event: 'pre_tool_execution', payload: { tool_call: { name: 'x', args: '{}' } } },
      /"tool_call.args"/,
    ],
    [
      'arguments that are null',
      { event: 'pre_tool_execution', payload: { tool_call: { name: 'x', args: null } } },
      /"tool_call.args"/,
    ],
    ['an empty tool name of the settings', { event: 'PreToolUse', payload: { tool_name: '' } }, /"tool_name"/],
    ['an input that is a list', { event: 'PreToolUse', payload: { tool_name: 'x', tool_input: [] } }, /"tool_input"/],
    [
      'a payload that names another event',
      { event: 'PreToolUse', payload: settingsPayload('PostToolUse') },
      /"hook_event_name" of the payload is not "PreToolUse"/,
    ],
    [
      'a nesting without end',
      { event: 'Stop', payload: JSON.parse(`{"a":${'['.repeat(9999)}${']'.repeat(9999)}}`) as unknown },
      /nested too deeply/,
    ],
  ])('refuses %s', (_, input, problem) => {
    expect(readEvent(input)).toEqual({ problem: expect.stringMatching(problem) as string });
  });

  it('takes a call without arguments for one with none', () => {
    expect(readEvent({ event: 'pre_tool_execution', payload: { tool_call: { name: 'x' } } })).toMatchObject({
      tool: { name: 'x', args: {} },
    });
  });
});

describe('the ids of an event', () => {
  const idOf = (event: EventName, payload: JsonObject): string => {
    const read = readEvent({ event, payload });
    return 'actionId' in read ? read.actionId : read.problem;
  };
  const call = (args: JsonObject, more: JsonObject = {}): JsonObject => ({ tool_call: { name: 'x', args }, ...more });

  it.each<[string, EventName, JsonObject, string]>([
    ['one that the runtime gave', 'pre_tool_execution', call({}, { action_id: 'act_cancel_7412' }), 'act_cancel_7412'],
    ['one of 64 characters', 'pre_tool_execution', call({}, { action_id: 'a'.repeat(64) }), 'a'.repeat(64)],
    ['the id of the coding agent', 'PreToolUse', settingsPayload('PreToolUse'), 'toolu_01ABC'],
    ['conversation and step', 'PreToolUse', PAYLOADS.PreToolUse!, `${CONVERSATION}:19`],
    ['conversation and step, after', 'PostToolUse', PAYLOADS.PostToolUse!, `${CONVERSATION}:19`],
    ['conversation and invocation', 'PreInvocation', PAYLOADS.PreInvocation!, `${CONVERSATION}:invocation-3`],
    ['conversation and execution', 'Stop', PAYLOADS.Stop!, `${CONVERSATION}:execution-1`],
    ['conversation and start', 'SessionStart', PAYLOADS.SessionStart!, `${CONVERSATION}:start`],
    ['the runtime’s before the dialect’s', 'PreToolUse', settingsPayload('PreToolUse', { action_id: 'mine' }), 'mine'],
  ])('take %s', (_, event, payload, id) => {
    expect(idOf(event, payload)).toBe(id);
  });

  it.each<[string, JsonObject]>([
    ['is too long', call({}, { action_id: 'a'.repeat(65) })],
    ['holds a line break', call({}, { action_id: 'a\r\nX-Evil: 1' })],
    ['holds a slash', call({}, { action_id: '../x' })],
    ['is empty', call({}, { action_id: '' })],
    ['is no text', call({}, { action_id: 5 })],
    ['is missing', call({ code: 'ls' })],
  ])('are made anew where one %s', (_, payload) => {
    expect(idOf('pre_tool_execution', payload)).toMatch(/^act_[0-9a-f]{16}$/);
  });

  it('do not become one where two ids differ in a character that is not allowed', () => {
    expect(idOf('pre_tool_execution', call({}, { action_id: 'a/b' }))).not.toBe(
      idOf('pre_tool_execution', call({}, { action_id: 'a b' })),
    );
  });

  it('are the same before and after, whatever the order of the arguments', () => {
    const before = idOf('pre_tool_execution', call({ a: 1, b: { c: [{ d: 1, e: 2 }], f: 3 } }, { environment_id: 'e1' }));
    const after = idOf('post_tool_execution', {
      error: 'x',
      environment_id: 'e1',
      ...call({ b: { f: 3, c: [{ e: 2, d: 1 }] }, a: 1 }),
    });
    expect(after).toBe(before);
  });

  it.each([
    ['environment', call({ a: 1 }, { environment_id: 'e2' })],
    ['argument', call({ a: 2 }, { environment_id: 'e1' })],
    ['tool', { tool_call: { name: 'y', args: { a: 1 } }, environment_id: 'e1' }],
  ])('differ where the %s does', (_, payload) => {
    expect(idOf('pre_tool_execution', payload)).not.toBe(idOf('pre_tool_execution', call({ a: 1 }, { environment_id: 'e1' })));
  });

  it('differ for two events of the loop that have no number', () => {
    expect(idOf('Stop', { a: 1 })).not.toBe(idOf('Stop', { a: 2 }));
    expect(idOf('PreInvocation', { a: 1 })).not.toBe(idOf('Stop', { a: 1 }));
  });

  it.each([
    ['tr_82ac', 'tr_82ac'],
    ['a'.repeat(65), undefined],
    ['a b', undefined],
    ['', undefined],
    [5, undefined],
    [undefined, undefined],
  ])('take the trace %j as %j', (trace_id, expected) => {
    expect(readEvent({ event: 'pre_tool_execution', payload: call({}, { trace_id }) })).toMatchObject({ traceId: expected });
  });
});
