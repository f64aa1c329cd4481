// Where credentials come from and where they must never go: one that cannot be had refuses its requests and is shown as unhealthy,
// a rotated one is in force without a restart, a broken rotation changes nothing, and no text of ours holds any of them.
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { askAdmin, seriesOf, statusOf, untilIt } from '../support/operator.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startRaw, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Seen, Upstream } from '../support/outside.ts';
import { ask, openSecureTunnel, readAnswer, sendRaw } from '../support/sandbox-client.ts';

let outside: Outside;
let secure: Upstream;
let folder: string;

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside });
});

afterAll(async () => {
  await secure.close();
  await outside.close();
});

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'secrets-'));
});

afterEach(() => rm(folder, { recursive: true, force: true }));

const NAMES = { 'api.test': ['127.0.0.1'], 'two.test': ['127.0.0.1'] };

/** One host, one credential `main`. */
function configWith(credential: object | undefined, rule: object = { credential: 'main' }): object {
  return {
    upstream: { ca: [outside.caPath] },
    ...(credential === undefined ? {} : { credentials: { main: credential } }),
    network: { allowlist: [{ domain: 'api.test', ports: [secure.port], addresses: LOOPBACK, ...rule }] },
  };
}

const url = (): string => `https://api.test:${secure.port}/`;

function lastToken(): string[] {
  return valuesOf((secure.seen.at(-1) as Seen).fields, 'authorization');
}

describe('a credential that cannot be had', () => {
  it.each([
    { name: 'a variable that is not set', credential: { type: 'bearer_token', token: { env: 'UNSET' } } },
    { name: 'a variable that is empty', credential: { type: 'bearer_token', token: { env: 'EMPTY' } } },
    { name: 'a file that does not exist', credential: () => ({ type: 'bearer_token', token: { file: join(folder, 'none') } }) },
    { name: 'a file that is empty', credential: () => ({ type: 'bearer_token', token: { file: join(folder, 'empty') } }) },
    { name: 'a folder in place of a file', credential: () => ({ type: 'bearer_token', token: { file: folder } }) },
    { name: 'a password that is missing', credential: { type: 'basic', username: 'user', password: { env: 'UNSET' } } },
    { name: 'one header of two', credential: { type: 'header', headers: { 'X-A': 'there', 'X-B': { env: 'UNSET' } } } },
  ])('refuses its requests and sends nothing: $name', async ({ credential }) => {
    // fault E06
    await writeFile(join(folder, 'empty'), '\n');
    const entry = typeof credential === 'function' ? credential() : credential;
    const before = secure.connections;
    const house = await startHouse(configWith(entry), { names: NAMES, env: { EMPTY: '' } });
    try {
      const got = await ask(house, url(), { fields: 'Authorization: Bearer placeholder\r\n' });
      expect([got.status, got.headers['x-sallyport-reason']]).toEqual([502, 'credential_unavailable']);
      expect(JSON.parse(got.body)).toMatchObject({
        code: 'credential_unavailable',
        detail: expect.stringContaining('"main"') as string,
      });
      expect(secure.connections).toBe(before);
      const failures = seriesOf(await house.scrape()).get(
        'sallyport_credential_failures_total{credential="main",reason="unavailable"}',
      );
      expect(failures).toBe(1);
      const { credentials, warnings } = await statusOf(house);
      const shown = credentials.find(({ id }) => id === 'main');
      expect(shown).toMatchObject({
        health: 'unavailable',
        reason: expect.stringMatching(/UNSET|EMPTY|none|empty|secrets-/) as string,
      });
      expect(warnings.some((text) => text.includes('"main"'))).toBe(true);
    } finally {
      await house.stop();
    }
  });

  it('refuses its requests and is not repeated where nobody declares its id, for that may be the secret itself', async () => {
    // fault E06
    const before = secure.connections;
    const house = await startHouse(configWith(undefined, { credential: 'marker-pasted' }), { names: NAMES });
    try {
      const got = await ask(house, url());
      expect([got.status, got.headers['x-sallyport-reason']]).toEqual([502, 'credential_unavailable']);
      expect(secure.connections).toBe(before);
      const scrape = await house.scrape();
      const failures = seriesOf(scrape).get('sallyport_credential_failures_total{credential="_rule",reason="unavailable"}');
      expect(failures).toBe(1);
      const { warnings } = await statusOf(house);
      expect(warnings).toEqual(expect.arrayContaining([expect.stringContaining('names no credential of this file')]));
      const explained = await askAdmin(house, '/v1/explain', { method: 'GET', url: url() });
      expect(explained.json).toMatchObject({ decision: 'refuse', reason: 'credential_unavailable' });
      const said = [got.fields.join(), got.body, scrape, explained.text, JSON.stringify(warnings), ...house.logged];
      expect(said.join('\n')).not.toContain('marker-pasted');
    } finally {
      await house.stop();
    }
  });

  it('becomes healthy when its file appears, without a restart', async () => {
    // fault E06
    const file = join(folder, 'late');
    const house = await startHouse(configWith({ type: 'bearer_token', token: { file } }), { names: NAMES });
    try {
      expect((await ask(house, url())).status).toBe(502);
      await writeFile(file, 'marker-late\n', { mode: 0o600 });
      await untilIt(
        () => statusOf(house),
        ({ credentials }) => credentials[0]?.health === 'ok',
      );
      expect((await ask(house, url())).status).toBe(200);
      expect(lastToken()).toEqual(['Bearer marker-late']);
    } finally {
      await house.stop();
    }
  });
});

