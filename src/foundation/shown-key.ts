// Which keys, names and ids may be shown: a slip of the pen can put a secret where a word belongs, and what shows the word shows it.
// It only judges looks; what it calls a word may still be a secret, so that a value that bears one is never shown at all.

/** Longer than any key, domain or header that an operator writes by hand; tokens are longer, or have a long run of letters and digits. */
const KEY = /^[\w.-]{1,40}$/;
const TOKEN_RUN = /(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{16}/;

/** Whether a key that nobody foresaw may be shown: a word or a domain, and nothing that may be a secret in the wrong place. */
export function mayBeShown(key: string): boolean {
  return KEY.test(key) && !TOKEN_RUN.test(key);
}

/** Whether a text has the long run of letters and digits that tokens have and words do not. */
export function looksLikeToken(text: string): boolean {
  return TOKEN_RUN.test(text);
}

/** A key or a name in quotes where it may be shown; to begin a sentence with. */
export function shownKey(key: string): string {
  return mayBeShown(key) ? `"${key}"` : 'what stands here';
}
