// Kill -9 at random moments while two processes write to one store file: whatever was acknowledged is there after each, the file opens,
// and what was not acknowledged is whole or not there.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { beforeAll, expect, it } from 'vitest';
import { buildCli } from '../support/cli.ts';
import { KEY, open, temporaryFolder } from './rig.ts';

const WRITES = 500;
const MOST_MS = 30_000;
const LIFE = 40;

/** What one writer has said, over all its lives. */
interface Said {
  readonly name: string;
  readonly done: number[];
  begun: number;
}

/** One life of a writer: it goes on after what it had begun, and is killed a random moment after a random number of writes. */
async function live(path: string, said: Said): Promise<void> {
  const args = [join(import.meta.dirname, 'writer.mjs'), path, KEY.toString('hex'), said.name, String(said.begun + 1)];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const enough = said.done.length + Math.floor(Math.random() * LIFE);
  let rest = '';
  const closed = once(child, 'close');
  const reached = new Promise<void>((resolve) => {
    child.stdout.on('data', (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split('\n');
      rest = lines.pop() ?? '';
      for (const [word, number] of lines.map((line) => line.split(' '))) {
        if (word === 'begun') said.begun = Number(number);
        else said.done.push(Number(number));
      }
      if (said.done.length > enough) resolve();
    });
  });
  await Promise.race([reached, closed]);
  // any moment of a write is to be met: this pause waits for nothing
  await pause(Math.random() * 8);
  child.kill('SIGKILL');
  expect(await closed).toEqual([null, 'SIGKILL']);
}

beforeAll(buildCli, 120_000);

it('loses no acknowledged write', { timeout: MOST_MS }, async () => {
  const path = join(temporaryFolder(), 'state', 'store.json');
  const writers: readonly Said[] = [
    { name: 'left', done: [], begun: 0 },
    { name: 'right', done: [], begun: 0 },
  ];
  let kills = 0;
  while (writers.reduce((sum, { done }) => sum + done.length, 0) < WRITES) {
    await Promise.all(writers.map((said) => live(path, said)));
    kills += writers.length;
    const store = await open(`file:${path}`);
    const { records, broken } = await store.list('credentials', { limit: 10_000 });
    expect(broken).toEqual([]);
    const there = new Map(records.map(({ id, value }) => [id, value.n]));
    for (const { name, done, begun } of writers) {
      expect(
        done.filter((n) => there.get(`${name}-${n}`) !== n),
        `lost after ${kills} kills`,
      ).toEqual([]);
      const latest = (await store.get('environments', `${name}-latest`))?.value.n ?? 0;
      expect(latest).toBeGreaterThanOrEqual(done.at(-1) ?? 0);
      expect(latest).toBeLessThanOrEqual(begun);
    }
    await store.close();
  }
  expect(kills).toBeGreaterThan(WRITES / LIFE);
  expect(readFileSync(path).includes('plain-secret-marker')).toBe(false);
});
