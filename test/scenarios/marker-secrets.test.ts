// One marker in every secret of every type of credential; then each is put on for an upstream that gives back all it gets, and fails in
// every way it can. What anybody gets to see, and every file that is written, is searched for the marker in each of its spellings.
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeEnvironment, rest } from '../support/admin-rest.ts';
import { startAuthorizationServer } from '../support/authorization-server.ts';
import type { AuthorizationServer } from '../support/authorization-server.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { askAdmin } from '../support/operator.ts';
import { openOutside, startRaw, startUpstream } from '../support/outside.ts';
import type { Outside, Seen, Upstream } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';

/** In all of them; each has more around it, so that a finding says which one came out. */
const MARKER = 'mArKeR7q9';
const secret = (of: string): string => `${of}-${MARKER}-0123456789`;
const OFFSETS = ['', 'x', 'xx'].map((before) =>
  Buffer.from(before + MARKER)
    .toString('base64')
    .slice(4, 12),
);
const SPELLED = [MARKER, MARKER.toLowerCase(), encodeURIComponent(MARKER), Buffer.from(MARKER).toString('hex'), ...OFFSETS];

const STORED = {
  bearer: { type: 'bearer_token', token: secret('bearer') },
  basic: { type: 'basic', username: 'user', password: secret('basic') },
  header: { type: 'header', headers: { 'X-One': secret('one'), Authorization: `Token ${secret('two')}` } },
  value: {
    type: 'environment_variable',
    value: secret('value'),
    injection_location: ['header', 'query', 'body'],
    trusted_domains: ['*.test'],
  },
  signs: {
    type: 'aws_sigv4',
    access_key_id: 'AKID',
    secret_access_key: secret('key'),
    session_token: secret('session'),
    region: 'r',
    service: 'dynamodb',
  },
} as const;
const DECLARED = {
  'declared-bearer': { type: 'bearer_token', token: { env: 'BEARER' } },
  'declared-signs': { type: 'aws_sigv4', access_key_id: 'AKID', secret_access_key: { env: 'KEY' }, region: 'r', service: 's3' },
  'declared-exec': { type: 'exec', command: ['/bin/sh', '-c', 'echo "$EXEC"'], env: ['EXEC'] },
};
const IDS = [...Object.keys(STORED), ...Object.keys(DECLARED), 'fetched', 'written'];

let outside: Outside;
let server: AuthorizationServer;
let good: Upstream;
let broken: Upstream;
let house: House;
let sandbox = '';
/** Whatever anybody got to see, by where it was */
const seen: Record<string, string> = {};

beforeAll(async () => {
  outside = await openOutside();
  server = await startAuthorizationServer(outside);
  server.instead = (response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(
      JSON.stringify({
        access_token: secret('access'),
        token_type: 'Bearer',
        expires_in: 3600,
        refresh_token: secret('rotated'),
      }),
    );
  };
  good = await startUpstream({
    tls: outside,
    answer: (one: Seen, response) => {
      const all = JSON.stringify(one);
      const values = one.fields.filter(
        (_, index) => index % 2 === 1 && !/^(?:keep-alive|identity)$/.test(one.fields[index] ?? ''),
      );
      response.writeHead(one.url.startsWith('/missing') ? 404 : 200, [
        'Content-Type',
        'application/json',
        'Trailer',
        'X-Last',
        ...values.flatMap((value) => ['X-Seen', value]),
      ]);
      response.addTrailers({ 'X-Last': values.join(' ') });
      response.end(all);
    },
  });
  broken = await startRaw((socket) => void socket.once('data', (data) => socket.end(data)));
  house = await startHouse(configOf([good.port, broken.port, 1]), {
    names: new Proxy({}, { get: (_, name) => (name === 'gone.test' ? undefined : ['127.0.0.1']) }),
    env: {
      BEARER: secret('env-bearer'),
      KEY: secret('env-key'),
      EXEC: secret('exec'),
      REFRESH: secret('refresh'),
      CLIENT: secret('client'),
      WRITTEN: `Bearer ${secret('written')}`,
    },
  });
  for (const [id, body] of Object.entries(STORED)) {
    seen[`create ${id}`] = (await rest(house, 'POST /v1beta/credentials', { id, ...body })).text;
  }
  const network = { allowlist: [...ruleFor([good.port, broken.port, 1])] };
  const made = await makeEnvironment(house, { network, env: { VALUE: { credential: 'value' } } });
  sandbox = made.identity;
}, 30_000);

