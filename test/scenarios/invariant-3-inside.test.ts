// Invariant 3 of the design through real sockets: no way inside, whatever the spelling, as a literal and as an answer of the resolver.
// A canary listens on every address of the machine; what counts is that nobody ever connects to it.
import { networkInterfaces } from 'node:os';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { startRaw, startUpstream } from '../support/outside.ts';
import type { Upstream } from '../support/outside.ts';
import { inside, reasonIn, verdictIn, WAYS } from '../support/probes.ts';
import { openTunnel, sendRaw } from '../support/sandbox-client.ts';

/** Addresses inside the walls, as a resolver may answer them and as a literal; IPv6 without brackets. */
const INSIDE = [
  { name: 'loopback', address: '127.0.0.1' },
  { name: 'the far end of loopback', address: '127.255.255.254' },
  { name: 'the unspecified address', address: '0.0.0.0', fault: 'A09' },
  { name: 'this network', address: '0.1.2.3' },
  { name: 'private, 10/8', address: '10.0.0.1' },
  { name: 'private, 172.16/12', address: '172.31.255.255' },
  { name: 'private, 192.168/16', address: '192.168.0.1' },
  { name: 'link-local', address: '169.254.1.1' },
  { name: 'metadata', address: '169.254.169.254' },
  { name: 'metadata of Alibaba', address: '100.100.100.200' },
  { name: 'metadata of Azure', address: '168.63.129.16' },
  { name: 'carrier-grade NAT', address: '100.64.0.1', fault: 'A10' },
  { name: 'the end of carrier-grade NAT', address: '100.127.255.254', fault: 'A10' },
  { name: 'multicast', address: '224.0.0.1' },
  { name: 'reserved', address: '240.0.0.1' },
  { name: 'broadcast', address: '255.255.255.255' },
  { name: 'documentation', address: '203.0.113.1' },
  { name: 'benchmarking', address: '198.18.0.1' },
  { name: 'loopback, IPv6', address: '::1' },
  { name: 'the unspecified address, IPv6', address: '::', fault: 'A09' },
  { name: 'loopback, mapped, dotted', address: '::ffff:127.0.0.1', fault: 'A02' },
  { name: 'loopback, mapped, hex', address: '::ffff:7f00:1', fault: 'A07' },
  { name: 'metadata, mapped, hex', address: '::ffff:a9fe:a9fe', fault: 'A07' },
  { name: 'private, mapped, written out', address: '0:0:0:0:0:ffff:10.0.0.1', fault: 'A07' },
  { name: 'loopback, IPv4-compatible', address: '::7f00:1', fault: 'A08' },
  { name: 'metadata, IPv4-translated', address: '::ffff:0:a9fe:a9fe', fault: 'A08' },
  { name: 'loopback, NAT64', address: '64:ff9b::7f00:1', fault: 'A08' },
  { name: 'local NAT64', address: '64:ff9b:1::808:808', fault: 'A06' },
  { name: 'loopback, 6to4', address: '2002:7f00:1::', fault: 'A08' },
  { name: 'metadata, 6to4', address: '2002:a9fe:a9fe::1', fault: 'A08' },
  { name: 'Teredo of 10.0.0.1', address: '2001:0:4136:e378:8000:63bf:f5ff:fffe', fault: 'A08' },
  { name: 'ISATAP of loopback', address: '2606:4700::5efe:7f00:1', fault: 'A08' },
  { name: 'unique local', address: 'fd00::1' },
  { name: 'metadata of AWS, IPv6', address: 'fd00:ec2::254' },
  { name: 'link-local, IPv6, fe81', address: 'fe81::1', fault: 'A11' },
  { name: 'link-local, IPv6, feab', address: 'feab::1', fault: 'A11' },
  { name: 'link-local, IPv6, febf in upper case', address: 'FEBF::1', fault: 'A11' },
  { name: 'site-local', address: 'fec0::1', fault: 'A11' },
  { name: 'multicast, IPv6', address: 'ff02::1' },
  { name: 'documentation, IPv6', address: '2001:db8::1' },
  { name: 'outside global unicast', address: '4000::1' },
];

