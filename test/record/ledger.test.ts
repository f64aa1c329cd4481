import { describe, expect, it } from 'vitest';
import { parseAddress, parseAuthority } from '../../src/exchange/authority.ts';
import { Fault, Refusal, toFault } from '../../src/exchange/codes.ts';
import type { Code } from '../../src/exchange/codes.ts';
import { createLogger } from '../../src/foundation/logger.ts';
import type { AuditLine } from '../../src/record/audit-line.ts';
import { createDenials } from '../../src/record/denials.ts';
import { createLedger } from '../../src/record/ledger.ts';
import { createMetrics } from '../../src/record/metrics.ts';
import { outcome } from './outcomes.ts';
import type { Wanted } from './outcomes.ts';

interface LogLine {
  readonly level: string;
  readonly message: string;
  readonly [field: string]: unknown;
}

/** A ledger over real parts, with everything it wrote. */
function ledgerInMemory() {
  const lines: AuditLine[] = [];
  const logged: string[] = [];
  const metrics = createMetrics({ version: 'test' });
  const denials = createDenials({ max: 10 });
  const log = createLogger({ level: 'debug', stream: { write: (text) => logged.push(text) } });
  const record = createLedger({ audit: { write: (line) => void lines.push(line) }, metrics, denials, log });
  return { lines, metrics, denials, record, logged, said: () => logged.map((text) => JSON.parse(text) as LogLine) };
}

describe('createLedger', () => {
  it('writes one audit line, one count and one denial from the same outcome (invariant 6)', async () => {
    const ledger = ledgerInMemory();
    ledger.record(outcome({ rule: null, verdict: new Refusal('not_allowlisted', 'no'), trace: { status: 403 } }));
    expect(ledger.lines).toHaveLength(1);
    expect(ledger.lines[0]).toMatchObject({ decision: 'refuse', reason: 'not_allowlisted' });
    expect(await ledger.metrics.scrape()).toContain(
      'sallyport_requests_total{decision="refuse",reason="not_allowlisted",rule="none",protocol="http/1.1",status_class="4xx"} 1',
    );
    expect(ledger.denials.list()).toHaveLength(1);
    expect(ledger.logged).toEqual([]);
  });

  it('counts credentials and connections from the trace, a credential only where something was sent', async () => {
    const ledger = ledgerInMemory();
    const credentials = ['github'];
    ledger.record(outcome({ trace: { credentials, dispatchedAt: 1040, connectMs: 15, tlsMs: 25 } }));
    ledger.record(outcome({ trace: { credentials, dispatchedAt: 1001 } }));
    ledger.record(outcome({ trace: { credentials }, verdict: new Fault('upstream_connect', 'no connection') }));
    const text = await ledger.metrics.scrape();
    expect(text).toContain('sallyport_credential_injections_total{credential="github"} 2');
    expect(text).toContain('sallyport_upstream_connect_seconds_count 1');
    expect(text).toContain('sallyport_upstream_connect_seconds_sum 0.04');
  });

  it('keeps the other parts at work and says so when one throws', () => {
    const lines: AuditLine[] = [];
    const logged: string[] = [];
    const broken = (): never => {
      throw new Error('SENTINEL');
    };
    const record = createLedger({
      audit: { write: (line) => void lines.push(line) },
      metrics: { exchange: broken, injected: broken, upstreamConnected: broken },
      denials: { add: broken },
      log: createLogger({ stream: { write: (text) => logged.push(text) } }),
    });
    record(outcome());
    expect(lines).toHaveLength(1);
    expect(logged).toHaveLength(2);
    expect(logged.join('')).toMatch(/"part":"metrics".*"part":"denials"/s);
    expect(logged.join('')).not.toContain('SENTINEL');
  });

  it('never throws, even when the log does', () => {
    const broken = (): never => {
      throw new Error('gone');
    };
    const log = { debug: broken, info: broken, warn: broken, error: broken };
    const record = createLedger({
      audit: { write: broken },
      metrics: { exchange: broken, injected: broken, upstreamConnected: broken },
      denials: { add: broken },
      log,
    });
    expect(() => record(outcome({ verdict: toFault(new Error('bug')) }))).not.toThrow();
  });
});

