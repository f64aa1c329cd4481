// Words that both ends of a protocol-blind test share: fields as pairs, a body that is listened to while it comes, and how it ended.
// Nothing here knows whether HTTP/1.1 or HTTP/2 is spoken.
import type { Readable, Writable } from 'node:stream';
import { valuesOf } from './outside.ts';

/** Raw header fields, name then value, in the order of the wire. */
export type Fields = readonly string[];

/** A head, interim or final. */
export interface Head {
  readonly status: number;
  readonly fields: Fields;
}

/** What came in on a stream so far. */
export interface Heard {
  /** Everything so far, one character an octet */
  readonly text: () => string;
  /** Resolves with everything so far once the mark has come; rejects when the stream ends before. */
  readonly until: (mark: string) => Promise<string>;
  /** Resolves with everything when the stream has ended or broken off. */
  readonly end: Promise<string>;
}

/** Keeps what a stream says from now on. */
export function listenTo(stream: Readable): Heard {
  let text = '';
  const waiting = new Set<() => void>();
  const end = new Promise<string>((resolve) => {
    stream.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      for (const look of waiting) look();
    });
    stream.on('error', () => undefined);
    stream.once('end', () => resolve(text)).once('close', () => resolve(text));
    // A stream without a body may be over before anybody listens.
    if (stream.readableEnded || (stream.closed && stream.readableLength === 0)) resolve(text);
  });
  return {
    text: () => text,
    end,
    until: (mark) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          if (!text.includes(mark)) return;
          waiting.delete(look);
          resolve(text);
        };
        waiting.add(look);
        void end.then(() => reject(new Error(`the stream ended before ${JSON.stringify(mark)}: ${text.slice(0, 300)}`)));
        look();
      }),
  };
}

/** Writes pieces of a size for as long as the stream takes them, without end; `stop` ends that. */
export function pour(stream: Writable, size = 65_536): { readonly poured: () => number; readonly stop: () => void } {
  const piece = Buffer.alloc(size, 'p');
  let poured = 0;
  let stopped = false;
  const more = (): void => {
    while (!stopped && !stream.destroyed && stream.writable) {
      poured += size;
      if (!stream.write(piece)) return void stream.once('drain', more);
    }
  };
  stream.on('error', () => undefined);
  more();
  return { poured: () => poured, stop: () => void (stopped = true) };
}

/** The values of a field. */
export function valueOf(fields: Fields, name: string): string {
  return valuesOf(fields, name).join(', ');
}

/** Fields by lower-case name, sorted, without those that belong to one connection or to one protocol's framing: what must be the same everywhere. */
export function endToEnd(fields: Fields): string[] {
  const kept: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!.toLowerCase();
    if (!OF_ONE_PROTOCOL.has(name) && !name.startsWith(':')) kept.push(`${name}: ${fields[i + 1]!}`);
  }
  return kept.sort();
}

const OF_ONE_PROTOCOL: ReadonlySet<string> = new Set([
  'connection',
  'host',
  'keep-alive',
  'sec-websocket-accept',
  'sec-websocket-key',
  'te',
  'transfer-encoding',
  'upgrade',
]);
