// Environments over the admin API, through real sockets: made, changed and deleted on a running proxy, each a sandbox of its own that is known by the
// token of its proxy URL and judged by its own network; on another proxy of the same store within 10 s.
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { GoogleGenAI } from '@google/genai';
import { environmentAt, makeEnvironment, rest } from '../support/admin-rest.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { askAdmin, untilIt } from '../support/operator.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { inside, verdictIn, WAYS } from '../support/probes.ts';
import { openSecureTunnel } from '../support/sandbox-client.ts';

const MARKER = 'marker-secret-of-a-transform';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
let house: House;

const names = { 'red.test': ['127.0.0.1'], 'blue.test': ['127.0.0.1'], 'inside.test': ['10.0.0.7'], 'cut.test': ['127.0.0.1'] };

const base = () => ({ upstream: { ca: [outside.caPath] }, network: { denylist: [{ domain: 'cut.test' }] } });
const ruleFor = (domain: string, more: object = {}) => ({
  domain,
  ports: [secure.port, plain.port],
  addresses: LOOPBACK,
  allow_plaintext: true,
  ...more,
});
const own = (scheme: 'https' | 'http'): Upstream => (scheme === 'https' ? secure : plain);

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside, answer: numbered() });
  plain = await startUpstream({ answer: numbered() });
  house = await startHouse(base(), { names });
});

afterAll(async () => {
  await house.stop();
  await secure.close();
  await plain.close();
  await outside.close();
});

/** Each connection of the outside has a number, and says it with every answer. */
function numbered(): NonNullable<NonNullable<Parameters<typeof startUpstream>[0]>['answer']> {
  const numbers = new WeakMap<object, number>();
  let count = 0;
  return (_seen, response, request) => {
    const number = numbers.get(request.socket) ?? (count += 1);
    numbers.set(request.socket, number);
    response.end(String(number));
  };
}

