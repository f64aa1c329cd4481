// A request body that must be known whole before its request goes out. It must never hold more than it was told to, nor wait longer
// for it than for one that streams: silence and a sandbox that leaves end it in the same way.
import { Fault } from '../exchange/codes.ts';
import type { RequestBody } from './request-body.ts';

/** Reads it all. Rejects with a Fault, `credential_unavailable` where it is longer than `most` bytes. */
export function holdBody(body: RequestBody, most: number, signal: AbortSignal): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const left = (): void => void body.destroy(new Fault('client_closed', 'the sandbox left before its request was complete'));
    body.on('data', (chunk: Buffer) => {
      length += chunk.length;
      if (length > most) body.destroy(tooLong(most));
      else chunks.push(chunk);
    });
    body.once('end', () => resolve(Buffer.concat(chunks)));
    body.once('error', reject);
    body.once('close', () => signal.removeEventListener('abort', left));
    signal.addEventListener('abort', left);
    if (signal.aborted) left();
  });
}

function tooLong(most: number): Fault {
  return new Fault('credential_unavailable', `the request body is over ${most} bytes, and has to be known whole to be signed`);
}
