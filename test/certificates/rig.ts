// What the tests of this room share: a folder that goes away, programs that judge certificates, and a CA to issue with.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { parseAddress, parseHost } from '../../src/exchange/authority.ts';
import type { Host } from '../../src/exchange/authority.ts';
import { makeAuthority, readIssuer } from '../../src/certificates/issuer.ts';
import type { Issuer } from '../../src/certificates/issuer.ts';

export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;

export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-certificates-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

export function host(text: string): Host {
  const parsed = parseAddress(text) ?? parseHost(text);
  if (parsed === undefined) throw new Error(`not a host: "${text}"`);
  return parsed;
}

export function newIssuer(now = new Date()): Issuer {
  return readIssuer({ ...makeAuthority(now), paths: { certificate: 'ca.pem', key: undefined } }, now);
}

export function openssl(args: readonly string[], input = ''): string {
  return execFileSync('openssl', args, { encoding: 'utf8', input, stdio: ['pipe', 'pipe', 'pipe'] });
}

/** For commands that want their input as a file. */
export function opensslWithFile(input: string, args: (file: string) => readonly string[]): string {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-openssl-'));
  try {
    writeFileSync(join(folder, 'input'), input);
    return openssl(args(join(folder, 'input')));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What `openssl verify -x509_strict` says: `ok`, or its complaint. */
export function verifyStrictly(caPem: string, leafPem: string, extra: readonly string[] = []): string {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'ca.pem'), caPem);
  writeFileSync(join(folder, 'leaf.pem'), leafPem);
  const args = [
    'verify',
    '-x509_strict',
    '-purpose',
    'sslserver',
    '-CAfile',
    join(folder, 'ca.pem'),
    ...extra,
    join(folder, 'leaf.pem'),
  ];
  try {
    return openssl(args).trim().endsWith(': OK') ? 'ok' : 'not ok';
  } catch (error) {
    return (error as { stderr: string }).stderr;
  }
}

export function has(program: string): boolean {
  try {
    execFileSync('which', [program], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** Runs a program without blocking this process, which may be the server it speaks with. */
export async function run(program: string, args: readonly string[]): Promise<{ code: number | null; output: string }> {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, output }));
  });
}
