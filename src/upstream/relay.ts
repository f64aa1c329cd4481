// Two streams tied together: bytes both ways with backpressure, half-close passed on, one idle limit for both directions.
// Whatever ends one side ends the other; nothing may be left half-open beyond the limit (faults J03, J07).
import type { Duplex } from 'node:stream';
import { Fault } from '../exchange/codes.ts';
import type { Trace } from '../exchange/trace.ts';

/**
 * Relays until both sides have ended. Resolves with what cut it short, or undefined after a clean end. Never rejects.
 * `idleMs`: silence in both directions after which both sides are closed.
 */
export function relay(
  sandbox: Duplex,
  upstream: Duplex,
  options: { readonly trace: Trace; readonly idleMs: number },
): Promise<Fault | undefined> {
  const { trace } = options;
  // One side may have ended and still want to hear the other out (fault J07).
  sandbox.allowHalfOpen = true;
  upstream.allowHalfOpen = true;
  return new Promise((resolve) => {
    let cut: Fault | undefined;
    let open = 2;
    const stop = (fault: Fault | undefined): void => {
      cut ??= fault;
      sandbox.destroy();
      upstream.destroy();
    };
    const idle = setTimeout(() => stop(new Fault('upstream_timeout', 'the connection was silent for too long')), options.idleMs);
    const closed = (): void => {
      open -= 1;
      if (open > 0) return;
      clearTimeout(idle);
      resolve(cut);
    };
    pump(sandbox, upstream, (bytes) => {
      trace.bytesSent += bytes;
      idle.refresh();
    });
    pump(upstream, sandbox, (bytes) => {
      trace.bytesReceived += bytes;
      idle.refresh();
    });
    sandbox.on('error', () => stop(new Fault('client_closed', 'the sandbox broke off the connection')));
    upstream.on('error', (error) => stop(new Fault('upstream_protocol', 'the upstream broke off the connection', error)));
    // Either may have broken off before the other was there; nothing will be heard of it any more.
    if (sandbox.destroyed) stop(new Fault('client_closed', 'the sandbox left before its upstream was there'));
    else if (upstream.destroyed) stop(new Fault('upstream_protocol', 'the upstream broke off the connection'));
    for (const [side, other] of [
      [sandbox, upstream],
      [upstream, sandbox],
    ] as const) {
      const gone = (): void => {
        if (side.readableEnded) endThenDestroy(other);
        else other.destroy();
        closed();
      };
      if (side.closed) gone();
      else side.once('close', gone);
    }
  });
}

/** What the closed side sent before it closed still goes out; then there is nobody left to read from. */
function endThenDestroy(stream: Duplex): void {
  if (stream.writableFinished) stream.destroy();
  else stream.end(() => stream.destroy());
}

function pump(from: Duplex, to: Duplex, count: (bytes: number) => void): void {
  from.on('data', (chunk: Buffer) => {
    count(chunk.length);
    if (!to.write(chunk)) from.pause();
  });
  to.on('drain', () => from.resume());
  // It may have ended before there was anyone to pass that on to.
  if (from.readableEnded) to.end();
  else from.on('end', () => to.end());
}
