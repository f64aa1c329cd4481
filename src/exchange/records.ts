// What is kept of credentials and environments, as the rooms see it: records by id, each at a version. The store keeps them sealed;
// how and where is its own business. A value may hold secrets: it must never go into an answer, an error or a log as it is.

/** What is kept. */
export type RecordKind = 'credentials' | 'environments' | 'sources' | 'tokens';

/** What a record holds. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** A record, opened. */
export interface StoredRecord {
  readonly id: string;
  /** Another one after each write */
  readonly version: number;
  readonly value: JsonObject;
  /** ISO 8601 */
  readonly createdAt: string;
  readonly updatedAt: string;
}

/** Records sorted by id. `broken`: ids of those that do not open. `next`: to be given as `after`; `undefined` on the last page. */
export interface RecordPage {
  readonly records: readonly StoredRecord[];
  readonly broken: readonly string[];
  readonly next?: string;
}

/** The store, as rooms use it. Every call ends within 2 s; what a rejection means, `storeTrouble` tells. */
export interface Records {
  get(kind: RecordKind, id: string): Promise<StoredRecord | undefined>;
  list(kind: RecordKind, page: { readonly after?: string; readonly limit: number }): Promise<RecordPage>;
  /** Writes where the record is at the version `expected`, is not there (`new`), or whatever is there (`any`); rejects otherwise. */
  put(kind: RecordKind, id: string, value: JsonObject, expected: number | 'new' | 'any'): Promise<StoredRecord>;
  /** False where there is no record. With `expected`: rejects where it is at another version. */
  delete(kind: RecordKind, id: string, expected?: number): Promise<boolean>;
  /** Takes a name for at most `ttlMs`, alone among all that share the store; gives what gives it back, or `undefined` where it is taken. */
  lock(name: string, ttlMs: number): Promise<(() => Promise<void>) | undefined>;
}

/**
 * Why a call of the store rejected. `conflict`: the record is not at the version that the write was made for. `away`: no answer, and
 * a write may have happened. `broken`: the record, or the whole store, does not open.
 */
export type StoreTrouble = 'conflict' | 'away' | 'broken';

/** By the names of the store's errors, whose messages are fit for the operator; `undefined` for anything else. */
export function storeTrouble(error: unknown): StoreTrouble | undefined {
  switch (error instanceof Error ? error.name : '') {
    case 'StoreConflict':
      return 'conflict';
    case 'StoreAway':
      return 'away';
    case 'StoreBroken':
      return 'broken';
    default:
      return undefined;
  }
}
