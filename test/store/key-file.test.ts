// Twin of key-file.ts: how the key is written, on what conditions it is read, and what a rotation leaves at each step.
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  beginKeyRotation,
  finishKeyRotation,
  keyFromEnvironment,
  keyFromText,
  openKeyFile,
  readNextKey,
} from '../../src/store/key-file.ts';
import { KEY, temporaryFolder } from './rig.ts';

const modeOf = (path: string): string => (statSync(path).mode & 0o777).toString(8);

describe('the text of a key', () => {
  it.each([
    { name: 'base64', text: KEY.toString('base64') },
    { name: 'base64 without its padding', text: KEY.toString('base64').replace('=', '') },
    { name: 'base64url', text: KEY.toString('base64url') },
    { name: 'hex', text: KEY.toString('hex') },
    { name: 'hex in capitals', text: KEY.toString('hex').toUpperCase() },
    { name: 'with a newline', text: `${KEY.toString('base64')}\r\n` },
  ])('is read as $name', ({ text }) => {
    expect(keyFromText(text, 'x').equals(KEY)).toBe(true);
  });

  it.each([
    { name: 'nothing', text: '' },
    { name: '31 bytes', text: KEY.subarray(1).toString('base64') },
    { name: '33 bytes', text: Buffer.concat([KEY, KEY.subarray(0, 1)]).toString('base64') },
    { name: '63 digits of hex', text: KEY.toString('hex').slice(1) },
    { name: 'a password', text: 'correct horse battery staple' },
    { name: '32 letters', text: 'a'.repeat(32) },
    { name: 'base64 with a stranger in it', text: KEY.toString('base64').replace(/^./, '!') },
    { name: 'two lines', text: `${KEY.toString('base64')}\n${KEY.toString('base64')}` },
  ])('is refused without being quoted: $name', ({ text }) => {
    const refused = (): Buffer => keyFromText(text, 'file "x"');
    expect(refused).toThrow('file "x" holds no key of the store: it must be 32 random bytes as base64 or hex');
    if (text !== '') expect(refused).not.toThrow(text.slice(0, 12));
  });

  it('comes from the environment', () => {
    expect(keyFromEnvironment('STORE_KEY', { STORE_KEY: KEY.toString('hex') }).equals(KEY)).toBe(true);
    expect(() => keyFromEnvironment('STORE_KEY', {})).toThrow('environment variable "STORE_KEY" is not set');
    expect(() => keyFromEnvironment('STORE_KEY', { STORE_KEY: 'short' })).toThrow('"STORE_KEY" holds no key');
  });
});

describe('the key file', () => {
  it('is made at first use, whole and 0600 in a folder 0700 whatever the umask, and read again after', async () => {
    const path = join(temporaryFolder(), 'state', 'store-key');
    const before = process.umask(0);
    const made = await openKeyFile(path).finally(() => process.umask(before));
    expect(made).toMatchObject({ created: true });
    expect(made.key).toHaveLength(32);
    expect([modeOf(path), modeOf(join(path, '..'))]).toEqual(['600', '700']);
    expect(readdirSync(join(path, '..'))).toEqual(['store-key']);
    expect(await openKeyFile(path)).toEqual({ key: made.key, created: false });
  });

  it('is one where two make it at once', async () => {
    const path = join(temporaryFolder(), 'store-key');
    const opened = await Promise.all(Array.from({ length: 8 }, () => openKeyFile(path)));
    expect(new Set(opened.map(({ key }) => key.toString('hex'))).size).toBe(1);
    expect(opened.filter(({ created }) => created)).toHaveLength(1);
  });

  it('is read through a link, as a mounted secret is', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'real'), KEY.toString('base64'), { mode: 0o400 });
    symlinkSync(join(folder, 'real'), join(folder, 'store-key'));
    expect((await openKeyFile(join(folder, 'store-key'))).key.equals(KEY)).toBe(true);
  });

  it.each([
    { mode: 0o400, outcome: 'taken' },
    { mode: 0o600, outcome: 'taken' },
    { mode: 0o640, outcome: 'warned of' },
    { mode: 0o660, outcome: 'warned of' },
    { mode: 0o604, outcome: 'refused' },
    { mode: 0o602, outcome: 'refused' },
    { mode: 0o644, outcome: 'refused' },
  ])('of mode $mode is $outcome', async ({ mode, outcome }) => {
    const path = join(temporaryFolder(), 'store-key');
    writeFileSync(path, KEY.toString('base64'));
    chmodSync(path, mode);
    const opened = openKeyFile(path);
    if (outcome === 'refused') await expect(opened).rejects.toThrow(/is open to every user \(mode 0\d{3}\).*chmod 600/);
    else expect((await opened).warning !== undefined).toBe(outcome === 'warned of');
  });

  it.each([
    {
      name: 'empty',
      plant: (path: string): unknown => writeFileSync(path, '', { mode: 0o600 }),
      says: 'holds no key of the store',
    },
    { name: 'a folder', plant: (path: string): unknown => mkdirSync(path, { mode: 0o700 }), says: 'is no key file' },
    { name: 'a FIFO', plant: (path: string): unknown => execFileSync('mkfifo', ['-m', '600', path]), says: 'is no key file' },
    {
      name: 'too long',
      plant: (path: string): unknown => writeFileSync(path, 'A'.repeat(4097), { mode: 0o600 }),
      says: 'is no key file',
    },
    { name: 'below a file', plant: (path: string): unknown => writeFileSync(join(path, '..'), ''), says: /\(ENOTDIR\)/ },
  ])('is refused and left as it is: $name', async ({ name, plant, says }) => {
    const folder = temporaryFolder();
    const path = name === 'below a file' ? join(folder, 'file', 'store-key') : join(folder, 'store-key');
    plant(path);
    await expect(openKeyFile(path)).rejects.toThrow(says);
    if (name === 'empty') expect(readFileSync(path, 'utf8')).toBe('');
  });
});

describe('a rotation of the key file', () => {
  it('has both keys until it is finished, and goes on to the same key when it is begun again', async () => {
    const path = join(temporaryFolder(), 'store-key');
    const { key } = await openKeyFile(path);
    expect(await readNextKey(path)).toBeUndefined();
    const next = await beginKeyRotation(path);
    expect(next.equals(key)).toBe(false);
    expect(modeOf(`${path}.next`)).toBe('600');
    expect((await beginKeyRotation(path)).equals(next)).toBe(true);
    expect((await readNextKey(path))?.equals(next)).toBe(true);
    expect((await openKeyFile(path)).key.equals(key)).toBe(true);
    await finishKeyRotation(path);
    expect((await openKeyFile(path)).key.equals(next)).toBe(true);
    expect(existsSync(`${path}.next`)).toBe(false);
    await expect(finishKeyRotation(path)).rejects.toThrow('(ENOENT); rename it by hand');
  });
});
