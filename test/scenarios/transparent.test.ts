// Sandboxes that know of no proxy, through a whole house: a connection to a transparent port stands for one that a redirect has led there,
// and one to another address of loopback for one that was led by a route, so that the address that was dialled is known.
import { once } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import type { Duplex } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { exchange, speakHttp2 } from '../support/http2-client.ts';
import { startHttp2Upstream } from '../support/http2-upstream.ts';
import type { Http2Upstream } from '../support/http2-upstream.ts';
import { openLed } from '../support/led-client.ts';
import type { Dialled } from '../support/led-client.ts';
import { openOutside, startRaw, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { connectTo, readAnswer } from '../support/sandbox-client.ts';
import type { Answer } from '../support/sandbox-client.ts';
import type { Refusal } from '../../src/exchange/codes.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
let modern: Http2Upstream;
/** At 127.0.0.9, in the clear */
let literal: Upstream;
let sockets: WebSocketServer;
let house: House;

const ELSEWHERE = '127.0.0.9';
const names = {
  'api.test': ['127.0.0.1'],
  'modern.test': ['127.0.0.1'],
  'plain.test': ['127.0.0.1'],
  'pinned.test': ['127.0.0.1'],
  'rebound.test': ['127.0.0.1'],
  'mixed.test': ['198.51.100.7', '10.0.0.1'],
  'door.test': ['127.0.0.1'],
};

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside });
  plain = await startUpstream();
  modern = await startHttp2Upstream({ tls: outside });
  literal = await startRaw((socket) => {
    socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nhere'));
  }, ELSEWHERE);
  sockets = new WebSocketServer({ noServer: true });
  sockets.on('connection', (client: WebSocket) => client.on('message', (message: Buffer) => client.send(message)));
  for (const { server } of [secure, plain]) {
    server.on('upgrade', (request: http.IncomingMessage, socket: Duplex, head: Buffer) => {
      sockets.handleUpgrade(request, socket, head, (client) => sockets.emit('connection', client, request));
    });
  }
  house = await startHouse(
    {
      listen: {
        proxy: '127.0.0.1:0',
        transparent: {
          tls: '0.0.0.0:0',
          http: '0.0.0.0:0',
          ports: {
            [secure.port]: { tls: '0.0.0.0:0' },
            [modern.port]: { tls: '0.0.0.0:0' },
            [plain.port]: { http: '0.0.0.0:0' },
            [literal.port]: { http: '0.0.0.0:0' },
          },
        },
      },
      upstream: { ca: [outside.caPath] },
      sandboxes: {
        one: { sources: ['127.0.0.1'] },
        two: { sources: ['127.0.0.2/32'], network: { allowlist: [{ domain: 'other.test' }] } },
      },
      network: {
        denylist: [{ domain: 'blocked.test' }],
        allowlist: [
          {
            domain: 'api.test',
            ports: [secure.port],
            addresses: LOOPBACK,
            transform: { Authorization: 'Bearer put-on' },
            paths: ['/|/a|/socket'],
          },
          { domain: 'modern.test', ports: [modern.port], addresses: LOOPBACK, transform: { Authorization: 'Bearer put-on' } },
          { domain: 'plain.test', ports: [plain.port], addresses: LOOPBACK },
          { domain: 'pinned.test', ports: [secure.port], addresses: LOOPBACK, tls: 'passthrough' },
          { domain: 'rebound.test', ports: [secure.port, plain.port] },
          { domain: 'mixed.test', ports: [secure.port] },
          { domain: 'door.test', ports: [443, 80, secure.port], addresses: LOOPBACK },
          { domain: 'watched.test', ports: [444], addresses: LOOPBACK, enforcement: 'monitor' },
          { domain: ELSEWHERE, ports: [literal.port], addresses: LOOPBACK },
        ],
      },
    },
    { names },
  );
});

afterAll(async () => {
  sockets.close();
  await house.stop();
  await Promise.all([secure, plain, modern, literal].map((upstream) => upstream.close()));
  await outside.close();
});

/** The port of a door, by its key. */
function at(key: string): number {
  return house.app.transparent[key]!.port;
}

function dial(servername: string | undefined, more: Partial<Dialled> = {}) {
  const port = more.port ?? at(`ports.${secure.port}.tls`);
  return openLed({ ca: house.ca, ...more, port, ...(servername === undefined ? {} : { servername }) });
}

