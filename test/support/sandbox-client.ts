// A sandbox's end of the wire, in raw bytes so that nothing is tidied on the way: plain connections, CONNECT, TLS inside it.
import net from 'node:net';
import tls from 'node:tls';
import type { Duplex } from 'node:stream';

/** A parsed HTTP/1.1 answer. */
export interface Answer {
  readonly status: number;
  readonly reason: string;
  /** Raw header fields, name then value */
  readonly fields: readonly string[];
  /** By lower-case name; duplicates joined */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly trailers: readonly string[];
}

/** Connects to a port on loopback; every address of 127.0.0.0/8 is there. */
export function connectTo(port: number, host = '127.0.0.1', localAddress = '127.0.0.1'): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    const socket = net.connect({ port, host, localAddress, allowHalfOpen: true });
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.off('error', reject);
      socket.on('error', () => undefined);
      resolve(socket);
    });
  });
}

/** Reads one answer from a stream, to its framed end or to the end of the stream. `method` tells that a HEAD has no body. */
export function readAnswer(stream: Duplex, method = 'GET'): Promise<Answer> {
  return new Promise((resolve, reject) => {
    let bytes = Buffer.alloc(0);
    const settle = (ended: boolean): void => {
      const answer = parseAnswer(bytes, { method, ended });
      if (answer === undefined) {
        if (ended)
          finish(() =>
            reject(new Error(`the connection ended within an answer: ${JSON.stringify(bytes.toString('latin1').slice(0, 200))}`)),
          );
        return;
      }
      finish(() => {
        const rest = bytes.subarray(answer.length);
        if (rest.length > 0 && !stream.readableEnded) stream.unshift(rest);
        resolve(answer.answer);
      });
    };
    const onData = (chunk: Buffer): void => {
      bytes = Buffer.concat([bytes, chunk]);
      settle(false);
    };
    const onEnd = (): void => settle(true);
    const finish = (then: () => void): void => {
      stream.pause();
      stream.off('data', onData).off('end', onEnd).off('close', onEnd);
      then();
    };
    stream.on('data', onData).on('end', onEnd).on('close', onEnd);
    stream.resume();
  });
}

function parseAnswer(
  bytes: Buffer,
  { method, ended }: { readonly method: string; readonly ended: boolean },
): { readonly answer: Answer; readonly length: number } | undefined {
  const text = bytes.toString('latin1');
  const headEnd = text.indexOf('\r\n\r\n');
  if (headEnd < 0) return undefined;
  const [first = '', ...lines] = text.slice(0, headEnd).split('\r\n');
  const fields: string[] = [];
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).trim();
    fields.push(name, value);
    const key = name.toLowerCase();
    headers[key] = headers[key] === undefined ? value : `${headers[key]}, ${value}`;
  }
  const status = Number(first.split(' ')[1]);
  const make = (body: string, length: number, trailers: string[] = []) => ({
    answer: { status, reason: first.split(' ').slice(2).join(' '), fields, headers, body, trailers },
    length,
  });
  const start = headEnd + 4;
  if (method === 'HEAD' || status < 200 || status === 204 || status === 304 || (method === 'CONNECT' && status === 200))
    return make('', start);
  if (/chunked/i.test(headers['transfer-encoding'] ?? '')) {
    const chunked = parseChunked(text, start);
    return chunked === undefined ? undefined : make(chunked.body, chunked.end, chunked.trailers);
  }
  const length = headers['content-length'];
  if (length !== undefined)
    return text.length >= start + Number(length)
      ? make(text.slice(start, start + Number(length)), start + Number(length))
      : undefined;
  return ended ? make(text.slice(start), text.length) : undefined;
}

