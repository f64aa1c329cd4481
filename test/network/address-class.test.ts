import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseAddress } from '../../src/exchange/authority.ts';
import type { Host } from '../../src/exchange/authority.ts';
import { blockCovers, firstOf, readGroups, writeGroups } from '../../src/network/address-bits.ts';
import { ADDRESS_TABLE, classify, facesOf } from '../../src/network/address-class.ts';
import type { AddressClass } from '../../src/network/address-class.ts';

function address(text: string): Host {
  const host = parseAddress(text);
  if (host === undefined) throw new Error(`the test holds the unreadable address "${text}"`);
  return host;
}

interface BlockRow {
  readonly range: string;
  readonly class: AddressClass;
  readonly first: string;
  readonly last: string;
  /** The addresses next to the block, with their own class; none where the block ends the address space */
  readonly before?: readonly [string, AddressClass];
  readonly after?: readonly [string, AddressClass];
  readonly fault: string;
}

const BLOCKS: readonly BlockRow[] = [
  { range: '0.0.0.0/32', class: 'unspecified', first: '0.0.0.0', last: '0.0.0.0', after: ['0.0.0.1', 'reserved'], fault: 'A09' },
  { range: '0.0.0.0/8', class: 'reserved', first: '0.0.0.1', last: '0.255.255.255', after: ['1.0.0.0', 'public'], fault: 'A09' },
  { range: '10.0.0.0/8', class: 'private', first: '10.0.0.0', last: '10.255.255.255', before: ['9.255.255.255', 'public'], after: ['11.0.0.0', 'public'], fault: 'A06' },
  { range: '100.64.0.0/10', class: 'cgnat', first: '100.64.0.0', last: '100.127.255.255', before: ['100.63.255.255', 'public'], after: ['100.128.0.0', 'public'], fault: 'A10' },
  { range: '100.100.100.200/32', class: 'metadata', first: '100.100.100.200', last: '100.100.100.200', before: ['100.100.100.199', 'cgnat'], after: ['100.100.100.201', 'cgnat'], fault: 'A06' },
  { range: '127.0.0.0/8', class: 'loopback', first: '127.0.0.0', last: '127.255.255.255', before: ['126.255.255.255', 'public'], after: ['128.0.0.0', 'public'], fault: 'A06' },
  { range: '168.63.129.16/32', class: 'metadata', first: '168.63.129.16', last: '168.63.129.16', before: ['168.63.129.15', 'public'], after: ['168.63.129.17', 'public'], fault: 'A06' },
  { range: '169.254.0.0/16', class: 'link_local', first: '169.254.0.0', last: '169.254.255.255', before: ['169.253.255.255', 'public'], after: ['169.255.0.0', 'public'], fault: 'A06' },
  { range: '169.254.0.23/32', class: 'metadata', first: '169.254.0.23', last: '169.254.0.23', before: ['169.254.0.22', 'link_local'], after: ['169.254.0.24', 'link_local'], fault: 'A06' },
  { range: '169.254.42.42/32', class: 'metadata', first: '169.254.42.42', last: '169.254.42.42', before: ['169.254.42.41', 'link_local'], after: ['169.254.42.43', 'link_local'], fault: 'A06' },
  { range: '169.254.169.253-254', class: 'metadata', first: '169.254.169.253', last: '169.254.169.254', before: ['169.254.169.252', 'link_local'], after: ['169.254.169.255', 'link_local'], fault: 'A06' },
  { range: '169.254.170.2/32', class: 'metadata', first: '169.254.170.2', last: '169.254.170.2', before: ['169.254.170.1', 'link_local'], after: ['169.254.170.3', 'link_local'], fault: 'A06' },
  { range: '169.254.170.23/32', class: 'metadata', first: '169.254.170.23', last: '169.254.170.23', before: ['169.254.170.22', 'link_local'], after: ['169.254.170.24', 'link_local'], fault: 'A06' },
  { range: '172.16.0.0/12', class: 'private', first: '172.16.0.0', last: '172.31.255.255', before: ['172.15.255.255', 'public'], after: ['172.32.0.0', 'public'], fault: 'A06' },
  { range: '192.0.0.0/24', class: 'reserved', first: '192.0.0.0', last: '192.0.0.255', before: ['191.255.255.255', 'public'], after: ['192.0.1.0', 'public'], fault: 'A06' },
  { range: '192.0.0.192/32', class: 'metadata', first: '192.0.0.192', last: '192.0.0.192', before: ['192.0.0.191', 'reserved'], after: ['192.0.0.193', 'reserved'], fault: 'A06' },
  { range: '192.0.2.0/24', class: 'documentation', first: '192.0.2.0', last: '192.0.2.255', before: ['192.0.1.255', 'public'], after: ['192.0.3.0', 'public'], fault: 'A06' },
  { range: '192.31.196.0/24', class: 'reserved', first: '192.31.196.0', last: '192.31.196.255', before: ['192.31.195.255', 'public'], after: ['192.31.197.0', 'public'], fault: 'A06' },
  { range: '192.52.193.0/24', class: 'reserved', first: '192.52.193.0', last: '192.52.193.255', before: ['192.52.192.255', 'public'], after: ['192.52.194.0', 'public'], fault: 'A06' },
  { range: '192.88.99.0/24', class: 'reserved', first: '192.88.99.0', last: '192.88.99.255', before: ['192.88.98.255', 'public'], after: ['192.88.100.0', 'public'], fault: 'A06' },
  { range: '192.168.0.0/16', class: 'private', first: '192.168.0.0', last: '192.168.255.255', before: ['192.167.255.255', 'public'], after: ['192.169.0.0', 'public'], fault: 'A06' },
  { range: '192.175.48.0/24', class: 'reserved', first: '192.175.48.0', last: '192.175.48.255', before: ['192.175.47.255', 'public'], after: ['192.175.49.0', 'public'], fault: 'A06' },
  { range: '198.18.0.0/15', class: 'benchmarking', first: '198.18.0.0', last: '198.19.255.255', before: ['198.17.255.255', 'public'], after: ['198.20.0.0', 'public'], fault: 'A06' },
  { range: '198.51.100.0/24', class: 'documentation', first: '198.51.100.0', last: '198.51.100.255', before: ['198.51.99.255', 'public'], after: ['198.51.101.0', 'public'], fault: 'A06' },
  { range: '203.0.113.0/24', class: 'documentation', first: '203.0.113.0', last: '203.0.113.255', before: ['203.0.112.255', 'public'], after: ['203.0.114.0', 'public'], fault: 'A06' },
  { range: '224.0.0.0/4', class: 'multicast', first: '224.0.0.0', last: '239.255.255.255', before: ['223.255.255.255', 'public'], after: ['240.0.0.0', 'reserved'], fault: 'A06' },
  { range: '240.0.0.0/4', class: 'reserved', first: '240.0.0.0', last: '255.255.255.254', before: ['239.255.255.255', 'multicast'], after: ['255.255.255.255', 'broadcast'], fault: 'A06' },
  { range: '255.255.255.255/32', class: 'broadcast', first: '255.255.255.255', last: '255.255.255.255', before: ['255.255.255.254', 'reserved'], fault: 'A06' },

  { range: '::/128', class: 'unspecified', first: '::', last: '::', after: ['::1', 'loopback'], fault: 'A09' },
  { range: '::1/128', class: 'loopback', first: '::1', last: '::1', before: ['::', 'unspecified'], after: ['::2', 'reserved'], fault: 'A06' },
  { range: '::/96', class: 'reserved', first: '::1.0.0.0', last: '::223.255.255.255', before: ['::0.255.255.255', 'reserved'], after: ['::1:0:0', 'reserved'], fault: 'A08' },
  { range: '::ffff:0:0/96', class: 'public', first: '::ffff:1.0.0.0', last: '::ffff:223.255.255.255', before: ['::fffe:ffff:ffff', 'reserved'], after: ['::1:0:0:0', 'reserved'], fault: 'A07' },
  { range: '::ffff:0:0:0/96', class: 'reserved', first: '::ffff:0:1.0.0.0', last: '::ffff:0:223.255.255.255', before: ['::fffe:ffff:ffff:ffff', 'reserved'], after: ['::ffff:1:0:0', 'reserved'], fault: 'A08' },
  { range: '64:ff9b::/96', class: 'public', first: '64:ff9b::1.0.0.0', last: '64:ff9b::223.255.255.255', before: ['64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff', 'reserved'], after: ['64:ff9b::1:0:0', 'reserved'], fault: 'A08' },
  { range: '64:ff9b:1::/48', class: 'transition', first: '64:ff9b:1::808:808', last: '64:ff9b:1:ffff:ffff:ffff:dfff:ffff', before: ['64:ff9b:0:ffff:ffff:ffff:ffff:ffff', 'reserved'], after: ['64:ff9b:2::', 'reserved'], fault: 'A06' },
  { range: '100::/64', class: 'reserved', first: '100::', last: '100::ffff:ffff:ffff:ffff', before: ['ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'reserved'], after: ['100:0:0:1::', 'reserved'], fault: 'A06' },
  { range: '2000::/3', class: 'public', first: '2000::', last: '3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff', before: ['1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'reserved'], after: ['4000::', 'reserved'], fault: 'A06' },
  { range: '2001::/32', class: 'transition', first: '2001:0:4136:e378:8000:63bf:f7f7:f7f7', last: '2001:0:ffff:ffff:ffff:ffff:f7f7:f7f7', before: ['2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'public'], after: ['2001:1::', 'reserved'], fault: 'A08' },
  { range: '2001:2::/48', class: 'benchmarking', first: '2001:2::', last: '2001:2:0:ffff:ffff:ffff:ffff:ffff', before: ['2001:1:ffff:ffff:ffff:ffff:ffff:ffff', 'reserved'], after: ['2001:2:1::', 'reserved'], fault: 'A06' },
  { range: '2001::/23', class: 'reserved', first: '2001:1::', last: '2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff', after: ['2001:200::', 'public'], fault: 'A06' },
  { range: '2001:db8::/32', class: 'documentation', first: '2001:db8::', last: '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff', before: ['2001:db7:ffff:ffff:ffff:ffff:ffff:ffff', 'public'], after: ['2001:db9::', 'public'], fault: 'A06' },
  { range: '2002::/16', class: 'public', first: '2002:100::', last: '2002:dfff:ffff:ffff:ffff:ffff:ffff:ffff', before: ['2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'public'], after: ['2003::', 'public'], fault: 'A08' },
  { range: '2620:4f:8000::/48', class: 'reserved', first: '2620:4f:8000::', last: '2620:4f:8000:ffff:ffff:ffff:ffff:ffff', before: ['2620:4f:7fff:ffff:ffff:ffff:ffff:ffff', 'public'], after: ['2620:4f:8001::', 'public'], fault: 'A06' },
  { range: '3fff::/20', class: 'documentation', first: '3fff::', last: '3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff', before: ['3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'public'], after: ['3fff:1000::', 'public'], fault: 'A06' },
  { range: '5f00::/16', class: 'reserved', first: '5f00::', last: '5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff', before: ['5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'reserved'], after: ['5f01::', 'reserved'], fault: 'A06' },
  { range: 'fc00::/7', class: 'unique_local', first: 'fc00::', last: 'fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', before: ['fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'reserved'], after: ['fe00::', 'reserved'], fault: 'A06' },
  { range: 'fd00:ec2::254/128', class: 'metadata', first: 'fd00:ec2::253', last: 'fd00:ec2::254', before: ['fd00:ec2::252', 'unique_local'], after: ['fd00:ec2::255', 'unique_local'], fault: 'A06' },
  { range: 'fd00:ec2::23/128', class: 'metadata', first: 'fd00:ec2::23', last: 'fd00:ec2::23', before: ['fd00:ec2::22', 'unique_local'], after: ['fd00:ec2::24', 'unique_local'], fault: 'A06' },
  { range: 'fd20:ce::254/128', class: 'metadata', first: 'fd20:ce::254', last: 'fd20:ce::254', before: ['fd20:ce::253', 'unique_local'], after: ['fd20:ce::255', 'unique_local'], fault: 'A06' },
  { range: 'fd00:42::42/128', class: 'metadata', first: 'fd00:42::42', last: 'fd00:42::42', before: ['fd00:42::41', 'unique_local'], after: ['fd00:42::43', 'unique_local'], fault: 'A06' },
  { range: 'fd00:c1::a9fe:a9fe/128', class: 'metadata', first: 'fd00:c1::a9fe:a9fe', last: 'fd00:c1::a9fe:a9fe', before: ['fd00:c1::a9fe:a9fd', 'unique_local'], after: ['fd00:c1::a9fe:a9ff', 'unique_local'], fault: 'A06' },
  { range: 'fe80::/10', class: 'link_local', first: 'fe80::', last: 'febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff', before: ['fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'reserved'], after: ['fec0::', 'site_local'], fault: 'A11' },
  { range: 'fe80::a9fe:a9fe/128', class: 'metadata', first: 'fe80::a9fe:a9fe', last: 'fe80::a9fe:a9fe', before: ['fe80::a9fe:a9fd', 'link_local'], after: ['fe80::a9fe:a9ff', 'link_local'], fault: 'A06' },
  { range: 'fec0::/10', class: 'site_local', first: 'fec0::', last: 'feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', before: ['febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'link_local'], after: ['ff00::', 'multicast'], fault: 'A11' },
  { range: 'ff00::/8', class: 'multicast', first: 'ff00::', last: 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', before: ['feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff', 'site_local'], fault: 'A06' },
]; // prettier-ignore

describe('classify', () => {
  it.each(BLOCKS)('knows the first and last address of $range as $class, and their neighbours ($fault)', (row) => {
    expect(classify(address(row.first))).toBe(row.class);
    expect(classify(address(row.last))).toBe(row.class);
    for (const [neighbour, kind] of [row.before, row.after].filter((side) => side !== undefined)) {
      expect([neighbour, classify(address(neighbour))]).toEqual([neighbour, kind]);
    }
  });

  it.each([
    { name: 'IPv4-mapped loopback in hex', input: '::ffff:7f00:1', class: 'loopback', fault: 'A07' },
    { name: 'IPv4-mapped metadata in hex', input: '::ffff:a9fe:a9fe', class: 'metadata', fault: 'A07' },
    { name: 'IPv4-mapped private, uncompressed', input: '0:0:0:0:0:ffff:10.0.0.1', class: 'private', fault: 'A07' },
    { name: 'IPv4-mapped public', input: '::ffff:8.8.8.8', class: 'public', fault: 'A07' },
    { name: 'IPv4-mapped unspecified', input: '::ffff:0.0.0.0', class: 'unspecified', fault: 'A09' },
    { name: '6to4 of loopback', input: '2002:7f00:1::', class: 'loopback', fault: 'A08' },
    { name: '6to4 of metadata', input: '2002:a9fe:a9fe::1', class: 'metadata', fault: 'A08' },
    { name: '6to4 of a public address', input: '2002:808:808::1', class: 'public', fault: 'A08' },
    { name: 'NAT64 of loopback', input: '64:ff9b::7f00:1', class: 'loopback', fault: 'A08' },
    { name: 'NAT64 of Azure WireServer', input: '64:ff9b::168.63.129.16', class: 'metadata', fault: 'A08' },
    { name: 'NAT64 of a public address', input: '64:ff9b::8.8.8.8', class: 'public', fault: 'A08' },
    { name: 'local NAT64 of a public address', input: '64:ff9b:1::8.8.8.8', class: 'transition', fault: 'A08' },
    { name: 'IPv4-compatible loopback', input: '::7f00:1', class: 'loopback', fault: 'A08' },
    { name: 'IPv4-compatible public', input: '::8.8.8.8', class: 'reserved', fault: 'A08' },
    { name: 'IPv4-translated metadata', input: '::ffff:0:a9fe:a9fe', class: 'metadata', fault: 'A08' },
    { name: 'IPv4-translated public', input: '::ffff:0:8.8.8.8', class: 'reserved', fault: 'A08' },
    { name: 'Teredo whose client is 10.0.0.1', input: '2001:0:4136:e378:8000:63bf:f5ff:fffe', class: 'private', fault: 'A08' },
    { name: 'Teredo whose client is 8.8.8.8', input: '2001:0:4136:e378:8000:63bf:f7f7:f7f7', class: 'transition', fault: 'A08' },
    { name: 'Teredo whose server is 10.0.0.1', input: '2001:0:a00:1:8000:63bf:f7f7:f7f7', class: 'transition', fault: 'A08' },
    {
      name: 'ISATAP of a private address under a public prefix',
      input: '2a00:1450::5efe:10.0.0.1',
      class: 'private',
      fault: 'A08',
    },
    { name: 'ISATAP with the universal bit', input: '2a00:1450::200:5efe:169.254.169.254', class: 'metadata', fault: 'A08' },
    { name: 'ISATAP of a public address under a public prefix', input: '2a00:1450::5efe:8.8.8.8', class: 'public', fault: 'A08' },
    {
      name: 'ISATAP of loopback under a 6to4 prefix of a public address',
      input: '2002:808:808::5efe:127.0.0.1',
      class: 'loopback',
      fault: 'A08',
    },
    { name: 'an interface identifier beside the ISATAP ones', input: '2a00:1450::5eff:10.0.0.1', class: 'public', fault: 'A08' },
    { name: 'an interface identifier with the group bit', input: '2a00:1450::100:5efe:a00:1', class: 'public', fault: 'A08' },
    { name: 'link-local that does not begin with fe80', input: 'FEBF::1', class: 'link_local', fault: 'A11' },
    { name: 'link-local in the middle of its block', input: 'feab::1', class: 'link_local', fault: 'A11' },
    { name: 'a public IPv6 address', input: '2606:4700::1', class: 'public', fault: 'A11' },
  ])('judges $name as $class ($fault)', ({ input, class: kind }) => {
    expect(classify(address(input))).toBe(kind);
  });

  it.each([
    { name: 'nothing', input: '' },
    { name: 'a name', input: 'example.com' },
    { name: 'a short IPv4', input: '127.1' },
    { name: 'one number', input: '2130706433' },
    { name: 'an octal octet', input: '010.8.8.8' },
    { name: 'a hexadecimal octet', input: '0x8.8.8.8' },
    { name: 'brackets', input: '[2606:4700::1]' },
    { name: 'a zone id', input: '2606:4700::1%eth0' },
    { name: 'upper case', input: '2606:4700::A' },
    { name: 'a longer spelling than the canonical one', input: '2606:4700:0:0::1' },
    { name: 'a space', input: '8.8.8.8 ' },
    { name: 'a newline', input: '8.8.8.8\n' },
    { name: 'a fifth octet', input: '8.8.8.8.8' },
    { name: 'a trailing dot', input: '8.8.8.8.' },
  ])('does not take $name for an address', ({ input }) => {
    expect(classify(input as Host)).toBe('unreadable');
    expect(facesOf(input as Host)).toEqual([]);
  });

  it('puts narrower ranges before the wider ones that hold them, so that the first match is the nearest', () => {
    const blocks = ADDRESS_TABLE.map(({ range }) => {
      const [text = '', prefix] = range.split('/');
      const groups = readGroups(text);
      if (groups === undefined) throw new Error(range);
      expect(writeGroups(firstOf(groups, Number(prefix)))).toBe(text);
      return { range, groups, prefix: Number(prefix) };
    });
    for (const [i, block] of blocks.entries()) {
      const hidden = blocks.slice(i + 1).filter((later) => later.prefix >= block.prefix && blockCovers(block, later.groups));
      expect(hidden.map((later) => `${later.range} behind ${block.range}`)).toEqual([]);
    }
  });

  it('judges every wrapper of an IPv4 address at least as strictly as the address itself', () => {
    const special = ADDRESS_TABLE.filter((row) => !row.range.includes(':')).map(
      (row) => readGroups(row.range.split('/')[0] ?? '') ?? [],
    );
    const ipv4 = fc.oneof(
      fc.tuple(fc.nat(0xffff), fc.nat(0xffff)),
      fc.tuple(fc.constantFrom(...special), fc.nat(0xffff)).map(([groups, low]) => [groups[0] ?? 0, low] as [number, number]),
    );
    fc.assert(
      fc.property(ipv4, fc.array(fc.nat(0xffff), { minLength: 5, maxLength: 5 }), ([high, low], noise) => {
        const plain = classify(writeGroups([high, low]));
        const [a = 0, b = 0, c = 0, d = 0, e = 0] = noise;
        const wrappers = [
          [0, 0, 0, 0, 0, 0xffff, high, low],
          [0, 0, 0, 0, 0, 0, high, low],
          [0, 0, 0, 0, 0xffff, 0, high, low],
          [0x64, 0xff9b, 0, 0, 0, 0, high, low],
          [0x64, 0xff9b, 1, a, b, c, high, low],
          [0x2002, high, low, a, b, c, d, e],
          [0x2001, 0, a, b, c, d, high ^ 0xffff, low ^ 0xffff],
          [0x2001, 0, high, low, a, b, c, d],
          [a, b, c, d, 0, 0x5efe, high, low],
          [a, b, c, d, 0x200, 0x5efe, high, low],
        ];
        for (const wrapper of wrappers) if (plain !== 'public') expect(classify(writeGroups(wrapper))).not.toBe('public');
      }),
      { numRuns: 2000 },
    );
  });
});

describe('facesOf', () => {
  it.each([
    { name: 'an IPv4 address', input: '10.0.0.1', faces: ['10.0.0.1'] },
    { name: 'an ordinary IPv6 address', input: '2606:4700::1', faces: ['2606:4700::1'] },
    { name: 'an IPv4-mapped address', input: '::ffff:10.0.0.1', faces: ['::ffff:a00:1', '10.0.0.1'] },
    { name: 'a 6to4 address', input: '2002:a00:1::1', faces: ['2002:a00:1::1', '10.0.0.1'] },
    {
      name: 'a Teredo address',
      input: '2001:0:4136:e378:8000:63bf:f5ff:fffe',
      faces: ['2001:0:4136:e378:8000:63bf:f5ff:fffe', '10.0.0.1'],
    },
    { name: 'an ISATAP address', input: 'fe80::5efe:10.0.0.1', faces: ['fe80::5efe:a00:1', '10.0.0.1'] },
    {
      name: '6to4 and ISATAP at once',
      input: '2002:808:808::5efe:10.0.0.1',
      faces: ['2002:808:808::5efe:a00:1', '8.8.8.8', '10.0.0.1'],
    },
  ])('lists where a packet to $name may arrive', ({ input, faces }) => {
    expect(facesOf(address(input))).toEqual(faces);
  });
});
