// Twin of certificate-structure.ts: serials in bulk, and names and signatures as strict parsers read them.
import { generateKeyPairSync, X509Certificate } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import * as structure from '../../src/certificates/certificate-structure.ts';
import { newIssuer, openssl } from './rig.ts';

describe('a serial', () => {
  it('is positive, not zero, 16 octets, minimal in DER and never given twice, in 10,000', () => {
    const seen = new Set<string>();
    for (let i = 0; i < 10_000; i += 1) {
      const serial = structure.newSerial(); // G02
      expect(serial).toHaveLength(16);
      // 0x01 to 0x7f: neither negative, nor a leading octet that DER would have left out.
      expect(serial.readUInt8(0)).toBeGreaterThan(0);
      expect(serial.readUInt8(0)).toBeLessThan(0x80);
      seen.add(serial.toString('hex'));
    }
    expect(seen.size).toBe(10_000);
  });
});

describe('a certificate', () => {
  it.each([
    { name: 'EC', signer: generateKeyPairSync('ec', { namedCurve: 'prime256v1' }), algorithm: 'ecdsa-with-SHA256' },
    { name: 'P-384', signer: generateKeyPairSync('ec', { namedCurve: 'secp384r1' }), algorithm: 'ecdsa-with-SHA256' },
    { name: 'RSA', signer: generateKeyPairSync('rsa', { modulusLength: 2048 }), algorithm: 'sha256WithRSAEncryption' },
  ])('is signed with the $name key it is given', ({ signer, algorithm }) => {
    const pem = structure.signCertificate(parts(), signer.privateKey);
    expect(new X509Certificate(pem).verify(signer.publicKey)).toBe(true);
    expect(openssl(['x509', '-noout', '-text'], pem)).toContain(`Signature Algorithm: ${algorithm}`);
  });

  it('is not made with a key whose signature it could not name', () => {
    expect(() => structure.signCertificate(parts(), generateKeyPairSync('ed25519').privateKey)).toThrow('"ed25519"');
  });

  it('gives back the subject and key identifier that were put in, byte for byte', () => {
    const written = parts();
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
    const read = structure.readSubject(new X509Certificate(structure.signCertificate(written, privateKey)).raw);
    expect(read.subject).toEqual(written.subject);
    expect(read.identifier).toEqual(Buffer.from('0102', 'hex'));
  });

  it('has no key identifier where none was put in', () => {
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
    const pem = structure.signCertificate({ ...parts(), extensions: [structure.leafConstraints()] }, privateKey);
    expect(structure.readSubject(new X509Certificate(pem).raw).identifier).toBeUndefined();
  });

  it('survives an openssl round trip unchanged, so its DER is canonical', () => {
    const pem = newIssuer().certificatePem;
    expect(openssl(['x509'], pem)).toBe(pem);
  });
});

function parts(): structure.CertificateParts {
  return {
    serial: structure.newSerial(),
    issuer: structure.nameOf('Bücher & Söhne'),
    subject: structure.nameOf('Ünder'),
    notBefore: new Date('2026-01-01T00:00:00Z'),
    notAfter: new Date('2051-01-01T00:00:00Z'),
    publicKey: generateKeyPairSync('ec', { namedCurve: 'prime256v1' }).publicKey,
    extensions: [structure.leafConstraints(), structure.subjectKeyIdentifier(Buffer.from('0102', 'hex'))],
  };
}
