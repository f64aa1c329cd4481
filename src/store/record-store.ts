// The store of credentials and environments: small JSON records, sealed before an engine sees them, each at a version, so that two
// editors cannot overwrite each other unseen. Rooms get it from app.ts; where the records lie is the engine's business.
// It must never show a value in an error or a log, answer "not there" where it cannot say, or wait without end.
import { randomBytes } from 'node:crypto';
import type { Logger } from '../foundation/logger.ts';
import type { Engine } from './engine.ts';
import { Keyring } from './keyring.ts';
import { openEngine } from './open-engine.ts';
import { CALL_MS, startPatience } from './patience.ts';
import type { Patience } from './patience.ts';
import { packRecord, unpackRecord } from './record.ts';
import type { JsonObject, StoredRecord } from './record.ts';
import { seal, sealKey, unseal } from './seal.ts';
import { StoreAway, StoreBroken, StoreConflict } from './store-error.ts';

/** What the store keeps. */
export const RECORD_KINDS = ['credentials', 'environments', 'sources', 'tokens'] as const;

/** One of them. */
export type RecordKind = (typeof RECORD_KINDS)[number];

/** A page of records, sorted by id. */
export interface RecordPage {
  readonly records: readonly StoredRecord[];
  /** Ids in this page of records that do not open */
  readonly broken: readonly string[];
  /** To be given as `after` for the next page; `undefined` on the last */
  readonly next?: string;
}

/** How the store is. `since` is when it went away, in `ms` since 1970. */
export type StoreHealth = { readonly ok: true } | { readonly ok: false; readonly since: number; readonly why: string };

/**
 * The store. Every call takes at most 2 s (CALL_MS) and rejects with StoreAway after that, or StoreBroken where a record does not
 * open. A write that rejects with StoreAway may have happened.
 */
export interface RecordStore {
  get(kind: RecordKind, id: string): Promise<StoredRecord | undefined>;
  /** At most `limit` records whose ids come after `after`. */
  list(kind: RecordKind, page: { readonly after?: string; readonly limit: number }): Promise<RecordPage>;
  /** Writes where the record is at the version `expected`, is not there (`new`), or whatever is there (`any`); StoreConflict otherwise. */
  put(kind: RecordKind, id: string, value: JsonObject, expected: number | 'new' | 'any'): Promise<StoredRecord>;
  /** False where there is no record. With `expected`: StoreConflict where it is at another version. Without, deletes a broken one too. */
  delete(kind: RecordKind, id: string, expected?: number): Promise<boolean>;
  /**
   * Takes a name for at most `ttlMs`, alone among all that share the store; gives the function that gives it back, or `undefined`
   * where somebody has it. Whoever holds a name beyond `ttlMs` holds it no more: a write that depends on it states its version.
   */
  lock(name: string, ttlMs: number): Promise<(() => Promise<void>) | undefined>;
  /**
   * Seals every record anew, with another key, and gives their number. Both keys open the store until it is done; what was interrupted
   * is finished by doing it again. Rejects at a record that does not open, which is then to be deleted.
   */
  reseal(newKey: Buffer): Promise<number>;
  health(): StoreHealth;
  close(): Promise<void>;
}

/** How a store is opened. */
export interface StoreOptions {
  /** `file:<path>`, `redis://`, `rediss://`, `postgres://` or `postgresql://` */
  readonly uri: string;
  /** 32 bytes */
  readonly key: Buffer;
  /** Asked, at most once a second, when something is sealed with a key that is not at hand; keys of a rotation. */
  readonly furtherKeys?: () => Promise<readonly Buffer[]>;
  /** What a relative path in `uri` counts from; the working directory where left out */
  readonly baseDirectory?: string;
  /** Whether to open although the server is away; `health` says so, and a wrong key is then found at the first contact. */
  readonly evenIfAway?: boolean;
  readonly log: Logger;
}

const PROBE_MS = 5_000;
const ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const PAGE = 100;

/** Opens the store. Rejects with one clear line where the key is another one (StoreBroken), the engine is away (StoreAway) or the place is unusable. */
export async function openStore(options: StoreOptions): Promise<RecordStore> {
  const { uri, key, log } = options;
  // before the engine: a key of the wrong length opens no connection
  sealKey(key);
  const warn = (message: string): void => log.warn(message);
  const engine = await openEngine({ uri, baseDirectory: options.baseDirectory ?? process.cwd(), warn });
  const keyring = new Keyring({
    engine,
    key,
    furtherKeys: options.furtherKeys ?? (() => Promise.resolve([])),
    anyRecord: (patience) => firstRecord(engine, patience),
    log,
  });
  const store = new OpenStore(engine, keyring, log);
  try {
    await store.look();
  } catch (error) {
    if (!(error instanceof StoreAway && options.evenIfAway === true)) {
      await store.close();
      throw error;
    }
    log.warn(error.message);
  }
  store.begin();
  return store;
}

