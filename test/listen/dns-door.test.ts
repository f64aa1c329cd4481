import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { Resolver } from 'node:dns/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { RECURSION_DESIRED } from 'dns-packet';
import { afterEach, describe, expect, it } from 'vitest';
import type { Code } from '../../src/exchange/codes.ts';
import type { Arrival, LookupArrival } from '../../src/exchange/stages.ts';
import { openDnsDoor } from '../../src/listen/dns-door.ts';
import type { DnsDoor, DnsDoorOptions, DropReason } from '../../src/listen/dns-door.ts';
import { extendedErrors, query, streamed, TcpClient, UdpClient } from '../support/dns-client.ts';

const undo: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of undo.splice(0).reverse()) await each();
});

interface Rig {
  readonly door: DnsDoor;
  readonly port: number;
  readonly arrivals: LookupArrival[];
  readonly dropped: DropReason[];
  /** Resolves once so many were dropped. */
  readonly drops: (count: number) => Promise<readonly DropReason[]>;
  readonly connections: { open: number };
}

/** Allows names below `allowed.test`, and everything that policy would if a rule named every name, below `any`. */
const journey = (arrival: LookupArrival): void => {
  const name = arrival.target.toLowerCase();
  const codes: Readonly<Record<string, Code>> = {
    'denied.test': 'denylisted',
    'stranger.test': 'sandbox_unauthenticated',
    'ending.test': 'shutting_down',
    '-.test': 'bad_request',
  };
  if (arrival.trouble !== undefined) arrival.decline(arrival.trouble.code);
  else if (name.endsWith('allowed.test') || NOBODYS.includes(name)) arrival.answer();
  else arrival.decline(codes[name] ?? 'not_allowlisted');
};

const NOBODYS = ['localhost', 'app.localhost', 'x.invalid', 'hidden.onion', '2.0.0.10.in-addr.arpa', '1.0.0.d.f.ip6.arpa'];

async function open(options: Partial<DnsDoorOptions> = {}): Promise<Rig> {
  const arrivals: LookupArrival[] = [];
  const dropped: DropReason[] = [];
  const connections = { open: 0 };
  const waiting = new Set<() => void>();
  const door = await openDnsDoor({
    host: '127.0.0.1',
    port: 0,
    answer: '10.0.0.2',
    answer6: 'fd00::2',
    egress: (arrival: Arrival) => {
      if (arrival.purpose !== 'lookup') throw new Error('not a lookup');
      arrivals.push(arrival);
      journey(arrival);
      return Promise.resolve();
    },
    dropped: (reason) => {
      dropped.push(reason);
      for (const look of waiting) look();
    },
    onOpen: () => (connections.open += 1),
    onClose: () => (connections.open -= 1),
    log: { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined },
    ...options,
  });
  undo.push(() => door.close());
  const drops = (count: number): Promise<readonly DropReason[]> =>
    new Promise((resolve) => {
      const look = (): void => {
        if (dropped.length >= count) resolve(dropped);
      };
      waiting.add(look);
      look();
    });
  return { door, port: door.port, arrivals, dropped, drops, connections };
}

async function udp(port: number, from?: string): Promise<UdpClient> {
  const client = await UdpClient.open(port, from);
  undo.push(() => client.close());
  return client;
}

function tcp(port: number, from?: string): TcpClient {
  const client = new TcpClient(port, from);
  undo.push(() => client.close());
  return client;
}

function resolver(port: number): Resolver {
  const made = new Resolver({ tries: 1, timeout: 5000 });
  made.setServers([`127.0.0.1:${port}`]);
  return made;
}

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(String, (error: unknown) => (error as { code?: string }).code);

