// The allowlist through real sockets (group B of the known faults): whose rule a host is, ports, methods and paths alike on every road,
// denial that is immediate and legible. Reloads are in reload.test.ts, monitoring and several rules for one domain in monitoring.test.ts.
import net from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { countOf, openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { inside, verdictIn, WAYS } from '../support/probes.ts';
import { connectTo, openSecureTunnel, openTunnel, readAnswer, sendRaw } from '../support/sandbox-client.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
let house: House;

const [byConnect, inAbsoluteForm] = WAYS as [(typeof WAYS)[number], (typeof WAYS)[number]];
const own = (scheme: 'https' | 'http'): Upstream => (scheme === 'https' ? secure : plain);
/** Every name leads to loopback */
const NAMES = Object.fromEntries(
  [
    'example.test',
    'a.b.example.test',
    'evil-example.test',
    'notexample.test',
    'example.test.evil.test',
    'example.testing',
    'readonly.test',
    'private.family.test',
    'x.internal.family.test',
    'open.family.test',
    'dev.azure.test',
    'mcp.dev.azure.test',
    'other.azure.test',
    'ports.test',
  ].map((name) => [name, ['127.0.0.1']]),
);

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside });
  plain = await startUpstream();
  const rule = { ports: [secure.port, plain.port], addresses: LOOPBACK };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      credentials: { azure: { type: 'bearer_token', token: 'of-dev' }, mcp: { type: 'bearer_token', token: 'of-mcp' } },
      network: {
        denylist: [{ domain: 'private.family.test' }, { domain: '*.internal.family.test' }],
        allowlist: [
          { domain: 'example.test', ...rule },
          { domain: '*.example.test', ...rule },
          { domain: 'readonly.test', methods: ['GET', 'HEAD'], paths: ['/public/.*'], ...rule },
          { domain: '*.family.test', ...rule },
          { domain: 'private.family.test', ...rule },
          { domain: 'x.internal.family.test', ...rule },
          // The wildcard first, so that order would show.
          { domain: '*.azure.test', ...rule },
          { domain: 'mcp.dev.azure.test', credential: 'mcp', allow_plaintext: true, ...rule },
          { domain: 'dev.azure.test', credential: 'azure', allow_plaintext: true, ...rule },
          { domain: 'ports.test', addresses: LOOPBACK },
        ],
      },
    },
    { names: NAMES },
  );
});

afterAll(async () => {
  await house.stop();
  await secure.close();
  await plain.close();
  await outside.close();
});

