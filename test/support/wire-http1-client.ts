// The sandbox's client over HTTP/1.1, each exchange on a connection of its own that `open` brings: plain, or a tunnel with TLS in it.
import { once } from 'node:events';
import http from 'node:http';
import type { Duplex } from 'node:stream';
import type { Asked, Incoming, SandboxClient, SandboxExchange } from './wire-client.ts';
import { opened } from './wire-refused.ts';
import { breakOff } from './wire-tunnel.ts';
import type { Fields, Head } from './wire.ts';

/** Builds a client. `prefix` makes targets absolute. */
export function overHttp1(
  open: () => Promise<Duplex>,
  { authority, prefix = '' }: { readonly authority: string; readonly prefix?: string },
): SandboxClient {
  const streams = new Set<Duplex>();
  return {
    begin: async (asked) => {
      const stream = await opened(open);
      if ('refused' in stream) return stream.refused;
      streams.add(stream.open);
      return exchange(stream.open, asked, { authority, prefix });
    },
    close: () => {
      for (const stream of streams) stream.destroy();
    },
  };
}

function exchange(
  stream: Duplex,
  { method = 'GET', path, fields = [], body = false, websocket = false }: Asked,
  { authority, prefix }: { readonly authority: string; readonly prefix: string },
): SandboxExchange {
  const headers = ['Host', authority, ...fields];
  if (body) headers.push('Transfer-Encoding', 'chunked');
  headers.push(...(websocket ? HANDSHAKE : ['Connection', 'keep-alive']));
  const request = http.request({
    method,
    path: prefix + path,
    headers: headers as unknown as http.OutgoingHttpHeaders,
    createConnection: () => stream,
  });
  const interims: Head[] = [];
  request.on('continue', () => interims.push({ status: 100, fields: [] }));
  request.on('information', ({ statusCode, rawHeaders }) => {
    if (statusCode !== 100) interims.push({ status: statusCode, fields: rawHeaders });
  });
  request.on('error', () => undefined);
  const answer = new Promise<Incoming>((resolve, reject) => {
    request.once('response', (response) => resolve(incoming(response)));
    request.once('upgrade', (response) => resolve(incoming(response)));
    request.once('close', () => reject(new Error('the connection ended without an answer')));
  });
  const switched = new Promise<Duplex>((resolve, reject) => {
    request.once('upgrade', (_response, socket, head) => {
      if (head.length > 0) socket.unshift(head);
      socket.on('error', () => undefined);
      resolve(socket);
    });
    request.once('response', ({ statusCode }) => reject(new Error(`the handshake was answered ${statusCode ?? 0}`)));
    request.once('close', () => reject(new Error('the connection ended without an answer')));
  });
  answer.catch(() => undefined);
  switched.catch(() => undefined);
  if (body) request.flushHeaders();
  else request.end();
  return {
    interims,
    answer,
    out: request,
    finish: (trailers = []) => {
      if (trailers.length > 0) request.addTrailers(pairsOf(trailers));
      request.end();
    },
    switched,
    leave: () => breakOff(stream),
  };
}

function incoming(response: http.IncomingMessage): Incoming {
  response.on('error', () => undefined);
  return {
    status: response.statusCode ?? 0,
    fields: response.rawHeaders,
    in: response,
    ending: once(response, 'close').then(
      () => (response.complete ? 'whole' : 'cut'),
      () => 'cut',
    ),
    trailers: () => response.rawTrailers,
  };
}

const HANDSHAKE = [
  ...['Connection', 'Upgrade', 'Upgrade', 'websocket', 'Sec-WebSocket-Version', '13'],
  ...['Sec-WebSocket-Key', 'dGhlIHNhbXBsZSBub25jZQ=='],
];

function pairsOf(fields: Fields): [string, string][] {
  return fields.flatMap((name, i) => (i % 2 === 0 ? [[name, fields[i + 1]!] satisfies [string, string]] : []));
}
