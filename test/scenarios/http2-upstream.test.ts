// Upstreams that speak HTTP/2, asked by a sandbox that speaks HTTP/1.1, through a whole house: what a message is over HTTP/1.1 it is over
// HTTP/2 as well, in both directions, whole, streamed, cut or declined.
import { once } from 'node:events';
import type tls from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { startHttp2Upstream } from '../support/http2-upstream.ts';
import type { AnsweringStream, Http2Upstream, Http2UpstreamOptions } from '../support/http2-upstream.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { countOf, openOutside, valuesOf } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';
import { verdictIn } from '../support/probes.ts';
import { ask, openSecureTunnel, readAnswer } from '../support/sandbox-client.ts';

const TOKEN = 'marker-token-4411';

let outside: Outside;
let upstream: Http2Upstream;
let house: House;

beforeAll(async () => {
  outside = await openOutside();
});

afterAll(() => outside.close());

afterEach(async () => {
  await house.stop();
  await upstream.close();
});

async function open(options: Http2UpstreamOptions = {}, config: object = {}, rule: object = {}): Promise<void> {
  upstream = await startHttp2Upstream({ tls: outside, ...options });
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      credentials: { main: { type: 'bearer_token', token: TOKEN } },
      network: { allowlist: [{ domain: 'api.test', ports: [upstream.port], addresses: LOOPBACK, ...rule }] },
      ...config,
    },
    { names: { 'api.test': ['127.0.0.1'] } },
  );
}

const url = (path: string): string => `https://api.test:${upstream.port}${path}`;
const tunnel = (): Promise<tls.TLSSocket> => openSecureTunnel(house, `api.test:${upstream.port}`);

/** Request line, Host and further lines, on an open tunnel. */
function begin(socket: tls.TLSSocket, line: string, fields = ''): void {
  socket.write(Buffer.from(`${line} HTTP/1.1\r\nHost: api.test:${upstream.port}\r\n${fields}\r\n`, 'latin1'));
}

/** Resolves when nothing more can come. */
function over(socket: tls.TLSSocket): Promise<void> {
  return new Promise((resolve) => {
    socket.once('end', resolve).once('close', () => resolve());
    if (socket.readableEnded || socket.closed) resolve();
    else socket.resume();
  });
}

/** What comes on a tunnel, as it comes. */
function listenTo(socket: tls.TLSSocket): { until: (text: string) => Promise<string> } {
  let got = '';
  const looks = new Set<() => void>();
  socket.on('data', (chunk: Buffer) => {
    got += chunk.toString('latin1');
    for (const look of looks) look();
  });
  return {
    until: (text) =>
      new Promise((resolve) => {
        const look = (): void => {
          if (!got.includes(text)) return;
          looks.delete(look);
          resolve(got);
        };
        looks.add(look);
        look();
      }),
  };
}

