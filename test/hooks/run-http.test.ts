// Http handlers through a real Sallyport to a real HTTPS server: what arrives, what each way to fail is called, and that nothing goes around the door.
import { once } from 'node:events';
import https from 'node:https';
import net from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OUTPUT_CAP } from '../../src/foundation/capped-text.ts';
import { createRunHttp } from '../../src/hooks/run-http.ts';
import type { HttpOptions, HttpRequest, RunHttp } from '../../src/hooks/run-http.ts';
import type { HttpHandler, RawRun } from '../../src/hooks/words.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startRaw, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { openScript } from '../support/scripted-upstream.ts';
import { openDescriptors } from './children.ts';

const TOKEN = 'box-token-0123456789';
const script = openScript();
const order: HttpRequest = { body: '{"tool_call":{"name":"é"}}', actionId: 'act_1', traceId: 't-1' };

let outside: Outside;
let endpoint: Upstream;
let plain: Upstream;
let house: House;
let proxy: string;
let url: (path: string, host?: string) => string;
const runners: RunHttp[] = [];

beforeAll(async () => {
  outside = await openOutside();
  endpoint = await startUpstream({ tls: outside, raw: script.answer });
  plain = await startUpstream();
  const rule = { ports: [endpoint.port, plain.port], addresses: LOOPBACK };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      sandboxes: {
        box: {
          token: TOKEN,
          network: {
            allowlist: [
              {
                domain: 'hooks.test',
                transform: { Authorization: 'Bearer marker-written' },
                paths: ['/.*'],
                methods: ['POST'],
                ...rule,
              },
              { domain: 'narrow.test', paths: ['/only'], ...rule },
              { domain: 'plain.test', ...rule },
              { domain: 'lost.test', ...rule },
            ],
          },
        },
      },
    },
    { names: { 'hooks.test': ['127.0.0.1'], 'narrow.test': ['127.0.0.1'], 'plain.test': ['127.0.0.1'] } },
  );
  proxy = `http://box:${TOKEN}@127.0.0.1:${house.port}`;
  url = (path, host = 'hooks.test') => `https://${host}:${endpoint.port}${path}`;
  script.on('/echo', (request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => response.end(JSON.stringify({ fields: request.rawHeaders, body: Buffer.concat(pieces).toString() })));
  });
});

afterAll(async () => {
  await Promise.all(runners.map((runner) => runner.close()));
  await house.stop();
  await endpoint.close();
  await plain.close();
  await outside.close();
});

function handler(to: string, over: Partial<HttpHandler> = {}): HttpHandler {
  const base = { id: 'audit/PreToolUse[0].hooks[0]', onFailure: undefined, requireDecision: false, timeoutMs: 10_000 };
  return { ...base, kind: 'http', url: to, headers: [], allowedVariables: [], ...over };
}

function runner(over: Partial<HttpOptions> = {}): RunHttp {
  const made = createRunHttp({ proxy, ca: [house.ca], env: {}, ...over });
  runners.push(made);
  return made;
}

/** One run with a runner of its own. */
async function post(to: string, over: Partial<HttpHandler> = {}, options: Partial<HttpOptions> = {}): Promise<RawRun> {
  const one = runner(options);
  const run = await one.run(handler(to, over), order);
  await one.close();
  return run;
}

interface Echo {
  readonly fields: string[];
  readonly body: string;
}

