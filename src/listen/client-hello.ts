// The first bytes of a tunnel: is it TLS, HTTP, or neither; and which name does its ClientHello ask for.
// The bytes are put back, so that whoever takes the socket over reads them exactly once. Nothing here decides about them.
import type { Socket } from 'node:net';
import { getExtensionData, readTlsClientHello } from 'read-tls-client-hello';

/** What a tunnel begins with. */
export type Opening =
  | { readonly kind: 'tls'; /** `undefined` where the ClientHello names no host */ readonly serverName: string | undefined }
  | { readonly kind: 'http' }
  | { readonly kind: 'other' }
  | { readonly kind: 'closed' };

/** Bytes that a request line needs to be told from other protocols: the longest method and a space. */
const METHOD = /^[A-Z-]{1,20}(?: |$)/;
const TLS_HANDSHAKE = 0x16;

/** Reads the opening of a tunnel. Never rejects; a socket that ends or breaks first gives `closed`, a broken ClientHello `other`. */
export async function readOpening(socket: Socket): Promise<Opening> {
  const first = await firstBytes(socket);
  if (first === undefined) return { kind: 'closed' };
  socket.unshift(first);
  if (first[0] !== TLS_HANDSHAKE) return { kind: METHOD.test(first.subarray(0, 21).toString('latin1')) ? 'http' : 'other' };
  return Promise.race([readHello(socket), ended(socket)]);
}

async function readHello(socket: Socket): Promise<Opening> {
  try {
    const hello = await readTlsClientHello(socket);
    return { kind: 'tls', serverName: getExtensionData(hello, 'server_name')?.serverName };
  } catch {
    return { kind: socket.destroyed || socket.readableEnded ? 'closed' : 'other' };
  }
}

/** The reader of ClientHellos hears of a socket that breaks, not of one that ends. */
function ended(socket: Socket): Promise<Opening> {
  return new Promise((resolve) => socket.once('end', () => resolve({ kind: 'closed' })));
}

/** What stands in the socket's buffer first, or undefined where it ends before anything comes. */
function firstBytes(socket: Socket): Promise<Buffer | undefined> {
  return new Promise((resolve) => {
    const look = (): void => {
      const bytes = socket.read() as Buffer | null;
      if (bytes !== null) settle(bytes);
    };
    const gone = (): void => settle(undefined);
    const settle = (bytes: Buffer | undefined): void => {
      socket.off('readable', look).off('end', gone).off('close', gone);
      resolve(bytes);
    };
    socket.on('readable', look).on('end', gone).on('close', gone);
    look();
  });
}
