// What others got wrong when they put a credential on, held for every type of credential, declared in the config and kept in the store:
// it goes on once, in place of whatever the sandbox sent, toward its own host over TLS and nowhere else, or the request is refused.
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rest } from '../support/admin-rest.ts';
import { CLIENT, startAuthorizationServer } from '../support/authorization-server.ts';
import type { AuthorizationServer } from '../support/authorization-server.ts';
import { freePort } from '../support/child-server.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { askAdmin, statusOf } from '../support/operator.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Answering, Outside, Seen, Upstream } from '../support/outside.ts';
import { inside, verdictIn } from '../support/probes.ts';
import { ask, openSecureTunnel, openTunnel } from '../support/sandbox-client.ts';
import type { Answer } from '../support/sandbox-client.ts';

/** One type of credential. */
interface Type {
  readonly type: string;
  /** Its body without `id` and `type`; its host is `<id>.test` */
  readonly body: (id: string) => Record<string, unknown>;
  /** What reaches the upstream, by names in lower case */
  readonly borne: Readonly<Record<string, RegExp>>;
  /** Texts that nobody may see */
  readonly secrets: readonly string[];
  /** Members that hold secrets, and what they come to with another one */
  readonly spoiled: readonly { readonly member: string; readonly with: (secret: unknown) => unknown }[];
  readonly configAlone?: boolean;
  /** Taken in place of a placeholder instead of being put on by a rule */
  readonly held?: boolean;
}

const same = (secret: unknown): unknown => secret;
const basic = (pair: string): string => Buffer.from(pair).toString('base64');

const TYPES: readonly Type[] = [
  {
    type: 'bearer_token',
    body: () => ({ token: 'marker-bearer-0123', header_name: 'X-Widget-Key', prefix: 'Token' }),
    borne: { 'x-widget-key': /^Token marker-bearer-0123$/ },
    secrets: ['marker-bearer-0123'],
    spoiled: [{ member: 'token', with: same }],
  },
  {
    type: 'basic',
    body: () => ({ username: 'marker-user-0123', password: 'marker-password-0123' }),
    borne: { authorization: new RegExp(`^Basic ${basic('marker-user-0123:marker-password-0123')}$`) },
    secrets: ['marker-password-0123', basic('marker-user-0123:marker-password-0123')],
    spoiled: [
      { member: 'username', with: same },
      { member: 'password', with: same },
    ],
  },
  {
    type: 'header',
    body: () => ({ headers: { 'X-Api-Key': 'marker-header-one', 'X-Tenant-Key': 'marker-header-two' } }),
    borne: { 'x-api-key': /^marker-header-one$/, 'x-tenant-key': /^marker-header-two$/ },
    secrets: ['marker-header-one', 'marker-header-two'],
    spoiled: [{ member: 'headers', with: (secret) => ({ 'X-Api-Key': secret }) }],
  },
  {
    type: 'oauth2',
    body: () => ({ ...CLIENT, refresh_token: 'refresh-0', token_url: tokens.url }),
    borne: { authorization: /^Bearer access-\d+$/ },
    secrets: ['access-', 'refresh-0', CLIENT.client_secret],
    spoiled: [
      { member: 'client_secret', with: same },
      { member: 'refresh_token', with: same },
    ],
  },
  {
    type: 'environment_variable',
    body: (id) => ({
      value: 'marker-value-0123',
      injection_location: ['header', 'query', 'body'],
      trusted_domains: [`${id}.test`],
    }),
    borne: { 'x-held-key': /^marker-value-0123$/ },
    secrets: ['marker-value-0123'],
    spoiled: [{ member: 'value', with: same }],
    held: true,
  },
  {
    type: 'aws_sigv4',
    body: () => ({
      access_key_id: 'AKIDEXAMPLE',
      secret_access_key: 'marker-secret-access-key',
      session_token: 'marker-session-token',
      region: 'eu-central-1',
      service: 'dynamodb',
    }),
    borne: {
      authorization: /^AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE\//,
      'x-amz-date': /^\d{8}T\d{6}Z$/,
      'x-amz-content-sha256': /^[0-9a-f]{64}$/,
      'x-amz-security-token': /^marker-session-token$/,
    },
    secrets: ['marker-secret-access-key', 'marker-session-token'],
    spoiled: [
      { member: 'secret_access_key', with: same },
      { member: 'session_token', with: same },
    ],
  },
  {
    type: 'exec',
    body: () => ({ command: ['/bin/echo', 'marker-printed-0123'], header_name: 'X-Printed-Key', prefix: '' }),
    borne: { 'x-printed-key': /^marker-printed-0123$/ },
    secrets: ['marker-printed-0123'],
    spoiled: [],
    configAlone: true,
  },
];