describe('an environment', () => {
  it.each(WAYS)('is in force when it is answered for, and puts on what its own rules say, $name', async ({ send, scheme }) => {
    const red = await makeEnvironment(house, {
      network: { allowlist: [ruleFor('red.test', { transform: { 'X-Color': 'red' } })] },
    });
    const from = house.outcomes.length;
    const answer = await send(house, `red.test:${own(scheme).port}`, { proxyFields: red.identity });
    expect(verdictIn(answer)).toBe('200 from the upstream');
    expect(valuesOf(own(scheme).seen.at(-1)!.fields, 'x-color')).toEqual(['red']);
    expect((await house.outcome(() => true, from)).trace.sandbox).toBe(red.id);
    expect(verdictIn(await send(house, `blue.test:${own(scheme).port}`, { proxyFields: red.identity }))).toBe(
      '403 not_allowlisted',
    );
  });

  it.each(WAYS)(
    'is no more from the request on that follows its deletion, in a live tunnel too, $name',
    async ({ send, scheme }) => {
      const red = await makeEnvironment(house, { network: { allowlist: [ruleFor('red.test')] } });
      const tunnel = await openSecureTunnel(house, `red.test:${secure.port}`, {
        fields: red.identity,
        tls: { rejectUnauthorized: false },
      });
      expect((await inside(tunnel, `red.test:${secure.port}`)).status).toBe(200);
      expect((await rest(house, `DELETE /v1beta/environments/${red.id}`)).json).toEqual({});
      expect(verdictIn(await inside(tunnel, `red.test:${secure.port}`))).toBe('407 sandbox_unauthenticated');
      // Nor does it become the one sandbox of which no token is asked.
      expect(verdictIn(await send(house, `red.test:${own(scheme).port}`, { proxyFields: red.identity }))).toBe(
        '407 sandbox_unauthenticated',
      );
      tunnel.destroy();
    },
  );

  it.each(WAYS)('gets a new network whole, in a live tunnel too, $name', async ({ send, scheme }) => {
    const red = await makeEnvironment(house, {
      network: { allowlist: [ruleFor('red.test', { transform: { 'X-Color': 'red' } })] },
    });
    const tunnel = await openSecureTunnel(house, `red.test:${secure.port}`, {
      fields: red.identity,
      tls: { rejectUnauthorized: false },
    });
    expect((await inside(tunnel, `red.test:${secure.port}`)).status).toBe(200);
    const network = { allowlist: [ruleFor('blue.test', { transform: { 'X-Other': 'blue' } })] };
    expect((await rest(house, 'POST /v1beta/environments', { environment_id: red.id, network })).status).toBe(200);
    expect(verdictIn(await inside(tunnel, `red.test:${secure.port}`))).toBe('403 not_allowlisted');
    expect(verdictIn(await send(house, `blue.test:${own(scheme).port}`, { proxyFields: red.identity }))).toBe(
      '200 from the upstream',
    );
    const { fields } = own(scheme).seen.at(-1)!;
    expect([valuesOf(fields, 'x-color'), valuesOf(fields, 'x-other')]).toEqual([[], ['blue']]);
    tunnel.destroy();
  });

  const networks = [
    { name: 'disabled', body: () => ({ network: 'disabled' }), outside: '403 not_allowlisted', inside: '403 not_allowlisted' },
    {
      name: 'an empty allowlist',
      body: () => ({ network: { allowlist: [] } }),
      outside: '403 not_allowlisted',
      inside: '403 not_allowlisted',
    },
    { name: 'an empty network', body: () => ({ network: {} }), outside: '403 not_allowlisted', inside: '403 not_allowlisted' },
    // Its port is none of the standard ones; what counts is that the name is allowed.
    { name: 'no network, which leaves the walls', body: () => ({}), outside: '403 port_denied', inside: '403 address_denied' },
    {
      name: 'what the denylist of the whole door covers',
      body: () => ({ network: { allowlist: [ruleFor('cut.test')] } }),
      host: 'cut.test',
      outside: '403 denylisted',
      inside: '403 not_allowlisted',
    },
  ];

  it.each(networks)('with $name is judged by that', async ({ body, host = 'red.test', ...verdicts }) => {
    const made = await makeEnvironment(house, body());
    const [, absolute] = WAYS;
    const sent = plain.seen.length;
    expect(verdictIn(await absolute!.send(house, `${host}:${plain.port}`, { proxyFields: made.identity }))).toBe(
      verdicts.outside,
    );
    expect(verdictIn(await absolute!.send(house, 'inside.test', { proxyFields: made.identity }))).toBe(verdicts.inside);
    expect(plain.seen).toHaveLength(sent);
  });

  it('leaves the one sandbox of the config as it is, of which no token is asked', async () => {
    const [, absolute] = WAYS;
    expect(verdictIn(await absolute!.send(house, `red.test:${plain.port}`))).toBe('403 not_allowlisted');
    expect(
      verdictIn(await absolute!.send(house, `red.test:${plain.port}`, { proxyFields: 'Proxy-Authorization: Basic eDp5\r\n' })),
    ).toBe('407 sandbox_unauthenticated');
    const explained = await askAdmin(house, '/v1/explain', { method: 'GET', url: 'http://red.test/' });
    expect(explained.json['reason']).toBe('not_allowlisted');
  });

  it('is explained and shown in the status by its id', async () => {
    const red = await makeEnvironment(house, {
      network: { allowlist: [{ domain: 'red.test', transform: { 'X-Key': MARKER } }] },
    });
    const { json } = await askAdmin(house, '/v1/explain', { method: 'GET', url: 'https://red.test/', sandbox: red.id });
    expect(json).toMatchObject({ decision: 'allow', rule: 'red.test', transform: ['X-Key'] });
    const status = await askAdmin(house, '/v1/status');
    expect(status.json['environments']).toContainEqual({ id: red.id, network: 'allowlist', health: 'ok' });
  });

  it.each(WAYS)("never has its requests served by another one's upstream connections, $name", async ({ send, scheme }) => {
    const network = { allowlist: [ruleFor('red.test')] };
    const [one, two] = [await makeEnvironment(house, { network }), await makeEnvironment(house, { network })];
    const { port } = own(scheme);
    const connection = async (identity: string) => (await send(house, `red.test:${port}`, { proxyFields: identity })).body;
    const first = await connection(one.identity);
    const second = await connection(two.identity);
    expect(second).not.toBe(first);
    expect(await connection(one.identity)).toBe(first);
    expect(await connection(two.identity)).toBe(second);
  });

  it('has nothing of its secrets readable in an answer, the log, the ledger or a file', async () => {
    const red = await makeEnvironment(house, {
      network: { allowlist: [ruleFor('red.test', { transform: { Authorization: `Bearer ${MARKER}` } })] },
      sources: [{ type: 'inline', target: 'notes.txt', content: `a file with ${MARKER}` }],
    });
    const [, absolute] = WAYS;
    expect(verdictIn(await absolute!.send(house, `red.test:${plain.port}`, { proxyFields: red.identity }))).toBe(
      '200 from the upstream',
    );
    expect(valuesOf(plain.seen.at(-1)!.fields, 'authorization')).toEqual([`Bearer ${MARKER}`]);
    const asked = ['', '?page_size=1000', `/${red.id}`] as const;
    const answers = await Promise.all(asked.map((path) => rest(house, `GET /v1beta/environments${path}`)));
    for (const secret of [MARKER, red.token]) {
      for (const { status, text } of answers) {
        expect(status).toBe(200);
        expect(text).not.toContain(secret);
      }
      expect((await askAdmin(house, '/v1/status')).text).not.toContain(secret);
      expect(house.logged.join('\n')).not.toContain(secret);
      expect(JSON.stringify(await house.audit())).not.toContain(secret);
      for (const file of await readdir(house.folder)) {
        expect(await readFile(join(house.folder, file), 'latin1').catch(() => '')).not.toContain(secret);
      }
    }
    expect(answers[2]!.json['network']).toMatchObject({ allowlist: [{ transform: { Authorization: '[secret]' } }] });
  });

  it('is the same after a restart, known by the same token', async () => {
    const first = await startHouse(base(), { names });
    const red = await makeEnvironment(first, { network: { allowlist: [ruleFor('red.test')] } });
    await first.app.stop();
    const store = { uri: `file:${join(first.folder, 'store.json')}`, key: { file: join(first.folder, 'store-key') } };
    const second = await startHouse({ ...base(), store }, { names });
    const [, absolute] = WAYS;
    expect(verdictIn(await absolute!.send(second, `red.test:${plain.port}`, { proxyFields: red.identity }))).toBe(
      '200 from the upstream',
    );
    await second.stop();
    await first.stop();
  });
});

