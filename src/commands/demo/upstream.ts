// The demo's other side: an HTTPS and a plain HTTP server on loopback that remember what reached them.
// It must never be reachable from another machine, nor use the CA of the door: the door verifies it like any upstream.
import http from 'node:http';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import tls from 'node:tls';
import { openAuthority } from '../../certificates/certificate-authority.ts';
import type { Host } from '../../exchange/authority.ts';

/** One request as it arrived. */
export interface SeenRequest {
  readonly method: string;
  readonly scheme: 'http' | 'https';
  readonly host: string;
  readonly path: string;
  readonly authorization: string | undefined;
}

/** A running upstream. */
export interface DemoUpstream {
  readonly tlsPort: number;
  readonly plainPort: number;
  readonly seen: readonly SeenRequest[];
  /** TCP connections accepted, of both servers */
  readonly connections: number;
  close(): Promise<void>;
}

/** Starts both servers. The root that the door must trust for them is written to `certificate`; its key stays in memory. */
export async function openUpstream(options: {
  readonly certificate: string;
  readonly hosts: readonly Host[];
}): Promise<DemoUpstream> {
  const authority = await openAuthority({ certificate: options.certificate, key: undefined });
  const contexts = new Map<string, tls.SecureContext>(
    options.hosts.map((host) => {
      const { keyPem: key, certificatePem: cert } = authority.issue(host);
      return [host, tls.createSecureContext({ key, cert })];
    }),
  );
  const seen: SeenRequest[] = [];
  let connections = 0;
  const answer = (scheme: SeenRequest['scheme']) => (request: http.IncomingMessage, response: http.ServerResponse) => {
    const { method = '', url = '', headers } = request;
    seen.push({ method, scheme, host: headers.host ?? '', path: url, authorization: headers.authorization });
    request.resume();
    response.setHeader('Content-Type', 'application/json');
    response.end(method === 'GET' ? '{"items":["portcullis","postern"]}\n' : '{}\n');
  };
  const secure = https.createServer({ SNICallback: (name, done) => done(null, contexts.get(name)) }, answer('https'));
  const plain = http.createServer(answer('http'));
  for (const server of [secure, plain]) server.on('connection', () => void (connections += 1));
  const [tlsPort, plainPort] = await Promise.all([listen(secure), listen(plain)]);
  return {
    tlsPort,
    plainPort,
    seen,
    get connections() {
      return connections;
    },
    close: async () => {
      await Promise.all([close(secure), close(plain)]);
    },
  };
}

function listen(server: http.Server): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
  });
}

function close(server: http.Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}
