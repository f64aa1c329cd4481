// Finds the hooks files, reads each in its dialect, and merges them in a fixed order (fault M13).
// Nothing that is wrong with a file is dropped in silence, and it never throws: what cannot be used is a problem, and an `error` denies tool calls.
import { existsSync, realpathSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { HOOK_FOLDERS } from './desktop.ts';
import type { Dialect } from './dialect.ts';
import { dialects } from './dialects.ts';
import { readHookFile } from './hook-file.ts';
import { at, isJsonObject, kindOf, nearest } from './json-reader.ts';
import { readJson } from './json-text.ts';
import { SYSTEM_FILE } from './managed.ts';
import type { DialectName, HookProblem, HookRule, HookSet } from './words.ts';

/** Where hooks are looked for. */
export interface HookPlaces {
  /** Absolute */
  readonly workspace: string;
  /** Where `~` points; undefined: nowhere */
  readonly home?: string | undefined;
  /** Further files, merged after the user's and before the workspace's. Each has to be there */
  readonly plugins?: readonly string[] | undefined;
  /** These files, and none that would be found. Each has to be there */
  readonly files?: readonly string[] | undefined;
  /** Every file is read as written in this dialect */
  readonly dialect?: DialectName | undefined;
}

interface Place {
  readonly path: string;
  /** Somebody named it: that it is missing is an error */
  readonly named: boolean;
}

/**
 * Every hooks file, merged: `/.agents/hooks.json`, `~/.gemini/config/hooks.json`, plugins, then from the repository's root (the nearest folder
 * with `.git`; without one only the workspace) down to the workspace `.agents/hooks.json` and its three old spellings. A file that is reached
 * twice is read once, at its first place. Synchronous, so that a runtime waits for the disk and for nothing else. Never throws.
 */
export function loadHooks(places: HookPlaces): HookSet {
  const files: { path: string; dialect: DialectName | undefined }[] = [];
  const rules: HookRule[] = [];
  const problems: HookProblem[] = [];
  const seen = new Set<string>();
  for (const { path, named } of listPlaces(places)) {
    const found = readHookFile(path);
    if ('missing' in found && !named) continue;
    const real = realPath(path);
    if (seen.has(real)) continue;
    seen.add(real);
    const file = readFile(path, found, places.dialect);
    files.push({ path, dialect: file.dialect });
    problems.push(...file.problems);
    // Half a file is not used: the half that is missing may be the one that denies.
    if (!file.problems.some(({ severity }) => severity === 'error')) rules.push(...file.rules);
  }
  return { files, rules, problems };
}

function listPlaces({ workspace, home, plugins = [], files }: HookPlaces): Place[] {
  const named = (path: string): Place => ({ path: resolve(workspace, path), named: true });
  if (files !== undefined) return files.map(named);
  const found = (path: string): Place => ({ path, named: false });
  return [
    found(SYSTEM_FILE),
    ...(home === undefined || home === '' ? [] : [found(resolve(home, '.gemini/config/hooks.json'))]),
    ...plugins.map(named),
    ...foldersDown(resolve(workspace)).flatMap((folder) => HOOK_FOLDERS.map((name) => found(join(folder, name, 'hooks.json')))),
  ];
}

/** From the repository's root down to the workspace. */
function foldersDown(workspace: string): readonly string[] {
  const folders: string[] = [];
  for (let folder = workspace; ; folder = dirname(folder)) {
    folders.unshift(folder);
    if (existsSync(join(folder, '.git'))) return folders;
    if (folder === dirname(folder)) return [workspace];
  }
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    // Missing or out of reach: then its own name is all that tells it from others.
    return path;
  }
}

/** A hooks file that was read. With an `error` among the problems there are no rules. */
export interface ReadFile {
  readonly dialect: DialectName | undefined;
  readonly rules: readonly HookRule[];
  readonly problems: readonly HookProblem[];
}

/** Reads a hooks file whose text is at hand; `path` is its name in problems and lines. Never throws. */
export function readHooksText(path: string, text: string, dialect?: DialectName): ReadFile {
  const read = readFile(path, { text }, dialect);
  return read.problems.some(({ severity }) => severity === 'error') ? { ...read, rules: [] } : read;
}

function readFile(path: string, found: ReturnType<typeof readHookFile>, forced: DialectName | undefined): ReadFile {
  const unusable = (message: string, place = ''): ReadFile => ({
    dialect: forced,
    rules: [],
    problems: [{ file: path, path: place, severity: 'error', message }],
  });
  if ('missing' in found) return unusable('is not there; create it, or do not name it');
  if ('problem' in found) return unusable(found.problem);
  const read = readJson(found.text);
  if ('problem' in read) {
    const empty = found.text.trim() === '';
    return unusable(empty ? 'is empty; write {} for no hooks' : `line ${read.line}, column ${read.column}: ${read.problem}`);
  }
  if (read.duplicates.length > 0) {
    const problems = read.duplicates.map(({ path: place, line, firstLine }) => ({
      file: path,
      path: place,
      severity: 'error' as const,
      message: `line ${line}: this key stands twice, first in line ${firstLine}; keep one of them`,
    }));
    return { dialect: forced, rules: [], problems };
  }
  const { value } = read;
  if (isJsonObject(value) && Object.keys(value).length === 0) return { dialect: undefined, rules: [], problems: [] };
  const dialect = forced === undefined ? dialectOf(value) : dialects[forced];
  if ('problem' in dialect) return unusable(dialect.problem, dialect.place);
  return { dialect: dialect.name, ...dialect.readHooks({ path, value }) };
}

/** Whose file this is, by its own keys. */
function dialectOf(value: unknown): Dialect | { readonly place: string; readonly problem: string } {
  const owners = Object.values(dialects).filter((dialect) => dialect.owns(value));
  const [only, second] = owners;
  if (only !== undefined && second === undefined) return only;
  const allowed = Object.values(dialects)
    .map(({ name, events }) => `${name}: ${[...events.keys()].join(', ')}`)
    .join('; ');
  if (only !== undefined) {
    const names = owners.map(({ name }) => name).join(' and ');
    return { place: '', problem: `mixes the dialects ${names}; keep to the events of one of them (${allowed})` };
  }
  if (!isJsonObject(value)) return { place: '', problem: `must be an object; it is ${kindOf(value)}` };
  const { place, hint } = strayEvent(value) ?? { place: '', hint: 'no group holds an event' };
  return { place, problem: `${hint}; write { "my-gate": { "<event>": [...] } } with the events of one dialect (${allowed})` };
}

/** Where somebody probably meant an event: a misspelled one in a group, or one that stands at the top. */
function strayEvent(value: Readonly<Record<string, unknown>>): { readonly place: string; readonly hint: string } | undefined {
  const events = Object.values(dialects).flatMap((dialect) => [...dialect.events.keys()]);
  for (const [group, content] of Object.entries(value)) {
    if (events.some((event) => event === group)) return { place: at('', group), hint: 'this event stands outside of a group' };
    if (!isJsonObject(content)) continue;
    for (const key of Object.keys(content)) {
      const meant = nearest(key, events);
      if (meant !== undefined) return { place: at(at('', group), key), hint: `unknown event; did you mean "${meant}"` };
    }
  }
  return undefined;
}
