import { describe, expect, it } from 'vitest';
import type { Host } from '../../src/exchange/authority.ts';
import { sharingResolver, systemResolver } from '../../src/network/resolver.ts';

const name = 'api.example.test' as Host;

describe('sharingResolver', () => {
  it('asks once for two hundred questions that overlap, and again after the answer', async () => {
    const asked: Host[] = [];
    const waiting: (() => void)[] = [];
    const resolver = sharingResolver((host) => {
      asked.push(host);
      return new Promise((resolve) => waiting.push(() => resolve([`192.0.2.${asked.length}`])));
    });
    const first = Array.from({ length: 200 }, () => resolver.resolve(name));
    const other = resolver.resolve('other.example.test' as Host);
    expect(asked).toEqual([name, 'other.example.test']);
    waiting.forEach((answer) => answer());
    expect(new Set((await Promise.all(first)).flat())).toEqual(new Set(['192.0.2.2']));
    await other;
    const second = resolver.resolve(name);
    expect(asked).toHaveLength(3);
    waiting[2]?.();
    expect(await second).toEqual(['192.0.2.3']);
  });

  it('gives a failure to everyone who asked and remembers it no longer', async () => {
    let asked = 0;
    const resolver = sharingResolver(async () => {
      asked += 1;
      if (asked === 1) throw new Error('SERVFAIL');
      return ['192.0.2.1'];
    });
    const results = await Promise.allSettled([resolver.resolve(name), resolver.resolve(name)]);
    expect(results.map((result) => result.status)).toEqual(['rejected', 'rejected']);
    expect(await resolver.resolve(name)).toEqual(['192.0.2.1']);
    expect(asked).toBe(2);
  });
});

describe('systemResolver', () => {
  it('reads the hosts file', async () => {
    const addresses = await systemResolver().resolve('localhost' as Host);
    expect(addresses.length).toBeGreaterThan(0);
    expect(addresses.filter((address) => address !== '127.0.0.1' && address !== '::1')).toEqual([]);
  });
});
