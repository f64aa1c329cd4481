// A value that must not be seen: every ordinary way of turning it into text gives a placeholder instead.
// `reveal()` is the only way in, so that a search for it lists every place where a secret can come out.
import { inspect } from 'node:util';

/** A secret text. String conversion, JSON and inspection all show `[secret]`; throwing it about is safe. */
export class Secret {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  /** The text itself. Callers: the injection that puts it on the wire, and nothing that writes to a log or a reply. */
  reveal(): string {
    return this.#text;
  }

  toString(): string {
    return '[secret]';
  }

  toJSON(): string {
    return '[secret]';
  }

  [inspect.custom](): string {
    return '[secret]';
  }
}
