// Seals a text so that only the holder of the key opens it, and only in the place it was sealed for.
// Pure but for the nonce, which is random and never a caller's: one nonce used twice under one key gives both texts away.
// It must never put a plain text or a key into an error.
import { createCipheriv, createDecipheriv, createHmac, createSecretKey, randomBytes } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import type { RecordPlace } from './store-error.ts';

/** Length of a key in bytes. */
export const KEY_BYTES = 32;

/** A key as it is used. `id` says which key it is and nothing about what it is; it stands in the clear in each sealed text. */
export interface SealKey {
  readonly id: string;
  readonly secret: KeyObject;
}

/** A part of the additional data, so that a later format cannot be passed off as this one. */
const FORMAT = 'sp1';
const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const SEALED = /^sp1\.([0-9a-f]{16})\.([A-Za-z0-9_-]+)$/;

/** Makes a key of 32 bytes usable. Throws a RangeError for any other length. */
export function sealKey(bytes: Buffer): SealKey {
  if (bytes.length !== KEY_BYTES) throw new RangeError(`a key of the store has ${KEY_BYTES} bytes, not ${bytes.length}`);
  const id = createHmac('sha256', bytes).update('sallyport: which key').digest('hex').slice(0, 16);
  return { id, secret: createSecretKey(bytes) };
}

/** Seals a text for one place: `sp1.<key id>.<base64url of nonce, cipher text and tag>`. */
export function seal(key: SealKey, place: RecordPlace, text: string): string {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key.secret, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(boundTo(place));
  const sealed = Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]);
  return `${FORMAT}.${key.id}.${sealed.toString('base64url')}`;
}

/** The id of the key that a text was sealed with; `undefined` where it is no sealed text. */
export function keyIdOf(sealed: string): string | undefined {
  return SEALED.exec(sealed)?.[1];
}

/** The text, or `undefined` where it does not open: another key, another place, or one bit changed. Never throws. */
export function unseal(key: SealKey, place: RecordPlace, sealed: string): string | undefined {
  const bytes = Buffer.from(SEALED.exec(sealed)?.[2] ?? '', 'base64url');
  if (bytes.length < NONCE_BYTES + TAG_BYTES) return undefined;
  const end = bytes.length - TAG_BYTES;
  try {
    const decipher = createDecipheriv(CIPHER, key.secret, bytes.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES });
    decipher.setAAD(boundTo(place));
    decipher.setAuthTag(bytes.subarray(end));
    return Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES, end)), decipher.final()]).toString('utf8');
  } catch {
    // final() says only that it did not authenticate, which is what `undefined` says
    return undefined;
  }
}

/** A list in JSON: no kind and id can be cut so that they read as another kind and id. */
function boundTo(place: RecordPlace): Buffer {
  return Buffer.from(JSON.stringify([FORMAT, place.kind, place.id]), 'utf8');
}
