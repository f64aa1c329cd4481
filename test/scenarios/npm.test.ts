// A real client against a real server: npm, through the door, to whatever registry npm is configured with here.
// The registry's name, roots and addresses are read when the test runs; where it does not answer, the tests say so and are skipped.
import { execFile } from 'node:child_process';
import { lookup } from 'node:dns/promises';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseAddress } from '../../src/exchange/authority.ts';
import { classify } from '../../src/network/address-class.ts';
import { startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';

const run = promisify(execFile);
const PACKAGE = 'is-number';

interface Registry {
  readonly host: string;
  readonly port: number;
  readonly addresses: readonly string[];
  /** PEM file that npm verifies the registry with, where one is configured */
  readonly roots: string | undefined;
}

async function npmConfig(key: string): Promise<string | undefined> {
  const { stdout } = await run('npm', ['config', 'get', key], { cwd: tmpdir() });
  const value = stdout.trim();
  return value === '' || value === 'null' || value === 'undefined' ? undefined : value;
}

/** The registry, or why it cannot be had. */
async function findRegistry(): Promise<Registry | string> {
  const url = new URL((await npmConfig('registry')) ?? 'none:');
  if (url.protocol !== 'https:') return 'npm is not configured with an https registry';
  const roots = await npmConfig('cafile');
  try {
    const answers = await lookup(url.hostname, { all: true });
    await ping(url, roots);
    const port = url.port === '' ? 443 : Number(url.port);
    return { host: url.hostname, port, addresses: answers.map(({ address }) => address), roots };
  } catch (error) {
    return `the registry does not answer (${error instanceof Error && 'code' in error ? String(error.code) : 'no reason given'})`;
  }
}

function ping(url: URL, roots: string | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const ready = roots === undefined ? Promise.resolve(undefined) : readFile(roots);
    ready.then((ca) => {
      const probe = request(new URL(PACKAGE, url), { method: 'HEAD', timeout: 8000, ...(ca === undefined ? {} : { ca }) });
      probe.once('response', (response) => {
        response.resume();
        if (response.statusCode === 200) resolve();
        else reject(new Error('unexpected status'));
      });
      probe.once('timeout', () => probe.destroy(new Error('timeout')));
      probe.once('error', reject);
      probe.end();
    }, reject);
  });
}

const registry = await findRegistry();
const absent = typeof registry === 'string' ? registry : undefined;
if (absent !== undefined) process.stderr.write(`npm through the door is not tested: ${absent}\n`);

describe.skipIf(absent !== undefined)('npm through the door', () => {
  let house: House;
  let folder: string;

  const allow = ({ host, port, addresses }: Registry) => {
    const inside = addresses.filter((address) => {
      const read = parseAddress(address);
      return read === undefined || classify(read) !== 'public';
    });
    return { domain: host, ports: [port], methods: ['GET'], ...(inside.length === 0 ? {} : { addresses: inside }) };
  };

  const npm = (...args: string[]) =>
    run('npm', args, {
      cwd: folder,
      env: {
        ...process.env,
        npm_config_https_proxy: `http://127.0.0.1:${house.port}`,
        npm_config_proxy: `http://127.0.0.1:${house.port}`,
        npm_config_noproxy: '',
        npm_config_cafile: house.app.trust.bundle,
        npm_config_cache: join(folder, 'cache'),
        npm_config_fetch_retries: '0',
        npm_config_update_notifier: 'false',
        npm_config_audit: 'false',
        npm_config_fund: 'false',
      },
    });

  beforeAll(async () => {
    if (typeof registry === 'string') return;
    folder = await mkdtemp(join(tmpdir(), 'npm-client-'));
    await writeFile(join(folder, 'package.json'), '{ "name": "empty", "private": true }');
    house = await startHouse(
      {
        upstream: { ca: registry.roots === undefined ? [] : [registry.roots] },
        network: { allowlist: [allow(registry)] },
      },
      { names: { [registry.host]: registry.addresses } },
    );
  });

  afterAll(async () => {
    await house.stop();
    await rm(folder, { recursive: true, force: true });
  });

  it('answers `npm view` of a small package, and the ledger shows the exchange', async () => {
    const { stdout } = await npm('view', PACKAGE, 'name', '--json');
    expect(JSON.parse(stdout)).toBe(PACKAGE);
    const outcome = await house.outcome(({ trace }) => trace.intent?.path === `/${PACKAGE}`);
    expect(outcome).toMatchObject({
      decision: 'allow',
      arrival: { door: 'tunnel', protocol: 'http/1.1' },
      trace: { status: 200 },
    });
  }, 60_000);

  it('lets `npm install` put the package into an empty folder', async () => {
    await npm('install', PACKAGE);
    const installed = JSON.parse(await readFile(join(folder, 'node_modules', PACKAGE, 'package.json'), 'utf8')) as {
      name: string;
    };
    expect(installed.name).toBe(PACKAGE);
    expect(house.outcomes.some(({ trace }) => trace.intent?.path.endsWith('.tgz') === true && trace.status === 200)).toBe(true);
  }, 60_000);

  it('refuses npm where the registry is not on the allowlist, and npm says 403', async () => {
    await house.reconfigure({ network: { allowlist: [{ domain: 'elsewhere.test' }] } });
    const failure = await npm('view', PACKAGE, 'version', '--prefer-online').catch(
      (error: unknown) => error as { stderr: string },
    );
    expect(failure.stderr).toMatch(/403/);
    expect(house.outcomes.at(-1)).toMatchObject({ decision: 'refuse', verdict: { code: 'not_allowlisted' } });
  }, 60_000);
});
