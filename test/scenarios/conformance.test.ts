// Other people's clients speak HTTP/2 through a whole house: curl, nghttp, h2load, undici and Node's fetch, each as its users start it.
// A tool that is not installed is skipped, and says so.
import { execFile, execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Agent, fetch as undiciFetch, ProxyAgent, request } from 'undici';
import type { Dispatcher } from 'undici';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHttp2Upstream } from '../support/http2-upstream.ts';
import type { Http2Upstream, SeenStream } from '../support/http2-upstream.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { openSecureTunnel, openTunnel } from '../support/sandbox-client.ts';

const run = promisify(execFile);
const LARGE = 1 << 20;

let outside: Outside;
let house: House;
/** Speaks HTTP/2 and HTTP/1.1 over TLS */
let secure: Http2Upstream;
let plain: Upstream;
let front: { readonly port: number; close(): void };
let folder: string;
let upload: string;

beforeAll(async () => {
  outside = await openOutside();
  secure = await startHttp2Upstream({
    tls: outside,
    alpn: ['h2', 'http/1.1'],
    answer: (stream, seen) => {
      stream.respond({ ':status': 200, 'x-body': String(seen.body.length) });
      stream.end(seen.path === '/large' ? Buffer.alloc(LARGE, 'x') : `${seen.method} ${seen.path}`);
    },
  });
  plain = await startUpstream({
    answer: (seen, response) => {
      response.setHeader('x-body', seen.body.length);
      response.end(seen.url === '/large' ? Buffer.alloc(LARGE, 'x') : `${seen.method} ${seen.url}`);
    },
  });
  const put = { addresses: LOOPBACK, transform: { Authorization: 'Bearer put-on' }, paths: ['/(?:[a-z]+)?(?:\\?.*)?'] };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: {
        allowlist: [
          { domain: 'api.test', ports: [secure.port], ...put },
          { domain: 'plain.test', ports: [plain.port], ...put, allow_plaintext: true },
        ],
      },
    },
    { names: { 'api.test': ['127.0.0.1'], 'plain.test': ['127.0.0.1'] } },
  );
  front = await startFront(() => `api.test:${secure.port}`);
  folder = await mkdtemp(join(tmpdir(), 'conformance-'));
  upload = join(folder, 'upload');
  await writeFile(upload, randomBytes(LARGE));
  await writeFile(join(folder, 'ca.pem'), house.ca);
});

afterAll(async () => {
  front.close();
  await house.stop();
  await secure.close();
  await plain.close();
  await outside.close();
  await rm(folder, { recursive: true, force: true });
});

