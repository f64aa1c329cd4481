import { describe, expect, it } from 'vitest';
import { storeTrouble } from '../../src/exchange/records.ts';
import { StoreAway, StoreBroken, StoreConflict } from '../../src/store/store-error.ts';

describe('storeTrouble', () => {
  it.each([
    { name: 'a conflict', error: new StoreConflict({ kind: 'credentials', id: 'a' }, 2), trouble: 'conflict' },
    { name: 'a store that is away', error: new StoreAway('redis://a', 'gone'), trouble: 'away' },
    { name: 'a record that does not open', error: new StoreBroken('broken'), trouble: 'broken' },
    { name: 'any other error', error: new TypeError('x'), trouble: undefined },
    { name: 'no error', error: 'StoreAway', trouble: undefined },
  ])('knows $name', ({ error, trouble }) => {
    expect(storeTrouble(error)).toBe(trouble);
  });
});
