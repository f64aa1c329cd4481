// Values that end, on a clock that the test moves: renewed ahead, one renewal at a time, failures remembered apart from the value.
import { describe, expect, it } from 'vitest';
import {
  createFreshSource,
  FAILURE_MS,
  heldFrom,
  LOCK_WAIT_MS,
  UNENDING_GOOD_MS,
  UNENDING_RENEW_MS,
} from '../../src/credentials/fresh-source.ts';
import type { Failed, FreshOptions, FreshValue, Held } from '../../src/credentials/fresh-source.ts';
import { Secret } from '../../src/foundation/secret.ts';
import { HandClock } from '../support/hand-clock.ts';

const HOUR = 3_600_000;
const REFUSED: Failed = { failed: 'refused', unavailable: 'the endpoint refuses' };

interface Rig {
  readonly clock: HandClock;
  readonly source: ReturnType<typeof createFreshSource>;
  /** What the next renewals give; a function is called when it is asked */
  readonly next: (Held | Failed | Promise<Held | Failed>)[];
  readonly asked: () => number;
  readonly changes: (number | undefined)[];
  readonly failures: string[];
}

function rig(options: Partial<FreshOptions> = {}): Rig {
  const clock = new HandClock();
  const next: Rig['next'] = [];
  const changes: (number | undefined)[] = [];
  const failures: string[] = [];
  let asked = 0;
  const source = createFreshSource({
    renew: async () => {
      asked += 1;
      return (await next.shift()) ?? heldFrom(new Secret(`value-${asked}`), clock.now() + HOUR, clock.now());
    },
    onChange: (endsAt) => changes.push(endsAt),
    onFailure: (failed) => failures.push(failed),
    clock,
    ...options,
  });
  return { clock, source, next, asked: () => asked, changes, failures };
}

function shown(value: FreshValue): string {
  return 'unavailable' in value ? `unavailable: ${value.unavailable}` : value.value.reveal();
}

async function settle(source: Rig['source']): Promise<void> {
  await source.settled();
}

