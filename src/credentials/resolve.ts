// How the steps of this room ask what a credential id stands for; who answers, the composition root decides.
// Nothing here may know where a credential comes from.
import type { Resolution, Snapshot } from '../exchange/snapshot.ts';

/** The credentials that the exchange's own snapshot declares: those its rule meant (invariant 7). */
export type Declared = Snapshot['credentials'];

/**
 * Looks a credential up, first among those that the exchange's snapshot declares. A promise only where it must be fetched; a throw or
 * a rejection counts as unavailable.
 */
export type ResolveCredential = (id: string, sandbox: string, declared: Declared) => Resolution | Promise<Resolution>;
