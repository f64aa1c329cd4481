import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { directoriesOf, watchPlaces } from '../../src/config/watch-places.ts';

let folder: string;

beforeEach(async () => {
  folder = await realpath(await mkdtemp(join(tmpdir(), 'places-')));
});
afterEach(() => rm(folder, { recursive: true }));

async function placesOf(...names: string[]): Promise<string[]> {
  const places = await watchPlaces(names.map((name) => join(folder, name)));
  return [...places].map((place) => place.slice(folder.length + 1)).sort();
}

describe('watchPlaces', () => {
  it('gives the file itself, whether it exists or not', async () => {
    await writeFile(join(folder, 'a'), '');
    expect(await placesOf('a', 'none', 'no/where')).toEqual(['a', 'no/where', 'none']);
  });

  it('gives every link on the way, as a ConfigMap has them', async () => {
    await mkdir(join(folder, '..2024_01'));
    await writeFile(join(folder, '..2024_01', 'a.yaml'), '');
    await symlink('..2024_01', join(folder, '..data'));
    await symlink('..data/a.yaml', join(folder, 'a.yaml'));
    expect(await placesOf('a.yaml')).toEqual(['..2024_01/a.yaml', '..data', 'a.yaml']);
  });

  it('follows absolute links', async () => {
    await symlink(join(folder, 'real'), join(folder, 'link'));
    expect(await placesOf('link')).toEqual(['link', 'real']);
  });

  it('survives links that lead in a circle', async () => {
    await symlink('b', join(folder, 'a'));
    await symlink('a', join(folder, 'b'));
    expect(await placesOf('a')).toEqual(['a', 'b']);
  });
});

describe('directoriesOf', () => {
  it('gives each directory once', () => {
    expect(directoriesOf(new Set(['/a/b', '/a/c', '/d']))).toEqual(new Set(['/a', '/']));
  });
});
