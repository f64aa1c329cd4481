// HTTP/2 sessions that nothing moves on any more, or too much: idle, dead, left with answers that nobody reads, flooded with questions.
// One look over them all from time to time, as idle-sweep has it for HTTP/1.1. It must never end a stream that waits for the upstream.
import type { ServerHttp2Session } from 'node:http2';
import type { Duplex } from 'node:stream';
import type { Http2Reply } from './http2-reply.ts';
import type { IdleLimits } from './idle-sweep.ts';

/** A session in view. */
export class WatchedSession {
  readonly session: ServerHttp2Session;
  readonly stream: Duplex;
  /** Replies under way */
  readonly replies = new Set<Http2Reply>();
  /** `performance.now()` when the last reply was over */
  idleSince = performance.now();
  /** `performance.now()` when it was first seen with nothing left to do but close */
  closingSince: number | undefined = undefined;
  /** PING and SETTINGS frames since the last look */
  questions = 0;
  /** `performance.now()` when a PING went out that has not been answered */
  pingedAt: number | undefined = undefined;
  /** Octets that had come in at the last look, and when a PING was answered last */
  heard = 0;
  proven = -1;
  readonly tails = new Map<Http2Reply, { readonly left: number; readonly since: number }>();

  constructor(session: ServerHttp2Session, stream: Duplex) {
    this.session = session;
    this.stream = stream;
  }
}

/** Longest that a sandbox may leave a PING unanswered, in `ms`: while it waits for answers, and while it does not. */
const PING_MS = 60_000;
const IDLE_PING_MS = 5000;
/** How long a session that is over may take to close its connection, in `ms`. */
const CLOSE_MS = 2000;

/** Looks from time to time at all sessions. Returns what ends that. */
export function startSessionWatch(sessions: ReadonlySet<WatchedSession>, limits: IdleLimits): () => void {
  const sweep = (): void => {
    const now = performance.now();
    for (const each of sessions) {
      each.questions = 0;
      if (isOver(each, now, limits)) each.stream.destroy();
    }
  };
  const timer = setInterval(sweep, Math.min(5000, limits.keepAliveMs / 4, limits.bodyIdleMs / 4)).unref();
  return () => clearInterval(timer);
}

function isOver(watched: WatchedSession, now: number, { keepAliveMs, bodyIdleMs }: IdleLimits): boolean {
  const { session, replies } = watched;
  if (session.destroyed || (session.closed && replies.size === 0)) {
    // Node waits for the sandbox to close the connection, or to take what was written to it.
    watched.closingSince ??= now;
    return now - watched.closingSince > CLOSE_MS;
  }
  if (replies.size > 0) {
    endStuck(watched, now, bodyIdleMs);
    return isDead(watched, now, Math.min(bodyIdleMs, PING_MS));
  }
  if (now - watched.idleSince > keepAliveMs) session.close();
  return isDead(watched, now, Math.min(keepAliveMs, IDLE_PING_MS));
}

/** Ends streams whose answer is whole and is not being taken; the others go on. */
function endStuck({ replies, tails }: WatchedSession, now: number, bodyIdleMs: number): void {
  for (const reply of replies) {
    const left = reply.tail;
    if (left === undefined) continue;
    const tail = tails.get(reply);
    if (tail?.left !== left) tails.set(reply, { left, since: now });
    else if (now - tail.since > bodyIdleMs) reply.abort();
  }
}

/**
 * Whether a session answers no PING. One that Node's parser has ended with a GOAWAY reads no further, not even that its sandbox has
 * gone, and tells nobody: it would stay for ever, with its streams. What was alive when the last octet had come in is so still.
 */
function isDead(watched: WatchedSession, now: number, mostMs: number): boolean {
  const { session, stream, pingedAt } = watched;
  if (pingedAt !== undefined) return now - pingedAt > mostMs;
  const heard = (stream as { readonly bytesRead?: number }).bytesRead ?? now;
  const isQuiet = heard === watched.heard && heard !== watched.proven;
  watched.heard = heard;
  if (!isQuiet || session.closed) return false;
  watched.pingedAt = now;
  session.ping((error) => {
    if (error !== null) return;
    watched.pingedAt = undefined;
    watched.proven = (stream as { readonly bytesRead?: number }).bytesRead ?? 0;
    watched.heard = watched.proven;
  });
  return false;
}
