import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DEEPEST, isTooDeep, readJson } from '../../src/hooks/json-text.ts';

interface Broken {
  readonly name: string;
  readonly text: string;
  readonly line: number;
  readonly column: number;
  readonly says: RegExp;
}

const broken: readonly Broken[] = [
  { name: 'a comma before a brace', text: '{\n  "a": 1,\n}', line: 2, column: 9, says: /comma stands before the closing/ }, // M13
  { name: 'a comma before a bracket', text: '[1,2, ]', line: 1, column: 5, says: /comma stands before the closing/ }, // M13
  { name: 'a missing comma', text: '{"a": 1\n "b": 2}', line: 2, column: 2, says: /a comma or "}" is missing/ },
  { name: 'a missing colon', text: '{"a" 1}', line: 1, column: 6, says: /colon/ },
  { name: 'a comment', text: '{\n// why\n"a": 1}', line: 2, column: 1, says: /no comments/ },
  { name: 'a comment before a value', text: '{"a": # x\n1}', line: 1, column: 7, says: /no comments/ },
  { name: 'single quotes', text: "{'a': 1}", line: 1, column: 2, says: /single quotes/ },
  { name: 'a key without quotes', text: '{a: 1}', line: 1, column: 2, says: /key in double quotes/ },
  { name: 'a word of another language', text: '{"a": None}', line: 1, column: 7, says: /no JSON value/ },
  { name: 'a word that begins like one of JSON', text: '[truely]', line: 1, column: 2, says: /no JSON value/ },
  { name: 'an end inside an object', text: '{\n"a": {"b": 1', line: 2, column: 13, says: /bracket of line 2/ },
  { name: 'an end after an opening bracket', text: '[', line: 1, column: 2, says: /bracket of line 1/ },
  { name: 'an end inside a text', text: '{"a": "b', line: 1, column: 7, says: /closing double quote/ },
  { name: 'a line break inside a text', text: '{"a": "b\nc"}', line: 1, column: 9, says: /line break/ },
  { name: 'an escape that there is not', text: '["\\x41"]', line: 1, column: 2, says: /escape/ },
  { name: 'a second value', text: '{"a":1}\n{"b":2}', line: 2, column: 1, says: /something follows/ }, // M09
  { name: 'nothing', text: ' \n', line: 2, column: 1, says: /empty/ },
  { name: 'a number that begins with 0', text: '[01]', line: 1, column: 3, says: /a comma or "]" is missing/ },
  { name: 'a nesting without end', text: '['.repeat(100_000), line: 1, column: DEEPEST + 2, says: /nested deeper/ },
];

describe('readJson', () => {
  it.each(broken)('tells line and column of $name', ({ text, line, column, says }) => {
    expect(readJson(text)).toEqual({ problem: expect.stringMatching(says) as string, line, column });
  });

  it('reads a text after a byte order mark', () => {
    expect(readJson('\uFEFF{"a": 1}')).toMatchObject({ value: { a: 1 } });
  });

  it.each([
    ['a key twice in one object', '{"a":1,\n"a":2}', [{ path: 'a', line: 2, firstLine: 1 }]],
    ['a key twice, once written as an escape', '{"a":1,"\\u0061":2}', [{ path: 'a', line: 1, firstLine: 1 }]],
    ['keys deep inside', '{"g":[{"x":1},\n{"b c":1,\n"b c":2}]}', [{ path: 'g[1]["b c"]', line: 3, firstLine: 2 }]],
    [
      'a key three times',
      '{"a":1,"a":2,\n"a":3}',
      [
        { path: 'a', line: 1, firstLine: 1 },
        { path: 'a', line: 2, firstLine: 1 },
      ],
    ],
    ['one key in two objects', '{"a":{"x":1},"b":{"x":1}}', []],
    ['a key in another case', '{"a":1,"A":2}', []],
    ['the key __proto__', '{"__proto__":1,"__proto__":2}', [{ path: '__proto__', line: 1, firstLine: 1 }]],
  ])('finds %s', (_, text, duplicates) => {
    expect(readJson(text)).toMatchObject({ duplicates }); // M13
  });

  it('takes what JSON.parse takes, and nothing else', () => {
    const near = fc
      .tuple(fc.json(), fc.nat(), fc.constantFrom('', ',', '}', '"', '\\', '0', '\n', ' '))
      .map(([text, place, mark]) => {
        const at = place % (text.length + 1);
        return text.slice(0, at) + mark + text.slice(at + (mark === '' ? 1 : 0));
      });
    fc.assert(
      fc.property(near, (text) => {
        let parsed: { value: unknown } | undefined;
        try {
          parsed = { value: JSON.parse(text) };
        } catch {
          parsed = undefined;
        }
        const read = readJson(text);
        if (parsed === undefined) expect(read).toHaveProperty('problem');
        else expect(read).toHaveProperty('value', parsed.value);
      }),
      { numRuns: 2000 },
    );
  });

  it('never repeats the text in what it says', () => {
    for (const text of ['{"a": s3cret}', '{"s3cret" 1}', '["s3cret', '{s3cret: 1}', '[1] s3cret']) {
      const read = readJson(text);
      expect(read).toHaveProperty('problem');
      expect(JSON.stringify(read)).not.toContain('s3cret');
    }
  });
});

describe('isTooDeep', () => {
  const nested = (levels: number): unknown => JSON.parse('['.repeat(levels) + ']'.repeat(levels));
  it.each([
    [1, false],
    [DEEPEST + 1, false],
    [DEEPEST + 2, true],
    [50_000, true],
  ])('answers for %i levels %s', (levels, deep) => {
    expect(isTooDeep(nested(levels))).toBe(deep);
  });
});
