// Output of somebody else, kept up to a cap: what comes after it is counted as cut and thrown away, so that nobody can fill the memory (fault M05).
// It knows bytes and UTF-8. It must never cut in silence, nor leave a broken character at the cut (fault M06).
import { StringDecoder } from 'node:string_decoder';

/** The cap of an output, of a complaint and of an answer where nothing else is said, in bytes. Exactly this many are kept. */
export const OUTPUT_CAP = 1024 * 1024;

/** Text that grows by pieces, up to `cap` bytes. */
export class CappedText {
  #kept: Buffer[] = [];
  #room: number;
  #truncated = false;

  constructor(cap = OUTPUT_CAP) {
    this.#room = cap;
  }

  /** Whether anything was thrown away */
  get truncated(): boolean {
    return this.#truncated;
  }

  /** Takes a piece, or the part of it for which there is room. */
  add(piece: Buffer): void {
    if (piece.length > this.#room) this.#truncated = true;
    if (this.#room === 0) return;
    const fitting = piece.subarray(0, this.#room);
    this.#room -= fitting.length;
    this.#kept.push(fitting);
  }

  /** What was kept. A character that the cap would cut through is left out; bytes that are not UTF-8 become U+FFFD. */
  text(): string {
    const decoder = new StringDecoder('utf8');
    const text = decoder.write(Buffer.concat(this.#kept));
    return this.#truncated ? text : text + decoder.end();
  }
}
