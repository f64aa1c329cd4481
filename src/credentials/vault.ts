// The vault: from the id of a credential to what it stands for now, those of the config first, then those that are stored. It keeps
// what it has read for a while, so that a request costs no call of the store, and short enough that a rotation is in force everywhere
// within 10 s. It must never use a credential longer than it says here, nor wait where a value is at hand that may be used.
import { LRUCache } from 'lru-cache';
import type { Records, StoredRecord } from '../exchange/records.ts';
import { storeTrouble } from '../exchange/records.ts';
import type { Fetched, Resolution } from '../exchange/snapshot.ts';
import type { ResolveCredential } from './attach.ts';
import { fieldsOf } from './credential.ts';
import type { Credential, CredentialType } from './credential.ts';
import { closedUse, freshUse, lastingUse } from './in-use.ts';
import type { InUse, Use, UseHealth } from './in-use.ts';
import { signingOf } from './signer.ts';
import { openCredential } from './stored-credential.ts';
import { placeholderOf } from './trusted.ts';

/**
 * Makes of a stored credential what is used of it. A source that renews its value ahead of time tells `onEnd` of each new end (epoch
 * `ms`); it is told of what is used in any case.
 */
export type Maker<Type extends CredentialType = CredentialType> = (
  credential: Extract<Credential, { type: Type }>,
  record: StoredRecord,
  onEnd: (endsAt: number | undefined) => void,
) => Use;

/** The makers by type; a type without one is unavailable. */
export type Makers = { readonly [Type in CredentialType]?: Maker<Type> };

/** Those of which nothing has to be fetched: what they come to follows from the values alone. */
export const PLAIN_MAKERS: Makers = {
  bearer_token: fieldsOf,
  basic: fieldsOf,
  header: fieldsOf,
  environment_variable: placeholderOf,
  aws_sigv4: signingOf,
};

/** The credentials that are stored, as the exchanges see them. */
export interface Vault {
  /** What an id stands for. A promise only where the store must be asked; never rejects. */
  readonly resolve: ResolveCredential;
  /** A stored credential with its values, whatever its type; `undefined` where there is none of this id. Of the same age as `resolve`. */
  credential(id: string): Promise<Credential | { readonly unavailable: string } | undefined>;
  /** A credential was written or deleted here: it is read anew before it is used. */
  forget(id: string): void;
  /** How a stored credential is as far as this process knows, without asking anybody. */
  health(record: StoredRecord): UseHealth;
  /** Ends all renewals. */
  close(): void;
}

/** What a vault is made of. */
export interface VaultOptions {
  readonly records: Pick<Records, 'get'>;
  readonly makers: Makers;
  /** Hears when a value in force ends, in epoch `ms`; `undefined`: no end that is known, or no value */
  readonly onEnd?: (id: string, endsAt: number | undefined) => void;
  /** What a credential of the config stands for whose value is fetched; never rejects */
  readonly fetched?: (declared: Fetched) => Resolution | Promise<Resolution>;
  /** A monotonic clock in `ms` */
  readonly now?: () => number;
}

/** Younger than this it is used as it is; older, it is used and read again meanwhile. */
export const FRESH_MS = 5_000;
/** Older than this it is read before it is used: a rotation has to be in force everywhere within 10 s. */
export const OLD_MS = 9_000;
/** How long an id without a credential is remembered. */
export const ABSENT_MS = 2_000;
/** How long what was read is used while the store is away. */
export const AWAY_MS = 5 * 60_000;
/** How long a store that was away is not asked again for the same id. */
export const FAILED_MS = 1_000;
/** Most ids that are remembered. */
const MOST = 10_000;

const NO_SUCH: Resolution = { unavailable: 'no credential of this id is declared or stored', unknown: true };
const DELETED: Resolution = { unavailable: 'it was deleted from the store' };
const STORE_AWAY = 'the store is away';

/** Makes a vault over a store. */
export function createVault(options: VaultOptions): Vault {
  return new CachingVault(options);
}

class Entry {
  readonly id: string;
  use: InUse | undefined = undefined;
  record: StoredRecord | undefined = undefined;
  readAt = -Infinity;
  failedAt = -Infinity;
  /** Whether there ever was such a credential, so that its id may be repeated */
  known = false;
  reading: Promise<void> | undefined = undefined;

  constructor(id: string) {
    this.id = id;
  }
}

