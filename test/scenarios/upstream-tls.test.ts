// The upstream's side of TLS through real sockets: whatever a careful client would refuse is refused with a text of its own, and not
// one byte of the request or its credential is given to a peer that has not proved its name (invariant 5).
import type net from 'node:net';
import tls from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOddCertificates } from '../support/odd-certificates.ts';
import type { OddCertificates, Wanted } from '../support/odd-certificates.ts';
import { openOutside, startRaw, startUpstream } from '../support/outside.ts';
import type { Upstream } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';

let odd: OddCertificates;
let strange: OddCertificates;
let house: House;
let upstream: Upstream | undefined;
/** What an upstream got inside its TLS, or as plain bytes where it speaks none */
let heard = '';

const UNUSED = 65535;

beforeAll(async () => {
  odd = await openOddCertificates();
  strange = await openOddCertificates();
});

afterEach(async () => {
  await house.stop();
  await upstream?.close();
  upstream = undefined;
  heard = '';
});

afterAll(async () => {
  await odd.close();
  await strange.close();
});

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

/** A TLS upstream on a raw socket, so that every byte inside TLS is heard whether it is HTTP or not. */
async function serveTls(options: tls.TLSSocketOptions & tls.SecureContextOptions): Promise<Upstream> {
  return startRaw((socket) => {
    const secured = new tls.TLSSocket(socket, { isServer: true, ...options });
    secured.on('error', () => socket.destroy()).on('end', () => socket.destroy());
    secured.on('data', (chunk: Buffer) => {
      heard += chunk.toString('latin1');
      secured.write(OK);
    });
  });
}

async function openHouse(port: number, more: object = {}): Promise<House> {
  const rule = { credential: 'main', ports: [port], addresses: LOOPBACK };
  return startHouse(
    {
      upstream: { ca: [odd.rootPath] },
      credentials: { main: { type: 'bearer_token', token: 'marker-token' } },
      network: {
        allowlist: [
          { domain: 'api.test', ...rule },
          { domain: 'deep.api.test', ...rule },
          { domain: '127.0.0.1', ...rule },
          { domain: 'nowhere.test', ...rule },
        ],
      },
      ...more,
    },
    { names: { 'api.test': ['127.0.0.1'], 'deep.api.test': ['127.0.0.1'] } },
  );
}

/** Asks, and waits until the upstream's connections are gone, so that nothing can arrive late. */
async function askOnce(port: number, host = 'api.test'): Promise<{ readonly seen: string; readonly detail: string }> {
  const gone = upstream === undefined ? Promise.resolve() : connectionGone(upstream.server);
  const got = await ask(house, `https://${host}:${port}/secret-path`, {
    method: 'POST',
    fields: 'Content-Length: 9\r\n',
    body: 'body-text',
  });
  if (got.status === 200) return { seen: '200', detail: '' };
  await gone;
  const problem = JSON.parse(got.body) as { code: string; detail: string };
  expect(got.headers['x-sallyport-reason']).toBe(problem.code);
  expect(`${got.fields.join(' ')} ${got.body}`).not.toMatch(/127\.0\.0\.1(?!:)|ERR_|CERT_|openssl|marker-token|::1/i);
  return { seen: `${got.status} ${problem.code}`, detail: problem.detail };
}

function connectionGone(server: net.Server): Promise<void> {
  return new Promise((resolve) => server.once('connection', (socket: net.Socket) => socket.once('close', () => resolve())));
}

const LEGACY = { ciphers: 'DEFAULT@SECLEVEL=0' } as const;

interface Row {
  readonly name: string;
  readonly wanted?: Wanted;
  readonly by?: () => OddCertificates;
  readonly tls?: tls.SecureContextOptions;
  readonly host?: string;
  /** Empty where the request is let through */
  readonly detail: string;
  readonly fault: string;
}

const ANOTHER = "the upstream's certificate is for another name";

