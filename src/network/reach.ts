// A connection for the proxy's own business, such as a token endpoint: no sandbox asked for it and no rule permits it, yet the name is
// resolved once, every answer is judged, and only judged addresses are dialled, by the same guard as an exchange's.
// It must never open anything inside the walls but the ranges that the operator wrote beside the very thing.
import type { Socket } from 'node:net';
import type { Authority, Host } from '../exchange/authority.ts';
import { Fault } from '../exchange/codes.ts';
import type { AddressRanges } from '../exchange/rule.ts';
import { NO_RANGES } from './address-ranges.ts';
import { LEAVE_AFTER_MS, leaveName } from './corporate-proxy.ts';
import { createDialTo } from './dial.ts';
import type { DialTo } from './dial.ts';
import { judgeAnswers, resolveWithin } from './find-route.ts';
import type { Guard } from './guard.ts';
import type { Resolver } from './resolver.ts';

/** Where to, within which time, and what is opened for it. */
export interface ReachOrder {
  readonly authority: Authority;
  /** Internal ranges that are opened; left out: none */
  readonly opened?: AddressRanges | undefined;
  /** For the name and the connection together, `ms` */
  readonly deadlineMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** Connects. The caller owns the socket. Rejects with a Fault: `dns_failed`, `address_denied`, `upstream_connect`, `upstream_timeout`. */
export type Reach = (order: ReachOrder) => Promise<Socket>;

/** Who asks, to the resolver, which counts by sandbox; no id of one begins with `_`. */
export const OURSELVES = '_proxy';

/** What reaching needs. */
export interface ReachOptions {
  readonly resolver: Resolver;
  readonly guard: Guard;
  /** Default: directly */
  readonly dial?: DialTo;
  /** Whether a name that does not resolve here is the corporate proxy's to resolve; default: none is */
  readonly leaves?: (host: Host) => boolean;
}

/** See Reach. */
export function createReach(options: ReachOptions): Reach {
  const { guard, dial = createDialTo({ guard }) } = options;
  return async ({ authority, opened = NO_RANGES, deadlineMs, signal }) => {
    const begun = performance.now();
    const addresses = await judgedAddresses(options, { authority, opened, deadlineMs });
    const left = Math.max(1, deadlineMs - (performance.now() - begun));
    return dial({ authority, addresses, opened }, left, signal);
  };
}

async function judgedAddresses(
  { resolver, guard, leaves }: ReachOptions,
  order: { readonly authority: Authority; readonly opened: AddressRanges; readonly deadlineMs: number },
): Promise<readonly Host[]> {
  const { host, address } = order.authority;
  const left = !address && leaves?.(host) === true;
  const patienceMs = left ? Math.min(order.deadlineMs, LEAVE_AFTER_MS) : order.deadlineMs;
  try {
    const answers = address ? [host] : await resolveWithin(resolver, { host, sandbox: OURSELVES }, patienceMs);
    const judged = judgeAnswers(guard, answers, order);
    if ('reason' in judged) throw new Fault('address_denied', `the name "${host}" leads to an address of class ${judged.reason}`);
    return judged;
  } catch (thrown) {
    if (!left) throw thrown;
    const refused = leaveName(host, thrown);
    if (refused !== undefined) throw new Fault(refused.code, refused.detail, thrown);
    return [];
  }
}
