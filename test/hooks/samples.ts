// Events, handlers and runs as tests need them: whole, with what matters to a test put over it.
import type { CommandHandler, HandlerRun, HookEvent, HookLine, HookRule, HttpHandler } from '../../src/hooks/words.ts';

/** A command handler. */
export function command(over: Partial<CommandHandler> = {}): CommandHandler {
  return {
    kind: 'command',
    id: 'gate/PreToolUse[0].hooks[0]',
    onFailure: undefined,
    requireDecision: false,
    timeoutMs: 30_000,
    command: './gate.sh',
    args: undefined,
    shell: 'sh',
    ...over,
  };
}

/** An http handler. */
export function http(over: Partial<HttpHandler> = {}): HttpHandler {
  return {
    kind: 'http',
    id: 'gate/PreToolUse[0].hooks[1]',
    onFailure: undefined,
    requireDecision: false,
    timeoutMs: 30_000,
    url: 'https://hooks.example/gate',
    headers: [],
    allowedVariables: [],
    ...over,
  };
}

/** A rule that matches the tools it is given. */
export function rule(over: Partial<HookRule> = {}, tools: readonly string[] = ['refund']): HookRule {
  return {
    file: '/repo/.agents/hooks.json',
    dialect: 'desktop',
    group: 'gate',
    event: 'PreToolUse',
    enabled: true,
    matcher: { source: tools.join('|'), problem: undefined, matches: (tool) => tools.includes(tool) },
    handlers: [command()],
    ...over,
  };
}

/** A `PreToolUse` of the tool `refund`. */
export function event(over: Partial<HookEvent> = {}): HookEvent {
  return {
    dialect: 'desktop',
    name: 'PreToolUse',
    moment: 'before',
    tool: { name: 'refund', args: { order: '7412' } },
    payload: {},
    actionId: 'act_1',
    traceId: 'tr_1',
    ...over,
  };
}

/** A run that allowed, in 12.5 ms. */
export function run(over: Partial<HandlerRun> = {}): HandlerRun {
  return {
    handler: command(),
    rule: rule(),
    outcome: 'allow',
    answer: { decision: 'allow' },
    failure: undefined,
    onFailure: undefined,
    raw: { failure: undefined, status: 0, output: '{}', complaint: '', truncated: false, durationMs: 12.5, startMs: 3.25 },
    ...over,
  };
}

/** A line with an id of its own. */
export function line(id: string): HookLine {
  return {
    time: '2026-10-01T00:00:00.000Z',
    kind: 'hook',
    event: 'PreToolUse',
    dialect: 'desktop',
    tool: 'refund',
    handler: 'gate/PreToolUse[0].hooks[0]',
    handler_kind: 'command',
    file: '/repo/.agents/hooks.json',
    outcome: 'allow',
    decision: 'allow',
    reason_code: null,
    failure: null,
    truncated: false,
    duration_ms: 1,
    start_ms: 1,
    action_id: id,
    trace_id: null,
  };
}
