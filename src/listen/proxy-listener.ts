// The proxy port: binds an address, hands each connection to the door that speaks as it begins, holds the number of connections, and
// lets go in order at the end. It must never close an exchange that is under way before the drain time is over.
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { Refusal } from '../exchange/codes.ts';
import { logAcceptTrouble } from '../foundation/accept-trouble.ts';
import type { Logger } from '../foundation/logger.ts';
import type { Doors } from './doors.ts';
import { FirstBytes } from './first-bytes.ts';

/** A listening port. */
export interface ProxyListener {
  readonly host: string;
  readonly port: number;
  /** Stops accepting, waits for what is under way up to `drainMs`, then cuts everything. Resolves when all of it is closed. */
  close(drainMs: number): Promise<void>;
}

/** What the listener is told. */
export interface ProxyListenerOptions {
  readonly doors: Doors;
  readonly host: string;
  readonly port: number;
  readonly maxConnections: () => number;
  /** First bytes of a connection, within so many `ms` */
  readonly headerMs: number;
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
  const { http1, http2 } = options.doors;
  const open = new Set<Socket>();
  const firstBytes = new FirstBytes({
    withinMs: options.headerMs,
    take: (socket, isHttp2) => (isHttp2 ? http2 : http1).take(socket),
    late: (socket) => http1.turnAway(socket, new Refusal('request_timeout', 'the header section did not arrive in time')),
  });
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    open.add(socket);
    options.onOpen();
    socket.once('close', () => {
      open.delete(socket);
      options.onClose();
    });
    const max = options.maxConnections();
    // An answer takes a while to be read, so in a flood there is none: what is turned away must not pile up either.
    if (open.size > 2 * max) socket.destroy();
    else if (open.size > max) http1.turnAway(socket, new Refusal('limit_reached', 'too many connections are open'));
    else firstBytes.watch(socket);
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
      firstBytes.close();
      http2.goAway();
      const step = setInterval(() => {
        http1.closeIdle();
        if (open.size > 0 && performance.now() < deadline) return;
        for (const socket of open) socket.destroy();
        if (open.size > 0 && performance.now() < deadline + CLOSE_MS) return;
        clearInterval(step);
        http1.close();
        http2.close();
        resolve();
      }, DRAIN_STEP_MS);
    });
  }
}
