// WebSockets through real sockets: the handshake takes the road of every other request, and then the frames flow unread, both ways,
// until one side ends; the other end of the wire is the package ws, as client and as server.
import https from 'node:https';
import http from 'node:http';
import { once } from 'node:events';
import { randomBytes } from 'node:crypto';
import type net from 'node:net';
import type { Duplex } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { countOf, openOutside, startRaw, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { connectTo, openSecureTunnel, readAnswer } from '../support/sandbox-client.ts';

let outside: Outside;
let plain: Upstream;
let secure: Upstream;
let raw: Upstream;
let house: House;
/** What the raw upstream does with a connection */
let onRaw: (socket: net.Socket) => void = () => undefined;
/** Handshakes as the upstreams got them */
const handshakes: http.IncomingMessage[] = [];
let servers: WebSocketServer;

function upgrade(request: http.IncomingMessage, socket: Duplex, head: Buffer): unknown {
  handshakes.push(request);
  socket.on('error', () => undefined);
  const decline = (text: string) => socket.end(text);
  switch (request.url) {
    case '/401':
      return decline('HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 7\r\n\r\nno pass');
    case '/302':
      return decline('HTTP/1.1 302 Found\r\nLocation: https://elsewhere.test/\r\nContent-Length: 0\r\n\r\n');
    case '/200':
      return decline('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nplain\r\n0\r\n\r\n');
    case '/426':
      return decline('HTTP/1.1 426 Upgrade Required\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n');
    case '/closes':
      return socket.destroy();
    default: {
      servers.handleUpgrade(request, socket, head, (client) => servers.emit('connection', client, request));
      return;
    }
  }
}

beforeAll(async () => {
  outside = await openOutside();
  plain = await startUpstream();
  secure = await startUpstream({ tls: outside });
  raw = await startRaw((socket) => onRaw(socket));
  servers = new WebSocketServer({ noServer: true, handleProtocols: (offered) => [...offered].at(-1) ?? false });
  servers.on('connection', (client: WebSocket) => {
    client.on('message', (message: Buffer, isBinary) => {
      if (message.toString() === 'close 4001') client.close(4001, 'as you wish');
      else client.send(message, { binary: isBinary });
    });
    client.on('error', () => undefined);
  });
  plain.server.on('upgrade', upgrade);
  secure.server.on('upgrade', upgrade);
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      limits: { timeouts: { tunnel_idle: '600ms' } },
      network: {
        allowlist: [
          { domain: 'api.test', ports: [secure.port], addresses: LOOPBACK, transform: { Authorization: 'Bearer put-on' } },
          { domain: 'plain.test', ports: [plain.port, raw.port], addresses: LOOPBACK },
        ],
      },
    },
    { names: { 'api.test': ['127.0.0.1'], 'plain.test': ['127.0.0.1'], 'denied.test': ['127.0.0.1'] } },
  );
});

afterAll(async () => {
  servers.close();
  await house.stop();
  await plain.close();
  await secure.close();
  await raw.close();
  await outside.close();
});

interface Way {
  readonly name: string;
  readonly connect: (path: string, protocols?: string[], headers?: Record<string, string>) => Promise<WebSocket>;
}

/** An agent whose requests all go out on this one stream. */
function agentOver(stream: Duplex, secured: boolean): http.Agent {
  const agent = secured ? new https.Agent() : new http.Agent();
  agent.createConnection = () => stream;
  return agent;
}

const ways: Way[] = [
  {
    name: 'wss through a tunnel',
    connect: async (path, protocols = [], headers = {}) => {
      const stream = await openSecureTunnel(house, `api.test:${secure.port}`);
      return new WebSocket(`wss://api.test:${secure.port}${path}`, protocols, { agent: agentOver(stream, true), headers });
    },
  },
  {
    name: 'ws in absolute-form',
    connect: async (path, protocols = [], headers = {}) => {
      const stream = await connectTo(house.port);
      const agent = agentOver(stream, false);
      const client = new WebSocket(`ws://plain.test:${plain.port}${path}`, protocols, {
        agent,
        headers,
        finishRequest: (request: http.ClientRequest) => {
          request.path = `http://plain.test:${plain.port}${path}`;
          request.end();
        },
      });
      return client;
    },
  },
];

async function opened(client: WebSocket): Promise<WebSocket> {
  await once(client, 'open');
  return client;
}

/** The answer to a handshake that was declined. */
function declined(client: WebSocket): Promise<{ readonly response: http.IncomingMessage; readonly body: string }> {
  client.on('error', () => undefined);
  return new Promise((resolve) => {
    client.once('unexpected-response', (_request, response) => {
      let body = '';
      response.on('data', (chunk: Buffer) => (body += chunk.toString()));
      response.on('end', () => resolve({ response, body }));
    });
  });
}

