// Where the tokens of an OAuth 2.0 client are kept between two renewals: in its own record where it is stored, beside the config where
// the config declares it. A refresh token that was handed out in place of another one outlives this process here, and whoever shares
// the store finds the access token here instead of fetching another one. It must never write over a record that an operator has changed.
import { createHash } from 'node:crypto';
import type { JsonObject, Records, StoredRecord } from '../exchange/records.ts';
import { Secret } from '../foundation/secret.ts';
import type { Failed, Held } from './fresh-source.ts';
import { digestSecrets, sameSecret } from './secret-source.ts';
import type { ClientAuth, TokenClient } from './token-endpoint.ts';

/** What is kept of a client. */
export interface Tokens {
  readonly refreshToken: Secret;
  readonly held: Held | undefined;
  /** How the client shows itself, where that was found out */
  readonly auth: ClientAuth | undefined;
}

/** Tokens as they were read, and what a write of others needs. */
export interface KeptTokens extends Tokens {
  /** The record that they stand in; `undefined`: there is none yet */
  readonly record: StoredRecord | undefined;
}

/** The place of one client's tokens. Both reject as the store does. */
export interface TokenPlace {
  /** Shared by all that renew this client's tokens */
  readonly lockName: string;
  read(): Promise<KeptTokens | Failed>;
  /** Writes in place of what was read; StoreConflict where that has changed meanwhile. */
  write(tokens: Tokens, before: KeptTokens): Promise<KeptTokens>;
  /** Marks that the refresh token is none any more, where the place can say so. */
  revoke(before: KeptTokens): Promise<void>;
}

/** A client with the refresh token that the operator gave. */
export interface Grant extends TokenClient {
  readonly refresh_token: Secret;
}

const DELETED: Failed = { failed: 'changed', unavailable: 'it was deleted', final: true };
const CHANGED: Failed = { failed: 'changed', unavailable: 'its record was changed, and is read anew within seconds' };
const REVOKED: Failed = { failed: 'revoked', unavailable: 'its refresh token is revoked; give it a new one', final: true };

/** The place of a client that is stored: its own record of kind `credentials`, with the access token as `state`. */
export function storedPlace(records: Pick<Records, 'get' | 'put'>, id: string, grant: Grant): TokenPlace {
  return {
    lockName: `oauth2 ${id}`,
    read: async () => {
      const record = await records.get('credentials', id);
      if (record === undefined) return DELETED;
      if (!isRecordOf(grant, record)) return CHANGED;
      if (record.value['status'] === 'revoked') return REVOKED;
      return keptIn(record) ?? CHANGED;
    },
    write: async (tokens, { record }) => {
      const value = { ...record?.value, ...membersOf(tokens) };
      return { ...tokens, record: await records.put('credentials', id, value, record?.version ?? 'new') };
    },
    revoke: async ({ record }) => {
      if (record === undefined) return;
      const value = Object.fromEntries(Object.entries(record.value).filter(([name]) => name !== 'state'));
      await records.put('credentials', id, { ...value, status: 'revoked' }, record.version);
    },
  };
}

/**
 * The place of a client that the config declares: a record of kind `tokens`, which counts only as long as the config declares the same
 * client with the same secrets. A revocation is not kept: another try after a restart or a reload costs nothing.
 */
export function declaredPlace(records: Pick<Records, 'get' | 'put'>, id: string, grant: Grant): TokenPlace {
  const origin = digestOf(grant);
  return {
    lockName: `oauth2 tokens ${id}`,
    read: async () => {
      const record = await records.get('tokens', id);
      const kept = record?.value['origin'] === origin ? keptIn(record) : undefined;
      return kept ?? { refreshToken: grant.refresh_token, held: undefined, auth: undefined, record };
    },
    write: async (tokens, { record }) => {
      const value = { origin, ...membersOf(tokens) };
      return { ...tokens, record: await records.put('tokens', id, value, record?.version ?? 'new') };
    },
    revoke: () => Promise.resolve(),
  };
}

/**
 * What a newer record of the same client brings that a source has written, here or elsewhere; `undefined` where an operator has
 * written it, or changed the client: then nothing that was fetched before counts.
 */
export function adoptable(grant: Grant, record: StoredRecord): Held | undefined {
  return isRecordOf(grant, record) && record.value['status'] === 'active' ? keptIn(record)?.held : undefined;
}

/** Members of a record's value for these tokens: `refresh_token`, and `state` with what was fetched by it. */
export function membersOf({ refreshToken, held, auth }: Tokens): JsonObject {
  return {
    refresh_token: refreshToken.reveal(),
    state: {
      ...(held === undefined ? {} : { access_token: held.value.reveal(), ends_at: held.goodUntil, renew_at: held.renewAt }),
      ...(auth === undefined ? {} : { auth }),
    },
  };
}

/** The tokens in a record; `undefined` where it has no refresh token. */
export function keptIn(record: StoredRecord): KeptTokens | undefined {
  const { refresh_token: token, state } = record.value;
  if (typeof token !== 'string' || token === '') return undefined;
  const { access_token: access, ends_at: endsAt, renew_at: renewAt, auth } = isObject(state) ? state : {};
  const whole = typeof access === 'string' && typeof endsAt === 'number' && typeof renewAt === 'number';
  return {
    refreshToken: new Secret(token),
    held: whole ? { value: new Secret(access), endsAt, renewAt, goodUntil: endsAt } : undefined,
    auth: auth === 'body' || auth === 'basic' ? auth : undefined,
    record,
  };
}

/** Whether a record is of this client, whatever its tokens. */
function isRecordOf(grant: Grant, { value }: StoredRecord): boolean {
  const { type, client_id, client_secret, token_url, scopes } = value;
  return (
    type === 'oauth2' &&
    client_id === grant.client_id &&
    token_url === grant.token_url &&
    typeof client_secret === 'string' &&
    sameSecret(new Secret(client_secret), grant.client_secret) &&
    JSON.stringify(scopes ?? []) === JSON.stringify(grant.scopes)
  );
}

/** Equal exactly when the operator has declared the same. It is of secrets, and is kept only where they are sealed. */
export function digestOf({ client_id, client_secret, refresh_token, token_url, scopes }: Grant): string {
  const secrets = digestSecrets(new Map(Object.entries({ client_secret, refresh_token })));
  return createHash('sha256')
    .update(JSON.stringify([client_id, token_url, scopes, secrets]))
    .digest('hex');
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
