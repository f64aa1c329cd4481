// The HTTP/2 door on a real port: what of a stream becomes an arrival, and what a hostile session comes to.
import { once } from 'node:events';
import http2 from 'node:http2';
import type { ClientHttp2Session } from 'node:http2';
import type { Duplex } from 'node:stream';
import tls from 'node:tls';
import { afterEach, describe, expect, it } from 'vitest';
import type { ExchangeArrival } from '../../src/exchange/stages.ts';
import {
  CODE,
  describeFrame,
  FLAG,
  FRAME,
  frame,
  PREFACE,
  section,
  settings,
  speakFrames,
  uint32,
} from '../support/h2-frames.ts';
import type { FrameClient } from '../support/h2-frames.ts';
import { answerOf, exchange, openPlainSession, openProxySession, openSession, speakHttp2 } from '../support/http2-client.ts';
import { connectTo, openSecureTunnel, openTunnel, readAnswer, sendRaw } from '../support/sandbox-client.ts';
import { answerAll, openRig, targetOf } from './rig.ts';
import type { Rig } from './rig.ts';

let rig: Rig;

afterEach(() => rig.close());

const GET = { ':path': '/', ':authority': 'api.test' };

/** A session in raw frames, its SETTINGS exchanged. */
async function openFrames(to: Rig, stream?: Duplex): Promise<FrameClient> {
  const client = speakFrames(stream ?? (await connectTo(to.port)));
  client.send(PREFACE, frame(FRAME.settings, 0));
  await client.frame(({ type, flags }) => type === FRAME.settings && flags === 0);
  client.send(frame(FRAME.settings, 0, { flags: FLAG.ack }));
  return client;
}

const HEAD: readonly (readonly [string, string])[] = [
  [':method', 'GET'],
  [':path', '/'],
  [':scheme', 'http'],
  [':authority', 'api.test'],
];

function request(id: number, fields: readonly (readonly [string, string])[] = HEAD, flags: number = FLAG.endStream): Buffer {
  return frame(FRAME.headers, id, { flags: FLAG.endHeaders | flags, payload: section(fields) });
}

function post(id: number): Buffer {
  return request(id, [[':method', 'POST'], ...HEAD.slice(1)], 0);
}

