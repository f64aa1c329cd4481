// One attempt at an exchange on one stream of an HTTP/2 session: tells the answer what comes in, in the words of undici's dispatch,
// and sends the request's body with the upstream's own speed. It must never take a stream that broke off for one that ended, and never
// touch the answer after it has told it the end.
import { STATUS_CODES } from 'node:http';
import { constants } from 'node:http2';
import type { ClientHttp2Stream } from 'node:http2';
import { addAbortSignal, Readable } from 'node:stream';
import { errors } from 'undici';
import { Fault } from '../exchange/codes.ts';
import type { Answer, RawFields } from './answer.ts';
import type { ConnectionLimits, Outgoing, Way } from './carrier.ts';
import { exchangeFault } from './faults.ts';
import type { Gate } from './patient-socket.ts';
import { sectionSize } from './session-fields.ts';

const { NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_NO_ERROR, NGHTTP2_REFUSED_STREAM } = constants;

/** What an attempt needs of its session, on which it has a place. */
export interface StreamSource {
  readonly limits: ConnectionLimits;
  readonly alive: boolean;
  /** The last stream that the upstream has looked at, where it has said so with a GOAWAY; infinite before */
  readonly lastStream: number;
  /** What has come in on all streams so far, in bytes */
  readonly bytesRead: number;
  /** Takes no further exchange. */
  retire(): void;
  /** Opens a stream for a request. Throws where the request cannot be sent. */
  request(request: Outgoing): ClientHttp2Stream;
  /** Gives the place back. */
  left(): void;
}

/** One attempt; its own gate, for each stream is held by itself. */
export class SessionAttempt implements Way, Gate {
  readonly #session: StreamSource;
  #stream: ClientHttp2Stream | undefined = undefined;
  #answer: Answer | undefined = undefined;
  #upload: Readable | undefined = undefined;
  #isUpgrade = false;
  /** One deadline at a time: the head's, then that of a silent body */
  #deadline: NodeJS.Timeout | undefined = undefined;
  #headed = false;
  /** What the session had heard when this one began */
  #heard = 0;
  #held = false;
  /** Whether the upstream itself has ended the stream */
  #whole = false;
  #over = false;
  #trailers: RawFields = [];
  #error: unknown = undefined;
  unprocessed = false;

  constructor(session: StreamSource) {
    this.#session = session;
  }

  get gate(): Gate {
    return this;
  }

  hold(): void {
    this.#held = true;
    this.#stream?.pause();
  }

