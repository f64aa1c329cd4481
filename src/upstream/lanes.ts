// The pool: connections by lane. A lane is one sandbox's way to one authority under one set of opened ranges,
// so that a connection is never shared between sandboxes and never outlives the rule that let it be dialled.
// It must never open a connection itself, and never hand out one that is in use, or has no room for one exchange more.
import { LRUCache } from 'lru-cache';
import type { Carrier } from './carrier.ts';
import type { Fault } from '../exchange/codes.ts';
import type { UpstreamConnection } from './connection.ts';
import type { UpstreamSession } from './session.ts';

/** What an upstream was found to speak where that is not whatever it is offered. */
export type Spoken = 'http/1.1 only' | 'h2 only';

interface Lane {
  open: number;
  readonly idle: UpstreamConnection[];
  readonly sessions: UpstreamSession[];
}

/** Lanes whose upstreams are remembered. */
const MOST_REMEMBERED = 10_000;

/** Connections by lane. */
export class Lanes {
  readonly #lanes = new Map<string, Lane>();
  readonly #all = new Set<Carrier>();
  readonly #retired = new WeakSet<Carrier>();
  readonly #spoken = new LRUCache<string, Spoken>({ max: MOST_REMEMBERED });
  readonly #openings = new Map<string, Promise<Fault | undefined>>();
  #epoch = 0;

  /** Whether a connection waits, or has room: a route over it needs no resolver. */
  warm(key: string): boolean {
    const lane = this.#lanes.get(key);
    if (lane === undefined) return false;
    const { idle, sessions } = lane;
    if (idle[idle.length - 1]?.alive === true) return true;
    for (const session of sessions) if (session.hasRoom) return true;
    return false;
  }

  /** Takes the most recently used idle connection, if there is one. */
  take(key: string): UpstreamConnection | undefined {
    const idle = this.#lanes.get(key)?.idle;
    for (let connection = idle?.pop(); connection !== undefined; connection = idle?.pop()) {
      if (connection.alive) return connection;
    }
    return undefined;
  }

  /** Takes a place on a session that has room, if there is one; `upgrades`: one that WebSockets may be opened on. */
  takeSession(key: string, upgrades = false): UpstreamSession | undefined {
    for (const session of this.#lanes.get(key)?.sessions ?? []) {
      if (!session.hasRoom || (upgrades && session.takesUpgrades !== true)) continue;
      session.take();
      return session;
    }
    return undefined;
  }

  /** Whether the upstream of a lane has said on a session that no WebSocket may be opened on it. */
  refusesUpgrades(key: string): boolean {
    const sessions = this.#lanes.get(key)?.sessions ?? [];
    return sessions.some((session) => session.usable && session.takesUpgrades === false);
  }

  /** Gives a connection back after its exchange; one that was retired meanwhile ends here. */
  give(key: string, connection: UpstreamConnection): void {
    if (this.#retired.has(connection)) connection.destroy();
    else if (connection.alive) this.#lanes.get(key)?.idle.push(connection);
  }

  /** Counts a connection in before it is dialled; false where the lane is full. */
  reserve(key: string, max: number): boolean {
    const lane = this.#lanes.get(key);
    if (lane === undefined) this.#lanes.set(key, { open: 1, idle: [], sessions: [] });
    else if (lane.open >= max) return false;
    else lane.open += 1;
    return true;
  }

  /** Keeps track of a connection that was reserved and is now open. `epoch` is that of the moment before it was dialled. */
  add(connection: Carrier, epoch: number): void {
    this.#all.add(connection);
    if (epoch !== this.#epoch) this.#retired.add(connection);
  }

  /** The same of a session, on which one place has been taken. */
  addSession(key: string, session: UpstreamSession, epoch: number): void {
    this.add(session, epoch);
    if (epoch === this.#epoch) this.#lanes.get(key)?.sessions.push(session);
    else session.retire();
  }

  /** Grows when connections are retired. */
  get epoch(): number {
    return this.#epoch;
  }

  /** What the upstream of a lane was found to speak. */
  spoken(key: string): Spoken | undefined {
    return this.#spoken.get(key);
  }

  /** Remembers it until the configuration changes; `undefined`: it takes what it is offered. `epoch` is that of before it was found. */
  remember(key: string, spoken: Spoken | undefined, epoch: number): void {
    if (epoch !== this.#epoch) return;
    if (spoken === undefined) this.#spoken.delete(key);
    else this.#spoken.set(key, spoken);
  }

  /**
   * A session that is being opened in a lane, for whoever would open another: resolves when there is one that has said what it takes, or
   * none, with a fault where the upstream cannot be reached.
   */
  opening(key: string): Promise<Fault | undefined> | undefined {
    return this.#openings.get(key);
  }

  /** Says that a session is being opened; what it returns says that it is open, or not. */
  announce(key: string): (fault: Fault | undefined) => void {
    const { promise, resolve } = withResolve<Fault | undefined>();
    this.#openings.set(key, promise);
    return (fault) => {
      if (this.#openings.get(key) === promise) this.#openings.delete(key);
      resolve(fault);
    };
  }

  /** Counts a connection out, opened or not. */
  release(key: string, connection: Carrier | undefined): void {
    if (connection !== undefined) this.#all.delete(connection);
    const lane = this.#lanes.get(key);
    if (lane === undefined) return;
    if (connection !== undefined) {
      remove(lane.idle, connection);
      remove(lane.sessions, connection);
    }
    lane.open -= 1;
    if (lane.open <= 0) this.#lanes.delete(key);
  }

  /** Open connections of all lanes. */
  get size(): number {
    return this.#all.size;
  }

  /** Lets no connection be used again, because what they were verified by has changed: idle ones end now, busy ones after their exchanges. */
  retire(): void {
    this.#epoch += 1;
    this.#spoken.clear();
    for (const connection of this.#all) {
      this.#retired.add(connection);
      connection.retire();
    }
    for (const lane of this.#lanes.values()) for (const connection of lane.idle.splice(0)) connection.destroy();
  }

  /** Ends every connection. */
  destroy(): void {
    for (const connection of this.#all) connection.destroy();
  }
}

function remove(from: Carrier[], connection: Carrier): void {
  const at = from.indexOf(connection);
  if (at >= 0) from.splice(at, 1);
}

function withResolve<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => undefined;
  const promise = new Promise<T>((done) => (resolve = done));
  return { promise, resolve };
}
