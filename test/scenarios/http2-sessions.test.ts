// HTTP/2 sessions to upstreams as a pool: who shares one, when another is opened, when it ends, and what is sent again when one is lost.
// The sandboxes speak HTTP/1.1 and the upstream HTTP/2 only, so that every exchange takes a session.
import { once } from 'node:events';
import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { echoStream, startHttp2Upstream } from '../support/http2-upstream.ts';
import type { AnsweringStream, Http2Upstream, Http2UpstreamOptions } from '../support/http2-upstream.ts';
import { exchange, openSession } from '../support/http2-client.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';
import { verdictIn } from '../support/probes.ts';
import { ask } from '../support/sandbox-client.ts';
import type { Answer } from '../support/sandbox-client.ts';

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

function config(more: object = {}): object {
  return {
    upstream: { ca: [outside.caPath] },
    network: { allowlist: [{ domain: 'api.test', ports: [upstream.port], addresses: LOOPBACK }] },
    ...more,
  };
}

async function open(options: Http2UpstreamOptions = {}, more: object = {}): Promise<void> {
  upstream = await startHttp2Upstream({ tls: outside, ...options });
  house = await startHouse(config(more), { names: { 'api.test': ['127.0.0.1'] } });
}

const url = (path = '/'): string => `https://api.test:${upstream.port}${path}`;
const get = (path?: string, tunnelFields = ''): Promise<Answer> => ask(house, url(path), { tunnelFields });
const many = (count: number): Promise<Answer[]> => Promise.all(Array.from({ length: count }, (_, index) => get(`/${index}`)));

/** A server's end of a session, which must be there. */
function session(index: number): ServerHttp2Session {
  const found = upstream.sessions[index];
  if (found === undefined) throw new Error(`there is no session ${index}`);
  return found;
}