describe('a stream', () => {
  it('is an arrival from the port, with all that it said', async () => {
    rig = await openRig();
    const client = await openFrames(rig);
    client.send(
      request(1, [...HEAD, ['x-a', '1'], ['cookie', 'a=1'], ['x-b', '2'], ['cookie', 'b=2'], ['x-a', '3'], ['cookie', 'c=3']]),
    );
    await client.frame(({ type }) => type === FRAME.headers);
    client.stream.destroy();
    expect(rig.arrivals).toHaveLength(1);
    expect(rig.arrivals[0]).toMatchObject({
      purpose: 'exchange',
      door: 'proxy',
      protocol: 'h2',
      version: '2.0',
      method: 'GET',
      target: '/',
      pseudo: { scheme: 'http', authority: 'api.test' },
      fields: ['x-a', '1', 'cookie', 'a=1; b=2; c=3', 'x-b', '2', 'x-a', '3'],
      trouble: undefined,
      ceiling: undefined,
      client: '127.0.0.1',
      body: undefined,
    });
  });

  it('has a body unless it ends with its head', async () => {
    let body = '';
    rig = await openRig(async (arrival) => {
      (arrival as ExchangeArrival).body?.on('data', (chunk: Buffer) => (body += chunk.toString()));
      if ((arrival as ExchangeArrival).body !== undefined) await once((arrival as ExchangeArrival).body!, 'end');
      await answerAll(arrival);
    });
    const session = await openProxySession(rig);
    expect((await exchange(session, { ...GET, ':method': 'POST' }, 'hello')).status).toBe(200);
    expect(body).toBe('hello');
    expect((await exchange(session, { ...GET, ':method': 'POST' })).status).toBe(200);
    expect((rig.arrivals[1] as ExchangeArrival).body).toBeUndefined();
    session.destroy();
  });

  it('whose upload is cut short never seems whole', async () => {
    const ends: string[] = [];
    let left: () => void;
    const gone = (): Promise<void> => new Promise((resolve) => (left = resolve));
    rig = await openRig((arrival) => {
      const { body, reply } = arrival as ExchangeArrival;
      reply.listen({ drained: () => undefined, gone: () => void ends.push('gone') });
      body?.on('data', () => undefined).on('error', () => undefined);
      body?.on('end', () => ends.push('end')).on('close', () => left());
    });
    const cuts = [
      (client: FrameClient) => client.send(frame(FRAME.reset, 1, { payload: uint32(CODE.cancel) })),
      (client: FrameClient) => client.send(frame(FRAME.reset, 1, { payload: uint32(CODE.none) })),
      (client: FrameClient) => client.stream.end(),
      (client: FrameClient) => client.stream.destroy(),
      (client: FrameClient) => client.send(frame(FRAME.goaway, 0, { payload: uint32(0, CODE.protocol) })),
    ];
    for (const cut of cuts) {
      const client = await openFrames(rig);
      const closed = gone();
      client.send(post(1), frame(FRAME.data, 1, { payload: Buffer.from('hello') }));
      await rig.arrival(() => true, rig.arrivals.length);
      cut(client);
      await closed;
      client.stream.destroy();
    }
    expect(ends).toEqual(cuts.map(() => 'gone'));
  });

  it('taken back at once is over at once, and the next one is answered', async () => {
    const over: string[] = [];
    rig = await openRig((arrival) => {
      arrival.reply.listen({ drained: () => undefined, gone: () => void over.push(arrival.target) });
      setImmediate(() => void answerAll(arrival));
    });
    const client = await openFrames(rig);
    client.send(request(1), frame(FRAME.reset, 1, { payload: uint32(CODE.cancel) }), request(3));
    await client.frame(({ type, stream }) => type === FRAME.headers && stream === 3);
    expect(over).toEqual(['/']);
    client.stream.destroy();
  });

  it.each([
    {
      name: 'an extended CONNECT to WebSocket',
      protocol: 'websocket',
      arrival: { purpose: 'upgrade', protocol: 'websocket', method: 'GET', target: '/chat', trouble: undefined },
    },
    {
      name: 'an extended CONNECT to anything else',
      protocol: 'connect-udp',
      arrival: { purpose: 'exchange', protocol: 'h2', trouble: { code: 'bad_request' }, body: undefined },
    },
  ])('that is $name is what it says', async ({ protocol, arrival }) => {
    rig = await openRig((each) => {
      each.reply.head(403, '', []);
      each.reply.end();
    });
    const session = await openProxySession(rig);
    await once(session, 'remoteSettings');
    expect(session.remoteSettings).toMatchObject({ enableConnectProtocol: true, maxConcurrentStreams: 100 });
    const fields = {
      ':method': 'CONNECT',
      ':protocol': protocol,
      ':scheme': 'https',
      ':path': '/chat',
      ':authority': 'api.test',
    };
    expect((await exchange(session, fields, '')).status).toBe(403);
    expect(rig.arrivals[0]).toMatchObject({ ...arrival, pseudo: { scheme: 'https', authority: 'api.test' } });
    session.destroy();
  });
});

// fault J06
describe('sizes', () => {
  /** A session whose own library lets large sections out. */
  function openGenerous(to: Rig): ClientHttp2Session {
    const session = http2.connect(`http://127.0.0.1:${to.port}`, { maxSendHeaderBlockLength: 1_000_000 });
    return session.on('error', () => undefined);
  }

  const rows: { name: string; fields: [string, string][]; trouble?: string }[] = [
    {
      name: 'a section of 60 KiB',
      fields: [
        ['x-a', 'x'.repeat(30_000)],
        ['x-b', 'x'.repeat(30_000)],
      ],
    },
    {
      name: 'a section of 70 KiB',
      fields: [
        ['x-a', 'x'.repeat(35_000)],
        ['x-b', 'x'.repeat(35_000)],
      ],
      trouble: 'headers_too_large',
    },
    // Left to intake, which counts fields of every protocol.
    { name: 'a section of 1,500 fields', fields: Array.from({ length: 1500 }, (_, i) => [`x-${i}`, '1']) },
  ];

  it.each(rows)('$name comes in, with its trouble', async ({ fields, trouble }) => {
    rig = await openRig();
    const session = openGenerous(rig);
    const got = await exchange(session, { ...GET, ...Object.fromEntries(fields) });
    expect([got.status, got.headers['x-trouble']]).toEqual([trouble === undefined ? 200 : 400, trouble]);
    expect(rig.arrivals[0]!.fields.length / 2).toBe(fields.length);
    session.destroy();
  });

  it.each([
    {
      name: 'a section of 200 KiB',
      fields: Array.from({ length: 8 }, (_, i): [string, string] => [`x-${i}`, 'x'.repeat(25_000)]),
    },
    { name: 'a section of 3,000 fields', fields: Array.from({ length: 3000 }, (_, i): [string, string] => [`x-${i}`, '1']) },
  ])('$name is reset by the library', async ({ fields }) => {
    rig = await openRig();
    const session = openGenerous(rig);
    const got = await exchange(session, { ...GET, ...Object.fromEntries(fields) });
    expect(got.status).toBe(0);
    expect(got.reset).not.toBe(0);
    expect(rig.arrivals).toHaveLength(0);
    session.destroy();
  });
});

