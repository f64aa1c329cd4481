// A value that must not be seen: every ordinary way of turning it into text gives a placeholder instead.
// `reveal()` is the only way in, so that a search for it lists every place where a secret can come out.
import { inspect } from 'node:util';

/** A secret text. String conversion, JSON and inspection all show `[secret]`; throwing it about is safe. */
export class Secret {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  /**
   * The text itself, for what puts it on the wire, composes or compares secrets, or hands a sandbox its own token. Who may call it stands
   * in test/architecture.test.ts; nothing that writes to a log or a reply does.
   */
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