describe('two proxies on one store', () => {
  it('have made, changed and deleted environments in force within 10 s', { timeout: 60_000 }, async () => {
    const first = await startHouse(base(), { names });
    await rest(first, 'POST /v1beta/environments', {});
    const store = { uri: `file:${join(first.folder, 'store.json')}`, key: { file: join(first.folder, 'store-key') } };
    const second = await startHouse({ ...base(), store }, { names });
    const red = await makeEnvironment(first, { network: { allowlist: [ruleFor('red.test')] } });
    const [, absolute] = WAYS;
    const verdict = async () => verdictIn(await absolute!.send(second, `red.test:${plain.port}`, { proxyFields: red.identity }));
    const began = performance.now();
    const inForce = async (wanted: string) => {
      const from = performance.now();
      await untilIt(verdict, (seen) => seen === wanted);
      expect(performance.now() - from).toBeLessThan(10_000);
    };
    await inForce('200 from the upstream');
    await rest(first, `PATCH /v1beta/environments/${red.id}`, { network: 'disabled' });
    await inForce('403 not_allowlisted');
    await rest(first, `DELETE /v1beta/environments/${red.id}`);
    await inForce('407 sandbox_unauthenticated');
    expect(performance.now() - began).toBeLessThan(30_000);
    await second.stop();
    await first.stop();
  });
});

describe("the vendor's own client", () => {
  it('makes, shows, lists and deletes environments', async () => {
    const client = new GoogleGenAI({ apiKey: house.adminToken, httpOptions: { baseUrl: `http://127.0.0.1:${house.adminPort}` } });
    const made = await client.environments.create({
      network: { allowlist: [{ domain: 'red.test', transform: { 'X-Sb': '1' } }] },
      sources: [{ type: 'inline', target: '.agents/hooks.json', content: '{}' }],
    });
    expect(made.id).toMatch(/^env_/);
    expect(environmentAt(String((made as { proxy_url?: string }).proxy_url)).id).toBe(made.id);
    const shown = await client.environments.get(made.id);
    expect(shown).toMatchObject({
      id: made.id,
      status: 'active',
      file_count: '1',
      network: { allowlist: [{ domain: 'red.test' }] },
    });
    const listed = await client.environments.list();
    expect(listed.environments?.map(({ id }) => id)).toContain(made.id);
    await client.environments.delete(made.id);
    await expect(client.environments.get(made.id)).rejects.toThrow(/404|not_found/);
  });
});
