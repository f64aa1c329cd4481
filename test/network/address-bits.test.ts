import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseAddress } from '../../src/exchange/authority.ts';
import { blockCovers, firstOf, readGroups, writeGroups } from '../../src/network/address-bits.ts';
import type { Groups } from '../../src/network/address-bits.ts';

const group = fc.nat(0xffff);
const address = fc.oneof(fc.array(group, { minLength: 2, maxLength: 2 }), fc.array(group, { minLength: 8, maxLength: 8 }));
const bitsOf = (groups: Groups): string => groups.map((value) => value.toString(2).padStart(16, '0')).join('');

describe('readGroups and writeGroups', () => {
  it.each([
    { text: '127.0.0.1', groups: [0x7f00, 1] },
    { text: '255.255.255.255', groups: [0xffff, 0xffff] },
    { text: '::', groups: [0, 0, 0, 0, 0, 0, 0, 0] },
    { text: '::7f00:1', groups: [0, 0, 0, 0, 0, 0, 0x7f00, 1] },
    { text: '::ffff:7f00:1', groups: [0, 0, 0, 0, 0, 0xffff, 0x7f00, 1] },
    { text: '2606:4700::1', groups: [0x2606, 0x4700, 0, 0, 0, 0, 0, 1] },
  ])('reads $text and writes it again', ({ text, groups }) => {
    expect(readGroups(text)).toEqual(groups);
    expect(writeGroups(groups)).toBe(text);
  });

  // Zero groups are common, so that their runs are.
  const sparse = fc.array(fc.oneof(fc.constant(0), fc.constant(0), group), { minLength: 8, maxLength: 8 });

  it('reads back whatever it writes', () => {
    fc.assert(
      fc.property(fc.oneof(address, sparse), (groups) => {
        expect(readGroups(writeGroups(groups))).toEqual(groups);
      }),
    );
  });

  it('writes IPv6 as the URL standard and the canonicaliser of hosts do', () => {
    fc.assert(
      fc.property(sparse, (groups) => {
        const full = groups.map((value) => value.toString(16)).join(':');
        expect(`[${writeGroups(groups)}]`).toBe(new URL(`http://[${full}]/`).hostname);
        expect(writeGroups(groups)).toBe(parseAddress(full));
      }),
      { numRuns: 2000 },
    );
  });

  const piece = fc.oneof(
    fc.constantFrom('0', '0', '00', '', '', '1', 'a', 'A', 'ffff', '1.2.3.4', '10000', 'g', '-1', 'NaN', '%1'),
    group.map((n) => n.toString(16)),
  );

  it('reads exactly what the canonicaliser of hosts leaves as it is', () => {
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 10 }), fc.constantFrom(':', ':', ':', '.'), (pieces, mark) => {
        const text = pieces.join(mark);
        expect([text, readGroups(text) !== undefined]).toEqual([text, parseAddress(text) === text]);
      }),
      { numRuns: 10_000 },
    );
  });
});

describe('blocks', () => {
  it('covers exactly the addresses that share the first bits of the prefix', () => {
    const pair = address.chain((a) =>
      fc.tuple(
        fc.constant(a),
        fc.array(group, { minLength: a.length, maxLength: a.length }),
        fc.nat(a.length * 16),
        fc.nat(a.length * 16),
      ),
    );
    fc.assert(
      fc.property(pair, ([a, noise, prefix, shared]) => {
        // `b` begins like `a` for at least `shared` bits, so that near misses are common.
        const kept = firstOf(a, shared);
        const gone = firstOf(noise, shared);
        const b = noise.map((value, i) => (kept[i] ?? 0) | (value ^ (gone[i] ?? 0)));
        expect(blockCovers({ groups: a, prefix }, b)).toBe(bitsOf(a).slice(0, prefix) === bitsOf(b).slice(0, prefix));
        expect(bitsOf(firstOf(a, prefix))).toBe(
          bitsOf(a)
            .slice(0, prefix)
            .padEnd(a.length * 16, '0'),
        );
      }),
      { numRuns: 2000 },
    );
  });

  it('covers no address of the other family', () => {
    expect(blockCovers({ groups: [0, 0], prefix: 0 }, [0, 0, 0, 0, 0, 0, 0, 1])).toBe(false);
    expect(blockCovers({ groups: [0, 0, 0, 0, 0, 0, 0, 0], prefix: 0 }, [0x7f00, 1])).toBe(false);
  });
});
