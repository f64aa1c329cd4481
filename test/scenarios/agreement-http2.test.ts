// CONNECT, ClientHello, `:authority`, Host and `:scheme` agree over HTTP/2 as they do over HTTP/1.1 (group C of the known faults), and
// what TLS agrees on is what the client has offered (I02): a session holds many requests, and each of them is judged by itself.
import { once } from 'node:events';
import type { ClientHttp2Session, OutgoingHttpHeaders } from 'node:http2';
import type { Duplex } from 'node:stream';
import tls from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { helloMessage, inRecords, serverNames } from '../support/client-hellos.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { answerOf, openPlainSession, openProxySession, openSession, speakHttp2 } from '../support/http2-client.ts';
import type { StreamAnswer } from '../support/http2-client.ts';
import { PREFACE } from '../support/h2-frames.ts';
import { startHttp2Upstream } from '../support/http2-upstream.ts';
import type { Http2Upstream } from '../support/http2-upstream.ts';
import { openOutside, startRaw, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { openSecureTunnel, openTunnel, readAnswer } from '../support/sandbox-client.ts';

let outside: Outside;
/** Speaks HTTP/2 alone */
let modern: Http2Upstream;
/** Speaks HTTP/1.1 alone */
let classic: Upstream;
/** The same without TLS */
let plain: Upstream;
let house: House;
const sessions: ClientHttp2Session[] = [];

beforeAll(async () => {
  outside = await openOutside();
  modern = await startHttp2Upstream({ tls: outside });
  classic = await startUpstream({ tls: outside });
  plain = await startUpstream();
  const rule = { ports: [modern.port, classic.port, plain.port], addresses: LOOPBACK };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: {
        allowlist: [
          { domain: 'allowed.test', ...rule },
          { domain: 'other.test', ...rule },
          { domain: 'api.provider.test', transform: { Authorization: 'Bearer sentinel-of-provider' }, ...rule },
          { domain: '127.0.0.1', ports: [classic.port], addresses: LOOPBACK },
        ],
      },
    },
    { names: { 'allowed.test': ['127.0.0.1'], 'other.test': ['127.0.0.1'], 'api.provider.test': ['127.0.0.1'] } },
  );
});

afterAll(async () => {
  await house.stop();
  await modern.close();
  await classic.close();
  await plain.close();
  await outside.close();
});

afterEach(() => {
  for (const session of sessions.splice(0)) session.destroy();
});

function keep(session: ClientHttp2Session): ClientHttp2Session {
  sessions.push(session);
  return session;
}

/** One exchange; `fields` stand over those of a well-behaved request to allowed.test. */
function asked(session: ClientHttp2Session, fields: OutgoingHttpHeaders = {}): Promise<StreamAnswer> {
  return answerOf(session.request({ ':path': '/', ':scheme': 'https', ':authority': `allowed.test:${modern.port}`, ...fields }));
}

/** Status and reason in one text, for tables. */
function verdictIn({ status, headers, reset }: StreamAnswer): string {
  if (status === 0) return `a reset with code ${reset}`;
  return `${status} ${String(headers['x-sallyport-reason'] ?? 'from the upstream')}`;
}

const OK = '200 from the upstream';
const MISMATCH = '421 host_mismatch';
const MALFORMED = '400 bad_request';

