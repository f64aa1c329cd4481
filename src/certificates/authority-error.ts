// The one error of this room: what is wrong with the CA, where, and what the operator can do about it.
// Its message must never hold anything read from a key or a certificate file.

/** The CA cannot be had or used. `message` is one line with the path and the remedy; the process must not start (or serve) without it. */
export class AuthorityError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'AuthorityError';
  }
}

/** The code of a failed system call (`ENOENT`, …); `undefined` where the thrown thing has none. */
export function systemCode(thrown: unknown): string | undefined {
  return thrown instanceof Error && 'code' in thrown && typeof thrown.code === 'string' ? thrown.code : undefined;
}