describe('what the ledger logs of a fault', () => {
  it('has the stack of a bug at error, under the request id, without its message', () => {
    const ledger = ledgerInMemory();
    const wanted = outcome({ verdict: toFault(new SyntaxError('Unexpected token in "SENTINEL"')) });
    ledger.record(wanted);
    const [line] = ledger.said();
    expect(line).toMatchObject({
      level: 'error',
      code: 'internal_error',
      request_id: wanted.arrival.requestId,
      cause: 'SyntaxError',
    });
    expect(line?.['stack']).toMatch(/^\s+at .*ledger\.test/);
    expect(ledger.logged.join('')).not.toContain('SENTINEL');
  });

  it.each<{ code: Code; level: string }>([
    { code: 'credential_unavailable', level: 'error' },
    { code: 'dns_failed', level: 'warn' },
    { code: 'client_tls', level: 'info' },
    { code: 'client_closed', level: 'debug' },
  ])('speaks of $code at $level', ({ code, level }) => {
    const ledger = ledgerInMemory();
    ledger.record(outcome({ verdict: new Fault(code, 'it failed', new Error('because')) }));
    expect(ledger.said()).toMatchObject([{ level, code, message: 'it failed', host: 'api.github.com', cause: 'Error: because' }]);
    expect(ledger.said()[0]).not.toHaveProperty('stack');
  });

  it('names every cause with its code, and no property of it', () => {
    const ledger = ledgerInMemory();
    const inner = Object.assign(new Error('connect ECONNREFUSED 192.0.2.1:443'), { code: 'ECONNREFUSED', headers: 'SENTINEL' });
    const cause = new AggregateError([inner], 'all addresses failed', { cause: 'a text' });
    ledger.record(outcome({ verdict: new Fault('upstream_connect', 'no connection', cause) }));
    expect(ledger.said()[0]?.['cause']).toBe(
      'AggregateError: all addresses failed; Error ECONNREFUSED: connect ECONNREFUSED 192.0.2.1:443; a thrown string',
    );
    expect(ledger.logged.join('')).not.toContain('SENTINEL');
  });

  it('ends with a chain of causes that goes in a circle', () => {
    const ledger = ledgerInMemory();
    const cause = new Error('round');
    cause.cause = cause;
    ledger.record(outcome({ verdict: new Fault('dns_failed', 'no answer', cause) }));
    expect(ledger.logged).toHaveLength(1);
  });

  it('spells out and caps a cause that a wire byte got into', () => {
    const ledger = ledgerInMemory();
    ledger.record(outcome({ verdict: new Fault('upstream_protocol', 'bad answer', new Error(`\u001b[31m${'x'.repeat(5000)}`)) }));
    const cause = String(ledger.said()[0]?.['cause']); // fault L01
    expect(cause).toContain('\\u001b[31m');
    expect(cause.length).toBeLessThan(320);
  });
});

describe('a sentinel secret in every place of an outcome', () => {
  const S = 'SENTINEL-9f8e7d6c5b4a';
  const authority = parseAuthority('api.github.com:443');
  if (authority === undefined) throw new Error('internal error');
  const secretive: Wanted = {
    target: `http://user:${S}@api.github.com/repos?access_token=${S}`,
    query: `?access_token=${S}`,
    identity: `Basic ${S}`,
    ceiling: { scheme: 'https', authority, identity: `Basic ${S}` },
    secret: S,
    fields: [
      ...['Authorization', `Bearer ${S}`, 'Proxy-Authorization', `Basic ${S}`, 'Cookie', `session=${S}`, 'X-Api-Key', S],
      ...['X-Custom', `v1;${S}`, 'Referer', `https://a.example/?t=${S}`, 'X-Sallyport-Action-Id', `not an id ${S}`],
    ],
    trace: { credentials: ['github'], address: parseAddress('192.0.2.1'), dispatchedAt: 1001, connectMs: 1 },
  };
  const leaky = Object.assign(new Error(`invalid header "Bearer ${S}" near ${S}`), {
    rawPacket: S,
    headers: { authorization: S },
  });

  it.each<{ name: string; wanted: Wanted; fault: string }>([
    { name: 'allowed', wanted: {}, fault: 'E17' },
    { name: 'refused by name', wanted: { rule: null, verdict: new Refusal('not_allowlisted', `detail ${S}`) }, fault: 'E18' },
    { name: 'refused by path', wanted: { verdict: new Refusal('path_denied', `detail ${S}`) }, fault: 'E18' },
    { name: 'refused by address', wanted: { verdict: new Refusal('address_denied', `detail ${S}`) }, fault: 'E13' },
    { name: 'malformed', wanted: { authority: null, verdict: new Refusal('bad_request', `detail ${S}`) }, fault: 'E18' },
    { name: 'too large', wanted: { authority: null, verdict: new Refusal('headers_too_large', `detail ${S}`) }, fault: 'E13' },
    { name: 'connection refused', wanted: { verdict: new Fault('upstream_connect', `text ${S}`, leaky) }, fault: 'E13' },
    { name: 'bad certificate', wanted: { verdict: new Fault('upstream_tls', `text ${S}`, leaky) }, fault: 'E13' },
    { name: 'name not resolved', wanted: { verdict: new Fault('dns_failed', `text ${S}`, leaky) }, fault: 'E13' },
    { name: 'invalid answer', wanted: { verdict: new Fault('upstream_protocol', `text ${S}`, leaky) }, fault: 'E13' },
    { name: 'a bug', wanted: { verdict: toFault(leaky) }, fault: 'E17' },
    { name: 'a bug that threw a text', wanted: { verdict: toFault(S) }, fault: 'E17' },
  ])('shows in no line, metric, denial or log at debug: $name', async ({ wanted }) => {
    const ledger = ledgerInMemory();
    ledger.record(outcome({ ...secretive, ...wanted }));
    expect(ledger.lines).toHaveLength(1);
    const written = [
      JSON.stringify(ledger.lines),
      await ledger.metrics.scrape(),
      JSON.stringify(ledger.denials.list()),
      ...ledger.logged,
    ];
    expect(written.join('\n')).not.toContain('SENTINEL');
  });
});
