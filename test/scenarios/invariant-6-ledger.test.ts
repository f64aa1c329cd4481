// Invariant 6 of the design through real sockets: every path through the house leaves exactly one line in the ledger, with the decision,
// its rule and its reason, and moves exactly one count of the metrics, made from the same value.
import tls from 'node:tls';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { sampled } from '../support/operator.ts';
import { openOutside, startRaw, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { gate, inside, WAYS } from '../support/probes.ts';
import type { Gate } from '../support/probes.ts';
import { connectTo, openSecureTunnel, openTunnel, readAnswer, sendRaw } from '../support/sandbox-client.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
let silent: Upstream;
let websocket: Upstream;
let garbage: Upstream;
let blind: Upstream;
let house: House;
let deadPort = 0;
let reached: Gate = gate();

const [byConnect, inAbsoluteForm] = WAYS as [(typeof WAYS)[number], (typeof WAYS)[number]];

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside });
  plain = await startUpstream();
  silent = await startRaw((socket) => void socket.once('data', () => reached.open()));
  garbage = await startRaw((socket) => void socket.once('data', () => socket.end('no HTTP at all\r\n\r\n')));
  websocket = await startRaw((socket) => {
    socket.once('data', () =>
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n'),
    );
    socket.on('end', () => socket.end());
  });
  blind = await startRaw((socket) => {
    const stream = new tls.TLSSocket(socket, { isServer: true, ...outside.credentials('blind.test') });
    stream.on('error', () => undefined).once('data', () => stream.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
  });
  const dead = await startRaw(() => undefined);
  deadPort = dead.port;
  await dead.close();
  const ports = [secure, plain, silent, websocket, garbage, blind].map(({ port }) => port).concat(deadPort);
  const rule = { ports, addresses: LOOPBACK };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      credentials: { gone: { type: 'bearer_token', token: { env: 'NOT_SET' } } },
      network: {
        denylist: [{ domain: 'denied.test' }],
        allowlist: [
          { domain: 'api.test', ...rule },
          { domain: 'read.test', methods: ['GET'], paths: ['/public'], ...rule },
          { domain: 'watched.test', methods: ['GET'], enforcement: 'monitor', ...rule },
          { domain: 'gone.test', credential: 'gone', allow_plaintext: true, ...rule },
          { domain: 'key.test', transform: { 'X-Key': 'k' }, ...rule },
          { domain: 'blind.test', tls: 'passthrough', ...rule },
          { domain: 'walled.test', ports },
          { domain: 'unresolved.test', ...rule },
        ],
      },
      limits: { timeouts: { reply: '1s', handshake: '1500ms', header: '1500ms' } },
    },
    {
      names: {
        ...Object.fromEntries(['api', 'read', 'watched', 'gone', 'key', 'blind'].map((name) => [`${name}.test`, ['127.0.0.1']])),
        'walled.test': ['10.0.0.1'],
      },
    },
  );
});

afterAll(async () => {
  await house.stop();
  for (const upstream of [secure, plain, silent, websocket, garbage, blind]) await upstream.close();
  await outside.close();
});

beforeEach(() => {
  reached = gate();
});

interface Row {
  readonly name: string;
  readonly act: () => Promise<unknown>;
  readonly line: Record<string, unknown>;
}

/** A request head in absolute-form. */
function head(host: string, port: number, { method = 'GET', fields = '' } = {}): string {
  return `${method} http://${host}:${port}/public HTTP/1.1\r\nHost: ${host}:${port}\r\n${fields}\r\n`;
}

