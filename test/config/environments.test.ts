import { describe, expect, it } from 'vitest';
import { AWAY_MS, createEnvironments } from '../../src/config/environments.ts';
import type { Base } from '../../src/config/environments.ts';
import { createSandboxRegistry } from '../../src/config/sandboxes.ts';
import { tokenDigest } from '../../src/config/environment-record.ts';
import type { JsonObject, Records, StoredRecord } from '../../src/exchange/records.ts';
import type { Policy } from '../../src/exchange/rule.ts';
import type { Snapshot } from '../../src/exchange/snapshot.ts';
import type { Host } from '../../src/exchange/authority.ts';
import { Secret } from '../../src/foundation/secret.ts';
import { parseDomain } from '../../src/policy/host-pattern.ts';
import { buildPolicy, DENY_ALL } from '../../src/policy/policy-index.ts';
import { gate } from '../support/probes.ts';

const basic = (token: string) => `Basic ${Buffer.from(`sandbox:${token}`).toString('base64')}`;
const host = (text: string) => text as Host;

function record(id: string, version: number, value: JsonObject = {}): StoredRecord {
  const token_sha256 = tokenDigest(`token-of-${id}`);
  return { id, version, value: { token_sha256, ...value }, createdAt: '', updatedAt: '' };
}

const allowing = (...domains: string[]) => ({ network: { allowlist: domains.map((domain) => ({ domain })) } });

/** A config without sandboxes; `denied` is its denylist. */
function baseWith(denied: string[] = [], sandboxes?: Parameters<typeof createSandboxRegistry>[0]): Base {
  const denylist = denied.map((text) => {
    const parsed = parseDomain(text);
    if ('problem' in parsed) throw new Error(parsed.problem);
    return parsed;
  });
  const policy = buildPolicy({ denylist, allowlist: [], facesOf: (address) => [address] });
  const snapshot = { generation: 1, sandboxes: createSandboxRegistry(sandboxes ?? [], policy) } as unknown as Snapshot;
  return { snapshot, policy, config: {} };
}

/** A store that holds what it is told, and lists two to a page. */
function storeOf() {
  const held = new Map<string, StoredRecord | 'broken'>();
  let away = false;
  let before: () => Promise<void> = () => Promise.resolve();
  const records: Pick<Records, 'list'> = {
    list: async (_kind, { after = '' }) => {
      if (away) throw Object.assign(new Error('away'), { name: 'StoreAway' });
      const ids = [...held.keys()].filter((id) => id > after).sort();
      const page = ids.slice(0, 2).map((id) => [id, held.get(id)] as const);
      await before();
      return {
        records: page.flatMap(([, each]) => (each === undefined || each === 'broken' ? [] : [each])),
        broken: page.flatMap(([id, each]) => (each === 'broken' ? [id] : [])),
        ...(ids.length > 2 ? { next: ids[1] as string } : {}),
      };
    },
  };
  return {
    records,
    held,
    put: (...list: StoredRecord[]) => list.forEach((each) => held.set(each.id, each)),
    setAway: (is: boolean) => void (away = is),
    /** Runs after a page was read and before it is handed over */
    betweenPages: (act: () => Promise<void>) => void (before = act),
  };
}

function setOver(store: ReturnType<typeof storeOf>, now?: () => number) {
  const logged: string[] = [];
  const say = (message: string) => void logged.push(message);
  const log = { debug: say, info: say, warn: say, error: say };
  return { logged, set: createEnvironments({ records: store.records, log, ...(now === undefined ? {} : { now }) }) };
}

const rulesOf = (policy: Policy | undefined, name: string) => policy?.rulesFor(host(name)).map(({ id }) => id);

