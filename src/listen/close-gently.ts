// The end of a connection whose last answer must still be read: FIN first, then a bounded drain of what the sandbox goes on sending,
// because unread bytes make the kernel send a reset, and a reset eats the answer (fault D10). It must never hold a connection for long.
import type { Duplex } from 'node:stream';

/** Bytes that are still taken in after the last answer has gone out. */
const LINGER_BYTES = 1024 * 1024;
/** How long that may go on, in `ms`. */
const LINGER_MS = 2000;

/** Ends the connection, and destroys it once the sandbox has ended its side too, has sent too much, or has taken too long. */
export function closeGently(stream: Duplex): void {
  if (stream.destroyed) return;
  let taken = 0;
  const gone = (): void => void stream.destroy();
  const timer = setTimeout(gone, LINGER_MS);
  stream.once('close', () => clearTimeout(timer));
  stream.on('end', gone);
  stream.on('data', (chunk: Buffer) => {
    taken += chunk.length;
    if (taken > LINGER_BYTES) gone();
  });
  stream.end();
  stream.resume();
}
