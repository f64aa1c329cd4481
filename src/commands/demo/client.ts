// The demo's sandbox: sends one request through a proxy, by CONNECT and TLS for https, in absolute form for http.
// It must never trust anything but the CA it is given, nor wait for ever.
import http from 'node:http';
import type { Socket } from 'node:net';
import tls from 'node:tls';

/** What to send, through which door. */
export interface DemoRequest {
  readonly proxy: { readonly address: string; readonly port: number };
  /** PEM of the CA that the sandbox trusts */
  readonly ca: string;
  readonly method: string;
  readonly url: string;
}

/** What the sandbox got. */
export interface DemoReply {
  readonly status: number;
  /** Value of X-Sallyport-Reason, where there is one */
  readonly reason: string | undefined;
  readonly body: string;
  /** Every header field as one text, to search for what must not be there */
  readonly fields: string;
}

const DEADLINE_MS = 5000;

/** Sends it and reads the whole answer. Rejects where there is none within five seconds. */
export async function sendThrough(request: DemoRequest): Promise<DemoReply> {
  const url = new URL(request.url);
  if (url.protocol === 'http:') return plain(request, url);
  const opened = await connect(request, `${url.hostname}:${url.port}`);
  if ('status' in opened) return opened;
  const secure = tls.connect({ socket: opened.socket, servername: url.hostname, ca: request.ca });
  try {
    return await exchange({
      createConnection: () => secure,
      method: request.method,
      path: url.pathname,
      headers: { Host: url.host },
    });
  } finally {
    secure.destroy();
  }
}

/** GETs a URL with no proxy in between. */
export async function fetchText(url: string): Promise<string> {
  const { hostname, port, pathname, host } = new URL(url);
  return (await exchange({ host: hostname, port, path: pathname, agent: false, headers: { Host: host } })).body;
}

function plain({ proxy, method }: DemoRequest, url: URL): Promise<DemoReply> {
  return exchange({ host: proxy.address, port: proxy.port, method, path: url.href, agent: false, headers: { Host: url.host } });
}

/** An open tunnel, or the refusal in its place. */
function connect({ proxy }: DemoRequest, target: string): Promise<DemoReply | { readonly socket: Socket }> {
  return new Promise((resolve, reject) => {
    const request = http.request({
      host: proxy.address,
      port: proxy.port,
      method: 'CONNECT',
      path: target,
      agent: false,
      headers: { Host: target },
      signal: AbortSignal.timeout(DEADLINE_MS),
    });
    request.on('error', reject);
    request.on('connect', (response, socket: Socket) => {
      socket.on('error', () => undefined); // a refused tunnel is cut at once
      if (response.statusCode === 200) resolve({ socket });
      else {
        resolve(replyOf(response, ''));
        socket.destroy();
      }
    });
    request.end();
  });
}

function exchange(options: http.RequestOptions): Promise<DemoReply> {
  return new Promise((resolve, reject) => {
    const request = http.request({ ...options, signal: AbortSignal.timeout(DEADLINE_MS) }, (response) => {
      let body = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => void (body += chunk));
      response.on('end', () => resolve(replyOf(response, body)));
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end();
  });
}

function replyOf(response: http.IncomingMessage, body: string): DemoReply {
  const reason = response.headers['x-sallyport-reason'];
  return {
    status: response.statusCode ?? 0,
    reason: Array.isArray(reason) ? reason[0] : reason,
    body,
    fields: response.rawHeaders.join('\n'),
  };
}