class CachingVault implements Vault {
  readonly #options: VaultOptions;
  readonly #now: () => number;
  readonly #entries = new LRUCache<string, Entry>({
    max: MOST,
    dispose: (entry) => {
      entry.use?.close();
      entry.use = undefined;
    },
  });

  constructor(options: VaultOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  readonly resolve: ResolveCredential = (id, sandbox, declared) => {
    const own = declared.get(id);
    if (own !== undefined) return 'fetched' in own ? this.#fetched(own) : own;
    const entry = this.#entryOf(id);
    const reading = this.#readingFor(entry);
    if (reading === undefined) return this.#standsFor(entry);
    // What was forgotten or pushed out while it was read says nothing any more.
    return reading.then(() => (this.#entries.peek(id) === entry ? this.#standsFor(entry) : this.resolve(id, sandbox, declared)));
  };

  #fetched(own: Fetched): Resolution | Promise<Resolution> {
    return this.#options.fetched?.(own) ?? { unavailable: 'its value is fetched, and nothing here fetches it' };
  }

  async credential(id: string): Promise<Credential | { readonly unavailable: string } | undefined> {
    const entry = this.#entryOf(id);
    await this.#readingFor(entry);
    if (this.#entries.peek(id) !== entry) return this.credential(id);
    const stands = this.#away(entry);
    if (stands !== undefined && 'unavailable' in stands) return stands;
    return entry.record === undefined ? undefined : openCredential(entry.record);
  }

  forget(id: string): void {
    this.#entries.delete(id);
    this.#options.onEnd?.(id, undefined);
  }

  health(record: StoredRecord): UseHealth {
    const entry = this.#entries.peek(record.id);
    if (entry?.use !== undefined && entry.record?.version === record.version) return entry.use.health();
    const opened = openCredential(record);
    if ('unavailable' in opened) return { health: 'unavailable', reason: opened.unavailable };
    if (this.#options.makers[opened.type] === undefined) return { health: 'unavailable', reason: NOT_AVAILABLE };
    // What has to be fetched is not fetched for the asking.
    return PLAIN_MAKERS[opened.type] === undefined ? { health: 'unused' } : { health: 'ok' };
  }

  close(): void {
    this.#entries.clear();
  }

  #entryOf(id: string): Entry {
    let entry = this.#entries.get(id);
    if (entry === undefined) this.#entries.set(id, (entry = new Entry(id)));
    return entry;
  }

  /** Begins to read where what is at hand is not young any more; gives a promise only where that has to be waited for. */
  #readingFor(entry: Entry): Promise<void> | undefined {
    const now = this.#now();
    const age = now - entry.readAt;
    const there = entry.use !== undefined;
    if (age < (there ? FRESH_MS : ABSENT_MS) || now - entry.failedAt < FAILED_MS) return undefined;
    const reading = this.#read(entry);
    if (!there) return reading;
    // A store that is known to be away would make every request wait for its silence.
    const known = entry.failedAt > entry.readAt && age < AWAY_MS;
    return age < OLD_MS || known ? undefined : reading;
  }

  #standsFor(entry: Entry): Resolution | Promise<Resolution> {
    return this.#away(entry) ?? entry.use?.resolve() ?? (entry.known ? DELETED : NO_SUCH);
  }

  /** Why nothing can be said of an id while the store is away; `undefined` where something can. */
  #away(entry: Entry): Resolution | undefined {
    if (entry.failedAt <= entry.readAt) return undefined;
    const usable = entry.use !== undefined && this.#now() - entry.readAt < AWAY_MS;
    if (usable) return undefined;
    return entry.known ? { unavailable: STORE_AWAY } : { unavailable: STORE_AWAY, unknown: true };
  }

  #read(entry: Entry): Promise<void> {
    if (entry.reading !== undefined) return entry.reading;
    // The age counts from the asking: the answer may be as old as that.
    const asked = this.#now();
    entry.reading = this.#options.records.get('credentials', entry.id).then(
      (record) => this.#adopt(entry, record, asked),
      (error: unknown) => this.#failed(entry, error),
    );
    return entry.reading;
  }

  #adopt(entry: Entry, record: StoredRecord | undefined, asked: number): void {
    entry.reading = undefined;
    if (this.#entries.peek(entry.id) !== entry) return;
    entry.readAt = asked;
    if (record === undefined) {
      this.#replace(entry, undefined, undefined);
    } else if (record.version !== entry.record?.version || entry.use === undefined) {
      if (entry.use?.adopt(record) === true) entry.record = record;
      else this.#replace(entry, record, this.#make(entry.id, record));
    }
  }

  #failed(entry: Entry, error: unknown): void {
    entry.reading = undefined;
    if (storeTrouble(error) === 'broken') {
      // Damaged, or put there by somebody else: what was read before it is not what is stored now.
      entry.readAt = this.#now();
      this.#replace(entry, undefined, closedUse('its record in the store does not open'));
      return;
    }
    entry.failedAt = this.#now();
  }

  #replace(entry: Entry, record: StoredRecord | undefined, use: InUse | undefined): void {
    if (entry.use !== undefined) {
      entry.use.close();
      this.#options.onEnd?.(entry.id, undefined);
    }
    entry.record = record;
    entry.use = use;
    entry.known ||= use !== undefined;
  }

  #make(id: string, record: StoredRecord): InUse {
    const credential = openCredential(record);
    if ('unavailable' in credential) return closedUse(credential.unavailable);
    // The table is by type, so that the maker under a type is one for it.
    const maker = this.#options.makers[credential.type] as Maker | undefined;
    if (maker === undefined) return closedUse(NOT_AVAILABLE);
    const onEnd = (endsAt: number | undefined): void => this.#options.onEnd?.(id, endsAt);
    const use = maker(credential, record, onEnd);
    return 'source' in use ? freshUse(use, onEnd) : lastingUse(use);
  }
}

const NOT_AVAILABLE = 'credentials of this type are not available in this version';
