// Tells when one of some files may have changed: written, renamed over, deleted, made, or reached through another link.
// It says "look again" and never what changed; it may speak once too often, never once too seldom.
import { dirname, join, resolve } from 'node:path';
import { watch } from 'chokidar';
import { directoriesOf, watchPlaces } from './watch-places.ts';

/** A running watch. */
export interface FileWatch {
  /** Watches these files from now on (absolute paths) and no others. True where the set of places changed. */
  follow(paths: readonly string[]): Promise<boolean>;
  close(): Promise<void>;
}

/** Starts a watch on the files; resolves when changes are seen. Standard `settleMs`: 50, the quiet that ends a burst of changes. */
export async function watchFiles(options: {
  readonly paths: readonly string[];
  readonly settleMs?: number;
  readonly changed: () => void;
  readonly failed: (error: unknown) => void;
}): Promise<FileWatch> {
  let places = await watchPlaces(options.paths);
  let directories = directoriesOf(places);
  const burst = new Burst(options.settleMs ?? 50, options.changed);
  const watcher = watch([...directories], {
    depth: 0,
    ignoreInitial: true,
    followSymlinks: false,
    ignorePermissionErrors: true,
    // Only entries that matter get a watch of their own: a secret may lie in a folder of thousands.
    ignored: (path) => !places.has(path) && !directories.has(path),
  });
  watcher.on('all', () => burst.note());
  watcher.on('raw', (_event, path, details) => {
    if (concerns(places, path, details)) burst.note();
  });
  watcher.on('error', (error) => options.failed(error));
  await new Promise<void>((ready) => void watcher.once('ready', ready));
  return {
    async follow(paths) {
      const wanted = await watchPlaces(paths);
      const before = directories;
      const same = wanted.size === places.size && [...wanted].every((place) => places.has(place));
      places = wanted;
      directories = directoriesOf(wanted);
      if (same) return false;
      watcher.unwatch([...before].filter((directory) => !directories.has(directory)));
      // Known directories too: an entry that was ignored before may be one of the places now.
      watcher.add([...directories, ...places]);
      return true;
    },
    async close() {
      burst.cancel();
      await watcher.close();
    },
  };
}

/** chokidar hides what does not change its picture of a folder, such as a link renamed over another; the raw event does not. */
function concerns(places: ReadonlySet<string>, path: unknown, details: unknown): boolean {
  const watched = typeof details === 'object' && details !== null && 'watchedPath' in details ? details.watchedPath : undefined;
  if (typeof watched !== 'string' || typeof path !== 'string' || path === '') return true;
  return places.has(join(watched, path)) || places.has(join(dirname(watched), path)) || places.has(resolve(watched));
}

/** Turns a burst of events into one call, after `settleMs` of quiet, at the latest after twenty times that. */
class Burst {
  readonly #settleMs: number;
  readonly #over: () => void;
  #timer: NodeJS.Timeout | undefined = undefined;
  #latest = 0;

  constructor(settleMs: number, over: () => void) {
    this.#settleMs = settleMs;
    this.#over = over;
  }

  note(): void {
    const now = performance.now();
    if (this.#timer === undefined) this.#latest = now + this.#settleMs * 20;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#end(), Math.max(0, Math.min(this.#settleMs, this.#latest - now)));
    this.#timer.unref();
  }

  cancel(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #end(): void {
    this.#timer = undefined;
    this.#over();
  }
}
