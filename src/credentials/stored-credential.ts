// The credentials resource: what a client may send, what is kept of it, and what it is shown. Three forms of one thing: the body, in
// which secrets are texts; the value of a record, which the store seals; and the view, which holds no secret.
// A member that no type has is refused with the right spelling; whatever is omitted from a patch keeps its value.
// It must never put a secret into a problem or a view.
import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import type { JsonObject, StoredRecord } from '../exchange/records.ts';
import { nearestWord } from '../foundation/edit-distance.ts';
import { Secret } from '../foundation/secret.ts';
import { shapeProblems, unknownMember } from '../foundation/shape-problems.ts';
import { credentialMembers } from './credential-fields.ts';
import { COLON } from './credential.ts';
import type { Credential, CredentialType } from './credential.ts';
import { canBePlaceholder, NO_PLACEHOLDER } from './placeholder.ts';
import { bareSecret } from './secret-source.ts';

/** What became of a body. `problem` is one line, lower case, with the remedy. */
export type Read<Good> = Good | { readonly problem: string };

const members = credentialMembers({ secret: secretText, mayBeEmpty: secretTextOrNone, valuesAre: '.' });

/** The schema of each type's own members, `type` among them. */
const SCHEMAS = {
  bearer_token: z.strictObject(members.bearer_token),
  basic: z
    .strictObject(members.basic)
    .refine(({ username, password }) => username !== '' || password !== '', {
      error: 'must not be empty together with "username"',
      path: ['password'],
    })
    .refine(({ username }) => !username.includes(':'), { error: COLON, path: ['username'] }),
  header: z.strictObject(members.header),
  oauth2: z.strictObject(members.oauth2),
  environment_variable: z.strictObject(members.environment_variable),
  aws_sigv4: z.strictObject(members.aws_sigv4),
} as const satisfies Record<CredentialType, z.ZodType>;

/** The types that can be stored. */
export const STORED_TYPES = Object.keys(SCHEMAS) as readonly CredentialType[];

/** Members of each type, as a body may have them. */
function membersOf(type: CredentialType): readonly string[] {
  return Object.keys(members[type]);
}

/** What a view shows beside what every credential has: nothing that could let anyone in. */
const SHOWN: Readonly<Record<CredentialType, readonly string[]>> = {
  bearer_token: ['header_name', 'prefix'],
  basic: [],
  header: [],
  oauth2: ['client_id', 'token_url', 'scopes'],
  environment_variable: ['injection_location', 'trusted_domains'],
  aws_sigv4: ['access_key_id', 'region', 'service'],
};

/** What the server says of a credential, and no client can. */
const OUTPUT_ONLY: ReadonlySet<string> = new Set(['status', 'create_time', 'update_time']);
const ID = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;

/** Reads the body of a create: the id, a new UUID where it names none, and the value to be kept. */
export function readNew(body: unknown): Read<{ readonly id: string; readonly value: JsonObject }> {
  if (!isObject(body)) return { problem: 'the body must be a JSON object' };
  const { id = randomUUID(), ...fields } = body;
  const trouble = idTrouble(id);
  if (typeof id !== 'string' || trouble !== undefined) return { problem: trouble ?? 'the id must be text' };
  const type = readType(fields);
  if (typeof type !== 'string') return type;
  if (type === 'environment_variable' && !canBePlaceholder(id)) return { problem: `the credential ${NO_PLACEHOLDER}` };
  const checked = check(type, fields);
  return 'problem' in checked ? checked : { id, value: { ...checked.fields, status: 'active' } };
}

/**
 * Reads the body of a patch over the value that is kept: a member that is omitted keeps its value. With a `mask`, the members that it
 * names are taken from the body, and of those that the body omits the standard value is taken; the rest of the body does not count.
 * What a source has kept beside the members (`state`) is dropped, since it was got with the old ones.
 */
export function readPatch(record: StoredRecord, body: unknown, mask?: readonly string[]): Read<{ readonly value: JsonObject }> {
  if (!isObject(body)) return { problem: 'the body must be a JSON object' };
  const type = readType(body);
  if (typeof type !== 'string') return type;
  const kept = record.value['type'];
  if (type !== kept)
    return { problem: `the type of a credential cannot be changed: it is "${String(kept)}"; delete it and make another` };
  const { id, ...fields } = body;
  if (id !== undefined && id !== record.id) return { problem: `the id of a credential cannot be changed: it is "${record.id}"` };
  const known = membersOf(type);
  const stranger = [...Object.keys(fields), ...(mask ?? [])].find((name) => !known.includes(name) && name !== '*');
  if (stranger !== undefined) return { problem: memberTrouble(stranger, known) };
  const checked = check(type, { ...merged(record.value, fields, mask ?? Object.keys(fields)), type });
  return 'problem' in checked ? checked : { value: { ...checked.fields, status: 'active' } };
}

