import { describe, expect, it } from 'vitest';
import type { Host } from '../../src/exchange/authority.ts';
import { Fault, Refusal } from '../../src/exchange/codes.ts';
import type { Route } from '../../src/exchange/stages.ts';
import { Trace } from '../../src/exchange/trace.ts';
import { createFindRoute } from '../../src/network/find-route.ts';
import type { FindRoute } from '../../src/network/find-route.ts';
import { createGuard } from '../../src/network/guard.ts';
import type { Asker, Resolver } from '../../src/network/resolver.ts';
import { permit } from './permits.ts';
import type { PermitParts } from './permits.ts';

const guard = createGuard({
  listeners: () => [{ address: '0.0.0.0', port: 8080 }],
  interfaces: () => ['127.0.0.1', '45.60.70.80'],
});

/** Answers each question with the next of its answers, the last one for ever; counts the questions. */
class FakeResolver implements Resolver {
  readonly asked: Host[] = [];
  readonly #answers: (readonly string[] | Error)[];

  constructor(...answers: (readonly string[] | Error)[]) {
    this.#answers = answers;
  }

  async resolve(host: Host): Promise<readonly string[]> {
    const answer = this.#answers[Math.min(this.asked.length, this.#answers.length - 1)];
    this.asked.push(host);
    if (answer === undefined || answer instanceof Error) throw answer ?? new Error('no answer');
    return answer;
  }
}

const cold = (): boolean => false;

function finderOf(resolver: Resolver): FindRoute {
  return createFindRoute({ resolver, guard, warm: cold });
}

async function find(answers: readonly string[] | Error, parts: Partial<PermitParts> = {}) {
  const resolver = new FakeResolver(answers);
  const trace = new Trace();
  const found = await finderOf(resolver)(permit({ to: 'api.example.test', ...parts }), trace, 1000);
  return { found, trace, resolver };
}

