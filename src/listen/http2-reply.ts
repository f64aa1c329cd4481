// A reply over HTTP/2: the ReplyPort of one stream. What ends here ends the stream and leaves the connection to the others on it.
// It must survive a stream that is gone at any moment, and it must never let a cut answer look like a whole one.
import { constants } from 'node:http2';
import type { OutgoingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import type { Duplex } from 'node:stream';
import { fieldValue } from '../exchange/header-fields.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { ReplyListener, ReplyPort } from '../exchange/reply-port.ts';
import { trailerSection, headSection } from './http2-sections.ts';

const { NGHTTP2_CONNECT_ERROR, NGHTTP2_INTERNAL_ERROR, NGHTTP2_REFUSED_STREAM } = constants;

/** What the request announced, and who keeps the stream in view. */
export interface Http2ReplyOptions {
  /** Whether a body follows */
  readonly body: boolean;
  /** Whether the sandbox holds it back until it is asked (`Expect: 100-continue`) */
  readonly waiting: boolean;
  /** Whether the sandbox has said that it reads trailers, even behind a body whose length is known */
  readonly trailers: boolean;
  readonly head: boolean;
  /** Hears that the stream has closed. */
  readonly over: (reply: Http2Reply) => void;
}

/** How long the reset of a cut stream may take to go out, in `ms`. */
const CUT_MS = 2000;
/** Most 1xx answers to one request; nothing else bounds them. */
const MOST_HINTS = 100;

/** One HTTP/2 reply. */
export class Http2Reply implements ReplyPort {
  readonly #stream: ServerHttp2Stream;
  readonly #options: Http2ReplyOptions;
  #waiting: boolean;
  #listener: ReplyListener | undefined = undefined;
  /** A head that goes out with what comes next, because it may be the whole answer */
  #kept: OutgoingHttpHeaders | undefined = undefined;
  #trailers: HeaderFields | undefined = undefined;
  #hints = 0;
  #ended = false;
  #cut = false;
  #switched = false;
  /** Whether trailers may still stand behind the body */
  #trailing = false;
  headSent = false;
  closed = false;

  constructor(stream: ServerHttp2Stream, options: Http2ReplyOptions) {
    this.#stream = stream;
    this.#options = options;
    this.#waiting = options.waiting;
    // Shared listeners that find the reply by their `this`, as in Http1Reply.
    (stream as Carrier)[REPLY] = this;
    stream.on('drain', onDrain).on('aborted', onAborted).on('close', onClose).on('error', ignore);
  }

  listen(listener: ReplyListener): void {
    this.#listener = listener;
  }

  invite(): void {
    if (!this.#waiting || this.headSent || this.closed) return;
    this.#waiting = false;
    this.#inform({ ':status': 100 });
  }

  interim(status: number, fields: HeaderFields): void {
    if (this.headSent || this.closed || status === 101 || this.#hints >= MOST_HINTS) return;
    this.#hints += 1;
    this.#inform(headSection(status, fields));
  }

  head(status: number, _reason: string, fields: HeaderFields): void {
    if (this.headSent || this.closed) return;
    this.headSent = true;
    const section = headSection(status, fields);
    // To a gRPC client an answer of a head alone is one only where the stream ends with that head (gRPC over HTTP/2, Trailers-Only).
    if (fieldValue(fields, 'grpc-status') !== undefined) this.#kept = section;
    else this.#respond(section, false);
  }

  write(chunk: Buffer): boolean {
    if (this.closed) return true;
    this.#letGo(false);
    // Node has ended the stream with the head where no body belongs to it.
    if (this.#stream.writableEnded || this.#stream.destroyed) return true;
    return this.#stream.write(chunk);
  }

  end(trailers?: HeaderFields): void {
    if (this.closed || this.#ended) return;
    this.#ended = true;
    this.#letGo(trailers === undefined || trailers.length === 0);
    this.#trailers = trailers;
    const stream = this.#stream;
    if (stream.destroyed) return;
    if (!stream.writableEnded) stream.end();
    if (!this.#options.body) return;
    // The answer is whole, the request is not: the sandbox is told to send no more of it (RFC 9113 section 8.1).
    if (!this.#trailing && this.#uploading) stream.close();
    stream.resume();
  }

  switchProtocols(_reason: string, fields: HeaderFields): Duplex {
    this.headSent = true;
    this.#switched = true;
    const section = headSection(200, fields);
    // Nothing is proven over HTTP/2 (RFC 8441 section 5).
    delete section['sec-websocket-accept'];
    this.#respond(section, false);
    return this.#stream;
  }

  /** Answers a CONNECT with 200: the stream is a tunnel from now on (RFC 9113 section 8.5). */
  accept(): void {
    this.headSent = true;
    this.#switched = true;
    this.#respond({ ':status': 200 }, false);
  }

  giveBack(): void {
    if (this.headSent || this.#cut || this.#stream.destroyed) return;
    this.#cut = true;
    this.closed = true;
    this.#stream.close(NGHTTP2_REFUSED_STREAM);
  }

  abort(): void {
    if (this.#cut || this.#stream.destroyed) return;
    this.#cut = true;
    const stream = this.#stream;
    stream.close(this.#switched ? NGHTTP2_CONNECT_ERROR : NGHTTP2_INTERNAL_ERROR);
    // On a connection that nobody reads from it would not, and the stream would stay.
    const timer = setTimeout(() => stream.destroy(), CUT_MS).unref();
    stream.once('close', () => clearTimeout(timer));
  }

  /** Octets of an answer that has been handed over whole, and that the sandbox has not taken; `undefined` before. */
  get tail(): number | undefined {
    if (!this.#ended || this.closed || this.#stream.writableFinished) return undefined;
    return this.#stream.bufferSize;
  }

  get #uploading(): boolean {
    return this.#stream.state.remoteClose !== 1;
  }

  #inform(section: OutgoingHttpHeaders): void {
    if (this.#stream.destroyed || this.#stream.closed) return;
    try {
      this.#stream.additionalHeaders(section);
    } catch {
      // Node finds a field unfit for HTTP/2. A hint may be missing.
    }
  }

  #respond(section: OutgoingHttpHeaders, endStream: boolean): void {
    const stream = this.#stream;
    if (stream.destroyed || stream.closed) return;
    const { head, trailers } = this.#options;
    const bodiless = endStream || head || this.#switched || BODILESS.has(section[':status'] as number);
    this.#trailing = !bodiless && (trailers || section['content-length'] === undefined);
    if (this.#trailing) stream.on('wantTrailers', onWantTrailers);
    try {
      const options = { sendDate: false, endStream, waitForTrailers: this.#trailing };
      stream.respond(section, options);
    } catch {
      // Node finds a field unfit for HTTP/2, and an answer without it would be another one.
      this.abort();
    }
  }

  #letGo(isWhole: boolean): void {
    if (this.#kept === undefined) return;
    const section = this.#kept;
    this.#kept = undefined;
    this.#respond(section, isWhole);
  }

  /** For this file's listeners: the body is out, what stands behind it is due. */
  sendTrailers(): void {
    const stream = this.#stream;
    try {
      stream.sendTrailers(trailerSection(this.#trailers ?? []));
    } catch {
      this.abort();
      return;
    }
    // Node sends them once this turn of the loop is over; a stream that has been closed by then would lose them.
    if (this.#options.body) setImmediate(closeIfUploading, this);
  }

  /** For this file's listeners: nobody wants the rest of the request. */
  closeIfUploading(): void {
    if (!this.#stream.destroyed && this.#uploading) this.#stream.close();
  }

  /** For this file's listeners: the sandbox reads again. */
  drain(): void {
    this.#listener?.drained();
  }

  /** For this file's listeners: the sandbox reset the stream, or its connection broke, before the answer was whole. */
  leave(): void {
    if (this.#cut) return;
    this.#cut = true;
    this.closed = true;
    this.#listener?.gone();
    // Otherwise Node would end what has come of the request as if that were all of it.
    this.#stream.destroy(new Error('the sandbox reset the stream'));
  }

  /** For this file's listeners: the stream has closed. */
  close(): void {
    if (!this.closed) {
      this.closed = true;
      if (!this.#switched && !(this.#ended && this.#stream.writableFinished)) this.#listener?.gone();
    }
    this.#listener = undefined;
    this.#options.over(this);
  }
}

const BODILESS: ReadonlySet<number> = new Set([204, 205, 304]);

const REPLY = Symbol('reply');
type Carrier = ServerHttp2Stream & { [REPLY]?: Http2Reply };

function onDrain(this: Carrier): void {
  this[REPLY]?.drain();
}

function onAborted(this: Carrier): void {
  this[REPLY]?.leave();
}

function onClose(this: Carrier): void {
  this[REPLY]?.close();
}

function onWantTrailers(this: Carrier): void {
  this[REPLY]?.sendTrailers();
}

function closeIfUploading(reply: Http2Reply): void {
  reply.closeIfUploading();
}

function ignore(): void {}
