// The package ws on a stream that stands already, as either end: what an extended CONNECT (RFC 8441) hands out carries the same frames
// as an upgraded connection, but ws itself knows the handshake of HTTP/1.1 only. Compression is agreed on here as ws would do it.
import type { Duplex } from 'node:stream';
import * as ws from 'ws';

/** What of ws its types leave out. */
interface Compression {
  readonly params: object;
  offer(): object;
  accept(offers: readonly object[]): void;
}
interface Inside {
  readonly PerMessageDeflate: { new (options: { readonly isServer: boolean }): Compression; readonly extensionName: string };
  readonly extension: {
    parse(text: string): Readonly<Record<string, readonly object[]>>;
    format(extensions: Readonly<Record<string, object>>): string;
  };
}
const { PerMessageDeflate, extension } = ws as unknown as Inside;
const Openable = ws.WebSocket as unknown as new (address: null, protocols: undefined, options: object) => ws.WebSocket;
const DEFLATE = PerMessageDeflate.extensionName;

interface Unlocked {
  _isServer: boolean;
  _protocol: string;
  _extensions: Record<string, Compression>;
  setSocket(socket: Duplex, head: Buffer, options: { readonly maxPayload: number }): void;
}

/** Which end it is, and what the handshake agreed on. */
export interface Agreed {
  readonly end: 'client' | 'server';
  readonly protocol: string;
  /** As made by `offered` or `accepted` */
  readonly compression: Compression | undefined;
}

/** A WebSocket that is open already. */
export function webSocketOver(stream: Duplex, { end, protocol, compression }: Agreed): ws.WebSocket {
  const socket = new Openable(null, undefined, { autoPong: true, closeTimeout: 30_000 });
  const inside = socket as unknown as Unlocked;
  inside._isServer = end === 'server';
  inside._protocol = protocol;
  if (compression !== undefined) inside._extensions[DEFLATE] = compression;
  inside.setSocket(stream, Buffer.alloc(0), { maxPayload: 16 << 20 });
  return socket;
}

/** What a client offers, and what it makes of the answer's `sec-websocket-extensions`. */
export function offeredCompression(): {
  readonly offer: string;
  readonly agree: (answer: string | undefined) => Compression | undefined;
} {
  const compression = new PerMessageDeflate({ isServer: false });
  return {
    offer: extension.format({ [DEFLATE]: compression.offer() }),
    agree: (answer) => {
      const params = answer === undefined ? undefined : extension.parse(answer)[DEFLATE];
      if (params === undefined) return undefined;
      compression.accept(params);
      return compression;
    },
  };
}

/** What a server makes of an offer, and says to it. */
export function acceptedCompression(
  offer: string | undefined,
): { readonly compression: Compression; readonly answer: string } | undefined {
  const offers = offer === undefined ? undefined : extension.parse(offer)[DEFLATE];
  if (offers === undefined) return undefined;
  const compression = new PerMessageDeflate({ isServer: true });
  compression.accept(offers);
  return { compression, answer: extension.format({ [DEFLATE]: compression.params }) };
}
