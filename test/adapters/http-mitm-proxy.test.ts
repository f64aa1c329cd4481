// What the adapter alone must hold: the ways around the judgement that the engine would open, and the ends it would leave loose.
// That both engines judge alike is the oracle's business (test/scenarios/oracle.test.ts).
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tls from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startCorporateProxy } from '../support/corporate-proxy.ts';
import { LOOPBACK } from '../support/house.ts';
import { startMitmHouse } from '../support/mitm-house.ts';
import type { MitmHouse } from '../support/mitm-house.ts';
import { countOf, openOutside, startRaw, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { ask, connectTo, openSecureTunnel, openTunnel, readAnswer, sendRaw } from '../support/sandbox-client.ts';

let folder: string;
let configPath: string;
let outside: Outside;
let secure: Upstream;
let plain: Upstream;
let scripted: Upstream;
/** What the scripted upstream says to its next connection's first bytes */
let script = '';
let mitm: MitmHouse;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'adapter-'));
  configPath = join(folder, 'sallyport.json');
  outside = await openOutside();
  secure = await startUpstream({ tls: outside });
  plain = await startUpstream();
  scripted = await startRaw((socket) => {
    socket.once('data', () => {
      if (script === '') return;
      socket.write(script, 'latin1');
      socket.end();
    });
  });
  await configure();
  mitm = await startMitmHouse(configPath, {
    names: Object.fromEntries(['api', 'plain', 'script', 'pinned', 'self'].map((host) => [`${host}.test`, ['127.0.0.1']])),
  });
});

afterAll(async () => {
  await mitm.stop();
  await Promise.all([secure.close(), plain.close(), scripted.close(), outside.close()]);
  await rm(folder, { recursive: true, force: true });
});

async function configure(more: object = {}, rules: readonly object[] = []): Promise<void> {
  const allowlist = [
    { domain: 'api.test', ports: [secure.port], addresses: LOOPBACK, transform: { Authorization: 'Bearer operator' } },
    { domain: 'plain.test', ports: [plain.port], addresses: LOOPBACK },
    { domain: 'script.test', ports: [scripted.port], addresses: LOOPBACK },
    { domain: 'pinned.test', addresses: LOOPBACK, tls: 'passthrough' },
    { domain: '*' },
    ...rules,
  ];
  const limits = { timeouts: { reply: '300ms' } };
  await writeFile(configPath, JSON.stringify({ upstream: { ca: [outside.caPath] }, network: { allowlist }, limits, ...more }));
}

/** Runs with another config, and puts the usual one back. */
async function reconfigured(more: object, rules: readonly object[], body: () => Promise<void>): Promise<void> {
  await configure(more, rules);
  await mitm.reload();
  try {
    await body();
  } finally {
    await configure();
    await mitm.reload();
  }
}

