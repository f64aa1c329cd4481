// A process that writes to a store file until it is killed: it says a number when that write was begun, and again when it was acknowledged.
import { writeSync } from 'node:fs';
import { openStore } from '../../dist/store/record-store.js';

const [, , path, key, name, first] = process.argv;
const log = { debug() {}, info() {}, warn() {}, error() {} };
const store = await openStore({ uri: `file:${path}`, key: Buffer.from(key, 'hex'), log });
for (let n = Number(first); ; n += 1) {
  writeSync(1, `begun ${n}\n`);
  await store.put('credentials', `${name}-${n}`, { n, token: 'plain-secret-marker' }, 'new');
  await store.put('environments', `${name}-latest`, { n }, 'any');
  writeSync(1, `done ${n}\n`);
}
