// Placeholders of a request on its way out: whether there are any, whether they may stand where they stand and go where they go, and
// what goes in their place. A request without one pays for a glance at its target and its values, and nothing else.
// It must never let a value out to a host that its credential does not trust, nor a request on whose placeholder has no value.
import { Fault, Refusal } from '../exchange/codes.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { PlaceholderValue, Resolution } from '../exchange/snapshot.ts';
import type { Permit, Route } from '../exchange/stages.ts';
import { hasBody, isReadable } from './completion.ts';
import { findPlaceholders, locatePlaceholders, PREFIX, replaceInHeader, replaceInQuery } from './placeholder.ts';
import type { Found, LookUpValue } from './placeholder.ts';
import type { Declared, ResolveCredential } from './resolve.ts';

/** A request's head with its placeholders swapped. Holds secrets: never log it. */
export interface Swapped {
  readonly fields: string[];
  readonly query: string;
  /** Ids of what was swapped in, in the order they stood there */
  readonly credentials: readonly string[];
  /** Every value that has gone in, or may go into the body */
  readonly guarded: readonly string[];
  /** What may stand in the body; `undefined`: nothing is looked for there */
  readonly lookUp: LookUpValue | undefined;
}

/** What stands in the place of an id that no credential of the sandbox has; it may be a secret in the wrong place. */
export const NO_SUCH_PLACEHOLDER = '_placeholder';

/** What swapping needs. */
export interface SwapOptions {
  readonly resolve: ResolveCredential;
  /** Throws `credential_unavailable`, and tells the metrics; the id is NO_SUCH_PLACEHOLDER where it must not be repeated */
  readonly unavailable: (credential: string, cause: unknown) => never;
}

/** Gives `undefined` at once where there is nothing to swap. `kept`: the sandbox's own fields that go on. */
export type Swap = (
  route: Route,
  kept: readonly string[],
  declared: Declared,
) => Swapped | Refusal | Promise<Swapped | Refusal> | undefined;

/** Builds the step. */
export function createSwap(options: SwapOptions): Swap {
  return (route, kept, declared) => {
    const { permit } = route;
    const head = inHead(permit, kept);
    const inBody = mayTouchBody(permit, kept) ? candidates(permit, declared) : NO_IDS;
    if (head.length === 0 && inBody.length === 0) return undefined;
    const ids = [...new Set([...head.map(({ id }) => id), ...inBody])];
    const found = ids.map((id) => lookAt(id, permit, { declared, resolve: options.resolve }));
    const isThere = (each: Resolution | Promise<Resolution>): each is Resolution => !(each instanceof Promise);
    const judge = (values: readonly Resolution[]): Swapped | Refusal | undefined => {
      const known = new Map(ids.map((id, index) => [id, values[index] as Resolution]));
      return judged(permit, kept, { head, inBody, known, unavailable: options.unavailable });
    };
    if (found.every(isThere)) return judge(found);
    return Promise.all(found.map((each) => Promise.resolve(each))).then((values) => judge(values) ?? untouched(permit, kept));
  };
}

const NO_IDS: readonly string[] = [];
const NONE: readonly Found[] = [];

function inHead({ intent }: Permit, kept: HeaderFields): readonly Found[] {
  let may = mayHold(intent.path) || mayHold(intent.query);
  for (let i = 1; i < kept.length && !may; i += 2) may = mayHold(kept[i] as string) || mayHoldInBasic(kept[i] as string);
  if (!may) return NONE;
  return locatePlaceholders({ path: intent.path, query: intent.query, fields: kept });
}

function mayHold(text: string): boolean {
  return text.includes(PREFIX) || (text.includes('%') && findPlaceholders(text).length > 0);
}

/** The first two letters tell `Basic` from `Bearer`. */
function mayHoldInBasic(value: string): boolean {
  const isBasic = (value.charCodeAt(0) | 32) === 0x62 && (value.charCodeAt(1) | 32) === 0x61;
  return isBasic && replaceInHeader(value, () => undefined).found.length > 0;
}

/** A body is touched only where some credential wants that, so one that is not this sandbox's or is coded never is (fault E07). */
function mayTouchBody({ intent }: Permit, kept: HeaderFields): boolean {
  return hasBody(intent) && isReadable(kept);
}

/** Those that may be meant for bodies: what the sandbox was given, or, where nobody gave it anything, what the config declares. */
function candidates({ sandbox }: Permit, declared: Declared): readonly string[] {
  if (sandbox.bound !== undefined) return sandbox.bound.size === 0 ? NO_IDS : [...sandbox.bound];
  let ids = declaredForBodies.get(declared);
  if (ids === undefined) {
    ids = [...declared].filter(([, each]) => 'placeholder' in each && each.placeholder.places.has('body')).map(([id]) => id);
    declaredForBodies.set(declared, ids);
  }
  return ids;
}

const declaredForBodies = new WeakMap<Declared, readonly string[]>();

const NOT_GIVEN: Resolution = { unavailable: 'no such credential was given to this sandbox', unknown: true };

