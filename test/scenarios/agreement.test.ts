// CONNECT, ClientHello, Host and target agree (group C of the known faults), through real sockets: the destination is always the one that
// was judged, the credential is that of the destination, and nothing that a later layer says leads elsewhere.
import { once } from 'node:events';
import type net from 'node:net';
import { Duplex } from 'node:stream';
import tls from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { helloMessage, inRecords, serverNames } from '../support/client-hellos.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startRaw, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { inside, verdictIn, WAYS } from '../support/probes.ts';
import { openSecureTunnel, openTunnel, readAnswer, sendRaw } from '../support/sandbox-client.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
let house: House;

const inAbsoluteForm = WAYS[1]!;

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside });
  plain = await startUpstream();
  const rule = { ports: [secure.port, plain.port, 443, 80], addresses: LOOPBACK };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      credentials: { provider: { type: 'bearer_token', token: 'sentinel-of-provider' } },
      network: {
        allowlist: [
          { domain: 'allowed.test', ...rule },
          { domain: 'other.test', ...rule },
          { domain: 'api.provider.test', credential: 'provider', ...rule },
          { domain: 'rotating.test', ...rule },
          { domain: 'pinned.test', ...rule, tls: 'passthrough' },
          { domain: '127.0.0.1', ports: [secure.port], addresses: ['127.0.0.1/32'] },
          { domain: '::1', ports: [secure.port], addresses: ['::1/128'] },
        ],
      },
    },
    {
      names: {
        'allowed.test': ['127.0.0.1'],
        'other.test': ['127.0.0.1'],
        'pinned.test': ['127.0.0.1'],
        'api.provider.test': ['127.0.0.1'],
        'rotating.test': rotate(['127.0.0.1', '127.0.0.2', '127.0.0.3', '127.0.0.4']),
      },
    },
  );
});

afterAll(async () => {
  await house.stop();
  await secure.close();
  await plain.close();
  await outside.close();
});

/** Another order with each question, and never the same first. */
function rotate(addresses: readonly string[]): () => readonly string[] {
  let turn = 0;
  return () => {
    turn += 1;
    const first = addresses[turn % addresses.length]!;
    return [first, '127.0.0.1'].filter((address, i, all) => all.indexOf(address) === i);
  };
}

/** All that comes through a tunnel until it ends. */
function readAll(socket: net.Socket): Promise<Buffer> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const done = (): void => resolve(Buffer.concat(chunks));
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.once('end', done).once('close', done).resume();
  });
}

const ALERT = 0x15;
const UNRECOGNIZED_NAME = 112;

/** The same bytes both ways, but the first message goes out in small records. */
function inSmallRecords(socket: net.Socket): Duplex {
  let first = true;
  const stream = new Duplex({
    read: () => void socket.resume(),
    write: (chunk: Buffer, _encoding, done) => {
      socket.write(first ? inRecords(chunk.subarray(5), 100) : chunk, done);
      first = false;
    },
    final: (done) => void socket.end(done),
    destroy: (error, done) => {
      socket.destroy();
      done(error);
    },
  });
  socket.on('data', (chunk) => stream.push(chunk)).on('end', () => stream.push(null));
  return stream;
}

