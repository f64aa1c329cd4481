// The two ways in which a sandbox's client asks a proxy for something, side by side, with the authority in any spelling;
// and the small things that scenarios wait for. What one way is refused for, the other must be refused for too (fault A15).
import type { Duplex } from 'node:stream';
import { openSecureTunnel, readAnswer, sendRaw } from './sandbox-client.ts';
import type { Answer, Door } from './sandbox-client.ts';

/** What else a probe may say. `host` stands in the Host field of the request; `fields` are whole lines. */
export interface ProbeOptions {
  readonly method?: string;
  readonly path?: string;
  readonly host?: string;
  readonly fields?: string;
  /** Lines of the message that the proxy itself reads: the CONNECT, or the request in absolute-form */
  readonly proxyFields?: string;
}

/** One way of asking. */
export interface Way {
  readonly name: string;
  readonly scheme: 'https' | 'http';
  /** One request to the authority, spelled as given; a refused CONNECT is the answer. */
  readonly send: (door: Door, authority: string, options?: ProbeOptions) => Promise<Answer>;
}

/** Both ways of asking. */
export const WAYS: readonly Way[] = [
  { name: 'by CONNECT', scheme: 'https', send: byConnect },
  { name: 'in absolute-form', scheme: 'http', send: inAbsoluteForm },
];

async function byConnect(door: Door, authority: string, options: ProbeOptions = {}): Promise<Answer> {
  let tunnel: Duplex;
  try {
    tunnel = await openSecureTunnel(door, authority, {
      fields: options.proxyFields ?? '',
      tls: { rejectUnauthorized: false },
    });
  } catch (error) {
    const refused = (error as { readonly answer?: Answer }).answer;
    if (refused === undefined) throw error;
    return refused;
  }
  try {
    return await inside(tunnel, authority, options);
  } finally {
    tunnel.destroy();
  }
}

function inAbsoluteForm(door: Door, authority: string, options: ProbeOptions = {}): Promise<Answer> {
  const { method = 'GET', path = '/', host = authority, fields = '', proxyFields = '' } = options;
  const head = `${method} http://${authority}${path} HTTP/1.1\r\nHost: ${host}\r\n${proxyFields}${fields}\r\n`;
  return sendRaw(door.port, head, method);
}

/** One request in origin-form on an open stream, and its answer. */
export function inside(stream: Duplex, host: string, options: ProbeOptions = {}): Promise<Answer> {
  const { method = 'GET', path = '/', fields = '' } = options;
  stream.write(Buffer.from(`${method} ${path} HTTP/1.1\r\nHost: ${options.host ?? host}\r\n${fields}\r\n`, 'latin1'));
  return readAnswer(stream, method);
}

/** The reason that an answer states, if it is Sallyport's own. */
export function reasonIn(answer: Answer): string | undefined {
  return answer.headers['x-sallyport-reason'];
}

/** Status and reason in one text, for tables. */
export function verdictIn(answer: Answer): string {
  return `${answer.status} ${reasonIn(answer) ?? 'from the upstream'}`;
}

/** Resolves when the stream has closed. */
export function closed(stream: Duplex): Promise<void> {
  return new Promise((resolve) => {
    if (stream.closed) resolve();
    else stream.once('close', () => resolve());
    stream.resume();
  });
}

/** A promise with its key. */
export interface Gate<Value = void> {
  readonly opened: Promise<Value>;
  readonly open: (value: Value) => void;
}

/** Makes a gate that stays shut until somebody opens it. */
export function gate<Value = void>(): Gate<Value> {
  let open: (value: Value) => void = () => undefined;
  const opened = new Promise<Value>((resolve) => (open = resolve));
  return { opened, open };
}