describe('a rotation', () => {
  let file: string;
  let house: House;

  beforeEach(async () => {
    file = join(folder, 'token');
    await writeFile(file, 'marker-one\n', { mode: 0o600 });
  });

  afterEach(() => house.stop());

  it.each([
    { name: 'rewritten in place', rotate: (text: string) => writeFile(file, text) },
    {
      name: 'renamed over',
      rotate: async (text: string) => {
        await writeFile(`${file}.new`, text, { mode: 0o600 });
        await rename(`${file}.new`, file);
      },
    },
    {
      name: 'removed and made anew',
      rotate: async (text: string) => {
        await rm(file);
        await writeFile(file, text, { mode: 0o600 });
      },
    },
  ])('is in force on the connection that is open when its file is $name', async ({ rotate }) => {
    house = await startHouse(configWith({ type: 'bearer_token', token: { file } }), { names: NAMES });
    const tunnel = await openSecureTunnel(house, `api.test:${secure.port}`);
    const request = `GET / HTTP/1.1\r\nHost: api.test:${secure.port}\r\n\r\n`;
    tunnel.write(request);
    await readAnswer(tunnel);
    expect(lastToken()).toEqual(['Bearer marker-one']);
    const { generation } = await statusOf(house);
    await rotate('marker-two\n');
    await untilIt(
      () => statusOf(house),
      (status) => status.generation > generation,
    );
    tunnel.write(request);
    await readAnswer(tunnel);
    expect(lastToken()).toEqual(['Bearer marker-two']);
    tunnel.destroy();
  });

  it('is in force when the link of a mounted secret is swapped', async () => {
    for (const version of ['one', 'two']) {
      await mkdir(join(folder, `..${version}`));
      await writeFile(join(folder, `..${version}`, 'mounted'), `marker-${version}`, { mode: 0o600 });
    }
    await symlink('..one', join(folder, '..data'));
    await symlink(join('..data', 'mounted'), join(folder, 'mounted'));
    const mounted = join(folder, 'mounted');
    house = await startHouse(configWith({ type: 'bearer_token', token: { file: mounted } }), { names: NAMES });
    await ask(house, url());
    expect(lastToken()).toEqual(['Bearer marker-one']);
    await symlink('..two', join(folder, '..next'));
    await rename(join(folder, '..next'), join(folder, '..data'));
    await untilIt(
      () => statusOf(house),
      ({ generation }) => generation > 1,
    );
    await ask(house, url());
    expect(lastToken()).toEqual(['Bearer marker-two']);
  });

  it('is in force for a transform too', async () => {
    house = await startHouse(configWith(undefined, { transform: { Authorization: { file } } }), { names: NAMES });
    await writeFile(file, 'Bearer marker-two');
    await untilIt(
      () => statusOf(house),
      ({ generation }) => generation > 1,
    );
    await ask(house, url());
    expect(lastToken()).toEqual(['Bearer marker-two']);
  });

  it('keeps the last good value when the file is gone, and says so', async () => {
    // fault E06
    house = await startHouse(configWith({ type: 'bearer_token', token: { file } }), { names: NAMES });
    await rm(file);
    expect(await house.said('its last good value stays in use')).toMatch(/^warn /);
    const { warnings } = await statusOf(house);
    expect(warnings.some((text) => text.includes('its last good value stays in use'))).toBe(true);
    expect((await ask(house, url())).status).toBe(200);
    expect(lastToken()).toEqual(['Bearer marker-one']);
  });

  it.each([
    { name: 'a second field', text: 'marker-two\r\nX-Evil: 1' },
    { name: 'a lone line feed in the middle', text: 'marker-two\nrest' },
    { name: 'a NUL', text: 'marker-two\0' },
    { name: 'a character beyond latin1', text: 'marker-two\u2028' },
  ])('that would bring $name is refused and changes nothing', async ({ text }) => {
    // fault E08
    house = await startHouse(configWith({ type: 'bearer_token', token: { file } }), { names: NAMES });
    const { generation } = await statusOf(house);
    await writeFile(file, text);
    const said = await house.said('config rejected');
    expect(said).toContain('credential \\"main\\"');
    expect(house.logged.join('\n')).not.toContain('marker-two');
    const answer = await askAdmin(house, '/v1/reload', {});
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect(answer.text).not.toContain('marker-two');
    expect((await statusOf(house)).generation).toBe(generation);
    await ask(house, url());
    const { fields } = secure.seen.at(-1) as Seen;
    expect([valuesOf(fields, 'authorization'), valuesOf(fields, 'x-evil')]).toEqual([['Bearer marker-one'], []]);
  });
});