describe('a tunnel', () => {
  it('may carry HTTP/2 in TLS, settled on in the handshake', async () => {
    rig = await openRig();
    const session = await openSession(rig, 'api.test:443');
    expect(session.alpnProtocol).toBe('h2');
    expect((await exchange(session, { ':path': '/a' })).body).toBe('/a');
    expect((await exchange(session, { ':path': '/b' })).body).toBe('/b');
    expect(rig.arrivals.slice(1)).toMatchObject(
      [1, 2].map(() => ({
        door: 'tunnel',
        protocol: 'h2',
        client: '127.0.0.1',
        ceiling: { scheme: 'https', authority: { host: 'api.test', port: 443 } },
      })),
    );
    session.close();
  });

  it('may carry HTTP/2 in the clear', async () => {
    rig = await openRig();
    const session = await openPlainSession(rig, 'api.test:80');
    expect((await exchange(session, { ':path': '/a' })).body).toBe('/a');
    expect(rig.arrivals[1]).toMatchObject({
      door: 'tunnel',
      protocol: 'h2',
      ceiling: { scheme: 'http', authority: { host: 'api.test', port: 80 } },
    });
    session.close();
  });

  it('carries HTTP/1.1 for a client that does not offer HTTP/2, or nothing', async () => {
    rig = await openRig();
    for (const offered of [['http/1.1'], undefined]) {
      const stream = await openSecureTunnel(rig, 'api.test:443', { tls: { ALPNProtocols: offered } });
      stream.write('GET /a HTTP/1.1\r\nHost: api.test\r\n\r\n');
      expect((await readAnswer(stream)).body).toBe('/a');
      stream.destroy();
    }
  });

  it('in pieces is told apart all the same', async () => {
    rig = await openRig();
    for (const open of [() => connectTo(rig.port), async () => (await openTunnel(rig, 'api.test:80')).socket]) {
      const stream = await open();
      for (const byte of PREFACE) {
        stream.write(Buffer.from([byte]));
        await new Promise(setImmediate);
      }
      const client = speakFrames(stream.resume());
      client.send(frame(FRAME.settings, 0), request(1));
      await client.frame(({ type }) => type === FRAME.headers);
      stream.destroy();
    }
    expect((await sendRaw(rig.port, 'PROPFIND /x HTTP/1.1\r\nHost: a\r\n\r\n')).body).toBe('/x');
  });
});

