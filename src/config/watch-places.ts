// Which directory entries decide what a path leads to: the file itself and every symbolic link on the way to it.
// A ConfigMap is swapped by renaming its `..data` link, which no watch on the file alone would see.
import { lstat, readlink } from 'node:fs/promises';
import { dirname, join, parse, resolve, sep } from 'node:path';

/** More links than this in one path is a circle (Linux gives up at 40 too). */
const MOST_LINKS = 40;

/** The entries for several absolute paths, each an absolute path in a directory that has to be watched. Never throws. */
export async function watchPlaces(paths: readonly string[]): Promise<ReadonlySet<string>> {
  const places = new Set<string>();
  for (const path of paths) for (const place of await placesOf(path)) places.add(place);
  return places;
}

/** The directories of the entries. */
export function directoriesOf(places: ReadonlySet<string>): ReadonlySet<string> {
  return new Set([...places].map((place) => dirname(place)));
}

async function placesOf(path: string): Promise<string[]> {
  const places: string[] = [];
  let at = parse(path).root;
  let ahead = path.slice(at.length).split(sep);
  let links = 0;
  while (ahead.length > 0) {
    const [step = '', ...rest] = ahead;
    const next = join(at, step);
    const target = links < MOST_LINKS ? await linkTarget(next) : undefined;
    if (target === undefined) {
      if (rest.length === 0) places.push(next);
      [at, ahead] = [next, rest];
      continue;
    }
    links += 1;
    places.push(next);
    const led = resolve(at, target);
    at = parse(led).root;
    ahead = [...led.slice(at.length).split(sep), ...rest];
  }
  return places;
}

async function linkTarget(path: string): Promise<string | undefined> {
  try {
    return (await lstat(path)).isSymbolicLink() ? await readlink(path) : undefined;
  } catch {
    // What does not exist is no link; its place is watched all the same, for the day it appears.
    return undefined;
  }
}
