// Reads what a config refers to, each file or variable once for one load, and remembers the last good reading of each.
// A file that vanishes or is emptied in the middle of a rotation keeps its last good value, and a warning says so;
// one that holds something malformed is a problem. Digests are of secrets: they must never leave this process.
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { digestSecrets, fileTrouble, readSecret, secretFile } from '../credentials/secret-source.ts';
import type { SecretReading, SecretSource } from '../credentials/secret-source.ts';
import type { Secret } from '../foundation/secret.ts';
import type { Findings, KeyPath } from './problem.ts';

/** Last good readings, to be handed to the next load: secrets by source, other files by absolute path. */
export interface LastGood {
  readonly secrets: ReadonlyMap<string, Secret>;
  readonly texts: ReadonlyMap<string, string>;
}

/** What the first load has behind it. */
export const NOTHING_YET: LastGood = { secrets: new Map(), texts: new Map() };

/** Where to read from. */
export interface SourceOptions {
  readonly baseDirectory: string;
  readonly env: NodeJS.ProcessEnv;
  readonly lastGood: LastGood;
}

/** One load's view of the files and variables that a config names. */
export class SourceReader {
  readonly #options: SourceOptions;
  readonly #findings: Findings;
  readonly #readings = new Map<string, Promise<SecretReading>>();
  readonly #watched = new Set<string>();
  readonly #good = new Map<string, Secret>();
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
      .update(digestSecrets(this.#good))
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
      if (last === undefined) return fresh;
      this.#good.set(key, last);
      this.#findings.warn(path, `${fresh.problem}; its last good value stays in use`);
      return { kind: 'read', secret: last, warning: undefined };
    }
    this.#good.set(key, fresh.secret);
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
