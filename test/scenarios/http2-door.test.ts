// HTTP/2 at the door of a whole house, before upstreams of HTTP/1.1: each stream takes the road of every other request, alone.
import { once } from 'node:events';
import type http from 'node:http';
import type { ClientHttp2Session } from 'node:http2';
import { Readable } from 'node:stream';
import type { Duplex } from 'node:stream';
import tls from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { WebSocketServer } from 'ws';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { answerOf, exchange, openPlainSession, openProxySession, openSession, speakHttp2 } from '../support/http2-client.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { openScript } from '../support/scripted-upstream.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
let house: House;
const script = openScript();
const sessions: ClientHttp2Session[] = [];

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside, raw: script.answer });
  plain = await startUpstream({ raw: script.answer });
  house = await startHouse(config(), { names: NAMES, env: { GH: 'marker-secret' } });
});

afterEach(() => {
  for (const session of sessions.splice(0)) session.destroy();
});

afterAll(async () => {
  await house.stop();
  await secure.close();
  await plain.close();
  await outside.close();
});

const NAMES = { 'api.test': ['127.0.0.1'], 'other.test': ['127.0.0.1'], 'plain.test': ['127.0.0.1'] };

function config(): object {
  const rule = { addresses: LOOPBACK };
  return {
    upstream: { ca: [outside.caPath] },
    credentials: { gh: { type: 'bearer_token', token: { env: 'GH' } } },
    network: {
      allowlist: [
        { ...rule, domain: 'api.test', ports: [secure.port], credential: 'gh', methods: ['GET', 'HEAD', 'POST'] },
        { ...rule, domain: 'other.test', ports: [secure.port] },
        { ...rule, domain: 'plain.test', ports: [plain.port] },
      ],
    },
  };
}

/** A session with TLS in a tunnel to the upstream. */
async function inTunnel(of: House = house, host = 'api.test'): Promise<ClientHttp2Session> {
  return keep(await openSession({ port: of.port, ca: of.ca }, `${host}:${secure.port}`));
}

function keep(session: ClientHttp2Session): ClientHttp2Session {
  sessions.push(session);
  return session;
}

/** Fields of a request as an upstream gets them. */
interface Got {
  readonly request: http.IncomingMessage;
  readonly response: http.ServerResponse;
}

