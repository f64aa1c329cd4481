// A Redis of one test file, from the system's package: its own port, folder and password. Where it is not installed, tests say so and skip.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { endChild, freePort, startUntil } from './child-server.ts';

/** Why there is no Redis here; `undefined` where there is one. */
export const redisMissing = findMissing();

/** A running Redis. */
export interface RedisServer {
  readonly port: number;
  readonly password: string;
  /** The URI of one of its databases, 0 to 255 */
  uri(database: number): string;
  /** Stops it; what it holds is kept for `start`. */
  stop(): Promise<void>;
  start(): Promise<void>;
  /** Makes it hang: connections stand and nothing answers. */
  pause(): void;
  resume(): void;
  /** Stops it and removes its folder. */
  end(): Promise<void>;
}

/** Starts a Redis on a free port. */
export async function startRedis(): Promise<RedisServer> {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-redis-'));
  const port = await freePort();
  const password = 'redis-password';
  const settings = [
    '--bind',
    '127.0.0.1',
    '--dir',
    folder,
    '--requirepass',
    password,
    '--appendonly',
    'yes',
    '--save',
    '',
    '--databases',
    '256',
  ];
  const command = ['redis-server', '--port', String(port), ...settings];
  const start = () => startUntil(command, 'Ready to accept connections');
  let child = await start();
  return {
    port,
    password,
    uri: (database) => `redis://:${password}@127.0.0.1:${port}/${database}`,
    stop: () => endChild(child, 'SIGTERM'),
    start: async () => {
      child = await start();
    },
    pause: () => child.kill('SIGSTOP'),
    resume: () => child.kill('SIGCONT'),
    end: async () => {
      await endChild(child, 'SIGKILL');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function findMissing(): string | undefined {
  try {
    execFileSync('redis-server', ['--version'], { stdio: 'ignore' });
    return undefined;
  } catch {
    return 'redis-server is not installed; apt-get install redis-server';
  }
}
