// The `send` step for http-mitm-proxy: the judged address is dialled and secured by our own rooms, and the engine is handed the
// ready socket with the Dispatch's fields. It must never let the engine open a connection, resolve a name or choose a header.
import type { Socket } from 'node:net';
import { parseAddress } from '../exchange/authority.ts';
import { Fault, toFault } from '../exchange/codes.ts';
import { fieldValue, isFieldName, isFieldValue } from '../exchange/header-fields.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { Limits } from '../exchange/snapshot.ts';
import type { Arrival, Dispatch, Route } from '../exchange/stages.ts';
import type { Trace } from '../exchange/trace.ts';
import type { Steps } from '../egress.ts';
import type { Dial } from '../network/dial.ts';
import { replyFields } from '../reply/reply-fields.ts';
import { exchangeFault } from '../upstream/faults.ts';
import { secure } from '../upstream/secure.ts';
import type { UpstreamTrust } from '../upstream/secure.ts';
import type { EngineExchange, Proceed } from './engine.ts';

/** What sending needs of other rooms. */
export interface Road {
  readonly dial: Dial;
  readonly trust: () => UpstreamTrust;
}

/** Opens the one connection of an exchange: to a judged address, verified where the scheme is https. Rejects with a Fault. */
export async function openRoad(
  road: Road,
  route: Route,
  { trace, limits }: { readonly trace: Trace; readonly limits: Limits },
): Promise<Socket> {
  const begun = performance.now();
  const socket = await road.dial(route, limits.connectMs);
  trace.connectMs = performance.now() - begun;
  trace.address = parseAddress(socket.remoteAddress ?? '');
  const { authority, scheme } = route.permit.intent;
  if (scheme !== 'https') return socket;
  // one deadline for both: what the connect took is gone
  const deadlineMs = Math.max(1, limits.connectMs - trace.connectMs);
  const secured = await secure(socket, { authority, lane: route.lane, trust: road.trust(), deadlineMs });
  trace.tlsMs = performance.now() - begun - trace.connectMs;
  return secured;
}

/** One request on its way through the engine. */
export interface Passage {
  readonly exchange: EngineExchange;
  readonly proceed: Proceed;
  /** Answers with a fault at once: the engine would answer by itself in the same turn, with the text of the error */
  readonly answer: (fault: Fault) => void;
}

/** The step that hands a dispatch to the engine. Resolves when the answer has gone out whole; rejects with a Fault. */
export function engineSend(road: Road, passage: Passage): Steps['send'] {
  return async (dispatch, trace, limits) => {
    const { reply } = dispatch.route.permit.intent.arrival;
    refuseUnfinished(dispatch);
    const socket = await openRoad(road, dispatch.route, { trace, limits });
    try {
      if (reply.closed) throw new Fault('client_closed', 'the sandbox left before the upstream was reached');
      await carry(passage, { dispatch, socket, trace, limits });
    } finally {
      socket.destroy();
    }
    return undefined;
  };
}

/** Refuses what this engine cannot finish: it takes the fields before it reads the body. Nothing is dialled for it. */
export function refuseUnfinished({ completion }: Dispatch): void {
  if (completion === undefined) return;
  const what = 'the request needs a signature, or a placeholder in its body swapped, and this engine can do neither';
  throw new Fault('credential_unavailable', what);
}

interface Load {
  readonly dispatch: Dispatch;
  readonly socket: Socket;
  readonly trace: Trace;
  readonly limits: Limits;
}

