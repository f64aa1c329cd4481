// Knows how the roots of a bundle are written as a trust store for Java: PKCS #12 (RFC 7292), certificates alone, in clear.
// Each certificate bears the attribute without which Java takes it for part of some key's chain and trusts nothing by it.
// It must never hold a key; its password is public and keeps nothing secret, Java only asks for one.
import { createHash, createHmac, X509Certificate } from 'node:crypto';
import forge from 'node-forge';
import { Class, der, oid, primitive, sequence, TAG, Type } from './der.ts';
import type { Node } from './der.ts';

/** The password of every trust store made here; Java's own. */
export const TRUST_STORE_PASSWORD = 'changeit';

const OID = {
  data: '1.2.840.113549.1.7.1',
  certBag: '1.2.840.113549.1.12.10.1.3',
  x509Certificate: '1.2.840.113549.1.9.22.1',
  friendlyName: '1.2.840.113549.1.9.20',
  trustedKeyUsage: '2.16.840.1.113894.746875.1.1',
  anyExtendedKeyUsage: '2.5.29.37.0',
  sha1: '1.3.14.3.2.26',
} as const;

/** Purpose of a key that is derived for a MAC (RFC 7292 appendix B.3). */
const FOR_MAC = 3;
const SHA1_OCTETS = 20;
/** What Java 8 used itself: more would guard nothing, for the password is public. */
const MAC_ROUNDS = 1024;

/**
 * The trust store with every certificate of a bundle, each once; what is not a certificate is left out. The last is called
 * "sallyport". The same bundle gives the same octets. The MAC is the one that every Java since 5 reads (HMAC-SHA-1).
 */
export function trustStore(bundle: string): Buffer {
  const certificates = certificatesOf(bundle);
  const bags = certificates.map((raw, index) => bag(raw, index === certificates.length - 1 ? 'sallyport' : `root-${index + 1}`));
  const authenticated = der(sequence(content(der(sequence(...bags)))));
  return der(sequence(primitive(Type.INTEGER, Buffer.of(3)), content(authenticated), mac(authenticated)));
}

function certificatesOf(bundle: string): Buffer[] {
  const blocks = bundle.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  const found = new Map<string, Buffer>();
  for (const block of blocks) {
    const raw = readCertificate(block);
    // The CA is the last of the bundle, and stays so where the system trusts it already.
    if (raw !== undefined) {
      const key = raw.toString('latin1');
      found.delete(key);
      found.set(key, raw);
    }
  }
  return [...found.values()];
}

/** One that cannot be read would make the whole store unreadable to Java. */
function readCertificate(pem: string): Buffer | undefined {
  try {
    return new X509Certificate(pem).raw;
  } catch {
    return undefined; // not a certificate: it is nobody's root
  }
}

function bag(certificate: Buffer, alias: string): Node {
  const certBag = sequence(oid(OID.x509Certificate), explicit(primitive(Type.OCTETSTRING, certificate)));
  const attributes = set(
    // node-forge widens the characters of a BMPString itself.
    attribute(OID.friendlyName, primitive(Type.BMPSTRING, Buffer.from(alias))),
    attribute(OID.trustedKeyUsage, oid(OID.anyExtendedKeyUsage)),
  );
  return sequence(oid(OID.certBag), explicit(certBag), attributes);
}

function attribute(type: string, value: Node): Node {
  return sequence(oid(type), set(value));
}

function content(octets: Buffer): Node {
  return sequence(oid(OID.data), explicit(primitive(Type.OCTETSTRING, octets)));
}

/** The salt is made of what it seals, so that an unchanged bundle need not be written again. */
function mac(sealed: Buffer): Node {
  const salt = createHash('sha256').update(sealed).digest().subarray(0, SHA1_OCTETS);
  const buffer = forge.util.createBuffer(salt.toString('latin1'));
  const key = forge.pkcs12.generateKey(TRUST_STORE_PASSWORD, buffer, FOR_MAC, MAC_ROUNDS, SHA1_OCTETS);
  const digest = createHmac('sha1', Buffer.from(key.getBytes(), 'latin1')).update(sealed).digest();
  const algorithm = sequence(oid(OID.sha1), primitive(Type.NULL, Buffer.alloc(0)));
  const rounds = Buffer.alloc(2);
  rounds.writeUInt16BE(MAC_ROUNDS);
  return sequence(
    sequence(algorithm, primitive(Type.OCTETSTRING, digest)),
    primitive(Type.OCTETSTRING, salt),
    primitive(Type.INTEGER, rounds),
  );
}

function explicit(node: Node): Node {
  return forge.asn1.create(Class.CONTEXT_SPECIFIC, TAG[0], true, [node]);
}

/** DER wants the members of a set in order of their octets (X.690 section 11.6). */
function set(...members: Node[]): Node {
  const ordered = members.map((node) => ({ node, octets: der(node) })).sort((a, b) => Buffer.compare(a.octets, b.octets));
  return forge.asn1.create(
    Class.UNIVERSAL,
    Type.SET,
    true,
    ordered.map(({ node }) => node),
  );
}
