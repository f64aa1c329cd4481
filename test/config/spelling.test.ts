import { describe, expect, it } from 'vitest';
import { editDistance, suggestKey } from '../../src/config/spelling.ts';

describe('suggestKey', () => {
  it.each([
    ['headerName', ['header_name', 'prefix'], 'header_name'],
    ['header-name', ['header_name'], 'header_name'],
    ['domian', ['domain', 'transform'], 'domain'],
    ['method', ['methods', 'paths'], 'methods'],
    ['allowedDomains', ['allowlist', 'denylist'], 'allowlist'],
    ['headers', ['domain', 'transform'], 'transform'],
    ['host', ['domain'], 'domain'],
    ['zz', ['listen', 'ca'], undefined],
    ['constructor', ['listen', 'ca'], undefined],
    ['x'.repeat(10_000), ['listen'], undefined],
  ])('reads an unknown key as the one that is meant, row %#', (unknown, known, meant) => {
    expect(suggestKey(unknown, known)).toBe(meant);
  });
});

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
