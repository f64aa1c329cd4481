// Twin of live-config.ts, file-watch.ts and restart-needed.ts: real files, real watches.
import { appendFile, mkdir, mkdtemp, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { utimesSync, writeFileSync } from 'node:fs';
import { EventEmitter, on, once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Compiled } from '../../src/config/compile.ts';
import { ConfigError, openLiveConfig } from '../../src/config/live-config.ts';
import type { LiveConfig, ReloadResult } from '../../src/config/live-config.ts';
import { watchFiles } from '../../src/config/file-watch.ts';
import { GRACE_MS, graceLeft } from '../../src/config/source-reader.ts';
import { parseHost } from '../../src/exchange/authority.ts';
import type { Host } from '../../src/exchange/authority.ts';
import { Secret } from '../../src/foundation/secret.ts';

let folder: string;
let live: LiveConfig | undefined;
let reloads: EventEmitter;
let lines: string[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'live-'));
  reloads = new EventEmitter();
  lines = [];
});
afterEach(async () => {
  await live?.close();
  live = undefined;
  await rm(folder, { recursive: true });
});

const file = (name = 'a.yaml') => join(folder, name);
const allow = (...hosts: string[]) => `network: { allowlist: [${hosts.map((name) => `{ domain: ${name} }`).join(', ')}] }\n`;

async function open(text: string, name = 'a.yaml'): Promise<LiveConfig> {
  if (text !== '') await writeFile(file(name), text);
  const note = (line: string) => void lines.push(line);
  live = await openLiveConfig({
    path: name,
    baseDirectory: folder,
    env: {},
    log: { debug: note, info: note, warn: note, error: note },
    onReload: (result) => void reloads.emit('reload', result),
  });
  return live;
}

/** The next reload that was told of, with the change that brings it about. */
async function after(change: () => Promise<unknown>): Promise<ReloadResult> {
  const told = once(reloads, 'reload', { signal: AbortSignal.timeout(10_000) });
  await change();
  const [result] = (await told) as [ReloadResult];
  return result;
}

function allows(from: LiveConfig, name: string): boolean {
  const policy = from.current().snapshot.sandboxes.byId('default')?.policy;
  const host = parseHost(name) as Host;
  return policy !== undefined && policy.denied(host) === undefined && policy.rulesFor(host).length > 0;
}

function rulesOf(from: Compiled, name: string): string[] {
  const rules = from.snapshot.sandboxes.byId('default')?.policy.rulesFor(parseHost(name) as Host) ?? [];
  return rules.map(({ id }) => id);
}

function bearer(from: LiveConfig): string {
  const credential = from.current().credentials.get('hub');
  if (credential === undefined || 'fetched' in credential) return 'none';
  if ('unavailable' in credential) return credential.unavailable;
  return 'fields' in credential ? (credential.fields[0]?.value.reveal() ?? '') : 'no fields';
}

describe('openLiveConfig', () => {
  it('rejects with all problems where the first load fails', async () => {
    const opened = open('netwrok: 1\nlog: { level: x }');
    await expect(opened).rejects.toThrow(ConfigError);
    await expect(opened).rejects.toThrow(
      'a.yaml:1: netwrok: unknown key; did you mean `network`?\na.yaml:2: log.level: must be one of "debug", "info", "warn", "error"',
    );
  });
});

