// What real clients ask for, served on loopback under any name: a page, a git repository (git's own http-backend), one package
// each for npm, pip, Go and cargo, a list of buckets, and a gRPC service on a port of its own. Everything is made when it opens, so nothing binary lies in the repository.
import { execFile, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import type http from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { crc32 } from 'node:zlib';
import * as grpc from '@grpc/grpc-js';
import { startUpstream } from './outside.ts';
import type { Outside, Seen, Upstream } from './outside.ts';

const run = promisify(execFile);

/** What every page, package and repository says. */
export const GREETING = 'good morning from outside';

/** The sites, on one port; `seen` has every request, those to the gRPC service too. */
export interface Sites extends Upstream {
  readonly grpcPort: number;
}

type Page = (base: string) => { readonly type: string; readonly body: string | Buffer };

/** Opens them. Where there is no git the repository is empty. */
export async function openSites(outside: Outside): Promise<Sites> {
  const folder = await mkdtemp(join(tmpdir(), 'sites-'));
  await makeRepository(folder);
  const pages = await makePages(folder);
  const upstream = await startUpstream({
    tls: outside,
    raw: (request, response) => {
      const { pathname } = new URL(request.url ?? '/', 'https://any.test');
      if (pathname.startsWith('/git/')) {
        serveGit(folder, request, response);
        return;
      }
      const page = pages[pathname]?.(`https://${request.headers.host ?? ''}`);
      response.writeHead(page === undefined ? 404 : 200, { 'content-type': page?.type ?? 'text/plain' });
      response.end(request.method === 'HEAD' ? undefined : (page?.body ?? 'there is no such page'));
    },
  });
  const greeter = await openGreeter(outside, upstream.seen);
  return {
    ...upstream,
    get connections() {
      return upstream.connections;
    },
    grpcPort: greeter.port,
    close: async () => {
      greeter.server.forceShutdown();
      await upstream.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function openGreeter(outside: Outside, seen: Seen[]): Promise<{ readonly server: grpc.Server; readonly port: number }> {
  const same = (bytes: Buffer): Buffer => bytes;
  const path = '/outside.Greeter/Greet';
  const greet = {
    path,
    requestStream: false,
    responseStream: false,
    requestSerialize: same,
    requestDeserialize: same,
    responseSerialize: same,
    responseDeserialize: same,
  };
  const server = new grpc.Server();
  server.addService(
    { greet },
    {
      greet: (call: grpc.ServerUnaryCall<Buffer, Buffer>, callback: grpc.sendUnaryData<Buffer>) => {
        const fields = call.metadata.get('authorization').flatMap((value) => ['authorization', String(value)]);
        seen.push({ method: 'POST', url: path, fields, body: '', trailers: [] });
        callback(null, Buffer.from(GREETING));
      },
    },
  );
  const { key, cert } = outside.credentials('allowed.test');
  const pair = { private_key: Buffer.from(key), cert_chain: Buffer.from(cert) };
  const port = await promisify(server.bindAsync.bind(server))('127.0.0.1:0', grpc.ServerCredentials.createSsl(null, [pair]));
  return { server, port };
}

async function makePages(folder: string): Promise<Readonly<Record<string, Page>>> {
  const file =
    (type: string, body: string | Buffer): Page =>
    () => ({ type, body });
  const json =
    (of: (base: string) => unknown): Page =>
    (base) => ({ type: 'application/json', body: JSON.stringify(of(base)) });
  const npm = await tarball(folder, 'package', {
    'package.json': JSON.stringify({ name: 'tiny', version: '1.0.0' }),
    'hello.txt': GREETING,
  });
  const crate = await tarball(folder, 'tiny-1.0.0', {
    'Cargo.toml': '[package]\nname = "tiny"\nversion = "1.0.0"\n',
    'src/lib.rs': `// ${GREETING}\n`,
  });
  const wheel = storedZip({
    'tiny.py': `# ${GREETING}\n`,
    'tiny-1.0.0.dist-info/METADATA': 'Metadata-Version: 2.1\nName: tiny\nVersion: 1.0.0\n',
    'tiny-1.0.0.dist-info/WHEEL': 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    'tiny-1.0.0.dist-info/RECORD': 'tiny.py,,\n',
  });
  const manifest = (base: string) => ({
    name: 'tiny',
    'dist-tags': { latest: '1.0.0' },
    time: { '1.0.0': '2020-01-01T00:00:00.000Z' },
    versions: {
      '1.0.0': {
        name: 'tiny',
        version: '1.0.0',
        dist: {
          tarball: `${base}/npm/tiny/-/tiny-1.0.0.tgz`,
          integrity: `sha512-${createHash('sha512').update(npm).digest('base64')}`,
          shasum: createHash('sha1').update(npm).digest('hex'),
        },
      },
    },
  });
  const crateLine = { name: 'tiny', vers: '1.0.0', deps: [], features: {}, yanked: false, cksum: sha256(crate) };
  const wheelFile = 'tiny-1.0.0-py3-none-any.whl';
  return {
    '/hello': file('text/plain', GREETING),
    '/npm/tiny': json(manifest),
    '/npm/tiny/-/tiny-1.0.0.tgz': file('application/octet-stream', npm),
    '/simple/tiny/': file('text/html', `<a href="/files/${wheelFile}#sha256=${sha256(wheel)}">${wheelFile}</a>`),
    [`/files/${wheelFile}`]: file('application/octet-stream', wheel),
    '/go/outside.test/tiny/@v/list': file('text/plain', 'v1.0.0\nv1.1.0\n'),
    '/go/outside.test/tiny/@v/v1.1.0.info': json(() => ({ Version: 'v1.1.0', Time: '2026-01-01T00:00:00Z' })),
    '/go/outside.test/tiny/@v/v1.1.0.mod': file('text/plain', 'module outside.test/tiny\n'),
    '/crates/config.json': json((base) => ({ dl: `${base}/crates/files` })),
    '/crates/ti/ny/tiny': file('text/plain', `${JSON.stringify(crateLine)}\n`),
    '/crates/files/tiny/1.0.0/download': file('application/octet-stream', crate),
    '/s3': file(
      'application/xml',
      `<ListAllMyBucketsResult><Buckets><Bucket><Name>${GREETING}</Name></Bucket></Buckets></ListAllMyBucketsResult>`,
    ),
    '/storage/v1/b': json(() => ({ kind: 'storage#buckets', items: [{ kind: 'storage#bucket', name: GREETING }] })),
  };
}

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

async function tarball(folder: string, name: string, files: Readonly<Record<string, string>>): Promise<Buffer> {
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name, path)), { recursive: true });
    await writeFile(join(folder, name, path), text);
  }
  await run('tar', ['-czf', `${name}.tgz`, name], { cwd: folder });
  return readFile(join(folder, `${name}.tgz`));
}

