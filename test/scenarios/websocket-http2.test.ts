// WebSockets where HTTP/2 is spoken on either side (RFC 8441), or on both: the same handshake to every rule, and the same frames, unread.
// The package ws stands at both ends; test/scenarios/websocket.test.ts has what HTTP/1.1 alone can show.
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import http2 from 'node:http2';
import https from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { acceptOf } from '../../src/exchange/websocket-key.ts';
import { startHttp2Upstream } from '../support/http2-upstream.ts';
import type { Http2Upstream, SeenStream } from '../support/http2-upstream.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, valuesOf } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';
import { gate } from '../support/probes.ts';
import type { Gate } from '../support/probes.ts';
import { connectTo, openSecureTunnel } from '../support/sandbox-client.ts';
import { acceptedCompression, offeredCompression, webSocketOver } from '../support/websocket-stream.ts';

const IDENTITY = `Basic ${Buffer.from('box:a-token-of-the-sandbox').toString('base64')}`;
const HELD = '__GEMINI_CRED_held__';

let outside: Outside;
let house: House;
/** Upstreams by what they speak */
let upstreams: Record<'http/1.1' | 'h2' | 'plain', Http2Upstream>;
/** The upstream's end of the WebSocket that opened last; the stream alone where its path is /raw */
let far: Gate<WebSocket>;
let farStream: Gate<Duplex>;

function converse(socket: WebSocket): void {
  far.open(socket);
  socket.on('error', () => undefined);
  socket.on('message', (message: Buffer, isBinary) => {
    if (message.toString() === 'close 4001') socket.close(4001, 'as you wish');
    else socket.send(message, { binary: isBinary });
  });
}

/** Answers an extended CONNECT. */
function acceptStream(stream: http2.ServerHttp2Stream, { path, fields }: SeenStream): void {
  if (path === '/declined') {
    stream.respond({ ':status': 401, 'www-authenticate': 'Bearer' });
    stream.end('no pass');
    return;
  }
  const accepted = acceptedCompression(valuesOf(fields, 'sec-websocket-extensions')[0]);
  const protocol = valuesOf(fields, 'sec-websocket-protocol')[0]?.split(',').at(-1)?.trim() ?? '';
  stream.respond({
    ':status': 200,
    ...(protocol === '' ? {} : { 'sec-websocket-protocol': protocol }),
    ...(accepted === undefined ? {} : { 'sec-websocket-extensions': accepted.answer }),
  });
  if (path === '/raw') farStream.open(stream);
  else converse(webSocketOver(stream, { end: 'server', protocol, compression: accepted?.compression }));
}

const servers = new WebSocketServer({
  noServer: true,
  perMessageDeflate: true,
  handleProtocols: (offered) => [...offered].at(-1) ?? false,
});

