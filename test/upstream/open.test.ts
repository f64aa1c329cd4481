// In which protocol an exchange goes on, over real sockets: like for like first, what an upstream was found to speak remembered, and one
// dial for all who can share what it opens. The arrivals are made up, so that each may speak either protocol.
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import net from 'node:net';
import { PassThrough } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import tls from 'node:tls';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Fault, isRefusal, toVerdict } from '../../src/exchange/codes.ts';
import { endToEndFields } from '../../src/exchange/header-fields.ts';
import type { Limits } from '../../src/exchange/snapshot.ts';
import { makeDispatch } from '../../src/exchange/stages.ts';
import type { Arrival, ExchangeArrival, UpgradeArrival } from '../../src/exchange/stages.ts';
import { Trace } from '../../src/exchange/trace.ts';
import { acceptOf } from '../../src/exchange/websocket-key.ts';
import { redactFields, redactHead } from '../../src/reply/redact-answer.ts';
import { replyFields, replyTrailers } from '../../src/reply/reply-fields.ts';
import { Lanes } from '../../src/upstream/lanes.ts';
import { createTrust } from '../../src/upstream/secure.ts';
import type { UpstreamTrust } from '../../src/upstream/secure.ts';
import { createSend } from '../../src/upstream/send.ts';
import type { Send } from '../../src/upstream/send.ts';
import { ceilingAt, exchangeArrival, routeOf, TEST_LIMITS, upgradeArrival } from '../support/arrivals.ts';
import type { ArrivalParts, Recorded } from '../support/arrivals.ts';
import { echoStream, startHttp2Upstream } from '../support/http2-upstream.ts';
import type { Http2Upstream, Http2UpstreamOptions } from '../support/http2-upstream.ts';
import { openOutside, startRaw, valuesOf } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';

let outside: Outside;
let trust: UpstreamTrust;
let lanes: Lanes;
let send: Send;
let upstream: Http2Upstream | undefined;
/** Where every route leads */
let port = 0;
let dials = 0;
/** What a dial waits for */
let gate: Promise<unknown> = Promise.resolve();

beforeAll(async () => {
  outside = await openOutside();
  trust = createTrust([await readFile(outside.caPath, 'utf8')]);
});

afterAll(() => outside.close());

beforeEach(() => {
  lanes = new Lanes();
  dials = 0;
  gate = Promise.resolve();
  send = createSend({
    findAnew: (permit) => routeOf(permit.intent.arrival),
    dial: async (_route, _deadline, signal) => {
      dials += 1;
      await gate;
      if (signal.aborted) throw new Fault('client_closed', 'the sandbox left before the upstream was reached');
      const socket = net.connect(port, '127.0.0.1');
      socket.on('error', () => undefined);
      await once(socket, 'connect');
      return socket;
    },
    lanes,
    trust: () => trust,
    convert: { fields: replyFields, trailers: replyTrailers, redactFields, redactHead },
    onOpen: () => undefined,
    onClose: () => undefined,
  });
});

afterEach(async () => {
  lanes.destroy();
  await upstream?.close();
  upstream = undefined;
});

async function serve(options: Http2UpstreamOptions): Promise<Http2Upstream> {
  upstream = await startHttp2Upstream(options);
  port = upstream.port;
  return upstream;
}

type Spoken = 'http/1.1' | 'h2';

const inside = (): Pick<ArrivalParts, 'ceiling'> => ({ ceiling: ceilingAt('api.test:443') });
const pseudo = { scheme: 'https', authority: 'api.test' };

function exchange(spoken: Spoken, parts: ArrivalParts & { readonly body?: PassThrough } = {}): Recorded<ExchangeArrival> {
  if (spoken === 'http/1.1') return exchangeArrival({ ...inside(), ...parts });
  return exchangeArrival({ ...inside(), protocol: 'h2', version: '2.0', pseudo, fields: [], ...parts });
}

function upgrade(spoken: Spoken): Recorded<UpgradeArrival> {
  if (spoken === 'http/1.1') return upgradeArrival(inside());
  return upgradeArrival({ ...inside(), version: '2.0', pseudo, fields: ['sec-websocket-version', '13'] });
}