const ROWS: readonly Row[] = [
  { name: 'takes a certificate for the name', wanted: { commonName: 'x', names: 'DNS:api.test' }, detail: '', fault: 'H01' },
  {
    name: 'takes a wildcard at its own depth',
    wanted: { commonName: 'x', names: 'DNS:*.api.test' },
    host: 'deep.api.test',
    detail: '',
    fault: 'H02',
  },
  {
    name: 'takes a certificate for the address, asked by address',
    wanted: { commonName: 'x', names: 'IP:127.0.0.1' },
    host: '127.0.0.1',
    detail: '',
    fault: 'H02',
  },
  {
    name: 'refuses a self-signed certificate',
    wanted: { commonName: 'api.test', names: 'DNS:api.test', by: 'itself' },
    detail: "the upstream's certificate is self-signed",
    fault: 'H01',
  },
  {
    name: 'refuses an expired certificate',
    wanted: { commonName: 'api.test', names: 'DNS:api.test', until: '20210101000000Z' },
    detail: "the upstream's certificate has expired",
    fault: 'H01',
  },
  {
    name: 'refuses a certificate that is not valid yet',
    wanted: { commonName: 'api.test', names: 'DNS:api.test', from: '20480101000000Z' },
    detail: "the upstream's certificate is not valid yet",
    fault: 'H01',
  },
  {
    name: 'refuses a certificate from a root that is not trusted',
    wanted: { commonName: 'api.test', names: 'DNS:api.test' },
    by: () => strange,
    detail: "the upstream's certificate comes from a root that is not trusted",
    fault: 'H01',
  },
  {
    name: 'refuses a certificate for another name',
    wanted: { commonName: 'api.test', names: 'DNS:other.test' },
    detail: ANOTHER,
    fault: 'H02',
  },
  {
    name: 'refuses a certificate that has the name as its common name only',
    wanted: { commonName: 'api.test' },
    detail: ANOTHER,
    fault: 'H02',
  },
  {
    name: 'refuses a certificate that has the name beside an address only',
    wanted: { commonName: 'api.test', names: 'IP:127.0.0.1' },
    detail: ANOTHER,
    fault: 'H02',
  },
  {
    name: 'refuses a wildcard that stands for one label and would have to stand for two',
    wanted: { commonName: 'x', names: 'DNS:*.test' },
    host: 'deep.api.test',
    detail: ANOTHER,
    fault: 'H02',
  },
  {
    name: 'refuses a wildcard for its own apex',
    wanted: { commonName: 'x', names: 'DNS:*.api.test' },
    detail: ANOTHER,
    fault: 'H02',
  },
  {
    name: 'refuses a name in a certificate, asked by address',
    wanted: { commonName: '127.0.0.1', names: 'DNS:api.test,DNS:127.0.0.1' },
    host: '127.0.0.1',
    detail: ANOTHER,
    fault: 'H02',
  },
  {
    name: 'refuses TLS 1.0',
    wanted: { commonName: 'x', names: 'DNS:api.test' },
    tls: { minVersion: 'TLSv1', maxVersion: 'TLSv1', ...LEGACY },
    detail: 'the upstream speaks no TLS version that is still safe',
    fault: 'H01',
  },
  {
    name: 'refuses TLS 1.1',
    wanted: { commonName: 'x', names: 'DNS:api.test' },
    tls: { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ...LEGACY },
    detail: 'the upstream speaks no TLS version that is still safe',
    fault: 'H01',
  },
  {
    name: 'takes TLS 1.2',
    wanted: { commonName: 'x', names: 'DNS:api.test' },
    tls: { maxVersion: 'TLSv1.2' },
    detail: '',
    fault: 'H01',
  },
];

describe('an upstream that speaks TLS', () => {
  it.each(ROWS)('$name', async ({ wanted, by = () => odd, tls: options = {}, host = 'api.test', detail }) => {
    const pair = await by().mint(wanted as Wanted);
    upstream = await serveTls({ ...pair, ...options });
    house = await openHouse(upstream.port);
    expect(await askOnce(upstream.port, host)).toEqual({ seen: detail === '' ? '200' : '502 upstream_tls', detail });
    if (detail === '') expect(heard).toContain('Authorization: Bearer marker-token');
    else expect(heard).toBe('');
  });
});

const answering = (bytes: string | undefined) => (socket: net.Socket) => {
  socket.on('end', () => socket.end());
  socket.once('data', (chunk: Buffer) => {
    // A ClientHello may be seen by anybody; what matters is that it is one and nothing else.
    if (chunk[0] !== 0x16) heard += chunk.toString('latin1');
    if (bytes === undefined) socket.destroy();
    else socket.write(bytes, 'latin1');
  });
};

const QUICK = { limits: { timeouts: { connect: '300ms', reply: '300ms', dns: '300ms' } } };

