// Pooled upstream connections that die as they are reused: what is safe to send again is sent again, once, and nothing else is.
import type net from 'node:net';
import tls from 'node:tls';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startRaw } from '../support/outside.ts';
import type { Upstream } from '../support/outside.ts';
import { inside, verdictIn } from '../support/probes.ts';
import { connectTo, openSecureTunnel, readAnswer } from '../support/sandbox-client.ts';

/** A raw upstream that does what `onRaw` says */
let raw: Upstream;
let onRaw: (socket: net.Socket) => void = () => undefined;
let house: House;
/** Where `moving.test` is at present */
let home: readonly string[];

beforeEach(async () => {
  home = ['127.0.0.1'];
  raw = await startRaw((socket) => onRaw(socket));
  house = await startHouse(
    {
      network: { allowlist: ['plain.test', 'moving.test'].map((domain) => ({ domain, ports: [raw.port], addresses: LOOPBACK })) },
    },
    { names: { 'plain.test': ['127.0.0.1'], 'moving.test': () => home } },
  );
});

afterEach(async () => {
  await house.stop();
  await raw.close();
});

/** Request line and Host on the proxy port. */
function start(method: string, path: string, host = 'plain.test'): string {
  return `${method} http://${host}:${raw.port}${path} HTTP/1.1\r\nHost: ${host}:${raw.port}\r\n`;
}

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

