// Bodies on their way through: they leave as they come, in the bytes they came in, with backpressure from end to end,
// and an answer that comes before the upload is over still reaches the sandbox.
import { createHash, randomBytes } from 'node:crypto';
import type http from 'node:http';
import type { Duplex } from 'node:stream';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { connectTo, openSecureTunnel, readAnswer } from '../support/sandbox-client.ts';

type Route = (request: http.IncomingMessage, response: http.ServerResponse) => void;

let outside: Outside;
let plain: Upstream;
let secure: Upstream;
let house: House;
/** What upstreams do, by path */
const routes = new Map<string, Route>();
let resolveLate: () => readonly string[] | Promise<readonly string[]> = () => [];

beforeAll(async () => {
  const byPath: Route = (request, response) => {
    request.on('error', () => undefined);
    response.on('error', () => undefined);
    const route = routes.get(request.url ?? '');
    if (route === undefined) response.writeHead(404).end();
    else route(request, response);
  };
  outside = await openOutside();
  plain = await startUpstream({ raw: byPath });
  secure = await startUpstream({ tls: outside, raw: byPath });
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: {
        allowlist: [
          { domain: 'api.test', ports: [secure.port], addresses: LOOPBACK },
          { domain: 'plain.test', ports: [plain.port], addresses: LOOPBACK },
          { domain: 'late.test', ports: [plain.port], addresses: LOOPBACK },
        ],
      },
    },
    { names: { 'api.test': ['127.0.0.1'], 'plain.test': ['127.0.0.1'], 'late.test': () => resolveLate() } },
  );
});

afterAll(async () => {
  await house.stop();
  await plain.close();
  await secure.close();
  await outside.close();
});

interface Way {
  readonly name: string;
  readonly open: () => Promise<Duplex>;
  /** Request line and Host for a path */
  readonly start: (method: string, path: string, version?: string) => string;
}

const ways: Way[] = [
  {
    name: 'on the proxy port',
    open: () => connectTo(house.port),
    start: (method, path, version = '1.1') =>
      `${method} http://plain.test:${plain.port}${path} HTTP/${version}\r\nHost: plain.test:${plain.port}\r\n`,
  },
  {
    name: 'inside a tunnel',
    open: () => openSecureTunnel(house, `api.test:${secure.port}`),
    start: (method, path, version = '1.1') => `${method} ${path} HTTP/${version}\r\nHost: api.test:${secure.port}\r\n`,
  },
];

/** Keeps what a stream says; `until` resolves with everything so far once `mark` has come. */
function listenTo(stream: Duplex): { readonly until: (mark: string) => Promise<string>; readonly end: Promise<string> } {
  let text = '';
  let look: () => void = () => undefined;
  const end = new Promise<string>((resolve) => {
    stream.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      look();
    });
    stream.once('end', () => resolve(text)).once('close', () => resolve(text));
  });
  return {
    end,
    until: (mark) =>
      new Promise((resolve, reject) => {
        look = () => {
          if (text.includes(mark)) resolve(text);
        };
        void end.then(() => reject(new Error(`the stream ended before ${JSON.stringify(mark)}: ${text.slice(0, 300)}`)));
        look();
      }),
  };
}

/** A promise and what settles it. */
function gate<T = void>(): { readonly passed: Promise<T>; readonly open: (value: T) => void } {
  let open: (value: T) => void = () => undefined;
  const passed = new Promise<T>((resolve) => (open = resolve));
  return { passed, open };
}

/** Answers with these bytes and ends the connection. */
function raw(response: http.ServerResponse, bytes: string): void {
  response.socket?.end(Buffer.from(bytes, 'latin1'));
}

