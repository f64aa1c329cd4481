// What a leaf is signed with: the CA's key and what its certificate says, taken apart once at start.
// Also makes a new CA. Pure but for randomness: no files, no clock of its own.
// It must never accept a certificate that clients would refuse as a CA: they would report every leaf as a riddle.
import { createPrivateKey, generateKeyPairSync, X509Certificate } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { AuthorityError } from './authority-error.ts';
import * as structure from './certificate-structure.ts';

const DAY_MS = 86_400_000;

/**
 * How long a CA made here lives, in `ms`: 825 days, the longest that any client's lifetime rule accepts of a certificate under
 * a root the user added. Long enough to be forgotten, so a warning comes 30 days before; short enough to bound a stolen key.
 */
export const AUTHORITY_LIFE_MS = 825 * DAY_MS;

/** How far a new CA is backdated, in `ms`: twice as far as a leaf, so that the first leaf keeps its whole allowance (fault G08). */
export const AUTHORITY_BACKDATE_MS = 2 * DAY_MS;

const CERTIFICATE_BLOCK = /-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----/g;

/** The signing side of a CA. Holds the private key: never log it. */
export interface Issuer {
  readonly key: KeyObject;
  /** Name in DER, byte for byte as in the CA's certificate */
  readonly subject: Buffer;
  /** Goes into each leaf as its authority key identifier; `undefined` where an operator's CA has none */
  readonly identifier: Buffer | undefined;
  readonly notBefore: Date;
  readonly notAfter: Date;
  /** Every certificate of the file, the issuing one first */
  readonly certificatePem: string;
  /** What a server sends after the leaf: nothing under a root (clients hold it), else the issuing certificate and those above it */
  readonly chainPem: string;
}

/** A new P-256 CA, its name ending in the start of its key identifier so that two CAs can be told apart. */
export function makeAuthority(now: Date): { readonly certificatePem: string; readonly keyPem: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
  const identifier = structure.keyIdentifier(publicKey);
  const subject = structure.nameOf(`Sallyport CA ${identifier.toString('hex', 0, 4)}`);
  const certificatePem = structure.signCertificate(
    {
      serial: structure.newSerial(),
      issuer: subject,
      subject,
      notBefore: new Date(now.getTime() - AUTHORITY_BACKDATE_MS),
      notAfter: new Date(now.getTime() + AUTHORITY_LIFE_MS),
      publicKey,
      extensions: [
        structure.authorityConstraints(),
        structure.keyUsage('authority'),
        structure.subjectKeyIdentifier(identifier),
        // A root may leave this out, but some strict verifiers ask for it in every certificate.
        structure.authorityKeyIdentifier(identifier),
      ],
    },
    privateKey,
  );
  return { certificatePem, keyPem: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
}

/** The CA as it stands in its two files, with their paths for the messages. */
export interface AuthorityText {
  readonly certificatePem: string;
  readonly keyPem: string;
  readonly paths: { readonly certificate: string; readonly key: string | undefined };
}

/** Takes a CA apart, or throws an AuthorityError that says why it cannot serve as one at `now`. */
export function readIssuer({ certificatePem, keyPem, paths }: AuthorityText, now: Date): Issuer {
  const file = `"${paths.certificate}"`;
  if (certificatePem.includes('PRIVATE KEY')) {
    throw new AuthorityError(
      `the CA certificate ${file} holds a private key, and sandboxes may see this file: treat the key as compromised and make a new CA`,
    );
  }
  const chain = readCertificates(certificatePem, file);
  const [certificate] = chain;
  checkAuthority(certificate, file, now);
  const key = readKey(keyPem, paths.key ?? '(in memory)');
  if (!certificate.checkPrivateKey(key)) {
    throw new AuthorityError(
      `the CA key "${paths.key ?? '(in memory)'}" does not belong to the certificate ${file}: restore the one that does, or remove both to have a new CA made`,
    );
  }
  const { subject, identifier } = takeApart(certificate, file);
  const pem = chain.map((each) => each.toString());
  return {
    key,
    subject,
    identifier,
    notBefore: new Date(certificate.validFrom),
    notAfter: new Date(certificate.validTo),
    certificatePem: pem.join(''),
    chainPem: isRoot(certificate) ? '' : pem.join(''),
  };
}

function readCertificates(pem: string, file: string): [X509Certificate, ...X509Certificate[]] {
  try {
    const [first, ...rest] = (pem.match(CERTIFICATE_BLOCK) ?? []).map((block) => new X509Certificate(block));
    if (first !== undefined) return [first, ...rest];
  } catch (error) {
    throw new AuthorityError(unreadable(file), error);
  }
  throw new AuthorityError(unreadable(file));
}

function takeApart(certificate: X509Certificate, file: string): ReturnType<typeof structure.readSubject> {
  try {
    return structure.readSubject(certificate.raw);
  } catch (error) {
    throw new AuthorityError(unreadable(file), error);
  }
}

function unreadable(file: string): string {
  return `the CA certificate ${file} is not a PEM certificate: restore it, or remove it and the key to have a new CA made`;
}

function checkAuthority(certificate: X509Certificate, file: string, now: Date): void {
  if (!certificate.ca) {
    throw new AuthorityError(
      `the certificate ${file} is not a CA (basic constraints CA:TRUE and key usage keyCertSign are needed): set ca.certificate to a CA's`,
    );
  }
  const from = new Date(certificate.validFrom);
  const to = new Date(certificate.validTo);
  if (now >= to) {
    throw new AuthorityError(
      `the CA certificate ${file} expired on ${to.toISOString()}: remove it and the key to have a new CA made, then hand the new certificate to the sandboxes`,
    );
  }
  if (now < from) {
    throw new AuthorityError(
      `the CA certificate ${file} is not valid before ${from.toISOString()}: set this machine's clock, or use another CA`,
    );
  }
}

function readKey(pem: string, path: string): KeyObject {
  let key: KeyObject;
  try {
    key = createPrivateKey(pem);
  } catch {
    // The cause is dropped: a parser's words may quote what it was given.
    throw new AuthorityError(
      `the CA key "${path}" is not an unencrypted PEM private key: restore it, or remove it and the certificate`,
    );
  }
  if (key.asymmetricKeyType !== 'ec' && key.asymmetricKeyType !== 'rsa') {
    throw new AuthorityError(
      `the CA key "${path}" is of type "${key.asymmetricKeyType ?? 'unknown'}": use an EC or RSA key, which every client can verify`,
    );
  }
  return key;
}

function isRoot(certificate: X509Certificate): boolean {
  return certificate.checkIssued(certificate);
}