describe('the :authority inside a tunnel', () => {
  const rows: { name: string; fields: () => OutgoingHttpHeaders; verdict: string }[] = [
    { name: 'another allowed host', fields: () => ({ ':authority': `other.test:${modern.port}` }), verdict: MISMATCH },
    { name: 'a host that no rule has', fields: () => ({ ':authority': 'nowhere.test' }), verdict: MISMATCH },
    { name: 'another port', fields: () => ({ ':authority': 'allowed.test:8443' }), verdict: MISMATCH },
    { name: 'no port, which means 443', fields: () => ({ ':authority': 'allowed.test' }), verdict: MISMATCH },
    { name: 'a host with userinfo', fields: () => ({ ':authority': `me@allowed.test:${modern.port}` }), verdict: MALFORMED },
    { name: 'a list', fields: () => ({ ':authority': `allowed.test:${modern.port},other.test` }), verdict: MALFORMED },
    { name: 'a host with a percent sign', fields: () => ({ ':authority': `allowed%2etest:${modern.port}` }), verdict: MALFORMED },
    { name: 'the same in upper case', fields: () => ({ ':authority': `ALLOWED.test:${modern.port}` }), verdict: OK },
    { name: 'the same with a final dot', fields: () => ({ ':authority': `allowed.test.:${modern.port}` }), verdict: OK },
    { name: 'the same beside a Host that agrees', fields: () => ({ host: `allowed.test:${modern.port}` }), verdict: OK },
    { name: 'the same beside another Host', fields: () => ({ host: `other.test:${modern.port}` }), verdict: MISMATCH },
    // The library resets what RFC 9113 section 8.1.1 calls malformed.
    { name: 'the same beside an empty Host', fields: () => ({ host: '' }), verdict: 'a reset with code 1' },
    { name: 'the same with the scheme of plain HTTP', fields: () => ({ ':scheme': 'http' }), verdict: MISMATCH },
  ];

  it.each(rows)('$name gives $verdict', async ({ fields, verdict }) => {
    const sent = modern.seen.length;
    const session = keep(await openSession(house, `allowed.test:${modern.port}`));
    expect(verdictIn(await asked(session, fields()))).toBe(verdict); // fault C02
    expect(modern.seen.length - sent).toBe(verdict === OK ? 1 : 0);
    if (verdict === OK) expect(modern.seen.at(-1)?.authority).toBe(`allowed.test:${modern.port}`);
  });

  it('is checked for every request, and a mismatch does not spoil the session for the others', async () => {
    const session = keep(await openSession(house, `allowed.test:${modern.port}`));
    const hosts = ['allowed.test', 'other.test', 'allowed.test', 'nowhere.test', 'allowed.test'];
    const answers = await Promise.all(hosts.map((host) => asked(session, { ':authority': `${host}:${modern.port}` })));
    expect(answers.map(verdictIn)).toEqual([OK, MISMATCH, OK, MISMATCH, OK]); // fault C02
  });

  it('never chooses the credential', async () => {
    const sent = modern.seen.length;
    const session = keep(await openSession(house, `allowed.test:${modern.port}`));
    const [misled, meant] = await Promise.all([
      asked(session, { ':authority': `api.provider.test:${modern.port}` }),
      asked(session),
    ]);
    expect([verdictIn(misled), verdictIn(meant)]).toEqual([MISMATCH, OK]); // fault C03
    expect(JSON.stringify(modern.seen.slice(sent))).not.toContain('sentinel-of-provider');
    const own = keep(await openSession(house, `api.provider.test:${modern.port}`));
    await asked(own, { ':authority': `api.provider.test:${modern.port}` });
    expect(valuesOf(modern.seen.at(-1)!.fields, 'authorization')).toEqual(['Bearer sentinel-of-provider']);
  });

  it('leads out of a tunnel without TLS no more than out of another', async () => {
    const sent = plain.seen.length;
    const session = keep(await openPlainSession(house, `allowed.test:${plain.port}`));
    const to = (host: string, scheme = 'http') => asked(session, { ':authority': `${host}:${plain.port}`, ':scheme': scheme });
    const verdicts = [await to('allowed.test'), await to('other.test'), await to('allowed.test', 'https')].map(verdictIn);
    expect(verdicts).toEqual([OK, MISMATCH, MISMATCH]); // fault C08
    expect(plain.seen.length - sent).toBe(1);
  });
});