describe.each(ways)('$name', ({ name, connect }) => {
  // fault I04
  it('carries a handshake with what the rule puts on, and its subprotocol and extensions untouched', async () => {
    const client = await opened(
      await connect('/chat', ['graphql-ws', 'chat.v2'], { Authorization: 'Bearer mine', 'X-Own': '1' }),
    );
    expect(client.protocol).toBe('chat.v2');
    const { rawHeaders } = handshakes.at(-1)!;
    expect(valuesOf(rawHeaders, 'sec-websocket-protocol')).toEqual(['graphql-ws,chat.v2']);
    expect(valuesOf(rawHeaders, 'sec-websocket-extensions')).toEqual(['permessage-deflate; client_max_window_bits']);
    expect(valuesOf(rawHeaders, 'x-own')).toEqual(['1']);
    expect(valuesOf(rawHeaders, 'authorization')).toEqual([name.startsWith('wss') ? 'Bearer put-on' : 'Bearer mine']);
    expect(countOf(rawHeaders, 'upgrade')).toBe(1);
    expect(countOf(rawHeaders, 'connection')).toBe(1);
    client.terminate();
  });

  it('relays pings, small, large and fragmented messages, and leaves one line with their bytes', async () => {
    const after = house.outcomes.length;
    const client = await opened(await connect('/frames'));
    client.ping('are you there');
    expect(String((await once(client, 'pong'))[0])).toBe('are you there');
    const large = randomBytes(1024 * 1024);
    for (const message of [Buffer.from('small'), large]) {
      client.send(message);
      expect(((await once(client, 'message'))[0] as Buffer).equals(message)).toBe(true);
    }
    for (const [piece, fin] of [
      ['one ', false],
      ['two ', false],
      ['three', true],
    ] as const)
      client.send(piece, { fin });
    expect(String((await once(client, 'message'))[0])).toBe('one two three');
    client.close(1000, 'done');
    const [code, reason] = (await once(client, 'close')) as [number, Buffer];
    expect([code, reason.toString()]).toEqual([1000, 'done']);
    const outcome = await house.outcome(({ arrival }) => arrival.target.endsWith('/frames'), after);
    expect(outcome).toMatchObject({ decision: 'allow', verdict: undefined, trace: { status: 101 } });
    expect(outcome.trace.bytesSent).toBeGreaterThan(large.length);
    expect(outcome.trace.bytesReceived).toBeGreaterThan(large.length);
    expect(house.outcomes.slice(after).filter(({ arrival }) => arrival.target.endsWith('/frames'))).toHaveLength(1);
  });

  it("relays the upstream's close code", async () => {
    const client = await opened(await connect('/echo'));
    client.send('close 4001');
    const [code, reason] = (await once(client, 'close')) as [number, Buffer];
    expect([code, reason.toString()]).toEqual([4001, 'as you wish']);
  });

  it('is cut after the idle limit, and not before', async () => {
    const after = house.outcomes.length;
    const client = await opened(await connect('/idle'));
    // More messages than fit into the limit one after another: each of them puts it off.
    const until = performance.now() + 800;
    while (performance.now() < until) {
      client.send('still here');
      await once(client, 'message');
      await new Promise((resolve) => setImmediate(resolve));
    }
    const [code] = (await once(client, 'close')) as [number];
    expect(code).toBe(1006);
    const outcome = await house.outcome(({ arrival }) => arrival.target.endsWith('/idle'), after);
    expect(outcome.verdict?.code).toBe('upstream_timeout');
    expect(outcome.durationMs).toBeGreaterThan(1200);
  });

  // fault I05
  it.each([
    { path: '/401', status: 401, body: 'no pass', field: ['www-authenticate', 'Bearer'] },
    { path: '/302', status: 302, body: '', field: ['location', 'https://elsewhere.test/'] },
    { path: '/200', status: 200, body: 'plain', field: ['connection', 'close'] },
    { path: '/426', status: 426, body: '', field: ['connection', 'close'] },
  ])('relays the $status of an upstream that declines, with its body, and ends', async ({ path, status, body, field }) => {
    const after = house.outcomes.length;
    const got = await declined(await connect(path));
    expect(got.response.statusCode).toBe(status);
    expect(got.body).toBe(body);
    expect(got.response.headers[field[0]!]).toBe(field[1]);
    if (!got.response.socket.destroyed) await once(got.response.socket, 'close');
    const outcome = await house.outcome(({ arrival }) => arrival.target.endsWith(path), after);
    expect(outcome).toMatchObject({ decision: 'allow', trace: { status } });
  });

  // fault I05
  it('is 502 when the upstream closes instead of answering', async () => {
    const { response } = await declined(await connect('/closes'));
    expect(response.statusCode).toBe(502);
    expect(response.headers['x-sallyport-reason']).toBe('upstream_protocol');
  });
});

const HANDSHAKE =
  'Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';

