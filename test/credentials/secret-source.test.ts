// Twin of secret-source.ts.
import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  composeSecret,
  digestSecrets,
  fileTrouble,
  readSecret,
  readSecretText,
  secretFile,
  secretTrouble,
} from '../../src/credentials/secret-source.ts';
import { Secret } from '../../src/foundation/secret.ts';

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'secret-source-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function readFrom(content: string | Buffer, mode = 0o600) {
  const path = join(folder, 'secret');
  await writeFile(path, content);
  await chmod(path, mode);
  return readSecret({ kind: 'file', path: 'secret' }, { baseDirectory: folder, env: {} });
}

describe('a secret file', () => {
  it.each([
    ['as it stands', 'hunter2', 'hunter2'],
    ['without its trailing newline', 'hunter2\n', 'hunter2'],
    ['without its trailing CR LF', 'hunter2\r\n', 'hunter2'],
    ['without a byte order mark', '\uFEFFhunter2', 'hunter2'],
    ['with blanks inside', 'a b\tc', 'a b\tc'],
    ['in latin1 range', 'caf\u00e9', 'caf\u00e9'],
  ])('is read %s', async (_name, content, text) => {
    const reading = await readFrom(content);
    expect(reading.kind === 'read' && reading.secret.reveal()).toBe(text);
    expect(reading).toMatchObject({ warning: undefined });
  });

  it.each([
    { name: 'CR LF and a field of its own', content: 'hunter2\r\nX-Evil: 1', trouble: 'holds a line break inside', fault: 'E08' },
    { name: 'two trailing newlines', content: 'hunter2\n\n', trouble: 'holds a line break inside', fault: 'E08' },
    { name: 'a lone LF', content: 'hun\nter2', trouble: 'holds a line break inside', fault: 'E08' },
    { name: 'a lone CR', content: 'hun\rter2', trouble: 'holds a line break inside', fault: 'E08' },
    { name: 'a NUL', content: 'hunter2\0', trouble: 'holds a NUL', fault: 'E08' },
    { name: 'another control character', content: 'hunter2\u001b', trouble: 'holds a control character', fault: 'E08' },
    { name: 'a character beyond latin1', content: 'hunter2\u0105', trouble: 'holds a character beyond latin1', fault: 'E08' },
    {
      name: 'bytes that are no UTF-8',
      content: Buffer.from([0x68, 0xff]),
      trouble: 'holds a character beyond latin1',
      fault: 'E08',
    },
    { name: 'more than 64 KiB', content: 'x'.repeat(65_537), trouble: 'is longer than 64 KiB', fault: 'E08' },
  ])('with $name is malformed, and its problem does not show it', async ({ content, trouble }) => {
    const reading = await readFrom(content);
    expect(reading).toMatchObject({ kind: 'malformed', problem: expect.stringContaining(`file "secret" ${trouble}`) as string });
    expect(JSON.stringify(reading)).not.toMatch(/hun\W*ter2/);
  });

  it.each([
    ['empty', ''],
    ['only a newline', '\n'],
  ])('that is %s counts as missing', async (_name, content) => {
    expect(await readFrom(content)).toEqual({ kind: 'missing', problem: 'file "secret" is empty; put the secret into it' });
  });

  it.each([
    [0o644, 'file "secret" can be read by every user of this machine; run: chmod 600 secret'],
    [0o604, 'file "secret" can be read by every user of this machine; run: chmod 600 secret'],
    [0o640, undefined],
    [0o600, undefined],
  ])('with mode %o is read, with a warning where others can read it', async (mode, warning) => {
    expect(await readFrom('hunter2', mode)).toMatchObject({ kind: 'read', warning });
  });

  it('that does not exist counts as missing', async () => {
    const reading = await readSecret({ kind: 'file', path: 'none' }, { baseDirectory: folder, env: {} });
    expect(reading).toEqual({ kind: 'missing', problem: 'file "none" does not exist; create it or correct the path' });
  });

  it('that is a folder or a pipe counts as missing and does not hang', async () => {
    await mkdir(join(folder, 'folder'));
    execFileSync('mkfifo', [join(folder, 'pipe')]);
    for (const path of ['folder', 'pipe']) {
      const reading = await readSecret({ kind: 'file', path }, { baseDirectory: folder, env: {} });
      expect(reading).toEqual({ kind: 'missing', problem: `file "${path}" is not a regular file; name the file itself` });
    }
  });

  it('is named by its absolute path', () => {
    expect(secretFile({ kind: 'file', path: 'a/b' }, '/base')).toBe('/base/a/b');
    expect(secretFile({ kind: 'file', path: '/a/b' }, '/base')).toBe('/a/b');
    expect(secretFile({ kind: 'env', name: 'A' }, '/base')).toBeUndefined();
  });
});

describe('an environment variable', () => {
  const read = (env: NodeJS.ProcessEnv) => readSecret({ kind: 'env', name: 'A' }, { baseDirectory: folder, env });

  it('is read', async () => {
    const reading = await read({ A: 'hunter2' });
    expect(reading.kind === 'read' && reading.secret.reveal()).toBe('hunter2');
  });

  it('that is not set or empty counts as missing', async () => {
    expect(await read({})).toEqual({ kind: 'missing', problem: 'environment variable "A" is not set; set it before the start' });
    expect(await read({ A: '' })).toEqual({
      kind: 'missing',
      problem: 'environment variable "A" is empty; put the secret into it',
    });
  });

  it('with a line break is malformed', async () => {
    expect(await read({ A: 'a\r\nb' })).toMatchObject({ kind: 'malformed' }); // E08
  });
});

describe('secrets of secrets', () => {
  it('are composed without showing', () => {
    const made = composeSecret([new Secret('a'), new Secret('b')], (a = '', b = '') => `${a}:${b}`);
    expect([made?.reveal(), String(made)]).toEqual(['a:b', '[secret]']);
    expect(composeSecret([], () => undefined)).toBeUndefined();
  });

  it('have equal digests exactly when names and texts are equal', () => {
    const digest = (...entries: [string, string][]) =>
      digestSecrets(new Map(entries.map(([name, text]) => [name, new Secret(text)])));
    expect(digest(['a', '1'], ['b', '2'])).toBe(digest(['b', '2'], ['a', '1']));
    expect(new Set([digest(['a', '1']), digest(['a', '2']), digest(['b', '1']), digest()]).size).toBe(4);
  });
});

describe('a text of the config', () => {
  it('is judged like any other source', async () => {
    const source = { kind: 'text', secret: new Secret('hunter2') } as const;
    expect(await readSecret(source, { baseDirectory: folder, env: {} })).toMatchObject({ kind: 'read' });
    expect(readSecretText('hunter2\n', 'the text')).toMatchObject({ kind: 'read' });
    expect(readSecretText('a\nb', 'the text')).toMatchObject({ kind: 'malformed' });
    expect(readSecretText('', 'the text')).toEqual({ kind: 'missing', problem: 'the text is empty; put the secret into it' });
    expect(secretTrouble('hunter2')).toBeUndefined();
  });
});

describe('fileTrouble', () => {
  it.each([
    ['ENOENT', 'does not exist; create it or correct the path'],
    ['EACCES', 'cannot be read: permission denied; let the user of this process read it'],
    ['EISDIR', 'is a folder; name a file in it'],
    ['ENOTDIR', 'lies under something that is not a folder; correct the path'],
    ['EIO', 'cannot be read (EIO)'],
  ])('states the remedy for %s', (code, text) => {
    expect(fileTrouble(Object.assign(new Error('x'), { code }))).toBe(text);
  });
});
