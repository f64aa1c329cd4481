// Twin of issuer.ts: what is taken from an operator's own CA. Its refusals are in certificate-authority.test.ts.
import { X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { mkdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { openAuthority } from '../../src/certificates/certificate-authority.ts';
import { makeAuthority, readIssuer } from '../../src/certificates/issuer.ts';
import { mintLeaf } from '../../src/certificates/leaf.ts';
import { host, openssl, temporaryFolder, verifyStrictly } from './rig.ts';

/** A root as an operator would make it with openssl. */
function operatorRoot(algorithm: readonly string[], extensions: readonly string[]): { certificate: string; key: string } {
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'public'));
  const certificate = join(folder, 'public', 'ca.pem');
  const key = join(folder, 'private.key');
  const more = extensions.flatMap((extension) => ['-addext', extension]);
  openssl([
    'req',
    '-x509',
    '-nodes',
    '-utf8',
    '-subj',
    '/C=DE/O=Bücher/CN=Root',
    '-newkey',
    ...algorithm,
    '-keyout',
    key,
    '-out',
    certificate,
    ...more,
  ]);
  return { certificate, key };
}

describe('an operator brings a root', () => {
  it.each([
    { name: 'with an RSA key', algorithm: ['rsa:2048'] },
    { name: 'with a P-384 key', algorithm: ['ec', '-pkeyopt', 'ec_paramgen_curve:secp384r1'] },
  ])('$name, and its leaves verify strictly', ({ algorithm }) => {
    const { certificate, key } = operatorRoot(algorithm, ['keyUsage=critical,keyCertSign']);
    const text = { certificatePem: readFileSync(certificate, 'utf8'), keyPem: readFileSync(key, 'utf8') };
    const issuer = readIssuer({ ...text, paths: { certificate, key } }, new Date());
    const leaf = mintLeaf(issuer, host('api.example.com'), new Date());
    expect(verifyStrictly(issuer.certificatePem, leaf.certificatePem)).toBe('ok');
    expect(issuer.chainPem).toBe('');
  });

  it('without a key identifier, and is warned that strict clients refuse it', async () => {
    const { certificate, key } = operatorRoot(['rsa:2048'], ['subjectKeyIdentifier=none', 'authorityKeyIdentifier=none']);
    const authority = await openAuthority({ certificate, key });
    expect(authority.warning).toContain(`"${certificate}" has no subject key identifier`); // G01
    expect(authority.issue(host('api.example.com')).certificatePem).toContain('BEGIN CERTIFICATE');
  });
});

describe('a CA made here', () => {
  it('is named after the start of its key identifier', () => {
    const made = makeAuthority(new Date());
    const issuer = readIssuer({ ...made, paths: { certificate: 'ca.pem', key: undefined } }, new Date());
    expect(new X509Certificate(made.certificatePem).subject).toBe(
      `CN=Sallyport CA ${issuer.identifier?.toString('hex', 0, 4) ?? ''}`,
    );
    expect(issuer.notAfter).toEqual(new Date(new X509Certificate(made.certificatePem).validTo));
  });
});