/** Spellings of inside addresses that are no canonical host at all, so that they are refused before anybody judges them. */
const MALFORMED = [
  { name: 'short hex', host: '0x7f.1', fault: 'A01' },
  { name: 'hex in every part', host: '0x7f.0x0.0x0.0x1', fault: 'A01' },
  { name: 'two parts', host: '127.1', fault: 'A02' },
  { name: 'octal', host: '012.1.2.3', fault: 'A02' },
  { name: 'one octal number', host: '017700000001', fault: 'A03' },
  { name: 'one decimal number', host: '2130706433', fault: 'A03' },
  { name: 'one hex number', host: '0x7f000001', fault: 'A03' },
  { name: 'a leading zero', host: '0127.0.0.1', fault: 'A04' },
  { name: 'a leading zero before a 9', host: '019.0.0.1', fault: 'A04' },
  { name: 'an octal ten', host: '012.0.0.1', fault: 'A05' },
  { name: 'zero', host: '0', fault: 'A09' },
  { name: 'hex zero', host: '0x0', fault: 'A09' },
  { name: 'a final dot', host: '127.0.0.1.', fault: 'A14' },
  { name: 'a zone', host: '[fe80::1%25lo]', fault: 'A18' },
  { name: 'a percent sign', host: '127%2e0.0.1', fault: 'A18' },
  { name: 'ideographic full stops', host: '127\u00e3\u0080\u00820\u00e3\u0080\u00820\u00e3\u0080\u00821', fault: 'A18' },
  { name: 'IPv6 without brackets', host: '::1' },
  { name: 'a bracket too many', host: '[[::1]]' },
  { name: 'a leading zero inside brackets', host: '[::ffff:0127.0.0.1]', fault: 'A04' },
  { name: 'userinfo', host: 'open.test@127.0.0.1', fault: 'A21' },
];

const inAbsoluteForm = WAYS[1]!;

let canary: Upstream;
let house: House;
/** What the resolver answers for `answer.test` */
let answers: readonly string[] = [];

beforeAll(async () => {
  canary = await startRaw((socket) => socket.end(), '::');
  house = await startHouse(
    {
      network: {
        allowlist: [
          { domain: '*', ports: [canary.port], transform: { 'X-Key': 'k' }, allow_plaintext: true },
          { domain: 'monitored.test', ports: [canary.port], enforcement: 'monitor' },
        ],
      },
      limits: { timeouts: { connect: '2s' } },
    },
    { names: { 'answer.test': () => answers, 'monitored.test': () => answers, localhost: () => answers } },
  );
});

afterAll(async () => {
  await house.stop();
  await canary.close();
});

const literals = INSIDE.flatMap((row) => WAYS.map((way) => ({ ...row, way })));

describe('invariant 3: no way inside', () => {
  it.each(literals)('for $address ($name) as a literal, $way.name', async ({ address, way }) => {
    const asked = house.resolved.length;
    const authority = `${address.includes(':') ? `[${address}]` : address}:${canary.port}`;
    const answer = await way.send(house, authority);
    expect(verdictIn(answer)).toBe('403 address_denied');
    expect(house.resolved).toHaveLength(asked);
    expect(canary.connections).toBe(0);
  });

  it.each(INSIDE)('refuses $address ($name) on the CONNECT itself', async ({ address }) => {
    const authority = `${address.includes(':') ? `[${address}]` : address}:${canary.port}`;
    expect(verdictIn((await openTunnel(house, authority)).answer)).toBe('403 address_denied');
  });

  it.each(literals)('for $address ($name) as the answer of the resolver, $way.name', async ({ address, way }) => {
    answers = [address];
    const asked = house.resolved.length;
    expect(verdictIn(await way.send(house, `answer.test:${canary.port}`))).toBe('403 address_denied');
    expect(house.resolved.slice(asked)).toEqual(['answer.test']);
    expect(canary.connections).toBe(0);
  });

  it.each(MALFORMED.flatMap((row) => WAYS.map((way) => ({ ...row, way }))))(
    'for $name ($host), $way.name',
    async ({ host, way }) => {
      const asked = house.resolved.length;
      expect(verdictIn(await way.send(house, `${host}:${canary.port}`))).toBe('400 bad_request');
      expect(house.resolved).toHaveLength(asked);
      expect(canary.connections).toBe(0);
    },
  );

  it.each(WAYS)('for localhost by its name, $name', async ({ send }) => {
    answers = ['127.0.0.1', '::1'];
    expect(verdictIn(await send(house, `LOCALHOST:${canary.port}`))).toBe('403 address_denied');
    expect(canary.connections).toBe(0);
  });

  it.each(WAYS)('under monitoring neither, $name', async ({ send }) => {
    answers = ['127.0.0.1'];
    expect(verdictIn(await send(house, `monitored.test:${canary.port}`))).toBe('403 address_denied');
    expect(canary.connections).toBe(0);
  });

  it('reveals the class of the address to the sandbox, and the address itself to the ledger alone', async () => {
    answers = ['10.11.12.13'];
    const from = house.outcomes.length;
    const answer = await inAbsoluteForm.send(house, `answer.test:${canary.port}`);
    expect(answer.body).toContain('private');
    expect(JSON.stringify(answer)).not.toContain('10.11.12.13');
    const outcome = await house.outcome(({ verdict }) => verdict?.code === 'address_denied', from);
    expect(outcome.trace.address).toBe('10.11.12.13');
  });
});