/** A credential of one type from one of both places. */
interface Kind extends Type {
  readonly name: string;
  /** Also the first label of its host */
  readonly id: string;
  readonly stored: boolean;
}

const KINDS: readonly Kind[] = TYPES.flatMap((type) =>
  (type.configAlone === true ? [false] : [false, true]).map((stored) => ({
    ...type,
    stored,
    id: `${stored ? 'stored' : 'config'}${type.type.replaceAll('_', '')}`,
    name: `${type.type}, of the ${stored ? 'store' : 'config'}`,
  })),
);
/** Those that a rule puts on */
const BY_RULE = KINDS.filter(({ held }) => held !== true);

const THEIRS = 'of-the-sandbox';
const SANDBOX_TOKEN = 'token-of-the-sandbox-0123';
const IDENTITY = `Proxy-Authorization: Basic ${basic(`box:${SANDBOX_TOKEN}`)}\r\n`;

let outside: Outside;
let secure: Upstream;
let other: Upstream;
let plain: Upstream;
let flaky: Upstream;
let tokens: AuthorizationServer;
let house: House;
let nobody: number;

/** Redirects as asked for in the path, and never says what it was sent. */
const answer: Answering = (seen, response) => {
  const to = /^\/redirect\/(.*)$/.exec(seen.url)?.[1];
  if (to === undefined) response.writeHead(200, { 'content-length': 2 }).end('ok');
  else response.writeHead(307, { location: decodeURIComponent(to), 'content-length': 0 }).end();
};

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside, answer });
  other = await startUpstream({ tls: outside, answer });
  plain = await startUpstream({ answer });
  const turns = new WeakMap<object, number>();
  flaky = await startUpstream({
    tls: outside,
    raw: ({ socket }, response) => {
      const turn = (turns.get(socket) ?? 0) + 1;
      turns.set(socket, turn);
      if (turn === 1) response.writeHead(200, { 'content-length': 2 }).end('ok');
      else socket.destroy();
    },
  });
  tokens = await startAuthorizationServer(outside);
  nobody = await freePort();
  house = await startHouse(configOf(bodiesOf(({ id, type, body }) => bodyOf(type, body(id)))), {
    names: NAMES,
    tokenRanges: LOOPBACK,
  });
  for (const { id, type, body, stored } of KINDS) if (stored) await create(house, { id, type, ...body(id) });
});

afterAll(async () => {
  await house.stop();
  for (const each of [secure, other, plain, flaky, tokens]) await each.close();
  await outside.close();
});

const NAMES: Record<string, readonly string[]> = new Proxy({}, { get: () => ['127.0.0.1'] });

/** As the config has it */
function bodyOf(type: string, body: Record<string, unknown>): object {
  return { type, ...body, ...(type === 'oauth2' ? { token_addresses: LOOPBACK } : {}) };
}

function bodiesOf(entry: (kind: Kind) => object): object {
  return Object.fromEntries(KINDS.filter(({ stored }) => !stored).map((kind) => [kind.id, entry(kind)]));
}

function configOf(credentials: object): object {
  const ruleFor = ({ id, held }: Kind) => {
    const rule = held === true ? {} : { credential: id };
    return [
      { domain: `${id}.test`, ...rule, ports: [secure.port, plain.port, flaky.port, nobody], addresses: LOOPBACK },
      ...(held === true
        ? []
        : [{ domain: `replace.${id}.test`, ...rule, mode: 'replace', ports: [secure.port], addresses: LOOPBACK }]),
    ];
  };
  const held = KINDS.filter((kind) => kind.held === true);
  return {
    upstream: { ca: [outside.caPath] },
    log: { level: 'debug' },
    credentials,
    network: {
      allowlist: [
        ...KINDS.flatMap(ruleFor),
        { domain: 'bare.test', ports: [secure.port, other.port, plain.port], addresses: LOOPBACK },
      ],
    },
    sandboxes: {
      box: { token: SANDBOX_TOKEN, env: Object.fromEntries(held.map(({ id }) => [id.toUpperCase(), { credential: id }])) },
    },
  };
}