interface Asked extends Partial<Dialled> {
  /** Default: the host that was dialled, at its port */
  readonly host?: string;
  readonly path?: string;
  readonly fields?: string;
}

/** One request inside TLS that was led here. */
async function ask(servername: string | undefined, { host, path = '/', fields = '', ...more }: Asked = {}): Promise<Answer> {
  const secured = await dial(servername, more);
  secured.write(`GET ${path} HTTP/1.1\r\nHost: ${host ?? `${servername ?? more.address ?? ''}:${secure.port}`}\r\n${fields}\r\n`);
  try {
    return await readAnswer(secured);
  } finally {
    secured.destroy();
  }
}

/** One plain request that was led here. */
async function askPlain(
  port: number,
  host: string,
  more: { readonly address?: string; readonly target?: string } = {},
): Promise<Answer> {
  const socket = await connectTo(port, more.address);
  socket.write(`GET ${more.target ?? '/'} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  try {
    return await readAnswer(socket);
  } finally {
    socket.destroy();
  }
}

function refusal(answer: Answer): string {
  expect(answer.headers['content-type']).toBe('application/problem+json');
  expect(JSON.parse(answer.body)).toMatchObject({ status: answer.status, code: answer.headers['x-sallyport-reason'] });
  return `${answer.status} ${answer.headers['x-sallyport-reason'] ?? ''}`;
}

describe('a sandbox that knows of no proxy', () => {
  it('reaches an allowed host by TLS, with its credential put on', async () => {
    const before = house.outcomes.length;
    const answer = await ask('api.test', { path: '/a?b=1', fields: 'Authorization: mine\r\n' });
    expect(answer.status).toBe(200);
    const seen = secure.seen.at(-1)!;
    expect(seen.url).toBe('/a?b=1');
    expect(valuesOf(seen.fields, 'authorization')).toEqual(['Bearer put-on']);
    await house.outcome(({ arrival }) => arrival.target === '/a?b=1', before);
    expect((await house.audit()).at(-1)).toMatchObject({
      door: 'transparent',
      protocol: 'http/1.1',
      sandbox: 'one',
      scheme: 'https',
      host: 'api.test',
      port: secure.port,
      rule: 'api.test',
      decision: 'allow',
      status: 200,
    });
  });

  it('reaches one by HTTP/2', async () => {
    const secured = await dial('modern.test', { port: at(`ports.${modern.port}.tls`), alpn: ['h2', 'http/1.1'] });
    const session = speakHttp2(secured, `modern.test:${modern.port}`);
    const answers = await Promise.all(['/1', '/2'].map((path) => exchange(session, { ':path': path })));
    session.destroy();
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    expect(modern.seen.map(({ fields }) => valuesOf(fields, 'authorization'))).toEqual([['Bearer put-on'], ['Bearer put-on']]);
  });

  it('reaches one by plain HTTP', async () => {
    const answer = await askPlain(at(`ports.${plain.port}.http`), `plain.test:${plain.port}`, { target: '/x' });
    expect(answer.status).toBe(200);
    expect(plain.seen.at(-1)).toMatchObject({ url: '/x' });
    const absolute = { target: `http://plain.test:${plain.port}/y` };
    expect((await askPlain(at(`ports.${plain.port}.http`), `plain.test:${plain.port}`, absolute)).status).toBe(200);
    expect(plain.seen.at(-1)).toMatchObject({ url: '/y' });
  });

  it.each(['wss', 'ws'])('reaches one by WebSocket: %s', async (scheme) => {
    const secured = scheme === 'wss';
    const upstream = secured ? secure : plain;
    const stream = secured ? await dial('api.test') : await connectTo(at(`ports.${plain.port}.http`));
    const agent = secured ? new https.Agent() : new http.Agent();
    agent.createConnection = () => stream;
    const client = new WebSocket(`${scheme}://${secured ? 'api' : 'plain'}.test:${upstream.port}/socket`, { agent });
    await once(client, 'open');
    client.send('hello');
    expect(String((await once(client, 'message'))[0])).toBe('hello');
    const ended = house.outcome(({ arrival }) => arrival.protocol === 'websocket', house.outcomes.length);
    client.close();
    expect((await ended).arrival.door).toBe('transparent');
  });

  it('goes through unread where the rule says so', async () => {
    const before = house.outcomes.length;
    const answer = await ask('pinned.test', { ca: outside.authority.certificatePem });
    expect(answer.status).toBe(200);
    const { arrival, decision, trace } = await house.outcome((outcome) => outcome.arrival.purpose === 'passthrough', before);
    expect({ door: arrival.door, decision, sandbox: trace.sandbox }).toEqual({
      door: 'transparent',
      decision: 'allow',
      sandbox: 'one',
    });
  });

  it('is known by where it comes from, and judged by its own policy', async () => {
    expect(refusal(await ask('api.test', { from: '127.0.0.2' }))).toBe('403 not_allowlisted');
    expect(house.outcomes.at(-1)!.trace.sandbox).toBe('two');
    expect(refusal(await ask('api.test', { from: '127.0.0.3' }))).toBe('407 sandbox_unauthenticated');
  });

  it('is not known by what it says of itself, and says it to nobody else', async () => {
    const fields = 'Proxy-Authorization: Basic eDp5\r\n';
    expect(refusal(await ask('api.test', { from: '127.0.0.3', fields }))).toBe('407 sandbox_unauthenticated');
    expect((await ask('api.test', { fields })).status).toBe(200);
    expect(valuesOf(secure.seen.at(-1)!.fields, 'proxy-authorization')).toEqual([]);
  });
});