describe('the :authority to the port itself', () => {
  const rows: { name: string; fields: () => OutgoingHttpHeaders; verdict: string }[] = [
    { name: 'beside a Host that names another host', fields: () => ({ host: `other.test:${modern.port}` }), verdict: MISMATCH },
    { name: 'beside a Host with another port', fields: () => ({ host: 'allowed.test:81' }), verdict: MISMATCH },
    { name: 'beside a Host without a port, which means 443', fields: () => ({ host: 'allowed.test' }), verdict: MISMATCH },
    {
      name: 'beside a Host with the same in other letters',
      fields: () => ({ host: `allowed.TEST:${modern.port}` }),
      verdict: OK,
    },
  ];

  it.each(rows)('$name gives $verdict', async ({ fields, verdict }) => {
    const sent = modern.seen.length;
    const session = keep(await openProxySession(house));
    expect(verdictIn(await asked(session, fields()))).toBe(verdict); // fault C04
    expect(modern.seen.length - sent).toBe(verdict === OK ? 1 : 0);
  });

  it('is where each request goes, and its credential with it', async () => {
    const sent = modern.seen.length;
    const session = keep(await openProxySession(house));
    const hosts = ['allowed.test', 'api.provider.test', 'other.test'];
    for (const host of hosts) expect(verdictIn(await asked(session, { ':authority': `${host}:${modern.port}` }))).toBe(OK);
    const seen = modern.seen.slice(sent).map(({ authority, fields }) => [authority, valuesOf(fields, 'authorization')]);
    expect(seen).toEqual([
      [`allowed.test:${modern.port}`, []],
      [`api.provider.test:${modern.port}`, ['Bearer sentinel-of-provider']], // fault C03
      [`other.test:${modern.port}`, []],
    ]);
  });
});

describe('the host toward the upstream', () => {
  it('keeps a port that is not the default, as :authority and as Host', async () => {
    const session = keep(await openProxySession(house));
    await asked(session);
    expect(modern.seen.at(-1)?.authority).toBe(`allowed.test:${modern.port}`); // fault C06
    expect(valuesOf(modern.seen.at(-1)!.fields, 'host')).toEqual([]);
    await asked(session, { ':authority': `allowed.test:${classic.port}` });
    expect(valuesOf(classic.seen.at(-1)!.fields, 'host')).toEqual([`allowed.test:${classic.port}`]); // fault C06
  });
});

/** A CONNECT on a stream of its own. */
async function tunnelOnStream(authority: string): Promise<Duplex> {
  const session = keep(await openProxySession(house));
  const stream = session.request({ ':method': 'CONNECT', ':authority': authority }, { endStream: false });
  stream.on('error', () => undefined);
  await once(stream, 'response');
  return stream;
}

const ALERT = 0x15;
const UNRECOGNIZED_NAME = 112;

describe('the ClientHello of a tunnel on a stream', () => {
  it.each([
    { name: 'another allowed host', names: serverNames('other.test') },
    { name: 'two hosts of which the first is right', names: serverNames('allowed.test', 'other.test') },
    { name: 'NUL after the allowed host', names: serverNames('allowed.test\0.evil.test') },
  ])('that names $name is answered with unrecognized_name, and no upstream hears of it', async ({ names }) => {
    const before = { connections: modern.connections, asked: house.resolved.length, from: house.outcomes.length };
    const stream = await tunnelOnStream(`allowed.test:${modern.port}`);
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.write(inRecords(helloMessage([names])));
    const outcome = await house.outcome(() => true, before.from);
    await once(stream, 'close');
    const bytes = Buffer.concat(chunks);
    expect([bytes[0], bytes.at(-1)]).toEqual([ALERT, UNRECOGNIZED_NAME]); // fault C01
    expect([outcome.verdict?.code, outcome.decision, outcome.arrival.protocol]).toEqual(['host_mismatch', 'refuse', 'h2']);
    expect([modern.connections, house.resolved.length]).toEqual([before.connections, before.asked]);
  });

  it.each([
    { name: 'a name', host: 'allowed.test', subject: 'DNS:allowed.test' },
    { name: 'an address', host: '127.0.0.1', subject: 'IP Address:127.0.0.1' },
  ])('may be without a name; the leaf is for the host of the CONNECT: $name', async ({ host, subject }) => {
    const authority = `${host}:${classic.port}`;
    const socket = await tunnelOnStream(authority);
    const secured = tls.connect({ socket, host, servername: '', ca: house.ca, ALPNProtocols: ['h2'] });
    await once(secured, 'secureConnect');
    expect(secured.authorized).toBe(true); // fault C07
    expect(secured.getPeerCertificate().subjectaltname).toBe(subject);
    // The upstream has no certificate for an address, which is not what this is about.
    const session = keep(speakHttp2(secured, authority));
    const { status } = await asked(session, { ':authority': authority });
    expect(status).toBe(host === '127.0.0.1' ? 502 : 200);
  });
});