describe('a POST', () => {
  it('arrives with its fields, and with the credential that the door put on', async () => {
    const run = await post(
      url('/echo?a=b'),
      { headers: [['X-Team', '${TEAM}']], allowedVariables: ['TEAM'] },
      { env: { TEAM: 'red' } },
    );
    expect(run).toMatchObject({ failure: undefined, status: 200, complaint: '', truncated: false });
    expect(run.startMs).toBeGreaterThan(0);
    expect(run.durationMs).toBeGreaterThan(0);
    const { fields, body } = JSON.parse(run.output) as Echo;
    expect(body).toBe(order.body);
    const arrived = (name: string): string[] => valuesOf(fields, name);
    expect(arrived('X-Sallyport-Trace-Id')).toEqual(['t-1']);
    expect(arrived('Content-Type')).toEqual(['application/json']);
    expect(arrived('X-Team')).toEqual(['red']);
    expect(arrived('Authorization')).toEqual(['Bearer marker-written']);
    expect(arrived('Host')).toEqual([`hooks.test:${endpoint.port}`]);
    expect(arrived('Proxy-Authorization')).toEqual([]);
    // The door keeps the action for its ledger, and the endpoint has no need of it.
    expect(arrived('X-Sallyport-Action-Id')).toEqual([]);
    expect((await house.audit()).at(-1)).toMatchObject({ host: 'hooks.test', action_id: 'act_1', decision: 'allow' });
  });

  it('sends no trace where there is none, and the type that the handler names', async () => {
    const one = runner();
    const run = await one.run(handler(url('/echo'), { headers: [['content-type', 'application/cloudevents+json']] }), {
      body: '{}',
      actionId: 'act_2',
    });
    const { fields } = JSON.parse(run.output) as Echo;
    expect(valuesOf(fields, 'X-Sallyport-Trace-Id')).toEqual([]);
    expect(valuesOf(fields, 'Content-Type')).toEqual(['application/cloudevents+json']);
  });

  it('keeps its connection for the next run, and ends it when it is closed', async () => {
    const relay = await startRelay();
    const one = runner({ proxy: `http://box:${TOKEN}@127.0.0.1:${relay.port}` });
    for (let i = 0; i < 3; i += 1) expect((await one.run(handler(url('/echo')), order)).status).toBe(200);
    expect(relay.connections).toBe(1);
    const ended = once(relay.server, 'gone');
    await one.close();
    await ended;
    expect((await one.run(handler(url('/echo')), order)).failure?.message).toContain('the runner is closed');
    await relay.close();
  });

  it('leaves no descriptor open after many runs', async () => {
    script.on('/gone', (request) => request.socket.destroy());
    await post(url('/echo'));
    const before = openDescriptors();
    for (let i = 0; i < 20; i += 1) {
      const paths = ['/echo', '/gone', '/missing'];
      await post(url(paths[i % 3] ?? '', i % 5 === 0 ? 'unlisted.test' : 'hooks.test'));
    }
    // The door keeps connections of its own to the endpoint, whose both ends are in this process.
    await expect.poll(() => openDescriptors(), { timeout: 5000 }).toBeLessThanOrEqual(before + 8);
  });
});

/** A wire to the house that counts connections; its server tells with `gone` when one has ended. */
async function startRelay(): Promise<Upstream> {
  const relay = await startRaw((socket) => {
    const onward = net.connect(house.port, '127.0.0.1');
    onward.on('error', () => socket.destroy());
    socket.pipe(onward).pipe(socket);
    socket.on('close', () => {
      onward.destroy();
      relay.server.emit('gone');
    });
  });
  return relay;
}

