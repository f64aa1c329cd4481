// How long one call of the store may take, over all its steps: an engine that hangs must not hang a request with it.
// It must never let work go on whose caller was told that it failed: a step that comes after the end is not begun.
import { StoreAway } from './store-error.ts';

/** The time that one call of the store may take, in `ms`. */
export const CALL_MS = 2_000;

/** What is left of the time of one call. */
export interface Patience {
  /** Waits for one step, as long as there is time; rejects with StoreAway after that, or with what the step rejects with. */
  wait<T>(step: () => Promise<T>): Promise<T>;
}

/** Starts the clock of one call of at most `ms`. `onSilence` is told when the time ran out on a step that had begun. */
export function startPatience(store: string, ms: number, onSilence: () => void): Patience {
  const end = performance.now() + ms;
  const silent = (): StoreAway => new StoreAway(store, `no answer within ${ms / 1000} s`);
  return {
    async wait<T>(step: () => Promise<T>): Promise<T> {
      const left = end - performance.now();
      if (left <= 0) throw silent();
      let timer: NodeJS.Timeout | undefined;
      const silence = new Promise<never>((_, reject) => {
        timer = setTimeout(() => {
          onSilence();
          reject(silent());
        }, left);
      });
      try {
        return await Promise.race([step(), silence]);
      } finally {
        clearTimeout(timer);
      }
    },
  };
}
