// Placeholders through real sockets: a sandbox that holds a placeholder in place of a value, the hosts that get the value, and all the
// places and hosts where the request is refused before a byte of it has left.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeEnvironment, rest } from '../support/admin-rest.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Answering, Outside, Seen, Upstream } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';
import type { Answer } from '../support/sandbox-client.ts';

const HEADER = 'marker-header/0123&=';
const QUERY = 'marker-query/+ 0123';
const BODY = 'marker-body"0123456';
const ALL = 'marker-all-0123456789';

/** Whatever came to any upstream, in order */
const arrived: Seen[] = [];
const echo: Answering = (seen, response) => {
  arrived.push(seen);
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(seen));
};

let outside: Outside;
let upstream: Upstream;
let plain: Upstream;
let house: House;

const held = (id: string): string => `__GEMINI_CRED_${id}__`;
const basic = (text: string): string => `Basic ${Buffer.from(text).toString('base64')}`;

beforeAll(async () => {
  outside = await openOutside();
  upstream = await startUpstream({ tls: outside, answer: echo });
  plain = await startUpstream({ answer: echo });
  const here = { ports: [upstream.port], addresses: LOOPBACK };
  const there = { ports: [plain.port], addresses: LOOPBACK };
  const trusted_domains = ['api.test', '*.below.test', 'plain.test', 'open.test'];
  const value = (text: string, injection_location: unknown) => ({
    type: 'environment_variable',
    value: text,
    injection_location,
    trusted_domains,
  });
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      credentials: {
        header: value(HEADER, 'header'),
        query: value(QUERY, ['query']),
        body: value(BODY, 'body'),
        all: value(ALL, ['header', 'query', 'body']),
        nobody: { ...value('marker-nobody-0123', ['header', 'query', 'body']), trusted_domains: [] },
        unset: { ...value('', 'header'), value: { env: 'NOT_SET' } },
        token: { type: 'bearer_token', token: 'marker-token-012345' },
      },
      network: {
        allowlist: [
          { domain: 'api.test', ...here },
          { domain: 'a.below.test', ...here },
          { domain: 'below.test', ...here },
          { domain: 'other.test', ...here },
          { domain: 'plain.test', ...there },
          { domain: 'open.test', allow_plaintext: true, ...there },
          { domain: 'both.below.test', credential: 'token', ...here },
          { domain: 'wrong.test', credential: 'header', ...here },
        ],
      },
      sandboxes: {
        box: {
          token: 'marker-sandbox-0123456789',
          env: Object.fromEntries(
            ['header', 'query', 'body', 'all', 'nobody', 'unset', 'token'].map((id) => [id.toUpperCase(), { credential: id }]),
          ),
        },
        bare: { token: 'marker-sandbox-9876543210' },
      },
    },
    { names: new Proxy({}, { get: () => ['127.0.0.1'] }) },
  );
});

afterAll(async () => {
  await house.stop();
  await upstream.close();
  await plain.close();
  await outside.close();
});

interface Asked {
  readonly host?: string;
  readonly path?: string;
  /** Whole lines, without their ends */
  readonly lines?: readonly string[];
  readonly body?: string;
  readonly chunked?: boolean;
  readonly identity?: string;
}

const BOX = basic('box:marker-sandbox-0123456789');

async function send({ host = 'api.test', path = '/', lines = [], body, chunked, identity = BOX }: Asked): Promise<Answer> {
  const proxied = `Proxy-Authorization: ${identity}\r\n`;
  const isPlain = host === 'plain.test' || host === 'open.test';
  const framing =
    body === undefined
      ? []
      : [chunked === true ? 'Transfer-Encoding: chunked' : `Content-Length: ${Buffer.byteLength(body, 'latin1')}`];
  const fields = [...lines, ...framing].map((line) => `${line}\r\n`).join('') + (isPlain ? proxied : '');
  const sent = body === undefined ? '' : chunked === true ? inChunks(body) : body;
  const method = body === undefined ? 'GET' : 'POST';
  const port = isPlain ? plain.port : upstream.port;
  const url = `${isPlain ? 'http' : 'https'}://${host}:${port}${path}`;
  return ask(house, url, { method, fields, body: sent, tunnelFields: proxied });
}

function inChunks(body: string): string {
  const chunks = body.match(/[^]{1,7}/g) ?? [];
  return `${chunks.map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join('')}0\r\n\r\n`;
}

const lastSeen = (): Seen => arrived.at(-1) as Seen;