describe('the way out', () => {
  const viaEnv = [
    { name: 'HTTPS_PROXY', env: (at: string) => ({ HTTPS_PROXY: at }) },
    { name: 'all_proxy', env: (at: string) => ({ all_proxy: at }) },
    { name: 'HTTPS_PROXY though NO_PROXY names the host', env: (at: string) => ({ HTTPS_PROXY: at, NO_PROXY: '*,hooks.test' }) },
  ];
  it.each(viaEnv)('is $name', async ({ env }) => {
    const run = await post(url('/echo'), {}, { proxy: undefined, env: env(proxy) });
    expect(run).toMatchObject({ failure: undefined, status: 200 });
  });

  it('is closed without a proxy, and nothing is sent', async () => {
    const before = endpoint.connections;
    const run = await post(`https://localhost:${endpoint.port}/echo`, {}, { proxy: undefined, ca: [outsideCa()] });
    expect(run.failure?.code).toBe('no_proxy');
    expect(endpoint.connections).toBe(before);
  });

  it('is straight where that was asked for, whatever the environment says', async () => {
    const env = { HTTPS_PROXY: 'http://127.0.0.1:1' };
    const run = await post(
      `https://localhost:${endpoint.port}/echo`,
      {},
      { proxy: undefined, direct: true, ca: [outsideCa()], env },
    );
    expect(run).toMatchObject({ failure: undefined, status: 200 });
    const { fields } = JSON.parse(run.output) as Echo;
    expect(valuesOf(fields, 'X-Sallyport-Action-Id')).toEqual(['act_1']);
  });

  it('is straight, and then no answer speaks for a proxy', async () => {
    script.on('/spoof', (_request, response) => void response.writeHead(403, { 'X-Sallyport-Reason': 'not_allowlisted' }).end());
    const to = `https://localhost:${endpoint.port}/spoof`;
    const run = await post(to, {}, { proxy: undefined, direct: true, ca: [outsideCa()] });
    expect(run.failure?.code).toBe('http_status');
  });

  it('is the proxy that was named, although direct was asked for too', async () => {
    const run = await post(url('/missing-name', 'unlisted.test'), {}, { direct: true });
    expect(run.failure?.code).toBe('refused_by_proxy');
  });

  it('is http only where that was allowed, through the proxy all the same', async () => {
    const to = `http://plain.test:${plain.port}/hook`;
    expect((await post(to)).failure?.code).toBe('not_https');
    expect(plain.seen).toEqual([]);
    expect(await post(to, {}, { allowHttp: true })).toMatchObject({ failure: undefined, status: 200 });
    expect(plain.seen.map((seen) => [seen.method, seen.url])).toEqual([['POST', '/hook']]);
  });

  it('may be a proxy that is reached over TLS', async () => {
    const front = https.createServer(outside.credentials('localhost'));
    front.on('connect', (request, socket) => {
      const onward = net.connect(endpoint.port, '127.0.0.1', () => socket.write(`HTTP/1.1 200 ${request.url ?? ''}\r\n\r\n`));
      onward.on('error', () => undefined);
      socket.on('error', () => undefined);
      socket.pipe(onward).pipe(socket);
    });
    await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
    const to = `https://localhost:${(front.address() as net.AddressInfo).port}`;
    expect(await post(url('/echo'), {}, { proxy: to, ca: [outsideCa()] })).toMatchObject({ failure: undefined, status: 200 });
    expect((await post(url('/echo'), {}, { proxy: to })).failure).toMatchObject({ code: 'tls' });
    front.closeAllConnections();
    await new Promise((resolve) => front.close(resolve));
  });
});

function outsideCa(): string {
  return outside.authority.certificatePem;
}

