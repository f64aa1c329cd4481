// Connections that break off, in every phase and from both ends: the process stays up, nothing piles up, and every exchange
// leaves exactly one line that says who broke it off.
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import type net from 'node:net';
import tls from 'node:tls';
import type { Duplex } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { Outcome } from '../../src/exchange/trace.ts';
import { clientHello } from '../support/client-hellos.ts';
import { startDeaf } from '../support/deaf-port.ts';
import type { Deaf } from '../support/deaf-port.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { sampled, untilIt } from '../support/operator.ts';
import { openOutside, startRaw, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { gate } from '../support/probes.ts';
import { connectTo, openSecureTunnel, openTunnel, readAnswer, sendRaw } from '../support/sandbox-client.ts';
import { openScript } from '../support/scripted-upstream.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
/** A raw upstream that does what `onRaw` says */
let raw: Upstream;
let onRaw: (socket: net.Socket) => void = () => undefined;
/** A port where nobody takes a connection up */
let deaf: Deaf;
/** What resolves a name that takes its time */
let onLate: () => Promise<readonly string[]> = () => Promise.resolve(['127.0.0.1']);
/** A port that nobody listens on any more */
let gonePort: number;
let house: House;
const script = openScript();
const escaped: unknown[] = [];
const escape = (error: unknown): void => void escaped.push(error);

beforeAll(async () => {
  process.on('uncaughtException', escape).on('unhandledRejection', escape);
  outside = await openOutside();
  secure = await startUpstream({ tls: outside, raw: script.answer });
  plain = await startUpstream({ raw: script.answer });
  raw = await startRaw((socket) => onRaw(socket));
  deaf = await startDeaf();
  const gone = await startRaw(() => undefined);
  gonePort = gone.port;
  await gone.close();
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: {
        allowlist: [
          { domain: 'api.test', ports: [secure.port, raw.port], addresses: LOOPBACK },
          { domain: 'plain.test', ports: [plain.port, raw.port, gonePort], addresses: LOOPBACK },
          { domain: 'pass.test', ports: [raw.port, deaf.port], addresses: LOOPBACK, tls: 'passthrough' },
          { domain: 'late.test', ports: [raw.port], addresses: LOOPBACK, tls: 'passthrough' },
        ],
      },
    },
    {
      names: {
        'api.test': ['127.0.0.1'],
        'plain.test': ['127.0.0.1'],
        'pass.test': ['127.0.0.1'],
        'late.test': () => onLate(),
      },
    },
  );
});

afterAll(async () => {
  await house.stop();
  await secure.close();
  await plain.close();
  await raw.close();
  await deaf.close();
  await outside.close();
  process.off('uncaughtException', escape).off('unhandledRejection', escape);
  expect(escaped).toEqual([]);
});

/** Request line and Host on the proxy port. */
function start(method: string, path: string, port = plain.port): string {
  return `${method} http://plain.test:${port}${path} HTTP/1.1\r\nHost: plain.test:${port}\r\n`;
}

const HANDSHAKE =
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n';
const SWITCH = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';

/** Resolves with the next connection of the raw upstream once it has said something. */
function nextRaw(): Promise<net.Socket> {
  return new Promise((resolve) => {
    onRaw = (socket) => {
      socket.once('data', () => resolve(socket));
    };
  });
}

/** TLS over an open tunnel, with the socket under it at hand. */
async function tunnelWithin(): Promise<{ readonly under: net.Socket; readonly secured: tls.TLSSocket }> {
  const { socket } = await openTunnel(house, `api.test:${secure.port}`);
  const secured = tls.connect({ socket, servername: 'api.test', ca: house.ca });
  secured.on('error', () => undefined);
  await once(secured, 'secureConnect');
  return { under: socket, secured };
}

/** The one outcome that fits; fails where there are two. */
async function onlyOutcome(fits: (outcome: Outcome) => boolean, after: number): Promise<Outcome> {
  const found = await house.outcome(fits, after);
  await settle();
  expect(house.outcomes.slice(after).filter(fits)).toHaveLength(1);
  return found;
}

/** A whole exchange, after which anything that an earlier one may still bring about has been brought about. */
async function settle(): Promise<void> {
  expect((await sendRaw(house.port, `${start('GET', '/settled')}\r\n`)).status).toBe(200);
}

