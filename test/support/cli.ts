// The built program as an operator runs it: a process of its own with a config in a folder of its own, its words kept.
// Needs dist; `buildCli` brings it up to date the way `npm test` does.
import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '..', '..');
const CLI = join(ROOT, 'dist', 'sallyport.cjs');

/** Builds dist where it is missing or older than src. */
export async function buildCli(): Promise<void> {
  await run(process.execPath, [join(ROOT, '.config', 'prepare.mjs')], { cwd: ROOT });
}

/** What a process came to. */
export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A run of `sallyport start`. */
export interface Started {
  readonly port: number;
  readonly adminPort: number;
  readonly ca: string;
  /** The JSON lines of standard error so far */
  readonly log: () => readonly Record<string, unknown>[];
  /** Sends a signal and waits for the end. */
  readonly stop: (signal?: NodeJS.Signals) => Promise<Ended>;
}

/** A folder with the config, as text or as an object over defaults that keep every file in that folder. */
export async function cliFolder(
  config: object | string,
): Promise<{ readonly folder: string; readonly config: string; close: () => Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), 'cli-'));
  const base = {
    listen: { proxy: '127.0.0.1:0' },
    admin: { listen: '127.0.0.1:0', token: { file: 'admin-token' } },
    ca: { certificate: 'public/ca.pem', key: 'ca.key' },
    audit: { path: 'audit.ndjson' },
  };
  const text = typeof config === 'string' ? config : JSON.stringify({ ...base, ...config });
  await writeFile(join(folder, 'sallyport.json'), text);
  return { folder, config: 'sallyport.json', close: () => rm(folder, { recursive: true, force: true }) };
}

/** Runs the program to its end. */
export async function runCli(words: readonly string[], options: { folder: string; env?: NodeJS.ProcessEnv }): Promise<Ended> {
  return ended(launch(words, options));
}

/** Runs `start` until it listens. Rejects, with what it said, where it ends before. */
export async function startCli(options: { folder: string; config: string; env?: NodeJS.ProcessEnv }): Promise<Started> {
  const child = launch(['start', '--config', options.config], options);
  const log: Record<string, unknown>[] = [];
  let rest = '';
  const listening = new Promise<Record<string, unknown>>((resolve) => {
    child.stderr?.on('data', (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines.filter((text) => text.startsWith('{'))) log.push(JSON.parse(line) as Record<string, unknown>);
      const found = log.find(({ message }) => message === 'listening');
      if (found !== undefined) resolve(found);
    });
  });
  const end = ended(child);
  const first = await Promise.race([listening, end]);
  if ('stderr' in first) throw new Error(`the program ended with ${String(first['code'])}: ${String(first['stderr'])}`);
  const portOf = (url: unknown): number => Number(new URL(String(url)).port);
  return {
    port: portOf(first['proxy']),
    adminPort: portOf(first['admin']),
    ca: await readFile(String(first['ca']), 'utf8'),
    log: () => log,
    stop: (signal = 'SIGTERM') => {
      child.kill(signal);
      return end;
    },
  };
}

function launch(words: readonly string[], { folder, env = {} }: { folder: string; env?: NodeJS.ProcessEnv }): ChildProcess {
  const surroundings = { PATH: process.env['PATH'] ?? '', ...env };
  const child = spawn(process.execPath, [CLI, ...words], { cwd: folder, env: surroundings, stdio: ['ignore', 'pipe', 'pipe'] });
  // A test that fails before it has a handle must not leave the program running.
  const end = (): void => void child.kill('SIGKILL');
  process.once('exit', end);
  child.once('close', () => process.off('exit', end));
  return child;
}

function ended(child: ChildProcess): Promise<Ended> {
  let stdout = '';
  let stderr = '';
  child.stdout?.on('data', (chunk: Buffer) => void (stdout += chunk.toString()));
  child.stderr?.on('data', (chunk: Buffer) => void (stderr += chunk.toString()));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, stdout, stderr }));
  });
}
