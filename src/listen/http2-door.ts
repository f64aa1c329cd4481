// The HTTP/2 door: each stream of a session becomes an Arrival of its own, from the proxy port and from inside tunnels alike.
// It judges nothing. What Node's parser refuses it answers itself, with a reset or a GOAWAY; a session that fails must take nothing along
// but its own streams, and what a sandbox makes of a session must not cost more than its requests would.
import { performServerHandshake } from 'node:http2';
import type { ServerHttp2Session, ServerHttp2Stream, ServerOptions } from 'node:http2';
import type { Duplex } from 'node:stream';
import { Refusal } from '../exchange/codes.ts';
import { fieldValue } from '../exchange/header-fields.ts';
import type { Limits } from '../exchange/snapshot.ts';
import type { Arrival } from '../exchange/stages.ts';
import { createRequestIds } from '../foundation/request-id.ts';
import { readHead } from './http2-head.ts';
import type { RequestHead } from './http2-head.ts';
import { Http2Reply } from './http2-reply.ts';
import { startSessionWatch, WatchedSession } from './session-watch.ts';
import { connectTrouble } from './tunnel.ts';
import type { Tunnel } from './tunnel.ts';
import type { Tunnels } from './tunnels.ts';

/** What the door needs from the house. */
export interface Http2DoorOptions {
  /** The journey. Never rejects. */
  readonly egress: (arrival: Arrival) => Promise<void>;
  readonly tunnels: Tunnels;
  /** Limits in force; a change holds for new sessions */
  readonly limits: () => Limits;
}

/** PING frames between two looks, far above what a client that measures its way sends; a SETTINGS frame counts for many. */
const MOST_QUESTIONS = 100_000;
const SETTINGS_COST = 1000;

/** The door. It listens nowhere: it is given what comes from the proxy port and out of tunnels. */
export class Http2Door {
  readonly #options: Http2DoorOptions;
  readonly #newId = createRequestIds();
  readonly #sessions = new Set<WatchedSession>();
  readonly #endWatch: () => void;
  #leaving = false;

  constructor(options: Http2DoorOptions) {
    this.#options = options;
    this.#endWatch = startSessionWatch(this.#sessions, options.limits());
  }