describe('a secret that could split a request', () => {
  it.each([
    { name: 'in a bearer token', credential: { type: 'bearer_token', token: { env: 'BAD' } } },
    { name: 'in a header', credential: { type: 'header', headers: { 'X-Api-Key': { env: 'BAD' } } } },
    { name: 'in a password', credential: { type: 'basic', username: 'user', password: { env: 'BAD' } } },
  ])('keeps the house from starting, which names the credential and not the value: $name', async ({ credential }) => {
    // fault E08
    const started = startHouse(configWith(credential), { names: NAMES, env: { BAD: 'marker-bad\r\nX-Evil: 1' } });
    const trouble: unknown = await started.then(
      (house) => house.stop(),
      (error: unknown) => error,
    );
    expect(trouble).toBeInstanceOf(Error);
    expect((trouble as Error).message).toContain('credential "main"');
    expect((trouble as Error).message).not.toContain('marker-bad');
  });
});

const SENTINELS = [
  'marker-token',
  'marker-api',
  Buffer.from('user:marker-pass').toString('base64'),
  'marker-pass',
  'marker-written',
];
const OWN_SENTINELS = [
  'own-authorization',
  'own-cookie',
  'own-custom',
  'own-query',
  'own-userinfo',
  Buffer.from('x:own-proxy').toString('base64'),
];

