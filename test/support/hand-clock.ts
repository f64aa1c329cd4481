// A clock that a test moves by hand: what waits on it acts when its time has come, in order, and not before.
import type { Clock } from '../../src/credentials/fresh-source.ts';

interface Waiting {
  readonly at: number;
  readonly act: () => void;
}

/** See above. `now` begins at a round time of 2027. */
export class HandClock implements Clock {
  #now = Date.UTC(2027, 0, 1);
  readonly #waiting = new Set<Waiting>();

  readonly now = (): number => this.#now;

  readonly later = (ms: number, act: () => void): (() => void) => {
    const waiting = { at: this.#now + ms, act };
    this.#waiting.add(waiting);
    return () => this.#waiting.delete(waiting);
  };

  /** How many things wait. */
  get pending(): number {
    return this.#waiting.size;
  }

  /** Moves on; what comes due on the way acts at its own time. */
  pass(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const next = [...this.#waiting].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (next === undefined) break;
      this.#waiting.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.act();
    }
    this.#now = end;
  }

  /** Waits for a promise behind which real I/O and short waits on this clock stand by turns: those come due as soon as I/O has had its round. */
  async until<T>(promise: Promise<T>): Promise<T> {
    const state = { settled: false };
    const done = (): void => void (state.settled = true);
    promise.then(done, done);
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve));
      if (state.settled) return promise;
      const next = [...this.#waiting].sort((a, b) => a.at - b.at)[0];
      if (next !== undefined && next.at - this.#now <= SHORT_MS) this.pass(next.at - this.#now);
    }
  }
}

const SHORT_MS = 500;
