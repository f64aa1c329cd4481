// A value that ends: an access token, or what a command prints. Whoever hands one out renews it ahead of its end, one renewal at a
// time. It must never hand out a value that has ended.
import type { Secret } from '../foundation/secret.ts';

/** A value in force, or why there is none. `endsAt` in epoch `ms`; `undefined` where it has no end that is known. */
export type FreshValue = { readonly value: Secret; readonly endsAt: number | undefined } | { readonly unavailable: string };

/** Where such a value comes from. */
export interface FreshSource {
  /** The value in force, the same Secret until it is renewed; a promise only where it has to be waited for. Never rejects. */
  current(): FreshValue | Promise<FreshValue>;
  /** Ends its renewals. */
  close(): void;
}
