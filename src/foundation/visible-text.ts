// How text that somebody else chose is shown to a person: whatever a terminal or a log reader could act on is spelled out.
// It must never decode anything (a percent sequence stays as it is), and its result never grows beyond the cap it is given.

// Controls, format characters (direction overrides, zero width), surrogates without a partner, unassigned, line and paragraph separators.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]/gu;
const NOT_PLAIN = /[^\x20-\x7e]/;
const NOT_PLAIN_EACH = /[^\x20-\x7e]/g;
const ELLIPSIS = '...';

/** Text of our own making (messages, paths, ids) for a terminal: letters of any script stay, what cannot be seen becomes `\uXXXX`. */
export function showUnseen(text: string): string {
  return text.replace(UNSEEN, spellOut);
}

/**
 * A value from the wire, safe in any log, terminal or page: printable ASCII stays, each other UTF-16 unit becomes `\uXXXX`, and
 * the result has at most `cap` characters, the last three being `...` where something was cut off (fault L01).
 */
export function showWire(text: string, cap: number): string {
  const plain = !NOT_PLAIN.test(text.length > cap ? text.slice(0, cap) : text);
  if (plain && text.length <= cap) return text;
  const bounded = text.slice(0, cap);
  const shown = plain ? bounded : bounded.replace(NOT_PLAIN_EACH, spellOut);
  return shown.length > cap || text.length > cap ? shown.slice(0, cap - ELLIPSIS.length) + ELLIPSIS : shown;
}

function spellOut(character: string): string {
  let spelled = '';
  for (let i = 0; i < character.length; i += 1) spelled += `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`;
  return spelled;
}
