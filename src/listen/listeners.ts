// The ports: binds addresses, hands each connection to the entrance of its port, holds the number of connections over all of them, and
// lets go in order at the end. It must never close an exchange that is under way before the drain time is over.
import { createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { Refusal } from '../exchange/codes.ts';
import { logAcceptTrouble } from '../foundation/accept-trouble.ts';
import type { Logger } from '../foundation/logger.ts';
import type { Doors } from './doors.ts';
import type { Entrance } from './entrance.ts';

/** Where a port is, or is to be. */
export interface Port {
  readonly host: string;
  readonly port: number;
}

/** What listeners are told. */
export interface ListenersOptions {
  readonly doors: Pick<Doors, 'http1' | 'http2'>;
  /** Over all ports */
  readonly maxConnections: () => number;
  readonly onOpen: () => void;
  readonly onClose: () => void;
  readonly log: Logger;
}

/** How often draining listeners look for connections that have fallen idle, in `ms`. */
const DRAIN_STEP_MS = 50;
/** How long sockets that were cut may take to close, in `ms`: what is written down at their close must not come too late */
const CLOSE_MS = 2000;

/** The ports of all doors that carry connections. */
export class Listeners {
  readonly #options: ListenersOptions;
  readonly #open = new Set<Socket>();
  readonly #bound: { readonly server: Server; readonly entrance: Entrance }[] = [];
  #closing: Promise<void> | undefined = undefined;

  constructor(options: ListenersOptions) {
    this.#options = options;
  }

  /** Binds a port; `name` is for the log. Rejects with the system's error where it cannot be had. */
  async bind(name: string, { host, port }: Port, entrance: Entrance): Promise<Port> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => this.#accept(socket, entrance));
    this.#bound.push({ server, entrance });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen({ host, port, exclusive: false }, () => {
        server.off('error', reject).on('error', logAcceptTrouble(this.#options.log, name));
        resolve();
      });
    });
    const bound = server.address() as AddressInfo;
    return { host: bound.address, port: bound.port };
  }

  /** Stops accepting, waits for what is under way up to `drainMs`, then cuts everything. Resolves when all of it is closed. */
  close(drainMs: number): Promise<void> {
    return (this.#closing ??= this.#drain(drainMs));
  }

  #accept(socket: Socket, entrance: Entrance): void {
    const { onOpen, onClose, maxConnections } = this.#options;
    this.#open.add(socket);
    onOpen();
    socket.once('close', () => {
      this.#open.delete(socket);
      onClose();
    });
    const max = maxConnections();
    // An answer takes a while to be read, so in a flood there is none: what is turned away must not pile up either.
    if (this.#open.size > 2 * max) socket.destroy();
    else if (this.#open.size > max) entrance.turnAway(socket, new Refusal('limit_reached', 'too many connections are open'));
    else entrance.admit(socket);
  }

  #drain(drainMs: number): Promise<void> {
    const { http1, http2 } = this.#options.doors;
    return new Promise((resolve) => {
      const deadline = performance.now() + drainMs;
      for (const { server, entrance } of this.#bound) {
        server.close();
        entrance.close();
      }
      http2.goAway();
      const step = setInterval(() => {
        http1.closeIdle();
        if (this.#open.size > 0 && performance.now() < deadline) return;
        for (const socket of this.#open) socket.destroy();
        if (this.#open.size > 0 && performance.now() < deadline + CLOSE_MS) return;
        clearInterval(step);
        http1.close();
        http2.close();
        resolve();
      }, DRAIN_STEP_MS);
    });
  }
}