describe('whose rule a host is', () => {
  const rows = [
    { host: 'evil-example.test', verdict: '403 not_allowlisted', fault: 'B01' },
    { host: 'notexample.test', verdict: '403 not_allowlisted', fault: 'B01' },
    { host: 'example.test.evil.test', verdict: '403 not_allowlisted', fault: 'B01' },
    { host: 'example.testing', verdict: '403 not_allowlisted', fault: 'B01' },
    { host: 'a.b.example.test', verdict: '200 from the upstream', fault: 'B01' },
    { host: 'example.test', verdict: '200 from the upstream', fault: 'B01' },
    { host: 'azure.test', verdict: '403 not_allowlisted', fault: 'B01' },
    { host: 'open.family.test', verdict: '200 from the upstream', fault: 'B11' },
    { host: 'private.family.test', verdict: '403 denylisted', fault: 'B11' },
    { host: 'PRIVATE.family.test', verdict: '403 denylisted', fault: 'B11' },
    { host: 'private.family.test.', verdict: '403 denylisted', fault: 'B11' },
    { host: 'x.internal.family.test', verdict: '403 denylisted', fault: 'B11' },
    { host: 'X.Internal.Family.test.', verdict: '403 denylisted', fault: 'B11' },
  ];

  it.each(rows.flatMap((row) => WAYS.map((way) => ({ ...row, way }))))(
    '$host gives $verdict, $way.name',
    async ({ host, verdict, way }) => {
      expect(verdictIn(await way.send(house, `${host}:${own(way.scheme).port}`))).toBe(verdict);
    },
  );

  it.each(WAYS)('the most specific domain injects, whatever the order, $name', async ({ send, scheme }) => {
    const upstream = own(scheme);
    const given = async (host: string) => {
      expect((await send(house, `${host}:${upstream.port}`, { fields: 'Authorization: mine\r\n' })).status).toBe(200);
      return valuesOf(upstream.seen.at(-1)!.fields, 'authorization');
    };
    expect(await given('dev.azure.test')).toEqual(['Bearer of-dev']); // fault B13
    expect(await given('mcp.dev.azure.test')).toEqual(['Bearer of-mcp']);
    expect(await given('other.azure.test')).toEqual(['mine']);
  });

  it('the same whatever the order of the entries', async () => {
    const allowlist = [{ domain: '*.family.test' }, { domain: 'private.family.test' }];
    const denylist = [{ domain: '*.internal.family.test' }, { domain: 'private.family.test' }];
    for (const shuffled of [
      { allowlist, denylist },
      { allowlist: allowlist.toReversed(), denylist: denylist.toReversed() },
    ]) {
      const other = await startHouse({ network: shuffled });
      for (const host of ['private.family.test', 'a.b.internal.family.test']) {
        expect(verdictIn((await openTunnel(other, `${host}:443`)).answer)).toBe('403 denylisted'); // fault B11
      }
      await other.stop();
    }
  });
});

describe('ports', () => {
  it.each([22, 25, 5432, 8080, 8443, 9999])('a rule without ports opens no port %i', async (port) => {
    const before = house.resolved.length;
    for (const { send } of WAYS) expect(verdictIn(await send(house, `ports.test:${port}`))).toBe('403 port_denied'); // fault B04
    expect(house.resolved).toHaveLength(before);
  });

  it('a rule without ports opens 443 to a CONNECT and 80 to plain http, and neither to the other', async () => {
    expect((await openTunnel(house, 'ports.test:443')).answer.status).toBe(200); // fault B04
    expect(verdictIn(await inAbsoluteForm.send(house, 'ports.test:443'))).toBe('403 port_denied');
    const { socket } = await openTunnel(house, 'ports.test:443');
    expect(verdictIn(await inside(socket, 'ports.test:443'))).toBe('403 port_denied');
    const tunnel = await openSecureTunnel(house, 'ports.test:80');
    expect(verdictIn(await inside(tunnel, 'ports.test:80'))).toBe('403 port_denied');
    for (const stream of [socket, tunnel]) stream.destroy();
  });
});

describe('plain HTTP inside a tunnel', () => {
  it('goes through where the rule allows it', async () => {
    const { socket } = await openTunnel(house, `example.test:${plain.port}`); // fault B05
    const answer = await inside(socket, `example.test:${plain.port}`, { path: '/clear?x=1' });
    expect(answer.status).toBe(200);
    expect(plain.seen.at(-1)).toMatchObject({ method: 'GET', url: '/clear?x=1' });
    socket.destroy();
  });

  it.each([
    {
      name: 'a method',
      options: { method: 'POST', path: '/public/a', fields: 'Content-Length: 0\r\n' },
      verdict: '403 method_denied',
    },
    { name: 'a path', options: { path: '/admin' }, verdict: '403 path_denied' },
    { name: 'another Host', options: { path: '/public/a', host: 'example.test' }, verdict: '421 host_mismatch' },
    { name: 'no Host', options: { path: '/public/a', host: '' }, verdict: '400 bad_request' },
  ])('is refused by the same rules: $name', async ({ options, verdict }) => {
    const sent = plain.seen.length;
    const { socket } = await openTunnel(house, `readonly.test:${plain.port}`); // fault B05
    expect(verdictIn(await inside(socket, `readonly.test:${plain.port}`, options))).toBe(verdict);
    expect(plain.seen).toHaveLength(sent);
    socket.destroy();
  });
});