describe('the ways around', () => {
  it('refuses what comes to a listener of the engine without a tunnel', async () => {
    const answer = await ask(mitm, `https://api.test:${secure.port}/`);
    expect(answer.status).toBe(200);
    const port = mitm.proxy.sslServers['api.test']?.port ?? 0;
    const authority = `api.test:${secure.port}`;
    const before = secure.connections;
    for (const target of ['GET /', `GET https://${authority}/`, `CONNECT ${authority}`]) {
      const direct = tls.connect({ port, host: '127.0.0.1', servername: 'api.test', ca: mitm.ca });
      direct.write(`${target} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
      expect((await readAnswer(direct)).headers['x-sallyport-reason']).toBe('bad_request');
      direct.destroy();
    }
    expect(secure.connections).toBe(before);
  });

  it("lets nothing lead to the engine's own listeners, whatever a rule opens", async () => {
    await ask(mitm, `https://api.test:${secure.port}/`);
    const inner = mitm.proxy.sslServers['api.test']?.port ?? 0;
    const rule = { domain: 'self.test', ports: [mitm.port, inner], addresses: LOOPBACK };
    await reconfigured({}, [rule], async () => {
      for (const port of [mitm.port, inner]) {
        const answer = await ask(mitm, `http://self.test:${port}/`);
        expect([answer.status, answer.headers['x-sallyport-reason']]).toEqual([403, 'address_denied']);
      }
    });
  });

  it('refuses a tunnel that would have to pass uninspected', async () => {
    const { answer } = await openTunnel(mitm, 'pinned.test:443');
    expect([answer.status, answer.headers['x-sallyport-reason']]).toEqual([400, 'bad_request']);
  });

  it('refuses an IPv6 authority that policy allows', async () => {
    const { answer } = await openTunnel(mitm, '[2606:4700::1111]:443');
    expect([answer.status, answer.headers['x-sallyport-reason']]).toEqual([400, 'bad_request']);
  });

  it('refuses a ClientHello that names another host than its tunnel', async () => {
    const secured = await openSecureTunnel(mitm, `api.test:${secure.port}`, {
      servername: 'plain.test',
      tls: { rejectUnauthorized: false },
    });
    secured.write(`GET / HTTP/1.1\r\nHost: api.test:${secure.port}\r\n\r\n`);
    expect((await readAnswer(secured)).status).toBe(421);
    secured.destroy();
  });

  it('refuses a CONNECT inside a tunnel that is not encrypted', async () => {
    const { socket } = await openTunnel(mitm, `plain.test:${plain.port}`);
    socket.write('CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n');
    expect((await readAnswer(socket, 'CONNECT')).headers['x-sallyport-reason']).toBe('bad_request');
    socket.destroy();
  });

  it('takes a sandbox for no tunnel whose port numbers it shares', async () => {
    const { socket } = await openTunnel(mitm, `plain.test:${plain.port}`);
    socket.write(`GET / HTTP/1.1\r\nHost: plain.test:${plain.port}\r\n\r\n`);
    expect((await readAnswer(socket)).status).toBe(200);
    const key = Object.keys(mitm.proxy.connectRequests).find((ports) => ports.endsWith(`:${mitm.port}`));
    const localPort = Number(key?.split(':')[0]);
    const twin = net.connect({ port: mitm.port, host: '127.0.0.1', localAddress: '127.0.0.2', localPort });
    twin.write(`GET / HTTP/1.1\r\nHost: plain.test:${plain.port}\r\n\r\n`);
    expect((await readAnswer(twin)).headers['x-sallyport-reason']).toBe('bad_request');
    twin.destroy();
    socket.destroy();
  });

  it('knows a sandbox by the token of its CONNECT, and refuses without one', async () => {
    const token = 'a-token-of-some-length';
    const basic = Buffer.from(`one:${token}`).toString('base64');
    await reconfigured({ sandboxes: { one: { token } } }, [], async () => {
      const before = mitm.outcomes.length;
      const url = `https://api.test:${secure.port}/`;
      expect((await ask(mitm, url)).status).toBe(407);
      expect((await ask(mitm, url, { tunnelFields: `Proxy-Authorization: Basic ${basic}\r\n` })).status).toBe(200);
      await mitm.outcome(({ arrival }) => arrival.purpose === 'exchange', before);
      expect(mitm.outcomes.slice(before).map(({ trace }) => trace.sandbox)).toEqual(['', 'one']);
    });
  });

  it('judges by the config in force at each request', async () => {
    const socket = await openSecureTunnel(mitm, `api.test:${secure.port}`);
    await reconfigured({ network: 'disabled' }, [], async () => {
      socket.write(`GET / HTTP/1.1\r\nHost: api.test:${secure.port}\r\n\r\n`);
      expect((await readAnswer(socket)).headers['x-sallyport-reason']).toBe('not_allowlisted');
    });
    socket.destroy();
  });

  it('goes through the corporate proxy that the config names', async () => {
    const proxy = await startCorporateProxy({ leads: { 'api.test': secure.port, 'plain.test': plain.port } });
    const upstream = { ca: [outside.caPath], proxy: { url: proxy.url } };
    try {
      await reconfigured({ upstream }, [], async () => {
        expect((await ask(mitm, `https://api.test:${secure.port}/`)).status).toBe(200);
        expect((await ask(mitm, `http://plain.test:${plain.port}/`)).status).toBe(200);
      });
      expect(proxy.asked).toEqual([`CONNECT api.test:${secure.port}`, `CONNECT plain.test:${plain.port}`]);
    } finally {
      await proxy.close();
    }
  });
});

describe('the loose ends', () => {
  const url = (): string => `http://script.test:${scripted.port}/`;

  it('cuts an answer that breaks off, and adds nothing to it', async () => {
    script = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n';
    const socket = await connectTo(mitm.port);
    const before = mitm.outcomes.length;
    socket.write(`GET ${url()} HTTP/1.1\r\nHost: script.test:${scripted.port}\r\n\r\n`);
    const text = await everythingFrom(socket);
    expect(text).toContain('half');
    expect(text).not.toMatch(/error|0\r\n\r\n$/i);
    expect((await mitm.outcome(() => true, before)).verdict?.code).toBe('upstream_protocol');
  });

  it.each([
    { name: 'a status below 200 that is no interim one', answer: 'HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n' },
    { name: 'a protocol that nobody asked for', answer: 'HTTP/1.1 101 Switch\r\nConnection: upgrade\r\nUpgrade: odd\r\n\r\n' },
    { name: 'something that is not HTTP', answer: 'SMTP ready\r\n\r\n' },
  ])('answers 502 with our reason for $name', async ({ answer }) => {
    script = answer;
    const got = await ask(mitm, url());
    expect([got.status, got.headers['x-sallyport-reason']]).toEqual([502, 'upstream_protocol']);
    expect(got.body).not.toMatch(/HPE_|ECONN|Error:/);
  });

  it('trusts the roots that the machine names beside those of upstream.ca', async () => {
    const machine = await openOutside();
    const upstream = await startUpstream({ tls: machine });
    const path = join(folder, 'machine.json');
    const allowlist = [{ domain: 'api.test', ports: [upstream.port], addresses: LOOPBACK }];
    await writeFile(path, JSON.stringify({ upstream: { ca: [outside.caPath] }, network: { allowlist } }));
    const names = { 'api.test': ['127.0.0.1'] };
    for (const [env, status] of [
      [{}, 502],
      [{ NODE_EXTRA_CA_CERTS: machine.caPath }, 200],
    ] as const) {
      const other = await startMitmHouse(path, { names, env });
      expect((await ask(other, `https://api.test:${upstream.port}/`)).status).toBe(status);
      await other.stop();
    }
    await Promise.all([upstream.close(), machine.close()]);
  });

  it('answers 504 for an upstream that stays silent', async () => {
    script = '';
    const got = await ask(mitm, url());
    expect([got.status, got.headers['x-sallyport-reason']]).toEqual([504, 'upstream_timeout']);
  });

  it('answers with nothing but our refusal while an upload is still coming in', async () => {
    script = 'SMTP ready\r\n\r\n';
    const socket = await connectTo(mitm.port);
    const head = `POST ${url()} HTTP/1.1\r\nHost: script.test:${scripted.port}\r\nContent-Length: 500000\r\n\r\n`;
    socket.write(head + 'x'.repeat(1000));
    const text = await everythingFrom(socket);
    expect(text).toMatch(/^HTTP\/1\.1 502 /);
    expect(JSON.parse(text.slice(text.indexOf('\r\n\r\n')))).toMatchObject({ code: 'upstream_protocol' });
  });

  it('announces no trailers, for the engine carries none', async () => {
    script = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n';
    const got = await ask(mitm, url());
    expect([got.body, countOf(got.fields, 'trailer'), got.trailers]).toEqual(['ok', 0, []]);
  });

  it('lets the upstream go when the sandbox leaves', async () => {
    script = '';
    const before = mitm.outcomes.length;
    const reached = new Promise<net.Socket>((resolve) => scripted.server.once('connection', resolve));
    const socket = await connectTo(mitm.port);
    socket.write(`GET ${url()} HTTP/1.1\r\nHost: script.test:${scripted.port}\r\n\r\n`);
    const upstream = await reached;
    const closed = new Promise((resolve) => upstream.once('end', resolve).once('close', resolve));
    socket.destroy();
    await closed;
    upstream.destroy();
    const { decision, verdict } = await mitm.outcome(() => true, before);
    expect([decision, verdict?.code]).toEqual(['fault', 'client_closed']);
  });

  it('leaves one line for a tunnel that carried nothing', async () => {
    const before = mitm.outcomes.length;
    const { socket } = await openTunnel(mitm, `api.test:${secure.port}`);
    socket.destroy();
    const outcome = await mitm.outcome(() => true, before);
    expect([outcome.arrival.purpose, outcome.verdict?.code]).toEqual(['tunnel', 'client_closed']);
  });

  it('refuses everything once it is closed', async () => {
    const other = await startMitmHouse(configPath, { names: { 'plain.test': ['127.0.0.1'] } });
    expect((await ask(other, `http://plain.test:${plain.port}/`)).status).toBe(200);
    other.closeModule();
    const got = await sendRaw(
      other.port,
      `GET http://plain.test:${plain.port}/ HTTP/1.1\r\nHost: plain.test:${plain.port}\r\n\r\n`,
    );
    expect(got.headers['x-sallyport-reason']).toBe('bad_request');
    await other.stop();
  });
});

/** What a connection says until the other side ends it. */
async function everythingFrom(socket: net.Socket): Promise<string> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  await new Promise((resolve) => socket.once('close', resolve).once('end', () => socket.destroy()));
  return Buffer.concat(chunks).toString('latin1');
}
