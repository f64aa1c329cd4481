import { describe, expect, it } from 'vitest';
import { suggestKey } from '../../src/config/spelling.ts';

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
