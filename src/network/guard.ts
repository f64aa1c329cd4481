// The guard: whether a connection to an address and port may be opened at all, for a rule that opens these ranges.
// It must never let anything reach a listener of the proxy itself (fault B16): no range opens those, in no spelling.
import { networkInterfaces } from 'node:os';
import { parseAddress } from '../exchange/authority.ts';
import type { Host } from '../exchange/authority.ts';
import type { AddressRanges } from '../exchange/rule.ts';
import { classify, facesOf } from './address-class.ts';
import type { AddressClass } from './address-class.ts';

/** Where the proxy itself listens. `0.0.0.0` and `::` stand for every address of the machine, of both families. */
export interface Listener {
  readonly address: string;
  readonly port: number;
}

/** Why an address is refused. */
export type DeniedReason = Exclude<AddressClass, 'public'> | 'own_listener' | 'own_interface';

/** What the guard says of one address. */
export type GuardVerdict = { readonly allowed: true } | { readonly allowed: false; readonly reason: DeniedReason };

/** Judges addresses. A throw from it denies. */
export interface Guard {
  /** `address` is where the socket would go; `opened` are the ranges of the rule that permitted the exchange. */
  judge(address: Host, port: number, opened: AddressRanges): GuardVerdict;
}

/** What the guard knows of its own machine. */
export interface GuardOptions {
  /** Every listener of this proxy, asked anew for each judgement */
  readonly listeners: () => readonly Listener[];
  /** The machine's own addresses; default: the system's interfaces. Asked at most every 5 s; a throw denies */
  readonly interfaces?: () => readonly string[];
  /** Monotonic clock in `ms` */
  readonly now?: () => number;
}

const INTERFACES_FRESH_MS = 5000;
const ALLOWED: GuardVerdict = { allowed: true };

/**
 * The guard of one machine. In this order: the proxy's own listeners are denied, what `opened` covers is allowed, every class but
 * `public` is denied, the machine's own public addresses are denied, the rest is allowed.
 */
export function createGuard(options: GuardOptions): Guard {
  const ownAddresses = cachedAddresses(options);
  const isOwn = (address: Host): boolean => {
    const kind = classify(address);
    return kind === 'loopback' || kind === 'unspecified' || ownAddresses().has(address);
  };
  return {
    judge(address, port, opened) {
      const faces = facesOf(address);
      if (faces.length === 0) return { allowed: false, reason: 'unreadable' };
      for (const listener of options.listeners()) {
        if (listener.port === port && reachesListener(faces, listener, isOwn)) return { allowed: false, reason: 'own_listener' };
      }
      if (opened.contains(address)) return ALLOWED;
      const kind = classify(address);
      if (kind !== 'public') return { allowed: false, reason: kind };
      if (faces.some((face) => ownAddresses().has(face))) return { allowed: false, reason: 'own_interface' };
      return ALLOWED;
    },
  };
}

function reachesListener(faces: readonly Host[], listener: Listener, isOwn: (address: Host) => boolean): boolean {
  const bound = parseAddress(listener.address);
  // A listener whose address cannot be read may be anywhere on the machine.
  if (bound === undefined || classify(bound) === 'unspecified') return faces.some(isOwn);
  const boundFaces = facesOf(bound);
  // A connection to the unspecified address goes to the machine itself (fault A09).
  return faces.some((face) => boundFaces.includes(face) || classify(face) === 'unspecified');
}

/** Whether an address is that of one of the machine's interfaces, as the guard knows it; true where the system does not say. */
export function createOwnAddresses(options: Omit<GuardOptions, 'listeners'> = {}): (address: Host) => boolean {
  const ownAddresses = cachedAddresses(options);
  return (address) => {
    try {
      return ownAddresses().has(address);
    } catch {
      // What may be the machine's own says nothing of where a connection was going, and then there is nothing to judge.
      return true;
    }
  };
}

function cachedAddresses(options: Omit<GuardOptions, 'listeners'>): () => ReadonlySet<Host> {
  const { interfaces = systemAddresses, now = () => performance.now() } = options;
  let known: ReadonlySet<Host> = new Set();
  let askedAt = -Infinity;
  return () => {
    const time = now();
    if (time - askedAt >= INTERFACES_FRESH_MS) {
      known = new Set(interfaces().flatMap((text) => parseAddress(text) ?? []));
      askedAt = time;
    }
    return known;
  };
}

function systemAddresses(): readonly string[] {
  return Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map((entry) => entry.address));
}
