// The sandbox's request body as the upstream connection reads it: counted, with backpressure, and asked for only when it is wanted.
// It stands between the two so that an upstream that answers early ends the upload without cutting the sandbox's connection (fault D10).
import { Readable } from 'node:stream';
import { Fault } from '../exchange/codes.ts';
import type { BodyFilter } from '../exchange/redaction.ts';
import type { ReplyPort } from '../exchange/reply-port.ts';
import type { Trace } from '../exchange/trace.ts';

/** Reads from the sandbox as fast as the upstream takes it. Destroying it leaves the source alone. */
export class RequestBody extends Readable {
  readonly #source: Readable;
  readonly #reply: ReplyPort;
  readonly #trace: Trace;
  readonly #idleMs: number;
  readonly #through: BodyFilter | undefined;
  #started = false;
  #silence: NodeJS.Timeout | undefined = undefined;

  constructor(
    source: Readable,
    options: {
      readonly reply: ReplyPort;
      readonly trace: Trace;
      /** Silence of the sandbox after which the body fails with `request_timeout` (fault J05) */
      readonly idleMs: number;
      /** What it goes through on its way */
      readonly through: BodyFilter | undefined;
    },
  ) {
    super({ highWaterMark: 64 * 1024 });
    this.#source = source;
    this.#reply = options.reply;
    this.#trace = options.trace;
    this.#idleMs = options.idleMs;
    this.#through = options.through;
  }

  /** Whether any byte has been asked for; a request whose body is untouched can be sent again. */
  get started(): boolean {
    return this.#started;
  }

  override _read(): void {
    if (this.#started) {
      this.#silence?.refresh();
      this.#source.resume();
      return;
    }
    this.#started = true;
    this.#silence = setTimeout(this.#onSilence, this.#idleMs);
    this.#source.on('data', this.#onData).on('end', this.#onEnd).on('close', this.#onClose).on('error', this.#onClose);
    this.#reply.invite();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    clearTimeout(this.#silence);
    if (this.#started) {
      this.#source.pause();
      this.#source.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose);
    }
    done(error);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#silence?.refresh();
    const out = this.#through === undefined ? chunk : this.#through.push(chunk);
    // Nothing pushed leaves this stream asking, and the source flowing.
    if (out.length === 0) return;
    this.#trace.bytesSent += out.length;
    if (!this.push(out)) this.#source.pause();
  };

  readonly #onSilence = (): void => {
    // While it is the upstream that does not read, the sandbox is not to blame.
    if (this.#source.isPaused()) this.#silence?.refresh();
    else this.destroy(new Fault('request_timeout', 'the request body fell silent'));
  };

  readonly #onEnd = (): void => {
    clearTimeout(this.#silence);
    const rest = this.#through?.end();
    if (rest !== undefined && rest.length > 0) {
      this.#trace.bytesSent += rest.length;
      this.push(rest);
    }
    this.push(null);
  };

  readonly #onClose = (): void => {
    if (!this.#source.readableEnded && !this.destroyed)
      this.destroy(new Fault('client_closed', 'the sandbox broke off its request'));
  };
}
