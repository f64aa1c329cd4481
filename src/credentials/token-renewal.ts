// One renewal of an access token, in two steps under a lock: look at what is kept, which somebody else may have renewed; then ask, and
// write down what came. A rotated refresh token that could not be written down is remembered and written first of all the next time.
// It must never use an access token before the refresh token that came with it is safe, nor take a lost race for a revocation.
import { storeTrouble } from '../exchange/records.ts';
import type { Secret } from '../foundation/secret.ts';
import { heldFrom, storeFailure } from './fresh-source.ts';
import type { Clock, Failed, Held } from './fresh-source.ts';
import { sameSecret } from './secret-source.ts';
import { askForToken } from './token-endpoint.ts';
import type { FetchToken } from './token-endpoint.ts';
import type { Grant, KeptTokens, TokenPlace, Tokens } from './token-records.ts';

/** What a renewal is made of. */
export interface RenewalOptions {
  readonly grant: Grant;
  readonly place: TokenPlace;
  readonly fetchToken: FetchToken;
  readonly clock: Clock;
}

/** Tokens that are not written down yet. */
interface Unwritten {
  readonly tokens: Tokens & { readonly held: Held };
  /** The refresh token that they were fetched with */
  readonly used: Secret;
  readonly rotated: boolean;
}

const WRITES = 3;
const CHANGED: Failed = { failed: 'changed', unavailable: 'its record was changed meanwhile, and is read anew within seconds' };
const UNWRITTEN: Failed = { failed: 'other', unavailable: 'its new refresh token could not be written down' };

/** The renewals of one client, one after another. Both steps reject as the store does. */
export class TokenRenewal {
  readonly #options: RenewalOptions;
  #kept: KeptTokens | undefined = undefined;
  #unwritten: Unwritten | undefined = undefined;

  constructor(options: RenewalOptions) {
    this.#options = options;
  }

  /** What is kept now, as a value that may still be good; `undefined`: there is something to do. */
  async reread(): Promise<Held | Failed | undefined> {
    const kept = await this.#options.place.read();
    if ('failed' in kept) return kept;
    this.#kept = kept;
    const unwritten = this.#unwritten;
    if (unwritten === undefined) return kept.held;
    if (sameSecret(kept.refreshToken, unwritten.used) && unwritten.rotated) return undefined;
    // It was written after all, or an operator has put another one in its place.
    this.#unwritten = undefined;
    return kept.held;
  }

  /** Asks and writes down, over what `reread` has seen. */
  async renew(): Promise<Held | Failed> {
    const kept = this.#kept ?? (await this.#options.place.read());
    if ('failed' in kept) return kept;
    if (this.#unwritten !== undefined) return this.#writeDown(this.#unwritten, kept);
    const { grant, fetchToken, clock } = this.#options;
    const issued = await askForToken(grant, kept.refreshToken, { fetchToken, clock, auth: kept.auth });
    if ('failed' in issued) return issued.final === true ? this.#refused(issued, kept) : issued;
    const { accessToken, endsAt, askedAt, auth } = issued;
    const refreshToken = issued.refreshToken ?? kept.refreshToken;
    const unwritten: Unwritten = {
      tokens: { refreshToken, held: heldFrom(accessToken, endsAt, askedAt), auth },
      used: kept.refreshToken,
      rotated: !sameSecret(refreshToken, kept.refreshToken),
    };
    return this.#writeDown(unwritten, kept);
  }

  async #writeDown(unwritten: Unwritten, before: KeptTokens): Promise<Held | Failed> {
    const { place } = this.#options;
    const { tokens, used, rotated } = unwritten;
    if (rotated) this.#unwritten = unwritten;
    let kept = before;
    try {
      for (let write = 1; write <= WRITES; write += 1) {
        const written = await place.write(tokens, kept).catch(unlessConflict);
        if (written !== undefined) return this.#safe(tokens.held);
        const now = await place.read();
        if ('failed' in now) return this.#superseded(now);
        if (rotated && sameSecret(now.refreshToken, tokens.refreshToken)) return this.#safe(tokens.held);
        if (!sameSecret(now.refreshToken, used)) return this.#superseded(CHANGED);
        kept = now;
      }
      return rotated ? UNWRITTEN : tokens.held;
    } catch (error) {
      // Where the refresh token is the old one, nothing is lost but what others could have shared.
      return rotated ? (storeFailure(error) ?? UNWRITTEN) : tokens.held;
    }
  }

  /** The endpoint knows the refresh token no more: revoked, unless somebody has used it meanwhile and written another one down. */
  async #refused(revoked: Failed, kept: KeptTokens): Promise<Held | Failed> {
    const { place, clock } = this.#options;
    const now = await place.read();
    if ('failed' in now) return now;
    if (!sameSecret(now.refreshToken, kept.refreshToken)) {
      return now.held !== undefined && now.held.renewAt > clock.now() ? now.held : CHANGED;
    }
    // It is out of use here in any case; a mark that could not be made is made by the next who is told so.
    await place.revoke(now).catch(() => undefined);
    return revoked;
  }

  #safe(held: Held): Held {
    this.#unwritten = undefined;
    return held;
  }

  #superseded(why: Failed): Failed {
    this.#unwritten = undefined;
    return why;
  }
}

function unlessConflict(error: unknown): undefined {
  if (storeTrouble(error) !== 'conflict') throw error;
  return undefined;
}
