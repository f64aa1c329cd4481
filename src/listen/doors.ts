// The doors together: one for each protocol that sandboxes speak, and the tunnels that lead from either into either.
// Who comes in by which is told from the first bytes, or from what a TLS handshake settled on; nothing here reads a request.
import type { SecureContext } from 'node:tls';
import type { Host } from '../exchange/authority.ts';
import type { Limits } from '../exchange/snapshot.ts';
import type { Arrival } from '../exchange/stages.ts';
import { Http1Door } from './http1-door.ts';
import { Http2Door } from './http2-door.ts';
import { Tunnels } from './tunnels.ts';

/** What the doors need from the house. */
export interface DoorsOptions {
  /** The journey. Never rejects. */
  readonly egress: (arrival: Arrival) => Promise<void>;
  /** The leaf for a host, as a TLS context. Throws where none can be minted. */
  readonly contextFor: (host: Host) => SecureContext;
  /** Limits in force; some of them stay as they are when the doors open */
  readonly limits: () => Limits;
}

/** The doors of a house. */
export interface Doors {
  readonly http1: Http1Door;
  readonly http2: Http2Door;
  readonly tunnels: Tunnels;
}

/** Makes the doors. They listen nowhere themselves. */
export function createDoors({ egress, contextFor, limits }: DoorsOptions): Doors {
  const tunnels = new Tunnels({
    egress,
    contextFor,
    handshakeMs: limits().handshakeMs,
    take: (stream, protocol) => (protocol === 'h2' ? http2 : http1).take(stream),
  });
  const http1 = new Http1Door({ egress, tunnels, limits: limits() });
  const http2 = new Http2Door({ egress, tunnels, limits });
  return { http1, http2, tunnels };
}
