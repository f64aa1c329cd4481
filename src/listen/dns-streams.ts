// Questions by TCP (RFC 7766): each behind its length in two bytes, several on one connection, answered in their order.
// It must never hold more of a connection than one question, nor a connection that asks nothing or reads nothing.
import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { LONGEST_QUESTION } from './dns-message.ts';

/** Why something was dropped; also a metric label. */
export type DropReason = 'rate' | 'size' | 'malformed' | 'connections' | 'idle';

/** What a connection needs of the door. */
export interface DnsStreamsOptions {
  /** One question. False: the connection is to be closed, and whoever says so has counted it */
  readonly hear: (message: Buffer, socket: Socket) => boolean;
  readonly dropped: (reason: DropReason) => void;
  readonly onOpen: () => void;
  readonly onClose: () => void;
  /** Longest time without a whole question, in `ms` */
  readonly idleMs: number;
  /** Connections at once */
  readonly most: { readonly all: number; readonly ofClient: number };
}

interface Stream {
  /** What came of a question so far, and its length before it */
  rest: Buffer | undefined;
  /** When the last question came, or the connection, in `ms` */
  heardAt: number;
}

const LENGTH = 2;
const LONGEST_ANSWER = 0xffff;

/** Answers to all that came at once leave in one piece. */
export class DnsStreams {
  readonly server: Server;
  readonly #options: DnsStreamsOptions;
  readonly #open = new Map<Socket, Stream>();
  readonly #sweep: NodeJS.Timeout;

  constructor(options: DnsStreamsOptions) {
    this.#options = options;
    this.server = createServer({ noDelay: true }, (socket) => this.#take(socket));
    // One look over all of them costs less than a timer for each.
    this.#sweep = setInterval(() => this.#endIdle(), Math.min(1000, options.idleMs / 2)).unref();
  }

  /** Ends every connection and stops listening; resolves when that is done. */
  close(): Promise<void> {
    clearInterval(this.#sweep);
    return new Promise((resolve) => {
      this.server.close(() => resolve());
      for (const socket of this.#open.keys()) socket.destroy();
    });
  }

  /** Sends an answer. */
  static say(socket: Socket, message: Buffer): void {
    if (message.length > LONGEST_ANSWER) throw new Error('internal error: an answer that no length can tell');
    const length = Buffer.allocUnsafe(LENGTH);
    length.writeUInt16BE(message.length);
    socket.write(length);
    socket.write(message);
  }

  #take(socket: Socket): void {
    const { most, onOpen, onClose } = this.#options;
    socket.on('error', ignore);
    if (this.#open.size >= most.all || this.#ofClient(socket.remoteAddress) >= most.ofClient) {
      this.#drop(socket, 'connections');
      return;
    }
    const stream: Stream = { rest: undefined, heardAt: performance.now() };
    this.#open.set(socket, stream);
    onOpen();
    socket.once('close', () => {
      this.#open.delete(socket);
      onClose();
    });
    socket.on('data', (chunk: Buffer) => this.#read(socket, stream, chunk));
    socket.on('drain', () => socket.resume());
  }

  #ofClient(address: string | undefined): number {
    let count = 0;
    for (const socket of this.#open.keys()) if (socket.remoteAddress === address) count += 1;
    return count;
  }

  #read(socket: Socket, stream: Stream, chunk: Buffer): void {
    let bytes = stream.rest === undefined ? chunk : Buffer.concat([stream.rest, chunk]);
    stream.rest = undefined;
    socket.cork();
    while (bytes.length >= LENGTH) {
      const length = bytes.readUInt16BE(0);
      if (length > LONGEST_QUESTION) {
        this.#drop(socket, 'size');
        return;
      }
      if (bytes.length < LENGTH + length) break;
      stream.heardAt = performance.now();
      if (!this.#options.hear(bytes.subarray(LENGTH, LENGTH + length), socket)) {
        // What was asked before has its answers.
        socket.removeAllListeners('data').uncork();
        socket.destroySoon();
        return;
      }
      bytes = bytes.subarray(LENGTH + length);
    }
    if (bytes.length > 0) stream.rest = bytes;
    socket.uncork();
    // Who asks and does not read is not heard any further until it does.
    if (socket.writableNeedDrain) socket.pause();
  }

  #drop(socket: Socket, reason: DropReason): void {
    this.#options.dropped(reason);
    socket.destroy();
  }

  #endIdle(): void {
    const now = performance.now();
    for (const [socket, { rest, heardAt }] of this.#open) {
      if (now - heardAt <= this.#options.idleMs) continue;
      // A connection that has fallen silent between two questions is nothing to be counted.
      if (rest === undefined && !socket.writableNeedDrain) socket.destroy();
      else this.#drop(socket, 'idle');
    }
  }
}

function ignore(): void {}
