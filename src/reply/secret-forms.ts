// The spellings in which a secret can come back: as it is, percent-encoded, JSON-escaped, and inside base64, each letter spelled on its own.
// A form is a list of bytes; how each of them may stand in a text is read while matching, so that half-encoded spellings need no list.
// It must never read a text in two ways at once: a form has one reading of `%` and of `\`, and a secret that holds them has more forms.

/** One way of reading a text for one secret. */
export interface Form {
  /** The bytes to be found, in order */
  readonly bytes: Uint8Array;
  /** Other bytes that will do at a place: the two alphabets of base64, and a last digit that holds foreign bits */
  readonly others: readonly (readonly number[] | undefined)[];
  /** The UTF-16 units of the character that begins at a place, for `\u`; `undefined` inside a character */
  readonly units: readonly (readonly number[] | undefined)[];
  /** `%` begins an escape, and `+` is a blank */
  readonly percent: boolean;
  /** `\` begins an escape */
  readonly json: boolean;
  /** Bytes of its longest spelling */
  readonly longest: number;
}

/** A form on its way through a text: how much of it has been found, and where the next byte is looked for. */
export interface Thread {
  form: Form;
  place: number;
  at: number;
}

/** What came of following a thread to the end of a text. */
export type Fate = 'dead' | 'alive' | 'matched';

/** Every form of a secret. Two bytes of a text decide nearly always that none begins there. */
export function formsOf(secret: string): Form[] {
  const forms: Form[] = [];
  for (const encode of [utf8, latin1]) {
    const spelled = Array.from(secret, (character) => ({ character, bytes: encode(character) }));
    if (encode === latin1 && !(/[\x80-\xff]/.test(secret) && /^[\0-\xff]*$/.test(secret))) continue;
    forms.push(...spellings(spelled));
    const bytes = spelled.flatMap((each) => each.bytes);
    forms.push(...[0, 1, 2].map((offset) => base64Form(bytes, offset)));
  }
  return forms;
}

interface Character {
  readonly character: string;
  readonly bytes: readonly number[];
}

function utf8(character: string): number[] {
  return [...Buffer.from(character)];
}

function latin1(character: string): number[] {
  return [...Buffer.from(character, 'latin1')];
}

/** One form that reads both kinds of escape; where the secret itself holds `%` or `\`, those that take them for letters too. */
function spellings(characters: readonly Character[]): Form[] {
  const bytes = characters.flatMap((each) => each.bytes);
  const units = characters.flatMap(({ character, bytes: { length } }) => [
    Array.from({ length: character.length }, (_, i) => character.charCodeAt(i)),
    ...Array<undefined>(length - 1).fill(undefined),
  ]);
  const others = bytes.map(() => undefined);
  const readings = [{ percent: true, json: true }];
  if (bytes.includes(PERCENT)) readings.push({ percent: false, json: true });
  if (bytes.includes(BACKSLASH)) readings.push({ percent: true, json: false });
  if (readings.length === 3) readings.push({ percent: false, json: false });
  return readings.map((reading) => formOf({ bytes, others, units, ...reading }));
}

function formOf(form: Omit<Form, 'bytes' | 'longest'> & { readonly bytes: readonly number[] }): Form {
  let longest = 0;
  for (const units of form.units) longest += 6 * (units?.length ?? 0);
  return { ...form, bytes: Uint8Array.from(form.bytes), longest: Math.max(longest, 3 * form.bytes.length) };
}

const BASE64 = Buffer.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/');
const BASE64URL = Buffer.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_');

/**
 * The digits of base64 that the bytes come to when `offset` others (modulo 3) stand before them, in both alphabets. The first digit is
 * left out where foreign bits are in it: at most four bits of the secret's first character. A last digit with foreign bits may be any.
 */
function base64Form(bytes: readonly number[], offset: number): Form {
  const whole = [...Array<number>(offset).fill(0), ...bytes];
  const digits: number[][] = [];
  for (let bit = [0, 12, 18][offset] ?? 0; bit < whole.length * 8; bit += 6) {
    const at = bit >> 3;
    const window = ((whole[at] ?? 0) << 8) | (whole[at + 1] ?? 0);
    const digit = (window >> (10 - (bit & 7))) & 63;
    const foreign = Math.max(0, bit + 6 - whole.length * 8);
    digits.push(Array.from({ length: 1 << foreign }, (_, low) => digit | low));
  }
  const spelled = digits.map((each) => [...new Set(each.flatMap((digit) => [BASE64[digit] ?? 0, BASE64URL[digit] ?? 0]))]);
  return formOf({
    bytes: spelled.map(([first = 0]) => first),
    others: spelled.map(([, ...rest]) => (rest.length === 0 ? undefined : rest)),
    units: spelled.map(([first = 0]) => [first]),
    percent: true,
    json: true,
  });
}

