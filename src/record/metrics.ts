// What a scrape sees: names, labels and units of every `sallyport_` metric, on a registry of its own.
// Labels are closed: a rule or credential id from the configuration, a code, a protocol; never a host, path or method from the wire
// (fault L02). It must never throw into an exchange.
import { Counter, Gauge, Registry, collectDefaultMetrics } from 'prom-client';
import { CODES } from '../exchange/codes.ts';
import { EVENT_NAMES, HANDLER_KINDS, HOOK_OUTCOMES } from '../exchange/hook-words.ts';
import type { CountedRun } from '../exchange/hook-words.ts';
import type { Protocol } from '../exchange/stages.ts';
import type { Decision, Outcome, Trace } from '../exchange/trace.ts';
import { reasonOf, ruleOf } from './audit-line.ts';
import { ClosedLabel, Counts, TalliedHistogram } from './tally.ts';
import type { Count } from './tally.ts';

/** Which end of the proxy a connection is on. */
export type Side = 'sandbox' | 'upstream';

/** Whether a new configuration came into force. */
export type ReloadResultLabel = 'accepted' | 'rejected';

/** Why the DNS door gave no answer: over the rate of an address, over the size of a question, no query, one connection too many, a question that never ended. */
export type UnansweredLookup = (typeof UNANSWERED)[number];

/** The numbers of this process. Every method is cheap and never throws. */
export interface Metrics {
  /** One exchange ended. Called by the ledger only, once for each Outcome. */
  exchange(outcome: Outcome): void;
  connectionOpened(side: Side): void;
  connectionClosed(side: Side): void;
  /** TCP and TLS of one new upstream connection took `seconds`. Called by the ledger, from the Trace. */
  upstreamConnected(seconds: number): void;
  /** A leaf certificate was made. */
  minted(): void;
  /** A leaf certificate was found in the cache. */
  leafHit(): void;
  /** A credential was put on. Called by the ledger, from the Trace. */
  injected(credential: string): void;
  /** A credential could not be resolved; `reason` is one lower-case word of a closed set, anything else counts as `other`. */
  credentialFailed(credential: string, reason: string): void;
  /** When the credential ends, in epoch seconds; `undefined` takes the series away. */
  credentialExpiry(credential: string, epochSeconds: number | undefined): void;
  /** A reload ended at `epochSeconds`; only an accepted one moves the timestamp of the configuration in force. */
  reloaded(result: ReloadResultLabel, epochSeconds: number): void;
  /** From now on each scrape asks whether requests are served, and says so in `sallyport_ready`. To be called once. */
  readiness(isReady: () => boolean): void;
  /** A message at the DNS door, or a connection of it, got no answer, and has no line in the ledger. */
  lookupDropped(reason: UnansweredLookup): void;
  /** One handler of a hook ran, as a hook-runner reported it; a word that is not in the closed lists is not counted. */
  hookRan(run: CountedRun): void;
  /** The exposition text. */
  scrape(): Promise<string>;
  /** Media type of the exposition text. */
  readonly contentType: string;
}

/** Label values kept apart before further ones become `_other`. */
const MAX_RULES = 2_000;
const MAX_CREDENTIALS = 1_000;
const MAX_FAILURE_REASONS = 32;

const STATUS_CLASSES = ['none', '1xx', '2xx', '3xx', '4xx', '5xx'] as const;
const DECISIONS = { allow: 0, refuse: 1, would_refuse: 2, fault: 3 } as const satisfies Record<Decision, number>;
const PROTOCOLS = { 'http/1.1': 0, h2: 1, websocket: 2, passthrough: 3, dns: 4 } as const satisfies Record<Protocol, number>;
const PROTOCOL_COUNT = Object.keys(PROTOCOLS).length;
const REASONS: ReadonlyMap<string, number> = new Map(['none', ...Object.keys(CODES)].map((reason, index) => [reason, index]));
const UNANSWERED = ['rate', 'size', 'malformed', 'connections', 'idle'] as const;
const FAILURE_REASON = /^[a-z][a-z0-9_]{0,39}$/;

const BUCKETS = {
  request: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
  overhead: [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1],
  connect: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
  hook: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600],
};

/** The metrics of one process. `version` becomes the label of `sallyport_build_info`. */
export function createMetrics(options: { readonly version: string }): Metrics {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  new Gauge({
    name: 'sallyport_build_info',
    help: 'Always 1; the version is the label',
    labelNames: ['version'],
    registers: [registry],
  })
    .labels(options.version)
    .set(1);
  const metrics: Metrics = {
    exchange: exchangeMetrics(registry),
    ...connectionMetrics(registry),
    ...certificateMetrics(registry),
    ...credentialMetrics(registry),
    ...reloadMetrics(registry),
    readiness: (isReady) => readinessMetric(registry, isReady),
    lookupDropped: lookupMetrics(registry),
    hookRan: hookMetrics(registry),
    scrape: () => registry.metrics(),
    contentType: registry.contentType,
  };
  return metrics;
}

