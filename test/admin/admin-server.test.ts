import { once } from 'node:events';
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AdminError } from '../../src/admin/admin-error.ts';
import type { ExplainQuestion, ReloadResult } from '../../src/admin/admin-routes.ts';
import { startAdmin } from '../../src/admin/admin-server.ts';
import type { AdminServer } from '../../src/admin/admin-server.ts';
import { createLogger } from '../../src/foundation/logger.ts';

const TOKEN = 'tok-SENTINEL-0123456789abcdef';
const bearer = { authorization: `Bearer ${TOKEN}` };
const json = { ...bearer, 'content-type': 'application/json' };

interface Answer {
  readonly status: number;
  readonly headers: NodeJS.Dict<string | string[]>;
  readonly text: string;
}

let admin: AdminServer;
let logged: string[];
let missing: string[];
let result: ReloadResult;
let questions: ExplainQuestion[];

beforeEach(async () => {
  [logged, missing, questions] = [[], [], []];
  result = { outcome: 'accepted', generation: 2, problems: [] };
  admin = await startAdmin({
    host: '127.0.0.1',
    port: 0,
    token: TOKEN,
    allowedHosts: ['Sallyport.Example'],
    ready: () => missing,
    scrape: async () => ({ contentType: 'text/plain; version=0.0.4; charset=utf-8', body: '# HELP a a\n' }),
    reload: async () => result,
    explain: (question) => {
      questions.push(question);
      if (question.sandbox === 'nobody') throw new AdminError('not_found', 'there is no sandbox "nobody"');
      if (question.sandbox === 'bug') throw new TypeError(`SENTINEL in ${import.meta.dirname}`);
      return { decision: 'allow' };
    },
    status: async () => ({ generation: 1 }),
    denials: () => [{ host: 'evil.example' }],
    routes: [
      {
        method: 'DELETE',
        url: '/v1beta/credentials/:id',
        summary: 'takes a credential away <here>',
        answer: ({ params, query }) => ({ body: { id: params['id'], mask: query['mask'] } }),
      },
    ],
    log: createLogger({ level: 'debug', stream: { write: (text) => logged.push(text) } }),
  });
});
afterEach(() => admin.close());