const PERCENT = 0x25;
const PLUS = 0x2b;
const BLANK = 0x20;
const BACKSLASH = 0x5c;
const SMALL_U = 0x75;

/** The byte that stands after `\` in a short escape, to the byte that it means; -1 for none. */
const SHORT = new Int16Array(256).fill(-1);
for (const [escaped, meant] of ['""', '\\\\', '//', "''", 'b\b', 'f\f', 'n\n', 'r\r', 't\t'])
  SHORT[(escaped as string).charCodeAt(0)] = (meant as string).charCodeAt(0);

/** The value of a hex digit in either case; -1 for any other byte. */
const HEX = new Int8Array(256).fill(-1);
for (const digit of '0123456789abcdefABCDEF') HEX[digit.charCodeAt(0)] = Number.parseInt(digit, 16);

const DEAD = -1;
/** The text ended, and what there was of it fits. */
const ENDED = -2;

/** Follows a thread as far as the text goes. `alive`: the text ended in a proper prefix of the form. */
export function follow(thread: Thread, text: Uint8Array): Fate {
  const { form } = thread;
  const { bytes } = form;
  let { place, at } = thread;
  while (place < bytes.length) {
    if (at >= text.length) break;
    const found = text[at] as number;
    let next: number;
    let width = 1;
    if (found === PERCENT && form.percent) next = percentEscape(form, place, text, at);
    else if (found === BACKSLASH && form.json) {
      next = jsonEscape(form, place, text, at);
      if (text[at + 1] === SMALL_U) width = widthAt(form, place);
    } else next = fits(form, place, found) || (found === PLUS && form.percent && bytes[place] === BLANK) ? at + 1 : DEAD;
    if (next === DEAD) return 'dead';
    if (next === ENDED) break;
    at = next;
    place += width;
  }
  thread.place = place;
  thread.at = at;
  return place < bytes.length ? 'alive' : 'matched';
}

function fits(form: Form, place: number, byte: number): boolean {
  return form.bytes[place] === byte || form.others[place]?.includes(byte) === true;
}

/** The bytes of the character that begins at a place. */
function widthAt(form: Form, place: number): number {
  let width = 1;
  while (place + width < form.bytes.length && form.units[place + width] === undefined) width += 1;
  return width;
}

function percentEscape(form: Form, place: number, text: Uint8Array, at: number): number {
  if (at + 1 >= text.length) return ENDED;
  const high = HEX[text[at + 1] as number] as number;
  if (high < 0) return DEAD;
  if (at + 2 >= text.length) {
    const fitting = (byte: number): boolean => byte >> 4 === high;
    return fitting(form.bytes[place] as number) || form.others[place]?.some(fitting) === true ? ENDED : DEAD;
  }
  const low = HEX[text[at + 2] as number] as number;
  return low >= 0 && fits(form, place, (high << 4) | low) ? at + 3 : DEAD;
}

function jsonEscape(form: Form, place: number, text: Uint8Array, at: number): number {
  const units = form.units[place];
  if (units === undefined) return DEAD;
  if (at + 1 >= text.length) return ENDED;
  const escaped = text[at + 1] as number;
  if (escaped !== SMALL_U) return fits(form, place, SHORT[escaped] as number) ? at + 2 : DEAD;
  let end = unicodeEscapes(units, text, at);
  // Others are single bytes of ASCII: the alphabets of base64.
  for (const other of form.others[place] ?? []) if (end === DEAD) end = unicodeEscapes([other], text, at);
  return end;
}

function unicodeEscapes(units: readonly number[], text: Uint8Array, start: number): number {
  let at = start;
  for (const unit of units) {
    for (let i = 0; i < 6; i += 1, at += 1) {
      if (at >= text.length) return ENDED;
      const byte = text[at] as number;
      const right = i === 0 ? byte === BACKSLASH : i === 1 ? byte === SMALL_U : HEX[byte] === ((unit >> (20 - 4 * i)) & 15);
      if (!right) return DEAD;
    }
  }
  return at;
}
