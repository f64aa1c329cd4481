// Twin of certificate-authority.ts, issuer.ts and authority-error.ts: what starts, what is refused, and who wins a race.
import { X509Certificate } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { lstat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { AuthorityError, openAuthority } from '../../src/certificates/certificate-authority.ts';
import { AUTHORITY_LIFE_MS, makeAuthority } from '../../src/certificates/issuer.ts';
import { DAY_MS, has, host, openssl, opensslWithFile, run, temporaryFolder, verifyStrictly } from './rig.ts';

/** All that sandboxes may see. */
const PUBLIC = ['bundle.pem', 'ca.pem', 'mounted.wgetrc', 'trust.p12', 'wgetrc'];

interface Place {
  readonly certificate: string;
  readonly key: string;
}

function place(): Place {
  const folder = temporaryFolder();
  return { certificate: join(folder, 'certs', 'public', 'ca.pem'), key: join(folder, 'certs', 'ca.key') };
}

/** A place with files of our choosing; `old` enough not to look like another process at work. */
function planted(texts: { certificate?: string; key?: string }, mode = 0o600): Place {
  const at = place();
  mkdirSync(dirname(at.certificate), { recursive: true });
  if (texts.certificate !== undefined) writeFileSync(at.certificate, texts.certificate);
  if (texts.key !== undefined) {
    writeFileSync(at.key, texts.key, { mode });
    chmodSync(at.key, mode);
    utimesSync(at.key, new Date(0), new Date(0));
  }
  return at;
}

function swapForSymlink(path: string): void {
  rmSync(path);
  symlinkSync('/nonexistent/elsewhere', path);
}

const modeOf = (path: string): string => (statSync(path).mode & 0o777).toString(8);

describe('at the first start', () => {
  it('makes a CA, and leaves nothing but the certificate and the bundle in the public folder', async () => {
    const at = place();
    const authority = await openAuthority(at);
    expect(readFileSync(at.certificate, 'utf8')).toBe(authority.certificatePem);
    expect(readdirSync(dirname(at.certificate)).sort()).toEqual(PUBLIC); // F02
    expect(readdirSync(dirname(at.key)).sort()).toEqual(['ca.key', 'public']);
    expect(authority.warning).toBeUndefined();
  });

  it('makes a CA that strict clients accept', async () => {
    const authority = await openAuthority(place());
    const { certificatePem } = authority;
    const text = openssl(['x509', '-noout', '-text'], certificatePem).replaceAll(/\s+/g, ' '); // G01
    expect(text).toContain('Basic Constraints: critical CA:TRUE, pathlen:0');
    expect(text).toContain('Key Usage: critical Certificate Sign, CRL Sign X509v3');
    expect(text).toMatch(/Subject Key Identifier: (?:[0-9A-F]{2}:){19}[0-9A-F]{2} /);
    expect(text).toMatch(/Subject: CN = Sallyport CA [0-9a-f]{8} /);
    expect(verifyStrictly(certificatePem, authority.issue(host('api.example.com')).certificatePem)).toBe('ok');
  });

  it('gives two CAs two names', async () => {
    const [one, other] = [await openAuthority(place()), await openAuthority(place())];
    expect(new X509Certificate(one.certificatePem).subject).not.toBe(new X509Certificate(other.certificatePem).subject);
  });

  it('backdates the CA by two days and lets it live 825', async () => {
    const now = new Date('2026-03-01T00:00:00Z');
    const authority = await openAuthority({ ...place(), now: () => now });
    expect(new Date(new X509Certificate(authority.certificatePem).validFrom)).toEqual(new Date('2026-02-27T00:00:00Z'));
    expect(authority.notAfter.getTime() - now.getTime()).toBe(825 * DAY_MS);
  });

  it.each([
    { name: '000', umask: 0o000 },
    { name: '077', umask: 0o077 },
  ])('sets the modes itself, under umask $name', async ({ umask }) => {
    const at = place();
    const before = process.umask(umask);
    try {
      await openAuthority(at);
    } finally {
      process.umask(before);
    }
    expect(modeOf(at.key)).toBe('600'); // F01
    expect(modeOf(dirname(at.key))).toBe('700');
    expect(modeOf(dirname(at.certificate))).toBe('755');
    expect(modeOf(at.certificate)).toBe('644');
    expect(modeOf(join(dirname(at.certificate), 'bundle.pem'))).toBe('644');
  });

  it('finds no half-made CA when several processes start at once', async () => {
    const at = place();
    const opened = await Promise.all(Array.from({ length: 8 }, () => openAuthority(at)));
    expect(new Set(opened.map((authority) => authority.certificatePem)).size).toBe(1);
    for (const authority of opened) {
      expect(verifyStrictly(opened[0]!.certificatePem, authority.issue(host('api.example.com')).certificatePem)).toBe('ok');
    }
    expect(readdirSync(dirname(at.certificate)).sort()).toEqual(PUBLIC);
    expect(readdirSync(dirname(at.key)).sort()).toEqual(['ca.key', 'public']);
  });

  it('waits for the certificate where another process has just written the key', async () => {
    const made = makeAuthority(new Date());
    const at = place();
    mkdirSync(dirname(at.certificate), { recursive: true });
    writeFileSync(at.key, made.keyPem, { mode: 0o600 });
    const opening = openAuthority(at);
    // Each look at the disk here lets one of the opening's own happen; it needs fewer than ten to see the key alone.
    for (let looks = 0; looks < 50; looks += 1) await lstat(at.key);
    writeFileSync(at.certificate, made.certificatePem);
    expect((await opening).certificatePem).toBe(made.certificatePem);
  });
});

describe('at a later start', () => {
  it('loads the CA it made', async () => {
    const at = place();
    const first = await openAuthority(at);
    const again = await openAuthority(at);
    expect(again.certificatePem).toBe(first.certificatePem);
    expect(again.notAfter).toEqual(first.notAfter);
    // G03: the same CA, the same host, a new serial
    const serials = [first, again].map((each) => new X509Certificate(each.issue(host('a.example')).certificatePem).serialNumber);
    expect(serials[0]).not.toBe(serials[1]);
  });

  it.each([
    { name: 'missing', spoil: (path: string): void => rmSync(path) },
    { name: 'stale', spoil: (path: string): void => writeFileSync(path, 'of another CA') },
    { name: 'a symlink', spoil: swapForSymlink },
  ])('writes the bundle anew where it is $name', async ({ spoil }) => {
    const at = place();
    const { certificatePem } = await openAuthority(at);
    const bundle = join(dirname(at.certificate), 'bundle.pem');
    spoil(bundle);
    await openAuthority(at);
    expect(readFileSync(bundle, 'utf8').endsWith(certificatePem)).toBe(true);
  });

  it('starts with a warning where the bundle cannot be written', async () => {
    const at = place();
    await openAuthority(at);
    const bundle = join(dirname(at.certificate), 'bundle.pem');
    rmSync(bundle);
    mkdirSync(join(bundle, 'in the way'), { recursive: true });
    expect((await openAuthority(at)).warning).toContain(`cannot write "${bundle}"`);
    expect(readdirSync(dirname(at.certificate)).sort()).toEqual(PUBLIC);
  });

  it.each([
    { name: 'warns 29 days before the CA ends', left: 29 * DAY_MS, warning: /ca\.pem" expires on .*in 29 days.*plan a new CA/ },
    { name: 'warns a day before the CA ends', left: DAY_MS, warning: /in 1 days/ },
    { name: 'says nothing 30 days before', left: 30 * DAY_MS, warning: undefined },
  ])('$name', async ({ left, warning }) => {
    const start = new Date('2026-03-01T00:00:00Z');
    const at = place();
    await openAuthority({ ...at, now: () => start });
    const later = await openAuthority({ ...at, now: () => new Date(start.getTime() + AUTHORITY_LIFE_MS - left) }); // G08
    if (warning === undefined) expect(later.warning).toBeUndefined();
    else expect(later.warning).toMatch(warning);
  });

  it('warns where any user may swap the key', async () => {
    const at = place();
    await openAuthority(at);
    chmodSync(dirname(at.key), 0o777);
    expect((await openAuthority(at)).warning).toMatch(/any user may write to ".*certs", .*chmod o-w/);
  });
});

describe('a start is refused', () => {
  const now = new Date();
  const good = makeAuthority(now);
  const { certificatePem: certificate, keyPem: key } = good;
  const selfSigned = (signer: string, extension: string): string =>
    opensslWithFile(signer, (file) => ['req', '-x509', '-key', file, '-subj', '/CN=x', '-addext', extension]);
  const ed25519 = openssl(['genpkey', '-algorithm', 'ed25519']);
  const encrypted = openssl(['pkcs8', '-topk8', '-passout', 'pass:abcd'], key);

  it.each([
    {
      name: 'the key may be read by others',
      make: () => planted({ certificate, key }, 0o644),
      says: /ca\.key" is open to other users \(mode 0644\).*chmod 600/,
      fault: 'F01',
    },
    {
      name: 'the key may be read by the group',
      make: () => planted({ certificate, key }, 0o640),
      says: /mode 0640/,
      fault: 'F01',
    },
    {
      name: 'the key may be written by others',
      make: () => planted({ certificate, key }, 0o602),
      says: /mode 0602/,
      fault: 'F01',
    },
    {
      name: 'only the key is there',
      make: () => planted({ key }),
      says: /ca\.key" is there but its certificate ".*ca\.pem" is not.*restore/,
    },
    {
      name: 'only the certificate is there',
      make: () => planted({ certificate }),
      says: /ca\.pem" is there but its key ".*ca\.key" is not.*restore/,
    },
    {
      name: 'the key belongs to another certificate',
      make: () => planted({ certificate: makeAuthority(now).certificatePem, key }),
      says: /ca\.key" does not belong to the certificate ".*ca\.pem"/,
      fault: 'F02',
    },
    {
      name: 'the certificate is not a CA',
      make: () => planted({ certificate: selfSigned(key, 'basicConstraints=critical,CA:FALSE'), key }),
      says: /ca\.pem" is not a CA/,
    },
    {
      name: 'the certificate may not sign certificates',
      make: () => planted({ certificate: selfSigned(key, 'keyUsage=critical,digitalSignature'), key }),
      says: /ca\.pem" is not a CA/,
    },
    {
      name: 'the certificate is rubbish',
      make: () => planted({ certificate: 'rubbish', key }),
      says: /ca\.pem" is not a PEM certificate/,
    },
    {
      name: 'the certificate is empty',
      make: () => planted({ certificate: '', key }),
      says: /ca\.pem" is not a PEM certificate/,
    },
    {
      name: 'the certificate is PEM of rubbish',
      make: () => planted({ certificate: '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n', key }),
      says: /ca\.pem" is not a PEM certificate/,
    },
    {
      name: 'the certificate file holds a key too',
      make: () => planted({ certificate: certificate + key, key }),
      says: /ca\.pem" holds a private key.*compromised/,
      fault: 'F02',
    },
    {
      name: 'the key is rubbish',
      make: () => planted({ certificate, key: 'hunter2' }),
      says: /ca\.key" is not an unencrypted PEM private key/,
    },
    {
      name: 'the key is encrypted',
      make: () => planted({ certificate, key: encrypted }),
      says: /ca\.key" is not an unencrypted PEM private key/,
    },
    {
      name: 'the key is of a kind that clients do not know',
      make: () => planted({ certificate: selfSigned(ed25519, 'keyUsage=critical,keyCertSign'), key: ed25519 }),
      says: /ca\.key" is of type "ed25519"/,
    },
  ])('where $name', async ({ make, says }) => {
    const at = make();
    const texts = [at.certificate, at.key].map((path) => (existsSync(path) ? readFileSync(path, 'utf8') : undefined));
    const error: unknown = await openAuthority(at).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(AuthorityError);
    expect((error as Error).message).toMatch(says);
    expect((error as Error).message).not.toMatch(/\n|hunter2|BEGIN/);
    // Nothing was minted over what was there.
    expect([at.certificate, at.key].map((path) => (existsSync(path) ? readFileSync(path, 'utf8') : undefined))).toEqual(texts);
  });

  it.each([
    { name: 'has expired', offset: AUTHORITY_LIFE_MS, says: /ca\.pem" expired on .*remove it and the key/ },
    { name: 'is not yet valid', offset: -3 * DAY_MS, says: /ca\.pem" is not valid before .*clock/ },
  ])('where the certificate $name', async ({ offset, says }) => {
    const at = planted({ certificate, key }); // G08
    await expect(openAuthority({ ...at, now: () => new Date(now.getTime() + offset) })).rejects.toThrow(says);
  });
});

describe('with the key in memory', () => {
  it('makes a new CA at each start, writes certificate and bundle, and no key anywhere', async () => {
    const { certificate } = place();
    const first = await openAuthority({ certificate, key: undefined }); // F03
    const second = await openAuthority({ certificate, key: undefined });
    expect(second.certificatePem).not.toBe(first.certificatePem);
    expect(readFileSync(certificate, 'utf8')).toBe(second.certificatePem);
    const bundle = readFileSync(join(dirname(certificate), 'bundle.pem'), 'utf8');
    expect(bundle.endsWith(second.certificatePem)).toBe(true);
    expect(bundle).not.toContain(first.certificatePem);
    expect(
      readdirSync(dirname(dirname(certificate)), { recursive: true })
        .map(String)
        .sort(),
    ).toEqual(['public', ...PUBLIC.map((name) => `public/${name}`)]);
  });

  it('gives clients of the last start a clear refusal', async () => {
    const { certificate } = place();
    const first = await openAuthority({ certificate, key: undefined });
    const second = await openAuthority({ certificate, key: undefined });
    expect(verifyStrictly(first.certificatePem, second.issue(host('a.example')).certificatePem)).toContain(
      'unable to get local issuer certificate',
    );
  });
});

it.skipIf(!has('keytool'))('the CA is read by keytool', { timeout: 60_000 }, async () => {
  const at = place();
  await openAuthority(at);
  const { output } = await run('keytool', ['-printcert', '-file', at.certificate]);
  expect(output).toMatch(/Owner: CN=Sallyport CA [0-9a-f]{8}[^]*CA:true/);
});
