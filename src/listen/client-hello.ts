// What a ClientHello asks for, out of the bytes that a tunnel begins with. Pure: no sockets, no clock.
// Strict on purpose: what is passed through goes upstream as it came, so a name that we read otherwise than the upstream does, or
// overlook, leads to another host than the one that was judged. What has more than one reading must never pass for "no name".

/** The server_name extension (RFC 6066 section 3): one host as it stood there, no extension, or one that does not name exactly one host. */
export type ServerName = { readonly host: string } | 'absent' | 'unreadable';

/** Bytes that begin with a whole ClientHello, with a part of one, or with something else. */
export type ClientHello = { readonly serverName: ServerName } | 'partial' | 'malformed';

/** Most of a ClientHello with the heads of its records; the largest in use, with post-quantum keys, take 2 KiB. */
const MAX_BYTES = 16 * 1024;

const HANDSHAKE_RECORD = 0x16;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const HOST_NAME = 0;

/** Reads a ClientHello, in one TLS record or in several (RFC 8446 section 5.1), out of all the bytes so far. Never throws. */
export function readClientHello(bytes: Buffer): ClientHello {
  try {
    const message = joinRecords(bytes);
    return message === undefined ? 'partial' : { serverName: serverNameOf(message) };
  } catch {
    // Octets throws nothing but its RangeError: a length does not fit what it stands in.
    return 'malformed';
  }
}

/** The message without its records; undefined where more of it is to come. The record that ends it must end with it. */
function joinRecords(bytes: Buffer): Octets | undefined {
  const fragments: Buffer[] = [];
  let joined = 0;
  let expected: number | undefined;
  for (let at = 0; ;) {
    if (bytes.length < at + 5) return undefined;
    const length = bytes.readUInt16BE(at + 3);
    // An empty fragment is forbidden, and one after another would never end.
    if (bytes[at] !== HANDSHAKE_RECORD || bytes[at + 1] !== 3 || length === 0) throw new RangeError('not a handshake record');
    at += 5 + length;
    if (at > MAX_BYTES) throw new RangeError('too long');
    if (bytes.length < at) return undefined;
    fragments.push(bytes.subarray(at - length, at));
    joined += length;
    if (expected === undefined && joined >= 4) expected = messageLength(Buffer.concat(fragments));
    if (expected === undefined || joined < expected) continue;
    if (joined > expected) throw new RangeError('something follows the ClientHello');
    return new Octets(Buffer.concat(fragments).subarray(4));
  }
}

/** The length of a handshake message with its head. */
function messageLength(start: Buffer): number {
  if (start[0] !== CLIENT_HELLO) throw new RangeError('not a ClientHello');
  return 4 + start.readUIntBE(1, 3);
}

function serverNameOf(hello: Octets): ServerName {
  hello.skip(2 + 32);
  hello.vector(1);
  hello.vector(2);
  hello.vector(1);
  // TLS 1.2 knows hellos without extensions.
  if (hello.left === 0) return 'absent';
  const extensions = hello.vector(2);
  hello.end();
  let found: ServerName = 'absent';
  while (extensions.left > 0) {
    const id = extensions.number(2);
    const body = extensions.vector(2);
    if (id === SERVER_NAME) found = found === 'absent' ? hostIn(body) : 'unreadable';
  }
  return found;
}

/** The one host_name of the list. An entry of any other type, or a second entry, is read differently by different servers. */
function hostIn(extension: Octets): ServerName {
  try {
    const list = extension.vector(2);
    extension.end();
    const type = list.number(1);
    const name = list.vector(2);
    list.end();
    return type === HOST_NAME && name.left > 0 ? { host: name.text() } : 'unreadable';
  } catch {
    return 'unreadable';
  }
}

/** Bytes read from front to back. Each step throws a RangeError where there are too few of them. */
class Octets {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  skip(count: number): void {
    if (count > this.left) throw new RangeError('too short');
    this.#at += count;
  }

  number(width: number): number {
    this.skip(width);
    return this.#bytes.readUIntBE(this.#at - width, width);
  }

  /** What stands behind a length of `width` octets. */
  vector(width: number): Octets {
    const length = this.number(width);
    this.skip(length);
    return new Octets(this.#bytes.subarray(this.#at - length, this.#at));
  }

  /** All of it, an octet a character, so that no octet is taken for another one. */
  text(): string {
    return this.#bytes.toString('latin1');
  }

  /** Throws where anything is left. */
  end(): void {
    if (this.left > 0) throw new RangeError('too long');
  }
}
