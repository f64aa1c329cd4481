// Upstreams that speak HTTP/2, over TLS by ALPN or in the clear by prior knowledge, and HTTP/1.1 beside it where a test says so.
// Real servers of Node on loopback, port 0, that record each stream as it stood on the wire; `close` ends everything.
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { Readable } from 'node:stream';
import tls from 'node:tls';
import type { Outside } from './outside.ts';

/** One request as an upstream got it. */
export interface SeenStream {
  readonly method: string;
  readonly path: string;
  readonly authority: string;
  readonly scheme: string;
  /** The `:protocol` of an extended CONNECT */
  readonly protocol: string | undefined;
  /** `h2`, or `http/1.1` */
  readonly spoken: 'h2' | 'http/1.1';
  /** Raw fields in wire order, without pseudo-header fields */
  readonly fields: readonly string[];
  /** Which session it came on, from 0 in the order of opening; -1 of HTTP/1.1 */
  readonly session: number;
  /** What of the body has come so far, in latin1 */
  body: string;
  /** Whether the request is whole */
  complete: boolean;
  /** With what code the peer reset the stream, if it did */
  reset: number | undefined;
  trailers: readonly string[];
}

/** An upstream that speaks HTTP/2. */
export interface Http2Upstream {
  readonly port: number;
  readonly seen: SeenStream[];
  /** TCP connections accepted so far */
  readonly connections: number;
  /** Every HTTP/2 session so far, in the order of opening */
  readonly sessions: readonly http2.ServerHttp2Session[];
  /** Resolves with the first request (from now or before) that fits. */
  saw(fits: (seen: SeenStream) => boolean): Promise<SeenStream>;
  /** Cuts every connection without a word. */
  cut(): void;
  close(): Promise<void>;
}

/** Answers a stream. */
export type AnsweringStream = (stream: http2.ServerHttp2Stream, seen: SeenStream) => void;

/** What an upstream is like. */
export interface Http2UpstreamOptions {
  /** Left out: HTTP/2 in the clear, by prior knowledge */
  readonly tls?: Outside;
  /** Offered by ALPN; default `h2` alone, so that a client that offers HTTP/1.1 alone gets the alert. None: ALPN is not spoken */
  readonly alpn?: readonly string[];
  /** What is spoken where ALPN agreed on nothing; default `h2` */
  readonly otherwise?: 'h2' | 'http/1.1';
  readonly settings?: http2.Settings;
  /** Answers a stream whose request is whole; default: 200 and JSON of what was seen */
  readonly answer?: AnsweringStream;
  /** Answers a stream as soon as its head is there, in place of `answer` */
  readonly raw?: AnsweringStream;
  /** Answers HTTP/1.1; default: 200 and JSON of what was seen */
  readonly http1?: http.RequestListener;
  /** Sees a `Upgrade` of HTTP/1.1 */
  readonly onUpgrade?: (request: http.IncomingMessage, socket: net.Socket) => void;
}

/** Answers with JSON of what was seen. */
export function echoStream(stream: http2.ServerHttp2Stream, seen: SeenStream): void {
  if (stream.destroyed) return;
  stream.respond({ ':status': 200, 'content-type': 'application/json' });
  stream.end(JSON.stringify(seen));
}

