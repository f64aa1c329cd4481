// zod's issues as this project's problems: one for each wrong thing, with its path, what was found, and the right spelling.
// It must never show a value, only its type: any key of the config may have a secret put in it by mistake.
import type { z } from 'zod';
import { isMapping } from './fields.ts';
import { branches, configJsonSchema } from './json-schema.ts';
import type { SchemaNode } from './json-schema.ts';
import type { KeyPath } from './problem.ts';
import { suggestKey } from './spelling.ts';

/** A problem before its place in the file is known. */
export interface Finding {
  readonly path: KeyPath;
  readonly message: string;
}

/** The text of an issue where the schema gives none of its own; for zod's `error` option. */
export function issueText(issue: z.core.$ZodRawIssue): string | undefined {
  switch (issue.code) {
    case 'invalid_type':
      return typeText(issue.expected, issue.input);
    case 'invalid_value':
      return `must be ${choices(issue.values)}`;
    case 'invalid_union':
      return issue.discriminator === undefined ? undefined : discriminatorText(issue.input);
    case 'too_small':
      return `must be at least ${String(issue.minimum)}`;
    case 'too_big':
      return `must be at most ${String(issue.maximum)}`;
    default:
      return undefined;
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

function typeText(expected: string, input: unknown): string {
  const wanted = EXPECTED[expected] ?? expected;
  if (input === undefined) return `is missing; expected ${wanted}`;
  const remedy = expected === 'string' && typeof input !== 'object' ? '; put it in quotes' : '';
  if (input === null) return `expected ${wanted}, got nothing; give it a value or remove the key`;
  if (expected === 'array') return `expected a list, got ${typeWord(input)}; put it in brackets: [...]`;
  return `expected ${wanted}, got ${typeWord(input)}${remedy}`;
}

function typeWord(value: unknown): string {
  if (value === null) return 'nothing';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'string') return 'text';
  if (typeof value === 'object') return 'an object';
  return typeof value === 'boolean' ? String(value) : 'a number';
}

function choices(values: readonly unknown[]): string {
  const quoted = values.map((value) => `"${String(value)}"`);
  return quoted.length < 2 ? quoted.join('') : `one of ${quoted.join(', ')}`;
}

function discriminatorText(input: unknown): string {
  const type = isMapping(input) ? input['type'] : undefined;
  const known = 'use "bearer_token", "basic", "header", "oauth2", "environment_variable", "aws_sigv4" or "exec"';
  if (type === undefined) return `is missing; ${known}`;
  return `is not a known type of credential; ${known}`;
}

/** Every finding of a failed parse, unions and lists of keys taken apart. */
export function findingsOf(error: z.ZodError, input: unknown): Finding[] {
  const root = configJsonSchema();
  return error.issues.flatMap((issue) => flatten(issue, [], { input, root }));
}

interface Whole {
  readonly input: unknown;
  readonly root: SchemaNode;
}

function flatten(issue: z.core.$ZodIssue, base: KeyPath, whole: Whole): Finding[] {
  const path = [...base, ...issue.path];
  switch (issue.code) {
    case 'unrecognized_keys':
      return issue.keys.map((key) => ({ path: [...path, key], message: unknownKeyText(path, key, whole) }));
    case 'invalid_union': {
      const fitting = issue.errors.filter((branch) => !branch.some(isRootMismatch));
      const [only] = fitting;
      if (fitting.length === 1 && only !== undefined) return only.flatMap((inner) => flatten(inner, path, whole));
      return [{ path, message: valueAt(whole.input, path) === null ? `${issue.message}, got nothing` : issue.message }];
    }
    case 'invalid_key':
      return [{ path, message: issue.issues[0]?.message ?? issue.message }];
    default:
      return [{ path, message: issue.message }];
  }
}

function isRootMismatch(issue: z.core.$ZodIssue): boolean {
  return issue.path.length === 0 && (issue.code === 'invalid_type' || issue.code === 'invalid_value');
}

function unknownKeyText(path: KeyPath, key: string, whole: Whole): string {
  const known = knownKeys(path, whole);
  const meant = suggestKey(key, known);
  if (meant !== undefined) return `unknown key; did you mean \`${meant}\`?`;
  return `unknown key; known here: ${known.join(', ')}`;
}

function knownKeys(path: KeyPath, { input, root }: Whole): string[] {
  let nodes = branches(root);
  for (const step of path) nodes = nodes.flatMap((node) => below(node, step)).flatMap(branches);
  const value = valueAt(input, path);
  const type = isMapping(value) ? value['type'] : undefined;
  const fitting = nodes.filter((node) => type === undefined || (node.properties?.['type']?.const ?? type) === type);
  return [...new Set(fitting.flatMap((node) => Object.keys(node.properties ?? {})))];
}

function below(node: SchemaNode, step: PropertyKey): SchemaNode[] {
  if (typeof step === 'number') return node.items === undefined ? [] : [node.items];
  const named = node.properties?.[String(step)];
  if (named !== undefined) return [named];
  return typeof node.additionalProperties === 'object' ? [node.additionalProperties] : [];
}

function valueAt(input: unknown, path: KeyPath): unknown {
  let value = input;
  for (const step of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = (value as Record<PropertyKey, unknown>)[step];
  }
  return value;
}