describe('a session', () => {
  it('carries what comes after it, and its upstream is known to speak HTTP/2 only once it has said so', async () => {
    await open();
    for (let round = 0; round < 3; round += 1) expect((await get()).status).toBe(200);
    // One that was answered with an alert, and one that was not.
    expect([upstream.connections, upstream.sessions.length]).toEqual([2, 1]);
    expect(house.outcomes.map(({ trace }) => trace.address)).toEqual(['127.0.0.1', '127.0.0.1', '127.0.0.1']);
    const gone = once(session(0), 'close');
    session(0).close();
    await gone;
    expect((await get()).status).toBe(200);
    expect([upstream.connections, upstream.sessions.length]).toEqual([3, 2]);
  });

  it('is opened once for many who ask at once', async () => {
    await open();
    expect((await get()).status).toBe(200);
    const gone = once(session(0), 'close');
    session(0).close();
    await gone;
    const before = upstream.connections;
    const answers = await many(30);
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    expect([upstream.connections - before, upstream.sessions.length]).toEqual([1, 2]);
  });

  it('is one connection, in the status and in the metrics', async () => {
    const waiting: ServerHttp2Stream[] = [];
    await open({ raw: (stream) => void waiting.push(stream) });
    const answers = many(3);
    await upstream.saw(() => upstream.seen.length === 3);
    expect(await house.scrape()).toContain('sallyport_open_connections{side="upstream"} 1');
    for (const stream of waiting) {
      stream.respond({ ':status': 200 });
      stream.end();
    }
    await answers;
    const gone = once(session(0), 'close');
    await house.reconfigure(config({ limits: { target_bytes: '8KiB' } }));
    await gone;
    await expect.poll(() => house.scrape()).toContain('sallyport_open_connections{side="upstream"} 0');
  });

  it('has no more streams at once than its upstream takes; for more there is another', async () => {
    const most = 2;
    const at = new Map<number, number>();
    let peak = 0;
    await open({
      settings: { maxConcurrentStreams: most },
      answer: (stream, seen) => {
        const now = (at.get(seen.session) ?? 0) + 1;
        at.set(seen.session, now);
        peak = Math.max(peak, now);
        setTimeout(() => {
          at.set(seen.session, (at.get(seen.session) ?? 0) - 1);
          echoStream(stream, seen);
        }, 50);
      },
    });
    expect((await get()).status).toBe(200);
    const answers = await many(7);
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    expect(peak).toBe(most);
    expect(upstream.seen).toHaveLength(8);
    expect(upstream.sessions.length).toBeGreaterThan(1);
  });

  it('counts among the connections that a sandbox may have: beyond them the request is refused', async () => {
    const waiting: ServerHttp2Stream[] = [];
    await open(
      { settings: { maxConcurrentStreams: 1 }, raw: (stream) => void waiting.push(stream) },
      { limits: { upstream_connections: 1 } },
    );
    const first = get('/first');
    await upstream.saw(() => true);
    expect(verdictIn(await get('/second'))).toBe('503 limit_reached');
    waiting[0]?.respond({ ':status': 200 });
    waiting[0]?.end();
    expect((await first).status).toBe(200);
  });

  it('that nobody uses ends in time', async () => {
    await open({}, { limits: { timeouts: { upstream_keep_alive: '200ms' } } });
    expect((await get()).status).toBe(200);
    if (!session(0).closed) await once(session(0), 'close');
    expect((await get()).status).toBe(200);
    expect(upstream.sessions).toHaveLength(2);
  });

  it('that is in use does not end for having no new exchange', async () => {
    await open(
      {
        raw: (stream) => {
          stream.respond({ ':status': 200 });
          stream.write('begun');
          setTimeout(() => stream.end('done'), 600);
        },
      },
      { limits: { timeouts: { upstream_keep_alive: '100ms' } } },
    );
    expect((await get()).body).toBe('begundone');
    expect(upstream.sessions).toHaveLength(1);
  });

  it('is not used any more after a reload, and what is under way on it goes on', async () => {
    let finish: () => void = () => undefined;
    await open({
      raw: (stream, seen) => {
        stream.respond({ ':status': 200 });
        if (seen.path === '/long') finish = () => stream.end('done');
        else stream.end('short');
      },
    });
    const long = get('/long');
    await upstream.saw(({ path }) => path === '/long');
    await house.reconfigure(config({ limits: { target_bytes: '8KiB' } }));
    expect((await get('/short')).body).toBe('short');
    expect(upstream.seen.map((seen) => seen.session)).toEqual([0, 1]);
    const gone = once(session(0), 'close');
    finish();
    expect((await long).body).toBe('done');
    await gone;
  });

  it('of one sandbox is never another one\u2019s', async () => {
    const basic = (token: string) => `Proxy-Authorization: Basic ${Buffer.from(`x:${token}`).toString('base64')}\r\n`;
    const sandboxes = { red: { token: 'red-token-0123456789' }, blue: { token: 'blue-token-0123456789' } };
    await open({}, { sandboxes });
    for (let round = 0; round < 2; round += 1) {
      expect((await get('/red', basic(sandboxes.red.token))).status).toBe(200);
      expect((await get('/blue', basic(sandboxes.blue.token))).status).toBe(200);
    }
    const sessionsOf = (path: string) => [
      ...new Set(upstream.seen.filter((seen) => seen.path === path).map((seen) => seen.session)),
    ];
    expect([sessionsOf('/red'), sessionsOf('/blue')]).toEqual([[0], [1]]);
  });
});

interface Loss {
  readonly name: string;
  readonly method?: string;
  readonly body?: string;
  /** What happens to the request, the first time and any further one; after the first is answered where `once` is set */
  readonly lose: AnsweringStream;
  readonly always?: boolean;
  readonly verdict: string;
  readonly seen: number;
}

const goaway =
  (code: number, last: 'before' | 'at'): AnsweringStream =>
  (stream) => {
    const id = stream.id ?? 0;
    stream.session?.goaway(code, last === 'at' ? id : id - 2);
  };

