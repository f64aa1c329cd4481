// DNS messages as the DNS door reads and writes them: one question in, one short answer out, by a library that knows the packet format.
// Reading is total: whatever bytes come, it gives a question, an error that can be told, or nothing, and it never throws.
// A name that could be read in two ways (a pointer, a dot inside a label, bytes that are no text) must never be judged or answered.
import { decode, encode, RECURSION_AVAILABLE, TRUNCATED_RESPONSE } from 'dns-packet';
import type { Answer, DecodedPacket, OptAnswer, PacketOpt } from 'dns-packet';

/** Response codes (RFC 1035 section 4.1.1, RFC 6891 section 9). */
export const RCODE = { noError: 0, formErr: 1, servFail: 2, nxDomain: 3, notImp: 4, refused: 5, badVers: 16 } as const;

/** One of the response codes. */
export type Rcode = (typeof RCODE)[keyof typeof RCODE];

/** Types of records that the door treats as something else than "none of them here". */
export const TYPE = { a: 1, aaaa: 28, any: 255 } as const;

/** Longest question that is read, in bytes: a name, a type and a class, and EDNS with some options. */
export const LONGEST_QUESTION = 1232;

/** A query that gets an answer, if only an error. */
export interface Asked {
  /** The message itself, whose question goes back as it came */
  readonly bytes: Buffer;
  /** Where its question ends; where none could be read, the end of its header */
  readonly questionEnd: number;
  /** In the spelling of whoever asks; empty where it could not be read */
  readonly name: string;
  readonly type: number;
  readonly edns: Edns | undefined;
  /** What is answered whatever the name, and why */
  readonly trouble: Trouble | undefined;
}

/** What the client says of itself by EDNS (RFC 6891). */
export interface Edns {
  /** Longest answer that it takes by UDP, in bytes */
  readonly size: number;
  /** Whether it knows of DNSSEC; the bit goes back as it came (RFC 3225) */
  readonly dnssec: boolean;
}

/** Why a message is answered with an error, and which. */
export interface Trouble {
  readonly rcode: Rcode;
  readonly detail: string;
}

/** What goes back. */
export interface Reply {
  readonly rcode: Rcode;
  /** The address that an answer bears; left out where there is none */
  readonly record?: { readonly type: 'A' | 'AAAA'; readonly address: string; readonly ttl: number };
  /** Told to a client that speaks EDNS (RFC 8914) */
  readonly extended?: { readonly info: number; readonly text: string };
}

const HEADER = 12;
const IS_RESPONSE = 0x8000;
const OPCODE = 0x7800;
/** RD and CD, which an answer repeats (RFC 1035 section 4.1.1, RFC 4035 section 3.2.2) */
const REPEATED = 0x0110;
const DNSSEC_OK = 0x8000;
const IN = 1;
const TYPE_OPT = 41;
/** Smallest and largest size of an answer by UDP that a client can ask for, in bytes; the latter is also what the door offers */
const UDP = { least: 512, most: 1232 } as const;
const EXTENDED_ERROR = 15;

/**
 * Reads a message. `undefined`: no query, which gets no answer, or two servers could be made to talk to each other for ever.
 * Never throws.
 */
export function readQuery(bytes: Buffer): Asked | undefined {
  if (bytes.length < HEADER) return undefined;
  const flags = bytes.readUInt16BE(2);
  if ((flags & IS_RESPONSE) !== 0) return undefined;
  if ((flags & OPCODE) !== 0) return unread(bytes, RCODE.notImp, 'the only operation here is a query');
  // Before the library, which would make room for as many records as a header dares to name.
  const [questions, answers, authorities, additionals] = [4, 6, 8, 10].map((at) => bytes.readUInt16BE(at)) as [
    number,
    number,
    number,
    number,
  ];
  if (questions !== 1) return unread(bytes, RCODE.formErr, 'a query has one question');
  if (answers > 0 || authorities > 0 || additionals > 2) return unread(bytes, RCODE.formErr, 'a query has no records but EDNS');
  try {
    return readParts(bytes, decode(bytes));
  } catch {
    // Bytes that the library cannot read: which they are helps nobody.
    return unread(bytes, RCODE.formErr, 'the message is malformed');
  }
}

function unread(bytes: Buffer, rcode: Rcode, detail: string): Asked {
  return { bytes, questionEnd: HEADER, name: '', type: 0, edns: undefined, trouble: { rcode, detail } };
}

