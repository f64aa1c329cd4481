// A sandbox's end of a connection that was led to a transparent door: it dials an address and speaks at once, to nobody's knowledge a proxy.
import tls from 'node:tls';
import { connectTo } from './sandbox-client.ts';

/** How to dial. */
export interface Dialled {
  /** Where the connection arrives */
  readonly port: number;
  /** The address that is dialled; any of 127.0.0.0/8 */
  readonly address?: string;
  /** Where the sandbox is; any of 127.0.0.0/8 */
  readonly from?: string;
  /** Left out: the ClientHello names nobody */
  readonly servername?: string;
  /** PEM that the client trusts */
  readonly ca: string;
  readonly alpn?: readonly string[];
}

/** Shakes hands. Rejects with what the client was told: an alert, a certificate that it does not trust, or a close. */
export async function openLed({ port, address, from, servername, ca, alpn = ['http/1.1'] }: Dialled): Promise<tls.TLSSocket> {
  const socket = await connectTo(port, address, from);
  const secured = tls.connect({
    socket,
    ca,
    ALPNProtocols: [...alpn],
    ...(servername === undefined ? { servername: '', host: address } : { servername }),
  });
  return new Promise((resolve, reject) => {
    secured.once('error', reject);
    secured.once('close', () => reject(new Error('closed during the handshake')));
    secured.once('secureConnect', () => {
      secured.off('error', reject).on('error', () => undefined);
      resolve(secured);
    });
  });
}

/** All bytes that come back until the other side has ended. */
export async function readToEnd(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}
