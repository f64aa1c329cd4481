// A reply over HTTP/2, as a sandbox's client sees it: real sessions on a real port, the test in the place of the journey.
import { once } from 'node:events';
import http2 from 'node:http2';
import type { ClientHttp2Session, ClientHttp2Stream } from 'node:http2';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ReplyListener, ReplyPort } from '../../src/exchange/reply-port.ts';
import type { ExchangeArrival, UpgradeArrival } from '../../src/exchange/stages.ts';
import { answerOf, exchange, openProxySession } from '../support/http2-client.ts';
import { openRig } from './rig.ts';
import type { Rig } from './rig.ts';

let rig: Rig;
let session: ClientHttp2Session;
/** Answers the next arrival */
let answer: (reply: ReplyPort, arrival: ExchangeArrival | UpgradeArrival) => void;

beforeEach(async () => {
  rig = await openRig((arrival) => answer(arrival.reply, arrival as ExchangeArrival));
  session = await openProxySession(rig);
});

afterEach(async () => {
  session.destroy();
  await rig.close();
});

const GET = { ':path': '/', ':authority': 'api.test' };
const POST = { ...GET, ':method': 'POST' };

/** A listener that notes what it hears. */
function noting(): ReplyListener & { readonly heard: string[]; readonly left: Promise<void> } {
  const heard: string[] = [];
  let left: () => void;
  const gone = new Promise<void>((resolve) => (left = resolve));
  return {
    heard,
    left: gone,
    drained: () => void heard.push('drained'),
    gone: () => {
      heard.push('gone');
      left();
    },
  };
}

describe('a head', () => {
  it('goes out at once, before any byte of a body', async () => {
    let end = (): void => undefined;
    answer = (reply) => {
      reply.head(200, 'OK', ['Content-Type', 'text/event-stream']);
      end = () => reply.end();
    };
    const stream = session.request(GET);
    const [headers] = (await once(stream, 'response')) as [Record<string, unknown>];
    expect(headers[':status']).toBe(200);
    end();
    stream.resume();
    await once(stream, 'close');
  });

  const rows: { name: string; status?: number; fields: string[]; raw: string[] }[] = [
    { name: 'has its names in lower case', fields: ['X-One', 'A'], raw: ['x-one', 'A'] },
    {
      name: 'keeps every value of a name',
      fields: ['Set-Cookie', 'a=1', 'X-B', '1', 'Set-Cookie', 'b=2', 'x-b', '2'],
      raw: ['set-cookie', 'a=1', 'set-cookie', 'b=2', 'x-b', '1', 'x-b', '2'],
    },
    {
      name: 'joins the values of a field that may be there once',
      fields: ['Location', '/a', 'location', '/b', 'ETag', '"x"', 'ETag', '"x"'],
      raw: ['location', '/a, /b', 'etag', '"x"'],
    },
    {
      name: 'has no field that belongs to a connection',
      fields: [
        'Connection',
        'x',
        'Keep-Alive',
        'y',
        'Proxy-Connection',
        'z',
        'Transfer-Encoding',
        'chunked',
        'Upgrade',
        'u',
        'TE',
        'trailers',
        'X-A',
        '1',
      ],
      raw: ['x-a', '1'],
    },
    { name: 'has no Date of its own', fields: [], raw: [] },
    { name: 'keeps octets beyond ASCII', fields: ['X-A', 'caf\xe9'], raw: ['x-a', 'caf\xe9'] },
    {
      name: 'may be named as a property of every object',
      fields: ['Constructor', '1', '__proto__', '2'],
      raw: ['constructor', '1', '__proto__', '2'],
    },
    { name: 'of a 204 has no length', status: 204, fields: ['Content-Length', '5'], raw: [] },
    { name: 'of a 304 keeps its length', status: 304, fields: ['Content-Length', '5'], raw: ['content-length', '5'] },
  ];

  it.each(rows)('$name', async ({ status = 200, fields, raw }) => {
    answer = (reply) => {
      reply.head(status, '', fields);
      reply.write(Buffer.from([204, 304].includes(status) ? '' : 'body'));
      reply.end();
    };
    const got = await exchange(session, GET);
    expect([got.status, got.reset]).toEqual([status, 0]);
    expect(got.raw.slice(2)).toEqual(raw);
  });

  it('with a status that HTTP/2 has no room for is a 502', async () => {
    answer = (reply) => {
      reply.head(999, '', []);
      reply.end();
    };
    expect((await exchange(session, GET)).status).toBe(502);
  });

  it('of 100 KiB goes out', async () => {
    answer = (reply) => {
      reply.head(200, '', ['X-A', 'a'.repeat(30_000), 'X-B', 'b'.repeat(30_000), 'X-C', 'c'.repeat(40_000)]);
      reply.end();
    };
    session.destroy();
    session = http2.connect(`http://127.0.0.1:${rig.port}`, { settings: { maxHeaderListSize: 200_000 } });
    const got = await exchange(session, GET);
    expect([got.status, got.headers['x-c']]).toEqual([200, 'c'.repeat(40_000)]);
  });

  it('that HTTP/2 has no way to write cuts the stream', async () => {
    answer = (reply) => {
      reply.head(200, '', ['X A', '1']);
      reply.write(Buffer.from('never'));
      reply.end();
    };
    expect(await exchange(session, GET)).toMatchObject({ status: 0, reset: 2, body: '' });
  });

  it('of an answer to HEAD ends the stream', async () => {
    answer = (reply) => {
      reply.head(200, '', ['Content-Length', '5']);
      reply.end();
    };
    const got = await exchange(session, { ...GET, ':method': 'HEAD' });
    expect(got).toMatchObject({ status: 200, body: '', reset: 0, headers: { 'content-length': '5' } });
  });
});

