// Opens a connection for an exchange where none stands ready: resolved anew where it must be, dialled, secured, and in whichever protocol
// the upstream and the exchange agree on. It must never dial anything but the exchange's own Route, and never more than one connection at
// a time for exchanges that one HTTP/2 session can carry together.
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { formatAuthority, parseAddress } from '../exchange/authority.ts';
import type { Host } from '../exchange/authority.ts';
import { Fault, isRefusal, Refusal } from '../exchange/codes.ts';
import type { Limits } from '../exchange/snapshot.ts';
import type { Permit, Route } from '../exchange/stages.ts';
import type { Trace } from '../exchange/trace.ts';
import type { Secret } from '../foundation/secret.ts';
import type { Carrier } from './carrier.ts';
import { UpstreamConnection } from './connection.ts';
import { Departure } from './departure.ts';
import { speaksOnlyH2 } from './faults.ts';
import type { Lanes } from './lanes.ts';
import { offerOf, takeStanding } from './manner.ts';
import type { Manner, Offer } from './manner.ts';
import { secure } from './secure.ts';
import type { UpstreamTrust } from './secure.ts';
import { UpstreamSession } from './session.ts';
import type { SessionOptions } from './session.ts';

/** Opens a TCP connection to one of a route's judged addresses; given by the network room. */
export type Dial = (route: Route, deadlineMs: number, signal: AbortSignal) => Promise<Socket>;

/** A connection to another proxy, which takes requests over plain HTTP in absolute-form. */
export interface Forwarding {
  readonly socket: Socket;
  /** The whole value of Proxy-Authorization; `undefined`: none is sent */
  readonly authorization: Secret | undefined;
}

/** Opens one for a request over plain HTTP; `undefined` where it is to be dialled as everything else. Given by the network room. */
export type Forward = (route: Route, deadlineMs: number, signal: AbortSignal) => Promise<Forwarding> | undefined;

/** Resolves and judges a permit's target again; given by the network room. */
export type FindAnew = (permit: Permit, trace: Trace, dnsMs: number) => Promise<Route | Refusal> | Route | Refusal;

/** What opening needs of its neighbours. */
export interface OpenOptions {
  readonly findAnew: FindAnew;
  readonly dial: Dial;
  /** Left out: nothing is forwarded */
  readonly forward?: Forward;
  readonly lanes: Lanes;
  readonly trust: () => UpstreamTrust;
  readonly onOpen: () => void;
  readonly onClose: () => void;
}

/** For whom a connection is opened. `route` is found anew where it holds no address. */
export interface Traveller {
  route: Route;
  readonly trace: Trace;
  readonly limits: Limits;
}

/** The refusal of a lane that is full. */
export function tooMany(): Refusal {
  return new Refusal('limit_reached', 'too many connections to this upstream are open');
}

/** Dials a route and measures how long that took. */
export async function dialFor(dial: Dial, traveller: Traveller, signal: AbortSignal): Promise<Socket> {
  const begun = performance.now();
  return reached(traveller, await dial(traveller.route, traveller.limits.connectMs, signal), begun);
}

function reached({ trace }: Traveller, socket: Socket, begun: number): Socket {
  trace.connectMs = performance.now() - begun;
  trace.address = parseAddress(socket.remoteAddress ?? '');
  return socket;
}

/** Opens what the exchange can go on. Resolves with a Refusal where policy, or the sandbox's own request, ends it; rejects with a Fault. */
export async function open(options: OpenOptions, traveller: Traveller, manner: Manner): Promise<Carrier | Refusal> {
  const departure = new Departure(traveller.route.permit.intent.arrival.reply);
  try {
    return await new Opening(options, traveller, { manner, departure }).run();
  } catch (thrown) {
    if (departure.trouble !== undefined) return departure.trouble;
    throw thrown;
  }
}

/** One opening, which may be another's that is waited for. */
class Opening {
  readonly #options: OpenOptions;
  readonly #traveller: Traveller;
  readonly #manner: Manner;
  readonly #departure: Departure;

  constructor(
    options: OpenOptions,
    traveller: Traveller,
    { manner, departure }: { readonly manner: Manner; readonly departure: Departure },
  ) {
    this.#options = options;
    this.#traveller = traveller;
    this.#manner = manner;
    this.#departure = departure;
  }

