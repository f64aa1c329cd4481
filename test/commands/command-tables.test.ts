// Twin of the command-table.ts of credentials, environments and store, and of resource-options.ts: the built program as an operator runs
// it, with pipes, arguments and a terminal. `npm test` builds it first.
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildCli } from '../support/cli.ts';
import { startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';

const CLI = resolve(import.meta.dirname, '../../dist/sallyport.cjs');
// What a pasted token looks like: a long run of letters and digits.
const PASTED = 'ghp_a1b2c3d4e5f6g7h8i9j0a1b2c3d4e5f6g7h8';

/** Gives a command a terminal, so that it can ask. */
const hasScript = ((): boolean => {
  try {
    return execFileSync('script', ['--version'], { encoding: 'utf8' }).includes('util-linux');
  } catch {
    return false;
  }
})();

let house: House;

beforeAll(async () => {
  await buildCli();
  house = await startHouse({});
});
afterAll(() => house.stop());

const here = (): string[] => [
  ...['--url', `http://127.0.0.1:${house.adminPort}`],
  ...['--token-file', join(house.folder, 'admin-token')],
];

interface Ran {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function run(words: readonly string[], stdin = ''): Promise<Ran> {
  const child = spawn(process.execPath, [CLI, ...words], { cwd: house.folder, env: { PATH: process.env['PATH'] } });
  let out = '';
  let err = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
  child.stdin.on('error', () => undefined).end(stdin);
  return new Promise((done) => child.once('close', (code) => done({ code, out, err })));
}

/** Runs it on a terminal; each answer is typed when its question is there. */
function onTerminal(words: readonly string[], dialogue: readonly (readonly [question: string, answer: string])[]): Promise<Ran> {
  const line = [process.execPath, CLI, ...words].map((word) => `'${word}'`).join(' ');
  const env = { PATH: process.env['PATH'], NO_COLOR: '1', TERM: 'dumb' };
  const child = spawn('script', ['-qefc', line, '/dev/null'], { cwd: house.folder, env });
  let out = '';
  const left = [...dialogue];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
    const [next] = left;
    if (next === undefined || !out.includes(next[0])) return;
    left.shift();
    child.stdin.write(`${next[1]}\r`);
  });
  return new Promise((done) => child.once('close', (code) => done({ code, out, err: '' })));
}

describe('the help', () => {
  it('lists the commands, and no option that would bear a secret', async () => {
    expect((await run(['--help'])).out).toMatch(/^ {2}credentials .*\n[^]*^ {2}environments .*\n[^]*^ {2}store /m);
    const { out } = await run(['credentials', 'create', '--help']);
    expect(out).toContain('--secret-stdin');
    expect(out).not.toMatch(/--token |--password|--value|--client-secret/);
  });

  it.each([
    { group: 'credentials', commands: ['create', 'list', 'get', 'update', 'rotate', 'delete'] },
    { group: 'environments', commands: ['create', 'list', 'get', 'update', 'rotate', 'delete'] },
    { group: 'store', commands: ['status', 'rekey'] },
  ])('of $group stands in for a missing command, with 2', async ({ group, commands }) => {
    const { code, err } = await run([group]);
    expect(code).toBe(2);
    for (const command of commands) expect(err).toMatch(new RegExp(`^ {2}${command} `, 'm'));
  });
});

