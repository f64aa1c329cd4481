// How a judged target is reached where the operator has declared a corporate proxy: as a tunnel that the proxy opens, or, for plain HTTP
// where it takes no CONNECT, as a connection to the proxy itself; directly where there is none, or where it is not for this host.
// It must never dial the target past the proxy, reach a listener of our own, or say who the corporate proxy is: its texts go to sandboxes.
import type net from 'node:net';
import { isAddress, parseAddress } from '../exchange/authority.ts';
import type { Authority, Host } from '../exchange/authority.ts';
import { Fault } from '../exchange/codes.ts';
import type { AddressRanges } from '../exchange/rule.ts';
import type { Secret } from '../foundation/secret.ts';
import { proxyFor } from './corporate-proxy.ts';
import type { CorporateProxy } from './corporate-proxy.ts';
import type { DialTarget, DialTo } from './dial.ts';
import { resolveWithin } from './find-route.ts';
import type { Guard } from './guard.ts';
import { OURSELVES } from './reach.ts';
import { requestTunnel } from './request-tunnel.ts';
import type { Resolver } from './resolver.ts';

/** A connection to a proxy that takes requests in absolute-form. */
export interface Forwarding {
  readonly socket: net.Socket;
  /** The whole value of Proxy-Authorization for each of them; `undefined`: none is sent */
  readonly authorization: Secret | undefined;
}

/** The ways out. */
export interface DialOut {
  /** Opens a connection to a target, through the corporate proxy where there is one for it. Like Dial in all else. */
  readonly dial: DialTo;
  /** For a request over plain HTTP: `undefined` where it is to be dialled as everything else. Rejects as `dial` does. */
  readonly forward: (target: DialTarget, deadlineMs: number, signal?: AbortSignal) => Promise<Forwarding> | undefined;
  /** Whether a name that does not resolve here is the corporate proxy's to resolve. */
  readonly leaves: (host: Host) => boolean;
}

/** Speaks TLS with the corporate proxy: verified, the socket taken over. Rejects with a Fault. */
export type SecureProxy = (
  socket: net.Socket,
  options: { readonly authority: Authority; readonly deadlineMs: number; readonly signal: AbortSignal | undefined },
) => Promise<net.Socket>;

/** What dialling out needs. */
export interface DialOutOptions {
  readonly guard: Guard;
  readonly resolver: Resolver;
  /** The proxy in force, asked anew for each dial */
  readonly proxy: () => CorporateProxy | undefined;
  readonly dial: DialTo;
  readonly secure: SecureProxy;
}

/** The operator names the proxy, and no policy of a sandbox is asked about it; what the guard denies even so is a listener of our own. */
const EVERYWHERE: AddressRanges = { key: '*', contains: () => true };

/** See DialOut. */
export function createDialOut(options: DialOutOptions): DialOut {
  return {
    dial: (target, deadlineMs, signal) => {
      const proxy = proxyFor(options.proxy(), target.authority.host);
      if (proxy === undefined) return options.dial(target, deadlineMs, signal);
      return new Passage(options, proxy, { target, deadlineMs, signal }).tunnel();
    },
    forward: (target, deadlineMs, signal) => {
      const proxy = proxyFor(options.proxy(), target.authority.host);
      if (proxy?.plainHttp !== 'forward') return undefined;
      return new Passage(options, proxy, { target, deadlineMs, signal }).forwarding();
    },
    leaves: (host) => proxyFor(options.proxy(), host)?.resolve === 'there' && !isAddress(host),
  };
}

/** What is to be reached, and until when. */
interface Order {
  readonly target: DialTarget;
  readonly deadlineMs: number;
  readonly signal: AbortSignal | undefined;
}

/** One way through the corporate proxy. */
class Passage {
  readonly #options: DialOutOptions;
  readonly #proxy: CorporateProxy;
  readonly #order: Order;
  readonly #begun = performance.now();

  constructor(options: DialOutOptions, proxy: CorporateProxy, order: Order) {
    this.#options = options;
    this.#proxy = proxy;
    this.#order = order;
  }