  async run(): Promise<Carrier | Refusal> {
    const { lanes } = this.#options;
    const { lane } = this.#traveller.route;
    for (let tried = false; ;) {
      const spoken = lanes.spoken(lane);
      const offer = offerOf(this.#manner, spoken);
      const other = offer[0] === 'h2' ? lanes.opening(lane) : undefined;
      if (other !== undefined) {
        const carrier = await this.#join(other);
        if (carrier !== undefined) return carrier;
        continue;
      }
      if (this.#isUpgrade && offer[0] === 'h2' && lanes.refusesUpgrades(lane)) throw noUpgrades();
      try {
        // An upstream that is known to take only one exchange at a time is dialled for each.
        return await (offer[0] === 'h2' && spoken !== 'http/1.1 only' ? this.#lead(offer) : this.#dial(offer));
      } catch (thrown) {
        if (tried || offer[0] === 'h2' || !speaksOnlyH2(thrown)) throw thrown;
        tried = true;
        lanes.remember(lane, 'h2 only', lanes.epoch);
      }
    }
  }

  get #isUpgrade(): boolean {
    return this.#manner === 'upgrade' || this.#manner === 'h2 upgrade';
  }

  /** Waits for a session that is being opened for another exchange. */
  async #join(other: Promise<Fault | undefined>): Promise<Carrier | undefined> {
    const fault = await this.#departure.orGone(other);
    if (fault !== undefined) throw fault;
    const { route, trace } = this.#traveller;
    const carrier = takeStanding(this.#manner, this.#options.lanes, route.lane, true);
    if (carrier !== undefined) trace.address = carrier.address;
    return carrier;
  }

  /** Opens a session that others may be waiting for. */
  async #lead(offer: Offer): Promise<Carrier | Refusal> {
    const { lanes } = this.#options;
    const opened = lanes.announce(this.#traveller.route.lane);
    try {
      const carrier = await this.#dial(offer);
      if (!(carrier instanceof UpstreamSession)) {
        opened(undefined);
        return carrier;
      }
      void carrier.settling.then(() => opened(undefined));
      if (this.#isUpgrade) await this.#settled(carrier);
      return carrier;
    } catch (thrown) {
      // Why this exchange alone could not go on is nothing to the others.
      opened(thrown instanceof Fault && SHARED.has(thrown.code) ? thrown : undefined);
      throw thrown;
    }
  }

  /** Whether a WebSocket may be opened on a session is for the upstream to say (RFC 8441 section 3). */
  async #settled(session: UpstreamSession): Promise<void> {
    try {
      await this.#departure.orGone(session.settling);
      if (session.takesUpgrades !== true) throw noUpgrades();
    } catch (thrown) {
      session.left();
      throw thrown;
    }
  }

  async #dial(offer: Offer): Promise<Carrier | Refusal> {
    const { lanes, onClose, onOpen } = this.#options;
    const traveller = this.#traveller;
    const { limits, trace } = traveller;
    const found = await this.#judged();
    if (isRefusal(found)) return found;
    traveller.route = found;
    const { lane, permit } = found;
    if (!lanes.reserve(lane, limits.upstreamConnections)) return tooMany();
    const { epoch } = lanes;
    let opened: UpstreamConnection | UpstreamSession | undefined;
    try {
      const { forwarding, dialled } = await this.#dialled();
      const socket = await this.#secured(dialled, offer);
      const { authority, scheme = 'https' } = permit.intent;
      const parts: SessionOptions & { readonly forwarding: Forwarding | undefined } = {
        forwarding,
        origin: `${scheme}://${formatAuthority(authority)}`,
        scheme,
        address: trace.address ?? (found.addresses[0] as Host),
        limits,
        onEnd: () => {
          lanes.release(lane, opened);
          onClose();
        },
      };
      if (this.#isH2(socket, offer, epoch)) {
        const session = (opened = new UpstreamSession(socket, parts));
        session.take();
        lanes.addSession(lane, session, epoch);
      } else {
        opened = new UpstreamConnection(socket, parts);
        lanes.add(opened, epoch);
      }
      onOpen();
      return opened;
    } finally {
      if (opened === undefined) lanes.release(lane, undefined);
    }
  }

  /** What was dialled: the way to the upstream, or to another proxy that takes the request in absolute-form. */
  async #dialled(): Promise<{ readonly dialled: Socket; readonly forwarding: Forwarding | undefined }> {
    const { dial, forward } = this.#options;
    const { route, limits } = this.#traveller;
    const { signal } = this.#departure;
    const begun = performance.now();
    // What it would make of an upgrade, or of HTTP/2, is not known.
    const isPlain = this.#manner === 'plain' && route.permit.intent.arrival.purpose === 'exchange';
    const forwarding = isPlain ? await forward?.(route, limits.connectMs, signal) : undefined;
    if (forwarding === undefined) return { dialled: await dialFor(dial, this.#traveller, signal), forwarding };
    return { dialled: reached(this.#traveller, forwarding.socket, begun), forwarding };
  }

  /** A route with addresses to dial. One over a warm lane has none, and what its connection went to may have moved since (fault A26). */
  #judged(): Promise<Route | Refusal> | Route | Refusal {
    const { route, trace, limits } = this.#traveller;
    return route.addresses.length > 0 ? route : this.#options.findAnew(route.permit, trace, limits.dnsMs);
  }

  async #secured(socket: Socket, offer: Offer): Promise<Socket> {
    const { route, trace, limits } = this.#traveller;
    const { authority, scheme } = route.permit.intent;
    if (scheme !== 'https') return socket;
    const begun = performance.now();
    const secured = await secure(socket, {
      authority,
      lane: route.lane,
      trust: this.#options.trust(),
      protocols: offer,
      // one deadline for both: what the connect took is gone
      deadlineMs: Math.max(1, limits.connectMs - trace.connectMs),
      signal: this.#departure.signal,
    });
    trace.tlsMs = performance.now() - begun;
    return secured;
  }

  /** What the handshake came to, which the lane remembers. */
  #isH2(socket: Socket, offer: Offer, epoch: number): boolean {
    const { route } = this.#traveller;
    const { lanes } = this.#options;
    if (route.permit.intent.scheme !== 'https') return offer[0] === 'h2';
    const { alpnProtocol } = socket as TLSSocket;
    const spoken = lanes.spoken(route.lane);
    // An upstream that has no word for it is taken to speak HTTP/1.1, unless it was found not to.
    const isH2 = alpnProtocol === 'h2' || (alpnProtocol !== 'http/1.1' && (spoken === 'h2 only' || !offer.includes('http/1.1')));
    if (offer.length > 1 && !isH2) lanes.remember(route.lane, 'http/1.1 only', epoch);
    if (isH2 && spoken === 'http/1.1 only') lanes.remember(route.lane, undefined, epoch);
    return isH2;
  }
}

/** Faults of an upstream that is the same for every exchange of a lane. */
const SHARED: ReadonlySet<string> = new Set(['upstream_connect', 'upstream_tls', 'upstream_timeout']);

function noUpgrades(): Fault {
  return new Fault('upstream_protocol', 'the upstream speaks HTTP/2 only, and opens no WebSocket over it');
}
