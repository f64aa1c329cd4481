// What the doors share: which of their streams came out of a tunnel, and the life of a CONNECT, whichever door it came through.
// What a tunnel turns out to carry goes back to the door that speaks it. Nothing here decides whether a tunnel may be.
import type { Duplex } from 'node:stream';
import type { SecureContext } from 'node:tls';
import type { Authority, Host } from '../exchange/authority.ts';
import type { Arrival, Door, Origin, TunnelEnd } from '../exchange/stages.ts';
import { createRequestIds } from '../foundation/request-id.ts';
import { CutReply } from './cut-reply.ts';
import { runTunnel } from './tunnel.ts';
import type { Spoken, Tunnel } from './tunnel.ts';

/** What tunnels need of the house and of the doors. */
export interface TunnelsOptions {
  /** The journey. Never rejects. */
  readonly egress: (arrival: Arrival) => Promise<void>;
  readonly contextFor: (host: Host) => SecureContext;
  /** `ms` */
  readonly handshakeMs: number;
  /** Hands a stream to the door that speaks its protocol. */
  readonly take: (stream: Duplex, protocol: Spoken) => void;
}

/** A CONNECT that has been let through and answered. */
export interface Connected {
  /** As it was judged */
  readonly authority: Authority;
  /** Default: a CONNECT at the proxy port */
  readonly door?: Door;
  /** Proxy-Authorization of the CONNECT */
  readonly identity: string | undefined;
  readonly client: string;
  readonly passthrough: boolean;
}

/** What is known of a connection that was led to a transparent door. */
export interface Led {
  readonly origin: Origin;
  readonly client: string;
}

/** The tunnels of all doors. */
export class Tunnels {
  readonly #options: TunnelsOptions;
  readonly #newId = createRequestIds();
  readonly #byStream = new WeakMap<Duplex, Tunnel>();

  constructor(options: TunnelsOptions) {
    this.#options = options;
  }

  /** The tunnel that a stream came out of; `undefined` where it came from the port. */
  of(stream: Duplex): Tunnel | undefined {
    return this.#byStream.get(stream);
  }

  /** Lives through a tunnel whose 200 has been sent. Resolves when its stream has closed. */
  run(stream: Duplex, { authority, door = 'tunnel', identity, client, passthrough }: Connected): Promise<TunnelEnd> {
    return runTunnel(
      stream,
      { authority, door, identity, client, passthrough },
      {
        contextFor: this.#options.contextFor,
        adopt: (inside, tunnel, protocol) => {
          this.#byStream.set(inside, tunnel);
          this.#options.take(inside, protocol);
        },
        passThrough: (inside, tunnel) => this.#passThrough(inside, tunnel),
        handshakeMs: this.#options.handshakeMs,
      },
    );
  }

  /** Takes in a connection that was led to a transparent door and carries HTTP as it is. */
  lead(stream: Duplex, protocol: Spoken, led: Led): void {
    this.mark(stream, led);
    this.#options.take(stream, protocol);
  }

  /** Has what a door says of a connection bear that it was led here. */
  mark(stream: Duplex, { origin, client }: Led): void {
    this.#byStream.set(stream, { door: 'transparent', ceiling: undefined, origin, client, carried: 0 });
  }

  #passThrough(stream: Duplex, tunnel: Tunnel): Promise<void> {
    return this.#options.egress({
      purpose: 'passthrough',
      requestId: this.#newId(),
      arrivedAt: performance.now(),
      door: tunnel.door,
      protocol: 'passthrough',
      method: 'CONNECT',
      target: '',
      pseudo: undefined,
      fields: [],
      version: '',
      trouble: undefined,
      ceiling: tunnel.ceiling,
      origin: undefined,
      client: tunnel.client,
      reply: new CutReply(stream, { headSent: false, cut: () => stream.destroy() }),
      stream,
    });
  }
}
