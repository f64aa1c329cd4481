import { beforeEach, describe, expect, it } from 'vitest';
import { CODES, Fault, Refusal } from '../../src/exchange/codes.ts';
import type { Code } from '../../src/exchange/codes.ts';
import { EVENT_NAMES, HANDLER_KINDS, HOOK_OUTCOMES } from '../../src/exchange/hook-words.ts';
import { createMetrics } from '../../src/record/metrics.ts';
import type { Metrics } from '../../src/record/metrics.ts';
import { outcome } from './outcomes.ts';

let metrics: Metrics;
beforeEach(() => {
  metrics = createMetrics({ version: '1.2.3' });
});

async function ours(): Promise<string[]> {
  return (await metrics.scrape()).split('\n').filter((line) => line.startsWith('sallyport_'));
}

/** The value of a series whose labels are exactly these. */
async function value(name: string, labels: Record<string, string> = {}): Promise<number | undefined> {
  const wanted = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
  for (const line of await ours()) {
    const [, found, inside = '', number] = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    const parts = inside === '' ? [] : inside.split(/,(?=[a-z_]+=")/);
    if (found === name && parts.length === wanted.length && wanted.every((part) => parts.includes(part))) return Number(number);
  }
  return undefined;
}

describe('createMetrics', () => {
  it('has the names and types of the contract, and the defaults of Node', async () => {
    const types: Record<string, string> = {};
    for (const [, name = '', type = ''] of (await metrics.scrape()).matchAll(/^# TYPE (\S+) (\S+)$/gm)) types[name] = type;
    expect(types).toMatchObject({
      sallyport_requests_total: 'counter',
      sallyport_request_duration_seconds: 'histogram',
      sallyport_proxy_overhead_seconds: 'histogram',
      sallyport_upstream_connect_seconds: 'histogram',
      sallyport_open_connections: 'gauge',
      sallyport_bytes_total: 'counter',
      sallyport_credential_injections_total: 'counter',
      sallyport_credential_failures_total: 'counter',
      sallyport_credential_expiry_timestamp_seconds: 'gauge',
      sallyport_certificates_minted_total: 'counter',
      sallyport_certificate_cache_hits_total: 'counter',
      sallyport_config_reloads_total: 'counter',
      sallyport_config_last_reload_timestamp_seconds: 'gauge',
      sallyport_dns_dropped_total: 'counter',
      sallyport_hook_runs_total: 'counter',
      sallyport_hook_duration_seconds: 'histogram',
      sallyport_build_info: 'gauge',
      process_cpu_seconds_total: 'counter',
      nodejs_eventloop_lag_seconds: 'gauge',
    });
    expect(metrics.contentType).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(await value('sallyport_build_info', { version: '1.2.3' })).toBe(1);
  });

  it('asks at each scrape whether requests are served, and has no series where nobody knows', async () => {
    expect(await value('sallyport_ready')).toBeUndefined();
    let ready = true;
    metrics.readiness(() => ready);
    expect(await value('sallyport_ready')).toBe(1);
    ready = false;
    expect(await value('sallyport_ready')).toBe(0);
  });

  it('keeps two instances apart', async () => {
    const other = createMetrics({ version: '9' });
    other.minted();
    expect(await value('sallyport_certificates_minted_total')).toBe(0);
  });

  it.each([
    {
      name: 'an allowed exchange',
      outcome: outcome(),
      labels: { decision: 'allow', reason: 'none', rule: 'api.github.com', status_class: '2xx' },
    },
    {
      name: 'a refusal without a rule',
      outcome: outcome({ rule: null, verdict: new Refusal('not_allowlisted', 'no'), trace: { status: 403 } }),
      labels: { decision: 'refuse', reason: 'not_allowlisted', rule: 'none', status_class: '4xx' },
    },
    {
      name: 'a rehearsed refusal',
      outcome: outcome({ wouldRefuse: 'method_denied', decision: 'would_refuse' }),
      labels: { decision: 'would_refuse', reason: 'method_denied', rule: 'api.github.com', status_class: '2xx' },
    },
    {
      name: 'a fault that sent no status',
      outcome: outcome({ verdict: new Fault('client_closed', 'left'), trace: { status: 0 } }),
      labels: { decision: 'fault', reason: 'client_closed', rule: 'api.github.com', status_class: 'none' },
    },
    {
      name: 'a switch of protocols',
      outcome: outcome({ protocol: 'websocket', trace: { status: 101 } }),
      labels: { decision: 'allow', reason: 'none', rule: 'api.github.com', protocol: 'websocket', status_class: '1xx' },
    },
  ])('counts $name under its labels', async ({ outcome, labels }) => {
    metrics.exchange(outcome);
    metrics.exchange(outcome);
    expect(await value('sallyport_requests_total', { protocol: 'http/1.1', ...labels })).toBe(2);
  });

  it('counts runs of hooks by event, handler and outcome, and measures them by event', async () => {
    metrics.hookRan({ event: 'PreToolUse', handler: 'command', outcome: 'deny', durationMs: 20 });
    metrics.hookRan({ event: 'PreToolUse', handler: 'command', outcome: 'deny', durationMs: 30 });
    metrics.hookRan({ event: 'PreToolUse', handler: 'http', outcome: 'timeout', durationMs: 30_000 });
    const runs = 'sallyport_hook_runs_total';
    expect(await value(runs, { event: 'PreToolUse', handler: 'command', outcome: 'deny' })).toBe(2);
    expect(await value(runs, { event: 'PreToolUse', handler: 'http', outcome: 'timeout' })).toBe(1);
    const within = async (le: string) => await value('sallyport_hook_duration_seconds_bucket', { le, event: 'PreToolUse' });
    expect([await within('0.01'), await within('0.025'), await within('0.05'), await within('30')]).toEqual([0, 1, 2, 3]);
  });

  it('keeps every combination of the closed lists of hooks apart', async () => {
    for (const event of EVENT_NAMES)
      for (const handler of HANDLER_KINDS)
        for (const outcome of HOOK_OUTCOMES) metrics.hookRan({ event, handler, outcome, durationMs: 1 });
    const series = (await ours()).filter((line) => line.startsWith('sallyport_hook_runs_total'));
    expect(series).toHaveLength(EVENT_NAMES.length * HANDLER_KINDS.length * HOOK_OUTCOMES.length);
    expect(series.every((line) => line.endsWith(' 1'))).toBe(true);
  });

  // fault L02
  it.each([{ event: 'evil.example' }, { handler: 'prompt' }, { outcome: 'constructor' }])(
    'makes no series of hooks with %o',
    async (word) => {
      metrics.hookRan({ event: 'Stop', handler: 'command', outcome: 'none', durationMs: 1, ...word } as Parameters<
        Metrics['hookRan']
      >[0]);
      expect((await ours()).filter((line) => line.startsWith('sallyport_hook_'))).toEqual([]);
    },
  );

  it('adds up bytes by direction', async () => {
    metrics.exchange(outcome({ trace: { bytesSent: 10, bytesReceived: 700 } }));
    metrics.exchange(outcome({ trace: { bytesSent: 1, bytesReceived: 20 } }));
    expect(await value('sallyport_bytes_total', { direction: 'sent' })).toBe(11);
    expect(await value('sallyport_bytes_total', { direction: 'received' })).toBe(720);
  });

  it('measures durations in seconds, cumulatively by bucket', async () => {
    metrics.exchange(outcome({ durationMs: 20 }));
    metrics.exchange(outcome({ durationMs: 25 }));
    metrics.exchange(outcome({ durationMs: 400_000 }));
    const at = async (le: string) => await value('sallyport_request_duration_seconds_bucket', { le, protocol: 'http/1.1' });
    expect([await at('0.01'), await at('0.025'), await at('300'), await at('+Inf')]).toEqual([0, 2, 2, 3]);
    expect(await value('sallyport_request_duration_seconds_count', { protocol: 'http/1.1' })).toBe(3);
    expect(await value('sallyport_request_duration_seconds_sum', { protocol: 'http/1.1' })).toBeCloseTo(400.045);
  });

  it('leaves the life of an opened tunnel out of the durations, and a refused one in', async () => {
    metrics.exchange(outcome({ purpose: 'tunnel', durationMs: 3_600_000 }));
    expect(await value('sallyport_request_duration_seconds_count', { protocol: 'http/1.1' })).toBeUndefined();
    metrics.exchange(outcome({ purpose: 'tunnel', verdict: new Refusal('port_denied', 'no') }));
    expect(await value('sallyport_request_duration_seconds_count', { protocol: 'http/1.1' })).toBe(1);
  });

  it('measures its own overhead without DNS, connect and TLS, and only where something was sent', async () => {
    metrics.exchange(outcome({ trace: { dispatchedAt: 1040, dnsMs: 10, connectMs: 20, tlsMs: 8 } }));
    metrics.exchange(outcome({ trace: { dispatchedAt: 1001 } }));
    metrics.exchange(outcome({ trace: { dispatchedAt: 0 } }));
    expect(await value('sallyport_proxy_overhead_seconds_count')).toBe(2);
    expect(await value('sallyport_proxy_overhead_seconds_sum')).toBeCloseTo(0.003);
  });

  it('counts what got no answer at the DNS door, from zero on', async () => {
    metrics.lookupDropped('rate');
    metrics.lookupDropped('rate');
    metrics.lookupDropped('from elsewhere' as 'size');
    const series = (await ours()).filter((line) => line.startsWith('sallyport_dns_dropped_total'));
    expect(series.sort()).toEqual([
      'sallyport_dns_dropped_total{reason="connections"} 0',
      'sallyport_dns_dropped_total{reason="idle"} 0',
      'sallyport_dns_dropped_total{reason="malformed"} 0',
      'sallyport_dns_dropped_total{reason="rate"} 2',
      'sallyport_dns_dropped_total{reason="size"} 0',
    ]);
  });

  it('follows connections, certificates, credentials and reloads', async () => {
    metrics.connectionOpened('sandbox');
    metrics.connectionOpened('sandbox');
    metrics.connectionClosed('sandbox');
    metrics.connectionClosed('upstream');
    metrics.upstreamConnected(0.2);
    metrics.leafHit();
    metrics.injected('github');
    metrics.credentialFailed('github', 'refresh_failed');
    metrics.credentialFailed('github', 'POST https://x said "SENTINEL"');
    metrics.credentialExpiry('github', 1_800_000_000);
    metrics.reloaded('accepted', 1_700_000_000);
    metrics.reloaded('rejected', 1_700_000_100);
    expect(await value('sallyport_open_connections', { side: 'sandbox' })).toBe(1);
    expect(await value('sallyport_open_connections', { side: 'upstream' })).toBe(0);
    expect(await value('sallyport_upstream_connect_seconds_count')).toBe(1);
    expect(await value('sallyport_certificate_cache_hits_total')).toBe(1);
    expect(await value('sallyport_credential_injections_total', { credential: 'github' })).toBe(1);
    expect(await value('sallyport_credential_failures_total', { credential: 'github', reason: 'refresh_failed' })).toBe(1);
    expect(await value('sallyport_credential_failures_total', { credential: 'github', reason: 'other' })).toBe(1);
    expect(await value('sallyport_credential_expiry_timestamp_seconds', { credential: 'github' })).toBe(1_800_000_000);
    expect(await value('sallyport_config_reloads_total', { result: 'rejected' })).toBe(1);
    expect(await value('sallyport_config_last_reload_timestamp_seconds')).toBe(1_700_000_000);
    metrics.credentialExpiry('github', undefined);
    expect(await value('sallyport_credential_expiry_timestamp_seconds', { credential: 'github' })).toBeUndefined();
  });
});

describe('the series of a scrape', () => {
  const refused = (i: number) =>
    outcome({
      authority: `h${i}.evil.example:${1 + (i % 60_000)}`,
      method: `M${i}`,
      path: `/p/${i}`,
      rule: null,
      fields: ['X-Sallyport-Action-Id', `run-${i}`],
      verdict: new Refusal('not_allowlisted', `no allowlist rule names h${i}`),
      trace: { status: 403, sandbox: `box-${i}` },
    });

  it('stay constant under 20,000 requests with unique hosts, ports, paths, methods and sandboxes', async () => {
    metrics.exchange(refused(0));
    const before = (await ours()).length;
    for (let i = 1; i < 20_000; i += 1) metrics.exchange(refused(i)); // fault L02
    const started = performance.now();
    const after = await ours();
    expect(performance.now() - started).toBeLessThan(100);
    expect(after.length).toBe(before);
    expect(after.join('\n')).not.toContain('evil');
  });

  it('stay bounded when rule ids keep changing under reloads', async () => {
    for (let i = 0; i < 5_000; i += 1) metrics.exchange(outcome({ rule: `r${i}.example` })); // fault L02
    expect((await ours()).filter((line) => line.startsWith('sallyport_requests_total'))).toHaveLength(2_001);
    const rest = { decision: 'allow', reason: 'none', protocol: 'http/1.1', status_class: '2xx' };
    expect(await value('sallyport_requests_total', { ...rest, rule: '_other' })).toBe(3_000);
  });

  it('escape a rule id that has quotes and line breaks', async () => {
    metrics.exchange(outcome({ rule: 'a"\n} 1\nforged 1' })); // fault L01
    expect(await ours()).toContain(
      'sallyport_requests_total{decision="allow",reason="none",rule="a\\"\\n} 1\\nforged 1",protocol="http/1.1",status_class="2xx"} 1',
    );
  });

  it('have every code as a reason', async () => {
    for (const code of Object.keys(CODES) as Code[]) metrics.exchange(outcome({ verdict: new Refusal(code, 'no') }));
    const text = (await ours()).join('\n');
    for (const code of Object.keys(CODES)) expect(text).toContain(`reason="${code}"`);
  });
});
