// The seal of the door: opens the CA at start (loads it, or makes it the first time) and issues leaves with it.
// Stands beside `listen`, which asks for a leaf when a tunnel names its host.
// It must never silently replace a CA that sandboxes already trust, nor start with a key that others may have read.
import { readFile, lstat, rm } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { Host } from '../exchange/authority.ts';
import { AuthorityError, systemCode } from './authority-error.ts';
import { makeAuthority, readIssuer } from './issuer.ts';
import type { AuthorityText, Issuer } from './issuer.ts';
import { createKeyFile, keyFolderWarning, keyWrittenAt, makeKeyFolder, readKeyFile, refuseSharedKey } from './key-file.ts';
import { mintLeaf } from './leaf.ts';
import type { Leaf } from './leaf.ts';
import { refreshBundle, stagePublicFile, writePublicFile } from './public-folder.ts';

export { AuthorityError } from './authority-error.ts';
export type { Leaf } from './leaf.ts';

const DAY_MS = 86_400_000;
const WARN_DAYS = 30;

/** How long a key may stand without its certificate while another process is between writing the two, in `ms`. */
const MAKING_MS = 5_000;
const LOOK_AGAIN_MS = 20;

/** A CA, ready to issue. */
export interface CertificateAuthority {
  /** What clients must trust; the issuing certificate first where an operator's file holds several */
  readonly certificatePem: string;
  readonly notAfter: Date;
  /** What the operator should be told at start: the CA expires soon, the bundle could not be written, and the like */
  readonly warning?: string;
  /** Mints a new leaf, synchronously; ask the cache first. Throws an AuthorityError once the CA has expired. */
  issue(host: Host): Leaf;
}

/** Where the CA lives. */
export interface AuthorityOptions {
  /** Path of the certificate; its folder is what sandboxes may see, and gets `bundle.pem` too */
  readonly certificate: string;
  /** Path of the key; `undefined` keeps the key in memory and makes a new CA at each start (fault F03) */
  readonly key: string | undefined;
  /** Wall clock */
  readonly now?: () => Date;
}

interface Paths {
  readonly certificate: string;
  readonly key: string;
}

/**
 * Opens the CA: loads it from its two files, or makes it where neither is there. Of several processes that start at once one
 * makes the CA and the others load it. Throws an AuthorityError where the CA is not fit to start with.
 */
export async function openAuthority(options: AuthorityOptions): Promise<CertificateAuthority> {
  const now = options.now ?? (() => new Date());
  const { certificate, key } = options;
  const text = key === undefined ? await makeInMemory(certificate, now()) : await loadOrMake({ certificate, key }, now);
  const issuer = readIssuer(text, now());
  const warnings = [
    expiryWarning(issuer, certificate, now()),
    issuer.identifier === undefined
      ? `the CA certificate "${certificate}" has no subject key identifier: strict clients refuse it, make one that has`
      : undefined,
    key === undefined ? undefined : await keyFolderWarning(key),
    await bundleWarning(certificate, issuer),
  ].filter((warning) => warning !== undefined);
  return {
    certificatePem: issuer.certificatePem,
    notAfter: issuer.notAfter,
    ...(warnings.length === 0 ? {} : { warning: warnings.join('; ') }),
    issue: (host) => mintLeaf(issuer, host, now()),
  };
}

async function makeInMemory(certificate: string, now: Date): Promise<AuthorityText> {
  const made = makeAuthority(now);
  await writePublicFile(certificate, made.certificatePem);
  return { ...made, paths: { certificate, key: undefined } };
}

async function loadOrMake(paths: Paths, now: () => Date): Promise<AuthorityText> {
  await refuseSharedKey(paths.key, paths.certificate);
  for (;;) {
    // The maker writes the key first, so a certificate seen here has its key by the time that is looked for.
    const hasCertificate = await isThere(paths.certificate);
    const keyAt = await keyWrittenAt(paths.key);
    if (hasCertificate && keyAt !== undefined) return load(paths);
    if (hasCertificate) {
      throw new AuthorityError(
        `the CA certificate "${paths.certificate}" is there but its key "${paths.key}" is not: restore the key, or remove the certificate to have a new CA made`,
      );
    }
    if (keyAt === undefined) {
      const made = await make(paths, now());
      if (made !== undefined) return made;
    } else if (Math.abs(Date.now() - keyAt) > MAKING_MS) {
      throw new AuthorityError(
        `the CA key "${paths.key}" is there but its certificate "${paths.certificate}" is not: restore the certificate, or remove the key to have a new CA made`,
      );
    } else {
      await delay(LOOK_AGAIN_MS);
    }
  }
}

async function load(paths: Paths): Promise<AuthorityText> {
  const keyPem = await readKeyFile(paths.key);
  try {
    return { certificatePem: await readFile(paths.certificate, 'utf8'), keyPem, paths };
  } catch (error) {
    throw new AuthorityError(
      `cannot read the CA certificate "${paths.certificate}" (${systemCode(error) ?? 'unknown'}): make it readable for this user`,
      error,
    );
  }
}

/** Makes the CA; `undefined` where another process was quicker. The certificate is staged first: no key is left alone by a full disk. */
async function make(paths: Paths, now: Date): Promise<AuthorityText | undefined> {
  const made = makeAuthority(now);
  // Before the public folder, which may lie below it and would have it made 0755.
  await makeKeyFolder(paths.key);
  const staged = await stagePublicFile(paths.certificate, made.certificatePem);
  try {
    if (!(await createKeyFile(paths.key, made.keyPem))) return undefined;
    try {
      await staged.publish();
    } catch (error) {
      await rm(paths.key, { force: true });
      throw error;
    }
    return { ...made, paths };
  } finally {
    await staged.discard();
  }
}

async function isThere(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return false;
    throw new AuthorityError(
      `cannot look at "${path}" (${systemCode(error) ?? 'unknown'}): make its folder readable for this user`,
      error,
    );
  }
}

function expiryWarning(issuer: Issuer, certificate: string, now: Date): string | undefined {
  const days = Math.floor((issuer.notAfter.getTime() - now.getTime()) / DAY_MS);
  if (days >= WARN_DAYS) return undefined;
  return `the CA certificate "${certificate}" expires on ${issuer.notAfter.toISOString()}, in ${days} days: plan a new CA and hand its certificate to the sandboxes`;
}

/** A bundle that cannot be written (a read-only mount) keeps nobody safe by stopping the door; the operator is told instead. */
async function bundleWarning(certificate: string, issuer: Issuer): Promise<string | undefined> {
  try {
    await refreshBundle(certificate, issuer.certificatePem);
    return undefined;
  } catch (error) {
    if (error instanceof AuthorityError) return error.message;
    throw error;
  }
}
