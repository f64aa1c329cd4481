// One connection to an upstream: a vetted, secured socket with an HTTP/1.1 client on it, used by one exchange at a time.
// It must never open a second socket: when its own is gone the connection is over, so that every dial goes through the guard.
import type { Socket } from 'node:net';
import { Client } from 'undici';
import type { Host } from '../exchange/authority.ts';
import { makePatient } from './patient-socket.ts';
import type { Gate } from './patient-socket.ts';

/** Limits of a connection, durations in `ms`. */
export interface ConnectionLimits {
  readonly replyHeaderBytes: number;
  readonly replyMs: number;
  readonly bodyIdleMs: number;
  readonly upstreamKeepAliveMs: number;
}

/** A connection and what its lane needs to know of it. */
export class UpstreamConnection {
  readonly client: Client;
  readonly #socket: Socket;
  /** Judged before it was dialled */
  readonly address: Host;
  /** Holds the answer back while the sandbox does not read */
  readonly gate: Gate;
  /** Exchanges begun on it; above 1 it is reused, and may have been closed by the peer meanwhile (fault J01) */
  exchanges = 0;
  /** False once its socket is gone */
  alive = true;

  constructor(
    socket: Socket,
    options: { readonly origin: string; readonly address: Host; readonly limits: ConnectionLimits; readonly onEnd: () => void },
  ) {
    this.address = options.address;
    this.#socket = socket;
    this.gate = makePatient(socket);
    let handedOver = false;
    const { limits } = options;
    this.client = new Client(options.origin, {
      connect: (_options, callback) => {
        const usable = !handedOver && !socket.destroyed;
        handedOver = true;
        // Later, because the client starts its queue only for a callback that comes after it has returned.
        queueMicrotask(() => {
          if (usable) callback(null, socket);
          else callback(Object.assign(new Error('the connection is over'), { code: 'UND_ERR_SOCKET' }), null);
        });
      },
      pipelining: 1,
      maxHeaderSize: limits.replyHeaderBytes,
      headersTimeout: limits.replyMs,
      bodyTimeout: limits.bodyIdleMs,
      keepAliveTimeout: limits.upstreamKeepAliveMs,
      keepAliveMaxTimeout: limits.upstreamKeepAliveMs,
      keepAliveTimeoutThreshold: 1000,
    });
    socket.once('close', () => {
      this.alive = false;
      options.onEnd();
      this.client.destroy().catch(() => undefined);
    });
  }

  /** What has come in from the upstream so far, whether or not anyone has read it yet, in bytes after decryption. */
  get bytesRead(): number {
    return this.#socket.bytesRead;
  }

  /** Ends the connection; exchanges on it fail. */
  destroy(): void {
    this.alive = false;
    this.client.destroy().catch(() => undefined);
  }
}
