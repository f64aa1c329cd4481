// The part of the composition root that faces inward: the doors, the ports that sandboxes reach, and the way from each port to its door.
// Whatever listens for sandboxes is opened here, and the guard hears of it before its first connection is judged. Nothing here decides.
import type { SecureContext } from 'node:tls';
import { listenersOf } from './config/listeners.ts';
import type { NamedListener } from './config/listeners.ts';
import type { LiveConfig } from './config/live-config.ts';
import type { Host } from './exchange/authority.ts';
import type { Limits } from './exchange/snapshot.ts';
import type { Arrival } from './exchange/stages.ts';
import type { Logger } from './foundation/logger.ts';
import { openDnsDoor } from './listen/dns-door.ts';
import type { DnsDoor } from './listen/dns-door.ts';
import { createDoors } from './listen/doors.ts';
import type { Doors } from './listen/doors.ts';
import { plainEntrance, proxyEntrance } from './listen/entrance.ts';
import type { Entrance } from './listen/entrance.ts';
import { Listeners } from './listen/listeners.ts';
import { TlsEntrance } from './listen/tls-entrance.ts';
import { createOwnAddresses } from './network/guard.ts';
import type { Listener } from './network/guard.ts';
import type { Metrics } from './record/metrics.ts';

/** What the doors need of the house. */
export interface InwardOptions {
  readonly live: LiveConfig;
  /** The journey. Never rejects. */
  readonly egress: (arrival: Arrival) => Promise<void>;
  /** The leaf for a host, as a TLS context. Throws where none can be minted. */
  readonly contextFor: (host: Host) => SecureContext;
  readonly limits: () => Limits;
  readonly metrics: Pick<Metrics, 'connectionOpened' | 'connectionClosed' | 'lookupDropped'>;
  readonly log: Logger;
  /** Hears of each port as it is bound */
  readonly onListen: (listener: Listener) => void;
}

/** The open doors. */
export interface Inward {
  readonly proxy: Listener;
  /** By their keys below `listen.transparent`, as in `tls`, `dns` and `ports.8443.tls` */
  readonly transparent: Readonly<Record<string, Listener>>;
  /** Stops accepting, waits for what is under way up to `drainMs`, then cuts it. Names are not answered any more. */
  close(drainMs: number): Promise<void>;
}

/** Opens every port for sandboxes that the config names. Rejects with the system's error where one cannot be had; none is left open then. */
export async function openInward(options: InwardOptions): Promise<Inward> {
  const { live, egress, contextFor, limits, metrics, log, onListen } = options;
  const doors = createDoors({ egress, contextFor, limits });
  const listeners = new Listeners({
    doors,
    maxConnections: () => limits().connections,
    onOpen: () => metrics.connectionOpened('sandbox'),
    onClose: () => metrics.connectionClosed('sandbox'),
    log,
  });
  const isOwnAddress = createOwnAddresses();
  let dns: DnsDoor | undefined;
  const close = async (drainMs: number): Promise<void> => {
    await Promise.all([dns?.close(), listeners.close(drainMs)]);
  };
  const open = async (listener: NamedListener): Promise<Listener> => {
    const entrance = entranceOf(listener, { ...options, doors, isOwnAddress });
    const { host, port } = await listeners.bind(keyOf(listener), listener, entrance);
    onListen({ address: host, port });
    return { address: host, port };
  };
  try {
    const { config } = live.current();
    const proxy = await open({ path: ['listen', 'proxy'], ...config.listen.proxy });
    const transparent: Record<string, Listener> = {};
    for (const listener of listenersOf(config).filter(isLed)) transparent[keyOf(listener)] = await open(listener);
    dns = await openDns(options);
    if (dns !== undefined) {
      transparent['dns'] = { address: dns.host, port: dns.port };
      onListen(transparent['dns']);
    }
    return { proxy, transparent, close };
  } catch (error) {
    await close(0);
    throw error;
  }
}

/** The DNS door, where the config names one. */
async function openDns({ live, egress, metrics, log }: InwardOptions): Promise<DnsDoor | undefined> {
  const { dns, answer, answer6 } = live.current().config.listen.transparent ?? {};
  // The schema has asked for an answer.
  if (dns === undefined || answer === undefined) return undefined;
  return openDnsDoor({
    ...dns,
    answer,
    answer6,
    egress,
    dropped: (reason) => metrics.lookupDropped(reason),
    onOpen: () => metrics.connectionOpened('sandbox'),
    onClose: () => metrics.connectionClosed('sandbox'),
    log,
  });
}

/** Whether connections to other hosts are led to it; the DNS door carries nothing but questions. */
function isLed({ path }: NamedListener): boolean {
  return path[1] === 'transparent' && path[2] !== 'dns';
}

/** `proxy`, `tls`, `ports.8443.tls` */
function keyOf({ path }: NamedListener): string {
  return path
    .slice(path[1] === 'transparent' ? 2 : 1)
    .map(String)
    .join('.');
}

interface Parts extends InwardOptions {
  readonly doors: Doors;
  readonly isOwnAddress: (address: Host) => boolean;
}

function entranceOf({ path }: NamedListener, { doors, egress, limits, isOwnAddress }: Parts): Entrance {
  const { headerMs, handshakeMs } = limits();
  if (path[1] !== 'transparent') return proxyEntrance(doors, headerMs);
  const isTls = path.at(-1) === 'tls';
  const destination = { port: path[2] === 'ports' ? Number(path[3]) : isTls ? 443 : 80, isOwnAddress };
  if (!isTls) return plainEntrance(doors, headerMs, destination);
  return new TlsEntrance({ doors, egress, destination, withinMs: handshakeMs });
}
