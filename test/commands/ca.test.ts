// Twin of src/commands/ca.ts.
import { X509Certificate } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ca } from '../../src/commands/ca.ts';
import type { CaOptions } from '../../src/commands/ca.ts';
import { capture, json, writeConfig } from './rig.ts';

async function run(directory: string, options: CaOptions): Promise<string> {
  const captured = capture(directory);
  expect(await ca(options, captured.context)).toBe(0);
  return captured.out();
}

describe('ca', () => {
  it('makes the CA where there is none and shows the same one from then on', async () => {
    const { directory, config } = writeConfig({});
    const certificate = join(directory, 'certs/public/ca.pem');
    expect(await run(directory, { config, path: true })).toBe(`${certificate}\n`);
    const pem = readFileSync(certificate, 'utf8');
    expect(statSync(join(directory, 'certs/ca.key')).mode & 0o777).toBe(0o600);
    expect(await run(directory, { config, pem: true })).toBe(pem);
    expect(await run(directory, { config, fingerprint: true })).toBe(`${new X509Certificate(pem).fingerprint256}\n`);
    expect(await run(directory, { config, bundle: true })).toBe(`${join(directory, 'certs/public/bundle.pem')}\n`);
    const made = readdirSync(join(directory, 'certs/public')).sort();
    expect(made).toEqual(['bundle.pem', 'ca.pem', 'mounted.wgetrc', 'trust.p12', 'wgetrc']);
  });

  it('tells a pipe everything as JSON', async () => {
    const { directory, config } = writeConfig({});
    const captured = capture(directory);
    await ca({ config }, captured.context);
    expect(json(captured)).toEqual({
      certificate: join(directory, 'certs/public/ca.pem'),
      bundle: join(directory, 'certs/public/bundle.pem'),
      trust_store: join(directory, 'certs/public/trust.p12'),
      subject: expect.stringMatching(/^CN=Sallyport CA/) as string,
      fingerprint_sha256: expect.stringMatching(/^([0-9A-F]{2}:){31}[0-9A-F]{2}$/) as string,
      not_after: expect.stringMatching(/^\d{4}-\d\d-\d\dT/) as string,
    });
  });

  it('tells a person how to have it trusted', async () => {
    const { directory, config } = writeConfig({});
    const captured = capture(directory, { terminal: true });
    await ca({ config }, captured.context);
    expect(captured.err()).toMatch(/update-ca-certificates[\s\S]*trustStore=\S+trust\.p12[\s\S]*certutil .*ca\.pem"/);
  });

  it('refuses a certificate without its key, and leaves it', async () => {
    const { directory, config } = writeConfig({});
    await run(directory, { config, path: true });
    rmSync(join(directory, 'certs/ca.key'));
    await expect(ca({ config }, capture(directory).context)).rejects.toThrow(/restore the key, or remove the certificate/);
  });

  it('makes none where its key would live in the memory of another process', async () => {
    const { directory, config } = writeConfig({ ca: { certificate: 'ca.pem', key: null } });
    const captured = capture(directory);
    expect(await ca({ config, path: true }, captured.context)).toBe(1);
    expect(captured.err()).toMatch(/ca\.key is null, so the proxy makes one at each start; start it first/);
    expect(existsSync(join(directory, 'ca.pem'))).toBe(false);
  });

  it('shows, and does not replace, what a proxy with its key in memory has published', async () => {
    const made = writeConfig({});
    const pem = await run(made.directory, { config: made.config, pem: true });
    const { directory, config } = writeConfig({ ca: { certificate: 'ca.pem', key: null } });
    writeFileSync(join(directory, 'ca.pem'), pem);
    expect(await run(directory, { config, pem: true })).toBe(pem);
    expect(readFileSync(join(directory, 'ca.pem'), 'utf8')).toBe(pem);
  });

  it('exits 78 for an invalid config', async () => {
    const { directory, config } = writeConfig({ ca: { certificte: 'x' } });
    expect(await ca({ config }, capture(directory).context)).toBe(78);
  });
});
