import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LARGEST_FILE } from '../../src/hooks/hook-file.ts';
import { loadHooks } from '../../src/hooks/load-hooks.ts';

let root = '';
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'hooks-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function put(path: string, content: unknown): string {
  const file = join(root, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, typeof content === 'string' || Buffer.isBuffer(content) ? content : JSON.stringify(content));
  return file;
}

const managed = (group: string): object => ({
  [group]: { pre_tool_execution: [{ matcher: '*', hooks: [{ type: 'command', command: 'true' }] }] },
});
const desktop = (group: string): object => ({ [group]: { Stop: [{ command: 'true' }] } });
const settings = { hooks: { PreToolUse: [{ hooks: [{ type: 'command', command: 'true' }] }] } };
const load = (more: object = {}) => loadHooks({ workspace: join(root, 'repo/a/b'), home: join(root, 'home'), ...more });
const groups = (more: object = {}): string[] => load(more).rules.map(({ group }) => group);

describe('finding hooks files', () => {
  it('merges home, plugins, and every folder from the root of the repository down, in that order', () => {
    put('repo/.git/HEAD', '');
    put('.agents/hooks.json', managed('outside'));
    put('repo/a/b/_agent/hooks.json', managed('b-_agent'));
    put('repo/a/b/_agents/hooks.json', managed('b-_agents'));
    put('repo/a/b/.agent/hooks.json', managed('b-.agent'));
    put('repo/a/b/.agents/hooks.json', managed('b'));
    put('repo/a/b/c/.agents/hooks.json', managed('below'));
    put('repo/a/.agents/hooks.json', desktop('a'));
    put('repo/.agents/hooks.json', managed('repo'));
    put('home/.gemini/config/hooks.json', desktop('home'));
    const plugins = [put('p2/hooks.json', managed('p2')), put('p1/hooks.json', desktop('p1'))];
    expect(groups({ plugins })).toEqual(['home', 'p2', 'p1', 'repo', 'a', 'b', 'b-.agent', 'b-_agents', 'b-_agent']);
    expect(load({ plugins }).files.slice(0, 2)).toEqual([
      { path: join(root, 'home/.gemini/config/hooks.json'), dialect: 'desktop' },
      { path: join(root, 'p2/hooks.json'), dialect: 'managed' },
    ]);
  });

  it('looks only into the workspace where there is no repository', () => {
    put('repo/a/.agents/hooks.json', managed('a'));
    put('repo/a/b/.agents/hooks.json', managed('b'));
    expect(groups()).toEqual(['b']);
  });

  it('takes a .git file for the root of a repository too', () => {
    put('repo/a/.git', 'gitdir: elsewhere');
    put('repo/.agents/hooks.json', managed('repo'));
    put('repo/a/.agents/hooks.json', managed('a'));
    expect(groups()).toEqual(['a']);
  });

  it('reads a file once that is reached twice, at its first place', () => {
    const file = put('shared/hooks.json', managed('shared'));
    mkdirSync(join(root, 'repo/a/b/.agents'), { recursive: true });
    symlinkSync(file, join(root, 'repo/a/b/.agents/hooks.json'));
    symlinkSync(join(root, 'repo/a/b/.agents'), join(root, 'repo/a/b/.agent'));
    expect(groups({ plugins: [file, file] })).toEqual(['shared']);
    expect(groups()).toEqual(['shared']);
  });

  it('reads the files that are named and looks for no other', () => {
    put('repo/a/b/.agents/hooks.json', managed('b'));
    const file = put('settings.json', settings);
    expect(load({ files: [file] })).toMatchObject({
      files: [{ path: file, dialect: 'settings' }],
      rules: [{ group: 'hooks' }],
      problems: [],
    });
    expect(load({ files: ['../../../settings.json'] }).rules).toHaveLength(1);
    expect(load({ files: [] })).toEqual({ files: [], rules: [], problems: [] });
  });

  it('finds nothing where there is nothing', () => {
    expect(load()).toEqual({ files: [], rules: [], problems: [] });
    expect(loadHooks({ workspace: join(root, 'none') })).toEqual({ files: [], rules: [], problems: [] });
    put('repo/a/b/.agents', 'a file where a folder could be');
    expect(load()).toEqual({ files: [], rules: [], problems: [] });
  });
});