function hashOf(bytes: string | Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

describe.each(ways)('an exchange $name', ({ open, start }) => {
  // fault I01
  it('lets each event of a stream leave at once, and the head before the first of them', async () => {
    const begun = gate<http.ServerResponse>();
    routes.set('/events', (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.flushHeaders();
      begun.open(response);
    });
    const stream = await open();
    const heard = listenTo(stream);
    stream.write(`${start('GET', '/events')}\r\n`);
    const response = await begun.passed;
    expect(await heard.until('\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 OK\r\n[^]*text\/event-stream/);
    for (const event of ['data: one\n\n', ': a comment\n\n', 'data: two\n\n']) {
      response.write(event);
      await heard.until(event);
    }
    response.end();
    expect(await heard.until('0\r\n\r\n')).toContain('data: two');
    stream.destroy();
  });

  it('carries values beyond ASCII in a head that leaves by itself', async () => {
    const begun = gate<http.ServerResponse>();
    routes.set('/latin-events', (_request, response) => {
      response.socket?.write(Buffer.from('HTTP/1.1 200 OK\r\nX-A: caf\xe9\r\nTransfer-Encoding: chunked\r\n\r\n', 'latin1'));
      begun.open(response);
    });
    const stream = await open();
    const heard = listenTo(stream);
    stream.write(`${start('GET', '/latin-events')}\r\n`);
    const response = await begun.passed;
    expect(await heard.until('\r\n\r\n')).toContain('X-A: caf\xe9\r\n');
    response.socket?.destroy();
    stream.destroy();
  });

  it('relays an upload as it comes, before it is complete', async () => {
    const begun = gate<http.IncomingMessage>();
    const pieces: string[] = [];
    let heard: () => void = () => undefined;
    routes.set('/upload', (request, response) => {
      request.on('data', (chunk: Buffer) => {
        pieces.push(chunk.toString());
        heard();
      });
      request.on('end', () => response.end(pieces.join('')));
      begun.open(request);
    });
    const stream = await open();
    stream.write(`${start('POST', '/upload')}Transfer-Encoding: chunked\r\n\r\n`);
    for (const [index, piece] of ['first', 'second', 'third'].entries()) {
      const arrived = new Promise<void>((resolve) => (heard = () => pieces.length > index && resolve()));
      stream.write(`${piece.length.toString(16)}\r\n${piece}\r\n`);
      await arrived;
    }
    stream.write('0\r\n\r\n');
    expect((await readAnswer(stream)).body).toBe('firstsecondthird');
    stream.destroy();
  });

  // fault I08
  it('ends the upstream connection when the sandbox leaves in the middle of an answer', async () => {
    const closed = gate();
    routes.set('/endless', (_request, response) => {
      response.on('close', () => closed.open());
      const more = (): void => {
        if (response.write(Buffer.alloc(65536))) setImmediate(more);
        else response.once('drain', more);
      };
      more();
    });
    const after = house.outcomes.length;
    const stream = await open();
    stream.write(`${start('GET', '/endless')}\r\n`);
    await new Promise((resolve) => stream.once('data', resolve));
    stream.destroy();
    await closed.passed;
    const outcome = await house.outcome(({ arrival }) => arrival.purpose === 'exchange', after);
    expect(outcome.verdict?.code).toBe('client_closed');
  });

  // fault D10
  it.each([
    {
      name: 'that then reads the rest',
      route: ((request, response) => {
        request.once('data', () => {
          response.writeHead(413, { 'content-length': 9, connection: 'close' }).end('too large');
          request.resume();
        });
      }) satisfies Route,
    },
    {
      name: 'that reads no more and closes',
      route: ((request, response) => {
        request.once('data', () => {
          request.pause();
          response.writeHead(413, { 'content-length': 9, connection: 'close' });
          response.end('too large', () => request.socket.destroy());
        });
      }) satisfies Route,
    },
    {
      name: 'that reads no more and stays',
      route: ((request, response) => {
        request.once('data', () => {
          request.pause();
          response.writeHead(413, { 'content-length': 9 }).end('too large');
        });
      }) satisfies Route,
    },
  ])('hands over an early 413 of an upstream $name', async ({ route }) => {
    routes.set('/large', route);
    for (let round = 0; round < 5; round += 1) {
      const stream = await open();
      const answered = readAnswer(stream);
      stream.write(`${start('PUT', '/large')}Content-Length: ${50 * 1024 * 1024}\r\n\r\n`);
      const piece = Buffer.alloc(65536);
      const more = (): void => {
        while (!stream.destroyed && stream.writable) if (!stream.write(piece)) return void stream.once('drain', more);
      };
      more();
      const answer = await answered;
      expect({ status: answer.status, body: answer.body }).toEqual({ status: 413, body: 'too large' });
      stream.destroy();
    }
  });

  // fault D11
  describe('with Expect: 100-continue', () => {
    const routeOf: Record<string, Route> = {
      '/continue/reads': (request, response) => request.resume().on('end', () => response.end('read')),
      '/continue/declines': (_request, response) => response.writeHead(417, { connection: 'close' }).end('declined'),
    };

    it('is asked for its body once, when policy has let it pass', async () => {
      routes.set('/continue/reads', routeOf['/continue/reads']!);
      const stream = await open();
      const heard = listenTo(stream);
      stream.write(`${start('PUT', '/continue/reads')}Content-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n`);
      expect(await heard.until('\r\n\r\n')).toBe('HTTP/1.1 100 Continue\r\n\r\n');
      stream.write('12345');
      const text = await heard.end;
      expect(text.match(/HTTP\/1\.1 \d{3}/g)).toEqual(['HTTP/1.1 100', 'HTTP/1.1 200']);
      expect(text).toContain('read');
    });

    it('gets the final answer of an upstream that declines', async () => {
      routes.set('/continue/declines', routeOf['/continue/declines']!);
      const stream = await open();
      const heard = listenTo(stream);
      stream.write(`${start('PUT', '/continue/declines')}Content-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n`);
      await heard.until('100 Continue');
      stream.write('12345');
      expect((await heard.end).match(/HTTP\/1\.1 \d{3}/g)).toEqual(['HTTP/1.1 100', 'HTTP/1.1 417']);
    });

    it('is not asked when it is refused', async () => {
      const stream = await connectTo(house.port);
      const heard = listenTo(stream);
      stream.write('PUT http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n');
      expect((await heard.end).match(/HTTP\/1\.1 \d{3}/g)).toEqual(['HTTP/1.1 403']);
    });

    it('is 417 for any other expectation, and nothing is sent on', async () => {
      const before = secure.seen.length + plain.seen.length;
      const stream = await open();
      stream.write(`${start('PUT', '/continue/reads')}Content-Length: 5\r\nExpect: 200-ok\r\n\r\n`);
      const answer = await readAnswer(stream);
      stream.destroy();
      expect(answer.status).toBe(417);
      expect(answer.headers['x-sallyport-reason']).toBe('expectation_failed');
      expect(secure.seen.length + plain.seen.length).toBe(before);
    });
  });

  // fault I03
  it('relays the trailers of an answer but for framing, and never as fields', async () => {
    routes.set('/trailers', (_request, response) => {
      response.writeHead(200, { trailer: 'X-Sum, Grpc-Status', 'content-type': 'text/plain' });
      response.write('body');
      response.addTrailers([
        ['X-Sum', 'abc'],
        ['Grpc-Status', '0'],
        ['Set-Cookie', 'a=b'],
        ['Authorization', 'x'],
        ['Host', 'elsewhere.test'],
        ['X-Sallyport-Reason', 'forged'],
      ]);
      response.end();
    });
    const stream = await open();
    stream.write(`${start('GET', '/trailers')}TE: trailers\r\n\r\n`);
    const answer = await readAnswer(stream);
    stream.destroy();
    expect(answer.body).toBe('body');
    expect(answer.trailers).toEqual(['X-Sum', 'abc', 'Grpc-Status', '0']);
    expect(answer.headers['x-sum']).toBeUndefined();
  });

  it('relays an answer that announces trailers which its framing cannot carry', async () => {
    routes.set('/announced', (_request, response) => {
      raw(response, 'HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nContent-Length: 4\r\n\r\nbody');
    });
    const stream = await open();
    stream.write(`${start('GET', '/announced')}\r\n`);
    const answer = await readAnswer(stream);
    stream.destroy();
    expect({ status: answer.status, body: answer.body }).toEqual({ status: 200, body: 'body' });
  });

  it.each([
    { name: 'a control character in a value', head: 'HTTP/1.1 200 OK\r\nX-A: a\x01b\r\nContent-Length: 2\r\n\r\nok' },
    { name: 'DEL in a value', head: 'HTTP/1.1 200 OK\r\nX-A: a\x7fb\r\nContent-Length: 2\r\n\r\nok' },
    { name: 'a status below 100', head: 'HTTP/1.1 099 Low\r\nContent-Length: 2\r\n\r\nok' },
  ])('is 502, and nothing breaks, when an answer comes with $name', async ({ head }) => {
    routes.set('/controls', (_request, response) => raw(response, head));
    const stream = await open();
    stream.write(`${start('GET', '/controls')}\r\n`);
    const answer = await readAnswer(stream);
    stream.destroy();
    expect(answer.status).toBe(502);
    expect(answer.headers['x-sallyport-reason']).toBe('upstream_protocol');
  });

  it('carries values beyond ASCII and empty ones unchanged, and leaves out a reason phrase that is not ASCII', async () => {
    routes.set('/latin', (_request, response) => {
      raw(response, 'HTTP/1.1 200 Tr\xe8s bien\r\nX-A: caf\xe9\r\nX-Empty:\r\nx-a: two\r\nContent-Length: 2\r\n\r\nok');
    });
    const stream = await open();
    stream.write(`${start('GET', '/latin')}\r\n`);
    const answer = await readAnswer(stream);
    stream.destroy();
    expect(answer.reason).toBe('');
    expect(answer.fields.slice(0, 6)).toEqual(['X-A', 'caf\xe9', 'X-Empty', '', 'x-a', 'two']);
  });

  it('answers HEAD, 204 and 304 without a body and keeps the connection in step', async () => {
    routes.set('/head', (_request, response) => void response.writeHead(200, { 'content-length': 1234, etag: '"a"' }).end());
    routes.set('/none', (_request, response) => raw(response, 'HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\n'));
    routes.set('/same', (_request, response) => void response.writeHead(304, { etag: '"a"', 'content-length': 1234 }).end());
    routes.set('/last', (_request, response) => void response.end('last'));
    const stream = await open();
    const ask = (method: string, path: string) => {
      stream.write(`${start(method, path)}\r\n`);
      return readAnswer(stream, method);
    };
    const head = await ask('HEAD', '/head');
    expect([head.status, head.headers['content-length'], head.headers['etag']]).toEqual([200, '1234', '"a"']);
    const none = await ask('GET', '/none');
    expect([none.status, none.headers['transfer-encoding'], none.headers['content-length']]).toEqual([204, undefined, undefined]);
    const same = await ask('GET', '/same');
    expect([same.status, same.headers['etag'], same.headers['transfer-encoding']]).toEqual([304, '"a"', undefined]);
    expect((await ask('HEAD', '/last')).body).toBe('');
    expect((await ask('GET', '/last')).body).toBe('last');
    stream.destroy();
  });

  it('relays early hints before the answer', async () => {
    routes.set('/hints', (_request, response) => {
      response.writeEarlyHints({ link: ['</style.css>; rel=preload', '</a.js>; rel=preload'] });
      response.end('done');
    });
    const stream = await open();
    stream.write(`${start('GET', '/hints')}\r\n`);
    const hints = await readAnswer(stream);
    expect([hints.status, hints.headers['link']]).toEqual([103, '</style.css>; rel=preload, </a.js>; rel=preload']);
    expect((await readAnswer(stream)).body).toBe('done');
    stream.destroy();
  });

  // fault I07
  it.each([
    { name: 'gzip', coding: 'gzip', bytes: gzipSync('gzip '.repeat(5000)) },
    { name: 'brotli', coding: 'br', bytes: brotliCompressSync('brotli '.repeat(5000)) },
    { name: 'gzip twice', coding: 'gzip, gzip', bytes: gzipSync(gzipSync('twice')) },
    { name: 'truncated gzip', coding: 'gzip', bytes: gzipSync('x'.repeat(5000)).subarray(0, 20) },
    { name: 'plain bytes that claim to be gzip', coding: 'gzip', bytes: Buffer.from('not gzip at all') },
    { name: 'an unknown coding', coding: 'zstd-2', bytes: randomBytes(1000) },
  ])('leaves a body in $name as it is', async ({ coding, bytes }) => {
    let accepted: string | undefined;
    routes.set('/coded', (request, response) => {
      accepted = request.headers['accept-encoding'];
      response.writeHead(200, { 'content-encoding': coding, 'content-length': bytes.length }).end(bytes);
    });
    const stream = await open();
    stream.write(`${start('GET', '/coded')}Accept-Encoding: gzip;q=0.5, br\r\n\r\n`);
    const answer = await readAnswer(stream);
    stream.destroy();
    expect(accepted).toBe('gzip;q=0.5, br');
    expect(answer.headers['content-encoding']).toBe(coding);
    expect(answer.headers['content-length']).toBe(String(bytes.length));
    expect(hashOf(Buffer.from(answer.body, 'latin1'))).toBe(hashOf(bytes));
  });

  it('answers an HTTP/1.0 client without chunks and closes', async () => {
    routes.set('/chunks', (_request, response) => {
      response.write('one');
      response.end('two');
    });
    const stream = await open();
    const heard = listenTo(stream);
    stream.write(`${start('GET', '/chunks', '1.0')}\r\n`);
    const text = await heard.end;
    expect(text).toMatch(/\r\n\r\nonetwo$/);
    expect(text).not.toMatch(/transfer-encoding/i);
  });

  it('relays an answer whose end is the end of its connection', async () => {
    const body = randomBytes(300_000);
    routes.set('/until-closed', (_request, response) => {
      response.socket!.end(Buffer.concat([Buffer.from('HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\n'), body]));
    });
    const stream = await open();
    stream.write(`${start('GET', '/until-closed')}\r\n`);
    const answer = await readAnswer(stream);
    stream.destroy();
    expect(hashOf(Buffer.from(answer.body, 'latin1'))).toBe(hashOf(body));
  });

  // fault D06
  it('takes pipelined requests one after another and answers them in their order', async () => {
    let under = 0;
    let most = 0;
    for (const path of ['/p/1', '/p/2', '/p/3']) {
      routes.set(path, (request, response) => {
        under += 1;
        most = Math.max(most, under);
        request.resume().on('end', () =>
          setImmediate(() => {
            under -= 1;
            response.end(path);
          }),
        );
      });
    }
    const stream = await open();
    stream.write(`${start('GET', '/p/1')}\r\n${start('POST', '/p/2')}Content-Length: 5\r\n\r\n12345${start('GET', '/p/3')}\r\n`);
    const bodies = [await readAnswer(stream), await readAnswer(stream), await readAnswer(stream)].map((answer) => answer.body);
    stream.destroy();
    expect(bodies).toEqual(['/p/1', '/p/2', '/p/3']);
    expect(most).toBe(1);
  });
});

// fault I09
it('holds an upload back while its upstream is not connected yet, and loses nothing', async () => {
  const upload = randomBytes(8 * 1024 * 1024);
  const resolving = gate<readonly string[]>();
  resolveLate = () => resolving.passed;
  routes.set('/late', (request, response) => {
    const hash = createHash('sha256');
    request.on('data', (chunk: Buffer) => hash.update(chunk)).on('end', () => response.end(hash.digest('hex')));
  });
  const stream = await connectTo(house.port);
  stream.write(
    `POST http://late.test:${plain.port}/late HTTP/1.1\r\nHost: late.test:${plain.port}\r\nContent-Length: ${upload.length}\r\n\r\n`,
  );
  const held = stream.write(upload);
  expect(held).toBe(false);
  resolving.open(['127.0.0.1']);
  expect((await readAnswer(stream)).body).toBe(hashOf(upload));
  stream.destroy();
});

// fault I08
describe('memory', () => {
  const TOTAL = 256 * 1024 * 1024;
  const MOST_UNDER_WAY = 32 * 1024 * 1024;
  const MOST_GROWTH = 64 * 1024 * 1024;
  const piece = randomBytes(65536);

  /** Writes `total` bytes as fast as the stream takes them and ends it, unless it `stays`; `sent` is told of each piece. */
  function pour(
    into: NodeJS.WritableStream,
    { total, sent, stays = false }: { readonly total: number; readonly sent: (bytes: number) => void; readonly stays?: boolean },
  ): void {
    let left = total;
    const more = (): void => {
      while (left > 0) {
        left -= piece.length;
        sent(piece.length);
        if (!into.write(piece) && left > 0) return void into.once('drain', more);
      }
      if (!stays) into.end();
    };
    more();
  }

  /** Reads a stream to its end, a turn of the event loop between two chunks; resolves with its length. */
  function sip(from: NodeJS.ReadableStream, took: (bytes: number) => void): Promise<void> {
    return new Promise((resolve) => {
      from.on('data', (chunk: Buffer) => {
        took(chunk.length);
        from.pause();
        setImmediate(() => from.resume());
      });
      from.on('end', resolve);
    });
  }

  function watch(): {
    readonly sent: (bytes: number) => void;
    readonly took: (bytes: number) => void;
    readonly check: (total: number) => void;
  } {
    const before = process.memoryUsage.rss();
    let [sent, taken, underWay, growth, next] = [0, 0, 0, 0, 0];
    return {
      sent: (bytes) => {
        sent += bytes;
        underWay = Math.max(underWay, sent - taken);
      },
      took: (bytes) => {
        taken += bytes;
        if (taken < next) return;
        next = taken + 1024 * 1024;
        growth = Math.max(growth, process.memoryUsage.rss() - before);
      },
      check: (total) => {
        expect(taken).toBeGreaterThanOrEqual(total);
        expect(underWay).toBeLessThan(MOST_UNDER_WAY);
        expect(growth).toBeLessThan(MOST_GROWTH);
      },
    };
  }

  async function download(total: number, memory: ReturnType<typeof watch>): Promise<void> {
    routes.set('/download', (_request, response) => pour(response, { total, sent: memory.sent }));
    const stream = await connectTo(house.port);
    stream.write(`${ways[0]!.start('GET', '/download')}Connection: close\r\n\r\n`);
    await sip(stream, memory.took);
  }

  async function upload(total: number, memory: ReturnType<typeof watch>): Promise<void> {
    routes.set('/take', (request, response) => void sip(request, memory.took).then(() => response.end('taken')));
    const stream = await connectTo(house.port);
    stream.write(`${ways[0]!.start('PUT', '/take')}Content-Length: ${total}\r\n\r\n`);
    const answered = readAnswer(stream);
    pour(stream, { total, sent: memory.sent, stays: true });
    expect((await answered).body).toBe('taken');
    stream.destroy();
  }

  // The first pass fills the buffers that Node keeps; what grows with the size of a body shows in the second.
  it.each([
    { name: 'a slow reader takes a large answer', transfer: download },
    { name: 'a slow upstream takes a large upload', transfer: upload },
  ])('stays bounded while $name', async ({ transfer }) => {
    await transfer(TOTAL / 4, watch());
    const memory = watch();
    await transfer(TOTAL, memory);
    memory.check(TOTAL);
  });
});
