// The doctor's hands on the network: dial, say something, hear what comes back, each until the probe's time is up.
// It must never throw, keep a socket, or hear more than it needs: what it reaches may be hostile.
import { createSocket } from 'node:dgram';
import { connect as connectTcp, isIPv6 } from 'node:net';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

/** Where something might listen. */
export interface Place {
  readonly host: string;
  readonly port: number;
}

/** A connection, or why there is none. */
export type Dialled = { readonly socket: Socket } | { readonly failed: string };

const ENOUGH_BYTES = 16_384;

/** As people write it. */
export function placeName({ host, port }: Place): string {
  return `${isIPv6(host) ? `[${host}]` : host}:${port}`;
}

/** Dials. The socket is the caller's to destroy. */
export function dial({ host, port }: Place, signal: AbortSignal): Promise<Dialled> {
  return new Promise((resolve) => {
    const socket = connectTcp({ host, port });
    const end = (dialled: Dialled): void => {
      signal.removeEventListener('abort', late);
      if ('failed' in dialled) socket.destroy();
      resolve(dialled);
    };
    const late = (): void => end({ failed: 'no answer in time' });
    // Stays for the socket's life: what happens to it after the dial is for `hear` to see, as an end.
    socket.on('error', (error) => end({ failed: reasonOf(error) }));
    socket.once('connect', () => end({ socket }));
    if (signal.aborted) late();
    else signal.addEventListener('abort', late, { once: true });
  });
}

/** What a system error means here. */
export function reasonOf(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
  const known: Readonly<Record<string, string>> = {
    ECONNREFUSED: 'refused',
    ECONNRESET: 'reset',
    ENETUNREACH: 'no route',
    EHOSTUNREACH: 'unreachable',
    ETIMEDOUT: 'no answer in time',
    EAFNOSUPPORT: 'this address family is turned off',
    EADDRNOTAVAIL: 'no address of this family',
    ENOTFOUND: 'the name does not resolve',
    EAI_AGAIN: 'the name does not resolve',
    EACCES: 'forbidden here',
    EPERM: 'forbidden here',
  };
  return known[code] ?? `failed (${code})`;
}

/** Whether somebody takes a connection there; the reason where nobody does. */
export async function reach(place: Place, signal: AbortSignal): Promise<'reached' | { readonly failed: string }> {
  const dialled = await dial(place, signal);
  if ('failed' in dialled) return dialled;
  dialled.socket.destroy();
  return 'reached';
}

/** Says `words` on a connection and hears until `enough`, the end, or the end of the time. Leaves the socket as it is. */
export function hear(
  socket: Socket,
  words: string | Buffer,
  options: { readonly signal: AbortSignal; readonly enough: (heard: Buffer) => boolean },
): Promise<Buffer> {
  const { signal, enough } = options;
  return new Promise((resolve) => {
    let heard = Buffer.alloc(0);
    const end = (): void => {
      socket.off('data', more).off('close', end).off('end', end).off('error', end);
      signal.removeEventListener('abort', end);
      resolve(heard);
    };
    const more = (chunk: Buffer): void => {
      heard = Buffer.concat([heard, chunk]);
      if (heard.length >= ENOUGH_BYTES || enough(heard)) end();
    };
    if (signal.aborted || socket.destroyed) {
      resolve(heard);
      return;
    }
    socket.on('data', more).once('close', end).once('end', end).once('error', end);
    signal.addEventListener('abort', end, { once: true });
    socket.write(words);
  });
}

/** Sends a datagram and waits for one that `fits`. */
export function askOverUdp(
  { host, port }: Place,
  packet: Buffer,
  options: { readonly signal: AbortSignal; readonly fits: (answer: Buffer) => boolean },
): Promise<{ readonly answer: Buffer } | { readonly failed: string }> {
  const { signal, fits } = options;
  return new Promise((resolve) => {
    const socket = createSocket(isIPv6(host) ? 'udp6' : 'udp4');
    const end = (outcome: { readonly answer: Buffer } | { readonly failed: string }): void => {
      signal.removeEventListener('abort', late);
      // a second error, on a socket that is being closed, is nobody's
      socket
        .removeAllListeners('message')
        .removeAllListeners('error')
        .on('error', () => undefined);
      try {
        socket.close();
      } catch {
        // closed already, by the error that ended it
      }
      resolve(outcome);
    };
    const late = (): void => end({ failed: 'no answer in time' });
    const fail = (error: Error | null): void => {
      if (error !== null) end({ failed: reasonOf(error) });
    };
    socket.once('error', fail).on('message', (answer) => {
      if (fits(answer)) end({ answer });
    });
    if (signal.aborted) {
      late();
      return;
    }
    signal.addEventListener('abort', late, { once: true });
    // Connected, so that a refusal is heard.
    socket.connect(port, host, () => socket.send(packet, fail));
  });
}

