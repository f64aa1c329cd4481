// The two packets that the doctor sends over UDP: a question of DNS (RFC 1035) and a QUIC packet of a version that nobody speaks (RFC 9000).
// Pure. It must never trust an answer: whatever is cut short or malformed counts as an answer with nothing in it.
import { randomBytes } from 'node:crypto';

/** What a DNS server answered. */
export interface DnsAnswer {
  /** 0 is success, 3 no such name, 5 refused */
  readonly rcode: number;
  /** Of A and AAAA records */
  readonly addresses: readonly string[];
  /** Whether it names an authority, which only somebody who has asked outside can */
  readonly hasAuthority: boolean;
}

const TYPE_A = 1;
const TYPE_AAAA = 28;
const QUIC_MINIMUM_BYTES = 1200;

/** A question for the A records of a name, recursion wanted. */
export function dnsQuestion(name: string): Buffer {
  const header = Buffer.from([0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
  randomBytes(2).copy(header);
  const labels = name.split('.').map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label, 'latin1')]));
  return Buffer.concat([header, ...labels, Buffer.from([0, 0, TYPE_A, 0, 1])]);
}

/** Reads the answer to a question; undefined where it is the answer to another, or none. */
export function readDnsAnswer(packet: Buffer, question: Buffer): DnsAnswer | undefined {
  const isAnswer = packet.length >= 12 && packet.readUInt16BE(0) === question.readUInt16BE(0) && (packet[2] ?? 0) >= 0x80;
  if (!isAnswer) return undefined;
  const rcode = (packet[3] ?? 0) & 0x0f;
  const addresses: string[] = [];
  let at: number | undefined = 12;
  for (let left = packet.readUInt16BE(4); left > 0 && at !== undefined; left -= 1) at = afterName(packet, at, 4);
  for (let left = packet.readUInt16BE(6); left > 0 && at !== undefined; left -= 1) {
    const fields = afterName(packet, at, 10);
    if (fields === undefined) break;
    const length = packet.readUInt16BE(fields - 2);
    const end = fields + length;
    if (end > packet.length) break;
    const address = addressOf(packet.readUInt16BE(fields - 10), packet.subarray(fields, end));
    if (address !== undefined) addresses.push(address);
    at = end;
  }
  return { rcode, addresses, hasAuthority: packet.readUInt16BE(8) > 0 };
}

/** Where what follows a name ends, `more` bytes after it; undefined beyond the packet's end. */
function afterName(packet: Buffer, start: number, more: number): number | undefined {
  let at = start;
  for (;;) {
    const length = packet[at];
    if (length === undefined) return undefined;
    if (length >= 0xc0) at += 2;
    else at += 1 + length;
    if (length === 0 || length >= 0xc0) break;
  }
  return at + more <= packet.length ? at + more : undefined;
}

function addressOf(type: number, bytes: Buffer): string | undefined {
  if (type === TYPE_A && bytes.length === 4) return bytes.join('.');
  if (type !== TYPE_AAAA || bytes.length !== 16) return undefined;
  return [0, 2, 4, 6, 8, 10, 12, 14].map((offset) => bytes.readUInt16BE(offset).toString(16)).join(':');
}

/** A long header with a reserved version, as long as a first packet must be: a server names the versions that it speaks (RFC 9000, sections 6.1 and 15). */
export function quicQuestion(): Buffer {
  const packet = Buffer.alloc(QUIC_MINIMUM_BYTES);
  Buffer.from([0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8]).copy(packet);
  randomBytes(8).copy(packet, 6);
  packet[14] = 8;
  randomBytes(8).copy(packet, 15);
  return packet;
}
