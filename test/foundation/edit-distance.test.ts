import { describe, expect, it } from 'vitest';
import { editDistance, nearestWord } from '../../src/foundation/edit-distance.ts';

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

describe('nearestWord', () => {
  it.each([
    ['headerName', 'header_name'],
    ['Header-Name', 'header_name'],
    ['heder_name', 'header_name'],
    ['tokn', 'token'],
    ['colour', undefined],
    ['to', undefined],
  ])('of %s: %s', (wrong, nearest) => {
    expect(nearestWord(wrong, ['token', 'header_name'])).toBe(nearest);
  });
});