describe.each([
  { tunnel: 'one that is looked into', host: 'allowed.test', ca: () => house.ca },
  { tunnel: 'one that is passed through', host: 'pinned.test', ca: () => outside.authority.certificatePem },
])('the ClientHello of a tunnel, $tunnel,', ({ host, ca }) => {
  it.each([
    { name: 'another allowed host', names: serverNames('other.test') },
    { name: 'a host with the allowed one as its tail', names: serverNames(`evil.${host}`) },
    { name: 'NUL after the allowed host', names: serverNames(`${host}\0.evil.test`) },
    { name: 'NUL before the allowed host', names: serverNames(`evil.test\0${host}`) },
    // read without its high bits, this is the allowed host
    { name: 'a host with a high bit', names: serverNames(`${String.fromCharCode(host.charCodeAt(0) | 0x80)}${host.slice(1)}`) },
    { name: 'the allowed host in brackets', names: serverNames(`[${host}]`) },
    { name: 'the allowed host with two dots at its end', names: serverNames(`${host}..`) },
    { name: 'an empty name', names: serverNames('') },
    { name: 'raw bytes', names: serverNames(Buffer.from([0xff, 0xfe])) },
    { name: 'an address', names: serverNames('127.0.0.1') },
    { name: 'no name in the extension', names: serverNames() },
    { name: 'another host behind an entry of another type', names: serverNames({ type: 1, name: 'x' }, 'evil.test') },
    { name: 'the allowed host behind an entry of another type', names: serverNames({ type: 1, name: 'x' }, host) },
    { name: 'two hosts of which the first is right', names: serverNames(host, 'other.test') },
    { name: 'two hosts of which the second is right', names: serverNames('other.test', host) },
    { name: 'the allowed host in two extensions', names: Buffer.concat([serverNames(host), serverNames(host)]) },
    { name: 'another host in a second extension', names: Buffer.concat([serverNames(host), serverNames('evil.test')]) },
  ])('that names $name is answered with unrecognized_name, and no upstream hears of it', async ({ names }) => {
    const before = { connections: secure.connections, asked: house.resolved.length, from: house.outcomes.length };
    const { socket } = await openTunnel(house, `${host}:${secure.port}`);
    const all = readAll(socket);
    socket.write(inRecords(helloMessage([names])));
    const bytes = await all;
    expect([bytes[0], bytes.at(-1)]).toEqual([ALERT, UNRECOGNIZED_NAME]); // fault C01
    const outcome = await house.outcome(() => true, before.from);
    expect([outcome.verdict?.code, outcome.decision]).toEqual(['host_mismatch', 'refuse']);
    expect(secure.connections).toBe(before.connections);
    expect(house.resolved).toHaveLength(before.asked);
  });

  it.each([
    { name: 'in capitals', servername: host.toUpperCase() },
    { name: 'with a dot at its end', servername: `${host}.` },
    { name: 'not at all', servername: '' },
  ])('may name the host $name', async ({ servername }) => {
    const tunnel = await openSecureTunnel(house, `${host}:${secure.port}`, {
      servername,
      tls: { ca: ca(), checkServerIdentity: () => undefined },
    });
    expect((await inside(tunnel, `${host}:${secure.port}`)).status).toBe(200);
    tunnel.destroy();
  });

  it('may come in several records', async () => {
    const { socket } = await openTunnel(house, `${host}:${secure.port}`);
    const tunnel = tls.connect({ socket: inSmallRecords(socket), servername: host, ca: ca() });
    await once(tunnel, 'secureConnect');
    expect((await inside(tunnel, `${host}:${secure.port}`)).status).toBe(200);
    tunnel.destroy();
  });
});

describe('the ClientHello', () => {
  it.each([
    { name: 'a name without one', authority: () => `allowed.test:${secure.port}`, subject: 'DNS:allowed.test' },
    { name: 'an IPv4 address', authority: () => `127.0.0.1:${secure.port}`, subject: 'IP Address:127.0.0.1' },
    { name: 'an IPv6 address', authority: () => `[::1]:${secure.port}`, subject: 'IP Address:0:0:0:0:0:0:0:1' },
  ])('may be without a name; the leaf is for the host of the CONNECT: $name', async ({ authority, subject }) => {
    // The default checks of Node's client, chain and name, are on.
    const tunnel = await openSecureTunnel(house, authority(), { servername: '' }); // fault C07
    expect(tunnel.authorized).toBe(true);
    expect(tunnel.getPeerCertificate().subjectaltname).toContain(subject);
    tunnel.destroy();
  });

  it('gets a leaf for the host of the CONNECT alone', async () => {
    const tunnel = await openSecureTunnel(house, `allowed.test:${secure.port}`);
    expect(tunnel.getPeerCertificate().subjectaltname).toBe('DNS:allowed.test'); // fault C07
    tunnel.destroy();
  });
});

