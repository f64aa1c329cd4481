// What is put on at the door, through real sockets: which fields reach the upstream for each kind of credential and each mode, and
// what of the sandbox's own is dropped on the way.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Answering, Outside, Seen, Upstream } from '../support/outside.ts';
import { ask, openSecureTunnel, readAnswer } from '../support/sandbox-client.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
let house: House;

const BASIC = `Basic ${Buffer.from('user:marker-pass').toString('base64')}`;

const answer: Answering = (seen, response) => {
  if (seen.url === '/hop-by-hop') {
    response
      .writeHead(200, [
        ...['Proxy-Authenticate', 'Basic realm="upstream"', 'Proxy-Authentication-Info', 'a', 'Connection', 'X-Nominated'],
        ...['X-Nominated', '1', 'Keep-Alive', 'timeout=9', 'Content-Length', '0', 'X-Kept', '1'],
      ])
      .end();
  } else response.writeHead(200, { 'content-length': 2 }).end('ok');
};

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside, answer });
  plain = await startUpstream({ answer });
  const here = { ports: [secure.port], addresses: LOOPBACK };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      credentials: {
        token: { type: 'bearer_token', token: { env: 'TOKEN' } },
        key: { type: 'bearer_token', token: 'marker-key', header_name: 'x-goog-api-key', prefix: '' },
        login: { type: 'basic', username: 'user', password: 'marker-pass' },
        pair: { type: 'header', headers: { 'X-Api-Key': 'marker-api', 'X-Account': 'marker-account' } },
      },
      network: {
        allowlist: [
          { domain: 'bearer.test', credential: 'token', ...here },
          { domain: 'key.test', credential: 'key', ...here },
          { domain: 'basic.test', credential: 'login', ...here },
          { domain: 'pair.test', credential: 'pair', ...here },
          { domain: 'transform.test', transform: { Authorization: 'Bearer marker-written', 'X-Env': 'prod' }, ...here },
          { domain: 'list.test', transform: [{ 'X-Env': 'one', 'X-Only': '1' }, { 'x-env': 'two' }], ...here },
          { domain: 'both.test', credential: 'pair', transform: { 'x-account': 'over', 'X-More': '1' }, ...here },
          { domain: 'label.test', transform: { 'X-Env': 'prod' }, ...here },
          { domain: 'replace.test', credential: 'token', mode: 'replace', ...here },
          { domain: 'absent.test', credential: 'token', mode: 'if_absent', ...here },
          { domain: 'keep.test', credential: 'pair', keep: ['Authorization', 'Cookie'], ...here },
          { domain: 'bare.test', ...here },
          { domain: 'open.test', credential: 'token', allow_plaintext: true, ports: [plain.port], addresses: LOOPBACK },
        ],
      },
    },
    { names: everyName(['127.0.0.1']), env: { TOKEN: 'marker-token' } },
  );
});

afterAll(async () => {
  await house.stop();
  await secure.close();
  await plain.close();
  await outside.close();
});

/** Resolves whatever it is asked. */
function everyName(answers: readonly string[]): Record<string, readonly string[]> {
  return new Proxy({}, { get: () => answers });
}

interface Row {
  readonly name: string;
  readonly to: string;
  readonly method?: string;
  /** Field lines of the sandbox */
  readonly lines?: readonly string[];
  readonly body?: string;
  /** Every value of these fields, as they reach the upstream */
  readonly reach: Readonly<Record<string, readonly string[]>>;
  readonly fault?: string;
}

const OWN = ['Authorization: Bearer mine', 'Cookie: a=b', 'X-Api-Key:\tmine', 'X-Auth-Token: mine', 'X-Other: mine'];
const NOTHING_OWN = { cookie: [], 'x-auth-token': [], 'x-other': ['mine'] };

