// The road: a Dispatch goes out on a vetted connection and its answer comes back through the reply port.
// It must never dial anything but the Dispatch's own Route, and never send a request twice that the upstream may have seen, unless it is safe to.
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Dispatcher } from 'undici';
import { formatAuthority, parseAddress } from '../exchange/authority.ts';
import type { Host } from '../exchange/authority.ts';
import { Fault, Refusal } from '../exchange/codes.ts';
import type { Limits } from '../exchange/snapshot.ts';
import type { Dispatch, ExchangeArrival, PassthroughArrival, Route, UpgradeArrival } from '../exchange/stages.ts';
import type { Trace } from '../exchange/trace.ts';
import { Answer } from './answer.ts';
import type { AttemptEnd, ReplyFields } from './answer.ts';
import { UpstreamConnection } from './connection.ts';
import type { Lanes } from './lanes.ts';
import { relay } from './relay.ts';
import { RequestBody } from './request-body.ts';
import { secure } from './secure.ts';
import type { UpstreamTrust } from './secure.ts';

/** Opens a TCP connection to one of a route's judged addresses; given by the network room. */
export type Dial = (route: Route, deadlineMs: number) => Promise<Socket>;

/** What the road needs from its neighbours. */
export interface SendOptions {
  readonly dial: Dial;
  readonly lanes: Lanes;
  readonly trust: () => UpstreamTrust;
  readonly convert: ReplyFields;
  readonly onOpen: () => void;
  readonly onClose: () => void;
}

/** An arrival that goes upstream. */
export type Outbound = ExchangeArrival | UpgradeArrival | PassthroughArrival;

/** Sends a dispatch and relays its answer. Resolves when the answer has been handed over whole; rejects with a Fault. */
export type Send = (dispatch: Dispatch<Outbound>, trace: Trace, limits: Limits) => Promise<Refusal | undefined>;

