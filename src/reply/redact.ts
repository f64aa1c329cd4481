// Reflected secrets: what was put on at the door does not come back through it. Every form of every secret becomes `[redacted]`, in
// answer fields and in bodies, across chunk boundaries. It must never hold back what cannot be the beginning of a form, and the
// result must never depend on where chunks begin: a byte is replaced exactly if some form covers it.
import { follow, formsOf } from './secret-forms.ts';
import type { Form, Thread } from './secret-forms.ts';

/** Secrets below this many characters are let through: they would be found by chance, and an answer be spoiled. */
export const SHORTEST_SECRET = 8;

/** What stands for a secret, or for several that overlap. */
export const REDACTED = '[redacted]';

/** One body on its way. */
export interface RedactionStream {
  /**
   * The bytes that may leave now; perhaps none. All but a suffix that is a proper prefix of some form, so an event that ends in blank
   * lines leaves whole. What comes back may be a part of `chunk` itself, not a copy.
   */
  push(chunk: Buffer): Buffer;
  /** The held rest; the body is over. */
  end(): Buffer;
}

/** Finds one set of secrets. Costs some milliseconds and 64 KiB to make: once for each set of credentials, not for each exchange. */
export interface Redactor {
  /** Bytes that a stream holds back at most */
  readonly maxHeld: number;
  /** Of a field or trailer value in latin1 text, as fields hold them; the same string where there is nothing to replace */
  text(value: string): string;
  stream(): RedactionStream;
}

/**
 * Forms: raw; percent-encoded, wholly or in part, in any case, `+` for a blank; JSON-escaped, wholly or in part; base64 and base64url, at
 * any offset, such as in a Basic value; UTF-8, and latin1 where the secret fits it. Not known: base64 in lines, entities of HTML, what is
 * encoded twice, and `secrets` shorter than SHORTEST_SECRET. One pass; a start that fails is left where it fails, so time is linear
 * but for a secret that repeats its own beginning, where it is text times secret at worst.
 */
export function createRedactor(secrets: readonly string[]): Redactor {
  const known = [...new Set(secrets)].filter((secret) => secret.length >= SHORTEST_SECRET);
  const forms = known.flatMap(formsOf);
  if (forms.length === 0) return UNTOUCHED;
  const starts = startsOf(forms);
  return {
    maxHeld: Math.max(...forms.map((form) => form.longest)) - 1,
    text: (value) => redactText(value, starts),
    stream: () => new Stream(starts),
  };
}

const NOTHING = Buffer.alloc(0);

const UNTOUCHED: Redactor = {
  maxHeld: 0,
  text: (value) => value,
  stream: () => ({ push: (chunk) => chunk, end: () => NOTHING }),
};

const MARK = Buffer.from(REDACTED);

/** Where forms can begin. */
interface Starts {
  /** By the first byte */
  readonly byFirst: readonly (readonly Form[])[];
  /** By the first two bytes, the first in the high place: 0 where no form begins so, otherwise the place in `groups` */
  readonly byPair: Uint8Array;
  readonly groups: readonly (readonly Form[])[];
}

/** A table of bytes can name so many groups; pairs beyond them are given to the last, which holds every form. */
const MOST_GROUPS = 255;

function startsOf(forms: readonly Form[]): Starts {
  const byFirst: Form[][] = Array.from({ length: 256 }, () => []);
  const pairs = new Map<number, number[]>();
  const [one, two] = [new Uint8Array(1), new Uint8Array(2)];
  const canBegin = (form: Form, text: Uint8Array): boolean => follow({ form, place: 0, at: 0 }, text) !== 'dead';
  for (const [index, form] of forms.entries()) {
    for (let first = 0; first < 256; first += 1) {
      one[0] = two[0] = first;
      if (!canBegin(form, one)) continue;
      byFirst[first]?.push(form);
      for (let second = 0; second < 256; second += 1) {
        two[1] = second;
        if (!canBegin(form, two)) continue;
        const pair = (first << 8) | second;
        const group = pairs.get(pair);
        if (group === undefined) pairs.set(pair, [index]);
        else group.push(index);
      }
    }
  }
  return { byFirst, ...grouped(pairs, forms) };
}

function grouped(pairs: ReadonlyMap<number, readonly number[]>, forms: readonly Form[]): Omit<Starts, 'byFirst'> {
  const byPair = new Uint8Array(65536);
  const groups: (readonly Form[])[] = [[]];
  const places = new Map<string, number>();
  for (const [pair, group] of pairs) {
    const key = group.join();
    let place = places.get(key);
    if (place === undefined) {
      place = Math.min(groups.length, MOST_GROUPS);
      groups[place] = place < MOST_GROUPS ? group.map((index) => forms[index] as Form) : forms;
      places.set(key, place);
    }
    byPair[pair] = place;
  }
  return { byPair, groups };
}

