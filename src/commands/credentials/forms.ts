// What each type of credential asks for, as its commands see it: which members are secrets, and which are options of the command line.
// It only names members; what they may be, the proxy judges, and it must never judge in its place.
import type { CredentialType } from '../../credentials/credential.ts';

/** Options of the command line that are members of a credential, by the member's name. */
export interface MemberOptions {
  readonly header_name?: readonly string[] | undefined;
  readonly prefix?: string | undefined;
  readonly client_id?: string | undefined;
  readonly token_url?: string | undefined;
  readonly scopes?: readonly string[] | undefined;
  readonly injection_location?: readonly string[] | undefined;
  readonly trusted_domains?: readonly string[] | undefined;
  readonly access_key_id?: string | undefined;
  readonly region?: string | undefined;
  readonly service?: string | undefined;
}

/** The form of one type. */
export interface CredentialForm {
  /** Members that are secrets, in the order in which a person is asked; those of `header` are its headers */
  readonly secrets: readonly string[];
  /** The one that a rotation is about */
  readonly rotated?: string;
  /** Of the secrets those that may be left out */
  readonly optional: readonly string[];
  /** Other members that an option gives */
  readonly options: readonly (keyof MemberOptions)[];
}

/** All types that can be stored. */
export const CREDENTIAL_FORMS: Readonly<Record<CredentialType, CredentialForm>> = {
  bearer_token: { secrets: ['token'], rotated: 'token', optional: [], options: ['header_name', 'prefix'] },
  basic: { secrets: ['username', 'password'], rotated: 'password', optional: [], options: [] },
  header: { secrets: [], optional: [], options: ['header_name'] },
  oauth2: {
    secrets: ['client_secret', 'refresh_token'],
    rotated: 'refresh_token',
    optional: [],
    options: ['client_id', 'token_url', 'scopes'],
  },
  environment_variable: {
    secrets: ['value'],
    rotated: 'value',
    optional: [],
    options: ['injection_location', 'trusted_domains'],
  },
  aws_sigv4: {
    secrets: ['secret_access_key', 'session_token'],
    rotated: 'secret_access_key',
    optional: ['session_token'],
    options: ['access_key_id', 'region', 'service'],
  },
};

/** Whether a text is a type that can be stored. */
export function isStoredType(type: unknown): type is CredentialType {
  return typeof type === 'string' && Object.hasOwn(CREDENTIAL_FORMS, type);
}
