import { describe, expect, it } from 'vitest';
import { HOOK_OUTCOMES } from '../../src/exchange/hook-words.ts';
import { FAILURES } from '../../src/hooks/failures.ts';
import type { HookFailureCode } from '../../src/hooks/failures.ts';
import {
  MOST_RETRIES,
  RISKS,
  effectAfter,
  evidenceFor,
  mayRetry,
  needsEvidence,
  onFailureOf,
} from '../../src/hooks/failure-policy.ts';
import type { Evidence, Risk } from '../../src/hooks/failure-policy.ts';

const ALL_CODES = Object.keys(FAILURES) as HookFailureCode[];
const silent = { onFailure: undefined };

/** The table "choose failure behaviour by consequence", in the words of this program. The tool's own timeouts are the runtime's business. */
const BY_CONSEQUENCE: {
  readonly situation: string;
  readonly of: (risk: Risk) => unknown;
  readonly low: unknown;
  readonly reversible: unknown;
  readonly high: unknown;
}[] = [
  {
    situation: 'pre-hook timeout',
    of: (risk) => onFailureOf({ handler: silent, risk, dialect: 'allow' }),
    low: 'allow',
    reversible: 'review',
    high: 'deny',
  },
  {
    situation: 'pre-hook timeout, asked again',
    of: (risk) => mayRetry(risk, 'timeout'),
    low: false,
    reversible: true,
    high: false,
  },
  {
    situation: 'post-hook timeout',
    of: (risk) => effectAfter({ risk, owner: 'payments' }),
    low: { effect: 'degraded', alert: undefined },
    reversible: { effect: 'unknown', alert: undefined },
    high: { effect: 'unknown', alert: 'payments' },
  },
  { situation: 'audit sink unavailable, line lost', of: ending('lost'), low: 'goes on', reversible: 'review', high: 'deny' },
  { situation: 'audit sink unavailable, line kept', of: ending('kept'), low: 'goes on', reversible: 'goes on', high: 'deny' },
  { situation: 'audit sink available', of: ending('written'), low: 'goes on', reversible: 'goes on', high: 'goes on' },
];

function ending(evidence: Evidence): (risk: Risk) => string {
  return (risk) => evidenceFor(risk)?.(evidence)?.decision ?? 'goes on';
}

describe('failure behaviour by consequence', () => {
  const rows = BY_CONSEQUENCE.flatMap((row) => RISKS.map((risk) => ({ ...row, risk, comesTo: row[risk] })));
  it.each(rows)('$situation, $risk: $comesTo', ({ of, risk, comesTo }) => {
    expect(of(risk)).toEqual(comesTo);
  });
});

describe('onFailureOf', () => {
  it.each([
    { name: 'the handler speaks first', onFailure: 'allow', risk: 'high', dialect: 'deny', comesTo: 'allow' },
    { name: 'and may be stricter than the risk', onFailure: 'deny', risk: 'low', dialect: 'allow', comesTo: 'deny' },
    { name: 'then the risk', onFailure: undefined, risk: 'low', dialect: 'deny', comesTo: 'allow' },
    { name: 'then the dialect, allowing', onFailure: undefined, risk: undefined, dialect: 'allow', comesTo: 'allow' },
    { name: 'or denying', onFailure: undefined, risk: undefined, dialect: 'deny', comesTo: 'deny' },
  ] as const)('$name', ({ onFailure, risk, dialect, comesTo }) => {
    expect(onFailureOf({ handler: { onFailure }, risk, dialect })).toBe(comesTo);
  });
});

describe('mayRetry', () => {
  it('asks again once at most', () => {
    expect(MOST_RETRIES).toBe(1);
  });

  it.each(ALL_CODES)('of a reversible tool, after %s only where it may pass', (code) => {
    expect(mayRetry('reversible', code)).toBe(['timeout', 'unreachable'].includes(code));
  });

  it.each([
    { status: null, again: false },
    { status: 499, again: false },
    { status: 500, again: true },
    { status: 599, again: true },
    { status: 600, again: false },
  ])('after status $status: $again', ({ status, again }) => {
    expect(mayRetry('reversible', 'http_status', status)).toBe(again);
  });

  it('never for another risk, nor where none is known, whatever the failure', () => {
    for (const code of ALL_CODES)
      for (const risk of ['low', 'high', undefined] as const) expect(mayRetry(risk, code, 503)).toBe(false);
  });
});

describe('effectAfter', () => {
  it('knows the effect of a tool that nobody registered', () => {
    expect(effectAfter(undefined)).toEqual({ effect: 'known', alert: undefined });
  });

  it('alerts the operator where a high-impact tool has no owner', () => {
    expect(effectAfter({ risk: 'high', owner: undefined })).toEqual({ effect: 'unknown', alert: 'operator' });
  });
});

describe('needsEvidence', () => {
  it('waits for the ledger by risk', () => {
    expect([...RISKS, undefined].map((risk) => needsEvidence(risk))).toEqual([undefined, 'kept', 'written', undefined]);
    expect(evidenceFor('low')).toBeUndefined();
    expect(evidenceFor(undefined)).toBeUndefined();
  });

  it('names the lack by a stable code', () => {
    expect(evidenceFor('high')?.('kept')).toMatchObject({ decision: 'deny', reasonCode: 'evidence_missing' });
    expect(evidenceFor('reversible')?.('lost')?.reason).toMatch(/^the audit line of this call could neither/);
  });
});

describe('the outcomes', () => {
  it('are each named once', () => {
    expect(new Set(HOOK_OUTCOMES).size).toBe(HOOK_OUTCOMES.length);
    expect(HOOK_OUTCOMES).toContain('none');
    for (const code of ALL_CODES) expect(HOOK_OUTCOMES).toContain(code);
  });
});
