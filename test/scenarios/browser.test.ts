// A browser in the sandbox: Debian's Chromium, with the house as its proxy and the house's CA among its own, as a person would set it up.
// No certificate error is ever waved through. Where Chromium or certutil is not installed, the tests say so and are skipped.
import { execFile, execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocketServer } from 'ws';
import type { WebSocket } from 'ws';
import { startHttp2Upstream } from '../support/http2-upstream.ts';
import type { Http2Upstream, SeenStream } from '../support/http2-upstream.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, valuesOf } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';

const run = promisify(execFile);
const PROGRAM = '/usr/bin/chromium';
const absent = missing(PROGRAM, 'chromium') ?? missing('certutil', 'libnss3-tools', '-H');

/** Why a program cannot be run. */
function missing(program: string, from: string, ask = '--version'): string | undefined {
  try {
    execFileSync(program, [ask], { stdio: 'ignore' });
    return undefined;
  } catch (error) {
    // certutil has no question that it answers with 0.
    return (error as NodeJS.ErrnoException).code === 'ENOENT'
      ? `${program} is not installed; apt-get install ${from}`
      : undefined;
  }
}

let outside: Outside;
let site: Http2Upstream;
let house: House;
let home: string;
let browser: Browser;
let sockets: WebSocketServer;

const PAGE = '<!doctype html><title>inside</title><link rel="icon" href="data:,"><p id="said">hello from outside</p>';

beforeAll(async () => {
  if (absent !== undefined) return;
  outside = await openOutside();
  sockets = new WebSocketServer({ noServer: true });
  sockets.on('connection', (client: WebSocket) =>
    client.on('message', (text: Buffer) => client.send(`echo of ${text.toString()}`)),
  );
  site = await startHttp2Upstream({
    tls: outside,
    alpn: ['h2', 'http/1.1'],
    settings: { enableConnectProtocol: false },
    answer: (stream, seen) => {
      if (seen.path === '/events') {
        stream.respond({ ':status': 200, 'content-type': 'text/event-stream' });
        stream.write('data: first\n\n');
        stream.write('event: last\ndata: second\n\n');
        return;
      }
      stream.respond({ ':status': 200, 'content-type': seen.path === '/' ? 'text/html' : 'text/plain' });
      stream.end(seen.path === '/' ? PAGE : seen.body);
    },
    onUpgrade: (request, socket) =>
      sockets.handleUpgrade(request, socket, Buffer.alloc(0), (client) => sockets.emit('connection', client, request)),
  });
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: {
        allowlist: [
          {
            domain: 'site.test',
            ports: [site.port],
            addresses: LOOPBACK,
            transform: { Authorization: 'Bearer put-on' },
            paths: ['/(?:events|socket|posted|[0-9]+)?'],
          },
        ],
      },
    },
    { names: { 'site.test': ['127.0.0.1'] } },
  );
  home = await mkdtemp(join(tmpdir(), 'browser-'));
  await trust();
  browser = await chromium.launch({
    executablePath: PROGRAM,
    args: ['--no-sandbox', '--disable-background-networking', '--disable-component-update', '--no-first-run'],
    env: { HOME: home, PATH: process.env.PATH ?? '' },
    // A browser goes round its proxy to loopback unless told not to.
    proxy: { server: `http://127.0.0.1:${house.port}`, bypass: '<-loopback>' },
  });
}, 120_000);

afterAll(async () => {
  if (absent !== undefined) return;
  await browser.close();
  sockets.close();
  await house.stop();
  await site.close();
  await outside.close();
  await rm(home, { recursive: true, force: true, maxRetries: 5 });
});

/** Puts the CA where Chromium looks on Linux. */
async function trust(): Promise<void> {
  const store = join(home, '.pki', 'nssdb');
  await mkdir(store, { recursive: true });
  await run('certutil', ['-N', '-d', `sql:${store}`, '--empty-password']);
  await run('certutil', ['-A', '-d', `sql:${store}`, '-n', 'sallyport', '-t', 'C,,', '-i', house.app.trust.certificate]);
}

const url = (path = '/'): string => `https://site.test:${site.port}${path}`;

async function visit(path?: string): Promise<Page> {
  const page = await browser.newPage();
  await page.goto(url(path));
  return page;
}

function lastSeen(path: string): SeenStream {
  return site.seen.findLast((seen) => seen.path === path)!;
}

