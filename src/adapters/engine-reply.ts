// Replies through http-mitm-proxy: the ports by which refusals leave, on a request, a CONNECT and a WebSocket.
// The engine itself writes what comes from upstreams; nothing here may write a head once the engine has sent one.
import { ServerResponse } from 'node:http';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { fieldValue } from '../exchange/header-fields.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { ReplyPort } from '../exchange/reply-port.ts';
import { Http1Reply } from '../listen/http1-reply.ts';
import type { EngineWebSocket } from './engine.ts';

/** What all three have in common: nobody streams through them, so there is nobody to listen. */
abstract class RefusalPort implements ReplyPort {
  abstract readonly headSent: boolean;
  abstract readonly closed: boolean;
  abstract head(status: number, reason: string, fields: HeaderFields, close?: boolean): void;
  abstract write(chunk: Buffer): boolean;
  abstract end(): void;
  abstract abort(): void;

  listen(): void {
    // The engine relays bodies with its own pipes.
  }

  invite(): void {
    // Node has answered `Expect: 100-continue` before the engine heard of the request.
  }

  interim(): void {
    // The engine hears of no interim answer.
  }

  switchProtocols(): Duplex {
    throw new Error('internal error: the engine switches protocols by itself');
  }
}

/** The reply to a request, over the response that the engine will use when the request is let through. */
export class RequestReply extends RefusalPort {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #port: Http1Reply;

  constructor(request: IncomingMessage, response: ServerResponse, body: boolean) {
    super();
    this.#request = request;
    this.#response = response;
    this.#port = new Http1Reply(request, response, { body, waiting: false });
  }

  get headSent(): boolean {
    return this.#response.headersSent;
  }

  get closed(): boolean {
    return this.#port.closed || this.#request.socket.destroyed;
  }

  head(status: number, reason: string, fields: HeaderFields, close = false): void {
    this.#port.head(status, reason, fields, close);
  }

  write(chunk: Buffer): boolean {
    return this.#port.write(chunk);
  }

  end(): void {
    this.#port.end();
  }

  abort(): void {
    this.#port.abort();
  }
}

/** The refusal of a CONNECT. Until it is refused nothing of ours touches the socket, for the engine answers 200 on it. */
export class ConnectReply extends RefusalPort {
  readonly #request: IncomingMessage;
  readonly #socket: Socket;
  #port: Http1Reply | undefined = undefined;

  constructor(request: IncomingMessage, socket: Socket) {
    super();
    this.#request = request;
    this.#socket = socket;
  }

  get headSent(): boolean {
    return this.#port?.headSent ?? false;
  }

  get closed(): boolean {
    return this.#socket.destroyed;
  }

  head(status: number, reason: string, fields: HeaderFields): void {
    const response = new ServerResponse(this.#request);
    response.shouldKeepAlive = false;
    response.assignSocket(this.#socket);
    response.once('finish', () => this.#socket.destroySoon());
    this.#port = new Http1Reply(this.#request, response, { body: false, waiting: false });
    this.#port.head(status, reason, fields, true);
  }

  write(chunk: Buffer): boolean {
    return this.#port?.write(chunk) ?? true;
  }

  end(): void {
    this.#port?.end();
  }

  abort(): void {
    this.#socket.destroy();
  }
}

/** Close codes of RFC 6455 section 7.4.1. */
const POLICY_VIOLATION = 1008;
const INTERNAL_ERROR = 1011;

/** The refusal of a WebSocket that the engine has answered with 101 already: it is closed with the reason as its text. */
export class WebSocketReply extends RefusalPort {
  readonly #socket: EngineWebSocket;
  headSent = false;

  constructor(socket: EngineWebSocket) {
    super();
    this.#socket = socket;
  }

  get closed(): boolean {
    return this.#socket.readyState > 1;
  }

  head(status: number, _reason: string, fields: HeaderFields): void {
    this.headSent = true;
    this.#socket.close(status < 500 ? POLICY_VIOLATION : INTERNAL_ERROR, fieldValue(fields, 'x-sallyport-reason') ?? '');
    // The engine paused it; the sandbox's half of the closing handshake must be read.
    this.#socket.upgradeReq?.socket.resume();
  }

  write(): boolean {
    return true;
  }

  end(): void {
    // The close frame says all that a WebSocket has room for.
  }

  abort(): void {
    this.#socket.terminate();
  }
}
