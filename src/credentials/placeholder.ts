// Placeholders: what a sandbox holds in place of an `environment_variable` credential, found and swapped for the value on the way out.
// It knows where one stands and how a value is spelled there; whether it may stand there, and whom it may be sent to, the caller decides.
// It must never let one pass unseen: a placeholder without a value stays as it is and is reported, so that the request can be refused.
import { isFieldValue } from '../exchange/header-fields.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';

/** The value for a credential's id; `undefined` where there is none, or none for this exchange. */
export type LookUpValue = (id: string) => string | undefined;

/** Where a placeholder stood. */
export type Place = 'header' | 'query' | 'path' | 'body';

/** A placeholder that stood in a request. */
export interface Found {
  readonly id: string;
  readonly place: Place;
  /** Of a header, in lower case */
  readonly header: string | undefined;
}

/** A text with its placeholders swapped. It holds secrets: never log it. */
export interface Replaced {
  readonly text: string;
  /** Ids in the order they stood there, each once */
  readonly found: readonly string[];
  /** Those of `found` that stayed as they were: no value, or one that cannot stand there */
  readonly missing: readonly string[];
}

/** Swaps in a body on its way. */
export interface BodyReplacer {
  /** Grows while the body goes through; once it has ended it is what Replaced says. */
  readonly found: ReadonlySet<string>;
  readonly missing: ReadonlySet<string>;
  /** The bytes that may leave now; all but a suffix of MOST_HELD at most that may be the beginning of a placeholder */
  push(chunk: Buffer): Buffer;
  end(): Buffer;
}

/** How every placeholder begins, unless it is percent-encoded or inside base64. */
export const PREFIX = '__GEMINI_CRED_';

/** What a sandbox's environment holds for the credential. */
export function placeholderFor(id: string): string {
  return `${PREFIX}${id}__`;
}

/** An id that holds `__`, or ends in `_`, would leave open where its placeholder ends. */
export function canBePlaceholder(id: string): boolean {
  return new RegExp(`^${ID}$`).test(id);
}

/** Why an id cannot be that of an `environment_variable`; to stand after its place. */
export const NO_PLACEHOLDER =
  'has an id that no placeholder can hold; use at most 63 letters, digits and "-", and single "_" between them';

/** A character as itself or, for `encoded`, in its percent escape. Everything in a placeholder is unreserved, so both mean the same. */
function spelled(character: string, encoded: boolean): string {
  const escape = character.charCodeAt(0).toString(16);
  return encoded ? `(?:${character}|%${escape.replace(/[a-f]/, (digit) => `[${digit}${digit.toUpperCase()}]`)})` : character;
}

function idPattern(encoded: boolean): string {
  const letter = encoded ? '(?:[A-Za-z0-9-]|%(?:2[Dd]|3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa]))' : '[A-Za-z0-9-]';
  return `(?!-|%2[Dd])${letter}(?:${spelled('_', encoded)}?${letter}){0,62}`;
}

const ID = idPattern(false);

interface Grammar {
  /** Any placeholder; the id in the first group */
  readonly whole: RegExp;
  /** The beginning of one, at the end of a text */
  readonly begun: RegExp;
}

function grammar(encoded: boolean): Grammar {
  const letters = Array.from(PREFIX, (character) => spelled(character, encoded));
  const underscore = spelled('_', encoded);
  const half = encoded ? '(?:%[0-9A-Fa-f]?)?' : '';
  let begun = `(?:${idPattern(encoded)}${underscore}?)?${half}`;
  for (const letter of letters.slice(1).reverse()) begun = `(?:${letter}${begun}|${half})`;
  return {
    whole: new RegExp(`${letters.join('')}(${idPattern(encoded)})${underscore}{2}`, 'g'),
    begun: new RegExp(encoded ? `(?:${letters[0] ?? ''}${begun}|%5?)$` : `${letters[0] ?? ''}${begun}$`),
  };
}

const LITERAL = grammar(false);
const ENCODED = grammar(true);

/** Bytes that a BodyReplacer holds back at most: a placeholder of the longest id, every character in its percent escape. */
export const MOST_HELD = 3 * (PREFIX.length + 63 + 2) - 1;

/** Ids of the placeholders in a text, in order, each once; percent-encoded ones too. */
export function findPlaceholders(text: string): string[] {
  return replaceIn(text, ENCODED, () => undefined).found.slice();
}

/** Every placeholder of a request's head, wherever it stands. Fast where there is none. */
export function locatePlaceholders(head: { path: string; query: string; fields: HeaderFields }): Found[] {
  const located: Found[] = [];
  for (const place of ['path', 'query'] as const)
    for (const id of findPlaceholders(head[place])) located.push({ id, place, header: undefined });
  for (let i = 0; i + 1 < head.fields.length; i += 2) {
    const header = (head.fields[i] as string).toLowerCase();
    const { found } = replaceInHeader(head.fields[i + 1] as string, () => undefined);
    for (const id of found) located.push({ id, place: 'header', header });
  }
  return located;
}

const BASIC = /^(basic +)([A-Za-z0-9+/_-]+={0,2})\s*$/i;

/**
 * A field value with its placeholders swapped: as they stand, percent-encoded (the value is encoded too then), and inside the base64 of
 * `Basic`, which is encoded anew. A value that no field can hold (fault E08) counts as missing.
 */
