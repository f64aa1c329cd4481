// Twin of public-folder.ts: whole files only, and roots from wherever the system keeps them.
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { describe, expect, it } from 'vitest';
import {
  bundlePath,
  composeBundle,
  refreshBundle,
  stagePublicFile,
  writePublicFile,
} from '../../src/certificates/public-folder.ts';
import { newIssuer, opensslWithFile, temporaryFolder } from './rig.ts';

describe('a public file', () => {
  it('is not there until it is published, and whole then', async () => {
    const path = join(temporaryFolder(), 'public', 'ca.pem');
    const staged = await stagePublicFile(path, 'text');
    expect(existsSync(path)).toBe(false);
    await staged.publish();
    await staged.discard();
    expect(readFileSync(path, 'utf8')).toBe('text');
    expect(readdirSync(join(path, '..'))).toEqual(['ca.pem']);
  });

  it('leaves nothing behind when it is discarded', async () => {
    const path = join(temporaryFolder(), 'public', 'ca.pem');
    await (await stagePublicFile(path, 'text')).discard();
    expect(readdirSync(join(path, '..'))).toEqual([]);
  });

  it('replaces a symlink in its place, not what the symlink leads to', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'precious'), 'before');
    symlinkSync(join(folder, 'precious'), join(folder, 'ca.pem'));
    await writePublicFile(join(folder, 'ca.pem'), 'text');
    expect(readFileSync(join(folder, 'precious'), 'utf8')).toBe('before');
    expect(readFileSync(join(folder, 'ca.pem'), 'utf8')).toBe('text');
  });

  it('keeps the mode of a folder that was there', async () => {
    const folder = join(temporaryFolder(), 'shared');
    mkdirSync(folder);
    chmodSync(folder, 0o1777);
    await writePublicFile(join(folder, 'ca.pem'), 'text');
    expect(statSync(folder).mode & 0o7777).toBe(0o1777);
  });

  it('says where it cannot be written, and leaves nothing behind', async () => {
    const folder = temporaryFolder();
    mkdirSync(join(folder, 'ca.pem', 'in the way'), { recursive: true });
    await expect(writePublicFile(join(folder, 'ca.pem'), 'text')).rejects.toThrow(
      /cannot write ".*ca\.pem" \(\w+\): make its folder writable/,
    );
    expect(readdirSync(folder)).toEqual(['ca.pem']);
  });
});

describe('the bundle', () => {
  const { certificatePem } = newIssuer();

  it('stands beside the certificate', () => {
    expect(bundlePath('certs/public/ca.pem')).toBe('certs/public/bundle.pem');
  });

  it('takes the first file of roots that holds any, and puts the CA after them', async () => {
    const folder = temporaryFolder();
    const [missing, empty, first, second] = ['missing', 'empty', 'first', 'second'].map((name) => join(folder, name)) as [
      string,
      string,
      string,
      string,
    ];
    const root = newIssuer().certificatePem;
    writeFileSync(empty, '');
    writeFileSync(first, root.trimEnd());
    writeFileSync(second, newIssuer().certificatePem);
    expect(await composeBundle(certificatePem, [missing, empty, first, second])).toBe(root + certificatePem);
  });

  it("takes Node's roots where the system has none", async () => {
    const bundle = await composeBundle(certificatePem, []);
    expect(bundle.match(/BEGIN CERTIFICATE/g)).toHaveLength(rootCertificates.length + 1);
    const listed = opensslWithFile(bundle, (file) => ['storeutl', '-noout', '-certs', file]);
    expect(listed).toContain(`Total found: ${rootCertificates.length + 1}`);
  });

  it('has beside it what is made of it, written anew only where it is not current', async () => {
    const folder = temporaryFolder();
    const certificate = join(folder, 'ca.pem');
    await refreshBundle(certificate, certificatePem);
    const made = ['bundle.pem', 'mounted.wgetrc', 'trust.p12', 'wgetrc'];
    expect(readdirSync(folder).sort()).toEqual(made);
    for (const name of made) expect(statSync(join(folder, name)).mode & 0o777).toBe(0o644);
    expect(readFileSync(join(folder, 'wgetrc'), 'utf8')).toContain(`\nca_certificate = ${join(folder, 'bundle.pem')}\n`);
    expect(readFileSync(join(folder, 'mounted.wgetrc'), 'utf8')).toContain('\nca_certificate = /etc/sallyport/bundle.pem\n');

    const inodes = () => made.map((name) => statSync(join(folder, name)).ino);
    const before = inodes();
    await refreshBundle(certificate, certificatePem);
    expect(inodes()).toEqual(before);
    writeFileSync(join(folder, 'trust.p12'), 'half a fi');
    await refreshBundle(certificate, certificatePem);
    expect(inodes().map((inode, index) => inode === before[index])).toEqual([true, true, false, true]);
  });
});
