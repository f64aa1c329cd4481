// What an injection comes to with what its credential stands for at present: the fields that come on, what the sandbox's own request
// loses for them, and what no answer may show. It changes only when the credential does, so that an exchange pays for none of it.
import { endToEndFields, fieldValue, isFieldName, isFieldValue, looseName } from '../exchange/header-fields.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { Injection, TransformField } from '../exchange/rule.ts';
import type { Resolution, Signer } from '../exchange/snapshot.ts';
import { overlay } from './injection.ts';

/** An injection, ready to be put on. */
export interface Prepared {
  readonly resolved: Resolution;
  readonly fields: readonly TransformField[];
  /** What signs the request in the end; it has no field that `transform` replaces */
  readonly signer: Signer | undefined;
  /** Whether every field of the credential can stand in a request */
  readonly sound: boolean;
  /** What the sandbox's own request loses, for `mode: set` */
  readonly dropped: ReadonlySet<string>;
  readonly credentials: readonly string[];
  /** Texts that no answer may show; secrets */
  readonly guarded: readonly string[];
}

/** What stands where a rule has no credential. */
export const NOTHING: Resolution = { fields: [] };
export const NO_CREDENTIALS: readonly string[] = [];
const NO_FIELDS: readonly TransformField[] = [];
const NO_SECRETS: readonly string[] = [];

/** Host is rebuilt, Expect is answered at the door, and what steers Sallyport itself goes no further (fault B14). */
const ALWAYS_DROPPED: readonly string[] = ['host', 'expect', 'x-sallyport-action-id', 'x-sallyport-reason', 'proxy-status'];

/** What every request loses, whether or not something is put on. */
export const NOTHING_INJECTED: ReadonlySet<string> = new Set(ALWAYS_DROPPED);

/** What authenticates a request by custom; a credentialed host hears only the credential that the operator chose (fault E04). */
const AUTHENTICATING: ReadonlySet<string> = new Set([
  'authorization',
  'cookie',
  'x-api-key',
  'api-key',
  'x-goog-api-key',
  'x-auth-token',
  'x-access-token',
  'private-token',
  'x-amz-security-token',
]);

/** Further names of `transform` whose values are secrets by custom. */
const SECRET_NAME = /token|secret|api-?key|password|credential|(?:^|-)auth(?:-|$)|authorization/;

/** Prepares an injection, its credential being known by fields or by what signs. */
export function prepare(injection: Injection, resolved: Resolution): Prepared {
  const below = 'fields' in resolved ? resolved.fields : NO_FIELDS;
  const fields = overlay(below, injection.transform);
  const signer = signerIn(resolved, injection);
  return {
    resolved,
    fields,
    signer,
    sound: below.every(canStand),
    dropped: droppedNames(fields, injection),
    credentials: credentialsIn(fields, injection, { resolved, signer }),
    guarded: guardedTexts(resolved, injection.transform),
  };
}

/** Of a prepared injection what comes on beside the fields that the sandbox sent itself, by the rule's mode. */
export function chosenFor(sent: HeaderFields, prepared: Prepared, injection: Injection): Prepared {
  if (injection.mode === 'set') return prepared;
  // A field that Connection nominates will not go on, so it is no value of the sandbox's own to yield to.
  const kept = endToEndFields(sent, NOTHING_INJECTED);
  const wanted = (name: string): boolean => (fieldValue(kept, name) !== undefined) === (injection.mode === 'replace');
  const fields = prepared.fields.filter(({ name }) => wanted(name.toLowerCase()));
  const signer = wanted('authorization') ? prepared.signer : undefined;
  return {
    ...prepared,
    fields,
    signer,
    dropped: droppedNames(fields, injection),
    credentials: credentialsIn(fields, injection, { resolved: prepared.resolved, signer }),
    guarded: fields.length === 0 && signer === undefined ? NO_SECRETS : prepared.guarded,
  };
}

/** A signature is an Authorization, and where `transform` has one that wins as it does over any other. */
function signerIn(resolved: Resolution, { transform }: Injection): Signer | undefined {
  if (!('signer' in resolved) || transform.some(({ name }) => looseName(name) === 'authorization')) return undefined;
  return resolved.signer;
}

/** A value with a line break would be a second field, or a second request (fault E08). */
function canStand({ name, value }: TransformField): boolean {
  return isFieldName(name) && isFieldValue(value.reveal());
}

/** The credential's id where one of its fields is among those put on: a transform may have replaced them all. */
function credentialsIn(
  fields: readonly TransformField[],
  { credential }: Injection,
  { resolved, signer }: Pick<Prepared, 'resolved' | 'signer'>,
): readonly string[] {
  if (credential === undefined) return NO_CREDENTIALS;
  const own = 'fields' in resolved ? resolved.fields : NO_FIELDS;
  return signer !== undefined || fields.some((field) => own.includes(field)) ? [credential] : NO_CREDENTIALS;
}

function droppedNames(chosen: readonly TransformField[], injection: Injection): ReadonlySet<string> {
  const dropped = new Set(ALWAYS_DROPPED);
  for (const { name } of chosen) dropped.add(looseName(name));
  if (injection.mode === 'set' && authenticates(injection)) {
    for (const name of AUTHENTICATING) if (!injection.keep.has(name)) dropped.add(name);
  }
  return dropped;
}

/** Whether a rule puts a credential on: a stored one, or one written out in `transform`. */
function authenticates({ credential, transform }: Injection): boolean {
  return credential !== undefined || transform.some(({ name }) => AUTHENTICATING.has(looseName(name)));
}

/** What an answer is looked through for: the bare secrets of the credential, and those in fields of `transform` that bear one. */
function guardedTexts(resolved: Resolution, transform: readonly TransformField[]): readonly string[] {
  const texts: string[] = [];
  if ('secrets' in resolved) {
    for (const secret of resolved.secrets) texts.push(secret.reveal());
  } else if ('fields' in resolved) {
    for (const field of resolved.fields) texts.push(...bareTexts(field));
  }
  for (const field of transform) {
    const name = looseName(field.name);
    if (AUTHENTICATING.has(name) || SECRET_NAME.test(name)) texts.push(...bareTexts(field));
  }
  return texts;
}

const WITH_SCHEME = /^[A-Za-z][\w-]* +(\S.*)$/;

/** The secrets in the value of a field: what stands after the scheme word, a cookie's values, the password of Basic. */
function bareTexts({ name, value }: TransformField): string[] {
  const whole = value.reveal();
  if (looseName(name) === 'cookie') return whole.split(';').map((pair) => pair.slice(pair.indexOf('=') + 1).trim());
  const bare = WITH_SCHEME.exec(whole)?.[1];
  if (bare === undefined) return [whole];
  if (!/^basic /i.test(whole)) return [bare];
  const pair = Buffer.from(bare, 'base64').toString();
  const password = pair.slice(pair.indexOf(':') + 1);
  return [bare, password === '' ? pair.slice(0, -1) : password];
}