function lookAt(
  id: string,
  { sandbox }: Permit,
  { declared, resolve }: { readonly declared: Declared; readonly resolve: ResolveCredential },
): Resolution | Promise<Resolution> {
  if (sandbox.bound !== undefined && !sandbox.bound.has(id)) return NOT_GIVEN;
  const failed = (): Resolution => ({ unavailable: 'looking it up failed' });
  try {
    const found = resolve(id, sandbox.id, declared);
    return found instanceof Promise ? found.catch(failed) : found;
  } catch {
    // Whoever resolves says why in its own log; here it is one more that cannot be had.
    return failed();
  }
}

interface Grounds {
  readonly head: readonly Found[];
  readonly inBody: readonly string[];
  readonly known: ReadonlyMap<string, Resolution>;
  readonly unavailable: SwapOptions['unavailable'];
}

function judged(permit: Permit, kept: readonly string[], grounds: Grounds): Swapped | Refusal | undefined {
  const { head, inBody, known } = grounds;
  const { host } = permit.intent.authority;
  for (const found of head) {
    const trouble = troubleWith(found, permit, grounds);
    if (trouble !== undefined) return trouble;
  }
  const exposed = permit.intent.scheme !== 'https' && permit.rule.allowPlaintext !== true;
  if (exposed && head.length > 0) return plaintext(permit);
  const forBody = exposed ? NO_IDS : inBody.filter((id) => mayStand(known.get(id), 'body', host));
  if (head.length === 0 && forBody.length === 0) return undefined;
  return swapped(permit, kept, { head, forBody: new Set(forBody), known });
}

function troubleWith({ id, place }: Found, permit: Permit, { known, unavailable }: Grounds): Refusal | undefined {
  const { rule, intent } = permit;
  const untrusted = (detail: string): Refusal => new Refusal('placeholder_untrusted', detail, rule.id);
  if (place === 'path') return untrusted('a placeholder stands in the path, where none is swapped');
  const resolution = known.get(id) ?? NOT_GIVEN;
  if ('unavailable' in resolution)
    return unavailable(resolution.unknown === true ? NO_SUCH_PLACEHOLDER : id, new Error(resolution.unavailable));
  if (!('placeholder' in resolution))
    return unavailable(id, new Error('it is not of type environment_variable, and no placeholder stands for it'));
  const { trusts, places } = resolution.placeholder;
  if (!trusts(intent.authority.host))
    return untrusted(`the credential "${id}" does not name ${intent.authority.host} among its trusted_domains`);
  return places.has(place)
    ? undefined
    : untrusted(`the credential "${id}" does not name "${place}" among its injection_location`);
}

function mayStand(resolution: Resolution | undefined, place: 'body', host: Permit['intent']['authority']['host']): boolean {
  if (resolution === undefined || !('placeholder' in resolution)) return false;
  const { places, trusts } = resolution.placeholder;
  return places.has(place) && trusts(host);
}

function plaintext({ rule }: Permit): Refusal {
  return new Refusal(
    'plaintext_credential',
    'a placeholder stands for a value, which plain http would show to everyone on the way',
    rule.id,
  );
}

interface Ready {
  readonly head: readonly Found[];
  readonly forBody: ReadonlySet<string>;
  readonly known: ReadonlyMap<string, Resolution>;
}

function swapped({ intent }: Permit, kept: readonly string[], { head, forBody, known }: Ready): Swapped {
  const lookUp: LookUpValue = (id) => valueOf(known.get(id))?.value.reveal();
  const fields = kept.slice();
  let query = intent.query;
  if (head.some(({ place }) => place === 'query')) query = whole(replaceInQuery(query, lookUp));
  if (head.some(({ place }) => place === 'header')) {
    for (let i = 1; i < fields.length; i += 2) fields[i] = whole(replaceInHeader(fields[i] as string, lookUp));
  }
  const credentials = [...new Set(head.map(({ id }) => id))];
  const guarded = [...new Set([...credentials, ...forBody])].flatMap((id) => spellings(lookUp(id)));
  const inBody: LookUpValue = (id) => (forBody.has(id) ? lookUp(id) : undefined);
  return { fields, query, credentials, guarded, lookUp: forBody.size === 0 ? undefined : inBody };
}

/** A value, and what it is inside JSON: given back as a text within JSON, as echoes do, that is escaped once more. */
function spellings(value: string | undefined): string[] {
  if (value === undefined) return [];
  const escaped = JSON.stringify(value).slice(1, -1);
  return escaped === value ? [value] : [value, escaped];
}

function whole({ text, missing }: { readonly text: string; readonly missing: readonly string[] }): string {
  if (missing.length === 0) return text;
  throw new Fault('credential_unavailable', 'the value of a placeholder cannot stand where the placeholder stands');
}

function valueOf(resolution: Resolution | undefined): PlaceholderValue | undefined {
  return resolution !== undefined && 'placeholder' in resolution ? resolution.placeholder : undefined;
}

function untouched({ intent }: Permit, kept: readonly string[]): Swapped {
  return { fields: kept.slice(), query: intent.query, credentials: NO_IDS, guarded: NO_IDS, lookUp: undefined };
}
