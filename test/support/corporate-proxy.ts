// A corporate proxy as sandboxes' operators have them: a real one on loopback that opens tunnels and forwards, with or without
// credentials, and that refuses, falls silent, answers garbage, or cuts its answer to pieces where a test says so. It keeps all that it sees.
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import type { Duplex } from 'node:stream';
import type { Outside } from './outside.ts';

/** Answers a CONNECT in place of the proxy, in raw bytes. */
export type Answering = (socket: Duplex) => void;

/** What a proxy is like. */
export interface CorporateProxyOptions {
  /** Names, to the ports on loopback that they really are at; `host:port` or the host alone. Default: 502 */
  readonly leads?: Readonly<Record<string, number>>;
  /** `user:password`, asked of every request */
  readonly credentials?: string;
  /** TLS with the proxy itself, under the name `proxy.test` */
  readonly tls?: Outside;
  /** Ports that tunnels are opened to; default: all */
  readonly tunnelPorts?: readonly number[];
  /** In place of opening a tunnel; may change while it runs */
  answer?: Answering | undefined;
  /** Written right behind the 200, in the same segment */
  readonly behind?: string;
}

/** A running proxy. */
export interface CorporateProxy {
  readonly port: number;
  readonly url: string;
  /** Request lines so far, in order */
  readonly asked: string[];
  /** Each request's raw fields */
  readonly fields: (readonly string[])[];
  /** Everything that went through its tunnels, both ways, in latin1 */
  readonly through: string;
  /** TCP connections so far, and those that are open */
  readonly connections: number;
  readonly open: number;
  readonly options: CorporateProxyOptions;
  close(): Promise<void>;
}

const NEEDS =
  'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="corporate"\r\nContent-Length: 14\r\n\r\ncorporate-page';

/** An answer and the end. */
export function answering(text: string): Answering {
  return (socket) => socket.end(text, 'latin1');
}

/** No answer at all, until the other side leaves. */
export const silent: Answering = (socket) => socket.resume().on('end', () => socket.end());

/** Starts one. */
export async function startCorporateProxy(options: CorporateProxyOptions = {}): Promise<CorporateProxy> {
  const asked: string[] = [];
  const fields: (readonly string[])[] = [];
  const open = new Set<net.Socket>();
  const pieces: string[] = [];
  let connections = 0;
  const portOf = (authority: string): number | undefined =>
    options.leads?.[authority] ?? options.leads?.[authority.replace(/:\d+$/, '')];
  const note = (request: http.IncomingMessage): void => {
    asked.push(`${request.method} ${request.url}`);
    fields.push(request.rawHeaders);
  };
  const known = ({ headers }: http.IncomingMessage): boolean =>
    options.credentials === undefined ||
    headers['proxy-authorization'] === `Basic ${Buffer.from(options.credentials).toString('base64')}`;

  const onConnect = (request: http.IncomingMessage, socket: Duplex): void => {
    note(request);
    socket.on('error', () => undefined);
    const authority = request.url ?? '';
    const port = portOf(authority);
    const allowed = options.tunnelPorts?.includes(Number(/\d+$/.exec(authority)?.[0])) ?? true;
    if (options.answer !== undefined) options.answer(socket);
    else if (!known(request)) socket.end(NEEDS);
    else if (!allowed) socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 14\r\n\r\ncorporate-page');
    else if (port === undefined) socket.end('HTTP/1.1 502 Bad Gateway\r\nContent-Length: 14\r\n\r\ncorporate-page');
    else tie(socket, port);
  };
  const tie = (socket: Duplex, port: number): void => {
    const upstream = net.connect(port, '127.0.0.1', () => {
      socket.write(`HTTP/1.1 200 Connection established\r\n\r\n${options.behind ?? ''}`, 'latin1');
      for (const [from, to] of [
        [socket, upstream],
        [upstream, socket],
      ] as const) {
        from.on('data', (piece: Buffer) => pieces.push(piece.toString('latin1')));
        from.pipe(to);
      }
    });
    upstream.on('error', () => socket.destroy()).on('close', () => socket.destroy());
    socket.on('close', () => upstream.destroy());
  };
  const onRequest = (request: http.IncomingMessage, response: http.ServerResponse): void => {
    note(request);
    const target = URL.canParse(request.url ?? '') ? new URL(request.url ?? '') : undefined;
    const port = target === undefined ? undefined : portOf(target.host);
    if (!known(request)) {
      response.writeHead(407, { 'proxy-authenticate': 'Basic realm="corporate"' }).end('corporate-page');
    } else if (target === undefined || port === undefined) response.writeHead(502).end('corporate-page');
    else forward(request, response, { path: target.pathname + target.search, port });
  };

  const server =
    options.tls === undefined
      ? http.createServer(onRequest)
      : https.createServer({ ...options.tls.credentials('proxy.test') }, onRequest);
  server.on('connect', onConnect);
  server.on('clientError', (_error, socket) => socket.destroy());
  server.on('connection', (socket: net.Socket) => {
    connections += 1;
    open.add(socket);
    socket.on('error', () => undefined).on('close', () => open.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as net.AddressInfo;
  return {
    port,
    url: options.tls === undefined ? `http://127.0.0.1:${port}` : `https://proxy.test:${port}`,
    asked,
    fields,
    options,
    get through() {
      return pieces.join('');
    },
    get connections() {
      return connections;
    },
    get open() {
      return open.size;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of open) socket.destroy();
      }),
  };
}

/** Sends a request on in origin-form, without what is for this proxy alone. */
function forward(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  { path, port }: { readonly path: string; readonly port: number },
): void {
  const headers = request.rawHeaders.filter((_, at) => !/^proxy-/i.test(request.rawHeaders[at - (at % 2)] ?? ''));
  const onward = http.request({ host: '127.0.0.1', port, path, method: request.method, headers, setHost: false, agent: false });
  onward.on('response', (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
    answer.pipe(response);
  });
  onward.on('error', () => response.destroy());
  request.pipe(onward);
}