/** Sends an arrival on; what the road said, and the trace. */
async function go(arrival: Arrival, limits: Limits = TEST_LIMITS): Promise<{ readonly said: string; readonly trace: Trace }> {
  const route = routeOf(arrival);
  const { host } = route.permit.intent.authority;
  const fields = endToEndFields(arrival.fields, new Set(['host']), ['Host', host]);
  const trace = new Trace();
  try {
    const said = await send(makeDispatch({ route, fields, credentials: [] }), trace, limits);
    return { said: isRefusal(said) ? said.code : 'done', trace };
  } catch (thrown) {
    return { said: toVerdict(thrown).code, trace };
  }
}

/** What was spoken with the upstream, in order. */
const spoken = (): string[] => upstream?.seen.map((seen) => seen.spoken) ?? [];

const BOTH = ['h2', 'http/1.1'];
const table: readonly {
  readonly name: string;
  readonly upstream: Omit<Http2UpstreamOptions, 'tls'>;
  readonly asks: readonly Spoken[];
  readonly spoken: readonly Spoken[];
  readonly dials: number;
}[] = [
  { name: 'like for like', upstream: { alpn: BOTH }, asks: ['http/1.1', 'h2'], spoken: ['http/1.1', 'h2'], dials: 2 },
  { name: 'on a session that is there', upstream: { alpn: BOTH }, asks: ['h2', 'http/1.1'], spoken: ['h2', 'h2'], dials: 1 },
  {
    name: 'on its own idle connection sooner than on a session',
    upstream: { alpn: BOTH },
    asks: ['http/1.1', 'h2', 'http/1.1'],
    spoken: ['http/1.1', 'h2', 'http/1.1'],
    dials: 2,
  },
  {
    name: 'on an idle connection of HTTP/1.1 where the upstream speaks nothing else',
    upstream: { alpn: ['http/1.1'] },
    asks: ['h2', 'h2', 'http/1.1'],
    spoken: ['http/1.1', 'http/1.1', 'http/1.1'],
    dials: 1,
  },
  {
    name: 'in HTTP/2 where the upstream speaks nothing else, which is asked once',
    upstream: {},
    asks: ['http/1.1', 'http/1.1'],
    spoken: ['h2', 'h2'],
    dials: 2,
  },
  {
    name: 'in HTTP/1.1 where the upstream has no word for it',
    upstream: { alpn: [], otherwise: 'http/1.1' },
    asks: ['h2', 'http/1.1'],
    spoken: ['http/1.1', 'http/1.1'],
    dials: 1,
  },
  {
    name: 'in HTTP/2 where the upstream has no word for it and answers with its settings',
    upstream: { alpn: [] },
    asks: ['http/1.1', 'h2', 'http/1.1'],
    spoken: ['h2', 'h2', 'h2'],
    dials: 2,
  },
  {
    name: 'in HTTP/2 where it was the sandbox that spoke it first',
    upstream: { alpn: [] },
    asks: ['h2'],
    spoken: ['h2'],
    dials: 2,
  },
];

