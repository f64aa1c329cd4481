// Knows how an X.509 v3 certificate is put together (RFC 5280): node-forge lays out the ASN.1, node:crypto signs it.
// Every certificate made here is for a P-256 key; the signer may hold a P-256 or an RSA key.
// It must never choose names, dates or rights: those are the authority's and the leaf's business.
import { createHash, randomBytes, sign } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import forge from 'node-forge';
import { children, Class, der, oid, parsed, primitive, sequence, TAG, text, Type } from './der.ts';
import type { Node } from './der.ts';

const { asn1 } = forge;

const OID = {
  commonName: '2.5.4.3',
  ecPublicKey: '1.2.840.10045.2.1',
  prime256v1: '1.2.840.10045.3.1.7',
  ecdsaWithSha256: '1.2.840.10045.4.3.2',
  sha256WithRsa: '1.2.840.113549.1.1.11',
  subjectKeyIdentifier: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  authorityKeyIdentifier: '2.5.29.35',
  extendedKeyUsage: '2.5.29.37',
  serverAuth: '1.3.6.1.5.5.7.3.1',
} as const;

/** Octets of an uncompressed P-256 point. */
const POINT_OCTETS = 65;
const SERIAL_OCTETS = 16;

/** One extension, its value in DER. */
export interface Extension {
  readonly oid: string;
  readonly critical: boolean;
  readonly value: Buffer;
}

/** What a certificate says. `issuer` and `subject` are Names in DER; dates count in whole seconds. */
export interface CertificateParts {
  readonly serial: Buffer;
  readonly issuer: Buffer;
  readonly subject: Buffer;
  readonly notBefore: Date;
  readonly notAfter: Date;
  /** A P-256 public key */
  readonly publicKey: KeyObject;
  readonly extensions: readonly Extension[];
}

/** Lays out and signs a certificate; gives PEM. Throws where the signer's key is neither EC nor RSA. */
export function signCertificate(parts: CertificateParts, signer: KeyObject): string {
  const algorithm = signatureAlgorithm(signer);
  const body = sequence(
    asn1.create(Class.CONTEXT_SPECIFIC, TAG[0], true, [primitive(Type.INTEGER, Buffer.of(2))]),
    primitive(Type.INTEGER, parts.serial),
    algorithm,
    parsed(parts.issuer),
    sequence(time(parts.notBefore), time(parts.notAfter)),
    parsed(parts.subject),
    sequence(sequence(oid(OID.ecPublicKey), oid(OID.prime256v1)), bitString(point(parts.publicKey))),
    asn1.create(Class.CONTEXT_SPECIFIC, TAG[3], true, [sequence(...parts.extensions.map(extensionNode))]),
  );
  const signature = sign('sha256', der(body), signer);
  return toPem(der(sequence(body, algorithm, bitString(signature))));
}

/**
 * A serial that no other certificate bears: 126 random bits in exactly 16 octets. The two top bits are fixed to 01,
 * so that it is positive, never zero and already minimal in DER (faults G02, G03).
 */
export function newSerial(): Buffer {
  const serial = randomBytes(SERIAL_OCTETS);
  serial.writeUInt8((serial.readUInt8(0) & 0x3f) | 0x40, 0);
  return serial;
}

/** The identifier of a P-256 key: the first 160 bits of the SHA-256 of its point (RFC 7093 section 2, method 1). */
export function keyIdentifier(publicKey: KeyObject): Buffer {
  return createHash('sha256').update(point(publicKey)).digest().subarray(0, 20);
}

/** A Name in DER with one common name (at most 64 characters, RFC 5280 ub-common-name), or the empty Name. */
export function nameOf(commonName: string | undefined): Buffer {
  if (commonName === undefined) return der(sequence());
  const attribute = sequence(oid(OID.commonName), primitive(Type.UTF8, Buffer.from(commonName)));
  return der(sequence(asn1.create(Class.UNIVERSAL, Type.SET, true, [attribute])));
}

/** An authority that may sign leaves and no further authorities. */
export function authorityConstraints(): Extension {
  const value = sequence(primitive(Type.BOOLEAN, Buffer.of(0xff)), primitive(Type.INTEGER, Buffer.of(0)));
  return { oid: OID.basicConstraints, critical: true, value: der(value) };
}

/** Not an authority. */
export function leafConstraints(): Extension {
  return { oid: OID.basicConstraints, critical: true, value: der(sequence()) };
}

