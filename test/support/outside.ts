// The outside world of a test: a certificate authority that is not Sallyport's, and upstreams that record what reaches them.
// Small real servers on loopback, port 0; everything is closed by `closeAll`.
import { mkdtemp, rm } from 'node:fs/promises';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tls from 'node:tls';
import { openAuthority } from '../../src/certificates/certificate-authority.ts';
import type { CertificateAuthority } from '../../src/certificates/certificate-authority.ts';
import type { Host } from '../../src/exchange/authority.ts';

/** One request as an upstream got it. */
export interface Seen {
  readonly method: string;
  readonly url: string;
  readonly fields: readonly string[];
  readonly body: string;
  readonly trailers: readonly string[];
}

/** A recording upstream. */
export interface Upstream {
  readonly port: number;
  readonly seen: Seen[];
  /** TCP connections accepted so far: the canary count */
  readonly connections: number;
  /** Bytes received so far, over all connections, TLS included */
  readonly bytes: number;
  readonly server: net.Server;
  close(): Promise<void>;
}

/** Answers a request whose body has been read; default: JSON of what was seen. */
export type Answering = (seen: Seen, response: http.ServerResponse, request: http.IncomingMessage) => void;

/** The certificates of the outside. */
export interface Outside {
  readonly caPath: string;
  readonly authority: CertificateAuthority;
  /** Key and certificate for a host, signed by the outside CA */
  credentials(host: string): { readonly key: string; readonly cert: string };
  close(): Promise<void>;
}

/** Makes an outside CA in a folder of its own. */
export async function openOutside(): Promise<Outside> {
  const folder = await mkdtemp(join(tmpdir(), 'outside-'));
  const caPath = join(folder, 'public', 'ca.pem');
  const authority = await openAuthority({ certificate: caPath, key: undefined });
  return {
    caPath,
    authority,
    credentials: (host) => {
      const leaf = authority.issue(host as Host);
      return { key: leaf.keyPem, cert: leaf.certificatePem };
    },
    close: () => rm(folder, { recursive: true, force: true }),
  };
}

const echo: Answering = (seen, response) => {
  const body = JSON.stringify(seen);
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }).end(body);
};

/** Starts a recording HTTP upstream. With `tls`, every name is served with a certificate of its own. */
export async function startUpstream(
  options: {
    readonly tls?: Outside;
    readonly answer?: Answering;
    readonly raw?: (request: http.IncomingMessage, response: http.ServerResponse) => void;
  } = {},
): Promise<Upstream> {
  const seen: Seen[] = [];
  const answer = options.answer ?? echo;
  const onRequest = (request: http.IncomingMessage, response: http.ServerResponse): void => {
    if (options.raw !== undefined) {
      seen.push({ method: request.method ?? '', url: request.url ?? '', fields: request.rawHeaders, body: '', trailers: [] });
      options.raw(request, response);
      return;
    }
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('error', () => undefined);
    request.on('end', () => {
      const one: Seen = {
        method: request.method ?? '',
        url: request.url ?? '',
        fields: request.rawHeaders,
        body: Buffer.concat(chunks).toString('latin1'),
        trailers: request.rawTrailers,
      };
      seen.push(one);
      answer(one, response, request);
    });
  };
  const outside = options.tls;
  const server =
    outside === undefined
      ? http.createServer(onRequest)
      : https.createServer(
          {
            ...outside.credentials('upstream.test'),
            SNICallback: (name, done) => done(null, tls.createSecureContext(outside.credentials(name))),
          },
          onRequest,
        );
  return track(server, seen);
}

/** Starts a raw TCP server; `onSocket` does as it likes. */
export async function startRaw(onSocket: (socket: net.Socket) => void, host = '127.0.0.1', port = 0): Promise<Upstream> {
  return track(net.createServer({ allowHalfOpen: true }, onSocket), [], { host, port });
}

async function track(server: net.Server, seen: Seen[], { host, port } = { host: '127.0.0.1', port: 0 }): Promise<Upstream> {
  const open = new Set<net.Socket>();
  let connections = 0;
  let gone = 0;
  server.on('connection', (socket: net.Socket) => {
    connections += 1;
    open.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      gone += socket.bytesRead;
      open.delete(socket);
    });
  });
  server.on('clientError', () => undefined);
  server.on('tlsClientError', () => undefined);
  await new Promise<void>((resolve) => server.listen(port, host, resolve));
  return {
    port: (server.address() as net.AddressInfo).port,
    seen,
    server,
    get connections() {
      return connections;
    },
    get bytes() {
      return [...open].reduce((sum, socket) => sum + socket.bytesRead, gone);
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of open) socket.destroy();
      }),
  };
}

/** How often a field occurs among raw header fields, whatever its case. */
export function countOf(fields: readonly string[], name: string): number {
  return fields.filter((text, index) => index % 2 === 0 && text.toLowerCase() === name.toLowerCase()).length;
}

/** The values of a field among raw header fields, whatever its case. */
export function valuesOf(fields: readonly string[], name: string): string[] {
  return fields.filter((_, index) => index % 2 === 1 && fields[index - 1]?.toLowerCase() === name.toLowerCase());
}
