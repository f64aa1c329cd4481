// A storm on the built command: 200 clients, allowed, refused, broken off and in pieces, while the config is rewritten ten times a second.
// What must hold: the process lives, nothing refused is ever let through, and descriptors and memory come back to where they were.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openOutside, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { ask, connectTo, openSecureTunnel, openTunnel, readAnswer } from '../support/sandbox-client.ts';
import type { Door } from '../support/sandbox-client.ts';

const COMMAND = resolve(import.meta.dirname, '../../dist/sallyport.cjs');
const CLIENTS = 200;
const STORM_MS = 20_000;
const REWRITE_MS = 100;

let outside: Outside;
let allowed: Upstream;
let canary: Upstream;
let folder: string;
let config: string;
let child: ChildProcess;
let said = '';
let door: Door;

const configText = (note: number): string =>
  JSON.stringify({
    listen: { proxy: '127.0.0.1:0' },
    admin: { listen: '127.0.0.1:0', token: { file: join(folder, 'admin-token') } },
    ca: { certificate: join(folder, 'public/ca.pem'), key: join(folder, 'ca.key') },
    audit: { path: join(folder, 'audit.ndjson') },
    upstream: { ca: [outside.caPath] },
    network: {
      allowlist: [
        { domain: 'localhost', ports: [allowed.port], addresses: ['127.0.0.0/8', '::1'], transform: { 'X-Note': String(note) } },
      ],
    },
  });

/** One of the ways in which an editor, a deployment tool or an accident rewrites a file. */
function rewrite(step: number): void {
  const text = configText(step);
  if (step % 5 === 1) writeFileSync(config, text.slice(0, text.length / 2));
  else if (step % 5 === 2) writeFileSync(config, '{ "network": { "allowlist": "everything" } }');
  else if (step % 5 === 3) {
    writeFileSync(`${config}.new`, text);
    renameSync(`${config}.new`, config);
  } else writeFileSync(config, text);
}

const descriptors = (): number => readdirSync(`/proc/${child.pid}/fd`).length;
const residentMiB = (): number => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1]) / 1024;

beforeAll(async () => {
  outside = await openOutside();
  allowed = await startUpstream({ tls: outside });
  canary = await startUpstream({ tls: outside });
  folder = await mkdtemp(join(tmpdir(), 'storm-'));
  config = join(folder, 'sallyport.json');
  writeFileSync(config, configText(0));
  // A heap this small makes a leak end the process instead of hiding in the collector's leisure.
  child = spawn(process.execPath, ['--max-old-space-size=96', COMMAND, 'start', '--config', config], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const port = await new Promise<number>((found, failed) => {
    child.stderr?.on('data', (chunk: Buffer) => {
      said += chunk.toString();
      const listening = /"proxy":"http:\/\/127\.0\.0\.1:(\d+)"/.exec(said);
      if (listening !== null) found(Number(listening[1]));
    });
    child.once('exit', () => failed(new Error(`the command ended: ${said}`)));
  });
  door = { port, ca: await readFile(join(folder, 'public/ca.pem'), 'utf8') };
});

afterAll(async () => {
  if (child.exitCode === null) {
    child.kill('SIGTERM');
    await once(child, 'exit');
  }
  await allowed.close();
  await canary.close();
  await outside.close();
  await rm(folder, { recursive: true, force: true });
});

/** What a client saw that it must never see. */
const wrongs: string[] = [];
const counts = { allowed: 0, refused: 0, broken: 0, pieces: 0 };

const clients: readonly (() => Promise<void>)[] = [
  async function isAllowed() {
    const answer = await ask(door, `https://localhost:${allowed.port}/storm`);
    if (answer.status !== 200) wrongs.push(`an allowed request was answered ${answer.status} ${answer.body.slice(0, 120)}`);
    counts.allowed += 1;
  },
  async function isRefused() {
    const target = [`https://localhost:${canary.port}/`, `https://127.0.0.1:${canary.port}/`, `http://nowhere.invalid/`][
      counts.refused % 3
    ];
    const answer = await ask(door, target as string);
    if (answer.status !== 403) wrongs.push(`a refused request was answered ${answer.status}`);
    counts.refused += 1;
  },
  async function breaksOff() {
    const { socket } = await openTunnel(door, `localhost:${allowed.port}`);
    socket.write(Buffer.from([0x16, 0x03, 0x01]));
    socket.resetAndDestroy();
    counts.broken += 1;
  },
  async function breaksOffInside() {
    const secured = await openSecureTunnel(door, `localhost:${allowed.port}`);
    secured.write(`POST /half HTTP/1.1\r\nHost: localhost:${allowed.port}\r\nContent-Length: 100000\r\n\r\nsome of it`);
    secured.destroy();
    counts.broken += 1;
  },
  async function comesInPieces() {
    const socket = await connectTo(door.port);
    const request = `GET http://localhost:${canary.port}/ HTTP/1.1\r\nHost: localhost:${canary.port}\r\n\r\n`;
    socket.setNoDelay(true);
    // Each piece is on its way before the next is written, so that the door reads the request in many.
    for (const piece of request.match(/.{1,12}/gs) ?? []) {
      await new Promise<void>((written) => socket.write(piece, () => written()));
    }
    const answer = await readAnswer(socket);
    socket.destroy();
    if (answer.status !== 403) wrongs.push(`a refused request in pieces was answered ${answer.status}`);
    counts.pieces += 1;
  },
];

async function storm(clientsAtOnce: number, forMs: number): Promise<void> {
  const until = performance.now() + forMs;
  await Promise.all(
    Array.from({ length: clientsAtOnce }, async (_, index) => {
      for (let turn = index; performance.now() < until; turn += 1) {
        await (clients[turn % clients.length] as () => Promise<void>)();
      }
    }),
  );
}

describe.skipIf(!existsSync(COMMAND))('a storm of clients and rewrites', () => {
  it(
    'leaves the process as it was, with nothing refused let through',
    async () => {
      // A first gust brings caches, pools and the compiler to where they stay.
      await storm(40, 3000);
      const before = { descriptors: descriptors(), resident: residentMiB() };
      let step = 0;
      const rewriting = setInterval(() => rewrite((step += 1)), REWRITE_MS);
      await storm(CLIENTS, STORM_MS);
      clearInterval(rewriting);
      expect(child.exitCode).toBeNull();
      expect(wrongs).toEqual([]);
      expect(canary.connections).toBe(0);
      expect(said).not.toMatch(/internal error|unhandled|uncaught/i);
      expect(Math.min(counts.allowed, counts.refused, counts.broken, counts.pieces)).toBeGreaterThan(50);
      // Upstream connections that were kept alive and tunnels in their last moments go within the keep-alive time.
      await expect.poll(descriptors, { timeout: 45_000, interval: 250 }).toBeLessThanOrEqual(before.descriptors + 8);
      // The heap shrinks only while it is used, so a breeze goes on until memory is back.
      await expect
        .poll(() => storm(4, 400).then(residentMiB), { timeout: 60_000, interval: 50 })
        .toBeLessThanOrEqual(before.resident + 48);
    },
    STORM_MS + 130_000,
  );

  it('still serves, by the last good config', async () => {
    writeFileSync(config, configText(9999));
    await expect
      .poll(async () => JSON.parse((await ask(door, `https://localhost:${allowed.port}/after`)).body) as { fields: string[] }, {
        timeout: 10_000,
      })
      .toMatchObject({ fields: expect.arrayContaining(['9999']) as string[] });
  });
});
