// Twin of src/credentials/exec.ts: real commands, what of their output counts, and what of it is seen anywhere.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXEC_CAP, execFields, readPrinted } from '../../src/credentials/exec.ts';
import type { ExecCommand } from '../../src/credentials/exec.ts';
import type { Held } from '../../src/credentials/fresh-source.ts';
import { createLogger } from '../../src/foundation/logger.ts';
import { children, gone } from '../hooks/children.ts';
import { HandClock } from '../support/hand-clock.ts';

const NOW = Date.UTC(2027, 0, 1);
const PLACE = { header_name: 'Authorization', prefix: 'Bearer' };
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'exec-'));
});

afterAll(() => rm(folder, { recursive: true, force: true }));

function start(script: string, over: Partial<ExecCommand> = {}) {
  const logged: string[] = [];
  const failures: string[] = [];
  const ends: (number | undefined)[] = [];
  const clock = new HandClock();
  const command = { command: ['/bin/sh', '-c', script], timeoutMs: 10_000, env: [], ...PLACE, ...over };
  const { source, fields } = execFields(command, {
    id: 'printed',
    env: { PATH: process.env['PATH'] ?? '', HOME: '/home/of-the-proxy', NAMED: 'named-value', OTHER: 'other-value' },
    directory: folder,
    log: createLogger({ level: 'debug', stream: { write: (line: string) => logged.push(line) } }),
    onEnd: (end) => ends.push(end),
    onFailure: (failed) => failures.push(failed),
    clock,
  });
  return { source, fields, logged, failures, ends, clock };
}

/** The field that comes of a command, or why none does. */
async function put(script: string, over: Partial<ExecCommand> = {}): Promise<string> {
  const { source, fields } = start(script, over);
  const value = await source.current();
  source.close();
  if ('unavailable' in value) return value.unavailable;
  const made = fields(value.value);
  if (!('fields' in made)) return 'no fields';
  expect(made.secrets?.map((secret) => secret.reveal())).toEqual([value.value.reveal()]);
  return made.fields.map((field) => `${field.name}: ${field.value.reveal()}`).join();
}

describe('what a command prints', () => {
  const rows: readonly { name: string; script: string; over?: Partial<ExecCommand>; field: string }[] = [
    { name: 'one line', script: 'echo tok-1', field: 'Authorization: Bearer tok-1' },
    { name: 'one line without its newline', script: 'printf tok-1', field: 'Authorization: Bearer tok-1' },
    {
      name: 'one line, under names of the config',
      script: 'echo k',
      over: { header_name: 'x-api-key', prefix: '' },
      field: 'x-api-key: k',
    },
    { name: 'JSON with a token', script: `echo '{"token":"tok-2"}'`, field: 'Authorization: Bearer tok-2' },
    { name: 'JSON with a value', script: `echo '{"value":"tok-3","version":1}'`, field: 'Authorization: Bearer tok-3' },
    {
      name: 'JSON with names of its own',
      script: `echo '{"token":"t","header_name":"X-Key","prefix":"Key"}'`,
      field: 'X-Key: Key t',
    },
  ];

  it.each(rows)('is put on: $name', async ({ script, over, field }) => {
    expect(await put(script, over)).toBe(field);
  });

  const refused = [
    { name: 'nothing', output: '' },
    { name: 'two lines', output: 'one\ntwo\n' }, // fault E08
    { name: 'a control character', output: 'one\u0007' },
    { name: 'letters beyond latin1', output: 'tok-\u20ac' },
    { name: 'JSON that is cut off', output: '{"token":"marker' },
    { name: 'JSON without a token', output: '{"expires_at":null}' },
    { name: 'JSON with two tokens that differ', output: '{"token":"a","value":"b"}' },
    { name: 'a token with a line break in JSON', output: '{"token":"a\\r\\nX: 1"}' }, // fault E08
    { name: 'a header that frames the message', output: '{"token":"a","header_name":"Content-Length"}' },
    { name: 'a local time', output: '{"token":"a","expires_at":"2027-01-01T01:00:00"}' },
    { name: 'a time in words', output: '{"token":"a","expires_at":"tomorrow"}' },
    { name: 'a time in milliseconds', output: `{"token":"a","expires_at":${NOW + 3_600_000}}` },
    { name: 'a time that is past', output: `{"token":"a","expires_at":${NOW / 1000}}` },
  ];

  it.each(refused)('is refused without a word of it: $name', ({ output }) => {
    const read = readPrinted(output, { askedAt: NOW, command: PLACE });
    expect(read).toHaveProperty('failed');
    expect(JSON.stringify(read)).not.toContain('marker');
  });

  const times = [
    { name: 'seconds since 1970', end: NOW / 1000 + 1, ms: NOW + 1000 },
    { name: 'UTC', end: '"2027-01-01T01:00:00Z"', ms: NOW + 3_600_000 },
    { name: 'another zone, with fractions', end: '"2027-01-01T02:00:00.500+01:00"', ms: NOW + 3_600_500 },
    { name: 'null', end: 'null', ms: undefined },
  ];

  it.each(times)('ends at $name', ({ end, ms }) => {
    const read = readPrinted(`{"token":"a","expires_at":${end}}`, { askedAt: NOW, command: PLACE });
    expect('held' in read && read.held.endsAt).toBe(ms);
  });
});

