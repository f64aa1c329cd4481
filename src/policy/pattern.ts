// Patterns of the config: RE2 syntax, linear time, always matched against the whole text (fault B02).
// No other regular expression that an operator wrote may reach the running door.
import RE2 from 're2';
import type { Pattern } from '../exchange/rule.ts';

/** Compiles an RE2 pattern for whole match. The problem names what RE2 said. */
export function compilePattern(source: string): Pattern | { readonly problem: string } {
  try {
    const plain = unquoted(source);
    // On its own first, so that no parenthesis in it can close the group that holds it to the whole text.
    new RE2(plain, 'u');
    const whole = new RE2(`^(?:${plain})$`, 'us');
    return { source, matches: (text) => whole.test(text) };
  } catch (error) {
    return { problem: `"${source}" is not an RE2 pattern: ${error instanceof Error ? error.message : 'unknown error'}` };
  }
}

/**
 * Writes out `\Q…\E` by single escapes. The binding puts a backslash before every slash, which inside a quotation is a character to
 * match; and one without its `\E` would quote what comes after the pattern.
 */
function unquoted(source: string): string {
  return source.replace(/\\(?:Q(.*?)(?:\\E|$)|.)/gs, (escape, quoted: string | undefined) =>
    quoted === undefined ? escape : quoted.replace(/[!-/:-@[-`{-~]/g, '\\$&'),
  );
}
