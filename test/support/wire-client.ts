// One sandbox's client over every way into the house: whoever asks through it does not know which protocol carries the request, and
// sees what the wire shows all the same: interim heads, trailers, an answer that was cut.
// What a way is (door, protocol, scheme) stands beside it, for whoever must check what the ledger says.
import type { Duplex, Readable, Writable } from 'node:stream';
import { overHttp1 } from './wire-http1-client.ts';
import { overHttp2 } from './wire-http2-client.ts';
import { connectTo } from './sandbox-client.ts';
import type { Door } from './sandbox-client.ts';
import { plainTunnel, secureTunnel, secureTunnelOverHttp2 } from './wire-tunnel.ts';
import type { Fields, Head } from './wire.ts';

/** A request, apart from where it goes. */
export interface Asked {
  readonly method?: string;
  readonly path: string;
  /** Without Host, framing and what only a connection needs */
  readonly fields?: Fields;
  /** Whether a body follows; it is what is written to `out` */
  readonly body?: boolean;
  /** A WebSocket handshake: an upgrade, or an extended CONNECT (RFC 8441) */
  readonly websocket?: boolean;
}

/** An answer as it comes. */
export interface Incoming extends Head {
  readonly in: Readable;
  /** How it ended, once it is read to its end: with the framing's own end, or without */
  readonly ending: Promise<'whole' | 'cut'>;
  /** Complete once it has ended */
  readonly trailers: () => Fields;
}

/** A request under way. */
export interface SandboxExchange {
  /** Heads of 1xx so far */
  readonly interims: readonly Head[];
  /** Rejects where the connection or stream ended without one */
  readonly answer: Promise<Incoming>;
  readonly out: Writable;
  /** Ends the body. */
  finish(trailers?: Fields): void;
  /** The bytes of an accepted WebSocket handshake; rejects where it was declined */
  readonly switched: Promise<Duplex>;
  /** Breaks off: resets the stream of HTTP/2, or the connection of HTTP/1.1. */
  leave(): void;
}

/** A client that is bound to one scheme and authority. */
export interface SandboxClient {
  /** Sends a head. A CONNECT that was refused is the answer. */
  begin(asked: Asked): Promise<SandboxExchange>;
  close(): void;
}

/** One way in. */
export interface WireWay {
  readonly name: string;
  readonly door: 'proxy' | 'tunnel';
  readonly protocol: 'http/1.1' | 'h2';
  readonly scheme: 'http' | 'https';
  /** The protocol of the CONNECT, where there is one; a name is refused there */
  readonly connect?: 'http/1.1' | 'h2';
  readonly open: (door: Door, authority: string) => Promise<SandboxClient>;
}

/** Every way in. */
export const WIRE_WAYS: readonly WireWay[] = [
  {
    name: 'absolute-form, https target',
    door: 'proxy',
    protocol: 'http/1.1',
    scheme: 'https',
    open: async (door, authority) => overHttp1(() => connectTo(door.port), { authority, prefix: `https://${authority}` }),
  },
  {
    name: 'absolute-form, http target',
    door: 'proxy',
    protocol: 'http/1.1',
    scheme: 'http',
    open: async (door, authority) => overHttp1(() => connectTo(door.port), { authority, prefix: `http://${authority}` }),
  },
  {
    name: 'CONNECT, TLS, HTTP/1.1',
    door: 'tunnel',
    protocol: 'http/1.1',
    scheme: 'https',
    connect: 'http/1.1',
    open: async (door, authority) => overHttp1(() => secureTunnel(door, authority, ['http/1.1']), { authority }),
  },
  {
    name: 'CONNECT, TLS, h2',
    door: 'tunnel',
    protocol: 'h2',
    scheme: 'https',
    connect: 'http/1.1',
    open: async (door, authority) => overHttp2(() => secureTunnel(door, authority, ['h2']), { authority, scheme: 'https' }),
  },
  {
    name: 'h2 to the listener, :scheme https',
    door: 'proxy',
    protocol: 'h2',
    scheme: 'https',
    open: async (door, authority) => overHttp2(() => connectTo(door.port), { authority, scheme: 'https' }),
  },
  {
    name: 'h2 to the listener, :scheme http',
    door: 'proxy',
    protocol: 'h2',
    scheme: 'http',
    open: async (door, authority) => overHttp2(() => connectTo(door.port), { authority, scheme: 'http' }),
  },
  {
    name: 'CONNECT, h2 without TLS',
    door: 'tunnel',
    protocol: 'h2',
    scheme: 'http',
    connect: 'http/1.1',
    open: async (door, authority) => overHttp2(() => plainTunnel(door, authority), { authority, scheme: 'http' }),
  },
  {
    name: 'CONNECT over h2, TLS, HTTP/1.1',
    door: 'tunnel',
    protocol: 'http/1.1',
    scheme: 'https',
    connect: 'h2',
    open: async (door, authority) => overHttp1(() => secureTunnelOverHttp2(door, authority, ['http/1.1']), { authority }),
  },
  {
    name: 'CONNECT over h2, TLS, h2',
    door: 'tunnel',
    protocol: 'h2',
    scheme: 'https',
    connect: 'h2',
    open: async (door, authority) =>
      overHttp2(() => secureTunnelOverHttp2(door, authority, ['h2']), { authority, scheme: 'https' }),
  },
];
