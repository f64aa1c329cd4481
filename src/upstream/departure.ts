// Hears of a sandbox that leaves while its exchange waits for a connection, or for the rest of its own body.
// It must never outlive that wait: whoever listens to the reply next takes its place.
import { Fault } from '../exchange/codes.ts';
import type { Refusal } from '../exchange/codes.ts';
import type { ReplyListener, ReplyPort } from '../exchange/reply-port.ts';

/** Hears of a sandbox that leaves while a connection is being opened for it, so that nobody goes on dialling for no one. */
export class Departure implements ReplyListener {
  readonly #controller = new AbortController();
  /** Why its request was broken, where that is why it is cut off */
  trouble: Refusal | undefined = undefined;

  constructor(reply: ReplyPort) {
    reply.listen(this);
    if (reply.closed) this.#controller.abort();
  }

  /** Aborts when the sandbox leaves. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  drained(): void {}

  gone(trouble?: Refusal): void {
    this.trouble = trouble;
    this.#controller.abort();
  }

  /** What `awaited` comes to; rejects with `client_closed` where the sandbox leaves before. */
  orGone<T>(awaited: Promise<T>): Promise<T> {
    const { signal } = this;
    return new Promise((resolve, reject) => {
      const left = (): void => reject(new Fault('client_closed', 'the sandbox left before its request could be sent'));
      signal.addEventListener('abort', left);
      if (signal.aborted) left();
      awaited.then(resolve, reject).finally(() => signal.removeEventListener('abort', left));
    });
  }
}
