// Reads what a config refers to, each file or variable once for one load, and remembers the last good reading of each.
// A file that vanishes or is emptied in the middle of a rotation keeps its last good value for a while, and a warning says so;
// after that it counts as gone, so that removing a secret takes it out of use. One that holds something malformed is a problem. Digests are of secrets: they must never leave this process.
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { digestSecrets, fileTrouble, readSecret, secretFile } from '../credentials/secret-source.ts';
import type { SecretReading, SecretSource } from '../credentials/secret-source.ts';
import type { Secret } from '../foundation/secret.ts';
import type { Findings, KeyPath } from './problem.ts';

/** How long a vanished secret is still used, in `ms`: longer than any rotation, shorter than anyone waits for a revocation. */
export const GRACE_MS = 30_000;

/** A secret that was read, and since when its source is gone (epoch `ms`), if it is. */
interface GoodSecret {
  readonly secret: Secret;
  readonly goneSince: number | undefined;
}

/** Last good readings, to be handed to the next load: secrets by source, other files by absolute path. */
export interface LastGood {
  readonly secrets: ReadonlyMap<string, GoodSecret>;
  readonly texts: ReadonlyMap<string, string>;
}

/** When the first vanished secret has to go out of use (epoch `ms`); undefined where none has vanished. */
export function graceEnds(lastGood: LastGood): number | undefined {
  const gone = [...lastGood.secrets.values()].flatMap(({ goneSince }) => goneSince ?? []);
  return gone.length === 0 ? undefined : Math.min(...gone) + GRACE_MS;
}

/** What the first load has behind it. */
export const NOTHING_YET: LastGood = { secrets: new Map(), texts: new Map() };

/** Where to read from. */
export interface SourceOptions {
  readonly baseDirectory: string;
  readonly env: NodeJS.ProcessEnv;
  readonly lastGood: LastGood;
  /** Wall clock, epoch `ms` */
  readonly now?: () => number;
}

/** One load's view of the files and variables that a config names. */
export class SourceReader {
  readonly #options: SourceOptions;
  readonly #findings: Findings;
  readonly #readings = new Map<string, Promise<SecretReading>>();
  readonly #watched = new Set<string>();
  readonly #good = new Map<string, GoodSecret>();
  readonly #texts = new Map<string, string>();

  constructor(options: SourceOptions, findings: Findings) {
    this.#options = options;
    this.#findings = findings;
  }

  /** Absolute paths of every file that was asked for, present or not. */
  get watched(): readonly string[] {
    return [...this.#watched].sort();
  }

  get lastGood(): LastGood {
    return { secrets: this.#good, texts: this.#texts };
  }

  /** Changes when anything that was read changed. */
  digest(): string {
    return createHash('sha256')
      .update(digestSecrets(new Map([...this.#good].map(([key, { secret }]) => [key, secret]))))
      .update(JSON.stringify([...this.#texts]))
      .digest('hex');
  }

  /** Reads a secret; warnings go to the findings under `path`, problems are the caller's to report. */
  async secret(source: SecretSource, path: KeyPath): Promise<SecretReading> {
    if (source.kind === 'text') return readSecret(source, this.#options);
    const file = secretFile(source, this.#options.baseDirectory);
    if (file !== undefined) this.#watched.add(file);
    const key = source.kind === 'env' ? `env ${source.name}` : `file ${file ?? ''}`;
    return this.#once(key, path, () => readSecret(source, this.#options));
  }

  /** Reads a file that is no secret, as text. */
  async text(path: string, keyPath: KeyPath): Promise<{ readonly text: string } | { readonly problem: string }> {
    const file = resolve(this.#options.baseDirectory, path);
    this.#watched.add(file);
    const reading = await readText(file, path);
    const last = this.#options.lastGood.texts.get(file);
    if ('problem' in reading && last === undefined) return reading;
    if ('problem' in reading) this.#findings.warn(keyPath, `${reading.problem}; its last good content stays in use`);
    const text = 'text' in reading ? reading.text : (last ?? '');
    this.#texts.set(file, text);
    return { text };
  }

  #once(key: string, path: KeyPath, read: () => Promise<SecretReading>): Promise<SecretReading> {
    const present = this.#readings.get(key);
    if (present !== undefined) return present;
    const reading = read().then((fresh) => this.#keepOrFallBack(key, path, fresh));
    this.#readings.set(key, reading);
    return reading;
  }

  #keepOrFallBack(key: string, path: KeyPath, fresh: SecretReading): SecretReading {
    if (fresh.kind === 'malformed') return fresh;
    if (fresh.kind === 'missing') {
      const last = this.#options.lastGood.secrets.get(key);
      const now = (this.#options.now ?? Date.now)();
      const goneSince = last?.goneSince ?? now;
      if (last === undefined || now - goneSince >= GRACE_MS) return fresh;
      this.#good.set(key, { secret: last.secret, goneSince });
      this.#findings.warn(path, `${fresh.problem}; its last good value stays in use for ${GRACE_MS / 1000} s`);
      return { kind: 'read', secret: last.secret, warning: undefined };
    }
    this.#good.set(key, { secret: fresh.secret, goneSince: undefined });
    if (fresh.warning !== undefined) this.#findings.warn(path, fresh.warning);
    return fresh;
  }
}

async function readText(file: string, shown: string): Promise<{ readonly text: string } | { readonly problem: string }> {
  try {
    const text = await readFile(file, 'utf8');
    return text.trim() === '' ? { problem: `file "${shown}" is empty` } : { text };
  } catch (error) {
    return { problem: `file "${shown}" ${fileTrouble(error)}` };
  }
}
