// Which keys the store is sealed with. The store says so itself, in its key check: one short text for each key in use, sealed with
// it. There is one key, or two while a rotation goes on; the last is the one to seal with.
// It must never let a record be sealed with a key that the check does not end with, and never puts a key into the store.
import type { Logger } from '../foundation/logger.ts';
import type { Engine } from './engine.ts';
import type { Patience } from './patience.ts';
import { keyIdOf, seal, sealKey, unseal } from './seal.ts';
import type { SealKey } from './seal.ts';
import { StoreAway, StoreBroken } from './store-error.ts';

/** Under which the check lies, beside the records. */
export const CHECK_KEY = 'check';

/** What a keyring is made of. */
export interface KeyringParts {
  readonly engine: Engine;
  /** 32 bytes */
  readonly key: Buffer;
  readonly furtherKeys: () => Promise<readonly Buffer[]>;
  /** One sealed record of the store, if it has any: a store with records and no check is not an empty one */
  readonly anyRecord: (patience: Patience) => Promise<string | undefined>;
  readonly log: Logger;
}

/** The key to seal with, and the check as it was read: a change is made only where that still stands. */
export interface Sealing {
  readonly key: SealKey;
  readonly guard: { readonly key: string; readonly text: string };
}

interface Check {
  readonly text: string;
  /** Ids of the keys in use, the one to seal with last */
  readonly ids: readonly string[];
}

const CHECK_TEXT = 'sallyport store';
const ASK_AGAIN_MS = 1_000;
const MOST_TURNS = 5;

const OTHER_KEY =
  'the store was sealed with another key; put the right one in the place that store.key names, or, if it is lost, move the store away and begin anew';
const MISSING_KEY =
  'the key of the store was rotated, and this process does not have the new key; put it in the place that store.key names and start again';
const DAMAGED = 'the key check of the store is damaged; restore the store from a backup';
const OTHER_ROTATION = 'another rotation of its key goes on; repeat this one later';

/** The keys at hand, held against what the store says. Nothing is read before `load`. */
export class Keyring {
  readonly #parts: KeyringParts;
  readonly #keys = new Map<string, SealKey>();
  readonly #first: SealKey;
  #check: Check | undefined;
  #askedAt = -Infinity;

  constructor(parts: KeyringParts) {
    this.#parts = parts;
    this.#first = sealKey(parts.key);
    this.#keys.set(this.#first.id, this.#first);
  }

  /** Reads the check, or makes it in a store that is empty. Rejects with StoreBroken where no key at hand opens it. */
  async load(patience: Patience): Promise<void> {
    const { engine } = this.#parts;
    for (let turn = 0; turn < MOST_TURNS; turn += 1) {
      const text = await patience.wait(() => engine.read(CHECK_KEY));
      if (text !== undefined) {
        if (text !== this.#check?.text) this.#check = await this.#judge(text, patience);
        return;
      }
      this.#check = undefined;
      await this.#found(patience);
    }
    throw new StoreAway(engine.place, 'its key check does not stay where it is put; see whether it evicts keys');
  }

  /** Loads unless that was done. */
  async ready(patience: Patience): Promise<void> {
    if (this.#check === undefined) await this.load(patience);
  }

  /** What to seal with now. Rejects with StoreBroken where that key is not at hand. */
  async sealing(patience: Patience): Promise<Sealing> {
    const { text, ids } = this.#current();
    const key = await this.#known(ids.at(-1) ?? '', patience);
    if (key === undefined) throw new StoreBroken(MISSING_KEY);
    return { key, guard: { key: CHECK_KEY, text } };
  }

  /** The key that a text was sealed with; `undefined` where it is not at hand or not in use any more. */
  async keyOf(sealed: string, patience: Patience): Promise<SealKey | undefined> {
    const id = keyIdOf(sealed);
    if (id === undefined) return undefined;
    // A key that is out of use opens nothing: whoever got hold of it could put old records back.
    if (!this.#current().ids.includes(id)) await this.load(patience);
    return this.#current().ids.includes(id) ? this.#known(id, patience) : undefined;
  }

  /** Adds a key to the check, as the one to seal with from now on, everywhere. */
  async begin(next: SealKey, patience: Patience): Promise<void> {
    await this.load(patience);
    this.#keys.set(next.id, next);
    const before = this.#current();
    if (before.ids.at(-1) === next.id) return;
    if (before.ids.length > 1) {
      throw new StoreBroken('a rotation to another key was begun and not finished; repeat it with that key first');
    }
    await this.#replace(before, `${before.text} ${sealedCheck(next)}`, patience);
  }

  /** Leaves the key as the only one. */
  async finish(next: SealKey, patience: Patience): Promise<void> {
    const before = this.#current();
    if (before.ids.at(-1) !== next.id) throw new StoreAway(this.#parts.engine.place, OTHER_ROTATION);
    if (before.ids.length > 1) await this.#replace(before, before.text.split(' ').at(-1) ?? '', patience);
  }

  /** Makes the check of a store that has none, with the key of its records where it has some. */
  async #found(patience: Patience): Promise<void> {
    const record = await this.#parts.anyRecord(patience);
    const owner = record === undefined ? this.#first : await this.#known(keyIdOf(record) ?? '', patience);
    if (owner === undefined) throw new StoreBroken(OTHER_KEY);
    // Where somebody is quicker this changes nothing, and the check is read again.
    await patience.wait(() => this.#parts.engine.swap({ key: CHECK_KEY, before: undefined, after: sealedCheck(owner) }));
  }

  async #judge(text: string, patience: Patience): Promise<Check> {
    const ids: string[] = [];
    let opened = 0;
    for (const sealed of text.split(' ')) {
      const id = keyIdOf(sealed);
      if (id === undefined) throw new StoreBroken(DAMAGED);
      ids.push(id);
      const key = await this.#known(id, patience);
      if (key === undefined) continue;
      if (unseal(key, checkPlace(id), sealed) !== CHECK_TEXT) throw new StoreBroken(DAMAGED);
      opened += 1;
    }
    if (opened === 0) throw new StoreBroken(this.#check === undefined ? OTHER_KEY : MISSING_KEY);
    if (ids.length > 1)
      this.#parts.log.warn('a rotation of the key of the store goes on, or was interrupted; repeat it to finish it');
    return { text, ids };
  }

  async #known(id: string, patience: Patience): Promise<SealKey | undefined> {
    if (!this.#keys.has(id) && performance.now() - this.#askedAt > ASK_AGAIN_MS) {
      this.#askedAt = performance.now();
      for (const further of await patience.wait(() => this.#furtherKeys())) this.#keys.set(further.id, further);
    }
    return this.#keys.get(id);
  }

  async #furtherKeys(): Promise<SealKey[]> {
    try {
      return (await this.#parts.furtherKeys()).map(sealKey);
    } catch (error) {
      this.#parts.log.warn('further keys of the store cannot be read', { error });
      return [];
    }
  }

  async #replace(before: Check, after: string, patience: Patience): Promise<void> {
    await patience.wait(() => this.#parts.engine.swap({ key: CHECK_KEY, before: before.text, after }));
    await this.load(patience);
    if (this.#current().text !== after) throw new StoreAway(this.#parts.engine.place, OTHER_ROTATION);
  }

  #current(): Check {
    if (this.#check === undefined) throw new Error('internal error: the key check was not loaded');
    return this.#check;
  }
}

function sealedCheck(key: SealKey): string {
  return seal(key, checkPlace(key.id), CHECK_TEXT);
}

function checkPlace(id: string): { readonly kind: string; readonly id: string } {
  return { kind: 'check', id };
}
