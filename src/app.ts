// The composition root: builds the rooms, hands each what it needs of its neighbours, starts them, and lets them go in order.
// Everything that exists is named here in plain sight; no room finds another one by itself. Nothing here decides about a request.
import { openAdminToken } from './admin/admin-token.ts';
import { startAdmin } from './admin/admin-server.ts';
import type { AdminServer } from './admin/admin-server.ts';
import { hookRunsRoute } from './admin/hook-runs-route.ts';
import { openAuthority } from './certificates/certificate-authority.ts';
import { createLeafCache } from './certificates/leaf-cache.ts';
import { bundlePath } from './certificates/public-folder.ts';
import { openLiveConfig } from './config/live-config.ts';
import type { LiveConfig, ReloadResult } from './config/live-config.ts';
import { createAttach } from './credentials/attach.ts';
import { createEgress } from './egress.ts';
import type { Steps } from './egress.ts';
import type { Host } from './exchange/authority.ts';
import { Refusal } from './exchange/codes.ts';
import type { AddressRanges } from './exchange/rule.ts';
import type { Limits, Snapshot } from './exchange/snapshot.ts';
import type { Outcome } from './exchange/trace.ts';
import { explain, NO_RESOLVER } from './explain.ts';
import type { Explanation, Question } from './explain.ts';
import type { Logger } from './foundation/logger.ts';
import { readIntent } from './intake/read-intent.ts';
import { openInward } from './inward.ts';
import type { Inward } from './inward.ts';
import { NO_RANGES } from './network/address-ranges.ts';
import { dialRoutes, targetOf } from './network/dial.ts';
import { createFindRoute } from './network/find-route.ts';
import type { Guard, Listener } from './network/guard.ts';
import type { Resolver } from './network/resolver.ts';
import { openOutward } from './outward.ts';
import type { Outward } from './outward.ts';
import { decide } from './policy/decide.ts';
import { identify } from './policy/identify.ts';
import { openAuditSink } from './record/audit-sink.ts';
import type { AuditSink } from './record/audit-sink.ts';
import { createDenials } from './record/denials.ts';
import { createLedger } from './record/ledger.ts';
import { createMetrics } from './record/metrics.ts';
import type { Metrics } from './record/metrics.ts';
import { UnderWay } from './record/under-way.ts';
import { createRedactor } from './reply/redact.ts';
import { redactFields, redactHead } from './reply/redact-answer.ts';
import { replyFields, replyTrailers } from './reply/reply-fields.ts';
import { writeRefusal } from './reply/write-refusal.ts';
import { Lanes } from './upstream/lanes.ts';
import { createSend } from './upstream/send.ts';
import { openKept } from './wiring.ts';
import type { Kept } from './wiring.ts';

/** What starting needs. */
export interface AppOptions {
  readonly configPath: string;
  readonly log: Logger;
  readonly version: string;
  readonly env?: NodeJS.ProcessEnv;
  /** Default: the system's resolver */
  readonly resolver?: Resolver;
  /** Opened for token endpoints that have no ranges of their own. For tests alone, whose endpoints are on loopback; default: none */
  readonly tokenRanges?: AddressRanges;
  /** Hears of every exchange beside the ledger */
  readonly onOutcome?: (outcome: Outcome) => void;
  /** Wall clock, epoch `ms`; default: the machine's */
  readonly now?: () => number;
}

/** A running Sallyport. */
export interface App {
  readonly proxy: Listener;
  /** Doors for what is led here, by their keys below `listen.transparent`, as in `tls` and `ports.8443.tls` */
  readonly transparent: Readonly<Record<string, Listener>>;
  readonly admin: Listener;
  readonly live: LiveConfig;
  /** Paths of what a sandbox may see */
  readonly trust: { readonly certificate: string; readonly bundle: string };
  reload(): Promise<ReloadResult>;
  explain(question: Question): Promise<Explanation>;
  /** Opens the audit log anew, for log rotation. */
  reopenAudit(): Promise<void>;
  /** Stops accepting, waits for exchanges under way (limits.timeouts.drain), writes out the ledger. Idempotent. */
  stop(): Promise<void>;
}

/** Hosts whose leaves are kept. */
const LEAVES = 10_000;
/** Kinds of refusals that `/v1/denials` remembers. */
const DENIALS = 500;

/** Who sets that variable believes that no certificate is looked at (fault H01). */
const VERIFIED_ALL_THE_SAME =
  'NODE_TLS_REJECT_UNAUTHORIZED=0 has no effect here: upstreams are verified all the same; unset it, and name private roots in upstream.ca';

