// The DNS door: a sandbox that is led here by names alone asks it for addresses, by UDP and TCP, and hears the proxy's own for every name
// that policy could let through. Each question is an Arrival like any other and leaves its line in the ledger.
// It must never ask anyone: nothing that a sandbox asks leaves by here, so that no name can carry anything out.
import { createSocket } from 'node:dgram';
import type { RemoteInfo, Socket as UdpSocket } from 'node:dgram';
import { lookup } from 'node:dns';
import type { LookupOneOptions } from 'node:dns';
import { isIP } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { Refusal } from '../exchange/codes.ts';
import type { Code } from '../exchange/codes.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { ReplyPort } from '../exchange/reply-port.ts';
import type { Arrival, LookupArrival } from '../exchange/stages.ts';
import { logAcceptTrouble } from '../foundation/accept-trouble.ts';
import type { Logger } from '../foundation/logger.ts';
import { createRequestIds } from '../foundation/request-id.ts';
import { LONGEST_QUESTION, longestByUdp, RCODE, readQuery, TYPE, writeReply } from './dns-message.ts';
import type { Asked, Rcode, Reply } from './dns-message.ts';
import { DNS_RATE, DnsRate } from './dns-rate.ts';
import type { RateLimits } from './dns-rate.ts';
import { DnsStreams } from './dns-streams.ts';
import type { DropReason } from './dns-streams.ts';

export type { DropReason } from './dns-streams.ts';

/** What the door needs from the house. */
export interface DnsDoorOptions {
  readonly host: string;
  /** For UDP and TCP */
  readonly port: number;
  /** The proxy's own IPv4 address as sandboxes reach it */
  readonly answer: string;
  /** Its IPv6 address; `undefined`: names have none */
  readonly answer6: string | undefined;
  /** The journey. Never rejects. */
  readonly egress: (arrival: Arrival) => Promise<void>;
  /** Something got no answer. */
  readonly dropped: (reason: DropReason) => void;
  /** A connection of TCP */
  readonly onOpen: () => void;
  readonly onClose: () => void;
  readonly log: Logger;
  /** Default: DNS_RATE */
  readonly rate?: RateLimits;
  /** Longest time that a connection of TCP may say nothing, in `ms`; default: ten seconds */
  readonly idleMs?: number;
}

/** A listening DNS door. */
export interface DnsDoor {
  readonly host: string;
  readonly port: number;
  /** Stops at once: whoever asked and has no answer yet asks again. Idempotent. */
  close(): Promise<void>;
}

/** How long an answer may be remembered, in `s`. Short, as the proxy may be moved; what is allowed is judged anew at each connection. */
export const ANSWER_TTL = 60;
const IDLE_MS = 10_000;
const MOST_CONNECTIONS = { all: 256, ofClient: 16 } as const;
/** Bytes of questions that may wait while the process is busy; the system may grant less */
const WAITING_BYTES = 1024 * 1024;
/** Port 0 is any that is free; for UDP and TCP both, the second may be taken */
const TRIES = 5;

/** Binds both. Rejects with the system's error where one cannot be had; nothing is left open then. */
export async function openDnsDoor(options: DnsDoorOptions): Promise<DnsDoor> {
  for (let left = TRIES; ; left -= 1) {
    const door = new OpenDoor(options);
    try {
      await door.bind();
      return door;
    } catch (error) {
      await door.close();
      if (options.port !== 0 || left === 1) throw error;
    }
  }
}

class OpenDoor implements DnsDoor {
  host = '';
  port = 0;
  readonly #options: DnsDoorOptions;
  readonly #rate: DnsRate;
  readonly #nextId = createRequestIds();
  readonly #udp: UdpSocket;
  readonly #streams: DnsStreams;
  #closing: Promise<void> | undefined = undefined;

  constructor(options: DnsDoorOptions) {
    this.#options = options;
    this.#rate = new DnsRate(options.rate ?? DNS_RATE);
    const type = isIP(options.host) === 6 ? 'udp6' : 'udp4';
    this.#udp = createSocket({ type, recvBufferSize: WAITING_BYTES, lookup: withoutAsking });
    this.#udp.on('message', (message, from) => this.#hearDatagram(message, from));
    this.#streams = new DnsStreams({
      hear: (message, socket) => this.#hearStreamed(message, socket),
      dropped: options.dropped,
      onOpen: options.onOpen,
      onClose: options.onClose,
      idleMs: options.idleMs ?? IDLE_MS,
      most: MOST_CONNECTIONS,
    });
  }

  async bind(): Promise<void> {
    const { host, port, log } = this.#options;
    const trouble = logAcceptTrouble(log, 'dns');
    await new Promise<void>((resolve, reject) => {
      this.#udp.once('error', reject);
      this.#udp.bind({ address: host, port, exclusive: false }, () => {
        this.#udp.off('error', reject).on('error', trouble);
        resolve();
      });
    });
    const bound = this.#udp.address();
    const { server } = this.#streams;
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen({ host: bound.address, port: bound.port, exclusive: false }, () => {
        server.off('error', reject).on('error', trouble);
        resolve();
      });
    });
    this.host = bound.address;
    this.port = (server.address() as AddressInfo).port;
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    await Promise.all([new Promise<void>((resolve) => this.#udp.close(resolve)), this.#streams.close()]);
  }

  #hearDatagram(message: Buffer, from: RemoteInfo): void {
    const { dropped } = this.#options;
    if (!this.#rate.take(from.address, performance.now())) {
      dropped('rate');
      return;
    }
    if (message.length > LONGEST_QUESTION) {
      dropped('size');
      return;
    }
    const asked = readQuery(message);
    // Nothing can be sent to port 0, which only a made-up sender has.
    if (asked === undefined || from.port === 0) {
      dropped('malformed');
      return;
    }
    const say = (reply: Reply): void => {
      // The process is ending, and the socket has gone before the question was judged.
      if (this.#closing !== undefined) return;
      this.#udp.send(writeReply(asked, reply, longestByUdp(asked)), from.port, from.address, ignore);
    };
    this.#judge(asked, from.address, say);
  }

  #hearStreamed(message: Buffer, socket: Socket): boolean {
    const { dropped } = this.#options;
    const client = socket.remoteAddress ?? '';
    if (!this.#rate.take(client, performance.now())) {
      dropped('rate');
      return false;
    }
    const asked = readQuery(message);
    if (asked === undefined) {
      dropped('malformed');
      return false;
    }
    this.#judge(asked, client, (reply) => DnsStreams.say(socket, writeReply(asked, reply, Infinity)));
    return true;
  }

  #judge(asked: Asked, client: string, say: (reply: Reply) => void): void {
    void this.#options.egress(new Lookup({ asked, client, say, requestId: this.#nextId(), answers: this.#options }));
  }
}