/** The head of an HTTP answer. */
export interface Head {
  readonly status: number;
  /** Names in lower case; the last of several */
  readonly fields: ReadonlyMap<string, string>;
  readonly body: string;
}

/** Reads it; undefined where it is none. The body is what had come by then. */
export function readHead(heard: Buffer): Head | undefined {
  const [head = '', ...rest] = heard.toString('latin1').split('\r\n\r\n');
  const status = /^HTTP\/1\.[01] (\d{3})/.exec(head)?.[1];
  if (status === undefined) return undefined;
  const fields = head.split('\r\n').slice(1).map(fieldOf);
  return { status: Number(status), fields: new Map(fields), body: rest.join('\r\n\r\n') };
}

function fieldOf(line: string): [string, string] {
  const colon = line.indexOf(':');
  return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
}

/** Whether this is the door's own answer, a refusal. */
export function isRefusal(head: Head): boolean {
  return head.fields.has('x-sallyport-reason');
}

/** Whether the whole head of an answer has been heard. */
export function hasHead(heard: Buffer): boolean {
  return heard.includes('\r\n\r\n');
}

/** One HTTP request on a connection of its own. Undefined where no HTTP answer comes. */
export async function requestOnce(
  place: Place,
  lines: readonly string[],
  signal: AbortSignal,
): Promise<{ readonly head: Head | undefined } | { readonly failed: string }> {
  const dialled = await dial(place, signal);
  if ('failed' in dialled) return dialled;
  const heard = await hear(dialled.socket, `${lines.join('\r\n')}\r\n\r\n`, { signal, enough: isWhole });
  dialled.socket.destroy();
  return { head: readHead(heard) };
}

/** Head and, where its length is told, body. Others end with the connection. */
function isWhole(heard: Buffer): boolean {
  const head = readHead(heard);
  if (head === undefined || !hasHead(heard)) return false;
  const length = Number(head.fields.get('content-length') ?? Number.NaN);
  return head.body.length >= length;
}

/** Who answers a TLS handshake: the door, by its CA; another, by its certificate; or how it came to none. */
export type TlsMark = 'door' | 'another' | 'no handshake';

/** Greets without a name, as a client that dials an address does. `ca` is the door's certificate alone. */
export async function tlsMark(place: Place, ca: string | undefined, signal: AbortSignal): Promise<TlsMark> {
  const dialled = await dial(place, signal);
  if ('failed' in dialled) return 'no handshake';
  const { socket } = dialled;
  return new Promise((resolve) => {
    // Nothing is sent: whose certificate it is, is all that is asked.
    const tls = connectTls({ socket, rejectUnauthorized: false, ...(ca === undefined ? {} : { ca }) });
    const end = (mark: TlsMark): void => {
      signal.removeEventListener('abort', late);
      socket.destroy();
      resolve(mark);
    };
    const late = (): void => end('no handshake');
    tls.on('error', late).once('close', late);
    tls.once('secureConnect', () => end(isSignedBy(tls, ca) ? 'door' : 'another'));
    if (signal.aborted) late();
    else signal.addEventListener('abort', late, { once: true });
  });
}

/** A name that does not fit is said after the chain has been found good. */
function isSignedBy(tls: ReturnType<typeof connectTls>, ca: string | undefined): boolean {
  const error: unknown = tls.authorizationError;
  const text = error instanceof Error && 'code' in error ? error.code : error;
  return ca !== undefined && (tls.authorized || text === 'ERR_TLS_CERT_ALTNAME_INVALID');
}