describe('a request', () => {
  it('goes on whole: authority, query, every value in order, and nothing that belongs to one connection', async () => {
    await open();
    const answer = await ask(house, url('/hello?x=1&y=%20'), {
      fields: 'X-Many: 1\r\nTE: gzip\r\nConnection: X-Own, TE\r\nX-Own: 1\r\nKeep-Alive: 5\r\nx-many: 2\r\nCookie: a=b; c=d\r\n',
    });
    expect(verdictIn(answer)).toBe('200 from the upstream');
    expect(answer.reason).toBe('OK');
    const [seen] = upstream.seen;
    expect(seen).toMatchObject({
      method: 'GET',
      path: '/hello?x=1&y=%20',
      scheme: 'https',
      spoken: 'h2',
      body: '',
      complete: true,
    });
    expect(seen?.authority).toBe(`api.test:${upstream.port}`);
    expect(seen?.fields).toEqual(['x-many', '1', 'x-many', '2', 'cookie', 'a=b; c=d']);
    const { decision, trace, arrival } = await house.outcome(() => true);
    expect([decision, trace.status, trace.address, arrival.protocol]).toEqual(['allow', 200, '127.0.0.1', 'http/1.1']);
  });

  it.each([
    {
      name: 'where the sandbox says that it takes trailers',
      te: 'TE: trailers, gzip;q=0.5\r\nConnection: TE\r\n',
      sent: ['trailers'],
    },
    { name: 'not where it says nothing', te: '', sent: [] },
    { name: 'not where it says something else', te: 'TE: gzip\r\nConnection: TE\r\n', sent: [] },
  ])('says `te: trailers` $name', async ({ te, sent }) => {
    await open();
    await ask(house, url('/'), { fields: te });
    expect(valuesOf(upstream.seen[0]?.fields ?? [], 'te')).toEqual(sent);
  });

  it('keeps both values of a field that Node takes only one of', async () => {
    await open();
    const answer = await ask(house, url('/'), { fields: 'User-Agent: one\r\nX-A: 1\r\nX-A: 2\r\nUser-Agent: two\r\n' });
    expect(answer.status).toBe(200);
    expect(valuesOf(upstream.seen[0]?.fields ?? [], 'user-agent')).toEqual(['one, two']);
  });

  it('bears the credential once, and shows none of it to the sandbox', async () => {
    const reflect: AnsweringStream = (stream, seen) => {
      const given = valuesOf(seen.fields, 'authorization')[0] ?? '';
      stream.respond({ ':status': 200, 'content-type': 'text/plain', 'x-given': given }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'x-after': given }));
      stream.end(`it was ${given}`);
    };
    await open({ answer: reflect }, {}, { credential: 'main', redact: true });
    const answer = await ask(house, url('/'), { fields: 'Authorization: Bearer of-the-sandbox\r\n' });
    expect(valuesOf(upstream.seen[0]?.fields ?? [], 'authorization')).toEqual([`Bearer ${TOKEN}`]);
    expect([answer.body, answer.headers['x-given'], ...answer.trailers]).toEqual([
      'it was Bearer [redacted]',
      'Bearer [redacted]',
      'x-after',
      'Bearer [redacted]',
    ]);
  });

  it.each([
    { name: 'of a known length', framing: 'Content-Length: 9\r\n', body: 'some-text', length: ['9'] },
    { name: 'in chunks', framing: 'Transfer-Encoding: chunked\r\n', body: '4\r\nsome\r\n5\r\n-text\r\n0\r\n\r\n', length: [] },
  ])('takes a body $name along', async ({ framing, body, length }) => {
    await open();
    expect((await ask(house, url('/'), { method: 'POST', fields: framing, body })).status).toBe(200);
    const [seen] = upstream.seen;
    expect([seen?.body, seen?.complete]).toEqual(['some-text', true]);
    expect(valuesOf(seen?.fields ?? [], 'content-length')).toEqual(length);
    expect(countOf(seen?.fields ?? [], 'transfer-encoding')).toBe(0);
    expect((await house.outcome(() => true)).trace.bytesSent).toBe(9);
  });

  it('asks for the body of one that waits for 100 only when the stream is there', async () => {
    await open();
    const socket = await tunnel();
    begin(socket, 'POST /', 'Content-Length: 4\r\nExpect: 100-continue\r\n');
    expect((await readAnswer(socket)).status).toBe(100);
    socket.write('once');
    expect((await readAnswer(socket)).status).toBe(200);
    expect(upstream.seen[0]).toMatchObject({ body: 'once' });
    expect(countOf(upstream.seen[0]?.fields ?? [], 'expect')).toBe(0);
    socket.destroy();
  });

  it('uploads a long body no faster than the upstream reads it', async () => {
    let release: () => void = () => undefined;
    await open({
      raw: (stream) => {
        stream.pause();
        release = () => stream.resume();
        stream.on('end', () => {
          stream.respond({ ':status': 200 });
          stream.end();
        });
      },
    });
    const length = 24 * 1024 * 1024;
    const socket = await tunnel();
    begin(socket, 'POST /', `Content-Length: ${length}\r\n`);
    const done = readAnswer(socket);
    const filled = Buffer.alloc(length);
    expect(socket.write(filled)).toBe(false);
    await upstream.saw(() => true);
    // What a paused stream lets through is its window, and what lies in buffers on the way; by far not all of it.
    await once(socket, 'drain', { signal: AbortSignal.timeout(300) }).then(
      () => Promise.reject(new Error('all of it was taken')),
      () => undefined,
    );
    release();
    expect((await done).status).toBe(200);
    expect(upstream.seen[0]?.body.length).toBe(length);
    socket.destroy();
  });
});