/** keyCertSign and cRLSign for an authority, digitalSignature for a leaf (an EC key encrypts nothing). */
export function keyUsage(of: 'authority' | 'leaf'): Extension {
  const bits = of === 'authority' ? Buffer.of(1, 0b0000_0110) : Buffer.of(7, 0b1000_0000);
  return { oid: OID.keyUsage, critical: true, value: der(primitive(Type.BITSTRING, bits)) };
}

/** Good for TLS servers and nothing else. */
export function serverAuth(): Extension {
  return { oid: OID.extendedKeyUsage, critical: false, value: der(sequence(oid(OID.serverAuth))) };
}

export function subjectKeyIdentifier(identifier: Buffer): Extension {
  return { oid: OID.subjectKeyIdentifier, critical: false, value: der(primitive(Type.OCTETSTRING, identifier)) };
}

export function authorityKeyIdentifier(identifier: Buffer): Extension {
  const keyId = asn1.create(Class.CONTEXT_SPECIFIC, TAG[0], false, identifier.toString('latin1'));
  return { oid: OID.authorityKeyIdentifier, critical: false, value: der(sequence(keyId)) };
}

/** One alternative name: a dNSName for text, an iPAddress for 4 or 16 octets (fault G05). Critical beside an empty subject only. */
export function subjectAltName(name: string | Buffer, critical: boolean): Extension {
  const tag = typeof name === 'string' ? TAG[2] : TAG[7];
  const octets = typeof name === 'string' ? name : name.toString('latin1');
  const general = asn1.create(Class.CONTEXT_SPECIFIC, tag, false, octets);
  return { oid: OID.subjectAltName, critical, value: der(sequence(general)) };
}

/** The subject (DER) and the key identifier, where it has one, of a certificate in DER. Throws on what is not a certificate. */
export function readSubject(certificate: Buffer): { readonly subject: Buffer; readonly identifier: Buffer | undefined } {
  const fields = children(children(parsed(certificate))[0]);
  // Before the subject stand version [0] (v3 only), serial, algorithm, issuer and validity.
  const versioned = fields[0]?.tagClass === Class.CONTEXT_SPECIFIC ? 1 : 0;
  const subject = fields[versioned + 4];
  if (subject === undefined) throw new Error('no subject in the certificate');
  const tagged = fields.find((field) => field.tagClass === Class.CONTEXT_SPECIFIC && field.type === TAG[3]);
  const extensions = tagged === undefined ? [] : children(children(tagged)[0]);
  const found = extensions.map(children).find(([id]) => id !== undefined && asn1.derToOid(text(id)) === OID.subjectKeyIdentifier);
  const wrapped = found?.at(-1);
  const identifier =
    wrapped === undefined ? undefined : Buffer.from(text(parsed(Buffer.from(text(wrapped), 'latin1'))), 'latin1');
  return { subject: der(subject), identifier };
}

/** PEM of a certificate in DER. */
function toPem(certificate: Buffer): string {
  const lines = certificate.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

function signatureAlgorithm(signer: KeyObject): Node {
  switch (signer.asymmetricKeyType) {
    case 'ec':
      return sequence(oid(OID.ecdsaWithSha256));
    case 'rsa':
      return sequence(oid(OID.sha256WithRsa), primitive(Type.NULL, Buffer.alloc(0)));
    default:
      throw new Error(`cannot sign with a key of type "${signer.asymmetricKeyType ?? 'unknown'}"`);
  }
}

function extensionNode(extension: Extension): Node {
  const critical = extension.critical ? [primitive(Type.BOOLEAN, Buffer.of(0xff))] : [];
  return sequence(oid(extension.oid), ...critical, primitive(Type.OCTETSTRING, extension.value));
}

/** RFC 5280 section 4.1.2.5: UTCTime through 2049, GeneralizedTime from 2050. */
function time(date: Date): Node {
  return date.getUTCFullYear() < 2050
    ? asn1.create(Class.UNIVERSAL, Type.UTCTIME, false, asn1.dateToUtcTime(date))
    : asn1.create(Class.UNIVERSAL, Type.GENERALIZEDTIME, false, asn1.dateToGeneralizedTime(date));
}

/** The uncompressed point. By way of JWK, because OpenSSL 3 takes thirty times as long to write a SubjectPublicKeyInfo. */
function point(publicKey: KeyObject): Buffer {
  const { x = '', y = '' } = publicKey.export({ format: 'jwk' });
  const octets = Buffer.concat([Buffer.of(4), Buffer.from(x, 'base64url'), Buffer.from(y, 'base64url')]);
  if (octets.length !== POINT_OCTETS) throw new Error('internal error: not a P-256 key');
  return octets;
}

function bitString(octets: Buffer): Node {
  return primitive(Type.BITSTRING, Buffer.concat([Buffer.of(0), octets]));
}