describe('the Host inside a tunnel', () => {
  const rows = [
    { name: 'another allowed host', lines: () => `Host: other.test:${secure.port}\r\n`, verdict: '421 host_mismatch' },
    { name: 'a host that no rule has', lines: () => 'Host: nowhere.test\r\n', verdict: '421 host_mismatch' },
    { name: 'another port', lines: () => 'Host: allowed.test:8443\r\n', verdict: '421 host_mismatch' },
    { name: 'no port, which means 443', lines: () => 'Host: allowed.test\r\n', verdict: '421 host_mismatch' },
    { name: 'none', lines: () => '', verdict: '400 bad_request' },
    {
      name: 'two that agree',
      lines: () => `Host: allowed.test:${secure.port}\r\nHost: allowed.test:${secure.port}\r\n`,
      verdict: '400 bad_request',
    },
    {
      name: 'two that do not',
      lines: () => `Host: allowed.test:${secure.port}\r\nHost: other.test:${secure.port}\r\n`,
      verdict: '400 bad_request',
    },
    { name: 'an empty one', lines: () => 'Host:\r\n', verdict: '400 bad_request' },
    { name: 'a list', lines: () => `Host: allowed.test:${secure.port}, other.test\r\n`, verdict: '400 bad_request' },
    { name: 'the same in upper case', lines: () => `Host: ALLOWED.test:${secure.port}\r\n`, verdict: '200 from the upstream' },
    {
      name: 'the same with a final dot',
      lines: () => `Host: allowed.test.:${secure.port}\r\n`,
      verdict: '200 from the upstream',
    },
  ];

  it.each(rows)('$name gives $verdict', async ({ lines, verdict }) => {
    const sent = secure.seen.length;
    const tunnel = await openSecureTunnel(house, `allowed.test:${secure.port}`);
    tunnel.write(`GET / HTTP/1.1\r\n${lines()}\r\n`);
    expect(verdictIn(await readAnswer(tunnel))).toBe(verdict); // fault C02
    expect(secure.seen.length - sent).toBe(verdict.startsWith('200') ? 1 : 0);
    tunnel.destroy();
  });

  it('is checked for every request, and a mismatch does not spoil the connection for the next', async () => {
    const tunnel = await openSecureTunnel(house, `allowed.test:${secure.port}`);
    const verdicts: string[] = [];
    for (const host of ['allowed.test', 'other.test', 'allowed.test']) {
      verdicts.push(verdictIn(await inside(tunnel, `${host}:${secure.port}`)));
    }
    expect(verdicts).toEqual(['200 from the upstream', '421 host_mismatch', '200 from the upstream']); // fault C02
    tunnel.destroy();
  });

  it('never chooses the credential', async () => {
    const sent = secure.seen.length;
    const tunnel = await openSecureTunnel(house, `allowed.test:${secure.port}`);
    expect(verdictIn(await inside(tunnel, `api.provider.test:${secure.port}`))).toBe('421 host_mismatch'); // fault C03
    expect((await inside(tunnel, `allowed.test:${secure.port}`)).status).toBe(200);
    const after = JSON.stringify(secure.seen.slice(sent));
    expect(after).not.toContain('sentinel-of-provider');
    tunnel.destroy();
    expect((await WAYS[0]!.send(house, `api.provider.test:${secure.port}`)).status).toBe(200);
    expect(valuesOf(secure.seen.at(-1)!.fields, 'authorization')).toEqual(['Bearer sentinel-of-provider']);
  });
});

