// Framing through real sockets: whatever could be read in two ways is refused before it is sent on, on the proxy port and inside a tunnel,
// and no byte of a second request that hides behind the first ever reaches an upstream.
import tls from 'node:tls';
import type net from 'node:net';
import type { Duplex } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startRaw } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { connectTo, openSecureTunnel, openTunnel, readAnswer } from '../support/sandbox-client.ts';

/** What a row may build its bytes from. */
interface Place {
  /** `http://host:port` on the proxy port, nothing inside a tunnel */
  readonly prefix: string;
  readonly host: string;
}

interface Way {
  readonly name: string;
  readonly place: () => Place;
  readonly open: () => Promise<Duplex>;
}

let outside: Outside;
let plain: Upstream;
let secure: Upstream;
let house: House;
/** Everything that any upstream received, as text */
let received = '';
/** What upstreams answer, by path; everything else gets `ok` */
const answers = new Map<string, string>();

function serve(stream: Duplex): void {
  let text = '';
  stream.on('error', () => undefined);
  stream.on('data', (chunk: Buffer) => {
    received += chunk.toString('latin1');
    text += chunk.toString('latin1');
    for (let end = text.indexOf('\r\n\r\n'); end >= 0; end = text.indexOf('\r\n\r\n')) {
      const path = text.split(' ', 2)[1] ?? '';
      text = text.slice(end + 4);
      const bytes = answers.get(path);
      if (bytes === undefined) stream.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
      else stream.end(Buffer.from(bytes, 'latin1'));
    }
  });
}

beforeAll(async () => {
  outside = await openOutside();
  plain = await startRaw(serve);
  const secureContext = tls.createSecureContext(outside.credentials('api.test'));
  secure = await startRaw((socket) => serve(new tls.TLSSocket(socket, { isServer: true, secureContext })));
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: {
        allowlist: [
          { domain: 'api.test', ports: [secure.port], addresses: LOOPBACK, methods: ['GET', 'POST'] },
          { domain: 'plain.test', ports: [plain.port], addresses: LOOPBACK, methods: ['GET', 'POST'] },
        ],
      },
    },
    { names: { 'api.test': ['127.0.0.1'], 'plain.test': ['127.0.0.1'] } },
  );
});

afterAll(async () => {
  await house.stop();
  await plain.close();
  await secure.close();
  await outside.close();
});

const ways: Way[] = [
  {
    name: 'on the proxy port',
    place: () => ({ prefix: `http://plain.test:${plain.port}`, host: `plain.test:${plain.port}` }),
    open: () => connectTo(house.port),
  },
  {
    name: 'inside a tunnel',
    place: () => ({ prefix: '', host: `api.test:${secure.port}` }),
    open: () => openSecureTunnel(house, `api.test:${secure.port}`),
  },
];

/** Everything that a stream says until it closes. */
function readAll(stream: Duplex): Promise<string> {
  return new Promise((resolve) => {
    let text = '';
    stream.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
    stream.once('end', () => resolve(text)).once('close', () => resolve(text));
  });
}

function statuses(text: string): number[] {
  return [...text.matchAll(/HTTP\/1\.1 (\d{3})/g)].map((match) => Number(match[1]));
}

interface Row {
  readonly name: string;
  readonly fault: string;
  /** The whole request; `SECOND` stands where another one is smuggled */
  readonly bytes: (place: Place) => string;
}

const SECOND = '<second>';

/** A POST with the given field lines and body. */
function post(fields: string, body: string): Row['bytes'] {
  return ({ prefix, host }) => `POST ${prefix}/first HTTP/1.1\r\nHost: ${host}\r\n${fields}\r\n${body}`;
}

/** A GET with the given field lines, and another right behind it. */
function get(fields: string): Row['bytes'] {
  return ({ prefix, host }) => `GET ${prefix}/first HTTP/1.1\r\nHost: ${host}\r\n${fields}\r\n${SECOND}`;
}

/** A chunked POST with the given bytes after its head. */
function chunked(body: string): Row['bytes'] {
  return post('Transfer-Encoding: chunked\r\n', `${body}${SECOND}`);
}

function tagged(fault: string, rows: readonly Omit<Row, 'fault'>[]): Row[] {
  return rows.map((row) => ({ ...row, fault }));
}

const HIDDEN = `0\r\n\r\n${SECOND}`;