describe('what is said about an exchange', () => {
  it('holds no credential, no field value, no query and no userinfo, however the exchange ends', async () => {
    // faults E13, E17, E18
    const broken = await startRaw((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () => socket.end('HTTP/9 what\r\n\r\n'));
    });
    const ends = {
      fine: secure.port,
      refused: await unusedPort(),
      certificate: secure.port,
      unresolved: secure.port,
      invalid: broken.port,
      method: secure.port,
      large: secure.port,
    };
    const rule = (name: keyof typeof ends, more: object = {}) => ({
      domain: `${name}.test`,
      credential: 'several',
      transform: { 'X-Written': 'marker-written' },
      ports: [ends[name]],
      addresses: LOOPBACK,
      ...more,
    });
    const other = await openOutside();
    const strange = await startUpstream({ tls: other });
    ends.certificate = strange.port;
    const house = await startHouse(
      {
        upstream: { ca: [outside.caPath] },
        log: { level: 'debug' },
        credentials: {
          several: { type: 'header', headers: { Authorization: { env: 'TOKEN' }, 'X-Api-Key': 'marker-api' } },
          login: { type: 'basic', username: 'user', password: 'marker-pass' },
        },
        network: {
          allowlist: [
            rule('fine', { credential: 'login' }),
            rule('refused'),
            rule('certificate'),
            rule('unresolved'),
            rule('invalid', { allow_plaintext: true }),
            rule('method', { methods: ['GET'] }),
            rule('large'),
          ],
        },
      },
      {
        names: Object.fromEntries(
          Object.keys(ends)
            .filter((name) => name !== 'unresolved')
            .map((name) => [`${name}.test`, ['127.0.0.1']]),
        ),
        env: { TOKEN: 'marker-token' },
      },
    );
    try {
      const own =
        'Authorization: Bearer own-authorization\r\nCookie: own-cookie\r\nX-Custom: own-custom\r\nReferer: http://x/?own-query\r\n';
      const proxy = `Proxy-Authorization: Basic ${Buffer.from('x:own-proxy').toString('base64')}\r\n`;
      const texts: string[] = [];
      const statuses: number[] = [];
      const say = async (name: keyof typeof ends, options: { method?: string; more?: string; scheme?: string } = {}) => {
        const { method = 'GET', more = '', scheme = 'https' } = options;
        const target = `${scheme}://${name}.test:${ends[name]}/path?key=own-query`;
        const fields = scheme === 'http' ? own + proxy + more : own + more;
        const got = await ask(house, target, { method, fields, tunnelFields: proxy });
        statuses.push(got.status);
        // The upstream of the first one echoes what it got; that is its own doing.
        if (name !== 'fine') texts.push(got.fields.join('\n'), got.body);
      };
      await say('fine');
      await say('refused');
      await say('certificate');
      await say('unresolved');
      await say('invalid', { scheme: 'http' });
      await say('method', { method: 'DELETE' });
      await say('large', { more: `X-Large: ${'own-custom'.repeat(10_000)}\r\n` });
      const userinfo = await sendRaw(
        house.port,
        `GET http://me:own-userinfo@fine.test/?own-query HTTP/1.1\r\nHost: fine.test\r\n${own}\r\n`,
      );
      statuses.push(userinfo.status);
      texts.push(userinfo.body);
      expect(statuses).toEqual([200, 502, 502, 502, 502, 403, 431, 400]);
      await house.outcome((outcome) => outcome.trace.status === 400);
      texts.push(JSON.stringify(await house.audit()), house.logged.join('\n'), await house.scrape());
      for (const path of ['/v1/status', '/v1/denials']) texts.push((await askAdmin(house, path)).text);
      const question = { method: 'GET', url: `https://fine.test:${ends.fine}/` };
      const explained = await askAdmin(house, '/v1/explain', question);
      texts.push(explained.text);
      const everything = texts.join('\n');
      // What must be there, so that the search below is of the right texts.
      for (const there of [
        'upstream_connect',
        'upstream_tls',
        'dns_failed',
        'upstream_protocol',
        'method_denied',
        '/path',
        'several',
      ])
        expect(everything).toContain(there);
      expect([...SENTINELS, ...OWN_SENTINELS].filter((secret) => everything.includes(secret))).toEqual([]);
    } finally {
      await house.stop();
      await broken.close();
      await strange.close();
      await other.close();
    }
  });
});

/** A port where nobody listens. */
async function unusedPort(): Promise<number> {
  const server = await startRaw((socket) => socket.destroy());
  await server.close();
  return server.port;
}
