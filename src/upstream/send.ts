// The road: a Dispatch goes out on a vetted connection and its answer comes back through the reply port.
// It must never dial anything but the Dispatch's own Route, found anew where that one held a warm lane alone, and never send a request twice that the upstream may have seen, unless it is safe to.
import type { Duplex } from 'node:stream';
import { Fault, Refusal } from '../exchange/codes.ts';
import type { Limits } from '../exchange/snapshot.ts';
import type { Completed, Completion, Dispatch, PassthroughArrival, Route } from '../exchange/stages.ts';
import type { Trace } from '../exchange/trace.ts';
import { newWebSocketKey } from '../exchange/websocket-key.ts';
import { Answer } from './answer.ts';
import type { AttemptEnd, ReplyFields, Switched } from './answer.ts';
import type { Carrier, Outgoing, Way } from './carrier.ts';
import { UpstreamConnection } from './connection.ts';
import { Departure } from './departure.ts';
import { speaksOnlyH2 } from './faults.ts';
import { verifyAccept, withKey } from './handshake-key.ts';
import { holdBody } from './held-body.ts';
import { mannerOf, takeStanding } from './manner.ts';
import type { Manner } from './manner.ts';
import { dialFor, open, tooMany } from './open.ts';
import type { OpenOptions, Traveller } from './open.ts';
import { relay } from './relay.ts';
import { RequestBody } from './request-body.ts';

/** What the road needs from its neighbours. */
export interface SendOptions extends OpenOptions {
  readonly convert: ReplyFields;
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
class Trip implements Traveller {
  readonly #options: SendOptions;
  readonly #dispatch: Dispatch;
  /** Of a handshake whose proof is ours to ask for */
  #key: string | undefined = undefined;
  route: Route;
  readonly trace: Trace;
  readonly limits: Limits;

  constructor(options: SendOptions, dispatch: Dispatch, { trace, limits }: { readonly trace: Trace; readonly limits: Limits }) {
    this.#options = options;
    this.#dispatch = dispatch;
    this.route = dispatch.route;
    this.trace = trace;
    this.limits = limits;
  }

  /** Sends a request, once more where that is safe, and relays the answer. */
  async exchange(): Promise<Refusal | undefined> {
    const { completion } = this.#dispatch;
    const held = completion?.hold === undefined ? undefined : await this.#hold(completion.hold);
    if (held instanceof Refusal) return held;
    const manner = mannerOf(this.route.permit.intent);
    for (let attempt = 1; ; attempt += 1) {
      const completed = completion?.complete(held);
      const body = held === undefined ? this.#body(completed) : undefined;
      const carrier = this.#standing(manner, attempt) ?? (await open(this.#options, this, manner));
      if (carrier instanceof Refusal) return carrier;
      const heard = carrier.bytesRead;
      const way = carrier.begin();
      const end = await this.#attempt(way, this.#outgoing(carrier, body, completed));
      if (completion !== undefined) this.#tellCredentials(completion, held === undefined ? undefined : completed?.body);
      if (end.switched !== undefined) return this.#switchOver(end.switched);
      if (end.fault === undefined) {
        if (carrier instanceof UpstreamConnection) this.#options.lanes.give(this.route.lane, carrier);
        return undefined;
      }
      carrier.failed();
      if (end.trouble !== undefined) return end.trouble;
      const unprocessed = way.unprocessed || this.#metH2(carrier, end.fault);
      const lost = { body, reused: carrier.exchanges > 1, silent: carrier.bytesRead === heard, unprocessed };
      if (attempt >= (unprocessed ? MOST_WHILE_UNPROCESSED : MOST_ATTEMPTS) || !mayRepeat(this.#dispatch, end, lost)) {
        if (unprocessed) this.route.permit.intent.arrival.reply.giveBack?.();
        throw end.fault;
      }
    }
  }

  #body(completed: Completed | undefined): RequestBody | undefined {
    const { arrival } = this.route.permit.intent;
    if (arrival.purpose !== 'exchange' || arrival.body === undefined) return undefined;
    const through = completed?.through;
    return new RequestBody(arrival.body, { reply: arrival.reply, trace: this.trace, idleMs: this.limits.bodyIdleMs, through });
  }

  /** The whole body, before anything is dialled for it. */
  async #hold(most: number): Promise<Buffer | undefined | Refusal> {
    const body = this.#body(undefined);
    if (body === undefined) return undefined;
    const departure = new Departure(this.route.permit.intent.arrival.reply);
    try {
      return await holdBody(body, most, departure.signal);
    } catch (thrown) {
      if (departure.trouble !== undefined) return departure.trouble;
      throw thrown;
    } finally {
      // Nothing has gone out so far.
      this.trace.bytesSent = 0;
    }
  }