/** A port that leads into a tunnel, for tools that know no proxies. */
async function startFront(authority: () => string): Promise<typeof front> {
  const open = new Set<net.Socket>();
  const server = net.createServer({ noDelay: true }, (socket) => {
    open.add(socket.on('error', () => undefined));
    void openTunnel(house, authority()).then(({ socket: tunnel }) => {
      open.add(tunnel.setNoDelay());
      socket.pipe(tunnel).pipe(socket);
      socket.once('close', () => tunnel.destroy());
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as AddressInfo).port,
    close: () => {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}

/** Why a tool cannot be run, to be put behind a title; empty where it can. */
function missing(tool: string, from: string): string {
  try {
    execFileSync(tool, ['--version'], { stdio: 'ignore' });
    return '';
  } catch {
    return ` (skipped: ${tool} is not installed; apt-get install ${from})`;
  }
}

function lastSeen(path: string): SeenStream {
  return secure.seen.findLast((seen) => seen.path === path)!;
}

const https = (path: string): string => `https://api.test:${secure.port}${path}`;
const http = (path: string): string => `http://plain.test:${plain.port}${path}`;

const noCurl = missing('curl', 'curl');
describe.skipIf(noCurl !== '')(`curl${noCurl}`, () => {
  interface Curled {
    readonly code: number;
    readonly body: string;
    readonly version: string;
    readonly status: number;
    readonly head: string;
  }

  /** Runs it with the proxy and the CA that a sandbox is given. */
  async function curl(...args: string[]): Promise<Curled> {
    const all = ['-sS', '-D', '-', '--cacert', join(folder, 'ca.pem'), '-w', '\n%{http_version} %{http_code}', ...args];
    const options = { maxBuffer: 4 * LARGE, env: { PATH: process.env.PATH } };
    const { stdout, code } = await run('curl', all, options).then(
      ({ stdout }) => ({ stdout, code: 0 }),
      (error: unknown) => error as { readonly stdout: string; readonly code: number },
    );
    const end = stdout.lastIndexOf('\n');
    const [version = '', status] = stdout.slice(end + 1).split(' ');
    const begin = stdout.lastIndexOf('\r\n\r\n', end) + 4;
    return { code, body: stdout.slice(begin, end), version, status: Number(status), head: stdout.slice(0, begin) };
  }

  const proxy = (): string[] => ['--proxy', `http://127.0.0.1:${house.port}`];

  it('--http2 speaks HTTP/2 through the tunnel, and so does the door upstream', async () => {
    const got = await curl('--http2', ...proxy(), https('/curl'));
    expect(got).toMatchObject({ code: 0, version: '2', status: 200, body: 'GET /curl' });
    expect(lastSeen('/curl')).toMatchObject({ spoken: 'h2', scheme: 'https', authority: `api.test:${secure.port}` });
    expect(valuesOf(lastSeen('/curl').fields, 'authorization')).toEqual(['Bearer put-on']);
  });

  it('--http2-prior-knowledge does the same', async () => {
    const got = await curl('--http2-prior-knowledge', ...proxy(), https('/prior'));
    expect(got).toMatchObject({ code: 0, version: '2', status: 200 });
  });

  it('--http1.1 is not offered what it does not speak', async () => {
    const got = await curl('--http1.1', ...proxy(), https('/old'));
    expect(got).toMatchObject({ code: 0, version: '1.1', status: 200 });
  });

  it.each([
    { name: 'through the tunnel', args: () => [...proxy(), '--http2', https('/large')] },
    { name: 'without TLS in a tunnel', args: () => [...proxy(), '-p', '--http2-prior-knowledge', http('/large')] },
    {
      name: 'to the listener itself',
      args: () => ['--connect-to', `::127.0.0.1:${house.port}`, '--http2-prior-knowledge', http('/large')],
    },
  ])('carries large bodies both ways $name', async ({ args }) => {
    const got = await curl(...args(), '--data-binary', `@${upload}`);
    expect(got).toMatchObject({ code: 0, version: '2', status: 200 });
    expect(got.head).toContain(`x-body: ${LARGE}\r\n`);
    expect(got.body).toHaveLength(LARGE);
  });

  it('waits for the 100 that it asks for, and is not kept waiting', async () => {
    const got = await curl(
      '--http2',
      ...proxy(),
      '-H',
      'Expect: 100-continue',
      '--expect100-timeout',
      '15',
      '-d',
      'x',
      https('/expect'),
    );
    expect(got).toMatchObject({ code: 0, version: '2', status: 200 });
    expect(got.head).toContain('HTTP/2 100');
  });

  it('is told over HTTP/2 why it is refused', async () => {
    const got = await curl('--http2', ...proxy(), https('/not/this/one'));
    expect(got).toMatchObject({ code: 0, version: '2', status: 403 });
    expect(JSON.parse(got.body)).toMatchObject({ code: 'path_denied', status: 403 });
    expect(got.head).toContain('x-sallyport-reason: path_denied\r\n');
  });

  it('is refused with the CONNECT where the host is not allowed', async () => {
    const got = await curl('--http2', ...proxy(), 'https://denied.test/');
    expect(got.code).toBe(56);
    expect(got.head).toMatch(/^HTTP\/1.1 403 /);
  });

  it('sends many at once over one connection', async () => {
    const before = secure.seen.length;
    const { code } = await curl('--http2', '-Z', '--parallel-max', '50', ...proxy(), https(`/many?[1-100]`));
    expect(code).toBe(0);
    expect(secure.seen.slice(before).filter(({ path }) => path.startsWith('/many'))).toHaveLength(100);
    expect(new Set(secure.seen.slice(before).map(({ session }) => session)).size).toBe(1);
  });
});

/** How nghttp and h2load, which know no proxies, reach the house. */
const WAYS = [
  {
    name: 'through a tunnel',
    url: (path: string) => `https://127.0.0.1:${front.port}${path}`,
    authority: () => `api.test:${secure.port}`,
    seen: () => secure.seen.map(({ path, fields }) => ({ path, fields })),
  },
  {
    name: 'at the listener',
    url: (path: string) => `http://127.0.0.1:${house.port}${path}`,
    authority: () => `plain.test:${plain.port}`,
    seen: () => plain.seen.map(({ url, fields }) => ({ path: url, fields })),
  },
];

const noNghttp = missing('nghttp', 'nghttp2-client');
describe.skipIf(noNghttp !== '')(`nghttp${noNghttp}`, () => {
  /** What it prints: each header field as `recv (stream_id=13) name: value`. */
  async function nghttp({ url, authority }: (typeof WAYS)[number], args: string[], path: string): Promise<string> {
    const all = ['-vny', '-H', `:authority: ${authority()}`, ...args, url(path)];
    const { stdout } = await run('nghttp', all, { maxBuffer: 8 * LARGE });
    return stdout;
  }

  const statuses = (printed: string): string[] => [...printed.matchAll(/ :status: (\d+)/g)].map(([, status]) => status!);

  it('is served with a field section in many frames', async () => {
    expect(statuses(await nghttp(WAYS[0]!, ['--continuation'], '/nghttp'))).toEqual(['200']);
  });

  describe.each(WAYS)('$name', (way) => {
    it.each([
      { name: 'a request', args: [], count: 1 },
      { name: 'padded frames', args: ['-b', '200'], count: 1 },
      { name: 'twenty requests at once', args: ['-m', '20'], count: 20 },
      { name: 'small windows', args: ['-w', '10', '-W', '12'], count: 1 },
      { name: 'no table for fields', args: ['-c', '0', '--encoder-header-table-size=0'], count: 1 },
      { name: 'a table that changes its size', args: ['-c', '8192', '-c', '128', '-m', '3'], count: 3 },
    ])('is served with $name', async ({ args, count }) => {
      const printed = await nghttp(way, args, '/nghttp');
      expect(statuses(printed)).toEqual(Array.from({ length: count }, () => '200'));
      expect(printed).not.toMatch(/recv RST_STREAM|error_code=(?!NO_ERROR)/);
      const { fields } = way.seen().at(-1)!;
      expect(valuesOf(fields, 'authorization')).toEqual(['Bearer put-on']);
    });

    it('uploads and downloads more than windows hold', async () => {
      const printed = await nghttp(way, ['-d', upload, '-w', '14'], '/large');
      expect(statuses(printed)).toEqual(['200']);
      expect(printed).toContain(` x-body: ${LARGE}`);
    });

    it('uploads with trailers, which end the request', async () => {
      expect(
        statuses(await nghttp(way, ['-d', upload, '--trailer', 'x-checksum: 1', '--no-content-length'], '/trailers')),
      ).toEqual(['200']);
    });

    it('expects 100-continue and hears it', async () => {
      expect(statuses(await nghttp(way, ['-d', upload, '--expect-continue'], '/expect'))).toEqual(['100', '200']);
    });

    it('is told why it is refused', async () => {
      const printed = await nghttp(way, [], '/not/this/one');
      expect(statuses(printed)).toEqual(['403']);
      expect(printed).toContain(' x-sallyport-reason: path_denied');
    });
  });
});

const noH2load = missing('h2load', 'nghttp2-client');
describe.skipIf(noH2load !== '')(`h2load${noH2load}`, () => {
  it.each(WAYS)('has every request answered $name', { timeout: 60_000 }, async ({ url, authority, seen }) => {
    const before = seen().length;
    const { stdout } = await run('h2load', [
      '-n',
      '2000',
      '-c',
      '8',
      '-m',
      '25',
      '-H',
      `:authority: ${authority()}`,
      url('/load'),
    ]);
    expect(stdout).toContain('2000 total, 2000 started, 2000 done, 2000 succeeded, 0 failed, 0 errored, 0 timeout');
    expect(stdout).toContain('status codes: 2000 2xx, 0 3xx, 0 4xx, 0 5xx');
    const arrived = seen()
      .slice(before)
      .filter(({ path }) => path === '/load');
    expect(arrived).toHaveLength(2000);
    expect(arrived.every(({ fields }) => valuesOf(fields, 'authorization').join() === 'Bearer put-on')).toBe(true);
  });

  it('has every upload taken', { timeout: 60_000 }, async () => {
    const { url, authority } = WAYS[0]!;
    const { stdout } = await run('h2load', [
      '-n',
      '40',
      '-c',
      '2',
      '-m',
      '10',
      '-d',
      upload,
      '-H',
      `:authority: ${authority()}`,
      url('/upload'),
    ]);
    expect(stdout).toContain('40 total, 40 started, 40 done, 40 succeeded, 0 failed, 0 errored, 0 timeout');
  });
});

/** Reads a body and forgets it. */
async function textOf(answer: { readonly body: { text(): Promise<string> } }): Promise<string> {
  return answer.body.text();
}

describe('undici', () => {
  const dispatchers: Dispatcher[] = [];
  const proxyAgent = (): ProxyAgent => {
    const agent = new ProxyAgent({
      uri: `http://127.0.0.1:${house.port}`,
      allowH2: true,
      requestTls: { ca: house.ca, allowH2: true },
    });
    dispatchers.push(agent);
    return agent;
  };

  afterAll(async () => {
    await Promise.all(dispatchers.map((dispatcher) => dispatcher.destroy()));
  });

  it('speaks HTTP/2 by its ProxyAgent, many at once', async () => {
    const dispatcher = proxyAgent();
    const before = house.outcomes.length;
    const answers = await Promise.all(
      Array.from({ length: 50 }, async (_, index) => {
        const answer = await request(https(`/undici?${index}`), { dispatcher, headers: { authorization: 'Bearer mine' } });
        return [answer.statusCode, await textOf(answer)];
      }),
    );
    expect(answers).toEqual(Array.from({ length: 50 }, (_, index) => [200, `GET /undici?${index}`]));
    await house.outcome(() => house.outcomes.slice(before).filter(isUndici).length === 50);
    expect(
      new Set(
        house.outcomes
          .slice(before)
          .filter(isUndici)
          .map(({ arrival }) => arrival.protocol),
      ),
    ).toEqual(new Set(['h2']));
    expect(valuesOf(lastSeen('/undici?0').fields, 'authorization')).toEqual(['Bearer put-on']);
  });

  it('speaks HTTP/2 by an Agent over a tunnel of its own', async () => {
    const dispatcher = new Agent({
      allowH2: true,
      connect: (_options, callback) => {
        openSecureTunnel(house, `api.test:${secure.port}`, { tls: { ALPNProtocols: ['h2', 'http/1.1'] } }).then(
          (socket) => callback(null, socket),
          (error: unknown) => callback(error as Error, null),
        );
      },
    });
    dispatchers.push(dispatcher);
    const body = Buffer.alloc(LARGE, 'y');
    const answer = await request(https('/large'), { dispatcher, method: 'POST', body });
    expect(answer.headers['x-body']).toBe(String(LARGE));
    expect(await textOf(answer)).toHaveLength(LARGE);
    expect(lastSeen('/large').spoken).toBe('h2');
  });

  it("streams what its fetch sends and gets, and tells a refusal's reason", async () => {
    const dispatcher = proxyAgent();
    const answer = await undiciFetch(https('/fetch'), { dispatcher, method: 'POST', body: 'abc' });
    expect([answer.status, answer.headers.get('x-body'), await answer.text()]).toEqual([200, '3', 'POST /fetch']);
    const refused = await undiciFetch(https('/not/this/one'), { dispatcher });
    expect([refused.status, refused.headers.get('x-sallyport-reason')]).toEqual([403, 'path_denied']);
    expect(await refused.json()).toMatchObject({ code: 'path_denied' });
  });

  it("is served through Node's own fetch, too", async () => {
    const dispatcher = proxyAgent();
    const answer = await fetch(https('/node'), { dispatcher } as unknown as RequestInit);
    expect([answer.status, await answer.text()]).toEqual([200, 'GET /node']);
    expect(valuesOf(lastSeen('/node').fields, 'authorization')).toEqual(['Bearer put-on']);
  });
});

function isUndici(outcome: House['outcomes'][number]): boolean {
  return outcome.arrival.target.startsWith('/undici');
}