describe('environments over a config', () => {
  it('are sandboxes by token and by id beside those of the config, whose token and sources stay', async () => {
    const store = storeOf();
    store.put(
      record('env_a', 1, allowing('a.test')),
      record('env_b', 1, allowing('b.test')),
      record('env_c', 1, { network: 'disabled' }),
    );
    const { set } = setOver(store);
    await set.look();
    const own = { sandbox: { id: 'own', policy: DENY_ALL }, token: new Secret('token-of-own'), sources: [] };
    const { sandboxes } = set.over(baseWith([], [own]));
    expect(sandboxes.ids).toEqual(['own', 'env_a', 'env_b', 'env_c']);
    expect(sandboxes.required).toBe(true);
    expect(sandboxes.byToken(basic('token-of-env_a'))?.id).toBe('env_a');
    expect(sandboxes.byToken(`Bearer token-of-env_b`)?.id).toBe('env_b');
    expect(sandboxes.byToken(basic('token-of-own'))?.id).toBe('own');
    expect(sandboxes.byToken(basic('token-of-env_d'))).toBeUndefined();
    expect(sandboxes.byToken(basic(tokenDigest('token-of-env_a')))).toBeUndefined();
    expect(rulesOf(sandboxes.byId('env_a')?.policy, 'a.test')).toEqual(['a.test']);
    expect(rulesOf(sandboxes.byId('env_b')?.policy, 'a.test')).toEqual([]);
    expect(rulesOf(sandboxes.byId('env_c')?.policy, 'a.test')).toEqual([]);
  });

  it('ask no token of the one sandbox of a config without any, and take a wrong one for wrong', async () => {
    const { set } = setOver(storeOf());
    await set.look();
    const { sandboxes } = set.over(baseWith());
    expect([sandboxes.required, sandboxes.heedsTokens, sandboxes.byId('default')?.id]).toEqual([false, true, 'default']);
    expect(sandboxes.byToken(basic('anything'))).toBeUndefined();
  });

  it('take the `redact` of the config where a rule does not say it, from a reload on too', async () => {
    const store = storeOf();
    const said = { domain: 'said.test', redact: false };
    store.put(record('env_a', 1, { network: { allowlist: [{ domain: 'unsaid.test' }, said] } }));
    const { set } = setOver(store);
    await set.look();
    for (const redact of [true, undefined, false, true]) {
      const own = set.over({ ...baseWith(), config: { redact } }).sandboxes.byId('env_a')?.policy;
      const of = (name: string) => own?.rulesFor(host(name)).map((rule) => rule.redact);
      expect([of('unsaid.test'), of('said.test')]).toEqual([[redact], [false]]);
    }
  });

  it('yield to a sandbox of the config that has their id', async () => {
    const store = storeOf();
    store.put(record('own', 1, allowing('a.test')));
    const { set } = setOver(store);
    await set.look();
    const own = { sandbox: { id: 'own', policy: DENY_ALL }, token: new Secret('token-of-another'), sources: [] };
    const { sandboxes } = set.over(baseWith([], [own]));
    expect(sandboxes.ids).toEqual(['own']);
    expect(sandboxes.byToken(basic('token-of-own'))).toBeUndefined();
  });

  it('have the denylist of the config over them, as it is now', async () => {
    const store = storeOf();
    store.put(record('env_a', 1, allowing('a.test')));
    const { set } = setOver(store);
    await set.look();
    const denied = (base: Base) => set.over(base).sandboxes.byId('env_a')?.policy.denied(host('a.test'));
    expect(denied(baseWith())).toBeUndefined();
    expect(denied(baseWith(['a.test']))).toBe('deny a.test');
  });

  it('tell which credentials their variables stand for', async () => {
    const store = storeOf();
    store.put(record('env_a', 1, { env: { A: 'text', B: { credential: 'slack' } } }));
    const { set } = setOver(store);
    await set.look();
    expect([...(set.over(baseWith()).sandboxes.byId('env_a')?.bound ?? [])]).toEqual(['slack']);
  });

  it('are the same snapshot until something changes', async () => {
    const store = storeOf();
    store.put(record('env_a', 1));
    const { set } = setOver(store);
    await set.look();
    const base = baseWith();
    const first = set.over(base);
    await set.look();
    expect(set.over(base)).toBe(first);
    expect(set.over(baseWith())).not.toBe(first);
    const again = set.over(base);
    store.put(record('env_a', 2));
    await set.look();
    expect(set.over(base)).not.toBe(again);
  });
});

describe('a look at the store', () => {
  it('finds what was made, changed and deleted by somebody else, over all its pages', async () => {
    const store = storeOf();
    const { set } = setOver(store);
    const ids = () => set.over(baseWith()).sandboxes.ids;
    for (const id of ['a', 'b', 'c', 'd', 'e']) store.put(record(id, 1, allowing('a.test')));
    await set.look();
    expect(ids()).toEqual(['default', 'a', 'b', 'c', 'd', 'e']);
    store.held.delete('c');
    store.put(record('e', 2, allowing('b.test')));
    await set.look();
    expect(ids()).toEqual(['default', 'a', 'b', 'd', 'e']);
    expect(rulesOf(set.over(baseWith()).sandboxes.byId('e')?.policy, 'b.test')).toEqual(['b.test']);
  });

  it('never undoes what was written or deleted here while it was under way', async () => {
    const store = storeOf();
    store.put(record('a', 1, allowing('old.test')), record('b', 1));
    const { set } = setOver(store);
    await set.look();
    const [read, go] = [gate(), gate()];
    store.betweenPages(async () => {
      read.open();
      await go.opened;
    });
    const looking = set.look();
    await read.opened;
    await set.changed(record('a', 2, allowing('new.test')));
    await set.changed(record('c', 1));
    set.removed('b');
    go.open();
    await looking;
    const { sandboxes } = set.over(baseWith());
    expect(sandboxes.ids).toEqual(['default', 'a', 'c']);
    expect(rulesOf(sandboxes.byId('a')?.policy, 'new.test')).toEqual(['new.test']);
  });

  it('keeps the later of two writes, in whatever order they are told', async () => {
    const { set } = setOver(storeOf());
    await set.changed(record('a', 2, allowing('new.test')));
    await set.changed(record('a', 1, allowing('old.test')));
    expect(rulesOf(set.over(baseWith()).sandboxes.byId('a')?.policy, 'new.test')).toEqual(['new.test']);
  });

  it('is one at a time', async () => {
    const { set } = setOver(storeOf());
    expect(set.look()).toBe(set.look());
    await set.look();
  });
});

