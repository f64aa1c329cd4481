// What the tests of this room share: a folder that goes away, a log that is kept, stores that are closed, and the engines at hand.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { createLogger } from '../../src/foundation/logger.ts';
import { openStore } from '../../src/store/record-store.ts';
import type { RecordStore, StoreOptions } from '../../src/store/record-store.ts';
import { postgresMissing, startPostgres } from '../support/postgres-server.ts';
import { redisMissing, startRedis } from '../support/redis-server.ts';

export const KEY = randomBytes(32);
export const OTHER_KEY = randomBytes(32);

export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-store-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Every line of the log so far, of all stores of the test file. */
export const logged: string[] = [];
const log = createLogger({ level: 'debug', stream: { write: (line: string) => logged.push(line) } });

/** Opens a store that is closed when the test is over. */
export async function open(uri: string, options: Partial<StoreOptions> = {}): Promise<RecordStore> {
  const store = await openStore({ uri, key: KEY, log, ...options });
  onTestFinished(() => store.close());
  return store;
}

/** One engine: its name, why it cannot be had, and how to get an empty place of it. */
export interface EngineAtHand {
  readonly name: string;
  readonly missing: string | undefined;
  readonly start: () => Promise<{ readonly fresh: () => Promise<string>; readonly end: () => Promise<void> }>;
}

export const engines: readonly EngineAtHand[] = [
  {
    name: 'a file',
    missing: undefined,
    start: () =>
      Promise.resolve({
        fresh: () => Promise.resolve(`file:${join(temporaryFolder(), 'state', 'store.json')}`),
        end: () => Promise.resolve(),
      }),
  },
  {
    name: 'Redis',
    missing: redisMissing,
    start: async () => {
      const server = await startRedis();
      let database = 0;
      return { fresh: () => Promise.resolve(server.uri(database++ % 256)), end: () => server.end() };
    },
  },
  {
    name: 'PostgreSQL',
    missing: postgresMissing,
    start: async () => {
      const server = await startPostgres();
      return { fresh: () => server.fresh(), end: () => server.end() };
    },
  },
];

/** The title of a group of tests of one engine; says why where it is skipped. */
export function titleOf(engine: EngineAtHand, what: string): string {
  return engine.missing === undefined ? `${what} in ${engine.name}` : `${what} in ${engine.name} (skipped: ${engine.missing})`;
}