/** Starts everything. Rejects with a message of one line that names the remedy; nothing is left listening then. */
export async function startApp(options: AppOptions): Promise<App> {
  const { log, env = process.env } = options;
  if (env['NODE_TLS_REJECT_UNAUTHORIZED'] === '0') log.warn(VERIFIED_ALL_THE_SAME);
  const metrics = createMetrics({ version: options.version });
  const lanes = new Lanes();
  let kept: Kept | undefined;
  const live = await openLiveConfig({
    path: options.configPath,
    env,
    log,
    onReload: (result) => {
      metrics.reloaded(result.outcome === 'rejected' ? 'rejected' : 'accepted', Date.now() / 1000);
      if (result.outcome !== 'accepted') return;
      lanes.retire();
      kept?.fetch();
    },
  });
  const undo: (() => Promise<void>)[] = [() => live.close()];
  try {
    const stage: Stage = { phase: 'opening', proxy: live.current().config.listen.proxy };
    const outward = openOutward(options, live);
    const { fetchToken } = outward;
    const opened = await openKept({ live, env, metrics, log, proxyAt: () => stage.proxy, fetchToken });
    undo.push(() => opened.close());
    const app = await openDoors({ ...options, live, lanes, metrics, undo, kept: opened, stage, outward });
    // Now that the guard knows every listener of ours
    kept = opened;
    opened.fetch();
    return app;
  } catch (error) {
    for (const close of undo.reverse()) await close();
    throw error;
  }
}

interface Rooms extends AppOptions {
  readonly live: LiveConfig;
  readonly lanes: Lanes;
  readonly metrics: Metrics;
  /** What to close, in the order of opening */
  readonly undo: (() => Promise<void>)[];
  readonly stage: Stage;
  readonly kept: Kept;
  readonly outward: Outward;
}

/** How far the process has come: readiness and the doors look at it. */
interface Stage {
  phase: 'opening' | 'open' | 'shutting down';
  /** Where the proxy listens, or will */
  proxy: { readonly host: string; readonly port: number };
}

async function openDoors(rooms: Rooms): Promise<App> {
  const { live, lanes, metrics, undo, log } = rooms;
  const { config } = live.current();
  metrics.reloaded('accepted', Date.now() / 1000);
  const authority = await openAuthority({ certificate: config.ca.certificate, key: config.ca.key ?? undefined });
  if (authority.warning !== undefined) log.warn(authority.warning);
  const { token, warning } = await openAdminToken(config.admin.token.file);
  if (warning !== undefined) log.warn(warning);
  const audit = await openAuditSink(config.audit.path, log);
  const underWay = new UnderWay();
  undo.push(() => audit.close());
  undo.push(() => underWay.settle(log));

  const { guard, listeners } = rooms.outward;
  const denials = createDenials({
    max: DENIALS,
    isOwnListener: (address, port) => isOwnListener(guard, address, port),
  });
  const ledger = createLedger({ audit, metrics, denials, log });
  const leaves = createLeafCache({ authority, max: LEAVES, onMint: () => metrics.minted(), onHit: () => metrics.leafHit() });
  const record = (outcome: Outcome): void => {
    ledger(outcome);
    rooms.onOutcome?.(outcome);
    underWay.recorded(outcome);
  };
  const egress = underWay.watch(createEgress(buildSteps(rooms, record)));
  const limits = (): Limits => live.current().snapshot.limits;
  const findRoute = createFindRoute({ resolver: NO_RESOLVER, guard, warm: () => false });
  const { resolve } = rooms.kept.vault;
  const ask = (question: Question): Promise<Explanation> =>
    explain(question, { snapshot: snapshotOf(rooms), findRoute, resolve });
  // Before the door, so that the guard knows it when the first request comes, and open until the door is shut, for whoever watches that.
  const admin = await openAdmin(rooms, {
    token,
    explain: ask,
    denials: () => denials.list(),
    status: () => status(rooms, authority.notAfter),
    ready: () => notReady(rooms, authority.notAfter),
  });
  listeners.push({ address: admin.address.host, port: admin.address.port });
  undo.push(() => admin.close());

  const contextFor = (host: Host) => leaves.contextFor(host);
  const onListen = (listener: Listener): void => void listeners.push(listener);
  const inward = await openInward({ live, egress, contextFor, limits, metrics, log, onListen });
  undo.push(() => {
    lanes.destroy();
    return Promise.resolve();
  });
  undo.push(() => inward.close(limits().drainMs));
  rooms.stage.proxy = { host: inward.proxy.address, port: inward.proxy.port };
  rooms.stage.phase = 'open';
  return appOver(rooms, { inward, admin, audit, explain: ask });
}

/** The config in force with the stored environments among its sandboxes. */
function snapshotOf({ live, kept }: Rooms): Snapshot {
  return kept.environments.over(live.current());
}

