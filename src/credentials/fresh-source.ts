// A value that ends: an access token, or what a command prints. Whoever hands one out renews it ahead of its end, one renewal at a
// time in this process and, where there is a lock, among all that share a store. A failure is remembered for a moment, apart from
// the value: as long as that is good it goes on being used. It must never hand out a value that has ended, nor show one in a reason.
import { storeTrouble } from '../exchange/records.ts';
import type { Secret } from '../foundation/secret.ts';
import { sameSecret } from './secret-source.ts';

/** A value in force, or why there is none. `endsAt` in epoch `ms`; `undefined` where it has no end that is known. */
export type FreshValue = { readonly value: Secret; readonly endsAt: number | undefined } | { readonly unavailable: string };

/** Where such a value comes from. */
export interface FreshSource {
  /** The value in force, the same Secret until it is renewed; a promise only where it has to be waited for. Never rejects. */
  current(): FreshValue | Promise<FreshValue>;
  /** Ends its renewals. */
  close(): void;
}

/** A value with its times, all in epoch `ms`. */
export interface Held {
  readonly value: Secret;
  /** `undefined`: no end that is known */
  readonly endsAt: number | undefined;
  /** From here on it is renewed in the background */
  readonly renewAt: number;
  /** From here on it is not used any more */
  readonly goodUntil: number;
}

/** A renewal that gave nothing. */
export interface Failed {
  /** One lower-case word of a closed set, for the metrics */
  readonly failed: string;
  /** For the operator: lower case, without a secret and without anything of an answer */
  readonly unavailable: string;
  /** Whether trying again is of no use, nor what is held of any worth: only another definition helps */
  readonly final?: boolean;
}

/** What is shared with other processes. */
export interface Fleet {
  /** Alone among all; `undefined` where somebody else has it. Rejects where the store is away. */
  lock(): Promise<(() => Promise<void>) | undefined>;
  /** Asked under the lock: what somebody else may have fetched meanwhile, or why nothing must be fetched; `undefined`: nothing new. */
  reread(): Promise<Held | Failed | undefined>;
}

/** Waits `ms` and acts; gives what cancels it. */
export type Later = (ms: number, act: () => void) => () => void;

/** A clock that can be another one in tests. */
export interface Clock {
  /** Epoch `ms` */
  readonly now: () => number;
  readonly later: Later;
}

/** The machine's clock; what waits keeps no process alive. */
export const CLOCK: Clock = {
  now: () => Date.now(),
  later: (ms, act) => {
    const timer = setTimeout(act, ms).unref();
    return () => clearTimeout(timer);
  },
};

/** What a source is made of. */
export interface FreshOptions {
  /** Fetches a value. A rejection counts as a failure without a name. Must end by itself. */
  readonly renew: () => Promise<Held | Failed>;
  readonly fleet?: Fleet | undefined;
  /** What is at hand from before */
  readonly first?: Held | undefined;
  /** Hears of each new end; `undefined` also where there is no value any more */
  readonly onChange?: (endsAt: number | undefined) => void;
  /** Hears of each failure, by its word */
  readonly onFailure?: (failed: string) => void;
  readonly clock?: Clock;
}

/** How long a failure is remembered before the next attempt. */
export const FAILURE_MS = 5_000;
/** A value without a known end is fetched anew after this time, and used without success for at most `UNENDING_GOOD_MS`. */
export const UNENDING_RENEW_MS = 5 * 60_000;
export const UNENDING_GOOD_MS = 60 * 60_000;
/** How long somebody else's renewal is waited for, and how often it is looked at. */
export const LOCK_WAIT_MS = 15_000;
const LOCK_LOOK_MS = 200;
const LONGEST_SLEEP_MS = 24 * 3_600_000;
const AHEAD_MS = 60_000;

/** A value with its times: renewed 60 s before its end, or a tenth of its life where that is less. `askedAt` is before it was asked for. */
export function heldFrom(value: Secret, endsAt: number | undefined, askedAt: number): Held {
  if (endsAt === undefined) return { value, endsAt, renewAt: askedAt + UNENDING_RENEW_MS, goodUntil: askedAt + UNENDING_GOOD_MS };
  return { value, endsAt, renewAt: endsAt - Math.min(AHEAD_MS, Math.max(0, endsAt - askedAt) / 10), goodUntil: endsAt };
}

/** Makes a source. It asks nobody before its first `current()`. */
export function createFreshSource(options: FreshOptions): RenewingSource {
  return new RenewingSource(options);
}

const CLOSED: Failed = { failed: 'closed', unavailable: 'its definition has changed' };
const BUSY: Failed = { failed: 'busy', unavailable: 'another process has been renewing it for too long' };
const UNNAMED: Failed = { failed: 'other', unavailable: 'it could not be renewed' };

/** What a call of the store that rejected means to a renewal; `undefined` where it is none. */
export function storeFailure(error: unknown): Failed | undefined {
  switch (storeTrouble(error)) {
    case 'away':
      return { failed: 'store_away', unavailable: 'the store is away' };
    case 'broken':
      return { failed: 'store_broken', unavailable: 'its record in the store does not open' };
    case 'conflict':
      return { failed: 'changed', unavailable: 'its record was changed meanwhile' };
    case undefined:
      return undefined;
  }
}

