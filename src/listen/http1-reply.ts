// A reply over HTTP/1.1: the ReplyPort of Node's ServerResponse, for the proxy port and for what was decrypted from a tunnel alike.
// It owns the framing and the end of the connection; it must never let an unread upload hold the connection for long (fault D10).
import { STATUS_CODES } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Refusal } from '../exchange/codes.ts';
import { fieldValue } from '../exchange/header-fields.ts';
import { acceptOf } from '../exchange/websocket-key.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { ReplyListener, ReplyPort } from '../exchange/reply-port.ts';
import { closeGently } from './close-gently.ts';

/** What the request announced: whether a body follows, and whether the sandbox holds it back until it is asked (`Expect: 100-continue`). */
export interface Announced {
  readonly body: boolean;
  readonly waiting: boolean;
}

/** One HTTP/1.1 reply. */
export class Http1Reply implements ReplyPort {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #body: boolean;
  #waiting: boolean;
  #listener: ReplyListener | undefined = undefined;
  #switched = false;
  #bodyBegun = false;
  #whenClosed: (() => void) | undefined = undefined;
  /** What the parser found wrong with the rest of the request, if anything */
  trouble: Refusal | undefined = undefined;
  /** Fields that tell the sandbox how long its connection is kept, where it is */
  keepAlive: HeaderFields = [];
  /** The reply that must be over before this one begins */
  behind: Http1Reply | undefined = undefined;
  headSent = false;
  closed = false;
  /** `performance.now()` when the reply was over; infinite before */
  closedAt = Infinity;

  constructor(request: IncomingMessage, response: ServerResponse, announced: Announced) {
    this.#request = request;
    this.#response = response;
    this.#body = announced.body;
    this.#waiting = announced.waiting;
    // Shared listeners that find the reply by their `this`: three closures for each reply would cost more than the reply.
    (response as Carrier)[REPLY] = this;
    response.on('drain', onDrain).on('close', onClose).on('error', ignore);
  }

  listen(listener: ReplyListener): void {
    this.#listener = listener;
    if (this.trouble !== undefined) listener.gone(this.trouble);
  }

  /** The rest of the request cannot be read, because of `trouble`: nobody may take what came of it for the whole. */
  spoil(trouble: Refusal): void {
    this.trouble ??= trouble;
    this.#listener?.gone(this.trouble);
  }

  /** Calls `then` once the reply is over, complete or not. One caller at a time. */
  whenClosed(then: () => void): void {
    this.#whenClosed = then;
  }

