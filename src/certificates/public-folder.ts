// Keeps what sandboxes may see: the CA's certificate and, beside it, bundle.pem for clients that take one file of roots only, the same
// roots as trust.p12 for Java, and lines for a wget that reads no variable for its roots.
// Each file is complete at every moment (temporary name, then rename), 0644, in a folder that is 0755 when made here.
// It must never put anything else there, least of all a key (fault F02).
import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { rootCertificates } from 'node:tls';
import { AuthorityError, systemCode } from './authority-error.ts';
import { trustStore } from './trust-store.ts';

const PUBLIC_FILE = 0o644;
const PUBLIC_FOLDER = 0o755;

/** Where systems keep their roots: Debian and Alpine, Fedora and its kin, BSD and macOS. */
export const SYSTEM_ROOTS: readonly string[] = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/cert.pem',
];

/** The file beside the certificate that holds the system's roots and the CA. */
export function bundlePath(certificate: string): string {
  return join(dirname(certificate), 'bundle.pem');
}

/** Where sandboxes in containers are told to mount the folder. */
export const MOUNTED_AT = '/etc/sallyport';

/** What stands beside a bundle, which gives its folder: Java's trust store, and a wgetrc for the place it has here or is mounted at. */
export function besideBundle(bundle: string, at: 'here' | 'mounted'): { readonly trustStore: string; readonly wgetrc: string } {
  const beside = (name: string): string => join(dirname(bundle), name);
  return { trustStore: beside('trust.p12'), wgetrc: beside(at === 'here' ? 'wgetrc' : 'mounted.wgetrc') };
}

/** A public file written under a temporary name, to be put in place or thrown away. */
export interface StagedFile {
  /** Puts the file in place, over what was there. */
  publish(): Promise<void>;
  /** Removes it. Does nothing after `publish`. */
  discard(): Promise<void>;
}

/** Writes a public file under a temporary name beside `path`; makes the folder where it is missing. Throws an AuthorityError. */
export async function stagePublicFile(path: string, content: string | Buffer): Promise<StagedFile> {
  const target = resolve(path);
  const folder = dirname(target);
  const temporary = join(folder, `.${basename(target)}.${randomBytes(8).toString('hex')}`);
  try {
    await makeFolder(folder);
    const file = await open(
      temporary,
      constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
      PUBLIC_FILE,
    );
    try {
      await file.chmod(PUBLIC_FILE); // the umask may have taken bits away
      await file.writeFile(content);
      await file.sync();
    } finally {
      await file.close();
    }
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => undefined); // the first failure is the one to report
    throw unwritable(path, error);
  }
  return {
    async publish() {
      await rename(temporary, target).catch((error: unknown) => {
        throw unwritable(path, error);
      });
    },
    discard: () => rm(temporary, { force: true }),
  };
}

/** Puts a public file in place at once. Throws an AuthorityError; what was there stays then. */
export async function writePublicFile(path: string, content: string | Buffer): Promise<void> {
  const staged = await stagePublicFile(path, content);
  try {
    await staged.publish();
  } finally {
    await staged.discard();
  }
}

/** Writes the bundle, and what is made of it, where they are not there or not current. Throws an AuthorityError. */
export async function refreshBundle(certificate: string, certificatePem: string): Promise<void> {
  const path = resolve(bundlePath(certificate));
  const bundle = await composeBundle(certificatePem);
  const { trustStore: store, wgetrc } = besideBundle(path, 'here');
  await refresh(path, Buffer.from(bundle));
  await refresh(store, trustStore(bundle));
  await refresh(wgetrc, wgetLines(path));
  await refresh(besideBundle(path, 'mounted').wgetrc, wgetLines(join(MOUNTED_AT, basename(path))));
}

async function refresh(path: string, wanted: Buffer): Promise<void> {
  const present = await readFile(path).catch(() => undefined); // missing or unreadable: written anew
  if (present?.equals(wanted) !== true) await writePublicFile(path, wanted);
}

/** For SYSTEM_WGETRC: wget built with GnuTLS reads no variable that names roots. */
function wgetLines(bundle: string): Buffer {
  return Buffer.from(`# wget trusts the proxy by this\nca_certificate = ${bundle}\n`);
}

/** The roots of the first file that can be read, else those that Node ships, and the CA after them. */
export async function composeBundle(certificatePem: string, candidates: readonly string[] = SYSTEM_ROOTS): Promise<string> {
  for (const candidate of candidates) {
    const roots = await readFile(candidate, 'utf8').catch(() => ''); // absent on other systems: the next is asked
    if (roots.includes('-----BEGIN ')) return `${roots.trimEnd()}\n${certificatePem}`;
  }
  return `${rootCertificates.join('\n')}\n${certificatePem}`;
}

/** `mkdir` says which was the first folder it made; one that was there keeps its mode, for it may be shared with others. */
async function makeFolder(folder: string): Promise<void> {
  const made = await mkdir(folder, { recursive: true, mode: PUBLIC_FOLDER });
  if (made !== undefined) await chmod(folder, PUBLIC_FOLDER);
}

function unwritable(path: string, cause: unknown): AuthorityError {
  return new AuthorityError(
    `cannot write "${path}" (${systemCode(cause) ?? 'unknown'}): make its folder writable for this user, or set ca.certificate elsewhere`,
    cause,
  );
}