function exchangeMetrics(registry: Registry): (outcome: Outcome) => void {
  const requests = counter(registry, {
    name: 'sallyport_requests_total',
    help: 'Exchanges by outcome',
    labelNames: ['decision', 'reason', 'rule', 'protocol', 'status_class'],
  });
  const bytes = counter(registry, {
    name: 'sallyport_bytes_total',
    help: 'Body bytes: sent toward upstreams, received from them',
    labelNames: ['direction'],
  });
  const duration = histogram(registry, {
    name: 'sallyport_request_duration_seconds',
    help: 'Whole exchange, opened tunnels left out',
    buckets: BUCKETS.request,
    labelNames: ['protocol'],
  });
  const overhead = histogram(registry, {
    name: 'sallyport_proxy_overhead_seconds',
    help: 'From arrival to dispatch, without DNS, connect and TLS',
    buckets: BUCKETS.overhead,
  });
  const sent = bytes.at('sent', 0, () => ({ direction: 'sent' }));
  const received = bytes.at('received', 0, () => ({ direction: 'received' }));
  const rules = new ClosedLabel(MAX_RULES);
  return (outcome) => {
    const { arrival, trace } = outcome;
    countRequest(requests, rules, outcome).value += 1;
    sent.value += trace.bytesSent;
    received.value += trace.bytesReceived;
    // An opened tunnel lasts as long as its client likes; the requests inside it are measured one by one.
    if (arrival.purpose !== 'tunnel' || outcome.verdict !== undefined)
      duration.record(outcome.durationMs / 1000, arrival.protocol);
    if (trace.dispatchedAt > 0) overhead.record(overheadMs(trace, arrival.arrivedAt) / 1000);
  };
}

function countRequest(requests: Counts, rules: ClosedLabel, outcome: Outcome): Count {
  const { decision } = outcome;
  const { protocol } = outcome.arrival;
  const reason = reasonOf(outcome) ?? 'none';
  const rule = rules.of(ruleOf(outcome) ?? 'none');
  const statusClass = Math.floor(outcome.trace.status / 100);
  const status = statusClass < STATUS_CLASSES.length ? statusClass : 0;
  const key =
    ((DECISIONS[decision] * REASONS.size + (REASONS.get(reason) ?? 0)) * PROTOCOL_COUNT + PROTOCOLS[protocol]) *
      STATUS_CLASSES.length +
    status;
  return requests.at(rule, key, () => ({
    decision,
    reason: REASONS.has(reason) ? reason : 'none',
    rule,
    protocol,
    status_class: STATUS_CLASSES[status] ?? 'none',
  }));
}

function overheadMs(trace: Trace, arrivedAt: number): number {
  const waited = Math.max(trace.dnsMs, 0) + Math.max(trace.connectMs, 0) + Math.max(trace.tlsMs, 0);
  return Math.max(trace.dispatchedAt - arrivedAt - waited, 0);
}

function connectionMetrics(registry: Registry): Pick<Metrics, 'connectionOpened' | 'connectionClosed' | 'upstreamConnected'> {
  const open: Record<Side, number> = { sandbox: 0, upstream: 0 };
  new Gauge({
    name: 'sallyport_open_connections',
    help: 'Connections open now',
    labelNames: ['side'],
    registers: [registry],
    collect() {
      this.set({ side: 'sandbox' }, open.sandbox);
      this.set({ side: 'upstream' }, open.upstream);
    },
  });
  const connect = histogram(registry, {
    name: 'sallyport_upstream_connect_seconds',
    help: 'TCP and TLS of a new upstream connection',
    buckets: BUCKETS.connect,
  });
  return {
    connectionOpened: (side) => void (open[side] += 1),
    connectionClosed: (side) => void (open[side] = Math.max(0, open[side] - 1)),
    upstreamConnected: (seconds) => connect.record(seconds),
  };
}

function certificateMetrics(registry: Registry): Pick<Metrics, 'minted' | 'leafHit'> {
  const made = counter(registry, { name: 'sallyport_certificates_minted_total', help: 'Leaf certificates made' });
  const found = counter(registry, {
    name: 'sallyport_certificate_cache_hits_total',
    help: 'Leaf certificates found in the cache',
  });
  const minted = made.at('', 0, () => ({}));
  const hits = found.at('', 0, () => ({}));
  return { minted: () => void (minted.value += 1), leafHit: () => void (hits.value += 1) };
}

