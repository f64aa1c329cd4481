// A record as it is sealed: its value, version and dates in one JSON text, so that none of them can be changed without the key.
// Pure but for the clock. It must never let a parser's error out, which would quote the value.
import type { RecordPlace } from './store-error.ts';

/** What a record holds. */
export type JsonObject = Readonly<Record<string, unknown>>;

/** A record, opened. */
export interface StoredRecord {
  readonly id: string;
  /** Another one after each write; a record that is made anew under an old id does not begin again at an old version */
  readonly version: number;
  readonly value: JsonObject;
  /** ISO 8601 */
  readonly createdAt: string;
  readonly updatedAt: string;
}

/** The text to be sealed for a value, and the record that it is. `old` is the record in whose place it comes. */
export function packRecord(
  place: RecordPlace,
  value: JsonObject,
  old: StoredRecord | undefined,
): { readonly text: string; readonly record: StoredRecord } {
  const now = Date.now();
  // Versions begin at the clock: were they to begin at 1, an editor of a record that was deleted and made anew could overwrite it unseen.
  const version = old === undefined ? now : old.version + 1;
  const updatedAt = new Date(now).toISOString();
  const dates = { createdAt: old?.createdAt ?? updatedAt, updatedAt };
  const text = JSON.stringify({ version, ...dates, value });
  const record = unpackRecord(place, text);
  if (record === undefined) throw new TypeError(`internal error: the value of ${place.kind} "${place.id}" is no JSON object`);
  return { text, record };
}

/** The record of an opened text; `undefined` where it is none. */
export function unpackRecord(place: RecordPlace, text: string): StoredRecord | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    // the error would quote the text
    return undefined;
  }
  if (!isObject(parsed)) return undefined;
  const { version, createdAt, updatedAt, value } = parsed;
  if (typeof version !== 'number' || typeof createdAt !== 'string' || typeof updatedAt !== 'string' || !isObject(value))
    return undefined;
  return { id: place.id, version, value, createdAt, updatedAt };
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
