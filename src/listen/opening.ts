// The first bytes of a tunnel: is it TLS, HTTP, or neither; and which name does its ClientHello ask for.
// The bytes are put back, so that whoever takes the socket over reads them exactly once. Nothing here decides about them.
import type { Socket } from 'node:net';
import { readClientHello } from './client-hello.ts';
import type { ServerName } from './client-hello.ts';

/** What a tunnel begins with. */
export type Opening =
  { readonly kind: 'tls'; readonly serverName: ServerName } | { readonly kind: 'http' | 'other' } | typeof CLOSED;

const CLOSED = { kind: 'closed' } as const;

/** Bytes that a request line needs to be told from other protocols: the longest method and a space. */
const METHOD = /^[A-Z-]{1,20}(?: |$)/;
const TLS_HANDSHAKE = 0x16;

/**
 * Reads the opening of a tunnel. Never rejects; a socket that ends or breaks first gives `closed`, a broken ClientHello `other`.
 * It waits for as long as the socket lives: the caller holds the deadline.
 */
export function readOpening(socket: Socket): Promise<Opening> {
  return new Promise((resolve) => {
    let bytes: Buffer | undefined;
    const look = (): void => {
      const more = socket.read() as Buffer | null;
      if (more === null) return;
      bytes = bytes === undefined ? more : Buffer.concat([bytes, more]);
      const opening = openingOf(bytes);
      if (opening === undefined) return;
      socket.unshift(bytes);
      settle(opening);
    };
    const gone = (): void => settle(CLOSED);
    const settle = (opening: Opening): void => {
      socket.off('readable', look).off('end', gone).off('close', gone);
      resolve(opening);
    };
    socket.on('readable', look).on('end', gone).on('close', gone);
    if (socket.destroyed || socket.readableEnded) gone();
    else look();
  });
}

/** Undefined where more bytes are needed. */
function openingOf(bytes: Buffer): Opening | undefined {
  if (bytes[0] !== TLS_HANDSHAKE) return { kind: METHOD.test(bytes.subarray(0, 21).toString('latin1')) ? 'http' : 'other' };
  const hello = readClientHello(bytes);
  if (hello === 'partial') return undefined;
  return hello === 'malformed' ? { kind: 'other' } : { kind: 'tls', serverName: hello.serverName };
}
