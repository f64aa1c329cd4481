import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openSpool } from '../../src/hooks/spool.ts';

let home: string;
let path: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'hook-spool-'));
  path = join(home, 'spool');
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

/** Keeps lines and gives them back. */
async function keep(...lines: string[]): Promise<void> {
  const taken = await openSpool(path, 1_000).take();
  expect(await taken.add(lines)).toBe(lines.length);
  await taken.release();
}

const files = (): readonly string[] => readdirSync(home);
const contents = (): readonly string[] => files().map((name) => readFileSync(join(home, name), 'utf8'));

describe('a spool', () => {
  it('gives what was kept to one owner alone', async () => {
    await keep('a\n');
    const spool = openSpool(path, 1_000);
    const [first, second] = await Promise.all([spool.take(), openSpool(path, 1_000).take()]);
    expect([first.bytes.toString(), second.bytes.toString()].sort()).toEqual(['', 'a\n']);
    await first.release();
    await second.release();
    expect((await spool.take()).bytes.toString()).toBe('a\n');
  });

  it('adds to what is there, and keeps runners apart that keep at once', async () => {
    const [one, other] = await Promise.all([openSpool(path, 1_000).take(), openSpool(path, 1_000).take()]);
    await one.add(['a\n']);
    await other.add(['b\n']);
    await one.release();
    await other.release();
    expect(files()).toHaveLength(2);
    await keep('c\n');
    expect((await openSpool(path, 1_000).take()).bytes.toString().split('\n').sort()).toEqual(['', 'a', 'b', 'c']);
  });

  it('leaves no file where nothing waits', async () => {
    const taken = await openSpool(path, 0).take();
    expect(await taken.add(['a\n'])).toBe(0);
    await taken.release();
    expect(files()).toEqual([]);
    await keep('a\n');
    await (await openSpool(path, 1_000).take()).discard();
    expect(files()).toEqual([]);
  });

  it('takes over what its owner has left behind, and not what is just held', async () => {
    await keep('a\n');
    await openSpool(path, 1_000).take();
    expect((await openSpool(path, 1_000).take()).bytes.toString()).toBe('');
    expect((await openSpool(path, 1_000, -1).take()).bytes.toString()).toBe('a\n');
    expect(files()).toHaveLength(1);
  });

  it.each([
    { name: 'nothing', count: 0, left: 'aa\nbb\n' },
    { name: 'a whole line', count: 3, left: 'bb\n' },
    { name: 'everything', count: 6, left: '' },
    { name: 'a part of the first line, which is longer by a line break then', count: 1, left: '\naa\nbb\n' },
    { name: 'all but the line break of the first line', count: 2, left: '\naa\nbb\n' },
    { name: 'a part of the second line', count: 4, left: '\nbb\n' },
  ])('keeps whole lines after $name was moved over', async ({ count, left }) => {
    await keep('aa\n', 'bb\n');
    const taken = await openSpool(path, 1_000).take();
    await taken.dropFirst(count);
    await taken.release();
    expect(contents()).toEqual(left === '' ? [] : [left]);
  });

  it('drops across files', async () => {
    const [one, other] = await Promise.all([openSpool(path, 1_000).take(), openSpool(path, 1_000).take()]);
    await one.add(['aa\n']);
    await other.add(['bb\n']);
    await one.release();
    await other.release();
    const taken = await openSpool(path, 1_000).take();
    const second = taken.bytes.toString().slice(3);
    await taken.dropFirst(3);
    await taken.release();
    expect(contents()).toEqual([second]);
  });

  it('counts lost lines in one line at the end, beyond its bound', async () => {
    await keep('a\n');
    for (const count of [1, 8, 2]) {
      const taken = await openSpool(path, 0).take();
      expect(await taken.addLost(count)).toBe(true);
      await taken.release();
    }
    const [text = ''] = contents();
    expect(text.split('\n')).toHaveLength(3);
    expect(JSON.parse(text.split('\n')[1] ?? '')).toMatchObject({ kind: 'hook_lost', lost: 11 });
  });
});
