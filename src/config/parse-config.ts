// Text to Config, or to every problem at once. Pure: no file, no environment, no clock.
// It must never let a doubtful text through as a smaller policy: an empty file, a null or an unknown key is a problem (fault B03).
import { formatPath } from './problem.ts';
import type { KeyPath, Problem } from './problem.ts';
import { findingsOf, issueText } from './problem-text.ts';
import { readDocument } from './read-document.ts';
import { configSchema } from './schema.ts';
import type { Config } from './schema.ts';

/** What parsing gave. */
export type ParsedConfig = { readonly config: Config } | { readonly problems: readonly Problem[] };

/** Parses YAML, or JSON where `name` ends in .json. Problems come in the order of the file. Never throws. */
export function parseConfig(text: string, name: string): ParsedConfig {
  const document = readDocument(text, name);
  if ('problems' in document) return document;
  const { value, lineOf } = document;
  if (value === null || value === undefined) {
    return {
      problems: [
        { path: '', message: 'the config is empty; write at least `network: { allowlist: [...] }`, or `network: disabled`' },
      ],
    };
  }
  const place = (path: KeyPath, message: string): Problem => {
    const line = lineOf(path);
    return { path: formatPath(path), ...(line === undefined ? {} : { line }), message };
  };
  const poisoned = prototypeKeys(value, [], new Set());
  if (poisoned.length > 0) return { problems: poisoned.map((path) => place(path, 'this key is not allowed; remove it')) };
  const parsed = configSchema.safeParse(value, { error: issueText });
  if (parsed.success) return { config: parsed.data };
  const problems = findingsOf(parsed.error, value).map((finding) => place(finding.path, finding.message));
  return { problems: problems.sort((a, b) => (a.line ?? 0) - (b.line ?? 0)) };
}

/** `__proto__` is skipped by zod without a word, and a key that is skipped is a rule that does not hold. */
function prototypeKeys(value: unknown, path: KeyPath, seen: Set<unknown>): KeyPath[] {
  // Aliases may lead in a circle.
  if (typeof value !== 'object' || value === null || seen.has(value)) return [];
  seen.add(value);
  if (Array.isArray(value)) return value.flatMap((item, index) => prototypeKeys(item, [...path, index], seen));
  return Object.entries(value).flatMap(([key, inner]) => {
    return key === '__proto__' ? [[...path, key]] : prototypeKeys(inner, [...path, key], seen);
  });
}