const twoLengths: Row[] = tagged('D01', [
  { name: 'Content-Length beside chunked', bytes: post('Content-Length: 6\r\nTransfer-Encoding: chunked\r\n', HIDDEN) },
  { name: 'chunked beside Content-Length', bytes: post('Transfer-Encoding: chunked\r\nContent-Length: 6\r\n', HIDDEN) },
  { name: 'chunked, identity', bytes: post('Transfer-Encoding: chunked, identity\r\n', HIDDEN) },
  { name: 'identity, chunked', bytes: post('Transfer-Encoding: identity, chunked\r\n', HIDDEN) },
  { name: 'a coding that ends in chunked', bytes: post('Transfer-Encoding: xchunked\r\n', HIDDEN) },
  { name: 'chunked twice in one line', bytes: post('Transfer-Encoding: chunked, chunked\r\n', HIDDEN) },
  { name: 'chunked in two lines', bytes: post('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n', HIDDEN) },
  { name: 'chunked behind a vertical tab', bytes: post('Transfer-Encoding: \x0bchunked\r\n', HIDDEN) },
  { name: 'chunked in quotes', bytes: post('Transfer-Encoding: "chunked"\r\n', HIDDEN) },
  { name: 'gzip as a transfer coding', bytes: post('Transfer-Encoding: gzip, chunked\r\n', HIDDEN) },
  { name: 'an empty Transfer-Encoding', bytes: post('Transfer-Encoding: \r\nContent-Length: 5\r\n', HIDDEN) },
  { name: 'a space before the colon of Transfer-Encoding', bytes: post('Transfer-Encoding : chunked\r\n', HIDDEN) },
  {
    name: 'chunked on HTTP/1.0',
    bytes: ({ prefix, host }) =>
      `POST ${prefix}/first HTTP/1.0\r\nHost: ${host}\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n${HIDDEN}`,
  },
]);

const lengths: Row[] = tagged('D02', [
  ...[
    '+5',
    '5,5',
    '5, 5',
    '0x5',
    '05',
    '5 5',
    '',
    '-5',
    '5.0',
    '12345678901234567890',
    '99999999999999999999999',
    '\x0b5',
    '5;',
  ].map((value) => ({
    name: `Content-Length ${JSON.stringify(value)}`,
    bytes: post(`Content-Length: ${value}\r\n`, `12345${SECOND}`),
  })),
  { name: 'two equal Content-Length lines', bytes: post('Content-Length: 5\r\nContent-Length: 5\r\n', `12345${SECOND}`) },
  { name: 'two different Content-Length lines', bytes: post('Content-Length: 5\r\nContent-Length: 0\r\n', `12345${SECOND}`) },
  { name: 'a field name with a space', bytes: get('X Field: 1\r\n') },
  { name: 'a field name with a parenthesis', bytes: get('X(Field: 1\r\n') },
  { name: 'an empty field name', bytes: get(': 1\r\n') },
  { name: 'a field name beyond ASCII', bytes: get('X-F\xefeld: 1\r\n') },
  { name: 'a field line without a colon', bytes: get('X-Field\r\n') },
]);

const lines: Row[] = [
  {
    name: 'a folded line before Content-Length',
    fault: 'D03',
    bytes: post('X-A: 1\r\n Content-Length: 0\r\nContent-Length: 5\r\n', `12345${SECOND}`),
  },
  { name: 'a Content-Length that begins with a space', fault: 'D03', bytes: get(' Content-Length: 5\r\n') },
  { name: 'a folded Transfer-Encoding', fault: 'D03', bytes: post('Transfer-Encoding:\r\n chunked\r\n', HIDDEN) },
  { name: 'a space before the colon', fault: 'D04', bytes: post('Content-Length : 5\r\n', `12345${SECOND}`) },
  { name: 'a tab before the colon', fault: 'D04', bytes: post('Content-Length\t: 5\r\n', `12345${SECOND}`) },
  {
    name: 'lines that end in LF alone',
    fault: 'D05',
    bytes: ({ prefix, host }) => `GET ${prefix}/first HTTP/1.1\nHost: ${host}\n\n${SECOND}`,
  },
  { name: 'one line that ends in LF alone', fault: 'D05', bytes: get('X-A: 1\nX-B: 2\r\n') },
  { name: 'lines that end in CR alone', fault: 'D05', bytes: get('X-A: 1\rX-B: 2\r\n') },
  { name: 'CR CR LF', fault: 'D05', bytes: get('X-A: 1\r\r\n') },
  {
    name: 'a section that ends in LF LF',
    fault: 'D05',
    bytes: ({ prefix, host }) => `GET ${prefix}/first HTTP/1.1\r\nHost: ${host}\n\n${SECOND}`,
  },
  {
    name: 'a section that ends in CR LF LF',
    fault: 'D05',
    bytes: ({ prefix, host }) => `GET ${prefix}/first HTTP/1.1\r\nHost: ${host}\r\n\n${SECOND}`,
  },
  { name: 'NUL in a value', fault: 'D05', bytes: get('X-A: 1\x002\r\n') },
  { name: 'NUL in a name', fault: 'D05', bytes: get('X\x00A: 1\r\n') },
];

