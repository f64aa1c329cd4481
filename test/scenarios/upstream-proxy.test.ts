// A corporate proxy between Sallyport and the outside, through a whole house. Every name leads to an address of the public net, which
// nobody here can reach: whatever arrives at an upstream came through the proxy, and what the proxy did not hear of went nowhere.
import http from 'node:http';
import https from 'node:https';
import type net from 'node:net';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { CLIENT, startAuthorizationServer } from '../support/authorization-server.ts';
import { answering, silent, startCorporateProxy } from '../support/corporate-proxy.ts';
import type { CorporateProxy, CorporateProxyOptions } from '../support/corporate-proxy.ts';
import { startDeaf } from '../support/deaf-port.ts';
import { exchange, openSession } from '../support/http2-client.ts';
import { startHttp2Upstream } from '../support/http2-upstream.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { askAdmin, statusOf } from '../support/operator.ts';
import { countOf, openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { inside, verdictIn } from '../support/probes.ts';
import { ask, connectTo, openSecureTunnel } from '../support/sandbox-client.ts';
import type { Answer } from '../support/sandbox-client.ts';
import { squidMissing, startSquid } from '../support/squid.ts';

const PUBLIC = ['93.184.216.34'];
const TOKEN = 'marker-token-7702';
const PASSWORD = 'corporate-password-1';
const BASIC = `Basic ${Buffer.from(`ann:${PASSWORD}`).toString('base64')}`;

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
const closing: (() => unknown)[] = [];

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside });
  plain = await startUpstream();
});
afterAll(async () => {
  await Promise.all([secure.close(), plain.close(), outside.close()]);
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function corporate(options: CorporateProxyOptions = {}): Promise<CorporateProxy> {
  const leads = { 'api.test': secure.port, 'plain.test': plain.port, ...options.leads };
  const proxy = await startCorporateProxy({ credentials: `ann:${PASSWORD}`, ...options, leads });
  closing.push(() => proxy.close());
  return proxy;
}

/** A config with a rule for each name; `upstream.proxy` leads to the proxy with the right credentials where `over` says nothing else. */
function configOf(proxy: { readonly url: string }, over: object = {}, more: object = {}): object {
  return {
    upstream: { ca: [outside.caPath], proxy: { url: proxy.url, username: 'ann', password: PASSWORD, ...over } },
    credentials: { main: { type: 'bearer_token', token: TOKEN } },
    network: {
      denylist: [{ domain: 'denied.test' }],
      allowlist: [
        { domain: 'api.test', credential: 'main' },
        { domain: 'plain.test', transform: { Authorization: `Bearer ${TOKEN}` }, allow_plaintext: true },
        { domain: 'pass.test', tls: 'passthrough' },
        { domain: 'near.test', ports: [secure.port], addresses: LOOPBACK },
        { domain: '*' },
      ],
    },
    ...more,
  };
}

const NAMES = {
  'api.test': PUBLIC,
  'plain.test': PUBLIC,
  'pass.test': PUBLIC,
  'tokens.test': PUBLIC,
  'unknown.test': PUBLIC,
  'proxy.test': ['127.0.0.1'],
  'near.test': ['127.0.0.1'],
  'inside.test': ['10.0.0.1'],
  'mixed.test': [...PUBLIC, '10.0.0.1'],
  localhost: ['127.0.0.1'],
};

async function open(config: object): Promise<House> {
  const house = await startHouse(config, { names: NAMES });
  closing.push(() => house.stop());
  return house;
}

async function through(options: CorporateProxyOptions = {}, over: object = {}, more: object = {}) {
  const proxy = await corporate(options);
  return { proxy, house: await open(configOf(proxy, over, more)) };
}

/** Opens a tunnel to nowhere. */
function opened(socket: Duplex): void {
  socket.write('HTTP/1.1 200 OK\r\n\r\n');
  silent(socket);
}

/** Code and detail of a refusal of ours, without its request id. */
function said(answer: Answer): string {
  const { detail } = JSON.parse(answer.body) as { readonly detail: string };
  return `${answer.status} ${answer.headers['x-sallyport-reason'] ?? ''}: ${detail}`;
}

describe('through a corporate proxy', () => {
  it('an exchange over TLS goes by CONNECT, its credential seen by the upstream and by nobody between', async () => {
    const { proxy, house } = await through();
    const before = secure.seen.length;
    expect(verdictIn(await ask(house, 'https://api.test/hello'))).toBe('200 from the upstream');
    expect(proxy.asked).toEqual(['CONNECT api.test:443']);
    expect(proxy.fields[0]).toEqual(['Host', 'api.test:443', 'Proxy-Authorization', BASIC]);
    const seen = secure.seen[before];
    expect([seen?.url, valuesOf(seen?.fields ?? [], 'authorization')]).toEqual(['/hello', [`Bearer ${TOKEN}`]]);
    expect(countOf(seen?.fields ?? [], 'proxy-authorization')).toBe(0);
    expect(proxy.through.length).toBeGreaterThan(500);
    expect(proxy.through + JSON.stringify([proxy.asked, proxy.fields])).not.toContain(TOKEN);
    const outcome = await house.outcome(({ trace }) => trace.status === 200);
    expect([outcome.trace.address, outcome.decision, outcome.trace.connectMs >= 0]).toEqual(['127.0.0.1', 'allow', true]);
  });

  it('an exchange over plain HTTP goes by CONNECT as well, its credentials at their ends', async () => {
    const { proxy, house } = await through();
    const before = plain.seen.length;
    expect(verdictIn(await ask(house, 'http://plain.test/a?b=1', { fields: 'Proxy-Authorization: Basic own\r\n' }))).toBe(
      '200 from the upstream',
    );
    expect(proxy.asked).toEqual(['CONNECT plain.test:80']);
    const { url, fields } = plain.seen[before] ?? { url: '', fields: [] };
    expect([url, valuesOf(fields, 'host'), countOf(fields, 'proxy-authorization')]).toEqual(['/a?b=1', ['plain.test'], 0]);
  });

  it.each(['http://[2606:2800:220:1::1]/', 'http://93.184.216.34/'])('an address is asked for as it stands: %s', async (url) => {
    const { host } = new URL(url);
    const { proxy, house } = await through({ leads: { [`${host}:80`]: plain.port } });
    expect(verdictIn(await ask(house, url))).toBe('200 from the upstream');
    expect([proxy.asked, house.resolved]).toEqual([[`CONNECT ${host}:80`], []]);
  });

  it('HTTP/2 is agreed on inside, and one tunnel carries the exchanges of a session', async () => {
    const upstream = await startHttp2Upstream({ tls: outside });
    closing.push(() => upstream.close());
    const { proxy, house } = await through({ leads: { 'api.test': upstream.port } });
    const session = await openSession(house, 'api.test:443');
    const paths = ['/one', '/two', '/three'];
    const answers = await Promise.all(
      paths.map((path) => exchange(session, { ':method': 'GET', ':path': path, ':authority': 'api.test', ':scheme': 'https' })),
    );
    session.close();
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect(upstream.seen.map(({ path, spoken }) => `${path} ${spoken}`).sort()).toEqual(['/one h2', '/three h2', '/two h2']);
    expect(valuesOf(upstream.seen[0]?.fields ?? [], 'authorization')).toEqual([`Bearer ${TOKEN}`]);
    expect(proxy.asked).toEqual(['CONNECT api.test:443']);
  });

  it.each([
    { name: 'wss', secured: true, asked: 'CONNECT api.test:443' },
    { name: 'ws', secured: false, asked: 'CONNECT plain.test:80' },
    { name: 'ws beside requests that are forwarded', secured: false, asked: 'CONNECT plain.test:80', forward: true },
  ])('a WebSocket goes by a tunnel: $name', async ({ secured, asked, forward = false }) => {
    const servers = new WebSocketServer({ noServer: true });
    servers.on('connection', (client) => client.on('message', (data, isBinary) => client.send(data, { binary: isBinary })));
    const onUpgrade = (request: http.IncomingMessage, socket: Duplex, head: Buffer): void =>
      servers.handleUpgrade(request, socket, head, (client) => servers.emit('connection', client, request));
    const upstream = secured ? secure : plain;
    upstream.server.on('upgrade', onUpgrade);
    closing.push(() => {
      upstream.server.off('upgrade', onUpgrade);
      servers.close();
    });
    const { proxy, house } = await through({}, forward ? { plain_http: 'forward' } : {});
    // What stands idle after it takes no upgrade.
    if (forward) expect((await ask(house, 'http://plain.test/')).status).toBe(200);
    const host = secured ? 'api.test' : 'plain.test';
    const stream = secured ? await openSecureTunnel(house, 'api.test:443') : await connectTo(house.port);
    const agent = secured ? new https.Agent() : new http.Agent();
    agent.createConnection = () => stream;
    const client = new WebSocket(`${secured ? 'wss' : 'ws'}://${host}/chat`, {
      agent,
      finishRequest: (request: http.ClientRequest) => {
        if (!secured) request.path = `http://${host}/chat`;
        request.end();
      },
    });
    await once(client, 'open');
    client.send('through');
    expect(String((await once(client, 'message'))[0])).toBe('through');
    client.terminate();
    expect(proxy.asked.at(-1)).toBe(asked);
  });

  it('a passed-through tunnel goes by CONNECT, and shows the upstream’s own certificate', async () => {
    // fault H05
    const { proxy, house } = await through({ leads: { 'pass.test': secure.port } });
    const stream = await openSecureTunnel({ port: house.port, ca: outside.authority.certificatePem }, 'pass.test:443');
    expect(verdictIn(await inside(stream, 'pass.test'))).toBe('200 from the upstream');
    stream.destroy();
    const outcome = await house.outcome(({ arrival }) => arrival.purpose === 'passthrough');
    expect([outcome.decision, outcome.trace.bytesSent > 100, proxy.asked]).toEqual(['allow', true, ['CONNECT pass.test:443']]);
  });

  it('a token endpoint is reached by CONNECT too', async () => {
    const tokens = await startAuthorizationServer(outside);
    closing.push(() => tokens.close());
    const credentials = {
      main: { type: 'oauth2', ...CLIENT, refresh_token: 'refresh-0', token_url: 'https://tokens.test/token' },
    };
    const { proxy, house } = await through({ leads: { 'tokens.test': tokens.port } }, {}, { credentials });
    const before = secure.seen.length;
    await expect.poll(async () => (await ask(house, 'https://api.test/')).status).toBe(200);
    expect(valuesOf(secure.seen[before]?.fields ?? [], 'authorization')).toEqual(['Bearer access-1']);
    expect(proxy.asked).toContain('CONNECT tokens.test:443');
    expect(proxy.through).not.toContain('refresh-0');
  });

  it('TLS is spoken with the proxy itself where its url says so, and verified by upstream.ca', async () => {
    const proxy = await corporate({ tls: outside });
    const house = await open(configOf(proxy));
    expect(verdictIn(await ask(house, 'https://api.test/'))).toBe('200 from the upstream');
    expect(verdictIn(await ask(house, 'http://plain.test/'))).toBe('200 from the upstream');
    expect(proxy.asked).toEqual(['CONNECT api.test:443', 'CONNECT plain.test:80']);
    const stranger = await openOutside();
    closing.push(() => stranger.close());
    const other = await corporate({ tls: stranger });
    await house.reconfigure(configOf(other));
    expect(said(await ask(house, 'https://api.test/'))).toBe(
      '502 upstream_connect: the TLS handshake with the corporate proxy failed',
    );
    expect(other.asked).toEqual([]);
  });

  it('a warm connection asks the proxy once', async () => {
    const { proxy, house } = await through();
    const tunnel = await openSecureTunnel(house, 'api.test:443');
    for (const path of ['/1', '/2', '/3']) expect((await inside(tunnel, 'api.test', { path })).status).toBe(200);
    tunnel.destroy();
    expect((await ask(house, 'https://api.test/4')).status).toBe(200);
    expect([proxy.asked, house.resolved]).toEqual([['CONNECT api.test:443'], ['api.test']]);
  });

  it('hosts of no_proxy are dialled directly', async () => {
    const { proxy, house } = await through({}, { no_proxy: ['near.test'] });
    expect(verdictIn(await ask(house, `https://near.test:${secure.port}/`))).toBe('200 from the upstream');
    expect(proxy.connections).toBe(0);
  });

  it('an origin is verified from end to end: who stands behind the proxy with another certificate is told', async () => {
    // fault H03
    const stranger = await openOutside();
    const between = await startUpstream({ tls: stranger });
    closing.push(
      () => stranger.close(),
      () => between.close(),
    );
    const { house } = await through({ leads: { 'api.test': between.port } });
    expect(verdictIn(await ask(house, 'https://api.test/'))).toContain('upstream_tls');
    expect(between.seen).toEqual([]);
  });
});

describe('in absolute-form', () => {
  const FORWARD = { plain_http: 'forward' };

  it('requests over plain HTTP go to a proxy that opens no tunnel to port 80', async () => {
    // fault H04
    const { proxy, house } = await through({ tunnelPorts: [443] }, FORWARD);
    const before = plain.seen.length;
    const url = 'http://plain.test/a?b=1';
    const answer = await ask(house, url, { method: 'POST', fields: 'Content-Length: 4\r\n', body: 'body' });
    expect(verdictIn(answer)).toBe('200 from the upstream');
    expect(verdictIn(await ask(house, 'http://plain.test/again'))).toBe('200 from the upstream');
    expect(proxy.asked).toEqual(['POST http://plain.test:80/a?b=1', 'GET http://plain.test:80/again']);
    expect(proxy.connections).toBe(1);
    expect(proxy.fields.map((fields) => valuesOf(fields, 'proxy-authorization'))).toEqual([[BASIC], [BASIC]]);
    const { url: path, body, fields } = plain.seen[before] ?? { url: '', body: '', fields: [] };
    expect([path, body, valuesOf(fields, 'authorization'), countOf(fields, 'proxy-authorization')]).toEqual([
      '/a?b=1',
      'body',
      [`Bearer ${TOKEN}`],
      0,
    ]);
    expect(verdictIn(await ask(house, 'https://api.test/'))).toBe('200 from the upstream');
    expect(proxy.asked.at(-1)).toBe('CONNECT api.test:443');
  });

  it('the challenge of the proxy is a fault of ours and goes no further', async () => {
    const { house } = await through({}, { ...FORWARD, password: 'wrong' });
    const answer = await ask(house, 'http://plain.test/');
    expect(said(answer)).toBe('502 upstream_connect: the corporate proxy wants other credentials (407)');
    expect(JSON.stringify(answer)).not.toMatch(/corporate-page|realm/);
  });

  it('without it, the refusal of a tunnel to port 80 names the remedy', async () => {
    const { house } = await through({ tunnelPorts: [443] });
    expect(said(await ask(house, 'http://plain.test/'))).toBe(
      '502 upstream_connect: the corporate proxy refused to connect to the upstream (403); where it opens none to port 80, set upstream.proxy.plain_http to forward',
    );
  });
});

describe('what is refused', () => {
  it.each([
    { name: 'a name that the denylist holds', url: 'https://denied.test/', verdict: 'denylisted', resolved: [] },
    { name: 'a name inside the walls', url: 'https://inside.test/', verdict: 'address_denied', resolved: ['inside.test'] },
    { name: 'one address inside among others', url: 'http://mixed.test/', verdict: 'address_denied', resolved: ['mixed.test'] }, // fault A25
    { name: 'an address inside', url: 'http://10.0.0.1/', verdict: 'address_denied', resolved: [] },
    { name: 'the metadata address', url: 'http://169.254.169.254/', verdict: 'address_denied', resolved: [] },
    { name: 'loopback', url: 'http://127.0.0.1/', verdict: 'address_denied', resolved: [] },
    { name: 'loopback by its name', url: 'http://localhost/', verdict: 'address_denied', resolved: ['localhost'] },
    { name: 'a name that does not resolve here', url: 'https://far.test/', verdict: 'dns_failed', resolved: ['far.test'] },
  ])('is told to nobody: $name', async ({ url, verdict, resolved }) => {
    const { proxy, house } = await through();
    expect(verdictIn(await ask(house, url))).toContain(verdict);
    expect([proxy.connections, house.resolved]).toEqual([0, resolved]);
  });

  it('with resolve: there, a name is left to the proxy, but for one of its own network and one that resolves inside', async () => {
    const { proxy, house } = await through({ leads: { 'far.test': secure.port } }, { resolve: 'there' });
    expect(verdictIn(await ask(house, 'https://far.test/'))).toBe('200 from the upstream');
    for (const url of ['http://metadata.google.internal/', 'https://inside.test/', 'http://x.localhost/', 'http://10.0.0.1/']) {
      expect(verdictIn(await ask(house, url)), url).toContain('address_denied');
    }
    expect(verdictIn(await ask(house, 'https://denied.test/'))).toContain('denylisted');
    expect(proxy.asked).toEqual(['CONNECT far.test:443']);
    expect(house.resolved).not.toContain('denied.test');
  });

  it('with connect_by: address, the proxy is held to the address that was judged', async () => {
    const { proxy, house } = await through({ leads: { '93.184.216.34:443': secure.port } }, { connect_by: 'address' });
    expect(verdictIn(await ask(house, 'https://api.test/'))).toBe('200 from the upstream');
    expect(proxy.asked).toEqual(['CONNECT 93.184.216.34:443']);
  });

  it('a proxy that is this proxy itself is never dialled', async () => {
    // fault B16
    const { house } = await through();
    for (const url of [`http://127.0.0.1:${house.port}`, `http://localhost:${house.adminPort}`]) {
      await house.reconfigure(configOf({ url }));
      expect(said(await ask(house, 'https://api.test/'))).toBe(
        '403 address_denied: the corporate proxy that is configured is a listener of this proxy itself',
      );
    }
  });
});

describe('what goes wrong on the way is told apart', () => {
  it.each([
    {
      name: 'wrong credentials',
      options: { credentials: 'ann:other' },
      detail: 'the corporate proxy wants other credentials (407)',
    },
    {
      name: 'no way to the upstream',
      options: {},
      detail: 'the corporate proxy could not reach the upstream (502)',
      to: 'unknown',
    },
    {
      name: 'a refusal',
      options: { answer: answering('HTTP/1.1 403 Forbidden\r\nContent-Length: 14\r\n\r\ncorporate-page') },
      detail: 'the corporate proxy refused to connect to the upstream (403)',
    },
    {
      name: 'garbage',
      options: { answer: answering('corporate-page') },
      detail: 'the corporate proxy answered with something that is not HTTP',
    },
    {
      name: 'an end without an answer',
      options: { answer: answering('') },
      detail: 'the corporate proxy closed the connection before it had answered',
    },
  ])('$name', async ({ options, detail, to = 'api' }) => {
    const { house } = await through(options);
    const answer = await ask(house, `https://${to}.test/`);
    expect(said(answer)).toBe(`502 upstream_connect: ${detail}`);
    expect(JSON.stringify(answer)).not.toContain('corporate-page'); // fault D08
    const outcome = await house.outcome(({ decision }) => decision === 'fault');
    expect(outcome.verdict?.code).toBe('upstream_connect');
  });

  it('no credentials where some are wanted', async () => {
    const proxy = await corporate();
    const house = await open(configOf(proxy, { username: undefined, password: undefined }));
    expect(said(await ask(house, 'https://api.test/'))).toBe(
      '502 upstream_connect: the corporate proxy wants credentials, and none are configured (407)',
    );
    expect(countOf(proxy.fields[0] ?? [], 'proxy-authorization')).toBe(0);
  });

  it('a proxy that is not there, or whose name is unknown', async () => {
    const { proxy, house } = await through();
    await proxy.close();
    expect(said(await ask(house, 'https://api.test/'))).toBe('502 upstream_connect: the corporate proxy could not be reached');
    await house.reconfigure(configOf({ url: 'http://gone.test:3128' }));
    expect(said(await ask(house, 'https://api.test/'))).toBe(
      '502 upstream_connect: the name of the corporate proxy could not be resolved',
    );
  });

  it('a proxy that does not answer, or takes no connection up, within limits.timeouts.connect', async () => {
    const limits = { timeouts: { connect: '200ms' } };
    const { house } = await through({ answer: silent }, {}, { limits });
    expect(said(await ask(house, 'https://api.test/'))).toBe(
      '504 upstream_timeout: the corporate proxy did not open the connection in time',
    );
    const deaf = await startDeaf();
    closing.push(() => deaf.close());
    await house.reconfigure(configOf({ url: `http://127.0.0.1:${deaf.port}` }, {}, { limits }));
    expect(said(await ask(house, 'https://api.test/'))).toBe(
      '504 upstream_timeout: the corporate proxy was not reached within 200 ms',
    );
  });

  it('an upstream that is silent inside its tunnel is the upstream’s fault', async () => {
    const limits = { timeouts: { connect: '300ms' } };
    const { house } = await through({ answer: opened }, {}, { limits });
    expect(said(await ask(house, 'https://api.test/'))).toBe(
      '504 upstream_timeout: the TLS handshake with the upstream took too long',
    );
  });

  it('bytes right behind the 200 are the tunnel’s, and no answer to anything', async () => {
    const { proxy, house } = await through({ behind: 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno' });
    expect(verdictIn(await ask(house, 'https://api.test/'))).toContain('upstream_tls');
    const answer = await ask(house, 'http://plain.test/');
    expect(answer.body).not.toBe('no');
    expect(verdictIn(answer)).toContain('upstream_protocol');
    expect(proxy.asked.length).toBeGreaterThanOrEqual(2);
  });

  it('a sandbox that leaves while the proxy is asked leaves no connection behind', async () => {
    const { proxy, house } = await through({ answer: silent });
    const socket: net.Socket = await connectTo(house.port);
    socket.write('GET http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n\r\n');
    await expect.poll(() => proxy.asked.length).toBe(1);
    socket.destroy();
    await expect.poll(() => proxy.open).toBe(0);
  });
});

describe('a reload', () => {
  it('leads to another proxy at once: idle connections through the last one are gone, those in use end after their exchange', async () => {
    const [first, second] = [await corporate(), await corporate()];
    const house = await open(configOf(first));
    const tunnel = await openSecureTunnel(house, 'api.test:443');
    expect((await inside(tunnel, 'api.test')).status).toBe(200);
    await house.reconfigure(configOf(second));
    await expect.poll(() => first.open).toBe(0);
    expect((await inside(tunnel, 'api.test')).status).toBe(200);
    tunnel.destroy();
    expect([first.asked.length, second.asked.length]).toEqual([1, 1]);
  });

  it('takes a rotated password from its file, and a bad config keeps the proxy', async () => {
    const proxy = await corporate();
    const password = { file: 'set-below' };
    const house = await open({ ...configOf(proxy), upstream: { ca: [outside.caPath] } });
    password.file = join(house.folder, 'password');
    await writeFile(password.file, 'stale', { mode: 0o600 });
    await house.reconfigure(configOf(proxy, { password }));
    expect(said(await ask(house, 'https://api.test/'))).toContain('wants other credentials');
    await writeFile(password.file, PASSWORD, { mode: 0o600 });
    await house.app.reload();
    expect((await ask(house, 'https://api.test/')).status).toBe(200);
    await house.reconfigure(configOf({ url: `http://ann:${PASSWORD}@127.0.0.1:1` }));
    expect((await ask(house, 'https://api.test/again')).status).toBe(200);
    expect(house.logged.join()).toContain('upstream.proxy.url: holds an \\"@\\"');
    expect(house.logged.join()).not.toContain(PASSWORD);
  });

  it('shows the password nowhere', async () => {
    const { house } = await through({ credentials: 'ann:other' });
    const answers = [await ask(house, 'https://api.test/'), await ask(house, 'http://plain.test/')];
    const shown = JSON.stringify([
      answers,
      await statusOf(house),
      (await askAdmin(house, '/v1/explain', { method: 'GET', url: 'https://api.test/' })).text,
      await house.scrape(),
      await house.audit(),
      house.logged,
    ]);
    expect(shown).not.toMatch(new RegExp(`${PASSWORD}|${BASIC.slice(6)}`));
  });
});

const missing = squidMissing();
describe(`Squid as the corporate proxy${missing === undefined ? '' : ` (skipped: ${missing})`}`, () => {
  it.skipIf(missing !== undefined)(
    'opens tunnels, forwards plain HTTP where it opens none, and wants its credentials',
    async () => {
      const hosts = ['api.test', 'plain.test'];
      const squid = await startSquid({ credentials: `ann:${PASSWORD}`, hosts, tunnelPort: secure.port });
      closing.push(() => squid.close());
      const url = `http://127.0.0.1:${squid.port}`;
      const network = {
        allowlist: [{ domain: '*', ports: [secure.port, plain.port], credential: 'main', allow_plaintext: true }],
      };
      const house = await open(configOf({ url }, {}, { network }));
      const over = { tls: `https://api.test:${secure.port}/`, plain: `http://plain.test:${plain.port}/` };
      const before = secure.seen.length;
      expect(verdictIn(await ask(house, over.tls))).toBe('200 from the upstream');
      expect(valuesOf(secure.seen[before]?.fields ?? [], 'authorization')).toEqual([`Bearer ${TOKEN}`]);
      // fault H04
      expect(said(await ask(house, over.plain))).toContain('the corporate proxy refused to connect to the upstream (403)');
      await house.reconfigure(configOf({ url }, { plain_http: 'forward' }, { network }));
      expect(verdictIn(await ask(house, over.plain))).toBe('200 from the upstream');
      const seen = plain.seen.at(-1)?.fields ?? [];
      expect([valuesOf(seen, 'authorization'), countOf(seen, 'proxy-authorization')]).toEqual([[`Bearer ${TOKEN}`], 0]);
      expect(said(await ask(house, `https://unknown.test:${secure.port}/`))).toMatch(
        /the corporate proxy could not reach the upstream \(50\d\)/,
      );
      for (const plain_http of ['connect', 'forward']) {
        await house.reconfigure(configOf({ url }, { password: 'wrong', plain_http }, { network }));
        expect(said(await ask(house, plain_http === 'forward' ? over.plain : over.tls))).toContain(
          'wants other credentials (407)',
        );
      }
      const log = await squid.log();
      expect(log).toContain(`CONNECT api.test:${secure.port}`);
      expect(log).not.toContain(TOKEN);
    },
  );
});
