// The stages of the one journey: Arrival -> Intent -> Permit -> Route -> Dispatch -> Outcome.
// Each is a new immutable value, made by one room only (the architecture test holds that), so that a step cannot be skipped:
// dialling takes a Route, sending takes a Dispatch, and neither can be had without what stands before it.
import type { Duplex, Readable } from 'node:stream';
import type { Authority, Host } from './authority.ts';
import type { Code, Fault, Refusal } from './codes.ts';
import type { HeaderFields } from './header-fields.ts';
import type { BodyFilter, Redaction } from './redaction.ts';
import type { ReplyPort } from './reply-port.ts';
import type { Policy, Rule } from './rule.ts';

/** Which way a request came in. */
export type Door = 'proxy' | 'tunnel' | 'transparent';

/** What is spoken with the sandbox; also a metric label. */
export type Protocol = 'http/1.1' | 'h2' | 'websocket' | 'passthrough' | 'dns';

/** Scheme of the target. */
export type Scheme = 'http' | 'https';

/**
 * What an exchange inside a tunnel may not leave: where the tunnel leads, and who opened it.
 * `authority` was judged with the CONNECT and is judged again with every request inside.
 */
export interface Ceiling {
  readonly scheme: Scheme;
  readonly authority: Authority;
  /** The Proxy-Authorization of the CONNECT */
  readonly identity: string | undefined;
}

/** What a transparent door knows of where a connection was going before it was led here. */
export interface Origin {
  readonly scheme: Scheme;
  /** The port that the sandbox dialled */
  readonly port: number;
  /** The address that it dialled; `undefined` where a redirect has hidden it */
  readonly address: Host | undefined;
}

/** What an HTTP/2 request says outside its fields and its method and path (RFC 9113 section 8.3.1), as it stood on the wire. */
export interface PseudoFields {
  readonly scheme: string;
  /** `undefined` where it was left out; Host names the authority then */
  readonly authority: string | undefined;
}

interface ArrivalBase {
  /** Unique, shaped like a UUID; also given to the sandbox with a refusal. No secret: the next can be told from the last */
  readonly requestId: string;
  /** `performance.now()` at arrival */
  readonly arrivedAt: number;
  readonly door: Door;
  readonly protocol: Protocol;
  readonly method: string;
  /**
   * The request target as it stood on the wire; of HTTP/2 its `:path`, or the `:authority` of a CONNECT; of TLS at a transparent door the
   * name in its ClientHello, or nothing; of a lookup the name
   */
  readonly target: string;
  /** Of an HTTP/2 request that is no CONNECT; `undefined` everywhere else */
  readonly pseudo: PseudoFields | undefined;
  /** Without pseudo-header fields; the cookie crumbs of HTTP/2 are one Cookie again (RFC 9113 section 8.2.3) */
  readonly fields: HeaderFields;
  /** HTTP version on the wire, as in `1.1` or `2.0` */
  readonly version: string;
  /** Set where the door's parser has already found the request malformed, too large or too slow */
  readonly trouble: Refusal | undefined;
  readonly ceiling: Ceiling | undefined;
  /** Set by a transparent door, of what is not inside a ceiling yet */
  readonly origin: Origin | undefined;
  /** Address of the sandbox's end of the connection */
  readonly client: string;
  readonly reply: ReplyPort;
}

/** A request with its reply. */
export interface ExchangeArrival extends ArrivalBase {
  readonly purpose: 'exchange';
  /** `undefined` where the request has no body */
  readonly body: Readable | undefined;
}

/**
 * A request to switch protocols; `Upgrade: websocket` is the only one let through, and the `:protocol` of an extended CONNECT
 * (RFC 8441), whose method is GET here as in HTTP/1.1: both are one handshake to every rule.
 */
export interface UpgradeArrival extends ArrivalBase {
  readonly purpose: 'upgrade';
}

/**
 * A CONNECT, or TLS at a transparent door. `open` answers and lets the tunnel to `authority`, which was judged, live; it resolves when
 * the tunnel has ended.
 */
export interface TunnelArrival extends ArrivalBase {
  readonly purpose: 'tunnel';
  open(authority: Authority, passthrough: boolean): Promise<TunnelEnd>;
  /**
   * Of a door that has no words for a refusal before TLS stands: lets the requests inside be refused one by one, in words that their
   * client can read. Nothing passes, because each of them is judged as the tunnel was.
   */
  tell?(authority: Authority): Promise<TunnelEnd>;
}

/** A question for a name, at the DNS door. It is answered with the door's own address, or declined; nobody else is asked. */
export interface LookupArrival extends ArrivalBase {
  readonly purpose: 'lookup';
  answer(): void;
  decline(code: Code): void;
}

