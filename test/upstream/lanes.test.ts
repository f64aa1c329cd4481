import { beforeEach, describe, expect, it } from 'vitest';
import { Fault } from '../../src/exchange/codes.ts';
import type { UpstreamConnection } from '../../src/upstream/connection.ts';
import { Lanes } from '../../src/upstream/lanes.ts';
import type { UpstreamSession } from '../../src/upstream/session.ts';

let lanes: Lanes;

beforeEach(() => {
  lanes = new Lanes();
});

/** As much of a connection as lanes look at. */
function connection(): UpstreamConnection & { alive: boolean } {
  const fake = { alive: true, retire: () => undefined, destroy: () => (fake.alive = false) };
  return fake as unknown as UpstreamConnection;
}

interface FakeSession {
  usable: boolean;
  room: number;
  takesUpgrades: boolean | undefined;
}

function session(parts: Partial<FakeSession> = {}): UpstreamSession & FakeSession {
  const fake: FakeSession & Record<'take' | 'retire' | 'destroy', () => void> = {
    usable: true,
    room: 1,
    takesUpgrades: undefined,
    ...parts,
    take: () => (fake.room -= 1),
    retire: () => (fake.usable = false),
    destroy: () => (fake.usable = false),
  };
  Object.defineProperty(fake, 'hasRoom', { get: () => fake.usable && fake.room > 0 });
  return fake as unknown as UpstreamSession & FakeSession;
}

function opened(key: string, one: UpstreamSession): UpstreamSession {
  lanes.reserve(key, 10);
  lanes.addSession(key, one, lanes.epoch);
  return one;
}

describe('a lane', () => {
  it('gives a place on the first session that has room, and none where there is none', () => {
    const full = opened('a', session({ room: 0 }));
    const free = opened('a', session({ room: 2 }));
    expect([lanes.takeSession('a'), lanes.takeSession('a'), lanes.takeSession('a')]).toEqual([free, free, undefined]);
    expect(lanes.takeSession('b')).toBeUndefined();
    expect(full.hasRoom).toBe(false);
  });

  it.each([
    { takes: true, given: true },
    { takes: false, given: false },
    { takes: undefined, given: false },
  ])('gives one for a WebSocket where the upstream has said $takes: $given', ({ takes, given }) => {
    opened('a', session({ takesUpgrades: takes }));
    expect(lanes.takeSession('a', true) !== undefined).toBe(given);
    expect(lanes.refusesUpgrades('a')).toBe(takes === false);
  });

  it('is warm while a connection waits or a session has room', () => {
    expect(lanes.warm('a')).toBe(false);
    opened('a', session());
    expect(lanes.warm('a')).toBe(true);
    lanes.takeSession('a');
    expect(lanes.warm('a')).toBe(false);
    lanes.reserve('a', 10);
    lanes.give('a', connection());
    expect(lanes.warm('a')).toBe(true);
    lanes.take('a');
    expect(lanes.warm('a')).toBe(false);
  });

  it('counts sessions and connections together', () => {
    opened('a', session());
    expect(lanes.reserve('a', 1)).toBe(false);
    expect(lanes.reserve('a', 2)).toBe(true);
    expect(lanes.reserve('a', 2)).toBe(false);
    expect(lanes.size).toBe(1);
  });

  it('forgets a session that is gone', () => {
    const gone = opened('a', session());
    lanes.release('a', gone);
    expect([lanes.size, lanes.takeSession('a'), lanes.reserve('a', 1)]).toEqual([0, undefined, true]);
  });
});

describe('retire', () => {
  it('reaches idle connections, sessions, and what was dialled before', () => {
    const idle = connection();
    lanes.reserve('a', 10);
    lanes.add(idle, lanes.epoch);
    lanes.give('a', idle);
    const old = opened('a', session());
    const { epoch } = lanes;
    lanes.retire();
    const late = session();
    lanes.reserve('a', 10);
    lanes.addSession('a', late, epoch);
    expect([idle.alive, old.usable, late.usable]).toEqual([false, false, false]);
    expect([lanes.take('a'), lanes.takeSession('a')]).toEqual([undefined, undefined]);
  });

  it('forgets what upstreams were found to speak, and does not learn what was found before', () => {
    const { epoch } = lanes;
    lanes.remember('a', 'h2 only', epoch);
    expect(lanes.spoken('a')).toBe('h2 only');
    lanes.retire();
    expect(lanes.spoken('a')).toBeUndefined();
    lanes.remember('a', 'h2 only', epoch);
    expect(lanes.spoken('a')).toBeUndefined();
    lanes.remember('a', 'http/1.1 only', lanes.epoch);
    lanes.remember('a', undefined, lanes.epoch);
    expect(lanes.spoken('a')).toBeUndefined();
  });

  it('remembers a bounded number of lanes', () => {
    for (let lane = 0; lane < 20_000; lane += 1) lanes.remember(String(lane), 'h2 only', lanes.epoch);
    expect([lanes.spoken('0'), lanes.spoken('19999')]).toEqual([undefined, 'h2 only']);
  });
});

describe('an opening', () => {
  it('is there for others from when it is announced to when it is over', async () => {
    expect(lanes.opening('a')).toBeUndefined();
    const over = lanes.announce('a');
    const waited = lanes.opening('a');
    expect(lanes.opening('b')).toBeUndefined();
    over(undefined);
    expect(await waited).toBeUndefined();
    expect(lanes.opening('a')).toBeUndefined();
  });

  it('tells of a fault', async () => {
    const over = lanes.announce('a');
    const waited = lanes.opening('a');
    const fault = new Fault('upstream_connect', 'nobody is there');
    over(fault);
    expect(await waited).toBe(fault);
  });

  it('that is over late does not take the next one away', () => {
    const first = lanes.announce('a');
    lanes.announce('a');
    first(undefined);
    expect(lanes.opening('a')).toBeDefined();
  });
});