describe('a placeholder toward a host that its credential trusts', () => {
  it.each([
    { name: 'a header', lines: [`X-Key: ${held('header')}`], field: 'x-key', reach: HEADER },
    {
      name: 'the middle of a header',
      lines: [`Authorization: Bearer ${held('header')}`],
      field: 'authorization',
      reach: `Bearer ${HEADER}`,
    },
    {
      name: 'a Basic value',
      lines: [`Authorization: ${basic(`u:${held('header')}`)}`],
      field: 'authorization',
      reach: basic(`u:${HEADER}`),
    },
    { name: 'a cookie', lines: [`Cookie: a=1; s=${held('all')}`], field: 'cookie', reach: `a=1; s=${ALL}` },
    {
      name: 'a header toward a name below',
      host: 'a.below.test',
      lines: [`X-Key: ${held('header')}`],
      field: 'x-key',
      reach: HEADER,
    },
    {
      name: 'a header beside a credential',
      host: 'both.below.test',
      lines: [`X-Key: ${held('all')}`],
      field: 'x-key',
      reach: ALL,
    },
  ])('is swapped in $name', async ({ field, reach, ...asked }) => {
    const answer = await send(asked);
    expect(answer.status).toBe(200);
    expect(valuesOf(lastSeen().fields, field)).toEqual([reach]);
    expect(answer.body).not.toContain('marker-header');
    expect(answer.body).not.toContain(ALL);
  });

  it.each([
    { name: 'as it is', path: `/find?a=b&key=${held('query')}&c` },
    { name: 'percent-encoded', path: `/find?a=b&key=${held('query').replaceAll('_', '%5F')}&c` },
  ])('is swapped in the query, $name, and encoded there', async ({ path }) => {
    const answer = await send({ path });
    expect(answer.status).toBe(200);
    expect(lastSeen().url).toBe(`/find?a=b&key=${encodeURIComponent(QUERY)}&c`);
    expect(answer.body).not.toContain('marker-query');
  });

  it.each([
    {
      name: 'JSON',
      type: 'application/json',
      body: `{"k":"${held('body')}"}`,
      reach: `{"k":"${JSON.stringify(BODY).slice(1, -1)}"}`,
    },
    {
      name: 'a form',
      type: 'application/x-www-form-urlencoded',
      body: `k=${held('body')}&l=1`,
      reach: `k=${encodeURIComponent(BODY)}&l=1`,
    },
    {
      name: 'plain text, twice',
      type: 'text/plain',
      body: `${held('body')} ${held('all')}${held('all')}`,
      reach: `${BODY} ${ALL}${ALL}`,
    },
    { name: 'a text without one', type: 'text/plain', body: '__GEMINI_CRED_ and others', reach: '__GEMINI_CRED_ and others' },
  ])('is swapped in a body: $name', async ({ type, body, reach }) => {
    for (const chunked of [false, true]) {
      const answer = await send({ lines: [`Content-Type: ${type}`], body, chunked });
      expect(answer.status).toBe(200);
      expect(lastSeen().body).toBe(reach);
      expect(valuesOf(lastSeen().fields, 'content-length')).toEqual(chunked ? [] : [String(reach.length)]);
      expect(answer.body).not.toContain('marker-');
    }
  });

  it('is swapped in a large body that streams, whose length goes', async () => {
    const filling = 'x'.repeat(1024 * 1024);
    const answer = await send({ lines: ['Content-Type: text/plain'], body: `${filling}${held('body')}${filling}` });
    expect(answer.status).toBe(200);
    expect(lastSeen().body).toBe(`${filling}${BODY}${filling}`);
    expect(valuesOf(lastSeen().fields, 'content-length')).toEqual([]);
  });

  it('counts among the credentials of its exchange, in the ledger and in the metrics', async () => {
    const before = house.outcomes.length;
    await send({ host: 'both.below.test', path: `/?q=${held('query')}`, lines: [`X: ${held('header')}`], body: held('body') });
    const { trace } = await house.outcome(({ arrival }) => arrival.purpose === 'exchange', before);
    expect([...trace.credentials].sort()).toEqual(['body', 'header', 'query', 'token']);
    expect(await house.scrape()).toMatch(/credential_injections_total\{credential="body"\} [1-9]/);
  });

  it('goes over plain http where the rule allows it', async () => {
    expect((await send({ host: 'open.test', lines: [`X: ${held('header')}`] })).status).toBe(200);
    expect(valuesOf(lastSeen().fields, 'x')).toEqual([HEADER]);
  });
});