/** Builds the road. */
export function createSend(options: SendOptions): Send {
  return async (dispatch, trace, limits) => {
    const { arrival } = dispatch.route.permit.intent;
    if (arrival.purpose === 'passthrough') return passThrough(dispatch as Dispatch<PassthroughArrival>, trace, limits);
    for (let attempt = 1; ; attempt += 1) {
      const body = arrival.purpose === 'exchange' && arrival.body !== undefined ? new RequestBody(arrival.body, arrival.reply, trace) : undefined;
      const connection = await connectionFor(dispatch, { trace, limits, fresh: attempt > 1 });
      if (connection instanceof Refusal) return connection;
      const end = await attemptOn(connection, dispatch, { body, trace });
      if (end.switched !== undefined) return switchOver(dispatch, end.switched, { trace, limits });
      if (end.fault === undefined) {
        options.lanes.give(dispatch.route.lane, connection);
        return undefined;
      }
      connection.destroy();
      if (attempt > 1 || !mayRepeat(dispatch, end, { body, reused: connection.exchanges > 1 })) throw end.fault;
    }
  };

  async function connectionFor(
    dispatch: Dispatch<Outbound>,
    { trace, limits, fresh }: { readonly trace: Trace; readonly limits: Limits; readonly fresh: boolean },
  ): Promise<UpstreamConnection | Refusal> {
    const { route } = dispatch;
    const idle = fresh ? undefined : options.lanes.take(route.lane);
    if (idle !== undefined) {
      trace.address = idle.address;
      return idle;
    }
    if (!options.lanes.reserve(route.lane, limits.upstreamConnections)) {
      return new Refusal('limit_reached', 'too many connections to this upstream are open');
    }
    let opened: UpstreamConnection | undefined;
    try {
      const socket = await openSocket(route, trace, limits);
      const { authority, scheme } = route.permit.intent;
      opened = new UpstreamConnection(socket, {
        origin: `${scheme ?? 'https'}://${formatAuthority(authority)}`,
        address: trace.address ?? (route.addresses[0] as Host),
        limits: { replyHeaderBytes: limits.replyHeaderBytes, replyMs: limits.replyMs, bodyIdleMs: limits.bodyIdleMs, keepAliveMs: limits.upstreamKeepAliveMs },
        onEnd: () => {
          options.lanes.release(route.lane, opened);
          options.onClose();
        },
      });
      options.lanes.add(opened);
      options.onOpen();
      return opened;
    } finally {
      if (opened === undefined) options.lanes.release(route.lane, undefined);
    }
  }

  async function openSocket(route: Route, trace: Trace, limits: Limits): Promise<Socket> {
    const begun = performance.now();
    const socket = await options.dial(route, limits.connectMs);
    trace.connectMs = performance.now() - begun;
    trace.address = parseAddress(socket.remoteAddress ?? '');
    const { authority, scheme } = route.permit.intent;
    if (scheme !== 'https' || route.permit.intent.arrival.purpose === 'passthrough') return socket;
    const secured = await secure(socket, { authority, lane: route.lane, trust: options.trust(), deadlineMs: limits.connectMs });
    trace.tlsMs = performance.now() - begun - trace.connectMs;
    return secured;
  }

  function attemptOn(
    connection: UpstreamConnection,
    dispatch: Dispatch<Outbound>,
    { body, trace }: { readonly body: RequestBody | undefined; readonly trace: Trace },
  ): Promise<AttemptEnd> {
    connection.exchanges += 1;
    const { intent } = dispatch.route.permit;
    const { arrival } = intent;
    return new Promise((settled) => {
      const answer = new Answer({ reply: arrival.reply, trace, convert: options.convert, settled });
      const request = {
        path: intent.path + intent.query,
        method: arrival.method as Dispatcher.HttpMethod,
        headers: dispatch.fields as string[],
        body: body ?? null,
        ...(arrival.purpose === 'upgrade' ? { upgrade: 'websocket' } : {}),
      };
      connection.client.dispatch(request, answer as unknown as Dispatcher.DispatchHandler);
    });
  }

  async function switchOver(
    dispatch: Dispatch<Outbound>,
    switched: { readonly stream: Duplex; readonly reason: string; readonly raw: readonly Buffer[] },
    { trace, limits }: { readonly trace: Trace; readonly limits: Limits },
  ): Promise<undefined> {
    const fields = options.convert.fields(switched.raw);
    const sandbox = dispatch.route.permit.intent.arrival.reply.switchProtocols(switched.reason, ['Connection', 'Upgrade', 'Upgrade', 'websocket', ...fields]);
    const cut = await relay(sandbox, switched.stream, { trace, idleMs: limits.tunnelIdleMs });
    if (cut !== undefined) throw cut;
    return undefined;
  }

  async function passThrough(dispatch: Dispatch<PassthroughArrival>, trace: Trace, limits: Limits): Promise<undefined> {
    const socket = await openSocket(dispatch.route, trace, limits);
    options.onOpen();
    socket.once('close', options.onClose);
    trace.dispatchedAt = performance.now();
    trace.status = 200;
    const cut = await relay(dispatch.route.permit.intent.arrival.stream, socket, { trace, idleMs: limits.tunnelIdleMs });
    if (cut !== undefined) throw cut;
    return undefined;
  }
}

const IDEMPOTENT: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE']);

/**
 * Once, and only where nothing can happen twice (RFC 9110 section 9.2.2; faults J01, J08): the request never left,
 * or it is idempotent, without a body, and was lost on a reused connection before any byte of an answer.
 */
function mayRepeat(dispatch: Dispatch<Outbound>, end: AttemptEnd, { body, reused }: { readonly body: RequestBody | undefined; readonly reused: boolean }): boolean {
  const { arrival } = dispatch.route.permit.intent;
  if (!(end.fault instanceof Fault) || end.fault.code !== 'upstream_protocol') return false;
  if (arrival.reply.headSent || arrival.reply.closed || body?.started === true) return false;
  return !end.sent || (reused && body === undefined && IDEMPOTENT.has(arrival.method));
}
