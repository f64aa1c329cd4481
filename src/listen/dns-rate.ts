// How many questions an address may ask: a token bucket for each, in a bounded table. Pure but for the time that it is given.
// A burst of one must never be paid by another: who is in the table has a bucket of its own, and only newcomers share one.

/** How much of what may be asked. */
export interface RateLimits {
  /** Questions a second, in the long run */
  readonly perSecond: number;
  /** Questions at once */
  readonly burst: number;
  /** Addresses that are kept apart; the one that was silent the longest makes room */
  readonly clients: number;
}

/** Far above what package managers ask at once, far below what would keep the proxy from its work. */
export const DNS_RATE: RateLimits = { perSecond: 200, burst: 1000, clients: 4096 };

interface Bucket {
  tokens: number;
  /** When they were counted, in `ms` */
  at: number;
}

/** The buckets of all addresses. */
export class DnsRate {
  readonly #limits: RateLimits;
  /** The one that asked last stands last */
  readonly #buckets = new Map<string, Bucket>();
  /**
   * Sender addresses of UDP can be made up: without this, each of them would come with a burst of its own. Who was pushed out of the
   * table by a flood of them comes back with a full bucket, and is never worse off than before.
   */
  readonly #newcomers: Bucket;

  constructor(limits: RateLimits = DNS_RATE) {
    this.#limits = limits;
    this.#newcomers = { tokens: limits.burst, at: 0 };
  }

  /** Addresses in the table. */
  get clients(): number {
    return this.#buckets.size;
  }

  /** Whether `client` may ask one more question at `now`, in `ms`. */
  take(client: string, now: number): boolean {
    let bucket = this.#buckets.get(client);
    if (bucket === undefined) {
      if (!this.#takeFrom(this.#newcomers, now)) return false;
      if (this.#buckets.size >= this.#limits.clients) this.#forgetOne();
      bucket = { tokens: this.#limits.burst, at: now };
    } else this.#buckets.delete(client);
    this.#buckets.set(client, bucket);
    return this.#takeFrom(bucket, now);
  }

  #takeFrom(bucket: Bucket, now: number): boolean {
    const { perSecond, burst } = this.#limits;
    bucket.tokens = Math.min(burst, bucket.tokens + (Math.max(now - bucket.at, 0) / 1000) * perSecond);
    bucket.at = now;
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  }

  #forgetOne(): void {
    for (const client of this.#buckets.keys()) {
      this.#buckets.delete(client);
      return;
    }
  }
}