async function create(of: House, body: object): Promise<void> {
  const made = await rest(of, 'POST /v1beta/credentials', body);
  expect(made.status, made.text).toBe(200);
}

/** What a sandbox has to send for it to be put on, as whole lines */
function askedFor({ id, held }: Kind): string {
  return held === true ? `X-Held-Key: __GEMINI_CRED_${id}__\r\n` : '';
}

interface Asked {
  readonly host?: string;
  readonly port?: number;
  readonly path?: string;
  readonly method?: string;
  /** Whole lines, beside those that ask for it */
  readonly lines?: string;
  readonly plain?: boolean;
  readonly of?: House;
}

function send(kind: Kind, asked: Asked = {}): Promise<Answer> {
  const { host = `${kind.id}.test`, path = '/', method = 'GET', lines = '', of = house } = asked;
  const scheme = asked.plain === true ? 'http' : 'https';
  const port = asked.port ?? (asked.plain === true ? plain.port : secure.port);
  const fields = askedFor(kind) + lines + (asked.plain === true ? IDENTITY : '');
  return ask(of, `${scheme}://${host}:${port}${path}`, { method, fields, tunnelFields: IDENTITY });
}

const last = (of = secure): Seen => of.seen.at(-1) as Seen;

/** Name and value of each field, the name as upstreams behind CGI tell it apart */
function pairsOf({ fields }: Seen): { readonly name: string; readonly value: string }[] {
  return fields.flatMap((text, index) =>
    index % 2 === 0 ? [{ name: text.toLowerCase().replaceAll('_', '-'), value: fields[index + 1] ?? '' }] : [],
  );
}

/** Ours, each once, in whatever spelling; nothing of the sandbox's, and nothing that belongs to the proxy. */
function expectOurs(seen: Seen, { borne }: Kind): void {
  const pairs = pairsOf(seen);
  for (const [name, value] of Object.entries(borne)) {
    const values = pairs.filter((pair) => pair.name === name).map((pair) => pair.value);
    expect([name, values]).toEqual([name, [expect.stringMatching(value)]]);
  }
  expect(pairs.filter(({ value }) => value.includes(THEIRS))).toEqual([]);
  expect(pairs.filter(({ name }) => name.startsWith('proxy-'))).toEqual([]);
}

function expectNothingOfOurs(seen: Seen, { secrets, borne }: Kind): void {
  const wire = JSON.stringify(seen);
  expect(secrets.filter((text) => wire.includes(text))).toEqual([]);
  for (const [name, value] of Object.entries(borne)) {
    expect(valuesOf(seen.fields, name).filter((each) => value.test(each))).toEqual([]);
  }
}

const reached = (): number[] => [secure, other, plain, flaky].flatMap(({ seen, connections }) => [seen.length, connections]);

/** How many requests have reached anybody */
const requests = (): number => [secure, other, plain, flaky].reduce((sum, { seen }) => sum + seen.length, 0);

/** Every spelling of a name: as upstreams tell names apart, they are one. */
function spelled(name: string): string[] {
  const capital = name.replace(/(^|-)[a-z]/g, (text) => text.toUpperCase());
  return [...new Set([name, name.toUpperCase(), capital, name.replaceAll('-', '_'), name.toUpperCase().replaceAll('-', '_')])];
}

