// ClientHellos as bytes: the one that Node's own client sends, and odd ones that no client sends.
import tls from 'node:tls';
import { startRaw } from './outside.ts';

/** The first bytes of a handshake with a host: a whole ClientHello of Node's own client. */
export async function clientHello(host: string): Promise<Buffer> {
  let keep: (hello: Buffer) => void = () => undefined;
  const heard = new Promise<Buffer>((resolve) => (keep = resolve));
  const catcher = await startRaw((socket) => socket.once('data', keep));
  const client = tls.connect({ port: catcher.port, host: '127.0.0.1', servername: host });
  client.on('error', () => undefined);
  const hello = await heard;
  client.destroy();
  await catcher.close();
  return hello;
}

/** An entry of a server_name list. */
export interface NameEntry {
  /** 0, host_name, is the only one there is (RFC 6066 section 3) */
  readonly type: number;
  readonly name: string | Buffer;
}

/** Bytes with their length before them, `width` octets wide. */
export function sized(bytes: Buffer, width: number): Buffer {
  const length = Buffer.alloc(width);
  length.writeUIntBE(bytes.length, 0, width);
  return Buffer.concat([length, bytes]);
}

/** The server_name extension; a text is taken for a host_name. Text is latin1, so that `\xf0` is one octet. */
export function serverNames(...entries: readonly (string | Buffer | NameEntry)[]): Buffer {
  const list = entries.map((entry) => {
    const { type, name } = typeof entry === 'string' || Buffer.isBuffer(entry) ? { type: 0, name: entry } : entry;
    return Buffer.concat([Buffer.from([type]), sized(typeof name === 'string' ? Buffer.from(name, 'latin1') : name, 2)]);
  });
  return extension(0, sized(Buffer.concat(list), 2));
}

/** An extension of any kind. */
export function extension(id: number, body: Buffer): Buffer {
  return Buffer.concat([Buffer.from([id >> 8, id & 0xff]), sized(body, 2)]);
}

/** A ClientHello message without its record; enough of one to be read, not to be answered. `undefined`: no extensions at all. */
export function helloMessage(extensions: readonly Buffer[] | undefined): Buffer {
  const body = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32, 7),
    sized(Buffer.alloc(0), 1),
    sized(Buffer.from([0x13, 0x01, 0xc0, 0x2b]), 2),
    Buffer.from([1, 0]),
    extensions === undefined ? Buffer.alloc(0) : sized(Buffer.concat(extensions), 2),
  ]);
  return Buffer.concat([Buffer.from([1]), sized(body, 3)]);
}

/** A message in TLS handshake records of at most `most` octets each. */
export function inRecords(message: Buffer, most = 0xffff): Buffer {
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += most)
    records.push(Buffer.concat([Buffer.from([0x16, 3, 1]), sized(message.subarray(at, at + most), 2)]));
  return Buffer.concat(records);
}