describe('reload', () => {
  it('swaps one reference when the file changed, and leaves it when it did not', async () => {
    const config = await open(allow('one.example'));
    const first = config.current();
    expect(await config.reload()).toEqual({
      outcome: 'unchanged',
      generation: 1,
      problems: [],
      warnings: [],
      restart_needed: [],
    });
    expect(config.current()).toBe(first);
    await writeFile(file(), allow('two.example'));
    expect(await config.reload()).toMatchObject({ outcome: 'accepted', generation: 2 });
    expect(config.current().snapshot.generation).toBe(2);
    expect([allows(config, 'one.example'), allows(config, 'two.example')]).toEqual([false, true]);
    expect(rulesOf(first, 'one.example')).toEqual(['one.example']);
  });

  it.each([
    ['wrong', 'network: { allow: [] }'],
    ['broken', 'network: {'],
    ['empty', ''],
    ['null', 'network:\n'],
  ])('keeps the last good one where the file is %s', async (_name, text) => {
    const config = await open(allow('one.example'));
    const first = config.current();
    const result = await after(() => writeFile(file(), text));
    expect(result).toMatchObject({ outcome: 'rejected', generation: 1 });
    expect(result.problems).not.toEqual([]);
    expect(config.current()).toBe(first);
    expect(lines.some((line) => line.startsWith('config rejected, the last good one stays in force: a.yaml'))).toBe(true);
  });

  it('tells of the good file that ends a rejection although it is the one in force', async () => {
    await open(allow('one.example'));
    expect(await after(() => writeFile(file(), '['))).toMatchObject({ outcome: 'rejected' });
    expect(await after(() => writeFile(file(), allow('one.example')))).toMatchObject({ outcome: 'unchanged', generation: 1 });
  });

  it('runs one at a time, in order', async () => {
    const config = await open(allow('one.example'));
    await writeFile(file(), allow('two.example'));
    const results = await Promise.all([config.reload(), config.reload(), config.reload()]);
    expect(results.map(({ outcome, generation }) => `${outcome} ${generation}`)).toEqual([
      'accepted 2',
      'unchanged 2',
      'unchanged 2',
    ]);
  });

  it('names what waits for a restart, for as long as it differs from the start', async () => {
    const config = await open(allow('one.example'));
    await writeFile(file(), `${allow('one.example')}listen: { proxy: "127.0.0.1:1" }\nca: { key: null }\nlog: { level: warn }\n`);
    const restart_needed = ['listen.proxy', 'ca.key', 'log.level'];
    expect(await config.reload()).toMatchObject({ outcome: 'accepted', restart_needed });
    expect(await config.reload()).toMatchObject({ outcome: 'unchanged', restart_needed });
    await writeFile(file(), allow('one.example'));
    expect(await config.reload()).toMatchObject({ outcome: 'accepted', restart_needed: [] });
  });
});

describe('a change of the limits', () => {
  const timeouts = (key: string) => `timeouts: { ${key}: 1s }`;
  it.each([
    { limit: 'header_bytes: 8KiB', waits: ['limits.header_bytes'] },
    { limit: timeouts('header'), waits: ['limits.timeouts.header'] },
    { limit: timeouts('handshake'), waits: ['limits.timeouts.handshake'] },
    { limit: timeouts('keep_alive'), waits: ['limits.timeouts.keep_alive'] },
    { limit: 'header_fields: 10', waits: [] },
    { limit: timeouts('reply'), waits: [] },
  ])('of $limit waits for a restart: $waits', async ({ limit, waits }) => {
    const config = await open(allow('one.example'));
    await writeFile(file(), `${allow('one.example')}limits: { ${limit} }\n`);
    expect(await config.reload()).toMatchObject({ outcome: 'accepted', restart_needed: waits });
  });
});

