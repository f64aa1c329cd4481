// The road: a Dispatch goes out on a vetted connection and its answer comes back through the reply port.
// It must never dial anything but the Dispatch's own Route, found anew where that one held a warm lane alone, and never send a request twice that the upstream may have seen, unless it is safe to.
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Dispatcher } from 'undici';
import { formatAuthority, parseAddress } from '../exchange/authority.ts';
import type { Host } from '../exchange/authority.ts';
import { Fault, Refusal } from '../exchange/codes.ts';
import type { ReplyListener, ReplyPort } from '../exchange/reply-port.ts';
import type { Limits } from '../exchange/snapshot.ts';
import type { Completed, Completion, Dispatch, PassthroughArrival, Permit, Route } from '../exchange/stages.ts';
import type { Trace } from '../exchange/trace.ts';
import { Answer } from './answer.ts';
import type { AttemptEnd, ReplyFields, Switched } from './answer.ts';
import { UpstreamConnection } from './connection.ts';
import { holdBody } from './held-body.ts';
import type { Lanes } from './lanes.ts';
import { relay } from './relay.ts';
import { RequestBody } from './request-body.ts';
import { secure } from './secure.ts';
import type { UpstreamTrust } from './secure.ts';

/** Opens a TCP connection to one of a route's judged addresses; given by the network room. */
export type Dial = (route: Route, deadlineMs: number, signal: AbortSignal) => Promise<Socket>;

/** Resolves and judges a permit's target again; given by the network room. */
export type FindAnew = (permit: Permit, trace: Trace, dnsMs: number) => Promise<Route | Refusal> | Route | Refusal;

/** What the road needs from its neighbours. */
export interface SendOptions {
  readonly findAnew: FindAnew;
  readonly dial: Dial;
  readonly lanes: Lanes;
  readonly trust: () => UpstreamTrust;
  readonly convert: ReplyFields;
  readonly onOpen: () => void;
  readonly onClose: () => void;
}

/** Sends a dispatch and relays its answer. Resolves when the answer has been handed over whole; rejects with a Fault. */
export type Send = (dispatch: Dispatch, trace: Trace, limits: Limits) => Promise<Refusal | undefined>;

/** Builds the road. */
export function createSend(options: SendOptions): Send {
  return (dispatch, trace, limits) => {
    const { arrival } = dispatch.route.permit.intent;
    const trip = new Trip(options, dispatch, { trace, limits });
    return arrival.purpose === 'passthrough' ? trip.passThrough(arrival) : trip.exchange();
  };
}

/** One dispatch on its way. */
class Trip {
  readonly #options: SendOptions;
  readonly #dispatch: Dispatch;
  #route: Route;
  readonly #trace: Trace;
  readonly #limits: Limits;

  constructor(options: SendOptions, dispatch: Dispatch, { trace, limits }: { readonly trace: Trace; readonly limits: Limits }) {
    this.#options = options;
    this.#dispatch = dispatch;
    this.#route = dispatch.route;
    this.#trace = trace;
    this.#limits = limits;
  }