describe('a resolver that asks the door', () => {
  it('hears the address of the proxy for a name that is allowed, and how long it holds', async () => {
    const { port } = await open();
    expect(await resolver(port).resolve4('api.allowed.test', { ttl: true })).toEqual([{ address: '10.0.0.2', ttl: 60 }]);
    expect(await resolver(port).resolve6('api.allowed.test', { ttl: true })).toEqual([{ address: 'fd00::2', ttl: 60 }]);
  });

  it('hears that such a name has no IPv6 address where the proxy has none', async () => {
    const { port } = await open({ answer6: undefined });
    expect(await failure(resolver(port).resolve6('api.allowed.test'))).toBe('ENODATA');
    expect(await resolver(port).resolve4('api.allowed.test')).toEqual(['10.0.0.2']);
  });

  it.each([
    { name: 'a name that no rule names is none', host: 'other.test', expected: 'ENOTFOUND' },
    { name: 'a name on the denylist is none', host: 'denied.test', expected: 'ENOTFOUND' },
    { name: 'what is no name of a host is none', host: '-.test', expected: 'ENOTFOUND' },
    { name: 'a sandbox that nobody knows is refused', host: 'stranger.test', expected: 'EREFUSED' },
    { name: 'a door about to close has failed', host: 'ending.test', expected: 'ESERVFAIL' },
    ...NOBODYS.map((host) => ({ name: `${host} is none, whatever the rules`, host, expected: 'ENOTFOUND' })),
  ])('$name', async ({ host, expected }) => {
    const { port } = await open();
    expect(await failure(resolver(port).resolve4(host))).toBe(expected);
  });

  it.each(['MX', 'TXT', 'SRV', 'CNAME', 'NS', 'SOA', 'CAA', 'PTR', 'NAPTR'])('hears of no %s record', async (type) => {
    const { port } = await open();
    expect(await failure(resolver(port).resolve('api.allowed.test', type))).toBe('ENODATA');
    expect(await failure(resolver(port).resolve('other.test', type))).toBe('ENOTFOUND');
  });

  it('learns no name of an address', async () => {
    const { port } = await open();
    for (const address of ['10.9.8.7', '192.168.77.1', '8.8.8.8', 'fd00::2'])
      expect(await failure(resolver(port).reverse(address))).toBe('ENOTFOUND');
  });
});

describe('a question', () => {
  it('is an arrival with its name, as it is spelled, and who asks', async () => {
    const { port, arrivals } = await open();
    const client = await udp(port, '127.0.0.7');
    await client.ask(query('ApI.aLLowed.TEST'));
    expect(arrivals).toMatchObject([
      {
        purpose: 'lookup',
        door: 'transparent',
        protocol: 'dns',
        method: 'QUERY',
        target: 'ApI.aLLowed.TEST',
        client: '127.0.0.7',
        trouble: undefined,
      },
    ]);
    expect(arrivals[0]?.requestId).toMatch(/^[0-9a-f-]{36}$/);
  });

  it.each([
    { name: 'HTTPS (RFC 9460)', type: 'UNKNOWN_65' as const, answers: [] },
    { name: 'ANY, which one record is enough for', type: 'ANY' as unknown as 'A', answers: ['10.0.0.2'] },
    { name: 'A', type: 'A' as const, answers: ['10.0.0.2'] },
    { name: 'AAAA', type: 'AAAA' as const, answers: ['fd00::2'] },
  ])('for an allowed name is answered: $name', async ({ type, answers }) => {
    const { port } = await open();
    const client = await udp(port);
    const reply = await client.ask(query('aLLowed.test', { type, id: 99 }));
    expect(reply).toMatchObject({
      id: 99,
      rcode: 'NOERROR',
      questions: [{ name: 'aLLowed.test' }],
      authorities: [],
      additionals: [],
    });
    expect(reply.answers?.map((record) => 'data' in record && record.data)).toEqual(answers);
  });

  it.each([
    { name: 'not_allowlisted', host: 'other.test', expected: ['NXDOMAIN', '15 not_allowlisted'] },
    { name: 'denylisted', host: 'denied.test', expected: ['NXDOMAIN', '15 denylisted'] },
    { name: 'sandbox_unauthenticated', host: 'stranger.test', expected: ['REFUSED', '18 sandbox_unauthenticated'] },
    { name: 'shutting_down', host: 'ending.test', expected: ['SERVFAIL', '14 shutting_down'] },
    { name: 'bad_request', host: '-.test', expected: ['NXDOMAIN', '0 bad_request'] },
  ])('that is declined is told why, by EDNS: $name', async ({ host, expected }) => {
    const { port } = await open();
    const client = await udp(port);
    const told = await client.ask(query(host, { edns: 1232 }));
    expect([told.rcode, ...extendedErrors(told)]).toEqual(expected);
    const bare = await client.ask(query(host));
    expect(bare).toMatchObject({ rcode: expected[0], additionals: [] });
  });

  it.each([
    { name: 'a zone transfer', message: query('allowed.test', { type: 'AXFR' }), rcode: 'REFUSED' },
    { name: 'an update', message: query('allowed.test', { flags: 5 << 11 }), rcode: 'NOTIMP' },
    { name: 'no question', message: query('allowed.test').subarray(0, 12), rcode: 'FORMERR' },
  ])('that is none of a name is an arrival too, with its trouble: $name', async ({ message, rcode }) => {
    const { port, arrivals } = await open();
    const stream = tcp(port);
    stream.socket.write(streamed(message));
    const [byTcp] = await stream.whenAnswered(1);
    const byUdp = await (await udp(port)).ask(message);
    expect([byTcp?.rcode, byUdp.rcode]).toEqual([rcode, rcode]);
    expect(arrivals.map(({ trouble }) => trouble?.code)).toEqual(['bad_request', 'bad_request']);
  });

  it('whose answer is too long for UDP is asked again by TCP', async () => {
    const { port } = await open();
    const longest = [...['a', 'b', 'c'].map((letter) => letter.repeat(63)), 'd'.repeat(48), 'allowed.test'].join('.');
    expect(longest.length).toBe(253);
    const cut = await (await udp(port)).ask(query(longest));
    expect(cut).toMatchObject({ flag_tc: true, answers: [] });
    const stream = tcp(port);
    stream.socket.write(streamed(query(longest)));
    expect(await stream.whenAnswered(1)).toMatchObject([{ flag_tc: false, answers: [{ data: '10.0.0.2' }] }]);
    expect(await resolver(port).resolve4(longest)).toEqual(['10.0.0.2']);
  });

  it('is answered from where it came to', async () => {
    const { port } = await open({ host: '127.0.0.9' });
    const made = new Resolver({ tries: 1, timeout: 5000 });
    made.setServers([`127.0.0.9:${port}`]);
    expect(await made.resolve4('allowed.test')).toEqual(['10.0.0.2']);
  });

  it('comes by IPv6 as well, and by IPv4 to an address for both', async () => {
    const { port } = await open({ host: '::' });
    for (const server of [`[::1]:${port}`, `127.0.0.1:${port}`]) {
      const made = new Resolver({ tries: 1, timeout: 5000 });
      made.setServers([server]);
      expect(await made.resolve4('allowed.test')).toEqual(['10.0.0.2']);
    }
  });
});

