// JSON text to a value, with what JSON.parse keeps to itself: where the text breaks off being JSON, and which keys stand twice (fault M13).
// It must never quote the text in what it says about syntax: the text may be a hook's output or hold a secret. It recurses to a fixed depth only.
import { at } from './json-reader.ts';

/** A key that an object holds more than once; the last one would silently win. */
export interface DuplicateKey {
  /** Path of the second one */
  readonly path: string;
  /** From 1 */
  readonly line: number;
  readonly firstLine: number;
}

/** What a text holds. */
export interface JsonValue {
  readonly value: unknown;
  readonly duplicates: readonly DuplicateKey[];
}

/** Why a text is not JSON. Line and column count from 1, the column in UTF-16 units. */
export interface JsonFault {
  readonly problem: string;
  readonly line: number;
  readonly column: number;
}

/** Deeper than any hooks file or payload; shallow enough for every recursion over it. */
export const DEEPEST = 500;

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /[A-Za-z_][\w.]*/y;
const CONSTANTS: ReadonlySet<string> = new Set(['true', 'false', 'null']);

/** Reads one JSON text (RFC 8259). A byte order mark before it is skipped. Never throws. */
export function readJson(source: string): JsonValue | JsonFault {
  const text = source.replace(/^\uFEFF/, '');
  const scan = new Scan(text);
  if (!scan.document()) {
    const before = text.slice(0, scan.at).split('\n');
    return { problem: scan.problem, line: before.length, column: (before.at(-1)?.length ?? 0) + 1 };
  }
  try {
    return { value: JSON.parse(text), duplicates: scan.duplicates };
  } catch {
    return { problem: 'this is not JSON', line: 1, column: 1 };
  }
}