describe('what comes before a head', () => {
  it('is the 100 that the sandbox waits for, once, when the body is wanted', async () => {
    answer = (reply, arrival) => {
      reply.invite();
      reply.invite();
      (arrival as ExchangeArrival).body
        ?.on('data', () => undefined)
        .on('end', () => {
          reply.head(200, '', []);
          reply.end();
        });
    };
    const stream = session.request({ ...POST, expect: '100-continue' });
    const done = answerOf(stream);
    await once(stream, 'continue');
    stream.end('body');
    const got = await done;
    expect([got.status, got.hints.map((hint) => hint[':status'])]).toEqual([200, [100]]);
  });

  it('is no 100 where nobody waits for one', async () => {
    answer = (reply) => {
      reply.invite();
      reply.head(200, '', []);
      reply.end();
    };
    expect((await exchange(session, POST, 'body')).hints).toEqual([]);
  });

  it('is every hint, but no 101, and not more than a hundred', async () => {
    answer = (reply) => {
      reply.interim(101, []);
      for (let i = 0; i < 200; i += 1) reply.interim(103, ['Link', `</${i}>`]);
      reply.head(200, '', []);
      reply.interim(103, []);
      reply.end();
    };
    const { hints, status } = await exchange(session, GET);
    expect(status).toBe(200);
    expect(hints).toHaveLength(100);
    expect(hints[0]).toMatchObject({ ':status': 103, link: '</0>' });
  });
});