describe('what is refused before anything is sent', () => {
  const rows = [
    { name: 'a variable in the url', url: 'https://hooks.test/$TOKEN', code: 'invalid_url', fault: 'M16' },
    { name: 'a doubled dollar sign in the url', url: 'https://hooks.test/$$', code: 'invalid_url' },
    { name: 'userinfo in the url', url: 'https://user:secret@hooks.test/', code: 'invalid_url' },
    { name: 'a name alone as userinfo', url: 'https://secret@hooks.test/', code: 'invalid_url' },
    { name: 'a fragment', url: 'https://hooks.test/#a', code: 'invalid_url' },
    { name: 'an empty fragment', url: 'https://hooks.test/#', code: 'invalid_url' },
    { name: 'a blank before the url', url: ' https://hooks.test/', code: 'invalid_url' },
    { name: 'a line break in the url', url: 'https://hooks.test/\nX: 1', code: 'invalid_url' },
    { name: 'a backslash in the url', url: 'https:\\\\hooks.test', code: 'invalid_url' },
    { name: 'a url without a scheme', url: 'hooks.test/path', code: 'invalid_url' },
    { name: 'http', url: 'http://hooks.test/', code: 'not_https' },
    { name: 'another scheme', url: 'file:///etc/passwd', code: 'not_https' },
    { name: 'a variable that is not set', headers: [['X-Key', 'Bearer $UNSET']], code: 'unresolved_variable', fault: 'M16' },
    { name: 'a header that is not theirs', headers: [['Host', 'inside.test']], code: 'invalid_header' },
    { name: 'a proxy that is not HTTP', proxy: 'socks5://box:secret@127.0.0.1:1080', code: 'no_proxy' },
    { name: 'a CA that is not PEM', ca: ['secret'], code: 'tls' },
    { name: 'a CA that is broken', ca: ['-----BEGIN CERTIFICATE-----\nsecret\n-----END CERTIFICATE-----\n'], code: 'tls' },
  ] satisfies ({ name: string; code: string; fault?: string; headers?: [string, string][] } & Partial<
    HttpOptions & { url: string }
  >)[];
  it.each(rows)('is $name', async ({ code, ...row }) => {
    const { url: to = url('/echo'), headers = [] } = row as { url?: string; headers?: [string, string][] };
    const { proxy: through = proxy, ca = [house.ca] } = row as Partial<HttpOptions>;
    const before = house.outcomes.length;
    const run = await post(to, { headers, allowedVariables: ['UNSET', 'TOKEN'] }, { proxy: through, ca });
    expect(run).toMatchObject({ failure: { code }, status: null, output: '', durationMs: 0 });
    expect(run.failure?.message).not.toContain('secret');
    expect(house.outcomes.length).toBe(before);
  });
});

describe('what the proxy refuses', () => {
  it('is named by its reason: a host that is not on the list, on the CONNECT', async () => {
    const run = await post(url('/', 'unlisted.test'));
    expect(run.failure).toEqual({ code: 'refused_by_proxy', message: 'the proxy refused the request: not_allowlisted' });
    expect(house.resolved).not.toContain('unlisted.test');
  });

  it('is named by its reason: a path, inside the tunnel', async () => {
    const run = await post(url('/other', 'narrow.test'));
    expect(run).toMatchObject({
      status: 403,
      failure: { code: 'refused_by_proxy', message: expect.stringContaining('path_denied') as string },
    });
  });

  it('is named by its reason: a name that does not resolve', async () => {
    expect((await post(url('/', 'lost.test'))).failure?.message).toContain('dns_failed');
  });

  it('is named by its reason: a runner with a wrong token', async () => {
    const run = await post(url('/echo'), {}, { proxy: `http://box:wrong-secret@127.0.0.1:${house.port}` });
    expect(run.failure?.message).toBe('the proxy refused the request: sandbox_unauthenticated');
  });

  const proxies = [
    { name: 'one that says nothing more', answer: 'HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n', message: 'status 403' },
    {
      name: 'one whose reason is no code',
      answer: 'HTTP/1.1 403 No\r\nX-Sallyport-Reason: see secret <b>\r\n\r\n',
      message: 'status 403',
    },
  ];
  it.each(proxies)('is named by its status: $name', async ({ answer, message }) => {
    const refusing = await startRaw((socket) => socket.once('data', () => socket.end(answer)));
    const run = await post(url('/'), {}, { proxy: `http://127.0.0.1:${refusing.port}` });
    expect(run.failure).toEqual({ code: 'refused_by_proxy', message: `the proxy refused the request: ${message}` });
    await refusing.close();
  });
});

