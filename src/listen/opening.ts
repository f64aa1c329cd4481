// The first bytes of a tunnel: is it TLS, HTTP/1.1, HTTP/2, or none of them; and which name does its ClientHello ask for.
// The bytes are put back, so that whoever takes the stream over reads them exactly once. Nothing here decides about them.
import type { Duplex } from 'node:stream';
import { readClientHello } from './client-hello.ts';
import type { ServerName } from './client-hello.ts';

/** What a tunnel begins with. */
export type Opening =
  { readonly kind: 'tls'; readonly serverName: ServerName } | { readonly kind: 'http' | 'h2' | 'other' } | typeof CLOSED;

const CLOSED = { kind: 'closed' } as const;

/** Bytes that a request line needs to be told from other protocols: the longest method and a space. */
const METHOD = /^[A-Z-]{1,20}(?: |$)/;
const TLS_HANDSHAKE = 0x16;
/** What a client of HTTP/2 says first (RFC 9113 section 3.4) */
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

/** Whether bytes begin with the preface of an HTTP/2 client; `undefined` where they may, once there are more of them. */
export function isPreface(bytes: Buffer): boolean | undefined {
  const length = Math.min(bytes.length, PREFACE.length);
  if (bytes.compare(PREFACE, 0, length, 0, length) !== 0) return false;
  return length === PREFACE.length ? true : undefined;
}

/**
 * Reads the opening of a tunnel. Never rejects; a stream that ends or breaks first gives `closed`, a broken ClientHello `other`.
 * It waits for as long as the stream lives: the caller holds the deadline.
 */
export function readOpening(stream: Duplex): Promise<Opening> {
  return new Promise((resolve) => {
    let bytes: Buffer | undefined;
    const look = (): void => {
      const more = stream.read() as Buffer | null;
      if (more === null) return;
      bytes = bytes === undefined ? more : Buffer.concat([bytes, more]);
      const opening = openingOf(bytes);
      if (opening === undefined) return;
      stream.unshift(bytes);
      settle(opening);
    };
    const gone = (): void => settle(CLOSED);
    const settle = (opening: Opening): void => {
      stream.off('readable', look).off('end', gone).off('close', gone);
      resolve(opening);
    };
    stream.on('readable', look).on('end', gone).on('close', gone);
    if (stream.destroyed || stream.readableEnded) gone();
    else look();
  });
}

/** Undefined where more bytes are needed. */
function openingOf(bytes: Buffer): Opening | undefined {
  if (bytes[0] !== TLS_HANDSHAKE) {
    const h2 = isPreface(bytes);
    if (h2 !== false) return h2 === undefined ? undefined : { kind: 'h2' };
    return { kind: METHOD.test(bytes.subarray(0, 21).toString('latin1')) ? 'http' : 'other' };
  }
  const hello = readClientHello(bytes);
  if (hello === 'partial') return undefined;
  return hello === 'malformed' ? { kind: 'other' } : { kind: 'tls', serverName: hello.serverName };
}
