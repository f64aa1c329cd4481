// Text that is kept longer than what it was cut from. V8 cuts without copying: a name of twenty letters can hold a request target of
// 16 KiB in memory for as long as the name lives. It must never change the text.

/** The same text, sharing memory with no other. `text` holds latin1 alone, as everything from the wire does. */
export function ownCopy(text: string): string {
  return Buffer.from(text, 'latin1').toString('latin1');
}
