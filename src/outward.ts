// The part of the composition root that faces outward: the resolver, the guard and the trust by which both the exchanges and the
// proxy's own questions reach the outside. Nothing here decides about a request, and there is no second way out beside it.
import type { FetchToken } from './credentials/token-endpoint.ts';
import type { LiveConfig } from './config/live-config.ts';
import type { AddressRanges } from './exchange/rule.ts';
import type { Logger } from './foundation/logger.ts';
import type { CorporateProxy } from './network/corporate-proxy.ts';
import { createDialTo } from './network/dial.ts';
import { createDialOut } from './network/dial-out.ts';
import type { DialOut } from './network/dial-out.ts';
import { createGuard } from './network/guard.ts';
import type { Guard, Listener } from './network/guard.ts';
import { createReach } from './network/reach.ts';
import { systemResolver } from './network/resolver.ts';
import type { Resolver } from './network/resolver.ts';
import { createPostForm } from './upstream/post-form.ts';
import { secure } from './upstream/secure.ts';
import type { UpstreamTrust } from './upstream/secure.ts';
import { createTrustOver, rootsOfTheMachine } from './upstream/trust.ts';

/** The ways out. */
export interface Outward {
  readonly resolver: Resolver;
  readonly guard: Guard;
  /** The proxy's own; the guard heeds each from the moment it is added */
  readonly listeners: Listener[];
  readonly trust: () => UpstreamTrust;
  /** Opens connections, through the corporate proxy where there is one */
  readonly out: DialOut;
  /** Asks a token endpoint */
  readonly fetchToken: FetchToken;
}

/** What opening them needs. */
export interface OutwardOptions {
  readonly env?: NodeJS.ProcessEnv;
  readonly log: Logger;
  /** Default: the system's resolver */
  readonly resolver?: Resolver;
  /** Opened for token endpoints that have no ranges of their own. For tests alone, whose endpoints are on loopback; default: none */
  readonly tokenRanges?: AddressRanges;
}

/** Opens the ways out; the roots are those of the config in force. */
export function openOutward(options: OutwardOptions, live: LiveConfig): Outward {
  const { env = process.env, log, resolver = systemResolver(), tokenRanges } = options;
  const machine = rootsOfTheMachine(env, (message) => log.warn(message));
  const trust = createTrustOver(() => live.current().upstreamCa, machine);
  // Built now and not with the first request, which would wait for it.
  trust();
  const listeners: Listener[] = [];
  const guard = createGuard({ listeners: () => listeners });
  const out = openDialOut({ resolver, guard, trust, proxy: () => live.current().corporateProxy });
  const post = createPostForm({ reach: createReach({ resolver, guard, ...out }), trust });
  const fetchToken: FetchToken =
    tokenRanges === undefined ? post : (request) => post({ ...request, opened: request.opened ?? tokenRanges });
  return { resolver, guard, listeners, trust, out, fetchToken };
}

/** The ways out through the corporate proxy in force, TLS with it verified as with an upstream. */
export function openDialOut(options: {
  readonly resolver: Resolver;
  readonly guard: Guard;
  readonly trust: () => UpstreamTrust;
  readonly proxy: () => CorporateProxy | undefined;
}): DialOut {
  const { resolver, guard, trust, proxy } = options;
  return createDialOut({
    resolver,
    guard,
    proxy,
    dial: createDialTo({ guard }),
    secure: (socket, { authority, deadlineMs, signal }) =>
      secure(socket, {
        authority,
        lane: `_corporate ${authority.host}:${authority.port}`,
        trust: trust(),
        deadlineMs,
        ...(signal === undefined ? {} : { signal }),
      }),
  });
}