// fault I02
describe('ALPN toward a sandbox', () => {
  const rows = [
    { offered: ['h2'], chosen: 'h2' },
    { offered: ['h2', 'http/1.1'], chosen: 'h2' },
    { offered: ['http/1.1', 'h2'], chosen: 'h2' },
    { offered: ['http/1.1'], chosen: 'http/1.1' },
    { offered: ['http/1.1', 'grpc-exp'], chosen: 'http/1.1' },
    { offered: ['grpc-exp', 'h2'], chosen: 'h2' },
    { offered: [], chosen: false },
  ];

  it.each(rows)('offered $offered, agrees on $chosen, and serves it', async ({ offered, chosen }) => {
    const authority = `allowed.test:${classic.port}`;
    const secured = await openSecureTunnel(house, authority, { tls: { ALPNProtocols: offered } });
    expect(secured.alpnProtocol).toBe(chosen);
    if (chosen === 'h2') {
      const session = keep(speakHttp2(secured, authority));
      expect(verdictIn(await asked(session, { ':authority': authority }))).toBe(OK);
      return;
    }
    secured.write(`GET / HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
    expect((await readAnswer(secured)).status).toBe(200);
    secured.destroy();
  });

  it.each([{ offered: ['grpc-exp'] }, { offered: ['h2c'] }, { offered: ['http/1.0', 'spdy/3'] }])(
    'offered $offered, ends the handshake with no_application_protocol and says so in the ledger',
    async ({ offered }) => {
      const from = house.outcomes.length;
      const { socket } = await openTunnel(house, `allowed.test:${classic.port}`);
      const secured = tls.connect({ socket, servername: 'allowed.test', ca: house.ca, ALPNProtocols: offered });
      const [error] = (await once(secured, 'error')) as [NodeJS.ErrnoException];
      expect(error.code).toBe('ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL');
      expect((await house.outcome(() => true, from)).verdict?.code).toBe('client_tls');
    },
  );

  it('is kept to: HTTP/2 where nothing was agreed on is 400, and what is no HTTP/2 where that was ends its own tunnel alone', async () => {
    const authority = `allowed.test:${classic.port}`;
    const silent = await openSecureTunnel(house, authority, { tls: { ALPNProtocols: [] } });
    silent.write(PREFACE);
    const answer = await readAnswer(silent);
    expect([answer.status, answer.headers['x-sallyport-reason']]).toEqual([400, 'bad_request']);
    silent.destroy();
    const wrong = await openSecureTunnel(house, authority, { tls: { ALPNProtocols: ['h2'] } });
    wrong.write(`GET / HTTP/1.1\r\nHost: ${authority}\r\n\r\n`);
    await once(wrong.resume(), 'end');
    wrong.destroy();
    const session = keep(await openSession(house, authority));
    expect(verdictIn(await asked(session, { ':authority': authority }))).toBe(OK);
  });
});

describe('rotating answers', () => {
  it('refuse none of many streams at once', async () => {
    const everywhere = await startRaw(
      (socket) => void socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n')),
      '0.0.0.0',
    );
    const addresses = ['127.0.0.1', '127.0.0.2', '127.0.0.3', '127.0.0.4'];
    let turn = 0;
    const rotating = await startHouse(
      { network: { allowlist: [{ domain: 'rotating.test', ports: [everywhere.port], addresses: LOOPBACK }] } },
      { names: { 'rotating.test': () => [addresses[(turn += 1) % addresses.length]!] } },
    );
    const session = keep(await openProxySession(rotating));
    const fields = { ':scheme': 'http', ':authority': `rotating.test:${everywhere.port}` };
    const answers = await Promise.all(Array.from({ length: 100 }, () => asked(session, fields)));
    expect(new Set(answers.map(verdictIn))).toEqual(new Set([OK])); // fault C09
    session.destroy();
    await rotating.stop();
    await everywhere.close();
  });
});
