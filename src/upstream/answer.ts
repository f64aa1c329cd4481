// One attempt at an exchange on one connection: drives the reply as the upstream's answer comes in, with backpressure, and settles once.
// The connection's parser calls it; it must never throw into the parser, and never touch the reply after it has settled.
import type { Duplex } from 'node:stream';
import { Fault } from '../exchange/codes.ts';
import type { Refusal } from '../exchange/codes.ts';
import { isFieldValue } from '../exchange/header-fields.ts';
import type { BodyFilter, Redaction } from '../exchange/redaction.ts';
import type { ReplyListener, ReplyPort } from '../exchange/reply-port.ts';
import type { Trace } from '../exchange/trace.ts';
import { errorCode, exchangeFault } from './faults.ts';
import type { Gate } from './patient-socket.ts';
import { FilteredBody, RecodedBody } from './redacted-body.ts';
import type { BodyWay, Recoder } from './redacted-body.ts';

/** Fields as a parser gives them, name then value: latin1 bytes of HTTP/1.1, latin1 text of HTTP/2. */
export type RawFields = readonly (Buffer | string)[];

/** How fields from the wire become fields toward the sandbox; given by the reply room. */
export interface ReplyFields {
  readonly fields: (raw: RawFields) => string[];
  readonly trailers: (raw: RawFields) => string[];
  /** Looks values through for what must not be seen, in place. */
  readonly redactFields: (fields: string[], redaction: Redaction) => string[];
  /** Looks a final head through and says how its body goes; throws a Fault where that cannot be looked through. */
  readonly redactHead: (
    fields: string[],
    answer: { readonly status: number; readonly bodiless: boolean },
    redaction: Redaction,
  ) => { readonly fields: string[]; readonly body: { readonly filter: BodyFilter } | { readonly recoder: Recoder } | undefined };
}

/** What an answer must not show, and to which method it comes: one to HEAD has no body. */
export interface Hidden {
  readonly redaction: Redaction;
  readonly method: string;
}

/** What an attempt came to. */
export interface AttemptEnd {
  readonly fault: Fault | undefined;
  /** Set where the sandbox's own request turned out unreadable on the way */
  readonly trouble: Refusal | undefined;
  /** Whether the request may have reached the upstream */
  readonly sent: boolean;
  readonly switched: Switched | undefined;
}

/** What is left of a connection after a 101: its stream, and the fields of the answer. */
export interface Switched {
  readonly stream: Duplex;
  readonly reason: string;
  readonly fields: readonly string[];
}

/**
 * The connection's callbacks for one attempt (undici's dispatch interface, the one with raw fields).
 * `settled` is called exactly once.
 */
export class Answer implements ReplyListener {
  readonly #reply: ReplyPort;
  readonly #trace: Trace;
  readonly #convert: ReplyFields;
  readonly #settled: (end: AttemptEnd) => void;
  #done = false;
  #sent = false;
  #abort: ((reason: Error) => void) | undefined = undefined;
  readonly #gate: Gate;
  #held = false;
  #gone = false;
  #trouble: Refusal | undefined = undefined;
  readonly #hidden: Hidden | undefined;
  #way: BodyWay | undefined = undefined;
  #complete = false;

  constructor(options: {
    readonly reply: ReplyPort;
    readonly trace: Trace;
    readonly convert: ReplyFields;
    readonly gate: Gate;
    readonly hidden: Hidden | undefined;
    readonly settled: (end: AttemptEnd) => void;
  }) {
    this.#reply = options.reply;
    this.#trace = options.trace;
    this.#convert = options.convert;
    this.#gate = options.gate;
    this.#hidden = options.hidden;
    this.#settled = options.settled;
    options.reply.listen(this);
  }

  /** ReplyListener: the sandbox reads again. */
  drained(): void {
    if (this.#way === undefined || this.#way.drained()) this.#release();
  }

  #release(): void {
    this.#held = false;
    this.#gate.release();
  }

