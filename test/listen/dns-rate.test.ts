import { describe, expect, it } from 'vitest';
import { DnsRate } from '../../src/listen/dns-rate.ts';

/** How many of `count` questions at `now` are let through. */
function burst(rate: DnsRate, client: string, { count, now }: { readonly count: number; readonly now: number }): number {
  let taken = 0;
  for (let i = 0; i < count; i += 1) if (rate.take(client, now)) taken += 1;
  return taken;
}

describe('how many questions an address may ask', () => {
  it('is a burst at once, and then as many as time has brought back', () => {
    const rate = new DnsRate({ perSecond: 10, burst: 5, clients: 10 });
    expect(burst(rate, 'a', { count: 20, now: 0 })).toBe(5);
    expect(burst(rate, 'a', { count: 20, now: 99 })).toBe(0);
    expect(burst(rate, 'a', { count: 20, now: 100 })).toBe(1);
    expect(burst(rate, 'a', { count: 20, now: 400 })).toBe(3);
    expect(burst(rate, 'a', { count: 20, now: 60_000 })).toBe(5);
  });

  it('is nothing to others: a burst of one takes none of theirs', () => {
    const rate = new DnsRate({ perSecond: 1, burst: 5, clients: 10 });
    expect(burst(rate, 'b', { count: 1, now: 0 })).toBe(1);
    expect(burst(rate, 'a', { count: 1000, now: 0 })).toBe(5);
    expect(burst(rate, 'b', { count: 20, now: 0 })).toBe(4);
  });

  it('is never brought back by a clock that goes backward', () => {
    const rate = new DnsRate({ perSecond: 10, burst: 5, clients: 10 });
    expect(burst(rate, 'a', { count: 5, now: 1000 })).toBe(5);
    expect(burst(rate, 'a', { count: 1, now: 0 })).toBe(0);
    expect(burst(rate, 'a', { count: 5, now: 100 })).toBe(1);
  });

  it('holds addresses that were never seen before to one burst together, and those that are known to nothing of it', () => {
    const rate = new DnsRate({ perSecond: 1, burst: 5, clients: 100 });
    expect(burst(rate, 'known', { count: 1, now: 0 })).toBe(1);
    let newcomers = 0;
    for (let i = 0; i < 1000; i += 1) if (rate.take(`made-up-${i}`, 0)) newcomers += 1;
    expect(newcomers).toBe(4);
    expect(burst(rate, 'known', { count: 20, now: 0 })).toBe(4);
    expect(rate.take('late', 1000)).toBe(true);
  });

  it('is kept for a bounded number of addresses: the one that was silent the longest makes room', () => {
    const rate = new DnsRate({ perSecond: 1000, burst: 5, clients: 3 });
    for (let i = 0; i < 50; i += 1) {
      expect(burst(rate, 'busy', { count: 6, now: i * 10 })).toBe(5);
      expect(rate.take(`passer-by-${i}`, i * 10)).toBe(true);
      expect(rate.clients).toBeLessThanOrEqual(3);
      // Still the same bucket, which is empty now.
      expect(rate.take('busy', i * 10)).toBe(false);
    }
  });
});
