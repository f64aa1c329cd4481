// A client of DNS for tests: whole messages in and out, by UDP and by TCP, from an address of loopback that the test chooses.
import { createSocket } from 'node:dgram';
import type { Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { decode, encode, RECURSION_DESIRED } from 'dns-packet';
import type { DecodedPacket, OptAnswer, Packet, RecordType } from 'dns-packet';

/** A decoded answer, with what the typings of the library leave out. */
export type Answered = DecodedPacket & { readonly rcode: string; readonly bytes: Buffer };

/** What a question may say beside its name. */
export interface QuestionParts {
  readonly type?: RecordType | 'UNKNOWN_65';
  readonly id?: number;
  readonly flags?: number;
  /** Speaks EDNS, and takes answers of so many bytes */
  readonly edns?: number;
  readonly ednsVersion?: number;
}

/** A query as a resolver's client sends it. */
export function query(name: string, parts: QuestionParts = {}): Buffer {
  const { type = 'A', id = 4711, flags = RECURSION_DESIRED, edns, ednsVersion = 0 } = parts;
  const packet: Packet = { type: 'query', id, flags, questions: [{ name, type: type as RecordType, class: 'IN' }] };
  if (edns !== undefined) {
    const opt = {
      type: 'OPT',
      name: '.',
      udpPayloadSize: edns,
      extendedRcode: 0,
      ednsVersion,
      flags: 0,
      flag_do: false,
      options: [],
    };
    packet.additionals = [opt as OptAnswer];
  }
  return encode(packet);
}

/** Decodes an answer. */
export function answered(bytes: Buffer): Answered {
  return Object.assign(decode(bytes) as Answered, { bytes });
}

/** The extended errors (RFC 8914) of an answer, as `number text`. */
export function extendedErrors(packet: DecodedPacket): string[] {
  const opt = packet.additionals?.find((record) => record.type === 'OPT');
  return (opt?.options ?? [])
    .filter(({ code }) => (code as number) === 15)
    .map(({ data = Buffer.alloc(2) }) => `${data.readUInt16BE(0)} ${data.toString('utf8', 2)}`);
}

/** Questions by UDP from one address. */
export class UdpClient {
  readonly #socket: UdpSocket;
  readonly #port: number;
  /** Answers so far */
  readonly heard: Buffer[] = [];

  private constructor(socket: UdpSocket, port: number) {
    this.#socket = socket;
    this.#port = port;
    socket.on('message', (bytes) => this.heard.push(bytes));
  }

  static async open(port: number, from = '127.0.0.1'): Promise<UdpClient> {
    const socket = createSocket('udp4');
    socket.bind(0, from);
    await once(socket, 'listening');
    return new UdpClient(socket, port);
  }

  send(message: Buffer): void {
    this.#socket.send(message, this.#port, '127.0.0.1');
  }

  /** Resolves with the next answer. */
  async next(): Promise<Answered> {
    const [bytes] = (await once(this.#socket, 'message')) as [Buffer];
    return answered(bytes);
  }

  async ask(message: Buffer): Promise<Answered> {
    const next = this.next();
    this.send(message);
    return next;
  }

  close(): void {
    this.#socket.close();
  }
}

/** Each message behind its length. */
export function streamed(...messages: readonly Buffer[]): Buffer {
  return Buffer.concat(
    messages.flatMap((message) => {
      const length = Buffer.alloc(2);
      length.writeUInt16BE(message.length);
      return [length, message];
    }),
  );
}

/** One connection of TCP. */
export class TcpClient {
  readonly socket: Socket;
  readonly answers: Answered[] = [];
  readonly #waiting = new Set<() => void>();
  #rest = Buffer.alloc(0);
  ended = false;

  constructor(port: number, from = '127.0.0.1') {
    this.socket = connect({ host: '127.0.0.1', port, localAddress: from });
    this.socket.on('error', () => undefined);
    this.socket.on('close', () => {
      this.ended = true;
      this.#look();
    });
    this.socket.on('data', (chunk: Buffer) => {
      this.#rest = Buffer.concat([this.#rest, chunk]);
      while (this.#rest.length >= 2 && this.#rest.length >= 2 + this.#rest.readUInt16BE(0)) {
        const end = 2 + this.#rest.readUInt16BE(0);
        this.answers.push(answered(this.#rest.subarray(2, end)));
        this.#rest = this.#rest.subarray(end);
      }
      this.#look();
    });
  }

  #look(): void {
    for (const look of this.#waiting) look();
  }

  /** Resolves with the answers once there are so many of them, or the connection has ended. */
  whenAnswered(count: number): Promise<readonly Answered[]> {
    return this.#until(() => this.answers.length >= count || this.ended).then(() => this.answers);
  }

  /** Resolves once the connection has ended. */
  closed(): Promise<void> {
    return this.#until(() => this.ended);
  }

  #until(holds: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (!holds()) return;
        this.#waiting.delete(look);
        resolve();
      };
      this.#waiting.add(look);
      look();
    });
  }

  close(): void {
    this.socket.destroy();
  }
}
