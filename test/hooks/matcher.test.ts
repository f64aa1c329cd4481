import { describe, expect, it } from 'vitest';
import { listOrSearchMatcher, wholeMatcher } from '../../src/hooks/matcher.ts';

interface Row {
  readonly source: string | undefined;
  readonly hits: readonly string[];
  readonly misses: readonly string[];
  readonly fault?: string;
}

const whole: readonly Row[] = [
  { source: undefined, hits: ['view_file', 'x'], misses: [], fault: 'M10' },
  { source: '', hits: ['view_file', 'x'], misses: [], fault: 'M10' },
  { source: '*', hits: ['view_file', 'x'], misses: [], fault: 'M10' },
  { source: '.*', hits: ['view_file', 'x', 'a\nb'], misses: [], fault: 'M10' },
  { source: 'code_execution', hits: ['code_execution'], misses: ['code_execution_x', 'xcode_execution', 'Code_execution', ''] },
  {
    source: '.*_file',
    hits: ['view_file', 'write_to_file', 'delete_file'],
    misses: ['replace_file_content', 'list_dir', '_files'],
  },
  {
    source: 'view_file|write_to_file',
    hits: ['view_file', 'write_to_file'],
    misses: ['view_files', 'aview_file', 'view_file|write_to_file'],
  },
  { source: 'browser_.*', hits: ['browser_', 'browser_open'], misses: ['xbrowser_open', 'browse'] },
  { source: 'Bash', hits: ['Bash'], misses: ['BashOutput', 'bash', 'Bash\n'], fault: 'M10' },
  { source: 'bash', hits: ['bash'], misses: ['Bash'], fault: 'M10' },
  { source: 'mcp__(a|b)_.*', hits: ['mcp__a_x'], misses: ['mcp__c_x', 'mcp__github__x-y'], fault: 'M10' },
  { source: '(?i)bash', hits: ['Bash', 'bash'], misses: ['bash2'] },
  { source: 'Bash(git *)', hits: ['Bashgit'], misses: ['Bash', 'Bash(git status)'], fault: 'M10' },
];

const search: readonly Row[] = [
  { source: undefined, hits: ['Bash'], misses: [], fault: 'M10' },
  { source: '', hits: ['Bash'], misses: [], fault: 'M10' },
  { source: '*', hits: ['Bash'], misses: [], fault: 'M10' },
  { source: 'Bash', hits: ['Bash'], misses: ['BashOutput', 'bash'], fault: 'M10' },
  { source: 'Edit|Write', hits: ['Edit', 'Write'], misses: ['NotebookEdit', 'Edit|Write', ''], fault: 'M10' },
  { source: 'Edit, Write', hits: ['Edit', 'Write'], misses: [' Write', 'MultiEdit'] },
  { source: 'mcp__github__x-y', hits: ['mcp__github__x-y'], misses: ['mcp__github__x-yz'] },
  { source: 'Edit.*', hits: ['Edit', 'NotebookEdit', 'Editor'], misses: ['Write'] },
  { source: '^Notebook', hits: ['NotebookEdit'], misses: ['MyNotebook'] },
  { source: 'Edit$', hits: ['NotebookEdit'], misses: ['Editor'] },
  { source: 'mcp__(a|b)_.*', hits: ['mcp__a_x', 'xmcp__b_'], misses: ['mcp__c_x'], fault: 'M10' },
  { source: 'Write|Edit.', hits: ['xWritex', 'Editx'], misses: ['Edit'] },
];

describe.each([
  ['wholeMatcher', wholeMatcher, whole],
  ['listOrSearchMatcher', listOrSearchMatcher, search],
] as const)('%s', (_, make, rows) => {
  it.each(rows)('reads $source', ({ source, hits, misses }) => {
    const matcher = make(source);
    expect(matcher).toMatchObject({ source, problem: undefined });
    expect(hits.filter((tool) => !matcher.matches(tool))).toEqual([]);
    expect(misses.filter((tool) => matcher.matches(tool))).toEqual([]);
  });

  it.each([
    ['a glob', '*_file', 'view_file'],
    ['a lookahead', '(?=x)', 'x'],
    ['an open bracket', '[', '['],
    ['a parenthesis that closes our own group', 'a)|(?:b', 'a'],
    ['a back-reference', '(a)\\1', 'aa'],
  ])('matches nothing by %s, and says why', (__, source, tool) => {
    const matcher = make(source);
    expect(matcher.problem).toContain(source); // M10
    expect(matcher.matches(tool)).toBe(false);
  });

  it('takes linear time for (a+)+$ against a name of 50 kB', () => {
    const matcher = make('(a+)+$');
    const started = performance.now();
    expect(matcher.matches(`${'a'.repeat(50_000)}!`)).toBe(false); // M10
    expect(matcher.matches('a'.repeat(50_000))).toBe(true);
    expect(performance.now() - started).toBeLessThan(1000);
  });
});

describe('listOrSearchMatcher', () => {
  it.each([' ', '|', ', ,'])('matches nothing by a list without a name, "%s"', (source) => {
    const matcher = listOrSearchMatcher(source);
    expect(matcher.problem).toBe('names no tool');
    expect(matcher.matches('')).toBe(false);
  });
});
