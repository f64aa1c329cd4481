import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadConfig } from '../../src/config/load.ts';
import { formatProblem } from '../../src/config/problem.ts';
import { fixturePath, problemsOf } from './fixtures.ts';

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'load-'));
});
afterAll(() => rm(folder, { recursive: true }));

describe('loadConfig', () => {
  it('loads the shipped config without a problem or a warning', async () => {
    const root = join(import.meta.dirname, '..', '..');
    const result = await loadConfig(join(root, 'config', 'sallyport.yaml'), { env: {}, baseDirectory: root });
    expect(problemsOf(result)).toEqual([]);
    expect('compiled' in result && result.compiled.warnings).toEqual([]);
    expect('compiled' in result && result.compiled.config.redact).toBe(true);
    expect('compiled' in result && result.compiled.config.listen.proxy).toEqual({ host: '127.0.0.1', port: 8080 });
  });

  it('loads JSON', async () => {
    expect(problemsOf(await loadConfig(fixturePath('smallest-valid.json'), { env: {} }))).toEqual([]);
  });

  it('starts with generation 1', async () => {
    const result = await loadConfig(fixturePath('smallest-valid.yaml'), { env: {} });
    expect('compiled' in result && result.compiled.snapshot.generation).toBe(1);
  });

  it('has one line with path and remedy for a file that is missing', async () => {
    const result = await loadConfig('/nowhere/sallyport.yaml', { env: {} }); // L04
    expect(problemsOf(result).map((problem) => formatProblem(problem, 'sallyport.yaml'))).toEqual([
      'sallyport.yaml: config file "/nowhere/sallyport.yaml" does not exist; create it or correct the path',
    ]);
  });

  it('has one line with path and remedy for a folder', async () => {
    expect(problemsOf(await loadConfig(folder, { env: {} }))).toEqual([
      { path: '', message: `config file "${folder}" is a folder; name a file in it` }, // L04
    ]);
  });

  it.skipIf(process.getuid?.() === 0)('has one line with path and remedy for a file that cannot be read', async () => {
    const path = join(folder, 'closed.yaml');
    await writeFile(path, 'network: disabled');
    await chmod(path, 0o000);
    expect(problemsOf(await loadConfig(path, { env: {} }))).toEqual([
      { path: '', message: `config file "${path}" cannot be read: permission denied; let the user of this process read it` }, // L04
    ]);
  });

  it('has a fingerprint that changes with the text and with the secrets', async () => {
    const path = join(folder, 'a.yaml');
    const print = async (env: NodeJS.ProcessEnv) => {
      const result = await loadConfig(path, { env });
      return 'fingerprint' in result ? result.fingerprint : undefined;
    };
    const text = 'network: disabled\ncredentials: { a: { type: bearer_token, token: { env: A } } }';
    await writeFile(path, text);
    const first = await print({ A: 'one' });
    expect(await print({ A: 'one' })).toBe(first);
    expect(await print({ A: 'two' })).not.toBe(first);
    await writeFile(path, `${text}\n`);
    expect(await print({ A: 'one' })).not.toBe(first);
  });
});