describe('the same answer on every road', () => {
  const rows = [
    {
      name: 'a host that no rule has',
      host: 'not-allowed.test',
      options: { path: '/log?token=x' },
      verdict: '403 not_allowlisted',
      fault: 'B06',
    },
    {
      name: 'a method',
      host: 'readonly.test',
      options: { method: 'POST', path: '/public/a', fields: 'Content-Length: 0\r\n' },
      verdict: '403 method_denied',
      fault: 'B07',
    },
    { name: 'a path', host: 'readonly.test', options: { path: '/admin' }, verdict: '403 path_denied', fault: 'B07' },
    {
      name: 'a path that only begins like it',
      host: 'readonly.test',
      options: { path: '/public' },
      verdict: '403 path_denied',
      fault: 'B02',
    },
    {
      name: 'a path that only holds it',
      host: 'readonly.test',
      options: { path: '/x/public/a' },
      verdict: '403 path_denied',
      fault: 'B02',
    },
    {
      name: 'a path with its slash encoded',
      host: 'readonly.test',
      options: { path: '/public%2fa' },
      verdict: '403 path_denied',
      fault: 'B07',
    },
    {
      name: 'a method in lower case',
      host: 'readonly.test',
      options: { method: 'get', path: '/public/a' },
      verdict: '400 bad_request',
      fault: 'B07',
    },
    {
      name: 'what the rule allows',
      host: 'readonly.test',
      options: { path: '/public/a' },
      verdict: '200 from the upstream',
      fault: 'B07',
    },
  ];

  it.each(rows.flatMap((row) => WAYS.map((way) => ({ ...row, way }))))(
    '$name, $way.name',
    async ({ host, options, verdict, way }) => {
      const sent = secure.seen.length + plain.seen.length;
      expect(verdictIn(await way.send(house, `${host}:${own(way.scheme).port}`, options))).toBe(verdict);
      expect(secure.seen.length + plain.seen.length - sent).toBe(verdict.startsWith('200') ? 1 : 0);
    },
  );

  const UPGRADE =
    'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n';

  it.each(WAYS)('a WebSocket handshake to a denied path, $name', async ({ send, scheme }) => {
    const upstream = own(scheme);
    const before = upstream.connections;
    expect(verdictIn(await send(house, `readonly.test:${upstream.port}`, { path: '/socket', fields: UPGRADE }))).toBe(
      '403 path_denied',
    ); // fault B06
    expect(upstream.connections).toBe(before);
  });

  it.each([
    { name: 'X-Upstream-Https-Proxy', field: 'X-Upstream-Https-Proxy: http://attacker.test:3128' },
    { name: 'Forwarded', field: 'Forwarded: host=example.test;proto=https' },
    { name: 'X-Forwarded-Host', field: 'X-Forwarded-Host: example.test' },
    { name: 'X-Original-URL', field: 'X-Original-URL: http://example.test/' },
    { name: 'X-Sallyport-Reason', field: 'X-Sallyport-Reason: none' },
  ])('$name opens nothing and leads nowhere else', async ({ field }) => {
    expect(verdictIn((await openTunnel(house, 'denied.test:443', `${field}\r\n`)).answer)).toBe('403 not_allowlisted'); // fault B14
    const tunnel = await openSecureTunnel(house, `example.test:${secure.port}`, { fields: `${field}\r\n` });
    const asked = house.resolved.length;
    expect((await inside(tunnel, `example.test:${secure.port}`, { fields: `${field}\r\n` })).status).toBe(200);
    expect(house.resolved.slice(asked).every((name) => name === 'example.test')).toBe(true);
    expect(valuesOf(secure.seen.at(-1)!.fields, 'host')).toEqual([`example.test:${secure.port}`]);
    expect(countOf(secure.seen.at(-1)!.fields, 'x-sallyport-reason')).toBe(0);
    tunnel.destroy();
  });

  it.each(['X-HTTP-Method-Override: DELETE', 'X-Method-Override: POST', 'X-Original-URL: /admin', 'X-Rewrite-URL: /admin'])(
    'a rule with methods and paths hears %s too',
    async (field) => {
      const answer = await inAbsoluteForm.send(house, `readonly.test:${plain.port}`, {
        path: '/public/a',
        fields: `${field}\r\n`,
      });
      expect(answer.status).toBe(403); // fault B14
    },
  );
});

