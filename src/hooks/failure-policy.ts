// What a failed hook, a lost line and an unclear effect come to, by the consequence of the tool: choose failure behaviour by risk.
// Pure tables; it must never look at output, clock or files, and where nothing is known of a tool it leaves the word to the dialect.
import type { HookFailureCode } from './failures.ts';
import type { HookAnswer, HookHandler, HookLedger, OnFailure, Verdict } from './words.ts';

/** What a tool can do: read, change something that can be changed back, or have consequences. From the tool registry. */
export const RISKS = ['low', 'reversible', 'high'] as const;

/** One of them. */
export type Risk = (typeof RISKS)[number];

/** Where a failure behaviour comes from. */
export interface FailureSource {
  readonly handler: Pick<HookHandler, 'onFailure'>;
  /** undefined: the registry does not know the tool */
  readonly risk: Risk | undefined;
  /** The dialect's rule */
  readonly dialect: OnFailure;
}

/** A low-risk read stays usable, a reversible write waits for a human, a high-impact write does not happen. */
const BY_RISK = { low: 'allow', reversible: 'review', high: 'deny' } as const satisfies Record<Risk, OnFailure>;

/** What a call comes to whose hook failed before it: what handler, rule or group say, else the tool's risk, else the dialect's rule. */
export function onFailureOf({ handler, risk, dialect }: FailureSource): OnFailure {
  return handler.onFailure ?? (risk === undefined ? dialect : BY_RISK[risk]);
}

/** How often a failed hook is asked again, where `mayRetry` says that it may be. */
export const MOST_RETRIES = 1;

/** Failures that may be gone a moment later; `http_status` only where the endpoint says that it is at fault itself. */
const PASSING: ReadonlySet<HookFailureCode> = new Set(['timeout', 'unreachable']);

/**
 * Whether a failed hook is asked once more: only for a reversible tool, where waiting costs little and a human would be asked otherwise.
 * `status` is that of the run, which counts for `http_status` alone.
 */
export function mayRetry(risk: Risk | undefined, code: HookFailureCode, status: number | null = null): boolean {
  if (risk !== 'reversible') return false;
  return PASSING.has(code) || (code === 'http_status' && status !== null && status >= 500 && status <= 599);
}

/** What is known of a tool's effect after a hook behind it failed: low risk can be shown as degraded, else the effect is unknown. */
export function effectAfter(
  tool: { readonly risk: Risk; readonly owner?: string | undefined } | undefined,
): Pick<Verdict, 'effect' | 'alert'> {
  if (tool === undefined) return { effect: 'known', alert: undefined };
  return { effect: tool.risk === 'low' ? 'degraded' : 'unknown', alert: alertFor(tool) };
}

/** Who hears of a failed hook or a lost line, before the tool or after it: the owner of a high-impact tool, and nobody for any other. */
export function alertFor(tool: { readonly risk: Risk; readonly owner?: string | undefined } | undefined): Verdict['alert'] {
  return tool?.risk === 'high' ? (tool.owner ?? UNOWNED) : undefined;
}

/** Who is alerted where a high-impact tool has no owner: the alert must not be lost for want of a name. */
export const UNOWNED = 'operator';

/** What became of a line of the ledger. */
export type Evidence = Awaited<ReturnType<HookLedger['write']>>;

/**
 * What the ledger must say at least before a call may go on: `written` for high impact; `kept` (it can be recovered) for what is
 * reversible; undefined: nobody waits for the ledger.
 */
export function needsEvidence(risk: Risk | undefined): 'written' | 'kept' | undefined {
  return risk === 'high' ? 'written' : risk === 'reversible' ? 'kept' : undefined;
}

/**
 * What is to be made of the ledger's answer before a call may go on; undefined where nobody waits for it. The function gives undefined
 * where the evidence suffices, else the answer that holds the call up: `deny` for high impact, `review` for what is reversible.
 */
export function evidenceFor(risk: Risk | undefined): ((evidence: Evidence) => HookAnswer | undefined) | undefined {
  const needed = needsEvidence(risk);
  if (needed === undefined) return undefined;
  return (evidence) => {
    if (evidence === 'written' || evidence === needed) return undefined;
    const decision = needed === 'written' ? 'deny' : 'review';
    return { decision, reason: LACKS[needed], reasonCode: 'evidence_missing' };
  };
}

const LACKS = {
  written: 'the audit line of this call could not be written, and a high-impact tool does not run without it',
  kept: 'the audit line of this call could neither be written nor kept for later',
} as const;
