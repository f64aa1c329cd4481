// Twin of door-probes.ts, surroundings.ts and run-probes.ts: the door as a real house and as fakes on loopback.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lookAround, TARGETS } from '../../src/commands/doctor/surroundings.ts';
import { startHouse, LOOPBACK } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { ADMIN, HARMLESS, http, NO_TOKEN, OTHER, OUTSIDE, probe, REFUSAL, tcp, treeOf } from './doctor-rig.ts';

const TOKEN = 'a-token-of-this-sandbox';
let outside: Outside;
let upstream: Upstream;
let house: House;
let caPath: string;

beforeAll(async () => {
  outside = await openOutside();
  upstream = await startUpstream({ tls: outside });
  house = await startHouse(
    {
      network: { allowlist: [{ domain: 'allowed.test', addresses: LOOPBACK, ports: [upstream.port] }] },
      upstream: { ca: [outside.caPath] },
      sandboxes: { box: { token: TOKEN } },
    },
    { names: { 'allowed.test': ['127.0.0.1'] } },
  );
  caPath = join(house.folder, 'public', 'ca.pem');
});
afterAll(async () => {
  await house.stop();
  await upstream.close();
  await outside.close();
});

const by = (token = TOKEN): string => `http://box:${token}@127.0.0.1:${house.port}`;

describe('the door', () => {
  const rows = [
    {
      name: 'works where an allowed URL comes through',
      path: 'allowed.test',
      trusts: true,
      result: 'works',
      why: /answered 200/,
    },
    { name: 'is broken where its CA is not trusted', path: 'allowed.test', trusts: false, result: 'broken', why: /not trusted/ },
    {
      name: 'is broken where the URL is refused',
      path: 'other.test',
      trusts: true,
      result: 'broken',
      why: /refused: not_allowlisted/,
    },
  ];
  it.each(rows)('$name', async ({ path, trusts, result, why }) => {
    const allowed = `https://${path}:${upstream.port}/`;
    const env = { CURL_CA_BUNDLE: trusts ? caPath : outside.caPath };
    const probed = await probe('door', { allowed, proxy: by(), env, timeoutMs: 5_000 });
    expect(probed).toMatchObject({ result });
    expect(probed.why).toMatch(why);
  });

  it('works, without a URL, where the proxy refuses a name that nobody has', async () => {
    expect(await probe('door', { proxy: by() })).toMatchObject({ result: 'works' });
  });

  it('is broken where the token is not taken, and shows it to nobody', async () => {
    const probed = await probe('door', { proxy: by('a-wrong-token-altogether') });
    expect(probed).toMatchObject({ result: 'broken', why: 'the token is missing or not taken' });
    expect(JSON.stringify(probed)).not.toContain('a-wrong-token');
  });

  it.each([
    { name: 'broken where nobody listens', proxy: () => 'http://127.0.0.1:1', result: 'broken' },
    { name: 'unknown where what answers is no Sallyport', proxy: () => proxyThat(OTHER), result: 'unknown' },
    { name: 'unknown where no proxy is named and no door is met', proxy: () => undefined, result: 'unknown' },
  ])('is $name', async ({ proxy, result }) => {
    const url = await proxy();
    expect(await probe('door', url === undefined ? {} : { proxy: url })).toMatchObject({ result });
  });

  it('is broken, within its time, where the proxy takes the connection and is silent', async () => {
    const { host, port } = await tcp(OUTSIDE, () => undefined);
    const startedAt = performance.now();
    const probed = await probe('door', { proxy: `http://${host}:${port}`, timeoutMs: 200 });
    expect(probed.result).toBe('broken');
    expect(performance.now() - startedAt).toBeLessThan(2_000);
  });
});

async function proxyThat(answer: string): Promise<string> {
  const { host, port } = await http(OUTSIDE, answer);
  return `http://${host}:${port}`;
}

describe('a token', () => {
  it('is asked for by a house with sandboxes', async () => {
    expect(await probe('token', { proxy: by() })).toMatchObject({ result: 'closed' });
  });

  it.each([
    { name: 'closed where each try is refused with 407', answer: NO_TOKEN, userinfo: 'box:token@', result: 'closed' },
    { name: 'open where no token is needed', answer: REFUSAL, userinfo: 'box:token@', result: 'open' },
    { name: 'open where a made-up one is taken', answer: REFUSAL, userinfo: '', result: 'open' },
  ])('is $name', async ({ answer, userinfo, result }) => {
    const { host, port } = await http(OUTSIDE, answer);
    expect(await probe('token', { proxy: `http://${userinfo}${host}:${port}` })).toMatchObject({ result });
  });

  it('of its own that a sandbox does not need, for it is known by its address, is no hole', async () => {
    const { host, port } = await http(OUTSIDE, (head) => (head.includes('Proxy-Authorization') ? NO_TOKEN : REFUSAL));
    expect(await probe('token', { proxy: `http://${host}:${port}` })).toMatchObject({ result: 'closed' });
    expect(await probe('token', { proxy: `http://box:token@${host}:${port}` })).toMatchObject({
      result: 'open',
      tried: expect.stringContaining('no token') as unknown,
    });
  });

  it('of a made-up sandbox is shown to a proxy that no variable names too', async () => {
    const place = await http(OUTSIDE, REFUSAL);
    const files = { 'etc/resolv.conf': `nameserver ${OUTSIDE}\n` };
    expect(await probe('token', { targets: { proxyPort: place.port }, files })).toMatchObject({ result: 'open' });
    const other = await http(OUTSIDE, OTHER);
    expect(await probe('token', { targets: { proxyPort: other.port }, files })).toMatchObject({ result: 'closed' });
  });

  it('is unknown where the proxy does not answer', async () => {
    expect(await probe('token', { proxy: 'http://127.0.0.1:1' })).toMatchObject({ result: 'unknown' });
  });
});

