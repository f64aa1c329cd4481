// How an answer leaves toward the sandbox, whatever the door speaks. Implemented by the doors, driven by upstream and reply.
// An implementation owns its socket; it must survive every call after the sandbox has left, by doing nothing.
import type { Duplex } from 'node:stream';
import type { Refusal } from './codes.ts';
import type { HeaderFields } from './header-fields.ts';

/** Who wants to know what becomes of a reply. */
export interface ReplyListener {
  /** The sandbox reads again after `write` returned false. */
  drained(): void;
  /** The sandbox left before the reply ended, or, with `trouble`, the rest of its request turned out unreadable. */
  gone(trouble?: Refusal): void;
}

/** One reply under way. Order: any number of interim(), then head(), write()…, end(); or switchProtocols(); or abort(). */
export interface ReplyPort {
  /** Whether a final head has been handed over; after that a refusal can only cut the reply short. */
  readonly headSent: boolean;
  /** Whether the sandbox is gone. */
  readonly closed: boolean;
  /** Sets the one listener; replaces an earlier one. */
  listen(listener: ReplyListener): void;
  /** Asks for the body: `100 Continue` where the sandbox waits for it, nothing otherwise. Idempotent. */
  invite(): void;
  /** A 1xx other than 100 and 101. */
  interim(status: number, fields: HeaderFields): void;
  /** The final head. `close`: the connection ends with this reply. */
  head(status: number, reason: string, fields: HeaderFields, close?: boolean): void;
  /** False asks the caller to wait for `drained`. */
  write(chunk: Buffer): boolean;
  /** Ends the reply, with trailer fields where given. */
  end(trailers?: HeaderFields): void;
  /**
   * Accepts a WebSocket handshake in the words of the sandbox's own protocol, 101 or the 200 of RFC 8441, and hands over the stream.
   * `fields` hold no Upgrade or Connection, and Sec-WebSocket-Accept only where the upstream spoke HTTP/1.1.
   */
  switchProtocols(reason: string, fields: HeaderFields): Duplex;
  /**
   * Where no head has gone out: hands the request back as one that nobody has looked at, so that the sandbox's client may repeat it by
   * itself, body and all. Left out where the sandbox's protocol has no words for that; HTTP/2 has (RFC 9113 section 8.7).
   */
  giveBack?(): void;
  /** Cuts the connection, or the stream of HTTP/2, so that the sandbox sees the reply is incomplete. */
  abort(): void;
}
