// Reflected secrets through real sockets: an upstream that gives back what was put on, in every part of an answer, and a sandbox that
// gets to see none of it, while streams stay streams and binary bodies stay as they are.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type http from 'node:http';
import zlib from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeEnvironment, rest } from '../support/admin-rest.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Seen, Upstream } from '../support/outside.ts';
import { ask, openSecureTunnel, readAnswer } from '../support/sandbox-client.ts';
import type { Answer } from '../support/sandbox-client.ts';

const TOKEN = 'marker/token+0123"456789';
const PASSWORD = 'marker-password-77aa';
const WRITTEN = 'marker-written-e2e2e2';
const SECRETS = [TOKEN, PASSWORD, WRITTEN];
/** What shows one of them however it is spelled. */
const SPELLED = [
  ...SECRETS,
  ...SECRETS.map(encodeURIComponent),
  ...SECRETS.map((secret) => JSON.stringify(secret).slice(1, -1)),
  ...SECRETS.map((secret) => Buffer.from(secret).toString('base64').replace(/=+$/, '')),
  Buffer.from(`user:${PASSWORD}`).toString('base64'),
];

let outside: Outside;
let upstream: Upstream;
let house: House;

const text = { 'content-type': 'text/plain' };

/** What was put on, as the upstream got it. */
const given = (seen: Seen): string => valuesOf(seen.fields, 'authorization')[0] ?? '';

type Answering = (seen: Seen, response: http.ServerResponse) => void;

const coded = (name: string, encode: (body: string) => Buffer): Answering => {
  return (seen, response) =>
    response
      .writeHead(200, { ...text, 'content-encoding': name })
      .end(encode(`${given(seen)} ${'x'.repeat(100_000)} ${given(seen)}`));
};

const ANSWERS: Readonly<Record<string, Answering>> = {
  json: (seen, response) => {
    const body = JSON.stringify(seen);
    response
      .writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body), etag: '"e1"' })
      .end(body);
  },
  untyped: (seen, response) => response.writeHead(200).end(`it was ${given(seen)}`),
  field: (seen, response) => {
    const value = encodeURIComponent(given(seen));
    response
      .writeHead(302, ['Location', `https://api.test/?t=${value}`, 'X-One', given(seen), 'X-One', `a ${given(seen)} b`])
      .end();
  },
  base64: (seen, response) => response.writeHead(200, text).end(Buffer.from(`a${given(seen)}`).toString('base64')),
  cut: (seen, response) => {
    response.writeHead(200, text);
    for (const letter of `<${given(seen)}>`) response.write(letter);
    response.end();
  },
  trailer: (seen, response) => {
    response.writeHead(200, { ...text, trailer: 'X-Sum' });
    response.addTrailers({ 'X-Sum': given(seen) });
    response.end('ok');
  },
  reason: (seen, response) => response.writeHead(200, given(seen), { ...text, 'content-length': 2 }).end('ok'),
  gzip: coded('gzip', (body) => zlib.gzipSync(body)),
  br: coded('br', (body) => zlib.brotliCompressSync(body)),
  deflate: coded('deflate', (body) => zlib.deflateSync(body)),
  part: (seen, response) => {
    const body = given(seen);
    response
      .writeHead(206, { ...text, 'content-range': `bytes 0-${body.length - 1}/99`, 'content-length': body.length })
      .end(body);
  },
  parts: (seen, response) => {
    const part = `--b\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-9/99\r\n\r\n${given(seen)}\r\n`;
    response.writeHead(206, { 'content-type': 'multipart/byteranges; boundary=b' }).end(`${part}${part}--b--\r\n`);
  },
};

const OTHERS: Readonly<Record<string, Answering>> = {
  binary: (seen, response) => {
    const body = Buffer.from(`\0\x01${given(seen)}\xff`, 'latin1');
    response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': body.length }).end(body);
  },
  zstd: (_seen, response) => response.writeHead(200, { ...text, 'content-encoding': 'zstd' }).end('compressed'),
  wide: (_seen, response) => response.writeHead(200, { 'content-type': 'text/plain; charset=utf-16le' }).end('w\0'),
  notgzip: (_seen, response) => response.writeHead(200, { ...text, 'content-encoding': 'gzip' }).end('this is no gzip at all'),
  begun: (_seen, response) => response.writeHead(200, text).end(`at last ${TOKEN.slice(0, 9)}`),
  head: (_seen, response) => response.writeHead(200, { ...text, 'content-length': 1234 }).end(),
  unchanged: (_seen, response) => response.writeHead(304, { ...text, etag: '"e1"' }).end(),
  empty: (_seen, response) => response.writeHead(200, { ...text, 'content-length': 0, 'content-encoding': 'zstd' }).end(),
};