/** What the guard denies even where every range is open is the proxy's own. */
function isOwnListener(guard: Guard, address: Host, port: number): boolean {
  const verdict = guard.judge(address, port, NO_RANGES);
  return !verdict.allowed && verdict.reason === 'own_listener';
}

function appOver(
  rooms: Rooms,
  {
    inward,
    admin,
    audit,
    explain: ask,
  }: {
    readonly inward: Inward;
    readonly admin: AdminServer;
    readonly audit: AuditSink;
    readonly explain: App['explain'];
  },
): App {
  const { live, undo, stage } = rooms;
  const { ca } = live.current().config;
  let stopping: Promise<void> | undefined;
  return {
    proxy: inward.proxy,
    transparent: inward.transparent,
    admin: { address: admin.address.host, port: admin.address.port },
    live,
    trust: { certificate: ca.certificate, bundle: bundlePath(ca.certificate) },
    reload: () => live.reload(),
    explain: ask,
    reopenAudit: () => audit.reopen(),
    stop: () => {
      stage.phase = 'shutting down';
      return (stopping ??= closeAll(undo));
    },
  };
}

/**
 * Last opened, first closed: the door, once it has drained; the upstream connections; the admin listener; the audit log, once the last
 * exchange has its line; the store; the config.
 */
async function closeAll(undo: readonly (() => Promise<void>)[]): Promise<void> {
  for (const close of [...undo].reverse()) await close();
}

/** What comes in on a connection that is still open when everything else is under way to its end. */
const SHUTTING_DOWN = new Refusal('shutting_down', 'this proxy is shutting down and takes no further request');

function buildSteps(rooms: Rooms, record: (outcome: Outcome) => void): Steps {
  const { lanes, metrics, stage } = rooms;
  const { resolver, guard, trust, out } = rooms.outward;
  const { leaves } = out;
  const findRoute = createFindRoute({ resolver, guard, leaves, warm: (lane) => lanes.warm(lane) });
  const attachCredentials = createAttach({
    resolve: rooms.kept.vault.resolve,
    onUnavailable: (credential) => metrics.credentialFailed(credential, 'unavailable'),
    redaction: createRedactor,
    ...(rooms.now === undefined ? {} : { now: rooms.now }),
  });
  const send = createSend({
    findAnew: createFindRoute({ resolver, guard, leaves, warm: () => false }),
    dial: dialRoutes(out.dial),
    forward: (route, deadlineMs, signal) => out.forward(targetOf(route), deadlineMs, signal),
    lanes,
    trust,
    convert: { fields: replyFields, trailers: replyTrailers, redactFields, redactHead },
    onOpen: () => metrics.connectionOpened('upstream'),
    onClose: () => metrics.connectionClosed('upstream'),
  });
  return {
    snapshot: () => snapshotOf(rooms),
    readIntent: (arrival, limits) => (stage.phase === 'shutting down' ? SHUTTING_DOWN : readIntent(arrival, limits)),
    identify,
    decide,
    findRoute,
    attachCredentials,
    send,
    writeRefusal,
    record,
  };
}

interface AdminParts {
  readonly token: string;
  readonly explain: App['explain'];
  readonly denials: () => unknown;
  readonly status: () => unknown;
  readonly ready: () => readonly string[];
}

function openAdmin(rooms: Rooms, parts: AdminParts): Promise<AdminServer> {
  const { live, metrics, log, kept } = rooms;
  const { listen, allowed_hosts } = live.current().config.admin;
  metrics.readiness(() => parts.ready().length === 0);
  return startAdmin({
    host: listen.host,
    port: listen.port,
    log,
    ...parts,
    ...(allowed_hosts === undefined ? {} : { allowedHosts: allowed_hosts }),
    scrape: async () => ({ contentType: metrics.contentType, body: await metrics.scrape() }),
    reload: () => live.reload(),
    routes: [hookRunsRoute((run) => metrics.hookRan(run)), ...kept.routes],
  });
}

/** What keeps requests from being served, for whoever sends them here. */
function notReady({ stage, kept, now = Date.now }: Rooms, authorityEnds: Date): readonly string[] {
  const missing = [...kept.missing()];
  if (stage.phase !== 'open') missing.push(`proxy (${stage.phase})`);
  if (authorityEnds.getTime() <= now()) missing.push(`ca (expired ${authorityEnds.toISOString()})`);
  return missing;
}

async function status({ live, lanes, version, kept }: Rooms, authorityEnds: Date): Promise<unknown> {
  const ofKept = await kept.status();
  const { snapshot, warnings } = live.current();
  return {
    version,
    generation: snapshot.generation,
    sandboxes: snapshot.sandboxes.ids,
    ...ofKept,
    warnings,
    ca: { not_after: authorityEnds.toISOString() },
    upstream_connections: lanes.size,
  };
}
