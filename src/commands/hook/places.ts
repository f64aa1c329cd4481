// What the commands of `sallyport-hook` have in common: where hooks are, and the tool registry.
// It must never read a payload, and never decide.
import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { resolve } from 'node:path';
import { loadHooks } from '../../hooks/load-hooks.ts';
import { readTools } from '../../hooks/tools.ts';
import type { ReadTools } from '../../hooks/tools.ts';
import type { DialectName, HookProblem, HookSet } from '../../hooks/words.ts';

/** Options that every command of `sallyport-hook` has. */
export interface PlaceOptions {
  readonly workspace?: string;
  readonly hooks?: readonly string[];
  readonly plugin?: readonly string[];
  readonly dialect?: DialectName;
  readonly tools?: string;
  readonly audit?: string;
  readonly recordArguments?: boolean;
  readonly admin?: string;
  readonly tokenFile?: string;
  /** Id of the environment whose hooks are meant, and none that would be found */
  readonly environment?: string;
}

/** The workspace, absolute. */
export function workspaceOf({ workspace }: PlaceOptions): string {
  return resolve(workspace ?? process.cwd());
}

/** Every hooks file of this machine that the options lead to. */
export function hooksOf(options: PlaceOptions): HookSet {
  return loadHooks({
    workspace: workspaceOf(options),
    home: process.env['HOME'] ?? homedir(),
    // What is named on a command line is named from where it was typed, whatever the workspace.
    plugins: options.plugin?.map((path) => resolve(path)),
    files: options.hooks?.map((path) => resolve(path)),
    dialect: options.dialect,
  });
}

/** The tool registry, empty where none is named. */
export function toolsOf(options: PlaceOptions): ReadTools {
  const path = options.tools ?? setting('SALLYPORT_HOOK_TOOLS');
  return path === undefined ? { tools: new Map(), problems: [] } : readTools(path);
}

/** The file of the ledger, if any. */
export function auditOf(options: PlaceOptions): string | undefined {
  return options.audit ?? setting('SALLYPORT_HOOK_AUDIT');
}

/** The text of a file that an option names. Throws TypeError where it cannot be read. */
export function readNamed(path: string, what: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    throw new TypeError(`${what} cannot be read from "${path}"`);
  }
}

/** A variable that is set and not empty. */
export function setting(name: string): string | undefined {
  const value = process.env[name];
  return value === undefined || value === '' ? undefined : value;
}

/** One line for people. */
export function problemText({ file, path, message }: HookProblem): string {
  return path === '' ? `${file}: ${message}` : `${file}: ${path}: ${message}`;
}