describe('a CONNECT on a stream', () => {
  /** The stream of a CONNECT that was answered 200. */
  async function connect(session: ClientHttp2Session, authority: string): Promise<Duplex> {
    const stream = session.request(
      { ':method': 'CONNECT', ':authority': authority, 'proxy-authorization': 'Basic abc' },
      { endStream: false },
    );
    stream.on('error', () => undefined);
    const [headers] = (await once(stream, 'response')) as [Record<string, unknown>];
    expect(headers[':status']).toBe(200);
    return stream;
  }

  it('carries TLS with HTTP/1.1 or HTTP/2, and either in the clear', async () => {
    rig = await openRig();
    const session = await openProxySession(rig);
    const plain = await connect(session, 'api.test:80');
    plain.write('GET /plain HTTP/1.1\r\nHost: api.test\r\n\r\n');
    expect((await readAnswer(plain)).body).toBe('/plain');
    const clear = speakHttp2(await connect(session, 'api.test:80'), 'api.test:80', 'http');
    expect((await exchange(clear, { ':path': '/clear' })).body).toBe('/clear');
    for (const alpn of ['http/1.1', 'h2']) {
      const secured = tls.connect({
        socket: await connect(session, 'api.test:443'),
        servername: 'api.test',
        ca: rig.ca,
        ALPNProtocols: [alpn],
      });
      secured.on('error', () => undefined);
      await once(secured, 'secureConnect');
      if (alpn === 'h2')
        expect((await exchange(speakHttp2(secured, 'api.test:443'), { ':path': '/secure' })).body).toBe('/secure');
      else {
        secured.write('GET /secure HTTP/1.1\r\nHost: api.test\r\n\r\n');
        expect((await readAnswer(secured)).body).toBe('/secure');
      }
    }
    const tunnels = rig.arrivals.filter(({ purpose }) => purpose === 'tunnel');
    expect(tunnels.map(({ target, pseudo, protocol, door }) => [target, pseudo, protocol, door])).toEqual(
      ['api.test:80', 'api.test:80', 'api.test:443', 'api.test:443'].map((target) => [target, undefined, 'h2', 'proxy']),
    );
    const inside = rig.arrivals.filter(({ purpose }) => purpose === 'exchange');
    expect(inside.map(({ protocol }) => protocol)).toEqual(['http/1.1', 'h2', 'http/1.1', 'h2']);
    for (const { ceiling, client } of inside) {
      expect(client).toBe('127.0.0.1');
      expect(ceiling?.identity).toBe('Basic abc');
    }
    session.destroy();
  });

  it('tells how its tunnel ended, and ends with its stream', async () => {
    let end: unknown;
    let ended: () => void;
    const over = new Promise<void>((resolve) => (ended = resolve));
    rig = await openRig(async (arrival) => {
      if (arrival.purpose !== 'tunnel') return answerAll(arrival);
      end = await arrival.open(targetOf(arrival), false);
      ended();
    });
    const session = await openProxySession(rig);
    const stream = await connect(session, 'api.test:80');
    stream.write('neither TLS nor HTTP\r\n');
    await over;
    expect(end).toMatchObject({ carried: 0, verdict: { code: 'bad_request' } });
    await once(stream.resume(), 'close');
    session.destroy();
  });

  it('in a tunnel is in trouble', async () => {
    rig = await openRig(async (arrival) => {
      if (arrival.purpose === 'tunnel' && arrival.trouble === undefined) await arrival.open(targetOf(arrival), false);
      else if (arrival.purpose === 'tunnel') {
        arrival.reply.head(400, '', []);
        arrival.reply.end();
      }
    });
    const session = await openSession(rig, 'api.test:443');
    const stream = session.request({ ':method': 'CONNECT', ':authority': 'other.test:443' });
    expect((await answerOf(stream)).status).toBe(400);
    expect(rig.arrivals[1]).toMatchObject({
      purpose: 'tunnel',
      trouble: { code: 'bad_request', detail: 'CONNECT inside a tunnel' },
    });
    session.destroy();
  });
});

