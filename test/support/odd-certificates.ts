// Certificates that a careful client refuses, and a few that it takes: minted with openssl, because our own authority makes no odd ones.
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Key and certificate, PEM. */
export interface Pair {
  readonly key: string;
  readonly cert: string;
}

/** What a certificate is to say. Dates as openssl writes them, `YYYYMMDDHHMMSSZ`; default: from 2020 to 2049. */
export interface Wanted {
  readonly commonName: string;
  /** `subjectAltName` as openssl writes it, as in `DNS:a.test,IP:127.0.0.1`; left out: none */
  readonly names?: string;
  readonly from?: string;
  readonly until?: string;
  /** Default: signed by the root */
  readonly by?: 'root' | 'itself';
}

/** An authority of the odd kind. */
export interface OddCertificates {
  /** Path of the root's certificate */
  readonly rootPath: string;
  mint(wanted: Wanted): Promise<Pair>;
  close(): Promise<void>;
}

const CONFIG = `
[ca]
default_ca = here
[here]
database = index.txt
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
[root]
basicConstraints = critical,CA:true
keyUsage = critical,keyCertSign
`;

/** Makes a root in a folder of its own. */
export async function openOddCertificates(): Promise<OddCertificates> {
  const folder = await mkdtemp(join(tmpdir(), 'odd-'));
  const openssl = (...words: string[]) => run('openssl', words, { cwd: folder });
  await writeFile(join(folder, 'ca.cnf'), CONFIG);
  await writeFile(join(folder, 'index.txt'), '');
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const root = ['-x509', '-days', '3650', '-subj', '/CN=odd root', '-config', 'ca.cnf', '-extensions', 'root'];
  await openssl('req', ...root, ...key, '-keyout', 'root.key', '-out', 'root.pem');
  let minted = 0;
  return {
    rootPath: join(folder, 'root.pem'),
    async mint({ commonName, names, from = '20200101000000Z', until = '20491231235959Z', by = 'root' }) {
      minted += 1;
      const name = `leaf-${minted}`;
      const extensions = ['[leaf]', 'keyUsage = critical,digitalSignature', 'extendedKeyUsage = serverAuth'];
      if (names !== undefined) extensions.push(`subjectAltName = ${names}`);
      await writeFile(join(folder, `${name}.cnf`), `${extensions.join('\n')}\n`);
      const request = ['-new', '-subj', `/CN=${commonName}`, '-config', 'ca.cnf'];
      await openssl('req', ...request, ...key, '-keyout', `${name}.key`, '-out', `${name}.csr`);
      const signer = by === 'itself' ? ['-selfsign', '-keyfile', `${name}.key`] : ['-cert', 'root.pem', '-keyfile', 'root.key'];
      const dates = ['-startdate', from, '-enddate', until];
      const extras = ['-extfile', `${name}.cnf`, '-extensions', 'leaf'];
      const files = ['-in', `${name}.csr`, '-out', `${name}.pem`];
      await openssl('ca', '-batch', '-notext', '-config', 'ca.cnf', ...signer, ...dates, ...extras, ...files);
      return {
        key: await readFile(join(folder, `${name}.key`), 'utf8'),
        cert: await readFile(join(folder, `${name}.pem`), 'utf8'),
      };
    },
    close: () => rm(folder, { recursive: true, force: true }),
  };
}