describe('an environment that cannot be used', () => {
  const bad = [
    { name: 'a network that is none', value: { network: 7 } },
    { name: 'a rule of a later version', value: { network: { allowlist: [{ domain: 'a.test', later: true }] } } },
    {
      name: 'a value out of a file',
      value: { network: { allowlist: [{ domain: 'a.test', transform: { X: { file: '/etc/passwd' } } }] } },
    },
    { name: 'variables that are none', value: { env: [7] } },
  ];

  it.each(bad)('is refused and said in the log, and the others go on: $name', async ({ value }) => {
    const store = storeOf();
    store.put(record('a', 1, allowing('a.test')), record('b', 1, allowing('b.test')));
    const { set, logged } = setOver(store);
    await set.look();
    store.put(record('a', 2, value));
    await set.look();
    await set.look();
    const { sandboxes } = set.over(baseWith());
    // Still known by its token: the ledger has its name.
    expect(sandboxes.byToken(basic('token-of-a'))?.id).toBe('a');
    expect(sandboxes.byId('a')?.policy.denied(host('a.test'))).toBe('environment unavailable');
    expect(rulesOf(sandboxes.byId('b')?.policy, 'b.test')).toEqual(['b.test']);
    expect(set.states()[0]).toMatchObject({ id: 'a', health: 'refused' });
    expect(logged.filter((line) => line.startsWith('environment "a" is refused'))).toHaveLength(1);
  });

  it('is refused where its record does not open, by the last token that is known of it, and comes back with it', async () => {
    const store = storeOf();
    store.put(record('a', 1, allowing('a.test')));
    const { set } = setOver(store);
    await set.look();
    store.held.set('a', 'broken');
    await set.look();
    expect(set.over(baseWith()).sandboxes.byToken(basic('token-of-a'))?.policy.denied(host('a.test'))).toBe(
      'environment unavailable',
    );
    store.put(record('a', 3, allowing('a.test')));
    await set.look();
    expect(set.over(baseWith()).sandboxes.byToken(basic('token-of-a'))?.policy.denied(host('a.test'))).toBeUndefined();
  });
});

describe('while the store is away', () => {
  it('what was read is in force for five minutes, then every environment is refused until it is back', async () => {
    let now = 0;
    const store = storeOf();
    store.put(record('a', 1, allowing('a.test')));
    const { set, logged } = setOver(store, () => now);
    await set.look();
    const base = baseWith();
    const denied = () => set.over(base).sandboxes.byToken(basic('token-of-a'))?.policy.denied(host('a.test'));
    store.setAway(true);
    for (const at of [1, AWAY_MS - 1]) {
      now = at;
      await set.look();
      expect(denied()).toBeUndefined();
    }
    now = AWAY_MS;
    await set.look();
    expect(denied()).toContain('the store has been away');
    expect(set.states()).toMatchObject([{ id: 'a', health: 'refused' }]);
    expect(logged.filter((line) => line.includes('cannot be looked at'))).toHaveLength(1);
    store.setAway(false);
    await set.look();
    expect(denied()).toBeUndefined();
    expect(set.states()).toEqual([{ id: 'a', network: 'allowlist', health: 'ok' }]);
  });
});

describe('the watch', () => {
  /** A watched set, and a gate that opens with its third look. */
  function watched() {
    const store = storeOf();
    const third = gate();
    const seen = { looks: 0 };
    store.betweenPages(() => {
      seen.looks += 1;
      if (seen.looks === 3) third.open();
      return Promise.resolve();
    });
    const log = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined };
    const set = createEnvironments({ records: store.records, log, pollMs: 1 });
    set.watch();
    return { set, seen, third: third.opened };
  }

  it('looks again and again, and no more once it is closed', async () => {
    const one = watched();
    await one.third;
    one.set.close();
    await one.set.look();
    const { looks } = one.seen;
    one.set.watch();
    // In the time in which another one looks three times, it does not once.
    const another = watched();
    await another.third;
    another.set.close();
    expect(one.seen.looks).toBe(looks);
  });
});