describe('a session', () => {
  const silent = (): void => undefined;

  it('takes no more streams at once than it says, and they do not wait for each other', async () => {
    const held: ExchangeArrival[] = [];
    rig = await openRig(
      (arrival) => (arrival.target === '/held' ? void held.push(arrival as ExchangeArrival) : answerAll(arrival)),
      { streams: 3 },
    );
    const session = await openProxySession(rig);
    await once(session, 'remoteSettings');
    expect(session.remoteSettings.maxConcurrentStreams).toBe(3);
    const two = [1, 2].map(() => exchange(session, { ...GET, ':path': '/held' }));
    expect((await exchange(session, { ...GET, ':path': '/free' })).status).toBe(200);
    const client = await openFrames(rig);
    client.send(...[1, 3, 5, 7].map((id) => request(id, [[':method', 'GET'], [':path', '/held'], ...HEAD.slice(2)])));
    const refused = await client.frame(({ type }) => type === FRAME.reset || type === FRAME.goaway);
    // Node ends the session of a sandbox that knows the limit and does not heed it.
    expect(['RST_STREAM refused', 'RST_STREAM protocol', 'RST_STREAM internal', 'GOAWAY protocol']).toContain(
      describeFrame(refused),
    );
    for (const { reply } of held) {
      reply.head(200, '', []);
      reply.end();
    }
    await Promise.all(two);
    session.destroy();
    client.stream.destroy();
  });

  it('is closed when it is idle for too long, but not while an answer is on the way', async () => {
    rig = await openRig((arrival) => (arrival.target === '/held' ? undefined : answerAll(arrival)), { keepAliveMs: 200 });
    const busy = await openProxySession(rig);
    const stream = busy.request({ ...GET, ':path': '/held' });
    stream.on('error', silent);
    const [idle, never] = [await openProxySession(rig), await openFrames(rig)];
    expect((await exchange(idle, GET)).status).toBe(200);
    await Promise.all([once(idle, 'close'), never.ended]);
    never.stream.end();
    expect(busy.destroyed).toBe(false);
    const { reply } = await rig.arrival(({ target }) => target === '/held');
    reply.head(200, '', []);
    reply.end();
    expect((await answerOf(stream)).reset).toBe(0);
    await once(busy, 'close');
  });

  it('that is over does not wait for its sandbox to close the connection', async () => {
    rig = await openRig(answerAll, { keepAliveMs: 100 });
    const socket = await connectTo(rig.port);
    socket.write(Buffer.concat([PREFACE, frame(FRAME.settings, 0)]));
    await once(socket.resume(), 'end');
    // This side stays open.
    await rig.emptied();
    socket.destroy();
  });

  it('that Node has ended for a frame that nobody can read does not keep its streams', async () => {
    rig = await openRig(silent, { bodyIdleMs: 400 });
    const client = await openFrames(rig);
    client.send(request(1));
    const { reply } = await rig.arrival(() => true);
    const gone = new Promise<void>((resolve) => reply.listen({ drained: silent, gone: () => resolve() }));
    client.send(Buffer.alloc(64, 'x'));
    expect(describeFrame(await client.frame(({ type }) => type === FRAME.goaway))).toBe('GOAWAY frameSize');
    await gone;
    await client.ended;
    client.stream.destroy();
  });

  it('with an answer that nobody takes loses that stream', async () => {
    rig = await openRig(
      (arrival) => {
        arrival.reply.head(200, '', []);
        arrival.reply.write(Buffer.alloc(300_000, 'x'));
        arrival.reply.end();
      },
      { bodyIdleMs: 300 },
    );
    const session = await openProxySession(rig);
    const stream = session.request(GET);
    stream.on('error', silent);
    await once(stream, 'response');
    // Nothing of it is read.
    await once(session.request({ ...GET, ':method': 'HEAD' }).resume(), 'close');
    await once(stream, 'aborted').catch(silent);
    expect(stream.rstCode).toBe(2);
    session.destroy();
  });

  it('is told at a drain to come again, and its streams end well', async () => {
    rig = await openRig((arrival) => (arrival.target === '/held' ? undefined : answerAll(arrival)));
    const inTunnel = await openSession(rig, 'api.test:443');
    const onPort = await openProxySession(rig);
    const sessions = [inTunnel, onPort];
    const idle = await openProxySession(rig);
    expect((await exchange(idle, GET)).status).toBe(200);
    const held = sessions.map((each) => exchange(each, { ...GET, ':path': '/held' }));
    await rig.arrival(({ target, door }) => target === '/held' && door === 'proxy');
    await rig.arrival(({ target, door }) => target === '/held' && door === 'tunnel');
    const told = [...sessions, idle].map((each) => once(each, 'goaway'));
    const drained = rig.drain(5000);
    expect((await Promise.all(told)).map(([code]) => code as number)).toEqual([0, 0, 0]);
    for (const { reply, target } of rig.arrivals) {
      if (target !== '/held') continue;
      reply.head(200, '', []);
      reply.end();
    }
    expect((await Promise.all(held)).map(({ status, reset }) => [status, reset])).toEqual([
      [200, 0],
      [200, 0],
    ]);
    await drained;
    expect(rig.open).toBe(0);
  });

  it('whose streams do not end is cut at the end of a drain', async () => {
    const left: string[] = [];
    rig = await openRig((arrival) => {
      if (arrival.purpose === 'tunnel') return answerAll(arrival);
      arrival.reply.listen({ drained: silent, gone: () => void left.push(arrival.door) });
    });
    const sessions = [await openSession(rig, 'api.test:443'), await openProxySession(rig)];
    const held = sessions.map((each) => exchange(each, GET));
    await rig.arrival(({ purpose, door }) => purpose === 'exchange' && door === 'proxy');
    await rig.arrival(({ purpose, door }) => purpose === 'exchange' && door === 'tunnel');
    await rig.drain(100);
    expect(left.sort()).toEqual(['proxy', 'tunnel']);
    for (const { status } of await Promise.all(held)) expect(status).toBe(0);
  });
});