function carry({ exchange, proceed, answer }: Passage, { dispatch, socket, trace, limits }: Load): Promise<void> {
  const { intent } = dispatch.route.permit;
  const response = exchange.proxyToClientResponse;
  return new Promise((resolve, reject) => {
    let over = false;
    const fail = (fault: Fault): void => {
      if (over) return;
      over = true;
      answer(fault);
      // An upload may still be coming in; were the response left open for it, the engine would end it with the text of the error.
      if (!response.writableEnded) response.end();
      socket.destroy();
      reject(fault);
    };
    exchange.onError((_exchange, error, kind = '') => fail(faultOf(error, kind)));
    response.once('finish', () => {
      over = true;
      resolve();
    });
    response.once('close', () => fail(new Fault('client_closed', 'the sandbox left before the answer was complete')));
    // Node ends some answers in silence, such as a switch of protocols that nobody asked for.
    socket.once('close', () => {
      if (exchange.serverToProxyResponse === undefined) {
        fail(new Fault('upstream_protocol', 'the upstream closed the connection before it had answered'));
      }
    });
    socket.setTimeout(limits.replyMs, () => fail(new Fault('upstream_timeout', 'the upstream was silent for too long')));
    exchange.onRequestData((_exchange, chunk, next) => {
      trace.bytesSent += chunk.length;
      next(null, chunk);
    });
    exchange.onResponse((_exchange, next) => {
      socket.setTimeout(limits.bodyIdleMs);
      const fault = prepareAnswer(exchange, trace);
      if (fault === undefined) next();
      else fail(fault);
    });
    exchange.proxyToServerRequestOptions = {
      method: intent.arrival.method,
      path: intent.path + (dispatch.query ?? intent.query),
      host: intent.authority.host,
      port: intent.authority.port,
      headers: framed(dispatch.fields, intent.arrival),
      maxHeaderSize: limits.replyHeaderBytes,
      // Without an agent Node asks this function for its one connection and has no way to open another.
      createConnection: () => socket,
    };
    trace.dispatchedAt = performance.now();
    try {
      proceed();
    } catch (error) {
      fail(toFault(error));
    }
  });
}

function faultOf(error: unknown, kind: string): Fault {
  if (/^(?:CLIENT_TO_PROXY|PROXY_TO_CLIENT)/.test(kind))
    return new Fault('client_closed', 'the sandbox broke off its request', error);
  return exchangeFault(error);
}

/** Methods whose requests Node sends without framing when they have no body; it would give the others a chunked one. */
const BODILESS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'DELETE', 'OPTIONS']);

/** The Dispatch's fields with the framing of the body, which is hop-by-hop where it is not a length. */
function framed(fields: HeaderFields, arrival: Arrival): HeaderFields {
  if (fieldValue(fields, 'content-length') !== undefined) return fields;
  if (arrival.purpose === 'exchange' && arrival.body !== undefined) return [...fields, 'Transfer-Encoding', 'chunked'];
  return BODILESS.has(arrival.method) ? fields : [...fields, 'Content-Length', '0'];
}

/**
 * Makes the upstream's answer fit to be written: hop-by-hop fields and those in our own voice are gone, duplicates kept. A fault where
 * the engine, which does not catch, would throw on writing it.
 */
function prepareAnswer(exchange: EngineExchange, trace: Trace): Fault | undefined {
  const answer = exchange.serverToProxyResponse;
  const status = answer?.statusCode ?? 0;
  if (answer === undefined || status < 200 || status > 999)
    return new Fault('upstream_protocol', 'the upstream answered with a status that HTTP does not know');
  const fields = replyFields(answer.rawHeaders.map((text) => Buffer.from(text, 'latin1')));
  const reason = answer.statusMessage ?? '';
  if (!isFieldValue(reason) || fields.some((text, index) => (index % 2 === 0 ? !isFieldName(text) : !isFieldValue(text)))) {
    return new Fault('upstream_protocol', 'the upstream answered with a header field that HTTP does not allow');
  }
  trace.waitMs = performance.now() - trace.dispatchedAt;
  trace.status = status;
  answer.headers = byName(fields);
  answer.on('data', (chunk: Buffer) => (trace.bytesReceived += chunk.length));
  exchange.proxyToClientResponse.sendDate = false;
  exchange.proxyToClientResponse.statusMessage = reason;
  return undefined;
}

/** Fields as Node's header object, in order; several of one name become one list. Trailers are not carried, so nothing announces them. */
export function byName(fields: HeaderFields): Record<string, string[]> {
  const names = new Map<string, string>();
  const headers: Record<string, string[]> = Object.create(null) as Record<string, string[]>;
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i] as string;
    const lower = name.toLowerCase();
    if (lower === 'trailer') continue;
    const known = names.get(lower) ?? name;
    names.set(lower, known);
    (headers[known] ??= []).push(fields[i + 1] as string);
  }
  return headers;
}
