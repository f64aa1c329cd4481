import { describe, expect, it } from 'vitest';
import { editDistance } from '../../src/foundation/edit-distance.ts';

describe('editDistance', () => {
  it.each([
    ['domain', 'domain', 0],
    ['domian', 'domain', 1],
    ['domai', 'domain', 1],
    ['tomato', 'domain', 3],
  ])('from %s to %s', (a, b, distance) => {
    expect(editDistance(a, b)).toBe(distance);
  });
});