describe('the watch', () => {
  it('sees a file that is written', async () => {
    const config = await open(allow('one.example'));
    expect(await after(() => writeFile(file(), allow('two.example')))).toMatchObject({ outcome: 'accepted', generation: 2 });
    expect(allows(config, 'two.example')).toBe(true);
  });

  it('sees a file that is renamed over the old one, again and again', async () => {
    const config = await open(allow('one.example'));
    for (const name of ['two.example', 'three.example', 'four.example']) {
      await writeFile(file('next'), allow(name));
      expect(await after(() => rename(file('next'), file()))).toMatchObject({ outcome: 'accepted' });
      expect(allows(config, name)).toBe(true);
    }
  });

  it('sees a file whose times are those of the old one, as reproducible builds make them', async () => {
    const config = await open(allow('one.example'));
    const [read, written] = [new Date(2e12), new Date(1e12)];
    for (const name of ['two.example', 'three.example', 'four.example']) {
      const result = await after(async () => {
        writeFileSync(file(), allow(name));
        utimesSync(file(), read, written);
      });
      expect(result).toMatchObject({ outcome: 'accepted' });
      expect(allows(config, name)).toBe(true);
    }
  });

  it('keeps the last good one while the file is gone, and takes the new one', async () => {
    const config = await open(allow('one.example'));
    const result = await after(() => rm(file()));
    expect(result.problems).toEqual([
      { path: '', message: `config file "${file()}" does not exist; create it or correct the path` },
    ]);
    expect(allows(config, 'one.example')).toBe(true);
    expect(await after(() => writeFile(file(), allow('two.example')))).toMatchObject({ outcome: 'accepted' });
  });

  it('says nothing of neighbours', async () => {
    const config = await open(allow('one.example'));
    await writeFile(file('neighbour'), 'x');
    await appendFile(file('neighbour'), 'x');
    expect(await after(() => writeFile(file(), allow('two.example')))).toMatchObject({ outcome: 'accepted', generation: 2 });
    expect(config.current().watched).toEqual([]);
  });

  it("sees a ConfigMap's symlink swap", async () => {
    for (const [version, name] of [
      ['..1', 'one.example'],
      ['..2', 'two.example'],
      ['..3', 'three.example'],
    ] as const) {
      await mkdir(file(version));
      await writeFile(join(file(version), 'a.yaml'), allow(name));
    }
    await symlink('..1', file('..data'));
    await symlink('..data/a.yaml', file('a.yaml'));
    const config = await open('');
    expect(allows(config, 'one.example')).toBe(true);
    for (const [version, old, name] of [
      ['..2', '..1', 'two.example'],
      ['..3', '..2', 'three.example'],
    ] as const) {
      const result = await after(async () => {
        await symlink(version, file('..data_tmp'));
        await rename(file('..data_tmp'), file('..data'));
        await rm(file(old), { recursive: true });
      });
      expect(result).toMatchObject({ outcome: 'accepted' });
      expect(allows(config, name)).toBe(true);
    }
  });

  const withSecret = `${allow('one.example')}credentials: { hub: { type: bearer_token, token: { file: secrets/hub }, prefix: "" } }\n`;

  it('sees a secret that is rotated, in a folder of its own', async () => {
    await mkdir(file('secrets'));
    await writeFile(file('secrets/hub'), 'one');
    const config = await open(withSecret);
    expect(bearer(config)).toBe('one');
    expect(await after(() => writeFile(file('secrets/hub'), 'two\n'))).toMatchObject({ outcome: 'accepted' });
    expect(bearer(config)).toBe('two');
    await writeFile(file('secrets/next'), 'three');
    expect(await after(() => rename(file('secrets/next'), file('secrets/hub')))).toMatchObject({ outcome: 'accepted' });
    expect(bearer(config)).toBe('three');
  });

  it('sees a secret that a reload brought in', async () => {
    await mkdir(file('secrets'));
    await writeFile(file('secrets/hub'), 'one');
    const config = await open(allow('one.example'));
    expect(await after(() => writeFile(file(), withSecret))).toMatchObject({ outcome: 'accepted' });
    // The first may be seen by the second look that follows a change of places; the others only by the watch.
    for (const secret of ['two', 'three', 'four']) {
      expect(await after(() => writeFile(file('secrets/hub'), secret))).toMatchObject({ outcome: 'accepted' });
      expect(bearer(config)).toBe(secret);
    }
  });

  it('keeps the last good secret while a rotation has emptied its file', async () => {
    await mkdir(file('secrets'));
    await writeFile(file('secrets/hub'), 'one');
    const config = await open(withSecret);
    await truncate(file('secrets/hub'));
    const result = await config.reload();
    expect(result).toMatchObject({ outcome: 'unchanged' });
    expect(result.warnings).toEqual([
      'credentials.hub.token: file "secrets/hub" is empty; put the secret into it; its last good value stays in use for 30 s',
    ]);
    expect(bearer(config)).toBe('one');
  });

  it('refuses a rotation to a secret that could split a request, and keeps the last good one', async () => {
    await mkdir(file('secrets'));
    await writeFile(file('secrets/hub'), 'one');
    const config = await open(withSecret);
    const result = await after(() => writeFile(file('secrets/hub'), 'two\r\nX-Evil: 1')); // E08
    expect(result).toMatchObject({ outcome: 'rejected', generation: 1 });
    expect(JSON.stringify(result.problems)).toContain('credential \\"hub\\": file \\"secrets/hub\\" holds a line break inside');
    expect(JSON.stringify([result, lines])).not.toContain('X-Evil');
    expect(bearer(config)).toBe('one');
    expect(await after(() => writeFile(file('secrets/hub'), 'three'))).toMatchObject({ outcome: 'accepted' });
    expect(bearer(config)).toBe('three');
  });

  it('ends with close', async () => {
    const config = await open(allow('one.example'));
    await config.close();
    await writeFile(file(), allow('two.example'));
    expect(allows(config, 'one.example')).toBe(true);
  });
});

