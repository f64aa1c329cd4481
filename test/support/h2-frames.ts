// HTTP/2 in raw frames, so that a client can say what no library would: frames are made and read here one by one (RFC 9113 section 4),
// and field sections are written as literals that enter no table (RFC 7541 section 6.2.2). Of an answer only the status is decoded.
import type { Duplex } from 'node:stream';

/** Frame types (RFC 9113 section 6). */
export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  reset: 3,
  settings: 4,
  push: 5,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

/** Flags, by the meaning that they have in the frames that bear them. */
export const FLAG = { endStream: 0x1, ack: 0x1, endHeaders: 0x4, padded: 0x8, priority: 0x20 } as const;

/** Error codes (RFC 9113 section 7). */
export const CODE = {
  none: 0,
  protocol: 1,
  internal: 2,
  flowControl: 3,
  settingsTimeout: 4,
  streamClosed: 5,
  frameSize: 6,
  refused: 7,
  cancel: 8,
  compression: 9,
  connect: 10,
  calm: 11,
} as const;

export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

/** One frame as it came in. */
export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

/** The bytes of a frame; `length` where it lies about the payload. */
export function frame(
  type: number,
  stream: number,
  {
    flags = 0,
    payload = Buffer.alloc(0),
    length = payload.length,
  }: { readonly flags?: number; readonly payload?: Buffer; readonly length?: number } = {},
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** A number of four bytes: a window increment, an error code. */
export function uint32(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  values.forEach((value, index) => bytes.writeUInt32BE(value, 4 * index));
  return bytes;
}

/** Identifier and value. */
export type Setting = readonly [id: number, value: number];

/** The payload of a SETTINGS frame. */
export function settings(...pairs: readonly Setting[]): Buffer {
  const bytes = Buffer.alloc(6 * pairs.length);
  pairs.forEach(([id, value], index) => {
    bytes.writeUInt16BE(id, 6 * index);
    bytes.writeUInt32BE(value, 6 * index + 2);
  });
  return bytes;
}

/** A field section of literals. */
export function section(fields: readonly (readonly [name: string, value: string])[]): Buffer {
  return Buffer.concat(fields.flatMap(([name, value]) => [Buffer.from([0]), text(name), text(value)]));
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value, 'latin1');
  return Buffer.concat([integer(bytes.length), bytes]);
}

/** An integer with a prefix of 7 bits (RFC 7541 section 5.1). */
function integer(value: number): Buffer {
  if (value < 127) return Buffer.from([value]);
  const bytes = [127];
  for (let rest = value - 127; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.from([...bytes, rest]);
    bytes.push(128 + (rest % 128));
  }
}

/** The frames at the beginning of the bytes, and what is left of them. */
function readFrames(bytes: Buffer): { readonly frames: Frame[]; readonly rest: Buffer } {
  const frames: Frame[] = [];
  let at = 0;
  while (bytes.length >= at + 9) {
    const end = at + 9 + bytes.readUIntBE(at, 3);
    if (bytes.length < end) break;
    frames.push({
      type: bytes.readUInt8(at + 3),
      flags: bytes.readUInt8(at + 4),
      stream: bytes.readUInt32BE(at + 5) & 0x7fffffff,
      payload: bytes.subarray(at + 9, end),
    });
    at = end;
  }
  return { frames, rest: bytes.subarray(at) };
}

/** A client that speaks in frames. */
export interface FrameClient {
  readonly stream: Duplex;
  /** Every frame so far */
  readonly frames: Frame[];
  send(...bytes: readonly Buffer[]): void;
  /** Resolves with the first frame (from now or before) that fits; rejects where the connection ends without one. */
  frame(fits: (frame: Frame) => boolean): Promise<Frame>;
  /** Resolves when the other side has ended the connection. */
  readonly ended: Promise<void>;
}

/** Speaks in frames on an open stream. */
export function speakFrames(stream: Duplex): FrameClient {
  const frames: Frame[] = [];
  const waiting = new Set<() => void>();
  let rest: Buffer = Buffer.alloc(0);
  let over = false;
  const look = (): void => {
    for (const one of waiting) one();
  };
  const ended = new Promise<void>((resolve) => {
    const end = (): void => {
      over = true;
      look();
      resolve();
    };
    stream.on('end', end).on('close', end);
  });
  stream.on('error', () => undefined);
  stream.on('data', (chunk: Buffer) => {
    const read = readFrames(Buffer.concat([rest, chunk]));
    rest = read.rest;
    frames.push(...read.frames);
    look();
  });
  return {
    stream,
    frames,
    ended,
    send: (...bytes) => {
      if (!stream.destroyed) stream.write(Buffer.concat(bytes));
    },
    frame: (fits) =>
      new Promise((resolve, reject) => {
        const one = (): void => {
          const found = frames.find(fits);
          if (found !== undefined) resolve(found);
          else if (over) reject(new Error(`the connection ended after ${JSON.stringify(frames.map(describeFrame))}`));
          else return;
          waiting.delete(one);
        };
        waiting.add(one);
        one();
      }),
  };
}

/** A frame in one line, for tables and failures. */
export function describeFrame({ type, stream, payload, flags }: Frame): string {
  switch (type) {
    case FRAME.goaway:
      return `GOAWAY ${nameOfCode(payload.readUInt32BE(4))}`;
    case FRAME.reset:
      return `RST_STREAM ${nameOfCode(payload.readUInt32BE(0))}`;
    case FRAME.headers:
      return `HEADERS ${statusOf(payload)}`;
    default:
      return `${Object.keys(FRAME)[type] ?? type} ${stream} ${flags} ${payload.length}`;
  }
}

function nameOfCode(code: number): string {
  return Object.entries(CODE).find(([, value]) => value === code)?.[0] ?? String(code);
}

/** Statuses that stand in the static table, by their index (RFC 7541 appendix A). */
const INDEXED: Readonly<Record<number, number>> = { 8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500 };

/** The status that a field section begins with; NaN for trailers. */
function statusOf(payload: Buffer): number {
  let at = 0;
  // Changes of the table's size come first (RFC 7541 section 4.2); none of ours takes more than two bytes.
  while ((payload[at]! & 0xe0) === 0x20) at += (payload[at]! & 0x1f) === 0x1f ? 2 : 1;
  const first = payload[at]!;
  if (first >= 0x80) return INDEXED[first & 0x7f] ?? Number.NaN;
  const index = first >= 0x40 ? first & 0x3f : first & 0x0f;
  if (index < 8 || index > 14) return Number.NaN;
  const length = payload[at + 1]! & 0x7f;
  const value = payload.subarray(at + 2, at + 2 + length);
  return Number((payload[at + 1]! & 0x80) === 0 ? value.toString('latin1') : digits(value));
}

/** Three digits in the Huffman code of RFC 7541 appendix B: 0, 1 and 2 have five bits, the others six. */
function digits(bytes: Buffer): string {
  const bits = [...bytes].map((byte) => byte.toString(2).padStart(8, '0')).join('');
  let found = '';
  for (let at = 0; found.length < 3;) {
    const five = parseInt(bits.slice(at, at + 5), 2);
    if (five <= 2) {
      found += String(five);
      at += 5;
    } else {
      found += String(parseInt(bits.slice(at, at + 6), 2) - 0x16);
      at += 6;
    }
  }
  return found;
}