beforeAll(async () => {
  outside = await openOutside();
  upstream = await startUpstream({
    tls: outside,
    answer: (seen, response) => {
      const name = seen.url.slice(1);
      (ANSWERS[name] ?? OTHERS[name] ?? ANSWERS['json'])?.(seen, response);
    },
  });
  const here = { ports: [upstream.port], addresses: LOOPBACK };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      credentials: {
        token: { type: 'bearer_token', token: TOKEN },
        login: { type: 'basic', username: 'user', password: PASSWORD },
        pair: { type: 'header', headers: { Authorization: `Token ${TOKEN}`, 'X-Second': PASSWORD } },
      },
      network: {
        allowlist: [
          { domain: 'token.test', credential: 'token', redact: true, ...here },
          { domain: 'login.test', credential: 'login', redact: true, ...here },
          { domain: 'pair.test', credential: 'pair', redact: true, ...here },
          { domain: 'written.test', transform: { Authorization: `Bearer ${WRITTEN}` }, redact: true, ...here },
          {
            domain: 'basic-written.test',
            transform: { Authorization: `Basic ${btoa(`user:${PASSWORD}`)}` },
            redact: true,
            ...here,
          },
          { domain: 'label.test', transform: { 'X-Env': 'production-one' }, ...here },
          { domain: 'open.test', credential: 'token', redact: false, ...here },
          { domain: 'bare.test', ...here },
        ],
      },
    },
    { names: new Proxy({}, { get: () => ['127.0.0.1'] }) },
  );
});

afterAll(async () => {
  await house.stop();
  await upstream.close();
  await outside.close();
});

const get = (host: string, path: string, options: Parameters<typeof ask>[2] = {}): Promise<Answer> =>
  ask(house, `https://${host}.test:${upstream.port}/${path}`, options);

/** All that the sandbox got to see, opened where it is compressed. */
function seenIn({ fields, body, trailers, reason, headers }: Answer): string {
  const bytes = Buffer.from(body, 'latin1');
  const coding = headers['content-encoding'];
  const opened =
    coding === 'gzip'
      ? zlib.gunzipSync(bytes)
      : coding === 'br'
        ? zlib.brotliDecompressSync(bytes)
        : coding === 'deflate'
          ? zlib.inflateSync(bytes)
          : bytes;
  return [reason, ...fields, opened.toString('latin1'), ...trailers].join('\n');
}

describe('what was put on does not come back', () => {
  describe.each(['token', 'login', 'pair', 'written', 'basic-written'])('from %s.test', (host) => {
    it.each(Object.keys(ANSWERS))('in the answer "%s"', async (path) => {
      const answer = await get(host, path);
      const seen = seenIn(answer);
      expect(SPELLED.filter((spelled) => seen.includes(spelled))).toEqual([]);
      expect(seen).toContain('[redacted]');
    });
  });

  it('keeps everything around it, and the tag of the entity', async () => {
    const answer = await get('token', 'json');
    expect(answer.headers).toMatchObject({ etag: '"e1"', 'transfer-encoding': 'chunked' });
    expect(answer.headers).not.toHaveProperty('content-length');
    expect(valuesOf((JSON.parse(answer.body) as Seen).fields, 'authorization')).toEqual(['Bearer [redacted]']);
  });

  it('in an interim answer', async () => {
    const raw = await startUpstream({
      tls: outside,
      raw: (request, response) => {
        response.writeEarlyHints({ link: '</a.css>; rel=preload', 'x-hint': request.headers.authorization ?? '' });
        response.writeHead(200, { 'content-length': 2 }).end('ok');
      },
    });
    await house.reconfigure({
      upstream: { ca: [outside.caPath] },
      credentials: { token: { type: 'bearer_token', token: TOKEN } },
      network: {
        allowlist: [{ domain: 'token.test', credential: 'token', redact: true, ports: [raw.port], addresses: LOOPBACK }],
      },
    });
    const secured = await openSecureTunnel(house, `token.test:${raw.port}`);
    secured.write(`GET / HTTP/1.1\r\nHost: token.test:${raw.port}\r\n\r\n`);
    const hint = await readAnswer(secured);
    expect([hint.status, hint.headers['x-hint']]).toEqual([103, 'Bearer [redacted]']);
    expect((await readAnswer(secured)).status).toBe(200);
    secured.destroy();
    await raw.close();
  });
});

