// Last stage of the journey: what is written down about one exchange, made from its Outcome and the time alone. What its makers keep
// between lines (texts that come back, bounded) only saves work: the same Outcome always gives the same line.
// The keys are a contract with whoever reads the audit log. It must never hold a header value, a query, userinfo or a raw control
// character (faults L01, E17, E18): it names what it takes, so that nothing gets in by being new.
import { fieldValue } from '../exchange/header-fields.ts';
import type { Code } from '../exchange/codes.ts';
import type { Door, Protocol, Scheme } from '../exchange/stages.ts';
import type { Decision, Outcome, Trace } from '../exchange/trace.ts';
import { ownCopy } from '../foundation/own-copy.ts';
import { showWire } from '../foundation/visible-text.ts';

/** Longest text that is kept of each value from the wire, in characters. */
const CAPS = { method: 32, path: 1024 } as const;

const ACTION_ID = /^[A-Za-z0-9._:-]{1,64}$/;

/** One line of the audit log. `null`: unknown, or did not take place. */
export interface AuditLine {
  /** End of the exchange, ISO 8601 in UTC */
  readonly time: string;
  readonly request_id: string;
  readonly sandbox: string | null;
  /** The sandbox's own id for what it is doing, from `X-Sallyport-Action-Id` */
  readonly action_id: string | null;
  readonly door: Door;
  readonly protocol: Protocol;
  readonly method: string;
  readonly scheme: Scheme | null;
  /** Inside a tunnel, for a request whose syntax failed, the host of the tunnel */
  readonly host: string | null;
  readonly port: number | null;
  /** Without query, undecoded; for a request whose syntax failed, what is left of the raw target */
  readonly path: string | null;
  readonly rule: string | null;
  readonly decision: Decision;
  readonly reason: Code | null;
  readonly credentials: readonly string[];
  readonly address: string | null;
  /** Status the sandbox got */
  readonly status: number | null;
  readonly bytes_sent: number;
  readonly bytes_received: number;
  readonly duration_ms: number;
  readonly phases_ms: PhaseTimes;
}

/** Milliseconds of each phase. */
export interface PhaseTimes {
  readonly dns: number | null;
  readonly connect: number | null;
  readonly tls: number | null;
  /** From the request being handed over to the first byte of the answer */
  readonly wait: number | null;
}

/** The line of an exchange that ended at `endedAt` (epoch `ms`). */
export function auditLine(outcome: Outcome, endedAt: number = Date.now()): AuditLine {
  return lineOf(outcome, new Date(endedAt).toISOString());
}

/** Makes lines as auditLine does, for one after another: those of one second share one conversion of the time. */
export function createAuditLine(): (outcome: Outcome, endedAt?: number) => AuditLine {
  let second = -1;
  let text = '';
  return (outcome, endedAt = Date.now()) => {
    const whole = Math.floor(endedAt / 1000);
    if (whole !== second) {
      second = whole;
      text = new Date(whole * 1000).toISOString().slice(0, -4);
    }
    return lineOf(outcome, `${text}${String(Math.floor(endedAt) - whole * 1000).padStart(3, '0')}Z`);
  };
}

function lineOf(outcome: Outcome, time: string): AuditLine {
  const { arrival, trace } = outcome;
  const { intent } = trace;
  const authority = intent?.authority ?? arrival.ceiling?.authority;
  return {
    time,
    request_id: arrival.requestId,
    sandbox: trace.sandbox === '' ? null : trace.sandbox,
    action_id: actionId(outcome),
    door: arrival.door,
    protocol: arrival.protocol,
    method: showWire(arrival.method, CAPS.method),
    scheme: (intent === undefined ? arrival.ceiling?.scheme : intent.scheme) ?? null,
    host: authority?.host ?? null,
    port: authority?.port ?? null,
    path: shownPath(outcome),
    rule: ruleOf(outcome) ?? null,
    decision: outcome.decision,
    reason: reasonOf(outcome) ?? null,
    credentials: trace.credentials,
    address: trace.address ?? null,
    status: trace.status === 0 ? null : trace.status,
    bytes_sent: trace.bytesSent,
    bytes_received: trace.bytesReceived,
    duration_ms: rounded(outcome.durationMs),
    phases_ms: phaseTimes(trace),
  };
}

/**
 * Makes the text of lines as JSON, the same as JSON.stringify gives in a fraction of its time: every exchange pays for this.
 * What one exchange after another says of a host and of a rule is put together once and kept, bounded.
 */
export function createAuditText(): (line: AuditLine) => string {
  const asked = new Parts<Asked>();
  const decided = new Parts<Decided>();
  return (line) => {
    const { phases_ms: phases } = line;
    return (
      `{"time":"${line.time}","request_id":"${line.request_id}"${askedText(asked, line)},"path":${text(line.path)}` +
      `${decidedText(decided, line)},"bytes_sent":${number(line.bytes_sent)},"bytes_received":${number(line.bytes_received)}` +
      `,"duration_ms":${number(line.duration_ms)},"phases_ms":{"dns":${number(phases.dns)},"connect":${number(phases.connect)}` +
      `,"tls":${number(phases.tls)},"wait":${number(phases.wait)}}}`
    );
  };
}

/** Who asked for what: the members from `sandbox` to `port`. */
type Asked = Pick<AuditLine, 'sandbox' | 'action_id' | 'door' | 'protocol' | 'method' | 'scheme' | 'port'>;
/** What was decided and came of it: the members from `rule` to `status`. */
type Decided = Pick<AuditLine, 'decision' | 'reason' | 'credentials' | 'address' | 'status'>;