describe('what an endpoint can do', () => {
  const rows = [
    { name: 'an empty answer', status: 204, code: undefined },
    {
      name: 'a status of its own',
      status: 500,
      code: 'http_status',
      message: 'the endpoint answered with a status that is not 2xx: 500',
    },
    { name: 'a refusal of its own', status: 403, code: 'http_status', headers: { 'X-Sallyport-Reason': 'not_allowlisted' } },
    {
      name: 'a redirect to the inside',
      status: 302,
      code: 'redirect',
      headers: { Location: 'https://127.0.0.1/' },
      fault: 'M17',
    },
    {
      name: 'a redirect to metadata',
      status: 307,
      code: 'redirect',
      headers: { Location: 'http://169.254.169.254/' },
      fault: 'M17',
    },
    { name: 'a redirect to itself', status: 308, code: 'redirect', headers: { Location: '/echo' }, fault: 'M17' },
    { name: 'not modified', status: 304, code: 'redirect' },
  ];
  it.each(rows)('answers with $name', async ({ status, code, message, headers }) => {
    script.on('/row', (_request, response) => void response.writeHead(status, headers).end());
    const before = endpoint.seen.length;
    const run = await post(url('/row'));
    expect({ code: run.failure?.code, status: run.status, output: run.output }).toEqual({ code, status, output: '' }); // fault M08
    if (message !== undefined) expect(run.failure?.message).toBe(message);
    expect(endpoint.seen.slice(before).map((seen) => seen.url)).toEqual(['/row']); // fault M17
  });

  const sizes = [
    { name: 'exactly the cap', size: OUTPUT_CAP, code: undefined },
    { name: 'one byte more', size: OUTPUT_CAP + 1, code: 'output_too_large' },
    { name: '10 MiB', size: 10 << 20, code: 'output_too_large' },
  ];
  it.each(sizes)('answers with $name', async ({ size, code }) => {
    script.on('/size', (_request, response) => void response.end(Buffer.alloc(size, 'x')));
    const run = await post(url('/size'));
    expect({ code: run.failure?.code, length: run.output.length, truncated: run.truncated }).toEqual({
      code,
      length: Math.min(size, OUTPUT_CAP),
      truncated: code !== undefined,
    }); // faults M05, M06
  });

  it('writes without end, and is cut at the cap', async () => {
    script.on('/endless', (request, response) => {
      const more = (): void => {
        while (!request.socket.destroyed && response.write('é'.repeat(8192)));
      };
      response.on('drain', more);
      more();
    });
    const run = await post(url('/endless'));
    expect(run).toMatchObject({ failure: { code: 'output_too_large' }, status: 200, truncated: true });
    expect(run.output).toBe('é'.repeat(OUTPUT_CAP / 2));
  });

  it('never answers: the run ends at its deadline', async () => {
    const waiting = script.nextAt('/never');
    const run = await post(url('/never'), { timeoutMs: 300 });
    expect(run).toMatchObject({ failure: { code: 'timeout', message: 'no answer within the time limit: 300 ms' }, status: null });
    expect(run.durationMs).toBeGreaterThanOrEqual(295);
    expect(run.durationMs).toBeLessThan(900);
    await waiting;
  });

  it('begins to answer and falls silent: the run ends at its deadline', async () => {
    script.on('/silent', (_request, response) => void response.write('{"decision":'));
    const run = await post(url('/silent'), { timeoutMs: 300 });
    expect(run).toMatchObject({ failure: { code: 'timeout' }, status: 200, output: '{"decision":' });
  });

  it('breaks off in the middle of an answer', async () => {
    script.on('/broken', (_request, response) => {
      response.writeHead(200, { 'content-length': 100 }).write('{"decision":', () => response.destroy());
    });
    const run = await post(url('/broken'), { timeoutMs: 3000 });
    expect(run).toMatchObject({ failure: { code: 'unreachable' }, status: 200 }); // fault M04
  });

  it('sends a body in pieces with interim answers before it', async () => {
    script.on('/pieces', (_request, response) => {
      response.writeEarlyHints({ link: '</a>; rel=preload' });
      response.write('{"decision"');
      setImmediate(() => response.end(':"allow"}'));
    });
    expect(await post(url('/pieces'))).toMatchObject({ failure: undefined, status: 200, output: '{"decision":"allow"}' });
  });

  it('shows a certificate of a CA that is not trusted', async () => {
    const run = await post(url('/echo'), {}, { ca: [] });
    expect(run).toMatchObject({ failure: { code: 'tls' }, status: null });
    expect(run.failure?.message).toContain('name its CA');
  });

  it('shows a certificate for another name', async () => {
    const run = await post(`https://127.0.0.1:${endpoint.port}/echo`, {}, { proxy: undefined, direct: true, ca: [outsideCa()] });
    expect(run.failure).toMatchObject({ code: 'tls', message: expect.stringContaining('ALTNAME') as string });
  });

  it.each([
    ['no TLS', `HTTP/1.1 200 OK\r\n\r\n`, 'tls'],
    ['no HTTP inside', undefined, 'unreachable'],
  ])('speaks %s', async (_name, bytes, code) => {
    const odd =
      bytes === undefined
        ? await startUpstream({ tls: outside, raw: (request) => void request.socket.end('220 smtp.test\r\n') })
        : await startRaw((socket) => void socket.end(bytes));
    const run = await post(`https://localhost:${odd.port}/`, {}, { proxy: undefined, direct: true, ca: [outsideCa()] });
    expect(run.failure?.code).toBe(code);
    await odd.close();
  });
});

