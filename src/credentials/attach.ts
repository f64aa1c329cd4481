// The last step before the wire: Route in, Dispatch out, with the rule's credential and transform put on.
// Order matters and stands here alone: the sandbox's hop-by-hop fields go first, then its own values of what is injected, then ours come on.
// It must never write a secret anywhere but into the Dispatch, and a credential that cannot be had refuses the request.
import { formatAuthority } from '../exchange/authority.ts';
import { Fault, Refusal } from '../exchange/codes.ts';
import { endToEndFields, fieldValue } from '../exchange/header-fields.ts';
import type { Injection, TransformField } from '../exchange/rule.ts';
import { makeDispatch } from '../exchange/stages.ts';
import type { Arrival, Dispatch, Route } from '../exchange/stages.ts';

/** What a credential id stands for right now. */
export type Resolution = { readonly fields: readonly TransformField[] } | { readonly unavailable: string };

/** Looks a credential up. A promise only where it must be fetched; a rejection counts as unavailable. */
export type ResolveCredential = (id: string, sandbox: string) => Resolution | Promise<Resolution>;

/** Route in, Dispatch or Refusal out; synchronous unless the credential must be fetched. Throws `credential_unavailable`. */
export type AttachCredentials = <A extends Arrival>(route: Route<A>) => Dispatch<A> | Refusal | Promise<Dispatch<A> | Refusal>;

/** Builds the step. `onUnavailable` hears of each failure, for the metrics. */
export function createAttach(options: {
  readonly resolve: ResolveCredential;
  readonly onUnavailable?: (credential: string) => void;
}): AttachCredentials {
  return (route) => {
    const { permit } = route;
    const { injection } = permit.rule;
    if (injection === undefined || permit.intent.arrival.purpose === 'passthrough') return dispatch(route, NOTHING, undefined);
    if (permit.intent.scheme !== 'https' && !injection.allowPlaintext) {
      return new Refusal('plaintext_credential', 'the rule puts fields on, which plain http would show to everyone on the way', permit.rule.id);
    }
    if (injection.credential === undefined) return dispatch(route, injection.transform, injection);
    const found = options.resolve(injection.credential, permit.sandbox.id);
    if (found instanceof Promise) return found.then((resolution) => put(route, injection, resolution));
    return put(route, injection, found);
  };

  function put<A extends Arrival>(route: Route<A>, injection: Injection, resolution: Resolution): Dispatch<A> {
    if ('unavailable' in resolution) {
      options.onUnavailable?.(injection.credential ?? '');
      throw new Fault('credential_unavailable', `the credential "${injection.credential ?? ''}" cannot be resolved`, new Error(resolution.unavailable));
    }
    return dispatch(route, overlay(resolution.fields, injection.transform), injection);
  }
}

const NOTHING: readonly TransformField[] = [];

/** The credential's fields with the transform on top; on one name the transform wins (dialect section 1.5). */
function overlay(below: readonly TransformField[], above: readonly TransformField[]): readonly TransformField[] {
  if (above.length === 0) return below;
  const taken = new Set(above.map((field) => field.name.toLowerCase()));
  return [...below.filter((field) => !taken.has(field.name.toLowerCase())), ...above];
}

/** What authenticates a request by custom; a credentialed host hears only the credential that the operator chose (fault E04). */
const AUTHENTICATING: readonly string[] = [
  'authorization',
  'cookie',
  'x-api-key',
  'api-key',
  'x-goog-api-key',
  'x-auth-token',
  'x-access-token',
  'private-token',
  'x-amz-security-token',
];

function dispatch<A extends Arrival>(route: Route<A>, injected: readonly TransformField[], injection: Injection | undefined): Dispatch<A> {
  const { arrival, authority, scheme } = route.permit.intent;
  if (arrival.purpose === 'passthrough') return makeDispatch({ route, fields: [], credentials: NO_CREDENTIALS });
  const chosen = injection === undefined ? injected : chooseByMode(arrival.fields, injected, injection);
  const fields = ['Host', formatAuthority(authority, scheme === 'https' ? 443 : 80)];
  for (const text of endToEndFields(arrival.fields, droppedNames(chosen, injection))) fields.push(text);
  for (const field of chosen) fields.push(field.name, field.value.reveal());
  const credentials = injection?.credential === undefined || chosen.length === 0 ? NO_CREDENTIALS : [injection.credential];
  return makeDispatch({ route, fields, credentials });
}

const NO_CREDENTIALS: readonly string[] = [];

function chooseByMode(sent: readonly string[], injected: readonly TransformField[], { mode }: Injection): readonly TransformField[] {
  if (mode === 'set') return injected;
  const wanted = mode === 'replace';
  return injected.filter((field) => (fieldValue(sent, field.name.toLowerCase()) !== undefined) === wanted);
}

/** Host is rebuilt, Expect is answered at the door, and what steers Sallyport itself goes no further (fault B14). */
const ALWAYS_DROPPED: ReadonlySet<string> = new Set(['host', 'expect', 'x-sallyport-action-id', 'x-sallyport-reason', 'proxy-status']);

function droppedNames(chosen: readonly TransformField[], injection: Injection | undefined): ReadonlySet<string> {
  if (injection === undefined) return ALWAYS_DROPPED;
  const dropped = new Set(ALWAYS_DROPPED);
  for (const field of chosen) dropped.add(field.name.toLowerCase());
  if (injection.credential !== undefined && injection.mode === 'set') {
    for (const name of AUTHENTICATING) if (!injection.keep.has(name)) dropped.add(name);
  }
  return dropped;
}
