// The config in force: one reference, swapped whole when a changed file proves good, kept when it does not (invariant 7, fault B08).
// Reloads run one after another. A bad, empty, half-written or deleted file never becomes a policy: the last good one stays.
import type { Logger } from '../foundation/logger.ts';
import { resolve } from 'node:path';
import type { Compiled } from './compile.ts';
import { watchFiles } from './file-watch.ts';
import type { FileWatch } from './file-watch.ts';
import { graceLeft } from './source-reader.ts';
import { loadConfig } from './load.ts';
import type { LoadResult } from './load.ts';
import { formatProblem } from './problem.ts';
import type { Problem } from './problem.ts';
import { restartNeeded } from './restart-needed.ts';

/** What a reload did. */
export interface ReloadResult {
  readonly outcome: 'accepted' | 'rejected' | 'unchanged';
  /** Of the config in force after the reload */
  readonly generation: number;
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
  /** Keys whose change waits for a restart, as in `listen.proxy` */
  readonly restart_needed: readonly string[];
}

/** The config in force and the way to renew it. */
export interface LiveConfig {
  /** What every new exchange is judged by; take it once for each. */
  current(): Compiled;
  /** Reads the file now. Never rejects; a second call waits for the first. */
  reload(): Promise<ReloadResult>;
  /** Ends the watch; the config in force stays readable. */
  close(): Promise<void>;
}

/** How to open a live config. `baseDirectory` is the working directory of the process where nothing else is said. */
export interface LiveConfigOptions {
  readonly path: string;
  readonly env: NodeJS.ProcessEnv;
  readonly log: Logger;
  readonly baseDirectory?: string;
  /** Called after every reload that was accepted or rejected, and after the unchanged one that ends a rejection. */
  readonly onReload: (result: ReloadResult) => void;
}

/** The config could not be loaded at the start. `message` has one line for each problem. */
export class ConfigError extends Error {
  readonly problems: readonly Problem[];

  constructor(file: string, problems: readonly Problem[]) {
    super(problems.map((problem) => formatProblem(problem, file)).join('\n'));
    this.name = 'ConfigError';
    this.problems = problems;
  }
}

type Loaded = Extract<LoadResult, { compiled: Compiled }>;

/** Loads the config and keeps it fresh. Rejects with ConfigError where the first load fails; its warnings are the caller's to show. */
export async function openLiveConfig(options: LiveConfigOptions): Promise<LiveConfig> {
  const baseDirectory = options.baseDirectory ?? process.cwd();
  const first = await loadConfig(resolve(baseDirectory, options.path), { env: options.env, baseDirectory });
  if ('problems' in first) throw new ConfigError(options.path, first.problems);
  const live = new Live(options, baseDirectory, first);
  await live.watch();
  return live;
}

class Live implements LiveConfig {
  readonly #options: LiveConfigOptions;
  readonly #baseDirectory: string;
  readonly #file: string;
  /** What the process was started with: what it listens on until a restart */
  readonly #started: Compiled;
  #loaded: Loaded;
  #watch: FileWatch | undefined = undefined;
  #last: ReloadResult['outcome'] = 'accepted';
  #tail: Promise<unknown> = Promise.resolve();
  #comingBack: NodeJS.Timeout | undefined = undefined;
  #closed = false;

  constructor(options: LiveConfigOptions, baseDirectory: string, first: Loaded) {
    this.#options = options;
    this.#baseDirectory = baseDirectory;
    this.#file = resolve(baseDirectory, options.path);
    this.#started = first.compiled;
    this.#loaded = first;
  }

  current(): Compiled {
    return this.#loaded.compiled;
  }

  reload(): Promise<ReloadResult> {
    const result = this.#tail.then(() => this.#reload());
    this.#tail = result;
    return result;
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#comingBack);
    await this.#tail;
    await this.#watch?.close();
  }

