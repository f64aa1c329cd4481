// The HTTP/1.1 door: what Node's parser has read becomes an Arrival, from the proxy port and from inside tunnels alike.
// It judges nothing. What the parser itself refused becomes an Arrival too, so that it is answered and recorded like everything else.
import { randomUUID } from 'node:crypto';
import { createServer, IncomingMessage, ServerResponse } from 'node:http';
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { SecureContext } from 'node:tls';
import type { Host } from '../exchange/authority.ts';
import { parseAuthority } from '../exchange/authority.ts';
import { Refusal } from '../exchange/codes.ts';
import { fieldValue, listMembers } from '../exchange/header-fields.ts';
import type { Limits } from '../exchange/snapshot.ts';
import type { Arrival, TunnelEnd } from '../exchange/stages.ts';
import { Http1Reply } from './http1-reply.ts';
import type { Announced } from './http1-reply.ts';
import { runTunnel } from './tunnel.ts';
import type { Tunnel } from './tunnel.ts';

/** What the door needs from the house. */
export interface Http1DoorOptions {
  /** The journey. Never rejects. */
  readonly egress: (arrival: Arrival) => Promise<void>;
  readonly contextFor: (host: Host) => SecureContext;
  /** Limits in force when the door opens; those of Node's parser stay until a restart */
  readonly limits: Limits;
}

/** The door's server, and what the listener of the proxy port needs to know. */
export interface Http1Door {
  readonly server: Server;
  /** Whether a connection came out of a tunnel rather than from the port. */
  isInside(socket: Socket): boolean;
  /** Answers a fresh connection with a refusal, in the ledger like any other, and closes it. */
  turnAway(socket: Socket, refusal: Refusal): void;
}

