// Inside a CONNECT: the first bytes decide what the tunnel carries, and every request in it becomes an Arrival of its own.
// The tunnel's authority is the ceiling of all of them. A ClientHello must name that host; bytes that are neither TLS nor HTTP go nowhere.
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import type { SecureContext } from 'node:tls';
import { parseHost } from '../exchange/authority.ts';
import type { Host } from '../exchange/authority.ts';
import { Fault, Refusal } from '../exchange/codes.ts';
import type { Ceiling, Door, Origin, Scheme, TunnelEnd } from '../exchange/stages.ts';
import type { ServerName } from './client-hello.ts';
import { readOpening } from './opening.ts';
import type { Opening } from './opening.ts';

/** What the requests of one stream have in common: a tunnel that has been let through, or a connection at a transparent door. */
export interface Tunnel {
  readonly door: Door;
  /** `undefined` at a transparent door, where each request names its host itself */
  readonly ceiling: Ceiling | undefined;
  readonly origin: Origin | undefined;
  readonly client: string;
  /** Exchanges that came out of it so far */
  carried: number;
}

/** What is wrong with a CONNECT on a stream; only at the proxy port there is nothing. */
export function connectTrouble(tunnel: Tunnel | undefined): Refusal | undefined {
  if (tunnel === undefined) return undefined;
  return new Refusal('bad_request', tunnel.ceiling === undefined ? 'CONNECT is for the proxy port' : 'CONNECT inside a tunnel');
}

/** What is spoken inside a tunnel. */
export type Spoken = 'http/1.1' | 'h2';

/** What a tunnel needs of the rest of its room. */
export interface TunnelOptions {
  /** The leaf for a host, as a TLS context. Throws where none can be minted. */
  readonly contextFor: (host: Host) => SecureContext;
  /** Hands a stream of HTTP over to the door that speaks it. */
  readonly adopt: (stream: Duplex, tunnel: Tunnel, protocol: Spoken) => void;
  /** Runs a passed-through connection through the journey. */
  readonly passThrough: (stream: Duplex, tunnel: Tunnel) => Promise<void>;
  /** First bytes, ClientHello and handshake, each within this many `ms` */
  readonly handshakeMs: number;
}

/** Fatal alert 112, unrecognized_name (RFC 6066 section 3). */
export const UNRECOGNIZED_NAME = Buffer.from([0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x70]);

/** A ceiling whose scheme is not known before the tunnel has opened. */
export type Opened = Omit<Ceiling, 'scheme'> & { readonly door: Door; readonly client: string; readonly passthrough: boolean };

/** Lives through a tunnel whose 200 has been sent. Resolves when its stream has closed. Never rejects. */
export async function runTunnel(stream: Duplex, opened: Opened, options: TunnelOptions): Promise<TunnelEnd> {
  const closed = new Promise<void>((resolve) => {
    if (stream.destroyed) resolve();
    else stream.once('close', () => resolve());
  });
  let verdict: Refusal | Fault | undefined;
  const cut = (reason: Refusal | Fault): void => {
    verdict ??= reason;
    stream.destroy();
  };
  const slow = setTimeout(
    () => cut(new Refusal('request_timeout', 'nothing came through the tunnel in time')),
    options.handshakeMs,
  );
  const opening = await readOpening(stream);
  clearTimeout(slow);
  const { door, client } = opened;
  const ceiling = ceilingOf(opened, opening);
  const tunnel: Tunnel = { door, ceiling, origin: undefined, client, carried: 0 };
  const trouble = verdict ?? openingTrouble(opening, opened);
  if (trouble !== undefined) {
    if (opening.kind === 'tls') stream.end(UNRECOGNIZED_NAME, () => cut(trouble));
    else cut(trouble);
  } else if (opened.passthrough) {
    tunnel.carried = 1;
    await options.passThrough(stream, tunnel);
    stream.destroy();
  } else if (opening.kind === 'http' || opening.kind === 'h2') {
    options.adopt(stream, tunnel, opening.kind === 'h2' ? 'h2' : 'http/1.1');
  } else {
    terminate(stream, { tunnel, host: opened.authority.host, cut, options });
  }
  await closed;
  return { carried: tunnel.carried, verdict: verdict ?? trouble };
}

function ceilingOf(opened: Opened, opening: Opening): Ceiling {
  const scheme: Scheme = opening.kind === 'http' || opening.kind === 'h2' ? 'http' : 'https';
  return { scheme, authority: opened.authority, identity: opened.identity };
}

function openingTrouble(opening: Opening, opened: Opened): Refusal | Fault | undefined {
  switch (opening.kind) {
    case 'closed':
      return new Fault('client_closed', 'the sandbox closed the tunnel before it said anything');
    case 'other':
      return new Refusal('bad_request', 'the tunnel carries neither TLS nor HTTP');
    case 'http':
    case 'h2':
      return opened.passthrough
        ? new Refusal('bad_request', 'a tunnel that passes TLS through carries no plain HTTP')
        : undefined;
    case 'tls':
      return nameTrouble(opening.serverName, opened.authority.host);
  }
}

function nameTrouble(name: ServerName, host: Host): Refusal | undefined {
  if (name === 'absent') return undefined;
  if (name === 'unreadable') return new Refusal('host_mismatch', 'the ClientHello does not name exactly one host');
  // Brackets belong into an authority; in a ClientHello they would be one more spelling.
  if (!name.host.startsWith('[') && parseHost(name.host) === host) return undefined;
  return new Refusal('host_mismatch', 'the ClientHello names another host than the CONNECT');
}

/** Shakes hands as the tunnel's host and hands the decrypted stream over. */
function terminate(
  stream: Duplex,
  {
    tunnel,
    host,
    cut,
    options,
  }: {
    readonly tunnel: Tunnel;
    readonly host: Host;
    readonly cut: (reason: Fault | Refusal) => void;
    readonly options: TunnelOptions;
  },
): void {
  let secured: TLSSocket;
  try {
    secured = new TLSSocket(stream, {
      isServer: true,
      secureContext: options.contextFor(host),
      ALPNProtocols: ['h2', 'http/1.1'],
    });
  } catch (error) {
    cut(new Fault('internal_error', 'no certificate could be made for the host', error));
    return;
  }
  const slow = setTimeout(() => cut(new Refusal('request_timeout', 'the TLS handshake took too long')), options.handshakeMs);
  const failed = (error?: Error): void => {
    clearTimeout(slow);
    cut(new Fault('client_tls', "the sandbox's client broke off the TLS handshake", error));
  };
  const closed = (): void => failed();
  // The stream may stay half open, so the end of what the sandbox says is not yet a close: a client that does not trust the CA just leaves.
  secured.on('error', ignore).once('error', failed).once('end', closed).once('close', closed);
  secured.once('secure', () => {
    clearTimeout(slow);
    secured.off('error', failed).off('end', closed).off('close', closed);
    options.adopt(secured, tunnel, secured.alpnProtocol === 'h2' ? 'h2' : 'http/1.1');
  });
}

function ignore(): void {}
