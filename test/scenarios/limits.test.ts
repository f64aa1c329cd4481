// What is too much or too slow: every wait and every size has an end, and where an answer can still be given it is one to read.
import { once } from 'node:events';
import type http from 'node:http';
import type { Duplex } from 'node:stream';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { clientHello } from '../support/client-hellos.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { sampled, untilIt } from '../support/operator.ts';
import { openOutside, startRaw, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { connectTo, openSecureTunnel, openTunnel, readAnswer, sendRaw } from '../support/sandbox-client.ts';
import { openScript } from '../support/scripted-upstream.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
/** A raw upstream that answers with the length of the head that it got */
let big: Upstream;
/** Default limits */
let house: House;
/** Small limits */
let strict: House;
const script = openScript();

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside, raw: script.answer });
  plain = await startUpstream({ raw: script.answer });
  // Node's own server would refuse large fields before ours has shown whether it lets them pass.
  big = await startRaw((socket) => {
    let head = '';
    socket.on('data', (chunk: Buffer) => {
      head += chunk.toString('latin1');
      if (head.endsWith('\r\n\r\n'))
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${String(head.length).length}\r\n\r\n${head.length}`);
    });
  });
  const config = {
    upstream: { ca: [outside.caPath] },
    network: {
      allowlist: [
        { domain: 'api.test', ports: [secure.port], addresses: LOOPBACK },
        { domain: 'plain.test', ports: [plain.port, big.port], addresses: LOOPBACK },
        { domain: 'pass.test', ports: [secure.port], addresses: LOOPBACK, tls: 'passthrough' },
      ],
    },
  };
  const names = { 'api.test': ['127.0.0.1'], 'plain.test': ['127.0.0.1'], 'pass.test': ['127.0.0.1'] };
  house = await startHouse(config, { names });
  const limits = {
    connections: 6,
    upstream_connections: 2,
    timeouts: { header: '300ms', handshake: '300ms', body_idle: '300ms' },
  };
  strict = await startHouse({ ...config, limits }, { names });
});

afterAll(async () => {
  await house.stop();
  await strict.stop();
  await secure.close();
  await plain.close();
  await big.close();
  await outside.close();
});

/** Request line and Host on the proxy port. */
function start(method: string, path: string, port = plain.port): string {
  return `${method} http://plain.test:${port}${path} HTTP/1.1\r\nHost: plain.test:${port}\r\n`;
}

/** Resolves once a house has no connection of any sandbox. */
async function nobodyIsLeft(of: House): Promise<void> {
  await untilIt(
    async () => sampled(await of.scrape(), 'sallyport_open_connections', { side: 'sandbox' }),
    (open) => open === 0,
  );
}

// fault J05
describe('a slow sandbox', () => {
  const closing = (stream: Duplex): Promise<string> => {
    let text = '';
    stream.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
    stream.resume();
    return once(stream, 'end').then(() => text);
  };

  it('gets 408 for a head that does not end', async () => {
    const after = strict.outcomes.length;
    const socket = await connectTo(strict.port);
    socket.write('GET http://plain.test/ HTTP/1.1\r\nHost: plain');
    const text = await closing(socket);
    socket.destroy();
    expect(text).toMatch(/^HTTP\/1\.1 408 [^]*X-Sallyport-Reason: request_timeout/);
    expect((await strict.outcome(({ arrival }) => arrival.purpose === 'exchange', after)).verdict?.code).toBe('request_timeout');
  });

  it('gets 408 for a head inside a tunnel that does not end', async () => {
    const stream = await openSecureTunnel(strict, `api.test:${secure.port}`);
    stream.write('GET / HTTP/1.1\r\nHost: api');
    expect(await closing(stream)).toMatch(/^HTTP\/1\.1 408 [^]*X-Sallyport-Reason: request_timeout/);
    stream.destroy();
  });

  it('gets 408 for the second head of a kept-alive connection', async () => {
    const socket = await connectTo(strict.port);
    socket.write(`${start('GET', '/')}\r\n`);
    expect((await readAnswer(socket)).status).toBe(200);
    socket.write('GET http://plain.test/ HT');
    expect(await closing(socket)).toMatch(/^HTTP\/1\.1 408 /);
    socket.destroy();
  });

  it('gets 408 for a body that falls silent, and its upstream hears no more of it', async () => {
    const after = strict.outcomes.length;
    const arrived = script.nextAt('/silent');
    const socket = await connectTo(strict.port);
    socket.write(`${start('POST', '/silent')}Content-Length: 10\r\n\r\n1234`);
    const { request } = await arrived;
    const ended = once(request.socket, 'end');
    expect(await closing(socket)).toMatch(/^HTTP\/1\.1 408 [^]*X-Sallyport-Reason: request_timeout/);
    socket.destroy();
    await ended;
    const outcome = await strict.outcome(({ arrival }) => arrival.target.endsWith('/silent'), after);
    expect(outcome).toMatchObject({ decision: 'refuse', verdict: { code: 'request_timeout' } });
  });

  it('may take its time over a body that does not fall silent', async () => {
    const arrived = script.nextAt('/steady');
    const socket = await connectTo(strict.port);
    socket.write(`${start('POST', '/steady')}Transfer-Encoding: chunked\r\n\r\n`);
    const until = performance.now() + 700;
    let sent = 0;
    let request: http.IncomingMessage | undefined;
    while (performance.now() < until) {
      socket.write('1\r\nx\r\n');
      sent += 1;
      request ??= (await arrived).request;
      await once(request, 'data');
    }
    const { response } = await arrived;
    request?.on('end', () => response.end(String(sent)));
    socket.write('0\r\n\r\n');
    expect((await readAnswer(socket)).body).toBe(String(sent));
    socket.destroy();
  });

  it('is closed without a word when it says nothing', async () => {
    const after = strict.outcomes.length;
    const socket = await connectTo(strict.port);
    expect(await closing(socket)).toBe('');
    socket.destroy();
    expect(strict.outcomes.length).toBe(after);
  });

  const small = Buffer.alloc(16 * 1024);
  /** So many answers that no buffer of the kernel holds them, each of them whole as far as its upstream is concerned */
  const ASKED = 2000;
  const askForMany = (): string => `${start('GET', '/small')}\r\n`.repeat(ASKED);

  it('is cut when it does not read answers that are complete', async () => {
    script.on('/small', (_request, response) => response.end(small));
    const after = strict.outcomes.length;
    const socket = await connectTo(strict.port);
    socket.write(askForMany());
    await nobodyIsLeft(strict);
    const outcomes = strict.outcomes.slice(after);
    expect(outcomes.length).toBeGreaterThan(0);
    expect(outcomes.length).toBeLessThan(ASKED);
    expect(outcomes.filter(({ verdict }) => verdict !== undefined)).toEqual([]);
    socket.destroy();
  });

  it('is cut in a tunnel when it does not read answers that are complete', async () => {
    script.on('/small', (_request, response) => response.end(small));
    const stream = await openSecureTunnel(strict, `api.test:${secure.port}`);
    stream.write(`GET /small HTTP/1.1\r\nHost: api.test:${secure.port}\r\n\r\n`.repeat(ASKED));
    await nobodyIsLeft(strict);
    stream.destroy();
  });

  it('may take its time over answers that it does read', async () => {
    script.on('/small', (_request, response) => response.end(small));
    const socket = await connectTo(strict.port);
    socket.write(askForMany());
    const from = performance.now();
    let taken = 0;
    for await (const chunk of socket) {
      taken += (chunk as Buffer).length;
      // no faster than 16 KiB a millisecond
      while (taken > (performance.now() - from) * 16 * 1024) await new Promise((resolve) => setTimeout(resolve, 20));
      if (taken > ASKED * small.length) break;
    }
    expect(performance.now() - from).toBeGreaterThan(1500);
    socket.destroy();
  });

  it.each([
    { name: 'says nothing in its tunnel', bytes: () => Promise.resolve(Buffer.alloc(0)) },
    { name: 'does not end its ClientHello', bytes: async () => (await clientHello('api.test')).subarray(0, 100) },
    { name: 'does not end the handshake', bytes: () => clientHello('api.test') },
  ])('is cut when it $name', async ({ bytes }) => {
    const after = strict.outcomes.length;
    const { socket } = await openTunnel(strict, `api.test:${secure.port}`);
    socket.write(await bytes());
    await once(socket.resume(), 'end');
    socket.destroy();
    const outcome = await strict.outcome(({ arrival }) => arrival.purpose === 'tunnel', after);
    expect(outcome.verdict?.code).toBe('request_timeout');
  });
});

describe('a kept-alive connection', () => {
  let brief: House;

  beforeAll(async () => {
    brief = await startHouse(
      {
        network: { allowlist: [{ domain: 'plain.test', ports: [plain.port], addresses: LOOPBACK }] },
        limits: { timeouts: { keep_alive: '300ms' } },
      },
      { names: { 'plain.test': ['127.0.0.1'] } },
    );
  });
  afterAll(() => brief.stop());

  /** Resolves once a connection that has had its answer was closed for being idle. */
  async function idleIsClosed(): Promise<void> {
    const socket = await connectTo(brief.port);
    socket.write(`${start('GET', '/')}\r\n`);
    expect((await readAnswer(socket)).status).toBe(200);
    await once(socket.resume(), 'end');
    socket.destroy();
  }

  it('is closed when it is idle for too long, but not while its answer is on the way', async () => {
    const arrived = script.nextAt('/slow');
    const socket = await connectTo(brief.port);
    socket.write(`${start('GET', '/slow')}\r\n`);
    const { response } = await arrived;
    await idleIsClosed();
    response.end('late');
    expect((await readAnswer(socket)).body).toBe('late');
    await once(socket.resume(), 'end');
    socket.destroy();
  });

  it('is not closed when it has become a tunnel, however long nothing comes through', async () => {
    const socket = await connectTo(brief.port);
    const authority = `plain.test:${plain.port}`;
    socket.write(`${start('GET', '/')}\r\n`);
    await readAnswer(socket);
    socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
    expect(String((await once(socket.resume(), 'data'))[0])).toMatch(/^HTTP\/1\.1 200 /);
    await idleIsClosed();
    socket.write(`GET / HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
    expect((await readAnswer(socket)).body).toBe('ok');
    socket.destroy();
  });
});

describe('too many connections', () => {
  beforeEach(() => nobodyIsLeft(strict));

  it('are 503, and others may come once some have gone', async () => {
    const held = await Promise.all(Array.from({ length: 6 }, () => connectTo(strict.port)));
    const answer = await sendRaw(strict.port, `${start('GET', '/')}\r\n`);
    expect([answer.status, answer.headers['x-sallyport-reason']]).toEqual([503, 'limit_reached']);
    expect((await strict.outcome(({ verdict }) => verdict?.code === 'limit_reached')).trace.status).toBe(503);
    for (const socket of held) socket.destroy();
    await nobodyIsLeft(strict);
    expect((await sendRaw(strict.port, `${start('GET', '/')}\r\n`)).status).toBe(200);
  });

  it('in a flood are closed without an answer, so that what is turned away does not pile up', async () => {
    const after = strict.outcomes.length;
    const many = await Promise.all(Array.from({ length: 30 }, () => connectTo(strict.port)));
    // Six stay, six are turned away with an answer, the rest without.
    let ended = 0;
    await new Promise<void>((resolve) => {
      for (const socket of many) socket.resume().once('end', () => (ended += 1) === 24 && resolve());
    });
    for (const socket of many) socket.destroy();
    expect(strict.outcomes.slice(after).filter(({ verdict }) => verdict?.code === 'limit_reached')).toHaveLength(6);
  });

  it('to one upstream are 503, and others may come once some have gone', async () => {
    const held = [script.nextAt('/held/1'), script.nextAt('/held/2')];
    const waiting = [1, 2].map((index) => sendRaw(strict.port, `${start('GET', `/held/${index}`)}\r\n`));
    const arrived = await Promise.all(held);
    const answer = await sendRaw(strict.port, `${start('GET', '/third')}\r\n`);
    expect([answer.status, answer.headers['x-sallyport-reason']]).toEqual([503, 'limit_reached']);
    for (const { response } of arrived) response.end('held');
    expect((await Promise.all(waiting)).map(({ body }) => body)).toEqual(['held', 'held']);
    expect((await sendRaw(strict.port, `${start('GET', '/third')}\r\n`)).status).toBe(200);
  });

  it('to one upstream are cut in tunnels that are passed through, and others may come once some have gone', async () => {
    const door = { port: strict.port, ca: outside.authority.certificatePem };
    const authority = `pass.test:${secure.port}`;
    const held = [await openSecureTunnel(door, authority), await openSecureTunnel(door, authority)];
    const after = strict.outcomes.length;
    await expect(openSecureTunnel(door, authority)).rejects.toThrow();
    const outcome = await strict.outcome(({ arrival }) => arrival.purpose === 'passthrough', after);
    expect(outcome).toMatchObject({ decision: 'refuse', verdict: { code: 'limit_reached' } });
    for (const tunnel of held) tunnel.destroy();
    await nobodyIsLeft(strict);
    (await openSecureTunnel(door, authority)).destroy();
  });
});

// fault J06
describe('sizes', () => {
  const fields = (bytes: number): string => `X-Long: ${'x'.repeat(bytes)}\r\n`;
  const many = (count: number): string => 'X-A: 1\r\n'.repeat(count);
  const rows = [
    { name: 'fields of 15 KiB', path: '/', extra: fields(15 * 1024), status: 200 },
    { name: 'fields of 17 KiB', path: '/', extra: fields(17 * 1024), status: 200 },
    { name: 'fields of 70 KiB', path: '/', extra: fields(70 * 1024), status: 431, reason: 'headers_too_large' },
    { name: '900 fields', path: '/', extra: many(900), status: 200 },
    { name: '2,000 fields', path: '/', extra: many(2000), status: 431, reason: 'headers_too_large' },
    { name: 'a target of 8 KiB', path: `/?${'x'.repeat(8 * 1024)}`, extra: '', status: 200 },
    {
      name: 'a target of 16 KiB and a little',
      path: `/?${'x'.repeat(16 * 1024)}`,
      extra: '',
      status: 414,
      reason: 'uri_too_long',
    },
    { name: 'a target of 64 KiB', path: `/?${'x'.repeat(64 * 1024)}`, extra: '', status: 431, reason: 'headers_too_large' },
  ];

  it.each(rows)('a request with $name is $status', async ({ path, extra, status, reason }) => {
    const answer = await sendRaw(house.port, `${start('GET', path, big.port)}${extra}\r\n`);
    expect(answer.status).toBe(status);
    expect(answer.headers['x-sallyport-reason']).toBe(reason);
    if (reason === undefined) expect(Number(answer.body)).toBeGreaterThan(path.length + extra.length);
    else expect(JSON.parse(answer.body)).toMatchObject({ code: reason });
  });

  it.each(rows.filter((row) => row.reason !== undefined))('inside a tunnel a request with $name is $status too', async (row) => {
    const stream = await openSecureTunnel(house, `api.test:${secure.port}`);
    stream.write(`GET ${row.path} HTTP/1.1\r\nHost: api.test:${secure.port}\r\n${row.extra}\r\n`);
    const answer = await readAnswer(stream);
    stream.destroy();
    expect([answer.status, answer.headers['x-sallyport-reason']]).toEqual([row.status, row.reason]);
  });

  it.each([
    { name: '20 KiB', bytes: 20 * 1024, status: 200 },
    { name: '100 KiB', bytes: 100 * 1024, status: 200 },
    { name: '200 KiB', bytes: 200 * 1024, status: 502 },
  ])('an answer with fields of $name is $status', async ({ bytes, status }) => {
    script.on('/fat', (_request, response) => void response.writeHead(200, { 'set-cookie': 'x'.repeat(bytes) }).end('ok'));
    const answer = await sendRaw(house.port, `${start('GET', '/fat')}\r\n`);
    expect(answer.status).toBe(status);
    if (status === 200) expect(answer.headers['set-cookie']).toHaveLength(bytes);
    else expect(answer.headers['x-sallyport-reason']).toBe('upstream_protocol');
  });
});