function merged(kept: JsonObject, given: JsonObject, mask: readonly string[]): JsonObject {
  if (mask.includes('*')) return given;
  const taken = Object.fromEntries(mask.map((name) => [name, given[name]]));
  return Object.fromEntries(Object.entries({ ...membersIn(kept), ...taken }).filter(([, value]) => value !== undefined));
}

/** The members of a kept value: what is not `status`, nor the `state` that a source keeps for itself. */
function membersIn(kept: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(kept).filter(([name]) => name !== 'status' && name !== 'state'));
}

/** What a client is shown. A record of a form that this version does not know shows its dates and nothing else. */
export function view({ id, value, createdAt, updatedAt }: StoredRecord): JsonObject {
  const { type, status } = value;
  const dates = { create_time: createdAt, update_time: updatedAt };
  if (!isType(type)) return { id, type: 'unknown', status: 'revoked', ...dates };
  const shown = Object.fromEntries(SHOWN[type].map((name) => [name, value[name]]));
  const names = type === 'header' && isObject(value['headers']) ? { header_names: Object.keys(value['headers']) } : {};
  return { id, type, status: status === 'revoked' ? status : 'active', ...dates, ...shown, ...names };
}

/** The credential of a record, its secrets as such; or why it is none. */
export function openCredential({ value }: StoredRecord): Credential | { readonly unavailable: string } {
  if (value['status'] === 'revoked') return { unavailable: 'it is revoked; give it new secrets' };
  const { type } = value;
  if (!isType(type)) return { unavailable: UNKNOWN_FORM };
  const checked = SCHEMAS[type].safeParse(membersIn(value));
  return checked.success ? withSecrets(checked.data) : { unavailable: UNKNOWN_FORM };
}

const UNKNOWN_FORM = 'it was stored in a form that this version does not know; make it anew';

function withSecrets(read: z.output<(typeof SCHEMAS)[CredentialType]>): Credential {
  switch (read.type) {
    case 'bearer_token':
      return { ...read, token: new Secret(read.token) };
    case 'basic':
      return { ...read, username: new Secret(read.username), password: new Secret(read.password) };
    case 'header':
      return {
        ...read,
        headers: Object.fromEntries(Object.entries(read.headers).map(([name, value]) => [name, new Secret(value)])),
      };
    case 'oauth2':
      return { ...read, client_secret: new Secret(read.client_secret), refresh_token: new Secret(read.refresh_token) };
    case 'environment_variable':
      return { ...read, value: new Secret(read.value) };
    case 'aws_sigv4': {
      const { session_token: token } = read;
      const session_token = token === undefined ? undefined : new Secret(token);
      return { ...read, secret_access_key: new Secret(read.secret_access_key), session_token };
    }
  }
}

function check(type: CredentialType, fields: JsonObject): Read<{ readonly fields: JsonObject }> {
  const stranger = Object.keys(fields).find((name) => OUTPUT_ONLY.has(name));
  if (stranger !== undefined) return { problem: memberTrouble(stranger, membersOf(type)) };
  const checked = SCHEMAS[type].safeParse(fields);
  return checked.success ? { fields: checked.data } : { problem: shapeProblems(checked.error.issues, membersOf(type)) };
}

function memberTrouble(name: string, known: readonly string[]): string {
  return OUTPUT_ONLY.has(name) ? `"${name}" is set by the server; leave it out` : unknownMember(name, known);
}

function readType({ type }: JsonObject): Read<CredentialType> {
  if (isType(type)) return type;
  const known = STORED_TYPES.map((each) => `"${each}"`).join(', ');
  if (type === undefined) return { problem: `"type" is missing; it is one of ${known}` };
  if (type === 'exec')
    return { problem: 'credentials of type "exec" run a command beside the proxy, and come from its config alone' };
  const meant = typeof type === 'string' ? nearestWord(type, STORED_TYPES) : undefined;
  return { problem: `"type" must be ${meant === undefined ? `one of ${known}` : `a known one; did you mean "${meant}"?`}` };
}

function idTrouble(id: unknown): string | undefined {
  if (typeof id !== 'string') return '"id" must be text';
  if (ID.test(id)) return undefined;
  return '"id" must be at most 128 letters, digits, "-", "_" and ".", a letter or digit first; better lower case';
}

function secretText(what: string) {
  return z
    .string()
    .transform((text, context) => {
      const bare = bareSecret(text);
      if ('text' in bare) return bare.text;
      context.addIssue({ code: 'custom', message: bare.problem });
      return z.NEVER;
    })
    .describe(`${what}. Write-only.`);
}

function secretTextOrNone(what: string) {
  return z
    .string()
    .transform((text, context) => {
      const bare = text === '' ? { text } : bareSecret(text);
      if ('text' in bare) return bare.text;
      context.addIssue({ code: 'custom', message: bare.problem });
      return z.NEVER;
    })
    .describe(`${what}; "" for none. Write-only.`);
}

function isType(type: unknown): type is CredentialType {
  return typeof type === 'string' && Object.hasOwn(SCHEMAS, type);
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
