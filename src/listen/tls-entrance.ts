// TLS that was led here: the ClientHello says where to, and the connection becomes an Arrival like a CONNECT, but for its words: before
// TLS stands there are none, so what is refused is told inside it, to each request, and what cannot be told is cut with an alert.
// It must never shake hands for a name that was not judged, nor take bytes that have two readings for a connection without a name.
import type { Socket } from 'node:net';
import { Refusal } from '../exchange/codes.ts';
import type { Authority } from '../exchange/authority.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { Arrival, TunnelEnd } from '../exchange/stages.ts';
import { createRequestIds } from '../foundation/request-id.ts';
import { closeGently } from './close-gently.ts';
import { CutReply } from './cut-reply.ts';
import type { Doors } from './doors.ts';
import { ledHere } from './entrance.ts';
import type { Destination, Entrance } from './entrance.ts';
import { readOpening } from './opening.ts';
import type { Opening } from './opening.ts';
import { UNRECOGNIZED_NAME } from './tunnel.ts';

/** What the entrance needs of the house. */
export interface TlsEntranceOptions {
  readonly doors: Doors;
  /** The journey. Never rejects. */
  readonly egress: (arrival: Arrival) => Promise<void>;
  readonly destination: Destination;
  /** Whole ClientHello, within so many `ms` */
  readonly withinMs: number;
}

/** Fatal alert 80, internal_error (RFC 8446 section 6.2): nothing is wrong with what the client asked for. */
const INTERNAL_ERROR = Buffer.from([0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x50]);
const NO_FIELDS: HeaderFields = [];

/** See above. */
export class TlsEntrance implements Entrance {
  readonly #options: TlsEntranceOptions;
  readonly #newId = createRequestIds();
  /** Connections whose ClientHello is awaited */
  readonly #waiting = new Set<Socket>();

  constructor(options: TlsEntranceOptions) {
    this.#options = options;
  }

  admit(socket: Socket): void {
    void this.#read(socket);
  }

  turnAway(socket: Socket, trouble: Refusal): void {
    socket.on('error', ignore);
    this.#arrive(socket, { target: '', trouble, alert: INTERNAL_ERROR });
  }

  close(): void {
    for (const socket of this.#waiting) socket.destroy();
  }

  async #read(socket: Socket): Promise<void> {
    const { doors, destination, withinMs } = this.#options;
    let late: Refusal | undefined;
    const slow = setTimeout(() => {
      late = LATE;
      socket.destroy();
    }, withinMs);
    this.#waiting.add(socket);
    socket.on('error', ignore);
    const opening = await readOpening(socket);
    clearTimeout(slow);
    this.#waiting.delete(socket);
    // A probe, or a connection that a client holds ready, is no exchange.
    if (opening.kind === 'closed' && socket.bytesRead === 0) {
      socket.destroy();
      return;
    }
    const trouble = late ?? openingTrouble(opening);
    if (opening.kind === 'http' && trouble !== undefined) {
      doors.tunnels.mark(socket, ledHere(socket, 'https', destination));
      doors.http1.turnAway(socket, trouble);
      return;
    }
    const named = opening.kind === 'tls' && typeof opening.serverName === 'object';
    const alert = opening.kind === 'tls' ? UNRECOGNIZED_NAME : undefined;
    this.#arrive(socket, { target: named ? opening.serverName.host : '', trouble, alert });
  }

  #arrive(socket: Socket, { target, trouble, alert }: Heard): void {
    const { doors, egress, destination } = this.#options;
    const { origin, client } = ledHere(socket, 'https', destination);
    const run = (authority: Authority, passthrough: boolean): Promise<TunnelEnd> =>
      doors.tunnels.run(socket, { authority, door: 'transparent', identity: undefined, client, passthrough });
    const cut = (): void => {
      if (alert !== undefined && socket.writable) socket.write(alert);
      closeGently(socket);
    };
    void egress({
      purpose: 'tunnel',
      requestId: this.#newId(),
      arrivedAt: performance.now(),
      door: 'transparent',
      protocol: 'http/1.1',
      method: 'CONNECT',
      target,
      pseudo: undefined,
      fields: NO_FIELDS,
      version: '',
      trouble,
      ceiling: undefined,
      origin,
      client,
      reply: new CutReply(socket, { headSent: true, cut }),
      open: run,
      tell: (authority) => run(authority, false),
    });
  }
}

/** What a connection began with. */
interface Heard {
  /** The name in its ClientHello, or nothing */
  readonly target: string;
  readonly trouble: Refusal | undefined;
  /** What it hears where it is cut */
  readonly alert: Buffer | undefined;
}

const LATE = new Refusal('request_timeout', 'the ClientHello did not arrive in time');

function openingTrouble(opening: Opening): Refusal | undefined {
  switch (opening.kind) {
    case 'tls':
      return opening.serverName === 'unreadable'
        ? new Refusal('host_mismatch', 'the ClientHello does not name exactly one host')
        : undefined;
    case 'closed':
      return new Refusal('bad_request', 'the connection ended within its ClientHello');
    case 'http':
    case 'h2':
      return new Refusal('bad_request', 'plain HTTP was sent to a port for TLS');
    case 'other':
      return new Refusal('bad_request', 'this is no readable ClientHello');
  }
}

function ignore(): void {}