describe('a value that ends', () => {
  it('is asked for at the first use, and then at hand without a promise, as the same object', async () => {
    const { source, asked } = rig();
    expect(asked()).toBe(0);
    const first = await source.current();
    expect(shown(first)).toBe('value-1');
    expect(source.current()).toBe(first);
    expect(asked()).toBe(1);
  });

  it('is asked for once by a hundred who need it at once', async () => {
    const { source, asked } = rig();
    const values = await Promise.all(Array.from({ length: 100 }, async () => source.current()));
    expect(new Set(values.map(shown))).toEqual(new Set(['value-1']));
    expect(asked()).toBe(1);
  });

  const aheads = [
    { name: '60 s before the end of an hour', life: HOUR, ahead: 60_000 },
    { name: '60 s before the end of ten minutes', life: 600_000, ahead: 60_000 },
    { name: 'a tenth of its life before the end of what is shorter', life: 590_000, ahead: 59_000 },
    { name: 'a second before the end of ten', life: 10_000, ahead: 1_000 },
  ];

  it.each(aheads)('is renewed in the background, by the clock alone, $name', async ({ life, ahead }) => {
    const { source, clock, next, asked } = rig();
    next.push(heldFrom(new Secret('short'), clock.now() + life, clock.now()));
    await source.current();
    clock.pass(life - ahead - 1);
    expect(asked()).toBe(1);
    clock.pass(1);
    expect(asked()).toBe(2);
    expect(shown(source.current() as FreshValue)).toBe('short');
    await settle(source);
    expect(shown(source.current() as FreshValue)).toBe('value-2');
  });

  it('goes on being used while its renewal fails, is tried again each 5 s, and is not used at its end', async () => {
    const { source, clock, next, asked, failures, changes } = rig();
    const end = clock.now() + HOUR;
    await source.current();
    for (let i = 0; i < 20; i += 1) next.push(REFUSED);
    clock.pass(HOUR - 60_000);
    await settle(source);
    expect(shown(source.current() as FreshValue)).toBe('value-1');
    clock.pass(FAILURE_MS - 1);
    expect(asked()).toBe(2);
    clock.pass(1);
    await settle(source);
    expect(asked()).toBe(3);
    expect(failures).toEqual(['refused', 'refused']);
    for (let at = FAILURE_MS; at < 60_000 - FAILURE_MS; at += FAILURE_MS) {
      clock.pass(FAILURE_MS);
      await settle(source);
    }
    expect(shown(source.current() as FreshValue)).toBe('value-1');
    expect(changes).toEqual([end]);
    clock.pass(FAILURE_MS);
    await settle(source);
    expect(shown(await source.current())).toBe('unavailable: the endpoint refuses');
    expect(changes).toEqual([end, undefined]);
  });

  it('is not asked for again within 5 s of a failure, and is after them', async () => {
    const { source, clock, next, asked, failures } = rig();
    next.push(REFUSED);
    expect(shown(await source.current())).toBe('unavailable: the endpoint refuses');
    clock.pass(FAILURE_MS - 1);
    expect(source.current()).toEqual(REFUSED);
    expect(asked()).toBe(1);
    clock.pass(1);
    expect(shown(await source.current())).toBe('value-2');
    expect(failures).toEqual(['refused']);
  });

  it('is asked for again where the clock was put back after a failure', async () => {
    const { source, clock, next, asked } = rig();
    next.push(REFUSED);
    await source.current();
    clock.pass(-HOUR);
    expect(shown(await source.current())).toBe('value-2');
    expect(asked()).toBe(2);
  });

  it('is dropped at a final failure, and never asked for again', async () => {
    const { source, clock, next, asked, changes } = rig();
    await source.current();
    next.push({ ...REFUSED, failed: 'revoked', final: true });
    clock.pass(HOUR - 60_000);
    await settle(source);
    expect(shown(source.current() as FreshValue)).toBe('unavailable: the endpoint refuses');
    clock.pass(10 * HOUR);
    expect(source.current()).toHaveProperty('unavailable');
    expect(asked()).toBe(2);
    expect(changes.at(-1)).toBeUndefined();
    expect(clock.pending).toBe(0);
  });

  it('without a known end is asked for anew after five minutes, and used for an hour at most', async () => {
    const { source, clock, next, asked, changes } = rig();
    next.push(heldFrom(new Secret('unending'), undefined, clock.now()));
    await source.current();
    for (let i = 0; i < 1000; i += 1) next.push(REFUSED);
    clock.pass(UNENDING_RENEW_MS);
    await settle(source);
    expect(asked()).toBe(2);
    expect(changes).toEqual([undefined]);
    clock.pass(UNENDING_GOOD_MS - UNENDING_RENEW_MS - 1);
    await settle(source);
    expect(shown(source.current() as FreshValue)).toBe('unending');
    clock.pass(1);
    await settle(source);
    expect(await source.current()).toHaveProperty('unavailable');
  });

  it('keeps its Secret where the renewal gives the same text', async () => {
    const { source, clock, next } = rig();
    next.push(heldFrom(new Secret('same'), clock.now() + HOUR, clock.now()));
    const first = (await source.current()) as Held;
    next.push(heldFrom(new Secret('same'), clock.now() + 2 * HOUR, clock.now()));
    clock.pass(HOUR - 60_000);
    await settle(source);
    expect((source.current() as Held).value).toBe(first.value);
    expect((source.current() as Held).endsAt).toBe((first.endsAt ?? 0) + HOUR);
  });

  it('is unavailable where the renewal throws, without a word of what was thrown', async () => {
    const { source, failures } = rig({ renew: () => Promise.reject(new Error('marker-secret')) });
    expect(JSON.stringify(await source.current())).not.toContain('marker-secret');
    expect(failures).toEqual(['other']);
  });

  it('comes from before where it is still good, and from elsewhere where that lasts longer', async () => {
    const clock = new HandClock();
    const first = heldFrom(new Secret('before'), clock.now() + HOUR, clock.now());
    const { source, asked } = rig({ first, clock });
    expect(shown(source.current() as FreshValue)).toBe('before');
    source.adopt(heldFrom(new Secret('older'), clock.now() + HOUR, clock.now()));
    expect(shown(source.current() as FreshValue)).toBe('before');
    source.adopt(heldFrom(new Secret('newer'), clock.now() + 2 * HOUR, clock.now()));
    expect(shown(await source.current())).toBe('newer');
    expect(asked()).toBe(0);
  });

  it('is renewed no more once its source is closed, and still used until it ends', async () => {
    const { source, clock, asked, changes } = rig();
    await source.current();
    source.close();
    clock.pass(HOUR - 1);
    expect(shown(source.current() as FreshValue)).toBe('value-1');
    clock.pass(1);
    expect(source.current()).toHaveProperty('unavailable');
    expect(asked()).toBe(1);
    expect(changes).toHaveLength(1);
  });
});