describe('what gets no answer', () => {
  it.each([
    { name: 'less than a header', message: Buffer.alloc(11), reason: 'malformed' },
    { name: 'an answer, which might be our own', message: responding(query('allowed.test')), reason: 'malformed' },
    { name: 'more than a question', message: Buffer.concat([query('allowed.test'), Buffer.alloc(1300)]), reason: 'size' },
  ])('is counted, and closes a connection: $name', async ({ message, reason }) => {
    const { port, arrivals, drops } = await open();
    const client = await udp(port);
    client.send(message);
    expect(await drops(1)).toEqual([reason]);
    // What is sent after it is answered, and it was not.
    expect((await client.ask(query('allowed.test', { id: 2 }))).id).toBe(2);
    const stream = tcp(port);
    stream.socket.write(streamed(query('allowed.test'), message, query('allowed.test')));
    await stream.closed();
    expect(await drops(2)).toEqual([reason, reason]);
    expect(stream.answers.length).toBeLessThanOrEqual(1);
    expect(arrivals.length).toBe(2);
  });

  it('is what an address asks beyond its rate: silence by UDP, the end of a connection by TCP', async () => {
    const { port, dropped, drops } = await open({ rate: { perSecond: 0, burst: 5, clients: 10 } });
    const client = await udp(port);
    for (let id = 1; id <= 4; id += 1) client.send(query('allowed.test', { id }));
    const stream = tcp(port);
    await once(stream.socket, 'connect');
    await until(() => client.heard.length === 4);
    stream.socket.write(streamed(query('allowed.test'), query('allowed.test'), query('allowed.test')));
    await stream.closed();
    expect(stream.answers).toHaveLength(1);
    client.send(query('allowed.test'));
    await drops(2);
    expect(dropped).toEqual(['rate', 'rate']);
    expect(client.heard).toHaveLength(4);
  });

  it('is nothing of others: one that floods the door keeps nobody from it', async () => {
    const { port, dropped } = await open({ rate: { perSecond: 0, burst: 20, clients: 10 } });
    const quiet = await udp(port, '127.0.0.3');
    await quiet.ask(query('allowed.test', { id: 1 }));
    const loud = await udp(port, '127.0.0.2');
    for (let i = 0; i < 300; i += 1) loud.send(query('allowed.test'));
    for (let id = 2; id <= 20; id += 1) expect((await quiet.ask(query('allowed.test', { id }))).id).toBe(id);
    await until(() => dropped.length === 300 - 20);
    expect(loud.heard.length).toBe(20);
  });
});