/** The bytes of a tunnel that is not inspected. */
export interface PassthroughArrival extends ArrivalBase {
  readonly purpose: 'passthrough';
  readonly stream: Duplex;
}

/** Anything that came through a door. */
export type Arrival = ExchangeArrival | UpgradeArrival | TunnelArrival | PassthroughArrival | LookupArrival;

/** How a tunnel ended: how many exchanges it carried, and why it was cut if it was. */
export interface TunnelEnd {
  readonly carried: number;
  readonly verdict: Refusal | Fault | undefined;
}

declare const intentBrand: unique symbol;
declare const permitBrand: unique symbol;
declare const routeBrand: unique symbol;
declare const dispatchBrand: unique symbol;

/** An arrival whose syntax holds: one authority, one path, framing that has one reading. Made by intake. */
export interface Intent<A extends Arrival = Arrival> {
  readonly [intentBrand]: true;
  readonly arrival: A;
  /** `undefined` for a CONNECT, which does not say what it will speak */
  readonly scheme: Scheme | undefined;
  readonly authority: Authority;
  /** Path without query, as on the wire; empty for a CONNECT */
  readonly path: string;
  /** Query with its `?`, or empty */
  readonly query: string;
  /** The sandbox's Proxy-Authorization, from the request or from its tunnel */
  readonly identity: string | undefined;
}

/** Who is asking, and by which policy it is judged. */
export interface Sandbox {
  readonly id: string;
  readonly policy: Policy;
  /** Ids of the credentials that variables of its environment stand for; left out: it was given no environment */
  readonly bound?: ReadonlySet<string>;
}

/** What policy allows. Carries all that later steps need, so that nobody asks the policy twice. Made by policy. */
export interface Permit<A extends Arrival = Arrival> {
  readonly [permitBrand]: true;
  readonly intent: Intent<A>;
  readonly sandbox: Sandbox;
  readonly rule: Rule;
  /** Set under `enforcement: monitor`: what would have been refused */
  readonly wouldRefuse: Code | undefined;
}

/** A permit with the way its exchange may go: the judged addresses, or a connection that stands already. Made by network. */
export interface Route<A extends Arrival = Arrival> {
  readonly [routeBrand]: true;
  readonly permit: Permit<A>;
  /** Judged addresses in the order to try; empty where the lane is warm: then nothing may be dialled before the route is found anew */
  readonly addresses: readonly Host[];
  /** Connections with the same lane may serve each other's requests: same sandbox, scheme, authority and opened ranges */
  readonly lane: string;
}

/** A route with the fields that go upstream, credentials put on. Made by credentials. */
export interface Dispatch<A extends Arrival = Arrival> {
  readonly [dispatchBrand]: true;
  readonly route: Route<A>;
  /** Hop-by-hop fields gone, Host rebuilt from the authority, injected fields last. Holds secrets: never log it */
  readonly fields: HeaderFields;
  /** Ids of the credentials that were put on */
  readonly credentials: readonly string[];
  /** With its `?`, or empty, where it is not the intent's own: placeholders in it were swapped. Holds secrets */
  readonly query?: string;
  /** What the answer must be looked through for; left out where nothing is to be hidden */
  readonly redaction?: Redaction;
  /** Left out where the request is complete as it is */
  readonly completion?: Completion;
}

/** What is left to be done when the request goes out: what depends on its body, or on the time. */
export interface Completion {
  /** The body is to be had whole before, up to so many bytes; `undefined`: it streams, or there is none */
  readonly hold: number | undefined;
  /** What goes out, at each attempt; `held` where it was asked for. Throws a Fault. */
  complete(held: Buffer | undefined): Completed;
  /** Ids of all credentials that were put on; final once the body has gone out */
  credentials(): readonly string[];
}

/** A request as it goes out. Holds secrets: never log it. */
export interface Completed {
  readonly fields: HeaderFields;
  readonly query: string;
  /** In place of the one that was held */
  readonly body: Buffer | undefined;
  /** What a body that streams goes through */
  readonly through: BodyFilter | undefined;
}

/** For intake only. */
export function makeIntent<A extends Arrival>(parts: Omit<Intent<A>, typeof intentBrand>): Intent<A> {
  return parts as Intent<A>;
}

/** For policy only. */
export function makePermit<A extends Arrival>(parts: Omit<Permit<A>, typeof permitBrand>): Permit<A> {
  return parts as Permit<A>;
}

/** For network only. */
export function makeRoute<A extends Arrival>(parts: Omit<Route<A>, typeof routeBrand>): Route<A> {
  return parts as Route<A>;
}

/** For credentials only. */
export function makeDispatch<A extends Arrival>(parts: Omit<Dispatch<A>, typeof dispatchBrand>): Dispatch<A> {
  return parts as Dispatch<A>;
}