function readParts(bytes: Buffer, message: DecodedPacket): Asked {
  const [question] = message.questions ?? [];
  if (question === undefined || decode.bytes !== bytes.length) return unread(bytes, RCODE.formErr, 'the message is malformed');
  // The name written anew is the name as it came, or it was none that can be read in one way only. Class and type are read from the bytes.
  const anew = encode({ questions: [question] });
  const nameEnd = anew.length - 4;
  if (anew.compare(bytes, HEADER, nameEnd, HEADER, nameEnd) !== 0) return unread(bytes, RCODE.formErr, 'the name is malformed');
  const options = (message.additionals ?? []).filter((record) => record.type === 'OPT');
  const [opt] = options;
  if (options.length > 1 || (opt !== undefined && opt.name !== '.')) return unread(bytes, RCODE.formErr, 'EDNS is malformed');
  const type = bytes.readUInt16BE(nameEnd);
  return {
    bytes,
    questionEnd: nameEnd + 4,
    name: question.name,
    type,
    edns: opt === undefined ? undefined : { size: opt.udpPayloadSize, dnssec: opt.flag_do },
    trouble: troubleOf(type, bytes.readUInt16BE(nameEnd + 2), opt),
  };
}

function troubleOf(type: number, recordClass: number, opt: OptAnswer | undefined): Trouble | undefined {
  if (opt !== undefined && opt.ednsVersion > 0) return { rcode: RCODE.badVers, detail: 'the only version of EDNS here is 0' };
  if (recordClass !== IN) return { rcode: RCODE.refused, detail: 'the only class here is IN' };
  // Transfers of zones and other types that no record has (RFC 6895 section 3.1).
  if (type === 0 || type === TYPE_OPT || (type >= 128 && type < TYPE.any)) {
    return { rcode: RCODE.refused, detail: 'no record has this type, and zones are not handed out' };
  }
  return undefined;
}

/** Longest answer to it by UDP, in bytes (RFC 6891 section 6.2.3). */
export function longestByUdp({ edns }: Asked): number {
  return edns === undefined ? UDP.least : Math.min(Math.max(edns.size, UDP.least), UDP.most);
}

/** The answer as a message, at most `longest` bytes: over that it has no record, and says that there is more to be had by TCP. */
export function writeReply(asked: Asked, reply: Reply, longest: number): Buffer {
  const whole = write(asked, reply, 0);
  if (whole.length <= longest) return whole;
  return write(asked, { rcode: reply.rcode }, TRUNCATED_RESPONSE);
}

function write(asked: Asked, { rcode, record, extended }: Reply, more: number): Buffer {
  const { bytes, questionEnd, name, edns } = asked;
  const hasQuestion = questionEnd > HEADER;
  const answers: Answer[] = record === undefined ? [] : [{ type: record.type, name, ttl: record.ttl, data: record.address }];
  const flags = bytes.readUInt16BE(2);
  const written = encode({
    type: 'response',
    id: bytes.readUInt16BE(0),
    flags: (flags & (OPCODE | REPEATED)) | RECURSION_AVAILABLE | more | (rcode & 0xf),
    questions: hasQuestion ? [{ name, type: 'A', class: 'IN' }] : [],
    answers,
    additionals: edns === undefined ? [] : [optOf(edns, rcode, extended)],
  });
  // As it came, with its type and class.
  bytes.copy(written, HEADER, HEADER, questionEnd);
  return written;
}

function optOf(edns: Edns, rcode: Rcode, extended: Reply['extended']): OptAnswer {
  return {
    type: 'OPT',
    name: '.',
    udpPayloadSize: UDP.most,
    extendedRcode: rcode >> 4,
    ednsVersion: 0,
    flags: edns.dnssec ? DNSSEC_OK : 0,
    flag_do: edns.dnssec,
    options: extended === undefined ? [] : [extendedError(extended.info, extended.text)],
  };
}

/** RFC 8914 section 2. The library takes any option as bytes, its types only those that it knows itself. */
function extendedError(code: number, text: string): PacketOpt {
  const data = Buffer.alloc(2 + text.length);
  data.writeUInt16BE(code);
  data.write(text, 2, 'latin1');
  return { code: EXTENDED_ERROR, data } as unknown as PacketOpt;
}