describe('an exchange goes on', () => {
  it.each(table)('$name', async ({ upstream: options, asks, spoken: expected, dials: dialled }) => {
    await serve({ tls: outside, ...options });
    for (const one of asks) {
      const arrival = exchange(one);
      expect((await go(arrival)).said).toBe('done');
      expect(arrival.reply.status).toBe(200);
    }
    expect(spoken()).toEqual(expected);
    expect(dials).toBe(dialled);
  });

  it('from HTTP/2 to HTTP/1.1 without anything that belongs to HTTP/2 (fault E19)', async () => {
    await serve({ tls: outside, alpn: ['http/1.1'] });
    expect((await go(exchange('h2', { fields: ['x-a', '1', 'x-a', '2'] }))).said).toBe('done');
    const [seen] = upstream?.seen ?? [];
    expect(seen?.fields.filter((text) => text.startsWith(':'))).toEqual([]);
    expect(valuesOf(seen?.fields ?? [], 'x-a')).toEqual(['1', '2']);
    expect(seen?.authority).toBe('api.test');
  });

  it('from HTTP/2 to HTTP/2 with its body, its trailers and bytes that are no ASCII', async () => {
    await serve({
      tls: outside,
      answer: (stream) => {
        stream.respond({ ':status': 200, 'x-bin': 'caf\u00e9' }, { waitForTrailers: true });
        stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
        stream.end('answer');
      },
    });
    const body = new PassThrough();
    const arrival = exchange('h2', { method: 'POST', fields: ['te', 'trailers', 'x-bin', 'caf\u00e9'], body });
    const going = go(arrival);
    body.write('first ');
    await upstream?.saw((seen) => seen.body === 'first ');
    body.end('second');
    expect((await going).said).toBe('done');
    const [seen] = upstream?.seen ?? [];
    expect(seen?.body).toBe('first second');
    expect(valuesOf(seen?.fields ?? [], 'te')).toEqual(['trailers']);
    expect(valuesOf(seen?.fields ?? [], 'x-bin')).toEqual(['caf\u00e9']);
    expect([arrival.reply.body, arrival.reply.trailers]).toEqual(['answer', ['grpc-status', '0']]);
    expect(valuesOf([...(arrival.reply.recordedHead?.fields ?? [])], 'x-bin')).toEqual(['caf\u00e9']);
  });

  it('with a header section that is longer than the library would send', async () => {
    await serve({ tls: outside, settings: { maxHeaderListSize: 400_000 } });
    const fields = Array.from({ length: 5 }, () => ['x-long', 'a'.repeat(40_000)]).flat();
    expect((await go(exchange('h2', { fields }))).said).toBe('done');
    expect(valuesOf(upstream?.seen[0]?.fields ?? [], 'x-long')).toHaveLength(5);
  });

  it.each([
    { name: 'gRPC by prior knowledge', type: 'application/grpc', expected: 'h2' },
    { name: 'gRPC of a kind by prior knowledge', type: 'application/grpc+proto', expected: 'h2' },
    { name: 'what only begins like gRPC in HTTP/1.1', type: 'application/grpc-web', expected: 'http/1.1' },
    { name: 'everything else in HTTP/1.1', type: 'application/json', expected: 'http/1.1' },
  ])('over http: $name', async ({ type, expected }) => {
    await serve({ otherwise: expected as Spoken });
    const plain = { ceiling: ceilingAt('api.test:80', { scheme: 'http' }), pseudo: { scheme: 'http', authority: 'api.test' } };
    const arrival = exchange('h2', { ...plain, fields: ['content-type', type] });
    expect((await go(arrival)).said).toBe('done');
    expect(spoken()).toEqual([expected]);
    expect(upstream?.seen[0]?.scheme).toBe(expected === 'h2' ? 'http' : '');
  });

  it('is held by itself where its sandbox does not read, and released when it does', async () => {
    const long = Buffer.alloc(3 * 1024 * 1024, 'x');
    await serve({
      tls: outside,
      answer: (stream, seen) => {
        stream.respond({ ':status': 200 });
        stream.end(seen.path === '/long' ? long : 'short');
      },
    });
    const arrival = exchange('h2', { target: '/long' });
    arrival.reply.accepts = false;
    const going = go(arrival);
    for (let round = 0; round < 3; round += 1) expect((await go(exchange('h2'))).said).toBe('done');
    const taken = arrival.reply.body.length;
    expect(taken).toBeLessThan(1024 * 1024);
    expect(taken).toBeGreaterThan(0);
    arrival.reply.sandboxReads();
    expect((await going).said).toBe('done');
    expect(arrival.reply.body.length).toBe(long.length);
    expect(dials).toBe(1);
  });

  it('is cut where its sandbox reads nothing at all for too long, and the fault is not the upstream\u2019s', async () => {
    await serve({
      tls: outside,
      answer: (stream) => {
        stream.respond({ ':status': 200 });
        stream.end(Buffer.alloc(3 * 1024 * 1024));
      },
    });
    const arrival = exchange('h2');
    arrival.reply.accepts = false;
    expect((await go(arrival, { ...TEST_LIMITS, bodyIdleMs: 200 })).said).toBe('client_closed');
  });
});

