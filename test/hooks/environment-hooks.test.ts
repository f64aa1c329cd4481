import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { leadCommand, openEnvironmentHooks, readEnvironmentHooks } from '../../src/hooks/environment-hooks.ts';
import type { EnvironmentFile, EnvironmentHooks } from '../../src/hooks/environment-hooks.ts';
import { createHooks } from '../../src/hooks/index.ts';

const ROOT = '/tmp/sallyport-hooks-x';

const hooksFile = (command: string, more: object = {}): EnvironmentFile => ({
  target: '.agents/hooks.json',
  content: JSON.stringify({
    gate: { pre_tool_execution: [{ matcher: '*', hooks: [{ type: 'command', command, ...more }] }] },
  }),
});

const opened: EnvironmentHooks[] = [];
function open(files: readonly EnvironmentFile[]): EnvironmentHooks & { readonly root: string } {
  const hooks = openEnvironmentHooks('env_1', files);
  opened.push(hooks);
  return { ...hooks, root: hooks.hooks.rules[0]?.root ?? '' };
}

afterEach(() => {
  for (const each of opened.splice(0)) each.close();
});

describe('a command', () => {
  it.each([
    { name: 'a script', text: 'python3 /.agents/gate.py', led: `python3 ${ROOT}/.agents/gate.py` },
    { name: 'a program', text: '/.agents/gate', led: `${ROOT}/.agents/gate` },
    { name: 'a quoted path', text: `sh -c '"/.agents/a b.sh"'`, led: `sh -c '"${ROOT}/.agents/a b.sh"'` },
    { name: 'an option', text: 'x --config=/.agents/c.json', led: `x --config=${ROOT}/.agents/c.json` },
    { name: 'a folder', text: 'cd /.agents && ls /.agents/', led: `cd ${ROOT}/.agents && ls ${ROOT}/.agents/` },
    { name: 'several', text: 'a /.agents/1;b </.agents/2', led: `a ${ROOT}/.agents/1;b <${ROOT}/.agents/2` },
    {
      name: 'a list of paths',
      text: 'PYTHONPATH=/.agents/a:/.agents/b x',
      led: `PYTHONPATH=${ROOT}/.agents/a:${ROOT}/.agents/b x`,
    },
    { name: 'a substitution', text: 'x $(cat /.agents/n) `/.agents/m`', led: `x $(cat ${ROOT}/.agents/n) \`${ROOT}/.agents/m\`` },
  ])('is led to the private folder: $name', ({ text, led }) => {
    expect(leadCommand(text, ROOT)).toBe(led);
  });

  it.each([
    { name: "the workspace's own folder", text: 'python3 /workspace/.agents/gate.py' },
    { name: 'a relative path, which begins in the private folder anyway', text: 'python3 .agents/gate.py' },
    { name: 'a home', text: 'cat ~/.agents/x' },
    { name: 'a variable before it', text: 'cat $HOME/.agents/x ${HOME}/.agents/x' },
    { name: 'a longer name', text: 'cat /.agents-old/x /.agents.bak /.agentsx' },
    { name: 'a URL', text: 'curl https://x.test/.agents/y' },
  ])('stays as it is: $name', ({ text }) => {
    expect(leadCommand(text, ROOT)).toBe(text);
  });

  it('takes nothing in the name of the folder for a pattern', () => {
    expect(leadCommand('x /.agents/y', "/tmp/$&$'")).toBe("x /tmp/$&$'/.agents/y");
  });
});

