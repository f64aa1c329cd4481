import { chmod, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openAdminToken } from '../../src/admin/admin-token.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'admin-token-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

describe('openAdminToken', () => {
  it('makes a token of 32 random bytes at the first start, for this user only', async () => {
    const path = join(folder, 'state/deep/admin-token');
    const made = await openAdminToken(path);
    expect(made).toEqual({ token: expect.stringMatching(/^[\w-]{43}$/) as string, created: true });
    expect(await readFile(path, 'utf8')).toBe(`${made.token}\n`);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await stat(join(folder, 'state'))).mode & 0o777).toBe(0o700);
    expect((await stat(join(folder, 'state/deep'))).mode & 0o777).toBe(0o700);
  });

  it('reads the same token at the next start, without a warning', async () => {
    const path = join(folder, 'admin-token');
    const { token } = await openAdminToken(path);
    expect(await openAdminToken(path)).toEqual({ token, created: false });
  });

  it('gives two starts at once one token, or tells one of them to try again', async () => {
    const path = join(folder, 'admin-token');
    const both = await Promise.allSettled([openAdminToken(path), openAdminToken(path)]);
    const tokens = both.flatMap((each) => (each.status === 'fulfilled' ? [each.value.token] : []));
    expect(new Set(tokens).size).toBe(1);
    expect((await readFile(path, 'utf8')).trim()).toBe(tokens[0]);
  });

  it('trims what an editor leaves around a token', async () => {
    const path = join(folder, 'admin-token');
    await writeFile(path, '  my-own-token\r\n', { mode: 0o600 });
    expect(await openAdminToken(path)).toEqual({ token: 'my-own-token', created: false });
  });

  it.each([
    { mode: 0o600, warns: false },
    { mode: 0o400, warns: false },
    { mode: 0o640, warns: true },
    { mode: 0o604, warns: true },
    { mode: 0o644, warns: true },
  ])('warns when others can read the file, and still takes it ($mode)', async ({ mode, warns }) => {
    const path = join(folder, 'admin-token');
    await writeFile(path, 'SENTINEL');
    await chmod(path, mode);
    const { token, warning } = await openAdminToken(path);
    expect(token).toBe('SENTINEL');
    expect(warning?.includes('chmod 600') ?? false).toBe(warns);
    expect(warning ?? '').not.toContain('SENTINEL'); // fault E17
  });

  it.each([
    { name: 'an empty file', text: '', says: 'is empty; delete it' },
    { name: 'a blank file', text: ' \n', says: 'is empty; delete it' },
    { name: 'two lines', text: 'SENTINEL\nsecond', says: 'no header can bear' },
    { name: 'letters beyond ASCII', text: 'SENTINELé', says: 'no header can bear' },
    { name: 'a file of 4097 bytes', text: 'a'.repeat(4097), says: 'no small plain file' },
  ])('refuses $name', async ({ text, says }) => {
    const path = join(folder, 'admin-token');
    await writeFile(path, text, { mode: 0o600 });
    const refused = await openAdminToken(path).catch((error: unknown) => String(error));
    expect(refused).toContain(says);
    expect(refused).toContain(path);
    expect(refused).not.toContain('SENTINEL'); // fault E17
  });

  it('refuses a folder, and a path below a file', async () => {
    await mkdir(join(folder, 'admin-token'));
    await expect(openAdminToken(join(folder, 'admin-token'))).rejects.toThrow('admin token file');
    await writeFile(join(folder, 'file'), '');
    await expect(openAdminToken(join(folder, 'file/admin-token'))).rejects.toThrow('cannot make the admin token file');
  });
});
