// A credential with its values at hand, wherever it was declared: in the config, its sources read, or in the store, its record opened.
// And what it comes to: the fields that it puts on, and the bare values that no answer may show to the sandbox.
// It must never hold a secret but as a Secret.
import type { Resolution } from '../exchange/snapshot.ts';
import type { Secret } from '../foundation/secret.ts';
import { composeSecret } from './secret-source.ts';

/** Where the value of an environment variable may stand in a request. */
export type InjectionLocation = 'header' | 'query' | 'body';

/** A credential. Names of its members are those of the REST dialect. */
export type Credential =
  | { readonly type: 'bearer_token'; readonly token: Secret; readonly header_name: string; readonly prefix: string }
  | { readonly type: 'basic'; readonly username: Secret; readonly password: Secret }
  | { readonly type: 'header'; readonly headers: Readonly<Record<string, Secret>> }
  | {
      readonly type: 'oauth2';
      readonly client_id: string;
      readonly client_secret: Secret;
      readonly refresh_token: Secret;
      readonly token_url: string;
      readonly scopes: readonly string[];
    }
  | {
      readonly type: 'environment_variable';
      readonly value: Secret;
      readonly injection_location: readonly InjectionLocation[];
      readonly trusted_domains: readonly string[];
    }
  | {
      readonly type: 'aws_sigv4';
      readonly access_key_id: string;
      readonly secret_access_key: Secret;
      readonly session_token: Secret | undefined;
      readonly region: string;
      readonly service: string;
    };

/** What a credential's `type` says. */
export type CredentialType = Credential['type'];

/** Those whose fields follow from the values alone. */
export type PlainCredential = Extract<Credential, { type: 'bearer_token' | 'basic' | 'header' }>;

/** The fields that a credential puts on, with the bare values in them. */
export function fieldsOf(
  credential: PlainCredential,
): Extract<Resolution, { fields: unknown }> | { readonly unavailable: string } {
  switch (credential.type) {
    case 'bearer_token':
      return bearerFields(credential);
    case 'basic':
      return basicFields(credential);
    case 'header': {
      const fields = Object.entries(credential.headers).map(([name, value]) => ({ name, value }));
      return { fields, secrets: fields.map(({ value }) => value) };
    }
  }
}

/** One token in one header; for every type that comes to a token in the end. */
export function bearerFields(bearer: {
  readonly token: Secret;
  readonly header_name: string;
  readonly prefix: string;
}): Extract<Resolution, { fields: unknown }> {
  const { token, header_name, prefix } = bearer;
  const value = composeSecret([token], (text = '') => (prefix === '' ? text : `${prefix} ${text}`)) ?? token;
  return { fields: [{ name: header_name, value }], secrets: [token] };
}

/** RFC 7617 section 2: the first colon ends the user name, so that one inside would move the border. */
function basicFields({
  username,
  password,
}: Extract<Credential, { type: 'basic' }>): Extract<Resolution, { fields: unknown }> | { readonly unavailable: string } {
  const pair = [username, password];
  const encoded = composeSecret(pair, (name = '', word = '') =>
    name.includes(':') ? undefined : Buffer.from(`${name}:${word}`).toString('base64'),
  );
  if (encoded === undefined) return { unavailable: COLON };
  const value = composeSecret([encoded], (text = '') => `Basic ${text}`) ?? encoded;
  // Some services take the secret as the user name, with no password.
  const bare = composeSecret(pair, (name = '', word = '') => (word === '' ? name : word)) ?? password;
  return { fields: [{ name: 'Authorization', value }], secrets: [bare, encoded] };
}

/** Why a user name cannot be one of Basic; to stand after its place. */
export const COLON = 'holds a colon, which a user name of Basic cannot';