async function firstRecord(engine: Engine, patience: Patience): Promise<string | undefined> {
  for (const kind of RECORD_KINDS) {
    const [entry] = await patience.wait(() => engine.range({ prefix: `${kind}:`, after: undefined, limit: 1 }));
    if (entry !== undefined) return entry.text;
  }
  return undefined;
}

class OpenStore implements RecordStore {
  readonly #engine: Engine;
  readonly #keyring: Keyring;
  readonly #log: Logger;
  readonly #probe: NodeJS.Timeout;
  #health: StoreHealth = { ok: true };
  #begun = false;
  #closed = false;

  constructor(engine: Engine, keyring: Keyring, log: Logger) {
    this.#engine = engine;
    this.#keyring = keyring;
    this.#log = log;
    // So that health is known where nobody calls, a lost server is found again, and a rotation is heard of.
    this.#probe = setInterval(() => void this.look().catch(() => undefined), PROBE_MS).unref();
  }

  /** From here on trouble is news for the log; before, whoever opens it hears of it. */
  begin(): void {
    this.#begun = true;
  }

  /** One contact with the engine, for its health and its key check. */
  look(): Promise<void> {
    return this.#call((patience) => this.#keyring.load(patience));
  }

  get(kind: RecordKind, id: string): Promise<StoredRecord | undefined> {
    if (!ID.test(id)) return Promise.resolve(undefined);
    return this.#call(async (patience) => {
      const text = await patience.wait(() => this.#engine.read(keyFor(kind, id)));
      return text === undefined ? undefined : this.#open({ kind, id }, text, patience);
    });
  }

  list(kind: RecordKind, { after, limit }: { readonly after?: string; readonly limit: number }): Promise<RecordPage> {
    return this.#call(async (patience) => {
      const range = { prefix: `${kind}:`, after: after === undefined ? undefined : keyFor(kind, after), limit: limit + 1 };
      const entries = await patience.wait(() => this.#engine.range(range));
      const records: StoredRecord[] = [];
      const broken: string[] = [];
      for (const { key, text } of entries.slice(0, limit)) {
        const id = key.slice(kind.length + 1);
        try {
          records.push(await this.#open({ kind, id }, text, patience));
        } catch (error) {
          // One record that was damaged must not hide the others.
          if (!(error instanceof StoreBroken)) throw error;
          broken.push(id);
        }
      }
      const last = entries[limit - 1];
      if (entries.length <= limit || last === undefined) return { records, broken };
      return { records, broken, next: last.key.slice(kind.length + 1) };
    });
  }

  put(kind: RecordKind, id: string, value: JsonObject, expected: number | 'new' | 'any'): Promise<StoredRecord> {
    if (!ID.test(id)) return Promise.reject(new RangeError(`internal error: "${id}" is no id of a record`));
    const place = { kind, id };
    return this.#call(async (patience) => {
      for (;;) {
        const before = await patience.wait(() => this.#engine.read(keyFor(kind, id)));
        const old = before === undefined ? undefined : await this.#open(place, before, patience);
        if (expected !== 'any' && old?.version !== (expected === 'new' ? undefined : expected)) {
          throw new StoreConflict(place, old?.version);
        }
        const { text, record } = packRecord(place, value, old);
        const { key, guard } = await this.#keyring.sealing(patience);
        const change = { key: keyFor(kind, id), before, after: seal(key, place, text), guard };
        if (await patience.wait(() => this.#engine.swap(change))) return record;
        // The record was changed, or the key was: what is there by now decides.
        await this.#keyring.load(patience);
      }
    });
  }

  delete(kind: RecordKind, id: string, expected?: number): Promise<boolean> {
    if (!ID.test(id)) return Promise.resolve(false);
    return this.#call(async (patience) => {
      for (;;) {
        const before = await patience.wait(() => this.#engine.read(keyFor(kind, id)));
        if (before === undefined) {
          if (expected !== undefined) throw new StoreConflict({ kind, id }, undefined);
          return false;
        }
        if (expected !== undefined) {
          const { version } = await this.#open({ kind, id }, before, patience);
          if (version !== expected) throw new StoreConflict({ kind, id }, version);
        }
        if (await patience.wait(() => this.#engine.swap({ key: keyFor(kind, id), before, after: undefined }))) return true;
      }
    });
  }

  async lock(name: string, ttlMs: number): Promise<(() => Promise<void>) | undefined> {
    const token = randomBytes(16).toString('hex');
    const claimed = await this.#call((patience) => patience.wait(() => this.#engine.claim(name, { token, ttlMs })));
    if (!claimed) return undefined;
    return () =>
      this.#call((patience) => patience.wait(() => this.#engine.release(name, token))).catch((error: unknown) => {
        // It ends by itself after its time.
        this.#log.debug('a lock could not be given back', { name, error });
      });
  }

  async reseal(newKey: Buffer): Promise<number> {
    const next = sealKey(newKey);
    await this.#call((patience) => this.#keyring.begin(next, patience));
    let sealed = 0;
    for (const kind of RECORD_KINDS) {
      let after: string | undefined;
      for (;;) {
        const range = { prefix: `${kind}:`, after, limit: PAGE };
        const entries = await this.#call((patience) => patience.wait(() => this.#engine.range(range)));
        for (const { key } of entries) {
          if (await this.#resealOne({ kind, id: key.slice(kind.length + 1) })) sealed += 1;
        }
        if (entries.length < PAGE) break;
        after = entries.at(-1)?.key;
      }
    }
    await this.#call((patience) => this.#keyring.finish(next, patience));
    this.#log.info('the store is sealed with its new key', { records: sealed });
    return sealed;
  }

  /** False where there was nothing to do. */
  #resealOne(place: { readonly kind: RecordKind; readonly id: string }): Promise<boolean> {
    const name = keyFor(place.kind, place.id);
    return this.#call(async (patience) => {
      for (;;) {
        const before = await patience.wait(() => this.#engine.read(name));
        if (before === undefined) return false;
        const old = await this.#keyring.keyOf(before, patience);
        const { key, guard } = await this.#keyring.sealing(patience);
        const text = old === undefined ? undefined : unseal(old, place, before);
        if (text === undefined) throw this.#broken(place);
        if (old?.id === key.id) return false;
        if (await patience.wait(() => this.#engine.swap({ key: name, before, after: seal(key, place, text), guard })))
          return true;
        await this.#keyring.load(patience);
      }
    });
  }

  health(): StoreHealth {
    return this.#health;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    clearInterval(this.#probe);
    // A connection that is gone cannot be closed well, and need not be.
    await this.#patience()
      .wait(() => this.#engine.close())
      .catch((error: unknown) => this.#log.debug('the store did not close well', { error: this.#engine.reason(error) }));
  }

  async #open(
    place: { readonly kind: RecordKind; readonly id: string },
    sealed: string,
    patience: Patience,
  ): Promise<StoredRecord> {
    const key = await this.#keyring.keyOf(sealed, patience);
    const text = key === undefined ? undefined : unseal(key, place, sealed);
    const record = text === undefined ? undefined : unpackRecord(place, text);
    if (record === undefined) throw this.#broken(place);
    return record;
  }

  #broken(place: { readonly kind: RecordKind; readonly id: string }): StoreBroken {
    this.#log.error('a record of the store does not open', { kind: place.kind, id: place.id });
    return new StoreBroken(
      `${place.kind} "${place.id}" does not open: it is damaged, was copied from elsewhere, or is sealed with a key that is not at hand; delete it and make it anew`,
      place,
    );
  }

  #patience(): Patience {
    return startPatience(this.#engine.place, CALL_MS, () => this.#engine.silent());
  }

  /** One call: bounded, its errors in our words, and its outcome remembered as the health of the store. */
  async #call<T>(work: (patience: Patience) => Promise<T>): Promise<T> {
    if (this.#closed) throw new StoreAway(this.#engine.place, 'it was closed');
    try {
      const patience = this.#patience();
      await this.#keyring.ready(patience);
      const result = await work(patience);
      this.#well();
      return result;
    } catch (error) {
      if (error instanceof StoreConflict || (error instanceof StoreBroken && error.record !== undefined)) {
        this.#well();
        throw error;
      }
      if (error instanceof RangeError || error instanceof TypeError) throw error;
      const known = error instanceof StoreAway || error instanceof StoreBroken;
      const away = known ? error : new StoreAway(this.#engine.place, this.#engine.reason(error));
      this.#unwell(away.message);
      throw away;
    }
  }

  #well(): void {
    if (this.#health.ok) return;
    this.#log.info('the store is back', {
      store: this.#engine.place,
      seconds: Math.round((Date.now() - this.#health.since) / 1000),
    });
    this.#health = { ok: true };
  }

  #unwell(why: string): void {
    if (this.#health.ok && this.#begun && !this.#closed) this.#log.warn(why);
    this.#health = { ok: false, since: this.#health.ok ? Date.now() : this.#health.since, why };
  }
}

function keyFor(kind: RecordKind, id: string): string {
  return `${kind}:${id}`;
}
