// One POST of the proxy's own, such as to a token endpoint: over a connection that was judged, TLS that is verified as any upstream's,
// one request and one answer up to a cap, and the connection is closed. It must never follow a redirect, keep a connection, or use a
// scheme but https.
import http from 'node:http';
import type { Socket } from 'node:net';
import { formatAuthority, parseAuthority } from '../exchange/authority.ts';
import type { Authority } from '../exchange/authority.ts';
import { Fault } from '../exchange/codes.ts';
import type { AddressRanges } from '../exchange/rule.ts';
import { Secret } from '../foundation/secret.ts';
import { exchangeFault } from './faults.ts';
import { secure } from './secure.ts';
import type { UpstreamTrust } from './secure.ts';

/** What is posted, and where to. */
export interface FormPost {
  readonly url: URL;
  /** Internal ranges that are opened for it; `undefined`: none */
  readonly opened: AddressRanges | undefined;
  /** Names and values in turn, without Host and Content-Length */
  readonly fields: readonly (string | Secret)[];
  readonly body: Secret;
  readonly signal: AbortSignal;
}

/** What came back. `body` is undefined where it is longer than the cap. */
export interface PostReply {
  readonly status: number;
  readonly contentType: string;
  readonly body: string | undefined;
}

/** What posting needs of its neighbours. */
export interface PostOptions {
  /** Opens a connection to a judged address; given by the network room */
  readonly reach: (order: {
    readonly authority: Authority;
    readonly opened: AddressRanges | undefined;
    readonly deadlineMs: number;
    readonly signal: AbortSignal;
  }) => Promise<Socket>;
  readonly trust: () => UpstreamTrust;
}

/** Longest for the name, the connection and the handshake, each `ms`; whoever asks may give up sooner by `signal`. */
const PHASE_MS = 10_000;
/** Most bytes of an answer */
export const REPLY_CAP = 64 * 1024;
const HEADER_CAP = 16 * 1024;

/** Makes what posts. It rejects with a Fault. */
export function createPostForm({ reach, trust }: PostOptions): (post: FormPost) => Promise<PostReply> {
  return async (post) => {
    const { url, opened, signal } = post;
    const authority = url.protocol === 'https:' ? parseAuthority(url.host, 443) : undefined;
    if (authority === undefined) throw new Fault('address_denied', 'only an https URL can be posted to');
    const socket = await reach({ authority, opened, deadlineMs: PHASE_MS, signal });
    const lane = `_proxy ${authority.host}:${authority.port}`;
    const secured = await secure(socket, { authority, lane, trust: trust(), deadlineMs: PHASE_MS, signal });
    try {
      return await exchange(secured, { ...post, authority });
    } catch (error) {
      throw exchangeFault(error);
    } finally {
      secured.destroy();
    }
  };
}

function exchange(socket: Socket, post: FormPost & { readonly authority: Authority }): Promise<PostReply> {
  const { url, authority, signal } = post;
  const body = Buffer.from(shown(post.body));
  return new Promise((resolve, reject) => {
    const request = http.request({
      method: 'POST',
      path: `${url.pathname}${url.search}`,
      headers: ['Host', formatAuthority(authority, 443), ...post.fields.map(shown), 'Content-Length', String(body.length)],
      setHost: false,
      // Without an agent: one, even `false`, would make a connection of its own.
      createConnection: () => socket,
      maxHeaderSize: HEADER_CAP,
      signal,
    });
    request.once('error', reject);
    request.once('response', (response) => {
      const kept: Buffer[] = [];
      let size = 0;
      const settle = (text: string | undefined): void =>
        resolve({ status: response.statusCode ?? 0, contentType: response.headers['content-type'] ?? '', body: text });
      response.on('data', (piece: Buffer) => {
        size += piece.length;
        if (size > REPLY_CAP) settle(undefined);
        else kept.push(piece);
      });
      response.once('end', () => settle(Buffer.concat(kept).toString('utf8')));
      response.once('error', reject);
    });
    request.end(body);
  });
}

function shown(text: string | Secret): string {
  return text instanceof Secret ? text.reveal() : text;
}
