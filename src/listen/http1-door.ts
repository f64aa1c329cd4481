// The HTTP/1.1 door: what Node's parser has read becomes an Arrival, from the proxy port and from inside tunnels alike.
// It judges nothing. What the parser itself refused becomes an Arrival too, so that it is answered and recorded like everything else.
import { createServer, IncomingMessage, ServerResponse } from 'node:http';
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Authority } from '../exchange/authority.ts';
import { Refusal } from '../exchange/codes.ts';
import { fieldValue, listMembers } from '../exchange/header-fields.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { Limits } from '../exchange/snapshot.ts';
import { createRequestIds } from '../foundation/request-id.ts';
import type { Arrival, TunnelEnd } from '../exchange/stages.ts';
import { closeGently } from './close-gently.ts';
import { Http1Reply } from './http1-reply.ts';
import type { Announced } from './http1-reply.ts';
import { startIdleSweep } from './idle-sweep.ts';
import { connectTrouble } from './tunnel.ts';
import type { Tunnels } from './tunnels.ts';

/** What the door needs from the house. */
export interface Http1DoorOptions {
  /** The journey. Never rejects. */
  readonly egress: (arrival: Arrival) => Promise<void>;
  readonly tunnels: Tunnels;
  /** Limits in force when the door opens; those of Node's parser stay until a restart */
  readonly limits: Limits;
}

/** The door. It listens nowhere: it is given what comes from the proxy port and out of tunnels. */
export class Http1Door {
  readonly #server: Server;
  readonly #options: Http1DoorOptions;
  readonly #newId = createRequestIds();
  readonly #keepAlive: HeaderFields;
  /** The last reply begun on each connection; none where it has become a tunnel */
  readonly #last = new Map<Duplex, Http1Reply>();
  /** Connections that the parser has given up; it goes on complaining as bytes come in */
  readonly #spoiled = new WeakSet<Duplex>();
  readonly #endSweep: () => void;

  constructor(options: Http1DoorOptions) {
    this.#options = options;
    this.#server = createParser(options.limits);
    this.#server.on('request', (request, response) => this.#exchange(request, response, false));
    this.#server.on('checkContinue', (request, response) => this.#exchange(request, response, true));
    this.#server.on('checkExpectation', (request, response) => this.#exchange(request, response, false));
    this.#server.on('upgrade', (request, socket, head) => this.#upgrade(request, socket as Socket, head));
    this.#server.on('connect', (request, socket, head) => this.#connect(request, socket as Socket, head));
    this.#server.on('clientError', (error, socket) => this.#parserTrouble(error, socket as Socket));
    this.#keepAlive = ['Keep-Alive', `timeout=${Math.floor(options.limits.keepAliveMs / 1000)}`];
    this.#endSweep = startIdleSweep(this.#last, options.limits);
    // It is from here on that Node heeds the deadline of header sections; that its server listens somewhere is of no account.
    this.#server.emit('listening');
  }

  /** Takes in a connection, as it came from the port or out of a tunnel. */
  take(stream: Duplex): void {
    this.#server.emit('connection', stream);
  }

  /** Ends connections that wait for a request. */
  closeIdle(): void {
    this.#server.closeIdleConnections();
  }

  /** Looks after deadlines no longer, once no connection is left. */
  close(): void {
    this.#endSweep();
    this.#server.close();
  }

