// Twin of src/commands/context.ts and src/commands/exit-codes.ts.
import { chmodSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { complainOfConfig, configPath, readConfig, SHIPPED_CONFIG } from '../../src/commands/context.ts';
import { capture, temporaryFolder, writeConfig } from './rig.ts';

describe('the config of a command', () => {
  it.each([
    { name: 'the one on the command line', options: { config: 'a.yaml' }, env: { SALLYPORT_CONFIG: 'b.yaml' }, wanted: 'a.yaml' },
    { name: 'the one of the environment', options: {}, env: { SALLYPORT_CONFIG: 'b.yaml' }, wanted: 'b.yaml' },
    { name: 'the shipped one for an empty variable', options: {}, env: { SALLYPORT_CONFIG: '' }, wanted: SHIPPED_CONFIG },
    { name: 'the shipped one', options: {}, env: {}, wanted: SHIPPED_CONFIG },
  ])('is $name', ({ options, env, wanted }) => {
    expect(configPath(options, env)).toBe(wanted);
  });

  it('ships with the package and can be read', async () => {
    expect(await readConfig(SHIPPED_CONFIG, '/')).toHaveProperty('config');
  });

  it('is a problem with a remedy where it does not exist (L04)', async () => {
    const read = await readConfig('gone.yaml', temporaryFolder());
    expect(read).toEqual({
      problems: [{ path: '', message: 'the config file does not exist; name one with --config or SALLYPORT_CONFIG' }],
    });
  });

  it('is a problem where it is a folder (L04)', async () => {
    const read = await readConfig('.', temporaryFolder());
    expect('problems' in read && read.problems[0]?.message).toMatch(/cannot be read \(EISDIR\); name one/);
  });

  it.skipIf(process.getuid?.() === 0)('is a problem where it may not be read (L04)', async () => {
    const { directory, config } = writeConfig({});
    chmodSync(join(directory, config), 0);
    expect(await readConfig(config, directory)).toHaveProperty('problems');
  });

  it('is complained of with place and line, one line each, and exit status 78', () => {
    const { context, err } = capture('.');
    const code = complainOfConfig(
      context.voice,
      [
        { path: 'a.b', line: 3, message: 'is wrong' },
        { path: '', message: 'is odd' },
      ],
      'x.yaml',
    );
    expect([code, err()]).toEqual([78, 'sallyport: x.yaml:3: a.b: is wrong\nsallyport: x.yaml: is odd\n']);
  });
});