  /** ReplyListener: the sandbox left or its request broke, so the upstream's answer is of no use any more (fault I08). */
  gone(trouble?: Refusal): void {
    this.#gone = true;
    this.#trouble ??= trouble;
    this.#abort?.(LEFT());
    // All of the answer may have come in, and the coding still be at work on it.
    if (this.#complete) this.#settle(LEFT(), undefined);
  }

  /** The request is about to be written. */
  onConnect(abort: (reason: Error) => void): void {
    if (this.#gone || this.#reply.closed) {
      abort(LEFT());
      return;
    }
    this.#abort = abort;
    this.#sent = true;
    this.#trace.dispatchedAt = performance.now();
  }

  /** A head, interim ones included. */
  onHeaders(status: number, raw: RawFields, _resume: () => void, reason: string): boolean {
    if (status < 100) throw new Fault('upstream_protocol', 'the upstream answered with a status that does not exist');
    if (status < 200) {
      if (status !== 101) this.#reply.interim(status, this.#fields(raw));
      return true;
    }
    this.#trace.waitMs = performance.now() - this.#trace.dispatchedAt;
    this.#trace.status = status;
    // Undici reads the phrase as UTF-8; one that it could not read is of no use to anyone (RFC 9112 section 4).
    const phrase = isFieldValue(reason) ? reason : '';
    if (this.#hidden === undefined) this.#reply.head(status, phrase, this.#convert.fields(raw));
    else this.#redactedHead(status, { raw, phrase }, this.#hidden);
    return true;
  }

  #redactedHead(
    status: number,
    { raw, phrase }: { readonly raw: RawFields; readonly phrase: string },
    { redaction, method }: Hidden,
  ): void {
    const bodiless = method === 'HEAD' || BODILESS.has(status);
    const { fields, body } = this.#convert.redactHead(this.#convert.fields(raw), { status, bodiless }, redaction);
    if (body !== undefined) this.#way = this.#wayOf(body);
    this.#reply.head(status, redaction.text(phrase), fields);
  }

  #wayOf(body: { readonly filter: BodyFilter } | { readonly recoder: Recoder }): BodyWay {
    if ('filter' in body) return new FilteredBody(this.#reply, body.filter);
    return new RecodedBody(this.#reply, body.recoder, {
      release: () => this.#release(),
      failed: (fault) => {
        this.#abort?.(fault);
        this.#settle(fault, undefined);
      },
    });
  }

  #fields(raw: RawFields): string[] {
    const fields = this.#convert.fields(raw);
    return this.#hidden === undefined ? fields : this.#convert.redactFields(fields, this.#hidden.redaction);
  }

  #trailers(raw: RawFields): string[] | undefined {
    if (raw.length === 0) return undefined;
    const fields = this.#convert.trailers(raw);
    return this.#hidden === undefined ? fields : this.#convert.redactFields(fields, this.#hidden.redaction);
  }

  /** A piece of the body. The upstream is held while the sandbox does not read. */
  onData(chunk: Buffer): boolean {
    this.#trace.bytesReceived += chunk.length;
    if (!(this.#way === undefined ? this.#reply.write(chunk) : this.#way.write(chunk))) {
      this.#held = true;
      this.#gate.hold();
    }
    return true;
  }

  /** The whole answer is in. */
  onComplete(trailers: RawFields): void {
    if (this.#way !== undefined) {
      this.#complete = true;
      this.#way.end(() => this.#end(trailers));
    } else this.#end(trailers);
  }

  #end(trailers: RawFields): void {
    if (this.#done) return;
    this.#reply.end(this.#trailers(trailers));
    this.#settle(undefined, undefined);
  }

  /** The upstream switched protocols. */
  onUpgrade(status: number, raw: RawFields, stream: Duplex): void {
    this.#trace.waitMs = performance.now() - this.#trace.dispatchedAt;
    this.#trace.status = status;
    this.#settle(undefined, { stream, reason: 'Switching Protocols', fields: this.#fields(raw) });
  }

  /** The attempt failed, at whatever point. */
  onError(error: Error): void {
    // Undici misses the body that the Content-Length of a 304 speaks of, though none belongs there (RFC 9110 section 8.6).
    if (BODILESS.has(this.#trace.status) && errorCode(error) === 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH') {
      this.onComplete([]);
      return;
    }
    const stalled = this.#held && errorCode(error) === 'UND_ERR_BODY_TIMEOUT';
    const fault = stalled ? new Fault('client_closed', 'the sandbox read no further', error) : exchangeFault(error);
    this.#settle(fault, undefined);
  }

  #settle(fault: Fault | undefined, switched: Switched | undefined): void {
    if (this.#done) return;
    this.#done = true;
    if (fault !== undefined) this.#way?.giveUp();
    this.#gate.release();
    this.#settled({ fault, sent: this.#sent, switched, trouble: this.#trouble });
  }
}

const BODILESS: ReadonlySet<number> = new Set([204, 304]);

function LEFT(): Fault {
  return new Fault('client_closed', 'the sandbox left before the answer was complete');
}