describe('a credential goes on exactly once', () => {
  it.each(KINDS)('where nobody interferes: $name', async (kind) => {
    expect((await send(kind)).status).toBe(200);
    expectOurs(last(), kind);
  });

  it.each(BY_RULE)("in place of the sandbox's own, in any spelling and number: $name", async (kind) => {
    // fault E03
    const own = Object.keys(kind.borne).flatMap((name) =>
      spelled(name).flatMap((each) => [`${each}: ${THEIRS}`, `${each}:\t${THEIRS}`]),
    );
    expect((await send(kind, { lines: own.map((line) => `${line}\r\n`).join('') })).status).toBe(200);
    expectOurs(last(), kind);
  });

  it.each(BY_RULE)('beside nothing else that authenticates by custom: $name', async (kind) => {
    // fault E04
    const lines = [
      'Authorization',
      'Cookie',
      'X-Api-Key',
      'x_api_key',
      'X-Goog-Api-Key',
      'Private-Token',
      'X-Amz-Security-Token',
      'X-Auth-Token',
    ];
    expect((await send(kind, { lines: lines.map((name) => `${name}:\t${THEIRS}\r\n`).join('') })).status).toBe(200);
    expectOurs(last(), kind);
    const custom = lines.map((name) => name.toLowerCase().replaceAll('_', '-')).filter((name) => !(name in kind.borne));
    expect(pairsOf(last()).filter(({ name }) => custom.includes(name))).toEqual([]);
  });

  it.each(BY_RULE)('though Connection nominates it away: $name', async (kind) => {
    // fault E02
    const names = Object.keys(kind.borne).flatMap(spelled);
    const lines = `Connection: close, ${names.join(', ')}, Host, Content-Length\r\nConnection: ${names.join(' ,')}\r\n`;
    expect((await send(kind, { lines })).status).toBe(200);
    expectOurs(last(), kind);
    expect(valuesOf(last().fields, 'host')).toEqual([`${kind.id}.test:${secure.port}`]);
  });

  it.each(KINDS)('beside no field of the hop before: $name', async (kind) => {
    // faults E01, E15
    const lines = `${IDENTITY}Proxy-Connection: keep-alive\r\nKeep-Alive: 5\r\nTE: trailers\r\nConnection: X-Foo\r\nX-Foo: ${THEIRS}\r\n`;
    expect((await send(kind, { lines })).status).toBe(200);
    expectOurs(last(), kind);
    expect(JSON.stringify(last())).not.toContain(basic(`box:${SANDBOX_TOKEN}`));
  });

  it.each(KINDS)('in each attempt where a pooled connection breaks and the request is sent again: $name', async (kind) => {
    const authority = `${kind.id}.test:${flaky.port}`;
    const tunnel = await openSecureTunnel(house, authority, { fields: IDENTITY });
    const before = flaky.seen.length;
    for (let round = 0; round < 2; round += 1) {
      expect((await inside(tunnel, authority, { fields: askedFor(kind) })).status).toBe(200);
    }
    tunnel.destroy();
    const attempts = flaky.seen.slice(before);
    expect(attempts).toHaveLength(3);
    for (const attempt of attempts) expectOurs(attempt, kind);
  });

  it.each(BY_RULE)('in `replace` mode over what the sandbox sent, and not where it sent nothing: $name', async (kind) => {
    // fault E05
    const host = `replace.${kind.id}.test`;
    expect((await send(kind, { host })).status).toBe(200);
    expectNothingOfOurs(last(), kind);
    const lines = Object.keys(kind.borne).map((name) => `${name}: ${THEIRS}\r\n`);
    expect((await send(kind, { host, lines: lines.join('') })).status).toBe(200);
    expectOurs(last(), kind);
  });
});

describe('a credential goes to nobody but its host', () => {
  it.each(KINDS)('not over plain http: $name', async (kind) => {
    // fault E16
    const before = reached();
    expect(verdictIn(await send(kind, { plain: true }))).toBe('403 plaintext_credential');
    expect(reached()).toEqual(before);
  });

  it.each(KINDS)('not before the request: a CONNECT takes nothing there: $name', async ({ id }) => {
    const before = reached();
    const outcomes = house.outcomes.length;
    const { answer: opened, socket } = await openTunnel(house, `${id}.test:${secure.port}`, IDENTITY);
    expect(opened.status).toBe(200);
    socket.destroy();
    await house.outcome(({ arrival }) => arrival.purpose === 'tunnel', outcomes);
    expect(reached()).toEqual(before);
  });

  it.each(KINDS)('not under the name of another host: $name', async (kind) => {
    const before = reached();
    for (const [tunnelled, host] of [
      [`${kind.id}.test`, 'bare.test'],
      ['bare.test', `${kind.id}.test`],
    ] as const) {
      const authority = `${tunnelled}:${secure.port}`;
      const tunnel = await openSecureTunnel(house, authority, { fields: IDENTITY });
      const refused = await inside(tunnel, authority, { host: `${host}:${secure.port}`, fields: askedFor(kind) });
      tunnel.destroy();
      expect(refused.status).toBeGreaterThanOrEqual(400);
      expect(refused.headers['x-sallyport-reason']).toMatch(/^(?:bad_request|host_mismatch)$/);
    }
    expect(reached()).toEqual(before);
  });

  it.each(KINDS)('not after a redirect, which is the business of the sandbox: $name', async (kind) => {
    // fault E14
    const { id, held } = kind;
    const untrusted = '403 placeholder_untrusted';
    const places = [
      { to: `https://bare.test:${secure.port}/landed`, at: secure, refusesHeld: untrusted },
      { to: `https://bare.test:${other.port}/landed`, at: other, refusesHeld: untrusted },
      { to: `http://bare.test:${plain.port}/landed`, at: plain, refusesHeld: untrusted },
      { to: `https://${id}.test:${other.port}/landed`, refuses: '403 port_denied' },
      { to: `http://${id}.test:${plain.port}/landed`, refuses: '403 plaintext_credential' },
    ];
    for (const { to, at, refuses, refusesHeld } of places) {
      const before = requests();
      const redirected = await send(kind, { path: `/redirect/${encodeURIComponent(to)}` });
      expect([redirected.status, redirected.headers['location']]).toEqual([307, to]);
      expectOurs(last(), kind);
      expect(requests()).toBe(before + 1);

      const { hostname: host, port, protocol } = new URL(to);
      const landed = await send(kind, { host, port: Number(port), path: '/landed', plain: protocol === 'http:' });
      const refused = held === true ? (refusesHeld ?? refuses) : refuses;
      expect([to, verdictIn(landed)]).toEqual([to, refused ?? '200 from the upstream']);
      expect(requests()).toBe(before + (refused === undefined ? 2 : 1));
      if (at !== undefined && refused === undefined) {
        expect(last(at).url).toBe('/landed');
        expectNothingOfOurs(last(at), kind);
      }
    }
  });
});

