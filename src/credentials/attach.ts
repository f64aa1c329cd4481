// The last step before the wire: Route in, Dispatch out, with the rule's credential and transform put on.
// Order matters and stands here alone: the sandbox's hop-by-hop fields go first, then its own values of what is injected, then ours come on.
// It must never write a secret anywhere but into the Dispatch, and a credential that cannot be had refuses the request.
import { formatAuthority } from '../exchange/authority.ts';
import { Fault } from '../exchange/codes.ts';
import type { Refusal } from '../exchange/codes.ts';
import { endToEndFields, fieldValue, isFieldName, isFieldValue, looseName } from '../exchange/header-fields.ts';
import type { Injection, TransformField } from '../exchange/rule.ts';
import type { Resolution, Snapshot } from '../exchange/snapshot.ts';
import { makeDispatch } from '../exchange/stages.ts';
import type { Arrival, Dispatch, Route } from '../exchange/stages.ts';
import { overlay, plaintextTrouble } from './injection.ts';

/** The credentials that the exchange's own snapshot declares: those its rule meant (invariant 7). */
type Declared = Snapshot['credentials'];

/**
 * Looks a credential up, first among those that the exchange's snapshot declares. A promise only where it must be fetched; a throw or
 * a rejection counts as unavailable.
 */
export type ResolveCredential = (id: string, sandbox: string, declared: Declared) => Resolution | Promise<Resolution>;

/** Route in, Dispatch or Refusal out; synchronous unless the credential must be fetched. Throws `credential_unavailable`. */
export type AttachCredentials = <A extends Arrival>(
  route: Route<A>,
  declared: Declared,
) => Dispatch<A> | Refusal | Promise<Dispatch<A> | Refusal>;

/** The lookup where nothing but the configuration declares credentials. */
export function resolveDeclared(id: string, _sandbox: string, declared: Declared): Resolution {
  const own = declared.get(id) ?? { unavailable: 'no credential of this id is declared', unknown: true };
  return 'fetched' in own ? { unavailable: 'its value is fetched, and nothing here fetches it' } : own;
}

/** What stands in place of a credential's id where the rule itself is at fault, or names an id that nobody knows; no id begins with `_`. */
export const RULE_ITSELF = '_rule';

/** Builds the step. `onUnavailable` hears of each failure, for the metrics: the credential's id, or RULE_ITSELF. */
export function createAttach(options: {
  readonly resolve: ResolveCredential;
  readonly onUnavailable?: (credential: string) => void;
}): AttachCredentials {
  // The last preparation of each injection: it changes only when the credential does, and costs more than all the rest of this step.
  const preparations = new WeakMap<Injection, Prepared>();

  return (route, declared) => {
    const { permit } = route;
    const { intent, sandbox } = permit;
    const { injection } = permit.rule;
    if (injection === undefined || intent.arrival.purpose === 'passthrough') return bare(route);
    const exposed = plaintextTrouble(permit);
    if (exposed !== undefined) return exposed;
    if (injection.unavailable !== undefined) return unavailable(RULE_ITSELF, new Error(injection.unavailable));
    const { credential } = injection;
    if (credential === undefined) return dispatch(route, injection, prepared(injection, NO_FIELDS));
    const found = resolveNow(credential, sandbox.id, declared);
    if (!(found instanceof Promise)) return putOn(route, injection, found);
    return found.then(
      (resolution) => putOn(route, injection, resolution),
      (error: unknown) => unavailable(credential, error),
    );
  };

  function putOn<A extends Arrival>(route: Route<A>, injection: Injection, resolution: Resolution): Dispatch<A> {
    const credential = injection.credential ?? '';
    if ('unavailable' in resolution) {
      return unavailable(resolution.unknown === true ? RULE_ITSELF : credential, new Error(resolution.unavailable));
    }
    const ready = prepared(injection, resolution.fields);
    if (!ready.sound) return unavailable(credential, new Error('it holds a name or a value that no header field can carry'));
    return dispatch(route, injection, ready);
  }

  function prepared(injection: Injection, resolved: readonly TransformField[]): Prepared {
    const last = preparations.get(injection);
    if (last?.resolved === resolved) return last;
    const fresh = prepare(injection, resolved);
    preparations.set(injection, fresh);
    return fresh;
  }

  function resolveNow(credential: string, sandbox: string, declared: Declared): Resolution | Promise<Resolution> {
    try {
      return options.resolve(credential, sandbox, declared);
    } catch (error) {
      return unavailable(credential, error);
    }
  }

  function unavailable(credential: string, cause: unknown): never {
    options.onUnavailable?.(credential);
    const what = credential === RULE_ITSELF ? 'what the rule puts on' : `the credential "${credential}"`;
    throw new Fault('credential_unavailable', `${what} cannot be resolved`, cause);
  }
}