describe('a stream', () => {
  it('goes out with its credential, and leaves one line', async () => {
    const session = await inTunnel();
    const arrived = script.nextAt('/a');
    const after = house.outcomes.length;
    const stream = session.request({ ':path': '/a?b=1', authorization: 'mine', 'x-two': ['1', '2'] });
    const answer = answerOf(stream);
    const { request, response }: Got = await arrived;
    expect([request.method, request.url]).toEqual(['GET', '/a?b=1']);
    expect(valuesOf(request.rawHeaders, 'host')).toEqual([`api.test:${secure.port}`]);
    expect(valuesOf(request.rawHeaders, 'authorization')).toEqual(['Bearer marker-secret']);
    expect(valuesOf(request.rawHeaders, 'x-two')).toEqual(['1', '2']);
    response.writeHead(200, ['Set-Cookie', 'c=3', 'X-One', '1', 'Set-Cookie', 'd=4', 'Connection', 'close']).end('done');
    const got = await answer;
    expect(got).toMatchObject({ status: 200, body: 'done', reset: 0, headers: { 'set-cookie': ['c=3', 'd=4'], 'x-one': '1' } });
    expect(got.headers).not.toHaveProperty('connection');
    const outcome = await house.outcome(({ arrival }) => arrival.protocol === 'h2', after);
    expect(outcome).toMatchObject({
      decision: 'allow',
      arrival: { door: 'tunnel', version: '2.0' },
      trace: { status: 200, credentials: ['gh'] },
    });
  });

  // RFC 9113 section 8.2.3
  it('goes out with its cookies in one field', async () => {
    const session = await inTunnel(house, 'other.test');
    const arrived = script.nextAt('/cookies');
    const answer = exchange(session, { ':path': '/cookies', cookie: ['a=1', 'b=2', 'c=3'] });
    const { request, response } = await arrived;
    expect(valuesOf(request.rawHeaders, 'cookie')).toEqual(['a=1; b=2; c=3']);
    response.end();
    expect((await answer).status).toBe(200);
  });

  it('in a tunnel in the clear goes out the same way', async () => {
    const session = keep(await openPlainSession(house, `plain.test:${plain.port}`));
    const after = house.outcomes.length;
    expect(await exchange(session, { ':path': '/' })).toMatchObject({ status: 200, body: 'ok' });
    expect(await house.outcome(({ arrival }) => arrival.protocol === 'h2', after)).toMatchObject({
      trace: { intent: { scheme: 'http' } },
    });
  });

  it('to the port itself names its host as an absolute target does', async () => {
    const session = keep(await openProxySession(house));
    expect(await exchange(session, { ':authority': `plain.test:${plain.port}`, ':path': '/' })).toMatchObject({
      status: 200,
      body: 'ok',
    });
    const refused = await exchange(session, { ':authority': 'nowhere.test', ':path': '/' });
    expect([refused.status, refused.headers['x-sallyport-reason']]).toEqual([403, 'not_allowlisted']);
  });

  it('carries its upload as it comes', async () => {
    const session = await inTunnel();
    const arrived = script.nextAt('/upload');
    const stream = session.request({ ':path': '/upload', ':method': 'POST' }, { endStream: false });
    const answer = answerOf(stream);
    stream.write('first ');
    const { request, response } = await arrived;
    expect(String((await once(request, 'data'))[0])).toBe('first ');
    stream.end('last');
    let rest = '';
    request.on('data', (chunk: Buffer) => (rest += chunk.toString()));
    await once(request, 'end');
    response.end(rest);
    expect((await answer).body).toBe('last');
  });

  it('of 20 MiB each way arrives whole', async () => {
    const session = await inTunnel();
    script.on('/echo', (request, response) => void request.pipe(response));
    const stream = session.request({ ':path': '/echo', ':method': 'POST' }, { endStream: false });
    const answer = answerOf(stream);
    const pieces = Array.from({ length: 320 }, (_, i) => Buffer.alloc(64 * 1024, 97 + (i % 26)));
    Readable.from(pieces).pipe(stream);
    const { status, body } = await answer;
    expect([status, body.length, body === Buffer.concat(pieces).toString('latin1')]).toEqual([200, 20 * 1024 * 1024, true]);
  });

  // fault I01
  it('of events lets each of them out at once, and the head before any', async () => {
    const session = await inTunnel();
    const arrived = script.nextAt('/events');
    const stream = session.request({ ':path': '/events' });
    const headed = once(stream, 'response');
    const { response } = await arrived;
    response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
    await headed;
    for (const event of ['one', 'two']) {
      const came = once(stream, 'data');
      response.write(`data: ${event}\n\n`);
      expect(String((await came)[0])).toBe(`data: ${event}\n\n`);
    }
    response.end();
    expect((await answerOf(stream)).reset).toBe(0);
  });

  // fault I03
  it('has the trailers of its upstream, and the hints before its head', async () => {
    const session = await inTunnel();
    script.on('/trailers', (_request, response) => {
      response.writeEarlyHints({ link: '</a.css>; rel=preload' });
      response.writeHead(200, { trailer: 'grpc-status' });
      response.write('body');
      response.addTrailers({ 'grpc-status': '0' });
      response.end();
    });
    const got = await exchange(session, { ':path': '/trailers', te: 'trailers' });
    expect(got).toMatchObject({ status: 200, body: 'body', trailers: { 'grpc-status': '0' } });
    expect(got.hints.map((hint) => [hint[':status'], hint['link']])).toEqual([[103, '</a.css>; rel=preload']]);
  });

  // fault D10
  it('that is answered early has the whole answer, and its session goes on', async () => {
    const session = await inTunnel();
    script.on('/early', (_request, response) => response.writeHead(413, { connection: 'close' }).end('too large'));
    const stream = session.request({ ':path': '/early', ':method': 'POST' }, { endStream: false });
    stream.write(Buffer.alloc(1024));
    expect(await answerOf(stream)).toMatchObject({ status: 413, body: 'too large', reset: 0 });
    expect((await exchange(session, { ':path': '/' })).status).toBe(200);
  });

  // fault I08
  it('that is reset ends at the upstream, and the other streams do not', async () => {
    const session = await inTunnel();
    const [cutAt, heldAt] = [script.nextAt('/cut'), script.nextAt('/held')];
    const after = house.outcomes.length;
    const cut = session.request({ ':path': '/cut' });
    cut.on('error', () => undefined);
    const held = exchange(session, { ':path': '/held' });
    const [cutting, holding] = await Promise.all([cutAt, heldAt]);
    cut.close(8);
    await once(cutting.request.socket, 'close');
    holding.response.end('whole');
    expect(await held).toMatchObject({ status: 200, body: 'whole' });
    const outcome = await house.outcome(({ arrival }) => arrival.target === '/cut', after);
    expect(outcome).toMatchObject({ decision: 'fault', verdict: { code: 'client_closed' } });
  });

  it('whose upstream breaks off within the answer is reset, so that nobody takes it for whole', async () => {
    const session = await inTunnel();
    script.on('/breaks', (_request, response) => {
      response.writeHead(200);
      response.write('some', () => response.socket?.destroy());
    });
    const got = await exchange(session, { ':path': '/breaks' });
    expect([got.status, got.body]).toEqual([200, 'some']);
    expect(got.reset).not.toBe(0);
  });

  it('takes its turn with forty-nine others', async () => {
    const session = await inTunnel();
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, i) => exchange(session, { ':path': `/${i}`, ':method': 'POST' }, `body ${i}`)),
    );
    expect(answers.filter(({ status }) => status !== 200)).toEqual([]);
  });
});