describe('the folder', () => {
  it('is private, holds what lies below .agents and nothing else, and is gone when it is closed', () => {
    const hooks = open([
      hooksFile('python3 /.agents/scripts/gate.py'),
      { target: '.agents/scripts/gate.py', content: '#!/usr/bin/env python3\n' },
      { target: '.agents/data.bin', content: Buffer.from([0, 255]).toString('base64'), encoding: 'base64' },
      { target: 'workspace/secret.json', content: '{}' },
    ]);
    expect(statSync(hooks.root).mode & 0o777).toBe(0o700);
    expect(readdirSync(hooks.root)).toEqual(['.agents']);
    expect(statSync(join(hooks.root, '.agents/scripts/gate.py')).mode & 0o777).toBe(0o700);
    expect(statSync(join(hooks.root, '.agents/data.bin')).mode & 0o777).toBe(0o600);
    expect(readFileSync(join(hooks.root, '.agents/data.bin'))).toEqual(Buffer.from([0, 255]));
    hooks.close();
    hooks.close();
    expect(existsSync(hooks.root)).toBe(false);
  });

  it.each(['.agents/../../up', '.agents//x', '.agents/./x'])('is not left by "%s", and nothing stays behind', (target) => {
    const before = new Set(readdirSync('/tmp').filter((name) => name.startsWith('sallyport-hooks-')));
    expect(() => open([hooksFile('true'), { target, content: '' }])).toThrow('leads out of its folder');
    const after = readdirSync('/tmp').filter((name) => name.startsWith('sallyport-hooks-') && !before.has(name));
    expect(after).toEqual([]);
  });
});

describe('the hooks', () => {
  it('are none where the environment has no hooks.json', () => {
    expect(open([{ target: '.agents/other.json', content: '{}' }]).hooks).toEqual({ files: [], rules: [], problems: [] });
    expect(open([]).hooks.rules).toEqual([]);
  });

  it('say what is wrong with the file by its place in the environment, and are none then', () => {
    const { hooks, close } = openEnvironmentHooks('env_1', [{ target: '.agents/hooks.json', content: '{ "gate": ' }]);
    close();
    expect(hooks.rules).toEqual([]);
    expect(hooks.problems).toMatchObject([{ file: '/environments/env_1/.agents/hooks.json', severity: 'error' }]);
  });

  it('warn of a script that is no source', () => {
    const { hooks } = open([hooksFile('python3 /.agents/gate.py'), { target: '.agents/gates.py', content: '' }]);
    expect(hooks.problems).toMatchObject([
      { severity: 'warning', message: expect.stringContaining('"/.agents/gate.py"') as string },
    ]);
    expect(open([hooksFile('ls /.agents/a'), { target: '.agents/a/b', content: '' }]).hooks.problems).toEqual([]);
  });

  it('are read as they were written, and no folder is made, where they are only looked at', () => {
    const folders = (): string[] => readdirSync('/tmp').filter((name) => name.startsWith('sallyport-hooks-'));
    const before = new Set(folders());
    const files = [hooksFile('python3 /.agents/gate.py'), { target: '.agents/../../up', content: '' }];
    const { rules, problems, files: read } = readEnvironmentHooks('env_1', files);
    expect(folders().filter((name) => !before.has(name))).toEqual([]);
    expect(rules).toMatchObject([{ handlers: [{ command: 'python3 /.agents/gate.py' }] }]);
    expect(rules[0]).not.toHaveProperty('root');
    expect(problems).toMatchObject([{ severity: 'warning' }]);
    expect(read).toEqual([{ path: '/environments/env_1/.agents/hooks.json', dialect: 'managed' }]);
  });

  it('run in the private folder, by path and relative to it, with arguments led there too', async () => {
    const script = '#!/bin/sh\nprintf \'{"decision":"deny","reason":"%s"}\' "$(pwd) $1"\n';
    for (const [command, more] of [
      ['/.agents/gate.sh one', {}],
      ['.agents/gate.sh one', {}],
    ] as const) {
      const kept = open([hooksFile(command, more), { target: '.agents/gate.sh', content: script }]);
      const hooks = createHooks({ hooks: kept.hooks, workspace: '/', env: { PATH: process.env['PATH'] } });
      const { output } = await hooks.run('pre_tool_execution', { tool_call: { name: 'code_execution', args: {} } });
      expect(output['reason']).toBe(`${kept.root} one`);
      await hooks.close();
    }
  });
});
