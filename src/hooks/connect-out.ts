// How a connection leaves for an http handler: through the proxy by CONNECT, or straight where that was asked for, with TLS to the endpoint on top.
// Loaded only when an http handler runs. It must never fall back from the proxy to a straight connection, resolve a name that the proxy
// is to resolve, or accept a certificate that does not verify.
//
// The ProxyAgent of undici is not used: of a refused CONNECT it keeps the status alone and drops the header that says why,
// and where a proxy closes the connection within a CONNECT it dials again without end.
import { X509Certificate } from 'node:crypto';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import tls from 'node:tls';
import type { Duplex } from 'node:stream';
import type { buildConnector } from 'undici';
import { failed } from './failures.ts';
import { codeOf, connectError, handshakeFailure, isTlsCode, refusedByProxy } from './http-failures.ts';
import type { ConnectError } from './http-failures.ts';
import type { ProxyAddress } from './proxy-from-env.ts';

/** Longest that a connection, a CONNECT and a handshake may each take, whatever the time limit of the handler, `ms` */
const PHASE_MS = 10_000;

/** Makes connections for undici, and ends those that are under way. */
export interface Connector {
  readonly connect: buildConnector.connector;
  close(): void;
}

interface Target {
  readonly host: string;
  readonly port: number;
}

/** Makes a connector. `ca`: PEM texts that are trusted beside Node's own roots; throws a ConnectError where one of them cannot be read. */
export function createConnector(options: {
  readonly proxy: ProxyAddress | undefined;
  readonly ca: readonly string[];
}): Connector {
  const trust = options.ca.length === 0 ? {} : { secureContext: trusting(options.ca) };
  const open = new Set<Duplex>();
  const keep = <Stream extends Duplex>(stream: Stream): Stream => {
    open.add(stream);
    stream.once('close', () => open.delete(stream));
    return stream.on('error', () => undefined);
  };
  const way: Way = { ...options, trust, keep };
  return {
    connect: (wanted, callback) => {
      connectOut(wanted, way).then(
        (socket) => callback(null, socket),
        (error: unknown) => callback(error as Error, null),
      );
    },
    close: () => {
      for (const stream of open) stream.destroy();
    },
  };
}

interface Way {
  readonly proxy: ProxyAddress | undefined;
  readonly trust: tls.ConnectionOptions;
  /** Gives a stream an owner, from its birth to its end */
  readonly keep: <Stream extends Duplex>(stream: Stream) => Stream;
}

/** Options that name a CA take the place of Node's roots, so these are put beside it. */
function trusting(ca: readonly string[]): tls.SecureContext {
  try {
    for (const pem of ca) new X509Certificate(pem);
    return tls.createSecureContext({ ca: [...tls.rootCertificates, ...ca] });
  } catch {
    // The cause quotes a certificate, which says nothing to anyone.
    throw connectError(failed('tls', 'a CA that was given cannot be read; give PEM certificates'));
  }
}

async function connectOut(wanted: buildConnector.Options, way: Way): Promise<net.Socket> {
  const isTls = wanted.protocol === 'https:';
  const port = wanted.port === '' ? (isTls ? 443 : 80) : Number(wanted.port);
  const target: Target = { host: wanted.hostname, port };
  const road = way.proxy === undefined ? await dial(target, way) : await openTunnel(target, way.proxy, way);
  return isTls ? secure(road, target, way) : road;
}

function dial(target: Target, { keep }: Way): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    const socket = keep(net.connect({ ...target, noDelay: true }));
    const limit = setTimeout(() => socket.destroy(coded('ETIMEDOUT')), PHASE_MS);
    socket.once('connect', () => {
      clearTimeout(limit);
      resolve(socket);
    });
    socket.once('close', () => clearTimeout(limit));
    rejectOnEnd(socket, (code) => reject(unreachable(`the endpoint: ${code}`)));
  });
}

function openTunnel(target: Target, proxy: ProxyAddress, { trust, keep }: Way): Promise<net.Socket> {
  const authority = `${net.isIPv6(target.host) ? `[${target.host}]` : target.host}:${target.port}`;
  return new Promise((resolve, reject) => {
    const request = (proxy.isTls ? https : http).request({
      method: 'CONNECT',
      host: proxy.hostname,
      port: proxy.port,
      path: authority,
      headers: { host: authority, ...(proxy.authorization === undefined ? {} : { 'proxy-authorization': proxy.authorization }) },
      agent: false,
      // Named, because Node would take the name for the handshake from the Host field, which is that of the endpoint.
      ...(proxy.isTls ? { ...trust, servername: serverName(proxy.hostname) } : {}),
    });
    request.once('socket', (socket) => keep(socket));
    const limit = setTimeout(() => request.destroy(coded('ETIMEDOUT')), PHASE_MS);
    request.on('error', (error) => {
      clearTimeout(limit);
      const code = codeOf(error);
      reject(isTlsCode(code) ? connectError(handshakeFailure('the proxy', code)) : unreachable(`the proxy: ${code}`));
    });
    // Of a CONNECT every answer comes here, refusals too.
    request.once('connect', (response, stream, head) => {
      clearTimeout(limit);
      const status = response.statusCode ?? 0;
      if (status >= 200 && status < 300) {
        if (head.length > 0) stream.unshift(head);
        resolve(stream);
        return;
      }
      stream.destroy();
      reject(connectError(refusedByProxy(status, response.headers['x-sallyport-reason'])));
    });
    request.end();
  });
}

function secure(road: net.Socket, { host }: Target, { trust, keep }: Way): Promise<net.Socket> {
  return new Promise((resolve, reject) => {
    const socket = keep(tls.connect({ ...trust, socket: road, host, servername: serverName(host), ALPNProtocols: ['http/1.1'] }));
    const limit = setTimeout(() => socket.destroy(coded('ETIMEDOUT')), PHASE_MS);
    socket.once('secureConnect', () => {
      clearTimeout(limit);
      resolve(socket);
    });
    socket.once('close', () => clearTimeout(limit));
    rejectOnEnd(socket, (code) => reject(connectError(handshakeFailure('the endpoint', code))));
  });
}

/** Addresses are not sent as names (RFC 6066 section 3); the certificate is compared with the host then. */
function serverName(host: string): string {
  return net.isIP(host) === 0 ? host : '';
}

function rejectOnEnd(socket: net.Socket, reject: (code: string) => void): void {
  socket.once('error', (error) => reject(codeOf(error)));
  socket.once('close', () => reject('closed'));
}

function unreachable(detail: string): ConnectError {
  return connectError(failed('unreachable', detail));
}

function coded(code: string): Error {
  return Object.assign(new Error(code), { code });
}
