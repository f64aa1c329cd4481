// What keeps an answer from showing to the sandbox what was put on at the door. Made by the reply room of secrets that the credentials
// room names, used by the upstream room while an answer comes in; none of the three sees more of the others than this.
// Nothing here may hold a secret in sight.

/** Looks through texts and bodies for one set of secrets. */
export interface Redaction {
  /** Of a field or trailer value, in latin1 text; the same string where there is nothing to replace. */
  text(value: string): string;
  stream(): BodyFilter;
}

/** One body on its way. */
export interface BodyFilter {
  /** The bytes that may leave now, perhaps none; they may be a part of `chunk` itself. */
  push(chunk: Buffer): Buffer;
  /** The held rest; the body is over. */
  end(): Buffer;
}
