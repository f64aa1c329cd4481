// The config is rewritten again and again, well and badly, while clients go on asking (fault B08): a denied host is denied in every
// interleaving, and an allowed one is served by every one. One test is of the watch on the file itself.
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { sampled } from '../support/operator.ts';
import { openOutside, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { verdictIn, WAYS } from '../support/probes.ts';
import type { Way } from '../support/probes.ts';

let outside: Outside;
let plain: Upstream;
let secure: Upstream;
let house: House;
/** The file as it is when all is well, with everything in it that keeps the house in its folder */
let good: Record<string, unknown>;

const [byConnect, inAbsoluteForm] = WAYS as [Way, Way];
const CLIENTS = 10;
const REWRITES = 50;

beforeAll(async () => {
  outside = await openOutside();
  plain = await startUpstream();
  secure = await startUpstream({ tls: outside });
});

afterAll(async () => {
  await plain.close();
  await secure.close();
  await outside.close();
});

beforeEach(async () => {
  const rule = { ports: [plain.port, secure.port], addresses: LOOPBACK };
  const config = {
    upstream: { ca: [outside.caPath] },
    network: {
      denylist: [{ domain: 'denied.test' }],
      allowlist: [
        { domain: 'allowed.test', ...rule },
        { domain: 'denied.test', ...rule },
      ],
    },
  };
  house = await startHouse(config, {
    names: { 'allowed.test': ['127.0.0.1'], 'denied.test': ['127.0.0.1'], 'unknown.test': ['127.0.0.1'] },
  });
  good = JSON.parse(await readFile(house.configPath, 'utf8')) as Record<string, unknown>;
});

afterEach(() => house.stop());

/** What an operator, an editor or a half-finished deployment may do to the file. */
const rewrites: readonly { readonly name: string; readonly write: (path: string, turn: number) => Promise<void> }[] = [
  { name: 'valid', write: (path) => writeFile(path, JSON.stringify(good)) },
  {
    name: 'invalid',
    write: (path) => writeFile(path, JSON.stringify({ ...good, network: { allowlist: [{ domain: 'http://*' }] } })),
  },
  { name: 'truncated', write: (path) => writeFile(path, JSON.stringify(good).slice(0, 120)) },
  { name: 'empty', write: (path) => writeFile(path, '') },
  {
    name: 'an unrelated key',
    write: (path, turn) => writeFile(path, JSON.stringify({ ...good, limits: { header_fields: 500 + turn } })),
  },
  { name: 'a null network', write: (path) => writeFile(path, JSON.stringify({ ...good, network: null })) },
  {
    name: 'replaced by rename',
    write: async (path, turn) => {
      await writeFile(`${path}.new`, JSON.stringify({ ...good, limits: { header_fields: 700 + turn } }));
      await rename(`${path}.new`, path);
    },
  },
  { name: 'deleted', write: (path) => rm(path, { force: true }) },
];

describe('a config that is rewritten while clients ask', () => {
  it('never lets a denied host through and never refuses an allowed one', async () => {
    let over = false;
    const verdicts = { denied: new Set<string>(), unknown: new Set<string>(), allowed: new Set<string>() };
    const client = async (way: Way): Promise<number> => {
      const { port } = way.scheme === 'https' ? secure : plain;
      let turns = 0;
      while (!over) {
        verdicts.denied.add(verdictIn(await way.send(house, `denied.test:${port}`)));
        verdicts.unknown.add(verdictIn(await way.send(house, `unknown.test:${port}`)));
        verdicts.allowed.add(verdictIn(await way.send(house, `allowed.test:${port}`)));
        turns += 1;
      }
      return turns;
    };
    const clients = Array.from({ length: CLIENTS }, (_, i) => client(i % 3 === 0 ? byConnect : inAbsoluteForm));
    const outcomes = new Set<string>();
    for (let turn = 0; turn < REWRITES; turn += 1) {
      await rewrites[turn % rewrites.length]!.write(house.configPath, turn);
      outcomes.add((await house.app.reload()).outcome);
    }
    over = true;
    const turns = await Promise.all(clients);
    expect(Math.min(...turns)).toBeGreaterThan(0);
    expect(verdicts.denied).toEqual(new Set(['403 denylisted']));
    expect(verdicts.unknown).toEqual(new Set(['403 not_allowlisted']));
    expect(verdicts.allowed).toEqual(new Set(['200 from the upstream']));
    expect(outcomes).toEqual(new Set(['accepted', 'rejected', 'unchanged']));
    expect(house.resolved.every((name) => name === 'allowed.test')).toBe(true);
    const scrape = await house.scrape();
    expect(sampled(scrape, 'sallyport_config_reloads_total', { result: 'rejected' })).toBeGreaterThanOrEqual(REWRITES / 2 - 4);
    expect(sampled(scrape, 'sallyport_config_reloads_total', { result: 'accepted' })).toBeGreaterThan(1);
  });

  it.each(rewrites)('still denies after it has become $name', async ({ write }) => {
    await write(house.configPath, 1);
    await house.app.reload();
    expect(verdictIn(await inAbsoluteForm.send(house, `denied.test:${plain.port}`))).toBe('403 denylisted');
    expect(verdictIn(await inAbsoluteForm.send(house, `allowed.test:${plain.port}`))).toBe('200 from the upstream');
  });

  it('takes a host off and on again, each from the next request on', async () => {
    const without = { ...good, network: { allowlist: [] } };
    for (let turn = 0; turn < 5; turn += 1) {
      await writeFile(house.configPath, JSON.stringify(without));
      await house.app.reload();
      for (const { send } of WAYS) expect(verdictIn(await send(house, `allowed.test:${plain.port}`))).toBe('403 not_allowlisted');
      await writeFile(house.configPath, JSON.stringify(good));
      await house.app.reload();
      expect(verdictIn(await inAbsoluteForm.send(house, `allowed.test:${plain.port}`))).toBe('200 from the upstream');
    }
  });
});

describe('the watch on the file', () => {
  it('puts a change into force without being told', async () => {
    expect(verdictIn(await inAbsoluteForm.send(house, `allowed.test:${plain.port}`))).toBe('200 from the upstream');
    const from = house.logged.length;
    await writeFile(house.configPath, JSON.stringify({ ...good, network: { allowlist: [] } }));
    await house.said('config accepted', from);
    expect(verdictIn(await inAbsoluteForm.send(house, `allowed.test:${plain.port}`))).toBe('403 not_allowlisted');
  });
});
