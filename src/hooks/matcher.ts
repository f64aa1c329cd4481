// Which tools a rule is for. Two readings: the whole name (managed, desktop), and a list of names or a search (settings). Case counts (fault M10).
// A pattern that does not compile matches nothing and says why; it must never match by accident, nor take more than linear time.
import { compilePattern } from '../foundation/pattern.ts';
import type { Matcher } from './words.ts';

const EVERY_TOOL: ReadonlySet<string> = new Set(['', '*']);
/** Names with `|` between: as a pattern and as a list they mean the same, and the list needs no engine. */
const NAMES_WITH_BARS = /^\w+(?:\|\w+)*$/;
const NAMES_ALONE = /^[A-Za-z0-9_\-,| ]*$/;

/** RE2 against the whole name. Absent, `""` and `"*"` are every tool. */
export function wholeMatcher(source: string | undefined): Matcher {
  if (source === undefined || EVERY_TOOL.has(source)) return { source, problem: undefined, matches: () => true };
  if (NAMES_WITH_BARS.test(source)) {
    const names = new Set(source.split('|'));
    return { source, problem: undefined, matches: (tool) => names.has(tool) };
  }
  const pattern = compilePattern(source);
  if ('problem' in pattern) return never(source, pattern.problem);
  return { source, problem: undefined, matches: (tool) => pattern.matches(tool) };
}

/**
 * As the coding agent reads it. Absent, `""` and `"*"` are every tool; letters, digits, `_`, `-`, blanks with `,` and `|` between are a list of
 * exact names; anything else is searched for anywhere in the name, and has to be RE2 here, where the original takes JavaScript.
 */
export function listOrSearchMatcher(source: string | undefined): Matcher {
  if (source === undefined || EVERY_TOOL.has(source)) return { source, problem: undefined, matches: () => true };
  if (NAMES_ALONE.test(source)) {
    const names = new Set(source.split(/[,|]/).map((name) => name.trim()));
    names.delete('');
    return names.size === 0 ? never(source, 'names no tool') : { source, problem: undefined, matches: (tool) => names.has(tool) };
  }
  // On its own first, so that nothing in it can close the group below.
  const alone = compilePattern(source);
  const search = 'problem' in alone ? alone : compilePattern(`.*(?:${source}).*`);
  if ('problem' in search) return never(source, search.problem);
  return { source, problem: undefined, matches: (tool) => search.matches(tool) };
}

function never(source: string, problem: string): Matcher {
  return { source, problem, matches: () => false };
}