  /** Sends a request, once more where that is safe, and relays the answer. */
  async exchange(): Promise<Refusal | undefined> {
    const { completion } = this.#dispatch;
    const held = completion?.hold === undefined ? undefined : await this.#hold(completion.hold);
    if (held instanceof Refusal) return held;
    for (let attempt = 1; ; attempt += 1) {
      const completed = completion?.complete(held);
      const body = held === undefined ? this.#body(completed) : undefined;
      const connection = this.#idle(attempt) ?? (await this.#open());
      if (connection instanceof Refusal) return connection;
      const heard = connection.bytesRead;
      const end = await this.#attempt(connection, body, completed);
      if (completion !== undefined) this.#tellCredentials(completion, held === undefined ? undefined : completed?.body);
      if (end.switched !== undefined) return this.#switchOver(end.switched);
      if (end.fault === undefined) {
        this.#options.lanes.give(this.#route.lane, connection);
        return undefined;
      }
      connection.destroy();
      if (end.trouble !== undefined) return end.trouble;
      const lost = { body, reused: connection.exchanges > 1, silent: connection.bytesRead === heard };
      if (attempt > 1 || !mayRepeat(this.#dispatch, end, lost)) throw end.fault;
    }
  }

  #body(completed: Completed | undefined): RequestBody | undefined {
    const { arrival } = this.#route.permit.intent;
    if (arrival.purpose !== 'exchange' || arrival.body === undefined) return undefined;
    const through = completed?.through;
    return new RequestBody(arrival.body, { reply: arrival.reply, trace: this.#trace, idleMs: this.#limits.bodyIdleMs, through });
  }

  /** The whole body, before anything is dialled for it. */
  async #hold(most: number): Promise<Buffer | undefined | Refusal> {
    const body = this.#body(undefined);
    if (body === undefined) return undefined;
    const departure = new Departure(this.#route.permit.intent.arrival.reply);
    try {
      return await holdBody(body, most, departure.signal);
    } catch (thrown) {
      if (departure.trouble !== undefined) return departure.trouble;
      throw thrown;
    } finally {
      // Nothing has gone out so far.
      this.#trace.bytesSent = 0;
    }
  }

  /** What the body showed on its way: which credentials went into it. */
  #tellCredentials(completion: Completion, sent: Buffer | undefined): void {
    this.#trace.credentials = completion.credentials();
    if (sent !== undefined) this.#trace.bytesSent = sent.length;
  }

  /** Ties a tunnel that nobody looks into to its upstream, on a connection that counts like any other. */
  async passThrough(arrival: PassthroughArrival): Promise<Refusal | undefined> {
    const { lanes, onOpen, onClose } = this.#options;
    const { lane } = this.#route;
    if (!lanes.reserve(lane, this.#limits.upstreamConnections)) return tooMany();
    let socket: Socket | undefined;
    try {
      socket = await this.#dial(new Departure(arrival.reply).signal);
    } finally {
      if (socket === undefined) lanes.release(lane, undefined);
    }
    onOpen();
    socket.once('close', () => {
      lanes.release(lane, undefined);
      onClose();
    });
    this.#trace.dispatchedAt = performance.now();
    this.#trace.status = 200;
    return this.#relay(arrival.stream, socket);
  }

  /** A pooled connection for the first attempt; a second one goes out on a fresh connection. */
  #idle(attempt: number): UpstreamConnection | undefined {
    const idle = attempt > 1 ? undefined : this.#options.lanes.take(this.#route.lane);
    if (idle !== undefined) this.#trace.address = idle.address;
    return idle;
  }

  async #open(): Promise<UpstreamConnection | Refusal> {
    const { lanes, onOpen, onClose } = this.#options;
    const found = await this.#judged();
    if (found instanceof Refusal) return found;
    this.#route = found;
    const { lane } = found;
    if (!lanes.reserve(lane, this.#limits.upstreamConnections)) return tooMany();
    const { epoch } = lanes;
    const departure = new Departure(this.#route.permit.intent.arrival.reply);
    let opened: UpstreamConnection | undefined;
    try {
      const socket = await this.#secured(await this.#dial(departure.signal), departure.signal);
      const { authority, scheme } = this.#route.permit.intent;
      opened = new UpstreamConnection(socket, {
        origin: `${scheme ?? 'https'}://${formatAuthority(authority)}`,
        address: this.#trace.address ?? (found.addresses[0] as Host),
        limits: this.#limits,
        onEnd: () => {
          lanes.release(lane, opened);
          onClose();
        },
      });
      lanes.add(opened, epoch);
      onOpen();
      return opened;
    } catch (thrown) {
      if (departure.trouble !== undefined) return departure.trouble;
      throw thrown;
    } finally {
      if (opened === undefined) lanes.release(lane, undefined);
    }
  }

  /** A route with addresses to dial. One over a warm lane has none, and what its connection went to may have moved since (fault A26). */
  #judged(): Promise<Route | Refusal> | Route | Refusal {
    const { addresses, permit } = this.#route;
    return addresses.length > 0 ? this.#route : this.#options.findAnew(permit, this.#trace, this.#limits.dnsMs);
  }

  async #dial(signal: AbortSignal): Promise<Socket> {
    const begun = performance.now();
    const socket = await this.#options.dial(this.#route, this.#limits.connectMs, signal);
    this.#trace.connectMs = performance.now() - begun;
    this.#trace.address = parseAddress(socket.remoteAddress ?? '');
    return socket;
  }

  async #secured(socket: Socket, signal: AbortSignal): Promise<Socket> {
    const { authority, scheme } = this.#route.permit.intent;
    if (scheme !== 'https') return socket;
    const begun = performance.now();
    const secured = await secure(socket, {
      authority,
      lane: this.#route.lane,
      trust: this.#options.trust(),
      // one deadline for both: what the connect took is gone
      deadlineMs: Math.max(1, this.#limits.connectMs - this.#trace.connectMs),
      signal,
    });
    this.#trace.tlsMs = performance.now() - begun;
    return secured;
  }

  #attempt(connection: UpstreamConnection, body: RequestBody | undefined, completed: Completed | undefined): Promise<AttemptEnd> {
    connection.exchanges += 1;
    const { arrival, path, query } = this.#route.permit.intent;
    const { redaction } = this.#dispatch;
    const going = completed ?? this.#dispatch;
    return new Promise((settled) => {
      const answer = new Answer({
        reply: arrival.reply,
        trace: this.#trace,
        convert: this.#options.convert,
        gate: connection.gate,
        hidden: redaction === undefined ? undefined : { redaction, method: arrival.method },
        settled,
      });
      const request = {
        path: path + (going.query ?? query),
        method: arrival.method,
        headers: going.fields as string[],
        body: body ?? completed?.body ?? null,
        ...(arrival.purpose === 'upgrade' ? { upgrade: 'websocket' } : {}),
      };
      connection.client.dispatch(request, answer as unknown as Dispatcher.DispatchHandler);
    });
  }

  #switchOver({ stream, reason, fields }: Switched): Promise<undefined> {
    return this.#relay(this.#route.permit.intent.arrival.reply.switchProtocols(reason, fields), stream);
  }

  async #relay(sandbox: Duplex, upstream: Duplex): Promise<undefined> {
    const cut = await relay(sandbox, upstream, { trace: this.#trace, idleMs: this.#limits.tunnelIdleMs });
    if (cut !== undefined) throw cut;
    return undefined;
  }
}

function tooMany(): Refusal {
  return new Refusal('limit_reached', 'too many connections to this upstream are open');
}

/** Hears of a sandbox that leaves while a connection is being opened for it, so that nobody goes on dialling for no one. */
class Departure implements ReplyListener {
  readonly #controller = new AbortController();
  /** Why its request was broken, where that is why it is cut off */
  trouble: Refusal | undefined = undefined;

  constructor(reply: ReplyPort) {
    reply.listen(this);
    if (reply.closed) this.#controller.abort();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  drained(): void {}

  gone(trouble?: Refusal): void {
    this.trouble = trouble;
    this.#controller.abort();
  }
}

const IDEMPOTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE']);

/** What is known of an attempt that failed, beside its end. */
interface Lost {
  readonly body: RequestBody | undefined;
  /** Whether the connection had served an exchange before */
  readonly reused: boolean;
  /** Whether no byte came in after the request had gone out */
  readonly silent: boolean;
}

/**
 * Once, and only where nothing can happen twice (RFC 9110 section 9.2.2; faults J01, J08): the request never left,
 * or it is idempotent, without a body, and was lost on a reused connection before any byte of an answer.
 */
function mayRepeat(dispatch: Dispatch, end: AttemptEnd, { body, reused, silent }: Lost): boolean {
  const { arrival } = dispatch.route.permit.intent;
  if (!(end.fault instanceof Fault) || end.fault.code !== 'upstream_protocol') return false;
  if (arrival.reply.headSent || arrival.reply.closed || body?.started === true) return false;
  return !end.sent || (reused && silent && body === undefined && IDEMPOTENT.has(arrival.method));
}
