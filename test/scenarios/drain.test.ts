// The end of a process through real sockets: what is under way ends well, what comes now is told to come again, and whoever watches
// readiness hears of it before the door is shut.
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import type net from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { clientHello } from '../support/client-hellos.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startRaw, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { gate, inside, verdictIn } from '../support/probes.ts';
import type { Gate } from '../support/probes.ts';
import { openSecureTunnel, openTunnel } from '../support/sandbox-client.ts';

let outside: Outside;
let upstream: Upstream;
let arrived: Gate;
let release: Gate;
let house: House;
/** What the wall clock says */
let now: () => number;

beforeEach(async () => {
  arrived = gate();
  release = gate();
  now = Date.now;
  outside = await openOutside();
  upstream = await startUpstream({
    tls: outside,
    answer: (_seen, response) => {
      arrived.open();
      void release.opened.then(() => response.end('slow'));
    },
  });
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: { allowlist: [{ domain: 'api.test', ports: [upstream.port], addresses: LOOPBACK }] },
    },
    { names: { 'api.test': ['127.0.0.1'] }, now: () => now() },
  );
});

afterEach(async () => {
  release.open();
  await house.stop();
  await upstream.close();
  await outside.close();
});

async function readiness(): Promise<{ readonly status: number; readonly missing: unknown }> {
  const answer = await fetch(`http://127.0.0.1:${house.adminPort}/readyz`, { headers: { connection: 'close' } });
  const { missing } = (await answer.json()) as { readonly missing?: unknown };
  return { status: answer.status, missing };
}

describe('a stop', () => {
  it('lets what is under way end, turns away what comes now, and says so to whoever watches', async () => {
    const to = `api.test:${upstream.port}`;
    const busy = await openSecureTunnel(house, to);
    const late = await openSecureTunnel(house, to);
    const slow = inside(busy, to);
    await arrived.opened;
    expect(await readiness()).toEqual({ status: 200, missing: undefined });

    const stopped = house.app.stop();
    expect(await readiness()).toEqual({ status: 503, missing: ['proxy (shutting down)'] });
    const answer = await inside(late, to);
    expect(verdictIn(answer)).toBe('503 shutting_down');
    expect(answer.headers['connection']).toBe('close');
    late.destroy();

    release.open();
    expect(await slow).toMatchObject({ status: 200, body: 'slow' });
    await stopped;
    await expect(readiness()).rejects.toThrow();
    expect(house.outcomes.map(({ decision, verdict }) => [decision, verdict?.code])).toEqual([
      ['refuse', 'shutting_down'],
      ['allow', undefined],
    ]);
  });
});

describe('a stop at whose deadline connections are still open', () => {
  let raw: Upstream;
  let brief: House;

  beforeEach(async () => {
    raw = await startRaw((socket) => {
      socket.once('data', (chunk: Buffer) => {
        const upgrades = /upgrade: websocket/i.test(chunk.toString('latin1'));
        socket.write(
          upgrades
            ? 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'
            : 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome',
        );
      });
    });
    const rule = { ports: [raw.port], addresses: LOOPBACK };
    brief = await startHouse(
      {
        network: {
          allowlist: [
            { domain: 'api.test', ...rule },
            { domain: 'pass.test', ...rule, tls: 'passthrough' },
          ],
        },
        limits: { timeouts: { drain: '100ms' } },
      },
      { names: { 'api.test': ['127.0.0.1'], 'pass.test': ['127.0.0.1'] } },
    );
  });
  afterEach(async () => {
    await brief.stop();
    await raw.close();
  });

  const head = (fields: string): string => `GET / HTTP/1.1\r\nHost: api.test:${raw.port}\r\n${fields}\r\n`;

  const rows: { name: string; line: Record<string, unknown>; open: () => Promise<net.Socket> }[] = [
    {
      name: 'a WebSocket',
      line: { protocol: 'websocket', host: 'api.test', status: 101 },
      open: async () => {
        const { socket } = await openTunnel(brief, `api.test:${raw.port}`);
        socket.write(head('Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: a\r\n'));
        await once(socket.resume(), 'data');
        return socket;
      },
    },
    {
      name: 'a tunnel that is passed through',
      line: { protocol: 'passthrough', host: 'pass.test', status: 200 },
      open: async () => {
        const { socket } = await openTunnel(brief, `pass.test:${raw.port}`);
        socket.write(await clientHello('pass.test'));
        await once(socket.resume(), 'data');
        return socket;
      },
    },
    {
      name: 'a download',
      line: { protocol: 'http/1.1', door: 'tunnel', host: 'api.test', status: 200, reason: 'client_closed' },
      open: async () => {
        const { socket } = await openTunnel(brief, `api.test:${raw.port}`);
        socket.write(head(''));
        await once(socket.resume(), 'data');
        return socket;
      },
    },
    {
      name: 'a tunnel that nothing came through',
      line: { door: 'proxy', method: 'CONNECT', host: 'api.test', status: 200, reason: 'client_closed' },
      open: async () => (await openTunnel(brief, `api.test:${raw.port}`)).socket,
    },
  ];

  it('leaves one line of each of them', async () => {
    const sockets: net.Socket[] = [];
    for (const { open } of rows) sockets.push(await open());
    await brief.app.stop();
    const text = await readFile(join(brief.folder, 'audit.ndjson'), 'utf8');
    const lines = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    for (const { name, line } of rows) {
      const found = lines.filter((each) => Object.entries(line).every(([key, value]) => each[key] === value));
      expect([name, found.length]).toEqual([name, 1]);
    }
    expect(lines).toHaveLength(rows.length);
    expect(brief.logged.filter((line) => line.startsWith('error'))).toEqual([]);
    for (const socket of sockets) socket.destroy();
  });
});

describe('readiness', () => {
  it('ends with the CA, while the process is healthy', async () => {
    now = () => Date.UTC(2099, 0, 1);
    expect(await readiness()).toEqual({ status: 503, missing: [expect.stringMatching(/^ca \(expired 20\d\d-/) as string] });
    expect((await fetch(`http://127.0.0.1:${house.adminPort}/healthz`)).status).toBe(200);
  });
});