function credentialMetrics(registry: Registry): Pick<Metrics, 'injected' | 'credentialFailed' | 'credentialExpiry'> {
  const ids = new ClosedLabel(MAX_CREDENTIALS);
  const reasons = new ClosedLabel(MAX_FAILURE_REASONS);
  const injections = counter(registry, {
    name: 'sallyport_credential_injections_total',
    help: 'Exchanges a credential was put on',
    labelNames: ['credential'],
  });
  const failures = counter(registry, {
    name: 'sallyport_credential_failures_total',
    help: 'Credentials that could not be resolved',
    labelNames: ['credential', 'reason'],
  });
  const expiry = new Gauge({
    name: 'sallyport_credential_expiry_timestamp_seconds',
    help: 'When the credential ends',
    labelNames: ['credential'],
    registers: [registry],
  });
  return {
    injected: (id) => {
      const credential = ids.of(id);
      injections.at(credential, 0, () => ({ credential })).value += 1;
    },
    credentialFailed: (id, word) => {
      const credential = ids.of(id);
      const reason = FAILURE_REASON.test(word) ? reasons.of(word) : 'other';
      failures.at(`${reason} ${credential}`, 0, () => ({ credential, reason })).value += 1;
    },
    credentialExpiry: (id, epochSeconds) => {
      const credential = ids.of(id);
      if (epochSeconds === undefined || !Number.isFinite(epochSeconds)) expiry.remove({ credential });
      else expiry.set({ credential }, epochSeconds);
    },
  };
}

function reloadMetrics(registry: Registry): Pick<Metrics, 'reloaded'> {
  const reloads = counter(registry, {
    name: 'sallyport_config_reloads_total',
    help: 'Reloads of the configuration',
    labelNames: ['result'],
  });
  const accepted = reloads.at('accepted', 0, () => ({ result: 'accepted' }));
  const rejected = reloads.at('rejected', 0, () => ({ result: 'rejected' }));
  const last = new Gauge({
    name: 'sallyport_config_last_reload_timestamp_seconds',
    help: 'When the configuration in force was loaded',
    registers: [registry],
  });
  return {
    reloaded: (result, epochSeconds) => {
      (result === 'accepted' ? accepted : rejected).value += 1;
      if (result === 'accepted' && Number.isFinite(epochSeconds)) last.set(epochSeconds);
    },
  };
}

function readinessMetric(registry: Registry, isReady: () => boolean): void {
  new Gauge({
    name: 'sallyport_ready',
    help: 'Whether /readyz says ready: 1, or 0 while the store is away, the CA has expired or the proxy drains',
    registers: [registry],
    collect() {
      this.set(isReady() ? 1 : 0);
    },
  });
}

function lookupMetrics(registry: Registry): Metrics['lookupDropped'] {
  const drops = counter(registry, {
    name: 'sallyport_dns_dropped_total',
    help: 'Messages and connections at the DNS door that got no answer',
    labelNames: ['reason'],
  });
  // A series that is there from the start shows its first increase.
  const counts = new Map(UNANSWERED.map((reason) => [reason, drops.at(reason, 0, () => ({ reason }))]));
  return (reason) => {
    const count = counts.get(reason);
    if (count !== undefined) count.value += 1;
  };
}

function hookMetrics(registry: Registry): (run: CountedRun) => void {
  const runs = counter(registry, {
    name: 'sallyport_hook_runs_total',
    help: 'Runs of hook handlers by what came of them',
    labelNames: ['event', 'handler', 'outcome'],
  });
  const duration = histogram(registry, {
    name: 'sallyport_hook_duration_seconds',
    help: 'One run of a hook handler, from its start',
    buckets: BUCKETS.hook,
    labelNames: ['event'],
  });
  return ({ event, handler, outcome, durationMs }) => {
    const kind = HANDLER_KINDS.indexOf(handler);
    const end = HOOK_OUTCOMES.indexOf(outcome);
    if (!EVENT_NAMES.includes(event) || kind < 0 || end < 0) return;
    runs.at(event, end * HANDLER_KINDS.length + kind, () => ({ event, handler, outcome })).value += 1;
    duration.record(durationMs / 1000, event);
  };
}

interface CounterShape {
  readonly name: string;
  readonly help: string;
  readonly labelNames?: string[];
}

function counter(registry: Registry, shape: CounterShape): Counts {
  const counts = new Counts();
  new Counter({
    ...shape,
    registers: [registry],
    collect() {
      counts.fill(this);
    },
  });
  return counts;
}

function histogram(registry: Registry, shape: CounterShape & { readonly buckets: number[] }): TalliedHistogram {
  return new TalliedHistogram({ ...shape, registers: [registry] });
}
