// The `credentials` of the config to the fields that they put on.
// A secret that is not there makes its credential unavailable, and requests that need it are refused; one that could split a
// request is a problem that names the credential and never the value (fault E08).
import type { TransformField } from '../exchange/rule.ts';
import type { Secret } from '../foundation/secret.ts';
import { composeSecret } from '../credentials/secret-source.ts';
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

  constructor(id: string, context: CredentialContext) {
    this.#id = id;
    this.#context = context;
  }

  /** The fields, or why there are none. */
  async fields(entry: CredentialEntry): Promise<readonly TransformField[] | string> {
    switch (entry.type) {
      case 'bearer_token': {
        const token = await this.#secrets([[entry.token, ['token']]]);
        if (typeof token === 'string') return token;
        const value = composeSecret(token, (text = '') => (entry.prefix === '' ? text : `${entry.prefix} ${text}`));
        if (value === undefined) throw new Error('internal error: a bearer token was composed to nothing');
        return [{ name: entry.header_name, value }];
      }
      case 'basic': {
        const pair = await this.#secrets([
          [entry.username, ['username']],
          [entry.password, ['password']],
        ]);
        return typeof pair === 'string' ? pair : this.#basic(pair);
      }
      case 'header': {
        const headers = Object.entries(entry.headers);
        const values = await this.#secrets(headers.map(([name, source]) => [source, ['headers', name]]));
        if (typeof values === 'string') return values;
        return headers.flatMap(([name], index) => {
          const value = values[index];
          return value === undefined ? [] : [{ name, value }];
        });
      }
    }
  }

  #basic(pair: readonly Secret[]): readonly TransformField[] {
    const value = composeSecret(pair, (username = '', password = '') => {
      // RFC 7617 section 2: the first colon ends the user name, so that one inside would move the border.
      return username.includes(':') ? undefined : `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
    });
    if (value !== undefined) return [{ name: 'Authorization', value }];
    this.#problem(['username'], 'holds a colon, which a user name of Basic cannot');
    return [];
  }

  /** All of the secrets, or why one of them is missing; each that is malformed is a problem. */
  async #secrets(wanted: readonly (readonly [SecretSource, KeyPath])[]): Promise<readonly Secret[] | string> {
    const secrets: Secret[] = [];
    let missing: string | undefined;
    for (const [source, below] of wanted) {
      const reading = await this.#context.sources.secret(source, ['credentials', this.#id, ...below]);
      if (reading.kind === 'read') secrets.push(reading.secret);
      else missing ??= reading.problem;
      if (reading.kind === 'malformed') this.#problem(below, reading.problem);
    }
    return missing ?? secrets;
  }

  #problem(below: KeyPath, text: string): void {
    this.#context.findings.problem(['credentials', this.#id, ...below], `credential "${this.#id}": ${text}`);
  }
}