  release(): void {
    if (!this.#held) return;
    this.#held = false;
    this.#stream?.resume();
  }

  send(request: Outgoing, answer: Answer): void {
    this.#answer = answer;
    this.#isUpgrade = request.upgrade !== undefined;
    if (!this.#session.alive) {
      this.#session.left();
      this.#fail(new Fault('upstream_protocol', 'the upstream closed the connection before it had answered'));
      return;
    }
    answer.onConnect((reason) => this.#fail(reason));
    let stream: ClientHttp2Stream | undefined;
    try {
      if (!this.#over) stream = this.#session.request(request);
    } catch (error) {
      this.#fail(new Fault('internal_error', 'the request cannot be sent on', error));
    }
    if (stream === undefined) this.#session.left();
    else this.#begin(stream, request);
  }

  #begin(stream: ClientHttp2Stream, { body }: Outgoing): void {
    this.#stream = stream;
    this.#heard = this.#session.bytesRead;
    Object.assign(stream, { [ATTEMPT]: this, push });
    stream.on('headers', onInterim).on('response', onResponse).on('trailers', onTrailers);
    stream.on('error', onError).on('close', onClose);
    this.#deadline = setTimeout(onLate, this.#session.limits.replyMs, this);
    if (body instanceof Readable) this.#send(stream, body);
    else if (body !== null) stream.end(body);
  }

  #send(stream: ClientHttp2Stream, body: Readable): void {
    this.#upload = body;
    body.on('data', (chunk: Buffer) => {
      this.#deadline?.refresh();
      if (!stream.write(chunk)) body.pause();
    });
    stream.on('drain', () => {
      this.#deadline?.refresh();
      body.resume();
    });
    body.on('end', () => stream.end());
    body.on('error', (error) => this.#fail(error));
  }

  /** For this file's listeners: a head that is not the last. */
  interim(raw: readonly string[]): void {
    const status = statusOf(raw);
    // Each hop has its own 100, and HTTP/2 has no 101 (RFC 9113 section 8.6).
    if (this.#over || this.#headed || status === 100) return;
    if (status === 101)
      this.#fail(new Fault('upstream_protocol', 'the upstream switched protocols in HTTP/2, which has no such thing'));
    else this.#tellHead(status, raw);
  }

  /** For this file's listeners: the head of the answer. */
  head(raw: readonly string[]): void {
    if (this.#over || this.#headed) return;
    const status = statusOf(raw);
    if (sectionSize(raw) > this.#session.limits.replyHeaderBytes) {
      this.#fail(new errors.HeadersOverflowError());
      return;
    }
    this.#headed = true;
    const stream = this.#stream as ClientHttp2Stream;
    clearTimeout(this.#deadline);
    if (this.#isUpgrade && status >= 200 && status < 300) {
      this.#switch(stream, raw);
      return;
    }
    this.#deadline = setTimeout(onLate, this.#session.limits.bodyIdleMs, this);
    // Not before, or a piece of body that came with the head would be told first.
    if (this.#tellHead(status, raw)) stream.on('data', onData).on('end', onEnd);
  }

  /** For this file's listeners: a piece of the body. */
  data(chunk: Buffer): void {
    if (this.#over) return;
    this.#deadline?.refresh();
    try {
      this.#answer?.onData(chunk);
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  /** For this file's listeners: fields after the body, which may be told of before the body has been read. */
  trailers(raw: readonly string[]): void {
    this.#trailers = raw;
  }

  /** For this file's listeners: nothing more will come in, and it was the upstream that said so. */
  ended(): void {
    this.#whole = true;
  }

  /** For this file's listeners: the last of the body has been read. A stream that broke off ends like this too; its close tells. */
  read(): void {
    if (this.#over || !this.#whole) return;
    this.#over = true;
    clearTimeout(this.#deadline);
    const stream = this.#stream as ClientHttp2Stream;
    // An answer that comes before its request is whole makes the rest of it useless (RFC 9113 section 8.1).
    if (!stream.writableFinished) {
      this.#upload?.destroy();
      setImmediate(giveUp, stream);
    }
    this.#answer?.onComplete(this.#trailers);
  }

  /** For this file's listeners: what went wrong with the stream; its close follows. */
  error(error: unknown): void {
    this.#error = error;
  }

  /** For this file's listeners: the stream is gone. */
  closed(): void {
    this.#session.left();
    if (!this.#over) this.#fail(this.#lost());
  }

  /** For this file's timer. */
  late(): void {
    // Not a word on any stream in all that time: whoever comes next is better off on another connection.
    if (this.#session.bytesRead === this.#heard) this.#session.retire();
    this.#fail(this.#headed ? new errors.BodyTimeoutError() : new errors.HeadersTimeoutError());
  }

  #lost(): Fault {
    const stream = this.#stream as ClientHttp2Stream;
    const code = stream.rstCode;
    if (!this.#headed) {
      this.unprocessed = code === NGHTTP2_REFUSED_STREAM || (stream.id ?? Infinity) > this.#session.lastStream;
      // Where the section is over the limit that the library was given, it is the library that says so.
      if (code === NGHTTP2_ENHANCE_YOUR_CALM && this.#session.alive) return exchangeFault(new errors.HeadersOverflowError());
    }
    const what = this.#session.alive ? 'ended the stream' : 'closed the connection';
    const when = this.#headed ? 'in the middle of its answer' : 'before it had answered';
    const name = code === NGHTTP2_NO_ERROR ? undefined : new Error(`HTTP/2 error code ${code}`, { cause: this.#error });
    return new Fault('upstream_protocol', `the upstream ${what} ${when}`, name);
  }

  /** From now on the stream is its new owner's. */
  #switch(stream: ClientHttp2Stream, raw: readonly string[]): void {
    stream.destroy = destroyGivenUp;
    try {
      this.#answer?.onUpgrade(101, raw.slice(2), stream);
      this.#over = true;
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  /** The phrase, which HTTP/2 does not carry, is for a sandbox that speaks HTTP/1.1. False where the answer cannot be handed over. */
  #tellHead(status: number, raw: readonly string[]): boolean {
    try {
      this.#answer?.onHeaders(status, raw.slice(2), ignore, STATUS_CODES[status] ?? '');
      return !this.#over;
    } catch (error) {
      this.#fail(error as Error);
      return false;
    }
  }

  #fail(error: Error): void {
    if (this.#over) return;
    this.#over = true;
    clearTimeout(this.#deadline);
    this.#upload?.destroy();
    if (this.#stream !== undefined) setImmediate(giveUp, this.#stream);
    this.#answer?.onError(error);
  }
}

// Shared listeners that find the attempt by their `this`: closures for each stream would cost more than the stream.
const ATTEMPT = Symbol('attempt');
type Tied = ClientHttp2Stream & { [ATTEMPT]: SessionAttempt };

function onInterim(this: Tied, _headers: unknown, _flags: number, raw: readonly string[]): void {
  this[ATTEMPT].interim(raw);
}

function onResponse(this: Tied, _headers: unknown, _flags: number, raw: readonly string[]): void {
  this[ATTEMPT].head(raw);
}

function onTrailers(this: Tied, _headers: unknown, _flags: number, raw: readonly string[]): void {
  this[ATTEMPT].trailers(raw);
}

function onData(this: Tied, chunk: Buffer): void {
  this[ATTEMPT].data(chunk);
}

function onEnd(this: Tied): void {
  this[ATTEMPT].read();
}

function onError(this: Tied, error: unknown): void {
  this[ATTEMPT].error(error);
}

function onClose(this: Tied): void {
  this[ATTEMPT].closed();
}

function onLate(attempt: SessionAttempt): void {
  attempt.late();
}

/** Node ends the reading side in the same way where the upstream ended the stream and where it broke off; then it has closed it before. */
function push(this: Tied, chunk: unknown, encoding?: BufferEncoding): boolean {
  if (chunk === null && !this.closed) this[ATTEMPT].ended();
  return Readable.prototype.push.call(this, chunk, encoding);
}

const GIVEN_UP = AbortSignal.abort();

/**
 * Resets a stream with CANCEL. Node's own `close` would end the request first, so that half an upload looked like a whole one; and from
 * within its reading, which is why callers wait for a moment outside of it, it would send no reset at all.
 */
function giveUp(stream: ClientHttp2Stream): void {
  if (!stream.destroyed) addAbortSignal(GIVEN_UP, stream);
}

/** A WebSocket that is destroyed before it has ended was given up, and must not look like one that ended (RFC 8441 section 5). */
function destroyGivenUp(this: Tied, error?: Error): Tied {
  // Its owner knows.
  this.removeAllListeners('error').on('error', ignore);
  Reflect.deleteProperty(this, 'destroy');
  if (error === undefined) giveUp(this);
  else this.destroy(error);
  return this;
}

/** Of a header section that came in; its pseudo-header field comes first, and the library has looked at it. */
function statusOf(raw: readonly string[]): number {
  return Number(raw[1]);
}

function ignore(): void {}
