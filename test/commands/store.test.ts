// Twin of src/commands/store/store.ts: beside a running proxy, and without one.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { rekey, status } from '../../src/commands/store/store.ts';
import { rest } from '../support/admin-rest.ts';
import { startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { capture, json, writeConfig } from './rig.ts';

const SECRET = 'marker-secret-that-nobody-may-see';

async function houseWith(ids: readonly string[]): Promise<House> {
  const house = await startHouse({});
  onTestFinished(() => house.stop());
  for (const id of ids) await rest(house, 'POST /v1beta/credentials', { type: 'bearer_token', id, token: SECRET });
  return house;
}

const run = async (house: House, command: typeof status, options: object = {}) => {
  const captured = capture(house.folder);
  const code = await command({ config: house.configPath, ...options }, captured.context);
  return { code, facts: json(captured), err: captured.err(), out: captured.out() };
};

describe('the status of a store', () => {
  it('tells of a running proxy the records of each kind and the key, and no secret', async () => {
    const house = await houseWith(['a', 'b']);
    await rest(house, 'POST /v1beta/environments', { sources: [{ type: 'inline', target: 'a', content: 'a' }] });
    const { code, facts, err, out } = await run(house, status);
    expect([code, err]).toEqual([0, '']);
    expect(facts).toEqual({
      engine: 'file',
      place: `file:${join(house.folder, 'store.json')}`,
      stored: true,
      records: { credentials: 2, environments: 1, sources: 1, tokens: 0 },
      unreadable: 0,
      key_in_use: expect.stringMatching(/^[0-9a-f]{16}$/) as string,
      key_at_hand: facts['key_in_use'],
      rotation: 'none',
    });
    expect(out).not.toContain(readFileSync(join(house.folder, 'store-key'), 'utf8').trim());
    expect(out).not.toContain('marker-');
  });

  it('makes nothing where nothing is stored', async () => {
    const { directory, config } = writeConfig({});
    const captured = capture(directory);
    expect(await status({ config }, captured.context)).toBe(0);
    expect(json(captured)).toEqual({ engine: 'file', stored: false, key_at_hand: null });
    expect(captured.err()).toMatch(/nothing is stored yet/);
    expect(existsSync(join(directory, 'state'))).toBe(false);
  });

  it('exits 1 where the key at hand is another one, and still tells what is there', async () => {
    const house = await houseWith(['a']);
    writeFileSync(join(house.folder, 'store-key'), `${Buffer.alloc(32, 7).toString('base64')}\n`);
    const { code, facts, err } = await run(house, status);
    expect([code, facts['stored'], facts['key_in_use'] === facts['key_at_hand']]).toEqual([1, true, false]);
    expect(err).toMatch(/sealed with another key than the one that store\.key names/);
  });

  it('tells of a rotation that was begun', async () => {
    const house = await houseWith(['a']);
    writeFileSync(join(house.folder, 'store-key.next'), `${Buffer.alloc(32, 7).toString('base64')}\n`, { mode: 0o600 });
    const { code, facts, err } = await run(house, status);
    expect([code, facts['rotation']]).toEqual([0, 'begun']);
    expect(err).toMatch(/sallyport store rekey finishes it/);
  });

  it('is shown to a person in a table', async () => {
    const house = await houseWith(['a']);
    const captured = capture(house.folder, { terminal: true, env: { NO_COLOR: '1' } });
    expect(await status({ config: house.configPath }, captured.context)).toBe(0);
    expect(captured.out()).toMatch(/engine +│ file/);
  });

  it('exits 78 for an invalid config', async () => {
    const { directory, config } = writeConfig({ oops: 1 });
    expect(await status({ config }, capture(directory).context)).toBe(78);
    expect(await rekey({ config }, capture(directory).context)).toBe(78);
  });
});

describe('a new key', () => {
  it('seals the store of a running proxy, which goes on reading and writing without a restart', async () => {
    const house = await houseWith(['a', 'b']);
    const before = await run(house, status);
    const { code, facts, err } = await run(house, rekey);
    expect([code, facts['records_sealed']]).toEqual([0, 2]);
    expect(err).toBe(
      `"${join(house.folder, 'store-key')}" holds the new key now, and the proxies that read it there go on with it; where there is another copy of it, put the new key there\n`,
    );
    const after = await run(house, status);
    expect(after.facts).toEqual({ ...before.facts, key_in_use: facts['key_in_use'], key_at_hand: facts['key_in_use'] });
    expect(facts['key_in_use']).not.toBe(before.facts['key_in_use']);
    expect((await rest(house, 'GET /v1beta/credentials/a')).status).toBe(200);
    expect((await rest(house, 'PATCH /v1beta/credentials/b', { type: 'bearer_token', token: SECRET })).status).toBe(200);
  });

  it('that is in use already is said to be', async () => {
    const house = await houseWith(['a']);
    const { code, err } = await run(house, rekey, { newKeyFile: join(house.folder, 'store-key') });
    expect([code, err]).toEqual([0, 'this key was in use already\n']);
  });

  it('of a variable is for whoever sets it', async () => {
    const house = await houseWith(['a']);
    const key = readFileSync(join(house.folder, 'store-key'), 'utf8').trim();
    const config = { store: { uri: `file:${join(house.folder, 'store.json')}`, key: { env: 'STORE_KEY' } } };
    writeFileSync(join(house.folder, 'other.json'), JSON.stringify(config));
    const captured = capture(house.folder, { env: { STORE_KEY: key } });
    expect(await rekey({ config: 'other.json', newKeyFile: 'new' }, captured.context)).toBe(0);
    expect(captured.err()).toMatch(/put the new key into the variable "STORE_KEY" of every proxy now, and start each again/);
    expect(existsSync(join(house.folder, 'new'))).toBe(true);
  });
});
