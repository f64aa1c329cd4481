// What can be known of a connection that http-mitm-proxy hands over: whether it is the inside of a tunnel, and for which name it shook hands.
// It must never take a connection for a tunnel's on the word of its port numbers alone.
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { parseHost } from '../exchange/authority.ts';
import { Refusal } from '../exchange/codes.ts';
import type { Ceiling } from '../exchange/stages.ts';

/**
 * The engine joins a tunnel to its listener by a connection within the machine, and knows it again by port numbers alone; a sandbox on
 * another address that hits on the same numbers must not pass for that tunnel.
 */
export function isLoopback(socket: Socket): boolean {
  return socket.remoteAddress === '127.0.0.1' || socket.remoteAddress === '::ffff:127.0.0.1';
}

/** What is wrong with a decrypted connection as such: it came out of no tunnel, or shook hands for another host than its tunnel's. */
export function tunnelTrouble(socket: Socket, ceiling: Ceiling | undefined): Refusal | undefined {
  if (!(socket instanceof TLSSocket)) return undefined;
  if (ceiling === undefined) return new Refusal('bad_request', 'this listener is for tunnels: send a CONNECT to the proxy first');
  // Set by Node on the server's side too: the SNI of the ClientHello, false where there was none.
  const { servername } = socket as { readonly servername?: string | false };
  if (servername === undefined || servername === false || parseHost(servername) === ceiling.authority.host) return undefined;
  return new Refusal('host_mismatch', 'the ClientHello names another host than the CONNECT');
}
