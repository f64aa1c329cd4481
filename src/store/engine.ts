// What the store asks of an engine: sealed texts under keys, read by Keyv, and changed only where the text is still the one that
// the change was made for. An engine never sees a plain value, and must never answer "not there" when it means "cannot say".
import Keyv from 'keyv';
import type { KeyvOptions, KeyvStoreAdapter } from 'keyv';

/** A change of one text. It happens whole, and only where everything is still as it says, whoever else writes at that moment. */
export interface Change {
  readonly key: string;
  /** The text that must be there; `undefined`: none may be there */
  readonly before: string | undefined;
  /** The text to be there; `undefined`: none */
  readonly after: string | undefined;
  /** A second text that must be unchanged, so that nothing is sealed with a key that was just rotated away */
  readonly guard?: { readonly key: string; readonly text: string };
}

/** One text and its key. */
export interface Entry {
  readonly key: string;
  readonly text: string;
}

/** Part of the keys: those that begin with `prefix`, after the key `after`, at most `limit` of them. */
export interface Range {
  readonly prefix: string;
  readonly after: string | undefined;
  readonly limit: number;
}

/** An engine. Every call may reject with an error of its driver, or never settle; the caller bounds and words both. */
export interface Engine {
  /** The engine and its place for people, without user, password and options */
  readonly place: string;
  read(key: string): Promise<string | undefined>;
  /** False where something is not as the change says; nothing happened then. */
  swap(change: Change): Promise<boolean>;
  /** Sorted by the bytes of the key. */
  range(range: Range): Promise<readonly Entry[]>;
  /** Takes a name for `ttlMs`; false where somebody has it. The engine's own clock decides. */
  claim(name: string, claim: { readonly token: string; readonly ttlMs: number }): Promise<boolean>;
  /** Gives a name back where it is still held by this token. */
  release(name: string, token: string): Promise<void>;
  /** Told when a call had no answer in time: a connection that is silent may have to be made anew. */
  silent(): void;
  /** What a driver's error means, in few words, quoting nothing that the driver was given. */
  reason(error: unknown): string;
  close(): Promise<void>;
}

/** Reads of sealed texts. */
export type ReadText = (key: string) => Promise<string | undefined>;

/**
 * Keyv over an adapter, so that what is stored under a key is the sealed text and nothing else, and an error is an error: left
 * as it is, Keyv turns one into "not there".
 */
export function readsOver(adapter: KeyvStoreAdapter): ReadText {
  const keyv = new Keyv<string>({
    store: adapter,
    namespace: '',
    useKeyPrefix: false,
    throwOnErrors: true,
    serialize: ({ value }) => value as string,
    deserialize: asValue,
  });
  // The calls reject as well; an event without a listener would end the process.
  keyv.on('error', () => undefined);
  return (key) => keyv.get(key);
}

/** Keyv keeps the type of a value to itself; here it is the text itself. */
const asValue = ((text: string) => ({ value: text })) as DeserializedText;
type DeserializedText = NonNullable<KeyvOptions['deserialize']>;

/** The code of a driver's error, such as ECONNREFUSED or 28P01; its message may quote what must not be seen. */
export function driverCode(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown error';
  if ('code' in error && typeof error.code === 'string' && /^\w{1,40}$/.test(error.code)) return error.code;
  // a name tried over several addresses fails with one error for each
  if (error instanceof AggregateError && error.errors.length > 0) return driverCode(error.errors[0]);
  return error.name === 'Error' ? error.constructor.name : error.name;
}

/** Words for the codes that the system and TLS give, whatever the engine. */
export function networkReason(code: string): string | undefined {
  switch (code) {
    case 'ECONNREFUSED':
      return 'the connection is refused; start the server or correct store.uri';
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `its name does not resolve (${code}); correct store.uri`;
    case 'ETIMEDOUT':
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return `it cannot be reached (${code})`;
    case 'ECONNRESET':
    case 'EPIPE':
      return `the connection was lost (${code})`;
    case 'DEPTH_ZERO_SELF_SIGNED_CERT':
    case 'SELF_SIGNED_CERT_IN_CHAIN':
    case 'UNABLE_TO_VERIFY_LEAF_SIGNATURE':
    case 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY':
    case 'CERT_HAS_EXPIRED':
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
      return `its certificate cannot be verified (${code}); name its CA in NODE_EXTRA_CA_CERTS`;
    default:
      return undefined;
  }
}
