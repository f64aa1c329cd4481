import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { showUnseen, showWire } from '../../src/foundation/visible-text.ts';

describe('showUnseen', () => {
  it.each([
    { name: 'keeps letters of any script', text: 'Größe ключ 鍵', shown: 'Größe ключ 鍵' },
    { name: 'spells out controls', text: '\u0000\t\n\u001b\u007f\u0085', shown: '\\u0000\\u0009\\u000a\\u001b\\u007f\\u0085' },
    { name: 'spells out separators and overrides', text: '\u2028\u2029\u202e\u200b', shown: '\\u2028\\u2029\\u202e\\u200b' },
    { name: 'spells out a lone surrogate', text: '\ud800', shown: '\\ud800' },
    { name: 'spells out an unseen character beyond the first plane', text: '\u{e0041}', shown: '\\udb40\\udc41' },
    { name: 'keeps a seen character beyond the first plane', text: '\u{1f511}', shown: '\u{1f511}' },
  ])('$name', ({ text, shown }) => {
    expect(showUnseen(text)).toBe(shown); // fault L01
  });
});

describe('showWire', () => {
  it('gives printable ASCII no longer than its cap, whatever comes in', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 60 }), fc.integer({ min: 3, max: 40 }), (text, cap) => {
        const shown = showWire(text, cap); // fault L01
        expect(shown).toMatch(/^[\x20-\x7e]*$/);
        expect(shown.length).toBeLessThanOrEqual(cap);
      }),
    );
  });

  it('leaves plain text that fits alone', () => {
    expect(showWire('/a?b', 4)).toBe('/a?b');
    expect(showWire('/a?bc', 4)).toBe('/...');
  });

  it('cuts where spelling out makes the text too long', () => {
    expect(showWire('ab\u0001', 8)).toBe('ab\\u0001');
    expect(showWire('ab\u0001', 7)).toBe('ab\\u...');
  });
});