const ROWS: readonly Row[] = [
  // Kinds
  { name: 'puts a bearer token on', to: 'bearer', reach: { authorization: ['Bearer marker-token'] } },
  {
    name: 'puts a bearer token on in a field of its own, without a prefix',
    to: 'key',
    reach: { 'x-goog-api-key': ['marker-key'] },
  },
  { name: 'puts a user name and password on', to: 'basic', reach: { authorization: [BASIC] } },
  { name: 'puts several headers on', to: 'pair', reach: { 'x-api-key': ['marker-api'], 'x-account': ['marker-account'] } },
  { name: 'puts a transform on', to: 'transform', reach: { authorization: ['Bearer marker-written'], 'x-env': ['prod'] } },
  { name: 'merges a list of transforms in order', to: 'list', reach: { 'x-env': ['two'], 'x-only': ['1'] } },
  {
    name: 'puts the transform on top of the credential',
    to: 'both',
    reach: { 'x-api-key': ['marker-api'], 'x-account': ['over'], 'x-more': ['1'] },
  },
  { name: 'puts nothing on where the rule says nothing', to: 'bare', reach: { authorization: [], 'x-env': [] } },
  {
    name: 'puts a credential on an OPTIONS like on any other method',
    to: 'bearer',
    method: 'OPTIONS',
    reach: { authorization: ['Bearer marker-token'] },
    fault: 'E11',
  },

  // What the sandbox sent itself
  {
    name: 'drops every copy of the injected field, whatever its case',
    to: 'bearer',
    lines: ['authorization: Bearer x', 'AUTHORIZATION: y', 'Authorization: z'],
    reach: { authorization: ['Bearer marker-token'] },
    fault: 'E03',
  },
  {
    name: 'drops a spelling that an upstream may take for the injected field',
    to: 'pair',
    lines: ['X_Api_Key: mine', 'X_Account: mine'],
    reach: { x_api_key: [], x_account: [], 'x-account': ['marker-account'] },
    fault: 'E03',
  },
  {
    name: "drops the sandbox's other authentication on a host with a credential",
    to: 'key',
    lines: OWN,
    reach: { ...NOTHING_OWN, authorization: [], 'x-api-key': [], 'x-goog-api-key': ['marker-key'] },
    fault: 'E04',
  },
  {
    name: "drops the sandbox's other authentication where it is written out in a transform",
    to: 'transform',
    lines: OWN,
    reach: { ...NOTHING_OWN, authorization: ['Bearer marker-written'], 'x-api-key': [] },
    fault: 'E04',
  },
  {
    name: "leaves the sandbox's authentication where a transform bears none",
    to: 'label',
    lines: OWN,
    reach: { authorization: ['Bearer mine'], cookie: ['a=b'], 'x-env': ['prod'] },
    fault: 'E04',
  },
  {
    name: 'keeps what the rule lists under keep, and nothing else',
    to: 'keep',
    lines: OWN,
    reach: { authorization: ['Bearer mine'], cookie: ['a=b'], 'x-api-key': ['marker-api'], 'x-auth-token': [] },
    fault: 'E04',
  },
  {
    name: "leaves the sandbox's authentication on a host without a credential",
    to: 'bare',
    lines: OWN,
    reach: { authorization: ['Bearer mine'], cookie: ['a=b'], 'x-api-key': ['mine'] },
  },

  // Modes
  {
    name: 'replaces a field that was sent, under mode replace',
    to: 'replace',
    lines: ['Authorization: Bearer placeholder'],
    reach: { authorization: ['Bearer marker-token'] },
    fault: 'E05',
  },
  {
    name: 'replaces all copies of it by one',
    to: 'replace',
    lines: ['authorization: a', 'Authorization: b'],
    reach: { authorization: ['Bearer marker-token'] },
    fault: 'E03',
  },
  {
    name: 'adds nothing where there is nothing to replace',
    to: 'replace',
    lines: ['Cookie: a=b'],
    reach: { authorization: [], cookie: ['a=b'] },
    fault: 'E05',
  },
  {
    name: 'adds a field that is absent, under mode if_absent',
    to: 'absent',
    lines: ['Cookie: a=b'],
    reach: { authorization: ['Bearer marker-token'], cookie: ['a=b'] },
    fault: 'E05',
  },
  {
    name: 'leaves a token that the tool obtained itself, under mode if_absent',
    to: 'absent',
    lines: ['Authorization: Bearer session'],
    reach: { authorization: ['Bearer session'] },
    fault: 'E05',
  },

  // Connection and its like
  {
    name: 'puts the credential on after what Connection nominates is gone',
    to: 'bearer',
    lines: ['Connection: close, Authorization, Host, Content-Length', 'Authorization: mine'],
    reach: { authorization: ['Bearer marker-token'] },
    fault: 'E02',
  },
  {
    name: 'does not let Connection nominate a sent field away to have it replaced by nothing',
    to: 'absent',
    lines: ['Connection: authorization', 'Authorization: mine'],
    reach: { authorization: ['Bearer marker-token'] },
    fault: 'E02',
  },
  {
    name: 'forwards no hop-by-hop field and none that Connection names',
    to: 'bare',
    lines: [
      'connection: keep-alive, X-Foo',
      'CONNECTION: X_Bar',
      'X-Foo: 1',
      'x-bar: 1',
      'Keep-Alive: 5',
      'TE: trailers',
      'Proxy-Connection: x',
      'Proxy-Authenticate: x',
    ],
    reach: {
      connection: ['keep-alive'],
      'x-foo': [],
      'x-bar': [],
      'keep-alive': [],
      te: [],
      'proxy-connection': [],
      'proxy-authenticate': [],
    },
    fault: 'E01',
  },
  {
    name: "keeps the sandbox's Proxy-Authorization from the upstream",
    to: 'bare',
    lines: ['proxy-Authorization: Basic eA=='],
    reach: { 'proxy-authorization': [] },
    fault: 'E15',
  },
  {
    name: 'declines an upgrade to h2c and sends the request without it',
    to: 'bare',
    lines: ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABk'],
    reach: { upgrade: [], 'http2-settings': [] },
    fault: 'E01',
  },
  {
    name: 'drops Trailer and Transfer-Encoding of a hop',
    to: 'bare',
    method: 'POST',
    lines: ['Trailer: X-T', 'Content-Length: 2'],
    body: 'ok',
    reach: { trailer: [], 'content-length': ['2'] },
    fault: 'E01',
  },
];

