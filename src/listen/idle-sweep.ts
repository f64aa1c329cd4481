// Connections of sandboxes that nothing moves on any more: idle between two exchanges, or left with an answer that nobody reads.
// One look over them all from time to time costs less than a timer that is wound up at each answer, as Node would have it.
// It must never end a connection whose exchange waits for the upstream: those waits have deadlines of their own.
import type { Duplex } from 'node:stream';
import type { Http1Reply } from './http1-reply.ts';

/** Longest waits, in `ms`. */
export interface IdleLimits {
  readonly keepAliveMs: number;
  /** Within which a sandbox takes some of what is left of an answer, once the upstream has given all of it */
  readonly bodyIdleMs: number;
}

/** How much of a tail was left, and since when it has been as much. */
interface Tail {
  readonly left: number;
  readonly since: number;
}

/** Looks from time to time at the replies of all connections, given the newest of each. Returns what ends that. */
export function startIdleSweep(last: ReadonlyMap<Duplex, Http1Reply>, limits: IdleLimits): () => void {
  const tails = new WeakMap<Http1Reply, Tail>();
  const isStuck = (socket: Duplex, reply: Http1Reply, now: number): boolean => {
    // Not bytesWritten: that counts what Node has taken, not what the sandbox has.
    const left = socket.writableLength;
    const tail = tails.get(reply);
    if (tail?.left === left) return now - tail.since > limits.bodyIdleMs;
    tails.set(reply, { left, since: now });
    return false;
  };
  const sweep = (): void => {
    const now = performance.now();
    for (const [socket, newest] of last) {
      let reply = newest;
      while (reply.behind !== undefined) reply = reply.behind;
      const over = reply.closed ? now - reply.closedAt > limits.keepAliveMs : reply.isTail && isStuck(socket, reply, now);
      if (over) socket.destroy();
    }
  };
  const timer = setInterval(sweep, Math.min(5000, limits.keepAliveMs / 4, limits.bodyIdleMs / 4)).unref();
  return () => clearInterval(timer);
}
