// The ledger through a whole house: one line for each exchange with the keys of the contract, and metrics whose series do not grow
// with what sandboxes ask for (invariant 6).
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { seriesOf } from '../support/operator.ts';
import { openOutside, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { ask, connectTo, openTunnel, readAnswer, sendRaw } from '../support/sandbox-client.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside, answer: (_seen, response) => response.end('five!') });
  plain = await startUpstream({ answer: (_seen, response) => response.end('five!') });
});

afterAll(async () => {
  await secure.close();
  await plain.close();
  await outside.close();
});

/** Resolves every name below `.test` to loopback. */
const NAMES = new Proxy({}, { get: () => ['127.0.0.1'] });

function openHouse(allowlist: readonly object[], more: object = {}): Promise<House> {
  return startHouse({ upstream: { ca: [outside.caPath] }, network: { allowlist }, ...more }, { names: NAMES });
}

const KEYS = [
  ...[
    'time',
    'request_id',
    'sandbox',
    'action_id',
    'door',
    'protocol',
    'method',
    'scheme',
    'host',
    'port',
    'path',
    'rule',
    'decision',
  ],
  ...['reason', 'credentials', 'address', 'status', 'bytes_sent', 'bytes_received', 'duration_ms', 'phases_ms'],
];

interface Phases {
  readonly dns: number | null;
  readonly connect: number | null;
  readonly tls: number | null;
  readonly wait: number | null;
}