describe('what a sandbox is refused', () => {
  it('is told inside TLS, by a certificate of the name, with one line in the ledger and no question of a resolver', async () => {
    const before = house.outcomes.length;
    const asked = house.resolved.length;
    const secured = await dial('no.test');
    expect(secured.getPeerCertificate().subjectaltname).toBe('DNS:no.test');
    secured.write(`GET /1 HTTP/1.1\r\nHost: no.test:${secure.port}\r\n\r\n`);
    expect(refusal(await readAnswer(secured))).toBe('403 not_allowlisted');
    secured.write(`GET /2 HTTP/1.1\r\nHost: no.test:${secure.port}\r\n\r\n`);
    expect(refusal(await readAnswer(secured))).toBe('403 not_allowlisted');
    secured.destroy();
    expect((await dial('blocked.test').then((next) => next.destroy())).destroyed).toBe(true);
    // The tunnel that nobody used has a line of its own; the one before has those of its requests.
    await house.outcome(({ verdict }) => verdict?.code === 'denylisted', before);
    const lines = house.outcomes
      .slice(before)
      .map(({ arrival, verdict }) => `${arrival.purpose} ${arrival.target} ${verdict?.code ?? ''}`);
    expect(lines).toEqual(['exchange /1 not_allowlisted', 'exchange /2 not_allowlisted', 'tunnel blocked.test denylisted']);
    expect(house.resolved.length).toBe(asked);
  });

  it('is told over HTTP/2', async () => {
    const secured = await dial('no.test', { alpn: ['h2'] });
    const session = speakHttp2(secured, `no.test:${secure.port}`);
    const answer = await exchange(session, { ':path': '/' });
    session.destroy();
    expect(answer).toMatchObject({ status: 403, headers: { 'x-sallyport-reason': 'not_allowlisted' } });
  });

  it('is told over plain HTTP', async () => {
    expect(refusal(await askPlain(at('http'), 'no.test'))).toBe('403 not_allowlisted');
  });

  it('stands in the ledger although its client does not trust the CA', async () => {
    const before = house.outcomes.length;
    await expect(dial('no.test', { ca: outside.authority.certificatePem })).rejects.toThrow(/certificate/);
    const { arrival, verdict } = await house.outcome(({ arrival: { purpose } }) => purpose === 'tunnel', before);
    expect([arrival.target, verdict?.code]).toEqual(['no.test', 'not_allowlisted']);
  });

  it.each([
    { name: 'a path', servername: 'api.test', path: '/no', expected: '403 path_denied' },
    { name: 'a name that leads inside', servername: 'rebound.test', expected: '403 address_denied' },
    { name: 'a name that leads inside and outside', servername: 'mixed.test', expected: '403 address_denied' },
  ])('is judged as by every other door: $name', async ({ servername, path, expected }) => {
    const connections = secure.connections;
    expect(refusal(await ask(servername, path === undefined ? {} : { path }))).toBe(expected);
    expect(secure.connections).toBe(connections);
  });

  it('is any port that its rule does not name', async () => {
    expect(refusal(await ask('api.test', { port: at('tls'), host: 'api.test' }))).toBe('403 port_denied');
    expect(refusal(await askPlain(at('http'), 'plain.test'))).toBe('403 port_denied');
  });

  it('is nothing under a rule that only watches, which goes into the ledger', async () => {
    const before = house.outcomes.length;
    const answer = await ask('watched.test', { port: at('tls'), host: 'watched.test' });
    expect(refusal(answer)).toBe('502 dns_failed');
    expect((await house.outcome(() => true, before)).trace.permit?.wouldRefuse).toBe('port_denied');
  });

  it('is the way back to the doors themselves, whatever a rule opens', async () => {
    const free = await startRaw(() => undefined);
    const { port } = free;
    await free.close();
    const other = await startHouse(
      {
        listen: { proxy: '127.0.0.1:0', transparent: { ports: { [port]: { http: `0.0.0.0:${port}` } } } },
        network: { allowlist: [{ domain: '*', ports: [port], addresses: LOOPBACK }] },
      },
      { names },
    );
    try {
      expect(refusal(await askPlain(port, `door.test:${port}`))).toBe('403 address_denied');
      expect(refusal(await askPlain(port, `${ELSEWHERE}:${port}`, { address: ELSEWHERE }))).toBe('403 address_denied');
      expect(other.outcomes.map(({ verdict }) => (verdict as Refusal).detail)).toEqual([
        'the name "door.test" leads to an address of class own_listener',
        'the target is an address of class own_listener',
      ]);
    } finally {
      await other.stop();
    }
  });

  it('is a CONNECT, which is for the proxy port', async () => {
    const socket = await connectTo(at('http'));
    socket.write('CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n');
    expect(refusal(await readAnswer(socket, 'CONNECT'))).toBe('400 bad_request');
    const secured = await dial('api.test');
    secured.write(`CONNECT api.test:${secure.port} HTTP/1.1\r\nHost: api.test:${secure.port}\r\n\r\n`);
    expect(refusal(await readAnswer(secured, 'CONNECT'))).toBe('400 bad_request');
  });
});

