// The store as a proxy has it: a server is connected to at the start; a file that is there is opened at the start, so that a wrong key
// shows; and one that is not there is made with the first write, with its key, so that who stores nothing gets no file.
// It must never make a key for a store that is there already, nor say "not there" of a file that it could not open.
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Logger } from '../foundation/logger.ts';
import { keyFromEnvironment, openKeyFile, readNextKey } from './key-file.ts';
import { filePath } from './open-engine.ts';
import { openStore } from './record-store.ts';
import type { RecordKind, RecordPage, RecordStore, StoreHealth } from './record-store.ts';
import type { JsonObject, StoredRecord } from './record.ts';
import { StoreAway, StoreBroken, StoreConflict } from './store-error.ts';

/** Where the key is. Of a file the path, of a variable the name. */
export type KeyPlace = { readonly kind: 'file'; readonly path: string } | { readonly kind: 'env'; readonly name: string };

/** How the store of a config is opened. Relative paths count from `baseDirectory`. */
export interface OnDemandOptions {
  readonly uri: string;
  readonly key: KeyPlace;
  readonly env: NodeJS.ProcessEnv;
  readonly baseDirectory: string;
  readonly log: Logger;
}

/**
 * Opens the store, or gets ready to. Rejects with one clear line where the key is missing or another one, or the file or the URI
 * cannot be used; a server that is away is waited for, and `health` says so.
 */
export async function openOnDemand(options: OnDemandOptions): Promise<RecordStore> {
  if (!options.uri.startsWith('file:')) return open(options);
  const path = filePath(options.uri, options.baseDirectory);
  return existsSync(path) ? open(options) : new StoreToCome(path, () => open(options), options.log);
}

async function open({ uri, key, env, baseDirectory, log }: OnDemandOptions): Promise<RecordStore> {
  if (key.kind === 'env') {
    const read = (): Buffer => keyFromEnvironment(key.name, env);
    return openStore({ uri, key: read(), baseDirectory, evenIfAway: true, log });
  }
  const path = resolve(baseDirectory, key.path);
  if (!existsSync(path) && uri.startsWith('file:') && existsSync(filePath(uri, baseDirectory))) {
    throw new Error(
      `the key file "${key.path}" of the store is not there, and the store is; put it back, or move the store away to begin anew`,
    );
  }
  const { key: bytes, warning } = await openKeyFile(path);
  if (warning !== undefined) log.warn(warning);
  return openStore({ uri, key: bytes, furtherKeys: () => keysOfRotation(path), baseDirectory, evenIfAway: true, log });
}

/** The key that a rotation is on its way to, and the one that has come into the key file meanwhile. */
async function keysOfRotation(path: string): Promise<readonly Buffer[]> {
  const next = await readNextKey(path);
  const now = existsSync(path) ? [(await openKeyFile(path)).key] : [];
  return next === undefined ? now : [...now, next];
}

/** A store whose file is not there: it holds nothing, until somebody writes, here or in another process. */
class StoreToCome implements RecordStore {
  readonly #path: string;
  readonly #open: () => Promise<RecordStore>;
  readonly #log: Logger;
  #opening: Promise<RecordStore> | undefined = undefined;
  #store: RecordStore | undefined = undefined;
  #trouble: StoreHealth = { ok: true };
  #closed = false;

  constructor(path: string, open: () => Promise<RecordStore>, log: Logger) {
    this.#path = path;
    this.#open = open;
    this.#log = log;
  }

  async get(kind: RecordKind, id: string): Promise<StoredRecord | undefined> {
    return (await this.#ifThere())?.get(kind, id);
  }

  async list(kind: RecordKind, page: { readonly after?: string; readonly limit: number }): Promise<RecordPage> {
    return (await this.#ifThere())?.list(kind, page) ?? { records: [], broken: [] };
  }

  async put(kind: RecordKind, id: string, value: JsonObject, expected: number | 'new' | 'any'): Promise<StoredRecord> {
    return (await this.#opened()).put(kind, id, value, expected);
  }

  async delete(kind: RecordKind, id: string, expected?: number): Promise<boolean> {
    const store = await this.#ifThere();
    if (store !== undefined) return store.delete(kind, id, expected);
    if (expected !== undefined) throw new StoreConflict({ kind, id }, undefined);
    return false;
  }

  async lock(name: string, ttlMs: number): Promise<(() => Promise<void>) | undefined> {
    return (await this.#opened()).lock(name, ttlMs);
  }

  async reseal(newKey: Buffer): Promise<number> {
    return (await this.#opened()).reseal(newKey);
  }

  health(): StoreHealth {
    return this.#store?.health() ?? this.#trouble;
  }

  async close(): Promise<void> {
    this.#closed = true;
    // One that is being opened is closed when it is.
    const store = await this.#opening?.catch(() => undefined);
    await store?.close();
  }

  #ifThere(): Promise<RecordStore | undefined> {
    if (this.#store !== undefined) return Promise.resolve(this.#store);
    return existsSync(this.#path) ? this.#opened() : Promise.resolve(undefined);
  }

  /** One opening at a time; one that failed is tried again by the next who asks. */
  #opened(): Promise<RecordStore> {
    if (this.#closed) return Promise.reject(new StoreAway(`file:${this.#path}`, 'it was closed'));
    this.#opening ??= this.#open().then(
      (store) => {
        this.#trouble = { ok: true };
        return (this.#store = store);
      },
      (error: unknown) => {
        this.#opening = undefined;
        const why = error instanceof Error ? error.message : 'it cannot be opened';
        if (this.#trouble.ok) this.#log.warn(why);
        this.#trouble = { ok: false, since: this.#trouble.ok ? Date.now() : this.#trouble.since, why };
        throw error instanceof StoreBroken || error instanceof StoreAway ? error : new StoreAway(`file:${this.#path}`, why);
      },
    );
    return this.#opening;
  }
}
