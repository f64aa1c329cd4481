// OAuth 2.0 with a refresh token (RFC 6749 section 6): access tokens that are fetched, renewed ahead of their end and shared by all
// proxies on one store. A refresh token that the endpoint hands out in place of the old one is written down before the access token
// that came with it is used: the old one may be worth nothing by then. It must never ask twice with one refresh token at once.
import { LRUCache } from 'lru-cache';
import type { JsonObject, Records } from '../exchange/records.ts';
import type { Resolution } from '../exchange/snapshot.ts';
import type { Secret } from '../foundation/secret.ts';
import { bearerFields } from './credential.ts';
import { CLOCK, createFreshSource, heldFrom, LOCK_WAIT_MS } from './fresh-source.ts';
import type { Clock, Held } from './fresh-source.ts';
import type { FreshFields } from './in-use.ts';
import { openCredential } from './stored-credential.ts';
import { askForToken } from './token-endpoint.ts';
import type { FetchToken } from './token-endpoint.ts';
import { adoptable, declaredPlace, digestOf, keptIn, membersOf, storedPlace } from './token-records.ts';
import type { Grant, TokenPlace } from './token-records.ts';
import { TokenRenewal } from './token-renewal.ts';
import type { Maker } from './vault.ts';

/** What OAuth 2.0 needs of its neighbours. */
export interface Oauth2Options {
  readonly records: Pick<Records, 'get' | 'put' | 'lock'>;
  readonly fetchToken: FetchToken;
  /** Hears of each failure by a word of a closed set, for the metrics */
  readonly onFailure?: (id: string, failed: string) => void;
  readonly clock?: Clock;
}

/** OAuth 2.0 for a process. */
export interface Oauth2 {
  /** For the vault: of a stored credential */
  readonly maker: Maker<'oauth2'>;
  /** Of one that the config declares. */
  declared(id: string, grant: Grant, onEnd: (endsAt: number | undefined) => void): FreshFields;
  /**
   * Exchanges a new value once before it is kept, and gives it with the tokens that came of it; values of other types as they are.
   * The same value again within a minute is not exchanged again, for its refresh token may be used up. Never rejects.
   */
  exchangeOnce(id: string, value: JsonObject): Promise<{ readonly value: JsonObject } | { readonly problem: string }>;
  /** Resolves when what was asked for is written down; to be awaited before the store is closed. */
  settled(): Promise<void>;
}

/** Longest that one renewal holds the lock, `ms`: questions of 10 s, and some calls of the store of at most 2 s each. */
const LOCK_MS = 30_000;
const PROOF_MS = 60_000;
const LOOK_MS = 200;

/** Makes it. */
export function createOauth2(options: Oauth2Options): Oauth2 {
  return new RefreshingOauth2(options);
}

/** Whom a source tells of what. */
interface Hears {
  readonly id: string;
  readonly first: Held | undefined;
  readonly onEnd: (endsAt: number | undefined) => void;
}

class RefreshingOauth2 implements Oauth2 {
  readonly #options: Oauth2Options;
  readonly #clock: Clock;
  readonly #underWay = new Set<Promise<unknown>>();
  readonly #proofs = new LRUCache<string, JsonObject>({ max: 100, ttl: PROOF_MS });

  constructor(options: Oauth2Options) {
    this.#options = options;
    this.#clock = options.clock ?? CLOCK;
  }

  readonly maker: Maker<'oauth2'> = (credential, record, onEnd) => {
    const place = storedPlace(this.#options.records, record.id, credential);
    const source = this.#open(credential, place, { id: record.id, first: keptIn(record)?.held, onEnd });
    return {
      source,
      fields: tokenFields,
      adopt: (newer) => {
        const held = adoptable(credential, newer);
        if (held !== undefined) source.adopt(held);
        return held !== undefined;
      },
    };
  };

  declared(id: string, grant: Grant, onEnd: Hears['onEnd']): FreshFields {
    const place = declaredPlace(this.#options.records, id, grant);
    return { source: this.#open(grant, place, { id, first: undefined, onEnd }), fields: tokenFields };
  }

  async exchangeOnce(id: string, value: JsonObject): Promise<{ readonly value: JsonObject } | { readonly problem: string }> {
    const grant = openCredential({ id, version: 0, value, createdAt: '', updatedAt: '' });
    if ('unavailable' in grant || grant.type !== 'oauth2') return { value };
    const key = digestOf(grant);
    const known = this.#proofs.get(key);
    if (known !== undefined) return { value: { ...value, ...known } };
    // A renewal of the old value must not use the same refresh token at the same time.
    const release = await this.#lockPatiently(storedPlace(this.#options.records, id, grant));
    try {
      const { fetchToken } = this.#options;
      const issued = await askForToken(grant, grant.refresh_token, { fetchToken, clock: this.#clock });
      if ('failed' in issued) return { problem: `the refresh token could not be exchanged: ${issued.unavailable}` };
      const { accessToken, endsAt, askedAt, refreshToken = grant.refresh_token, auth } = issued;
      const members = membersOf({ refreshToken, held: heldFrom(accessToken, endsAt, askedAt), auth });
      this.#proofs.set(key, members);
      return { value: { ...value, ...members } };
    } finally {
      await release?.().catch(() => undefined);
    }
  }

  async settled(): Promise<void> {
    await Promise.allSettled(this.#underWay);
  }

  #open(grant: Grant, place: TokenPlace, { id, first, onEnd }: Hears) {
    const { fetchToken, records, onFailure } = this.#options;
    const renewal = new TokenRenewal({ grant, place, fetchToken, clock: this.#clock });
    return createFreshSource({
      renew: () => this.#track(renewal.renew()),
      fleet: { lock: () => records.lock(place.lockName, LOCK_MS), reread: () => renewal.reread() },
      first,
      onChange: onEnd,
      onFailure: (failed) => onFailure?.(id, failed),
      clock: this.#clock,
    });
  }

  #track<T>(work: Promise<T>): Promise<T> {
    this.#underWay.add(work);
    const done = (): unknown => this.#underWay.delete(work);
    work.then(done, done);
    return work;
  }

  /** Without the lock where it cannot be had: then the write to come fails, or its conflict shows. */
  async #lockPatiently({ lockName }: TokenPlace): Promise<(() => Promise<void>) | undefined> {
    const since = this.#clock.now();
    for (;;) {
      const release = await this.#options.records.lock(lockName, LOCK_MS).catch(() => null);
      if (release !== undefined) return release ?? undefined;
      if (this.#clock.now() - since >= LOCK_WAIT_MS) return undefined;
      await new Promise<void>((resolve) => this.#clock.later(LOOK_MS, resolve));
    }
  }
}

function tokenFields(token: Secret): Resolution {
  return bearerFields({ token, header_name: 'Authorization', prefix: 'Bearer' });
}