  async tunnel(): Promise<net.Socket> {
    const { authority, addresses } = this.#judged();
    const { authorization, connectBy } = this.#proxy;
    const byAddress = connectBy === 'address' && addresses.length > 0;
    const names = byAddress ? addresses.map((host) => ({ host, port: authority.port, address: true })) : [authority];
    let status = 0;
    for (const to of names) {
      const socket = await this.#reach();
      status = await requestTunnel(socket, { to, authorization, deadlineMs: this.#leftMs(), signal: this.#order.signal });
      if (status >= 200 && status <= 299) return socket;
      // Told of the way to this address; another one may lead there.
      if (status < 500) break;
    }
    throw refused(status, authority, authorization);
  }

  async forwarding(): Promise<Forwarding> {
    this.#judged();
    return { socket: await this.#reach(), authorization: this.#proxy.authorization };
  }

  /** The target, judged again: the machine's own addresses may have changed, and so may what is left to the proxy. */
  #judged(): DialTarget {
    const { target } = this.#order;
    const { authority, addresses, opened } = target;
    if (addresses.length === 0 && !this.#leaves(authority))
      throw new Fault('upstream_connect', 'no address of the upstream is known');
    const fine = addresses.every((address) => this.#options.guard.judge(address, authority.port, opened).allowed);
    if (!fine) throw new Fault('address_denied', 'the address of the upstream is no longer allowed');
    return target;
  }

  #leaves({ address }: Authority): boolean {
    return this.#proxy.resolve === 'there' && !address;
  }

  /** A connection to the corporate proxy, secured where that is declared. */
  async #reach(): Promise<net.Socket> {
    const { at, secure } = this.#proxy;
    const { signal } = this.#order;
    try {
      const target = { authority: at, addresses: await this.#addresses(), opened: EVERYWHERE };
      const socket = await this.#options.dial(target, this.#leftMs(), signal);
      return secure ? await this.#options.secure(socket, { authority: at, deadlineMs: this.#leftMs(), signal }) : socket;
    } catch (thrown) {
      throw ofTheProxy(thrown, this.#order.deadlineMs);
    }
  }

  async #addresses(): Promise<readonly Host[]> {
    const { at } = this.#proxy;
    if (at.address) return [at.host];
    const answers = await resolveWithin(this.#options.resolver, { host: at.host, sandbox: OURSELVES }, this.#leftMs());
    const addresses = answers.flatMap((answer) => parseAddress(answer) ?? []);
    if (addresses.length === 0) throw new Fault('dns_failed', 'the corporate proxy has no address');
    return addresses;
  }

  /** One deadline for all of it. */
  #leftMs(): number {
    return Math.max(1, this.#order.deadlineMs - (performance.now() - this.#begun));
  }
}

/** A fault on the way to the corporate proxy, told apart from one of the upstream. */
function ofTheProxy(thrown: unknown, deadlineMs: number): Fault {
  const code = thrown instanceof Fault ? thrown.code : undefined;
  switch (code) {
    case 'client_closed':
      return new Fault('client_closed', 'the sandbox left before the upstream was reached');
    case 'upstream_timeout':
      return new Fault('upstream_timeout', `the corporate proxy was not reached within ${deadlineMs} ms`, thrown);
    case 'dns_failed':
      return new Fault('upstream_connect', 'the name of the corporate proxy could not be resolved', thrown);
    case 'upstream_tls':
      return new Fault('upstream_connect', 'the TLS handshake with the corporate proxy failed', thrown);
    case 'address_denied':
      return new Fault('address_denied', 'the corporate proxy that is configured is a listener of this proxy itself');
    default:
      return new Fault('upstream_connect', 'the corporate proxy could not be reached', thrown);
  }
}

/** What an answer other than 2xx comes to. */
function refused(status: number, { port }: Authority, authorization: Secret | undefined): Fault {
  if (status === 407) {
    const wanted = authorization === undefined ? 'credentials, and none are configured' : 'other credentials';
    return new Fault('upstream_connect', `the corporate proxy wants ${wanted} (407)`);
  }
  if (status >= 500) return new Fault('upstream_connect', `the corporate proxy could not reach the upstream (${status})`);
  // Many open tunnels to port 443 alone (fault H04).
  const remedy = port === 80 ? '; where it opens none to port 80, set upstream.proxy.plain_http to forward' : '';
  return new Fault('upstream_connect', `the corporate proxy refused to connect to the upstream (${status})${remedy}`);
}
