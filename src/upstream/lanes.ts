// The pool: connections by lane. A lane is one sandbox's way to one authority under one set of opened ranges,
// so that a connection is never shared between sandboxes and never outlives the rule that let it be dialled.
// It must never open a connection itself, and never hand out one that is in use.
import type { UpstreamConnection } from './connection.ts';

interface Lane {
  open: number;
  readonly idle: UpstreamConnection[];
}

/** Connections by lane. */
export class Lanes {
  readonly #lanes = new Map<string, Lane>();
  readonly #all = new Set<UpstreamConnection>();
  readonly #retired = new WeakSet<UpstreamConnection>();
  #epoch = 0;

  /** Whether an idle connection waits: a route over it needs no resolver. */
  warm(key: string): boolean {
    const idle = this.#lanes.get(key)?.idle;
    return idle?.[idle.length - 1]?.alive === true;
  }

  /** Takes the most recently used idle connection, if there is one. */
  take(key: string): UpstreamConnection | undefined {
    const idle = this.#lanes.get(key)?.idle;
    for (let connection = idle?.pop(); connection !== undefined; connection = idle?.pop()) {
      if (connection.alive) return connection;
    }
    return undefined;
  }

  /** Gives a connection back after its exchange; one that was retired meanwhile ends here. */
  give(key: string, connection: UpstreamConnection): void {
    if (this.#retired.has(connection)) connection.destroy();
    else if (connection.alive) this.#lanes.get(key)?.idle.push(connection);
  }

  /** Counts a connection in before it is dialled; false where the lane is full. */
  reserve(key: string, max: number): boolean {
    const lane = this.#lanes.get(key);
    if (lane === undefined) this.#lanes.set(key, { open: 1, idle: [] });
    else if (lane.open >= max) return false;
    else lane.open += 1;
    return true;
  }

  /** Keeps track of a connection that was reserved and is now open. `epoch` is that of the moment before it was dialled. */
  add(connection: UpstreamConnection, epoch: number): void {
    this.#all.add(connection);
    if (epoch !== this.#epoch) this.#retired.add(connection);
  }

  /** Grows when connections are retired. */
  get epoch(): number {
    return this.#epoch;
  }

  /** Counts a connection out, opened or not. */
  release(key: string, connection: UpstreamConnection | undefined): void {
    if (connection !== undefined) this.#all.delete(connection);
    const lane = this.#lanes.get(key);
    if (lane === undefined) return;
    const at = connection === undefined ? -1 : lane.idle.indexOf(connection);
    if (at >= 0) lane.idle.splice(at, 1);
    lane.open -= 1;
    if (lane.open <= 0) this.#lanes.delete(key);
  }

  /** Open connections of all lanes. */
  get size(): number {
    return this.#all.size;
  }

  /** Lets no connection be used again, because what they were verified by has changed: idle ones end now, busy ones after their exchange. */
  retire(): void {
    this.#epoch += 1;
    for (const connection of this.#all) this.#retired.add(connection);
    for (const lane of this.#lanes.values()) for (const connection of lane.idle.splice(0)) connection.destroy();
  }

  /** Ends every connection. */
  destroy(): void {
    for (const connection of this.#all) connection.destroy();
  }
}
