// Addresses as bits: canonical text to 16-bit groups (two for IPv4, eight for IPv6), and blocks of addresses over them.
// Every comparison of this room is made here on bits, never on text ("fe80" as a prefix misses fe81 to febf, fault A11).
// It must never accept a spelling that is not canonical: what it cannot read is no address, and no address is public.
import { parseAddress } from '../exchange/authority.ts';
import type { Host } from '../exchange/authority.ts';

/** The bits of an address in 16-bit groups, most significant first: two for IPv4, eight for IPv6. */
export type Groups = readonly number[];

/** The addresses that share their first `prefix` bits with `groups`. */
export interface Block {
  readonly groups: Groups;
  /** 0 to 32 for IPv4, 0 to 128 for IPv6 */
  readonly prefix: number;
}

const CANONICAL_IPV6 = /^(?!.*[0-9a-f]{5})[0-9a-f:]{2,39}$/;

/** The bits of a canonical address; `undefined` for anything else, names and other spellings of an address included. */
export function readGroups(address: string): Groups | undefined {
  if (address.includes(':')) return readIPv6(address);
  if (parseAddress(address) === undefined) return undefined;
  const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number);
  return [(a << 8) | b, (c << 8) | d];
}

// Every dial reads its addresses several times, and canonical text is read for a fraction of what any spelling costs. Writing the
// groups again proves that the text was canonical.
function readIPv6(text: string): Groups | undefined {
  if (!CANONICAL_IPV6.test(text)) return undefined;
  const [head = '', tail] = text.split('::', 2);
  const leading = head === '' ? [] : head.split(':');
  const trailing = tail === undefined || tail === '' ? [] : tail.split(':');
  const missing = 8 - leading.length - trailing.length;
  if (missing < 0) return undefined;
  const zeros = new Array<string>(missing).fill('0');
  const groups = [...leading, ...zeros, ...trailing].map((group) => parseInt(group, 16));
  return writeGroups(groups) === text ? groups : undefined;
}

/** The canonical text of two or eight groups (RFC 5952 for IPv6). */
export function writeGroups(groups: Groups): Host {
  if (groups.length === 2) return groups.flatMap((group) => [group >> 8, group & 0xff]).join('.') as Host;
  const [start, end] = longestZeros(groups);
  const write = (part: Groups): string => part.map((group) => group.toString(16)).join(':');
  const text = end - start < 2 ? write(groups) : `${write(groups.slice(0, start))}::${write(groups.slice(end))}`;
  return text as Host;
}

/** Start and end of the longest run of zero groups, the first of several. */
function longestZeros(groups: Groups): readonly [number, number] {
  let longest: [number, number] = [0, 0];
  let start = 0;
  for (const [i, group] of groups.entries()) {
    if (group !== 0) start = i + 1;
    else if (i + 1 - start > longest[1] - longest[0]) longest = [start, i + 1];
  }
  return longest;
}

/** Whether a block of the same family covers the address. */
export function blockCovers(block: Block, groups: Groups): boolean {
  if (block.groups.length !== groups.length) return false;
  const whole = block.prefix >> 4;
  for (let i = 0; i < whole; i++) if (block.groups[i] !== groups[i]) return false;
  const rest = block.prefix & 15;
  if (rest === 0) return true;
  const shift = 16 - rest;
  return (block.groups[whole] ?? 0) >> shift === (groups[whole] ?? 0) >> shift;
}

/** The first address of the block that holds `groups` under `prefix`: every bit beyond the prefix is zero. */
export function firstOf(groups: Groups, prefix: number): Groups {
  return groups.map((group, i) => {
    const kept = Math.min(16, Math.max(0, prefix - 16 * i));
    return group & ((0xffff << (16 - kept)) & 0xffff);
  });
}