describe('one dial', () => {
  it('is for all who ask at once where the upstream may speak HTTP/2', async () => {
    await serve({ tls: outside, alpn: BOTH });
    const ends = await Promise.all(Array.from({ length: 20 }, () => go(exchange('h2'))));
    expect(new Set(ends.map(({ said }) => said))).toEqual(new Set(['done']));
    expect([dials, upstream?.sessions.length]).toEqual([1, 1]);
  });

  it('is for each of them where the upstream turns out to speak HTTP/1.1', async () => {
    await serve({ tls: outside, alpn: ['http/1.1'] });
    const ends = await Promise.all(Array.from({ length: 5 }, () => go(exchange('h2'))));
    expect(new Set(ends.map(({ said }) => said))).toEqual(new Set(['done']));
    expect(upstream?.seen).toHaveLength(5);
    expect(dials).toBeLessThanOrEqual(5);
  });

  it('that is given up by the one who began it is begun anew by the next', async () => {
    await serve({ tls: outside });
    let opened: () => void = () => undefined;
    gate = new Promise<void>((resolve) => (opened = resolve));
    const first = exchange('h2');
    const second = exchange('h2');
    const ends = [go(first), go(second)];
    await turn();
    expect(dials).toBe(1);
    first.reply.sandboxLeaves();
    opened();
    expect((await Promise.all(ends)).map(({ said }) => said)).toEqual(['client_closed', 'done']);
    expect(dials).toBe(2);
  });

  it('that fails fails all who wait for it', async () => {
    const broken = await startRaw((socket) => socket.destroy());
    port = broken.port;
    const ends = await Promise.all([go(exchange('h2')), go(exchange('h2')), go(exchange('h2'))]);
    expect(ends.map(({ said }) => said)).toEqual(['upstream_tls', 'upstream_tls', 'upstream_tls']);
    expect(dials).toBe(1);
    await broken.close();
  });

  it('is not waited for by a sandbox that leaves', async () => {
    await serve({ tls: outside });
    let opened: () => void = () => undefined;
    gate = new Promise<void>((resolve) => (opened = resolve));
    const first = go(exchange('h2'));
    const second = exchange('h2');
    const left = go(second);
    await turn();
    second.reply.sandboxLeaves();
    expect((await left).said).toBe('client_closed');
    opened();
    expect((await first).said).toBe('done');
    expect(upstream?.seen).toHaveLength(1);
  });

  it('to an upstream that never says what it takes holds nobody for longer than a connect may take', async () => {
    // Takes the handshake, and says nothing.
    const silent = await startRaw((socket) => {
      new tls.TLSSocket(socket, { isServer: true, ...outside.credentials('api.test'), ALPNProtocols: ['h2'] }).on(
        'error',
        () => undefined,
      );
    });
    port = silent.port;
    const limits = { ...TEST_LIMITS, connectMs: 400, replyMs: 300 };
    const first = go(exchange('h2'), limits);
    while (lanes.size === 0) await turn();
    // It is there, and takes nobody else as long as nobody knows how many it may take.
    const second = go(exchange('h2'), limits);
    expect([(await first).said, (await second).said]).toEqual(['upstream_timeout', 'upstream_timeout']);
    expect(dials).toBe(2);
    lanes.destroy();
    await silent.close();
  });
});