interface Asked {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

async function ask({ method = 'GET', path = '/', headers = {}, body }: Asked): Promise<Answer> {
  const asked = request({ host: '127.0.0.1', port: admin.address.port, method, path, headers, agent: false });
  asked.end(body);
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += String(chunk);
  return { status: response.statusCode ?? 0, headers: response.headers, text };
}

/** Sends bytes as they are and gives all that comes back. */
async function askRaw(bytes: string): Promise<string> {
  const socket = connect(admin.address.port, '127.0.0.1').setEncoding('latin1');
  let text = '';
  socket.on('data', (chunk) => (text += String(chunk)));
  socket.on('error', () => undefined);
  socket.write(bytes);
  await once(socket, 'close');
  return text;
}

/** Holds the form of the dialect's errors, and nothing that only the inside may know. */
function expectError(answer: Pick<Answer, 'text'>, code: string): void {
  const body = JSON.parse(answer.text) as { error: { message: string; code: string } };
  expect(Object.keys(body.error)).toEqual(['message', 'code']);
  expect(body.error.code).toBe(code);
  expect(body.error.message).toMatch(/^[a-z"]/);
  expect(answer.text).not.toMatch(/SENTINEL|node_modules|\.ts\b|\bat |FST_/);
}

describe('open routes', () => {
  it('answer /healthz, /readyz and /metrics without a token', async () => {
    expect(await ask({ path: '/healthz' })).toMatchObject({ status: 200, text: '{"status":"ok"}' });
    expect(await ask({ path: '/readyz' })).toMatchObject({ status: 200, text: '{"status":"ready"}' });
    const metrics = await ask({ path: '/metrics' });
    expect(metrics).toMatchObject({ status: 200, text: '# HELP a a\n' });
    expect(metrics.headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
  });

  it('answer 503 on /readyz with what is missing', async () => {
    missing = ['ca', 'store'];
    const answer = await ask({ path: '/readyz' });
    expect(answer.status).toBe(503);
    expectError(answer, 'not_ready');
    expect(JSON.parse(answer.text)).toMatchObject({ missing: ['ca', 'store'] });
  });

  it('show a page for people that lists every route, escaped', async () => {
    const { status, headers, text } = await ask({ path: '/' });
    expect(status).toBe(200);
    expect(headers).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
      'x-content-type-options': 'nosniff',
    });
    for (const route of ['GET /healthz', 'POST /v1/explain', 'DELETE /v1beta/credentials/:id']) expect(text).toContain(route);
    expect(text).toContain('&#60;here&#62;');
  });

  it('answer HEAD without a body', async () => {
    expect(await ask({ method: 'HEAD', path: '/healthz' })).toMatchObject({ status: 200, text: '' });
    expect(await ask({ method: 'HEAD', path: '/v1/status', headers: bearer })).toMatchObject({ status: 200, text: '' });
  });
});

describe('routes behind the token', () => {
  const guarded = [
    { method: 'POST', path: '/v1/reload' },
    { method: 'POST', path: '/v1/explain' },
    { method: 'GET', path: '/v1/status' },
    { method: 'HEAD', path: '/v1/status' },
    { method: 'GET', path: '/v1/denials' },
    { method: 'DELETE', path: '/v1beta/credentials/a' },
  ];
  const wrong: { name: string; headers: Record<string, string> }[] = [
    { name: 'no token', headers: {} },
    { name: 'a wrong token', headers: { authorization: 'Bearer wrong' } },
    { name: 'a longer token', headers: { authorization: `Bearer ${TOKEN}x` } },
    { name: 'a shorter token', headers: { authorization: `Bearer ${TOKEN.slice(0, -1)}` } },
    { name: 'an empty token', headers: { authorization: 'Bearer ' } },
    { name: 'another scheme', headers: { authorization: `Basic ${TOKEN}` } },
    { name: 'a wrong key', headers: { 'x-goog-api-key': 'wrong' } },
    { name: 'an empty key', headers: { 'x-goog-api-key': '' } },
  ];

  it.each(guarded)('refuse $method $path to all but the token', async ({ method, path }) => {
    for (const { name, headers } of wrong) {
      const answer = await ask({ method, path, headers });
      expect(answer.status, name).toBe(401);
      expect(answer.headers['www-authenticate'], name).toMatch(/^Bearer /);
      if (method !== 'HEAD') expectError(answer, 'unauthenticated');
    }
  });

  it.each([
    { name: 'Authorization: Bearer', headers: bearer },
    { name: 'authorization: bearer in lower case', headers: { authorization: `bearer ${TOKEN}` } },
    { name: 'x-goog-api-key', headers: { 'x-goog-api-key': TOKEN } },
    { name: 'x-goog-api-key beside another Authorization', headers: { 'x-goog-api-key': TOKEN, authorization: 'Bearer other' } },
  ])('accept the token as $name', async ({ headers }) => {
    expect(await ask({ path: '/v1/status', headers })).toMatchObject({ status: 200, text: '{"generation":1}' });
  });

  it('refuse before a body is read', async () => {
    const bytes = `POST /v1/explain HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\nconnection: close\r\n\r\n`;
    expect(await askRaw(bytes)).toMatch(/^HTTP\/1\.1 401 /);
  });

  it('list denials, and pass parameters to a further route', async () => {
    expect((await ask({ path: '/v1/denials', headers: bearer })).text).toBe('{"denials":[{"host":"evil.example"}]}');
    const gone = await ask({ method: 'DELETE', path: '/v1beta/credentials/a%20b?mask=x', headers: bearer });
    expect(gone.text).toBe('{"id":"a b","mask":"x"}');
  });

  it('never log the token', async () => {
    await ask({ path: '/v1/status', headers: bearer });
    await ask({ path: `/v1/status?key=${TOKEN}`, headers: { authorization: `Bearer ${TOKEN}x` } });
    expect(logged).toHaveLength(2); // fault E17, E18
    expect(logged.join('')).not.toContain('SENTINEL');
  });
});

describe('POST /v1/reload', () => {
  it('gives the result, with or without an announced body', async () => {
    for (const headers of [bearer, json]) {
      expect((await ask({ method: 'POST', path: '/v1/reload', headers })).text).toBe(
        '{"outcome":"accepted","generation":2,"problems":[]}',
      );
    }
  });

  it('answers 422 with every problem when the new configuration is rejected', async () => {
    const problems = [
      { path: 'network.allowlist[0].domian', message: 'unknown key; did you mean "domain"' },
      { path: '', message: 'the file ends early' },
    ];
    result = { outcome: 'rejected', generation: 7, problems };
    const answer = await ask({ method: 'POST', path: '/v1/reload', headers: bearer });
    expect(answer.status).toBe(422);
    expectError(answer, 'config_rejected');
    expect(JSON.parse(answer.text)).toMatchObject({ problems });
    expect(answer.text).toContain('generation 7 stays in force: network.allowlist[0].domian: unknown key');
  });
});

describe('POST /v1/explain', () => {
  const explain = (body: string, headers: Record<string, string> = json) =>
    ask({ method: 'POST', path: '/v1/explain', headers, body });

  it('asks the question as it was put', async () => {
    const answer = await explain('{"method":"GET","url":"https://a.example/","sandbox":"box"}');
    expect(answer).toMatchObject({ status: 200, text: '{"decision":"allow"}' });
    await explain('{"method":"GET","url":"https://a.example/"}');
    expect(questions).toEqual([
      { method: 'GET', url: 'https://a.example/', sandbox: 'box' },
      { method: 'GET', url: 'https://a.example/', sandbox: undefined },
    ]);
  });

  it.each([
    { name: 'no body', body: '', status: 400, code: 'invalid_request' },
    { name: 'broken JSON', body: '{"method":"SENTINEL', status: 400, code: 'invalid_request' },
    { name: 'a list', body: '[]', status: 400, code: 'invalid_request' },
    { name: 'an unknown key', body: '{"method":"GET","url":"https://a/","path":"/"}', status: 400, code: 'invalid_request' },
    { name: 'a method with a blank', body: '{"method":"GE T","url":"https://a/"}', status: 400, code: 'invalid_request' },
    { name: 'no url', body: '{"method":"GET"}', status: 400, code: 'invalid_request' },
    {
      name: 'a poisoned prototype',
      body: '{"method":"GET","url":"https://a/","__proto__":{"x":1}}',
      status: 400,
      code: 'invalid_request',
    },
    {
      name: 'an unknown sandbox',
      body: '{"method":"GET","url":"https://a/","sandbox":"nobody"}',
      status: 404,
      code: 'not_found',
    },
    { name: 'a bug behind it', body: '{"method":"GET","url":"https://a/","sandbox":"bug"}', status: 500, code: 'internal' },
  ])('answers $status $code to $name', async ({ body, status, code }) => {
    const answer = await explain(body);
    expect(answer.status).toBe(status); // fault E13
    expectError(answer, code);
    expect(logged.join('')).not.toContain('SENTINEL');
  });

  it('answers 415 to a body that is not JSON and 413 to one over 1 MiB', async () => {
    const text = await explain('method=GET', { ...bearer, 'content-type': 'text/plain' });
    expect(text.status).toBe(415);
    expectError(text, 'unsupported_media_type');
    const size = 1024 * 1024 + 1;
    const head = `POST /v1/explain HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${TOKEN}\r\ncontent-type: application/json\r\n`;
    const large = await askRaw(`${head}content-length: ${size}\r\nconnection: close\r\n\r\n`);
    expect(large).toMatch(/^HTTP\/1\.1 413 /);
    expectError({ text: large.split('\r\n\r\n')[1] ?? '' }, 'too_large');
  });
});

describe('the place a request names', () => {
  it.each([
    { name: 'an IPv4 literal', host: '127.0.0.1', status: 200 },
    { name: 'another IPv4 literal with a port', host: '10.0.0.9:9090', status: 200 },
    { name: 'an IPv6 literal', host: '[::1]:9090', status: 200 },
    { name: 'localhost', host: 'localhost:9090', status: 200 },
    { name: 'an allowed host', host: 'SALLYPORT.example', status: 200 },
    { name: 'a name that leads here by rebinding', host: 'attacker.example', status: 421 },
    { name: 'a name below localhost', host: 'a.localhost', status: 421 },
    { name: 'a name that ends like an allowed one', host: 'xsallyport.example', status: 421 },
    { name: 'a name that begins like localhost', host: 'localhost.attacker.example', status: 421 },
    { name: 'userinfo', host: 'attacker@127.0.0.1', status: 421 },
    { name: 'a short IPv4', host: '127.1', status: 421 },
  ])('answers $status to $name', async ({ host, status }) => {
    for (const path of ['/healthz', '/metrics', '/']) {
      const answer = await ask({ path, headers: { host } });
      expect(answer.status).toBe(status);
      if (status === 421) expectError(answer, 'misdirected_request');
    }
  });

  it('is checked for a token bearer, an unknown route and an unreadable path as well', async () => {
    for (const path of ['/v1/status', '/nowhere', '/%zz']) {
      expect((await ask({ path, headers: { ...bearer, host: 'attacker.example' } })).status).toBe(421);
    }
  });

  it('is missing or empty: 421', async () => {
    for (const host of ['', 'host:\r\n', 'host: \r\n']) {
      expect(await askRaw(`GET /healthz HTTP/1.1\r\n${host}connection: close\r\n\r\n`)).toMatch(/^HTTP\/1\.1 421 /);
    }
  });

  it('is never another one: the listener is no proxy, in absolute form or by CONNECT', async () => {
    const absolute = await askRaw('GET http://127.0.0.1/metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n');
    expect(absolute).toMatch(/^HTTP\/1\.1 421 /); // fault B16
    expect(await askRaw('CONNECT 127.0.0.1:443 HTTP/1.1\r\nhost: 127.0.0.1:443\r\n\r\n')).not.toMatch(/ 2\d\d /); // fault B16
  });

  it.each([
    { name: 'the same origin', origin: 'http://localhost:9090', status: 200 },
    { name: 'another host', origin: 'http://attacker.example', status: 403 },
    { name: 'another port', origin: 'http://localhost:3000', status: 403 },
    { name: 'another scheme', origin: 'https://localhost:9090', status: 403 },
    { name: 'an opaque origin', origin: 'null', status: 403 },
    { name: 'an empty origin', origin: '', status: 403 },
  ])('answers $status to $name in Origin', async ({ origin, status }) => {
    const answer = await ask({ path: '/v1/status', headers: { ...bearer, host: 'localhost:9090', origin } });
    expect(answer.status).toBe(status);
    if (status === 403) expectError(answer, 'permission_denied');
  });
});

describe('errors', () => {
  it.each([
    { name: 'an unknown route', asked: { path: '/nowhere' }, status: 404, code: 'not_found' },
    { name: 'an unknown route with the token', asked: { path: '/v1/nowhere', headers: bearer }, status: 404, code: 'not_found' },
    { name: 'another method on a known route', asked: { path: '/v1/reload' }, status: 405, code: 'method_not_allowed' },
    {
      name: 'another method on a route with a name',
      asked: { path: '/v1beta/credentials/a' },
      status: 405,
      code: 'method_not_allowed',
    },
    { name: 'an unreadable path', asked: { path: '/%zz' }, status: 400, code: 'invalid_request' },
    {
      name: 'an endless path segment',
      asked: { path: `/v1beta/credentials/${'a'.repeat(300)}`, method: 'DELETE' },
      status: 400,
      code: 'invalid_request',
    },
  ])('have one form: $status for $name', async ({ asked, status, code }) => {
    const answer = await ask(asked);
    expect(answer.status).toBe(status);
    expectError(answer, code);
  });

  it('name the methods a route takes', async () => {
    expect((await ask({ path: '/v1/reload' })).headers['allow']).toBe('POST');
  });

  it.each([
    { name: 'what is no HTTP', bytes: 'SENTINEL\r\n\r\n', status: 400, code: 'invalid_request' },
    {
      name: 'headers over 16 KiB',
      bytes: `GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ${'SENTINEL'.repeat(4096)}\r\n\r\n`,
      status: 431,
      code: 'headers_too_large',
    },
  ])('have one form even for $name', async ({ bytes, status, code }) => {
    const text = await askRaw(bytes);
    expect(text).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expectError({ text: text.split('\r\n\r\n')[1] ?? '' }, code);
  });
});

describe('startAdmin', () => {
  const options = {
    host: '127.0.0.1',
    port: 0,
    token: TOKEN,
    ready: () => [],
    scrape: async () => ({ contentType: 'text/plain', body: '' }),
    reload: async () => result,
    explain: () => ({}),
    status: () => ({}),
    denials: () => [],
    log: createLogger({ level: 'silent' }),
  };

  it('refuses a port that is taken, an unusable name and an empty token with the remedy', async () => {
    const { port } = admin.address;
    await expect(startAdmin({ ...options, port })).rejects.toThrow(
      `cannot open the admin listener on "127.0.0.1:${port}" (EADDRINUSE); free the port or change admin.listen`,
    );
    await expect(startAdmin({ ...options, allowedHosts: ['http://a.example'] })).rejects.toThrow('write it without scheme');
    await expect(startAdmin({ ...options, token: '' })).rejects.toThrow('the admin token is empty');
  });

  it('ends kept connections when it closes', async () => {
    const server = await startAdmin(options);
    const socket = connect(server.address.port, '127.0.0.1');
    socket.write('GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n');
    await once(socket, 'data');
    const ended = once(socket, 'close');
    socket.resume();
    await server.close();
    await ended;
  });
});
