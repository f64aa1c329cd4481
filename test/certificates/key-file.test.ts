// Twin of key-file.ts: where a key may be, and who may read it, at every moment.
import { chmodSync, existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openAuthority } from '../../src/certificates/certificate-authority.ts';
import { createKeyFile, makeKeyFolder, readKeyFile, refuseSharedKey } from '../../src/certificates/key-file.ts';
import { temporaryFolder } from './rig.ts';

describe('creating the key', () => {
  it('shows others no readable file at any moment, under umask 000 in a folder open to all', async () => {
    const folder = temporaryFolder();
    chmodSync(folder, 0o777);
    const before = process.umask(0);
    const seen = new Set<string>();
    let watching = true;
    // Looks on at every turn of the event loop, as often as the writer gives way.
    const watch = async (): Promise<void> => {
      while (watching) {
        for (const entry of readdirSync(folder)) {
          const found = lstatSync(join(folder, entry), { throwIfNoEntry: false });
          if (found !== undefined) seen.add(`${found.isDirectory() ? 'folder' : 'file'} ${(found.mode & 0o777).toString(8)}`);
        }
        await new Promise(setImmediate);
      }
    };
    const watched = watch();
    try {
      expect(await createKeyFile(join(folder, 'ca.key'), 'secret')).toBe(true);
    } finally {
      process.umask(before);
      await new Promise(setImmediate);
      watching = false;
      await watched;
    }
    expect([...seen].sort()).toEqual(['file 600', 'folder 700']); // F01
    expect(readdirSync(folder)).toEqual(['ca.key']);
  });

  it.each([
    { name: 'a file', plant: (path: string): unknown => writeFileSync(path, 'before') },
    { name: 'a dangling symlink', plant: (path: string): unknown => symlinkSync(join(dirname(path), 'trap'), path) },
    { name: 'a folder', plant: (path: string): unknown => mkdirSync(path) },
  ])('leaves $name that is in its place alone', async ({ plant }) => {
    const folder = temporaryFolder();
    const path = join(folder, 'ca.key');
    plant(path);
    const mode = lstatSync(path).mode;
    expect(await createKeyFile(path, 'secret')).toBe(false); // F01
    expect(lstatSync(path).mode).toBe(mode);
    expect(readdirSync(folder)).toEqual(['ca.key']);
  });

  it('says so where a file stands in the place of its folder', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'file'), '');
    await expect(makeKeyFolder(join(folder, 'file', 'deeper', 'ca.key'))).rejects.toThrow('cannot write the CA key');
    await expect(createKeyFile(join(folder, 'file', 'ca.key'), 'secret')).rejects.toThrow(
      /cannot write the CA key ".*file\/ca\.key" \(\w+\): make/,
    );
  });
});

describe('a symlink in place of the key', () => {
  it.each([
    { name: 'dangling', target: 'nowhere' },
    { name: 'to a proper key', target: 'real.key' },
  ])('refuses the start: $name', async ({ target }) => {
    const folder = temporaryFolder();
    const at = { certificate: join(folder, 'public', 'ca.pem'), key: join(folder, 'real.key') };
    await openAuthority(at);
    const key = join(folder, 'ca.key');
    symlinkSync(join(folder, target), key);
    await expect(openAuthority({ ...at, key })).rejects.toThrow(/ca\.key" is a symlink: remove it/); // F01
    await expect(openAuthority({ certificate: join(folder, 'other', 'ca.pem'), key })).rejects.toThrow('is a symlink');
    expect(existsSync(join(folder, 'nowhere'))).toBe(false);
    await expect(readKeyFile(key)).rejects.toThrow('is a symlink');
  });
});

describe('reading the key', () => {
  it.each([
    { name: 'a folder', plant: (path: string): unknown => mkdirSync(path, { mode: 0o700 }) },
    { name: 'a FIFO', plant: (path: string): unknown => execFileSync('mkfifo', ['-m', '600', path]) },
    {
      name: 'a file too large for a key',
      plant: (path: string): unknown => writeFileSync(path, 'x'.repeat(65_537), { mode: 0o600 }),
    },
  ])('refuses $name, and does not hang', async ({ plant }) => {
    const path = join(temporaryFolder(), 'ca.key');
    plant(path);
    await expect(readKeyFile(path)).rejects.toThrow(/ca\.key" is not a key file/);
  });

  it('accepts one that is for its owner only', async () => {
    const path = join(temporaryFolder(), 'ca.key');
    writeFileSync(path, 'x'.repeat(65_536), { mode: 0o400 });
    expect(await readKeyFile(path)).toBe(readFileSync(path, 'utf8'));
  });
});

describe('the place of the key', () => {
  it.each([
    { name: 'beside the certificate', key: 'certs/public/ca.key', refused: true },
    { name: 'below the public folder', key: 'certs/public/private/ca.key', refused: true },
    {
      name: 'below the public folder in a folder whose name begins with two dots',
      key: 'certs/public/..x/ca.key',
      refused: true,
    },
    { name: 'in the public folder by a detour', key: 'certs/public/../public/ca.key', refused: true },
    { name: 'in the public folder through a symlink', key: 'alias/ca.key', refused: true },
    { name: 'above the public folder', key: 'certs/ca.key', refused: false },
    { name: 'in a folder whose name begins alike', key: 'certs/public-not/ca.key', refused: false },
    { name: 'in a folder whose name begins with two dots', key: 'certs/..x/ca.key', refused: false },
  ])('$name: refused $refused', async ({ key, refused }) => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, 'certs', 'public'), { recursive: true });
    symlinkSync(join(folder, 'certs', 'public'), join(folder, 'alias'));
    const asked = refuseSharedKey(join(folder, key), join(folder, 'certs', 'public', 'ca.pem')); // F02
    if (refused) await expect(asked).rejects.toThrow(/lies in the folder of the public certificate.*compromised/);
    else await asked;
  });

  it('is judged before anything is written', async () => {
    const folder = temporaryFolder();
    await expect(openAuthority({ certificate: join(folder, 'x/ca.pem'), key: join(folder, 'x/ca.key') })).rejects.toThrow(
      'lies in the folder',
    );
    expect(readdirSync(folder)).toEqual([]);
  });
});