// fault J01
describe('a pooled connection that its upstream closes', () => {
  const heads: string[] = [];

  /** Answers the first request of each connection and closes it, without a word, at the second. */
  const closesAtSecond = (socket: net.Socket): void => {
    let first = true;
    socket.on('data', (chunk: Buffer) => {
      heads.push(chunk.toString().split(' ', 1)[0] ?? '');
      if (first) socket.write(OK);
      else socket.destroy();
      first = false;
    });
  };

  it('as it is reused loses no GET: it is sent once more, on a fresh connection', async () => {
    onRaw = closesAtSecond;
    heads.length = 0;
    const socket = await connectTo(house.port);
    for (let round = 0; round < 2; round += 1) {
      socket.write(`${start('GET', '/reused')}\r\n`);
      expect((await readAnswer(socket)).status).toBe(200);
    }
    socket.destroy();
    expect(heads).toEqual(['GET', 'GET', 'GET']);
    expect(raw.connections).toBe(2);
    await house.outcome(() => true, 1);
    expect(house.outcomes.map(({ decision }) => decision)).toEqual(['allow', 'allow']);
  });

  // fault J08
  it.each([
    { name: 'with a body', rest: 'Content-Length: 4\r\n\r\nonce' },
    { name: 'with an empty body', rest: 'Content-Length: 0\r\n\r\n' },
  ])('as it is reused sends no POST $name twice: it is 502', async ({ rest }) => {
    onRaw = closesAtSecond;
    heads.length = 0;
    const socket = await connectTo(house.port);
    socket.write(`${start('GET', '/reused')}\r\n`);
    expect((await readAnswer(socket)).status).toBe(200);
    socket.write(`${start('POST', '/reused')}${rest}`);
    expect((await readAnswer(socket)).status).toBe(502);
    socket.destroy();
    expect(heads.filter((method) => method === 'POST')).toHaveLength(1);
  });

  it.each([
    { name: 'half a status line', bytes: 'HTTP/1.1 2' },
    { name: 'an interim answer', bytes: 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n' },
    { name: 'what is not HTTP', bytes: 'SSH-2.0-sshd\r\n' },
    { name: 'a header section that is too large', bytes: `HTTP/1.1 200 OK\r\nX-Long: ${'a'.repeat(300_000)}\r\n\r\n` },
  ])('after $name, sends no request twice: it is 502', async ({ bytes }) => {
    heads.length = 0;
    onRaw = (socket) => {
      let first = true;
      socket.on('data', (chunk: Buffer) => {
        heads.push(chunk.toString().split(' ', 1)[0] ?? '');
        if (first) socket.write(OK);
        else socket.end(bytes);
        first = false;
      });
    };
    const socket = await connectTo(house.port);
    socket.write(`${start('GET', '/reused')}\r\n`);
    expect((await readAnswer(socket)).status).toBe(200);
    socket.write(`${start('GET', '/reused')}\r\n`);
    const { verdict } = await house.outcome(() => true, 1);
    expect(verdict?.code).toBe('upstream_protocol');
    socket.destroy();
    expect(heads).toEqual(['GET', 'GET']);
  });

  it('after each answer, without saying so, loses no GET and sends no POST twice', async () => {
    const posts: string[] = [];
    onRaw = (socket) => {
      socket.once('data', (chunk: Buffer) => {
        const id = /\/n\/\d+/.exec(chunk.toString())?.[0] ?? '';
        if (chunk.toString().startsWith('POST')) posts.push(id);
        socket.end(OK);
      });
    };
    const socket = await connectTo(house.port);
    for (let round = 0; round < 40; round += 1) {
      const post = round % 4 === 3;
      const head = start(post ? 'POST' : 'GET', `/n/${round}`);
      socket.write(post ? `${head}Content-Length: 4\r\n\r\nonce` : `${head}\r\n`);
      const { status } = await readAnswer(socket);
      expect(post ? [200, 502] : [200]).toContain(status);
    }
    socket.destroy();
    expect(new Set(posts).size).toBe(posts.length);
  });
});

// fault A26
describe('a pooled connection whose upstream has moved meanwhile', () => {
  /** One request on a connection that is then closed, without a word, as the next one comes in. */
  async function moveAfterFirst(to: readonly string[], socket: net.Socket): Promise<{ status: number; body: string }> {
    onRaw = (upstream) => {
      upstream.once('data', () => {
        upstream.write(OK);
        upstream.once('data', () => upstream.destroy());
      });
    };
    socket.write(`${start('GET', '/', 'moving.test')}\r\n`);
    expect((await readAnswer(socket)).status).toBe(200);
    home = to;
    onRaw = (upstream) => upstream.end('HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold');
    socket.write(`${start('GET', '/', 'moving.test')}\r\n`);
    return readAnswer(socket);
  }

  it('is followed to its new address', async () => {
    const moved = await startRaw((upstream) => upstream.once('data', () => upstream.write(OK)), '127.0.0.2', raw.port);
    const socket = await connectTo(house.port);
    expect(await moveAfterFirst(['127.0.0.2'], socket)).toMatchObject({ status: 200, body: 'ok' });
    expect(house.resolved).toEqual(['moving.test', 'moving.test']);
    expect(raw.connections).toBe(1);
    socket.destroy();
    await moved.close();
    await house.outcome(() => true, 1);
    expect(house.outcomes.map(({ trace }) => trace.address)).toEqual(['127.0.0.1', '127.0.0.2']);
  });

  it('is not followed inside: the new address is judged', async () => {
    const socket = await connectTo(house.port);
    expect((await moveAfterFirst(['10.0.0.1'], socket)).status).toBe(403);
    socket.destroy();
    expect(raw.connections).toBe(1);
    const { decision, verdict } = await house.outcome(() => true, 1);
    expect([decision, verdict?.code]).toEqual(['refuse', 'address_denied']);
  });
});

describe('a pooled TLS connection that its upstream closes', () => {
  it.each([
    { name: 'before any byte of an answer', bytes: undefined, said: '200 from the upstream', requests: 3 },
    { name: 'after half a status line', bytes: 'HTTP/1.1 2', said: '502 upstream_protocol', requests: 2 },
  ])('$name is told apart', async ({ bytes, said, requests }) => {
    const outside = await openOutside();
    let seen = 0;
    onRaw = (socket) => {
      const stream = new tls.TLSSocket(socket, { isServer: true, ...outside.credentials('plain.test') });
      let first = true;
      stream
        .on('error', () => undefined)
        .on('data', () => {
          seen += 1;
          if (first) stream.write(OK);
          else if (bytes === undefined) stream.destroy();
          else stream.end(bytes);
          first = false;
        });
    };
    const to = `plain.test:${raw.port}`;
    await house.reconfigure({
      upstream: { ca: [outside.caPath] },
      network: { allowlist: [{ domain: 'plain.test', ports: [raw.port], addresses: LOOPBACK }] },
    });
    const tunnel = await openSecureTunnel(house, to);
    expect(verdictIn(await inside(tunnel, to))).toBe('200 from the upstream');
    expect(verdictIn(await inside(tunnel, to))).toBe(said);
    expect(seen).toBe(requests);
    tunnel.destroy();
    await outside.close();
  });
});
