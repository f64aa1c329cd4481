import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { configJsonSchemaText } from '../../src/config/json-schema.ts';
import type { SchemaNode } from '../../src/config/json-schema.ts';

const folder = join(import.meta.dirname, '..', '..', 'config');

describe('config/sallyport.schema.json', () => {
  it('is the one that the schema gives; run `npm run schema` where it is stale', async () => {
    expect(await readFile(join(folder, 'sallyport.schema.json'), 'utf8')).toBe(configJsonSchemaText());
  });

  it('describes every key', () => {
    const bare: string[] = [];
    visit(JSON.parse(configJsonSchemaText()) as SchemaNode, '', bare);
    expect(bare).toEqual([]);
  });

  it('is named by the shipped config', async () => {
    const [first] = (await readFile(join(folder, 'sallyport.yaml'), 'utf8')).split('\n');
    expect(first).toBe('# yaml-language-server: $schema=./sallyport.schema.json');
  });
});

function visit(node: SchemaNode, path: string, bare: string[]): void {
  for (const [key, inner] of Object.entries(node.properties ?? {})) {
    if (inner.description === undefined) bare.push(`${path}.${key}`);
    visit(inner, `${path}.${key}`, bare);
  }
  for (const inner of [...(node.anyOf ?? []), ...(node.oneOf ?? [])]) visit(inner, path, bare);
  if (node.items !== undefined) visit(node.items, `${path}[]`, bare);
  if (typeof node.additionalProperties === 'object') visit(node.additionalProperties, `${path}.<id>`, bare);
}
