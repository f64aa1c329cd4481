// Twin of trust-store.ts (and of der.ts, which it is written in): what others read in the store, OpenSSL always and a JRE where there is one.
import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { describe, expect, it } from 'vitest';
import { TRUST_STORE_PASSWORD, trustStore } from '../../src/certificates/trust-store.ts';
import { newIssuer, temporaryFolder } from './rig.ts';

const { certificatePem } = newIssuer();
const ROOTS = `${rootCertificates.join('\n')}\n`;
const BUNDLE = ROOTS + certificatePem;

function written(bundle: string): string {
  const file = join(temporaryFolder(), 'trust.p12');
  writeFileSync(file, trustStore(bundle));
  return file;
}

function openssl(file: string, ...more: string[]): string {
  const options = ['pkcs12', '-in', file, '-nokeys', ...more];
  return execFileSync('openssl', options, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

const blocks = (pem: string): string[] => pem.match(/-----BEGIN [^-]+-----[^-]+-----END [^-]+-----/g) ?? [];
const fingerprints = (pem: string): string[] => blocks(pem).map((block) => new X509Certificate(block).fingerprint256);

describe('the trust store', () => {
  it('holds every certificate of the bundle in its order, and OpenSSL finds its MAC right', () => {
    const printed = openssl(written(BUNDLE), '-passin', `pass:${TRUST_STORE_PASSWORD}`);
    expect(fingerprints(printed)).toEqual(fingerprints(BUNDLE));
    expect(printed).not.toContain('PRIVATE KEY');
  });

  it('is sealed with its password', () => {
    expect(() => openssl(written(BUNDLE), '-passin', 'pass:another')).toThrow(/Mac verify error/);
  });

  it('marks each as trusted, and names the CA so that it is found', () => {
    const printed = openssl(written(BUNDLE), '-passin', `pass:${TRUST_STORE_PASSWORD}`);
    expect(printed.match(/2\.16\.840\.1\.113894\.746875\.1\.1|Trusted key usage \(Oracle\)/g)).toHaveLength(
      rootCertificates.length + 1,
    );
    expect(printed.match(/friendlyName: .+/g)?.slice(-2)).toEqual([
      `friendlyName: root-${rootCertificates.length}`,
      'friendlyName: sallyport',
    ]);
  });

  it.each([
    { name: 'one that stands there twice', bundle: certificatePem + BUNDLE },
    { name: 'a block that is no certificate', bundle: `-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n${BUNDLE}` },
    { name: 'what stands between blocks', bundle: `# roots\n\n${ROOTS}# ours\n${certificatePem}` },
  ])('takes $name once or not at all', ({ bundle }) => {
    expect(trustStore(bundle)).toEqual(trustStore(BUNDLE));
  });

  it('is the same for the same bundle, and another for another', () => {
    expect(trustStore(BUNDLE)).toEqual(trustStore(BUNDLE));
    expect(trustStore(ROOTS)).not.toEqual(trustStore(BUNDLE));
  });

  const keytool = hasKeytool();
  it.skipIf(!keytool)(`is a store of trusted certificates to Java${keytool ? '' : ' (skipped: no keytool here)'}`, () => {
    const options = ['-J-Duser.language=en', '-list', '-keystore', written(BUNDLE), '-storepass', TRUST_STORE_PASSWORD];
    const listed = execFileSync('keytool', options, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    expect(listed.match(/^\S+, .*trustedCertEntry/gm)).toHaveLength(rootCertificates.length + 1);
    expect(listed).toMatch(/^sallyport, /m);
  });
});

function hasKeytool(): boolean {
  try {
    execFileSync('keytool', ['-help'], { stdio: 'ignore' });
    return true;
  } catch {
    return false; // not here
  }
}
