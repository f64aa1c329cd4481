// Read, parse, compile: a config file to what runs, or to all that is wrong with it. The same road for start, reload and `check`.
// It must never throw for a file that is missing or wrong: an operator gets one line with the path and the remedy (fault L04).
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { fileTrouble } from '../credentials/secret-source.ts';
import { compileConfig } from './compile.ts';
import type { Compiled } from './compile.ts';
import { parseConfig } from './parse-config.ts';
import type { Problem } from './problem.ts';
import type { LastGood } from './source-reader.ts';

/** How to load. `baseDirectory` is the working directory of the process where nothing else is said. */
export interface LoadOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly baseDirectory?: string;
  /** Standard: 1 */
  readonly generation?: number;
  /** Of the load before */
  readonly lastGood?: LastGood;
}

/**
 * What loading gave. `fingerprint` is equal exactly when file and secrets are; it is made of secrets and must not be shown.
 * With problems, `watched` still names the files whose change may mend them.
 */
export type LoadResult =
  | { readonly compiled: Compiled; readonly fingerprint: string; readonly lastGood: LastGood }
  | { readonly problems: readonly Problem[]; readonly watched: readonly string[] };

/** Loads a config file. Never throws for anything an operator can write. */
export async function loadConfig(path: string, options: LoadOptions): Promise<LoadResult> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    return { problems: [{ path: '', message: `config file "${path}" ${fileTrouble(error)}` }], watched: [] };
  }
  const parsed = parseConfig(text, basename(path));
  if ('problems' in parsed) return { problems: parsed.problems, watched: [] };
  const { env, baseDirectory = process.cwd(), generation = 1, lastGood } = options;
  const result = await compileConfig(parsed.config, {
    env,
    baseDirectory,
    generation,
    ...(lastGood === undefined ? {} : { lastGood }),
  });
  if ('problems' in result) return result;
  const fingerprint = createHash('sha256').update(text).update(result.digest).digest('hex');
  return { compiled: result.compiled, fingerprint, lastGood: result.lastGood };
}
