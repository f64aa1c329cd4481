// Hosts and addresses through real sockets, by CONNECT and in absolute-form alike: every spelling of a host (A14 to A21), address literals,
// answers of the resolver, rebinding, and requests aimed at the proxy itself. The tables of addresses inside are in invariant-3-inside.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startRaw, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { inside, verdictIn, WAYS } from '../support/probes.ts';
import { openSecureTunnel, openTunnel, sendRaw } from '../support/sandbox-client.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;

const inAbsoluteForm = WAYS[1]!;
const own = (scheme: 'https' | 'http'): Upstream => (scheme === 'https' ? secure : plain);

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside });
  plain = await startUpstream();
});

afterAll(async () => {
  await secure.close();
  await plain.close();
  await outside.close();
});

describe('spellings of a host', () => {
  let house: House;

  beforeAll(async () => {
    const rule = { ports: [secure.port, plain.port], addresses: LOOPBACK };
    house = await startHouse(
      {
        upstream: { ca: [outside.caPath] },
        network: {
          denylist: [{ domain: 'blocked.example.test' }, { domain: 'b\u00f6se.example.test' }],
          allowlist: [
            { domain: '*.example.test', ...rule },
            { domain: 'b\u00fccher.test', ...rule },
            { domain: 'k.test', ...rule },
          ],
        },
      },
      {
        names: {
          'api.example.test': ['127.0.0.1'],
          'blocked.example.test': ['127.0.0.1'],
          'xn--bcher-kva.test': ['127.0.0.1'],
          'under_score.example.test': ['127.0.0.1'],
        },
      },
    );
  });

  afterAll(() => house.stop());

  const refused = [
    { name: 'a denied name in upper case', host: 'BLOCKED.example.test', verdict: '403 denylisted', fault: 'A14' },
    { name: 'a denied name with a final dot', host: 'blocked.example.test.', verdict: '403 denylisted', fault: 'A14' },
    { name: 'two final dots', host: 'api.example.test..', verdict: '400 bad_request', fault: 'A14' },
    { name: 'a denied Unicode name in its A-labels', host: 'xn--bse-sna.example.test', verdict: '403 denylisted', fault: 'A16' },
    { name: 'raw UTF-8', host: 'b\u00c3\u00bccher.test', verdict: '400 bad_request', fault: 'A16' },
    { name: 'raw Latin-1', host: 'b\u00fccher.test', verdict: '400 bad_request', fault: 'A16' },
    { name: 'a full-width letter', host: '\u00ef\u00bd\u0081pi.example.test', verdict: '400 bad_request', fault: 'A18' },
    { name: 'the Kelvin sign', host: '\u00e2\u0084\u00aa.test', verdict: '400 bad_request', fault: 'A18' },
    { name: 'a percent-encoded letter', host: '%61pi.example.test', verdict: '400 bad_request', fault: 'A18' },
    { name: 'NUL before an allowed tail', host: 'attacker.test\x00.example.test', verdict: '400 bad_request', fault: 'A19' },
    {
      name: 'encoded NUL before an allowed tail',
      host: 'attacker.test%00.example.test',
      verdict: '400 bad_request',
      fault: 'A19',
    },
    { name: 'a tab', host: 'api\t.example.test', verdict: '400 bad_request', fault: 'A20' },
    { name: 'DEL', host: 'api\x7f.example.test', verdict: '400 bad_request', fault: 'A20' },
    { name: 'a zero-width space', host: 'api\u00e2\u0080\u008b.example.test', verdict: '400 bad_request', fault: 'A20' },
    { name: 'a byte order mark', host: '\u00ef\u00bb\u00bfapi.example.test', verdict: '400 bad_request', fault: 'A20' },
    { name: 'an empty label', host: 'a..example.test', verdict: '400 bad_request', fault: 'A20' },
    { name: 'a leading dot', host: '.example.test', verdict: '400 bad_request', fault: 'A20' },
    { name: 'a label of 64 characters', host: `${'a'.repeat(64)}.example.test`, verdict: '400 bad_request', fault: 'A20' },
    { name: 'a name of 254 characters', host: `${'a.'.repeat(120)}aa.example.test`, verdict: '400 bad_request', fault: 'A20' },
    { name: 'a leading hyphen', host: '-api.example.test', verdict: '400 bad_request', fault: 'A20' },
    { name: 'a trailing hyphen', host: 'api-.example.test', verdict: '400 bad_request', fault: 'A20' },
    { name: 'a backslash', host: 'api.example.test\\.attacker.test', verdict: '400 bad_request', fault: 'A20' },
    { name: 'userinfo', host: 'api.example.test@attacker.test', verdict: '400 bad_request', fault: 'A21' },
    { name: 'userinfo before an allowed host', host: 'user@api.example.test', verdict: '400 bad_request', fault: 'A21' },
    { name: 'userinfo with a password', host: 'api.example.test:x@attacker.test', verdict: '400 bad_request', fault: 'A21' },
  ];

  it.each(refused.flatMap((row) => WAYS.map((way) => ({ ...row, way }))))(
    'refuses $name, $way.name',
    async ({ host, verdict, way }) => {
      const before = { asked: house.resolved.length, connections: secure.connections + plain.connections };
      const from = house.outcomes.length;
      expect(verdictIn(await way.send(house, `${host}:${own(way.scheme).port}`))).toBe(verdict);
      await house.outcome(() => true, from);
      expect(house.outcomes).toHaveLength(from + 1);
      expect(house.resolved).toHaveLength(before.asked);
      expect(secure.connections + plain.connections).toBe(before.connections);
      expect(verdictIn(await way.send(house, `api.example.test:${own(way.scheme).port}`))).toBe('200 from the upstream');
    },
  );

  it.each([':443%20', ':+443', ':0443', ':65536', ':0', ':', ':443:443', ':4.43'].map((port) => ({ port })))(
    'refuses the port "$port"',
    async ({ port }) => {
      for (const { send } of WAYS) expect(verdictIn(await send(house, `api.example.test${port}`))).toBe('400 bad_request'); // fault A20
    },
  );

  it('refuses a CONNECT without a port', async () => {
    expect(verdictIn((await openTunnel(house, 'api.example.test')).answer)).toBe('400 bad_request');
  });

  const allowed = [
    { name: 'mixed case', host: 'API.Example.TEST', canonical: 'api.example.test', fault: 'A14' },
    { name: 'a final dot', host: 'api.example.test.', canonical: 'api.example.test', fault: 'A14' },
    { name: 'mixed case and a final dot', host: 'API.Example.TEST.', canonical: 'api.example.test', fault: 'A14' },
    { name: 'the A-labels of a Unicode rule', host: 'XN--bcher-kva.test', canonical: 'xn--bcher-kva.test', fault: 'A16' },
    { name: 'an underscore', host: 'under_score.example.test', canonical: 'under_score.example.test' },
  ];

  it.each(allowed.flatMap((row) => WAYS.map((way) => ({ ...row, way }))))(
    'lets $name through under its canonical name, $way.name',
    async ({ host, canonical, way }) => {
      const upstream = own(way.scheme);
      const from = house.outcomes.length;
      const asked = house.resolved.length;
      expect((await way.send(house, `${host}:${upstream.port}`)).status).toBe(200);
      expect(valuesOf(upstream.seen.at(-1)!.fields, 'host')).toEqual([`${canonical}:${upstream.port}`]);
      expect(new Set([canonical, ...house.resolved.slice(asked)])).toEqual(new Set([canonical]));
      const { trace } = await house.outcome(({ verdict, decision }) => verdict === undefined && decision === 'allow', from);
      expect(trace.intent?.authority.host).toBe(canonical);
    },
  );

  it.each([
    { name: 'userinfo', host: (port: number) => `api.example.test:x@api.example.test:${port}`, fault: 'A21' },
    { name: 'NUL', host: (port: number) => `api.example.test\x00.example.test:${port}`, fault: 'A19' },
    { name: 'a percent sign', host: (port: number) => `%61pi.example.test:${port}`, fault: 'A18' },
    { name: 'nothing', host: () => '', fault: 'C02' },
  ])('refuses $name in the Host of a request in a tunnel', async ({ host }) => {
    const sent = secure.seen.length;
    const tunnel = await openSecureTunnel(house, `api.example.test:${secure.port}`);
    expect(verdictIn(await inside(tunnel, host(secure.port)))).toBe('400 bad_request');
    expect(secure.seen).toHaveLength(sent);
    tunnel.destroy();
  });
});