const rows: Row[] = [
  {
    name: 'an allowed request in absolute-form',
    act: () => inAbsoluteForm.send(house, `api.test:${plain.port}`),
    line: {
      decision: 'allow',
      reason: null,
      rule: 'api.test',
      status: 200,
      door: 'proxy',
      protocol: 'http/1.1',
      scheme: 'http',
      method: 'GET',
    },
  },
  {
    name: 'an allowed request in a tunnel: the CONNECT has no line of its own',
    act: () => byConnect.send(house, `api.test:${secure.port}`),
    line: { decision: 'allow', reason: null, rule: 'api.test', status: 200, door: 'tunnel', scheme: 'https', host: 'api.test' },
  },
  {
    name: 'a plain request in a tunnel',
    act: async () => {
      const { socket } = await openTunnel(house, `api.test:${plain.port}`);
      await inside(socket, `api.test:${plain.port}`);
      socket.destroy();
    },
    line: { decision: 'allow', door: 'tunnel', scheme: 'http', status: 200 },
  },
  {
    name: 'a tunnel that carries nothing',
    act: async () => (await openTunnel(house, `api.test:${secure.port}`)).socket.destroy(),
    line: { decision: 'fault', reason: 'client_closed', method: 'CONNECT', host: 'api.test', rule: 'api.test' },
  },
  {
    name: 'a tunnel that shakes hands and asks for nothing',
    act: async () => (await openSecureTunnel(house, `api.test:${secure.port}`)).end(),
    line: { decision: 'allow', reason: null, method: 'CONNECT', status: 200, rule: 'api.test' },
  },
  {
    name: 'a tunnel that stays silent',
    act: async () => {
      const { socket } = await openTunnel(house, `api.test:${secure.port}`);
      await new Promise((resolve) => socket.once('end', resolve).once('close', resolve).resume());
    },
    line: { decision: 'refuse', reason: 'request_timeout', method: 'CONNECT', rule: 'api.test' },
  },
  {
    name: 'a tunnel with neither TLS nor HTTP in it',
    act: async () => (await openTunnel(house, `api.test:${secure.port}`)).socket.write('\x00\x01\x02\x03'),
    line: { decision: 'refuse', reason: 'bad_request', method: 'CONNECT', rule: 'api.test' },
  },
  {
    name: 'a ClientHello for another host',
    act: () => openSecureTunnel(house, `api.test:${secure.port}`, { servername: 'x.test' }).catch(() => undefined),
    line: { decision: 'refuse', reason: 'host_mismatch', method: 'CONNECT', rule: 'api.test' },
  },
  {
    name: 'a client that does not trust the CA',
    act: () => openSecureTunnel(house, `api.test:${secure.port}`, { tls: { ca: [] } }).catch(() => undefined),
    line: { decision: 'fault', reason: 'client_tls', method: 'CONNECT', rule: 'api.test' },
  },
  {
    name: 'a refused CONNECT',
    act: () => openTunnel(house, 'nowhere.test:443'),
    line: {
      decision: 'refuse',
      reason: 'not_allowlisted',
      rule: null,
      status: 403,
      method: 'CONNECT',
      host: 'nowhere.test',
      port: 443,
    },
  },
  {
    name: 'a denied name',
    act: () => openTunnel(house, 'denied.test:443'),
    line: { decision: 'refuse', reason: 'denylisted', rule: 'deny denied.test', status: 403 },
  },
  {
    name: 'a denied port',
    act: () => openTunnel(house, 'api.test:22'),
    line: { decision: 'refuse', reason: 'port_denied', rule: 'api.test', status: 403 },
  },
  {
    name: 'a denied method in a tunnel',
    act: () =>
      byConnect.send(house, `read.test:${secure.port}`, { method: 'PUT', path: '/public', fields: 'Content-Length: 0\r\n' }),
    line: { decision: 'refuse', reason: 'method_denied', rule: 'read.test', status: 403, method: 'PUT' },
  },
  {
    name: 'a denied path',
    act: () => inAbsoluteForm.send(house, `read.test:${plain.port}`, { path: '/other?q=1' }),
    line: { decision: 'refuse', reason: 'path_denied', rule: 'read.test', status: 403, path: '/other' },
  },
  {
    name: 'what monitoring lets pass',
    act: () => inAbsoluteForm.send(house, `watched.test:${plain.port}`, { method: 'DELETE' }),
    line: { decision: 'would_refuse', reason: 'method_denied', rule: 'watched.test', status: 200 },
  },
  {
    name: 'an address inside',
    act: () => inAbsoluteForm.send(house, `walled.test:${plain.port}`),
    line: { decision: 'refuse', reason: 'address_denied', rule: 'walled.test', status: 403, address: '10.0.0.1' },
  },
  {
    name: 'a CONNECT to an address inside',
    act: () => openTunnel(house, '10.0.0.1:443'),
    line: { decision: 'refuse', reason: 'not_allowlisted', status: 403 },
  },
  {
    name: 'a Host that disagrees',
    act: () => byConnect.send(house, `api.test:${secure.port}`, { host: 'x.test' }),
    line: { decision: 'refuse', reason: 'host_mismatch', status: 421, host: 'api.test' },
  },
  {
    name: 'a forbidden method',
    act: () => inAbsoluteForm.send(house, `api.test:${plain.port}`, { method: 'TRACE' }),
    line: { decision: 'refuse', reason: 'method_forbidden', status: 405 },
  },
  {
    name: 'a field put on over plain http',
    act: () => inAbsoluteForm.send(house, `key.test:${plain.port}`),
    line: { decision: 'refuse', reason: 'plaintext_credential', rule: 'key.test', status: 403 },
  },
  {
    name: 'a credential that is not there',
    act: () => inAbsoluteForm.send(house, `gone.test:${plain.port}`),
    line: { decision: 'fault', reason: 'credential_unavailable', rule: 'gone.test', status: 502, credentials: [] },
  },
  {
    name: 'a name that does not resolve',
    act: () => inAbsoluteForm.send(house, `unresolved.test:${plain.port}`),
    line: { decision: 'fault', reason: 'dns_failed', rule: 'unresolved.test', status: 502 },
  },
  {
    name: 'an upstream that is not there',
    act: () => inAbsoluteForm.send(house, `api.test:${deadPort}`),
    line: { decision: 'fault', reason: 'upstream_connect', rule: 'api.test', status: 502 },
  },
  {
    name: 'an upstream without TLS',
    act: () => byConnect.send(house, `api.test:${garbage.port}`),
    line: { decision: 'fault', reason: 'upstream_tls', rule: 'api.test', status: 502 },
  },
  {
    name: 'an answer that is not HTTP',
    act: () => inAbsoluteForm.send(house, `api.test:${garbage.port}`),
    line: { decision: 'fault', reason: 'upstream_protocol', rule: 'api.test', status: 502, address: '127.0.0.1' },
  },
  {
    name: 'an upstream that does not answer',
    act: () => inAbsoluteForm.send(house, `api.test:${silent.port}`),
    line: { decision: 'fault', reason: 'upstream_timeout', rule: 'api.test', status: 504 },
  },
  {
    name: 'a sandbox that leaves',
    act: async () => {
      const socket = await connectTo(house.port);
      socket.write(head('api.test', silent.port));
      await reached.opened;
      socket.destroy();
    },
    line: { decision: 'fault', reason: 'client_closed', rule: 'api.test' },
  },
  {
    name: 'a WebSocket',
    act: async () => {
      const socket = await connectTo(house.port);
      socket.write(
        head('api.test', websocket.port, {
          fields:
            'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n',
        }),
      );
      expect((await readAnswer(socket)).status).toBe(101);
      socket.end();
    },
    line: { decision: 'allow', reason: null, protocol: 'websocket', status: 101 },
  },
  {
    name: 'a refused WebSocket',
    act: () =>
      sendRaw(
        house.port,
        head('nowhere.test', 80, { fields: 'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n' }),
      ),
    line: { decision: 'refuse', reason: 'not_allowlisted', protocol: 'websocket', status: 403 },
  },
  {
    name: 'a tunnel that is passed through',
    act: async () => {
      const tunnel = await openSecureTunnel(house, `blind.test:${blind.port}`, {
        tls: { ca: undefined, rejectUnauthorized: false },
      });
      expect((await inside(tunnel, 'blind.test')).body).toBe('ok');
      tunnel.destroy();
    },
    line: { decision: 'allow', protocol: 'passthrough', rule: 'blind.test', path: null, host: 'blind.test' },
  },
  {
    name: 'a passed-through tunnel to an upstream that is not there',
    act: () => openSecureTunnel(house, `blind.test:${deadPort}`).catch(() => undefined),
    line: { decision: 'fault', reason: 'upstream_connect', protocol: 'passthrough', rule: 'blind.test' },
  },
  {
    name: 'a malformed target',
    act: () => inAbsoluteForm.send(house, '0x7f.1:80'),
    line: { decision: 'refuse', reason: 'bad_request', rule: null, status: 400 },
  },
  {
    name: 'a request line that the parser refuses',
    act: () => sendRaw(house.port, 'GET http://api.test/ HTTP/9.9\r\n\r\n'),
    line: { decision: 'refuse', reason: 'bad_request', status: 400 },
  },
  {
    name: 'a request in a tunnel that the parser refuses',
    act: () => byConnect.send(house, `api.test:${secure.port}`, { fields: 'X : y\r\n' }),
    line: { decision: 'refuse', reason: 'bad_request', status: 400, host: 'api.test', door: 'tunnel' },
  },
  {
    name: 'a header section over the limit',
    act: () => sendRaw(house.port, head('api.test', plain.port, { fields: `X-Big: ${'x'.repeat(70_000)}\r\n` })),
    line: { decision: 'refuse', reason: 'headers_too_large', status: 431 },
  },
  {
    name: 'a target over the limit',
    act: () => sendRaw(house.port, `GET http://api.test/${'a'.repeat(17_000)} HTTP/1.1\r\nHost: api.test\r\n\r\n`),
    line: { decision: 'refuse', reason: 'uri_too_long', status: 414 },
  },
  {
    name: 'a header section that does not end',
    act: async () => {
      const socket = await connectTo(house.port);
      socket.write('GET http://api.test/ HTTP/1.1\r\nHost: api');
      expect((await readAnswer(socket)).status).toBe(408);
      socket.destroy();
    },
    line: { decision: 'refuse', reason: 'request_timeout', status: 408 },
  },
];