describe('one connection leads to one host', () => {
  it.each([
    { name: 'another host', host: () => `pinned.test:${secure.port}` },
    { name: 'another host that nobody may reach', host: () => `no.test:${secure.port}` },
    { name: 'another port', host: () => 'api.test' },
    {
      name: 'another host in an absolute target',
      host: () => `api.test:${secure.port}`,
      path: () => `https://pinned.test:${secure.port}/`,
    },
    { name: 'the same host in the clear', host: () => `api.test:${secure.port}`, path: () => `http://api.test:${secure.port}/` },
  ])('refuses a Host other than the ClientHello: $name', async ({ host, path }) => {
    const connections = secure.connections;
    expect(refusal(await ask('api.test', { host: host(), path: path?.() ?? '/' }))).toBe('421 host_mismatch');
    expect(secure.connections).toBe(connections);
  });

  it('refuses an :authority other than the ClientHello', async () => {
    const secured = await dial('modern.test', { port: at(`ports.${modern.port}.tls`), alpn: ['h2'] });
    const session = speakHttp2(secured, `modern.test:${modern.port}`);
    const answer = await exchange(session, { ':path': '/', ':authority': `no.test:${modern.port}` });
    session.destroy();
    expect(answer).toMatchObject({ status: 421, headers: { 'x-sallyport-reason': 'host_mismatch' } });
  });

  it("asks no resolver whether the address that was dialled is the name's", async () => {
    const answer = await ask('api.test', { address: '127.0.0.77' });
    expect(answer.status).toBe(200);
  });
});