/** A ZIP archive of stored files (APPNOTE 4.3), which is what a wheel is. */
function storedZip(files: Readonly<Record<string, string>>): Buffer {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [name, text] of Object.entries(files)) {
    const body = Buffer.from(text);
    const entry = Buffer.alloc(26);
    entry.writeUInt16LE(20, 0); // version needed
    entry.writeUInt16LE(0x21, 8); // the first day that the format knows
    entry.writeUInt32LE(crc32(body), 10);
    entry.writeUInt32LE(body.length, 14);
    entry.writeUInt32LE(body.length, 18);
    entry.writeUInt16LE(name.length, 22);
    const local = Buffer.concat([Buffer.from('PK\x03\x04'), entry, Buffer.from(name), body]);
    const tail = Buffer.alloc(14);
    tail.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from('PK\x01\x02\x14\x00'), entry, tail, Buffer.from(name)]));
    parts.push(local);
    offset += local.length;
  }
  const central = Buffer.concat(directory);
  const end = Buffer.alloc(18);
  end.writeUInt16LE(parts.length, 4);
  end.writeUInt16LE(parts.length, 6);
  end.writeUInt32LE(central.length, 8);
  end.writeUInt32LE(offset, 12);
  return Buffer.concat([...parts, central, Buffer.from('PK\x05\x06'), end]);
}

async function makeRepository(folder: string): Promise<void> {
  await mkdir(join(folder, 'work'), { recursive: true });
  await writeFile(join(folder, 'work', 'hello.txt'), GREETING);
  const git = (...words: string[]) =>
    run('git', ['-c', 'user.name=outside', '-c', 'user.email=outside@outside.test', ...words], { cwd: join(folder, 'work') });
  try {
    await git('init', '-q');
    await git('add', '.');
    await git('commit', '-q', '-m', 'first');
    await git('clone', '-q', '--bare', '.', join(folder, 'tiny.git'));
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
  }
}

/** A CGI request to git's own server (RFC 3875), the body streamed both ways. */
function serveGit(folder: string, request: http.IncomingMessage, response: http.ServerResponse): void {
  const url = new URL(request.url ?? '/', 'https://any.test');
  const env = {
    PATH: process.env['PATH'] ?? '',
    GIT_PROJECT_ROOT: folder,
    GIT_HTTP_EXPORT_ALL: '1',
    PATH_INFO: url.pathname.slice('/git'.length),
    QUERY_STRING: url.search.slice(1),
    REQUEST_METHOD: request.method ?? '',
    CONTENT_TYPE: request.headers['content-type'] ?? '',
    HTTP_CONTENT_ENCODING: request.headers['content-encoding'] ?? '',
    GIT_PROTOCOL: String(request.headers['git-protocol'] ?? ''),
  };
  const child = spawn('git', ['http-backend'], { env, stdio: ['pipe', 'pipe', 'ignore'] });
  child.on('error', () => response.destroy());
  child.stdin.on('error', () => undefined);
  request.pipe(child.stdin);
  let head = Buffer.alloc(0);
  const onHead = (chunk: Buffer): void => {
    head = Buffer.concat([head, chunk]);
    const end = head.indexOf('\r\n\r\n');
    if (end === -1) return;
    const lines = head.subarray(0, end).toString('latin1').split('\r\n');
    const fields = lines.map((line) => line.split(/: */, 2) as [string, string]);
    const status = Number.parseInt(fields.find(([name]) => name === 'Status')?.[1] ?? '200', 10);
    response.writeHead(status, fields.filter(([name]) => name !== 'Status').flat());
    response.write(head.subarray(end + 4));
    child.stdout.off('data', onHead);
    child.stdout.pipe(response);
  };
  child.stdout.on('data', onHead);
}