/** Resets a connection; resolves once the house has seen that. */
async function resetAndSeen(socket: net.Socket): Promise<void> {
  const open = async (): Promise<number> => sampled(await house.scrape(), 'sallyport_open_connections', { side: 'sandbox' });
  const before = await open();
  socket.resetAndDestroy();
  await untilIt(open, (now) => now < before);
}

/** Resolves once the stream is closed, with an error or without. */
function closed(stream: NodeJS.EventEmitter): Promise<void> {
  return new Promise((resolve) => stream.once('close', () => resolve()));
}

/** Resolves once the other end has ended or reset the connection. */
function over(socket: net.Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.once('end', () => resolve()).once('close', () => resolve());
    socket.resume();
  });
}

// fault J02
describe('a sandbox that resets its connection', () => {
  const phases: {
    name: string;
    act: () => Promise<void>;
    purpose?: string;
    reason?: string;
  }[] = [
    { name: 'before it has said anything', act: async () => void (await connectTo(house.port)).resetAndDestroy() },
    {
      name: 'within a head',
      act: async () => {
        const socket = await connectTo(house.port);
        await new Promise((resolve) => socket.write('GET http://plain.test/ HT', resolve));
        socket.resetAndDestroy();
      },
    },
    {
      name: 'after the 200 to its CONNECT',
      purpose: 'tunnel',
      reason: 'client_closed',
      act: async () => void (await openTunnel(house, `api.test:${secure.port}`)).socket.resetAndDestroy(),
    },
    {
      name: 'within its ClientHello',
      purpose: 'tunnel',
      reason: 'client_closed',
      act: async () => {
        const { socket } = await openTunnel(house, `api.test:${secure.port}`);
        await new Promise((resolve) => socket.write(Buffer.from([0x16, 3, 1, 2, 0, 1]), resolve));
        socket.resetAndDestroy();
      },
    },
    {
      name: 'within the handshake',
      purpose: 'tunnel',
      reason: 'client_tls',
      act: async () => {
        const { socket } = await openTunnel(house, `api.test:${secure.port}`);
        socket.write(await clientHello('api.test'));
        await once(socket.resume(), 'data');
        socket.resetAndDestroy();
      },
    },
    {
      name: 'within a request body',
      purpose: 'exchange',
      reason: 'client_closed',
      act: async () => {
        const arrived = script.nextAt('/reset-upload');
        const socket = await connectTo(house.port);
        socket.write(`${start('POST', '/reset-upload')}Content-Length: 100\r\n\r\nsome`);
        const { request } = await arrived;
        await once(request, 'data');
        socket.resetAndDestroy();
        await new Promise((resolve) => request.socket.once('end', resolve));
      },
    },
    {
      name: 'within a request body in a tunnel',
      purpose: 'exchange',
      reason: 'client_closed',
      act: async () => {
        const arrived = script.nextAt('/reset-upload');
        const { under, secured } = await tunnelWithin();
        secured.write(`POST /reset-upload HTTP/1.1\r\nHost: api.test:${secure.port}\r\nContent-Length: 100\r\n\r\nsome`);
        const { request } = await arrived;
        await once(request, 'data');
        under.resetAndDestroy();
        await closed(request);
      },
    },
    {
      name: 'while it waits for the answer',
      purpose: 'exchange',
      reason: 'client_closed',
      act: async () => {
        const arrived = script.nextAt('/reset-waiting');
        const socket = await connectTo(house.port);
        socket.write(`${start('GET', '/reset-waiting')}\r\n`);
        const { request } = await arrived;
        socket.resetAndDestroy();
        await closed(request);
      },
    },
    {
      name: 'within an answer',
      purpose: 'exchange',
      reason: 'client_closed',
      act: async () => {
        const arrived = script.nextAt('/reset-answer');
        const socket = await connectTo(house.port);
        socket.write(`${start('GET', '/reset-answer')}\r\n`);
        const { response } = await arrived;
        response.write('some');
        await once(socket.resume(), 'data');
        socket.resetAndDestroy();
        await closed(response);
      },
    },
    {
      name: 'after an upgrade',
      purpose: 'upgrade',
      reason: 'client_closed',
      act: async () => {
        const arrived = nextRaw();
        const socket = await connectTo(house.port);
        socket.write(`${start('GET', '/', raw.port)}${HANDSHAKE}\r\n`);
        const upstream = await arrived;
        upstream.write(SWITCH);
        await readAnswer(socket);
        socket.resetAndDestroy();
        await over(upstream);
      },
    },
    {
      name: 'out of a passed-through tunnel whose host is being resolved',
      purpose: 'passthrough',
      reason: 'client_closed',
      act: async () => {
        const asked = gate();
        const answered = gate<readonly string[]>();
        onLate = () => {
          asked.open();
          return answered.opened;
        };
        const { socket } = await openTunnel(house, `late.test:${raw.port}`);
        socket.write(await clientHello('late.test'));
        await asked.opened;
        await resetAndSeen(socket);
        answered.open(['127.0.0.1']);
      },
    },
    {
      name: 'out of a passed-through tunnel whose upstream is being dialled',
      purpose: 'passthrough',
      reason: 'client_closed',
      act: async () => {
        const asked = house.resolved.length;
        const { socket } = await openTunnel(house, `pass.test:${deaf.port}`);
        socket.write(await clientHello('pass.test'));
        await vi.waitFor(() => expect(house.resolved.length).toBe(asked + 1), { timeout: 5000, interval: 5 });
        await resetAndSeen(socket);
      },
    },
    {
      name: 'out of a passed-through tunnel',
      purpose: 'passthrough',
      reason: 'client_closed',
      act: async () => {
        const arrived = nextRaw();
        const { socket } = await openTunnel(house, `pass.test:${raw.port}`);
        socket.write(await clientHello('pass.test'));
        const upstream = await arrived;
        socket.resetAndDestroy();
        await over(upstream);
      },
    },
  ];

  it.each(phases)('$name leaves $reason and nothing else', async ({ act, purpose, reason }) => {
    const after = house.outcomes.length;
    await act();
    if (purpose === undefined) {
      await settle();
      expect(house.outcomes.slice(after).filter(({ arrival }) => !arrival.target.endsWith('/settled'))).toEqual([]);
      return;
    }
    const outcome = await onlyOutcome(
      ({ arrival }) => arrival.purpose === purpose && !arrival.target.endsWith('/settled'),
      after,
    );
    expect(outcome.verdict?.code).toBe(reason);
    expect(escaped).toEqual([]);
  });

  it('leaves client_tls when its client distrusts the CA', async () => {
    const after = house.outcomes.length;
    await expect(
      openSecureTunnel({ port: house.port, ca: outside.authority.certificatePem }, `api.test:${secure.port}`),
    ).rejects.toThrow();
    const outcome = await onlyOutcome(({ arrival }) => arrival.purpose === 'tunnel', after);
    expect(outcome.verdict?.code).toBe('client_tls');
  });
});