/** Starts one. */
export async function startHttp2Upstream(options: Http2UpstreamOptions = {}): Promise<Http2Upstream> {
  const seen: SeenStream[] = [];
  const sessions: http2.ServerHttp2Session[] = [];
  const waiting = new Set<() => void>();
  const open = new Set<net.Socket>();
  let connections = 0;
  const look = (): void => {
    for (const again of waiting) again();
  };
  const note = (one: SeenStream): void => {
    seen.push(one);
    look();
  };

  const onStream = (stream: http2.ServerHttp2Stream, headers: http2.IncomingHttpHeaders, _flags: number, raw: string[]): void => {
    const one = seenOf(headers, raw, sessions.indexOf(stream.session as http2.ServerHttp2Session));
    one.complete = stream.endAfterHeaders;
    stream.on('error', () => undefined);
    stream.on('trailers', (_trailers: unknown, _f: unknown, fields: readonly string[]) => (one.trailers = fields));
    stream.on('close', () => {
      if (stream.rstCode !== 0) one.reset = stream.rstCode;
      look();
    });
    if (one.protocol === undefined) {
      stream.on('data', (chunk: Buffer) => {
        one.body += chunk.toString('latin1');
        look();
      });
    }
    // Node ends the reading side of a stream that was reset, too; only then it is closed before.
    stream.push = function (chunk: unknown, encoding?: BufferEncoding) {
      if (chunk === null && !this.closed) one.complete = true;
      return Readable.prototype.push.call(this, chunk, encoding);
    };
    stream.on('end', () => {
      look();
      if (options.raw === undefined && one.complete && one.protocol === undefined && !stream.destroyed)
        (options.answer ?? echoStream)(stream, one);
    });
    note(one);
    options.raw?.(stream, one);
  };
  const serveH2 = (socket: net.Socket): void => {
    // Not a server of Node's, which refuses a TLS connection without ALPN.
    const session = http2.performServerHandshake(socket, { settings: { enableConnectProtocol: true, ...options.settings } });
    sessions.push(session);
    session.on('error', () => undefined).on('stream', onStream);
  };
  const h1 = http.createServer((request, response) => {
    const one = seenOf({}, [], -1, request);
    request.on('data', (chunk: Buffer) => (one.body += chunk.toString('latin1')));
    request.on('error', () => undefined);
    request.on('end', () => {
      one.complete = true;
      look();
    });
    note(one);
    if (options.http1 !== undefined) options.http1(request, response);
    else request.on('end', () => response.end(JSON.stringify(one)));
  });
  h1.on('upgrade', (request, socket) => {
    note(seenOf({}, [], -1, request));
    socket.on('error', () => undefined);
    if (options.onUpgrade === undefined) socket.destroy();
    else options.onUpgrade(request, socket as net.Socket);
  });

  const serve = (socket: net.Socket, spoken: string): void => {
    socket.on('error', () => undefined);
    if (spoken === 'http/1.1') h1.emit('connection', socket);
    else serveH2(socket);
  };
  const server = listenerFor(options, serve);
  server.on('connection', (socket: net.Socket) => {
    connections += 1;
    open.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => open.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    port: (server.address() as net.AddressInfo).port,
    seen,
    sessions,
    get connections() {
      return connections;
    },
    saw: (fits) =>
      new Promise((resolve) => {
        const again = (): void => {
          const found = seen.find(fits);
          if (found === undefined) return;
          waiting.delete(again);
          resolve(found);
        };
        waiting.add(again);
        again();
      }),
    cut: () => {
      for (const socket of open) socket.resetAndDestroy();
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const session of sessions) session.destroy();
        for (const socket of open) socket.destroy();
      }),
  };
}

function listenerFor(options: Http2UpstreamOptions, serve: (socket: net.Socket, spoken: string) => void): net.Server {
  const outside = options.tls;
  const otherwise = options.otherwise ?? 'h2';
  if (outside === undefined) return net.createServer((socket) => serve(socket, otherwise));
  const alpn = options.alpn ?? ['h2'];
  const server = tls.createServer(
    {
      ...outside.credentials('upstream.test'),
      SNICallback: (name, done) => done(null, tls.createSecureContext(outside.credentials(name))),
      ...(alpn.length === 0 ? {} : { ALPNProtocols: [...alpn] }),
    },
    (socket) => serve(socket, socket.alpnProtocol || otherwise),
  );
  server.on('tlsClientError', () => undefined);
  return server;
}

function seenOf(
  headers: http2.IncomingHttpHeaders,
  raw: readonly string[],
  session: number,
  request?: http.IncomingMessage,
): SeenStream {
  const fields = request?.rawHeaders ?? raw.filter((_, index) => !(raw[index - (index % 2)] as string).startsWith(':'));
  return {
    method: request?.method ?? headers[':method'] ?? '',
    path: request?.url ?? headers[':path'] ?? '',
    authority: request?.headers.host ?? headers[':authority'] ?? '',
    scheme: headers[':scheme'] ?? '',
    protocol: headers[':protocol'],
    spoken: request === undefined ? 'h2' : 'http/1.1',
    fields,
    session,
    body: '',
    complete: false,
    reset: undefined,
    trailers: [],
  };
}