describe('a request is refused, and nothing of it sent,', () => {
  it.each(KINDS)('that would have itself sent back, whatever the host: $name', async (kind) => {
    // fault E11
    const before = reached();
    for (const method of ['TRACE', 'TRACK']) expect(verdictIn(await send(kind, { method }))).toBe('405 method_forbidden');
    expect((await send(kind, { method: 'OPTIONS', lines: 'Max-Forwards: 0\r\n' })).status).toBeGreaterThanOrEqual(400);
    expect(reached()).toEqual(before);
  });

  it.each(KINDS)('that has a space between a name of ours and its colon: $name', async (kind) => {
    // fault E03
    const before = reached();
    for (const name of Object.keys(kind.borne)) {
      expect(verdictIn(await send(kind, { lines: `${name} : ${THEIRS}\r\n` }))).toBe('400 bad_request');
    }
    expect(reached()).toEqual(before);
  });

  it.each(KINDS)('with no word about the credential, where its upstream is not there: $name', async (kind) => {
    // fault E13
    const got = await send(kind, { port: nobody, path: `/?key=${THEIRS}`, lines: `X-Custom: ${THEIRS}\r\n` });
    expect(verdictIn(got)).toBe('502 upstream_connect');
    const said = got.fields.join('\n') + got.body;
    expect([...kind.secrets, THEIRS, basic(`box:${SANDBOX_TOKEN}`)].filter((text) => said.includes(text))).toEqual([]);
  });
});

describe('a credential that cannot be had', () => {
  /** What makes it so */
  const BROKEN: Readonly<Record<string, object>> = {
    bearer_token: { token: { env: 'UNSET' } },
    basic: { password: { env: 'UNSET' } },
    header: { headers: { 'X-Api-Key': 'marker-header-one', 'X-Tenant-Key': { env: 'UNSET' } } },
    oauth2: { client_secret: { env: 'UNSET' } },
    environment_variable: { value: { env: 'UNSET' } },
    aws_sigv4: { secret_access_key: { env: 'UNSET' } },
    exec: { command: ['/bin/false'] },
  };
  let broken: House;

  beforeAll(async () => {
    const entry = ({ id, type, body }: Kind) => ({ ...bodyOf(type, body(id)), ...BROKEN[type] });
    broken = await startHouse(configOf(bodiesOf(entry)), { names: NAMES, tokenRanges: LOOPBACK });
  });
  afterAll(() => broken.stop());

  it.each(KINDS)('refuses its requests, sends nothing, and is shown to be so: $name', async (kind) => {
    // fault E06
    const { id, type, body, stored } = kind;
    if (stored) {
      await create(broken, { id, type, ...body(id) });
      expect((await send(kind, { of: broken })).status).toBe(200);
      expect((await rest(broken, `DELETE /v1beta/credentials/${id}`)).status).toBe(200);
    }
    const before = reached();
    const lines = `Authorization: Bearer ${THEIRS}\r\n`;
    expect(verdictIn(await send(kind, { of: broken, lines }))).toBe('502 credential_unavailable');
    expect(reached()).toEqual(before);
    const shown = (await statusOf(broken)).credentials.find((each) => each.id === id);
    expect(shown?.health).toBe(stored ? undefined : 'unavailable');
  });
});