describe('the admin listener', () => {
  it('of a house is open to whoever reaches its port', async () => {
    const probed = await probe('admin', { proxy: by(), targets: { adminPort: house.adminPort } });
    expect(probed).toMatchObject({ result: 'open', why: `127.0.0.1:${house.adminPort}: the admin listener answers` });
  });

  it.each([
    { name: 'open where it answers', host: OUTSIDE, answer: ADMIN, result: 'open' },
    { name: 'closed where something else of this machine has its port', host: '127.0.0.1', answer: OTHER, result: 'closed' },
  ])('is $name', async ({ host, answer, result }) => {
    const { port } = await http(host, answer);
    const files = { 'etc/resolv.conf': `nameserver ${OUTSIDE}\n` };
    expect(await probe('admin', { targets: { adminPort: port }, files, timeoutMs: 500 })).toMatchObject({ result });
  });

  it('is open where the proxy leads there', async () => {
    expect(await probe('admin', { proxy: await proxyThat(OTHER), targets: { adminPort: 1 } })).toMatchObject({
      result: 'open',
      why: expect.stringContaining('through the proxy') as unknown,
    });
  });

  it('is closed where nobody listens and the proxy refuses', async () => {
    expect(await probe('admin', { proxy: by(), targets: { adminPort: 1 } })).toMatchObject({ result: 'closed' });
  });
});

describe('the surroundings', () => {
  const look = async (env: NodeJS.ProcessEnv, files: Record<string, string> = {}) => {
    const root = `${treeOf(files)}/`;
    return lookAround({ env, directory: root, root, targets: HARMLESS });
  };

  it('have the proxy of the first variable that names one, with what its URL holds decoded', async () => {
    const { proxy } = await look({ http_proxy: 'http://10.0.0.9:1', HTTPS_PROXY: 'http://b%40x:t%3Ak@10.0.0.2:8080' });
    expect(proxy).toEqual({ name: '10.0.0.2', host: '10.0.0.2', port: 8080, username: 'b@x', password: 't:k' });
  });

  it.each([
    { name: 'without a scheme', url: '10.0.0.2:3128', host: '10.0.0.2', port: 3128 },
    { name: 'of IPv6', url: 'http://[fd00::2]:8080', host: 'fd00::2', port: 8080 },
    { name: 'without a port', url: 'http://10.0.0.2', host: '10.0.0.2', port: 80 },
    { name: 'with a lone percent sign', url: 'http://a:100%@10.0.0.2:8080', host: '10.0.0.2', port: 8080 },
  ])('have a proxy $name', async ({ url, host, port }) => {
    expect((await look({ https_proxy: url })).proxy).toMatchObject({ host, port });
  });

  it('have gateways, resolvers and the CA alone', async () => {
    const gateway = 'Iface\tDestination\tGateway \neth0\t00000000\t01074D0A\t0003\neth0\t00074D0A\t00000000\t0001\n';
    const around = await look(
      {},
      { 'proc/net/route': gateway, 'etc/resolv.conf': '# none\n nameserver 10.0.0.53\nnameserver fe80::1%eth0\nnameserver x\n' },
    );
    expect(around.gateways).toEqual(['10.77.7.1']);
    expect(around.nameservers).toEqual(['10.0.0.53', 'fe80::1']);
    expect(around.hasRoute6).toBe(false);
    const bundle = join(house.folder, 'public', 'two.pem');
    writeFileSync(bundle, `${house.ca}\n${house.ca}`);
    const trusting = await look({ SSL_CERT_FILE: bundle });
    expect([trusting.ca, trusting.trust]).toEqual([house.ca, `${house.ca}\n${house.ca}`]);
  });

  it('take an address that nobody has from a network that is not theirs', async () => {
    const root = `${treeOf({ 'etc/resolv.conf': 'nameserver 192.0.2.53\n' })}/`;
    const { targets } = await lookAround({ env: {}, directory: root, root });
    expect(targets.nowhere).not.toMatch(/^192\.0\.2\./);
    expect(TARGETS.nowhere).toMatch(/^192\.0\.2\./);
  });
});
