// Commands as real children of /bin/sh: what they get, what comes of each way to end, and that none of them can hold the runner.
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OUTPUT_CAP } from '../../src/foundation/capped-text.ts';
import { runCommand } from '../../src/hooks/run-command.ts';
import type { CommandHandler, RawRun } from '../../src/hooks/words.ts';
import { children, gone, openDescriptors, runs } from './children.ts';

let folder: string;
const env = { PATH: process.env['PATH'] ?? '' };
const node = JSON.stringify(process.execPath);

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'commands-'));
});

afterAll(() => rm(folder, { recursive: true, force: true }));

function handler(command: string, over: Partial<CommandHandler> = {}): CommandHandler {
  return {
    kind: 'command',
    id: 'gate/PreToolUse[0].hooks[0]',
    onFailure: undefined,
    requireDecision: false,
    timeoutMs: 10_000,
    command,
    args: undefined,
    shell: 'sh',
    ...over,
  };
}

function run(command: string, over: Partial<CommandHandler> & { input?: string; directory?: string } = {}): Promise<RawRun> {
  const { input = '{}', directory = folder, ...rest } = over;
  return runCommand(handler(command, rest), { input, directory, env });
}

describe('what a command gets', () => {
  it('reads the payload with a newline, to its end', async () => {
    expect(await run('cat; echo end', { input: '{"a":"é\\n"}' })).toMatchObject({
      failure: undefined,
      status: 0,
      output: '{"a":"é\\n"}\nend\n', // fault M12
      complaint: '',
      truncated: false,
    });
  });

  it('gets 1 MiB of payload whole, though it reads slowly', async () => {
    const input = JSON.stringify({ text: 'x'.repeat(1024 * 1024) });
    const script = `let n = 0; process.stdin.on('data', (d) => { n += d.length; process.stdin.pause(); setImmediate(() => process.stdin.resume()); }).on('end', () => console.log(n))`;
    const { output } = await run(`exec ${node} -e '${script.replaceAll("'", `'\\''`)}'`, { input });
    expect(Number(output)).toBe(input.length + 1); // fault M12
  });

  it('reads one line alone where it wants no more', async () => {
    expect((await run('read -r line; echo "$line"', { input: '{"one":1}' })).output).toBe('{"one":1}\n');
  });

  it('runs in its folder, with its variables and no others', async () => {
    const run = await runCommand(handler('pwd; env'), { input: '', directory: folder, env: { ...env, ONE: 'a b' } });
    const names = run.output
      .split('\n')
      .slice(1)
      .map((line) => line.split('=')[0]);
    expect(run.output.split('\n')[0]).toBe(folder);
    expect(names.filter((name) => !['', '_', 'SHLVL', 'OLDPWD'].includes(name ?? '')).sort()).toEqual(['ONE', 'PATH', 'PWD']);
  });

  const ways = [
    {
      name: 'a shell line with quotes, && and a variable',
      command: `printf '%s' "a  b" && echo "$PATH" | wc -l`,
      output: 'a  b1\n',
    },
    {
      name: 'bash where that was asked for',
      command: '[[ a == a* ]] && echo "${BASH_VERSION:+bash}"',
      shell: 'bash',
      output: 'bash\n',
    },
    {
      name: 'a program without a shell',
      command: 'printf',
      args: ['%s|', 'a; echo b', '$HOME', "'"],
      output: "a; echo b|$HOME|'|",
    },
  ] as const;
  it.each(ways)('runs $name', async ({ command, output, ...rest }) => {
    expect(await run(command, { args: undefined, ...rest })).toMatchObject({ failure: undefined, output }); // fault M18
  });

  it('runs a script whose path has a blank in it', async () => {
    await mkdir(join(folder, 'a b'));
    await writeFile(join(folder, 'a b', 'gate.sh'), '#!/bin/sh\necho from the script\n', { mode: 0o755 });
    expect((await run('"./a b/gate.sh"')).output).toBe('from the script\n');
    expect((await run('./a b/gate.sh')).failure?.code).toBe('not_started'); // fault M18
  });
});

describe('how a command ends', () => {
  const long = 'x'.repeat(2000);
  const rows = [
    { name: 'status 0', command: 'echo yes', code: undefined, status: 0, output: 'yes\n' },
    {
      name: 'status 1 with output and complaint',
      command: 'echo out; echo why >&2; exit 1',
      code: 'exit_status',
      status: 1,
      output: 'out\n',
    },
    { name: 'status 2', command: 'echo why >&2; exit 2', code: 'exit_status', status: 2, complaint: 'why\n', fault: 'M07' },
    { name: 'status 3', command: 'exit 3', code: 'exit_status', status: 3 },
    { name: 'status 126 of a shell', command: 'exit 126', code: 'not_started', status: 126 },
    { name: 'status 127 of a shell', command: 'no-such-command-here', code: 'not_started', status: 127, fault: 'M08' },
    { name: 'status 125, just outside', command: 'exit 125', code: 'exit_status', status: 125 },
    { name: 'status 128, just outside', command: 'exit 128', code: 'exit_status', status: 128 },
    {
      name: 'status 127 of a program without a shell',
      command: 'sh',
      args: ['-c', 'exit 127'],
      code: 'exit_status',
      status: 127,
    },
    { name: 'SIGKILL of the shell', command: 'kill -9 $$', code: 'signal', status: null, message: 'SIGKILL' },
    { name: 'SIGTERM from itself', command: 'kill -TERM $$', code: 'signal', status: null, message: 'SIGTERM' },
    { name: 'a status of a killed grandchild', command: `sh -c 'kill -9 $$'; exit $?`, code: 'exit_status', status: 137 },
    { name: 'a bad interpreter', command: './bad-shebang', code: 'not_started', status: 127, fault: 'M08' },
    { name: 'a script that may not be executed', command: './plain', code: 'not_started', status: 126, fault: 'M08' },
    {
      name: 'a program that is not there',
      command: 'no-such-program',
      args: [],
      code: 'not_started',
      status: null,
      message: '"no-such-program" is not there',
    },
    {
      name: 'a program that may not be executed',
      command: './plain',
      args: [],
      code: 'not_started',
      status: null,
      message: 'may not be executed',
    },
    {
      name: 'a folder that is not there',
      command: 'echo',
      directory: '/no/such',
      code: 'not_started',
      status: null,
      message: '"/no/such" is not there',
      fault: 'M08',
    },
    {
      name: 'a folder that is a file',
      command: 'echo',
      directory: '/etc/hostname',
      code: 'not_started',
      status: null,
      message: 'is not a folder',
    },
    {
      name: 'arguments that are too large',
      command: 'true',
      args: Array.from({ length: 2000 }, () => long),
      code: 'not_started',
      status: null,
      message: 'too large',
    },
    { name: 'a NUL in the command', command: 'echo \0', code: 'not_started', status: null, fault: 'M18' },
  ];

  beforeAll(async () => {
    await writeFile(join(folder, 'bad-shebang'), '#!/no/such/interpreter\n', { mode: 0o755 });
    await writeFile(join(folder, 'plain'), 'echo no\n');
    await chmod(join(folder, 'plain'), 0o644);
  });

  it.each(rows)('names $name', async ({ command, code, status, message, output, complaint, ...over }) => {
    const ended = await run(command, { args: undefined, ...over });
    expect({ code: ended.failure?.code, status: ended.status }).toEqual({ code, status });
    if (message !== undefined) expect(ended.failure?.message).toContain(message);
    if (output !== undefined) expect(ended.output).toBe(output);
    if (complaint !== undefined) expect(ended.complaint).toBe(complaint);
  });

  const deaf = [
    { name: 'a byte', size: 1 },
    { name: '64 KiB and one byte', size: 64 * 1024 + 1 },
    { name: '10 MiB', size: 10 * 1024 * 1024 },
  ];
  it.each(deaf)('takes the answer of a command that never reads a payload of $name', async ({ size }) => {
    const input = 'x'.repeat(size);
    expect(await run('echo yes', { input })).toMatchObject({ failure: undefined, output: 'yes\n' }); // fault M03
    expect(await run('exec <&-; sleep 0.05; echo yes', { input })).toMatchObject({ failure: undefined, output: 'yes\n' });
  });
});

describe('output', () => {
  const emit = (script: string): string => `exec ${node} -e '${script}'`;
  const rows = [
    {
      name: 'one byte less than the cap',
      script: `process.stdout.write("x".repeat(${OUTPUT_CAP - 1}))`,
      length: OUTPUT_CAP - 1,
      cut: false,
    },
    { name: 'exactly the cap', script: `process.stdout.write("x".repeat(${OUTPUT_CAP}))`, length: OUTPUT_CAP, cut: false },
    {
      name: 'one byte more than the cap',
      script: `process.stdout.write("x".repeat(${OUTPUT_CAP + 1}))`,
      length: OUTPUT_CAP,
      cut: true,
    },
    {
      name: 'a character across the cap',
      script: `process.stdout.write("x".repeat(${OUTPUT_CAP - 1}) + "é")`,
      length: OUTPUT_CAP - 1,
      cut: true,
    },
    {
      name: 'a character up to the cap',
      script: `process.stdout.write("x".repeat(${OUTPUT_CAP - 2}) + "é")`,
      length: OUTPUT_CAP - 1,
      cut: false,
    },
    { name: '20 MiB', script: `process.stdout.write("x".repeat(20 << 20))`, length: OUTPUT_CAP, cut: true },
  ];
  it.each(rows)('keeps of $name what fits, and says when it was cut', async ({ script, length, cut }) => {
    const { output, truncated, failure, status } = await run(emit(script));
    expect({ length: output.length, truncated, code: failure?.code, status }).toEqual({
      length,
      truncated: cut,
      code: cut ? 'output_too_large' : undefined,
      status: 0,
    }); // faults M05, M06
    expect(output).not.toContain('\ufffd');
  });

  it('does not fail for a long complaint, and says that it was cut', async () => {
    const ended = await run(emit(`process.stderr.write("é".repeat(${OUTPUT_CAP})); console.log("{}")`));
    expect(ended).toMatchObject({ failure: undefined, output: '{}\n', truncated: true });
    expect(ended.complaint).toBe('é'.repeat(OUTPUT_CAP / 2)); // fault M05
  });

  it('ends output without end at the deadline, in bounded memory', async () => {
    const before = process.memoryUsage().rss;
    const ended = await run('yes', { timeoutMs: 400 });
    expect(ended).toMatchObject({ failure: { code: 'timeout' }, truncated: true });
    expect(ended.output.length).toBe(OUTPUT_CAP);
    expect(process.memoryUsage().rss - before).toBeLessThan(64 << 20); // fault M05
  });

  it('reads to the end what was written just before the exit', async () => {
    const { output } = await run('head -c 100000 /dev/zero | tr "\\0" x');
    expect(output.length).toBe(100_000); // fault M04
  });
});

describe('the deadline', () => {
  const rows = [
    { name: 'a grandchild in the background', command: 'echo $$; sleep 600 & echo $!; sleep 600', within: 700 },
    {
      name: 'a grandchild that holds stdout, its shell gone',
      command: `echo $$; (trap "" TERM; echo $$; sleep 600) & sleep 600`,
      within: 1000,
    },
    {
      name: 'a command that ignores SIGTERM',
      command: `trap "" TERM; echo $$; sleep 600 & echo $!; while :; do sleep 600; done`,
      within: 1000,
    },
    { name: 'a program without a shell', command: 'sh', args: ['-c', 'echo $$; exec sleep 600'], within: 700 },
    { name: 'a stopped process', command: 'echo $$; kill -STOP $$', within: 1000 },
  ];
  it.each(rows)('ends $name', async ({ command, args, within }) => {
    const from = performance.now();
    const ended = await run(command, { args, timeoutMs: 200 });
    const took = performance.now() - from;
    expect(ended).toMatchObject({
      failure: { code: 'timeout', message: 'no answer within the time limit: 200 ms' },
      status: null,
    });
    expect(took).toBeGreaterThanOrEqual(200);
    expect(took).toBeLessThan(within + 400);
    const pids = ended.output.trim().split('\n').map(Number);
    await Promise.all(pids.map(gone)); // fault M01
    expect(children()).toEqual([]); // fault M02
  });

  it('lets a command that heeds SIGTERM tidy up, and keeps what it wrote', async () => {
    const ended = await run('trap "echo tidy; exit 0" TERM; echo begun; sleep 600 & wait', { timeoutMs: 200 });
    expect(ended).toMatchObject({ failure: { code: 'timeout' }, output: 'begun\ntidy\n' });
  });

  it('returns though a grandchild has left the group with setsid, which it cannot end', async () => {
    const from = performance.now();
    const ended = await run('setsid sh -c "echo \\$\\$; exec sleep 600" & sleep 600', { timeoutMs: 300 });
    expect(ended.failure?.code).toBe('timeout');
    expect(performance.now() - from).toBeLessThan(1300); // fault M01
    const escaped = Number(ended.output.trim());
    expect(runs(escaped)).toBe(true);
    process.kill(escaped, 'SIGKILL');
  });

  it('is not touched by a command that ends in time', async () => {
    const ended = await run('sleep 0.2; echo yes', { timeoutMs: 5000 });
    expect(ended).toMatchObject({ failure: undefined, output: 'yes\n' });
    expect(ended.durationMs).toBeGreaterThanOrEqual(100);
    expect(ended.startMs).toBeGreaterThan(0); // fault M14
  });

  it('counts from when the command was there, not from when it was asked for', async () => {
    // The loop is blocked for longer than the limit before the child's start is reported.
    const pending = run('echo yes', { timeoutMs: 150 });
    const until = performance.now() + 300;
    while (performance.now() < until);
    const ended = await pending;
    expect(ended).toMatchObject({ failure: undefined, output: 'yes\n' });
    expect(ended.startMs).toBeGreaterThanOrEqual(290); // fault M14
  });

  it('does not count against a command the time in which the runner itself was busy', async () => {
    const pending = run('sleep 0.1; echo yes', { timeoutMs: 300 });
    await new Promise((resolve) => setTimeout(resolve, 20));
    const until = performance.now() + 400;
    while (performance.now() < until);
    expect(await pending).toMatchObject({ failure: undefined, output: 'yes\n' });
  });

  it('beats the status of a command that ends after it', async () => {
    const ended = await run('trap "exit 2" TERM; sleep 600 & wait', { timeoutMs: 200 });
    expect(ended).toMatchObject({ failure: { code: 'timeout' }, status: null }); // fault M07
  });

  it('takes a limit that no timer of Node can hold', async () => {
    expect(await run('sleep 0.05; echo yes', { timeoutMs: 2 ** 40 })).toMatchObject({ failure: undefined, output: 'yes\n' });
  });
});

describe('a runner that is told to end', () => {
  it('ends the command with all of its group, and says why', async () => {
    const controller = new AbortController();
    const pidFile = join(folder, 'told');
    const over = { input: '{}', directory: folder, env, signal: controller.signal };
    const running = runCommand(handler(`sleep 600 & echo $! > ${pidFile}; sleep 600`), over);
    let pid = '';
    while (!pid.endsWith('\n')) pid = await readFile(pidFile, 'utf8').catch(() => '');
    controller.abort();
    expect(await running).toMatchObject({ failure: { code: 'signal' }, status: null });
    await gone(Number(pid));
  });

  it('starts nothing that lasts once it has been told', async () => {
    const over = { input: '{}', directory: folder, env, signal: AbortSignal.abort() };
    expect(await runCommand(handler('sleep 600'), over)).toMatchObject({ failure: { code: 'signal' } });
  });
});

describe('what a command leaves behind when it has ended', () => {
  it('waits a moment for a grandchild that still writes', async () => {
    expect((await run('(sleep 0.05; echo late) & echo early')).output).toBe('early\nlate\n');
  });

  it('waits no longer than that, and ends the rest of the group', async () => {
    const from = performance.now();
    const ended = await run('sleep 600 & echo $!');
    expect(ended).toMatchObject({ failure: undefined, status: 0 });
    expect(performance.now() - from).toBeLessThan(800);
    await gone(Number(ended.output)); // fault M01
  });

  it('ends a background process that holds no pipe too', async () => {
    const ended = await run(`sleep 600 </dev/null >/dev/null 2>&1 & echo $!`);
    expect(ended.failure).toBeUndefined();
    await gone(Number(ended.output));
  });

  it('leaves no zombie, no descriptor and no listener after 200 runs of every kind', async () => {
    await run('true');
    const descriptors = openDescriptors();
    const listeners = process.eventNames().map((name) => process.listenerCount(name));
    const kinds = [
      'exit 0',
      'exit 2',
      'kill -9 $$',
      'no-such-command',
      'cat >/dev/null; echo {}',
      'echo x >&2',
      'sleep 5 & exit 0',
    ];
    for (let i = 0; i < 200; i += 20) {
      await Promise.all(
        Array.from({ length: 20 }, (_, j) => {
          const directory = (i + j) % 25 === 0 ? '/no/such' : folder;
          return run((i + j) % 40 === 7 ? 'sleep 600' : (kinds[(i + j) % kinds.length] ?? ''), { directory, timeoutMs: 300 });
        }),
      );
    }
    expect(children()).toEqual([]); // fault M02
    expect(openDescriptors()).toBeLessThanOrEqual(descriptors);
    expect(process.eventNames().map((name) => process.listenerCount(name))).toEqual(listeners);
  });

  it('keeps the event out of the command, whatever is in it', async () => {
    const input = JSON.stringify({ tool_call: { name: '$(touch hit); `touch hit`', args: { code: '"; touch hit; "\n\0' } } });
    expect((await run('cat', { input })).output).toBe(`${input}\n`); // fault M18
    await expect(readFile(join(folder, 'hit'))).rejects.toThrow('ENOENT');
  });
});