describe('an answer', () => {
  it('streams: each event of it is there before the next is made', async () => {
    let write: (text: string) => void = () => undefined;
    await open({
      raw: (stream) => {
        stream.respond({ ':status': 200, 'content-type': 'text/event-stream' });
        write = (text) => (text === '' ? stream.end() : stream.write(text));
      },
    });
    const socket = await tunnel();
    const { until } = listenTo(socket);
    begin(socket, 'GET /');
    await until('\r\n\r\n');
    for (const text of ['data: one\n\n', 'data: two\n\n']) {
      write(text);
      await until(text);
    }
    write('');
    await until('0\r\n\r\n');
    socket.destroy();
  });

  it('keeps its interim heads, its fields and its trailers', async () => {
    await open({
      answer: (stream) => {
        stream.additionalHeaders({ ':status': 103, link: '</style.css>; rel=preload' });
        stream.respond({ ':status': 203, 'set-cookie': ['a=1', 'b=2'] }, { waitForTrailers: true });
        stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
        stream.end('body');
      },
    });
    const socket = await tunnel();
    begin(socket, 'GET /');
    const hint = await readAnswer(socket);
    expect([hint.status, hint.headers['link']]).toEqual([103, '</style.css>; rel=preload']);
    const answer = await readAnswer(socket);
    expect([answer.status, answer.reason, answer.body]).toEqual([203, 'Non-Authoritative Information', 'body']);
    expect(valuesOf(answer.fields, 'set-cookie')).toEqual(['a=1', 'b=2']);
    expect(answer.trailers).toEqual(['grpc-status', '0']);
    expect(answer.fields.filter((text) => text.startsWith(':'))).toEqual([]);
    socket.destroy();
  });

  it.each([
    { name: 'to HEAD', method: 'HEAD', status: 200, fields: { 'content-length': '10' } },
    { name: '204', method: 'GET', status: 204, fields: {} },
    { name: '304', method: 'GET', status: 304, fields: { etag: '"e1"' } },
    { name: '200 with an empty body', method: 'GET', status: 200, fields: { 'content-length': '0' } },
  ])('without a body is one: $name', async ({ method, status, fields }) => {
    await open({
      answer: (stream) => {
        stream.respond({ ':status': status, ...fields }, { endStream: true });
      },
    });
    const socket = await tunnel();
    for (let round = 0; round < 2; round += 1) {
      begin(socket, `${method} /`);
      const answer = await readAnswer(socket, method);
      expect([answer.status, answer.body]).toEqual([status, '']);
      expect(answer.headers).toMatchObject(fields);
    }
    socket.destroy();
    expect(upstream.sessions).toHaveLength(1);
  });

  it('that comes early is handed over, the rest of the upload ends, and the session goes on', async () => {
    await open({
      raw: (stream, { method }) => {
        if (method === 'POST') stream.respond({ ':status': 413, 'content-length': '8' });
        else stream.respond({ ':status': 200, 'content-length': '8' });
        stream.end('too much');
      },
    });
    const socket = await tunnel();
    begin(socket, 'POST /', 'Content-Length: 1000000\r\n');
    socket.write('begun');
    const answer = await readAnswer(socket);
    expect([answer.status, answer.body]).toEqual([413, 'too much']);
    await upstream.saw((seen) => seen.reset !== undefined);
    socket.destroy();
    expect((await ask(house, url('/'))).status).toBe(200);
    expect(upstream.sessions).toHaveLength(1);
  });

  it.each([
    { name: 'is too large in its header section', fields: { 'x-long': 'a'.repeat(40_000) }, status: 502 },
    { name: 'has very many fields', fields: { 'x-many': Array.from({ length: 3000 }, () => 'v') }, status: 502 },
    { name: 'is just not too large', fields: { 'x-long': 'a'.repeat(30_000) }, status: 200 },
  ])('that $name is $status', async ({ fields, status }) => {
    await open(
      { answer: (stream) => stream.respond({ ':status': 200, ...fields }, { endStream: true }) },
      { limits: { reply_header_bytes: '32KiB' } },
    );
    // Once before the upstream has heard of the limit, and once after.
    for (let round = 0; round < 2; round += 1) expect((await ask(house, url('/'))).status).toBe(status);
  });

  it.each<{ name: string; raw: AnsweringStream; verdict: string }>([
    { name: 'that never begins', raw: () => undefined, verdict: '504 upstream_timeout' },
    {
      name: 'after interim heads alone',
      raw: (stream) => stream.additionalHeaders({ ':status': 103 }),
      verdict: '504 upstream_timeout',
    },
  ])('$name is given up in time, and its stream reset', async ({ raw, verdict }) => {
    await open({ raw }, { limits: { timeouts: { reply: '300ms' } } });
    const socket = await tunnel();
    begin(socket, 'GET /');
    let answer = await readAnswer(socket);
    if (answer.status === 103) answer = await readAnswer(socket);
    expect(verdictIn(answer)).toBe(verdict);
    expect((await upstream.saw((seen) => seen.reset !== undefined)).reset).toBe(8);
    socket.destroy();
  });

  it('that falls silent is cut in time', async () => {
    await open(
      {
        raw: (stream) => {
          stream.respond({ ':status': 200 });
          stream.write('begun');
        },
      },
      { limits: { timeouts: { body_idle: '300ms' } } },
    );
    const socket = await tunnel();
    const { until } = listenTo(socket);
    begin(socket, 'GET /');
    await until('begun');
    await over(socket);
    const { verdict } = await house.outcome(() => true);
    expect(verdict?.code).toBe('upstream_timeout');
  });
});