/** A part of a line, and what it was made of: nothing but what is compared, or a kept line would hold on to its whole request. */
interface Part<From> {
  readonly from: From;
  readonly text: string;
}

const MOST_PARTS = 4096;

/** The last part of each host, or of each rule; emptied when full, so that a flood of new ones costs time and no memory. */
class Parts<From> {
  readonly #last = new Map<string | null, Part<From>>();

  last(key: string | null): Part<From> | undefined {
    return this.#last.get(key);
  }

  keep(key: string | null, part: Part<From>): string {
    if (this.#last.size >= MOST_PARTS) this.#last.clear();
    this.#last.set(key, part);
    return part.text;
  }
}

function askedText(parts: Parts<Asked>, line: AuditLine): string {
  const last = parts.last(line.host);
  if (last !== undefined && sameAsked(last.from, line)) return last.text;
  const { sandbox, door, protocol, scheme, port } = line;
  const host = kept(line.host);
  const action_id = kept(line.action_id);
  const method = ownCopy(line.method);
  const members = JSON.stringify({ sandbox, action_id, door, protocol, method, scheme, host, port });
  return parts.keep(host, {
    from: { sandbox, action_id, door, protocol, method, scheme, port },
    text: `,${members.slice(1, -1)}`,
  });
}

function kept(text: string | null): string | null {
  return text === null ? null : ownCopy(text);
}

function sameAsked(a: Asked, b: Asked): boolean {
  return (
    a.sandbox === b.sandbox &&
    a.action_id === b.action_id &&
    a.door === b.door &&
    a.protocol === b.protocol &&
    a.method === b.method &&
    a.scheme === b.scheme &&
    a.port === b.port
  );
}

function decidedText(parts: Parts<Decided>, line: AuditLine): string {
  const last = parts.last(line.rule);
  if (last !== undefined && sameDecided(last.from, line)) return last.text;
  const { rule, decision, reason, credentials, address, status } = line;
  const members = JSON.stringify({ rule, decision, reason, credentials, address, status });
  return parts.keep(rule, { from: { decision, reason, credentials, address, status }, text: `,${members.slice(1, -1)}` });
}

function sameDecided(a: Decided, b: Decided): boolean {
  return (
    a.decision === b.decision &&
    a.reason === b.reason &&
    a.address === b.address &&
    a.status === b.status &&
    (a.credentials === b.credentials || a.credentials.join() === b.credentials.join())
  );
}

const PLAIN_IN_JSON = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

function text(value: string | null): string {
  if (value === null) return 'null';
  return PLAIN_IN_JSON.test(value) ? `"${value}"` : JSON.stringify(value);
}

function number(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return 'null';
  return Number.isInteger(value) || value > 2 ** 21 ? String(value) : thousandths(value);
}

/** A short decimal by way of two integers, which turn into text many times faster than a fraction does. */
function thousandths(value: number): string {
  const whole = Math.round(value * 1000);
  if (whole / 1000 !== value) return String(value);
  const rest = whole % 1000;
  const digits =
    rest % 10 !== 0 ? String(1000 + rest).slice(1) : rest % 100 !== 0 ? String(100 + rest / 10).slice(1) : String(rest / 100);
  return `${(whole - rest) / 1000}.${digits}`;
}

/** Id of the rule that decided: the refusal's own, else the permit's. */
export function ruleOf(outcome: Outcome): string | undefined {
  const { verdict, trace } = outcome;
  return (verdict !== undefined && 'rule' in verdict ? verdict.rule : undefined) ?? trace.permit?.rule.id;
}

/** Why it was refused, would have been, or failed; `undefined` where all went well. */
export function reasonOf(outcome: Outcome): Code | undefined {
  return outcome.verdict?.code ?? outcome.trace.permit?.wouldRefuse;
}

/** The path as the audit log shows it. */
export function shownPath(outcome: Outcome): string | null {
  const { intent } = outcome.trace;
  const path = intent === undefined ? bareTarget(outcome.arrival.target) : intent.path;
  return path === '' ? null : showWire(path, CAPS.path);
}

/**
 * What may be shown of a target that nobody could read: no query, no fragment, no userinfo. A target that failed its syntax may
 * hide userinfo anywhere, so unless it starts as a plain path nothing before the last `@` is shown, and nothing at all where an
 * `@` stands so late that the supposed query may be part of a password.
 */
function bareTarget(target: string): string {
  const end = target.search(/[?#]/);
  const whole = end < 0 ? target : target.slice(0, end);
  if (/^\/(?![/\\])/.test(whole)) return whole;
  const scheme = /^[a-z][a-z0-9+.-]{0,15}:\/\//i.exec(whole)?.[0] ?? '';
  if (target.indexOf('@', whole.length) >= 0) return `${scheme}...`;
  const at = whole.lastIndexOf('@');
  return at < scheme.length ? whole : scheme + whole.slice(at + 1);
}

function actionId(outcome: Outcome): string | null {
  const value = fieldValue(outcome.arrival.fields, 'x-sallyport-action-id');
  return value !== undefined && ACTION_ID.test(value) ? value : null;
}

function phaseTimes(trace: Trace): PhaseTimes {
  return { dns: phase(trace.dnsMs), connect: phase(trace.connectMs), tls: phase(trace.tlsMs), wait: phase(trace.waitMs) };
}

function phase(ms: number): number | null {
  return ms < 0 ? null : rounded(ms);
}

function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
