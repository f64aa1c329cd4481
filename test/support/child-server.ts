// A server of somebody else's (Redis, PostgreSQL) as a child process of one test file: ready when it says so, and ended by its own id.
import { spawn } from 'node:child_process';
import type { ChildProcess, SpawnOptions } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';

/** A port of loopback that nobody listens on at this moment. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Starts a program; resolves when its output has the words, rejects with that output when it ends before. */
export function startUntil(command: readonly string[], words: string, options: SpawnOptions = {}): Promise<ChildProcess> {
  const [program = '', ...rest] = command;
  const child = spawn(program, rest, { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
  // whatever becomes of the test file, its servers end with it
  process.once('exit', () => child.kill('SIGKILL'));
  return new Promise((resolve, reject) => {
    let output = '';
    const hear = (chunk: Buffer): void => {
      output += chunk.toString();
      if (output.includes(words)) resolve(child);
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.once('error', reject);
    child.once('exit', (code) => reject(new Error(`${program} ended with ${code}: ${output}`)));
  });
}

/** Ends a child with a signal and waits until it is gone. */
export async function endChild(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGCONT');
  child.kill(signal);
  await gone;
}
