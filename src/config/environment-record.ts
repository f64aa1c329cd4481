// An environment as it is kept, and what is shown of it. The record holds the network with its values, the variables, the names of
// its sources and the digest of its token; the sources themselves are a record of their own, so that looking for changes stays cheap.
// It must never keep a token, nor show a value of a transform.
import { createHash, randomBytes } from 'node:crypto';
import type { JsonObject, StoredRecord } from '../exchange/records.ts';
import { entriesOf, HIDDEN, openNetwork, readVariables, transformsOf } from './environment-body.ts';
import type { EnvironmentParts, Read, Variables } from './environment-body.ts';
import type { SourceFile } from './environment-sources.ts';
import { isMapping } from './fields.ts';
import type { Network } from './rule-schema.ts';

/** A new token, to be shown once, and what is kept of it. */
export interface ProxyToken {
  readonly token: string;
  readonly digest: string;
}

/** An environment, opened. */
export interface OpenEnvironment {
  readonly network: Network;
  /** Whether it was created without a network: everything outside of the walls may be reached */
  readonly open: boolean;
  readonly env: Variables;
  /** SHA-256 of the token, base64url */
  readonly tokenDigest: string;
}

const ID_LENGTH = 15;
const DIGEST = /^[A-Za-z0-9_-]{43}$/;

/** An id that no environment has. It is no secret. */
export function newEnvironmentId(): string {
  // shorter than the runs of letters and digits that are taken for tokens, so that problems can name it
  return `env_${BigInt(`0x${randomBytes(16).toString('hex')}`)
    .toString(36)
    .padStart(ID_LENGTH, '0')
    .slice(-ID_LENGTH)}`;
}

/** 32 random bytes. */
export function newProxyToken(): ProxyToken {
  const token = randomBytes(32).toString('base64url');
  return { token, digest: tokenDigest(token) };
}

/** What is kept of a token. */
export function tokenDigest(token: string | Buffer): string {
  return createHash('sha256').update(token).digest('base64url');
}

/** The value to be kept: that of a new environment, or `before` with what the parts name in its place, each part whole. */
export function environmentValue(
  before: JsonObject,
  parts: EnvironmentParts,
  kept: { readonly tokenDigest?: string; readonly sources?: string | undefined },
): JsonObject {
  const value: Record<string, unknown> = { ...before };
  if (parts.network !== undefined) value['network'] = parts.network;
  if (parts.env !== undefined) value['env'] = parts.env;
  if (parts.files !== undefined) {
    value['files'] = parts.files;
    // JSON keeps no member that is undefined
    value['sources'] = kept.sources;
  }
  if (kept.tokenDigest !== undefined) value['token_sha256'] = kept.tokenDigest;
  return value;
}

/** Id of the record that holds the sources; `undefined` where there are none. */
export function sourcesIdOf({ value }: StoredRecord): string | undefined {
  const { sources } = value;
  return typeof sources === 'string' ? sources : undefined;
}

/** Reads a record. A form that this version does not know is a problem. Never throws. */
export function openEnvironment({ value }: StoredRecord): Read<OpenEnvironment> {
  const { network: kept, env: variables = {}, token_sha256: digest } = value;
  const network = openNetwork(kept);
  if ('problem' in network) return network;
  const env = readVariables(variables);
  if ('problem' in env) return env;
  if (typeof digest !== 'string' || !DIGEST.test(digest)) return { problem: 'it has no token; make a new one' };
  return { ...network, ...env, open: kept === undefined, tokenDigest: digest };
}

/** What a client is shown: names of headers, never values; variables as a list of single-key objects, as the dialect echoes them. */
export function environmentView(record: StoredRecord): JsonObject {
  const { id, value, createdAt, updatedAt } = record;
  const files = filesOf(value);
  const read = readVariables(value['env'] ?? {});
  const variables = 'env' in read ? Object.entries(read.env).map(([name, variable]) => ({ [name]: variable })) : [];
  return {
    id,
    status: 'active',
    create_time: createdAt,
    update_time: updatedAt,
    // under these names the vendor's client knows them
    created: createdAt,
    updated: updatedAt,
    ...(value['network'] === undefined ? {} : { network: withoutValues(value['network']) }),
    env: variables,
    sources: files.map(({ target }) => ({ type: 'inline', target })),
    file_count: String(files.length),
    size_bytes: String(files.reduce((sum, { size }) => sum + size, 0)),
  };
}

function filesOf({ files }: JsonObject): SourceFile[] {
  return (Array.isArray(files) ? (files as unknown[]) : []).flatMap((file) =>
    isMapping(file) && typeof file['target'] === 'string' && typeof file['size'] === 'number'
      ? [{ target: file['target'], size: file['size'] }]
      : [],
  );
}

function withoutValues(network: unknown): unknown {
  if (!isMapping(network)) return network === 'disabled' ? network : {};
  if (network['allowlist'] === undefined) return network;
  const allowlist = entriesOf(network).map((rule) => {
    if (rule['transform'] === undefined) return rule;
    const hidden = transformsOf(rule).map((object) => Object.fromEntries(Object.keys(object).map((name) => [name, HIDDEN])));
    return { ...rule, transform: Array.isArray(rule['transform']) ? hidden : hidden[0] };
  });
  return { ...network, allowlist };
}