describe('a WebSocket goes on', () => {
  const accept = (proof: (key: string) => string): NonNullable<Http2UpstreamOptions['onUpgrade']> => {
    return (request, socket) => {
      const key = request.headers['sec-websocket-key'] ?? '';
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${proof(key)}\r\nfrom the upstream`,
      );
      socket.on('data', (chunk: Buffer) => socket.end(chunk));
    };
  };
  const proven = (key: string): string => `Sec-WebSocket-Accept: ${acceptOf(key)}\r\n`;

  it.each<{ name: string; from: Spoken }>([
    { name: 'of HTTP/1.1 over HTTP/1.1, though both are there', from: 'http/1.1' },
    { name: 'of HTTP/2 over HTTP/1.1 where no session is there, with a key of its own', from: 'h2' },
  ])('$name', async ({ from }) => {
    await serve({ tls: outside, alpn: BOTH, onUpgrade: accept(proven) });
    const arrival = upgrade(from);
    const going = go(arrival);
    const got = await once(arrival.reply.sandboxEnd, 'data');
    expect(String(got[0])).toBe('from the upstream');
    arrival.reply.sandboxEnd.destroy();
    await going;
    const [seen] = upstream?.seen ?? [];
    expect([seen?.spoken, seen?.method]).toEqual(['http/1.1', 'GET']);
    expect(valuesOf(seen?.fields ?? [], 'sec-websocket-key')).toHaveLength(1);
    expect(valuesOf(seen?.fields ?? [], 'upgrade')).toEqual(['websocket']);
  });

  it.each([
    { name: 'no proof', proof: () => '' },
    { name: 'the proof of another key', proof: () => proven('dGhlIHNhbXBsZSBub25jZQ==') },
    { name: 'two proofs', proof: (key: string) => proven(key) + proven(key) },
  ])('nowhere, from HTTP/2 to HTTP/1.1, with $name', async ({ proof }) => {
    await serve({ tls: outside, alpn: ['http/1.1'], onUpgrade: accept(proof) });
    const arrival = upgrade('h2');
    expect((await go(arrival)).said).toBe('upstream_protocol');
    expect(arrival.reply.headSent).toBe(false);
  });

  it.each<{ name: string; from: Spoken; takes: boolean; expected: Spoken }>([
    { name: 'of HTTP/2 on a session that takes it', from: 'h2', takes: true, expected: 'h2' },
    { name: 'of HTTP/2 over HTTP/1.1 where the session takes none', from: 'h2', takes: false, expected: 'http/1.1' },
    { name: 'of HTTP/1.1 on a session that takes it', from: 'http/1.1', takes: true, expected: 'h2' },
    { name: 'of HTTP/1.1 over HTTP/1.1 where the session takes none', from: 'http/1.1', takes: false, expected: 'http/1.1' },
  ])('$name', async ({ from, takes, expected }) => {
    await serve({
      tls: outside,
      alpn: BOTH,
      settings: { enableConnectProtocol: takes },
      onUpgrade: accept(proven),
      raw: (stream, seen) => {
        if (seen.protocol === undefined) echoStream(stream, seen);
        else {
          stream.respond({ ':status': 200 });
          stream.end('from the upstream');
        }
      },
    });
    expect((await go(exchange('h2'))).said).toBe('done');
    const arrival = upgrade(from);
    const going = go(arrival);
    const got = await once(arrival.reply.sandboxEnd, 'data');
    expect(String(got[0])).toBe('from the upstream');
    arrival.reply.sandboxEnd.destroy();
    const { trace } = await going;
    expect([trace.status, spoken().at(-1)]).toEqual([101, expected]);
  });
});

describe('a session that has gone silent', () => {
  it('is left to those who are on it: whoever comes after a deadline on it goes on another', async () => {
    await serve({ tls: outside, raw: (stream, seen) => (seen.path === '/lost' ? undefined : echoStream(stream, seen)) });
    const limits = { ...TEST_LIMITS, replyMs: 300 };
    const said: string[] = [];
    for (const target of ['/', '/lost', '/']) said.push((await go(exchange('h2', { target }), limits)).said);
    expect(said).toEqual(['done', 'upstream_timeout', 'done']);
    expect(upstream?.sessions).toHaveLength(2);
  });
});

describe('what was found of an upstream', () => {
  it('is forgotten when the configuration changes', async () => {
    await serve({ tls: outside });
    for (const reload of [false, true, false]) {
      if (reload) lanes.retire();
      expect((await go(exchange('http/1.1'))).said).toBe('done');
    }
    // An alert and a session, twice.
    expect(dials).toBe(4);
  });

  it('is not what an answer says that was no answer, where the body has begun', async () => {
    await serve({ tls: outside, alpn: [] });
    const body = new PassThrough();
    body.end('begun');
    const arrival = exchange('http/1.1', { method: 'POST', more: ['Content-Length', '5'], body });
    expect((await go(arrival)).said).toBe('upstream_protocol');
    expect(upstream?.seen).toEqual([]);
  });
});