describe('a hooks file that cannot be used', () => {
  const only = (content: unknown, more: object = {}) => {
    const file = put('repo/a/b/.agents/hooks.json', content);
    const set = load(more);
    expect(set.files.map(({ path }) => path)).toEqual([file]);
    expect(set.problems.every((problem) => problem.file === file)).toBe(true);
    return { ...set, said: set.problems.map(({ severity, path, message }) => `${severity} ${path}: ${message}`) };
  };

  it.each<[string, unknown, RegExp, string]>([
    ['is not JSON', 'hooks:\n  - x', /^error : line 1, column 1: no JSON value begins here/, 'M13'],
    [
      'has a trailing comma',
      '{\n  "g": {\n    "pre_tool_execution": [],\n  }\n}',
      /^error : line 3, column 29: a comma stands before/,
      'M13',
    ],
    ['has a comment', '{\n  // mine\n}', /^error : line 2, column 3: JSON has no comments/, 'M13'],
    ['is empty', '', /^error : is empty; write \{\}/, 'M13'],
    ['has only blanks', ' \n', /^error : is empty/, 'M13'],
    ['is a list', '[]', /^error : must be an object; it is a list/, 'M13'],
    ['is null', 'null', /^error : must be an object; it is null/, 'M13'],
    [
      'has no event',
      { g: { enabled: true } },
      /^error : no group holds an event; write .* with the events of one dialect \(managed: pre_tool_execution/,
      'M13',
    ],
    [
      'has an unknown event alone',
      { g: { preToolExecution: [] } },
      /^error g\.preToolExecution: unknown event; did you mean "pre_tool_execution"/,
      'M13',
    ],
    [
      'has an event of Gemini CLI',
      { g: { BeforeTool: [] } },
      /^error g\.BeforeTool: unknown event; did you mean "PreToolUse"/,
      'M13',
    ],
    ['has its events at the top', { PreToolUse: [] }, /^error PreToolUse: this event stands outside of a group/, 'M13'],
    [
      'mixes dialects in a group',
      { g: { pre_tool_execution: [], PreToolUse: [] } },
      /^error : mixes the dialects managed and desktop/,
      'M13',
    ],
    ['mixes dialects', { ...settings, ...desktop('g') }, /^error : mixes the dialects desktop and settings/, 'M13'],
    ['is larger than 1 MiB', Buffer.alloc(LARGEST_FILE + 1, ' '), /^error : is larger than 1 MiB/, ''],
    ['is not UTF-8', Buffer.from([0x7b, 0xff, 0x7d]), /^error : is not UTF-8/, ''],
    ['is nested without end', `{"g":${'['.repeat(5000)}${']'.repeat(5000)}}`, /nested deeper/, ''],
    [
      'has a wrong shape',
      { g: { pre_tool_execution: [{ hooks: [{ type: 'Command', command: 'x' }] }] } },
      /^error g\.pre_tool_execution\[0\]\.hooks\[0\]\.type: /,
      'M13',
    ],
  ])('%s', (_, content, says, fault) => {
    const { said, rules } = only(content);
    expect(said, fault).toEqual([expect.stringMatching(says)]);
    expect(rules).toEqual([]);
  });

  it('has a group or a key twice, which would silently hide the first', () => {
    const { said, rules, problems } = only(
      '{"g":{"pre_tool_execution":[]},\n"g":{"enabled":false,"enabled":true,"pre_tool_execution":[]}}',
    ); // M13
    expect(problems).toHaveLength(2);
    expect(said).toEqual([
      'error g: line 2: this key stands twice, first in line 1; keep one of them',
      'error g.enabled: line 2: this key stands twice, first in line 2; keep one of them',
    ]);
    expect(rules).toEqual([]);
  });

  it('keeps its rules where there are only warnings', () => {
    const { said, rules } = only({ g: { pre_tool_execution: [{ matcher: '*_file', hooks: [] }] } });
    expect(said).toEqual([expect.stringMatching(/^warning g\.pre_tool_execution\[0\]\.matcher: matches no tool/)]);
    expect(rules).toHaveLength(1);
  });

  it('takes nothing from the rules of the others', () => {
    put('home/.gemini/config/hooks.json', managed('home'));
    put('repo/a/b/.agents/hooks.json', '{');
    expect(groups()).toEqual(['home']);
  });

  it('is a folder, or a pipe that would be waited for', () => {
    mkdirSync(join(root, 'repo/a/b/.agents/hooks.json'), { recursive: true });
    expect(load().problems).toMatchObject([{ severity: 'error', message: 'is not a regular file' }]);
    rmSync(join(root, 'repo/a/b/.agents/hooks.json'), { recursive: true });
    execFileSync('mkfifo', [join(root, 'repo/a/b/.agents/hooks.json')]);
    expect(load().problems).toMatchObject([{ severity: 'error', message: 'is not a regular file' }]);
  });

  it('is a link that leads in a circle', () => {
    mkdirSync(join(root, 'repo/a/b/.agents'), { recursive: true });
    symlinkSync('hooks.json', join(root, 'repo/a/b/.agents/hooks.json'));
    expect(load().problems).toMatchObject([
      { severity: 'error', message: expect.stringMatching(/cannot be read \(ELOOP\)/) as string },
    ]);
  });

  it('is named and not there', () => {
    expect(load({ files: ['/none/settings.json'] }).problems).toMatchObject([
      { file: '/none/settings.json', severity: 'error', message: 'is not there; create it, or do not name it' },
    ]);
    expect(load({ plugins: ['/none/hooks.json'] }).problems).toHaveLength(1);
  });
});

describe('the dialect of a file', () => {
  it.each([
    ['managed', managed('g'), 'managed'],
    ['desktop', desktop('g'), 'desktop'],
    ['settings', settings, 'settings'],
    ['none, for an empty object', {}, undefined],
    ['settings, for no hooks at all', { hooks: {} }, 'settings'],
    ['managed, for a file of exactly 1 MiB', JSON.stringify(managed('g')).padEnd(LARGEST_FILE, ' '), 'managed'],
    ['managed, after a byte order mark', `\uFEFF${JSON.stringify(managed('g'))}`, 'managed'],
  ])('is %s', (_, content, dialect) => {
    put('repo/a/b/.agents/hooks.json', content);
    const set = load();
    expect(set.files).toMatchObject([{ dialect }]);
    expect(set.problems).toEqual([]);
  });

  it('is the forced one, and then a file of another is wrong', () => {
    put('repo/a/b/.agents/hooks.json', managed('g'));
    expect(load({ dialect: 'managed' }).rules).toHaveLength(1);
    const { rules, problems } = load({ dialect: 'desktop' });
    expect(rules).toEqual([]);
    expect(problems).toMatchObject([{ path: 'g.pre_tool_execution', severity: 'error' }]);
  });
});
