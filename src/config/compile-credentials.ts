// The `credentials` of the config to the fields that they put on.
// A secret that is not there makes its credential unavailable, and requests that need it are refused; one that could split a
// request is a problem that names the credential and never the value (fault E08).
import type { Resolution } from '../exchange/snapshot.ts';
import type { Secret } from '../foundation/secret.ts';
import { fieldsOf } from '../credentials/credential.ts';
import { DeclaredSource } from '../credentials/declared.ts';
import type { Declaration } from '../credentials/declared.ts';
import { canBePlaceholder, NO_PLACEHOLDER } from '../credentials/placeholder.ts';
import type { SecretSource } from '../credentials/secret-source.ts';
import { signingOf } from '../credentials/signer.ts';
import { placeholderOf } from '../credentials/trusted.ts';
import { parseRanges } from '../network/address-ranges.ts';
import type { CredentialEntry } from './credential-schema.ts';
import type { Findings, KeyPath } from './problem.ts';
import type { SourceReader } from './source-reader.ts';

/** A credential of the config: what it puts on, why it cannot, or how what it puts on is fetched. */
export type CompiledCredential = (Resolution & { readonly id: string; readonly type: CredentialEntry['type'] }) | DeclaredSource;

/** What compiling credentials needs beside them. */
export interface CredentialContext {
  readonly sources: SourceReader;
  readonly findings: Findings;
}

/** Every credential by id. Problems and warnings go to the findings. */
export async function compileCredentials(
  entries: Readonly<Record<string, CredentialEntry>>,
  context: CredentialContext,
): Promise<ReadonlyMap<string, CompiledCredential>> {
  const compiled = new Map<string, CompiledCredential>();
  for (const [id, entry] of Object.entries(entries)) {
    const made = await new CredentialReader(id, context).resolution(entry);
    if (made instanceof DeclaredSource) {
      compiled.set(id, made);
      continue;
    }
    if ('unavailable' in made) {
      context.findings.warn(
        ['credentials', id],
        `credential "${id}" is unavailable and its requests are refused: ${made.unavailable}`,
      );
    }
    compiled.set(id, { id, type: entry.type, ...made });
  }
  return compiled;
}

/** Reads the secrets of one credential; the first that is missing makes it unavailable. */
class CredentialReader {
  readonly #id: string;
  readonly #context: CredentialContext;

  constructor(id: string, context: CredentialContext) {
    this.#id = id;
    this.#context = context;
  }

  /** What the credential comes to with its sources read. */
  async resolution(entry: CredentialEntry): Promise<Resolution | DeclaredSource> {
    switch (entry.type) {
      case 'bearer_token': {
        const read = await this.#secrets([[entry.token, ['token']]]);
        return 'missing' in read ? { unavailable: read.missing } : fieldsOf({ ...entry, token: read.secrets[0] });
      }
      case 'basic': {
        const read = await this.#secrets([
          [entry.username, ['username']],
          [entry.password, ['password']],
        ]);
        if ('missing' in read) return { unavailable: read.missing };
        const [username, password] = read.secrets;
        const made = fieldsOf({ type: 'basic', username, password });
        // A user name that Basic cannot carry is a slip in the config, and no secret that is away.
        if ('unavailable' in made) this.#problem(['username'], made.unavailable);
        return made;
      }
      case 'header': {
        const names = Object.keys(entry.headers);
        const read = await this.#secrets(
          Object.entries(entry.headers).map(([name, source]) => [source, ['headers', name]] as const),
        );
        if ('missing' in read) return { unavailable: read.missing };
        const headers = Object.fromEntries(read.secrets.map((secret, index) => [names[index] ?? '', secret]));
        return fieldsOf({ type: 'header', headers });
      }
      case 'oauth2':
        return this.#client(entry);
      case 'environment_variable': {
        if (!canBePlaceholder(this.#id)) this.#problem([], NO_PLACEHOLDER);
        const read = await this.#secrets([[entry.value, ['value']]]);
        return 'missing' in read ? { unavailable: read.missing } : placeholderOf({ ...entry, value: read.secrets[0] });
      }
      case 'aws_sigv4':
        return this.#signer(entry);
      case 'exec':
        return new DeclaredSource(this.#id, commandOf(entry));
    }
  }

  async #client(entry: Extract<CredentialEntry, { type: 'oauth2' }>): Promise<Resolution | DeclaredSource> {
    const read = await this.#secrets([
      [entry.client_secret, ['client_secret']],
      [entry.refresh_token, ['refresh_token']],
    ]);
    if ('missing' in read) return { unavailable: read.missing };
    const [client_secret, refresh_token] = read.secrets;
    const opened = parseRanges(entry.token_addresses.map(({ key }) => key));
    const ranges = 'ranges' in opened ? opened.ranges : undefined;
    const { type, client_id, token_url, scopes } = entry;
    const client = { type, client_id, token_url, scopes };
    return new DeclaredSource(this.#id, { ...client, client_secret, refresh_token, opened: ranges });
  }

  async #signer(entry: Extract<CredentialEntry, { type: 'aws_sigv4' }>): Promise<Resolution> {
    const { session_token: token } = entry;
    const key = [entry.secret_access_key, ['secret_access_key']] as const;
    const read = await this.#secrets(token === undefined ? [key] : [key, [token, ['session_token']]]);
    if ('missing' in read) return { unavailable: read.missing };
    const [secret_access_key, session_token] = read.secrets;
    return signingOf({ ...entry, secret_access_key, session_token });
  }

  /** All of the secrets, in the same order, or why one of them is missing; each that is malformed is a problem. */
  async #secrets<const Wanted extends readonly (readonly [SecretSource, KeyPath])[]>(
    wanted: Wanted,
  ): Promise<{ readonly secrets: { readonly [Index in keyof Wanted]: Secret } } | { readonly missing: string }> {
    const secrets: Secret[] = [];
    let missing: string | undefined;
    for (const [source, below] of wanted) {
      const reading = await this.#context.sources.secret(source, ['credentials', this.#id, ...below]);
      if (reading.kind === 'read') secrets.push(reading.secret);
      else missing ??= reading.problem;
      if (reading.kind === 'malformed') this.#problem(below, reading.problem);
    }
    // As many secrets as sources, or one of them is missing.
    return missing === undefined ? { secrets: secrets as { [Index in keyof Wanted]: Secret } } : { missing };
  }

  #problem(below: KeyPath, text: string): void {
    this.#context.findings.problem(['credentials', this.#id, ...below], `credential "${this.#id}": ${text}`);
  }
}

function commandOf({ timeout, ...entry }: Extract<CredentialEntry, { type: 'exec' }>): Extract<Declaration, { type: 'exec' }> {
  return { ...entry, timeoutMs: timeout };
}