const chunks: Row[] = [
  ...['0x5', ' 5', '-5', '+5', '5\n', '5 ', '5\t', '12345678901234567', 'fffffffffffffffff', 'g', '5_0', ''].map((size) => ({
    name: `the chunk size ${JSON.stringify(size)}`,
    fault: 'D09',
    bytes: chunked(`${size}\r\n12345\r\n0\r\n\r\n`),
  })),
  { name: 'a chunk extension with a bare LF', fault: 'D04', bytes: chunked('5;a=b\nc\r\n12345\r\n0\r\n\r\n') },
  { name: 'a chunk extension with a bare CR', fault: 'D04', bytes: chunked('5;a=b\rc\r\n12345\r\n0\r\n\r\n') },
  {
    name: 'a chunk extension of a mebibyte',
    fault: 'D04',
    bytes: chunked(`5;a=${'x'.repeat(1024 * 1024)}\r\n12345\r\n0\r\n\r\n`),
  },
  {
    name: 'Content-Length among the trailers',
    fault: 'D09',
    bytes: chunked('5\r\n12345\r\n0\r\nContent-Length: 99\r\n\r\n'),
  },
  { name: 'no CRLF after the chunk', fault: 'D09', bytes: chunked('5\r\n123450\r\n\r\n') },
  { name: 'data longer than its chunk size', fault: 'D09', bytes: chunked('5\r\n123456\r\n0\r\n\r\n') },
  { name: 'LF alone after the chunk size', fault: 'D09', bytes: chunked('5\n12345\r\n0\r\n\r\n') },
  { name: 'a last chunk that ends in LF alone', fault: 'D09', bytes: chunked('5\r\n12345\r\n0\n\n') },
];

describe.each(ways)('a request $name', ({ place, open }) => {
  async function run(row: Row): Promise<void> {
    const { prefix, host } = place();
    const second = `GET ${prefix}/smuggled HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
    const after = house.outcomes.length;
    const from = received.length;
    const stream = await open();
    stream.write(Buffer.from(row.bytes({ prefix, host }).replace(SECOND, second), 'latin1'));
    const text = await readAll(stream);
    stream.destroy();
    expect(statuses(text)).toEqual([400]);
    const outcome = await house.outcome((one) => one.arrival.purpose === 'exchange', after);
    expect(outcome.verdict?.code).toBe('bad_request');
    expect(outcome.decision).toBe('refuse');
    expect(outcome.trace.status).toBe(400);
    expect(received.slice(from)).not.toContain('smuggled');
    expect(house.outcomes.slice(after)).toHaveLength(1);
  }

  describe('is refused and its connection closed:', () => {
    it.each(twoLengths)('$name ($fault)', run);
    it.each(lengths)('$name ($fault)', run);
    it.each(lines)('$name ($fault)', run);
    it.each(chunks)('$name ($fault)', run);
  });

  it.each([
    { name: 'white space around Content-Length', fields: 'Content-Length:  5 \r\n', body: '12345' },
    { name: 'a chunk extension', fields: 'Transfer-Encoding: chunked\r\n', body: '5;a=b\r\n12345\r\n0\r\n\r\n' },
    {
      name: 'leading zeros and upper case in a chunk size',
      fields: 'Transfer-Encoding: Chunked\r\n',
      body: '00A\r\n1234567890\r\n0\r\n\r\n',
    },
    {
      name: 'trailers, of which none becomes a field', // fault D09
      fields: 'Transfer-Encoding: chunked\r\n',
      body: '5\r\n12345\r\n0\r\nHost: elsewhere.test\r\nX-Late: 1\r\n\r\n',
    },
  ])('is sent on with $name', async ({ fields, body }) => {
    const { prefix, host } = place();
    const from = received.length;
    const stream = await open();
    stream.write(`POST ${prefix}/first HTTP/1.1\r\nHost: ${host}\r\n${fields}\r\n${body}`);
    expect((await readAnswer(stream)).status).toBe(200);
    stream.destroy();
    const sent = received.slice(from).toLowerCase();
    expect(sent).toContain(body.includes('1234567890') ? '1234567890' : '12345');
    expect(sent).not.toContain('elsewhere');
    expect(sent).not.toContain('x-late');
  });

  // fault D06
  it('is judged on its own when it comes in one piece with an allowed one', async () => {
    const { prefix, host } = place();
    const after = house.outcomes.length;
    const from = received.length;
    const stream = await open();
    const one = (line: string) => `${line} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
    stream.write(one(`GET ${prefix}/allowed`) + one(`DELETE ${prefix}/smuggled`) + one(`GET ${prefix}/third`));
    const got = [await readAnswer(stream), await readAnswer(stream), await readAnswer(stream)];
    stream.destroy();
    expect(got.map((answer) => answer.status)).toEqual([200, 403, 200]);
    expect(got[1]?.headers['x-sallyport-reason']).toBe('method_denied');
    expect(received.slice(from)).not.toContain('smuggled');
    for (const [path, decision] of [
      ['/allowed', 'allow'],
      ['/smuggled', 'refuse'],
      ['/third', 'allow'],
    ] as const) {
      const outcome = await house.outcome(({ arrival }) => arrival.target.endsWith(path), after);
      expect(outcome.decision).toBe(decision);
    }
  });

  // fault D06
  it('still gets its answer when malformed bytes follow it', async () => {
    const { prefix, host } = place();
    const stream = await open();
    stream.write(`GET ${prefix}/allowed HTTP/1.1\r\nHost: ${host}\r\n\r\nGET ${prefix}/smuggled HTTP/1.1\nHost: ${host}\n\n`);
    const text = await readAll(stream);
    stream.destroy();
    expect(statuses(text)).toEqual([200, 400]);
    expect(received).not.toContain('smuggled');
  });
});