/** A FreshSource that renews. */
export class RenewingSource implements FreshSource {
  readonly #options: FreshOptions;
  readonly #clock: Clock;
  #held: Held | undefined;
  #failure: Failed | undefined = undefined;
  #failedAt = -Infinity;
  #renewing: Promise<void> | undefined = undefined;
  #cancel: () => void = () => undefined;
  #closed = false;
  /** Whether `onChange` has last heard of a value */
  #told: boolean;

  constructor(options: FreshOptions) {
    this.#options = options;
    this.#clock = options.clock ?? CLOCK;
    this.#held = options.first;
    this.#told = options.first !== undefined;
    this.#sleep();
  }

  current(): FreshValue | Promise<FreshValue> {
    const now = this.#clock.now();
    const held = this.#held;
    if (held !== undefined && now < held.goodUntil) {
      if (now >= held.renewAt && !this.#barred(now)) void this.#renew();
      return held;
    }
    if (this.#barred(now)) return this.#failure ?? CLOSED;
    return this.#renew().then(() => this.#standing());
  }

  close(): void {
    this.#closed = true;
    this.#cancel();
  }

  /** Takes over what somebody else has fetched, where that lasts longer than what is held. */
  adopt(held: Held): void {
    if (this.#closed || this.#failure?.final === true) return;
    if (this.#held !== undefined && held.goodUntil <= this.#held.goodUntil) return;
    this.#hold(held);
  }

  /** Resolves when no renewal is under way; what was begun may still have to be written down. */
  async settled(): Promise<void> {
    await this.#renewing;
  }

  /** Whether nothing may be asked now: it is closed, hopeless, or has failed just now. */
  #barred(now: number): boolean {
    if (this.#closed || this.#failure?.final === true) return true;
    const ago = now - this.#failedAt;
    // A clock that was put back must not make a moment an hour.
    return this.#failure !== undefined && ago >= 0 && ago < FAILURE_MS;
  }

  #standing(): FreshValue {
    const held = this.#held;
    if (held !== undefined && this.#clock.now() < held.goodUntil) return held;
    return this.#failure ?? CLOSED;
  }

  #renew(): Promise<void> {
    this.#renewing ??= this.#attempt().then((outcome) => {
      this.#renewing = undefined;
      if ('failed' in outcome) this.#fail(outcome);
      else this.#hold(outcome);
    });
    return this.#renewing;
  }

  async #attempt(): Promise<Held | Failed> {
    const { fleet, renew } = this.#options;
    let release: (() => Promise<void>) | undefined;
    try {
      if (fleet === undefined) return await renew();
      release = await this.#lock(fleet);
      if (release === undefined) return this.#closed ? CLOSED : BUSY;
      const kept = await fleet.reread();
      if (kept !== undefined && ('failed' in kept || kept.renewAt > this.#clock.now())) return kept;
      return await renew();
    } catch (error) {
      return storeFailure(error) ?? UNNAMED;
    } finally {
      // A lock that cannot be given back ends by itself.
      await release?.().catch(() => undefined);
    }
  }

  async #lock(fleet: Fleet): Promise<(() => Promise<void>) | undefined> {
    const since = this.#clock.now();
    for (;;) {
      const release = await fleet.lock();
      if (release !== undefined || this.#closed || this.#clock.now() - since >= LOCK_WAIT_MS) return release;
      await new Promise<void>((resolve) => this.#clock.later(LOCK_LOOK_MS, resolve));
    }
  }

  #hold(held: Held): void {
    this.#failure = undefined;
    const before = this.#held;
    // The same object for the same value, so that what was made of it need not be made anew.
    const same = before !== undefined && sameSecret(before.value, held.value);
    this.#held = same ? { ...held, value: before.value } : held;
    this.#told = true;
    if (!this.#closed) this.#options.onChange?.(held.endsAt);
    this.#sleep();
  }

  #fail(failure: Failed): void {
    this.#failure = failure;
    this.#failedAt = this.#clock.now();
    if (this.#closed) return;
    this.#options.onFailure?.(failure.failed);
    if (failure.final === true) this.#held = undefined;
    if (this.#held === undefined || this.#clock.now() >= this.#held.goodUntil) this.#tellEnd();
    this.#sleep();
  }

  #tellEnd(): void {
    if (this.#told) this.#options.onChange?.(undefined);
    this.#told = false;
  }

  /** Sleeps until there is something to do: renew, try again, or say that the value has ended. After that only a request wakes it. */
  #sleep(): void {
    this.#cancel();
    const held = this.#held;
    if (held === undefined || this.#closed) return;
    const next = this.#failure === undefined ? held.renewAt : Math.max(held.renewAt, this.#failedAt + FAILURE_MS);
    const wait = Math.min(next, held.goodUntil) - this.#clock.now();
    this.#cancel = this.#clock.later(Math.min(Math.max(0, wait), LONGEST_SLEEP_MS), () => this.#wake());
  }

  #wake(): void {
    const held = this.#held;
    if (held === undefined || this.#closed) return;
    const now = this.#clock.now();
    if (now >= held.goodUntil && this.#failure !== undefined) this.#tellEnd();
    else if (now >= held.renewAt && !this.#barred(now)) void this.#renew();
    else this.#sleep();
  }
}
