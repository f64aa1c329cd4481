// Asks a DNS server for the addresses of a name, past the system's resolver: that one would wait longer than a probe may.
// It must never take the answer to another question.
import { dnsQuestion, readDnsAnswer } from './packets.ts';
import type { DnsAnswer } from './packets.ts';
import { askOverUdp, dial, hear } from './wire.ts';
import type { Place } from './wire.ts';

/** Takes a connection, and says nothing of DNS. */
export const SPEECHLESS = 'takes the connection and does not answer';

/** Asks for the A records of a name; why there is no answer, where there is none. */
export type AskDns = (server: Place, name: string, signal: AbortSignal) => Promise<DnsAnswer | string>;

/** Over UDP. */
export async function askUdp(server: Place, name: string, signal: AbortSignal): Promise<DnsAnswer | string> {
  const question = dnsQuestion(name);
  const fits = (packet: Buffer): boolean => readDnsAnswer(packet, question) !== undefined;
  const asked = await askOverUdp(server, question, { signal, fits });
  if ('failed' in asked) return asked.failed;
  return readDnsAnswer(asked.answer, question) ?? 'no answer in time';
}

/** Over TCP, which bears the length first (RFC 1035, section 4.2.2). */
export async function askTcp(server: Place, name: string, signal: AbortSignal): Promise<DnsAnswer | string> {
  const dialled = await dial(server, signal);
  if ('failed' in dialled) return dialled.failed;
  const question = dnsQuestion(name);
  const length = Buffer.from([question.length >> 8, question.length & 0xff]);
  const enough = (heard: Buffer): boolean => heard.length >= 2 && heard.length >= 2 + heard.readUInt16BE(0);
  const heard = await hear(dialled.socket, Buffer.concat([length, question]), { signal, enough });
  dialled.socket.destroy();
  return readDnsAnswer(heard.subarray(2), question) ?? SPEECHLESS;
}
