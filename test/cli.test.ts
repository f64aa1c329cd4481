// Twin of src/cli.ts and src/sallyport.cts: the built program as a user runs it. `npm test` builds it first.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';

const CLI = resolve(import.meta.dirname, '../dist/sallyport.cjs');

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

function run(...args: string[]): Promise<Ran> {
  return new Promise((done) => {
    execFile(process.execPath, [CLI, ...args], { encoding: 'utf8', env: { PATH: process.env['PATH'] } }, (error, out, err) => {
      done({ code: error === null ? 0 : Number(error.code), out, err });
    });
  });
}

function config(content: object): { readonly folder: string; readonly file: string } {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-cli-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'sallyport.json');
  const own = {
    listen: { proxy: '127.0.0.1:0' },
    admin: { listen: '127.0.0.1:0', token: { file: join(folder, 'token') } },
    ca: { certificate: join(folder, 'public', 'ca.pem'), key: join(folder, 'ca.key') },
  };
  writeFileSync(file, JSON.stringify({ ...own, ...content }));
  return { folder, file };
}

const ALLOWS = { network: { allowlist: [{ domain: 'a.test' }] } };

describe.runIf(existsSync(CLI))('the sallyport command', () => {
  it.each(['start', 'check', 'explain', 'ca', 'env', 'demo'])('lists %s in its help', async (command) => {
    const { code, out } = await run('--help');
    expect(code).toBe(0);
    expect(out).toMatch(new RegExp(`^ {2}${command} `, 'm'));
  });

  it('tells its version', async () => {
    expect((await run('--version')).out).toMatch(/^\d+\.\d+\.\d+\n$/);
  });

  it.each([
    { name: 'no command', args: [] },
    { name: 'an unknown command', args: ['strat'] },
    { name: 'an unknown option', args: ['check', '--jsn'] },
    { name: 'a missing argument', args: ['explain', 'GET'] },
    { name: 'one argument too many', args: ['check', 'x'] },
    { name: 'an unknown shell', args: ['env', '--shell', 'cmd'] },
    { name: 'two answers at once', args: ['ca', '--path', '--pem'] },
  ])('exits 2 for $name', async ({ args }) => {
    const { code, err } = await run(...args);
    expect(code).toBe(2);
    expect(err).not.toMatch(/\n\s+at /);
  });

  it.each([
    { name: '0 for an allowed request', url: 'https://a.test/', code: 0 },
    { name: '3 for a refused one', url: 'https://b.test/', code: 3 },
  ])('exits $name', async ({ url, code }) => {
    expect((await run('explain', 'GET', url, '--config', config(ALLOWS).file)).code).toBe(code);
  });

  it('exits 78 for an invalid config, without a stack', async () => {
    const { code, err } = await run('check', '--config', config({ oops: 1 }).file);
    expect(code).toBe(78);
    expect(err).not.toMatch(/\n\s+at /);
  });

  it('says in one line what a command throws, and exits 1', async () => {
    const { folder, file } = config({});
    writeFileSync(join(folder, 'public'), '');
    const { code, err } = await run('ca', '--config', file);
    expect([code, err.trimEnd().split('\n').length]).toEqual([1, 1]);
    expect(err).toMatch(/^sallyport: cannot /);
  });

  it('plays the demo', async () => {
    const { code, out } = await run('demo', '--json');
    expect(code).toBe(0);
    expect(JSON.parse(out)).toMatchObject({ held: true });
  });

  it('takes no harm from a reader that has had enough', async () => {
    const child = spawn(process.execPath, [CLI, 'env', '--config', config({ listen: { proxy: '127.0.0.1:8080' } }).file], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let err = '';
    child.stderr.setEncoding('utf8').on('data', (chunk: string) => (err += chunk));
    child.stdout.destroy();
    expect(await once(child, 'close')).toEqual([0, null]);
    expect(err).not.toContain('EPIPE');
  });

  it.each(['SIGTERM', 'SIGINT'] as const)('starts, says so in one JSON line, and leaves with 0 at %s', async (signal) => {
    const child = spawn(process.execPath, [CLI, 'start', '--config', config(ALLOWS).file], { stdio: ['ignore', 'pipe', 'pipe'] });
    onTestFinished(() => void child.kill('SIGKILL'));
    let err = '';
    const listening = new Promise<void>((done) => {
      child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
        err += chunk;
        if (err.includes('"listening"')) done();
      });
    });
    await listening;
    child.kill(signal);
    expect(await once(child, 'close')).toEqual([0, null]);
    const lines = err
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { message: string });
    expect(lines.filter(({ message }) => message === 'listening')).toHaveLength(1);
  });

  it.runIf(existsSync('/proc/self/task')).each([
    { name: 'gives lookups and files 64 threads', set: {}, threads: 64 },
    { name: 'leaves the number of threads to whoever has set it', set: { UV_THREADPOOL_SIZE: '6' }, threads: 6 },
  ])('$name', async ({ set, threads }) => {
    const { folder, file } = config(ALLOWS);
    const count = join(folder, 'count.cjs');
    writeFileSync(count, `process.on('exit', () => console.error(require('fs').readdirSync('/proc/self/task').length));`);
    const counted = (own: object, ...words: string[]) =>
      new Promise<number>((done) => {
        const env = { PATH: process.env['PATH'], NODE_OPTIONS: `--require=${count}`, ...own };
        execFile(process.execPath, words, { env }, (_error, _out, err) => done(Number(/\d+$/.exec(err.trimEnd())?.[0])));
      });
    // Node's own threads, beside those of the pool, differ by machine.
    const pooled = await counted({}, '-e', "require('fs').readFile('/dev/null', () => {})");
    expect((await counted(set, CLI, 'check', '--config', file)) - pooled).toBe(threads - 4);
  });

  it('takes the config of SALLYPORT_CONFIG', async () => {
    const { file } = config(ALLOWS);
    const code = await new Promise((done) => {
      execFile(process.execPath, [CLI, 'explain', 'GET', 'https://a.test/'], { env: { SALLYPORT_CONFIG: file } }, (error) =>
        done(error?.code ?? 0),
      );
    });
    expect(code).toBe(0);
  });
});
