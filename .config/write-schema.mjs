// Writes config/sallyport.schema.json from the built schema (`npm run schema`); a test fails where the file is stale.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { configJsonSchemaText } from '../dist/config/json-schema.js';

const file = join(import.meta.dirname, '..', 'config', 'sallyport.schema.json');
writeFileSync(file, configJsonSchemaText());
process.stdout.write('written: config/sallyport.schema.json\n');