describe('createFindRoute', () => {
  it.each([
    {
      name: 'a public A and a loopback AAAA',
      answers: ['93.184.216.34', '::1'],
      reason: 'loopback',
      address: '::1',
      fault: 'A24',
    },
    {
      name: 'a loopback AAAA before a public A',
      answers: ['::1', '93.184.216.34'],
      reason: 'loopback',
      address: '::1',
      fault: 'A24',
    },
    {
      name: 'a public address before loopback',
      answers: ['93.184.216.34', '127.0.0.1'],
      reason: 'loopback',
      address: '127.0.0.1',
      fault: 'A25',
    },
    {
      name: 'loopback before a public address',
      answers: ['127.0.0.1', '93.184.216.34'],
      reason: 'loopback',
      address: '127.0.0.1',
      fault: 'A25',
    },
    {
      name: 'private before a public address',
      answers: ['10.0.0.1', '93.184.216.34'],
      reason: 'private',
      address: '10.0.0.1',
      fault: 'A25',
    },
    {
      name: 'a private ninth address',
      answers: [...Array.from({ length: 8 }, (_, i) => `93.184.216.${i}`), '10.0.0.1'],
      reason: 'private',
      address: '10.0.0.1',
      fault: 'A25',
    },
    { name: 'mapped loopback', answers: ['::ffff:7f00:1'], reason: 'loopback', address: '::ffff:7f00:1', fault: 'A07' },
    {
      name: 'mapped metadata',
      answers: ['::ffff:169.254.169.254'],
      reason: 'metadata',
      address: '::ffff:a9fe:a9fe',
      fault: 'A07',
    },
    { name: '6to4 of loopback', answers: ['2002:7f00:1::'], reason: 'loopback', address: '2002:7f00:1::', fault: 'A08' },
    { name: 'NAT64 of loopback', answers: ['64:ff9b::7f00:1'], reason: 'loopback', address: '64:ff9b::7f00:1', fault: 'A08' },
    {
      name: 'translated metadata',
      answers: ['::ffff:0:a9fe:a9fe'],
      reason: 'metadata',
      address: '::ffff:0:a9fe:a9fe',
      fault: 'A08',
    },
    { name: 'the unspecified address', answers: ['0.0.0.0'], reason: 'unspecified', address: '0.0.0.0', fault: 'A09' },
    { name: 'carrier-grade NAT', answers: ['100.64.0.1'], reason: 'cgnat', address: '100.64.0.1', fault: 'A10' },
    {
      name: 'the end of carrier-grade NAT',
      answers: ['100.127.255.254'],
      reason: 'cgnat',
      address: '100.127.255.254',
      fault: 'A10',
    },
    { name: 'link-local with a zone', answers: ['FEBF::1%eth0'], reason: 'link_local', address: 'febf::1', fault: 'A11' },
    { name: 'site-local', answers: ['fec0::1'], reason: 'site_local', address: 'fec0::1', fault: 'A11' },
    {
      name: "the machine's own address",
      answers: ['45.60.70.80'],
      reason: 'own_interface',
      address: '45.60.70.80',
      fault: 'B16',
    },
    {
      name: 'what is no address',
      answers: ['93.184.216.34', 'internal.example'],
      reason: 'unreadable',
      address: undefined,
      fault: 'A05',
    },
    {
      name: 'a spelling of an address that is not one',
      answers: ['127.1'],
      reason: 'unreadable',
      address: undefined,
      fault: 'A05',
    },
  ])('refuses a name that resolves to $name ($fault)', async ({ answers, reason, address }) => {
    const { found, trace, resolver } = await find(answers);
    expect(found).toBeInstanceOf(Refusal);
    expect(found).toMatchObject({
      code: 'address_denied',
      rule: 'the-rule',
      detail: `the name "api.example.test" leads to an address of class ${reason}`,
    });
    expect(trace.address).toBe(address);
    expect(resolver.asked).toHaveLength(1);
  });

  it.each([
    { name: 'one address', answers: ['93.184.216.34'], addresses: ['93.184.216.34'], fault: 'A24' },
    { name: 'an IPv6-only name', answers: ['2606:4700::1'], addresses: ['2606:4700::1'], fault: 'A24' },
    {
      name: 'addresses beside carrier-grade NAT',
      answers: ['100.63.255.255', '100.128.0.1'],
      addresses: ['100.63.255.255', '100.128.0.1'],
      fault: 'A10',
    },
    {
      name: 'families by turns, the first one leading',
      answers: ['2606::1', '2606::2', '2606::3', '1.1.1.1', '1.1.1.2'],
      addresses: ['2606::1', '1.1.1.1', '2606::2', '1.1.1.2', '2606::3'],
      fault: 'A28',
    },
    {
      name: 'families by turns, IPv4 first',
      answers: ['1.1.1.1', '1.1.1.2', '2606::1'],
      addresses: ['1.1.1.1', '2606::1', '1.1.1.2'],
      fault: 'A28',
    },
    {
      name: 'one spelling of one address',
      answers: ['2606:0::1', '1.1.1.1', '2606::1', '1.1.1.1'],
      addresses: ['2606::1', '1.1.1.1'],
      fault: 'A28',
    },
    {
      name: 'at most eight',
      answers: Array.from({ length: 20 }, (_, i) => `1.1.1.${i}`),
      addresses: Array.from({ length: 8 }, (_, i) => `1.1.1.${i}`),
      fault: 'A28',
    },
  ])('routes to $name ($fault)', async ({ answers, addresses }) => {
    const { found, trace } = await find(answers);
    expect((found as Route).addresses).toEqual(addresses);
    expect(trace.dnsMs).toBeGreaterThanOrEqual(0);
    expect(trace.address).toBeUndefined();
  });

  it('opens what the rule opens, for that rule only', async () => {
    const opened = await find(['10.0.0.1', '93.184.216.34'], { opened: ['10.0.0.0/8'] });
    expect((opened.found as Route).addresses).toEqual(['10.0.0.1', '93.184.216.34']);
    expect((await find(['10.0.0.1', '192.168.0.1'], { opened: ['10.0.0.0/8'] })).found).toMatchObject({ code: 'address_denied' });
  });

  it('lets no rule open the way to its own listener (B16)', async () => {
    const { found } = await find(['127.0.0.1'], { to: 'self.example.test:8080', opened: ['0.0.0.0/0', '::/0'] });
    expect(found).toMatchObject({ code: 'address_denied', detail: expect.stringContaining('own_listener') as string });
  });

  it('refuses an address inside under a monitoring rule too', async () => {
    expect((await find(['10.0.0.1'], { monitor: true })).found).toMatchObject({ code: 'address_denied' });
  });

  it.each([
    { name: 'has no address', answers: [], message: 'the name "api.example.test" has no address' },
    {
      name: 'does not resolve',
      answers: new Error('getaddrinfo ENOTFOUND 10.0.0.53'),
      message: 'the name "api.example.test" could not be resolved',
    },
  ])('fails with dns_failed where the name $name', async ({ answers, message }) => {
    await expect(find(answers)).rejects.toMatchObject({ name: 'Fault', code: 'dns_failed', message });
  });

  it('gives up at the deadline, and a late failure of the resolver harms nobody', async () => {
    let fail = (): void => undefined;
    const resolver: Resolver = { resolve: () => new Promise((_, reject) => (fail = () => reject(new Error('late')))) };
    const trace = new Trace();
    const found = Promise.resolve(finderOf(resolver)(permit({ to: 'api.example.test' }), trace, 5));
    await expect(found).rejects.toMatchObject({
      code: 'dns_failed',
      message: 'the name "api.example.test" was not resolved within 5 ms',
    });
    expect(trace.dnsMs).toBeGreaterThan(0);
    fail();
    await new Promise((resolve) => setImmediate(resolve));
  });

  it('asks in the name of its sandbox, and says at the deadline that nobody waits any more', async () => {
    const askers: Asker[] = [];
    const resolver: Resolver = {
      resolve: (_host, asker) => {
        askers.push(asker);
        return new Promise((_, reject) => {
          asker.signal.addEventListener('abort', () => reject(new Fault('dns_failed', 'its turn never came')));
        });
      },
    };
    const found = finderOf(resolver)(permit({ to: 'api.example.test', sandbox: 'builder' }), new Trace(), 5);
    await expect(Promise.resolve(found)).rejects.toMatchObject({ code: 'dns_failed', message: 'its turn never came' });
    expect(askers.map(({ sandbox }) => sandbox)).toEqual(['builder']);
  });

  it('takes a resolver that throws for one that failed', async () => {
    const resolver: Resolver = {
      resolve: () => {
        throw new Error('broken');
      },
    };
    await expect(finderOf(resolver)(permit({ to: 'api.example.test' }), new Trace(), 5)).rejects.toBeInstanceOf(Fault);
  });

  it.each([
    { to: '93.184.216.34', addresses: ['93.184.216.34'] },
    { to: '[2606:4700::1]:8443', addresses: ['2606:4700::1'] },
  ])('routes to the literal $to at once, without a question', ({ to, addresses }) => {
    const resolver = new FakeResolver();
    const trace = new Trace();
    expect((finderOf(resolver)(permit({ to }), trace, 1000) as Route).addresses).toEqual(addresses);
    expect(resolver.asked).toEqual([]);
    expect(trace.dnsMs).toBe(-1);
  });

  it.each([
    { to: '127.0.0.1', reason: 'loopback', fault: 'A06' },
    { to: '[::ffff:7f00:1]', reason: 'loopback', fault: 'A07' },
    { to: '[::ffff:a9fe:a9fe]:80', reason: 'metadata', fault: 'A07' },
    { to: '[0:0:0:0:0:ffff:10.0.0.1]', reason: 'private', fault: 'A07' },
    { to: '0.0.0.0:9000', reason: 'unspecified', fault: 'A09' },
    { to: '[::]:9000', reason: 'unspecified', fault: 'A09' },
    { to: '127.0.0.1:8080', reason: 'own_listener', fault: 'B16' },
  ])('refuses the literal $to at once, without a question ($fault)', ({ to, reason }) => {
    const resolver = new FakeResolver();
    const found = finderOf(resolver)(permit({ to }), new Trace(), 1000);
    expect(found).toMatchObject({ code: 'address_denied', detail: `the target is an address of class ${reason}` });
    expect(resolver.asked).toEqual([]);
  });

  it('asks once for a route and judges anew for the next one, so that a rebound name is refused (A26)', async () => {
    const resolver = new FakeResolver(['93.184.216.34'], ['127.0.0.1']);
    const findRoute = finderOf(resolver);
    const first = await findRoute(permit({ to: 'rebind.example.test' }), new Trace(), 1000);
    expect((first as Route).addresses).toEqual(['93.184.216.34']);
    expect(resolver.asked).toHaveLength(1);
    expect(await findRoute(permit({ to: 'rebind.example.test' }), new Trace(), 1000)).toMatchObject({ code: 'address_denied' });
    expect(resolver.asked).toHaveLength(2);
  });

  it('goes over a warm lane at once, without a question and without an address to dial', () => {
    const resolver = new FakeResolver();
    const lanes: string[] = [];
    const warm = (lane: string): boolean => {
      lanes.push(lane);
      return true;
    };
    const route = createFindRoute({ resolver, guard, warm })(permit({ to: 'api.example.test' }), new Trace(), 1000) as Route;
    expect(route.addresses).toEqual([]);
    expect(lanes).toEqual([route.lane]);
    expect(resolver.asked).toEqual([]);
  });

  it('asks for bytes that nobody looks into, which share no connection, though their lane is warm', async () => {
    const resolver = new FakeResolver(['93.184.216.34']);
    const blind = permit({ to: 'api.example.test', purpose: 'passthrough' });
    const route = await createFindRoute({ resolver, guard, warm: () => true })(blind, new Trace(), 1000);
    expect((route as Route).addresses).toEqual(['93.184.216.34']);
    expect(resolver.asked).toHaveLength(1);
  });

  it('keeps lanes apart by sandbox, scheme, host, port and opened ranges, and by nothing else', async () => {
    const laneOf = async (parts: Partial<PermitParts>): Promise<string> =>
      ((await find(['93.184.216.34'], parts)).found as Route).lane;
    const lane = await laneOf({});
    expect(await laneOf({ to: 'API.example.test.:443', monitor: true })).toBe(lane);
    expect(await laneOf({ scheme: undefined })).toBe(lane);
    const others = [
      { sandbox: 'other' },
      { scheme: 'http' as const },
      { to: 'b.example.test' },
      { to: 'api.example.test:444' },
      { opened: ['10.0.0.0/8'] },
    ];
    const lanes = await Promise.all(others.map(laneOf));
    expect(new Set([lane, ...lanes]).size).toBe(others.length + 1);
    expect(await laneOf({ sandbox: 'a https b.test:443' })).not.toBe(await laneOf({ sandbox: 'a' }));
  });
});
