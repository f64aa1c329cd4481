// What every command is given: its voice, its surroundings, and the config file it works on.
// It must never read a secret: commands that only need paths and addresses must work where the secrets are not.
import { readFile } from 'node:fs/promises';
import { basename, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseConfig } from '../config/parse-config.ts';
import type { ParsedConfig } from '../config/parse-config.ts';
import { formatProblem } from '../config/problem.ts';
import type { Problem } from '../config/problem.ts';
import { EXIT } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';
import type { Input } from './input.ts';
import type { Voice } from './voice.ts';

/** The surroundings of one run of a command. */
export interface CommandContext {
  readonly voice: Voice;
  readonly env: NodeJS.ProcessEnv;
  /** Paths in the config and on the command line are relative to it */
  readonly directory: string;
  readonly version: string;
}

/** Runs a command that the table was asked for. */
export type RunCommand = (command: (context: AskingContext) => Promise<number>) => Promise<void>;

/** The surroundings of a command that may ask back. */
export interface AskingContext extends CommandContext {
  readonly input: Input;
}

/** Why a command does not go on, and who has to act. `problem` may have several lines. */
export interface Trouble {
  readonly problem: string;
  readonly code: ExitCode;
}

/** Says it. */
export function complainOf({ problem, code }: Trouble, { voice }: CommandContext): ExitCode {
  voice.complain(problem);
  return code;
}

/** The options that name a config. */
export interface ConfigOption {
  readonly config?: string | undefined;
}

/** The config that ships with the package. */
export const SHIPPED_CONFIG: string = fileURLToPath(new URL('../../config/sallyport.yaml', import.meta.url));

/** The config file to work on: `--config`, else SALLYPORT_CONFIG, else the shipped one. Absolute only where it is the last. */
export function configPath(options: ConfigOption, env: NodeJS.ProcessEnv): string {
  const named = env['SALLYPORT_CONFIG'];
  return options.config ?? (named === undefined || named === '' ? SHIPPED_CONFIG : named);
}

/** Reads and parses a config, its secrets left unread. Never throws for a file that is missing or wrong (fault L04). */
export async function readConfig(path: string, directory: string): Promise<ParsedConfig> {
  try {
    return parseConfig(await readFile(resolve(directory, path), 'utf8'), basename(path));
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    const why = code === 'ENOENT' ? 'does not exist' : `cannot be read (${code})`;
    return { problems: [{ path: '', message: `the config file ${why}; name one with --config or SALLYPORT_CONFIG` }] };
  }
}

/** Says every problem of a config, one line each, and gives the exit status that goes with it. */
export function complainOfConfig(voice: Voice, problems: readonly Problem[], file: string): ExitCode {
  voice.complain(problems.map((problem) => formatProblem(problem, file)).join('\n'));
  return EXIT.config;
}
