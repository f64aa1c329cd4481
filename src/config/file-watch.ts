// Tells when one of some files may have changed: written, renamed over, deleted, made, or reached through another link.
// It says "look again" and never what changed; it may speak once too often, never once too seldom: the system's events make it
// prompt, and a look at the places every few seconds makes it sure, on filesystems that have no events and folders that come later.
// It must never read a folder because of an entry that does not matter: an audit log may be written beside the config.
import { watch } from 'node:fs';
import type { FSWatcher } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { directoriesOf, watchPlaces } from './watch-places.ts';

/** A running watch. */
export interface FileWatch {
  /** Watches these files from now on (absolute paths) and no others. True where the set of places changed. */
  follow(paths: readonly string[]): Promise<boolean>;
  close(): Promise<void>;
}

/** What a watch is told. */
export interface FileWatchOptions {
  readonly paths: readonly string[];
  /** Quiet that ends a burst of changes, in `ms`; default 50 */
  readonly settleMs?: number;
  /** How often the places are looked at without an event, in `ms`; default 2000 */
  readonly lookMs?: number;
  readonly changed: () => void;
  /** Hears once of each folder that has no events; its changes are seen at the looks alone */
  readonly failed: (directory: string, error: unknown) => void;
}

/** Starts a watch on the files; resolves when changes are seen. */
export async function watchFiles(options: FileWatchOptions): Promise<FileWatch> {
  const watching = new Watching(options);
  await watching.follow(options.paths);
  watching.begin(options.lookMs ?? 2000);
  return watching;
}

class Watching implements FileWatch {
  readonly #failed: FileWatchOptions['failed'];
  readonly #burst: Burst;
  readonly #watchers = new Map<string, FSWatcher>();
  /** Folders whose failure has been told */
  readonly #told = new Set<string>();
  #places: ReadonlySet<string> = new Set();
  #seen = '';
  #timer: NodeJS.Timeout | undefined = undefined;
  #closed = false;

  constructor(options: FileWatchOptions) {
    this.#failed = options.failed;
    this.#burst = new Burst(options.settleMs ?? 50, options.changed);
  }

  async follow(paths: readonly string[]): Promise<boolean> {
    const wanted = await watchPlaces(paths);
    const same = wanted.size === this.#places.size && [...wanted].every((place) => this.#places.has(place));
    this.#places = wanted;
    this.#watchDirectories(directoriesOf(wanted));
    this.#seen = await fingerprint(wanted);
    return !same;
  }

  begin(lookMs: number): void {
    const look = async (): Promise<void> => {
      this.#watchDirectories(directoriesOf(this.#places));
      const now = await fingerprint(this.#places);
      if (now !== this.#seen) this.#burst.note();
      this.#seen = now;
      if (!this.#closed) this.#timer = setTimeout(() => void look(), lookMs).unref();
    };
    this.#timer = setTimeout(() => void look(), lookMs).unref();
  }

  close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#burst.cancel();
    for (const watcher of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
    return Promise.resolve();
  }

  /** Brings the watched folders in line; one that cannot be watched is tried again at each look. */
  #watchDirectories(wanted: ReadonlySet<string>): void {
    if (this.#closed) return;
    for (const [directory, watcher] of this.#watchers) {
      if (wanted.has(directory)) continue;
      watcher.close();
      this.#watchers.delete(directory);
    }
    for (const directory of wanted) if (!this.#watchers.has(directory)) this.#watchDirectory(directory);
  }

  #watchDirectory(directory: string): void {
    try {
      const watcher = watch(directory, { persistent: false }, (_event, name) => {
        if (name === null || this.#places.has(join(directory, name))) this.#burst.note();
        // The folder itself was moved or removed: this watch sees nothing more, the next look starts another.
        if (name !== null && directory.endsWith(`/${name}`)) this.#drop(directory, watcher);
      });
      watcher.on('error', (error) => {
        this.#drop(directory, watcher);
        this.#tell(directory, error);
      });
      this.#watchers.set(directory, watcher);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') this.#tell(directory, error);
    }
  }

  #tell(directory: string, error: unknown): void {
    if (this.#told.has(directory)) return;
    this.#told.add(directory);
    this.#failed(directory, error);
  }

  #drop(directory: string, watcher: FSWatcher): void {
    watcher.close();
    if (this.#watchers.get(directory) === watcher) this.#watchers.delete(directory);
    this.#burst.note();
  }
}

/** What the places look like; equal texts mean that nothing has changed. */
async function fingerprint(places: ReadonlySet<string>): Promise<string> {
  const marks = await Promise.all(
    [...places].map((place) =>
      lstat(place, { bigint: true }).then(
        (entry) => `${entry.dev}:${entry.ino}:${entry.mtimeNs}:${entry.ctimeNs}:${entry.size}`,
        () => 'absent',
      ),
    ),
  );
  return marks.join(' ');
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