/** Creates the server. It listens where the caller tells it to; sockets inside tunnels are handed to it as they come. */
export function createHttp1Door(options: Http1DoorOptions): Http1Door {
  const { limits, egress } = options;
  const tunnels = new WeakMap<Duplex, Tunnel>();
  const server = createServer({
    maxHeaderSize: limits.headerBytes,
    headersTimeout: limits.headerMs,
    requestTimeout: 0,
    keepAliveTimeout: limits.keepAliveMs,
    connectionsCheckingInterval: Math.min(1000, limits.headerMs),
    insecureHTTPParser: false,
    requireHostHeader: false,
    joinDuplicateHeaders: false,
    noDelay: true,
  });
  server.maxHeadersCount = 0;
  server.timeout = Math.max(limits.replyMs, limits.bodyIdleMs) + 5000;
  server.on('request', (request: IncomingMessage, response: ServerResponse) => exchange(request, response, false));
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => exchange(request, response, true));
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => exchange(request, response, false));
  server.on('upgrade', upgrade);
  server.on('connect', connect);
  server.on('clientError', parserTrouble);
  return { server, isInside: (socket) => tunnels.has(socket), turnAway };

  function exchange(request: IncomingMessage, response: ServerResponse, waiting: boolean): void {
    const announced: Announced = { body: hasBody(request.rawHeaders), waiting };
    const reply = new Http1Reply(request, response, announced);
    void egress({ ...describe(request), purpose: 'exchange', protocol: 'http/1.1', reply, body: announced.body ? request : undefined });
  }

  function upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    const reply = detachedReply(request, socket);
    if (head.length > 0) socket.unshift(head);
    const base = describe(request);
    if (listMembers(fieldValue(request.rawHeaders, 'upgrade') ?? '').includes('websocket')) {
      void egress({ ...base, purpose: 'upgrade', protocol: 'websocket', reply });
      return;
    }
    // Any other upgrade is declined by ignoring it (RFC 9110 section 7.8), which needs a request without a body: the parser is gone.
    const trouble = hasBody(request.rawHeaders) ? new Refusal('bad_request', 'the only upgrade let through is to websocket') : undefined;
    void egress({ ...base, trouble, purpose: 'exchange', protocol: 'http/1.1', reply, body: undefined });
  }

  function connect(request: IncomingMessage, socket: Socket, head: Buffer): void {
    const reply = detachedReply(request, socket);
    const open = (passthrough: boolean): Promise<TunnelEnd> => {
      reply.accept();
      if (head.length > 0) socket.unshift(head);
      const authority = parseAuthority(request.url ?? '');
      if (authority === undefined) throw new Error('internal error: a tunnel without an authority was let through');
      const identity = fieldValue(request.rawHeaders, 'proxy-authorization');
      const opened = { authority, identity, client: socket.remoteAddress ?? '', passthrough };
      return runTunnel(socket, opened, { contextFor: options.contextFor, adopt, passThrough, handshakeMs: limits.handshakeMs });
    };
    const trouble = tunnels.has(socket) ? new Refusal('bad_request', 'CONNECT inside a tunnel') : undefined;
    void egress({ ...describe(request), trouble, purpose: 'tunnel', protocol: 'http/1.1', reply, open });
  }

  function adopt(socket: Socket, tunnel: Tunnel): void {
    tunnels.set(socket, tunnel);
    server.emit('connection', socket);
  }

  function passThrough(socket: Socket, tunnel: Tunnel): Promise<void> {
    const request = new IncomingMessage(socket);
    const reply = new Http1Reply(request, new ServerResponse(request), NO_BODY);
    return egress({ ...describe(request), door: 'tunnel', method: 'CONNECT', ceiling: tunnel.ceiling, client: tunnel.client, purpose: 'passthrough', protocol: 'passthrough', reply, stream: socket });
  }

  /** Everything that an arrival takes from the request alone. */
  function describe(request: IncomingMessage) {
    const tunnel = tunnels.get(request.socket);
    if (tunnel !== undefined) tunnel.carried += 1;
    return {
      requestId: randomUUID(),
      arrivedAt: performance.now(),
      door: tunnel === undefined ? ('proxy' as const) : ('tunnel' as const),
      method: request.method ?? '',
      target: request.url ?? '',
      fields: request.rawHeaders,
      version: request.httpVersion,
      trouble: undefined as Refusal | undefined,
      ceiling: tunnel?.ceiling,
      client: tunnel?.client ?? request.socket.remoteAddress ?? '',
    };
  }

  function parserTrouble(error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket: Socket): void {
    const trouble = troubleOf(error);
    if (trouble === undefined || !socket.writable || (error.code === 'ERR_HTTP_REQUEST_TIMEOUT' && socket.bytesRead === 0)) {
      socket.destroy();
      return;
    }
    turnAway(socket, trouble);
  }

  function turnAway(socket: Socket, trouble: Refusal): void {
    const request = new IncomingMessage(socket);
    request.httpVersionMajor = 1;
    request.httpVersionMinor = 1;
    try {
      const reply = detachedReply(request, socket);
      void egress({ ...describe(request), trouble, purpose: 'exchange', protocol: 'http/1.1', reply, body: undefined });
    } catch {
      // An answer to an earlier request is under way on this socket; it cannot be told apart from ours, so both end here.
      socket.destroy();
    }
  }
}

const NO_BODY: Announced = { body: false, waiting: false };

/** A reply on a socket that Node's server has let go of: it answers once and closes. */
function detachedReply(request: IncomingMessage, socket: Socket): Http1Reply {
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  socket.on('error', ignore);
  const drained = (): void => void response.emit('drain');
  socket.on('drain', drained);
  response.once('finish', () => socket.destroySoon());
  return new Http1Reply(request, response, NO_BODY);
}

function ignore(): void {}

function hasBody(fields: readonly string[]): boolean {
  if (fieldValue(fields, 'transfer-encoding') !== undefined) return true;
  const length = fieldValue(fields, 'content-length');
  return length !== undefined && length !== '0';
}

/** What the parser's complaint means; undefined where the peer is simply gone. */
function troubleOf(error: NodeJS.ErrnoException & { rawPacket?: Buffer }): Refusal | undefined {
  switch (error.code) {
    case 'ECONNRESET':
    case 'EPIPE':
    case 'ECONNABORTED':
      return undefined;
    case 'HPE_HEADER_OVERFLOW':
      return new Refusal('headers_too_large', 'the request line and header section are too large');
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new Refusal('request_timeout', 'the header section did not arrive in time');
    case 'HPE_INVALID_METHOD':
      if (/^TRACK /i.test(error.rawPacket?.toString('latin1') ?? '')) return new Refusal('method_forbidden', 'TRACK would reflect what is put on at the door');
      return new Refusal('bad_request', 'the method is not known');
    default:
      return error.code?.startsWith('HPE_') === true ? new Refusal('bad_request', 'this is not well-formed HTTP/1.1') : undefined;
  }
}