describe('the audit log', () => {
  let house: House;

  beforeAll(async () => {
    house = await openHouse(
      [
        { domain: 'api.test', credential: 'main', ports: [secure.port], methods: ['GET', 'POST'], addresses: LOOPBACK },
        { domain: 'plain.test', ports: [plain.port], addresses: LOOPBACK },
      ],
      { credentials: { main: { type: 'bearer_token', token: 'marker' } } },
    );
  });

  afterAll(() => house.stop());

  async function lineAfter(action: () => Promise<unknown>): Promise<Record<string, unknown>> {
    const before = house.outcomes.length;
    await action();
    await house.outcome(() => true, before);
    const lines = await house.audit();
    expect(lines.length).toBe(before + 1);
    const line = lines.at(-1) as Record<string, unknown>;
    expect(Object.keys(line)).toEqual(KEYS);
    expect(Object.keys(line['phases_ms'] as object)).toEqual(['dns', 'connect', 'tls', 'wait']);
    expect(Math.abs(Date.now() - Date.parse(line['time'] as string))).toBeLessThan(60_000);
    return line;
  }

  it('tells of a request that was let through: who, where, how many bytes, how long', async () => {
    const line = await lineAfter(() =>
      ask(house, `https://api.test:${secure.port}/a/b?key=1`, {
        method: 'POST',
        fields: 'Content-Length: 7\r\nX-Sallyport-Action-Id: call-7\r\n',
        body: 'seven!!',
      }),
    );
    expect(line).toMatchObject({
      ...{
        sandbox: 'default',
        action_id: 'call-7',
        door: 'tunnel',
        protocol: 'http/1.1',
        method: 'POST',
        scheme: 'https',
        host: 'api.test',
      },
      ...{ port: secure.port, path: '/a/b', rule: 'api.test', decision: 'allow', reason: null, credentials: ['main'] },
      ...{ address: '127.0.0.1', status: 200, bytes_sent: 7, bytes_received: 5 },
    });
    const phases = line['phases_ms'] as Phases;
    for (const phase of Object.values(phases) as (number | null)[]) expect(phase).toBeGreaterThanOrEqual(0);
    const sum = (Object.values(phases) as number[]).reduce((all, phase) => all + phase, 0);
    expect(line['duration_ms']).toBeGreaterThanOrEqual(sum - 1);
    expect(line['duration_ms']).toBeLessThan(20_000);
  });

  it('tells of a request on a connection that was open that nothing was resolved or dialled', async () => {
    await ask(house, `https://api.test:${secure.port}/`);
    const line = await lineAfter(() => ask(house, `https://api.test:${secure.port}/again`));
    expect(line).toMatchObject({ path: '/again', address: '127.0.0.1', bytes_sent: 0, bytes_received: 5 });
    expect(line['phases_ms']).toMatchObject({ dns: null, connect: null, tls: null });
    expect((line['phases_ms'] as Phases).wait).toBeGreaterThanOrEqual(0);
  });

  it('tells of a refusal under the id that the sandbox was given', async () => {
    let body = '';
    const line = await lineAfter(async () => {
      body = (await ask(house, `https://api.test:${secure.port}/x`, { method: 'DELETE' })).body;
    });
    expect(line).toMatchObject({
      decision: 'refuse',
      reason: 'method_denied',
      rule: 'api.test',
      status: 403,
      credentials: [],
      address: null,
      bytes_sent: 0,
      bytes_received: 0,
    });
    expect(line['phases_ms']).toEqual({ dns: null, connect: null, tls: null, wait: null });
    expect(line['request_id']).toBe((JSON.parse(body) as { request_id: string }).request_id);
  });

  it.each([
    {
      name: 'a refused CONNECT',
      act: () => ask(house, 'https://other.test/'),
      line: {
        door: 'proxy',
        method: 'CONNECT',
        host: 'other.test',
        port: 443,
        path: null,
        scheme: null,
        decision: 'refuse',
        reason: 'not_allowlisted',
        status: 403,
      },
    },
    {
      name: 'a request that cannot be read',
      act: () => sendRaw(house.port, 'GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n'),
      line: { door: 'proxy', host: null, port: null, path: 'ftp://x/', decision: 'refuse', reason: 'bad_request', status: 400 },
    },
    {
      name: 'a tunnel that carried nothing',
      act: async () => (await openTunnel(house, `api.test:${secure.port}`)).socket.destroy(),
      line: { method: 'CONNECT', decision: 'fault', reason: 'client_closed', status: 200 },
    },
    {
      name: 'a plain request',
      act: () => ask(house, `http://plain.test:${plain.port}/p`),
      line: { door: 'proxy', scheme: 'http', host: 'plain.test', path: '/p', decision: 'allow', status: 200, bytes_received: 5 },
    },
  ])('has one line for $name', async ({ act, line }) => {
    expect(await lineAfter(act)).toMatchObject(line);
  });

  const TWO_LINES = '{"time":"1","decision":"allow"}';
  it.each([
    {
      name: 'encoded line breaks in a path',
      bytes: `GET http://other.test/%0d%0a${TWO_LINES.replaceAll('"', '%22')} HTTP/1.1\r\nHost: other.test\r\n\r\n`,
    },
    { name: 'an escape sequence in the authority', bytes: 'GET http://other\x1b[2J.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n' },
    { name: 'an escape sequence in a CONNECT', bytes: 'CONNECT other\x1b]0;x\x07.test:443 HTTP/1.1\r\nHost: other.test\r\n\r\n' },
    {
      name: 'separators of another script in a field',
      bytes: 'GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\nX-Sallyport-Action-Id: a\xe2\x80\xa8b\xc2\x85\r\n\r\n',
    },
    {
      name: 'quotes and backslashes in a path',
      bytes: `GET http://other.test/"\\","decision":"allow HTTP/1.1\r\nHost: other.test\r\n\r\n`,
    },
    { name: 'bytes that are no UTF-8', bytes: 'GET http://other.test/\xff\xfe\xc3( HTTP/1.1\r\nHost: other.test\r\n\r\n' },
    { name: 'a path of 60 KiB', bytes: `GET http://other.test/${'a'.repeat(60_000)} HTTP/1.1\r\nHost: other.test\r\n\r\n` },
    { name: 'a method that is none', bytes: 'G\x1b[31mT http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n' },
  ])('stays one printable, bounded JSON object a line for $name', async ({ bytes }) => {
    // fault L01
    const before = house.outcomes.length;
    const got = await sendRaw(house.port, bytes);
    expect(got.status).toBeGreaterThanOrEqual(400);
    await house.outcome(() => true, before);
    await house.app.reopenAudit();
    const lines = (await readFile(join(house.folder, 'audit.ndjson'), 'latin1')).split('\n').slice(before, -1);
    expect(lines.length).toBe(1);
    const [line = ''] = lines;
    expect(line).toMatch(/^[\x20-\x7e]{1,4096}$/);
    expect(Object.keys(JSON.parse(line) as object)).toEqual(KEYS);
    expect(JSON.parse(line)).toMatchObject({ decision: 'refuse', action_id: null });
  });
});

