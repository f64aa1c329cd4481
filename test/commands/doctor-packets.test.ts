// Twin of packets.ts and finding.ts: what is sent and read over UDP, byte by byte, and how tries become a finding.
import { describe, expect, it } from 'vitest';
import { together } from '../../src/commands/doctor/finding.ts';
import type { Try } from '../../src/commands/doctor/finding.ts';
import { dnsQuestion, quicQuestion, readDnsAnswer } from '../../src/commands/doctor/packets.ts';
import { dnsAnswer } from './doctor-rig.ts';

describe('a question of DNS', () => {
  it('asks for A, with recursion', () => {
    const after = dnsQuestion('dns.google').subarray(2).toString('hex');
    expect(after).toBe('01000001000000000000' + '03646e7306676f6f676c6500' + '00010001');
  });
});

describe('an answer of DNS', () => {
  const question = dnsQuestion('a.test');
  const answer = dnsAnswer(question, { addresses: ['8.8.8.8', '10.0.0.1'] });
  const another = Buffer.from(question);
  another.writeUInt16BE(question.readUInt16BE(0) ^ 1, 0);
  const aaaa = Buffer.concat([
    dnsAnswer(question, {}).subarray(0, 6),
    Buffer.from([0, 1, 0, 0, 0, 0]),
    question.subarray(12),
    Buffer.from([0xc0, 0x0c, 0, 28, 0, 1, 0, 0, 0, 1, 0, 16]),
    Buffer.from('20010db8000000000000000000000001', 'hex'),
  ]);

  it.each([
    { name: 'with addresses', packet: answer, read: { rcode: 0, addresses: ['8.8.8.8', '10.0.0.1'], hasAuthority: false } },
    {
      name: 'with an address of IPv6',
      packet: aaaa,
      read: { rcode: 0, addresses: ['2001:db8:0:0:0:0:0:1'], hasAuthority: false },
    },
    {
      name: 'of no such name',
      packet: dnsAnswer(question, { rcode: 3 }),
      read: { rcode: 3, addresses: [], hasAuthority: false },
    },
    {
      name: 'that names an authority',
      packet: dnsAnswer(question, { rcode: 3, authority: true }),
      read: { rcode: 3, addresses: [], hasAuthority: true },
    },
    {
      name: 'cut short within a record',
      packet: answer.subarray(0, -1),
      read: { rcode: 0, addresses: ['8.8.8.8'], hasAuthority: false },
    },
    { name: 'cut short within the name', packet: answer.subarray(0, 14), read: { rcode: 0, addresses: [], hasAuthority: false } },
    { name: 'shorter than a header', packet: answer.subarray(0, 11), read: undefined },
    { name: 'to another question', packet: dnsAnswer(another, {}), read: undefined },
    { name: 'that is the question itself', packet: question, read: undefined },
  ])('$name', ({ packet, read }) => {
    expect(readDnsAnswer(packet, question)).toEqual(read);
  });
});

describe('a packet of QUIC', () => {
  it('is as long as a first packet must be, with a version that is reserved for asking which there are', () => {
    const packet = quicQuestion();
    expect(packet).toHaveLength(1200);
    expect((packet[0] as number) & 0xc0).toBe(0xc0);
    expect(packet.readUInt32BE(1) & 0x0f0f0f0f).toBe(0x0a0a0a0a);
    expect([packet[5], packet[14]]).toEqual([8, 8]);
  });
});

describe('tries of one probe', () => {
  const one = (result: Try['result'], place: string, why = result): Try => ({ result, place, why });
  it.each([
    {
      name: 'are open where one is',
      tries: [one('closed', 'a'), one('open', 'b'), one('unknown', 'c')],
      result: 'open',
      why: 'b: open',
    },
    {
      name: 'are unknown where one is and none is open',
      tries: [one('closed', 'a'), one('unknown', 'c')],
      result: 'unknown',
      why: 'c: unknown',
    },
    { name: 'are closed where all are', tries: [one('closed', 'a'), one('closed', 'b')], result: 'closed', why: 'a, b: closed' },
    { name: 'are closed where there was nothing to try', tries: [], result: 'closed', why: 'there was nothing to try' },
  ])('$name', ({ tries, result, why }) => {
    expect(together(tries)).toMatchObject({ result, why });
  });
});