describe('address literals', () => {
  let canary: Upstream;
  let house: House;

  beforeAll(async () => {
    canary = await startRaw(
      (socket) => void socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')),
      '::',
    );
    const ports = [canary.port, secure.port];
    house = await startHouse(
      {
        upstream: { ca: [outside.caPath] },
        network: {
          allowlist: [
            { domain: 'named.test', ports, addresses: LOOPBACK },
            { domain: '127.0.0.30', ports: [canary.port], addresses: ['127.0.0.30/32'] },
            { domain: '::1', ports: [canary.port], addresses: ['::1/128'] },
            { domain: '127.0.0.1', ports: [secure.port], addresses: ['127.0.0.1/32'] },
          ],
        },
      },
      { names: { 'named.test': ['127.0.0.1'] } },
    );
  });

  afterAll(async () => {
    await house.stop();
    await canary.close();
  });

  it.each([
    { name: 'a public address that no rule names', address: '140.82.114.4' },
    { name: 'a public IPv6 address that no rule names', address: '[2606:4700::1]' },
    { name: 'a private address that no rule names', address: '10.0.0.1' },
  ])('refuses $name, and no name beside it raises it up', async ({ address }) => {
    expect(verdictIn((await openTunnel(house, `${address}:443`)).answer)).toBe('403 not_allowlisted'); // fault A22
    expect(verdictIn((await openTunnel(house, `${address}:443`, 'X-Forwarded-Host: named.test\r\n')).answer)).toBe(
      '403 not_allowlisted',
    );
    expect(verdictIn(await inAbsoluteForm.send(house, `${address}:80`))).toBe('403 not_allowlisted');
    expect(verdictIn(await inAbsoluteForm.send(house, `${address}:80`, { host: 'named.test:80' }))).toBe('421 host_mismatch');
    expect(house.resolved).toEqual([]);
  });

  it('refuses an allowed name in the ClientHello of a tunnel to an allowed address', async () => {
    const before = secure.connections;
    await expect(openSecureTunnel(house, `127.0.0.1:${secure.port}`, { servername: 'named.test' })).rejects.toThrow(
      /unrecognized name/,
    ); // fault A22
    expect(secure.connections).toBe(before);
  });

  const exact = [
    { authority: '127.0.0.30', status: 200 },
    { authority: '[::1]', status: 200 },
    { authority: '[0:0:0:0:0:0:0:1]', status: 200 },
    { authority: '127.0.0.31', status: 403 },
    { authority: '[::2]', status: 403 },
    { authority: '[::ffff:127.0.0.30]', status: 403 },
  ];

  it.each(exact)(
    'an address in the allowlist is honoured for exactly itself: $authority gives $status',
    async ({ authority, status }) => {
      const before = canary.connections;
      const answer = await inAbsoluteForm.send(house, `${authority}:${canary.port}`); // fault A23
      expect(answer.status).toBe(status);
      expect(canary.connections - before).toBe(status === 200 ? 1 : 0);
      expect((await inAbsoluteForm.send(house, `${authority}:${canary.port + 1}`)).status).toBe(403);
    },
  );

  it('tells the operator at the start which addresses inside a rule opens', () => {
    expect(
      house.logged.filter((line) => /opens addresses inside the walls: 127\.0\.0\.30\/32/.test(line)).length,
    ).toBeGreaterThan(0); // fault A23
  });
});