// fault I04
describe('a handshake', () => {
  it('to a denied host is 403 before anything is resolved or dialled', async () => {
    const before = plain.connections;
    const stream = await connectTo(house.port);
    stream.write(`GET http://denied.test:${plain.port}/ HTTP/1.1\r\nHost: denied.test:${plain.port}\r\n${HANDSHAKE}\r\n`);
    const answer = await readAnswer(stream);
    expect(answer.status).toBe(403);
    expect(answer.headers['x-sallyport-reason']).toBe('not_allowlisted');
    await once(stream.resume(), 'end');
    expect(house.resolved).not.toContain('denied.test');
    expect(plain.connections).toBe(before);
  });

  it.each([
    { name: 'a ws:// target', line: () => `GET ws://plain.test:${plain.port}/ HTTP/1.1\r\nHost: plain.test:${plain.port}` },
    { name: 'no Host', line: () => `GET http://plain.test:${plain.port}/ HTTP/1.1` },
    {
      name: 'another method than GET',
      line: () => `POST http://plain.test:${plain.port}/ HTTP/1.1\r\nHost: plain.test:${plain.port}`,
    },
    {
      name: 'a body',
      line: () => `GET http://plain.test:${plain.port}/ HTTP/1.1\r\nHost: plain.test:${plain.port}\r\nContent-Length: 5`,
    },
  ])('with $name is 400', async ({ line }) => {
    const stream = await connectTo(house.port);
    stream.write(`${line()}\r\n${HANDSHAKE}\r\n`);
    const answer = await readAnswer(stream);
    stream.destroy();
    expect(answer.status).toBe(400);
  });

  it('may be followed by its first frame in the same segment', async () => {
    const stream = await connectTo(house.port);
    const frame = Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]);
    const start = `GET http://plain.test:${plain.port}/echo HTTP/1.1\r\nHost: plain.test:${plain.port}\r\n${HANDSHAKE}\r\n`;
    stream.write(Buffer.concat([Buffer.from(start), frame]));
    expect((await readAnswer(stream)).status).toBe(101);
    const [echoed] = (await once(stream.resume(), 'data')) as [Buffer];
    expect(echoed).toEqual(Buffer.from([0x81, 0x02, 0x68, 0x69]));
    stream.destroy();
  });
});

const SWITCH = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';

// fault J07
describe('an upgraded connection', () => {
  /** Both ends of one. */
  async function bothEnds(path = '/'): Promise<{ readonly sandbox: net.Socket; readonly upstream: net.Socket }> {
    const arrived = new Promise<net.Socket>((resolve) => {
      onRaw = (socket) => {
        socket.once('data', () => {
          socket.write(SWITCH);
          resolve(socket);
        });
      };
    });
    const sandbox = await connectTo(house.port);
    sandbox.write(`GET http://plain.test:${raw.port}${path} HTTP/1.1\r\nHost: plain.test:${raw.port}\r\n${HANDSHAKE}\r\n`);
    expect((await readAnswer(sandbox)).status).toBe(101);
    return { sandbox, upstream: await arrived };
  }

  function all(stream: Duplex): Promise<string> {
    let text = '';
    stream.on('data', (chunk: Buffer) => (text += chunk.toString()));
    stream.resume();
    return once(stream, 'end').then(() => text);
  }

  it('still brings what the upstream has to say after the sandbox has ended its side', async () => {
    const { sandbox, upstream } = await bothEnds();
    const heardUpstream = all(upstream);
    const heardSandbox = all(sandbox);
    sandbox.end('last words');
    expect(await heardUpstream).toBe('last words');
    upstream.write('one ');
    upstream.end('two');
    expect(await heardSandbox).toBe('one two');
  });

  it('still brings what the sandbox has to say after the upstream has ended its side', async () => {
    const { sandbox, upstream } = await bothEnds();
    const heardUpstream = all(upstream);
    const heardSandbox = all(sandbox);
    upstream.end('bye');
    expect(await heardSandbox).toBe('bye');
    sandbox.end('and bye');
    expect(await heardUpstream).toBe('and bye');
  });

  it('is cut when one side has ended and the other falls silent', async () => {
    const { sandbox, upstream } = await bothEnds('/silent');
    sandbox.resume();
    upstream.resume();
    sandbox.end();
    await Promise.all([once(sandbox, 'close'), once(upstream, 'end')]);
    const outcome = await house.outcome(({ arrival }) => arrival.target.endsWith('/silent'));
    expect(outcome.verdict?.code).toBe('upstream_timeout');
  });
});

describe('an upgrade to h2c', () => {
  const fields = 'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n';

  it('is not taken up: the request is answered as HTTP/1.1 and none of it goes upstream', async () => {
    const stream = await connectTo(house.port);
    stream.write(`GET http://plain.test:${plain.port}/x HTTP/1.1\r\nHost: plain.test:${plain.port}\r\n${fields}\r\n`);
    const answer = await readAnswer(stream);
    stream.destroy();
    expect(answer.status).toBe(200);
    const { fields: seen } = plain.seen.at(-1)!;
    expect([countOf(seen, 'upgrade'), countOf(seen, 'http2-settings')]).toEqual([0, 0]);
  });

  it('is refused with a body, which nobody could tell from the new protocol', async () => {
    const before = plain.seen.length;
    const stream = await connectTo(house.port);
    const start = `POST http://plain.test:${plain.port}/x HTTP/1.1\r\nHost: plain.test:${plain.port}\r\n${fields}`;
    stream.write(`${start}Content-Length: 5\r\n\r\n12345`);
    const answer = await readAnswer(stream);
    stream.destroy();
    expect(answer.status).toBe(400);
    expect(plain.seen).toHaveLength(before);
  });
});
