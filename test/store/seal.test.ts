// Twin of seal.ts: what opens, and everything that must not.
import { randomBytes } from 'node:crypto';
import { inspect } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { keyIdOf, seal, sealKey, unseal } from '../../src/store/seal.ts';

const KEY = sealKey(Buffer.alloc(32, 1));
const OTHER = sealKey(Buffer.alloc(32, 2));
const PLACE = { kind: 'credentials', id: 'github' };
const TEXT = '{"token":"plain-secret"}';

describe('a sealed text', () => {
  it('opens with its key in its place, whatever it says', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), fc.uint8Array({ minLength: 32, maxLength: 32 }), (text, bytes) => {
        const key = sealKey(Buffer.from(bytes));
        expect(unseal(key, PLACE, seal(key, PLACE, text))).toBe(text);
      }),
    );
  });

  it('shows its key by an id, and neither the text nor the key', () => {
    const bytes = randomBytes(32);
    const key = sealKey(bytes);
    const sealed = seal(key, PLACE, TEXT);
    expect(sealed).toMatch(/^sp1\.[0-9a-f]{16}\.[A-Za-z0-9_-]+$/);
    expect(keyIdOf(sealed)).toBe(key.id);
    expect(Buffer.from(sealed.split('.')[2]!, 'base64url').toString('latin1')).not.toContain('plain-secret');
    expect(bytes.toString('hex')).not.toContain(key.id);
    expect(inspect(key, { depth: 9, showHidden: true })).not.toContain(bytes.toString('hex').slice(0, 8));
  });

  it('differs each time, by its nonce', () => {
    const nonces = Array.from({ length: 1000 }, () =>
      Buffer.from(seal(KEY, PLACE, TEXT).split('.')[2]!, 'base64url')
        .subarray(0, 12)
        .toString('hex'),
    );
    expect(new Set(nonces).size).toBe(1000);
  });

  it.each([
    { name: 'another key', key: OTHER, place: PLACE },
    { name: 'another id', key: KEY, place: { kind: 'credentials', id: 'gitlab' } },
    { name: 'another kind', key: KEY, place: { kind: 'environments', id: 'github' } },
    { name: 'kind and id cut elsewhere', key: KEY, place: { kind: 'credential', id: 'sgithub' } },
    { name: 'a kind that bears the id', key: KEY, place: { kind: 'credentials","github', id: '' } },
  ])('does not open with $name', ({ key, place }) => {
    expect(unseal(key, place, seal(KEY, PLACE, TEXT))).toBeUndefined();
  });

  it('does not open with any one bit changed', () => {
    const [format, id, body] = seal(KEY, PLACE, TEXT).split('.');
    const bytes = Buffer.from(body!, 'base64url');
    for (let bit = 0; bit < bytes.length * 8; bit += 1) {
      const changed = Buffer.from(bytes);
      changed[bit >> 3]! ^= 1 << (bit & 7);
      expect(unseal(KEY, PLACE, `${format}.${id}.${changed.toString('base64url')}`)).toBeUndefined();
    }
  });

  it.each([
    '',
    'sp1',
    'sp1..',
    `sp1.${KEY.id}.`,
    `sp1.${KEY.id}.AAAA`,
    `sp1.${KEY.id}.${'A'.repeat(37)}`,
    `sp2.${KEY.id}.${'A'.repeat(60)}`,
    `${seal(KEY, PLACE, TEXT)}\n`,
    `${seal(KEY, PLACE, TEXT)}.x`,
    seal(KEY, PLACE, TEXT).slice(0, -4),
    TEXT,
  ])('is not %j', (text) => {
    expect(unseal(KEY, PLACE, text)).toBeUndefined();
  });

  it.each([0, 16, 31, 33, 64])('is not made with a key of %i bytes', (length) => {
    expect(() => sealKey(Buffer.alloc(length))).toThrow(`has 32 bytes, not ${length}`);
  });
});
