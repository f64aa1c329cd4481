import { describe, expect, it } from 'vitest';
import { callLine, hookLine } from '../../src/hooks/hook-line.ts';
import type { Verdict } from '../../src/hooks/words.ts';
import { event, http, rule, run } from './samples.ts';

const endedAt = Date.UTC(2026, 9, 1, 12, 0, 0, 7);

describe('hookLine', () => {
  it('says what ran, for which call, and what came of it', () => {
    expect(hookLine(event(), run(), { endedAt })).toEqual({
      time: '2026-10-01T12:00:00.007Z',
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
      duration_ms: 12.5,
      start_ms: 3.25,
      action_id: 'act_1',
      trace_id: 'tr_1',
    });
  });

  const timeout = { code: 'timeout', message: 'no answer within the time limit: 30 s' } as const;
  it.each([
    {
      name: 'a denial',
      run: run({ outcome: 'deny', answer: { decision: 'deny', reasonCode: 'tenant_mismatch' } }),
      decision: 'deny',
    },
    { name: 'no opinion', run: run({ outcome: 'none', answer: {} }), decision: 'allow' },
    {
      name: 'a failure that denies',
      run: run({ outcome: 'timeout', answer: { decision: 'deny' }, failure: timeout, onFailure: 'deny' }),
      decision: 'deny',
    },
    {
      name: 'a failure that is overlooked',
      run: run({ outcome: 'timeout', answer: {}, failure: timeout, onFailure: 'allow' }),
      decision: 'allow',
    },
  ] as const)('gives $name its decision', ({ run, decision }) => {
    expect(hookLine(event(), run)).toMatchObject({ decision, outcome: run.outcome });
  });

  it('has no decision after a call', () => {
    expect(hookLine(event({ name: 'PostToolUse', moment: 'after' }), run()).decision).toBeNull();
  });

  it('holds the reason code and the failure, and neither output nor header nor arguments', () => {
    const raw = {
      failure: timeout,
      status: null,
      output: 'SENTINEL',
      complaint: 'SENTINEL',
      truncated: true,
      durationMs: 1,
      startMs: 1,
    };
    const failed = run({
      handler: http({ headers: [['authorization', 'SENTINEL']], url: 'https://user:SENTINEL@hooks.example' }),
      outcome: 'timeout',
      answer: { decision: 'deny', reasonCode: 'hook_timeout', reason: 'SENTINEL', publicMessage: 'SENTINEL' },
      failure: timeout,
      onFailure: 'deny',
      raw,
    });
    const made = hookLine(event({ tool: { name: 'refund', args: { key: 'SENTINEL' } }, payload: { key: 'SENTINEL' } }), failed);
    expect(made).toMatchObject({ reason_code: 'hook_timeout', failure: timeout.message, truncated: true, handler_kind: 'http' });
    expect(JSON.stringify(made)).not.toContain('SENTINEL');
  });

  // fault L01
  it.each([
    { name: 'a line break', wire: 'a\nb', shown: 'a\\u000ab' },
    { name: 'a colour', wire: '\u001b[31mx', shown: '\\u001b[31mx' },
    { name: 'a direction override', wire: 'a\u202eb', shown: 'a\\u202eb' },
  ])('spells out $name in every text', ({ wire, shown }) => {
    const made = hookLine(
      event({ tool: { name: wire, args: { [wire]: [wire] } }, actionId: wire, traceId: wire }),
      run({
        handler: http({ id: wire }),
        rule: rule({ file: wire }),
        answer: { reasonCode: wire },
        failure: { code: 'tls', message: wire },
      }),
      { arguments: true },
    );
    expect(made).toMatchObject({
      tool: shown,
      handler: shown,
      file: shown,
      reason_code: shown,
      failure: shown,
      action_id: shown,
      trace_id: shown,
      arguments: { [shown]: [shown] },
    });
  });

  it('caps every text', () => {
    const long = 'x'.repeat(5_000);
    const made = hookLine(
      event({ tool: { name: long, args: {} } }),
      run({
        handler: http({ id: long }),
        rule: rule({ file: long }),
        answer: { reasonCode: long },
        failure: { code: 'tls', message: long },
      }),
    );
    expect([made.tool, made.handler, made.file, made.reason_code, made.failure].map((text) => text?.length)).toEqual([
      128, 256, 1024, 64, 300,
    ]);
  });
});

describe('arguments of a line', () => {
  const shown = (args: Record<string, unknown>): unknown =>
    hookLine(event({ tool: { name: 'refund', args } }), run(), { arguments: true }).arguments;

  it('stand there as they are where they are small', () => {
    const args = { order: '7412', amount: 3.5, tags: ['a', null, true], deep: { text: 'grüße' } };
    expect(shown(args)).toEqual(args);
  });

  it('are left out of events without a tool', () => {
    expect(hookLine(event({ tool: undefined, moment: 'loop' }), run(), { arguments: true })).not.toHaveProperty('arguments');
  });

  it.each([
    { name: 'a long text', args: { text: 'x'.repeat(1_025) }, left: { text: `${'x'.repeat(1_024)}...` } },
    {
      name: 'deep nesting',
      args: { a: { b: { c: { d: { e: { f: { g: 1 } } } } } } },
      left: { a: { b: { c: { d: { e: { f: '...' } } } } } },
    },
    {
      name: 'a long list',
      args: { list: Array.from({ length: 65 }, () => 1) },
      left: { list: [...Array.from({ length: 64 }, () => 1), '... 1 left out'] },
    },
  ])('are cut: $name', ({ args, left }) => {
    expect(shown(args)).toEqual(left);
  });

  it('are named only where even their cut form is too large', () => {
    const args = Object.fromEntries(Array.from({ length: 80 }, (_, index) => [`key${index}`, 'x'.repeat(1_000)]));
    const left = shown(args) as { names: string[] };
    expect(left).toMatchObject({ '...': expect.stringMatching(/^\d+ characters left out$/) as string });
    expect(left.names.slice(0, 2)).toEqual(['key0', 'key1']);
    expect(JSON.stringify(left).length).toBeLessThan(5_000);
  });
});

describe('callLine', () => {
  const verdict: Verdict = {
    decision: 'deny',
    answer: { decision: 'deny', reasonCode: 'hooks_invalid', reason: 'SENTINEL' },
    changedKeys: [],
    effect: 'known',
    alert: undefined,
    runs: [],
  };

  it('names no handler', () => {
    const made = callLine(event(), verdict, { endedAt });
    expect(made).toMatchObject({
      handler: null,
      handler_kind: null,
      file: null,
      outcome: 'deny',
      decision: 'deny',
      reason_code: 'hooks_invalid',
    });
    expect(JSON.stringify(made)).not.toContain('SENTINEL');
  });

  it('says none where nobody had an opinion', () => {
    expect(callLine(event(), { ...verdict, decision: 'allow', answer: {} })).toMatchObject({
      outcome: 'none',
      decision: 'allow',
    });
  });
});