describe('the metrics', () => {
  it('have as many series after 3,000 requests for unique hosts, paths and methods as before, and can be scraped meanwhile', async () => {
    // fault L02
    const house = await openHouse([{ domain: '*.wild.test', ports: [plain.port], addresses: LOOPBACK, methods: ['GET'] }]);
    try {
      const load = new Load(house);
      await load.run(0, 60);
      const before = seriesOf(await house.scrape());
      const all = load.run(60, 3060);
      const during: number[] = [];
      let over = false;
      const scraping = (async () => {
        while (!over) during.push(totalOf(seriesOf(await house.scrape())));
      })();
      await all;
      over = true;
      await scraping;
      await house.outcome(() => house.outcomes.length >= 3060);
      const after = seriesOf(await house.scrape());
      expect([...after.keys()]).toEqual([...before.keys()]);
      expect(totalOf(before)).toBe(60);
      expect(totalOf(after)).toBe(3060);
      expect(during.some((total) => total > 60 && total < 3060)).toBe(true);
      expect([...after.keys()].filter((key) => /unique|wild\.test:/.test(key))).toEqual([]);
    } finally {
      await house.stop();
    }
  }, 120_000);
});

function totalOf(series: ReadonlyMap<string, number>): number {
  let total = 0;
  for (const [key, value] of series) if (key.startsWith('sallyport_requests_total')) total += value;
  return total;
}

/** Requests that have nothing in common but their kind, over a few connections that stay open as long as the proxy lets them. */
class Load {
  readonly #house: House;

  constructor(house: House) {
    this.#house = house;
  }

  /** Sends the requests of these numbers, eight at a time, each kind by turns. */
  async run(from: number, to: number): Promise<void> {
    let next = from;
    const worker = async (): Promise<void> => {
      let socket: Duplex | undefined;
      for (let i = next++; i < to; i = next++) {
        const { bytes, method, status } = requestOf(i);
        socket ??= await connectTo(this.#house.port);
        socket.write(bytes);
        const got = await readAnswer(socket, method);
        if (got.status !== status) throw new Error(`request ${i} was answered ${got.status}, not ${status}`);
        if (got.headers['connection'] !== 'close' && method !== 'CONNECT') continue;
        socket.destroy();
        socket = undefined;
      }
      socket?.destroy();
    };
    await Promise.all(Array.from({ length: 8 }, worker));
  }
}

const REAL_METHODS = ['PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND', 'MKCOL', 'COPY', 'LOCK', 'REPORT', 'PURGE', 'LINK'];

function requestOf(i: number): { readonly bytes: string; readonly method: string; readonly status: number } {
  const denied = `unique-${i}.test`;
  const allowed = `unique-${i}.wild.test:${plain.port}`;
  const real = REAL_METHODS[i % REAL_METHODS.length] as string;
  const kinds = [
    { method: 'GET', target: `http://${denied}/unique-${i}`, host: denied, status: 403 },
    { method: 'CONNECT', target: `${denied}:${1000 + i}`, host: `${denied}:${1000 + i}`, status: 403 },
    { method: 'GET', target: `http://${allowed}/unique-${i}?unique=${i}`, host: allowed, status: 200 },
    { method: real, target: `http://${allowed}/unique-${i}`, host: allowed, status: 403 },
    { method: `UNIQUE${i}`, target: `http://${allowed}/`, host: allowed, status: 400 },
    {
      method: 'GET',
      target: `http://unique-${i}.wild.test:${1000 + i}/`,
      host: `unique-${i}.wild.test:${1000 + i}`,
      status: 403,
    },
  ];
  const { method, target, host, status } = kinds[i % kinds.length] as (typeof kinds)[number];
  return { bytes: `${method} ${target} HTTP/1.1\r\nHost: ${host}\r\n\r\n`, method, status };
}
