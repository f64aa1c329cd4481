// The reply on a connection that has no words for one: it can be cut, and it tells when the sandbox has left.
// It must never put a byte of HTTP on the wire: what flows there is TLS between others, or was to become it.
import type { Duplex } from 'node:stream';
import type { ReplyListener, ReplyPort } from '../exchange/reply-port.ts';

/** How a connection is cut. */
export interface CutReplyOptions {
  /** Whether a refusal finds that it is too late to be written */
  readonly headSent: boolean;
  readonly cut: () => void;
}

/** See above. */
export class CutReply implements ReplyPort {
  readonly headSent: boolean;
  readonly #stream: Duplex;
  readonly #cut: () => void;
  #listener: ReplyListener | undefined = undefined;

  constructor(stream: Duplex, { headSent, cut }: CutReplyOptions) {
    this.headSent = headSent;
    this.#stream = stream;
    this.#cut = cut;
    stream.once('close', () => this.#listener?.gone());
  }

  get closed(): boolean {
    return this.#stream.destroyed;
  }

  listen(listener: ReplyListener): void {
    this.#listener = listener;
  }

  invite(): void {}

  interim(): void {}

  head(): void {}

  write(): boolean {
    return true;
  }

  end(): void {}

  switchProtocols(): Duplex {
    return this.#stream;
  }

  abort(): void {
    this.#cut();
  }
}