// fault D06
describe('a CONNECT', () => {
  it('feeds a ClientHello that came with its head to TLS exactly once', async () => {
    const hello = await new Promise<Buffer>((resolve) => {
      void startRaw((socket) => socket.once('data', (chunk) => resolve(chunk))).then((catcher) => {
        const client = tls.connect({ port: catcher.port, host: '127.0.0.1', servername: 'api.test' });
        client.on('error', () => void catcher.close());
        client.once('close', () => void catcher.close());
        catcher.server.once('connection', (socket: net.Socket) => socket.once('data', () => client.destroy()));
      });
    });
    const stream = await connectTo(house.port);
    const authority = `api.test:${secure.port}`;
    stream.write(Buffer.concat([Buffer.from(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`), hello]));
    expect((await readAnswer(stream, 'CONNECT')).status).toBe(200);
    const record = await new Promise<Buffer>((resolve) => {
      stream.once('data', resolve);
      stream.resume();
    });
    stream.destroy();
    // A handshake record that holds a ServerHello, not an alert.
    expect([record[0], record[5]]).toEqual([0x16, 0x02]);
  });

  it('that is refused ends its connection, so that none behind it is heard', async () => {
    const after = house.outcomes.length;
    const stream = await connectTo(house.port);
    const connect = (authority: string) => `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`;
    const second = `plain.test:${plain.port}`;
    stream.write(connect('denied.test:443') + connect(second));
    expect(statuses(await readAll(stream))).toEqual([403]);
    stream.destroy();
    await house.outcome((outcome) => outcome.verdict?.code === 'not_allowlisted', after);
    expect(house.outcomes.filter(({ arrival }) => arrival.purpose === 'tunnel' && arrival.target === second)).toEqual([]);
  });

  it('behind a request whose answer is not complete ends the connection', async () => {
    const { prefix, host } = ways[0]!.place();
    const after = house.outcomes.length;
    const stream = await connectTo(house.port);
    stream.write(`GET ${prefix}/first HTTP/1.1\r\nHost: ${host}\r\n\r\nCONNECT ${host} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    expect(await readAll(stream)).not.toContain('Connection Established');
    const outcome = await house.outcome(({ arrival }) => arrival.target.endsWith('/first'), after);
    expect(outcome.verdict?.code).toBe('client_closed');
  });

  it('inside a tunnel is refused', async () => {
    const stream = await openSecureTunnel(house, `api.test:${secure.port}`);
    stream.write(`CONNECT api.test:${secure.port} HTTP/1.1\r\nHost: api.test:${secure.port}\r\n\r\n`);
    expect((await readAnswer(stream)).status).toBe(400);
  });

  it('with bytes that are neither TLS nor HTTP is cut', async () => {
    const after = house.outcomes.length;
    const { socket } = await openTunnel(house, `api.test:${secure.port}`);
    socket.write('SSH-2.0-OpenSSH_9.6\r\n');
    expect(await readAll(socket)).toBe('');
    const outcome = await house.outcome((one) => one.arrival.purpose === 'tunnel', after);
    expect(outcome.verdict?.code).toBe('bad_request');
  });
});

// fault D13
describe.each(ways)('an answer that comes back $name', ({ place, open }) => {
  async function answerOf(path: string, bytes: string): Promise<{ text: string; reason: string | undefined }> {
    answers.set(path, bytes);
    const { prefix, host } = place();
    const after = house.outcomes.length;
    const stream = await open();
    stream.write(`GET ${prefix}${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    const text = await readAll(stream);
    stream.destroy();
    const outcome = await house.outcome((one) => one.arrival.purpose === 'exchange', after);
    return { text, reason: outcome.verdict?.code };
  }

  it.each([
    { name: 'a field line without a colon', bytes: 'HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 2\r\n\r\nok' },
    { name: 'a field name with a space', bytes: 'HTTP/1.1 200 OK\r\nX Y: 1\r\nContent-Length: 2\r\n\r\nok' },
    { name: 'a space before the colon', bytes: 'HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok' },
    { name: 'two differing Content-Length', bytes: 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok' },
    { name: 'two equal Content-Length', bytes: 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok' },
    { name: 'a signed Content-Length', bytes: 'HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok' },
    {
      name: 'Content-Length beside chunked',
      bytes: 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
    },
    { name: 'a folded line', bytes: 'HTTP/1.1 200 OK\r\nX-A: 1\r\n folded\r\nContent-Length: 2\r\n\r\nok' },
    { name: 'NUL in a value', bytes: 'HTTP/1.1 200 OK\r\nX-A: 1\x002\r\nContent-Length: 2\r\n\r\nok' },
    { name: 'the status line of ICY', bytes: 'ICY 200 OK\r\nContent-Length: 2\r\n\r\nok' },
    { name: 'a status of two digits', bytes: 'HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok' },
    { name: 'no answer at all', bytes: '' },
    {
      name: 'a 101 that nobody asked for',
      bytes: 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nok',
    },
    { name: 'unfinished fields', bytes: 'HTTP/1.1 200 OK\r\nContent-Le' },
  ])('is 502 with $name', async ({ name, bytes }) => {
    const { text, reason } = await answerOf(`/bad/${encodeURIComponent(name)}`, bytes);
    expect(statuses(text)).toEqual([502]);
    expect(text).toContain('X-Sallyport-Reason: upstream_protocol');
    expect(reason).toBe('upstream_protocol');
  });

  it.each([
    { name: 'a body shorter than Content-Length', bytes: 'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok' },
    { name: 'no last chunk', bytes: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n' },
    {
      name: 'a broken chunk size',
      bytes: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0x1\r\na\r\n0\r\n\r\n',
    },
    { name: 'no CRLF after a chunk', bytes: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokk0\r\n\r\n' },
  ])('is cut short, and seen to be, with $name', async ({ name, bytes }) => {
    const { text, reason } = await answerOf(`/short/${encodeURIComponent(name)}`, bytes);
    expect(statuses(text).length).toBeLessThanOrEqual(1);
    expect(text).not.toMatch(/\r\n0\r\n\r\n$/);
    if (/^HTTP\/1\.1 200/.test(text)) expect(text).toMatch(/content-length: 20|transfer-encoding: chunked/i);
    else expect(statuses(text)).toEqual([502]);
    expect(reason).toBe('upstream_protocol');
  });

  it.each([
    { name: 'no reason phrase', bytes: 'HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok' },
    { name: 'an empty reason phrase', bytes: 'HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok' },
    { name: 'HTTP/1.0 and its end as its length', bytes: 'HTTP/1.0 200 OK\r\n\r\nok' },
    { name: 'HTTP/1.1 and its end as its length', bytes: 'HTTP/1.1 200 OK\r\n\r\nok' },
  ])('is relayed with $name', async ({ name, bytes }) => {
    const { text, reason } = await answerOf(`/good/${encodeURIComponent(name)}`, bytes);
    expect(statuses(text)).toEqual([200]);
    expect(text).toMatch(/\r\n\r\n(?:2\r\n)?ok(?:\r\n0\r\n\r\n)?$/);
    expect(reason).toBeUndefined();
  });
});
