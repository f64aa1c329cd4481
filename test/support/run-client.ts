// Runs a real client with the variables of a sandbox, or says what of it is missing on this machine.
import { execFileSync, spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { GREETING } from './package-sites.ts';

/** Where a client is sent. */
export interface Errand {
  /** `https://host:port` of the sites */
  readonly base: string;
  /** `host:port` of the gRPC service */
  readonly grpc: string;
  /** A folder of its own, which is also its HOME */
  readonly folder: string;
  /** Variables of the sandbox */
  readonly variables: Readonly<Record<string, string>>;
  /** Names of those that it is run with; left out, all of them */
  readonly only?: readonly string[];
}

/** How a client is run: words of a command, or lines for bash. */
export interface Call {
  readonly script: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly files?: Readonly<Record<string, string>>;
  readonly input?: string;
}

/** One way to run a client. */
export interface Runnable {
  readonly title: string;
  /** Commands that it needs */
  readonly commands: readonly string[];
  /** Fails where something else that it needs is missing */
  readonly probe?: readonly [string, ...string[]];
  readonly call: (errand: Errand) => Call;
  /** What it prints when it has got what it was sent for; left out, the greeting */
  readonly prints?: string;
  /** What it prints when it is refused; left out, the status or its name. 'in half a minute' retries before it says so */
  readonly hears?: RegExp | 'in half a minute';
  /** It takes no token from a proxy's URL: its sandbox must be known by its address */
  readonly bearsNoToken?: boolean;
}

/** What a run came to. */
export interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** What is missing for a way to be run, or `undefined`. */
export function missingFor({ commands, probe, title }: Runnable): string | undefined {
  const absent = commands.find((command) => !isThere(command));
  if (absent !== undefined) return `no ${absent} here`;
  if (probe === undefined) return undefined;
  try {
    execFileSync(probe[0], probe.slice(1), { stdio: 'ignore' });
    return undefined;
  } catch {
    return `no ${title} here`;
  }
}

function isThere(command: string): boolean {
  return (process.env['PATH'] ?? '').split(':').some((folder) => {
    try {
      accessSync(join(folder, command), constants.X_OK);
      return true;
    } catch {
      return false; // not in this one
    }
  });
}

/** Runs a client with the sandbox's variables and nothing of ours but PATH; to its end, or `until` something else has happened. */
export async function runClient(runnable: Runnable, errand: Errand, until?: Promise<unknown>): Promise<Ran> {
  const { script, env = {}, files = {}, input = '' } = runnable.call(errand);
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(errand.folder, path)), { recursive: true });
    await writeFile(join(errand.folder, path), text);
  }
  const { only = Object.keys(errand.variables) } = errand;
  const variables = Object.fromEntries(Object.entries(errand.variables).filter(([name]) => only.includes(name)));
  const surroundings = { PATH: process.env['PATH'] ?? '', HOME: errand.folder, LANG: 'C.UTF-8', ...variables, ...env };
  const child = spawn('bash', ['--norc', '-c', script], { cwd: errand.folder, env: surroundings, detached: true });
  const kill = (): void => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGKILL');
  };
  void until?.then(kill).catch(() => undefined); // it has just ended by itself
  let [stdout, stderr] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => void (stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => void (stderr += chunk.toString()));
  child.stdin.on('error', () => undefined);
  child.stdin.end(input);
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, stdout, stderr }));
  });
}

/** What a client must print when it was served. */
export const printsOf = ({ prints }: Runnable): string => prints ?? GREETING;

/** What a client must print when it was refused. */
export const hearsOf = ({ hears }: Runnable): RegExp | 'in half a minute' => hears ?? /403|forbidden/i;
