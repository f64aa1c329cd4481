// Reads what a config refers to, each file or variable once for one load, and remembers the last good reading of each.
// A file that vanishes or is emptied in the middle of a rotation keeps its last good value for a while, and a warning says so;
// after that it counts as gone, so that removing it takes it out of use. One that holds something malformed is a problem.
// Digests are of secrets: they must never leave this process.
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { digestSecrets, fileTrouble, readSecret, secretFile } from '../credentials/secret-source.ts';
import type { SecretReading, SecretSource } from '../credentials/secret-source.ts';
import type { Secret } from '../foundation/secret.ts';
import type { Findings, KeyPath } from './problem.ts';

/** How long what a vanished file held is still used, in `ms`: longer than any rotation, shorter than anyone waits for a revocation. */
export const GRACE_MS = 30_000;

const STAYS = `stays in use for ${GRACE_MS / 1000} s`;

/** What was read, and since when its source is gone (epoch `ms`), if it is. */
interface Good<Value> {
  readonly value: Value;
  readonly goneSince: number | undefined;
}

/** Last good readings by source, to be handed to the next load. */
export interface LastGood {
  readonly secrets: ReadonlyMap<string, Good<Secret>>;
  readonly texts: ReadonlyMap<string, Good<string>>;
  /** Sources that were good once and whose grace is over; what they held is forgotten */
  readonly lost: ReadonlySet<string>;
}

/** A source that was good once, is gone, and has had its grace; one that was never there is `missing`, as a slip of the pen is. */
interface Lost {
  readonly kind: 'lost';
  readonly problem: string;
}

/** What reading a secret gave. */
export type SourceReading = SecretReading | Lost;

/** What reading a text gave. */
export type TextReading =
  { readonly kind: 'read'; readonly text: string } | { readonly kind: 'missing'; readonly problem: string } | Lost;

/**
 * `ms` until the next vanished source has to go out of use; undefined where none is waited for. One whose time is past counts no
 * more: the look at its end was rejected, and another one before something has changed would be too.
 */
export function graceLeft(lastGood: LastGood, now: number): number | undefined {
  const left = [...lastGood.secrets.values(), ...lastGood.texts.values()]
    .flatMap(({ goneSince }) => (goneSince === undefined ? [] : [goneSince + GRACE_MS - now]))
    .filter((ms) => ms > 0);
  return left.length === 0 ? undefined : Math.min(...left);
}

/** What the first load has behind it. */
export const NOTHING_YET: LastGood = { secrets: new Map(), texts: new Map(), lost: new Set() };

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
  readonly #readings = new Map<string, Promise<SourceReading>>();
  readonly #watched = new Set<string>();
  readonly #good = new Map<string, Good<Secret>>();
  readonly #texts = new Map<string, Good<string>>();
  readonly #lost = new Set<string>();

  constructor(options: SourceOptions, findings: Findings) {
    this.#options = options;
    this.#findings = findings;
  }

  /** Absolute paths of every file that was asked for, present or not. */
  get watched(): readonly string[] {
    return [...this.#watched].sort();
  }

  get lastGood(): LastGood {
    return { secrets: this.#good, texts: this.#texts, lost: this.#lost };
  }

  /** Changes when anything that was read changed. */
  digest(): string {
    return createHash('sha256')
      .update(digestSecrets(new Map([...this.#good].map(([key, { value }]) => [key, value]))))
      .update(JSON.stringify([...this.#texts].map(([file, { value }]) => [file, value])))
      .digest('hex');
  }

  /** Reads a secret; warnings go to the findings under `path`, problems are the caller's to report. */
  async secret(source: SecretSource, path: KeyPath): Promise<SourceReading> {
    if (source.kind === 'text') return readSecret(source, this.#options);
    const file = secretFile(source, this.#options.baseDirectory);
    if (file !== undefined) this.#watched.add(file);
    const key = source.kind === 'env' ? `env ${source.name}` : `file ${file ?? ''}`;
    return this.#once(key, path, () => readSecret(source, this.#options));
  }

  /** Reads a file that is no secret, as text; warnings go to the findings under `keyPath`, problems are the caller's to report. */
  async text(path: string, keyPath: KeyPath): Promise<TextReading> {
    const file = resolve(this.#options.baseDirectory, path);
    this.#watched.add(file);
    const key = `text ${file}`;
    const fresh = await readText(file, path);
    if (fresh.kind === 'read') {
      this.#texts.set(key, { value: fresh.text, goneSince: undefined });
      return fresh;
    }
    const good = this.#inGrace(this.#options.lastGood.texts.get(key));
    if (good === undefined) return this.#outOfUse(key, fresh);
    this.#texts.set(key, good);
    this.#findings.warn(keyPath, `${fresh.problem}; its last good content ${STAYS}`);
    return { kind: 'read', text: good.value };
  }

  #once(key: string, path: KeyPath, read: () => Promise<SecretReading>): Promise<SourceReading> {
    const present = this.#readings.get(key);
    if (present !== undefined) return present;
    const reading = read().then((fresh) => this.#keepOrFallBack(key, path, fresh));
    this.#readings.set(key, reading);
    return reading;
  }

  #keepOrFallBack(key: string, path: KeyPath, fresh: SecretReading): SourceReading {
    if (fresh.kind === 'malformed') return fresh;
    if (fresh.kind === 'missing') {
      const good = this.#inGrace(this.#options.lastGood.secrets.get(key));
      if (good === undefined) return this.#outOfUse(key, fresh);
      this.#good.set(key, good);
      this.#findings.warn(path, `${fresh.problem}; its last good value ${STAYS}`);
      return { kind: 'read', secret: good.value, warning: undefined };
    }
    this.#good.set(key, { value: fresh.secret, goneSince: undefined });
    if (fresh.warning !== undefined) this.#findings.warn(path, fresh.warning);
    return fresh;
  }

  /** What stays in use of a source that is gone: its last good reading, until the grace is over. */
  #inGrace<Value>(last: Good<Value> | undefined): Good<Value> | undefined {
    if (last === undefined) return undefined;
    const now = (this.#options.now ?? Date.now)();
    const goneSince = last.goneSince ?? now;
    return now - goneSince < GRACE_MS ? { value: last.value, goneSince } : undefined;
  }

  #outOfUse<Missing extends { readonly problem: string }>(key: string, fresh: Missing): Missing | Lost {
    const { secrets, texts, lost } = this.#options.lastGood;
    if (!secrets.has(key) && !texts.has(key) && !lost.has(key)) return fresh;
    this.#lost.add(key);
    return { kind: 'lost', problem: fresh.problem };
  }
}

async function readText(file: string, shown: string): Promise<Exclude<TextReading, Lost>> {
  try {
    const text = await readFile(file, 'utf8');
    return text.trim() === '' ? { kind: 'missing', problem: `file "${shown}" is empty` } : { kind: 'read', text };
  } catch (error) {
    return { kind: 'missing', problem: `file "${shown}" ${fileTrouble(error)}` };
  }
}
