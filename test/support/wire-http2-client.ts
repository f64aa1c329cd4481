// The sandbox's client over HTTP/2: one session for all its exchanges, each a stream of it, over a connection that `open` brings.
import { once } from 'node:events';
import http2 from 'node:http2';
import type { Duplex } from 'node:stream';
import type { Asked, Incoming, SandboxClient, SandboxExchange } from './wire-client.ts';
import { opened } from './wire-refused.ts';
import type { Fields, Head } from './wire.ts';

/** Where the requests of a session go. */
export interface Target {
  readonly authority: string;
  readonly scheme: string;
}

/** Begins a session over a stream; resolves once the peer's settings are there. */
export async function startSession(stream: Duplex, options: http2.ClientSessionOptions = {}): Promise<http2.ClientHttp2Session> {
  // The URL names the connection alone; each request bears its own :scheme and :authority.
  const session = http2.connect('http://sandbox.test', { ...options, createConnection: () => stream });
  session.on('error', () => undefined);
  await Promise.race([once(session, 'remoteSettings'), closedEarly(session)]);
  return session;
}

async function closedEarly(session: http2.ClientHttp2Session): Promise<never> {
  await new Promise<void>((resolve) => session.once('close', resolve));
  throw new Error('the session ended before the settings of the peer came');
}

/** Builds a client. Its session begins with its first request. */
export function overHttp2(open: () => Promise<Duplex>, target: Target): SandboxClient {
  let session: http2.ClientHttp2Session | undefined;
  return {
    begin: async (asked) => {
      if (session === undefined) {
        const stream = await opened(open);
        if ('refused' in stream) return stream.refused;
        session = await startSession(stream.open);
      }
      return exchange(session, asked, target);
    },
    close: () => session?.destroy(),
  };
}

function exchange(
  session: http2.ClientHttp2Session,
  { method = 'GET', path, fields = [], body = false, websocket = false }: Asked,
  { authority, scheme }: Target,
): SandboxExchange {
  const headers: http2.OutgoingHttpHeaders = {
    ':method': websocket ? 'CONNECT' : method,
    ...(websocket ? { ':protocol': 'websocket', 'sec-websocket-version': '13' } : {}),
    ':scheme': scheme,
    ':authority': authority,
    ':path': path,
    ...grouped(fields),
  };
  const stream = session.request(headers, { endStream: !body && !websocket, waitForTrailers: body });
  let trailersOut: Fields = [];
  stream.on('wantTrailers', () => stream.sendTrailers(grouped(trailersOut)));
  return {
    ...exchangeOver(stream),
    finish: (trailers = []) => {
      trailersOut = trailers;
      stream.end();
    },
  };
}

/** What a stream of a client's session is as an exchange. */
export function exchangeOver(stream: http2.ClientHttp2Stream): SandboxExchange {
  const interims: Head[] = [];
  let trailersIn: Fields = [];
  stream.on('error', () => undefined);
  stream.on('headers', (headers) => interims.push({ status: Number(headers[':status']), fields: fieldsOf(headers) }));
  stream.on('trailers', (...[, , raw]: unknown[]) => void (trailersIn = raw as Fields));
  const ending = new Promise<'whole' | 'cut'>((resolve) => {
    stream.once('close', () =>
      resolve(stream.readableEnded && stream.rstCode === http2.constants.NGHTTP2_NO_ERROR ? 'whole' : 'cut'),
    );
  });
  const answer = new Promise<Incoming>((resolve, reject) => {
    stream.once('response', (...[headers, , raw]: unknown[]) => {
      const status = Number((headers as http2.IncomingHttpHeaders)[':status']);
      resolve({ status, fields: withoutPseudo(raw as Fields), in: stream, ending, trailers: () => trailersIn });
    });
    stream.once('close', () => reject(new Error(`the stream ended without an answer: code ${stream.rstCode}`)));
  });
  const switched = answer.then((head) => {
    if (head.status !== 200) throw new Error(`the handshake was answered ${head.status}`);
    return stream;
  });
  answer.catch(() => undefined);
  switched.catch(() => undefined);
  return {
    interims,
    answer,
    out: stream,
    finish: () => void stream.end(),
    switched,
    leave: () => stream.close(http2.constants.NGHTTP2_CANCEL),
  };
}

/** Pairs as node:http2 takes them, values of one name together. */
export function grouped(fields: Fields): Record<string, string | string[]> {
  const headers: Record<string, string | string[]> = {};
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!.toLowerCase();
    const before = headers[name];
    // A cookie goes in crumbs, as browsers send it (RFC 9113 section 8.2.3).
    const value = name === 'cookie' ? fields[i + 1]!.split('; ') : fields[i + 1]!;
    headers[name] = before === undefined ? value : [before, value].flat();
  }
  return headers;
}

/** Without the pseudo-header fields. */
export function withoutPseudo(raw: Fields): string[] {
  return raw.filter((_, i) => !raw[i - (i % 2)]!.startsWith(':'));
}

function fieldsOf(headers: http2.IncomingHttpHeaders): Fields {
  return Object.entries(headers)
    .filter(([name]) => !name.startsWith(':'))
    .flatMap(([name, value]) => [value].flat().flatMap((one) => [name, one ?? '']));
}
