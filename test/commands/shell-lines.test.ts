// Twin of src/commands/shell-lines.ts.
import { execFileSync } from 'node:child_process';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { envFileLine, shellLine } from '../../src/commands/shell-lines.ts';

const variable = fc.string({ unit: 'binary', maxLength: 60 }).filter((text) => !text.includes('\0'));
const nasty = fc.array(
  fc.constantFrom("'", '"', '\\', '`', '$(x)', '$HOME', '!', '\n', '\r', ' ', ';', '%', '#', '\u2019', 'a'),
  { maxLength: 20 },
);
const value = fc.oneof(
  variable,
  nasty.map((parts) => parts.join('')),
);

describe('shell lines', () => {
  it('come back from bash exactly as they went in, whatever they hold', () => {
    fc.assert(
      fc.property(fc.array(value, { minLength: 1, maxLength: 40 }), (values) => {
        const script = values.map((each, index) => shellLine('bash', `V${index}`, each)).join('\n');
        const print = values.map((_each, index) => `printf '%s\\0' "$V${index}"`).join('\n');
        const output = execFileSync('bash', ['--norc', '-c', `${script}\n${print}`], { encoding: 'utf8', env: { LC_ALL: 'C' } });
        expect(output.split('\0').slice(0, -1)).toEqual(values);
      }),
      { numRuns: 25 },
    );
  });

  it('are exported by bash', () => {
    const script = `${shellLine('bash', 'HERE', "it's")}\nexec env`;
    expect(execFileSync('bash', ['--norc', '-c', script], { encoding: 'utf8' })).toContain("HERE=it's\n");
  });

  it.each([
    { name: 'plain text for fish', line: shellLine('fish', 'A', 'x y'), wanted: "set -gx A 'x y'" },
    { name: 'quotes and backslashes for fish', line: shellLine('fish', 'A', "a'b\\c"), wanted: "set -gx A 'a\\'b\\\\c'" },
    { name: 'plain text for PowerShell', line: shellLine('powershell', 'A', 'x $y'), wanted: "$Env:A = 'x $y'" },
    { name: 'the plain quote for PowerShell', line: shellLine('powershell', 'A', "a'b"), wanted: "$Env:A = 'a''b'" },
    {
      name: 'the typographic quotes for PowerShell',
      line: shellLine('powershell', 'A', '\u2018\u2019\u201a\u201b\u201c'),
      wanted: "$Env:A = '\u2018\u2018\u2019\u2019\u201a\u201a\u201b\u201b\u201c'",
    },
    { name: 'an env file line without quotes', line: envFileLine('A', "x 'y' #z"), wanted: "A=x 'y' #z" },
  ])('write $name', ({ line, wanted }) => {
    expect(line).toBe(wanted);
  });

  it.each([
    { name: 'a NUL', make: () => shellLine('bash', 'A', 'a\0b'), message: /NUL/ },
    { name: 'a name that is none', make: () => shellLine('bash', 'A;rm', ''), message: /not the name of a variable/ },
    { name: 'a line break in an env file', make: () => envFileLine('A', 'a\nB=c'), message: /line break/ },
  ])('refuse $name', ({ make, message }) => {
    expect(make).toThrow(message);
  });
});