describe('a folder that the system cannot watch', () => {
  it('is told of once, and its changes are seen by polling', async () => {
    await writeFile(file('plain'), 'no folder');
    await writeFile(file('real'), '0');
    const told: string[] = [];
    const changes = new EventEmitter();
    const watch = await watchFiles({
      paths: [file('plain/deeper/hub'), file('real')],
      settleMs: 20,
      lookMs: 1,
      changed: () => void changes.emit('change'),
      failed: (directory) => void told.push(directory),
    });
    try {
      // Each burst lasts many looks, and each look tries to watch anew.
      for (const text of ['1', '2', '3']) {
        const seen = once(changes, 'change', { signal: AbortSignal.timeout(10_000) });
        await writeFile(file('real'), text);
        await seen;
      }
      expect(told).toEqual([file('plain/deeper')]);
    } finally {
      await watch.close();
    }
  });
});

describe('what is left of the grace of vanished sources', () => {
  const goneFor = (...times: (number | undefined)[]) => ({
    secrets: new Map(times.slice(0, 1).map((ms, i) => [`s${i}`, { value: new Secret('x'), goneSince: since(ms) }])),
    texts: new Map(times.slice(1).map((ms, i) => [`t${i}`, { value: 'x', goneSince: since(ms) }])),
    lost: new Set<string>(),
  });
  const now = 1_000_000;
  const since = (ms: number | undefined) => (ms === undefined ? undefined : now - ms);
  it.each([
    { name: 'nothing was read', times: [], left: undefined },
    { name: 'nothing is gone', times: [undefined, undefined], left: undefined },
    { name: 'a secret has just gone', times: [0], left: GRACE_MS },
    { name: 'a root has just gone', times: [undefined, 0], left: GRACE_MS },
    { name: 'the grace is all but over', times: [GRACE_MS - 1], left: 1 },
    { name: 'the grace is over, and the load at its end was rejected', times: [GRACE_MS], left: undefined },
    { name: 'one grace is over and another is not', times: [GRACE_MS + 5, 10], left: GRACE_MS - 10 },
  ])('is $left ms where $name', ({ times, left }) => {
    expect(graceLeft(goneFor(...times), now)).toBe(left);
  });
});

describe('a file that is rewritten in every way while it is in use', () => {
  it('never denies the allowed host, never allows the denied one, and ends with the last good text', async () => {
    const good = (extra: string) =>
      `network:\n  denylist: [{ domain: denied.example }]\n  allowlist: [{ domain: "*" }, { domain: ${extra} }]\n`;
    const config = await open(good('first.example')); // B08
    let probing = true;
    const seen = new Set<string>();
    const probe = (async () => {
      while (probing) {
        seen.add(`allowed ${allows(config, 'allowed.example')}, denied ${allows(config, 'denied.example')}`);
        await new Promise((resolve) => void setImmediate(resolve));
      }
    })();
    const ways: readonly ((i: number) => Promise<unknown>)[] = [
      (i) => writeFile(file(), good(`a${i}.example`)),
      () => writeFile(file(), 'network: { allowlist: [{ domain: "*", pots: 1 }] }'),
      () => truncate(file(), 0),
      (i) => writeFile(file(), `${good(`b${i}.example`)}log: { level: warn }\n`),
      () => writeFile(file(), good('c.example').slice(0, 40)),
      async (i) => {
        await writeFile(file('next'), good(`d${i}.example`));
        await rename(file('next'), file());
      },
      () => rm(file()),
    ];
    for (let i = 0; i < 50; i += 1) {
      await ways[i % ways.length]?.(i);
      // Half of the changes are read on the spot, the others are left to the watch.
      if (i % 2 === 0) await config.reload();
    }
    await writeFile(file(), good('last.example'));
    if (!isLast(config)) {
      for await (const [result] of on(reloads, 'reload', { signal: AbortSignal.timeout(10_000) }) as AsyncIterable<
        [ReloadResult]
      >) {
        if (result.outcome === 'accepted' && isLast(config)) break;
      }
    }
    probing = false;
    await probe;
    expect([...seen]).toEqual(['allowed true, denied false']);
    expect(isLast(config)).toBe(true);
  });

  function isLast(config: LiveConfig): boolean {
    return rulesOf(config.current(), 'last.example')[0] === 'last.example';
  }
});