function redactText(value: string, starts: Starts): string {
  const last = value.length - 1;
  for (let i = 0; i < last; i += 1) {
    if (starts.byPair[((value.charCodeAt(i) & 255) << 8) | (value.charCodeAt(i + 1) & 255)] === 0) continue;
    // A value beyond latin1 never came from the wire; its bytes are those of UTF-8 then.
    const encoding = /^[\0-\xff]*$/.test(value) ? 'latin1' : 'utf8';
    const stream = new Stream(starts);
    return Buffer.concat([stream.push(Buffer.from(value, encoding)), stream.end()]).toString(encoding);
  }
  return value;
}

/** The next place where the first two bytes of some form stand; the last byte of the text, where it has but one, is such a place too. */
function nextStart(text: Buffer, from: number, byPair: Uint8Array): number {
  const end = text.length - 1;
  if (from >= end) return from;
  let pair = text[from] as number;
  for (let at = from; at < end; at += 1) {
    pair = ((pair & 255) << 8) | (text[at + 1] as number);
    if (byPair[pair] !== 0) return at;
  }
  return end;
}

class Stream implements RedactionStream {
  readonly #starts: Starts;
  /** What may yet turn out to begin a form; the threads begin with its first byte */
  #held = NOTHING;
  #threads: Thread[] = [];
  /** Bytes of the text at hand that have gone out, or that a mark already stands for: it may be more than is not held */
  #done = 0;
  #pieces: Buffer[] = [];
  #spare: Thread;

  constructor(starts: Starts) {
    this.#starts = starts;
    this.#spare = { form: starts.groups[1]?.[0] as Form, place: 0, at: 0 };
  }

  push(chunk: Buffer): Buffer {
    const text = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const hold = this.#scan(text, false);
    // A copy, so that a few held bytes do not keep a whole chunk alive.
    this.#held = hold < text.length ? Buffer.from(text.subarray(hold)) : NOTHING;
    return this.#release(text, hold);
  }

  end(): Buffer {
    const text = this.#held;
    this.#scan(text, true);
    this.#held = NOTHING;
    return this.#release(text, text.length);
  }

  /** Finds what is to be replaced, up to the first place where a form may have begun that the text does not finish. Returns that place. */
  #scan(text: Buffer, last: boolean): number {
    let at = 0;
    if (this.#threads.length > 0) {
      const resumed = this.#threads;
      this.#threads = [];
      for (const thread of resumed) this.#follow(thread, text, 0);
      if (this.#settled(last)) at = 1;
      else return 0;
    }
    const { byPair, byFirst, groups } = this.#starts;
    const end = text.length - 1;
    while (at <= end) {
      at = nextStart(text, at, byPair);
      if (at > end) break;
      const first = text[at] as number;
      const forms = at === end ? byFirst[first] : groups[byPair[(first << 8) | (text[at + 1] as number)] as number];
      for (const form of forms as readonly Form[]) this.#begin(form, text, at);
      if (!this.#settled(last)) return at;
      at += 1;
    }
    return text.length;
  }

  /** Whether nothing is left that could go on with the next chunk. */
  #settled(last: boolean): boolean {
    if (last) this.#threads = [];
    return this.#threads.length === 0;
  }

  #begin(form: Form, text: Buffer, at: number): void {
    const thread = this.#spare;
    thread.form = form;
    thread.place = 0;
    thread.at = at;
    // Nearly every thread dies at once, so that only one that lives is worth an object of its own.
    if (this.#follow(thread, text, at)) this.#spare = { form, place: 0, at: 0 };
  }

  /** Whether the thread goes on with the next chunk, and is kept for it. */
  #follow(thread: Thread, text: Buffer, start: number): boolean {
    const fate = follow(thread, text);
    if (fate === 'matched') this.#cover(text, start, thread.at);
    else if (fate === 'alive') this.#threads.push(thread);
    return fate === 'alive';
  }

  /** Replaces a part of the text; parts that overlap become one. They come in the order of their starts. */
  #cover(text: Buffer, start: number, end: number): void {
    if (start >= this.#done) {
      this.#pieces.push(text.subarray(this.#done, start), MARK);
      this.#done = end;
    } else if (end > this.#done) this.#done = end;
  }

  #release(text: Buffer, hold: number): Buffer {
    const rest = text.subarray(Math.min(this.#done, hold), hold);
    this.#done = Math.max(0, this.#done - hold);
    for (const thread of this.#threads) thread.at -= hold;
    if (this.#pieces.length === 0) return rest;
    const pieces = this.#pieces;
    this.#pieces = [];
    pieces.push(rest);
    return Buffer.concat(pieces);
  }
}
