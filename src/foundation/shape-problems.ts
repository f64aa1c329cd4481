// What is wrong with a body that somebody sent, in one sentence that says the right spelling: zod's issues as words.
// It must never quote a value, only the names of members, and of those only what looks like a name.
import type { z } from 'zod';
import { nearestWord } from './edit-distance.ts';
import { shownKey } from './shown-key.ts';

const MOST = 5;

/** The problems of a body, `; ` between them. `known` are the members that it may have. */
export function shapeProblems(issues: readonly z.core.$ZodIssue[], known: readonly string[]): string {
  const texts = issues.flatMap((issue) => issueTexts(issue, known));
  return texts.slice(0, MOST).join('; ') + (texts.length > MOST ? `; and ${texts.length - MOST} more` : '');
}

/** What to say of a member that is not known. */
export function unknownMember(name: string, known: readonly string[]): string {
  const meant = nearestWord(name, known);
  const said = shownKey(name);
  const which = said.startsWith('"') ? `unknown field ${said}` : 'a field of a name that is not known';
  return meant === undefined ? `${which}; known here: ${known.join(', ')}` : `${which}; did you mean "${meant}"?`;
}

function issueTexts(issue: z.core.$ZodIssue, known: readonly string[]): string[] {
  const place = placeOf(issue.path);
  switch (issue.code) {
    case 'unrecognized_keys':
      // Deeper members have other names; those at the top are the ones that are known here.
      return issue.keys.map((key) => unknownMember(key, issue.path.length === 0 ? known : []));
    case 'invalid_type':
      if (issue.path.length === 0) return ['the body must be a JSON object'];
      return [
        issue.input === undefined && /undefined$/.test(issue.message)
          ? `${place} is missing`
          : `${place} must be ${EXPECTED[issue.expected] ?? issue.expected}`,
      ];
    case 'invalid_value':
      return [`${place} must be one of ${issue.values.map((value) => `"${String(value)}"`).join(', ')}`];
    case 'invalid_key':
      return [`${placeOf(issue.path.slice(0, -1))}: ${issue.issues[0]?.message ?? 'holds a key that it cannot have'}`];
    default:
      return [place === '' ? issue.message : `${place}: ${issue.message}`];
  }
}

const EXPECTED: Readonly<Record<string, string>> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
  record: 'an object',
};

function placeOf(path: readonly PropertyKey[]): string {
  const [first, ...rest] = path;
  if (first === undefined) return '';
  const below = rest.map((step) => (typeof step === 'number' ? `[${step}]` : `.${shownKey(String(step)).replaceAll('"', '')}`));
  return `"${String(first)}${below.join('')}"`;
}
