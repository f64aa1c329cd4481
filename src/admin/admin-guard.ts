// Who may come to the operator's window: checked before anything of a request is read but its head.
// Host and Origin keep out a page in the operator's own browser (DNS rebinding, cross-site requests); the token keeps out the rest.
// It must never compare a token in time that depends on it, or let through what it cannot read.
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { isAddress, parseAuthority, parseHost, sameAuthority } from '../exchange/authority.ts';
import { AdminError } from './admin-error.ts';

/** What the guard looks at of a request. */
export interface Caller {
  /** The request target as it stood on the wire */
  readonly target: string;
  readonly headers: IncomingHttpHeaders;
}

/** Throws an AdminError where a caller may not come in. */
export interface AdminGuard {
  /** Target, Host and Origin; for every request. */
  place(caller: Caller): void;
  /** The token; for every route that is not open. */
  token(caller: Caller): void;
}

/** `host` is what the listener is bound to; `allowedHosts` are further names it goes by. */
export interface GuardOptions {
  readonly host: string;
  readonly allowedHosts: readonly string[];
  readonly token: string;
}

/** Makes the guard. Throws where a name or the token cannot be used, so that a bad configuration fails at the start. */
export function createGuard(options: GuardOptions): AdminGuard {
  if (options.token === '') throw new Error('the admin token is empty; delete its file to have one made');
  const expected = digest(options.token);
  const names = new Set<string>(['localhost', options.host.toLowerCase()]);
  for (const name of options.allowedHosts) names.add(canonicalName(name));
  return {
    place({ target, headers }) {
      // An absolute-form target or CONNECT takes this listener for a proxy (fault B16).
      if (!target.startsWith('/'))
        throw new AdminError('misdirected_request', 'this is the admin listener, not a proxy; send a path');
      const authority = parseAuthority(headers.host ?? '', 80);
      if (authority === undefined || !(isAddress(authority.host) || names.has(authority.host))) {
        throw new AdminError(
          'misdirected_request',
          'the Host of the request is not a name of this listener; add it to the allowed hosts',
        );
      }
      const { origin } = headers;
      if (origin === undefined) return;
      const from = /^http:\/\/([^/]+)$/.exec(origin)?.[1];
      const page = from === undefined ? undefined : parseAuthority(from, 80);
      if (page === undefined || !sameAuthority(page, authority)) {
        throw new AdminError('permission_denied', 'requests from pages of another origin are refused');
      }
    },
    token({ headers }) {
      const bearer = /^bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1];
      const key = headers['x-goog-api-key'];
      const offered = [bearer, typeof key === 'string' ? key : undefined];
      if (!offered.some((token) => token !== undefined && timingSafeEqual(digest(token), expected))) {
        throw new AdminError('unauthenticated', 'send the admin token as "Authorization: Bearer" or "x-goog-api-key"', {
          fields: { 'www-authenticate': 'Bearer realm="sallyport admin"' },
        });
      }
    },
  };
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

function canonicalName(name: string): string {
  const host = parseHost(name);
  if (host === undefined)
    throw new Error(`"${name}" is no host name for the admin listener; write it without scheme, port or wildcard`);
  return host;
}
