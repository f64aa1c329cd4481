// What becomes of connections in the moment after a port has accepted them: the proxy port, and plain HTTP that was led here.
// Both look at the first bytes and hand on; where the sandbox was going before it was led here is noted, and nothing of it is judged.
import type { Socket } from 'node:net';
import { parseAddress } from '../exchange/authority.ts';
import type { Host } from '../exchange/authority.ts';
import { Refusal } from '../exchange/codes.ts';
import type { Origin, Scheme } from '../exchange/stages.ts';
import type { Doors } from './doors.ts';
import { FirstBytes } from './first-bytes.ts';
import type { Led } from './tunnels.ts';

/** The way from a port to the doors. */
export interface Entrance {
  /** Takes in a connection that has just been accepted. */
  admit(socket: Socket): void;
  /** Refuses one that has said nothing yet; in the ledger like every refusal. */
  turnAway(socket: Socket, trouble: Refusal): void;
  /** Closes what has said nothing so far. */
  close(): void;
}

/** Of connections that were led to one port. */
export interface Destination {
  /** The port that sandboxes dial */
  readonly port: number;
  /** Whether the machine itself has the address: it then says nothing of where a connection was going */
  readonly isOwnAddress: (address: Host) => boolean;
}

/** What was to have come by then. */
const LATE = new Refusal('request_timeout', 'the header section did not arrive in time');

/** The entrance of the proxy port: HTTP/1.1 and HTTP/2, first bytes within `withinMs`. */
export function proxyEntrance({ http1, http2 }: Doors, withinMs: number): Entrance {
  const firstBytes = new FirstBytes({
    withinMs,
    take: (socket, isHttp2) => (isHttp2 ? http2 : http1).take(socket),
    late: (socket) => http1.turnAway(socket, LATE),
  });
  return {
    admit: (socket) => firstBytes.watch(socket),
    turnAway: (socket, trouble) => http1.turnAway(socket, trouble),
    close: () => firstBytes.close(),
  };
}

/** The entrance of plain HTTP that was led here. */
export function plainEntrance({ http1, tunnels }: Doors, withinMs: number, destination: Destination): Entrance {
  const turnAway = (socket: Socket, trouble: Refusal): void => {
    tunnels.mark(socket, ledHere(socket, 'http', destination));
    http1.turnAway(socket, trouble);
  };
  const firstBytes = new FirstBytes({
    withinMs,
    take: (socket, isHttp2) => tunnels.lead(socket, isHttp2 ? 'h2' : 'http/1.1', ledHere(socket, 'http', destination)),
    late: (socket) => turnAway(socket, LATE),
  });
  return { admit: (socket) => firstBytes.watch(socket), turnAway, close: () => firstBytes.close() };
}

/**
 * What is known of a connection that was led here. Its local address is the one that the sandbox dialled where the machine answers for
 * any address (a local route, TPROXY); a redirect or a DNS answer has put one of the machine's own there.
 */
export function ledHere(socket: Socket, scheme: Scheme, { port, isOwnAddress }: Destination): Led {
  // A socket that listens for both families shows IPv4 inside IPv6.
  const local = parseAddress((socket.localAddress ?? '').replace(/^::ffff:(?=\d+\.)/i, ''));
  const address = local === undefined || isOwnAddress(local) ? undefined : local;
  const origin: Origin = { scheme, port, address };
  return { origin, client: socket.remoteAddress ?? '' };
}
