// One connection to an upstream: a vetted, secured socket with an HTTP/1.1 client on it, used by one exchange at a time.
// It must never open a second socket: when its own is gone the connection is over, so that every dial goes through the guard.
import type { Socket } from 'node:net';
import { Client } from 'undici';
import type { Dispatcher } from 'undici';
import type { Host } from '../exchange/authority.ts';
import type { Secret } from '../foundation/secret.ts';
import type { Answer } from './answer.ts';
import type { Carrier, ConnectionLimits, Outgoing, Way } from './carrier.ts';
import { forwarded, ForwardedAnswer } from './forwarded.ts';
import { makePatient } from './patient-socket.ts';
import type { Gate } from './patient-socket.ts';

/** A connection and what its lane needs to know of it. It is its own way, for it has one at a time. */
export class UpstreamConnection implements Carrier, Way {
  readonly #client: Client;
  readonly #socket: Socket;
  readonly #origin: string;
  readonly address: Host;
  readonly gate: Gate;
  readonly unprocessed = false;
  /** Set where it leads to another proxy, which takes requests in absolute-form and no upgrade */
  readonly forwarding: { readonly authorization: Secret | undefined } | undefined;
  exchanges = 0;
  alive = true;

  constructor(
    socket: Socket,
    options: {
      readonly origin: string;
      readonly address: Host;
      readonly limits: ConnectionLimits;
      readonly onEnd: () => void;
      readonly forwarding?: { readonly authorization: Secret | undefined } | undefined;
    },
  ) {
    this.address = options.address;
    this.forwarding = options.forwarding;
    this.#origin = options.origin;
    this.#socket = socket;
    this.gate = makePatient(socket);
    let handedOver = false;
    const { limits } = options;
    this.#client = new Client(options.origin, {
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
      this.#client.destroy().catch(() => undefined);
    });
  }

  get bytesRead(): number {
    return this.#socket.bytesRead;
  }

  begin(): Way {
    this.exchanges += 1;
    return this;
  }

  send(request: Outgoing, answer: Answer): void {
    const { forwarding } = this;
    if (forwarding === undefined) this.#dispatch(request, answer);
    else this.#dispatch(forwarded(request, this.#origin, forwarding.authorization), new ForwardedAnswer(answer, forwarding));
  }

  #dispatch(request: Outgoing, answer: Answer | ForwardedAnswer): void {
    this.#client.dispatch(request as unknown as Dispatcher.DispatchOptions, answer as unknown as Dispatcher.DispatchHandler);
  }

  /** What came of the exchange may still stand in the socket. */
  failed(): void {
    this.destroy();
  }

  /** Its lane knows: it ends when it is given back. */
  retire(): void {}

  destroy(): void {
    this.alive = false;
    this.#client.destroy().catch(() => undefined);
  }
}
