import { describe, expect, it } from 'vitest';
import { mayBeShown, shownKey } from '../../src/foundation/shown-key.ts';

describe('a key', () => {
  it.each([
    { name: 'a word', key: 'header_name', shown: true },
    { name: 'a domain', key: 'api.github.com', shown: true },
    { name: 'a UUID', key: '0b8f2f0e-2b1d-4f6e-9c59-0123456789ab', shown: true },
    { name: 'a run of 15 letters and digits', key: 'a'.repeat(14) + '1', shown: true },
    { name: 'a run of 16 letters and digits', key: 'a'.repeat(15) + '1', shown: false },
    { name: 'a run of 16 letters', key: 'a'.repeat(16), shown: true },
    { name: '40 characters', key: 'a-'.repeat(20), shown: true },
    { name: '41 characters', key: 'a-'.repeat(20) + 'a', shown: false },
    { name: 'a header with its value', key: 'Authorization:Bearer', shown: false },
  ])('that is $name: $shown', ({ key, shown }) => {
    expect(mayBeShown(key)).toBe(shown);
    expect(shownKey(key)).toBe(shown ? `"${key}"` : 'what stands here');
  });
});
