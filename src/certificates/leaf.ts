// Mints the certificate that the sandbox sees in place of an upstream's: one host, one key, one month.
// Given the issuer, the host and the time it reads nothing else; only the key and the serial are random.
// It must never name anything but the one host it was asked for, nor outlive its issuer.
import { generateKeyPairSync } from 'node:crypto';
import ipaddr from 'ipaddr.js';
import { isAddress } from '../exchange/authority.ts';
import type { Host } from '../exchange/authority.ts';
import { AuthorityError } from './authority-error.ts';
import * as structure from './certificate-structure.ts';
import type { Issuer } from './issuer.ts';

const DAY_MS = 86_400_000;

/** How long a leaf lives from its minting, in `ms`: 30 days, well under the 397 that clients accept (fault G08). */
export const LEAF_LIFE_MS = 30 * DAY_MS;

/** How far a leaf is backdated, in `ms`: 24 h, for sandboxes whose clock is behind; never before the issuer's own start. */
export const LEAF_BACKDATE_MS = DAY_MS;

/** RFC 5280 ub-common-name: a longer one makes a certificate that strict parsers refuse (fault G06). */
const COMMON_NAME_LIMIT = 64;

/** A certificate for one host with its key. Holds a private key: never log it. */
export interface Leaf {
  readonly host: Host;
  /** The leaf, followed by the issuing CA's chain where that CA is not a root */
  readonly certificatePem: string;
  readonly keyPem: string;
  readonly notAfter: Date;
}

/** Mints a leaf for `host` at `now`, in about 0.3 ms. Throws an AuthorityError once the issuer has expired. */
export function mintLeaf(issuer: Issuer, host: Host, now: Date): Leaf {
  if (now >= issuer.notAfter) {
    throw new AuthorityError(
      `the CA expired on ${issuer.notAfter.toISOString()}, no certificate for "${host}" can be minted: make a new CA and restart`,
    );
  }
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
  const subject = subjectFor(host, issuer);
  const notBefore = new Date(Math.max(now.getTime() - LEAF_BACKDATE_MS, issuer.notBefore.getTime()));
  // A certificate counts whole seconds; the cache must not believe in the fraction that is cut off.
  const end = Math.min(now.getTime() + LEAF_LIFE_MS, issuer.notAfter.getTime());
  const notAfter = new Date(end - (end % 1000));
  const certificatePem = structure.signCertificate(
    {
      serial: structure.newSerial(),
      issuer: issuer.subject,
      subject,
      notBefore,
      notAfter,
      publicKey,
      extensions: [
        structure.leafConstraints(),
        structure.keyUsage('leaf'),
        structure.serverAuth(),
        structure.subjectKeyIdentifier(structure.keyIdentifier(publicKey)),
        ...(issuer.identifier === undefined ? [] : [structure.authorityKeyIdentifier(issuer.identifier)]),
        // RFC 5280 section 4.2.1.6: critical where the subject is empty, and not otherwise.
        structure.subjectAltName(alternativeName(host), subject.equals(structure.nameOf(undefined))),
      ],
    },
    issuer.key,
  );
  return {
    host,
    certificatePem: certificatePem + issuer.chainPem,
    // SEC1, because OpenSSL 3 writes it six times as fast as PKCS#8; both are read alike.
    keyPem: privateKey.export({ type: 'sec1', format: 'pem' }).toString(),
    notAfter,
  };
}

/** The host as common name, or the empty Name where it is too long or would make the leaf look self-signed (fault G07). */
function subjectFor(host: Host, issuer: Issuer): Buffer {
  const subject = structure.nameOf(host.length <= COMMON_NAME_LIMIT ? host : undefined);
  return subject.equals(issuer.subject) ? structure.nameOf(undefined) : subject;
}

function alternativeName(host: Host): string | Buffer {
  return isAddress(host) ? Buffer.from(ipaddr.parse(host).toByteArray()) : host;
}
