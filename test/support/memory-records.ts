// The store's promises in memory, shared by as many "proxies" as a test has: versions, conflicts, a lock; and its troubles on demand.
import type { JsonObject, RecordKind, RecordPage, Records, StoredRecord } from '../../src/exchange/records.ts';

/** One of the store's calls */
export type Call = 'get' | 'put' | 'delete' | 'lock' | 'list';

/** See above. */
export class MemoryRecords implements Records {
  /** By kind and id, as in `credentials:github` */
  readonly kept = new Map<string, StoredRecord>();
  /** Calls so far, in order */
  readonly calls: Call[] = [];
  /** Asked before each call; what it gives is thrown by its name, such as `StoreAway` */
  trouble: (call: Call) => string | undefined = () => undefined;
  readonly #locks = new Set<string>();

  async get(kind: RecordKind, id: string): Promise<StoredRecord | undefined> {
    await this.#call('get');
    return this.kept.get(`${kind}:${id}`);
  }

  async list(kind: RecordKind): Promise<RecordPage> {
    await this.#call('list');
    return { records: [...this.kept].filter(([key]) => key.startsWith(`${kind}:`)).map(([, record]) => record), broken: [] };
  }

  async put(kind: RecordKind, id: string, value: JsonObject, expected: number | 'new' | 'any'): Promise<StoredRecord> {
    await this.#call('put');
    return this.set(kind, id, value, expected);
  }

  async delete(kind: RecordKind, id: string): Promise<boolean> {
    await this.#call('delete');
    return this.kept.delete(`${kind}:${id}`);
  }

  async lock(name: string): Promise<(() => Promise<void>) | undefined> {
    await this.#call('lock');
    if (this.#locks.has(name)) return undefined;
    this.#locks.add(name);
    return () => Promise.resolve(void this.#locks.delete(name));
  }

  /** A write at once, as an operator's at another proxy. */
  set(kind: RecordKind, id: string, value: JsonObject, expected: number | 'new' | 'any' = 'any'): StoredRecord {
    const old = this.kept.get(`${kind}:${id}`);
    if (expected !== 'any' && old?.version !== (expected === 'new' ? undefined : expected)) throw named('StoreConflict');
    const version = (old?.version ?? 100) + 1;
    const record = { id, version, value: structuredClone(value), createdAt: '', updatedAt: '' };
    this.kept.set(`${kind}:${id}`, record);
    return record;
  }

  /** What a record holds; throws where there is none. */
  value(kind: RecordKind, id: string): JsonObject {
    const record = this.kept.get(`${kind}:${id}`);
    if (record === undefined) throw new Error(`there is no ${kind} "${id}"`);
    return record.value;
  }

  async #call(call: Call): Promise<void> {
    this.calls.push(call);
    // Every call of a store takes a round of I/O.
    await new Promise((resolve) => setImmediate(resolve));
    const trouble = this.trouble(call);
    if (trouble !== undefined) throw named(trouble);
  }
}

function named(name: string): Error {
  return Object.assign(new Error(`${name}: in words for the operator`), { name });
}
