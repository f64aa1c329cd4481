// Twin of src/commands/check.ts.
import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { check, formatListen } from '../../src/commands/check.ts';
import { SHIPPED_CONFIG } from '../../src/commands/context.ts';
import { capture, json, temporaryFolder, writeConfig } from './rig.ts';

const GOOD = {
  network: { denylist: [{ domain: '*.bad.test' }], allowlist: [{ domain: 'a.test', credential: 'one' }, { domain: 'b.test' }] },
  sandboxes: { agent: { sources: ['10.0.0.1'], network: { allowlist: [{ domain: 'c.test' }] } } },
  credentials: {
    one: { type: 'bearer_token', token: { env: 'ONE' } },
    two: { type: 'basic', username: 'u', password: { env: 'GONE' } },
  },
};
const BAD = 'network:\n  allowlist:\n    - domain: https://a.test/\n    - { domain: b.test, methds: [GET] }\n';

describe('check', () => {
  it('sums up a good config and exits 0', async () => {
    const { directory, config } = writeConfig(GOOD);
    const captured = capture(directory, { env: { ONE: 'secret-one' } });
    expect(await check({ config, json: true }, captured.context)).toBe(0);
    expect(json(captured)).toMatchObject({
      valid: true,
      summary: {
        rules: 3,
        denylist: 1,
        credentials: [
          { id: 'one', type: 'bearer_token', available: true },
          { id: 'two', type: 'basic', available: false },
        ],
        sandboxes: ['agent'],
        listeners: { proxy: '127.0.0.1:8080', admin: '127.0.0.1:9090' },
      },
    });
    expect(captured.out()).toMatch(/"warnings":\[[^\]]*\\"GONE\\" is not set/);
    expect(captured.out() + captured.err()).not.toContain('secret-one');
    expect(readdirSync(directory)).toEqual([config]);
  });

  it('shows a person a table, and the warnings on standard error', async () => {
    const { directory, config } = writeConfig(GOOD);
    const captured = capture(directory, { terminal: true, env: { NO_COLOR: '1' } });
    await check({ config }, captured.context);
    expect(captured.out()).toMatch(/rules +│ 3 on the allowlist, 1 on the denylist/);
    expect(captured.err()).toMatch(/warning: .*"GONE" is not set/);
    expect(captured.err()).toMatch(/sallyport\.json is valid\n$/);
  });

  it('says every problem with its line and the right spelling, and exits 78', async () => {
    const { directory, config } = writeConfig(BAD, 'bad.yaml');
    const captured = capture(directory);
    expect(await check({ config }, captured.context)).toBe(78);
    expect(captured.err()).toMatch(/bad\.yaml:3: network\.allowlist\[0\]\.domain: .*write the host alone: "a\.test"/);
    expect(captured.err()).toMatch(/bad\.yaml:4: network\.allowlist\[1\]\.methds: unknown key; did you mean `methods`\?/);
    expect(captured.err()).toMatch(/2 problems in bad\.yaml/);
    expect(json(captured)).toMatchObject({ valid: false, problems: [{ line: 3 }, { line: 4 }] });
  });

  it('keeps to JSON alone with --json', async () => {
    const { directory, config } = writeConfig(BAD, 'bad.yaml');
    const captured = capture(directory, { terminal: true });
    expect(await check({ config, json: true }, captured.context)).toBe(78);
    expect(json(captured)).toMatchObject({ valid: false, file: 'bad.yaml' });
    expect(captured.err()).toBe('');
  });

  it('exits 78 with one line where there is no file (L04)', async () => {
    const captured = capture(temporaryFolder(), { terminal: true, env: { NO_COLOR: '1' } });
    expect(await check({ config: 'gone.yaml' }, captured.context)).toBe(78);
    expect(captured.err()).toMatch(/^sallyport: gone\.yaml: .*does not exist; .*\n/);
  });

  it('finds the shipped config good', async () => {
    const captured = capture(temporaryFolder());
    expect(await check({ config: SHIPPED_CONFIG }, captured.context)).toBe(0);
  });

  it.each([
    { host: '127.0.0.1', wanted: '127.0.0.1:1' },
    { host: '::1', wanted: '[::1]:1' },
    { host: 'localhost', wanted: 'localhost:1' },
  ])('writes the listening address $host as $wanted', ({ host, wanted }) => {
    expect(formatListen({ host, port: 1 })).toBe(wanted);
  });
});
