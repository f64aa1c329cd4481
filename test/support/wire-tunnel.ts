// Tunnels out of a CONNECT, over either protocol, with TLS in them or without. Each knows what is under it, so that a client can break it
// off where it counts. A CONNECT that is refused rejects with an Error that bears its `answer`.
import { once } from 'node:events';
import http2 from 'node:http2';
import net from 'node:net';
import type { Duplex } from 'node:stream';
import tls from 'node:tls';
import { connectTo, openTunnel } from './sandbox-client.ts';
import type { Answer, Door } from './sandbox-client.ts';
import type { Incoming } from './wire-client.ts';
import { exchangeOver, startSession } from './wire-http2-client.ts';

/** TLS in a tunnel that a CONNECT over HTTP/1.1 opened. */
export async function secureTunnel(door: Door, authority: string, protocols: string[]): Promise<Duplex> {
  return secureOver(await plainTunnel(door, authority), { door, authority, protocols });
}

/** A tunnel that a CONNECT over HTTP/1.1 opened. */
export async function plainTunnel(door: Door, authority: string): Promise<Duplex> {
  const { socket, answer } = await openTunnel(door, authority);
  if (answer.status !== 200) throw Object.assign(new Error(`CONNECT was answered ${answer.status}`), { answer });
  return socket;
}

/** TLS in a tunnel that a CONNECT over HTTP/2 opened on a session of its own. */
export async function secureTunnelOverHttp2(door: Door, authority: string, protocols: string[]): Promise<tls.TLSSocket> {
  const session = await startSession(await connectTo(door.port));
  const stream = session.request({ ':method': 'CONNECT', ':authority': authority }, { endStream: false });
  stream.once('close', () => session.destroy());
  const head = await exchangeOver(stream).answer;
  if (head.status !== 200) {
    throw Object.assign(new Error(`CONNECT was answered ${head.status}`), { answer: await refusalOf(head) });
  }
  return secureOver(stream, { door, authority, protocols });
}

async function secureOver(
  tunnel: Duplex,
  { door, authority, protocols }: { readonly door: Door; readonly authority: string; readonly protocols: string[] },
): Promise<tls.TLSSocket> {
  const host = authority.replace(/:\d+$/, '');
  const secured = tls.connect({
    socket: tunnel,
    host,
    servername: net.isIP(host) === 0 ? host : '',
    ca: door.ca,
    ALPNProtocols: protocols,
  });
  await once(secured, 'secureConnect');
  secured.on('error', () => undefined);
  UNDER.set(secured, tunnel);
  return secured;
}

const UNDER = new WeakMap<Duplex, Duplex>();

/** Breaks a connection off so that the other end cannot take it for an end: a reset of TCP, or of the stream that a tunnel is on. */
export function breakOff(stream: Duplex): void {
  const wire = UNDER.get(stream) ?? stream;
  if (wire instanceof net.Socket) wire.resetAndDestroy();
  else (wire as http2.ClientHttp2Stream).close(http2.constants.NGHTTP2_CANCEL);
}

async function refusalOf({ status, fields, in: body }: Incoming): Promise<Answer> {
  let text = '';
  for await (const chunk of body) text += (chunk as Buffer).toString('latin1');
  return { status, reason: '', fields, headers: {}, body: text, trailers: [] };
}
