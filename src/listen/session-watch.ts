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
  pingedAt: number | undefined = undefined;
  heardAt = performance.now();
  readonly tails = new Map<Http2Reply, { readonly left: number; readonly since: number }>();

  constructor(session: ServerHttp2Session, stream: Duplex) {
    this.session = session;
    this.stream = stream;
  }
}

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

function isOver(watched: WatchedSession, now: number, limits: IdleLimits): boolean {
  const { session, replies } = watched;
  if (replies.size > 0 && !session.destroyed)
    return isStuck(watched, now, limits.bodyIdleMs) || isDead(watched, now, limits.bodyIdleMs);
  if (session.destroyed || session.closed) {
    // Node waits for the sandbox to close the connection, or to take what was written to it.
    watched.closingSince ??= now;
    return now - watched.closingSince > CLOSE_MS;
  }
  if (now - watched.idleSince > limits.keepAliveMs) session.close();
  return false;
}

/** Whether an answer that is whole is not being taken. That ends its stream; the others go on. */
function isStuck({ replies, tails }: WatchedSession, now: number, bodyIdleMs: number): boolean {
  for (const reply of replies) {
    const left = reply.tail;
    if (left === undefined) continue;
    const tail = tails.get(reply);
    if (tail?.left !== left) tails.set(reply, { left, since: now });
    else if (now - tail.since > bodyIdleMs) reply.abort();
  }
  return false;
}

/**
 * Whether a session with streams under way answers no PING. One that Node's parser has ended with a GOAWAY reads no further and tells
 * nobody: its streams would stay for ever.
 */
function isDead(watched: WatchedSession, now: number, bodyIdleMs: number): boolean {
  const { session, pingedAt } = watched;
  if (pingedAt !== undefined) return now - pingedAt > bodyIdleMs;
  if (session.closed || now - watched.heardAt < bodyIdleMs / 4) return false;
  watched.pingedAt = now;
  session.ping((error) => {
    if (error !== null) return;
    watched.pingedAt = undefined;
    watched.heardAt = performance.now();
  });
  return false;
}