  /** Answers a connection that has no request to answer with a refusal, in the ledger like any other, and closes it. */
  turnAway(socket: Socket, trouble: Refusal): void {
    const request = new IncomingMessage(socket);
    request.httpVersionMajor = 1;
    request.httpVersionMinor = 1;
    try {
      const reply = detachedReply(request, socket);
      this.#keepInView(socket, reply);
      void this.#options.egress({
        ...this.#describe(request),
        trouble,
        purpose: 'exchange',
        protocol: 'http/1.1',
        reply,
        body: undefined,
      });
    } catch {
      // An answer to an earlier request is under way on this socket; it cannot be told apart from ours, so both end here.
      socket.destroy();
    }
  }

  #exchange(request: IncomingMessage, response: ServerResponse, waiting: boolean): void {
    const { socket } = request;
    // A connection that is being closed hears no further request.
    if (socket.writableEnded) return;
    const announced: Announced = { body: hasBody(request.rawHeaders), waiting };
    const reply = new Http1Reply(request, response, announced);
    reply.keepAlive = this.#keepAlive;
    const begin = (): void => {
      const tunnel = this.#options.tunnels.of(socket);
      if (tunnel !== undefined) tunnel.carried += 1;
      // One literal, and not #describe spread into another: on the hot path that costs 5 us of CPU an exchange.
      void this.#options.egress({
        purpose: 'exchange',
        requestId: this.#newId(),
        arrivedAt: performance.now(),
        door: tunnel?.door ?? 'proxy',
        protocol: 'http/1.1',
        method: request.method ?? '',
        target: request.url ?? '',
        pseudo: undefined,
        fields: request.rawHeaders,
        version: request.httpVersion,
        trouble: reply.trouble,
        ceiling: tunnel?.ceiling,
        origin: tunnel?.origin,
        client: tunnel?.client ?? socket.remoteAddress ?? '',
        reply,
        body: announced.body ? request : undefined,
      });
    };
    this.#inTurn(socket, reply, begin);
  }

  /** Pipelined requests take turns (RFC 9112 section 9.3.2): what stands behind one that ends the connection is never judged (fault D06). */
  #inTurn(socket: Socket, reply: Http1Reply, begin: () => void): void {
    const before = this.#last.get(socket);
    this.#keepInView(socket, reply);
    if (before === undefined || before.closed) {
      begin();
      return;
    }
    socket.pause();
    reply.behind = before;
    before.whenClosed(() => {
      reply.behind = undefined;
      if (socket.destroyed || socket.writableEnded) return;
      socket.resume();
      begin();
    });
  }

  #keepInView(socket: Socket, reply: Http1Reply): void {
    if (!this.#last.has(socket)) socket.once('close', () => this.#last.delete(socket));
    this.#last.set(socket, reply);
  }

  /** A change of protocol behind an unfinished answer would run into it on the wire, so neither goes on. */
  #cutIfBusy(socket: Socket): boolean {
    const busy = this.#last.get(socket)?.closed === false;
    this.#last.delete(socket);
    if (!busy) return false;
    socket.on('error', ignore);
    socket.destroy();
    return true;
  }

  #upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    if (this.#cutIfBusy(socket)) return;
    const reply = detachedReply(request, socket);
    this.#keepInView(socket, reply);
    if (head.length > 0) socket.unshift(head);
    const base = this.#describe(request);
    if (listMembers(fieldValue(request.rawHeaders, 'upgrade') ?? '').includes('websocket')) {
      void this.#options.egress({ ...base, purpose: 'upgrade', protocol: 'websocket', reply });
      return;
    }
    // Any other upgrade is declined by ignoring it (RFC 9110 section 7.8), which needs a request without a body: the parser is gone.
    const trouble = hasBody(request.rawHeaders)
      ? new Refusal('bad_request', 'the only upgrade let through is to websocket')
      : undefined;
    void this.#options.egress({ ...base, trouble, purpose: 'exchange', protocol: 'http/1.1', reply, body: undefined });
  }

  #connect(request: IncomingMessage, socket: Socket, head: Buffer): void {
    if (this.#cutIfBusy(socket)) return;
    const reply = detachedReply(request, socket);
    const open = (authority: Authority, passthrough: boolean): Promise<TunnelEnd> => {
      reply.accept();
      if (head.length > 0) socket.unshift(head);
      const identity = fieldValue(request.rawHeaders, 'proxy-authorization');
      return this.#options.tunnels.run(socket, { authority, identity, client: socket.remoteAddress ?? '', passthrough });
    };
    const trouble = connectTrouble(this.#options.tunnels.of(socket));
    void this.#options.egress({ ...this.#describe(request), trouble, purpose: 'tunnel', protocol: 'http/1.1', reply, open });
  }

  /** Everything that an arrival takes from the request alone. */
  #describe(request: IncomingMessage) {
    const tunnel = this.#options.tunnels.of(request.socket);
    if (tunnel !== undefined) tunnel.carried += 1;
    return {
      requestId: this.#newId(),
      arrivedAt: performance.now(),
      door: tunnel?.door ?? ('proxy' as const),
      method: request.method ?? '',
      target: request.url ?? '',
      pseudo: undefined,
      fields: request.rawHeaders,
      version: request.httpVersion,
      trouble: undefined as Refusal | undefined,
      ceiling: tunnel?.ceiling,
      origin: tunnel?.origin,
      client: tunnel?.client ?? request.socket.remoteAddress ?? '',
    };
  }

  #parserTrouble(error: ParserError, socket: Socket): void {
    if (this.#spoiled.has(socket) && !socket.destroyed) return;
    const trouble = troubleOf(error);
    const silent = error.code === 'ERR_HTTP_REQUEST_TIMEOUT' && socket.bytesRead === 0;
    if (trouble === undefined || silent || !socket.writable) {
      socket.destroy();
      return;
    }
    this.#spoiled.add(socket);
    const last = this.#last.get(socket);
    if (last === undefined || last.closed) this.turnAway(socket, trouble);
    else if (last.uploading) last.spoil(trouble);
    else {
      last.whenClosed(() => {
        if (!socket.destroyed && !socket.writableEnded) this.turnAway(socket, trouble);
      });
    }
  }
}

