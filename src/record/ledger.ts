// The end of every journey: one Outcome in, one audit line, one set of metrics and one memory of refusals out (invariant 6).
// It must never throw into an exchange, and never let the text of a thrown thing carry a header value, a query or a secret out.
import { CODES, Fault } from '../exchange/codes.ts';
import type { Outcome } from '../exchange/trace.ts';
import type { Logger } from '../foundation/logger.ts';
import { stackFrames } from '../foundation/stack-frames.ts';
import { showWire } from '../foundation/visible-text.ts';
import { createAuditLine } from './audit-line.ts';
import type { AuditSink } from './audit-sink.ts';
import type { Denials } from './denials.ts';
import type { Metrics } from './metrics.ts';

/** Where an Outcome is written down. */
export interface LedgerOptions {
  readonly audit: Pick<AuditSink, 'write'>;
  readonly metrics: Pick<Metrics, 'exchange' | 'injected' | 'upstreamConnected'>;
  readonly denials: Pick<Denials, 'add'>;
  readonly log: Logger;
}

const MAX_CAUSE = 300;
const MAX_CAUSES = 4;

/** Makes the ledger. The function it gives never throws; a part that fails is logged and does not keep the others from their work. */
export function createLedger(options: LedgerOptions): (outcome: Outcome) => void {
  const { audit, metrics, denials, log } = options;
  const auditLine = createAuditLine();
  const parts: readonly (readonly [string, (outcome: Outcome) => void])[] = [
    ['audit', (outcome) => audit.write(auditLine(outcome))],
    ['metrics', (outcome) => recordMetrics(metrics, outcome)],
    ['denials', (outcome) => denials.add(outcome)],
    ['log', (outcome) => logFault(log, outcome)],
  ];
  return function record(outcome) {
    for (const [part, write] of parts) {
      try {
        write(outcome);
      } catch (error) {
        reportLoss(log, { part, requestId: outcome.arrival.requestId, error });
      }
    }
  };
}

function recordMetrics(metrics: LedgerOptions['metrics'], outcome: Outcome): void {
  const { trace } = outcome;
  metrics.exchange(outcome);
  // Before dispatch a credential is only attached: nothing has borne it out yet.
  if (trace.dispatchedAt > 0) for (const credential of trace.credentials) metrics.injected(credential);
  if (trace.connectMs >= 0) metrics.upstreamConnected((trace.connectMs + Math.max(trace.tlsMs, 0)) / 1000);
}

function reportLoss(log: Logger, loss: { readonly part: string; readonly requestId: string; readonly error: unknown }): void {
  try {
    log.error('a part of the ledger failed', {
      part: loss.part,
      request_id: loss.requestId,
      cause: loss.error instanceof Error ? loss.error.name : 'unknown',
    });
  } catch {
    // the log itself is what failed: there is nobody left to tell
  }
}

function logFault(log: Logger, outcome: Outcome): void {
  const { verdict, arrival, trace } = outcome;
  if (!(verdict instanceof Fault)) return;
  const removed = wireValues(outcome);
  const fields = {
    request_id: arrival.requestId,
    code: verdict.code,
    host: (trace.intent?.authority ?? arrival.ceiling?.authority)?.host,
    cause: causes(verdict.cause, removed),
  };
  if (verdict.code === 'internal_error')
    log.error(without(verdict.message, removed), {
      ...fields,
      stack: stackFrames(verdict.cause instanceof Error ? verdict.cause : verdict),
    });
  else log[CODES[verdict.code].level ?? 'info'](without(verdict.message, removed), fields);
}

/** The chain of causes as names, codes and messages; `undefined` where there is none. */
function causes(first: unknown, removed: readonly string[]): string | undefined {
  const texts: string[] = [];
  const waiting: unknown[] = [first];
  while (waiting.length > 0 && texts.length < MAX_CAUSES) {
    const cause = waiting.shift();
    if (cause === undefined || cause === null) continue;
    texts.push(causeText(cause, removed));
    if (cause instanceof AggregateError) waiting.push(...(cause.errors as unknown[]));
    if (cause instanceof Error) waiting.push(cause.cause);
  }
  return texts.length === 0 ? undefined : texts.join('; ');
}

function causeText(cause: unknown, removed: readonly string[]): string {
  if (!(cause instanceof Error)) return `a thrown ${typeof cause}`;
  const code = 'code' in cause && typeof cause.code === 'string' ? ` ${cause.code}` : '';
  // JSON.parse quotes what it could not read, which may be the answer of a token endpoint.
  if (cause instanceof SyntaxError || cause.message === '') return `${cause.name}${code}`;
  return `${cause.name}${code}: ${showWire(without(cause.message, removed), MAX_CAUSE)}`;
}

/** What the sandbox sent and a message may therefore have picked up: field values, tokens in them, queries, userinfo. */
function wireValues({ arrival, trace }: Outcome): readonly string[] {
  const values = [
    trace.intent?.query.slice(1),
    trace.intent?.identity,
    arrival.ceiling?.identity,
    arrival.target.split('?', 2)[1],
  ];
  for (let i = 0; i + 1 < arrival.fields.length; i += 2) {
    if (arrival.fields[i]?.toLowerCase() !== 'host') values.push(arrival.fields[i + 1]);
  }
  const whole = values.filter((value) => value !== undefined);
  const tokens = whole.flatMap((value) => value.split(/[\s,;=&]+/)).filter((token) => token.length >= 8);
  return [...whole.filter((value) => value.length >= 6), ...tokens];
}

function without(text: string, removed: readonly string[]): string {
  return removed.reduce((left, value) => left.replaceAll(value, '[removed]'), text);
}
