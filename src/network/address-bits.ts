// Addresses as bits: canonical text to 16-bit groups (two for IPv4, eight for IPv6), and blocks of addresses over them.
// Every comparison of this room is made here on bits, never on text ("fe80" as a prefix misses fe81 to febf, fault A11).
// It must never accept a spelling that is not canonical: what it cannot read is no address, and no address is public.
import ipaddr from 'ipaddr.js';
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

/** The bits of a canonical address; `undefined` for anything else, names and other spellings of an address included. */
export function readGroups(address: string): Groups | undefined {
  if (parseAddress(address) !== address) return undefined;
  if (address.includes(':')) return ipaddr.IPv6.parse(address).parts;
  const [a, b, c, d] = ipaddr.IPv4.parse(address).octets as [number, number, number, number];
  return [(a << 8) | b, (c << 8) | d];
}

/** The canonical text of two or eight groups. */
export function writeGroups(groups: Groups): Host {
  const octets = groups.flatMap((group) => [group >> 8, group & 0xff]);
  const text = groups.length === 2 ? octets.join('.') : new ipaddr.IPv6(octets).toRFC5952String();
  return text as Host;
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