/** Node's HTTP/1.1 server with the strict parser, and the limits that it keeps itself. */
function createParser(limits: Limits): Server {
  const server = createServer({
    maxHeaderSize: limits.headerBytes,
    headersTimeout: limits.headerMs,
    requestTimeout: 0,
    // The door looks for idle connections itself.
    keepAliveTimeout: 0,
    connectionsCheckingInterval: Math.min(1000, limits.headerMs),
    insecureHTTPParser: false,
    // Intake answers a missing Host, so that it is recorded like every other refusal.
    requireHostHeader: false,
    noDelay: true,
  });
  // Node cuts a longer list short in silence; intake counts and refuses instead.
  server.maxHeadersCount = 0;
  // Every wait has a deadline of its own; Node's would be wound up anew at each read and write of each socket.
  server.timeout = 0;
  return server;
}

type ParserError = NodeJS.ErrnoException & { readonly rawPacket?: Buffer };

const NO_BODY: Announced = { body: false, waiting: false };

/** A reply on a socket that Node's server has let go of: it answers once and closes. */
function detachedReply(request: IncomingMessage, socket: Socket): Http1Reply {
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  socket.on('error', ignore);
  const drained = (): void => void response.emit('drain');
  socket.on('drain', drained);
  response.once('finish', () => closeGently(socket));
  return new Http1Reply(request, response, NO_BODY);
}

function ignore(): void {}

function hasBody(fields: readonly string[]): boolean {
  if (fieldValue(fields, 'transfer-encoding') !== undefined) return true;
  const length = fieldValue(fields, 'content-length');
  return length !== undefined && length !== '0';
}

/** What the parser's complaint means; undefined where the peer is simply gone. */
function troubleOf(error: ParserError): Refusal | undefined {
  switch (error.code) {
    case 'ECONNRESET':
    case 'EPIPE':
    case 'ECONNABORTED':
    // It ended its side in the middle of a request.
    case 'HPE_INVALID_EOF_STATE':
      return undefined;
    case 'HPE_HEADER_OVERFLOW':
      return new Refusal('headers_too_large', 'the request line and header section are too large');
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new Refusal('request_timeout', 'the header section did not arrive in time');
    case 'HPE_INVALID_METHOD':
      if (/^TRACK /i.test(error.rawPacket?.toString('latin1') ?? ''))
        return new Refusal('method_forbidden', 'TRACK would reflect what is put on at the door');
      return new Refusal('bad_request', 'the method is not known');
    default:
      return error.code?.startsWith('HPE_') === true ? new Refusal('bad_request', 'this is not well-formed HTTP/1.1') : undefined;
  }
}