afterAll(async () => {
  await house.stop();
  await Promise.all([good.close(), broken.close(), server.close(), outside.close()]);
});

function ruleFor(ports: readonly number[]): object[] {
  const here = { ports, addresses: LOOPBACK, redact: true };
  return IDS.map((id) => ({
    domain: `${id}.test`,
    ...(id === 'written' ? { transform: { Authorization: { env: 'WRITTEN' } } } : id === 'value' ? {} : { credential: id }),
    ...here,
  })).filter((rule) => !('transform' in rule));
}

function configOf(ports: readonly number[]): object {
  const here = { ports, addresses: LOOPBACK, redact: true };
  return {
    upstream: { ca: [outside.caPath] },
    credentials: {
      ...DECLARED,
      fetched: {
        type: 'oauth2',
        client_id: 'client',
        client_secret: { env: 'CLIENT' },
        refresh_token: { env: 'REFRESH' },
        token_url: server.url,
        token_addresses: LOOPBACK,
      },
    },
    network: {
      allowlist: [...ruleFor(ports), { domain: 'written.test', transform: { Authorization: { env: 'WRITTEN' } }, ...here }],
    },
  };
}

/** Everything that is searched: what anybody saw, what is written, and what is asked for only now. */
async function everything(): Promise<Record<string, string>> {
  const places: Record<string, string> = {
    ...seen,
    log: house.logged.join('\n'),
    ledger: JSON.stringify(await house.audit()),
    metrics: await house.scrape(),
    outcomes: JSON.stringify(
      house.outcomes.map(({ trace, verdict }) => [
        trace.credentials,
        verdict?.code,
        verdict instanceof Error ? verdict.message : verdict?.detail,
      ]),
    ),
    argv: process.argv.join(' '),
  };
  for (const path of ['/v1/status', '/v1/denials', '/v1beta/credentials', '/v1beta/environments'])
    places[path] = (await askAdmin(house, path)).text;
  for (const id of IDS) {
    places[`explain ${id}`] = (
      await askAdmin(house, '/v1/explain', { method: 'GET', url: `https://${id}.test:${good.port}/` })
    ).text;
    places[`get ${id}`] = (await askAdmin(house, `/v1beta/credentials/${id}`)).text;
  }
  for (const name of await readdir(house.folder, { recursive: true })) {
    const path = join(house.folder, name);
    if ((await stat(path)).isFile()) places[`file ${name}`] = (await readFile(path)).toString('latin1');
  }
  return places;
}

async function expectNoMarker(): Promise<void> {
  const found = Object.entries(await everything()).flatMap(([place, text]) =>
    SPELLED.filter((spelled) => text.includes(spelled)).map((spelled) => [place, spelled, around(text, spelled)]),
  );
  expect(found).toEqual([]);
}

const around = (text: string, spelled: string): string =>
  text.slice(Math.max(0, text.indexOf(spelled) - 60), text.indexOf(spelled) + 40);

const PLACEHOLDER = '__GEMINI_CRED_value__';