  /** Takes in a connection, as it came from the port or out of a tunnel. */
  take(stream: Duplex): void {
    stream.on('error', ignore);
    if (stream.destroyed) return;
    let session: ServerHttp2Session;
    try {
      session = performServerHandshake(stream, sessionOptions(this.#options.limits()));
    } catch {
      // Node finds the stream unfit, because it broke a moment ago.
      stream.destroy();
      return;
    }
    this.#keepInView(new WatchedSession(session, stream));
    // A TLSSocket that no TLS server of Node's has made does not say by itself that its handshake is over.
    if (session.connecting) stream.emit('secureConnect');
    if (this.#leaving) session.close();
  }

  /** Tells every sandbox to come again elsewhere: streams under way go on, no further one is taken. */
  goAway(): void {
    this.#leaving = true;
    for (const { session } of this.#sessions) session.close();
  }

  /** Looks after deadlines no longer, once no connection is left. */
  close(): void {
    this.#endWatch();
  }

  #keepInView(watched: WatchedSession): void {
    const { session, stream } = watched;
    const tunnel = this.#options.tunnels.of(stream);
    const client = tunnel?.client ?? (stream as { readonly remoteAddress?: string }).remoteAddress ?? '';
    this.#sessions.add(watched);
    const over = (reply: Http2Reply): void => {
      watched.replies.delete(reply);
      watched.tails.delete(reply);
      watched.idleSince = performance.now();
    };
    const ask = (cost: number): void => {
      watched.questions += cost;
      if (watched.questions > MOST_QUESTIONS) stream.destroy();
    };
    // A session that fails closes by itself; with nobody to hear of it, the process would end.
    session.on('error', ignore).on('frameError', ignore);
    session.on('ping', () => ask(1));
    session.on('remoteSettings', () => ask(SETTINGS_COST));
    const seat: Seat = { watched, tunnel, client, over };
    const arrive: OnStream = (request, _headers, _flags, raw) => this.#arrive(request, raw, seat);
    session.on('stream', arrive as (request: ServerHttp2Stream) => void);
    stream.once('close', () => this.#sessions.delete(watched));
    // A connection may stay half open, of which HTTP/2 knows nothing.
    stream.once('end', () => stream.destroy());
  }

  #arrive(stream: ServerHttp2Stream, raw: readonly string[], seat: Seat): void {
    // Taken back before anyone has looked at it.
    if (stream.destroyed) {
      stream.on('error', ignore);
      return;
    }
    const head = readHead(raw);
    const body = !stream.endAfterHeaders;
    const reply = new Http2Reply(stream, {
      body,
      waiting: body && fieldValue(head.fields, 'expect')?.toLowerCase() === '100-continue',
      trailers: fieldValue(head.fields, 'te') === 'trailers',
      head: head.method === 'HEAD',
      over: seat.over,
    });
    seat.watched.replies.add(reply);
    if (seat.tunnel !== undefined) seat.tunnel.carried += 1;
    if (head.method === 'CONNECT') this.#connect(stream, head, { ...seat, reply });
    else
      void this.#options.egress({
        ...this.#describe(head, seat),
        purpose: 'exchange',
        protocol: 'h2',
        reply,
        body: body ? stream : undefined,
      });
  }

  /** A CONNECT, or an extended one (RFC 8441). */
  #connect(stream: ServerHttp2Stream, head: RequestHead, seat: Seat & { readonly reply: Http2Reply }): void {
    const { tunnel, client, reply } = seat;
    const base = this.#describe(head, seat);
    const { egress, tunnels } = this.#options;
    if (head.protocol === 'websocket') {
      void egress({ ...base, method: 'GET', purpose: 'upgrade', protocol: 'websocket', reply });
      return;
    }
    if (head.protocol !== undefined) {
      const trouble = base.trouble ?? new Refusal('bad_request', 'the only :protocol let through is websocket');
      void egress({ ...base, trouble, purpose: 'exchange', protocol: 'h2', reply, body: undefined });
      return;
    }
    const target = head.authority ?? '';
    void egress({
      ...base,
      target,
      pseudo: undefined,
      trouble: base.trouble ?? connectTrouble(tunnel),
      purpose: 'tunnel',
      protocol: 'h2',
      reply,
      open: (authority, passthrough) => {
        reply.accept();
        const identity = fieldValue(head.fields, 'proxy-authorization');
        return tunnels.run(stream, { authority, identity, client, passthrough });
      },
    });
  }

  #describe(head: RequestHead, { tunnel, client }: Seat) {
    return {
      requestId: this.#newId(),
      arrivedAt: performance.now(),
      door: tunnel?.door ?? ('proxy' as const),
      method: head.method,
      target: head.path,
      pseudo: { scheme: head.scheme, authority: head.authority },
      fields: head.fields,
      version: '2.0',
      trouble: head.bytes > this.#options.limits().headerBytes ? TOO_LARGE : undefined,
      ceiling: tunnel?.ceiling,
      origin: tunnel?.origin,
      client,
    };
  }
}

/** Node's types leave out the fields as they came. */
type OnStream = (stream: ServerHttp2Stream, headers: unknown, flags: number, raw: readonly string[]) => void;

/** What the streams of one session have in common. */
interface Seat {
  readonly watched: WatchedSession;
  readonly tunnel: Tunnel | undefined;
  readonly client: string;
  readonly over: (reply: Http2Reply) => void;
}

const TOO_LARGE = new Refusal('headers_too_large', 'the header section is too large');

/** Most octets that a sandbox may have under way toward one stream; as in the RFC, so that a hundred streams hold 6 MiB. */
const WINDOW = 65_535;

function sessionOptions(limits: Limits): ServerOptions {
  return {
    settings: {
      enableConnectProtocol: true,
      maxConcurrentStreams: limits.streams,
      initialWindowSize: WINDOW,
      // Twice what is let through, and so with the pairs: what is only somewhat too large is answered and recorded.
      maxHeaderListSize: 2 * limits.headerBytes,
    },
    maxHeaderListPairs: 2 * limits.headerFields,
    maxSendHeaderBlockLength: 2 * limits.replyHeaderBytes,
    maxSessionInvalidFrames: 100,
    maxSessionRejectedStreams: 100,
    // In MB. Beyond it no further stream is taken.
    maxSessionMemory: 10 + Math.ceil((2 * limits.streams * WINDOW) / 1_000_000),
  };
}

function ignore(): void {}
