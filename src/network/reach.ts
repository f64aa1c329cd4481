// A connection for the proxy's own business, such as a token endpoint: no sandbox asked for it and no rule permits it, yet the name is
// resolved once, every answer is judged, and only judged addresses are dialled, by the same guard as an exchange's.
// It must never open anything inside the walls but the ranges that the operator wrote beside the very thing.
import type { Socket } from 'node:net';
import type { Authority } from '../exchange/authority.ts';
import { Fault } from '../exchange/codes.ts';
import type { AddressRanges } from '../exchange/rule.ts';
import { NO_RANGES } from './address-ranges.ts';
import { createDialTo } from './dial.ts';
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
const OURSELVES = '_proxy';

/** See Reach. */
export function createReach({ resolver, guard }: { readonly resolver: Resolver; readonly guard: Guard }): Reach {
  const dial = createDialTo({ guard });
  return async ({ authority, opened = NO_RANGES, deadlineMs, signal }) => {
    const begun = performance.now();
    const { host } = authority;
    const answers = authority.address ? [host] : await resolveWithin(resolver, { host, sandbox: OURSELVES }, deadlineMs);
    const judged = judgeAnswers(guard, answers, { authority, opened });
    if ('reason' in judged) throw new Fault('address_denied', `the name "${host}" leads to an address of class ${judged.reason}`);
    const left = Math.max(1, deadlineMs - (performance.now() - begun));
    return dial({ addresses: judged, port: authority.port, opened }, left, signal);
  };
}
