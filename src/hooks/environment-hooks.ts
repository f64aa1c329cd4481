// The hooks of an environment: its files as the admin listener keeps them, not as the sandbox has them. Those below `.agents/` are written to a
// private folder that stands for `/`, and the commands that name `/.agents/...` are led there, so that an agent which rewrites its own copy changes nothing.
// It must never let a command of these hooks run a file of the sandbox's own `.agents/`, nor leave the folder behind.
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { readHooksText } from './load-hooks.ts';
import type { DialectName, HookHandler, HookProblem, HookRule, HookSet } from './words.ts';

/** A file of an environment. */
export interface EnvironmentFile {
  /** Where it lands, below `/`, as `.agents/hooks.json` */
  readonly target: string;
  readonly content: string;
  readonly encoding?: 'base64';
}

/** Hooks that stand in a folder of their own. */
export interface EnvironmentHooks {
  readonly hooks: HookSet;
  /** Removes the folder; idempotent. To be called when the last command has ended */
  readonly close: () => void;
}

const FOLDER = '.agents';
const FILE = `${FOLDER}/hooks.json`;
/** It goes into the text of a shell command. */
const PLAIN_PATH = /^\/[A-Za-z0-9/._-]*$/;
/**
 * `/.agents` as the beginning of a path: after a blank, a quote, `=` or the like, and before `/` or the end of the path. What is part
 * of a longer path, as in `/workspace/.agents/x`, stays.
 */
const NAMED = /(?<![\w.~/\\$}*?[\]-])\/\.agents(?![\w.~-])/g;

/**
 * Reads the hooks.json among the files, to be looked at and not to be run: its commands are as they were written. An environment without one
 * has no hooks. `id` names the environment in places of problems and lines. Writes nothing.
 */
export function readEnvironmentHooks(id: string, files: readonly EnvironmentFile[], dialect?: DialectName): HookSet {
  const own = belowFolder(files);
  const file = own.find(({ target }) => target === FILE);
  if (file === undefined) return { files: [], rules: [], problems: [] };
  const path = `/environments/${id}/${FILE}`;
  const read = readHooksText(path, textOf(file), dialect);
  const problems = [...read.problems, ...missing(path, read.rules, own)];
  return { files: [{ path, dialect: read.dialect }], rules: read.rules, problems };
}

/**
 * Reads them as `readEnvironmentHooks` does, and writes the files below `.agents/` to a new folder, 0700, where they run. Throws where the
 * folder cannot be made; nothing is left behind then.
 */
export function openEnvironmentHooks(id: string, files: readonly EnvironmentFile[], dialect?: DialectName): EnvironmentHooks {
  const hooks = readEnvironmentHooks(id, files, dialect);
  if (hooks.files.length === 0) return { hooks, close: () => undefined };
  const root = privateFolder();
  const close = (): void => rmSync(root, { recursive: true, force: true });
  try {
    for (const each of belowFolder(files)) writeOne(root, each);
    const rules = hooks.rules.map((rule): HookRule => ({
      ...rule,
      root,
      handlers: rule.handlers.map((handler) => ledTo(root, handler)),
    }));
    return { hooks: { ...hooks, rules }, close };
  } catch (error) {
    close();
    throw error;
  }
}

/** The command with `/.agents` as a path of the folder. Exported for its table of cases. */
export function leadCommand(text: string, root: string): string {
  // a function, for `$` in a replacement text has a meaning
  return text.replace(NAMED, () => `${root}/${FOLDER}`);
}

function ledTo(root: string, handler: HookHandler): HookHandler {
  if (handler.kind === 'http') return handler;
  const args = handler.args?.map((text) => leadCommand(text, root));
  return { ...handler, command: leadCommand(handler.command, root), args };
}

function belowFolder(files: readonly EnvironmentFile[]): readonly EnvironmentFile[] {
  return files.filter(({ target }) => target.startsWith(`${FOLDER}/`));
}

function privateFolder(): string {
  const place = tmpdir();
  // mkdtemp makes it 0700
  const root = mkdtempSync(join(PLAIN_PATH.test(place) ? place : '/tmp', 'sallyport-hooks-'));
  chmodSync(root, 0o700);
  return root;
}

function writeOne(root: string, file: EnvironmentFile): void {
  if (file.target.split('/').some((step) => step === '' || step === '.' || step === '..'))
    throw new Error(`the source "${file.target}" of the environment leads out of its folder`);
  const path = join(root, file.target);
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const content = Buffer.from(file.content, file.encoding ?? 'utf8');
  // A script may be called by its own name.
  writeFileSync(path, content, { mode: content.subarray(0, 2).toString() === '#!' ? 0o700 : 0o600, flag: 'wx' });
}

function textOf({ content, encoding }: EnvironmentFile): string {
  return encoding === undefined ? content : new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.from(content, encoding));
}

/** A script that nobody sent is not there when its command runs, and what that comes to is for the dialect to say: told early. */
function missing(path: string, rules: readonly HookRule[], own: readonly EnvironmentFile[]): HookProblem[] {
  const there = new Set(own.map(({ target }) => target));
  const named = rules.flatMap(({ handlers }) =>
    handlers.flatMap((handler) =>
      handler.kind === 'http'
        ? []
        : [handler.command, ...(handler.args ?? [])].flatMap((text) =>
            [...text.matchAll(/(?<![\w.~/-])\/(\.agents\/[\w./-]*\w)/g)].map((match) => ({
              id: handler.id,
              target: match[1] ?? '',
            })),
          ),
    ),
  );
  return named
    .filter(({ target }) => !there.has(target) && ![...there].some((each) => each.startsWith(`${target}/`)))
    .map(({ id, target }) => ({
      file: path,
      path: id,
      severity: 'warning',
      message: `names "/${target}", which is no source of the environment; send it as one`,
    }));
}