describe('what reaches the upstream', () => {
  it.each(ROWS)('$name', async ({ to, method = 'GET', lines = [], body = '', reach }) => {
    const before = secure.seen.length;
    const fields = lines.map((line) => `${line}\r\n`).join('');
    const got = await ask(house, `https://${to}.test:${secure.port}/`, { method, fields, body });
    expect(got.status).toBe(200);
    expect(secure.seen.length).toBe(before + 1);
    const seen = secure.seen.at(-1) as Seen;
    const arrived = Object.fromEntries(Object.keys(reach).map((name) => [name, valuesOf(seen.fields, name)]));
    expect(arrived).toEqual(reach);
    expect(valuesOf(seen.fields, 'host')).toEqual([`${to}.test:${secure.port}`]);
    expect(seen.body).toBe(body);
  });

  it('refuses a field whose name ends in a space, and sends nothing', async () => {
    // fault E03
    const before = secure.seen.length;
    const got = await ask(house, `https://bearer.test:${secure.port}/`, { fields: 'Authorization : z\r\n' });
    expect(got.headers['x-sallyport-reason']).toBe('bad_request');
    expect(secure.seen.length).toBe(before);
  });

  it('passes a body untouched that mentions a placeholder, across chunks and compressed', async () => {
    // fault E07
    const halves = ['{"text":"__GEMINI_', 'CRED_token__ and \x1f\x8b\x08\x00\xff"}'];
    const chunks = halves.map((half) => `${half.length.toString(16)}\r\n${half}\r\n`).join('');
    const fields = 'Transfer-Encoding: chunked\r\n';
    const got = await ask(house, `https://bearer.test:${secure.port}/`, { method: 'POST', fields, body: `${chunks}0\r\n\r\n` });
    expect(got.status).toBe(200);
    expect(secure.seen.at(-1)?.body).toBe(halves.join(''));
  });

  it('forwards no hop-by-hop field of an answer, nor the demand of another proxy', async () => {
    // fault E01
    const got = await ask(house, `https://bare.test:${secure.port}/hop-by-hop`);
    expect(got.headers['x-kept']).toBe('1');
    const others = ['proxy-authenticate', 'proxy-authentication-info', 'x-nominated'];
    expect(Object.keys(got.headers).filter((name) => others.includes(name))).toEqual([]);
    // The connection with the sandbox is ours to describe.
    expect(got.headers['keep-alive']).toBe('timeout=75');
  });
});

describe('methods that reflect', () => {
  it.each([
    { method: 'TRACE', fields: '', status: 405, reason: 'method_forbidden', fault: 'E11' },
    { method: 'trace', fields: '', status: 400, reason: 'bad_request', fault: 'E11' },
    { method: 'TRACK', fields: '', status: 405, reason: 'method_forbidden', fault: 'E11' },
    { method: 'OPTIONS', fields: 'Max-Forwards: 0\r\n', status: 405, reason: 'method_forbidden', fault: 'E11' },
    { method: 'DEBUG', fields: '', status: 400, reason: 'bad_request', fault: 'E11' },
    { method: 'X'.repeat(33), fields: '', status: 400, reason: 'bad_request', fault: 'E11' },
  ])('refuses $method $fields with $status on every host, and sends nothing', async ({ method, fields, status, reason }) => {
    const before = secure.seen.length + plain.seen.length;
    for (const url of [
      `https://bearer.test:${secure.port}/`,
      `https://bare.test:${secure.port}/`,
      `http://open.test:${plain.port}/`,
    ]) {
      const got = await ask(house, url, { method, fields });
      expect([url, got.status, got.headers['x-sallyport-reason']]).toEqual([url, status, reason]);
    }
    expect(secure.seen.length + plain.seen.length).toBe(before);
  });
});

describe('one connection of the sandbox', () => {
  it('puts a credential on each request of a tunnel anew', async () => {
    const secured = await openSecureTunnel(house, `bearer.test:${secure.port}`);
    for (const own of ['', 'Authorization: Bearer mine\r\n', 'Connection: authorization\r\n']) {
      secured.write(`GET / HTTP/1.1\r\nHost: bearer.test:${secure.port}\r\n${own}\r\n`);
      expect((await readAnswer(secured)).status).toBe(200);
      expect(valuesOf((secure.seen.at(-1) as Seen).fields, 'authorization')).toEqual(['Bearer marker-token']);
    }
    secured.destroy();
  });
});