describe('what breaks off', () => {
  const partly: AnsweringStream = (stream, { path }) => {
    if (path === '/whole') {
      stream.respond({ ':status': 200 });
      stream.end('whole');
    } else if (path !== '/silent') {
      stream.respond({ ':status': 200 });
      stream.write('partly');
    }
  };

  it.each([
    { name: 'before the head', path: '/silent' },
    { name: 'in the middle of the body', path: '/partly' },
  ])('is reset upstream where the sandbox leaves $name, and its session goes on', async ({ path }) => {
    await open({ raw: partly });
    const socket = await tunnel();
    const { until } = listenTo(socket);
    begin(socket, `GET ${path}`);
    await upstream.saw(() => true);
    if (path === '/partly') await until('partly');
    socket.destroy();
    expect((await upstream.saw((seen) => seen.reset !== undefined)).reset).toBe(8);
    expect((await house.outcome(() => true)).verdict?.code).toBe('client_closed');
    expect((await ask(house, url('/whole'))).body).toBe('whole');
    expect(upstream.sessions).toHaveLength(1);
  });

  it('in the middle of the upload is reset upstream, and no end of the request is made up', async () => {
    await open({ raw: () => undefined });
    const socket = await tunnel();
    begin(socket, 'POST /', 'Transfer-Encoding: chunked\r\n');
    socket.write('4\r\nhalf\r\n');
    await upstream.saw((seen) => seen.body === 'half' || seen.complete);
    socket.destroy();
    const seen = await upstream.saw(({ reset }) => reset !== undefined);
    expect([seen.reset, seen.complete]).toEqual([8, false]);
  });

  it.each([
    { name: 'INTERNAL_ERROR', code: 2 },
    { name: 'CANCEL', code: 8 },
    { name: 'ENHANCE_YOUR_CALM', code: 11 },
    { name: 'HTTP_1_1_REQUIRED', code: 13 },
  ])('before the head, by the upstream with $name, is 502', async ({ code }) => {
    await open({ raw: (stream) => stream.close(code) });
    expect(verdictIn(await ask(house, url('/')))).toBe('502 upstream_protocol');
    expect(upstream.seen).toHaveLength(1);
  });

  it.each<{ name: string; cut: AnsweringStream; fields?: object }>([
    { name: 'with an error', cut: (stream) => stream.destroy(new Error('cut')) },
    { name: 'with no error, and without an end', cut: (stream) => stream.destroy() },
    { name: 'by ending the session', cut: (stream) => stream.session?.destroy() },
    { name: 'short of its length', cut: (stream) => stream.end(), fields: { 'content-length': '100' } },
  ])('in the middle of the answer, by the upstream $name, is cut for the sandbox', async ({ cut, fields }) => {
    await open({
      raw: (stream, seen) => {
        stream.respond({ ':status': 200, ...fields });
        stream.write('partly', () => setImmediate(() => cut(stream, seen)));
      },
    });
    const socket = await tunnel();
    begin(socket, 'GET /');
    await expect(readAnswer(socket)).rejects.toThrow('ended within an answer');
    const { decision, verdict } = await house.outcome(() => true);
    expect([decision, verdict?.code]).toEqual(['fault', 'upstream_protocol']);
  });

  it('a stream that nobody reads holds none of its neighbours', async () => {
    const long = Buffer.alloc(8 * 1024 * 1024, 'x');
    await open({
      raw: (stream, { path }) => {
        stream.respond({ ':status': 200 });
        stream.end(path === '/long' ? long : 'short');
      },
    });
    const unread = await tunnel();
    begin(unread, 'GET /long', 'Connection: close\r\n');
    await once(unread, 'readable');
    for (let round = 0; round < 3; round += 1) expect((await ask(house, url('/'))).body).toBe('short');
    expect(upstream.sessions).toHaveLength(1);
    // Read after all, it is all there.
    let length = 0;
    unread.on('data', (chunk: Buffer) => (length += chunk.length));
    expect((await house.outcome(({ trace }) => trace.bytesReceived === long.length)).decision).toBe('allow');
    await over(unread);
    expect(length).toBeGreaterThan(long.length);
  });
});