// fault I03
describe('trailers', () => {
  const rows = [
    { name: 'stand behind a body without a length', fields: [], ask: {}, trailers: { 'grpc-status': '0', 'x-two': '2' } },
    {
      name: 'stand behind a body with a length for a sandbox that says it reads them',
      fields: ['Content-Length', '4'],
      ask: { te: 'trailers' },
      trailers: { 'grpc-status': '0', 'x-two': '2' },
    },
    { name: 'are left out behind a body with a length otherwise', fields: ['Content-Length', '4'], ask: {}, trailers: undefined },
  ];

  it.each(rows)('$name', async ({ fields, ask, trailers }) => {
    answer = (reply) => {
      reply.head(200, '', fields);
      reply.write(Buffer.from('body'));
      reply.end(['Grpc-Status', '0', 'X-Two', '2', 'Connection', 'close']);
    };
    const got = await exchange(session, { ...GET, ...ask });
    expect(got).toMatchObject({ status: 200, body: 'body', reset: 0 });
    if (trailers === undefined) expect(got.trailers).toBeUndefined();
    else expect(got.trailers).toMatchObject(trailers);
    expect(got.trailers ?? {}).not.toHaveProperty('connection');
  });

  it('stand behind no body at all, too', async () => {
    answer = (reply) => {
      reply.head(200, '', []);
      reply.end(['X-T', '1']);
    };
    expect((await exchange(session, GET)).trailers).toMatchObject({ 'x-t': '1' });
  });

  it('that are the head of an answer to gRPC end the stream with it', async () => {
    answer = (reply) => {
      reply.head(200, '', ['Content-Type', 'application/grpc', 'Grpc-Status', '7']);
      setImmediate(() => reply.end());
    };
    const stream = session.request(GET);
    const done = answerOf(stream);
    const [, flags] = (await once(stream, 'response')) as [object, number];
    expect(flags & 1).toBe(1);
    expect(await done).toMatchObject({ status: 200, reset: 0, headers: { 'grpc-status': '7' } });
  });

  it('are not taken for the whole where a body comes after all', async () => {
    answer = (reply) => {
      reply.head(200, '', ['Grpc-Status', '0']);
      reply.write(Buffer.from('body'));
      reply.end(['X-T', '1']);
    };
    expect(await exchange(session, GET)).toMatchObject({ status: 200, body: 'body', trailers: { 'x-t': '1' } });
  });
});

describe('a body', () => {
  it('asks its writer to wait while the sandbox does not read, and to go on when it does', async () => {
    const listener = noting();
    const chunk = Buffer.alloc(64 * 1024, 'x');
    let sent = 0;
    answer = (reply) => {
      reply.listen(listener);
      reply.head(200, '', []);
      while (reply.write(chunk)) sent += chunk.length;
      sent += chunk.length;
      listener.drained = () => {
        listener.heard.push('drained');
        reply.end();
      };
    };
    const stream = session.request(GET);
    await once(stream, 'response');
    // The flow control of the stream lets 64 KiB out, and the rest waits.
    expect(sent).toBeLessThanOrEqual(256 * 1024);
    expect(listener.heard).toEqual([]);
    expect((await answerOf(stream)).body).toHaveLength(sent);
    expect(listener.heard).toEqual(['drained']);
  });

  // fault D10
  it.each([
    { name: 'without trailers', fields: [], trailers: undefined },
    { name: 'with a length', fields: ['Content-Length', '300000'], trailers: undefined },
    { name: 'with trailers', fields: [], trailers: ['X-T', '1'] },
  ])('that comes before the upload is whole is read whole, and ends the upload, $name', async ({ fields, trailers }) => {
    answer = (reply) => {
      reply.head(413, '', fields);
      reply.write(Buffer.alloc(300_000, 'x'));
      reply.end(trailers);
    };
    const stream = session.request(POST);
    stream.write('the beginning');
    const got = await answerOf(stream);
    expect([got.status, got.body.length, got.reset]).toEqual([413, 300_000, 0]);
    expect(got.trailers?.['x-t']).toBe(trailers === undefined ? undefined : '1');
    answer = (reply) => {
      reply.head(200, '', []);
      reply.end();
    };
    expect((await exchange(session, GET)).status).toBe(200);
  });

  it('that comes before an upload is read does not keep the stream', async () => {
    answer = (reply, arrival) => {
      (arrival as ExchangeArrival).body?.pause();
      reply.head(403, '', []);
      reply.end();
    };
    for (let i = 0; i < 300; i += 1) expect((await exchange(session, POST, 'unread'.repeat(100))).status).toBe(403);
  });
});