describe('no secret comes out', () => {
  it.each(IDS)('of "%s", put on for an upstream that gives back whatever it gets', async (id) => {
    const url = `https://${id}.test:${good.port}/p?q=${id === 'value' ? PLACEHOLDER : 'q'}`;
    const body = id === 'value' ? PLACEHOLDER : 'a body';
    const fields = `${id === 'value' ? `X-Value: ${PLACEHOLDER}\r\nAuthorization: Basic ${btoa(`u:${PLACEHOLDER}`)}\r\n` : ''}Content-Length: ${body.length}\r\n`;
    const tunnelFields = id === 'written' || id === 'fetched' || id.startsWith('declared') ? '' : sandbox;
    const answer = await ask(house, url, { method: 'POST', fields, body, tunnelFields });
    seen[`answer ${id}`] = JSON.stringify(answer);
    expect([id, answer.status]).toEqual([id, 200]);
    // What came up really bore it: otherwise there was nothing to hide.
    expect(JSON.stringify(good.seen.at(-1))).toMatch(
      id.endsWith('signs') ? /AWS4-HMAC-SHA256/ : id === 'basic' ? /Basic / : /mArKeR7q9/,
    );
    expect(JSON.stringify(answer)).toContain(id.endsWith('signs') && id !== 'signs' ? 'AWS4' : '[redacted]');
    await expectNoMarker();
  });

  it.each([
    {
      name: 'an upstream that answers with what it got, and no HTTP',
      host: (id: string) => `${id}.test`,
      port: () => broken.port,
    },
    { name: 'no upstream at all', host: (id: string) => `${id}.test`, port: () => 1 },
    { name: 'plain http', host: (id: string) => `${id}.test`, port: () => good.port, scheme: 'http' },
    { name: 'a host that is not allowed', host: () => 'elsewhere.test', port: () => good.port },
  ])('at a failure: $name', async ({ host, port, scheme = 'https' }) => {
    for (const id of IDS) {
      const fields = `X-Value: ${PLACEHOLDER}\r\n${scheme === 'http' ? sandbox : ''}`;
      const answer = await ask(house, `${scheme}://${host(id)}:${port()}/missing?q=${PLACEHOLDER}`, {
        fields,
        tunnelFields: sandbox,
      });
      seen[`failure ${host(id)} ${port()} ${scheme}`] = JSON.stringify(answer);
      expect(answer.status).toBeGreaterThanOrEqual(400);
    }
    await expectNoMarker();
  });

  it('at a mistake in what is written to the resource', async () => {
    for (const [id, body] of Object.entries(STORED)) {
      for (const [what, sent] of Object.entries({
        stranger: { id: `${id}-2`, ...body, tokem: secret('stranger') },
        type: { id: `${id}-3`, ...body, type: secret('type') },
        twice: { id, ...body },
        list: {
          id: `${id}-4`,
          ...body,
          headers: [secret('list')],
          value: [secret('list')],
          token: [secret('list')],
          password: [secret('list')],
          secret_access_key: [secret('list')],
        },
        id: { ...body, id: `${secret('id')} !` },
      })) {
        const answer = await rest(house, 'POST /v1beta/credentials', sent);
        expect([id, what, answer.status >= 400]).toEqual([id, what, true]);
        seen[`mistake ${id} ${what}`] = answer.text;
      }
    }
    await expectNoMarker();
  });

  it('at a rotation, at the end of a credential, and in what is stored of it', async () => {
    for (const [id, body] of Object.entries(STORED)) {
      seen[`patch ${id}`] = (await rest(house, `PATCH /v1beta/credentials/${id}`, body)).text;
      seen[`delete ${id}`] = (await rest(house, `DELETE /v1beta/credentials/${id}`)).text;
      const fields = `X-Value: ${PLACEHOLDER}\r\n`;
      const answer = await ask(house, `https://${id}.test:${good.port}/`, { fields, tunnelFields: sandbox });
      seen[`after the end of ${id}`] = JSON.stringify(answer);
      expect([id, answer.headers['x-sallyport-reason']]).toEqual([id, 'credential_unavailable']);
    }
    await expectNoMarker();
  });
});