describe('a denied CONNECT', () => {
  const head = 'CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n\r\n';

  it('is answered with 403 at once, never 200 first, and the connection is closed cleanly', async () => {
    const socket = await connectTo(house.port); // fault B10
    const begun = performance.now();
    let text = '';
    socket.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
    const ended = new Promise<string>((resolve) =>
      socket.once('end', () => resolve('a FIN')).once('error', () => resolve('a reset')),
    );
    socket.write(head);
    expect(await ended).toBe('a FIN');
    expect(performance.now() - begun).toBeLessThan(1000);
    expect(text).toMatch(/^HTTP\/1\.1 403 /);
    expect(text.match(/HTTP\/1\.1 /g)).toHaveLength(1);
    expect(text).toContain('"code":"not_allowlisted"');
    socket.destroy();
  });

  it('reaches a client that sends its ClientHello before it reads the answer', async () => {
    const from = house.outcomes.length;
    const socket = await connectTo(house.port);
    socket.write(head);
    await house.outcome(({ verdict }) => verdict?.code === 'not_allowlisted', from);
    // Bytes that nobody reads any more would be answered with a reset, and a reset takes the answer with it.
    for (let turn = 0; turn < 3; turn += 1) {
      await new Promise((resolve) => socket.write(Buffer.from([0x16, 3, 1, 0, 1, 0]), resolve));
      await inAbsoluteForm.send(house, 'between.test:80');
    }
    expect(verdictIn(await readAnswer(socket))).toBe('403 not_allowlisted'); // fault B10
    socket.destroy();
  });

  it('is denied through a relay between client and proxy too', async () => {
    const relay = net.createServer((near) => {
      const far = net.connect(house.port, '127.0.0.1');
      near
        .on('error', () => undefined)
        .pipe(far.on('error', () => undefined))
        .pipe(near);
    });
    await new Promise<void>((resolve) => relay.listen(0, '127.0.0.1', resolve));
    const { port } = relay.address() as net.AddressInfo;
    const direct = await sendRaw(house.port, head);
    const relayed = await sendRaw(port, head); // fault B09
    expect(verdictIn(relayed)).toBe(verdictIn(direct));
    expect(verdictIn(relayed)).toBe('403 not_allowlisted');
    expect((await byConnect.send({ ...house, port }, `example.test:${secure.port}`)).status).toBe(200);
    relay.close();
  });

  it.each([
    { name: 'denied', authority: () => 'denied.test:443', verdict: '403 not_allowlisted' },
    { name: 'allowed', authority: () => `example.test:${secure.port}`, verdict: '200 from the upstream' },
  ])('is judged the same in writes of one byte: $name', async ({ authority, verdict }) => {
    const socket = await connectTo(house.port);
    socket.setNoDelay(true);
    const answered = readAnswer(socket, 'CONNECT');
    for (const byte of `CONNECT ${authority()} HTTP/1.1\r\nHost: ${authority()}\r\n\r\n`) {
      await new Promise<void>((resolve, reject) => socket.write(byte, 'latin1', (error) => (error ? reject(error) : resolve())));
    }
    expect(verdictIn(await answered)).toBe(verdict); // fault B09
    const from = house.outcomes.length;
    socket.destroy();
    if (verdict.startsWith('200')) await house.outcome(() => true, from);
  });
});
