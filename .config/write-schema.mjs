// Writes what is made from the schema (`npm run schema`): config/sallyport.schema.json, and the table of keys in README.md.
// Tests fail where either is stale.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { configJsonSchemaText } from '../dist/config/json-schema.js';
import { configReference } from '../dist/config/reference.js';

const root = join(import.meta.dirname, '..');
writeFileSync(join(root, 'config', 'sallyport.schema.json'), configJsonSchemaText());
const readme = join(root, 'README.md');
const [before, rest] = readFileSync(readme, 'utf8').split('<!-- config reference: begin -->\n');
const after = rest.slice(rest.indexOf('<!-- config reference: end -->'));
writeFileSync(readme, `${before}<!-- config reference: begin -->\n${configReference()}${after}`);
process.stdout.write('written: config/sallyport.schema.json and the table of keys in README.md\n');
