// What the doors share: which of their streams came out of a tunnel, and the life of a CONNECT, whichever door it came through.
// What a tunnel turns out to carry goes back to the door that speaks it. Nothing here decides whether a tunnel may be.
import type { Duplex } from 'node:stream';
import type { SecureContext } from 'node:tls';
import type { Authority, Host } from '../exchange/authority.ts';
import type { ReplyListener, ReplyPort } from '../exchange/reply-port.ts';
import type { Arrival, Door, Origin, TunnelEnd } from '../exchange/stages.ts';
import { createRequestIds } from '../foundation/request-id.ts';
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
  lead(stream: Duplex, protocol: Spoken, { origin, client }: { readonly origin: Origin; readonly client: string }): void {
    this.#byStream.set(stream, { door: 'transparent', ceiling: undefined, origin, client, carried: 0 });
    this.#options.take(stream, protocol);
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
      reply: new PassedReply(stream),
      stream,
    });
  }
}

/** The reply of bytes that nobody looks into: there is none to be had, but it can be cut, and it tells when the sandbox has left. */
class PassedReply implements ReplyPort {
  readonly #stream: Duplex;
  #listener: ReplyListener | undefined = undefined;
  readonly headSent = false;

  constructor(stream: Duplex) {
    this.#stream = stream;
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
    this.#stream.destroy();
  }
}