describe('a command', () => {
  it('gets PATH, HOME and what was named, and nothing else of the proxy', async () => {
    const printed = await put('echo "$HOME|$NAMED|$OTHER|$(env | grep -c OTHER)"', { env: ['NAMED', 'ABSENT'], prefix: '' });
    expect(printed).toBe('Authorization: /home/of-the-proxy|named-value||0');
  });

  it('is no line for a shell', async () => {
    expect(await put('', { command: ['/bin/echo', '$HOME;', 'echo', '*'] })).toBe('Authorization: Bearer $HOME; echo *');
  });

  const failing = [
    {
      name: 'is not there',
      command: ['/nowhere/to-be-found'],
      failed: 'not_started',
      reason: /"\/nowhere\/to-be-found" could not be started \(ENOENT\)/,
    },
    {
      name: 'ends with a status',
      command: ['/bin/sh', '-c', 'echo marker-out; exit 3'],
      failed: 'command_failed',
      reason: /status 3/,
    },
    { name: 'is ended by a signal', command: ['/bin/sh', '-c', 'kill -9 $$'], failed: 'command_failed', reason: /SIGKILL/ },
    {
      name: 'prints too much',
      command: ['/bin/sh', '-c', `head -c ${EXEC_CAP + 1} /dev/zero | tr '\\0' x`],
      failed: 'too_large',
      reason: /64 KiB/,
    },
  ];

  it.each(failing)('that $name gives nothing', async ({ command, failed, reason }) => {
    const { source, failures } = start('', { command });
    const value = await source.current();
    expect(value).toHaveProperty('unavailable', expect.stringMatching(reason));
    expect(JSON.stringify(value)).not.toContain('marker');
    expect(failures).toEqual([failed]);
    expect(source.current()).toBe(value);
  });

  it('may print exactly 64 KiB', async () => {
    expect(await put(`head -c ${EXEC_CAP} /dev/zero | tr '\\0' x`)).toHaveLength('Authorization: Bearer '.length + EXEC_CAP);
  });

  it('that takes too long is ended with what it started', async () => {
    const { source, failures } = start('sleep 300 & echo $! > inner; echo $$ > outer; wait', { timeoutMs: 200 });
    expect(await source.current()).toHaveProperty('unavailable', 'its command did not end within 200 ms');
    expect(failures).toEqual(['timeout']);
    for (const name of ['inner', 'outer']) {
      await gone(Number(await readFile(join(folder, name), 'utf8')));
    }
  });

  it('is ended when its source is closed', async () => {
    const { source, logged } = start('sleep 300');
    const waiting = source.current();
    while (children().length === 0) await new Promise((resolve) => setImmediate(resolve));
    source.close();
    expect(await waiting).toHaveProperty('unavailable');
    expect(logged).toEqual([]);
  });

  it('is run ahead of the end of what it printed, and what it printed is used meanwhile', async () => {
    await writeFile(join(folder, 'now'), `{"token":"first","expires_at":${NOW / 1000 + 600}}`);
    const { source, clock, ends } = start('cat now');
    const first = (await source.current()) as Held;
    await writeFile(join(folder, 'now'), '{"token":"second"}');
    clock.pass(540_000);
    expect(source.current()).toBe(first);
    while ((source.current() as Held).value === first.value) await new Promise((resolve) => setImmediate(resolve));
    expect((source.current() as Held).value.reveal()).toBe('second');
    expect(ends).toEqual([NOW + 600_000, undefined]);
    source.close();
  });

  it('that complains has its first line in the log, with no word of its output and no token', async () => {
    const script = [
      'echo marker-value-77',
      'echo "cannot use marker-value-77 with Bearer aB3dE6gH9jK2mN5pQ8 here" >&2',
      'echo "marker-second-line" >&2; exit 1',
    ].join('; ');
    const { source, logged } = start(script);
    await source.current();
    expect(logged).toHaveLength(1);
    const line = JSON.parse(logged[0] ?? '') as Record<string, unknown>;
    expect(line).toMatchObject({
      level: 'warn',
      message: 'credential "printed" could not be renewed: its command ended with status 1',
    });
    expect(line['stderr']).toBe('cannot use [secret] with Bearer [secret] here');
  });

  it('that complains of what it printed before has that taken out too', async () => {
    await writeFile(join(folder, 'turn'), 'echo old-one');
    const { source, clock, logged } = start('. ./turn');
    await source.current();
    await writeFile(join(folder, 'turn'), 'echo "old-one is no good" >&2; exit 1');
    clock.pass(5 * 60_000);
    while (logged.length === 0) await new Promise((resolve) => setImmediate(resolve));
    expect((JSON.parse(logged[0] ?? '') as Record<string, unknown>)['stderr']).toBe('[secret] is no good');
    source.close();
  });
});
