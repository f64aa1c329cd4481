// TLS with the upstream over a dialled socket: always verified, chain and name, whatever the environment says.
// It must never be given a name that policy did not judge, and nothing here may switch verification off (faults H01, H02).
import { createSecureContext, checkServerIdentity, connect, rootCertificates } from 'node:tls';
import type { PeerCertificate, SecureContext, TLSSocket } from 'node:tls';
import type { Socket } from 'node:net';
import { LRUCache } from 'lru-cache';
import type { Authority } from '../exchange/authority.ts';
import { Fault } from '../exchange/codes.ts';
import { handshakeFault } from './faults.ts';

/** Trust in upstreams: the roots that come with Node and the operator's own (PEM texts). Built once for each configuration. */
export interface UpstreamTrust {
  readonly context: SecureContext;
  /** TLS sessions by lane, for resumption; bounded */
  readonly sessions: LRUCache<string, Buffer>;
}

/** Builds the trust from the operator's extra roots. Throws where one is not a certificate. */
export function createTrust(extraRoots: readonly string[]): UpstreamTrust {
  const ca = extraRoots.length === 0 ? {} : { ca: [...rootCertificates, ...extraRoots] };
  // Named, or `--tls-min-v1.0` in NODE_OPTIONS would lower it.
  const context = createSecureContext({ ...ca, minVersion: 'TLSv1.2' });
  return { context, sessions: new LRUCache({ max: 1000 }) };
}

/**
 * Shakes hands over a connected socket and resolves once chain and name are verified. Takes the socket over: on any failure it is destroyed.
 * Rejects with `upstream_tls`, `upstream_timeout` after `deadlineMs`, `client_closed` on abort.
 */
export function secure(
  socket: Socket,
  options: {
    readonly authority: Authority;
    readonly lane: string;
    readonly trust: UpstreamTrust;
    /** Offered by ALPN, the one liked best first; default HTTP/1.1. What was agreed on is the socket's `alpnProtocol` */
    readonly protocols?: readonly string[];
    readonly deadlineMs: number;
    /** Aborts when the sandbox has left */
    readonly signal?: AbortSignal;
  },
): Promise<TLSSocket> {
  const { authority, lane, trust, protocols = HTTP1, deadlineMs, signal } = options;
  const session = trust.sessions.get(lane);
  return new Promise((resolve, reject) => {
    const secured = connect({
      socket,
      secureContext: trust.context,
      host: authority.host,
      servername: authority.address ? '' : authority.host,
      ALPNProtocols: [...protocols],
      rejectUnauthorized: true,
      checkServerIdentity: (_name, certificate) => identityTrouble(authority, certificate),
      ...(session === undefined ? {} : { session }),
    });
    const timer = setTimeout(
      () => fail(new Fault('upstream_timeout', 'the TLS handshake with the upstream took too long')),
      deadlineMs,
    );
    const left = (): void => fail(new Fault('client_closed', 'the sandbox left before its request could be sent'));
    const fail = (error: unknown): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', left);
      trust.sessions.delete(lane);
      secured.destroy();
      socket.destroy();
      reject(handshakeFault(error));
    };
    const closed = (): void => fail(new Fault('upstream_tls', 'the upstream broke off the TLS handshake'));
    secured.once('error', fail);
    secured.once('close', closed);
    secured.on('session', (fresh: Buffer) => trust.sessions.set(lane, fresh));
    signal?.addEventListener('abort', left);
    secured.once('secureConnect', () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', left);
      secured.off('error', fail);
      secured.off('close', closed);
      secured.on('error', ignore);
      resolve(secured);
    });
  });
}

const HTTP1: readonly string[] = ['http/1.1'];

/** Errors after the handshake end the connection; whoever uses it hears of it through its close. */
function ignore(): void {}

/** Node would fall back to the common name where the SAN holds no DNS name; RFC 9110 section 4.3.4 has no such thing. */
function identityTrouble({ host }: Authority, certificate: PeerCertificate): Error | undefined {
  return checkServerIdentity(host, { ...certificate, subject: { ...certificate.subject, CN: '' } });
}
