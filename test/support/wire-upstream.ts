// One upstream over HTTP/1.1 or HTTP/2, with TLS or without: a test takes each request in hand by its path and does not know which
// protocol brought it. It counts connections and answers nothing by itself.
import http from 'node:http';
import http2 from 'node:http2';
import https from 'node:https';
import type net from 'node:net';
import tls from 'node:tls';
import type { Duplex, Readable, Writable } from 'node:stream';
import { acceptOf } from '../../src/exchange/websocket-key.ts';
import { grouped, withoutPseudo } from './wire-http2-client.ts';
import { countOf } from './outside.ts';
import type { Outside } from './outside.ts';
import { valueOf } from './wire.ts';
import type { Fields } from './wire.ts';

/** What an upstream may speak. */
export type Spoken = 'http/1.1' | 'h2';

/** A request as an upstream got it, unanswered. */
export interface UpstreamExchange {
  readonly protocol: Spoken;
  /** GET of a WebSocket handshake, whichever way it came */
  readonly method: string;
  readonly path: string;
  /** Host, or `:authority` */
  readonly authority: string;
  /** Without pseudo-header fields */
  readonly fields: Fields;
  readonly websocket: boolean;
  readonly in: Readable;
  /** Those of the request; complete once `in` has ended */
  readonly trailers: () => Fields;
  interim(status: number, fields: Fields): void;
  head(status: number, fields: Fields): void;
  readonly out: Writable;
  finish(trailers?: Fields): void;
  /** Accepts a WebSocket handshake. */
  accept(fields?: Fields): Duplex;
  /** Breaks off: resets the stream of HTTP/2, or the connection of HTTP/1.1. */
  reset(): void;
  /** Resolves when the other end has left, or all is over */
  readonly over: Promise<void>;
}

/** A running upstream. */
export interface WireUpstream {
  readonly port: number;
  /** TCP connections so far */
  readonly connections: () => number;
  /** Requests so far */
  readonly requests: () => number;
  /** Resolves with the next request for a path, from now or before. */
  next(path: string): Promise<UpstreamExchange>;
  close(): Promise<void>;
}

/** Starts one. `tls`: its names' certificates, each by the outside's CA; left out, it speaks without TLS. */
export async function startWireUpstream(spoken: Spoken, outside?: Outside): Promise<WireUpstream> {
  const waiting = new Map<string, (exchange: UpstreamExchange) => void>();
  const early = new Map<string, UpstreamExchange>();
  let requests = 0;
  const hand = (exchange: UpstreamExchange): void => {
    requests += 1;
    const path = exchange.path.replace(/\?.*$/s, '');
    const taker = waiting.get(path);
    waiting.delete(path);
    if (taker === undefined) early.set(path, exchange);
    else taker(exchange);
  };
  const server = spoken === 'h2' ? http2Server(outside, hand) : http1Server(outside, hand);
  const open = new Set<net.Socket>();
  let connections = 0;
  server.on('connection', (socket: net.Socket) => {
    connections += 1;
    open.add(socket);
    socket.on('error', () => undefined).once('close', () => open.delete(socket));
  });
  server.on('tlsClientError', () => undefined);
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as net.AddressInfo).port,
    connections: () => connections,
    requests: () => requests,
    next: (path) =>
      new Promise((resolve) => {
        const here = early.get(path);
        early.delete(path);
        if (here === undefined) waiting.set(path, resolve);
        else resolve(here);
      }),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of open) socket.destroy();
      }),
  };
}

function secureOptions(outside: Outside): tls.SecureContextOptions & tls.TlsOptions {
  return {
    ...outside.credentials('127.0.0.1'),
    SNICallback: (name, done) => done(null, tls.createSecureContext(outside.credentials(name))),
  };
}

type Hand = (exchange: UpstreamExchange) => void;

function http1Server(outside: Outside | undefined, hand: Hand): net.Server {
  const server = outside === undefined ? http.createServer() : https.createServer(secureOptions(outside));
  server.requestTimeout = 0;
  server.on('clientError', (_error, socket) => void socket.destroy());
  server.on('request', (request, response) => hand(overHttp1(request, { response })));
  server.on('upgrade', (request, socket, head) => {
    if (head.length > 0) socket.unshift(head);
    hand(overHttp1(request, { socket }));
  });
  return server;
}