// fault J02
describe('an upstream that resets its connection', () => {
  it.each([
    { name: 'as soon as it hears anything, in plain', host: () => `http://plain.test:${raw.port}`, reason: 'upstream_protocol' },
    { name: 'within the TLS handshake', host: () => `https://api.test:${raw.port}`, reason: 'upstream_tls' },
    { name: 'by not being there', host: () => `http://plain.test:${gonePort}`, reason: 'upstream_connect' },
  ])('$name is $reason', async ({ host, reason }) => {
    onRaw = (socket) => socket.once('data', () => socket.resetAndDestroy());
    const after = house.outcomes.length;
    const { host: authority, protocol } = new URL(host());
    const stream: Duplex = protocol === 'https:' ? await openSecureTunnel(house, authority) : await connectTo(house.port);
    stream.write(`GET ${protocol === 'https:' ? '' : host()}/first HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
    const answer = await readAnswer(stream);
    stream.destroy();
    expect([answer.status, answer.headers['x-sallyport-reason']]).toEqual([502, reason]);
    const outcome = await onlyOutcome(({ arrival }) => arrival.target.endsWith('/first'), after);
    expect(outcome.verdict?.code).toBe(reason);
  });

  it.each([
    { name: 'after the head of a request', send: () => `${start('GET', '/one', raw.port)}\r\n` },
    { name: 'within an upload', send: () => `${start('PUT', '/one', raw.port)}Content-Length: 1000\r\n\r\nsome` },
  ])('$name is 502', async ({ send }) => {
    const arrived = nextRaw();
    const after = house.outcomes.length;
    const socket = await connectTo(house.port);
    socket.write(send());
    (await arrived).resetAndDestroy();
    const answer = await readAnswer(socket);
    socket.destroy();
    expect([answer.status, answer.headers['x-sallyport-reason']]).toEqual([502, 'upstream_protocol']);
    expect((await onlyOutcome(({ arrival }) => arrival.target.endsWith('/one'), after)).verdict?.code).toBe('upstream_protocol');
  });

  // fault J08
  it('within an answer cuts it, and the request is not sent again', async () => {
    let count = 0;
    onRaw = (socket) => {
      socket.once('data', () => {
        count += 1;
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome');
        answering = socket;
      });
    };
    let answering: net.Socket | undefined;
    const after = house.outcomes.length;
    const socket = await connectTo(house.port);
    socket.write(`${start('GET', '/cut', raw.port)}\r\n`);
    let text = '';
    socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
    await once(socket, 'data');
    answering?.resetAndDestroy();
    await over(socket);
    expect(text).toMatch(/^HTTP\/1\.1 200 OK[^]*some$/);
    const outcome = await onlyOutcome(({ arrival }) => arrival.target.endsWith('/cut'), after);
    expect(outcome.verdict?.code).toBe('upstream_protocol');
    expect(count).toBe(1);
  });

  it.each([
    { name: 'after an upgrade', reason: 'upstream_protocol', passThrough: false },
    { name: 'at the end of a passed-through tunnel', reason: 'upstream_protocol', passThrough: true },
  ])('$name is $reason', async ({ reason, passThrough }) => {
    const arrived = nextRaw();
    const after = house.outcomes.length;
    let socket: net.Socket;
    if (passThrough) {
      ({ socket } = await openTunnel(house, `pass.test:${raw.port}`));
      socket.write(await clientHello('pass.test'));
    } else {
      socket = await connectTo(house.port);
      socket.write(`${start('GET', '/', raw.port)}${HANDSHAKE}\r\n`);
    }
    const upstream = await arrived;
    if (!passThrough) {
      upstream.write(SWITCH);
      await readAnswer(socket);
    }
    upstream.resetAndDestroy();
    await over(socket);
    const purpose = passThrough ? 'passthrough' : 'upgrade';
    expect((await onlyOutcome(({ arrival }) => arrival.purpose === purpose, after)).verdict?.code).toBe(reason);
  });
});

// fault J03
describe('open files', () => {
  const fds = (): number => readdirSync('/proc/self/fd').length;

  it('come back to where they were after 500 tunnels, half of them closed by the sandbox and half by the upstream', async () => {
    const hello = await clientHello('pass.test');
    const one = async (index: number): Promise<void> => {
      const { socket } = await openTunnel(house, `pass.test:${raw.port}`);
      const closed = once(socket.resume(), 'close');
      socket.write(hello);
      if (index % 2 === 0) {
        await once(socket, 'data');
        socket.destroy();
      } else socket.end();
      await closed;
    };
    let turn = 0;
    onRaw = (socket) => {
      turn += 1;
      const closes = turn % 2 === 0;
      socket.on('end', () => socket.end());
      socket.once('data', () => {
        socket.write('seen');
        if (closes) socket.destroy();
      });
    };
    await one(1);
    const before = fds();
    for (let batch = 0; batch < 10; batch += 1) await Promise.all(Array.from({ length: 50 }, (_, index) => one(index)));
    await vi.waitFor(() => expect(fds()).toBeLessThanOrEqual(before + 5), { timeout: 5000 });
  });

  it('are let go of when a refused CONNECT has its answer, whether or not its client ends its side', async () => {
    const before = fds();
    const clients = await Promise.all(
      Array.from({ length: 200 }, async () => {
        const socket = await connectTo(house.port);
        socket.write('CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n\r\n');
        expect((await readAnswer(socket, 'CONNECT')).status).toBe(403);
        return socket;
      }),
    );
    // What is left are the clients' own ends.
    await vi.waitFor(() => expect(fds()).toBeLessThanOrEqual(before + clients.length + 5), { timeout: 5000 });
    for (const client of clients) client.destroy();
  });
});