describe('answers of the resolver', () => {
  let canary: Upstream;
  let house: House;
  let answers: readonly string[] = [];

  beforeAll(async () => {
    canary = await startRaw(
      (socket) => void socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')),
      '::',
    );
    const ports = [canary.port];
    house = await startHouse(
      {
        network: {
          allowlist: [
            { domain: 'any.test', ports, addresses: ['127.0.0.8/29', '::1/128'] },
            { domain: 'four.test', ports, addresses: ['127.0.0.8/29'] },
          ],
        },
      },
      { names: { 'any.test': () => answers, 'four.test': () => answers } },
    );
  });

  afterAll(async () => {
    await house.stop();
    await canary.close();
  });

  const rows = [
    { name: 'a good A beside a loopback AAAA', host: 'four.test', given: ['127.0.0.8', '::1'], opens: false, fault: 'A24' },
    { name: 'a loopback AAAA before a good A', host: 'four.test', given: ['::1', '127.0.0.8'], opens: false, fault: 'A24' },
    { name: 'a good AAAA alone', host: 'any.test', given: ['::1'], opens: true, fault: 'A24' },
    { name: 'a good one before one inside', host: 'any.test', given: ['127.0.0.8', '127.0.0.1'], opens: false, fault: 'A25' },
    { name: 'one inside before a good one', host: 'any.test', given: ['127.0.0.1', '127.0.0.8'], opens: false, fault: 'A25' },
    { name: 'private, then good', host: 'any.test', given: ['10.0.0.1', '127.0.0.8'], opens: false, fault: 'A25' },
    {
      name: 'the last of many inside',
      host: 'any.test',
      given: [...Array.from({ length: 12 }, (_, i) => `127.0.0.${8 + (i % 8)}`), '10.0.0.1'],
      opens: false,
      fault: 'A25',
    },
    { name: 'good ones only', host: 'any.test', given: ['127.0.0.8', '127.0.0.9'], opens: true, fault: 'A25' },
    { name: 'an address with a zone', host: 'any.test', given: ['fe80::1%lo'], opens: false },
    { name: 'an empty text', host: 'any.test', given: [''], opens: false },
  ];

  it.each(rows.flatMap((row) => WAYS.map((way) => ({ ...row, way }))))(
    '$name, $way.name: opens $opens',
    async ({ host, given, opens, way }) => {
      answers = given;
      const before = { connections: canary.connections, asked: house.resolved.length };
      const answer = await way.send(house, `${host}:${canary.port}`);
      const verdict = way.scheme === 'https' ? '502 upstream_tls' : '200 from the upstream';
      expect(verdictIn(answer)).toBe(opens ? verdict : '403 address_denied');
      expect(canary.connections - before.connections).toBe(opens ? 1 : 0);
      expect(house.resolved.length - before.asked).toBe(1);
    },
  );

  it('goes on to the next judged address where one does not answer', async () => {
    // A listener of one loopback address alone, so that the first answer is refused by the system.
    const single = await startRaw(
      (socket) => void socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n')),
      '127.0.0.9',
    );
    answers = ['127.0.0.8', '127.0.0.9']; // fault A28
    await house.reconfigure({
      network: { allowlist: [{ domain: 'any.test', ports: [single.port, canary.port], addresses: ['127.0.0.8/29'] }] },
    });
    const from = house.outcomes.length;
    expect((await inAbsoluteForm.send(house, `any.test:${single.port}`)).status).toBe(200);
    expect((await house.outcome(() => true, from)).trace.address).toBe('127.0.0.9');
    await single.close();
  });
});