  /** What the body showed on its way: which credentials went into it. */
  #tellCredentials(completion: Completion, sent: Buffer | undefined): void {
    this.trace.credentials = completion.credentials();
    if (sent !== undefined) this.trace.bytesSent = sent.length;
  }

  /** Ties a tunnel that nobody looks into to its upstream, on a connection that counts like any other. */
  async passThrough(arrival: PassthroughArrival): Promise<Refusal | undefined> {
    const { lanes, dial, onOpen, onClose } = this.#options;
    const { lane } = this.route;
    if (!lanes.reserve(lane, this.limits.upstreamConnections)) return tooMany();
    let socket: Duplex | undefined;
    try {
      socket = await dialFor(dial, this, new Departure(arrival.reply).signal);
    } finally {
      if (socket === undefined) lanes.release(lane, undefined);
    }
    onOpen();
    socket.once('close', () => {
      lanes.release(lane, undefined);
      onClose();
    });
    this.trace.dispatchedAt = performance.now();
    this.trace.status = 200;
    return this.#relay(arrival.stream, socket);
  }

  /** What stands ready, for the first attempt an idle connection too; a second one goes out on a fresh connection, or a session. */
  #standing(manner: Manner, attempt: number): Carrier | undefined {
    const { lanes } = this.#options;
    const { lane, permit } = this.route;
    const standing = takeStanding(manner, lanes, lane, attempt > 1);
    if (
      permit.intent.arrival.purpose === 'upgrade' &&
      standing instanceof UpstreamConnection &&
      standing.forwarding !== undefined
    ) {
      lanes.give(lane, standing);
      return undefined;
    }
    if (standing !== undefined) this.trace.address = standing.address;
    return standing;
  }

  #outgoing(carrier: Carrier, body: RequestBody | undefined, completed: Completed | undefined): Outgoing {
    const { arrival, path, query } = this.route.permit.intent;
    const going = completed ?? this.#dispatch;
    const isUpgrade = arrival.purpose === 'upgrade';
    this.#key =
      isUpgrade && arrival.pseudo !== undefined && carrier instanceof UpstreamConnection ? newWebSocketKey() : undefined;
    return {
      path: path + (going.query ?? query),
      method: arrival.method,
      headers: this.#key === undefined ? going.fields : withKey(going.fields, this.#key),
      body: body ?? completed?.body ?? null,
      arrival,
      ...(isUpgrade ? { upgrade: 'websocket' } : {}),
    };
  }

  #attempt(way: Way, request: Outgoing): Promise<AttemptEnd> {
    const { redaction } = this.#dispatch;
    return new Promise((settled) => {
      const answer = new Answer({
        reply: request.arrival.reply,
        trace: this.trace,
        convert: this.#options.convert,
        gate: way.gate,
        hidden: redaction === undefined ? undefined : { redaction, method: request.method },
        settled,
      });
      way.send(request, answer);
    });
  }

  /** An upstream that answered HTTP/1.1 with HTTP/2 has not looked at what it could not read, and is remembered. */
  #metH2(carrier: Carrier, fault: Fault): boolean {
    if (!(carrier instanceof UpstreamConnection) || !speaksOnlyH2(fault)) return false;
    if (this.route.permit.intent.scheme !== 'https') return false;
    const { lanes } = this.#options;
    lanes.remember(this.route.lane, 'h2 only', lanes.epoch);
    return true;
  }

  #switchOver({ stream, reason, fields }: Switched): Promise<undefined> {
    try {
      if (this.#key !== undefined) verifyAccept(fields, this.#key);
    } catch (thrown) {
      stream.destroy();
      throw thrown;
    }
    return this.#relay(this.route.permit.intent.arrival.reply.switchProtocols(reason, fields), stream);
  }

  async #relay(sandbox: Duplex, upstream: Duplex): Promise<undefined> {
    const cut = await relay(sandbox, upstream, { trace: this.trace, idleMs: this.limits.tunnelIdleMs });
    if (cut !== undefined) throw cut;
    return undefined;
  }
}

const MOST_ATTEMPTS = 2;
/** Of a request that each upstream connection has certainly not looked at, on its way past one GOAWAY after the other. */
const MOST_WHILE_UNPROCESSED = 4;

const IDEMPOTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE']);

/** What is known of an attempt that failed, beside its end. */
interface Lost {
  readonly body: RequestBody | undefined;
  /** Whether the connection had served an exchange before */
  readonly reused: boolean;
  /** Whether no byte came in after the request had gone out */
  readonly silent: boolean;
  /** Whether the upstream has said that it has not looked at it (RFC 9113 section 8.7) */
  readonly unprocessed: boolean;
}

/**
 * Only where nothing can happen twice (RFC 9110 section 9.2.2; faults J01, J08): the request never left, was given back unread,
 * or is idempotent, without a body, and was lost on a reused connection before any byte of an answer.
 */
function mayRepeat(dispatch: Dispatch, end: AttemptEnd, { body, reused, silent, unprocessed }: Lost): boolean {
  const { arrival } = dispatch.route.permit.intent;
  if (!(end.fault instanceof Fault) || end.fault.code !== 'upstream_protocol') return false;
  if (arrival.reply.headSent || arrival.reply.closed || body?.started === true) return false;
  return !end.sent || unprocessed || (reused && silent && body === undefined && IDEMPOTENT.has(arrival.method));
}