describe('an upstream that does not speak TLS', () => {
  it.each([
    {
      name: 'answers in plain HTTP',
      bytes: 'HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n',
      detail: 'the upstream does not speak TLS on this port',
    },
    { name: 'closes on the ClientHello', bytes: undefined, detail: 'the upstream broke off the TLS handshake' },
    { name: 'sends a fatal alert', bytes: '\x15\x03\x03\x00\x02\x02\x28', detail: 'the TLS handshake with the upstream failed' },
  ])('is refused when it $name', async ({ bytes, detail }) => {
    // faults H01, H06
    upstream = await startRaw(answering(bytes));
    house = await openHouse(upstream.port);
    expect(await askOnce(upstream.port)).toEqual({ seen: '502 upstream_tls', detail });
    expect(heard).toBe('');
  });

  it('is given up after the connect timeout when it says nothing', async () => {
    // fault H06
    upstream = await startRaw((socket) => socket.resume().on('end', () => socket.end()));
    house = await openHouse(upstream.port, QUICK);
    expect(await askOnce(upstream.port)).toEqual({
      seen: '504 upstream_timeout',
      detail: 'the TLS handshake with the upstream took too long',
    });
  });
});

describe('an upstream that cannot be had', () => {
  it('is told apart when nobody listens', async () => {
    // fault H06
    const closed = await startRaw((socket) => socket.destroy());
    await closed.close();
    house = await openHouse(closed.port);
    expect(await askOnce(closed.port)).toEqual({
      seen: '502 upstream_connect',
      detail: 'no connection to the upstream could be opened',
    });
  });

  it('is told apart when its name does not resolve', async () => {
    // fault H06
    house = await openHouse(UNUSED);
    expect(await askOnce(UNUSED, 'nowhere.test')).toEqual({
      seen: '502 dns_failed',
      detail: 'the name "nowhere.test" could not be resolved',
    });
  });

  it('is told apart when it takes the request and does not answer', async () => {
    // fault H06
    const pair = await odd.mint({ commonName: 'x', names: 'DNS:api.test' });
    upstream = await startRaw((socket) => {
      const secured = new tls.TLSSocket(socket, { isServer: true, ...pair });
      secured.on('error', () => socket.destroy()).on('end', () => socket.destroy());
      secured.resume();
    });
    house = await openHouse(upstream.port, QUICK);
    expect(await askOnce(upstream.port)).toEqual({
      seen: '504 upstream_timeout',
      detail: 'the upstream did not begin to answer in time',
    });
  });
});

describe('the log of the operator', () => {
  it('has the cause under its own code, which the sandbox is not told', async () => {
    // fault H06
    const pair = await odd.mint({ commonName: 'x', names: 'DNS:api.test', until: '20210101000000Z' });
    upstream = await serveTls(pair);
    house = await openHouse(upstream.port);
    await askOnce(upstream.port);
    expect(await house.said('CERT_HAS_EXPIRED')).toMatch(/^warn the upstream's certificate has expired/);
  });
});

describe('a session of an earlier connection', () => {
  it('is not taken up after the roots have changed', async () => {
    // fault H01
    const pair = await odd.mint({ commonName: 'x', names: 'DNS:api.test' });
    upstream = await serveTls(pair);
    house = await openHouse(upstream.port);
    expect((await askOnce(upstream.port)).seen).toBe('200');
    const rule = { domain: 'api.test', ports: [upstream.port], addresses: LOOPBACK };
    await house.reconfigure({ upstream: { ca: [strange.rootPath] }, network: { allowlist: [rule] } });
    heard = '';
    expect(await askOnce(upstream.port)).toEqual({
      seen: '502 upstream_tls',
      detail: "the upstream's certificate comes from a root that is not trusted",
    });
    expect(heard).toBe('');
  });
});

describe('roots that the machine trusts by NODE_EXTRA_CA_CERTS', () => {
  it('are trusted beside those of upstream.ca', async () => {
    const [named, machine] = await Promise.all([openOutside(), openOutside()]);
    upstream = await startUpstream({ tls: machine });
    house = await startHouse(
      {
        upstream: { ca: [named.caPath] },
        network: { allowlist: [{ domain: 'api.test', ports: [upstream.port], addresses: LOOPBACK }] },
      },
      { names: { 'api.test': ['127.0.0.1'] }, env: { NODE_EXTRA_CA_CERTS: machine.caPath } },
    );
    expect((await ask(house, `https://api.test:${upstream.port}/`)).status).toBe(200);
    await Promise.all([named.close(), machine.close()]);
  });
});