describe('a request is refused, and nothing of it sent,', () => {
  it.each<Asked & { name: string; reason: string; status: number; fault?: string }>([
    {
      name: 'in a header toward another host',
      host: 'other.test',
      lines: [`X: ${held('header')}`],
      reason: 'placeholder_untrusted',
      status: 403,
    },
    {
      name: 'in a Basic value toward another host',
      host: 'other.test',
      lines: [`Authorization: ${basic(`a:${held('header')}`)}`],
      reason: 'placeholder_untrusted',
      status: 403,
    },
    {
      name: 'in the query toward another host',
      host: 'other.test',
      path: `/?a=${held('query')}`,
      reason: 'placeholder_untrusted',
      status: 403,
    },
    {
      name: 'toward the apex of a wildcard',
      host: 'below.test',
      lines: [`X: ${held('header')}`],
      reason: 'placeholder_untrusted',
      status: 403,
    },
    {
      name: 'toward anyone, where nobody is trusted',
      lines: [`X: ${held('nobody')}`],
      reason: 'placeholder_untrusted',
      status: 403,
    },
    {
      name: 'in a place that is not listed: the query',
      path: `/?a=${held('header')}`,
      reason: 'placeholder_untrusted',
      status: 403,
    },
    {
      name: 'in a place that is not listed: a header',
      lines: [`X: ${held('query')}`],
      reason: 'placeholder_untrusted',
      status: 403,
    },
    { name: 'in the path', path: `/${held('all')}/x`, reason: 'placeholder_untrusted', status: 403 },
    {
      name: 'in the path, percent-encoded',
      path: `/${held('all').replace('_', '%5f')}/x`,
      reason: 'placeholder_untrusted',
      status: 403,
    },
    {
      name: 'over plain http',
      host: 'plain.test',
      lines: [`X: ${held('header')}`],
      reason: 'plaintext_credential',
      status: 403,
      fault: 'E16',
    },
    {
      name: 'with an id that nobody knows',
      lines: [`X: ${held('marker-unknown')}`],
      reason: 'credential_unavailable',
      status: 502,
      fault: 'E06',
    },
    { name: 'with an id of another type', lines: [`X: ${held('token')}`], reason: 'credential_unavailable', status: 502 },
    {
      name: 'with a value that is not there',
      lines: [`X: ${held('unset')}`],
      reason: 'credential_unavailable',
      status: 502,
      fault: 'E06',
    },
    {
      name: 'from a sandbox that was not given it',
      lines: [`X: ${held('header')}`],
      identity: basic('bare:marker-sandbox-9876543210'),
      reason: 'credential_unavailable',
      status: 502,
    },
    {
      name: 'under a rule that would put the value on itself',
      host: 'wrong.test',
      reason: 'credential_unavailable',
      status: 502,
    },
  ])('$name', async ({ reason, status, ...asked }) => {
    const bytes = [upstream.seen.length, plain.seen.length];
    const answer = await send(asked);
    expect([answer.status, answer.headers['x-sallyport-reason']]).toEqual([status, reason]);
    expect([upstream.seen.length, plain.seen.length]).toEqual(bytes);
    expect(JSON.stringify(answer)).not.toContain('marker-unknown');
  });
});

describe('a body is not touched', () => {
  it.each<Asked & { name: string; body: string; fault?: string }>([
    { name: 'toward a host that is not trusted', host: 'other.test', body: held('body'), fault: 'E07' },
    { name: 'for a credential that does not list it', body: `${held('header')} ${held('query')}`, fault: 'E07' },
    { name: 'for an id that nobody knows', body: held('unknown'), fault: 'E07' },
    { name: 'from a sandbox that was given nothing', body: held('body'), identity: basic('bare:marker-sandbox-9876543210') },
    { name: 'over plain http', host: 'plain.test', body: held('body') },
    { name: 'behind a coding', lines: ['Content-Encoding: br'], body: held('body') },
  ])('$name', async ({ ...asked }) => {
    expect((await send(asked)).status).toBe(200);
    expect(lastSeen().body).toBe(asked.body);
    expect(valuesOf(lastSeen().fields, 'content-length')).toEqual([String(asked.body.length)]);
  });
});

describe('a stored credential', () => {
  it('is swapped for the environment that its variable stands in, and for no other', async () => {
    await rest(house, 'POST /v1beta/credentials', {
      id: 'slack',
      type: 'environment_variable',
      value: 'marker-stored-0123',
      injection_location: ['header', 'body'],
      trusted_domains: ['api.test'],
    });
    const network = { allowlist: [{ domain: 'api.test', ports: [upstream.port], addresses: LOOPBACK }] };
    const given = await makeEnvironment(house, { network, env: { SLACK: { credential: 'slack' } } });
    const other = await makeEnvironment(house, { network });
    const identityOf = ({ identity }: { readonly identity: string }) => identity.replace('Proxy-Authorization: ', '').trim();
    const asked: Asked = { lines: [`X: ${held('slack')}`, 'Content-Type: text/plain'], body: held('slack') };
    expect((await send({ ...asked, identity: identityOf(given) })).status).toBe(200);
    expect([valuesOf(lastSeen().fields, 'x'), lastSeen().body]).toEqual([['marker-stored-0123'], 'marker-stored-0123']);
    const refused = await send({ ...asked, identity: identityOf(other) });
    expect(refused.headers['x-sallyport-reason']).toBe('credential_unavailable');
  });

  it('is refused under an id that no placeholder can hold', async () => {
    const body = { id: 'a.b', type: 'environment_variable', value: 'v-0123456789', injection_location: 'header' };
    const answer = await rest(house, 'POST /v1beta/credentials', body);
    expect([answer.status, answer.text]).toEqual([400, expect.stringContaining('no placeholder can hold')]);
  });
});
