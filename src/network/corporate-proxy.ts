// A corporate proxy as the operator has declared it, and which names it may be left to resolve.
// It knows nothing of sockets. It must never let a name of this machine or its network be left to another machine: there it would
// stand for something else.
import type { Authority, Host } from '../exchange/authority.ts';
import { Fault, Refusal } from '../exchange/codes.ts';
import type { Secret } from '../foundation/secret.ts';

/** The proxy that every upstream is reached through. */
export interface CorporateProxy {
  readonly at: Authority;
  /** Whether TLS is spoken with the proxy itself */
  readonly secure: boolean;
  /** The whole value of Proxy-Authorization; `undefined`: none is sent */
  readonly authorization: Secret | undefined;
  /** Who is left with a name that does not resolve here: nobody, or the corporate proxy */
  readonly resolve: 'here' | 'there';
  /** What a CONNECT names where the target is a name: that, or the address that was judged */
  readonly connectBy: 'name' | 'address';
  /** Whether a request over plain HTTP goes through a tunnel as well, or in absolute-form to the proxy */
  readonly plainHttp: 'connect' | 'forward';
  /** Hosts that are dialled directly */
  readonly direct: (host: Host) => boolean;
}

/** The proxy in force for a host; `undefined` where the host is dialled directly. */
export function proxyFor(proxy: CorporateProxy | undefined, host: Host): CorporateProxy | undefined {
  return proxy === undefined || proxy.direct(host) ? undefined : proxy;
}

/** Names that hold only on a machine or in its network (RFC 6761, RFC 6762, RFC 8375, and `internal`, which ICANN keeps for that). */
const OWN = /^(?:[^.]+|(?:.+\.)?(?:localhost|localdomain|local|internal|home\.arpa))$/;

/** Longest that a name is asked for here where the corporate proxy resolves it otherwise, `ms`: nobody may answer here at all. */
export const LEAVE_AFTER_MS = 1000;

/**
 * What comes of a name that did not resolve here: `undefined` where it is the corporate proxy's to resolve, a Refusal where it is a name of
 * this machine or network. Throws again what is no failure of resolving.
 */
export function leaveName(host: Host, thrown: unknown, rule?: string): Refusal | undefined {
  if (!(thrown instanceof Fault) || thrown.code !== 'dns_failed') throw thrown;
  if (!OWN.test(host)) return undefined;
  return new Refusal(
    'address_denied',
    `the name "${host}" is one of a machine or its own network and is left to no other proxy`,
    rule,
  );
}