describe('a value that is shared', () => {
  it('is looked up again under the lock, and not fetched where somebody else has', async () => {
    const steps: string[] = [];
    const clock = new HandClock();
    const { source, asked } = rig({
      clock,
      fleet: {
        lock: () => {
          steps.push('lock');
          return Promise.resolve(() => {
            steps.push('release');
            return Promise.resolve();
          });
        },
        reread: () => {
          steps.push('reread');
          return Promise.resolve(heldFrom(new Secret('theirs'), clock.now() + HOUR, clock.now()));
        },
      },
    });
    expect(shown(await source.current())).toBe('theirs');
    expect(steps).toEqual(['lock', 'reread', 'release']);
    expect(asked()).toBe(0);
  });

  it('is fetched where what is kept is due itself, and the lock is given back though that fails', async () => {
    const clock = new HandClock();
    let released = 0;
    const { source, next, asked } = rig({
      clock,
      fleet: {
        lock: () => Promise.resolve(() => Promise.resolve(void (released += 1))),
        reread: () => Promise.resolve({ ...heldFrom(new Secret('due'), clock.now() + 1000, clock.now()), renewAt: clock.now() }),
      },
    });
    next.push(REFUSED);
    await source.current();
    expect([asked(), released]).toEqual([1, 1]);
  });

  it('waits for whoever has the lock, and gives up after a while', async () => {
    let tries = 0;
    const fleet = { lock: () => Promise.resolve(void (tries += 1)), reread: () => Promise.resolve(undefined) };
    const { source, clock, asked, failures } = rig({ fleet });
    const before = clock.now();
    const waiting = source.current() as Promise<FreshValue>;
    expect(await clock.until(waiting)).toHaveProperty('unavailable');
    expect(clock.now() - before).toBeGreaterThanOrEqual(LOCK_WAIT_MS);
    expect(tries).toBeGreaterThan(10);
    expect(asked()).toBe(0);
    expect(failures).toEqual(['busy']);
  });

  const troubles = [
    { name: 'away', error: 'StoreAway', failed: 'store_away' },
    { name: 'broken', error: 'StoreBroken', failed: 'store_broken' },
    { name: 'changed by somebody else', error: 'StoreConflict', failed: 'changed' },
  ];

  it.each(troubles)('is unavailable by name where the store is $name', async ({ error, failed }) => {
    const fleet = {
      lock: () => Promise.reject(Object.assign(new Error('marker-secret'), { name: error })),
      reread: () => Promise.resolve(undefined),
    };
    const { source, failures } = rig({ fleet });
    const value = await source.current();
    expect(value).toHaveProperty('unavailable');
    expect(JSON.stringify(value)).not.toContain('marker-secret');
    expect(failures).toEqual([failed]);
  });
});