describe("invariant 3: nothing opens the proxy's own listeners", () => {
  const own = Object.values(networkInterfaces()).flatMap((entries) =>
    (entries ?? []).map((entry) => entry.address.split('%')[0]!),
  );

  /** The house opens every IPv4 address and loopback of IPv6 for every host, on the ports of its own listeners. */
  async function wideOpen(listen: string): Promise<House> {
    const started = await startHouse(
      { listen: { proxy: listen } },
      { names: { 'self.test': ['127.0.0.1'], 'self6.test': ['::1'] } },
    );
    const ports = [started.port, started.adminPort];
    const addresses = ['0.0.0.0/0', '127.0.0.0/8', '::/0'];
    await started.reconfigure({
      listen: { proxy: listen },
      network: { allowlist: [{ domain: '*', ports, addresses }, ...own.map((domain) => ({ domain, ports, addresses }))] },
    });
    return started;
  }

  it.each(WAYS)('listening on loopback, $name', async ({ send }) => {
    const started = await wideOpen('127.0.0.1:0');
    try {
      for (const port of [started.port, started.adminPort]) {
        for (const host of ['127.0.0.1', '[::ffff:127.0.0.1]', '[::ffff:7f00:1]', '0.0.0.0', '[::]', 'self.test']) {
          expect([host, verdictIn(await send(started, `${host}:${port}`))]).toEqual([host, '403 address_denied']); // fault B16
        }
      }
      const served = await started.scrape();
      expect(served).toMatch(/sallyport_open_connections\{side="upstream"\} 0/);
    } finally {
      await started.stop();
    }
  });

  it.each(WAYS)('listening on every address of the machine, $name', async ({ send }) => {
    const started = await wideOpen('0.0.0.0:0');
    try {
      for (const host of [
        '127.0.0.1',
        '127.0.0.2',
        '0.0.0.0',
        'self.test',
        'self6.test',
        ...own.map((a) => (a.includes(':') ? `[${a}]` : a)),
      ]) {
        expect([host, verdictIn(await send(started, `${host}:${started.port}`))]).toEqual([host, '403 address_denied']); // fault B16
      }
      expect(await started.scrape()).toMatch(/sallyport_open_connections\{side="upstream"\} 0/);
    } finally {
      await started.stop();
    }
  });

  it('answers a request in origin-form on the data port with 400, not with its own pages', async () => {
    const answer = await sendRaw(house.port, 'GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n');
    expect(verdictIn(answer)).toBe('400 bad_request'); // fault B16
  });
});

describe('invariant 3: a name is resolved once, every answer is judged, and the connection goes to a judged address', () => {
  let kept: Upstream;
  let closing: Upstream;
  let open: House;
  /** What the resolver answers, one after another; the last one stays */
  let script: (readonly string[])[] = [];
  const next = (): readonly string[] => (script.length > 1 ? script.shift()! : script[0]!);

  beforeAll(async () => {
    kept = await startUpstream();
    closing = await startUpstream({ answer: (_seen, response) => response.writeHead(200, { connection: 'close' }).end() });
    const ports = [kept.port, closing.port];
    open = await startHouse(
      { network: { allowlist: [{ domain: 'api.test', ports, addresses: ['127.0.0.1/32'] }] } },
      { names: { 'api.test': next } },
    );
  });

  afterAll(async () => {
    await open.stop();
    await kept.close();
    await closing.close();
  });

  const get = (upstream: Upstream) => inAbsoluteForm.send(open, `api.test:${upstream.port}`);

  it('asks the resolver once for a dial, and not at all for a pooled connection', async () => {
    script = [['127.0.0.1']];
    const asked = open.resolved.length;
    const before = { kept: kept.connections, closing: closing.connections };
    for (let turn = 0; turn < 3; turn += 1) expect((await get(kept)).status).toBe(200);
    for (let turn = 0; turn < 3; turn += 1) expect((await get(closing)).status).toBe(200);
    expect(kept.connections - before.kept).toBe(1);
    expect(closing.connections - before.closing).toBe(3);
    expect(open.resolved.length - asked).toBe(4);
  });

  it('judges the new answer of a name that rebinds', async () => {
    script = [['127.0.0.1'], ['127.0.0.2']]; // fault A26
    const before = closing.connections;
    expect(verdictIn(await get(closing))).toBe('200 from the upstream');
    expect(verdictIn(await get(closing))).toBe('403 address_denied');
    expect(closing.connections - before).toBe(1);
  });

  it('goes to the judged address, and says which in the ledger', async () => {
    script = [['127.0.0.1']];
    const from = open.outcomes.length;
    expect((await get(closing)).status).toBe(200);
    const { trace } = await open.outcome(() => true, from);
    expect(trace.address).toBe('127.0.0.1');
  });
});

