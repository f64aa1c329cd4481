// The proof of a WebSocket handshake over HTTP/1.1 (RFC 6455 section 1.3): whoever saw the key can give it, and nobody else.
// It knows nothing of either side; over HTTP/2 there is no such proof (RFC 8441 section 5), so the doors and the road make it up between them.
import { createHash, randomBytes } from 'node:crypto';

const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/** A fresh Sec-WebSocket-Key. */
export function newWebSocketKey(): string {
  return randomBytes(16).toString('base64');
}

/** The Sec-WebSocket-Accept that answers a key. */
export function acceptOf(key: string): string {
  return createHash('sha1').update(`${key.trim()}${GUID}`, 'latin1').digest('base64');
}