/** Answers an Upgrade. */
function acceptUpgrade(request: IncomingMessage, socket: Socket): void {
  if (request.url === '/declined')
    socket.end('HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 7\r\n\r\nno pass');
  else if (request.url === '/raw') {
    socket.allowHalfOpen = true;
    const proof = acceptOf(request.headers['sec-websocket-key'] ?? '');
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${proof}\r\n\r\n`,
    );
    farStream.open(socket);
  } else servers.handleUpgrade(request, socket, Buffer.alloc(0), converse);
}

beforeAll(async () => {
  outside = await openOutside();
  const onUpgrade = acceptUpgrade;
  upstreams = {
    'http/1.1': await startHttp2Upstream({ tls: outside, alpn: ['http/1.1'], onUpgrade }),
    h2: await startHttp2Upstream({ tls: outside, raw: acceptStream }),
    plain: await startHttp2Upstream({ otherwise: 'http/1.1', onUpgrade }),
  };
  const put = {
    addresses: LOOPBACK,
    transform: { Authorization: 'Bearer put-on' },
    paths: ['/[a-z0-9]+'],
    allow_plaintext: true,
  };
  const hosts = ['api.test', 'far.test', 'plain.test'];
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      credentials: {
        held: {
          type: 'environment_variable',
          value: 'the-value-itself',
          injection_location: ['header', 'query'],
          trusted_domains: ['api.test', 'plain.test'],
        },
      },
      network: {
        allowlist: hosts.map((domain) => ({ domain, ports: Object.values(upstreams).map(({ port }) => port), ...put })),
      },
      sandboxes: { box: { token: 'a-token-of-the-sandbox', env: { HELD: { credential: 'held' } } } },
    },
    { names: Object.fromEntries([...hosts, 'denied.test'].map((host) => [host, ['127.0.0.1']])) },
  );
});

beforeEach(() => {
  far = gate<WebSocket>();
  farStream = gate<Duplex>();
});

afterAll(async () => {
  servers.close();
  await house.stop();
  await Promise.all(Object.values(upstreams).map((upstream) => upstream.close()));
  await outside.close();
});

type Headers = Readonly<Record<string, string>>;

/** Where a handshake goes. */
interface Target {
  readonly authority: string;
  readonly path: string;
  readonly headers?: Headers;
  readonly protocols?: readonly string[];
}

const TUNNEL = `Proxy-Authorization: ${IDENTITY}\r\n`;

async function sessionTo(authority: string, way: 'tunnel' | 'http' | 'https'): Promise<http2.ClientHttp2Session> {
  const stream =
    way === 'tunnel'
      ? await openSecureTunnel(house, authority, { fields: TUNNEL, tls: { ALPNProtocols: ['h2'] } })
      : await connectTo(house.port);
  const session = http2.connect(`${way === 'http' ? 'http' : 'https'}://${authority}`, { createConnection: () => stream });
  session.on('error', () => undefined);
  // It must not ask before it has been told that it may (RFC 8441 section 3).
  await once(session, 'remoteSettings');
  return session;
}

/** An extended CONNECT, not answered yet. */
function begin(session: http2.ClientHttp2Session, { authority, path, headers = {} }: Target): http2.ClientHttp2Stream {
  const stream = session.request(
    {
      ':method': 'CONNECT',
      ':protocol': 'websocket',
      ':authority': authority,
      ':path': path,
      'sec-websocket-version': '13',
      'proxy-authorization': IDENTITY,
      ...headers,
    },
    { endStream: false },
  );
  stream.on('error', () => undefined);
  return stream;
}

interface Head {
  readonly [name: string]: string | number | undefined;
}

/** The head of the answer. */
async function headOf(stream: http2.ClientHttp2Stream): Promise<Head> {
  return ((await once(stream, 'response')) as [Head])[0];
}

async function openByStream(target: Target, way: 'tunnel' | 'http' | 'https'): Promise<WebSocket> {
  const session = await sessionTo(target.authority, way);
  const { offer, agree } = offeredCompression();
  const headers = {
    ...target.headers,
    'sec-websocket-extensions': offer,
    ...(target.protocols === undefined ? {} : { 'sec-websocket-protocol': target.protocols.join(',') }),
  };
  const stream = begin(session, { ...target, headers });
  const head = await headOf(stream);
  expect(head[':status']).toBe(200);
  expect(head['sec-websocket-accept']).toBeUndefined();
  stream.once('close', () => session.close());
  const compression = agree(head['sec-websocket-extensions'] as string | undefined);
  return webSocketOver(stream, { end: 'client', protocol: String(head['sec-websocket-protocol'] ?? ''), compression });
}

async function openByUpgrade({ authority, path, headers = {}, protocols = [] }: Target): Promise<WebSocket> {
  const stream = await openSecureTunnel(house, authority, { fields: TUNNEL });
  const agent = new https.Agent();
  agent.createConnection = () => stream;
  const client = new WebSocket(`wss://${authority}${path}`, [...protocols], { agent, headers });
  await once(client, 'open');
  return client;
}

interface Way {
  readonly name: string;
  readonly upstream: keyof typeof upstreams;
  readonly host: string;
  readonly open: (target: Target) => Promise<WebSocket>;
}

const inTunnel = (target: Target): Promise<WebSocket> => openByStream(target, 'tunnel');

const WAYS: readonly Way[] = [
  { name: 'from HTTP/2 in a tunnel to HTTP/2', upstream: 'h2', host: 'api.test', open: inTunnel },
  { name: 'from HTTP/2 in a tunnel to HTTP/1.1', upstream: 'http/1.1', host: 'api.test', open: inTunnel },
  { name: 'from HTTP/1.1 in a tunnel to HTTP/1.1', upstream: 'http/1.1', host: 'api.test', open: openByUpgrade },
  { name: 'from HTTP/1.1 in a tunnel to HTTP/2', upstream: 'h2', host: 'api.test', open: openByUpgrade },
  {
    name: 'from the listener, https, to HTTP/2',
    upstream: 'h2',
    host: 'api.test',
    open: (target) => openByStream(target, 'https'),
  },
  {
    name: 'from the listener, http, to HTTP/1.1',
    upstream: 'plain',
    host: 'plain.test',
    open: (target) => openByStream(target, 'http'),
  },
];

describe.each(WAYS)('$name', ({ upstream, host, open }) => {
  const to = (path: string, more: Omit<Target, 'authority' | 'path'> = {}): Target => ({
    authority: `${host}:${upstreams[upstream].port}`,
    path,
    ...more,
  });
  const arrived = (path: string): SeenStream => upstreams[upstream].seen.findLast((seen) => seen.path === path)!;

  it('carries the handshake with what the rule puts on, its subprotocol and its extensions', async () => {
    const after = house.outcomes.length;
    const client = await open(
      to('/chat', { protocols: ['graphql-ws', 'chat.v2'], headers: { authorization: 'Bearer mine', 'x-own': '1' } }),
    );
    expect([client.protocol, client.extensions]).toEqual(['chat.v2', 'permessage-deflate']);
    const { fields, protocol, spoken } = arrived('/chat');
    expect(valuesOf(fields, 'authorization')).toEqual(['Bearer put-on']);
    expect(valuesOf(fields, 'x-own')).toEqual(['1']);
    expect(valuesOf(fields, 'sec-websocket-version')).toEqual(['13']);
    expect(valuesOf(fields, 'sec-websocket-extensions')).toEqual(['permessage-deflate; client_max_window_bits']);
    expect(valuesOf(fields, 'proxy-authorization')).toEqual([]);
    expect(protocol).toBe(spoken === 'h2' ? 'websocket' : undefined);
    expect(valuesOf(fields, 'sec-websocket-key')).toHaveLength(spoken === 'h2' ? 0 : 1);
    client.close(1000);
    await once(client, 'close');
    const outcome = await house.outcome(({ arrival }) => arrival.target === '/chat', after);
    expect(outcome).toMatchObject({ decision: 'allow', verdict: undefined, trace: { status: 101 }, arrival: { method: 'GET' } });
    expect(outcome.arrival.protocol).toBe('websocket');
  });

  it('carries messages small, large, compressed, fragmented and many, in their order', async () => {
    const after = house.outcomes.length;
    const client = await open(to('/frames'));
    const large = randomBytes(1 << 20);
    for (const message of [Buffer.from('small'), Buffer.alloc(1 << 20, 'x'), large]) {
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
    const heard: string[] = [];
    const all = new Promise<void>((resolve) => {
      client.on('message', (message: Buffer) => {
        if (heard.push(message.toString()) === 2000) resolve();
      });
    });
    for (let number = 0; number < 2000; number += 1) client.send(String(number));
    await all;
    expect(heard).toEqual(Array.from({ length: 2000 }, (_, number) => String(number)));
    client.close(1000, 'done');
    expect(await closing(client)).toEqual([1000, 'done']);
    const { trace } = await house.outcome(({ arrival }) => arrival.target === '/frames', after);
    // What is alike was compressed at one end and not before the other: nearly all that went over was the random message.
    for (const bytes of [trace.bytesSent, trace.bytesReceived]) {
      expect(bytes).toBeGreaterThan(1 << 20);
      expect(bytes).toBeLessThan(1.2 * (1 << 20));
    }
  });

  it('carries pings and pongs both ways', async () => {
    const client = await open(to('/pings'));
    const upstreamEnd = await far.opened;
    for (const [asking, name] of [
      [client, 'from inside'],
      [upstreamEnd, 'from outside'],
    ] as const) {
      asking.ping(name);
      expect(String((await once(asking, 'pong'))[0])).toBe(name);
    }
    client.terminate();
  });

  it('carries the close codes of either end', async () => {
    const left = await open(to('/close'));
    const upstreamEnd = await far.opened;
    const heard = closing(upstreamEnd);
    left.close(4000, 'leaving');
    expect(await heard).toEqual([4000, 'leaving']);
    const told = await open(to('/close'));
    told.send('close 4001');
    expect(await closing(told)).toEqual([4001, 'as you wish']);
  });

  it('ends the other end too where one breaks off', async () => {
    const client = await open(to('/broken'));
    const heard = closing(await far.opened);
    client.terminate();
    expect((await heard)[0]).toBe(1006);
    far = gate<WebSocket>();
    const other = await open(to('/broken'));
    const ended = closing(other);
    (await far.opened).terminate();
    expect((await ended)[0]).toBe(1006);
  });

  it('swaps placeholders in the handshake, in its fields and in its query', async () => {
    const client = await open(to(`/held?key=${HELD}`, { headers: { 'x-key': HELD } }));
    client.terminate();
    const seen = arrived('/held?key=the-value-itself');
    expect(valuesOf(seen.fields, 'x-key')).toEqual(['the-value-itself']);
  });
});

/** Code and reason of a close. */
async function closing(socket: WebSocket): Promise<readonly [number, string]> {
  const [code, reason] = (await once(socket, 'close')) as [number, Buffer];
  return [code, reason.toString()];
}

/** All that comes, to the end of that side. */
async function textOf(stream: Duplex): Promise<string> {
  let text = '';
  stream.on('data', (chunk: Buffer) => (text += chunk.toString()));
  await once(stream, 'end');
  return text;
}

describe.each([
  { name: 'to HTTP/2', upstream: 'h2' as const },
  { name: 'to HTTP/1.1', upstream: 'http/1.1' as const },
])('over one session of HTTP/2, $name', ({ upstream }) => {
  const authority = (): string => `api.test:${upstreams[upstream].port}`;

  it('many go on beside requests, and each ends by itself', { timeout: 60_000 }, async () => {
    const session = await sessionTo(authority(), 'tunnel');
    const streams = Array.from({ length: 30 }, () => begin(session, { authority: authority(), path: '/many' }));
    const echoes = streams.map(async (stream, index) => {
      expect((await headOf(stream))[':status']).toBe(200);
      const client = webSocketOver(stream, { end: 'client', protocol: '', compression: undefined });
      const heard: string[] = [];
      client.on('message', (message: Buffer) => {
        if (heard.push(message.toString()) === 100) client.close(1000);
      });
      for (let number = 0; number < 100; number += 1) client.send(`${index}:${number}`);
      await once(client, 'close');
      expect(heard).toEqual(Array.from({ length: 100 }, (_, number) => `${index}:${number}`));
    });
    await Promise.all(echoes);
    expect(session.destroyed).toBe(false);
    session.destroy();
  });

  it.each(['the sandbox', 'the upstream'])('%s may end its side before the other has said all', async (who) => {
    const session = await sessionTo(authority(), 'tunnel');
    const sandbox = begin(session, { authority: authority(), path: '/raw' });
    expect((await headOf(sandbox))[':status']).toBe(200);
    const [first, last] = who === 'the sandbox' ? [sandbox, await farStream.opened] : [await farStream.opened, sandbox];
    const atLast = textOf(last);
    const atFirst = textOf(first);
    first.end('last words');
    expect(await atLast).toBe('last words');
    last.write('one ');
    last.end('two');
    expect(await atFirst).toBe('one two');
    session.destroy();
  });

  it("is declined with the upstream's own answer, and the session goes on", async () => {
    const session = await sessionTo(authority(), 'tunnel');
    for (let round = 0; round < 2; round += 1) {
      const stream = begin(session, { authority: authority(), path: '/declined' });
      const head = await headOf(stream);
      expect([head[':status'], head['www-authenticate'], head['x-sallyport-reason']]).toEqual([401, 'Bearer', undefined]);
      expect(await textOf(stream)).toBe('no pass');
    }
    session.destroy();
  });

  it.each([
    { name: 'a path that is not allowed', path: '/not/this', status: 403, reason: 'path_denied' },
    {
      name: 'a placeholder where it is not trusted',
      host: 'far.test',
      headers: { 'x-key': HELD },
      status: 403,
      reason: 'placeholder_untrusted',
    },
    { name: 'another :protocol', headers: { ':protocol': 'connect-udp' }, status: 400, reason: 'bad_request' },
    { name: 'an :authority outside the tunnel', headers: { ':authority': 'plain.test' }, status: 421, reason: 'host_mismatch' },
  ])(
    'is refused before anything goes out: $name',
    async ({ host = 'api.test', path = '/refused', headers = {}, status, reason }) => {
      const own = `${host}:${upstreams[upstream].port}`;
      const session = await sessionTo(own, 'tunnel');
      const after = house.outcomes.length;
      const before = upstreams[upstream].seen.length;
      const stream = begin(session, { authority: own, path, headers });
      const head = await headOf(stream);
      expect([head[':status'], head['x-sallyport-reason']]).toEqual([status, reason]);
      let body = '';
      for await (const chunk of stream) body += String(chunk);
      expect(JSON.parse(body)).toMatchObject({ code: reason });
      expect(upstreams[upstream].seen).toHaveLength(before);
      await house.outcome(({ verdict }) => verdict?.code === reason, after);
      session.destroy();
    },
  );
});

it('to a denied host at the listener is 403, and nothing is resolved for it', async () => {
  const session = await sessionTo('plain.test', 'https');
  const stream = begin(session, { authority: 'denied.test', path: '/socket' });
  const head = await headOf(stream);
  expect([head[':status'], head['x-sallyport-reason']]).toEqual([403, 'not_allowlisted']);
  expect(house.resolved).not.toContain('denied.test');
  session.destroy();
});

it('without the token of its sandbox at the listener is 407', async () => {
  const session = await sessionTo('plain.test', 'https');
  const stream = begin(session, {
    authority: 'api.test',
    path: '/socket',
    headers: { 'proxy-authorization': 'Basic bm9ib2R5Og==' },
  });
  const head = await headOf(stream);
  expect([head[':status'], head['x-sallyport-reason']]).toEqual([407, 'sandbox_unauthenticated']);
  session.destroy();
});
