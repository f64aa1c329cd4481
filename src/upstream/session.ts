// One HTTP/2 connection to an upstream: a vetted, secured socket with a session on it, shared by the exchanges of its lane.
// It must never open a second socket, take more streams than the upstream allows, or outlive the configuration it was opened under by
// more than the exchanges that are under way.
import { connect } from 'node:http2';
import type { ClientHttp2Session, ClientHttp2Stream, Settings } from 'node:http2';
import type { Socket } from 'node:net';
import type { Host } from '../exchange/authority.ts';
import type { Scheme } from '../exchange/stages.ts';
import type { Carrier, ConnectionLimits, Outgoing, Way } from './carrier.ts';
import { errorCode } from './faults.ts';
import { SessionAttempt } from './session-attempt.ts';
import type { StreamSource } from './session-attempt.ts';
import { joined, sessionFields } from './session-fields.ts';

/** What one answer may be ahead of its sandbox, in bytes: held in memory while the sandbox does not read. */
const STREAM_WINDOW = 256 * 1024;
/** What all answers of a session together may have on the way, in bytes; it is given back as it comes in. */
const SESSION_WINDOW = 4 * 1024 * 1024;
/** Fields in one header section; the limit that is configured is one of bytes. */
const MOST_FIELDS = 2000;
/** A header section of a sandbox has its own limit; the library's would end the session with the request. */
const LONGEST_REQUEST = 16 * 1024 * 1024;
/** How long a session that has ended may take to say so, in `ms`. */
const FAREWELL = 1000;

/** What a session is opened with. */
export interface SessionOptions {
  readonly origin: string;
  readonly scheme: Scheme;
  readonly address: Host;
  readonly limits: ConnectionLimits;
  readonly onEnd: () => void;
}

/** A session and what its lane needs to know of it. */
export class UpstreamSession implements Carrier, StreamSource {
  readonly address: Host;
  readonly limits: ConnectionLimits;
  /** Resolves once the upstream has said what it takes, has gone, or has let `connectMs` pass; never rejects */
  readonly settling: Promise<void>;
  lastStream = Infinity;
  exchanges = 0;
  /** Whether WebSockets may be opened on it (RFC 8441); `undefined` while the upstream has not said. */
  takesUpgrades: boolean | undefined = undefined;
  readonly #session: ClientHttp2Session;
  readonly #socket: Socket;
  readonly #scheme: Scheme;
  #streams = 0;
  /** Streams at once; one until the upstream has said how many, so that no burst meets a refusal */
  #most = 1;
  #open = true;
  #retired = false;
  #finished = false;
  #settled: () => void = () => undefined;
  #idle: NodeJS.Timeout | undefined = undefined;

  constructor(socket: Socket, { origin, scheme, address, limits, onEnd }: SessionOptions) {
    this.address = address;
    this.limits = limits;
    this.#socket = socket;
    this.#scheme = scheme;
    this.#session = connect(origin, {
      createConnection: () => socket,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW, maxHeaderListSize: limits.replyHeaderBytes },
      maxHeaderListPairs: MOST_FIELDS,
      maxSendHeaderBlockLength: LONGEST_REQUEST,
      maxSessionMemory: 64,
    });
    this.settling = new Promise((resolve) => {
      const late = setTimeout(resolve, limits.connectMs).unref();
      this.#settled = () => {
        clearTimeout(late);
        resolve();
      };
    });
    this.#session.once('connect', () => {
      if (!this.#session.destroyed) this.#session.setLocalWindowSize(SESSION_WINDOW);
    });
    this.#session.on('remoteSettings', (settings: Settings) => this.#heard(settings));
    this.#session.on('goaway', (_code: number, lastStream: number) => {
      this.#open = false;
      this.lastStream = lastStream;
    });
    // Whoever has a stream on it hears of it through that.
    this.#session.on('error', ignore);
    this.#session.once('close', () => {
      this.#open = false;
      clearTimeout(this.#idle);
      this.#settled();
      onEnd();
    });
    this.#rest();
  }

  get alive(): boolean {
    return this.#open && !this.#session.closed && !this.#session.destroyed && !this.#socket.destroyed;
  }

  /** Whether exchanges may begin, where there is room for them. */
  get usable(): boolean {
    return !this.#retired && this.alive;
  }

  /** Whether one more exchange may begin. */
  get hasRoom(): boolean {
    return this.#streams < this.#most && this.usable;
  }

  get bytesRead(): number {
    return this.#socket.bytesRead;
  }

  /** Takes a place on the session: whoever takes one begins an attempt. */
  take(): void {
    this.#streams += 1;
  }

  begin(): Way {
    this.exchanges += 1;
    return new SessionAttempt(this);
  }

  /** Opens a stream for a request, with the answer's side still unread. Throws where the request cannot be sent. */
  request(request: Outgoing): ClientHttp2Stream {
    const fields = sessionFields(request, this.#scheme);
    const endStream = request.body === null && request.upgrade === undefined;
    try {
      return this.#session.request(fields, { endStream });
    } catch (error) {
      // What the sandbox said twice is not for us to choose from.
      if (errorCode(error) !== 'ERR_HTTP2_HEADER_SINGLE_VALUE') throw error;
      return this.#session.request(joined(fields), { endStream });
    }
  }

  /** A place is free again. */
  left(): void {
    this.#streams -= 1;
    if (this.#streams > 0) return;
    if (this.#retired || !this.alive) this.#finish();
    else this.#rest();
  }

  /** Its streams fail one by one. */
  failed(): void {}

  retire(): void {
    this.#retired = true;
    if (this.#streams === 0) this.#finish();
  }

  destroy(): void {
    this.#open = false;
    this.#session.destroy();
    this.#socket.destroy();
  }

  #heard(settings: Settings): void {
    this.#most = settings.maxConcurrentStreams ?? Infinity;
    this.takesUpgrades = settings.enableConnectProtocol === true;
    this.#settled();
  }

  /** Nobody is on it: it ends when nobody has come for a while. */
  #rest(): void {
    if (this.#idle !== undefined) this.#idle.refresh();
    else {
      this.#idle = setTimeout(() => {
        if (this.#streams === 0) this.#finish();
      }, this.limits.upstreamKeepAliveMs).unref();
    }
  }

  /** Ends it with a word to the upstream, which may not be there to hear it. */
  #finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#open = false;
    clearTimeout(this.#idle);
    this.#session.destroy();
    setTimeout(() => this.#socket.destroy(), FAREWELL).unref();
  }
}

function ignore(): void {}