describe('a connection', () => {
  it('carries several questions, at once or byte by byte, and answers in their order', async () => {
    const { port } = await open();
    const stream = tcp(port);
    stream.socket.write(
      streamed(
        query('allowed.test', { id: 1 }),
        query('other.test', { id: 2 }),
        query('a.allowed.test', { id: 3, type: 'AAAA' }),
      ),
    );
    for (const byte of streamed(query('b.allowed.test', { id: 4 }), query('denied.test', { id: 5 })))
      stream.socket.write(Buffer.from([byte]));
    const answers = await stream.whenAnswered(5);
    expect(answers.map(({ id, rcode }) => [id, rcode])).toEqual([
      [1, 'NOERROR'],
      [2, 'NXDOMAIN'],
      [3, 'NOERROR'],
      [4, 'NOERROR'],
      [5, 'NXDOMAIN'],
    ]);
  });

  it('is answered although its client has ended its side', async () => {
    const { port } = await open();
    const stream = tcp(port);
    stream.socket.end(streamed(query('allowed.test', { id: 1 }), query('allowed.test', { id: 2 })));
    await stream.closed();
    expect(stream.answers.map(({ id }) => id)).toEqual([1, 2]);
  });

  it('that says nothing is closed, and one that never ends its question is dropped', async () => {
    const { port, dropped, connections } = await open({ idleMs: 60 });
    const silent = tcp(port);
    await silent.closed();
    expect(dropped).toEqual([]);
    const slow = tcp(port);
    const drip = setInterval(() => slow.socket.write(Buffer.from([0])), 5);
    slow.socket.write(Buffer.from([4, 0]));
    await slow.closed();
    clearInterval(drip);
    expect(dropped).toEqual(['idle']);
    await until(() => connections.open === 0);
  });

  it('that asks and does not read is heard no further, and dropped', async () => {
    const { port, arrivals, drops } = await open({ idleMs: 1500, rate: { perSecond: 0, burst: 1e9, clients: 10 } });
    const deaf = tcp(port);
    await once(deaf.socket, 'connect');
    deaf.socket.pause();
    const many = Buffer.concat(Array.from({ length: 2000 }, () => streamed(query('allowed.test'))));
    let asked = 0;
    const ask = (): void => {
      while (asked < 400_000 && deaf.socket.write(many)) asked += 2000;
    };
    deaf.socket.on('drain', ask);
    ask();
    expect(await drops(1)).toEqual(['idle']);
    // What the buffers of two kernels hold, and no more.
    expect(arrivals.length).toBeLessThan(300_000);
  });

  it('is one of a few that a client may have, and others have theirs', async () => {
    const { port, dropped, connections } = await open();
    const mine = Array.from({ length: 16 }, () => tcp(port, '127.0.0.2'));
    await until(() => connections.open === 16);
    await tcp(port, '127.0.0.2').closed();
    expect(dropped).toEqual(['connections']);
    const other = tcp(port, '127.0.0.3');
    other.socket.write(streamed(query('allowed.test')));
    expect(await other.whenAnswered(1)).toHaveLength(1);
    mine[0]?.close();
    await until(() => connections.open === 16);
    const again = tcp(port, '127.0.0.2');
    again.socket.write(streamed(query('allowed.test')));
    expect(await again.whenAnswered(1)).toHaveLength(1);
  });
});

describe('the door', () => {
  it('listens for both at one port, and says so where it cannot', async () => {
    const { port } = await open();
    await expect(open({ port })).rejects.toMatchObject({ code: 'EADDRINUSE' });
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    undo.push(() => taken.close());
    const half = (taken.address() as AddressInfo).port;
    await expect(open({ port: half })).rejects.toMatchObject({ code: 'EADDRINUSE' });
    // What it had of it is free again.
    const other = createSocket('udp4').bind(half, '127.0.0.1');
    await once(other, 'listening');
    undo.push(() => void other.close());
  });

  it('closes at once, and an answer that comes later goes nowhere', async () => {
    const late: LookupArrival[] = [];
    const rig = await open({
      egress: (arrival) => {
        late.push(arrival as LookupArrival);
        return Promise.resolve();
      },
    });
    const stream = tcp(rig.port);
    stream.socket.write(streamed(query('allowed.test')));
    (await udp(rig.port)).send(query('allowed.test', { flags: RECURSION_DESIRED }));
    await until(() => late.length === 2);
    await rig.door.close();
    await stream.closed();
    for (const arrival of late) {
      arrival.answer();
      arrival.decline('internal_error');
    }
    await rig.door.close();
    await open({ port: rig.port });
  });
});

function responding(message: Buffer): Buffer {
  const copy = Buffer.from(message);
  copy[2] = (copy[2] ?? 0) | 0x80;
  return copy;
}

/** Waits for what events of the loop bring about. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setImmediate(resolve));
}