  /** Starts the watch, then looks once more: the file may have changed between the first load and now. */
  async watch(): Promise<void> {
    this.#watch = await watchFiles({
      paths: [this.#file, ...this.#loaded.compiled.watched],
      changed: () => this.#lookAgain(),
      failed: (directory, error) =>
        this.#options.log.warn(`folder "${directory}" cannot be watched: its changes are seen by polling, within seconds`, {
          cause: error,
        }),
    });
    await this.reload();
  }

  #lookAgain(): void {
    if (!this.#closed) void this.reload();
  }

  async #reload(): Promise<ReloadResult> {
    const before = this.#loaded;
    const generation = before.compiled.snapshot.generation;
    let result: ReloadResult;
    try {
      const loaded = await loadConfig(this.#file, {
        env: this.#options.env,
        baseDirectory: this.#baseDirectory,
        generation: generation + 1,
        lastGood: before.lastGood,
      });
      result = this.#adopt(loaded, before);
      const named = 'problems' in loaded ? loaded.watched : loaded.compiled.watched;
      const moved = await this.#watch?.follow([this.#file, ...before.compiled.watched, ...named]);
      // A file may have changed between its reading and the first moment of its watch.
      if (moved === true && !this.#closed) setTimeout(() => this.#lookAgain(), 200).unref();
    } catch (error) {
      this.#options.log.error('internal error: the reload broke off', { cause: error });
      result = this.#rejected([{ path: '', message: 'internal error: the reload broke off; see the log' }], generation);
    }
    this.#comeBack();
    this.#report(result);
    return result;
  }

  /** Looks again when a vanished source has had its grace, so that it goes out of use without anyone touching a file. */
  #comeBack(): void {
    clearTimeout(this.#comingBack);
    const left = graceLeft(this.#loaded.lastGood, Date.now());
    if (left === undefined || this.#closed) return;
    this.#comingBack = setTimeout(() => this.#lookAgain(), left + 10).unref();
  }

  #adopt(loaded: LoadResult, before: Loaded): ReloadResult {
    const generation = before.compiled.snapshot.generation;
    if ('problems' in loaded) return this.#rejected(loaded.problems, generation);
    const { warnings, config, snapshot } = loaded.compiled;
    const restart_needed = restartNeeded(this.#started.config, config);
    if (loaded.fingerprint === before.fingerprint) {
      // The same config may have got something new to be warned of: a secret whose file is gone and whose last good value is in use.
      const { lastGood } = loaded;
      const compiled = warnings.join() === before.compiled.warnings.join() ? before.compiled : { ...before.compiled, warnings };
      this.#loaded = { ...before, lastGood, compiled };
      return { outcome: 'unchanged', generation, problems: [], warnings, restart_needed };
    }
    this.#loaded = loaded;
    return { outcome: 'accepted', generation: snapshot.generation, problems: [], warnings, restart_needed };
  }

  #rejected(problems: readonly Problem[], generation: number): ReloadResult {
    const restart_needed = restartNeeded(this.#started.config, this.#loaded.compiled.config);
    return { outcome: 'rejected', generation, problems, warnings: [], restart_needed };
  }

  #report(result: ReloadResult): void {
    const { log, path, onReload } = this.#options;
    const { outcome, generation, problems, warnings, restart_needed } = result;
    const mended = this.#last === 'rejected';
    this.#last = outcome;
    if (outcome === 'unchanged' && warnings.length === 0 && !mended) return;
    for (const warning of warnings) log.warn(warning, { generation });
    if (outcome === 'rejected') {
      const lines = problems.map((problem) => formatProblem(problem, path));
      log.error(`config rejected, the last good one stays in force: ${lines[0] ?? ''}`, { generation, problems: lines });
    }
    if (outcome === 'accepted') log.info('config accepted', { generation, restart_needed });
    if (outcome === 'unchanged' && mended) log.info('the config is good again and the same as the one in force', { generation });
    if (outcome !== 'unchanged' || mended) onReload(result);
  }
}