describe('invariant 3: `addresses` opens exactly its ranges, for its rule only', () => {
  let upstream: Upstream;
  let open: House;
  let answer: readonly string[] = [];

  beforeAll(async () => {
    upstream = await startRaw((socket) => {
      socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok'));
    }, '::');
    const ports = [upstream.port];
    open = await startHouse(
      {
        network: {
          allowlist: [
            { domain: 'range.test', ports, addresses: ['127.0.0.4/30'] },
            { domain: 'six.test', ports, addresses: ['::1/128'] },
            { domain: 'wide-six.test', ports, addresses: ['::/0'] },
            { domain: 'neighbour.test', ports },
            { domain: '*.range.test', ports },
            { domain: '127.0.0.5', ports, addresses: ['127.0.0.5/32'] },
            { domain: '127.0.0.6', ports, addresses: ['127.0.0.5/32'] },
            { domain: '*', ports },
          ],
        },
      },
      {
        names: Object.fromEntries(
          ['range', 'six', 'wide-six', 'neighbour', 'a.range'].map((name) => [`${name}.test`, () => answer]),
        ),
      },
    );
  });

  afterAll(async () => {
    await open.stop();
    await upstream.close();
  });

  const rows = [
    { host: 'range.test', answer: ['127.0.0.4'], opens: true },
    { host: 'range.test', answer: ['127.0.0.7'], opens: true },
    { host: 'range.test', answer: ['127.0.0.3'], opens: false },
    { host: 'range.test', answer: ['127.0.0.8'], opens: false },
    { host: 'range.test', answer: ['127.0.0.4', '127.0.0.8'], opens: false },
    { host: 'range.test', answer: ['::1'], opens: false },
    { host: 'range.test', answer: ['::ffff:127.0.0.4'], opens: true },
    { host: 'six.test', answer: ['::1'], opens: true },
    { host: 'six.test', answer: ['127.0.0.1'], opens: false },
    { host: 'wide-six.test', answer: ['::ffff:127.0.0.1'], opens: false },
    { host: 'neighbour.test', answer: ['127.0.0.4'], opens: false },
    { host: 'a.range.test', answer: ['127.0.0.4'], opens: false },
    { host: '127.0.0.5', answer: [], opens: true },
    { host: '127.0.0.6', answer: [], opens: false },
    { host: '127.0.0.4', answer: [], opens: false },
  ];

  it.each(rows)('$host with the answer $answer: opens $opens', async ({ host, answer: given, opens }) => {
    answer = given;
    const before = upstream.connections;
    const reply = await sendRaw(
      open.port,
      `GET http://${host}:${upstream.port}/ HTTP/1.1\r\nHost: ${host}:${upstream.port}\r\n\r\n`,
    );
    expect(reasonIn(reply)).toBe(opens ? undefined : 'address_denied');
    expect(reply.status).toBe(opens ? 200 : 403);
    expect(upstream.connections - before).toBe(opens ? 1 : 0);
  });

  it('does not open a tunnel for plain HTTP inside it either', async () => {
    answer = ['127.0.0.4'];
    const { socket } = await openTunnel(open, `neighbour.test:${upstream.port}`);
    expect(verdictIn(await inside(socket, `neighbour.test:${upstream.port}`))).toBe('403 address_denied');
    socket.destroy();
  });
});