interface LookupParts {
  readonly asked: Asked;
  readonly client: string;
  readonly say: (reply: Reply) => void;
  readonly requestId: string;
  readonly answers: Pick<DnsDoorOptions, 'answer' | 'answer6'>;
}

const NO_FIELDS: HeaderFields = [];

/** A lookup is answered by itself, and nothing else is ever written to it. */
const NO_REPLY: ReplyPort = {
  headSent: true,
  closed: false,
  listen: ignore,
  invite: ignore,
  interim: ignore,
  head: ignore,
  write: () => true,
  end: ignore,
  switchProtocols: () => {
    throw new Error('internal error: a lookup has no stream');
  },
  abort: ignore,
};

/** One question. Its ledger line has the name; what else it says, the answer gives back. */
class Lookup implements LookupArrival {
  readonly purpose = 'lookup';
  readonly door = 'transparent';
  readonly protocol = 'dns';
  readonly method = 'QUERY';
  readonly version = '';
  readonly pseudo = undefined;
  readonly fields = NO_FIELDS;
  readonly ceiling = undefined;
  readonly origin = undefined;
  readonly reply = NO_REPLY;
  readonly arrivedAt = performance.now();
  readonly requestId: string;
  readonly target: string;
  readonly trouble: Refusal | undefined;
  readonly client: string;
  readonly #parts: LookupParts;

  constructor(parts: LookupParts) {
    const { name, trouble } = parts.asked;
    this.requestId = parts.requestId;
    this.target = name;
    this.trouble = trouble === undefined ? undefined : new Refusal('bad_request', trouble.detail);
    this.client = parts.client;
    this.#parts = parts;
  }

  answer(): void {
    this.#parts.say(answerTo(this.#parts.asked, this.#parts.answers));
  }

  decline(code: Code): void {
    this.#parts.say(refusalTo(this.#parts.asked, code));
  }
}

/** Where a name that policy could let through leads. A name that is there without a record of that type is not one that is nowhere. */
function answerTo({ name, type }: Asked, { answer, answer6 }: LookupParts['answers']): Reply {
  if (isNobodys(name)) return { rcode: RCODE.nxDomain };
  // To ANY one record is enough (RFC 8482 section 4.1).
  if (type === TYPE.a || type === TYPE.any) return found('A', answer);
  return type === TYPE.aaaa && answer6 !== undefined ? found('AAAA', answer6) : { rcode: RCODE.noError };
}

function found(type: 'A' | 'AAAA', address: string): Reply {
  return { rcode: RCODE.noError, record: { type, address, ttl: ANSWER_TTL } };
}

function refusalTo({ trouble }: Asked, code: Code): Reply {
  if (code === 'bad_request' && trouble !== undefined) return { rcode: trouble.rcode };
  const { rcode, info } = DECLINED[code] ?? FAILED;
  return { rcode, extended: { info, text: code } };
}

/**
 * How refusals are told. Names that policy refuses do not exist here, so that no resolver looks for them any further. The extended error
 * (RFC 8914 section 4) is Blocked, by whoever runs this; Prohibited, for a client that nobody knows; or none of those that have a number.
 */
const DECLINED: Readonly<Partial<Record<Code, { readonly rcode: Rcode; readonly info: number }>>> = {
  not_allowlisted: { rcode: RCODE.nxDomain, info: 15 },
  denylisted: { rcode: RCODE.nxDomain, info: 15 },
  bad_request: { rcode: RCODE.nxDomain, info: 0 },
  uri_too_long: { rcode: RCODE.nxDomain, info: 0 },
  sandbox_unauthenticated: { rcode: RCODE.refused, info: 18 },
};
/** Not Ready: whatever else it is, it is no answer, and worth being asked again. */
const FAILED = { rcode: RCODE.servFail, info: 14 } as const;

/**
 * Names that lead to the sandbox itself or to nobody (RFC 6761, RFC 7686), and those that addresses have (RFC 6303): not even a rule for
 * every name makes them the proxy's.
 */
function isNobodys(name: string): boolean {
  return /(?:^|\.)(?:localhost|invalid|onion|in-addr\.arpa|ip6\.arpa)\.?$/i.test(name);
}

/** Node would take each address that is answered to the resolver, on a way through the event loop. Only the name to listen at is one. */
function withoutAsking(
  name: string,
  options: LookupOneOptions,
  done: (error: Error | null, address: string, family: number) => void,
): void {
  const family = isIP(name);
  if (family === 0) lookup(name, options, done);
  else done(null, name, family);
}

function ignore(): void {}
