// Connections that have not said yet what they speak: each is looked at once, when its first bytes come, and handed on with all of them.
// It must never hold one for longer than a header section may take, and it leaves no listener behind on those that it hands on.
import type { Socket } from 'node:net';
import { isPreface } from './opening.ts';

/** What becomes of a connection. */
export interface FirstBytesOptions {
  /** `ms` */
  readonly withinMs: number;
  readonly take: (socket: Socket, isHttp2: boolean) => void;
  /** It began in time, as HTTP/2 might, and came no further. One that said nothing is closed in silence. */
  readonly late: (socket: Socket) => void;
}

interface Waiting {
  readonly since: number;
  /** What came so far */
  bytes: Buffer | undefined;
  /** Leaves it to whoever comes next */
  readonly settle: () => void;
}

/** Waits for first bytes, on many connections at once. */
export class FirstBytes {
  readonly #options: FirstBytesOptions;
  readonly #waiting = new Map<Socket, Waiting>();
  readonly #sweep: NodeJS.Timeout;

  constructor(options: FirstBytesOptions) {
    this.#options = options;
    // One look over all of them costs less than a timer for each.
    this.#sweep = setInterval(() => this.#endLate(), Math.min(1000, options.withinMs)).unref();
  }

  /** Waits for the first bytes of a connection that has just been accepted. */
  watch(socket: Socket): void {
    const look = (): void => {
      const more = socket.read() as Buffer | null;
      if (more === null) return;
      const bytes = waiting.bytes === undefined ? more : Buffer.concat([waiting.bytes, more]);
      const isHttp2 = isPreface(bytes);
      if (isHttp2 === undefined) {
        waiting.bytes = bytes;
        return;
      }
      waiting.settle();
      socket.unshift(bytes);
      this.#options.take(socket, isHttp2);
    };
    const gone = (): void => {
      waiting.settle();
      socket.destroy();
    };
    const settle = (): void => {
      this.#waiting.delete(socket);
      socket.off('readable', look).off('end', gone).off('close', gone);
    };
    const waiting: Waiting = { since: performance.now(), bytes: undefined, settle };
    this.#waiting.set(socket, waiting);
    socket.on('error', ignore).on('readable', look).on('end', gone).on('close', gone);
  }

  /** Nothing more is awaited: every connection that has said nothing so far is closed. */
  close(): void {
    clearInterval(this.#sweep);
    for (const socket of this.#waiting.keys()) socket.destroy();
  }

  #endLate(): void {
    const now = performance.now();
    for (const [socket, { since, bytes, settle }] of this.#waiting) {
      if (now - since <= this.#options.withinMs) continue;
      settle();
      if (bytes === undefined) socket.destroy();
      else this.#options.late(socket);
    }
  }
}

function ignore(): void {}
