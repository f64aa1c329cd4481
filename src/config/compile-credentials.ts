// The `credentials` of the config to the fields that they put on.
// A secret that is not there makes its credential unavailable, and requests that need it are refused; one that could split a
// request is a problem that names the credential and never the value (fault E08).
import type { TransformField } from '../exchange/rule.ts';
import { Secret } from '../foundation/secret.ts';
import type { SecretSource } from '../credentials/secret-source.ts';
import type { CredentialEntry } from './credential-schema.ts';
import type { Findings, KeyPath } from './problem.ts';
import type { SourceReader } from './source-reader.ts';

/** A credential of the config: what it puts on, or why it cannot. */
export type CompiledCredential =
  | { readonly id: string; readonly type: CredentialEntry['type']; readonly fields: readonly TransformField[] }
  | { readonly id: string; readonly type: CredentialEntry['type']; readonly unavailable: string };

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
    const made = await new CredentialReader(id, context).fields(entry);
    if (typeof made === 'string') {
      context.findings.warn(['credentials', id], `credential "${id}" is unavailable and its requests are refused: ${made}`);
      compiled.set(id, { id, type: entry.type, unavailable: made });
    } else compiled.set(id, { id, type: entry.type, fields: made });
  }
  return compiled;
}

/** Reads the secrets of one credential; the first that is missing makes it unavailable. */
class CredentialReader {
  readonly #id: string;
  readonly #context: CredentialContext;
  #missing: string | undefined = undefined;

  constructor(id: string, context: CredentialContext) {
    this.#id = id;
    this.#context = context;
  }

  /** The fields, or why there are none. */
  async fields(entry: CredentialEntry): Promise<readonly TransformField[] | string> {
    const fields = await this.#read(entry);
    return this.#missing ?? fields;
  }

  async #read(entry: CredentialEntry): Promise<readonly TransformField[]> {
    switch (entry.type) {
      case 'bearer_token': {
        const token = await this.#secret(entry.token, ['token']);
        return [{ name: entry.header_name, value: new Secret(entry.prefix === '' ? token : `${entry.prefix} ${token}`) }];
      }
      case 'basic': {
        const username = await this.#secret(entry.username, ['username']);
        const password = await this.#secret(entry.password, ['password']);
        // RFC 7617 section 2: the first colon ends the user name, so that one inside would move the border.
        if (username.includes(':')) this.#problem(['username'], 'holds a colon, which a user name of Basic cannot');
        return [
          { name: 'Authorization', value: new Secret(`Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`) },
        ];
      }
      case 'header': {
        const fields: TransformField[] = [];
        for (const [name, source] of Object.entries(entry.headers)) {
          fields.push({ name, value: new Secret(await this.#secret(source, ['headers', name])) });
        }
        return fields;
      }
    }
  }

  async #secret(source: SecretSource, below: KeyPath): Promise<string> {
    const reading = await this.#context.sources.secret(source, ['credentials', this.#id, ...below]);
    if (reading.kind === 'read') return reading.secret.reveal();
    if (reading.kind === 'malformed') this.#problem(below, reading.problem);
    this.#missing ??= reading.problem;
    return '';
  }

  #problem(below: KeyPath, text: string): void {
    this.#context.findings.problem(['credentials', this.#id, ...below], `credential "${this.#id}": ${text}`);
  }
}