  invite(): void {
    if (!this.#waiting || this.headSent || this.closed) return;
    this.#waiting = false;
    this.#response.writeContinue();
  }

  interim(status: number, fields: HeaderFields): void {
    const { socket } = this.#response;
    // A sandbox that reads slowly does without: nothing else bounds the number of hints.
    if (this.headSent || this.closed || socket === null || socket.writableNeedDrain || !this.#understandsInterim) return;
    socket.write(headText(status, STATUS_CODES[status] ?? '', fields), 'latin1');
  }

  head(status: number, reason: string, fields: HeaderFields, close = false): void {
    if (this.headSent || this.closed) return;
    const response = this.#response;
    response.sendDate = false;
    const ends = close || (status >= 400 && this.uploading);
    const kept = this.#withoutLooseFraming(status, fields);
    response.writeHead(status, reason, ends ? [...kept, 'Connection', 'close'] : this.#withKeepAlive(kept));
    this.headSent = true;
    // A head that no byte of body follows at once must not wait for one: event streams begin with silence (fault I01).
    queueMicrotask(() => this.flush());
  }

  write(chunk: Buffer): boolean {
    if (this.closed) return true;
    const first = !this.#bodyBegun;
    this.#bodyBegun = true;
    // As text, Node joins it to the head and both leave in one plain write; bytes would take a gathering write of two pieces.
    return first && chunk.length <= SMALL
      ? this.#response.write(chunk.toString('latin1'), 'latin1')
      : this.#response.write(chunk);
  }

  end(trailers?: HeaderFields): void {
    if (this.closed) return;
    if (trailers !== undefined) this.#response.addTrailers(pairs(trailers));
    if (this.uploading) this.#endEarly();
    else this.#response.end();
  }

  switchProtocols(reason: string, fields: HeaderFields): Duplex {
    const { socket } = this.#request;
    this.headSent = true;
    this.#switched = true;
    this.#response.detachSocket(socket);
    socket.write(headText(101, reason, ['Connection', 'Upgrade', 'Upgrade', 'websocket', ...this.#withAccept(fields)]), 'latin1');
    return socket;
  }

  /** An upstream that was asked over HTTP/2 saw no key and proves nothing (RFC 8441 section 5); the sandbox's client still asks for it. */
  #withAccept(fields: HeaderFields): HeaderFields {
    const key = fieldValue(this.#request.rawHeaders, 'sec-websocket-key');
    if (key === undefined || fieldValue(fields, 'sec-websocket-accept') !== undefined) return fields;
    return [...fields, 'Sec-WebSocket-Accept', acceptOf(key)];
  }

  /** Answers a CONNECT with 200 and lets go of its socket (RFC 9110 section 9.3.6). */
  accept(): void {
    const { socket } = this.#request;
    this.headSent = true;
    this.#switched = true;
    this.#response.detachSocket(socket);
    socket.write('HTTP/1.1 200 Connection Established\r\n\r\n');
  }

  abort(): void {
    this.#request.socket.destroy();
  }

  /** Whether the whole answer has been handed over and the sandbox has not taken all of it. */
  get isTail(): boolean {
    return this.#response.writableEnded && !this.#response.writableFinished;
  }

  /** Whether part of the request is still to come. */
  get uploading(): boolean {
    return this.#body && !this.#request.complete && !this.#request.destroyed;
  }

  /** Without what this answer cannot bear: Trailer where no trailer can follow, which Node throws at, and the length of a 204. */
  #withoutLooseFraming(status: number, fields: HeaderFields): HeaderFields {
    if (status === 204) return without(without(fields, 'content-length'), 'trailer');
    if (fieldValue(fields, 'trailer') === undefined) return fields;
    const chunked = status !== 304 && this.#request.method !== 'HEAD' && this.#understandsInterim;
    return chunked && fieldValue(fields, 'content-length') === undefined ? fields : without(fields, 'trailer');
  }

  #withKeepAlive(fields: HeaderFields): string[] {
    return this.#response.shouldKeepAlive ? [...fields, ...this.keepAlive] : (fields as string[]);
  }

  get #understandsInterim(): boolean {
    return this.#request.httpVersionMajor === 1 && this.#request.httpVersionMinor >= 1;
  }

  /** For this file's listeners: the head goes out, where nothing has taken it along yet. */
  flush(): void {
    if (this.closed || this.#response.writableEnded || this.#switched) return;
    // Not flushHeaders, which would write the head as UTF-8.
    this.#response.write('', 'latin1');
  }

  /** For this file's listeners: the sandbox reads again. */
  drain(): void {
    this.#listener?.drained();
  }

  /** For this file's listeners: the reply is over, complete or not. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.closedAt = performance.now();
    if (!this.#response.writableFinished && !this.#switched) this.#listener?.gone();
    this.#whenClosed?.();
    this.#listener = undefined;
    this.#whenClosed = undefined;
  }

  /** The answer is complete but the upload is not: the connection ends with it, in a way that lets the sandbox read it. */
  #endEarly(): void {
    const { socket } = this.#request;
    // Node's own listener would destroy the socket as soon as the answer has been written.
    this.#response.removeAllListeners('finish');
    this.#response.end(() => closeGently(socket));
    this.#request.resume();
  }
}

/** Octets of a first piece of body that are worth copying. */
const SMALL = 4096;

const REPLY = Symbol('reply');
type Carrier = ServerResponse & { [REPLY]?: Http1Reply };

function onDrain(this: Carrier): void {
  this[REPLY]?.drain();
}

function onClose(this: Carrier): void {
  this[REPLY]?.close();
}

function ignore(): void {}

function without(fields: HeaderFields, name: string): HeaderFields {
  if (fieldValue(fields, name) === undefined) return fields;
  const kept: string[] = [];
  for (const [field, value] of pairs(fields)) if (field.toLowerCase() !== name) kept.push(field, value);
  return kept;
}

function headText(status: number, reason: string, fields: HeaderFields): string {
  let text = `HTTP/1.1 ${status} ${reason}\r\n`;
  for (let i = 0; i + 1 < fields.length; i += 2) text += `${fields[i] as string}: ${fields[i + 1] as string}\r\n`;
  return `${text}\r\n`;
}

function pairs(fields: HeaderFields): [string, string][] {
  const result: [string, string][] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) result.push([fields[i] as string, fields[i + 1] as string]);
  return result;
}
