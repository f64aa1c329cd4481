// A sandbox's end of HTTP/2: a session through a tunnel or straight to the port, and exchanges on it with all that came back.
import http2 from 'node:http2';
import type { ClientHttp2Session, ClientHttp2Stream, OutgoingHttpHeaders } from 'node:http2';
import type { Duplex } from 'node:stream';
import { connectTo, openSecureTunnel, openTunnel } from './sandbox-client.ts';
import type { Door } from './sandbox-client.ts';

/** What came back on a stream. */
export interface StreamAnswer {
  /** 0 where no head came */
  readonly status: number;
  /** As Node has them: by name, several values in one text or list */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** Name and value in turn, as they came */
  readonly raw: readonly string[];
  /** Statuses of the 1xx before the head, with their fields */
  readonly hints: readonly Readonly<Record<string, unknown>>[];
  readonly body: string;
  readonly trailers: Readonly<Record<string, string | string[] | undefined>> | undefined;
  /** Code of the reset, 0 where there was none */
  readonly reset: number;
}

/** Speaks HTTP/2 on a stream that stands already. Errors of the session end its streams and are no error of the test. */
export function speakHttp2(stream: Duplex, authority: string, scheme = 'https'): ClientHttp2Session {
  const session = http2.connect(`${scheme}://${authority}`, {
    createConnection: () => stream,
    maxSendHeaderBlockLength: 1_000_000,
  });
  session.on('error', () => undefined);
  // Connections of these tests may stay half open, of which HTTP/2 knows nothing.
  stream.once('end', () => stream.destroy());
  return session;
}

/** A session with TLS inside a CONNECT. */
export async function openSession(door: Door, authority: string): Promise<ClientHttp2Session> {
  return speakHttp2(await openSecureTunnel(door, authority, { tls: { ALPNProtocols: ['h2'] } }), authority);
}

/** A session without TLS inside a CONNECT. */
export async function openPlainSession(door: Door, authority: string): Promise<ClientHttp2Session> {
  const { answer, socket } = await openTunnel(door, authority);
  if (answer.status !== 200) throw new Error(`CONNECT was answered ${answer.status}`);
  return speakHttp2(socket, authority, 'http');
}

/** A session with the proxy port itself. */
export async function openProxySession(door: Pick<Door, 'port'>): Promise<ClientHttp2Session> {
  return speakHttp2(await connectTo(door.port), `127.0.0.1:${door.port}`, 'http');
}

/** Resolves with what came back once the stream has closed, however that was. */
export function answerOf(stream: ClientHttp2Stream): Promise<StreamAnswer> {
  return new Promise((resolve) => {
    let headers: StreamAnswer['headers'] = {};
    let raw: readonly string[] = [];
    let trailers: StreamAnswer['trailers'];
    const hints: Readonly<Record<string, unknown>>[] = [];
    const chunks: Buffer[] = [];
    stream.on('headers', (hint: Record<string, unknown>) => hints.push({ ...hint }));
    stream.on('response', ((got: Record<string, string>, _flags: number, pairs: readonly string[]) => {
      headers = got;
      raw = pairs;
    }) as (got: object) => void);
    stream.on('trailers', (got: object) => (trailers = { ...got } as StreamAnswer['headers']));
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.on('error', () => undefined);
    stream.on('close', () => {
      const body = Buffer.concat(chunks).toString('latin1');
      resolve({ status: Number(headers[':status'] ?? 0), headers, raw, hints, body, trailers, reset: stream.rstCode });
    });
  });
}

/** One exchange. */
export function exchange(session: ClientHttp2Session, fields: OutgoingHttpHeaders, body?: string): Promise<StreamAnswer> {
  const stream = session.request(fields, { endStream: body === undefined });
  const answer = answerOf(stream);
  if (body !== undefined) stream.end(body, 'latin1');
  return answer;
}