describe('a refusal', () => {
  const rows: { name: string; fields: () => Record<string, string>; status: number; code: string }[] = [
    // fault C02
    {
      name: 'another :authority in a tunnel',
      fields: () => ({ ':authority': `other.test:${secure.port}` }),
      status: 421,
      code: 'host_mismatch',
    },
    { name: 'another port', fields: () => ({ ':authority': 'api.test:1' }), status: 421, code: 'host_mismatch' },
    { name: 'another scheme', fields: () => ({ ':scheme': 'http' }), status: 421, code: 'host_mismatch' },
    { name: 'another Host', fields: () => ({ host: 'other.test' }), status: 421, code: 'host_mismatch' },
    { name: 'a dot segment', fields: () => ({ ':path': '/a/../b' }), status: 400, code: 'bad_request' },
    { name: 'TRACE', fields: () => ({ ':method': 'TRACE' }), status: 405, code: 'method_forbidden' },
    { name: 'a method that the rule does not name', fields: () => ({ ':method': 'DELETE' }), status: 403, code: 'method_denied' },
    {
      name: 'an expectation that nobody knows',
      fields: () => ({ expect: 'the impossible' }),
      status: 417,
      code: 'expectation_failed',
    },
    { name: 'too long a path', fields: () => ({ ':path': `/${'x'.repeat(20_000)}` }), status: 414, code: 'uri_too_long' },
  ];

  it.each(rows)('of $name says why and reaches no upstream, and the session goes on', async ({ fields, status, code }) => {
    const session = await inTunnel();
    const before = secure.seen.length;
    const after = house.outcomes.length;
    const got = await exchange(session, { ':path': '/', ...fields() });
    expect([got.status, got.headers['x-sallyport-reason'], got.headers['content-type']]).toEqual([
      status,
      code,
      'application/problem+json',
    ]);
    expect(JSON.parse(got.body)).toMatchObject({ code, status });
    expect(secure.seen.length).toBe(before);
    expect((await house.outcome(({ verdict }) => verdict?.code === code, after)).arrival.protocol).toBe('h2');
    expect((await exchange(session, { ':path': '/' })).status).toBe(200);
  });

  it('of a call of gRPC is one to its client', async () => {
    const session = await inTunnel();
    const stream = session.request(
      { ':path': '/x', ':method': 'DELETE', 'content-type': 'application/grpc', te: 'trailers' },
      { endStream: false },
    );
    const done = answerOf(stream);
    const [, flags] = (await once(stream, 'response')) as [object, number];
    expect(flags & 1).toBe(1);
    expect(await done).toMatchObject({
      status: 200,
      body: '',
      headers: { 'grpc-status': '7', 'x-sallyport-reason': 'method_denied' },
    });
  });

  it('of too large a section comes before the library gives the session up', async () => {
    const session = await inTunnel();
    const big = 'x'.repeat(25_000);
    const got = await exchange(session, { ':path': '/', 'x-a': big, 'x-b': big, 'x-c': big.slice(0, 15_500) });
    expect([got.status, got.headers['x-sallyport-reason']]).toEqual([431, 'headers_too_large']);
  });
});

