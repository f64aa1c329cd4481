// How many exchanges have begun and have no line in the ledger yet, so that the ledger is not closed before the last of them (invariant 6).
// One number, up and down: it must never cost an exchange a promise or a closure of its own.
import type { Arrival } from '../exchange/stages.ts';
import type { Outcome } from '../exchange/trace.ts';
import type { Logger } from '../foundation/logger.ts';

/** How long exchanges that were cut may take to come to their line, in `ms`. */
const SETTLE_MS = 2000;

/** Counts exchanges from their arrival to their line. */
export class UnderWay {
  #count = 0;
  #whenNone: (() => void) | undefined = undefined;

  /** The journey, counted. `recorded` must hear of each of its outcomes. */
  watch(egress: (arrival: Arrival) => Promise<void>): (arrival: Arrival) => Promise<void> {
    return (arrival) => {
      this.#count += 1;
      const end = egress(arrival);
      // One that carried something has no line of its own.
      if (arrival.purpose === 'tunnel') void end.finally(this.#less);
      return end;
    };
  }

  /** The line of an exchange is written. */
  recorded(outcome: Outcome): void {
    if (outcome.arrival.purpose !== 'tunnel') this.#less();
  }

  /** Resolves as soon as nothing is under way; after two seconds all the same, and then the operator hears what is missing. */
  async settle(log: Logger): Promise<void> {
    if (this.#count > 0) await this.#noneWithin(SETTLE_MS);
    if (this.#count === 0) return;
    log.error('exchanges did not end in time, and the audit log has no line of them', { count: this.#count });
  }

  #noneWithin(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#whenNone = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  readonly #less = (): void => {
    this.#count -= 1;
    if (this.#count === 0) this.#whenNone?.();
  };
}
