// The body of an answer that is looked through on its way: as it is, or opened and closed again where it is compressed.
// What may leave leaves at once, and the upstream is held as long as the sandbox, or the coding, takes no more.
// It must never touch the reply after it was given up.
import type { Readable, Writable } from 'node:stream';
import { Fault } from '../exchange/codes.ts';
import type { BodyFilter } from '../exchange/redaction.ts';
import type { ReplyPort } from '../exchange/reply-port.ts';

/** A compressed body goes into `input` and comes out of `output`; see the reply room. */
export interface Recoder {
  readonly input: Writable;
  readonly output: Readable;
}

/** How a body goes to the sandbox. */
export interface BodyWay {
  /** False: the upstream is to be held until `drained` gives true, or `release` is called */
  write(chunk: Buffer): boolean;
  /** The sandbox reads again; true: the upstream may go on. */
  drained(): boolean;
  /** Everything has come in; `done` is called when everything has been handed over. */
  end(done: () => void): void;
  /** Nothing more is handed over. */
  giveUp(): void;
}

/** The way of a body that is no coding. */
export class FilteredBody implements BodyWay {
  readonly #reply: ReplyPort;
  readonly #filter: BodyFilter;

  constructor(reply: ReplyPort, filter: BodyFilter) {
    this.#reply = reply;
    this.#filter = filter;
  }

  write(chunk: Buffer): boolean {
    const out = this.#filter.push(chunk);
    return out.length === 0 || this.#reply.write(out);
  }

  drained(): boolean {
    return true;
  }

  end(done: () => void): void {
    const rest = this.#filter.end();
    if (rest.length > 0) this.#reply.write(rest);
    done();
  }

  giveUp(): void {}
}

/** The way of a compressed body. */
export class RecodedBody implements BodyWay {
  readonly #recoder: Recoder;
  #done: (() => void) | undefined = undefined;
  #over = false;

  constructor(
    reply: ReplyPort,
    recoder: Recoder,
    /** `release`: the coding takes more; `failed`: the body is not what its coding says */
    hears: { readonly release: () => void; readonly failed: (fault: Fault) => void },
  ) {
    this.#recoder = recoder;
    const { input, output } = recoder;
    input.on('drain', hears.release);
    output.on('data', (chunk: Buffer) => {
      if (!this.#over && !reply.write(chunk)) output.pause();
    });
    output.once('end', () => this.#done?.());
    output.once('error', (error) => {
      if (this.#over) return;
      this.#over = true;
      const text = "the upstream's compressed answer cannot be opened";
      hears.failed(error instanceof Fault ? error : new Fault('upstream_protocol', text, error));
    });
  }

  write(chunk: Buffer): boolean {
    return this.#over || this.#recoder.input.write(chunk);
  }

  /** What comes out may go on; what goes in may where `drain` says so. */
  drained(): boolean {
    this.#recoder.output.resume();
    return false;
  }

  end(done: () => void): void {
    this.#done = done;
    this.#recoder.input.end();
  }

  giveUp(): void {
    this.#over = true;
    this.#recoder.output.destroy();
  }
}
