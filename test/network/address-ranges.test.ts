import { describe, expect, it } from 'vitest';
import { parseAddress } from '../../src/exchange/authority.ts';
import type { Host } from '../../src/exchange/authority.ts';
import type { AddressRanges } from '../../src/exchange/rule.ts';
import { NO_RANGES, parseRanges } from '../../src/network/address-ranges.ts';

function ranges(...cidrs: string[]): AddressRanges {
  const parsed = parseRanges(cidrs);
  if ('problem' in parsed) throw new Error(parsed.problem);
  return parsed.ranges;
}

const holds = (opened: AddressRanges, text: string): boolean => opened.contains(parseAddress(text) ?? (text as Host));

describe('parseRanges', () => {
  it.each([
    { name: 'a leading zero', input: '010.0.0.0/8', problem: 'without leading zeros', fault: 'A04' },
    { name: 'a leading zero in the last octet', input: '10.0.0.01', problem: 'without leading zeros', fault: 'A04' },
    { name: 'an octet that is no octal', input: '019.0.0.0/8', problem: 'without leading zeros', fault: 'A04' },
    {
      name: 'a leading zero inside a mapped address',
      input: '::ffff:010.0.0.0/104',
      problem: 'without leading zeros',
      fault: 'A04',
    },
    { name: 'a leading zero in the prefix', input: '10.0.0.0/08', problem: 'write it like', fault: 'A04' },
    { name: 'host bits of IPv4', input: '10.1.2.3/8', problem: 'write "10.0.0.0/8"' },
    { name: 'one host bit', input: '10.128.0.0/8', problem: 'write "10.0.0.0/8"' },
    { name: 'host bits of IPv6', input: 'fd00:1:2::3/16', problem: 'write "fd00::/16"' },
    { name: 'host bits across a group', input: 'fd00:1:ffff::/36', problem: 'write "fd00:1:f000::/36"' },
    { name: 'an IPv4-mapped range', input: '::ffff:10.0.0.0/104', problem: 'write "10.0.0.0/8"' },
    { name: 'an IPv4-mapped range with host bits', input: '::ffff:10.1.2.3/104', problem: 'write "10.0.0.0/8"' },
    { name: 'an IPv4-mapped address', input: '::ffff:a00:1', problem: 'write "10.0.0.1/32"' },
    { name: 'all of IPv4, mapped', input: '::ffff:0:0/96', problem: 'write "0.0.0.0/0"' },
    { name: 'a prefix too long for IPv4', input: '10.0.0.0/33', problem: 'write "10.0.0.0/32"' },
    { name: 'a prefix too long for IPv6', input: 'fd00::/129', problem: 'write "fd00::/128"' },
    { name: 'a missing prefix', input: '10.0.0.0/', problem: 'write it like' },
    { name: 'a netmask', input: '10.0.0.0/255.0.0.0', problem: 'write it like' },
    { name: 'a short address', input: '10/8', problem: 'write it like' },
    { name: 'a name', input: 'intranet.example', problem: 'write it like' },
    { name: 'brackets', input: '[fd00::1]', problem: 'write it like' },
    { name: 'a zone id', input: 'fe80::1%eth0', problem: 'write it like' },
    { name: 'a space', input: ' 10.0.0.0/8', problem: 'write it like' },
    { name: 'nothing', input: '', problem: 'write it like' },
  ])('refuses $name and says what to write', ({ input, problem }) => {
    const parsed = parseRanges(['192.168.0.0/16', input, 'nonsense']);
    expect(parsed).toEqual({ problem: expect.stringContaining(problem) as string, index: 1 });
    expect(parsed).toEqual({ problem: expect.stringContaining(`"${input}"`) as string, index: 1 });
  });

  it.each([
    {
      name: 'an IPv4 range',
      cidr: '10.20.0.0/15',
      inside: ['10.20.0.0', '10.21.255.255'],
      outside: ['10.19.255.255', '10.22.0.0'],
    },
    { name: 'a bare IPv4 address', cidr: '10.0.0.7', inside: ['10.0.0.7'], outside: ['10.0.0.6', '10.0.0.8'] },
    { name: 'all of IPv4', cidr: '0.0.0.0/0', inside: ['0.0.0.0', '255.255.255.255'], outside: ['::', '2606:4700::1'] },
    { name: 'an IPv6 range', cidr: 'fd00::/9', inside: ['fd00::', 'fd7f:ffff::1'], outside: ['fcff:ffff::1', 'fd80::'] },
    { name: 'a bare IPv6 address in capitals', cidr: 'FD00::A', inside: ['fd00::a'], outside: ['fd00::9', 'fd00::b'] },
    { name: 'a mapped address as its IPv4', cidr: '10.0.0.0/8', inside: ['::ffff:10.0.0.1'], outside: ['::ffff:11.0.0.1'] },
    {
      name: 'no other wrapper of the IPv4',
      cidr: '10.0.0.0/8',
      inside: [],
      outside: ['2002:a00:1::', '64:ff9b::a00:1', '::a00:1', '2001:0:1::f5ff:fffe'],
    },
    {
      name: 'no IPv4 in an IPv6 range',
      cidr: '::/0',
      inside: ['::1', 'fd00::1', '2002:a00:1::'],
      outside: ['10.0.0.1', '::ffff:10.0.0.1'],
    },
    { name: 'nothing that is no address', cidr: '0.0.0.0/0', inside: [], outside: ['intranet', '127.1', ''] },
  ])('holds $name', ({ cidr, inside, outside }) => {
    const opened = ranges(cidr);
    expect(inside.filter((text) => !holds(opened, text))).toEqual([]);
    expect(outside.filter((text) => holds(opened, text))).toEqual([]);
  });

  it('gives one key to the same ranges in any order and spelling, and another to others', () => {
    expect(ranges('fd00::/8', '10.0.0.1', '10.0.0.1/32').key).toBe(ranges('10.0.0.1', 'FD00:0::/8').key);
    expect(ranges('10.0.0.1').key).not.toBe(ranges('10.0.0.2').key);
    expect(ranges('10.0.0.0/8').key).not.toBe(ranges('10.0.0.0/9').key);
    expect(ranges('10.0.0.0/8', 'fd00::/8').key).not.toContain(' ');
  });

  it('holds nothing where nothing is written', () => {
    expect(ranges()).toBe(NO_RANGES);
    expect(holds(NO_RANGES, '10.0.0.1')).toBe(false);
  });
});
