// Three networks of a kernel: a sandbox, the proxy, and the outside, with a cable from the proxy to each of the others and none between them.
// Everything has a name of its own and goes with `close`; nothing of this machine's own network is touched. Needs root and iproute2.
import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** One of the networks. */
export type Place = 'sandbox' | 'proxy' | 'outside';

/** Addresses: the proxy's two ends, and those at the other end of each cable. */
export const PLACES = { sandbox: '10.77.1.2', inner: '10.77.1.1', outer: '10.77.2.1', outside: '10.77.2.2' } as const;

/** The networks, and what runs in them. */
export interface ThreeNamespaces {
  /** For files of the programs */
  readonly folder: string;
  /** Starts a program that runs until `close`. Resolves once it has said the words, rejects where it ends before. */
  start(place: Place, command: readonly string[], words: string): Promise<Running>;
  /** Runs a program to its end; gives what it printed. Rejects where it fails, or takes longer than half a minute. */
  run(place: Place, command: readonly string[]): Promise<string>;
  /** What the programs there find in /etc under that name, from their start on. */
  etc(place: Place, name: string, text: string): Promise<void>;
  close(): Promise<void>;
}

/** A program under way. */
export interface Running {
  /** What it has printed so far, on both outputs */
  readonly printed: () => string;
  /** Default: SIGTERM */
  stop(signal?: NodeJS.Signals): Promise<void>;
}

let made = 0;

/** Makes the networks. The sandbox has no route but to the proxy's own address. */
export async function openThreeNamespaces(): Promise<ThreeNamespaces> {
  made += 1;
  const tag = `s${process.pid.toString(36)}${made}`;
  const names = { sandbox: `${tag}-sandbox`, proxy: `${tag}-proxy`, outside: `${tag}-outside` } as const;
  const folder = await mkdtemp(join(tmpdir(), 'namespaces-'));
  const running = new Set<Running>();
  const ip = (...words: string[]): Promise<unknown> => run('ip', words);
  const inside = (place: Place, ...words: string[]): Promise<unknown> => ip('-n', names[place], ...words);
  const etcOf = (place: Place): string => join('/etc/netns', names[place]);

  const close = async (): Promise<void> => {
    for (const each of running) await each.stop();
    for (const place of ['sandbox', 'proxy', 'outside'] as const) {
      await ip('netns', 'del', names[place]).catch(() => undefined);
      await rm(etcOf(place), { recursive: true, force: true });
    }
    await rm(folder, { recursive: true, force: true });
  };

  const lay = async (place: 'sandbox' | 'outside', near: string, far: string): Promise<void> => {
    const [here, there] = [`${tag}${place[0]}n`, `${tag}${place[0]}f`];
    await ip('link', 'add', here, 'netns', names.proxy, 'type', 'veth', 'peer', 'name', there, 'netns', names[place]);
    await inside('proxy', 'address', 'add', `${near}/24`, 'dev', here);
    await inside(place, 'address', 'add', `${far}/24`, 'dev', there);
    await inside('proxy', 'link', 'set', here, 'up');
    await inside(place, 'link', 'set', there, 'up');
  };

  try {
    for (const place of ['sandbox', 'proxy', 'outside'] as const) {
      await ip('netns', 'add', names[place]);
      await inside(place, 'link', 'set', 'lo', 'up');
      await mkdir(etcOf(place), { recursive: true });
      // Names of this machine are nobody's there.
      await writeFile(join(etcOf(place), 'hosts'), '127.0.0.1 localhost\n');
    }
    await lay('sandbox', PLACES.inner, PLACES.sandbox);
    await lay('outside', PLACES.outer, PLACES.outside);
  } catch (error) {
    await close();
    throw error;
  }

  return {
    folder,
    start: async (place, command, words) => {
      const child = spawn('ip', ['netns', 'exec', names[place], ...command], { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
      const program = await untilSaid(child, words);
      running.add(program);
      return { ...program, stop: (signal) => (running.delete(program), program.stop(signal)) };
    },
    run: async (place, command) => {
      const { stdout } = await run('ip', ['netns', 'exec', names[place], ...command], { cwd: folder, timeout: 30_000 });
      return stdout;
    },
    etc: (place, name, text) => writeFile(join(etcOf(place), name), text),
    close,
  };
}

function untilSaid(child: ChildProcess, words: string): Promise<Running> {
  let text = '';
  // Whatever becomes of the test file, its programs end with it.
  process.once('exit', () => child.kill('SIGKILL'));
  const program: Running = {
    printed: () => text,
    stop: async (signal = 'SIGTERM') => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill(signal);
      await once(child, 'exit');
    },
  };
  return new Promise((resolve, reject) => {
    const hear = (chunk: Buffer): void => {
      text += chunk.toString();
      if (text.includes(words)) resolve(program);
    };
    child.stdout?.on('data', hear);
    child.stderr?.on('data', hear);
    child.once('error', reject);
    child.once('exit', () => reject(new Error(`the program ended before it said "${words}": ${text}`)));
  });
}