describe('a CONNECT over HTTP/2', () => {
  it('leads into a tunnel of its own, with TLS and HTTP/2 or HTTP/1.1 inside', async () => {
    const session = keep(await openProxySession(house));
    const authority = `api.test:${secure.port}`;
    const stream = session.request({ ':method': 'CONNECT', ':authority': authority }, { endStream: false });
    await once(stream, 'response');
    const secured = tls.connect({ socket: stream, servername: 'api.test', ca: house.ca, ALPNProtocols: ['h2'] });
    await once(secured, 'secureConnect');
    const inner = keep(speakHttp2(secured, authority));
    const after = house.outcomes.length;
    expect(await exchange(inner, { ':path': '/' })).toMatchObject({ status: 200, body: 'ok' });
    expect(await house.outcome(() => true, after)).toMatchObject({
      arrival: { door: 'tunnel', protocol: 'h2', client: '127.0.0.1' },
    });
    const misled = await exchange(inner, { ':path': '/', ':authority': `other.test:${secure.port}` });
    expect(misled.status).toBe(421);
  });

  it('is refused where its name is, and leads nowhere from inside a tunnel', async () => {
    const outer = keep(await openProxySession(house));
    const refused = await answerOf(outer.request({ ':method': 'CONNECT', ':authority': 'nowhere.test:443' }));
    expect([refused.status, refused.headers['x-sallyport-reason']]).toEqual([403, 'not_allowlisted']);
    const inner = await inTunnel();
    const twice = await answerOf(inner.request({ ':method': 'CONNECT', ':authority': `other.test:${secure.port}` }));
    expect([twice.status, twice.headers['x-sallyport-reason']]).toEqual([400, 'bad_request']);
  });

  it('that carries neither TLS nor HTTP leaves a line that says so', async () => {
    const session = keep(await openProxySession(house));
    const stream = session.request({ ':method': 'CONNECT', ':authority': `api.test:${secure.port}` }, { endStream: false });
    stream.on('error', () => undefined);
    await once(stream, 'response');
    const after = house.outcomes.length;
    stream.write('hello there\r\n');
    expect(await house.outcome(({ arrival }) => arrival.purpose === 'tunnel', after)).toMatchObject({
      decision: 'refuse',
      verdict: { code: 'bad_request' },
      arrival: { protocol: 'h2' },
    });
    await once(stream.resume(), 'close');
  });
});

describe('a WebSocket on a stream', () => {
  it('reaches an upstream that speaks HTTP/1.1, with a line of its own', async () => {
    const servers = new WebSocketServer({ noServer: true });
    secure.server.on('upgrade', (request: http.IncomingMessage, socket: Duplex, head: Buffer) =>
      servers.handleUpgrade(request, socket, head, (client) =>
        client.on('message', (message: Buffer, isBinary) => client.send(message, { binary: isBinary })),
      ),
    );
    const session = await inTunnel();
    const after = house.outcomes.length;
    await once(session, 'remoteSettings');
    const stream = session.request(
      {
        ':method': 'CONNECT',
        ':protocol': 'websocket',
        ':scheme': 'https',
        ':authority': `api.test:${secure.port}`,
        ':path': '/chat',
        'sec-websocket-version': '13',
      },
      { endStream: false },
    );
    const [headers] = (await once(stream, 'response')) as [Record<string, unknown>];
    expect(headers[':status']).toBe(200);
    expect(headers).not.toHaveProperty('sec-websocket-accept');
    // A masked text frame of two octets, and its echo without a mask
    stream.write(Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]));
    expect((await once(stream, 'data'))[0]).toEqual(Buffer.from([0x81, 0x02, 0x68, 0x69]));
    stream.end(Buffer.from([0x88, 0x80, 0, 0, 0, 0]));
    stream.resume();
    await once(stream, 'close');
    expect(await house.outcome(({ arrival }) => arrival.protocol === 'websocket', after)).toMatchObject({
      decision: 'allow',
      arrival: { method: 'GET', door: 'tunnel', version: '2.0' },
      trace: { status: 101 },
    });
    servers.close();
  });
});

describe('a house', () => {
  it('that stops says so to every session at once, and lets streams under way end', async () => {
    const stopping = await startHouse(config(), { names: NAMES, env: { GH: 'marker-secret' } });
    const arrived = script.nextAt('/slow');
    const session = await inTunnel(stopping);
    const slow = exchange(session, { ':path': '/slow' });
    const { response } = await arrived;
    const told = once(session, 'goaway');
    const stopped = stopping.stop();
    expect((await told)[0]).toBe(0);
    response.end('slow');
    expect(await slow).toMatchObject({ status: 200, body: 'slow', reset: 0 });
    await stopped;
    expect(stopping.outcomes.map(({ decision }) => decision)).toEqual(['allow']);
  });

  it('is not brought down by a sandbox that takes back 10,000 streams, nor does it grow', async () => {
    const before = process.memoryUsage().rss;
    const session = await inTunnel();
    for (let i = 0; i < 10_000 && !session.destroyed && !session.closed; i += 1) {
      const stream = session.request({ ':path': '/' });
      stream.on('error', () => undefined);
      stream.close(8);
      if (i % 100 === 0) await new Promise(setImmediate);
    }
    if (!session.closed && !session.destroyed) await once(session, 'goaway');
    session.destroy();
    expect(await exchange(await inTunnel(), { ':path': '/' })).toMatchObject({ status: 200, body: 'ok' });
    expect(process.memoryUsage().rss - before).toBeLessThan(200 * 1024 * 1024);
    expect(house.logged.filter((line) => line.startsWith('error'))).toEqual([]);
  });
});