describe('rebinding', () => {
  let upstream: Upstream;
  let canary: Upstream;
  let house: House;
  let script: string[][] = [];
  /** What the upstream does with its next requests: answer, or break off */
  let behaviour: ('answer' | 'break')[] = [];

  beforeAll(async () => {
    upstream = await startRaw((socket) => {
      socket.on('data', () => {
        if (behaviour.shift() === 'break') socket.destroy();
        else socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
      });
    }, '127.0.0.8');
    // The canary has the same port at the address that the name rebinds to.
    canary = await startCanaryAt(upstream.port);
    house = await startHouse(
      { network: { allowlist: [{ domain: 'rebind.test', ports: [upstream.port], addresses: ['127.0.0.8/32'] }] } },
      { names: { 'rebind.test': () => script.shift() ?? ['127.0.0.1'] } },
    );
  });

  afterAll(async () => {
    await house.stop();
    await upstream.close();
    await canary.close();
  });

  const get = () =>
    sendRaw(house.port, `GET http://rebind.test:${upstream.port}/ HTTP/1.1\r\nHost: rebind.test:${upstream.port}\r\n\r\n`);

  it('stays with the judged address on a kept-alive connection, and judges anew before every further dial, a retry included', async () => {
    script = [['127.0.0.8'], ['127.0.0.8']]; // fault A26
    behaviour = ['answer', 'answer', 'break', 'answer', 'break'];
    expect(verdictIn(await get())).toBe('200 from the upstream');
    expect(verdictIn(await get())).toBe('200 from the upstream');
    expect(house.resolved).toHaveLength(1);
    // Lost on a reused connection: sent once more, on a fresh one, whose address is asked for and judged again.
    expect(verdictIn(await get())).toBe('200 from the upstream');
    expect(house.resolved).toHaveLength(2);
    // Lost again; by now the name leads inside.
    expect(verdictIn(await get())).toBe('403 address_denied');
    expect(house.resolved).toHaveLength(3);
    expect(verdictIn(await get())).toBe('403 address_denied');
    expect(canary.connections).toBe(0);
  });
});

function startCanaryAt(port: number): Promise<Upstream> {
  return startRaw((socket) => socket.end(), '127.0.0.1', port);
}

describe('requests for the proxy itself', () => {
  it.each(WAYS)('do not loop, $name', async ({ send }) => {
    const house = await startHouse({}, { names: { 'proxy.test': ['127.0.0.1'] } });
    await house.reconfigure({
      network: { allowlist: [{ domain: '*', ports: [house.port, house.adminPort], addresses: ['127.0.0.0/8'] }] },
    });
    try {
      for (let turn = 0; turn < 10; turn += 1) {
        for (const authority of [`proxy.test:${house.port}`, `127.0.0.1:${house.port}`, `127.0.0.1:${house.adminPort}`]) {
          expect(verdictIn(await send(house, authority))).toBe('403 address_denied'); // fault B16
        }
      }
      expect(house.outcomes.every(({ arrival }) => arrival.client === '127.0.0.1')).toBe(true);
      expect(house.outcomes.filter(({ verdict }) => verdict?.code === 'address_denied')).toHaveLength(30);
    } finally {
      await house.stop();
    }
  });
});
