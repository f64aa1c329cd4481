import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readTools } from '../../src/hooks/tools.ts';
import type { ReadTools } from '../../src/hooks/tools.ts';

let home: string;
let file: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'hook-tools-'));
  file = join(home, 'tools.json');
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

function read(value: unknown): ReadTools {
  writeFileSync(file, typeof value === 'string' ? value : JSON.stringify(value));
  return readTools(file);
}

const low = { risk: 'low', unattended: true };

describe('readTools', () => {
  it('reads what is known of each tool', () => {
    const { tools, problems } = read({
      refund: {
        risk: 'high',
        unattended: false,
        visible_to: 'signed-in customers',
        facts: ['the order, read from the shop'],
        failure: 'nothing is paid',
        logged: 'the shop has a journal',
        owner: 'payments',
        before: 'the gateway asks for a second factor',
        after: 'the shop confirms by webhook',
      },
      search: low,
    });
    expect(problems).toEqual([]);
    expect([...tools.keys()]).toEqual(['refund', 'search']);
    expect(tools.get('refund')).toEqual({
      name: 'refund',
      risk: 'high',
      unattended: false,
      visibleTo: 'signed-in customers',
      facts: ['the order, read from the shop'],
      failure: 'nothing is paid',
      logged: 'the shop has a journal',
      owner: 'payments',
      before: 'the gateway asks for a second factor',
      after: 'the shop confirms by webhook',
    });
    expect(tools.get('search')).toMatchObject({ risk: 'low', unattended: true, facts: [], owner: undefined });
  });

  it('takes an empty registry', () => {
    expect(read({})).toEqual({ tools: new Map(), problems: [] });
  });

  it.each([
    { name: 'no JSON', file: '{', path: '', says: 'is not JSON at line 1, column 2: ' },
    {
      name: 'a comma too many',
      file: '{"a":{"risk":"low","unattended":true},}',
      path: '',
      says: 'a comma stands before',
      fault: 'M13',
    },
    {
      name: 'a tool that stands twice, milder the second time',
      file: '{"refund":{"risk":"high","unattended":false},\n"refund":{"risk":"low","unattended":true}}',
      path: 'refund',
      says: 'stands twice, in line 1 and in line 2',
      fault: 'M13',
    },
    { name: 'a list', file: [], path: '', says: 'must be an object, as { "my_tool": ' },
    { name: 'a tool without a name', file: { ' ': low }, path: '[" "]', says: 'must be the name of a tool' },
    { name: 'a tool as text', file: { refund: 'high' }, path: 'refund', says: 'must be an object, as { "risk": ' },
    {
      name: 'no risk',
      file: { refund: { unattended: true } },
      path: 'refund.risk',
      says: '"low", "reversible" or "high"; it is missing',
    },
    {
      name: 'a risk in another case',
      file: { refund: { ...low, risk: 'High' } },
      path: 'refund.risk',
      says: 'did you mean "high"',
    },
    { name: 'a risk of its own', file: { refund: { ...low, risk: 'medium' } }, path: 'refund.risk', says: 'it is "medium"' },
    {
      name: 'no unattended',
      file: { refund: { risk: 'low' } },
      path: 'refund.unattended',
      says: 'true or false, without quotes; it is missing',
    },
    {
      name: 'unattended as text',
      file: { refund: { ...low, unattended: 'true' } },
      path: 'refund.unattended',
      says: 'it is text',
    },
    {
      name: 'an unknown key',
      file: { refund: { ...low, visibleTo: 'all' } },
      path: 'refund.visibleTo',
      says: 'did you mean "visible_to"',
    },
    { name: 'a blank text', file: { refund: { ...low, owner: '  ' } }, path: 'refund.owner', says: 'must not be empty' },
    { name: 'null for a text', file: { refund: { ...low, failure: null } }, path: 'refund.failure', says: 'it is null' },
    {
      name: 'facts as text',
      file: { refund: { ...low, facts: 'order' } },
      path: 'refund.facts',
      says: 'must be a list, as ["the order',
    },
    {
      name: 'a fact that is no text',
      file: { refund: { ...low, facts: ['a', 1] } },
      path: 'refund.facts[1]',
      says: 'it is a number',
    },
  ])('refuses $name, with path and allowed form, and gives no tool at all', ({ file: value, path, says }) => {
    const { tools, problems } = read(value);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatchObject({ file, path, severity: 'error' });
    expect(problems[0]?.message).toContain(says);
    expect(tools.size).toBe(0);
  });

  it('tells every problem at once', () => {
    const { problems } = read({ a: { risk: 'x', owner: '' }, b: 1 });
    expect(problems.map(({ path }) => path)).toEqual(['a.risk', 'a.unattended', 'a.owner', 'b']);
  });

  it('keeps a tool called __proto__ a tool', () => {
    expect(read('{"__proto__":{"risk":"high","unattended":false}}').tools.get('__proto__')?.risk).toBe('high');
  });

  it('says why a file cannot be read', () => {
    expect(readTools(join(home, 'gone.json')).problems[0]?.message).toBe('cannot be read (ENOENT); name a readable file');
    expect(readTools(home).problems[0]?.message).toContain('cannot be read (EISDIR)');
  });
});
