// Patterns of the config: RE2 syntax, linear time, always matched against the whole text (fault B02).
// No other regular expression that an operator wrote may reach the running door.
import RE2 from 're2';
import type { Pattern } from '../exchange/rule.ts';

/** Compiles an RE2 pattern for whole match. The problem names what RE2 said. */
export function compilePattern(source: string): Pattern | { readonly problem: string } {
  try {
    const alone = new RE2(source, 'u');
    const whole = new RE2(`^(?:${alone.source})$`, 'us');
    return { source, matches: (text) => whole.test(text) };
  } catch (error) {
    return { problem: `"${source}" is not an RE2 pattern: ${error instanceof Error ? error.message : 'unknown error'}` };
  }
}