// Whatever a sandbox makes of its session, the others are served.
describe('a session that is abused', () => {
  const many = (count: number, make: (index: number) => Buffer): Buffer =>
    Buffer.concat(Array.from({ length: count }, (_, i) => make(i)));
  const ping = frame(FRAME.ping, 0, { payload: Buffer.alloc(8) });
  const cancel = (id: number): Buffer => frame(FRAME.reset, id, { payload: uint32(CODE.cancel) });

  const rows: { name: string; bytes: () => Buffer; rounds?: number }[] = [
    {
      name: 'takes back 10,000 streams',
      bytes: () => many(10_000, (i) => Buffer.concat([request(3 + 2 * i), cancel(3 + 2 * i)])),
    },
    { name: 'asks with 40,000 PINGs and does not read', bytes: () => many(40_000, () => ping) },
    {
      name: 'changes its SETTINGS 10,000 times',
      bytes: () => many(10_000, () => frame(FRAME.settings, 0, { payload: settings([3, 5]) })),
    },
    {
      name: 'continues its fields for ever',
      bytes: () =>
        Buffer.concat([
          frame(FRAME.headers, 3, { payload: section(HEAD) }),
          many(5000, () => frame(FRAME.continuation, 3, { payload: section([['x-a', '1']]) })),
        ]),
    },
    {
      name: 'sends a body of 10,000 empty frames',
      bytes: () => Buffer.concat([post(3), many(10_000, () => frame(FRAME.data, 3))]),
    },
    {
      name: 'sends 300 requests that are no HTTP',
      bytes: () => many(300, (i) => request(3 + 2 * i, [...HEAD, ['connection', 'close']])),
    },
    {
      name: 'has its streams reset by what it does to them',
      bytes: () =>
        many(2000, (i) =>
          Buffer.concat([post(3 + 2 * i), frame(FRAME.windowUpdate, 3 + 2 * i, { payload: uint32(0x7fffffff) })]),
        ),
    },
  ];

  it.each(rows)('by one that $name ends, and others are served', async ({ bytes }) => {
    rig = await openRig((arrival) => (arrival.target === '/served' ? answerAll(arrival) : undefined));
    const client = await openFrames(rig);
    client.send(bytes());
    await client.frame(({ type }) => type === FRAME.goaway).catch(() => undefined);
    client.stream.destroy();
    const session = await openProxySession(rig);
    expect((await exchange(session, { ...GET, ':path': '/served' })).status).toBe(200);
    session.destroy();
    expect(rig.arrivals.length).toBeLessThan(2000);
  });

  it('by PINGs that are always answered ends, too', async () => {
    rig = await openRig();
    const client = await openFrames(rig);
    let asked = 0;
    while (!client.stream.destroyed && !client.stream.readableEnded && asked < 500_000) {
      client.send(many(900, () => ping));
      asked += 900;
      const answered = asked;
      await Promise.race([client.ended, client.frame(() => client.frames.length >= answered)]).catch(() => undefined);
    }
    expect(asked).toBeLessThan(500_000);
    client.stream.destroy();
  });

  it('by bytes without sense ends, and takes nothing along', async () => {
    rig = await openRig(answerAll, { connections: 1000, keepAliveMs: 400 });
    let seed = 7;
    const random = (below: number): number => (seed = (seed * 1103515245 + 12345) % 2147483648) % below;
    for (let round = 0; round < 150; round += 1) {
      const client = await openFrames(rig);
      const frames = many(20, () => {
        const payload = Buffer.from(Array.from({ length: random(60) }, () => random(256)));
        const lie = random(10) === 0 ? random(20_000) : payload.length;
        return frame(random(12), random(3) === 0 ? 0 : random(9), { flags: random(256), payload, length: lie });
      });
      client.send(request(1), frames, Buffer.from(Array.from({ length: 100 }, () => random(256))));
      client.stream.end();
      await Promise.race([client.ended, client.frame(({ type }) => type === FRAME.goaway).catch(() => undefined)]);
      client.stream.destroy();
    }
    const session = await openProxySession(rig);
    expect((await exchange(session, { ...GET, ':path': '/served' })).status).toBe(200);
    session.destroy();
    await rig.emptied();
  });
});
