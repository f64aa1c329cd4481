// Where a secret of the config comes from: the text itself, an environment variable, or a file.
// It must never put a secret into a text of its own: problems and warnings name the source, not what it holds.
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Secret } from '../foundation/secret.ts';
import { isFieldValue } from '../exchange/header-fields.ts';

/** A secret as the config names it. */
export type SecretSource =
  | { readonly kind: 'text'; readonly secret: Secret }
  | { readonly kind: 'env'; readonly name: string }
  | { readonly kind: 'file'; readonly path: string };

/** The secret that is empty on purpose, written out as `""`; a variable or a file that is empty is one that is missing. */
export const EMPTY_SECRET: SecretSource = { kind: 'text', secret: new Secret('') };

/**
 * What reading a source gave. `missing`: not there, not readable, or empty; may be there later.
 * `malformed`: there, but it could split or break a request on the wire (fault E08).
 */
export type SecretReading =
  | { readonly kind: 'read'; readonly secret: Secret; readonly warning: string | undefined }
  | { readonly kind: 'missing'; readonly problem: string }
  | { readonly kind: 'malformed'; readonly problem: string };

/** A file this long is no secret but a mistake, such as a device or a log. */
const LONGEST_FILE = 64 * 1024;

/** The file a source is read from, absolute; `undefined` for the other kinds. */
export function secretFile(source: SecretSource, baseDirectory: string): string | undefined {
  return source.kind === 'file' ? resolve(baseDirectory, source.path) : undefined;
}

/** Why a text cannot be a secret on the wire, or `undefined` where it can. Never quotes the text. */
export function secretTrouble(text: string): string | undefined {
  if (text.includes('\0')) return 'holds a NUL; store the bare secret as text';
  if (/[\r\n]/.test(text)) return 'holds a line break inside; store the secret on one line';
  if (isFieldValue(text)) return undefined;
  if (/[\x00-\x08\x0e-\x1f\x7f]/.test(text)) return 'holds a control character; store the bare secret as text';
  return 'holds a character beyond latin1, which no header field can carry; store the secret as ASCII text';
}

/** Reads a source once. One trailing newline is not part of the secret. Never throws. */
export async function readSecret(
  source: SecretSource,
  options: { readonly baseDirectory: string; readonly env: NodeJS.ProcessEnv },
): Promise<SecretReading> {
  switch (source.kind) {
    case 'text':
      return { kind: 'read', secret: source.secret, warning: undefined };
    case 'env': {
      const text = options.env[source.name];
      if (text === undefined) {
        return { kind: 'missing', problem: `environment variable "${source.name}" is not set; set it before the start` };
      }
      return judge(text, `environment variable "${source.name}"`);
    }
    case 'file':
      return readSecretFile(resolve(options.baseDirectory, source.path), source.path);
  }
}

async function readSecretFile(path: string, shown: string): Promise<SecretReading> {
  const where = `file "${shown}"`;
  try {
    // Without O_NONBLOCK the opening of a FIFO that nobody writes to would hang the start.
    const handle = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const status = await handle.stat();
      if (!status.isFile()) return { kind: 'missing', problem: `${where} is not a regular file; name the file itself` };
      if (status.size > LONGEST_FILE)
        return { kind: 'malformed', problem: `${where} is longer than 64 KiB; name the right file` };
      const reading = judge(decode(await handle.readFile()), where);
      const open = process.platform !== 'win32' && (status.mode & 0o004) !== 0;
      if (reading.kind !== 'read' || !open) return reading;
      return { ...reading, warning: `${where} can be read by every user of this machine; run: chmod 600 ${shown}` };
    } finally {
      await handle.close();
    }
  } catch (error) {
    return { kind: 'missing', problem: `${where} ${fileTrouble(error)}` };
  }
}

/** A text as a secret, by the same judgement as a file or a variable; `where` names it in the problem. */
export function readSecretText(text: string, where: string): SecretReading {
  return judge(text, where);
}

/** A text as it is to be kept where the store seals it: without one trailing newline, by the same judgement as a secret of the config. */
export function bareSecret(text: string): { readonly text: string } | { readonly problem: string } {
  const bare = withoutNewline(text);
  const trouble = bare === '' ? 'is empty' : secretTrouble(bare);
  return trouble === undefined ? { text: bare } : { problem: trouble };
}

/** A secret made of others, such as `Bearer …`; `undefined` where `compose` gives none. The texts leave this call only as a Secret. */
export function composeSecret(
  secrets: readonly Secret[],
  compose: (...texts: string[]) => string | undefined,
): Secret | undefined {
  const text = compose(...secrets.map((secret) => secret.reveal()));
  return text === undefined ? undefined : new Secret(text);
}

/** Whether two secrets are one text. For comparing what this process holds, not what somebody sent: it takes no constant time. */
export function sameSecret(one: Secret, other: Secret): boolean {
  return one === other || one.reveal() === other.reveal();
}

/** A text of somebody else with every one of these secrets in it replaced by `[secret]`. */
export function withoutSecrets(text: string, secrets: Iterable<Secret>): string {
  const texts = [...secrets].map((secret) => secret.reveal()).filter((each) => each !== '');
  // The longest first: one may hold another.
  return texts.sort((a, b) => b.length - a.length).reduce((left, each) => left.replaceAll(each, '[secret]'), text);
}

/** Equal exactly when names and secrets are. For comparing in memory; it must not be shown. */
export function digestSecrets(secrets: ReadonlyMap<string, Secret>): string {
  const hash = createHash('sha256');
  for (const [name, secret] of [...secrets].sort(([a], [b]) => (a < b ? -1 : 1))) {
    hash.update(`${name}\0${secret.reveal()}\0`);
  }
  return hash.digest('hex');
}

/** Why a file could not be read, with the remedy; to stand after the name of the file. */
export function fileTrouble(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error';
  switch (code) {
    case 'ENOENT':
      return 'does not exist; create it or correct the path';
    case 'EACCES':
    case 'EPERM':
      return 'cannot be read: permission denied; let the user of this process read it';
    case 'EISDIR':
      return 'is a folder; name a file in it';
    case 'ENOTDIR':
      return 'lies under something that is not a folder; correct the path';
    default:
      return `cannot be read (${code})`;
  }
}

/** Bytes that are no UTF-8 come out as U+FFFD, which is beyond latin1 and so refused. */
function decode(bytes: Buffer): string {
  return new TextDecoder('utf-8').decode(bytes);
}

function judge(text: string, where: string): SecretReading {
  const bare = withoutNewline(text);
  if (bare === '') return { kind: 'missing', problem: `${where} is empty; put the secret into it` };
  const trouble = secretTrouble(bare);
  if (trouble !== undefined) return { kind: 'malformed', problem: `${where} ${trouble}` };
  return { kind: 'read', secret: new Secret(bare), warning: undefined };
}

function withoutNewline(text: string): string {
  return text.replace(/\r?\n$/, '');
}