describe.skipIf(absent !== undefined)(
  `Chromium${absent === undefined ? '' : ` (skipped: ${absent})`}`,
  { timeout: 60_000 },
  () => {
    it('shows a page, which came over HTTP/2 all the way', async () => {
      const page = await visit();
      expect(await page.textContent('#said')).toBe('hello from outside');
      const spoken = await page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol");
      expect(spoken).toBe('h2');
      expect(lastSeen('/').spoken).toBe('h2');
      expect(valuesOf(lastSeen('/').fields, 'authorization')).toEqual(['Bearer put-on']);
      const outcome = await house.outcome(({ arrival }) => arrival.target === '/' && arrival.purpose === 'exchange');
      expect(outcome).toMatchObject({ decision: 'allow', arrival: { protocol: 'h2', door: 'tunnel' }, trace: { status: 200 } });
      await page.close();
    });

    it('fetches and posts, many at once, over one session upstream', async () => {
      const page = await visit();
      const before = site.seen.length;
      const posted = await page.evaluate(
        `fetch('/posted', { method: 'POST', body: 'x'.repeat(1 << 20) }).then((answer) => answer.text())`,
      );
      expect(posted).toHaveLength(1 << 20);
      const statuses = await page.evaluate(
        `Promise.all(Array.from({ length: 60 }, (_, index) => fetch('/' + index).then((answer) => answer.status)))`,
      );
      expect(statuses).toEqual(Array.from({ length: 60 }, () => 200));
      const sessions = new Set(site.seen.slice(before).map(({ session }) => session));
      expect([site.seen.length - before, sessions.size]).toEqual([61, 1]);
      await page.close();
    });

    it('opens a WebSocket, and its messages come back', async () => {
      const page = await visit();
      const heard = await page.evaluate(`new Promise((resolve, reject) => {
      const socket = new WebSocket('wss://' + location.host + '/socket');
      socket.onopen = () => socket.send('hello');
      socket.onerror = () => reject(new Error('the WebSocket did not open'));
      socket.onmessage = ({ data }) => { resolve(data); socket.close(); };
    })`);
      expect(heard).toBe('echo of hello');
      const outcome = await house.outcome(({ arrival }) => arrival.protocol === 'websocket');
      expect(outcome).toMatchObject({ decision: 'allow', trace: { status: 101 } });
      expect(valuesOf(lastSeen('/socket').fields, 'authorization')).toEqual(['Bearer put-on']);
      await page.close();
    });

    it('hears the events of an EventSource as they come', async () => {
      const page = await visit();
      const heard = await page.evaluate(`new Promise((resolve) => {
      const heard = [];
      const source = new EventSource('/events');
      source.onmessage = ({ data }) => heard.push(data);
      source.addEventListener('last', ({ data }) => { heard.push(data); source.close(); resolve(heard); });
    })`);
      expect(heard).toEqual(['first', 'second']);
      await page.close();
    });

    it('shows the refusal of a path, with its code and the remedy', async () => {
      const page = await browser.newPage();
      const answer = await page.goto(url('/not/this/one'));
      expect(answer!.status()).toBe(403);
      expect(await answer!.headerValue('x-sallyport-reason')).toBe('path_denied');
      expect(JSON.parse((await page.textContent('body'))!)).toMatchObject({
        code: 'path_denied',
        hint: expect.any(String) as string,
      });
      await page.close();
    });

    it('cannot open a refused host, whose name is not even resolved', async () => {
      const after = house.outcomes.length;
      const page = await browser.newPage();
      await expect(page.goto('https://denied.test/')).rejects.toThrow('ERR_TUNNEL_CONNECTION_FAILED');
      const outcome = await house.outcome(({ arrival }) => arrival.target === 'denied.test:443', after);
      expect(outcome).toMatchObject({ decision: 'refuse', verdict: { code: 'not_allowlisted' } });
      expect(house.resolved).not.toContain('denied.test');
      await page.close();
    });

    it('is told in full of a refused host without TLS', async () => {
      const page = await browser.newPage();
      const answer = await page.goto('http://denied.test/');
      expect(answer!.status()).toBe(403);
      expect(await page.textContent('body')).toContain('not_allowlisted');
      await page.close();
    });

    it('would not come in without the CA among its own', async () => {
      const stranger = await mkdtemp(join(tmpdir(), 'stranger-'));
      const untrusting = await chromium.launch({
        executablePath: PROGRAM,
        args: ['--no-sandbox', '--disable-background-networking', '--disable-component-update', '--no-first-run'],
        env: { HOME: stranger, PATH: process.env.PATH ?? '' },
        proxy: { server: `http://127.0.0.1:${house.port}`, bypass: '<-loopback>' },
      });
      try {
        const page = await untrusting.newPage();
        await expect(page.goto(url())).rejects.toThrow('ERR_CERT_AUTHORITY_INVALID');
      } finally {
        await untrusting.close();
        await rm(stranger, { recursive: true, force: true, maxRetries: 5 });
      }
    });
  },
);
