// HTTP/2 by its letter: frames that no library sends, in a tunnel and to the listener, each with the answer that RFC 9113 wants.
// A row closes with the proof that the house serves on: whatever a sandbox says, only its own connection suffers for it.
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import http2 from 'node:http2';
import type { Duplex } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { fieldsFor, get, TABLES } from '../support/h2-cases.ts';
import type { Way } from '../support/h2-cases.ts';
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
import type { Frame, FrameClient, Setting } from '../support/h2-frames.ts';
import { connectTo, openSecureTunnel } from '../support/sandbox-client.ts';

let outside: Outside;
let house: House;
let plain: Upstream;
let secure: Upstream;

beforeAll(async () => {
  outside = await openOutside();
  const answering = {
    answer: (seen: { readonly url: string; readonly body: string }, response: ServerResponse) => {
      if (!seen.url.startsWith('/hang')) response.end(`${seen.url} ${seen.body.length}`);
    },
  };
  plain = await startUpstream(answering);
  secure = await startUpstream({ tls: outside, ...answering });
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      limits: { streams: 10, timeouts: { keep_alive: '1s', body_idle: '2s' } },
      network: {
        allowlist: [
          { domain: 'api.test', ports: [secure.port], addresses: LOOPBACK },
          { domain: 'plain.test', ports: [plain.port], addresses: LOOPBACK },
        ],
      },
    },
    { names: { 'api.test': ['127.0.0.1'], 'plain.test': ['127.0.0.1'] } },
  );
});

afterAll(async () => {
  await house.stop();
  await plain.close();
  await secure.close();
  await outside.close();
});

const WAYS: readonly Way[] = [
  {
    name: 'in a tunnel',
    scheme: 'https',
    authority: () => `api.test:${secure.port}`,
    upstream: () => secure,
    connect: () => openSecureTunnel(house, `api.test:${secure.port}`, { tls: { ALPNProtocols: ['h2'] } }),
  },
  {
    name: 'at the listener',
    scheme: 'http',
    authority: () => `plain.test:${plain.port}`,
    upstream: () => plain,
    connect: () => connectTo(house.port),
  },
];

/** A connection on which the settings have been exchanged. */
interface Conversation extends FrameClient {
  readonly way: Way;
}

async function begin(way: Way, pairs: readonly Setting[] = []): Promise<Conversation> {
  const stream = await way.connect();
  stream.setNoDelay();
  const client = speakFrames(stream);
  client.send(PREFACE, frame(FRAME.settings, 0, { payload: settings(...pairs) }));
  await client.frame(({ type, flags }) => type === FRAME.settings && flags === 0);
  client.send(frame(FRAME.settings, 0, { flags: FLAG.ack }));
  return { ...client, way };
}

/** What the other side says to it: the first answer, reset or GOAWAY that is not a plain farewell; or that it hangs up. */
async function verdict(client: FrameClient, stream: number): Promise<string> {
  const says = ({ type, stream: on, payload }: Frame): boolean =>
    (type === FRAME.goaway && payload.readUInt32BE(4) !== CODE.none) ||
    ((type === FRAME.reset || type === FRAME.headers) && on === stream);
  try {
    return describeFrame(await client.frame(says));
  } catch {
    return 'closed';
  }
}

/** One request by a whole client on a connection of its own. */
async function serves(way: Way): Promise<void> {
  const session = http2.connect(`${way.scheme}://${way.authority()}`, { createConnection: await connected(way) });
  session.on('error', () => undefined);
  try {
    const stream = session.request({ ':path': '/after' });
    const [head] = (await once(stream, 'response')) as [http2.IncomingHttpHeaders & { readonly ':status': number }];
    expect(head[':status']).toBe(200);
    let body = '';
    for await (const chunk of stream) body += String(chunk);
    expect(body).toBe('/after 0');
  } finally {
    session.destroy();
  }
}

async function connected(way: Way): Promise<() => Duplex> {
  const stream = await way.connect();
  return () => stream;
}

