// The proxy port: binds the HTTP/1.1 door to an address, holds the number of connections, and lets go in order at the end.
// It must never close an exchange that is under way before the drain time is over.
import type { AddressInfo, Socket } from 'node:net';
import { Refusal } from '../exchange/codes.ts';
import { logAcceptTrouble } from '../foundation/accept-trouble.ts';
import type { Logger } from '../foundation/logger.ts';
import type { Http1Door } from './http1-door.ts';

/** A listening port. */
export interface ProxyListener {
  readonly host: string;
  readonly port: number;
  /** Stops accepting, waits for what is under way up to `drainMs`, then cuts everything. Resolves when all of it is closed. */
  close(drainMs: number): Promise<void>;
}

/** What the listener is told. */
export interface ProxyListenerOptions {
  readonly door: Http1Door;
  readonly host: string;
  readonly port: number;
  readonly maxConnections: () => number;
  readonly onOpen: () => void;
  readonly onClose: () => void;
  readonly log: Logger;
}

/** How often a draining listener looks for connections that have fallen idle, in `ms`. */
const DRAIN_STEP_MS = 50;
/** How long sockets that were cut may take to close, in `ms`: what is written down at their close must not come too late */
const CLOSE_MS = 2000;

/** Binds the port. Rejects with the system's error where it cannot be had. */
export async function listenProxy(options: ProxyListenerOptions): Promise<ProxyListener> {
  const { server } = options.door;
  const open = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    if (options.door.isInside(socket)) return;
    open.add(socket);
    options.onOpen();
    socket.once('close', () => {
      open.delete(socket);
      options.onClose();
    });
    const max = options.maxConnections();
    // An answer takes a while to be read, so in a flood there is none: what is turned away must not pile up either.
    if (open.size > 2 * max) socket.destroy();
    else if (open.size > max) options.door.turnAway(socket, new Refusal('limit_reached', 'too many connections are open'));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host: options.host, port: options.port, exclusive: false }, () => {
      server.off('error', reject).on('error', logAcceptTrouble(options.log, 'proxy'));
      resolve();
    });
  });
  const { address, port } = server.address() as AddressInfo;
  return { host: address, port, close: (drainMs) => drain(drainMs) };

  function drain(drainMs: number): Promise<void> {
    return new Promise((resolve) => {
      const deadline = performance.now() + drainMs;
      server.close();
      const step = setInterval(() => {
        server.closeIdleConnections();
        if (open.size > 0 && performance.now() < deadline) return;
        for (const socket of open) socket.destroy();
        if (open.size > 0 && performance.now() < deadline + CLOSE_MS) return;
        clearInterval(step);
        resolve();
      }, DRAIN_STEP_MS);
    });
  }
}
