// The gatehouse, third of the journey's judges after intake and policy: what kind of place an address is.
// One literal table over the IANA special-purpose registries (IPv4 and IPv6) and the clouds' metadata addresses; pure.
// It must never call an address public that it cannot read, nor judge a wrapper of an IPv4 more mildly than that IPv4 (A06-A11).
//
// Where the registries leave a choice: whole assignments for the network's own machinery (192.0.0.0/24, 2001::/23, AS112, AMT,
// 6to4 relays) are reserved even where one address in them is globally reachable, because any network may run such a node inside
// its walls. NAT64 and 6to4 of a public IPv4 are public: that IPv4 is where the packet goes. Wrappers that no network carries
// any more (IPv4-compatible, IPv4-translated), Teredo and local NAT64 are never public.
import { blockCovers, readGroups, writeGroups } from './address-bits.ts';
import type { Block, Groups } from './address-bits.ts';
import type { Host } from '../exchange/authority.ts';

/** What kind of place an address is. Only `public` may be dialled without being opened by a rule. */
export type AddressClass =
  | 'public'
  | 'unspecified'
  | 'loopback'
  | 'private'
  | 'cgnat'
  | 'link_local'
  | 'metadata'
  | 'documentation'
  | 'benchmarking'
  | 'multicast'
  | 'broadcast'
  | 'reserved'
  | 'unique_local'
  | 'site_local'
  | 'transition'
  | 'unreadable';

/** One row of the table; of the rows that cover an address the first decides. */
export interface AddressRow {
  readonly range: string;
  /** Where `embeds` is set: the class when the embedded IPv4 is public; otherwise the embedded one's class holds */
  readonly class: AddressClass;
  /** RFC or vendor */
  readonly source: string;
  /** Index of the first of the two groups that hold an IPv4 address; `inverted` where its bits are flipped */
  readonly embeds?: { readonly at: number; readonly inverted?: boolean };
}

/** Narrower ranges stand before wider ones. IPv6 that no row covers is public inside 2000::/3 and reserved outside (RFC 4291). */
export const ADDRESS_TABLE: readonly AddressRow[] = [
  { range: '169.254.169.254/32', class: 'metadata', source: 'AWS, Azure, Google, OpenStack, Oracle, DigitalOcean and others' },
  { range: '169.254.169.253/32', class: 'metadata', source: 'AWS VPC resolver' },
  { range: '169.254.170.2/32', class: 'metadata', source: 'AWS ECS task credentials' },
  { range: '169.254.170.23/32', class: 'metadata', source: 'AWS EKS pod identity' },
  { range: '169.254.42.42/32', class: 'metadata', source: 'Scaleway' },
  { range: '169.254.0.23/32', class: 'metadata', source: 'Tencent Cloud' },
  { range: '100.100.100.200/32', class: 'metadata', source: 'Alibaba Cloud' },
  { range: '168.63.129.16/32', class: 'metadata', source: 'Azure WireServer' },
  { range: '192.0.0.192/32', class: 'metadata', source: 'Oracle Cloud Classic' },
  { range: '0.0.0.0/32', class: 'unspecified', source: 'RFC 1122 section 3.2.1.3' },
  { range: '0.0.0.0/8', class: 'reserved', source: 'RFC 791 section 3.2' },
  { range: '10.0.0.0/8', class: 'private', source: 'RFC 1918' },
  { range: '100.64.0.0/10', class: 'cgnat', source: 'RFC 6598' },
  { range: '127.0.0.0/8', class: 'loopback', source: 'RFC 1122 section 3.2.1.3' },
  { range: '169.254.0.0/16', class: 'link_local', source: 'RFC 3927' },
  { range: '172.16.0.0/12', class: 'private', source: 'RFC 1918' },
  { range: '192.0.0.0/24', class: 'reserved', source: 'RFC 6890 section 2.1' },
  { range: '192.0.2.0/24', class: 'documentation', source: 'RFC 5737' },
  { range: '192.31.196.0/24', class: 'reserved', source: 'RFC 7535, AS112' },
  { range: '192.52.193.0/24', class: 'reserved', source: 'RFC 7450, AMT' },
  { range: '192.88.99.0/24', class: 'reserved', source: 'RFC 7526, 6to4 relays' },
  { range: '192.168.0.0/16', class: 'private', source: 'RFC 1918' },
  { range: '192.175.48.0/24', class: 'reserved', source: 'RFC 7534, AS112' },
  { range: '198.18.0.0/15', class: 'benchmarking', source: 'RFC 2544' },
  { range: '198.51.100.0/24', class: 'documentation', source: 'RFC 5737' },
  { range: '203.0.113.0/24', class: 'documentation', source: 'RFC 5737' },
  { range: '224.0.0.0/4', class: 'multicast', source: 'RFC 5771' },
  { range: '255.255.255.255/32', class: 'broadcast', source: 'RFC 919 section 7' },
  { range: '240.0.0.0/4', class: 'reserved', source: 'RFC 1112 section 4' },

  { range: 'fd00:ec2::254/128', class: 'metadata', source: 'AWS' },
  { range: 'fd00:ec2::253/128', class: 'metadata', source: 'AWS VPC resolver' },
  { range: 'fd00:ec2::23/128', class: 'metadata', source: 'AWS EKS pod identity' },
  { range: 'fd20:ce::254/128', class: 'metadata', source: 'Google' },
  { range: 'fd00:42::42/128', class: 'metadata', source: 'Scaleway' },
  { range: 'fd00:c1::a9fe:a9fe/128', class: 'metadata', source: 'Oracle Cloud' },
  { range: 'fe80::a9fe:a9fe/128', class: 'metadata', source: 'OpenStack' },
  { range: '::/128', class: 'unspecified', source: 'RFC 4291 section 2.5.2' },
  { range: '::1/128', class: 'loopback', source: 'RFC 4291 section 2.5.3' },
  { range: '::ffff:0:0/96', class: 'public', source: 'RFC 4291 section 2.5.5.2, IPv4-mapped', embeds: { at: 6 } },
  { range: '::/96', class: 'reserved', source: 'RFC 4291 section 2.5.5.1, IPv4-compatible', embeds: { at: 6 } },
  { range: '::ffff:0:0:0/96', class: 'reserved', source: 'RFC 2765 section 2.1, IPv4-translated', embeds: { at: 6 } },
  { range: '64:ff9b::/96', class: 'public', source: 'RFC 6052, NAT64', embeds: { at: 6 } },
  { range: '64:ff9b:1::/48', class: 'transition', source: 'RFC 8215, local NAT64', embeds: { at: 6 } },
  { range: '100::/64', class: 'reserved', source: 'RFC 6666, discard-only' },
  { range: '100:0:0:1::/64', class: 'reserved', source: 'RFC 9780, dummy prefix' },
  { range: '2001::/32', class: 'transition', source: 'RFC 4380, Teredo', embeds: { at: 6, inverted: true } },
  { range: '2001:2::/48', class: 'benchmarking', source: 'RFC 5180' },
  { range: '2001::/23', class: 'reserved', source: 'RFC 2928' },
  { range: '2001:db8::/32', class: 'documentation', source: 'RFC 3849' },
  { range: '2002::/16', class: 'public', source: 'RFC 3056, 6to4', embeds: { at: 1 } },
  { range: '2620:4f:8000::/48', class: 'reserved', source: 'RFC 7534, AS112' },
  { range: '3fff::/20', class: 'documentation', source: 'RFC 9637' },
  { range: '5f00::/16', class: 'reserved', source: 'RFC 9602, SRv6 segment ids' },
  { range: 'fc00::/7', class: 'unique_local', source: 'RFC 4193' },
  { range: 'fe80::/10', class: 'link_local', source: 'RFC 4291 section 2.5.6' },
  { range: 'fec0::/10', class: 'site_local', source: 'RFC 3879' },
  { range: 'ff00::/8', class: 'multicast', source: 'RFC 4291 section 2.7' },
];