describe('a connection that names no host', () => {
  const literalPort = () => at(`ports.${literal.port}.http`);

  it('is cut with an alert where the address that was dialled is not known', async () => {
    const before = house.outcomes.length;
    await expect(dial(undefined)).rejects.toThrow(/unrecognized name/);
    const { arrival, verdict } = await house.outcome(() => true, before);
    expect([arrival.target, verdict?.code]).toEqual(['', 'bad_request']);
  });

  it('is judged as the address where that is known', async () => {
    expect(refusal(await ask(undefined, { address: ELSEWHERE, host: `${ELSEWHERE}:${secure.port}` }))).toBe('403 port_denied');
    expect(refusal(await ask(undefined, { address: '127.0.0.8', host: `127.0.0.8:${secure.port}` }))).toBe('403 not_allowlisted');
    const answer = await askPlain(literalPort(), `${ELSEWHERE}:${literal.port}`, { address: ELSEWHERE });
    expect(answer).toMatchObject({ status: 200, body: 'here' });
  });

  it('goes to no address but the one that was dialled', async () => {
    const host = `${ELSEWHERE}:${literal.port}`;
    expect(refusal(await askPlain(literalPort(), host, { address: '127.0.0.8' }))).toBe('421 host_mismatch');
    expect(refusal(await askPlain(literalPort(), host))).toBe('421 host_mismatch');
    expect(refusal(await askPlain(literalPort(), `[::1]:${literal.port}`, { address: ELSEWHERE }))).toBe('421 host_mismatch');
  });
});

describe('transparent doors', () => {
  it('are counted with every other door', async () => {
    const scraped = async () => Number(/^sallyport_open_connections\{side="sandbox"\} (\d+)/m.exec(await house.scrape())?.[1]);
    const before = await scraped();
    const held = [await dial('api.test'), await connectTo(at('http')), await connectTo(at('tls'))];
    expect(await scraped()).toBe(before + 3);
    for (const each of held) each.destroy();
  });

  it('follow a reload', async () => {
    const other = await startHouse({ listen: { proxy: '127.0.0.1:0', transparent: { http: '127.0.0.1:0' } } });
    const port = other.app.transparent['http']!.port;
    expect(refusal(await askPlain(port, 'late.test'))).toBe('403 not_allowlisted');
    const listen = { proxy: '127.0.0.1:0', transparent: { http: '127.0.0.1:0' } };
    await other.reconfigure({ listen, network: { allowlist: [{ domain: 'late.test' }] } });
    expect(refusal(await askPlain(port, 'late.test'))).toBe('502 dns_failed');
    await other.reconfigure({ listen: { proxy: '127.0.0.1:0' } });
    expect(other.logged.join('\n')).toContain('listen.transparent');
    await other.stop();
  });

  it('leave nothing listening where one of them cannot be had', async () => {
    const taken = await startRaw(() => undefined);
    const free = await startRaw(() => undefined);
    await free.close();
    const config = {
      listen: { proxy: `127.0.0.1:${free.port}`, transparent: { tls: '127.0.0.1:0', http: `127.0.0.1:${taken.port}` } },
    };
    await expect(startHouse(config)).rejects.toThrow(/EADDRINUSE/);
    await expect(connectTo(free.port)).rejects.toThrow(/ECONNREFUSED/);
    await taken.close();
  });

  it('end what is under way before they close, and take nothing more', async () => {
    const slow = await startUpstream({
      tls: outside,
      raw: (_request, response) => void answers.push(() => response.end('late')),
    });
    const answers: (() => void)[] = [];
    const other = await startHouse(
      {
        listen: { proxy: '127.0.0.1:0', transparent: { ports: { [slow.port]: { tls: '127.0.0.1:0' } } } },
        upstream: { ca: [outside.caPath] },
        network: { allowlist: [{ domain: 'api.test', ports: [slow.port], addresses: LOOPBACK }] },
      },
      { names },
    );
    const { port } = other.app.transparent[`ports.${slow.port}.tls`]!;
    const secured = await openLed({ port, servername: 'api.test', ca: other.ca });
    secured.write(`GET / HTTP/1.1\r\nHost: api.test:${slow.port}\r\n\r\n`);
    await new Promise<void>((resolve) => slow.server.once('request', () => resolve()));
    const stopped = other.stop();
    expect((await fetch(`http://127.0.0.1:${other.adminPort}/readyz`)).status).toBe(503);
    await expect(connectTo(port)).rejects.toThrow(/ECONNREFUSED/);
    for (const answer of answers) answer();
    expect(await readAnswer(secured)).toMatchObject({ status: 200, body: 'late' });
    await stopped;
    await slow.close();
  });
});
