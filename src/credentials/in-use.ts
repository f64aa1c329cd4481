// What is used of one credential: fields that last as long as its record, or fields made of a value that ends and is renewed.
// The same value gives the same object, so that whoever prepares something of it prepares it once.
import type { StoredRecord } from '../exchange/records.ts';
import type { Resolution } from '../exchange/snapshot.ts';
import type { Secret } from '../foundation/secret.ts';
import type { FreshSource, FreshValue } from './fresh-source.ts';

/** Fields made of a value that ends. */
export interface FreshFields {
  readonly source: FreshSource;
  readonly fields: (value: Secret) => Resolution;
  /**
   * Takes over a newer record, of the same type, without beginning anew, such as one that the source itself has written; false where
   * it cannot, and another is made in its place. Left out: it never can.
   */
  readonly adopt?: (record: StoredRecord) => boolean;
}

/** What a maker makes of a credential. */
export type Use = Resolution | FreshFields;

/** How a credential is. `expires_at` is ISO 8601. `unused`: it has to be fetched, and this process has not had to yet. */
export interface UseHealth {
  readonly health: 'ok' | 'unavailable' | 'unused';
  readonly reason?: string;
  readonly expires_at?: string;
}

/** One credential in use. */
export interface InUse {
  /** What it stands for now; never rejects. */
  resolve(): Resolution | Promise<Resolution>;
  adopt(record: StoredRecord): boolean;
  health(): UseHealth;
  close(): void;
}

/** Something that stays as it is. */
export function lastingUse(resolution: Resolution): InUse {
  const health: UseHealth =
    'unavailable' in resolution ? { health: 'unavailable', reason: resolution.unavailable } : { health: 'ok' };
  return { resolve: () => resolution, adopt: () => false, health: () => health, close: () => undefined };
}

/** Nothing, for a reason. */
export function closedUse(reason: string): InUse {
  return lastingUse({ unavailable: reason });
}

/** Something made of a value that ends; `onEnd` hears of each new end. */
export function freshUse(fresh: FreshFields, onEnd: (endsAt: number | undefined) => void): InUse {
  return new FreshUse(fresh, onEnd);
}

class FreshUse implements InUse {
  readonly #fresh: FreshFields;
  readonly #onEnd: (endsAt: number | undefined) => void;
  #last: { readonly value: Secret; readonly resolution: Resolution } | undefined = undefined;
  #health: UseHealth = { health: 'unused' };
  #closed = false;

  constructor(fresh: FreshFields, onEnd: (endsAt: number | undefined) => void) {
    this.#fresh = fresh;
    this.#onEnd = onEnd;
  }

  resolve(): Resolution | Promise<Resolution> {
    const now = this.#fresh.source.current();
    return now instanceof Promise ? now.then((value) => this.#standsFor(value)) : this.#standsFor(now);
  }

  adopt(record: StoredRecord): boolean {
    return this.#fresh.adopt?.(record) ?? false;
  }

  health(): UseHealth {
    return this.#health;
  }

  close(): void {
    this.#closed = true;
    this.#fresh.source.close();
  }

  #standsFor(now: FreshValue): Resolution {
    if ('unavailable' in now) {
      if (this.#last !== undefined) this.#tellEnd(undefined);
      this.#last = undefined;
      this.#health = { health: 'unavailable', reason: now.unavailable };
      return now;
    }
    const { value, endsAt } = now;
    if (this.#last?.value === value) return this.#last.resolution;
    const resolution = this.#fresh.fields(value);
    this.#last = { value, resolution };
    this.#health = { health: 'ok', ...(endsAt === undefined ? {} : { expires_at: new Date(endsAt).toISOString() }) };
    this.#tellEnd(endsAt);
    return resolution;
  }

  /** What comes in after the end must not bring back a series that was taken away. */
  #tellEnd(endsAt: number | undefined): void {
    if (!this.#closed) this.#onEnd(endsAt);
  }
}