/** Walks the text once. Each step answers whether it found what it is named after; where not, `problem` and `at` tell. */
class Scan {
  at = 0;
  problem = '';
  readonly duplicates: DuplicateKey[] = [];
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  document(): boolean {
    this.#blanks();
    if (this.at >= this.#text.length) return this.#no('the text is empty');
    if (!this.#value('', 0)) return false;
    this.#blanks();
    return this.at === this.#text.length || this.#no('something follows after the end of the JSON; one value is allowed');
  }

  #value(path: string, depth: number): boolean {
    if (depth > DEEPEST) return this.#no(`nested deeper than ${DEEPEST} levels`);
    switch (this.#text[this.at]) {
      case '{':
        return this.#object(path, depth);
      case '[':
        return this.#list(path, depth);
      case '"':
        return this.#string() !== undefined;
      default:
        return this.#plain();
    }
  }

  #object(path: string, depth: number): boolean {
    const opened = this.at;
    const lines = new Map<string, number>();
    this.at += 1;
    this.#blanks();
    if (this.#skip('}')) return true;
    for (;;) {
      const start = this.at;
      if (this.#text[start] !== '"') return this.#no(this.#strayKey('a key in double quotes is missing here', opened));
      const key = this.#string();
      if (key === undefined) return false;
      const place = at(path, key);
      const line = this.#lineOf(start);
      const firstLine = lines.get(key);
      if (firstLine === undefined) lines.set(key, line);
      else this.duplicates.push({ path: place, line, firstLine });
      this.#blanks();
      if (!this.#skip(':')) return this.#no(this.#ended(opened) ?? 'a colon is missing after the key');
      this.#blanks();
      if (!this.#value(place, depth + 1)) return false;
      const end = this.#next('}', opened);
      if (end !== 'more') return end === 'closed';
    }
  }

  #list(path: string, depth: number): boolean {
    const opened = this.at;
    this.at += 1;
    this.#blanks();
    if (this.#skip(']')) return true;
    for (let index = 0; ; index += 1) {
      if (this.#ended(opened) !== undefined) return this.#no(this.#ended(opened) ?? '');
      if (!this.#value(at(path, index), depth + 1)) return false;
      const end = this.#next(']', opened);
      if (end !== 'more') return end === 'closed';
    }
  }

  /** After a member: the closing bracket, or a comma with another member behind it. */
  #next(closing: '}' | ']', opened: number): 'closed' | 'more' | 'broken' {
    this.#blanks();
    if (this.#skip(closing)) return 'closed';
    const comma = this.at;
    if (!this.#skip(',')) {
      this.#no(this.#ended(opened) ?? `a comma or "${closing}" is missing here`);
      return 'broken';
    }
    this.#blanks();
    const next = this.#text[this.at];
    if (next !== '}' && next !== ']') return 'more';
    this.at = comma;
    this.#no('a comma stands before the closing bracket; take it away');
    return 'broken';
  }

  #string(): string | undefined {
    const start = this.at;
    for (let i = start + 1; i < this.#text.length; i += 1) {
      const unit = this.#text.charCodeAt(i);
      if (unit === 0x22) {
        const value = parsedString(this.#text.slice(start, i + 1));
        if (value === undefined) this.#no('an escape in this text is not one of JSON');
        else this.at = i + 1;
        return value;
      }
      if (unit < 0x20) {
        this.at = i;
        this.#no('a line break or control character stands inside a text; write it as an escape');
        return undefined;
      }
      if (unit === 0x5c) i += 1;
    }
    this.#no('a text begins here and its closing double quote is missing');
    return undefined;
  }

  #plain(): boolean {
    NUMBER.lastIndex = this.at;
    const number = NUMBER.exec(this.#text)?.[0];
    if (number !== undefined) return this.#pass(number);
    WORD.lastIndex = this.at;
    const word = WORD.exec(this.#text)?.[0];
    if (word !== undefined && CONSTANTS.has(word)) return this.#pass(word);
    return this.#no(this.#strayKey('no JSON value begins here; texts stand in double quotes, and words are true, false, null'));
  }

  /** What stands here, where it is one of the usual guests from other notations. */
  #strayKey(otherwise: string, opened?: number): string {
    const here = this.#text[this.at];
    if (here === undefined) return this.#ended(opened) ?? 'the text ends too early';
    if (here === '/' || here === '#') return 'JSON has no comments; take it away';
    if (here === "'") return 'single quotes; JSON has double quotes';
    return otherwise;
  }

  #ended(opened: number | undefined): string | undefined {
    if (this.at < this.#text.length) return undefined;
    return opened === undefined
      ? 'the text ends too early'
      : `the text ends before the bracket of line ${this.#lineOf(opened)} is closed`;
  }

  #blanks(): void {
    for (;;) {
      const unit = this.#text.charCodeAt(this.at);
      if (unit !== 0x20 && unit !== 0x0a && unit !== 0x0d && unit !== 0x09) return;
      this.at += 1;
    }
  }

  #skip(character: string): boolean {
    if (this.#text[this.at] !== character) return false;
    this.at += 1;
    return true;
  }

  #pass(word: string): boolean {
    this.at += word.length;
    return true;
  }

  #no(problem: string): boolean {
    this.problem = problem;
    return false;
  }

  #knownTo = 0;
  #knownLine = 1;

  /** Line of a place; places are asked for in rising order but for brackets that an error looks back to. */
  #lineOf(place: number): number {
    if (place < this.#knownTo) return this.#text.slice(0, place).split('\n').length;
    for (; this.#knownTo < place; this.#knownTo += 1) {
      if (this.#text.charCodeAt(this.#knownTo) === 0x0a) this.#knownLine += 1;
    }
    return this.#knownLine;
  }
}

function parsedString(quoted: string): string | undefined {
  try {
    const value: unknown = JSON.parse(quoted);
    return typeof value === 'string' ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Whether a parsed value is nested deeper than `DEEPEST`: what walks it, or writes it out, would end in a stack overflow. */
export function isTooDeep(value: unknown, left = DEEPEST): boolean {
  if (typeof value !== 'object' || value === null) return false;
  if (left < 0) return true;
  for (const member of Object.values(value)) if (isTooDeep(member, left - 1)) return true;
  return false;
}
