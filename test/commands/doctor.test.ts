// Twin of doctor.ts, doctor/command-table.ts and doctor/probe-table.ts: options, what is printed, exit statuses; the script and the README
// hold the same probes. Nothing here leaves this machine: only probes are run that look at variables and files.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { doctor } from '../../src/commands/doctor.ts';
import type { DoctorOptions } from '../../src/commands/doctor.ts';
import { PROBE_IDS, PROBES, probeTable } from '../../src/commands/doctor/probe-table.ts';
import { buildCli, runCli } from '../support/cli.ts';
import { treeOf } from './doctor-rig.ts';
import { capture, json, temporaryFolder } from './rig.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const SCRIPT = join(ROOT, 'config', 'doctor.sh');
const HARMLESS = ['no-proxy', 'cloud-credentials'];

async function run(options: DoctorOptions, given: { terminal?: boolean; env?: NodeJS.ProcessEnv } = {}) {
  const captured = capture(temporaryFolder(), given);
  const code = await doctor(options, captured.context);
  return { ...captured, code };
}

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

function sh(words: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ran> {
  const surroundings = { PATH: process.env['PATH'], ...env };
  return new Promise((done) => {
    execFile('sh', [SCRIPT, ...words], { env: surroundings, cwd: treeOf({}) }, (error, out, err) => {
      done({ code: error === null ? 0 : Number(error.code), out, err });
    });
  });
}

describe('the table of probes', () => {
  it('is the same in the script, word for word', async () => {
    const { out } = await sh(['--list']);
    expect(out).toBe(PROBES.map(({ id, tries, remedy }) => `${id}\t${tries}\t${remedy}\n`).join(''));
  });

  it('stands in the README as it stands in code', () => {
    const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
    expect(readme).toContain(`<!-- probes: begin -->\n${probeTable()}<!-- probes: end -->`);
  });

  it('has a function of the script for each', () => {
    const script = readFileSync(SCRIPT, 'utf8');
    const functions = [...script.matchAll(/^probe_([a-z_0-9]+)\(\)/gm)].map(([, name = '']) => name.replaceAll('_', '-'));
    expect(functions.sort()).toEqual([...PROBE_IDS].sort());
  });

  it('says each remedy in one sentence', () => {
    for (const { remedy } of PROBES) expect(remedy).toMatch(/^[a-z][^.]*(?:\.[a-z0-9][^.]*)*$/);
  });
});

// The same of both.
const both = [
  {
    kind: 'the command',
    go: async (words: { only: string; skip?: string }, env: NodeJS.ProcessEnv): Promise<Ran> => {
      const { code, out, err } = await run(
        { only: [words.only], ...(words.skip === undefined ? {} : { skip: [words.skip] }) },
        { env },
      );
      return { code, out: out(), err: err() };
    },
  },
  {
    kind: 'the script',
    go: (words: { only: string; skip?: string }, env: NodeJS.ProcessEnv): Promise<Ran> =>
      sh(['--only', words.only, ...(words.skip === undefined ? [] : ['--skip', words.skip])], env),
  },
];

describe.each(both)('$kind', ({ go }) => {
  it('says in a pipe, as JSON, what is open and what closes it, and ends with 5', async () => {
    const { code, out } = await go(
      { only: HARMLESS.join(',') },
      { NO_PROXY: 'localhost,*.internal', GITHUB_TOKEN: 'never shown' },
    );
    const report = JSON.parse(out) as { probes: { id: string; remedy: string | null }[] };
    expect(code).toBe(5);
    expect(report).toMatchObject({ verdict: 'open', open: ['cloud-credentials', 'no-proxy'], unknown: [] });
    expect(report.probes.map(({ id, remedy }) => [id, remedy])).toEqual(
      PROBES.filter(({ id }) => HARMLESS.includes(id)).map(({ id, remedy }) => [id, remedy]),
    );
    expect(Object.keys(report.probes[0] ?? {})).toEqual(['id', 'result', 'tried', 'why', 'remedy']);
    expect(out).not.toContain('never shown');
  });

  it('ends with 0 where nothing is open', async () => {
    const { code, out } = await go({ only: HARMLESS.join(','), skip: 'cloud-credentials' }, { NO_PROXY: 'localhost' });
    expect([code, JSON.parse(out)]).toEqual([
      0,
      expect.objectContaining({
        verdict: 'closed',
        open: [],
        probes: [expect.objectContaining({ id: 'no-proxy', remedy: null })],
      }),
    ]);
  });

  it('ends with 1 where the door does not work', async () => {
    const { code, out } = await go({ only: 'door' }, { HTTPS_PROXY: 'http://127.0.0.1:1' });
    expect([code, JSON.parse(out)]).toEqual([1, expect.objectContaining({ verdict: 'broken', open: [] })]);
  });

  it('ends with 6 where something could not be told', async () => {
    const { code, out } = await go({ only: 'token' }, { HTTPS_PROXY: 'http://127.0.0.1:1' });
    expect([code, JSON.parse(out)]).toEqual([6, expect.objectContaining({ verdict: 'unknown', unknown: ['token'] })]);
  });

  it('shows nothing that a terminal would act on', async () => {
    const { out } = await go({ only: 'no-proxy' }, { NO_PROXY: '*\u001b[31m"\\' });
    expect(out).not.toContain('\u001b');
    expect(JSON.parse(out)).toMatchObject({ open: ['no-proxy'] });
  });

  it('takes no probe that there is not', async () => {
    const { code, out, err } = await go({ only: 'tcp' }, {});
    expect([code, out]).toEqual([2, '']);
    expect(err).toMatch(/--only: there is no probe "tcp"; there are door,? /);
  });
});

describe('the command', () => {
  it('draws a table on a terminal, with progress and remedies', async () => {
    const { code, out, err } = await run({ only: HARMLESS }, { terminal: true, env: { NO_COLOR: '1', NO_PROXY: '*' } });
    expect(code).toBe(5);
    expect(out()).toMatch(
      /no-proxy +│ open +│ NO_PROXY: "\*"[^]*-> let NO_PROXY name loopback alone[^]*1 open: there is a way past the door/,
    );
    expect(err()).toMatch(/trying 2 ways out, 3 s each, side by side[^]*2\/2/);
  });

  it('gives JSON on a terminal with --json', async () => {
    expect(json(await run({ only: ['no-proxy'], json: true }, { terminal: true }))).toMatchObject({ verdict: 'closed' });
  });

  it('prints the script', async () => {
    const { code, out } = await run({ script: true });
    expect([code, out()]).toEqual([0, readFileSync(SCRIPT, 'utf8')]);
  });

  const wrong: readonly (DoctorOptions & { readonly name: string; readonly says: RegExp })[] = [
    { name: 'a time that is none', timeout: 'soon', says: /--timeout "soon"/ },
    { name: 'no time at all', timeout: '0', says: /--timeout/ },
    { name: 'a time beyond a minute', timeout: '61', says: /up to 60/ },
    { name: 'a port that is none', adminPort: '65536', says: /--admin-port "65536"/ },
    { name: 'a place without a port', probe: ['203.0.113.7'], says: /--probe "203.0.113.7" is no host:port/ },
    { name: 'a URL that is none', allowed: 'api.github.com', says: /--allowed is no http or https URL/ },
    {
      name: 'a proxy that is none, whose token is not repeated',
      proxy: 'ftp://box:secret@p',
      says: /^(?!.*secret).*--proxy is no URL/,
    },
    { name: 'an unknown probe to skip', skip: ['door,doors'], says: /--skip: there is no probe "doors"/ },
  ];
  it.each(wrong)('refuses $name with 2', async ({ says, ...options }) => {
    const { code, err } = await run(options);
    expect(code).toBe(2);
    expect(err()).toMatch(says);
  });

  it('is in the program, with examples in its help', async () => {
    await buildCli();
    const folder = treeOf({});
    const help = await runCli(['doctor', '--help'], { folder });
    expect(help.stdout).toMatch(
      /Examples, inside a sandbox:\n {2}sallyport doctor --allowed https:[^]*docker exec -i[^]*Exit: 0 /,
    );
    const { code, stdout } = await runCli(['doctor', '--only', 'no-proxy', '--json'], { folder, env: { no_proxy: '*' } });
    expect([code, JSON.parse(stdout)]).toEqual([5, expect.objectContaining({ open: ['no-proxy'] })]);
  });
});

describe('the script', () => {
  it.each([
    { words: ['--help'], code: 0, out: /^Usage: doctor\.sh[^]*Examples:[^]*Exit: 0 / },
    { words: ['--nonsense'], code: 2, out: /^$/ },
    { words: ['--timeout', '0.5'], code: 2, out: /^$/ },
    { words: ['--only'], code: 2, out: /^$/ },
    { words: ['--probe', '203.0.113.7'], code: 2, out: /^$/ },
    { words: ['--allowed', 'example.com'], code: 2, out: /^$/ },
  ])('ends $words with $code', async ({ words, code, out }) => {
    const ran = await sh(words);
    expect(ran.code).toBe(code);
    expect(ran.out).toMatch(out);
  });

  it('finds a key beside the certificate, and an empty home well', async () => {
    const mount = treeOf({ 'public/ca.pem': '-----BEGIN CERTIFICATE-----\n', 'ca.key': '-----BEGIN PRIVATE KEY-----\n' });
    const { out } = await sh(['--only', 'ca-key,cloud-credentials'], {
      SSL_CERT_FILE: join(mount, 'public/ca.pem'),
      HOME: treeOf({}),
    });
    expect(JSON.parse(out)).toMatchObject({ open: ['ca-key'] });
  });
});
