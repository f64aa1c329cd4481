import { describe, expect, it } from 'vitest';
import type { Host } from '../../src/exchange/authority.ts';
import { boundedResolver, systemResolver } from '../../src/network/resolver.ts';
import type { Resolver, ResolverBounds } from '../../src/network/resolver.ts';

const name = 'api.example.test' as Host;
const ROOMY: ResolverBounds = { total: 100, perSandbox: 100, waiting: 100 };

/** Questions that are answered, or failed, when the test says so. */
class Nameserver {
  readonly asked: Host[] = [];
  readonly #open = new Map<Host, { readonly resolve: (answer: string[]) => void; readonly reject: (error: Error) => void }>();

  readonly ask = (host: Host): Promise<readonly string[]> => {
    this.asked.push(host);
    return new Promise((resolve, reject) => this.#open.set(host, { resolve, reject }));
  };

  answer(host: string, address = '192.0.2.1'): void {
    this.#open.get(host as Host)?.resolve([address]);
  }

  fail(host: string): void {
    this.#open.get(host as Host)?.reject(new Error('SERVFAIL'));
  }
}

function asking(resolver: Resolver, sandbox: string, signal = new AbortController().signal) {
  return (host: string) => resolver.resolve(host as Host, { sandbox, signal });
}

/** Lets everything happen that waits for nothing. */
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('a bounded resolver', () => {
  it('asks once for two hundred questions that overlap, and again after the answer', async () => {
    const server = new Nameserver();
    const ask = asking(boundedResolver(server.ask, ROOMY), 'a');
    const first = Array.from({ length: 200 }, () => ask(name));
    const other = ask('other.example.test');
    expect(server.asked).toEqual([name, 'other.example.test']);
    server.answer(name, '192.0.2.2');
    server.answer('other.example.test');
    expect(new Set((await Promise.all(first)).flat())).toEqual(new Set(['192.0.2.2']));
    await other;
    const second = ask(name);
    expect(server.asked).toHaveLength(3);
    server.answer(name, '192.0.2.3');
    expect(await second).toEqual(['192.0.2.3']);
  });

  it('gives a failure to everyone who asked and remembers it no longer', async () => {
    const server = new Nameserver();
    const ask = asking(boundedResolver(server.ask, ROOMY), 'a');
    const both = [ask(name), ask(name)];
    server.fail(name);
    expect((await Promise.allSettled(both)).map((result) => result.status)).toEqual(['rejected', 'rejected']);
    const again = ask(name);
    server.answer(name);
    expect(await again).toEqual(['192.0.2.1']);
    expect(server.asked).toHaveLength(2);
  });

  it('asks for no more names of one sandbox at once than its bound, and for those of another all the same', async () => {
    const server = new Nameserver();
    const resolver = boundedResolver(server.ask, { total: 4, perSandbox: 2, waiting: 10 });
    const greedy = asking(resolver, 'greedy');
    const answers = ['1.test', '2.test', '3.test', '4.test'].map(greedy);
    expect(server.asked).toEqual(['1.test', '2.test']);
    const other = asking(resolver, 'other')('other.test');
    expect(server.asked).toEqual(['1.test', '2.test', 'other.test']);
    server.answer('other.test');
    expect(await other).toEqual(['192.0.2.1']);
    expect(server.asked).toHaveLength(3);
    server.answer('2.test');
    await answers[1];
    expect(server.asked.slice(3)).toEqual(['3.test']);
    server.fail('1.test');
    await expect(answers[0]).rejects.toThrow('SERVFAIL');
    expect(server.asked.slice(4)).toEqual(['4.test']);
  });

  it('counts a question whose asker has left until it is answered', async () => {
    const server = new Nameserver();
    const resolver = boundedResolver(server.ask, { total: 4, perSandbox: 1, waiting: 10 });
    const left = new AbortController();
    void asking(resolver, 'a', left.signal)('dead.test');
    left.abort();
    const next = asking(resolver, 'a')('next.test');
    await settled();
    expect(server.asked).toEqual(['dead.test']);
    server.answer('dead.test');
    await settled();
    expect(server.asked).toEqual(['dead.test', 'next.test']);
    server.answer('next.test');
    expect(await next).toEqual(['192.0.2.1']);
  });

  it('never asks for what nobody waits for any more, and says why there was no turn', async () => {
    const server = new Nameserver();
    const resolver = boundedResolver(server.ask, { total: 1, perSandbox: 1, waiting: 10 });
    const left = new AbortController();
    const dead = asking(resolver, 'a')('dead.test');
    const waiting = [asking(resolver, 'a', left.signal)('gone.test'), asking(resolver, 'a', left.signal)('kept.test')];
    const kept = asking(resolver, 'a')('kept.test');
    left.abort();
    for (const answer of waiting) {
      await expect(answer).rejects.toMatchObject({
        code: 'dns_failed',
        message: 'too many other names of this sandbox are being resolved; retry later',
      });
    }
    server.answer('dead.test');
    await dead;
    await settled();
    expect(server.asked).toEqual(['dead.test', 'kept.test']);
    server.answer('kept.test');
    expect(await kept).toEqual(['192.0.2.1']);
  });

  it('lets sandboxes take turns where all together are at the bound', async () => {
    const server = new Nameserver();
    const resolver = boundedResolver(server.ask, { total: 1, perSandbox: 1, waiting: 10 });
    const answers = ['a1.test', 'a2.test', 'a3.test'].map(asking(resolver, 'a'));
    answers.push(asking(resolver, 'b')('b1.test'), asking(resolver, 'c')('c1.test'));
    for (let turn = 0; turn < 5; turn += 1) {
      server.answer(server.asked[turn] ?? '');
      await settled();
    }
    await Promise.all(answers);
    expect(server.asked).toEqual(['a1.test', 'a2.test', 'b1.test', 'c1.test', 'a3.test']);
  });

  it('gives one that waits the answer that another sandbox asked for', async () => {
    const server = new Nameserver();
    const resolver = boundedResolver(server.ask, { total: 2, perSandbox: 1, waiting: 10 });
    void asking(resolver, 'a')('dead.test');
    const waiting = asking(resolver, 'a')(name);
    const other = asking(resolver, 'b')(name);
    server.answer(name);
    expect(await Promise.all([waiting, other])).toEqual([['192.0.2.1'], ['192.0.2.1']]);
    expect(server.asked).toEqual(['dead.test', name]);
  });

  it('turns away a name beyond those that may wait, not a further question for one that waits', async () => {
    const server = new Nameserver();
    const ask = asking(boundedResolver(server.ask, { total: 1, perSandbox: 1, waiting: 2 }), 'a');
    const [dead, one, two] = ['dead.test', '1.test', '2.test'].map(ask);
    const again = ask('2.test');
    await expect(ask('3.test')).rejects.toMatchObject({
      code: 'dns_failed',
      message: expect.stringContaining('too many other names') as string,
    });
    for (const host of ['dead.test', '1.test', '2.test']) {
      server.answer(host);
      await settled();
    }
    expect(await Promise.all([dead, one, two, again])).toHaveLength(4);
  });
});

describe('systemResolver', () => {
  it('reads the hosts file', async () => {
    const addresses = await asking(systemResolver(), 'a')('localhost');
    expect(addresses.length).toBeGreaterThan(0);
    expect(addresses.filter((address) => address !== '127.0.0.1' && address !== '::1')).toEqual([]);
  });
});