const NO_FIELDS: readonly TransformField[] = [];
const NO_CREDENTIALS: readonly string[] = [];

/** A value with a line break would be a second field, or a second request (fault E08). */
function canStand({ name, value }: TransformField): boolean {
  return isFieldName(name) && isFieldValue(value.reveal());
}

/** Host is rebuilt, Expect is answered at the door, and what steers Sallyport itself goes no further (fault B14). */
const ALWAYS_DROPPED: readonly string[] = ['host', 'expect', 'x-sallyport-action-id', 'x-sallyport-reason', 'proxy-status'];
const NOTHING_INJECTED: ReadonlySet<string> = new Set(ALWAYS_DROPPED);

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

/** The dispatch of a rule that puts nothing on. */
function bare<A extends Arrival>(route: Route<A>): Dispatch<A> {
  const { arrival } = route.permit.intent;
  if (arrival.purpose === 'passthrough') return makeDispatch({ route, fields: [], credentials: NO_CREDENTIALS });
  const fields = endToEndFields(arrival.fields, NOTHING_INJECTED, hostField(route));
  return makeDispatch({ route, fields, credentials: NO_CREDENTIALS });
}

/** What an injection comes to with the fields that its credential stands for at present. */
interface Prepared {
  readonly resolved: readonly TransformField[];
  readonly fields: readonly TransformField[];
  /** Whether every field of the credential can stand in a request */
  readonly sound: boolean;
  /** What the sandbox's own request loses, for `mode: set` */
  readonly dropped: ReadonlySet<string>;
  readonly credentials: readonly string[];
}

function prepare(injection: Injection, resolved: readonly TransformField[]): Prepared {
  const fields = overlay(resolved, injection.transform);
  return {
    resolved,
    fields,
    sound: resolved.every(canStand),
    dropped: droppedNames(fields, injection),
    credentials: credentialsIn(fields, injection, resolved),
  };
}

/** The credential's id where one of its fields is among those put on: a transform may have replaced them all. */
function credentialsIn(
  fields: readonly TransformField[],
  { credential }: Injection,
  resolved: readonly TransformField[],
): readonly string[] {
  return credential !== undefined && fields.some((field) => resolved.includes(field)) ? [credential] : NO_CREDENTIALS;
}

function dispatch<A extends Arrival>(route: Route<A>, injection: Injection, prepared: Prepared): Dispatch<A> {
  const sent = route.permit.intent.arrival.fields;
  if (injection.mode === 'set') return dispatched(route, prepared.fields, prepared);
  const fields = chooseByMode(sent, prepared.fields, injection);
  const credentials = credentialsIn(fields, injection, prepared.resolved);
  return dispatched(route, fields, { dropped: droppedNames(fields, injection), credentials });
}

function dispatched<A extends Arrival>(
  route: Route<A>,
  chosen: readonly TransformField[],
  { dropped, credentials }: Pick<Prepared, 'dropped' | 'credentials'>,
): Dispatch<A> {
  const fields = endToEndFields(route.permit.intent.arrival.fields, dropped, hostField(route));
  for (const { name, value } of chosen) fields.push(name, value.reveal());
  return makeDispatch({ route, fields, credentials });
}

function hostField({ permit }: Route): string[] {
  const { authority, scheme } = permit.intent;
  return ['Host', formatAuthority(authority, scheme === 'https' ? 443 : 80)];
}

function chooseByMode(
  sent: readonly string[],
  injected: readonly TransformField[],
  { mode }: Injection,
): readonly TransformField[] {
  // A field that Connection nominates will not go on, so it is no value of the sandbox's own to yield to.
  const kept = endToEndFields(sent, NOTHING_INJECTED);
  return injected.filter(({ name }) => (fieldValue(kept, name.toLowerCase()) !== undefined) === (mode === 'replace'));
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
