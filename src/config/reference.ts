// The table of all keys for the README, made from the schema.
// It must never hold a word of its own about a key: what is not in the schema goes stale.
import { branches, configJsonSchema } from './json-schema.ts';
import type { SchemaNode } from './json-schema.ts';

/** A Markdown table with one row for each key: path, type, default, meaning. Ends with a newline. */
export function configReference(): string {
  const rows = rowsBelow(configJsonSchema(), '');
  return ['| key | type | default | meaning |', '|---|---|---|---|', ...rows, ''].join('\n');
}

function rowsBelow(node: SchemaNode, path: string): string[] {
  // { env } and { file } stand in many places, and a sandbox's network is the top one again: their rows would drown the rest.
  if (isSecret(node) || path === 'sandboxes.<id>.network') return [];
  const keys = new Map<string, SchemaNode[]>();
  const rows: string[] = [];
  for (const branch of branches(node)) {
    for (const [key, inner] of Object.entries(branch.properties ?? {})) keys.set(key, [...(keys.get(key) ?? []), inner]);
    if (branch.items !== undefined) rows.push(...rowsBelow(branch.items, `${path}[]`));
    if (typeof branch.additionalProperties === 'object') rows.push(...rowsBelow(branch.additionalProperties, `${path}.<id>`));
  }
  for (const [key, nodes] of keys) {
    const below = path === '' ? key : `${path}.${key}`;
    rows.push(row(below, nodes), ...nodes.flatMap((inner) => rowsBelow(inner, below)));
  }
  return rows;
}

function row(path: string, nodes: readonly SchemaNode[]): string {
  const standard = nodes.find((node) => node.default !== undefined && !isEmpty(node.default))?.default;
  const meaning = nodes.map((node) => node.description ?? '').join(' Or: ');
  const types = [...new Set(nodes.map(typeOf))].join(' or ');
  return `| \`${path}\` | ${types} | ${standard === undefined ? '' : `\`${JSON.stringify(standard)}\``} | ${meaning.replaceAll('|', '\\|')} |`;
}

function isEmpty(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length === 0;
}

function isSecret(node: SchemaNode): boolean {
  return branches(node).some((branch) => branch.properties?.['env'] !== undefined && branch.properties['file'] !== undefined);
}

function typeOf(node: SchemaNode): string {
  if (isSecret(node)) return branches(node).length > 1 ? 'text, `{ env }` or `{ file }`' : '`{ env }` or `{ file }`';
  const words = branches(node).flatMap((branch) => {
    if (branch.const !== undefined) return [`\`${branch.const}\``];
    if (branch.enum !== undefined) return branch.enum.map((value) => `\`${String(value)}\``);
    if (branch.items !== undefined) return [`list of ${typeOf(branch.items)}`];
    return [branch.type ?? 'any'].flat().map((type) => WORDS[type] ?? type);
  });
  return [...new Set(words)].join(' or ');
}

const WORDS: Readonly<Record<string, string>> = { integer: 'number', string: 'text' };