function overHttp1(
  request: http.IncomingMessage,
  { response, socket }: { readonly response?: http.ServerResponse; readonly socket?: Duplex },
): UpstreamExchange {
  const wire = socket ?? request.socket;
  request.on('error', () => undefined);
  response?.on('error', () => undefined);
  socket?.on('error', () => undefined);
  return {
    protocol: 'http/1.1',
    method: request.method ?? '',
    path: request.url ?? '',
    authority: request.headers.host ?? '',
    fields: request.rawHeaders,
    websocket: countOf(request.rawHeaders, 'upgrade') === 1,
    in: request,
    trailers: () => request.rawTrailers,
    interim: (status, fields) => void wire.write(headOf(status, fields)),
    head: (status, fields) => {
      if (response === undefined) wire.write(headOf(status, [...fields, 'Connection', 'close']));
      else {
        response.sendDate = false;
        response.writeHead(status, [...fields]).flushHeaders();
      }
    },
    out: response ?? wire,
    finish: (trailers = []) => {
      if (response === undefined) wire.end();
      else {
        if (trailers.length > 0) response.addTrailers(pairsOf(trailers));
        response.end();
      }
    },
    accept: (fields = []) => {
      wire.allowHalfOpen = true;
      const accept = acceptOf(valueOf(request.rawHeaders, 'sec-websocket-key'));
      wire.write(headOf(101, ['Connection', 'Upgrade', 'Upgrade', 'websocket', 'Sec-WebSocket-Accept', accept, ...fields]));
      return wire;
    },
    reset: () => void request.socket.destroy(),
    over: new Promise((resolve) => void (response ?? wire).once('close', () => resolve())),
  };
}

function headOf(status: number, fields: Fields): Buffer {
  const lines = pairsOf(fields).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(`HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? ''}\r\n${lines.join('')}\r\n`, 'latin1');
}

function pairsOf(fields: Fields): [string, string][] {
  return fields.flatMap((name, i) => (i % 2 === 0 ? [[name, fields[i + 1]!] satisfies [string, string]] : []));
}

function http2Server(outside: Outside | undefined, hand: Hand): net.Server {
  const settings = { enableConnectProtocol: true };
  const server =
    outside === undefined
      ? http2.createServer({ settings })
      : http2.createSecureServer({ settings, allowHTTP1: false, ...secureOptions(outside) });
  server.on('sessionError', () => undefined);
  server.on('stream', (...[stream, , , raw]: unknown[]) => hand(overStream(stream as http2.ServerHttp2Stream, raw as Fields)));
  return server;
}

function overStream(stream: http2.ServerHttp2Stream, raw: Fields): UpstreamExchange {
  let trailersIn: Fields = [];
  let trailersOut: Fields = [];
  stream.on('error', () => undefined);
  stream.on('trailers', (...[, , fields]: unknown[]) => void (trailersIn = fields as Fields));
  stream.on('wantTrailers', () => stream.sendTrailers(grouped(trailersOut)));
  const websocket = valueOf(raw, ':protocol') === 'websocket';
  return {
    protocol: 'h2',
    method: websocket ? 'GET' : valueOf(raw, ':method'),
    path: valueOf(raw, ':path'),
    authority: valueOf(raw, ':authority'),
    fields: withoutPseudo(raw),
    websocket,
    in: stream,
    trailers: () => trailersIn,
    interim: (status, fields) => stream.additionalHeaders({ ':status': status, ...grouped(fields) }),
    head: (status, fields) =>
      stream.respond({ ':status': status, ...grouped(fields) }, { waitForTrailers: true, sendDate: false } as object),
    out: stream,
    finish: (trailers = []) => {
      trailersOut = trailers;
      stream.end();
    },
    accept: (fields = []) => {
      stream.respond({ ':status': 200, ...grouped(fields) }, { sendDate: false } as object);
      return stream;
    },
    reset: () => stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR),
    over: new Promise((resolve) => void stream.once('close', () => resolve())),
  };
}
