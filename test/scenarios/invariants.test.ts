// Invariants 2, 4 and 8 of the design through real sockets; 1, 3, 5, 6 and 7 have files of their own beside this one.
import type net from 'node:net';
import tls from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { countOf, openOutside, startRaw, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { closed, inside, reasonIn, verdictIn, WAYS } from '../support/probes.ts';
import type { ProbeOptions } from '../support/probes.ts';
import { connectTo, openSecureTunnel, openTunnel, readAnswer, sendRaw } from '../support/sandbox-client.ts';
import type { Answer } from '../support/sandbox-client.ts';

let outside: Outside;

beforeAll(async () => {
  outside = await openOutside();
});

afterAll(() => outside.close());

describe('invariant 2: a refused name causes no DNS query, and a refused request sends no byte', () => {
  let plain: Upstream;
  let secure: Upstream;
  let house: House;

  beforeAll(async () => {
    plain = await startUpstream();
    secure = await startUpstream({ tls: outside });
    const ports = [plain.port, secure.port];
    house = await startHouse(
      {
        upstream: { ca: [outside.caPath] },
        credentials: { gone: { type: 'bearer_token', token: { env: 'NOT_SET' } } },
        network: {
          denylist: [{ domain: 'denied.test' }],
          allowlist: [
            { domain: 'read.test', ports, addresses: LOOPBACK, methods: ['GET'], paths: ['/public/.*'] },
            { domain: '*.read.test', ports, addresses: LOOPBACK },
            { domain: 'denied.test', ports, addresses: LOOPBACK },
            { domain: 'closed.test', ports },
            { domain: 'gone.test', ports, addresses: LOOPBACK, credential: 'gone', allow_plaintext: true },
            { domain: 'plaintext.test', ports, addresses: LOOPBACK, transform: { 'X-Key': 'k' } },
          ],
        },
      },
      {
        names: {
          'read.test': ['127.0.0.1'],
          'denied.test': ['127.0.0.1'],
          'closed.test': ['127.0.0.1'],
          'gone.test': ['127.0.0.1'],
          'plaintext.test': ['127.0.0.1'],
        },
      },
    );
  });

  afterAll(async () => {
    await house.stop();
    await plain.close();
    await secure.close();
  });

  interface Row {
    readonly name: string;
    readonly host: string;
    readonly verdict: string;
    /** Port, where it is not that of the upstream */
    readonly port?: number;
    readonly options?: ProbeOptions;
    /** Whether the name had to be resolved before the refusal */
    readonly resolves?: true;
    readonly ways?: readonly string[];
  }

  const rows: Row[] = [
    { name: 'a name that no rule has', host: 'c2VjcmV0.attacker.test', verdict: '403 not_allowlisted' }, // fault A29
    { name: 'a name on the denylist', host: 'denied.test', verdict: '403 denylisted' },
    { name: 'a port that the rule does not name', host: 'read.test', port: 22, verdict: '403 port_denied' },
    { name: 'a method', host: 'read.test', verdict: '403 method_denied', options: { method: 'DELETE', path: '/public/a' } },
    { name: 'a path', host: 'read.test', verdict: '403 path_denied', options: { path: '/admin' } },
    { name: 'TRACE', host: 'read.test', verdict: '405 method_forbidden', options: { method: 'TRACE', path: '/public/a' } },
    {
      name: 'a Host that disagrees',
      host: 'read.test',
      verdict: '421 host_mismatch',
      options: { host: 'other.test', path: '/public/a' },
    },
    { name: 'a path with a dot segment', host: 'read.test', verdict: '400 bad_request', options: { path: '/public/../admin' } },
    {
      name: 'two framings',
      host: 'read.test',
      verdict: '400 bad_request',
      options: { method: 'POST', fields: 'Content-Length: 1\r\nContent-Length: 2\r\n' },
    },
    {
      name: 'a header section over the limit',
      host: 'read.test',
      verdict: '431 headers_too_large',
      options: { path: '/public/a', fields: `X-Big: ${'x'.repeat(70_000)}\r\n` },
    },
    { name: 'an answer inside the walls', host: 'closed.test', verdict: '403 address_denied', resolves: true },
    { name: 'a credential that is not there', host: 'gone.test', verdict: '502 credential_unavailable', resolves: true },
    {
      name: 'a field put on over plain http',
      host: 'plaintext.test',
      verdict: '403 plaintext_credential',
      resolves: true,
      ways: ['in absolute-form'],
    },
  ];

  const cases = rows.flatMap((row) => WAYS.filter((way) => row.ways?.includes(way.name) ?? true).map((way) => ({ ...row, way })));

  it.each(cases)('for $name, $way.name', async ({ way, host, port, verdict, options, resolves }) => {
    const before = {
      resolved: house.resolved.length,
      bytes: plain.bytes + secure.bytes,
      connections: plain.connections + secure.connections,
    };
    const own = way.scheme === 'https' ? secure : plain;
    const answer = await way.send(house, `${host}:${port ?? own.port}`, options);
    expect(verdictIn(answer)).toBe(verdict);
    expect(house.resolved.slice(before.resolved)).toEqual(resolves === true ? [host] : []);
    expect(plain.connections + secure.connections - before.connections).toBe(0);
    expect(plain.bytes + secure.bytes - before.bytes).toBe(0);
  });

  it('would have let each host through but for what the row is about', async () => {
    for (const way of WAYS) {
      const own = way.scheme === 'https' ? secure : plain;
      expect(verdictIn(await way.send(house, `read.test:${own.port}`, { path: '/public/a' }))).toBe('200 from the upstream');
    }
  });

  it('for a connection over the limit, however fast its request comes', async () => {
    const connections = 20;
    const small = await startHouse(
      { limits: { connections }, network: { allowlist: [{ domain: 'read.test', ports: [plain.port], addresses: LOOPBACK }] } },
      { names: { 'read.test': ['127.0.0.1'] } },
    );
    const held = await Promise.all(Array.from({ length: connections }, () => connectTo(small.port)));
    try {
      const head = `GET http://read.test:${plain.port}/ HTTP/1.1\r\nHost: read.test:${plain.port}\r\n\r\n`;
      const before = plain.connections;
      for (let turn = 1; turn <= connections; turn += 1) {
        expect(verdictIn(await sendRaw(small.port, head))).toBe('503 limit_reached');
      }
      await small.outcome(() => small.outcomes.length >= connections);
      expect(small.resolved).toEqual([]);
      expect(small.outcomes.map(({ verdict }) => verdict?.code)).toEqual(Array(connections).fill('limit_reached'));
      expect(plain.connections).toBe(before);
    } finally {
      for (const socket of held) socket.destroy();
      await small.stop();
    }
  });
});

describe('invariant 4: has one authority', () => {
  let secure: Upstream;
  let house: House;

  beforeAll(async () => {
    secure = await startUpstream({ tls: outside });
    house = await startHouse(
      {
        upstream: { ca: [outside.caPath] },
        network: {
          allowlist: [
            { domain: 'one.test', ports: [secure.port], addresses: LOOPBACK },
            { domain: 'two.test', ports: [secure.port], addresses: LOOPBACK, transform: { 'X-Key': 'of-two' } },
          ],
        },
      },
      { names: { 'one.test': ['127.0.0.1'], 'two.test': ['127.0.0.1'] } },
    );
  });

  afterAll(async () => {
    await house.stop();
    await secure.close();
  });

  it('answers 421 to a Host that is not that of the tunnel, although a rule allows it', async () => {
    const tunnel = await openSecureTunnel(house, `one.test:${secure.port}`);
    const sent = secure.seen.length;
    expect(verdictIn(await inside(tunnel, `two.test:${secure.port}`))).toBe('421 host_mismatch');
    expect(secure.seen).toHaveLength(sent);
    tunnel.destroy();
  });

  it('judges every request of a connection, not the first alone', async () => {
    const tunnel = await openSecureTunnel(house, `one.test:${secure.port}`);
    expect(verdictIn(await inside(tunnel, `one.test:${secure.port}`))).toBe('200 from the upstream');
    expect(verdictIn(await inside(tunnel, `two.test:${secure.port}`))).toBe('421 host_mismatch');
    tunnel.destroy();
  });

  it.each([
    { name: 'another host', servername: 'two.test' },
    { name: 'a name below', servername: 'a.one.test' },
    { name: 'the front of the name', servername: 'one' },
  ])('closes a tunnel whose ClientHello names $name, before any request is read', async ({ servername }) => {
    const from = house.outcomes.length;
    const before = secure.connections;
    await expect(openSecureTunnel(house, `one.test:${secure.port}`, { servername })).rejects.toThrow(/unrecognized name/);
    const { verdict, arrival } = await house.outcome(() => true, from);
    expect(verdict?.code).toBe('host_mismatch');
    expect(arrival.purpose).toBe('tunnel');
    expect(house.outcomes).toHaveLength(from + 1);
    expect(secure.connections).toBe(before);
  });

  it('ends the connection itself after a mismatch in the ClientHello', async () => {
    const { socket } = await openTunnel(house, `one.test:${secure.port}`);
    await expect(tlsOver(socket, 'two.test')).rejects.toThrow();
    await closed(socket);
    expect(socket.closed).toBe(true);
  });

  it.each([
    { name: 'as it is', servername: 'one.test' },
    { name: 'in upper case', servername: 'ONE.TEST' },
    { name: 'with a final dot', servername: 'one.test.' },
    { name: 'not at all', servername: '' },
  ])('takes a ClientHello that names the host $name', async ({ servername }) => {
    const tunnel = await openSecureTunnel(house, `one.test:${secure.port}`, { servername });
    expect(verdictIn(await inside(tunnel, `one.test:${secure.port}`))).toBe('200 from the upstream');
    tunnel.destroy();
  });
});

async function tlsOver(socket: net.Socket, servername: string): Promise<void> {
  return new Promise((resolve, reject) => {
    tls.connect({ socket, servername, rejectUnauthorized: false }, resolve).once('error', reject);
  });
}

describe('invariant 8: a refusal says so', () => {
  let impostor: Upstream;
  let house: House;

  beforeAll(async () => {
    const forged = [
      'Proxy-Status: sallyport; error=http_request_denied; details="not_allowlisted"',
      'X-Sallyport-Reason: not_allowlisted',
      'x-SALLYPORT-reason: denylisted',
      'Proxy-Authenticate: Basic realm="sallyport"',
    ].join('\r\n');
    impostor = await startRaw((socket) => {
      socket.once('data', () => {
        const body = '{"code":"not_allowlisted"}';
        socket.write(
          `HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n${forged}\r\n\r\n` +
            `HTTP/1.1 403 Forbidden\r\nContent-Type: application/problem+json\r\n${forged}\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sallyport-Reason\r\n\r\n` +
            `${body.length.toString(16)}\r\n${body}\r\n0\r\nX-Sallyport-Reason: denylisted\r\nProxy-Status: sallyport\r\nX-Other: kept\r\n\r\n`,
        );
      });
    });
    house = await startHouse(
      {
        upstream: { ca: [outside.caPath] },
        network: {
          denylist: [{ domain: 'denied.test' }],
          allowlist: [
            { domain: 'impostor.test', ports: [impostor.port], addresses: LOOPBACK },
            { domain: 'read.test', methods: ['GET'], paths: ['/public'] },
            { domain: 'inside.test' },
          ],
        },
      },
      { names: { 'impostor.test': ['127.0.0.1'], 'inside.test': ['10.0.0.1'] } },
    );
  });

  afterAll(async () => {
    await house.stop();
    await impostor.close();
  });

  const rows: { name: string; authority: string; code: string; status: number; error: string; options?: ProbeOptions }[] = [
    {
      name: 'a host that no rule names',
      authority: 'nowhere.test',
      code: 'not_allowlisted',
      status: 403,
      error: 'http_request_denied',
    },
    { name: 'a denied host', authority: 'denied.test', code: 'denylisted', status: 403, error: 'http_request_denied' },
    {
      name: 'a denied method',
      authority: 'read.test',
      code: 'method_denied',
      status: 403,
      error: 'http_request_denied',
      options: { method: 'POST', fields: 'Content-Length: 0\r\n' },
    },
    {
      name: 'a denied path',
      authority: 'read.test',
      code: 'path_denied',
      status: 403,
      error: 'http_request_denied',
      options: { path: '/x' },
    },
    {
      name: 'an address inside',
      authority: 'inside.test',
      code: 'address_denied',
      status: 403,
      error: 'destination_ip_prohibited',
    },
    {
      name: 'a Host that disagrees',
      authority: 'read.test',
      code: 'host_mismatch',
      status: 421,
      error: 'http_request_error',
      options: { host: 'x.test' },
    },
    { name: 'a malformed host', authority: '0x7f.1', code: 'bad_request', status: 400, error: 'http_request_error' },
    {
      name: 'a name that does not resolve',
      authority: 'gone.read.test',
      code: 'not_allowlisted',
      status: 403,
      error: 'http_request_denied',
    },
  ];

  it.each(rows.flatMap((row) => WAYS.map((way) => ({ ...row, way }))))(
    'in status, body and fields, for $name, $way.name',
    async ({ way, authority, code, status, error, options }) => {
      const from = house.outcomes.length;
      const answer = await way.send(house, `${authority}:${way.scheme === 'https' ? 443 : 80}`, options);
      const problem = problemIn(answer);
      expect(answer.status).toBe(status);
      expect(answer.headers['content-type']).toBe('application/problem+json');
      expect(reasonIn(answer)).toBe(code);
      expect(answer.headers['proxy-status']).toBe(`sallyport; error=${error}; details="${code}"`);
      expect(problem).toMatchObject({ code, status, type: `urn:sallyport:problem:${code}` });
      for (const member of ['title', 'detail', 'hint', 'request_id']) expect(problem[member]).toMatch(/\S/);
      const outcome = await house.outcome(({ verdict }) => verdict?.code === code, from);
      expect(problem['request_id']).toBe(outcome.arrival.requestId);
      const lines = (await house.audit()).filter((line) => line['request_id'] === problem['request_id']);
      expect(lines).toMatchObject([{ decision: 'refuse', reason: code, status }]);
    },
  );

  it('takes its own voice out of an upstream answer, interim head and trailers included', async () => {
    const head = `GET http://impostor.test:${impostor.port}/ HTTP/1.1\r\nHost: impostor.test:${impostor.port}\r\nTE: trailers\r\n\r\n`;
    const answer = await finalAnswer(house.port, head);
    expect(answer.status).toBe(403);
    expect(answer.body).toContain('not_allowlisted');
    for (const name of ['x-sallyport-reason', 'proxy-status', 'proxy-authenticate']) {
      expect(countOf(answer.fields, name)).toBe(0);
      expect(countOf(answer.trailers, name)).toBe(0);
      expect(countOf(answer.interim, name)).toBe(0);
    }
    expect(countOf(answer.trailers, 'x-other')).toBe(1);
  });
});

function problemIn(answer: Answer): Record<string, unknown> {
  return JSON.parse(answer.body) as Record<string, unknown>;
}

/** The answer after any interim ones, with the fields of those. */
async function finalAnswer(port: number, head: string): Promise<Answer & { readonly interim: readonly string[] }> {
  const socket = await connectTo(port);
  socket.write(head);
  const interim: string[] = [];
  for (;;) {
    const answer = await readAnswer(socket);
    if (answer.status >= 200) {
      socket.destroy();
      return { ...answer, interim };
    }
    interim.push(...answer.fields);
  }
}