describe('a WebSocket', () => {
  const UPGRADE = 'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n';
  const KEY = 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';
  const echoing: AnsweringStream = (stream, { path }) => {
    if (path === '/declined') {
      stream.respond({ ':status': 401 });
      stream.end('no pass');
      return;
    }
    stream.respond({ ':status': 200, 'sec-websocket-protocol': 'chat' });
    stream.write('first words');
    stream.pipe(stream);
  };

  it('opens over HTTP/2: the handshake is an extended CONNECT, its proof is made here, and bytes flow both ways', async () => {
    await open({ raw: echoing }, {}, { credential: 'main' });
    const socket = await tunnel();
    begin(socket, 'GET /socket?a=1', `${UPGRADE}${KEY}Sec-WebSocket-Protocol: chat\r\n`);
    const { until } = listenTo(socket);
    const head = await until('first words');
    expect(head).toContain('HTTP/1.1 101 Switching Protocols\r\n');
    expect(head.toLowerCase()).toContain('\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n');
    expect(head.toLowerCase()).toContain('\r\nsec-websocket-protocol: chat\r\n');
    socket.write('ping');
    await until('ping');
    const [seen] = upstream.seen;
    expect(seen).toMatchObject({ method: 'CONNECT', protocol: 'websocket', path: '/socket?a=1', scheme: 'https' });
    expect(seen?.fields).toEqual([
      'sec-websocket-version',
      '13',
      'sec-websocket-protocol',
      'chat',
      'authorization',
      `Bearer ${TOKEN}`,
    ]);
    socket.end();
    await over(socket);
    const { decision, trace, arrival } = await house.outcome(() => true);
    expect([decision, trace.status, arrival.protocol]).toEqual(['allow', 101, 'websocket']);
    expect([trace.bytesSent, trace.bytesReceived]).toEqual([4, 15]);
  });

  it('that is declined is answered as it was declined, and the session goes on', async () => {
    await open({ raw: echoing });
    for (let round = 0; round < 2; round += 1) {
      const answer = await ask(house, url('/declined'), { fields: `${UPGRADE}${KEY}` });
      expect([answer.status, answer.body]).toEqual([401, 'no pass']);
    }
    expect(upstream.sessions).toHaveLength(1);
  });

  it('is 502 where the upstream speaks HTTP/2 only and opens none, again and again, over one session', async () => {
    await open({ settings: { enableConnectProtocol: false } });
    for (let round = 0; round < 3; round += 1) {
      expect(verdictIn(await ask(house, url('/socket'), { fields: `${UPGRADE}${KEY}` }))).toBe('502 upstream_protocol');
    }
    expect(upstream.seen).toEqual([]);
    expect(upstream.sessions).toHaveLength(1);
    expect((await ask(house, url('/'))).status).toBe(200);
  });

  it.each([
    { name: 'the upstream resets the stream', end: 'upstream' },
    { name: 'the sandbox leaves', end: 'sandbox' },
  ])('ends on both sides where $name', async ({ end }) => {
    let cut: () => void = () => undefined;
    await open({
      raw: (stream) => {
        stream.respond({ ':status': 200 });
        stream.write('open');
        stream.resume().on('end', () => stream.end());
        cut = () => stream.close(2);
      },
    });
    const socket = await tunnel();
    begin(socket, 'GET /socket', `${UPGRADE}${KEY}`);
    await listenTo(socket).until('open');
    if (end === 'upstream') cut();
    else socket.destroy();
    await over(socket);
    await house.outcome(() => true);
    await upstream.saw((seen) => seen.complete || seen.reset !== undefined);
  });
});