describe('the target', () => {
  const rows = [
    {
      name: 'another host',
      target: () => `http://allowed.test:${plain.port}/`,
      host: () => `other.test:${plain.port}`,
      verdict: '421 host_mismatch',
    },
    {
      name: 'another port',
      target: () => `http://allowed.test:${plain.port}/`,
      host: () => 'allowed.test:81',
      verdict: '421 host_mismatch',
    },
    {
      name: 'no port, which means 80',
      target: () => `http://allowed.test:${plain.port}/`,
      host: () => 'allowed.test',
      verdict: '421 host_mismatch',
    },
    {
      name: 'the same host, in other letters',
      target: () => `http://ALLOWED.test:${plain.port}/`,
      host: () => `allowed.TEST:${plain.port}`,
      verdict: '200 from the upstream',
    },
  ];

  it.each(rows)('in absolute-form with a Host that names $name gives $verdict', async ({ target, host, verdict }) => {
    const sent = plain.seen.length;
    expect(verdictIn(await sendRaw(house.port, `GET ${target()} HTTP/1.1\r\nHost: ${host()}\r\n\r\n`))).toBe(verdict); // fault C04
    expect(plain.seen.length - sent).toBe(verdict.startsWith('200') ? 1 : 0);
  });

  it('with the default port and a Host without it are the same place', async () => {
    for (const [target, host] of [
      ['http://allowed.test/', 'allowed.test:80'],
      ['http://allowed.test:80/', 'allowed.test'],
    ]) {
      // Nothing listens on port 80 of that address; what counts is that the request was judged to agree with itself.
      const from = house.outcomes.length;
      await sendRaw(house.port, `GET ${target!} HTTP/1.1\r\nHost: ${host!}\r\n\r\n`); // fault C04
      expect((await house.outcome(() => true, from)).trace.permit?.rule.id).toBe('allowed.test');
    }
  });

  it('in absolute-form inside a tunnel may name the tunnel and nothing else', async () => {
    const tunnel = await openSecureTunnel(house, `allowed.test:${secure.port}`);
    const verdicts: string[] = [];
    for (const target of [
      `https://allowed.test:${secure.port}/`,
      `https://other.test:${secure.port}/`,
      `http://allowed.test:${secure.port}/`,
      `https://allowed.test:${secure.port + 1}/`,
    ]) {
      verdicts.push(verdictIn(await inside(tunnel, new URL(target).host, { path: target })));
    }
    const mismatch = '421 host_mismatch';
    expect(verdicts).toEqual(['200 from the upstream', mismatch, mismatch, mismatch]); // fault C08
    expect(secure.seen.at(-1)?.url).toBe('/');
    tunnel.destroy();
  });

  it('of a request for the proxy inside a plain tunnel leads nowhere else', async () => {
    const { socket } = await openTunnel(house, `allowed.test:${plain.port}`);
    const target = `http://other.test:${plain.port}/`;
    expect(verdictIn(await inside(socket, `other.test:${plain.port}`, { path: target }))).toBe('421 host_mismatch'); // fault C08
    socket.destroy();
  });

  it('of a CONNECT inside a tunnel is refused', async () => {
    const tunnel = await openSecureTunnel(house, `allowed.test:${secure.port}`);
    tunnel.write(`CONNECT other.test:${secure.port} HTTP/1.1\r\nHost: other.test:${secure.port}\r\n\r\n`);
    expect(verdictIn(await readAnswer(tunnel))).toBe('400 bad_request'); // fault C08
    tunnel.destroy();
  });
});

describe('the Host toward the upstream', () => {
  it.each(WAYS)('keeps a port that is not the default, $name', async ({ send, scheme }) => {
    const upstream = scheme === 'https' ? secure : plain;
    expect((await send(house, `allowed.test:${upstream.port}`)).status).toBe(200); // fault C06
    expect(valuesOf(upstream.seen.at(-1)!.fields, 'host')).toEqual([`allowed.test:${upstream.port}`]);
  });
});

describe('the version of TLS', () => {
  it.each(['TLSv1', 'TLSv1.1'] as const)('%s is not spoken with a sandbox', async (version) => {
    const from = house.outcomes.length;
    const { socket } = await openTunnel(house, `allowed.test:${secure.port}`);
    let secured = false;
    const client = tls.connect({
      socket,
      servername: 'allowed.test',
      rejectUnauthorized: false,
      minVersion: version,
      maxVersion: version,
      ciphers: 'DEFAULT:@SECLEVEL=0',
    });
    client.on('error', () => undefined).on('secureConnect', () => (secured = true));
    expect((await house.outcome(() => true, from)).verdict?.code).toBe('client_tls');
    expect(secured).toBe(false);
    client.destroy();
  });
});

describe('rotating answers', () => {
  it('refuse none of many requests at once', async () => {
    const everywhere = await startRaw(
      (socket) => void socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')),
      '0.0.0.0',
    );
    await house.reconfigure({
      network: { allowlist: [{ domain: 'rotating.test', ports: [everywhere.port], addresses: LOOPBACK }] },
    });
    const answers = await Promise.all(
      Array.from({ length: 200 }, () => inAbsoluteForm.send(house, `rotating.test:${everywhere.port}`)),
    );
    expect(new Set(answers.map(verdictIn))).toEqual(new Set(['200 from the upstream'])); // fault C09
    await everywhere.close();
  });
});