export function replaceInHeader(value: string, lookUp: LookUpValue): Replaced {
  const basic = BASIC.exec(value);
  if (basic !== null && !value.includes(PREFIX)) {
    const [, scheme = '', token = ''] = basic;
    const inside = replaceIn(Buffer.from(token, 'base64').toString('latin1'), LITERAL, (id) => {
      const secret = lookUp(id);
      return secret === undefined ? undefined : utf8InLatin1(secret);
    });
    if (inside.found.length === 0) return { text: value, found: NONE, missing: NONE };
    const changed = inside.found.length > inside.missing.length;
    return { ...inside, text: changed ? scheme + Buffer.from(inside.text, 'latin1').toString('base64') : value };
  }
  return replaceIn(value, ENCODED, (id, asFound) => {
    const secret = lookUp(id);
    if (secret === undefined) return undefined;
    if (asFound.includes('%')) return percentEncoded(secret);
    return isFieldValue(secret) ? secret : undefined;
  });
}

/** A query, or a form, with its placeholders swapped, percent-encoded or not; the value goes in percent-encoded. */
export function replaceInQuery(query: string, lookUp: LookUpValue): Replaced {
  return replaceIn(query, ENCODED, (id) => {
    const secret = lookUp(id);
    return secret === undefined ? undefined : percentEncoded(secret);
  });
}

const NONE: readonly string[] = [];

/** What every spelling of a placeholder has: without it there is nothing to look for. */
const MAY_HOLD_ONE = /_|%5[fF]/;

type ValueFor = (id: string, asFound: string, at: number) => string | undefined;

function replaceIn(text: string, { whole }: Grammar, valueFor: ValueFor): Replaced {
  if (!MAY_HOLD_ONE.test(text)) return { text, found: NONE, missing: NONE };
  const found = new Set<string>();
  const missing = new Set<string>();
  const replaced = text.replace(whole, (asFound: string, spelledId: string, at: number) => {
    const id = decodeURIComponent(spelledId);
    found.add(id);
    const value = valueFor(id, asFound, at);
    if (value === undefined) missing.add(id);
    return value ?? asFound;
  });
  return { text: replaced, found: [...found], missing: [...missing] };
}

function utf8InLatin1(text: string): string {
  return Buffer.from(text).toString('latin1');
}

/** Everything but the unreserved characters of RFC 3986 section 2.3; safe in a query, in a form and in a path. */
function percentEncoded(text: string): string {
  return utf8InLatin1(text).replace(
    /[^A-Za-z0-9._~-]/g,
    (byte) => `%${byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`,
  );
}

function jsonEscaped(text: string): string {
  return utf8InLatin1(JSON.stringify(text).slice(1, -1));
}

/**
 * Swaps placeholders in a body that comes in chunks. By `contentType` the value is escaped for a JSON string (application/json and +json),
 * percent-encoded (application/x-www-form-urlencoded, where placeholders may be so too), or put in as it is, in UTF-8. What the chunks are
 * cut into does not matter. The body changes its length, and a coded one must be decoded before.
 */
export function createBodyReplacer(lookUp: LookUpValue, contentType: string | undefined): BodyReplacer {
  const type = (contentType ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (type === 'application/x-www-form-urlencoded') return new Replacer(lookUp, ENCODED, percentEncoded);
  const json = type === 'application/json' || type === 'application/x-ndjson' || type.endsWith('+json');
  return new Replacer(lookUp, LITERAL, json ? jsonEscaped : utf8InLatin1);
}

const NOTHING = Buffer.alloc(0);

class Replacer implements BodyReplacer {
  readonly found = new Set<string>();
  readonly missing = new Set<string>();
  readonly #lookUp: LookUpValue;
  readonly #grammar: Grammar;
  readonly #spell: (value: string) => string;
  #held = NOTHING;

  constructor(lookUp: LookUpValue, grammarOfBody: Grammar, spell: (value: string) => string) {
    this.#lookUp = lookUp;
    this.#grammar = grammarOfBody;
    this.#spell = spell;
  }

  push(chunk: Buffer): Buffer {
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    // latin1 has one character for each byte, so that places in the text are places in the body.
    const text = bytes.toString('latin1');
    let over = 0;
    const replaced = replaceIn(text, this.#grammar, (id, asFound, at) => {
      over = at + asFound.length;
      const value = this.#lookUp(id);
      return value === undefined ? undefined : this.#spell(value);
    });
    for (const id of replaced.found) this.found.add(id);
    for (const id of replaced.missing) this.missing.add(id);
    // Behind the last whole one only: its own end looks like the beginning of another.
    const tail = text.slice(Math.max(over, text.length - MOST_HELD));
    const begun = MAY_BEGIN_ONE.test(tail) ? tail.search(this.#grammar.begun) : -1;
    const held = begun < 0 ? 0 : tail.length - begun;
    // A copy, so that a few held bytes do not keep a whole chunk alive.
    this.#held = held > 0 ? Buffer.from(bytes.subarray(bytes.length - held)) : NOTHING;
    if (replaced.text === text) return bytes.subarray(0, bytes.length - held);
    return Buffer.from(replaced.text.slice(0, replaced.text.length - held), 'latin1');
  }

  end(): Buffer {
    const rest = this.#held;
    this.#held = NOTHING;
    return rest;
  }
}

const MAY_BEGIN_ONE = /[_%]/;