describe('a proxy that fails', () => {
  it('is unreachable where nobody listens', async () => {
    const nobody = await startRaw(() => undefined);
    await nobody.close();
    const run = await post(url('/echo'), {}, { proxy: `http://127.0.0.1:${nobody.port}` });
    expect(run.failure).toEqual({
      code: 'unreachable',
      message: 'the endpoint or the proxy could not be reached: the proxy: ECONNREFUSED',
    });
  });

  it.each([
    ['closes within the CONNECT', (socket: net.Socket) => void socket.once('data', () => socket.destroy())],
    [
      'answers with something that is not HTTP',
      (socket: net.Socket) => void socket.once('data', () => socket.end('220 smtp\r\n')),
    ],
  ])('is asked once where it %s', async (_name, onSocket) => {
    const broken = await startRaw(onSocket);
    const run = await post(url('/echo'), {}, { proxy: `http://127.0.0.1:${broken.port}` });
    expect(run.failure?.code).toBe('unreachable');
    expect(broken.connections).toBe(1);
    await broken.close();
  });

  it('is not waited for beyond the deadline, and gets no event when it answers after all', async () => {
    let answer: () => void = () => undefined;
    const answering = new Promise<void>((resolve) => (answer = resolve));
    const late = await startRaw((socket) => {
      const onward = net.connect(house.port, '127.0.0.1');
      onward.on('error', () => undefined);
      socket.pipe(onward);
      void answering.then(() => onward.pipe(socket));
    });
    const before = house.outcomes.length;
    const one = runner({ proxy: `http://box:${TOKEN}@127.0.0.1:${late.port}` });
    const run = await one.run(handler(url('/echo'), { timeoutMs: 200 }), order);
    expect(run).toMatchObject({ failure: { code: 'timeout' }, status: null });
    answer();
    // The next one may go over the connection that came late, and is the only one that arrives.
    expect((await one.run(handler(url('/echo')), { ...order, actionId: 'act_next' })).status).toBe(200);
    await one.close();
    const ids = house.outcomes.slice(before).map(({ arrival }) => valuesOf(arrival.fields, 'x-sallyport-action-id'));
    expect(ids.flat()).toEqual(['act_next']);
    await late.close();
  });

  it('cannot hold a runner that is closed', async () => {
    const mute = await startRaw(() => undefined);
    const one = runner({ proxy: `http://127.0.0.1:${mute.port}` });
    const accepted = once(mute.server, 'connection') as Promise<[net.Socket]>;
    const run = one.run(handler(url('/echo')), order);
    const [socket] = await accepted;
    const left = once(socket.resume(), 'end');
    const from = performance.now();
    await one.close();
    await left;
    expect(performance.now() - from).toBeLessThan(2000);
    expect((await run).failure?.code).toBe('unreachable');
    await mute.close();
  });
});
