import { describe, expect, it } from 'vitest';
import { compilePattern } from '../../src/foundation/pattern.ts';

function matches(source: string, text: string): boolean {
  const compiled = compilePattern(source);
  if ('problem' in compiled) throw new Error(compiled.problem);
  return compiled.matches(text);
}

describe('compilePattern', () => {
  it.each([
    { name: 'the whole text', pattern: '/v1/models', text: '/v1/models', fits: true },
    { name: 'a prefix of the text', pattern: '/v1', text: '/v1/models', fits: false },
    { name: 'a suffix of the text', pattern: '/models', text: '/v1/models', fits: false },
    { name: 'the first branch, whole', pattern: '/a|/b', text: '/a', fits: true, fault: 'B02' },
    { name: 'the first branch, with more behind', pattern: '/a|/b', text: '/a/x', fits: false, fault: 'B02' },
    { name: 'the last branch, with more before', pattern: '/a|/b', text: '/x/b', fits: false, fault: 'B02' },
    { name: 'a branch anchored at its start alone', pattern: '^/api|/www$', text: '/api/evil', fits: false, fault: 'B02' },
    { name: 'a branch anchored at its end alone', pattern: '^/api|/www$', text: '/evil/www', fits: false, fault: 'B02' },
    { name: 'a shorter branch that comes first', pattern: '/a|/ab', text: '/ab', fits: true },
    { name: 'a line of the text, under (?m)', pattern: '(?m)^/a$', text: '/x\n/a', fits: false, fault: 'B02' },
    { name: 'the first line of the text, under (?m)', pattern: '(?m)/a$', text: '/a\n/x', fits: false, fault: 'B02' },
    { name: 'all but a line break at the end', pattern: '/a', text: '/a\n', fits: false, fault: 'B02' },
    { name: 'another case', pattern: '/a', text: '/A', fits: false },
    { name: 'another case, under (?i)', pattern: '(?i)/a', text: '/A', fits: true },
    { name: 'a flag that ends with its branch', pattern: '(?i:/a)|/b', text: '/B', fits: false },
    { name: 'an anchored pattern', pattern: '^/a/.*$', text: '/a/b', fits: true },
    { name: 'a quoted literal with a slash', pattern: '\\Q/a.b\\E', text: '/a.b', fits: true },
    { name: 'what only the dot unquoted would', pattern: '\\Q/a.b\\E', text: '/axb', fits: false },
    { name: 'a quotation without end', pattern: '\\Q/a)', text: '/a)', fits: true },
    { name: 'more than a quotation without end', pattern: '\\Q/a', text: '/a)$', fits: false },
    { name: 'a backslash before a Q', pattern: '/\\\\Q.', text: '/\\Qx', fits: true },
    { name: 'an escaped slash', pattern: '\\/a\\/b', text: '/a/b', fits: true },
    { name: 'a named group', pattern: '/(?P<id>[0-9]+)', text: '/42', fits: true },
    { name: 'a Unicode class', pattern: '/\\pL+', text: '/\u00e9a', fits: true },
    { name: 'nothing, under the empty pattern', pattern: '', text: '/', fits: false },
  ])('$pattern fits $name: $fits', ({ pattern, text, fits }) => {
    expect(matches(pattern, text)).toBe(fits);
  });

  it.each([
    { name: 'a parenthesis that would close the group around it', pattern: '/a)|(.*' },
    { name: 'an open class', pattern: '/[' },
    { name: 'a lookahead, which RE2 has not', pattern: '(?=/a)' },
    { name: 'a backreference, which RE2 has not', pattern: '(a)\\1' },
    { name: 'a repetition too large', pattern: 'a{2000}' },
  ])('refuses $name', ({ pattern }) => {
    expect(compilePattern(pattern)).toHaveProperty('problem', expect.stringContaining('is not an RE2 pattern'));
  });

  it('reads a text that hangs a backtracking engine in linear time', () => {
    expect(matches('(/a+)+b', `/${'a'.repeat(16_000)}`)).toBe(false);
  });

  it('gives the same answer each time it is asked', () => {
    const compiled = compilePattern('/a');
    if ('problem' in compiled) throw new Error(compiled.problem);
    expect([1, 2, 3].map(() => compiled.matches('/a'))).toEqual([true, true, true]);
    expect(compiled.source).toBe('/a');
  });
});