describe.each(WAYS)('HTTP/2 $name', (way) => {
  describe.each(TABLES)('$title', ({ rows }) => {
    it.each(rows)('$name ($by)', async ({ bytes, answer, stream = 1, settings: pairs = [] }) => {
      const client = await begin(way, pairs);
      client.send(...bytes(way));
      const said = await verdict(client, stream);
      expect(answer).toContain(said);
      client.stream.destroy();
      await serves(way);
      const { seen } = way.upstream();
      expect(seen.filter(({ url }) => url === '/malformed')).toEqual([]);
      const clean = ['host', way.authority(), 'connection', 'keep-alive'];
      for (const { fields } of seen.filter(({ url }) => url === '/clean')) expect(fields).toEqual(clean);
      expect(house.logged.filter((line) => line.includes('internal'))).toEqual([]);
    });
  });

  it('begins with its settings, which allow no more streams than configured and extended CONNECT', async () => {
    const client = await begin(way);
    const { payload } = await client.frame(({ type, flags }) => type === FRAME.settings && flags === 0);
    const told = new Map<number, number>();
    for (let at = 0; at < payload.length; at += 6) told.set(payload.readUInt16BE(at), payload.readUInt32BE(at + 2));
    expect([told.get(3), told.get(8)]).toEqual([10, 1]);
    // and acknowledges those of the client (6.5.3)
    await client.frame(({ type, flags }) => type === FRAME.settings && flags === FLAG.ack);
    client.stream.destroy();
  });

  it('lets go of a connection that a frame has ended, and of what was under way on it (5.4.1)', async () => {
    const after = house.outcomes.length;
    const client = await begin(way);
    client.send(get(way, '/hang'), frame(FRAME.data, 0));
    expect(await verdict(client, 1)).toMatch(/^GOAWAY (protocol|internal)$/);
    await client.ended;
    const outcome = await house.outcome(({ arrival }) => arrival.target === '/hang', after);
    expect(outcome.verdict?.code).toBe('client_closed');
  });

  it('answers a ping with the same bytes (6.7)', async () => {
    const client = await begin(way);
    client.send(frame(FRAME.ping, 0, { payload: Buffer.from('8 bytes!') }));
    const { payload, flags } = await client.frame(({ type }) => type === FRAME.ping);
    expect([payload.toString(), flags]).toEqual(['8 bytes!', FLAG.ack]);
    client.stream.destroy();
  });

  it('sends no more of a body than the window lets it (6.9.2)', async () => {
    const client = await begin(way, [[4, 3]]);
    client.send(get(way, '/window'));
    const first = await client.frame(({ type }) => type === FRAME.data);
    expect(first.payload.toString()).toBe('/wi');
    client.send(frame(FRAME.ping, 0, { payload: Buffer.alloc(8) }));
    await client.frame(({ type }) => type === FRAME.ping);
    expect(client.frames.filter(({ type }) => type === FRAME.data)).toHaveLength(1);
    client.send(frame(FRAME.windowUpdate, 1, { payload: uint32(100) }));
    await client.frame(({ type, flags }) => type === FRAME.data && (flags & FLAG.endStream) !== 0);
    const body = client.frames.filter(({ type }) => type === FRAME.data).map(({ payload }) => payload.toString());
    expect(body.join('')).toBe('/window 0');
    client.stream.destroy();
  });

  it('hangs up on a preface that is broken off in the middle of its own (3.4)', async () => {
    const client = speakFrames(await way.connect());
    client.send(PREFACE.subarray(0, 18), Buffer.from('no\r\n\r\n', 'latin1'));
    await client.ended;
    client.stream.destroy();
    await serves(way);
  });

  it('hangs up on what follows the preface and is no settings (3.4)', async () => {
    const client = speakFrames(await way.connect());
    client.send(PREFACE, frame(FRAME.ping, 0, { payload: Buffer.alloc(8) }));
    await client.ended;
    expect(client.frames.map(describeFrame).at(-1)).toMatch(/^GOAWAY (protocol|internal)$/);
    await serves(way);
  });

  it.each([
    {
      name: 'resets its requests as fast as it makes them',
      flood: (stream: number) => [get(way, '/flood', [], stream), frame(FRAME.reset, stream, { payload: uint32(8) })],
      ends: true,
    },
    { name: 'pings without hearing', flood: () => [frame(FRAME.ping, 0, { payload: Buffer.alloc(8) })], ends: false },
    {
      name: 'changes its settings all the time',
      flood: () => [frame(FRAME.settings, 0, { payload: settings([3, 100]) })],
      ends: false,
    },
    {
      name: 'sends an endless field section',
      flood: (stream: number) => [
        stream === 1
          ? frame(FRAME.headers, 1, { payload: section(fieldsFor(way, '/flood')) })
          : frame(FRAME.continuation, 1, { payload: section([['x-more', 'x'.repeat(8000)]]) }),
      ],
      ends: true,
    },
    {
      name: 'sends empty continuations',
      flood: (stream: number) => [
        stream === 1 ? frame(FRAME.headers, 1, { payload: section(fieldsFor(way, '/flood')) }) : frame(FRAME.continuation, 1),
      ],
      ends: true,
    },
  ])('bounds what a client can make it do that $name', async ({ flood, ends }) => {
    const client = await begin(way);
    for (let turn = 0; turn < 40 && !client.stream.destroyed && !client.stream.readableEnded; turn += 1) {
      const burst = Array.from({ length: 100 }, (_, index) => Buffer.concat(flood(200 * turn + 2 * index + 1)));
      if (!client.stream.write(Buffer.concat(burst))) await Promise.race([once(client.stream, 'drain'), client.ended]);
    }
    await serves(way);
    if (ends) await client.ended;
    client.stream.destroy();
    expect(house.logged.filter((line) => line.includes('internal'))).toEqual([]);
  });
});
