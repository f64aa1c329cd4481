// What carries exchanges to an upstream, whichever protocol it speaks, as the road sees it: it hands out a way for one attempt.
// The road must never need to know which of the two it has; what differs between them stays behind this.
import type { Readable } from 'node:stream';
import type { Host } from '../exchange/authority.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { Arrival } from '../exchange/stages.ts';
import type { Answer } from './answer.ts';
import type { Gate } from './patient-socket.ts';

/** Limits of a connection, durations in `ms`. */
export interface ConnectionLimits {
  readonly replyHeaderBytes: number;
  readonly connectMs: number;
  readonly replyMs: number;
  readonly bodyIdleMs: number;
  readonly upstreamKeepAliveMs: number;
}

/** A connection to an upstream. */
export interface Carrier {
  /** Judged before it was dialled */
  readonly address: Host;
  /** Whether an exchange may begin on it; false once its socket is gone, or the upstream takes no more */
  readonly alive: boolean;
  /** Exchanges begun on it; above 1 it is reused, and may have been closed by the peer meanwhile (fault J01) */
  readonly exchanges: number;
  /** What has come in from the upstream so far, whether or not anyone has read it yet, in bytes after decryption */
  readonly bytesRead: number;
  /** The way of one attempt. */
  begin(): Way;
  /** An attempt on it has failed. */
  failed(): void;
  /** Takes no further exchange, and ends when those under way have. */
  retire(): void;
  /** Ends it; exchanges on it fail. */
  destroy(): void;
}

/** The way of one attempt. */
export interface Way {
  /** Holds the answer back while the sandbox does not read */
  readonly gate: Gate;
  /** Whether the attempt failed in a way that says that the upstream has not looked at the request (RFC 9113 section 8.7) */
  readonly unprocessed: boolean;
  /** Sends the request; everything that comes of it is the answer's to hear. */
  send(request: Outgoing, answer: Answer): void;
}

/** A request as it goes out; also what undici's dispatch takes. Holds secrets: never log it. */
export interface Outgoing {
  readonly method: string;
  /** With the query */
  readonly path: string;
  readonly headers: HeaderFields;
  readonly body: Readable | Buffer | null;
  readonly upgrade?: 'websocket';
  /** What the request came in as */
  readonly arrival: Arrival;
}