const losses: readonly Loss[] = [
  { name: 'a GET that is refused', lose: (stream) => stream.close(7), verdict: '200 from the upstream', seen: 2 },
  {
    name: 'a POST without a body that is refused',
    method: 'POST',
    lose: (stream) => stream.close(7),
    verdict: '200 from the upstream',
    seen: 2,
  },
  {
    name: 'a GET that is refused again and again',
    always: true,
    lose: (stream) => stream.close(7),
    verdict: '502 upstream_protocol',
    seen: 4,
  },
  {
    name: 'a POST that is refused when its body has begun',
    method: 'POST',
    body: 'once',
    lose: (stream) => stream.close(7),
    verdict: '502 upstream_protocol',
    seen: 1,
  },
  { name: 'a GET beyond the last stream of a GOAWAY', lose: goaway(0, 'before'), verdict: '200 from the upstream', seen: 2 },
  {
    name: 'a POST without a body beyond it',
    method: 'POST',
    lose: goaway(0, 'before'),
    verdict: '200 from the upstream',
    seen: 2,
  },
  {
    name: 'a GET beyond the last stream of a GOAWAY with an error',
    lose: goaway(11, 'before'),
    verdict: '200 from the upstream',
    seen: 2,
  },
  {
    name: 'a GET beyond one, again and again',
    always: true,
    lose: (stream, one) => (stream.id === 1 ? stream.close(7) : goaway(0, 'before')(stream, one)),
    verdict: '502 upstream_protocol',
    seen: 4,
  },
  {
    name: 'a GET within the last stream of a GOAWAY with an error',
    lose: goaway(2, 'at'),
    verdict: '502 upstream_protocol',
    seen: 1,
  },
  { name: 'a GET that is reset with CANCEL', lose: (stream) => stream.close(8), verdict: '502 upstream_protocol', seen: 1 },
  {
    name: 'a GET whose session ends in the middle',
    lose: (stream) => stream.session?.destroy(),
    verdict: '502 upstream_protocol',
    seen: 1,
  },
];

// faults J01, J08
describe('what is lost', () => {
  it.each(losses)(
    '$name is $verdict, seen $seen times',
    async ({ method = 'GET', body = '', lose, always = false, verdict, seen }) => {
      let lost = 0;
      await open({
        raw: (stream, one) => {
          if (one.path !== '/lost') echoStream(stream, one);
          else if (always || lost === 0) {
            lost += 1;
            lose(stream, one);
          } else echoStream(stream, one);
        },
      });
      // So that the session is a used one, and no first of its kind.
      expect((await get('/first')).status).toBe(200);
      const fields = body === '' ? '' : `Content-Length: ${body.length}\r\n`;
      expect(verdictIn(await ask(house, url('/lost'), { method, fields, body }))).toBe(verdict);
      expect(upstream.seen.filter(({ path }) => path === '/lost')).toHaveLength(seen);
      expect((await get('/after')).status).toBe(200);
    },
  );

  it('is handed back to a sandbox that speaks HTTP/2, whose client may repeat it, body and all', async () => {
    await open({ raw: (stream, one) => (one.path === '/lost' ? stream.close(7) : echoStream(stream, one)) });
    const client = await openSession(house, `api.test:${upstream.port}`);
    const lost = await exchange(client, { ':method': 'POST', ':path': '/lost' }, 'once');
    expect([lost.status, lost.reset]).toEqual([0, 7]);
    expect(await house.outcome(({ arrival }) => arrival.target === '/lost')).toMatchObject({
      decision: 'fault',
      verdict: { code: 'upstream_protocol' },
      trace: { status: 0 },
    });
    expect((await exchange(client, { ':method': 'POST', ':path': '/after' }, 'again')).status).toBe(200);
    client.destroy();
  });

  it('is nothing of what a GOAWAY lets end: it is answered, and the next exchange goes on a session of its own', async () => {
    await open({
      raw: (stream, one) => {
        if (one.path === '/last') goaway(0, 'at')(stream, one);
        stream.respond({ ':status': 200 });
        setImmediate(() => stream.end('whole'));
      },
    });
    expect((await get('/last')).body).toBe('whole');
    expect((await get('/next')).body).toBe('whole');
    expect(upstream.seen.map(({ path, session: on }) => [path, on])).toEqual([
      ['/last', 0],
      ['/next', 1],
    ]);
  });

  it.each([
    { method: 'GET', verdict: '200 from the upstream', seen: 2 },
    { method: 'POST', verdict: '502 upstream_protocol', seen: 1 },
  ])(
    'in the silence of a used session is $verdict where it is a $method, seen $seen times',
    async ({ method, verdict, seen }) => {
      let cut = false;
      await open({
        raw: (stream, one) => {
          if (one.path !== '/cut' || cut) {
            echoStream(stream, one);
            return;
          }
          cut = true;
          // The socket alone, so that no GOAWAY goes before.
          upstream.cut();
        },
      });
      expect((await get('/first')).status).toBe(200);
      expect(verdictIn(await ask(house, url('/cut'), { method }))).toBe(verdict);
      expect(upstream.seen.filter(({ path }) => path === '/cut')).toHaveLength(seen);
    },
  );
});