describe('a secret that could split a request', () => {
  const SPLITS = 'marker-bad\r\nX-Evil: 1';
  const ROWS = TYPES.flatMap(({ type, body, spoiled }) => spoiled.map((secret) => ({ type, body, ...secret })));

  it.each(ROWS)('keeps the house from starting, which names the credential and not the value: $type, $member', async (row) => {
    // fault E08
    const entry = { ...bodyOf(row.type, row.body('main')), [row.member]: row.with({ env: 'BAD' }) };
    const trouble: unknown = await startHouse({ credentials: { main: entry } }, { env: { BAD: SPLITS } }).then(
      (started) => started.stop(),
      (error: unknown) => error,
    );
    expect(trouble).toBeInstanceOf(Error);
    expect((trouble as Error).message).toContain('credential "main"');
    expect((trouble as Error).message).not.toContain('marker-bad');
  });

  it.each(ROWS)('is not stored, nor repeated: $type, $member', async (row) => {
    // fault E08
    const body = { id: 'main', type: row.type, ...row.body('main'), [row.member]: row.with(SPLITS) };
    const refused = await rest(house, 'POST /v1beta/credentials', body);
    expect([refused.status, refused.text]).toEqual([400, expect.stringContaining(row.member) as string]);
    expect(refused.text).not.toContain('marker-bad');
    expect((await rest(house, 'GET /v1beta/credentials/main')).status).toBe(404);
  });

  it.each([
    { type: 'oauth2', entry: () => bodyOf('oauth2', TYPES.find(({ type }) => type === 'oauth2')?.body('main') ?? {}) },
    {
      type: 'exec',
      entry: () => ({ type: 'exec', command: ['/bin/echo', JSON.stringify({ token: SPLITS })] }),
    },
  ])('is refused where it is fetched, with nothing sent: $type', async ({ entry }) => {
    // fault E08
    tokens.instead = (response) =>
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ access_token: SPLITS, token_type: 'Bearer' }));
    const fetching = await startHouse(
      {
        upstream: { ca: [outside.caPath] },
        credentials: { main: entry() },
        network: { allowlist: [{ domain: 'main.test', credential: 'main', ports: [secure.port], addresses: LOOPBACK }] },
      },
      { names: NAMES },
    );
    try {
      const before = reached();
      const got = await ask(fetching, `https://main.test:${secure.port}/`);
      expect(verdictIn(got)).toBe('502 credential_unavailable');
      expect(reached()).toEqual(before);
      const said = [got.body, ...fetching.logged, await fetching.scrape(), JSON.stringify(await statusOf(fetching))];
      expect(said.join('\n')).not.toContain('marker-bad');
    } finally {
      tokens.instead = undefined;
      await fetching.stop();
    }
  });
});

it('says nothing of any credential anywhere, after all of the above', async () => {
  // faults E13, E17, E18
  const said = [...house.logged, JSON.stringify(await house.audit()), await house.scrape()];
  for (const path of ['/v1/status', '/v1/denials', '/v1beta/credentials']) said.push((await askAdmin(house, path)).text);
  for (const { id } of KINDS) {
    const question = { method: 'GET', url: `https://${id}.test:${secure.port}/`, sandbox: 'box' };
    const explained = await askAdmin(house, '/v1/explain', question);
    expect(explained.json['decision'], explained.text).toBe('allow');
    said.push(explained.text);
  }
  for (const entry of await readdir(house.folder, { recursive: true, withFileTypes: true })) {
    if (entry.isFile() && entry.name !== 'sallyport.json')
      said.push(await readFile(join(entry.parentPath, entry.name), 'latin1'));
  }
  const everything = said.join('\n');
  for (const { id } of BY_RULE) expect(everything).toContain(id);
  expect(
    [...new Set(KINDS.flatMap(({ secrets }) => secrets)), THEIRS, 'marker-bad'].filter((text) => everything.includes(text)),
  ).toEqual([]);
});
