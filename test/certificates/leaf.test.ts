// Twin of leaf.ts: what strict clients make of the leaves, on the wire and by their own tools.
import { createPublicKey, generateKeyPairSync, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { checkServerIdentity, connect, createServer } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { isAddress } from '../../src/exchange/authority.ts';
import { AuthorityError } from '../../src/certificates/authority-error.ts';
import { readIssuer } from '../../src/certificates/issuer.ts';
import { LEAF_LIFE_MS, mintLeaf } from '../../src/certificates/leaf.ts';
import type { Leaf } from '../../src/certificates/leaf.ts';
import * as structure from '../../src/certificates/certificate-structure.ts';
import { DAY_MS, has, host, HOUR_MS, newIssuer, openssl, run, temporaryFolder, verifyStrictly } from './rig.ts';

const LABEL_60 = 'a'.repeat(60);
const NAMES = [
  { name: 'a name', input: 'api.example.com', san: 'DNS:api.example.com' },
  { name: 'an IPv4 address as iPAddress', input: '192.0.2.10', san: 'IP Address:192.0.2.10', fault: 'G05' },
  { name: 'an IPv6 address as iPAddress', input: '2001:db8::10', san: 'IP Address:2001:DB8:0:0:0:0:0:10', fault: 'G05' },
  { name: 'a name with an underscore', input: 'my_host.example.com', san: 'DNS:my_host.example.com' },
  { name: 'an A-label', input: 'xn--bcher-kva.example', san: 'DNS:xn--bcher-kva.example' },
  { name: 'a name without a dot', input: 'localhost', san: 'DNS:localhost' },
  { name: 'a name of 64 characters', input: `${LABEL_60}.com`, san: `DNS:${LABEL_60}.com`, fault: 'G06' },
  { name: 'a name of 65 characters', input: `${LABEL_60}a.com`, san: `DNS:${LABEL_60}a.com`, fault: 'G06' },
  { name: 'a name of 253 characters', input: `${'abcd.'.repeat(50)}com`, san: `DNS:${'abcd.'.repeat(50)}com`, fault: 'G06' },
];

const CA = newIssuer();

async function serve(leaf: Leaf): Promise<number> {
  const server = createServer({ key: leaf.keyPem, cert: leaf.certificatePem }, (socket) => socket.end('hello'));
  server.on('tlsClientError', () => undefined);
  server.listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

describe('a leaf', () => {
  it.each(NAMES)('passes strict verification for $name', ({ input, san }) => {
    const leaf = mintLeaf(CA, host(input), new Date());
    const check = input.includes(':') || /^[\d.]+$/.test(input) ? '-verify_ip' : '-verify_hostname';
    expect(verifyStrictly(CA.certificatePem, leaf.certificatePem, [check, input])).toBe('ok'); // G01
    expect(verifyStrictly(CA.certificatePem, leaf.certificatePem, ['-verify_hostname', 'other.example'])).toContain(
      'hostname mismatch',
    );
    const text = openssl(['x509', '-noout', '-text', '-nameopt', 'utf8'], leaf.certificatePem);
    expect(text.replaceAll('\n', ' ')).toMatch(new RegExp(`Alternative Name: ?(critical)? +${san.replaceAll('.', '\\.')} `));
  });

  it('bears exactly the extensions that RFC 5280 wants of a server', () => {
    const leaf = mintLeaf(CA, host('api.example.com'), new Date());
    const text = openssl(['x509', '-noout', '-text'], leaf.certificatePem).replaceAll(/\s+/g, ' ');
    const identifier = (CA.identifier ?? Buffer.alloc(0)).toString('hex').toUpperCase().match(/../g)?.join(':') ?? 'none';
    expect(text).toContain('Basic Constraints: critical CA:FALSE');
    expect(text).toContain('Key Usage: critical Digital Signature X509v3');
    expect(text).toContain('Extended Key Usage: TLS Web Server Authentication X509v3');
    expect(text).toContain(`Authority Key Identifier: ${identifier}`);
    expect(text).toMatch(/Subject Key Identifier: (?:[0-9A-F]{2}:){19}[0-9A-F]{2} /);
    expect(text).toContain('Subject Alternative Name: DNS:api.example.com Signature');
    expect(text).toContain('Subject: CN = api.example.com ');
    expect(text).toContain('Signature Algorithm: ecdsa-with-SHA256');
  });

  it('leaves the subject empty and the alternative name critical beyond 64 characters', () => {
    const text = openssl(['x509', '-noout', '-text'], mintLeaf(CA, host(`${LABEL_60}a.com`), new Date()).certificatePem);
    expect(text.replaceAll(/\s+/g, ' ')).toMatch(/Subject: Subject Public Key.* Alternative Name: critical DNS:/);
  });

  it('never bears the subject or the key of its CA', () => {
    // G07: a CA of the operator may be named like a host.
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
    const subject = structure.nameOf('api.example.com');
    const identifier = structure.keyIdentifier(publicKey);
    const certificatePem = structure.signCertificate(
      {
        serial: structure.newSerial(),
        issuer: subject,
        subject,
        notBefore: new Date(Date.now() - DAY_MS),
        notAfter: new Date(Date.now() + DAY_MS),
        publicKey,
        extensions: [
          structure.authorityConstraints(),
          structure.keyUsage('authority'),
          structure.subjectKeyIdentifier(identifier),
        ],
      },
      privateKey,
    );
    const keyPem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
    const named = readIssuer({ certificatePem, keyPem, paths: { certificate: 'ca.pem', key: undefined } }, new Date());
    for (const issuer of [CA, named]) {
      const leaf = mintLeaf(issuer, host('api.example.com'), new Date());
      const [below, above] = [new X509Certificate(leaf.certificatePem), new X509Certificate(issuer.certificatePem)];
      expect(below.subject).not.toBe(above.subject);
      expect(below.issuer).toBe(above.subject);
      expect(below.publicKey.equals(above.publicKey)).toBe(false);
      expect(verifyStrictly(issuer.certificatePem, leaf.certificatePem)).toBe('ok');
    }
  });

  it('has a key and a serial of its own each time, even for the same host at the same moment', () => {
    const now = new Date();
    const leaves = Array.from(
      { length: 300 },
      () => new X509Certificate(mintLeaf(CA, host('api.example.com'), now).certificatePem),
    );
    expect(new Set(leaves.map((leaf) => leaf.serialNumber)).size).toBe(300); // G03
    expect(new Set(leaves.map((leaf) => leaf.publicKey.export({ type: 'spki', format: 'der' }).toString('hex'))).size).toBe(300);
    for (const leaf of leaves) expect(leaf.serialNumber).toMatch(/^[4-7][0-9A-F]{31}$/); // G02
  });

  it('holds a P-256 key that fits its certificate', () => {
    const leaf = mintLeaf(CA, host('api.example.com'), new Date());
    expect(new X509Certificate(leaf.certificatePem).publicKey.equals(createPublicKey(leaf.keyPem))).toBe(true);
    expect(createPublicKey(leaf.keyPem).asymmetricKeyDetails?.namedCurve).toBe('prime256v1');
  });
});

describe('the dates of a leaf', () => {
  const now = new Date();
  const leaf = mintLeaf(newIssuer(now), host('api.example.com'), now);
  const issuer = newIssuer(now);
  const fresh = mintLeaf(issuer, host('api.example.com'), now);
  const CLOCKS = [
    { name: 'is right', offset: 0, verdict: 'ok' },
    { name: 'is 1 h behind', offset: -HOUR_MS, verdict: 'ok' },
    { name: 'is almost 24 h behind', offset: -24 * HOUR_MS + 60_000, verdict: 'ok' },
    { name: 'is 25 h behind', offset: -25 * HOUR_MS, verdict: 'not yet valid' },
    { name: 'is almost 30 d ahead', offset: 30 * DAY_MS - 60_000, verdict: 'ok' },
    { name: 'is 31 d ahead', offset: 31 * DAY_MS, verdict: 'expired' },
  ];

  // G08
  it.each(CLOCKS)('gives $verdict to a client whose clock $name', ({ offset, verdict }) => {
    const at = Math.floor((now.getTime() + offset) / 1000);
    expect(verifyStrictly(issuer.certificatePem, fresh.certificatePem, ['-attime', String(at)])).toContain(verdict);
  });

  it('says the same end in its value as in its certificate', () => {
    expect(leaf.notAfter).toEqual(new Date(new X509Certificate(leaf.certificatePem).validTo));
    expect(leaf.notAfter.getTime()).toBeGreaterThan(now.getTime() + LEAF_LIFE_MS - 1000);
  });

  it('never outlives the CA', () => {
    const late = new Date(issuer.notAfter.getTime() - DAY_MS); // G08
    expect(mintLeaf(issuer, host('api.example.com'), late).notAfter).toEqual(issuer.notAfter);
  });

  it('never begins before the CA does', () => {
    const early = new Date(issuer.notBefore.getTime() + HOUR_MS);
    const minted = new X509Certificate(mintLeaf(issuer, host('api.example.com'), early).certificatePem);
    expect(new Date(minted.validFrom)).toEqual(issuer.notBefore);
  });

  it('cannot be had from a CA that has expired, and the error says so', () => {
    expect(() => mintLeaf(issuer, host('api.example.com'), issuer.notAfter)).toThrow(AuthorityError);
    expect(() => mintLeaf(issuer, host('api.example.com'), issuer.notAfter)).toThrow(/the CA expired on .*make a new CA/);
  });

  it('are written as GeneralizedTime from 2050 on', () => {
    const then = new Date('2049-12-15T00:00:00Z');
    const far = newIssuer(then);
    const text = openssl(['asn1parse'], mintLeaf(far, host('api.example.com'), then).certificatePem);
    expect(text).toMatch(/UTCTIME +:491214000000Z[^]*GENERALIZEDTIME +:20500114000000Z/);
  });
});

describe('clients', () => {
  it.each([
    { name: 'Node by name', target: 'api.example.com' },
    { name: 'Node by IPv4 address', target: '192.0.2.10' },
    { name: 'Node by IPv6 address', target: '2001:db8::10' },
    { name: 'Node by a long name', target: `${LABEL_60}a.com` },
  ])('trust it: $name', async ({ target }) => {
    const port = await serve(mintLeaf(CA, host(target), new Date()));
    const socket = connect({
      host: '127.0.0.1',
      port,
      ca: CA.certificatePem,
      servername: isAddress(host(target)) ? '' : target,
      checkServerIdentity: (_, certificate) => checkServerIdentity(target, certificate),
    });
    const [chunk] = (await once(socket, 'data')) as [Buffer];
    expect(chunk.toString()).toBe('hello');
    expect(socket.authorized).toBe(true);
    socket.destroy();
  });

  it.skipIf(!has('python3'))('trust it: Python with VERIFY_X509_STRICT, by name and by address', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'ca.pem'), CA.certificatePem);
    for (const target of ['api.example.com', '192.0.2.10', '2001:db8::10', `${LABEL_60}a.com`]) {
      const port = await serve(mintLeaf(CA, host(target), new Date()));
      const script = [
        'import socket, ssl, sys',
        'ctx = ssl.create_default_context(cafile=sys.argv[1])',
        'ctx.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN',
        's = ctx.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[2]))), server_hostname=sys.argv[3])',
        'print(s.recv(5).decode())',
      ].join('\n');
      expect(await run('python3', ['-c', script, join(folder, 'ca.pem'), String(port), target])).toEqual({
        code: 0,
        output: 'hello\n',
      });
    }
  });

  it.skipIf(!has('curl'))('trust it: curl by address', async () => {
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'ca.pem'), CA.certificatePem);
    const port = await serve(mintLeaf(CA, host('127.0.0.1'), new Date())); // G05
    const { output } = await run('curl', [
      '-sv',
      '--noproxy',
      '*',
      '--http0.9',
      '--cacert',
      join(folder, 'ca.pem'),
      `https://127.0.0.1:${port}/`,
    ]);
    expect(output).toContain('SSL certificate verify ok');
    expect(output).toContain('hello');
  });

  it.skipIf(!has('keytool'))('read it: keytool', { timeout: 60_000 }, async () => {
    const folder = temporaryFolder();
    for (const pem of [
      CA.certificatePem,
      ...['api.example.com', '2001:db8::10', `${LABEL_60}a.com`].map(
        (name) => mintLeaf(CA, host(name), new Date()).certificatePem,
      ),
    ]) {
      writeFileSync(join(folder, 'one.pem'), pem);
      const { code, output } = await run('keytool', ['-printcert', '-file', join(folder, 'one.pem')]);
      expect(output).toContain('SHA256withECDSA');
      expect(code).toBe(0);
    }
  });

  it('under an intermediate CA get the chain along with the leaf', () => {
    const folder = temporaryFolder();
    writeFileSync(
      join(folder, 'ext'),
      'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n',
    );
    const at = (name: string): string => join(folder, name);
    openssl([
      'req',
      '-x509',
      '-newkey',
      'rsa:2048',
      '-nodes',
      '-keyout',
      at('root.key'),
      '-out',
      at('root.pem'),
      '-subj',
      '/CN=Root/O=Bücher',
      '-addext',
      'keyUsage=critical,keyCertSign',
      '-utf8',
      '-days',
      '99',
    ]);
    openssl([
      'req',
      '-new',
      '-newkey',
      'rsa:2048',
      '-nodes',
      '-keyout',
      at('mid.key'),
      '-out',
      at('mid.csr'),
      '-subj',
      '/CN=Middle/O=Bücher',
      '-utf8',
    ]);
    openssl([
      'x509',
      '-req',
      '-in',
      at('mid.csr'),
      '-CA',
      at('root.pem'),
      '-CAkey',
      at('root.key'),
      '-CAcreateserial',
      '-extfile',
      at('ext'),
      '-days',
      '98',
      '-out',
      at('mid.pem'),
    ]);
    const text = { certificatePem: openssl(['x509', '-in', at('mid.pem')]), keyPem: openssl(['pkey', '-in', at('mid.key')]) };
    const middle = readIssuer({ ...text, paths: { certificate: 'mid.pem', key: 'mid.key' } }, new Date());
    const leaf = mintLeaf(middle, host('api.example.com'), new Date());
    expect(leaf.certificatePem.match(/BEGIN CERTIFICATE/g)).toHaveLength(2);
    expect(mintLeaf(CA, host('api.example.com'), new Date()).certificatePem.match(/BEGIN CERTIFICATE/g)).toHaveLength(1);
    writeFileSync(at('chain.pem'), leaf.certificatePem);
    expect(verifyStrictly(openssl(['x509', '-in', at('root.pem')]), leaf.certificatePem, ['-untrusted', at('chain.pem')])).toBe(
      'ok',
    );
  });
});