/** Answers that write when they are told to. */
async function streaming(
  type: string,
  coding = 'identity',
): Promise<{ upstream: Upstream; response: Promise<http.ServerResponse>; close: () => Promise<void> }> {
  let resolve: (answering: http.ServerResponse) => void = () => undefined;
  const response = new Promise<http.ServerResponse>((settle) => (resolve = settle));
  const raw = await startUpstream({
    tls: outside,
    raw: (_request, answering) => {
      answering.writeHead(200, { 'content-type': type, 'content-encoding': coding });
      answering.flushHeaders();
      resolve(answering);
    },
  });
  await house.reconfigure({
    upstream: { ca: [outside.caPath] },
    credentials: { token: { type: 'bearer_token', token: TOKEN } },
    network: { allowlist: [{ domain: 'token.test', credential: 'token', redact: true, ports: [raw.port], addresses: LOOPBACK }] },
  });
  return { upstream: raw, response, close: () => raw.close() };
}

describe('a stream stays one', () => {
  it('hands each event on before the next one is there, although a part of a secret may stand at its end', async () => {
    const { upstream: raw, response: answering, close } = await streaming('text/event-stream');
    const secured = await openSecureTunnel(house, `token.test:${raw.port}`);
    secured.write(`GET / HTTP/1.1\r\nHost: token.test:${raw.port}\r\n\r\n`);
    let seen = '';
    secured.on('data', (chunk: Buffer) => (seen += chunk.toString('latin1')));
    const until = async (what: string): Promise<void> => {
      while (!seen.includes(what)) await once(secured, 'data');
    };
    const response = await answering;
    await until('\r\n\r\n');
    response.write(`data: one ${TOKEN}\n\n`);
    await until('data: one [redacted]\n\n');
    response.write(`data: two ${TOKEN.slice(0, 9)}`);
    await until('data: two ');
    response.write(`${TOKEN.slice(9)}\n\n`);
    await until('[redacted]\n\n');
    response.write('data: marker\n\n');
    await until('data: marker\n\n');
    expect(seen).not.toContain(TOKEN.slice(0, 12));
    secured.destroy();
    await close();
  });

  it.each(['identity', 'gzip'])('holds the upstream while the sandbox does not read: %s', async (coding) => {
    const { upstream: raw, response: answering, close } = await streaming('text/plain', coding);
    const secured = await openSecureTunnel(house, `token.test:${raw.port}`);
    secured.write(`GET / HTTP/1.1\r\nHost: token.test:${raw.port}\r\n\r\n`);
    secured.pause();
    const response = await answering;
    const gzip = zlib.createGzip({ level: 1 });
    if (coding === 'gzip') gzip.pipe(response);
    const sink = coding === 'gzip' ? gzip : response;
    // Noise, so that it is as large when it is compressed.
    const piece = randomBytes(1024 * 1024);
    let sent = 0;
    // Every buffer on the way together takes far less than this.
    while (sent < 64) {
      sent += 1;
      if (!sink.write(piece) && !(await Promise.race([once(sink, 'drain').then(() => true), silence(500)]))) break;
    }
    expect(sent).toBeLessThan(40);
    secured.destroy();
    gzip.destroy();
    await close();
  });
});

/** The one wait for nothing to happen: that nothing drains shows in no event. */
const silence = (ms: number): Promise<false> => new Promise((resolve) => setTimeout(() => resolve(false), ms));

describe('what is left as it is', () => {
  beforeAll(async () => {
    const here = { ports: [upstream.port], addresses: LOOPBACK };
    await house.reconfigure({
      upstream: { ca: [outside.caPath] },
      credentials: { token: { type: 'bearer_token', token: TOKEN } },
      network: {
        allowlist: [
          { domain: 'token.test', credential: 'token', redact: true, ...here },
          { domain: 'label.test', transform: { 'X-Env': 'production-one' }, ...here },
          { domain: 'open.test', credential: 'token', redact: false, ...here },
          { domain: 'unsaid.test', credential: 'token', ...here },
          { domain: 'bare.test', ...here },
        ],
      },
    });
  });

  it.each([
    { name: 'a binary body, with its length', host: 'token', path: 'binary', has: TOKEN },
    { name: 'an answer under `redact: false`', host: 'open', path: 'base64', has: btoa(`aBearer ${TOKEN}`) },
    { name: 'an answer under a rule that does not say', host: 'unsaid', path: 'base64', has: btoa(`aBearer ${TOKEN}`) },
    {
      name: 'the beginning of a secret at the end of an answer',
      host: 'token',
      path: 'begun',
      has: `at last ${TOKEN.slice(0, 9)}`,
    },
    { name: 'an answer to a transform that bears no secret', host: 'label', path: 'json', has: 'production-one' },
  ])('$name', async ({ host, path, has }) => {
    const answer = await get(host, path);
    expect(answer.body).toContain(has);
    expect(answer.body).not.toContain('[redacted]');
  });

  it.each([
    { name: 'the length in an answer to HEAD', path: 'head', method: 'HEAD', status: 200, length: '1234' },
    { name: 'a 304', path: 'unchanged', method: 'GET', status: 304, length: undefined },
    { name: 'an empty answer, whatever its coding', path: 'empty', method: 'GET', status: 200, length: '0' },
    {
      name: 'the length of a binary body',
      path: 'binary',
      method: 'GET',
      status: 200,
      length: String(`Bearer ${TOKEN}`.length + 3),
    },
  ])('$name', async ({ path, method, status, length }) => {
    const answer = await get('token', path, { method });
    expect([answer.status, answer.headers['content-length']]).toEqual([status, length]);
  });

  it.each([
    { host: 'token', wanted: 'identity' },
    { host: 'bare', wanted: 'gzip, zstd' },
    { host: 'label', wanted: 'gzip, zstd' },
    { host: 'open', wanted: 'gzip, zstd' },
  ])('asks the upstream of $host.test for "$wanted" where the sandbox asks for gzip and zstd', async ({ host, wanted }) => {
    const before = upstream.seen.length;
    await get(host, 'json', { fields: 'Accept-Encoding: gzip, zstd\r\n' });
    expect(valuesOf(upstream.seen[before]?.fields ?? [], 'accept-encoding')).toEqual([wanted]);
  });
});

