// A request over plain HTTP as another proxy takes it (RFC 9112 section 3.2.2), and its answer as far as it is that proxy's own.
// It must never put the proxy's credentials on anything but a connection to it, or hand its challenge to the sandbox.
import type { Duplex } from 'node:stream';
import { Fault } from '../exchange/codes.ts';
import type { Secret } from '../foundation/secret.ts';
import type { Answer, RawFields } from './answer.ts';
import type { Outgoing } from './carrier.ts';

/** The request in absolute-form, with the proxy's credentials last. `origin` is that of the target, as in `http://host:port`. */
export function forwarded(request: Outgoing, origin: string, authorization: Secret | undefined): Outgoing {
  const path = origin + request.path;
  if (authorization === undefined) return { ...request, path };
  return { ...request, path, headers: [...request.headers, 'Proxy-Authorization', authorization.reveal()] };
}

/** Hears an answer before it is heard: a 407 is no word of the upstream's. Anything else cannot be told from one. */
export class ForwardedAnswer {
  readonly #answer: Answer;
  readonly #wanted: string;

  constructor(answer: Answer, { authorization }: { readonly authorization: Secret | undefined }) {
    this.#answer = answer;
    this.#wanted = authorization === undefined ? 'credentials, and none are configured' : 'other credentials';
  }

  onConnect(abort: (reason: Error) => void): void {
    this.#answer.onConnect(abort);
  }

  onHeaders(status: number, raw: RawFields, resume: () => void, reason: string): boolean {
    if (status === 407) throw new Fault('upstream_connect', `the corporate proxy wants ${this.#wanted} (407)`);
    return this.#answer.onHeaders(status, raw, resume, reason);
  }

  onData(chunk: Buffer): boolean {
    return this.#answer.onData(chunk);
  }

  onComplete(trailers: RawFields): void {
    this.#answer.onComplete(trailers);
  }

  onUpgrade(status: number, raw: RawFields, stream: Duplex): void {
    this.#answer.onUpgrade(status, raw, stream);
  }

  onError(error: Error): void {
    this.#answer.onError(error);
  }
}
