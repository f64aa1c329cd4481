// A reply over HTTP/1.1: the ReplyPort of Node's ServerResponse, for the proxy port and for what was decrypted from a tunnel alike.
// It owns the framing and the end of the connection; it must never let an unread upload hold the connection for long (fault D10).
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { ReplyListener, ReplyPort } from '../exchange/reply-port.ts';

/** Bytes of an upload that are still taken in after its answer has gone out, so that the client gets to read that answer. */
const LINGER_BYTES = 1024 * 1024;
/** How long such an upload may go on, in `ms`. */
const LINGER_MS = 2000;

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
  headSent = false;
  closed = false;

  constructor(request: IncomingMessage, response: ServerResponse, announced: Announced) {
    this.#request = request;
    this.#response = response;
    this.#body = announced.body;
    this.#waiting = announced.waiting;
    response.on('drain', this.#onDrain);
    response.on('close', this.#onClose);
    response.on('error', ignore);
  }

  listen(listener: ReplyListener): void {
    this.#listener = listener;
  }

  invite(): void {
    if (!this.#waiting || this.headSent || this.closed) return;
    this.#waiting = false;
    this.#response.writeContinue();
  }

  interim(status: number, fields: HeaderFields): void {
    if (this.headSent || this.closed || status !== 103) return;
    const hints: Record<string, string | string[]> = {};
    for (let i = 0; i + 1 < fields.length; i += 2) {
      const name = (fields[i] as string).toLowerCase();
      if (name === 'link') hints['link'] = [...((hints['link'] as string[] | undefined) ?? []), fields[i + 1] as string];
    }
    try {
      if (hints['link'] !== undefined) this.#response.writeEarlyHints(hints);
    } catch {
      // Node accepts only what it takes for a valid Link value; a hint that it does not like is no loss.
    }
  }

  head(status: number, reason: string, fields: HeaderFields, close = false): void {
    if (this.headSent || this.closed) return;
    this.headSent = true;
    const response = this.#response;
    response.sendDate = false;
    const ends = close || (status >= 400 && this.#uploading);
    response.writeHead(status, reason, (ends ? [...fields, 'Connection', 'close'] : fields) as string[]);
    // A head that no byte of body follows at once must not wait for one: event streams begin with silence (fault I01).
    queueMicrotask(this.#flush);
  }

  write(chunk: Uint8Array): boolean {
    return this.closed || this.#response.write(chunk);
  }

  end(trailers?: HeaderFields): void {
    if (this.closed) return;
    if (trailers !== undefined) this.#response.addTrailers(pairs(trailers));
    if (this.#uploading) this.#linger();
    else this.#response.end();
  }

  switchProtocols(reason: string, fields: HeaderFields): Duplex {
    const { socket } = this.#request;
    this.headSent = true;
    this.#switched = true;
    this.#response.detachSocket(socket);
    let head = `HTTP/1.1 101 ${reason}\r\n`;
    for (let i = 0; i + 1 < fields.length; i += 2) head += `${fields[i] as string}: ${fields[i + 1] as string}\r\n`;
    socket.write(`${head}\r\n`, 'latin1');
    return socket;
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

  /** Whether part of the request is still to come. */
  get #uploading(): boolean {
    return this.#body && !this.#request.complete && !this.#request.destroyed;
  }

  readonly #flush = (): void => {
    if (!this.closed && !this.#response.writableEnded && !this.#switched) this.#response.flushHeaders();
  };

  readonly #onDrain = (): void => {
    this.#listener?.drained();
  };

  readonly #onClose = (): void => {
    if (this.closed) return;
    this.closed = true;
    if (!this.#response.writableFinished && !this.#switched) this.#listener?.gone();
  };

  /** The answer is out but the upload goes on: take in a little of it, so that a reset does not eat the answer, then close. */
  #linger(): void {
    const request = this.#request;
    let taken = 0;
    const finish = (): void => {
      clearTimeout(timer);
      request.off('data', count).off('end', finish).off('close', finish);
      this.#response.end(() => {
        if (!request.complete) request.socket.destroySoon();
      });
    };
    const count = (chunk: Buffer): void => {
      taken += chunk.length;
      if (taken > LINGER_BYTES) finish();
    };
    const timer = setTimeout(finish, LINGER_MS);
    request.on('data', count).on('end', finish).on('close', finish);
    this.#flush();
    request.resume();
  }
}

function ignore(): void {}

function pairs(fields: HeaderFields): [string, string][] {
  const result: [string, string][] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) result.push([fields[i] as string, fields[i + 1] as string]);
  return result;
}