describe('a cut', () => {
  it('of an answer under way resets its stream and no other', async () => {
    answer = (reply, arrival) => {
      reply.head(200, '', []);
      reply.write(Buffer.from('some'));
      if (arrival.target === '/cut') setImmediate(() => reply.abort());
      else setTimeout(() => reply.end(), 50);
    };
    const [cut, whole] = await Promise.all([exchange(session, { ...GET, ':path': '/cut' }), exchange(session, GET)]);
    expect([cut.status, cut.body, cut.reset]).toEqual([200, 'some', 2]);
    expect([whole.status, whole.body, whole.reset]).toEqual([200, 'some', 0]);
  });

  it('before any answer resets the stream', async () => {
    answer = (reply) => reply.abort();
    expect(await exchange(session, GET)).toMatchObject({ status: 0, reset: 2 });
  });
});

describe('a sandbox that leaves', () => {
  const leavings: { name: string; leave: (stream: ClientHttp2Stream) => void }[] = [
    { name: 'resets its stream', leave: (stream) => stream.close(8) },
    { name: 'resets its stream as if nothing were wrong', leave: (stream) => stream.close(0) },
    { name: 'breaks its connection', leave: () => session.destroy() },
  ];

  it.each(leavings)('is told of where it $name, and every call after that is in vain', async ({ leave }) => {
    const listener = noting();
    let reply: ReplyPort | undefined;
    answer = (given) => {
      reply = given;
      given.listen(listener);
      given.head(200, '', []);
      given.write(Buffer.from('some'));
    };
    const stream = session.request(GET);
    stream.on('error', () => undefined);
    await once(stream, 'data');
    leave(stream);
    await listener.left;
    expect(listener.heard).toEqual(['gone']);
    expect(reply?.closed).toBe(true);
    reply?.interim(103, []);
    reply?.invite();
    reply?.head(200, '', []);
    expect(reply?.write(Buffer.from('x'))).toBe(true);
    reply?.end(['X-T', '1']);
    reply?.abort();
    expect(listener.heard).toEqual(['gone']);
  });

  it.each(leavings)('before the head is told of where it $name, of HEAD as well', async ({ leave }) => {
    for (const method of ['GET', 'HEAD']) {
      if (session.destroyed) session = await openProxySession(rig);
      const listener = noting();
      const arrived = new Promise<void>((resolve) => {
        answer = (reply) => {
          reply.listen(listener);
          resolve();
        };
      });
      const stream = session.request({ ...GET, ':method': method });
      stream.on('error', () => undefined);
      await arrived;
      leave(stream);
      await listener.left;
      expect(listener.heard).toEqual(['gone']);
    }
  });

  it('once its answer is whole is not told of', async () => {
    const listener = noting();
    answer = (reply) => {
      reply.listen(listener);
      reply.head(200, '', []);
      reply.end();
    };
    await exchange(session, GET);
    expect(listener.heard).toEqual([]);
  });
});

describe('a WebSocket', () => {
  it('is accepted with a 200 that proves nothing, and bytes go both ways until both have ended', async () => {
    answer = (reply) => {
      const stream = reply.switchProtocols('Switching Protocols', [
        'Sec-WebSocket-Accept',
        'x',
        'Sec-WebSocket-Protocol',
        'chat',
      ]);
      stream.on('data', (chunk: Buffer) => stream.write(`<${chunk.toString()}>`));
      stream.on('end', () => stream.end());
    };
    if (session.connecting) await once(session, 'connect');
    await once(session, 'remoteSettings');
    const stream = session.request(
      { ...GET, ':method': 'CONNECT', ':protocol': 'websocket', ':scheme': 'http' },
      { endStream: false },
    );
    const done = answerOf(stream);
    stream.write('hello');
    await once(stream, 'data');
    stream.end();
    const got = await done;
    expect(got).toMatchObject({ status: 200, body: '<hello>', reset: 0, headers: { 'sec-websocket-protocol': 'chat' } });
    expect(got.headers).not.toHaveProperty('sec-websocket-accept');
  });
});