describe('invariant 6: one ledger line for each exchange', () => {
  it.each(rows)('for $name', async ({ act, line }) => {
    const from = house.outcomes.length;
    const before = { lines: (await house.audit()).length, scrape: await house.scrape() };
    await act();
    await house.outcome(() => true, from);
    // A second line would be written by the time another exchange has come and gone.
    await inAbsoluteForm.send(house, 'after.test:80');
    await house.outcome(({ arrival }) => arrival.target.includes('after.test'), from);
    const lines = (await house.audit()).slice(before.lines).filter(({ host }) => host !== 'after.test');
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatchObject(line);
    const { decision, reason, rule, protocol, status } = lines[0]! as Record<string, string | number | null>;
    const labels = {
      decision: String(decision),
      reason: String(reason ?? 'none'),
      rule: String(rule ?? 'none'),
      protocol: String(protocol),
      status_class: status === null || status === undefined ? 'none' : `${Math.floor(Number(status) / 100)}xx`,
    };
    const scrape = await house.scrape();
    const grown = (wanted: Record<string, string>) =>
      sampled(scrape, 'sallyport_requests_total', wanted) - sampled(before.scrape, 'sallyport_requests_total', wanted);
    const isLikeTheProbe = labels.reason === 'not_allowlisted' && labels.protocol === 'http/1.1';
    expect(grown(labels)).toBe(isLikeTheProbe ? 2 : 1);
    expect(grown({})).toBe(2);
  });

  it('gives each line an id of its own, and the id of the answer', async () => {
    const lines = await house.audit();
    expect(new Set(lines.map((line) => line['request_id'])).size).toBe(lines.length);
  });

  it('has no line for a connection that ends before its request is whole: nothing was asked', async () => {
    const from = house.outcomes.length;
    const socket = await connectTo(house.port);
    socket.end('GET http://api.test/ HTTP/1.1\r\nHost: api');
    await new Promise((resolve) => socket.once('end', resolve).once('close', resolve).resume());
    await openTunnel(house, 'next.test:443');
    await house.outcome(({ arrival }) => arrival.target === 'next.test:443', from);
    expect(house.outcomes).toHaveLength(from + 1);
  });

  it('has one line for each of several requests on one connection, allowed and refused', async () => {
    const from = house.outcomes.length;
    const tunnel = await openSecureTunnel(house, `read.test:${secure.port}`);
    for (const path of ['/public', '/other', '/public']) await inside(tunnel, `read.test:${secure.port}`, { path });
    tunnel.destroy();
    await openTunnel(house, 'last.test:443');
    await house.outcome(({ arrival }) => arrival.target === 'last.test:443', from);
    expect(house.outcomes.slice(from).map(({ decision, verdict }) => verdict?.code ?? decision)).toEqual([
      'allow',
      'path_denied',
      'allow',
      'not_allowlisted',
    ]);
  });
});
