// WebSockets through http-mitm-proxy with the adapter: judged, injected, recorded, and never the end of the process.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { LOOPBACK } from '../support/house.ts';
import { startMitmHouse } from '../support/mitm-house.ts';
import type { MitmHouse } from '../support/mitm-house.ts';
import { openOutside, startRaw, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { ask, connectTo, openSecureTunnel } from '../support/sandbox-client.ts';

let folder: string;
let outside: Outside;
let secure: Upstream;
let silent: Upstream;
let mitm: MitmHouse;
let release: (() => void) | undefined;
const handshakes: IncomingMessage[] = [];
const answered = { seen: (): void => undefined };

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'adapter-ws-'));
  outside = await openOutside();
  secure = await startUpstream({ tls: outside });
  silent = await startRaw((socket) => socket.once('data', () => socket.destroy()));
  const sockets = new WebSocketServer({ server: secure.server as never });
  sockets.on('connection', (socket, request) => {
    handshakes.push(request);
    socket.on('message', (bytes, isBinary) => socket.send(bytes, { binary: isBinary }));
  });
  const configPath = join(folder, 'sallyport.json');
  const allowlist = [
    {
      domain: 'api.test',
      ports: [secure.port],
      addresses: LOOPBACK,
      paths: ['/chat'],
      transform: { Authorization: 'Bearer operator' },
    },
    { domain: 'raw.test', ports: [secure.port], addresses: LOOPBACK },
    { domain: 'slow.test', ports: [silent.port], addresses: LOOPBACK },
    { domain: 'silent.test', ports: [silent.port], addresses: LOOPBACK },
  ];
  await writeFile(configPath, JSON.stringify({ upstream: { ca: [outside.caPath] }, network: { allowlist } }));
  const slow = (): Promise<readonly string[]> =>
    new Promise((resolve) => {
      release = () => resolve(['127.0.0.1']);
      answered.seen();
    });
  mitm = await startMitmHouse(configPath, {
    names: { 'api.test': ['127.0.0.1'], 'raw.test': ['127.0.0.1'], 'silent.test': ['127.0.0.1'], 'slow.test': slow },
  });
});

afterAll(async () => {
  await mitm.stop();
  await Promise.all([secure.close(), silent.close(), outside.close()]);
  await rm(folder, { recursive: true, force: true });
});

/** A WebSocket through a tunnel to the TLS upstream. */
async function openSocket(path: string, host = 'api.test', options: object = {}): Promise<WebSocket> {
  const socket = await openSecureTunnel(mitm, `${host}:${secure.port}`);
  return new WebSocket(`wss://${host}:${secure.port}${path}`, { ...options, createConnection: () => socket });
}

/** A WebSocket in absolute-form, as a client of a plain proxy sends it. */
async function openPlainSocket(host: string, port: number): Promise<WebSocket> {
  const socket = await connectTo(mitm.port);
  return new WebSocket(`ws://${host}:${port}/`, {
    createConnection: () => socket,
    finishRequest: (request) => {
      request.path = `http://${host}:${port}/`;
      request.end();
    },
  });
}

function closing(socket: WebSocket): Promise<{ readonly code: number; readonly reason: string }> {
  return new Promise((resolve) => socket.once('close', (code, reason) => resolve({ code, reason: reason.toString() })));
}

describe('a WebSocket', () => {
  it('carries frames both ways under the credential of its rule', async () => {
    const before = mitm.outcomes.length;
    const socket = await openSocket('/chat?room=1', 'api.test', { headers: { Authorization: 'Bearer mine', 'X-Kept': 'yes' } });
    const echoed = new Promise<string>((resolve) => socket.once('message', (bytes: Buffer) => resolve(bytes.toString())));
    socket.once('open', () => socket.send('hello'));
    expect(await echoed).toBe('hello');
    const got = handshakes.at(-1);
    expect(got?.url).toBe('/chat?room=1');
    expect(valuesOf(got?.rawHeaders ?? [], 'authorization')).toEqual(['Bearer operator']);
    expect(valuesOf(got?.rawHeaders ?? [], 'host')).toEqual([`api.test:${secure.port}`]);
    expect(valuesOf(got?.rawHeaders ?? [], 'x-kept')).toEqual(['yes']);
    socket.close();
    const { decision, trace, arrival } = await mitm.outcome((outcome) => outcome.arrival.purpose === 'upgrade', before);
    expect([decision, arrival.protocol, trace.status, trace.bytesSent, trace.bytesReceived]).toEqual([
      'allow',
      'websocket',
      101,
      5,
      5,
    ]);
  });

  it('reaches the upstream with the very target that was judged', async () => {
    const socket = await openSocket('/', 'raw.test', {
      finishRequest: (request: { path: string; end(): void }) => {
        request.path = '/a\\b/"c"?d={e}';
        request.end();
      },
    });
    await new Promise((resolve) => socket.once('open', resolve));
    socket.send('ping');
    await new Promise((resolve) => socket.once('message', resolve));
    expect(handshakes.at(-1)?.url).toBe('/a\\b/"c"?d={e}');
    socket.close();
    await closing(socket);
  });

  it('is closed with the reason where policy refuses it, and no byte goes upstream', async () => {
    const before = mitm.outcomes.length;
    const connections = secure.connections;
    const socket = await openSocket('/other');
    socket.once('open', () => socket.send('too early'));
    expect(await closing(socket)).toEqual({ code: 1008, reason: 'path_denied' });
    expect(secure.connections).toBe(connections);
    const { decision, verdict } = await mitm.outcome((outcome) => outcome.arrival.target === '/other', before);
    expect([decision, verdict?.code]).toEqual(['refuse', 'path_denied']);
  });

  it('is refused in absolute-form for a name that no rule has', async () => {
    const socket = await openPlainSocket('other.test', 80);
    expect(await closing(socket)).toEqual({ code: 1008, reason: 'not_allowlisted' });
    expect(mitm.resolved).not.toContain('other.test');
  });

  it('is closed as an error where the upstream does not take it up', async () => {
    const socket = await openPlainSocket('silent.test', silent.port);
    expect(await closing(socket)).toEqual({ code: 1011, reason: 'upstream_protocol' });
  });

  it('may leave while it is judged, and the engine lives on', async () => {
    const before = mitm.outcomes.length;
    const asked = new Promise<void>((resolve) => (answered.seen = resolve));
    const socket = await openPlainSocket('slow.test', silent.port);
    await new Promise((resolve) => socket.once('open', resolve));
    await asked;
    socket.terminate();
    await new Promise((resolve) => socket.once('close', resolve));
    release?.();
    const { verdict } = await mitm.outcome((outcome) => outcome.arrival.target.includes('slow'), before);
    expect(['client_closed', 'upstream_protocol']).toContain(verdict?.code);
    expect((await ask(mitm, `https://raw.test:${secure.port}/`)).status).toBe(200);
  });
});