interface CompiledRow extends AddressRow {
  readonly block: Block;
}

const COMPILED: readonly CompiledRow[] = ADDRESS_TABLE.map((row) => ({ ...row, block: readRange(row.range) }));
const IPV4_ROWS = COMPILED.filter((row) => row.block.groups.length === 2);
const IPV6_ROWS = COMPILED.filter((row) => row.block.groups.length === 8);
const GLOBAL_UNICAST = readRange('2000::/3');

function readRange(range: string): Block {
  const [address = '', prefix = ''] = range.split('/');
  const groups = readGroups(address);
  if (groups === undefined) throw new Error(`internal error: the address table holds the unreadable range "${range}"`);
  return { groups, prefix: Number(prefix) };
}

/** The class of an address; `unreadable` for whatever is not the canonical text of one. Never throws. */
export function classify(address: Host): AddressClass {
  const groups = readGroups(address);
  if (groups === undefined) return 'unreadable';
  return groups.length === 2 ? classifyIPv4(groups) : classifyIPv6(groups);
}

/**
 * Every address under which a packet to this one may arrive: itself, then the IPv4 addresses that its bits embed, whatever their
 * class. Empty for what is not an address.
 */
export function facesOf(address: Host): readonly Host[] {
  const groups = readGroups(address);
  if (groups === undefined) return [];
  if (groups.length === 2) return [address];
  const embedded = [embeddedIn(groups, coveringRow(IPV6_ROWS, groups)), isatapOf(groups)];
  return [address, ...embedded.filter((inner) => inner !== undefined).map(writeGroups)];
}

function coveringRow(rows: readonly CompiledRow[], groups: Groups): CompiledRow | undefined {
  return rows.find((row) => blockCovers(row.block, groups));
}

function classifyIPv4(groups: Groups): AddressClass {
  return coveringRow(IPV4_ROWS, groups)?.class ?? 'public';
}

function classifyIPv6(groups: Groups): AddressClass {
  const row = coveringRow(IPV6_ROWS, groups);
  if (row === undefined && !blockCovers(GLOBAL_UNICAST, groups)) return 'reserved';
  const own = row?.class ?? 'public';
  for (const inner of [embeddedIn(groups, row), own === 'public' ? isatapOf(groups) : undefined]) {
    const innerClass = inner === undefined ? 'public' : classifyIPv4(inner);
    if (innerClass !== 'public') return innerClass;
  }
  return own;
}

function embeddedIn(groups: Groups, row: CompiledRow | undefined): Groups | undefined {
  if (row?.embeds === undefined) return undefined;
  const { at, inverted = false } = row.embeds;
  const inner = groups.slice(at, at + 2);
  return inverted ? inner.map((group) => group ^ 0xffff) : inner;
}

/** An ISATAP router sends these to the IPv4 in their last 32 bits, whatever the prefix (RFC 5214 section 6.1). */
function isatapOf(groups: Groups): Groups | undefined {
  const isIsatap = (groups[4] === 0 || groups[4] === 0x200) && groups[5] === 0x5efe;
  return isIsatap ? groups.slice(6) : undefined;
}