describe('what cannot be looked through is not handed over', () => {
  it.each([
    { name: 'text in a coding that is not known', path: 'zstd' },
    { name: 'text in a charset that is not known', path: 'wide' },
  ])('$name', async ({ path }) => {
    const answer = await get('token', path);
    expect([answer.status, answer.headers['x-sallyport-reason']]).toEqual([502, 'upstream_protocol']);
    expect(answer.body).toContain('redact: false');
  });

  it('a body that is not what its coding says is cut off', async () => {
    const before = house.outcomes.length;
    await expect(get('token', 'notgzip')).rejects.toThrow();
    const outcome = await house.outcome(() => true, before);
    expect(outcome.verdict?.code).toBe('upstream_protocol');
  });
});

describe('the top-level `redact`', () => {
  const here = () => ({ ports: [upstream.port], addresses: LOOPBACK });
  const network = () => ({
    allowlist: [
      { domain: 'token.test', credential: 'token', ...here() },
      { domain: 'written.test', transform: { Authorization: `Bearer ${WRITTEN}` }, ...here() },
      { domain: 'open.test', credential: 'token', redact: false, ...here() },
      { domain: 'pinned.test', tls: 'passthrough' },
    ],
  });
  const config = (more: object) => ({
    upstream: { ca: [outside.caPath] },
    credentials: { token: { type: 'bearer_token', token: TOKEN } },
    ...more,
  });
  const SANDBOX = 'Proxy-Authorization: Bearer token-of-the-only-sandbox\r\n';
  const shows = (body: string): boolean => [TOKEN, WRITTEN].some((secret) => body.includes(JSON.stringify(secret).slice(1, -1)));

  /** Whether the sandbox gets to see what was put on, by host. */
  async function shown(tunnelFields: string): Promise<Record<string, boolean>> {
    const by: Record<string, boolean> = {};
    for (const host of ['token', 'written', 'open']) {
      const { status, body } = await get(host, 'json', { tunnelFields });
      expect([status, body.includes('[redacted]')]).toEqual([200, !shows(body)]);
      by[host] = shows(body);
    }
    return by;
  }

  const REDACTED = { token: false, written: false, open: true };
  const SHOWN = { token: true, written: true, open: true };

  it('is for the rules of the network that do not say it', async () => {
    await house.reconfigure(config({ redact: true, network: network() }));
    expect(await shown('')).toEqual(REDACTED);
  });

  it("is for those of a sandbox's own network", async () => {
    const sandboxes = { only: { token: 'token-of-the-only-sandbox', network: network() } };
    await house.reconfigure(config({ redact: true, sandboxes }));
    expect(await shown(SANDBOX)).toEqual(REDACTED);
  });

  it('is for those of a stored environment, old or new', async () => {
    await house.reconfigure(config({ redact: true }));
    const { id, identity } = await makeEnvironment(house, { network: network() });
    expect(await shown(identity)).toEqual(REDACTED);
    await rest(house, `PATCH /v1beta/environments/${id}`, { network: network() });
    expect(await shown(identity)).toEqual(REDACTED);
  });

  it('is what the config says after a reload, for a stored environment too', async () => {
    await house.reconfigure(config({ network: network() }));
    const { identity } = await makeEnvironment(house, { network: network() });
    for (const redact of [undefined, true, false, true]) {
      await house.reconfigure(config({ redact, network: network() }));
      const expected = redact === true ? REDACTED : SHOWN;
      expect(await shown('')).toEqual(expected);
      expect(await shown(identity)).toEqual(expected);
    }
  });
});
