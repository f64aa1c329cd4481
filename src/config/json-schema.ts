// The JSON Schema of the config, for editors. Made from the zod schema; a test holds the checked-in file to it.
// It must never say anything that the zod schema does not.
import { z } from 'zod';
import { configSchema } from './schema.ts';

/** A JSON Schema node as far as this room reads it. */
export interface SchemaNode {
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly default?: unknown;
  readonly const?: string;
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly additionalProperties?: SchemaNode | boolean;
  readonly items?: SchemaNode;
  readonly anyOf?: readonly SchemaNode[];
  readonly oneOf?: readonly SchemaNode[];
}

/** The schema of what an operator writes (defaults optional), JSON Schema 2020-12. */
export function configJsonSchema(): SchemaNode {
  const schema = z.toJSONSchema(configSchema, { io: 'input', unrepresentable: 'any' });
  return { title: 'Sallyport configuration', ...schema } as SchemaNode;
}

/** The text of config/sallyport.schema.json. */
export function configJsonSchemaText(): string {
  return `${JSON.stringify(configJsonSchema(), undefined, 2)}\n`;
}

/** The alternatives of a node, nested ones included; the node itself where it has none. */
export function branches(node: SchemaNode): readonly SchemaNode[] {
  const inner = node.anyOf ?? node.oneOf;
  return inner === undefined ? [node] : inner.flatMap(branches);
}
