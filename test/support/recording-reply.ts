// A ReplyPort that keeps what it is told, for tests that need an answer but no socket.
import { Duplex, PassThrough } from 'node:stream';
import type { HeaderFields } from '../../src/exchange/header-fields.ts';
import type { ReplyListener, ReplyPort } from '../../src/exchange/reply-port.ts';

/** A final head as it was handed over. */
export interface RecordedHead {
  readonly status: number;
  readonly reason: string;
  readonly fields: HeaderFields;
  readonly close: boolean;
}

/** Records every call. `sandboxLeaves()` and `sandboxReads()` play the other end. */
export class RecordingReply implements ReplyPort {
  headSent = false;
  closed = false;
  /** Names of the calls in order, as in `['invite', 'head', 'write', 'end']` */
  readonly calls: string[] = [];
  readonly interims: { readonly status: number; readonly fields: HeaderFields }[] = [];
  recordedHead: RecordedHead | undefined = undefined;
  trailers: HeaderFields | undefined = undefined;
  ended = false;
  aborted = false;
  /** What `write` answers; false asks the caller to wait */
  accepts = true;
  /** The test's end of the stream that `switchProtocols` hands out */
  readonly sandboxEnd: PassThrough = new PassThrough();
  readonly #chunks: Uint8Array[] = [];
  #listener: ReplyListener | undefined = undefined;

  /** The body so far. */
  get body(): string {
    return Buffer.concat(this.#chunks).toString();
  }

  /** The final status, 0 before the head. */
  get status(): number {
    return this.recordedHead?.status ?? 0;
  }

  sandboxLeaves(): void {
    this.closed = true;
    this.#listener?.gone();
  }

  sandboxReads(): void {
    this.accepts = true;
    this.#listener?.drained();
  }

  listen(listener: ReplyListener): void {
    this.#listener = listener;
  }

  invite(): void {
    this.calls.push('invite');
  }

  interim(status: number, fields: HeaderFields): void {
    this.calls.push('interim');
    this.interims.push({ status, fields });
  }

  head(status: number, reason: string, fields: HeaderFields, close = false): void {
    this.calls.push('head');
    this.headSent = true;
    this.recordedHead = { status, reason, fields, close };
  }

  write(chunk: Buffer): boolean {
    this.calls.push('write');
    this.#chunks.push(chunk);
    return this.accepts;
  }

  end(trailers?: HeaderFields): void {
    this.calls.push('end');
    this.ended = true;
    this.trailers = trailers;
  }

  switchProtocols(reason: string, fields: HeaderFields): Duplex {
    this.calls.push('switchProtocols');
    this.headSent = true;
    this.recordedHead = { status: 101, reason, fields, close: false };
    const toSandbox = this.sandboxEnd;
    const fromSandbox = new PassThrough();
    toSandbox.once('close', () => fromSandbox.end());
    return Duplex.from({ readable: fromSandbox, writable: toSandbox });
  }

  abort(): void {
    this.calls.push('abort');
    this.aborted = true;
    this.closed = true;
  }
}
