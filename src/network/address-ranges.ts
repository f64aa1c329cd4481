// Ranges of addresses that an operator writes down: what a rule opens, or where a sandbox may come from.
// It must never reinterpret a spelling: a range that could be read in two ways is a problem with its remedy, not a guess (A04).
import { parseAddress } from '../exchange/authority.ts';
import type { Host } from '../exchange/authority.ts';
import type { AddressRanges } from '../exchange/rule.ts';
import { blockCovers, firstOf, readGroups, writeGroups } from './address-bits.ts';
import type { Block, Groups } from './address-bits.ts';

/** Ranges that hold nothing. */
export const NO_RANGES: AddressRanges = { key: '', contains: () => false };

const SPELLING = /^([0-9a-fA-F:.]+)(?:\/(0|[1-9]\d{0,2}))?$/;
const MAPPED: Block = { groups: [0, 0, 0, 0, 0, 0xffff, 0, 0], prefix: 96 };

/**
 * Reads CIDRs; an address without a prefix length stands for itself alone. The first entry that has no one reading is reported
 * with its place and the right spelling. `contains` compares bits: an IPv4-mapped IPv6 address counts as the IPv4 it stands for
 * and nothing else, so that no IPv6 range opens an IPv4 address; other forms that embed an IPv4 count only as themselves.
 */
export function parseRanges(cidrs: readonly string[]): { ranges: AddressRanges } | { problem: string; index: number } {
  const blocks: Block[] = [];
  for (const [index, cidr] of cidrs.entries()) {
    const block = parseRange(cidr);
    if (typeof block === 'string') return { problem: block, index };
    blocks.push(block);
  }
  return { ranges: blocks.length === 0 ? NO_RANGES : rangesOf(blocks) };
}

function rangesOf(blocks: readonly Block[]): AddressRanges {
  const byText = new Map(blocks.map((block) => [writeBlock(block), block]));
  const distinct = [...byText.values()];
  return {
    key: [...byText.keys()].sort().join(','),
    contains(address: Host): boolean {
      const groups = readGroups(address);
      if (groups === undefined) return false;
      const judged = blockCovers(MAPPED, groups) ? groups.slice(6) : groups;
      return distinct.some((block) => blockCovers(block, judged));
    },
  };
}

/** The block, or the problem with its text. */
function parseRange(text: string): Block | string {
  const [, address = '', length] = SPELLING.exec(text) ?? [];
  const groups = groupsOf(address);
  if (groups === undefined)
    return `"${text}" is not a range of addresses; write it like "10.0.0.0/8" or "fd00::/8", without leading zeros`;
  const bits = groups.length * 16;
  const prefix = length === undefined ? bits : Number(length);
  if (prefix > bits)
    return `"${text}" has a prefix longer than its address; write "${writeGroups(groups)}/${bits}" or a shorter prefix`;
  const block = { groups: firstOf(groups, prefix), prefix };
  if (prefix >= 96 && blockCovers(MAPPED, groups)) {
    const inner = { groups: block.groups.slice(6), prefix: prefix - 96 };
    return `"${text}" is an IPv4 range in IPv6 dress; write "${writeBlock(inner)}"`;
  }
  if (!sameGroups(groups, block.groups)) return `"${text}" has bits set after its prefix; write "${writeBlock(block)}"`;
  return block;
}

function groupsOf(text: string): Groups | undefined {
  const address = parseAddress(text);
  return address === undefined ? undefined : readGroups(address);
}

function sameGroups(a: Groups, b: Groups): boolean {
  return a.every((group, i) => group === b[i]);
}

function writeBlock(block: Block): string {
  return `${writeGroups(block.groups)}/${block.prefix}`;
}
