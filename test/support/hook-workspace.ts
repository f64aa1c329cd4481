// A workspace for hooks: a folder of its own with a home beside it, scripts and hooks files in it, and `sallyport-hook` as a runtime calls it.
// The command needs dist; `buildCli` of cli.ts brings it up to date the way `npm test` does.
import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { JsonObject } from '../../src/hooks/words.ts';

const COMMAND = join(import.meta.dirname, '..', '..', 'dist', 'hook-cli.js');

/** Loaded before the command. */
const ON_TERMINAL = 'data:text/javascript,process.stdout.isTTY=true';

/** What a run of `sallyport-hook` came to. */
export interface HookCliEnd {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** Standard output as JSON */
  json(): JsonObject;
}

/** A workspace. */
export interface HookWorkspace {
  /** Absolute, without links in it */
  readonly folder: string;
  /** The user's home, and the folder of the spool below it */
  readonly home: string;
  /** Absolute path of something in it */
  at(path: string): string;
  /** Writes a file, executable where it begins as a script; an object is written as JSON. Gives its absolute path. */
  write(path: string, content: string | object): Promise<string>;
  /** Lines of a file; none where it is not there */
  lines(path: string): Promise<JsonObject[]>;
  /** Runs the command in the workspace. */
  cli(words: readonly string[], options?: { readonly input?: unknown; readonly env?: NodeJS.ProcessEnv }): Promise<HookCliEnd>;
  /** Runs the command, which takes its standard output for a terminal, and gives what it wrote there, without colours. */
  terminal(words: readonly string[]): Promise<string>;
  close(): Promise<void>;
}

/** Makes one; `hooks` is its .agents/hooks.json. */
export async function openHookWorkspace(hooks?: string | object): Promise<HookWorkspace> {
  const root = await realpath(await mkdtemp(join(tmpdir(), 'hooks-')));
  const folder = join(root, 'workspace');
  const home = join(root, 'home');
  await mkdir(folder);
  await mkdir(home);
  const at = (path: string): string => join(folder, path);
  const base = { PATH: process.env['PATH'] ?? '', HOME: home };
  const write = async (path: string, content: string | object): Promise<string> => {
    const text = typeof content === 'string' ? content : JSON.stringify(content, undefined, 2);
    await mkdir(dirname(at(path)), { recursive: true });
    await writeFile(at(path), text, { mode: text.startsWith('#!') ? 0o755 : 0o644 });
    return at(path);
  };
  if (hooks !== undefined) await write('.agents/hooks.json', hooks);
  return {
    folder,
    home,
    at,
    write,
    lines: async (path) => {
      const text = await readFile(at(path), 'utf8').catch(() => '');
      return text
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as JsonObject);
    },
    cli: (words, { input, env = {} } = {}) =>
      launch(words, {
        folder,
        input: typeof input === 'string' ? input : JSON.stringify(input ?? {}),
        env: { ...base, ...env },
      }),
    terminal: async (words) =>
      (await launch(words, { folder, input: '', env: { ...base, NO_COLOR: '1' }, flags: ['--import', ON_TERMINAL] })).stdout,
    close: () => rm(root, { recursive: true, force: true }),
  };
}

interface Launch {
  readonly folder: string;
  readonly input: string;
  readonly env: NodeJS.ProcessEnv;
  /** Of Node itself */
  readonly flags?: readonly string[];
}

function launch(words: readonly string[], { folder, input, env, flags = [] }: Launch): Promise<HookCliEnd> {
  const child = spawn(process.execPath, [...flags, COMMAND, ...words], { cwd: folder, env, stdio: 'pipe' });
  // A test that fails before it has a handle must not leave the command running.
  const end = (): void => void child.kill('SIGKILL');
  process.once('exit', end);
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (piece: Buffer) => void (stdout += piece.toString()));
  child.stderr.on('data', (piece: Buffer) => void (stderr += piece.toString()));
  child.stdin.on('error', () => undefined);
  child.stdin.end(input);
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => {
      process.off('exit', end);
      const json = (): JsonObject => {
        if (!stdout.startsWith('{')) throw new Error(`sallyport-hook ended with ${code} and printed no JSON: ${stdout}${stderr}`);
        return JSON.parse(stdout) as JsonObject;
      };
      resolve({ code, stdout, stderr, json });
    });
  });
}