describe('the built program', () => {
  it('pipes a secret in and JSON out, from the first command to the last', async () => {
    const created = await run(
      ['credentials', 'create', '--type', 'bearer_token', '--id', 'gh', '--secret-stdin', ...here()],
      PASTED,
    );
    expect([created.code, JSON.parse(created.out)]).toEqual([0, expect.objectContaining({ id: 'gh', status: 'active' })]);
    writeFileSync(join(house.folder, 'next'), PASTED);
    const rotated = await run(['credentials', 'rotate', 'gh', '--secret-file', 'next', ...here()]);
    expect([rotated.code, JSON.parse(rotated.out)]).toEqual([0, expect.objectContaining({ id: 'gh' })]);
    expect((await run(['credentials', 'get', 'gh', ...here()])).code).toBe(0);
    const status = await run(['store', 'status', '--config', 'sallyport.json']);
    expect([status.code, JSON.parse(status.out)]).toEqual([0, expect.objectContaining({ rotation: 'none' })]);
    const rekeyed = await run(['store', 'rekey', '--config', 'sallyport.json']);
    expect([rekeyed.code, JSON.parse(rekeyed.out)]).toEqual([0, expect.objectContaining({ records_sealed: 1 })]);
    expect((await run(['credentials', 'delete', 'gh', '--yes', ...here()])).code).toBe(0);
    expect((await run(['credentials', 'get', 'gh', ...here()])).code).toBe(4);
    for (const { out, err } of [created, rotated, status, rekeyed]) expect(out + err).not.toContain(PASTED);
  });

  it('makes, changes and deletes an environment', async () => {
    const created = await run(['environments', 'create', '--file', '-', ...here()], '{"network": "disabled"}');
    expect(created.code).toBe(0);
    const { id, proxy_url: url } = JSON.parse(created.out) as Record<string, string>;
    expect(url).toContain(`${id}:`);
    expect((await run(['environments', 'update', String(id), '--file', '-', ...here()], '{"network": {}}')).code).toBe(0);
    expect(JSON.parse((await run(['environments', 'rotate', String(id), ...here()])).out)).toHaveProperty('proxy_url');
    expect(JSON.parse((await run(['environments', 'list', ...here()])).out)).toMatchObject({ environments: [{ id }] });
    expect((await run(['environments', 'get', String(id), ...here()])).code).toBe(0);
    expect((await run(['environments', 'delete', String(id), '--yes', ...here()])).code).toBe(0);
  });

  it.each([
    { name: 'an option that says so', words: ['create', '--type', 'bearer_token', '--token', PASTED] },
    { name: 'an option with its value behind "="', words: ['create', `--password=${PASTED}`] },
    { name: 'an option that rotation has not', words: ['rotate', 'gh', '--refresh-token', PASTED] },
    { name: 'a word too many', words: ['create', '--type', 'bearer_token', PASTED] },
    { name: 'a word too many of a rotation', words: ['rotate', 'gh', PASTED] },
    { name: 'the id', words: ['create', '--type', 'bearer_token', '--id', PASTED] },
  ])('never takes a secret from $name, and says why', async ({ words }) => {
    const { code, out, err } = await run(['credentials', ...words, ...here()]);
    expect([code, out]).toEqual([2, '']);
    expect(err).toMatch(/^sallyport: a secret is never taken from an argument: every user of this machine sees it/);
    expect(err).not.toContain(PASTED);
  });

  it.each([
    { name: 'of create', words: ['credentials', 'create', `--tokken=${PASTED}`] },
    { name: 'of a group', words: ['credentials', `--tokken=${PASTED}`] },
    { name: 'of store', words: ['store', 'rekey', `--key=${PASTED}`] },
  ])('repeats no value of an unknown option $name', async ({ words }) => {
    const { code, err } = await run(words);
    expect(code).toBe(2);
    expect(err).toMatch(/unknown option '--(?:tokken|key)'/);
    expect(err).not.toContain(PASTED);
  });

  it('does not wait for a secret that nobody will type', async () => {
    const { code, err } = await run(['credentials', 'create', '--type', 'basic', ...here()]);
    expect([code, err]).toEqual([2, expect.stringMatching(/nobody is here to be asked/)]);
  });

  it.runIf(hasScript && existsSync(CLI))('asks a person for secrets, shows none, and asks before it deletes', async () => {
    const created = await onTerminal(
      ['credentials', 'create', '--type', 'basic', '--id', 'asked', ...here()],
      [
        ['username of "asked" (not shown): ', 'marker-user'],
        ['password of "asked" (not shown): ', PASTED],
      ],
    );
    expect(created.code).toBe(0);
    expect(created.out).toMatch(/id +│ asked/);
    expect(created.out).not.toMatch(new RegExp(`${PASTED}|marker-user`));
    const given = await onTerminal(
      ['credentials', 'rotate', 'asked', ...here()],
      [['username of "asked" (not shown; empty to leave it out): ', '\u0003']],
    );
    expect([given.code, given.out]).toEqual([1, expect.stringMatching(/nothing was sent/)]);
    const deleted = await onTerminal(['credentials', 'delete', 'asked', ...here()], [['[y/N] ', 'y']]);
    expect([deleted.code, deleted.out]).toEqual([0, expect.stringMatching(/the credential "asked" is deleted/)]);
  });
});