function parseChunked(
  text: string,
  start: number,
): { readonly body: string; readonly end: number; readonly trailers: string[] } | undefined {
  let body = '';
  for (let at = start; ;) {
    const lineEnd = text.indexOf('\r\n', at);
    if (lineEnd < 0) return undefined;
    const size = parseInt(text.slice(at, lineEnd), 16);
    const from = lineEnd + 2;
    if (size > 0) {
      if (text.length < from + size + 2) return undefined;
      body += text.slice(from, from + size);
      at = from + size + 2;
      continue;
    }
    const trailers: string[] = [];
    for (let line = from; ;) {
      const end = text.indexOf('\r\n', line);
      if (end < 0) return undefined;
      if (end === line) return { body, end: end + 2, trailers };
      const field = text.slice(line, end);
      trailers.push(field.slice(0, field.indexOf(':')), field.slice(field.indexOf(':') + 1).trim());
      line = end + 2;
    }
  }
}

/** Sends bytes on a fresh connection and reads one answer. */
export async function sendRaw(port: number, bytes: string, method = 'GET'): Promise<Answer> {
  const socket = await connectTo(port);
  socket.write(Buffer.from(bytes, 'latin1'));
  try {
    return await readAnswer(socket, method);
  } finally {
    socket.destroy();
  }
}

/** What of the proxy a client must know. */
export interface Door {
  readonly port: number;
  readonly ca: string;
}

/** Sends a CONNECT; the answer and, for a 200, the socket behind it. `fields` are whole lines, each with its CRLF. */
export async function openTunnel(
  door: Door,
  authority: string,
  fields = '',
): Promise<{ readonly answer: Answer; readonly socket: net.Socket }> {
  const socket = await connectTo(door.port);
  socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${fields}\r\n`, 'latin1');
  const answer = await readAnswer(socket, 'CONNECT');
  if (answer.status !== 200) socket.destroy();
  return { answer, socket };
}

/** TLS through a tunnel. Rejects where the CONNECT is refused or the handshake fails. */
export async function openSecureTunnel(
  door: Door,
  authority: string,
  options: { readonly servername?: string; readonly fields?: string; readonly tls?: tls.ConnectionOptions } = {},
): Promise<tls.TLSSocket> {
  const { answer, socket } = await openTunnel(door, authority, options.fields);
  if (answer.status !== 200) throw Object.assign(new Error(`CONNECT was answered ${answer.status}`), { answer });
  const host = authority.replace(/:\d+$/, '').replace(/^\[|\]$/g, '');
  return new Promise((resolve, reject) => {
    const secured = tls.connect({
      socket,
      host,
      servername: options.servername ?? (net.isIP(host) === 0 ? host : ''),
      ca: door.ca,
      ALPNProtocols: ['http/1.1'],
      ...options.tls,
    });
    secured.once('error', reject);
    secured.once('close', () => reject(new Error('the tunnel closed during the handshake')));
    secured.once('secureConnect', () => {
      secured.off('error', reject);
      secured.on('error', () => undefined);
      resolve(secured);
    });
  });
}

/** One request through a fresh tunnel (https) or in absolute-form (http). `fields` are whole lines; a refused CONNECT is the answer. */
export async function ask(
  door: Door,
  url: string,
  options: { readonly method?: string; readonly fields?: string; readonly body?: string; readonly tunnelFields?: string } = {},
): Promise<Answer> {
  const { method = 'GET', fields = '', body = '' } = options;
  const { protocol, hostname, port, host, pathname, search } = new URL(url);
  if (protocol === 'http:')
    return sendRaw(door.port, `${method} ${url} HTTP/1.1\r\nHost: ${host}\r\n${fields}\r\n${body}`, method);
  const authority = `${hostname}:${port === '' ? '443' : port}`;
  let secured: tls.TLSSocket;
  try {
    secured = await openSecureTunnel(door, authority, { fields: options.tunnelFields ?? '' });
  } catch (error) {
    const refused = (error as { readonly answer?: Answer }).answer;
    if (refused === undefined) throw error;
    return refused;
  }
  secured.write(Buffer.from(`${method} ${pathname}${search} HTTP/1.1\r\nHost: ${host}\r\n${fields}\r\n${body}`, 'latin1'));
  try {
    return await readAnswer(secured, method);
  } finally {
    secured.destroy();
  }
}
