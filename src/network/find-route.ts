// Permit to Route: the name is resolved once, every answer is judged, and the addresses that passed are all a dial may use.
// It runs only after policy said yes, so a refused name causes no query (fault A29).
// It must never pick the good ones out of a mixed answer: one address inside the walls denies the name (faults A24, A25).
import { performance } from 'node:perf_hooks';
import { parseAddress } from '../exchange/authority.ts';
import type { Authority, Host } from '../exchange/authority.ts';
import { Fault, Refusal } from '../exchange/codes.ts';
import type { AddressRanges } from '../exchange/rule.ts';
import { makeRoute } from '../exchange/stages.ts';
import type { Arrival, Permit, Route } from '../exchange/stages.ts';
import type { Trace } from '../exchange/trace.ts';
import { LEAVE_AFTER_MS, leaveName } from './corporate-proxy.ts';
import type { DeniedReason, Guard } from './guard.ts';
import type { Resolver } from './resolver.ts';

/**
 * Finds where a permitted exchange may connect to. Answers at once, without a promise, where the host is an address or its lane is
 * warm; the route of a warm lane holds no address, so that a new connection is resolved and judged anew (fault A26). Throws (or rejects with) Fault `dns_failed` where the name has no address within `dnsMs`; returns Refusal `address_denied`
 * where any address is denied, with that address in `trace.address`. Monitoring rules are no exception: nothing leads inside.
 */
export type FindRoute = <A extends Arrival>(
  permit: Permit<A>,
  trace: Trace,
  dnsMs: number,
) => Promise<Route<A> | Refusal> | Route<A> | Refusal;

/** What finding a route needs from its neighbours. */
export interface FindRouteOptions {
  readonly resolver: Resolver;
  readonly guard: Guard;
  /** Whether a pooled connection of the lane waits for an exchange */
  readonly warm: (lane: string) => boolean;
  /** Whether a name that does not resolve here is the corporate proxy's to resolve: its route holds no address. Default: none is */
  readonly leaves?: (host: Host) => boolean;
}

const MOST_ADDRESSES = 8;
const NOWHERE_NEW: readonly Host[] = [];

/** See FindRoute. */
export function createFindRoute({ resolver, guard, warm, leaves }: FindRouteOptions): FindRoute {
  const judgeAll = <A extends Arrival>(permit: Permit<A>, answers: readonly string[], trace: Trace): Route<A> | Refusal => {
    const { authority } = permit.intent;
    const judged = judgeAnswers(guard, answers, { authority, opened: permit.rule.opened });
    if ('reason' in judged) {
      trace.address = judged.address;
      return refuse(permit, judged.reason);
    }
    return makeRoute<A>({ permit, addresses: judged, lane: laneOf(permit) });
  };

  return (permit, trace, dnsMs) => {
    const lane = laneOf(permit);
    const { arrival, authority } = permit.intent;
    // What nobody looks into gets a connection of its own.
    if (arrival.purpose !== 'passthrough' && warm(lane)) return makeRoute({ permit, addresses: NOWHERE_NEW, lane });
    const { host, address } = authority;
    if (address) return judgeAll(permit, [host], trace);
    const askedAt = performance.now();
    const left = leaves?.(host) === true;
    const judged = resolveWithin(resolver, { host, sandbox: permit.sandbox.id }, left ? Math.min(dnsMs, LEAVE_AFTER_MS) : dnsMs)
      .finally(() => (trace.dnsMs = performance.now() - askedAt))
      .then((answers) => judgeAll(permit, answers, trace));
    if (!left) return judged;
    return judged.catch(
      (thrown: unknown) => leaveName(host, thrown, permit.rule.id) ?? makeRoute({ permit, addresses: NOWHERE_NEW, lane }),
    );
  };
}

/** One address of an answer that denies its name; `undefined` where it could not be read. */
export interface DeniedAnswer {
  readonly address: Host | undefined;
  readonly reason: DeniedReason;
}

/**
 * The addresses of an answer in the order to try, at most 8, where every one of them may be dialled; else the first that may not.
 * Throws Fault `dns_failed` where there is none.
 */
export function judgeAnswers(
  guard: Guard,
  answers: readonly string[],
  { authority, opened }: { readonly authority: Authority; readonly opened: AddressRanges },
): readonly Host[] | DeniedAnswer {
  const addresses = new Set<Host>();
  for (const answer of new Set(answers)) {
    const address = parseAddress(answer);
    if (address === undefined) return { address, reason: 'unreadable' };
    const verdict = guard.judge(address, authority.port, opened);
    if (!verdict.allowed) return { address, reason: verdict.reason };
    addresses.add(address);
  }
  if (addresses.size === 0) throw new Fault('dns_failed', `the name "${authority.host}" has no address`);
  return interleave([...addresses]).slice(0, MOST_ADDRESSES);
}

function refuse(permit: Permit, reason: DeniedReason): Refusal {
  const { host, address } = permit.intent.authority;
  const subject = address ? 'the target is' : `the name "${host}" leads to`;
  return new Refusal('address_denied', `${subject} an address of class ${reason}`, permit.rule.id);
}

// Host, port and scheme hold no space and neither do ranges, so that no sandbox id can make two lanes one.
function laneOf(permit: Permit): string {
  const { scheme = 'https', authority } = permit.intent;
  return `${permit.sandbox.id} ${scheme} ${authority.host}:${authority.port} ${permit.rule.opened.key}`;
}

/** Every address of a name, not judged; rejects with Fault `dns_failed`, at the latest after `dnsMs`. */
export async function resolveWithin(
  resolver: Resolver,
  { host, sandbox }: { readonly host: Host; readonly sandbox: string },
  dnsMs: number,
): Promise<readonly string[]> {
  const patience = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      // First, so that a question whose turn never came says so.
      patience.abort();
      reject(new Fault('dns_failed', `the name "${host}" was not resolved within ${dnsMs} ms`));
    }, dnsMs);
  });
  try {
    return await Promise.race([resolver.resolve(host, { sandbox, signal: patience.signal }), late]);
  } catch (error) {
    throw error instanceof Fault ? error : new Fault('dns_failed', `the name "${host}" could not be resolved`, error);
  } finally {
    clearTimeout(timer);
  }
}

/** Families by turns, beginning with the first answer's, so that one dead family costs one stagger (RFC 8305 section 4). */
function interleave(addresses: readonly Host[]): Host[] {
  const isIPv6 = (address: Host): boolean => address.includes(':');
  const leading = addresses[0] !== undefined && isIPv6(addresses[0]);
  const first = addresses.filter((address) => isIPv6(address) === leading);
  const second = addresses.filter((address) => isIPv6(address) !== leading);
  return Array.from({ length: Math.max(first.length, second.length) }, (_, i) => [first[i], second[i]])
    .flat()
    .filter((address) => address !== undefined);
}
