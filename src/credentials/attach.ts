// The last step before the wire: Route in, Dispatch out, with the rule's credential and transform put on and placeholders swapped.
// Order matters and stands here alone: the sandbox's hop-by-hop fields go first, then its own values of what is injected, then ours come on.
// It must never write a secret anywhere but into the Dispatch, and a credential that cannot be had refuses the request.
import { LRUCache } from 'lru-cache';
import { formatAuthority } from '../exchange/authority.ts';
import { Fault, isRefusal } from '../exchange/codes.ts';
import type { Refusal } from '../exchange/codes.ts';
import { endToEndFields } from '../exchange/header-fields.ts';
import type { Redaction } from '../exchange/redaction.ts';
import type { Injection } from '../exchange/rule.ts';
import type { Resolution } from '../exchange/snapshot.ts';
import { makeDispatch } from '../exchange/stages.ts';
import type { Arrival, Dispatch, Route } from '../exchange/stages.ts';
import { completionOf } from './completion.ts';
import { plaintextTrouble } from './injection.ts';
import { chosenFor, NO_CREDENTIALS, NOTHING, NOTHING_INJECTED, prepare } from './prepared.ts';
import type { Prepared } from './prepared.ts';
import type { Declared, ResolveCredential } from './resolve.ts';
import { createSwap, NO_SUCH_PLACEHOLDER } from './swap.ts';
import type { Swap, Swapped } from './swap.ts';

export type { ResolveCredential } from './resolve.ts';

/** Route in, Dispatch or Refusal out; synchronous unless a credential must be fetched. Throws `credential_unavailable`. */
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

/** Sets of secrets whose redactions are kept: each takes some 100 KiB, and milliseconds to make. */
const MOST_REDACTIONS = 500;

/** What the step needs. */
export interface AttachOptions {
  readonly resolve: ResolveCredential;
  /** Hears of each failure, for the metrics: the credential's id, RULE_ITSELF or NO_SUCH_PLACEHOLDER */
  readonly onUnavailable?: (credential: string) => void;
  /** Makes what looks answers through for secrets; left out, none is looked through */
  readonly redaction?: (secrets: readonly string[]) => Redaction;
  /** Epoch `ms`, for signatures */
  readonly now?: () => number;
}

/** Builds the step. */
export function createAttach(options: AttachOptions): AttachCredentials {
  const attach = new Attach(options);
  return (route, declared) => attach.attach(route, declared);
}

class Attach {
  readonly #options: AttachOptions;
  readonly #swap: Swap;
  readonly #now: () => number;
  // The last preparation of each injection: it changes only when the credential does, and costs more than all the rest of this step.
  readonly #preparations = new WeakMap<Injection, Prepared>();
  // By the secrets, so that rules with one credential share what was made for it.
  readonly #redactions = new LRUCache<string, Redaction>({ max: MOST_REDACTIONS });

  constructor(options: AttachOptions) {
    this.#options = options;
    this.#now = options.now ?? Date.now;
    const unavailable = (credential: string, cause: unknown): never => this.#unavailable(credential, cause);
    this.#swap = createSwap({ resolve: options.resolve, unavailable });
  }

  attach<A extends Arrival>(route: Route<A>, declared: Declared): Dispatch<A> | Refusal | Promise<Dispatch<A> | Refusal> {
    const { permit } = route;
    const { injection } = permit.rule;
    if (permit.intent.arrival.purpose === 'passthrough') return makeDispatch({ route, fields: [], credentials: NO_CREDENTIALS });
    if (injection === undefined) return this.#send(route, declared, undefined);
    const exposed = plaintextTrouble(permit);
    if (exposed !== undefined) return exposed;
    if (injection.unavailable !== undefined) return this.#unavailable(RULE_ITSELF, new Error(injection.unavailable));
    const { credential } = injection;
    if (credential === undefined) return this.#send(route, declared, this.#prepared(injection, NOTHING));
    const found = this.#resolveNow(credential, permit.sandbox.id, declared);
    if (!(found instanceof Promise)) return this.#send(route, declared, this.#usable(injection, credential, found));
    return found.then(
      (resolution) => this.#send(route, declared, this.#usable(injection, credential, resolution)),
      (error: unknown) => this.#unavailable(credential, error),
    );
  }

  #usable(injection: Injection, credential: string, resolution: Resolution): Prepared {
    if ('unavailable' in resolution) {
      const id = resolution.unknown === true ? RULE_ITSELF : credential;
      return this.#unavailable(id, new Error(resolution.unavailable));
    }
    if ('placeholder' in resolution) return this.#unavailable(credential, new Error(ONLY_A_VALUE));
    const ready = this.#prepared(injection, resolution);
    if (ready.sound) return ready;
    return this.#unavailable(credential, new Error('it holds a name or a value that no header field can carry'));
  }

  #prepared(injection: Injection, resolved: Resolution): Prepared {
    const last = this.#preparations.get(injection);
    if (last?.resolved === resolved) return last;
    const fresh = prepare(injection, resolved);
    this.#preparations.set(injection, fresh);
    return fresh;
  }

  #resolveNow(credential: string, sandbox: string, declared: Declared): Resolution | Promise<Resolution> {
    try {
      return this.#options.resolve(credential, sandbox, declared);
    } catch (error) {
      return this.#unavailable(credential, error);
    }
  }

  /** `prepared`: what the rule puts on, if anything. */
  #send<A extends Arrival>(
    route: Route<A>,
    declared: Declared,
    prepared: Prepared | undefined,
  ): Dispatch<A> | Refusal | Promise<Dispatch<A> | Refusal> {
    const { intent, rule } = route.permit;
    const { fields } = intent.arrival;
    const chosen =
      prepared === undefined || rule.injection === undefined ? undefined : chosenFor(fields, prepared, rule.injection);
    const kept = endToEndFields(fields, chosen?.dropped ?? NOTHING_INJECTED, hostField(route));
    const swapped = this.#swap(route, kept, declared);
    if (swapped === undefined) return this.#dispatch(route, kept, chosen, undefined);
    if (!(swapped instanceof Promise)) return this.#swappedInto(route, chosen, swapped);
    return swapped.then((later) => this.#swappedInto(route, chosen, later));
  }

  #swappedInto<A extends Arrival>(
    route: Route<A>,
    chosen: Prepared | undefined,
    swapped: Swapped | Refusal,
  ): Dispatch<A> | Refusal {
    return isRefusal(swapped) ? swapped : this.#dispatch(route, swapped.fields, chosen, swapped);
  }

  #dispatch<A extends Arrival>(
    route: Route<A>,
    fields: string[],
    chosen: Prepared | undefined,
    swapped: Swapped | undefined,
  ): Dispatch<A> {
    if (chosen === undefined && swapped === undefined) return makeDispatch({ route, fields, credentials: NO_CREDENTIALS });
    if (chosen !== undefined) for (const { name, value } of chosen.fields) fields.push(name, value.reveal());
    const own = chosen?.credentials ?? NO_CREDENTIALS;
    const credentials = swapped === undefined ? own : [...new Set([...own, ...swapped.credentials])];
    const { redact } = route.permit.rule;
    const redaction = redact === false ? undefined : this.#redactionFor(redact === true ? chosen : undefined, swapped);
    if (redaction !== undefined) askUncoded(fields);
    if (swapped === undefined && chosen?.signer === undefined) {
      return redaction === undefined
        ? makeDispatch({ route, fields, credentials })
        : makeDispatch({ route, fields, credentials, redaction });
    }
    const { intent } = route.permit;
    const query = swapped?.query ?? intent.query;
    const hidden = redaction === undefined ? {} : { redaction };
    const completion = this.#completion(route, { fields, query, credentials }, { chosen, swapped });
    return makeDispatch({ route, fields, credentials, query, ...hidden, ...completion });
  }

  #completion<A extends Arrival>(
    route: Route<A>,
    parts: { readonly fields: string[]; readonly query: string; readonly credentials: readonly string[] },
    { chosen, swapped }: { readonly chosen: Prepared | undefined; readonly swapped: Swapped | undefined },
  ): Pick<Dispatch, 'completion'> {
    const { intent, rule } = route.permit;
    const [signer, lookUp] = [chosen?.signer, swapped?.lookUp];
    if (signer === undefined && lookUp === undefined) return {};
    const completion = completionOf({ ...parts, intent, signer, lookUp, now: this.#now });
    if (!('unfit' in completion)) return { completion };
    const credential = rule.injection?.credential ?? RULE_ITSELF;
    this.#options.onUnavailable?.(credential);
    throw new Fault(
      'credential_unavailable',
      `the credential "${credential}" cannot be put on this request: ${completion.unfit}`,
    );
  }

  #redactionFor(chosen: Prepared | undefined, swapped: Swapped | undefined): Redaction | undefined {
    const make = this.#options.redaction;
    if (make === undefined) return undefined;
    const own = chosen?.guarded ?? NO_CREDENTIALS;
    const secrets = swapped === undefined || swapped.guarded.length === 0 ? own : [...own, ...swapped.guarded];
    if (secrets.length === 0) return undefined;
    const key = secrets.length === 1 ? (secrets[0] as string) : secrets.join('\0');
    let redaction = this.#redactions.get(key);
    if (redaction === undefined) this.#redactions.set(key, (redaction = make(secrets)));
    return redaction;
  }

  #unavailable(credential: string, cause: unknown): never {
    this.#options.onUnavailable?.(credential);
    throw new Fault('credential_unavailable', `${shown(credential)} cannot be resolved`, cause);
  }
}

const ONLY_A_VALUE = 'it is the value of an environment variable, which a rule cannot put on; bind it in the `env` of a sandbox';

function shown(credential: string): string {
  if (credential === RULE_ITSELF) return 'what the rule puts on';
  if (credential === NO_SUCH_PLACEHOLDER) return 'a placeholder of the request, which stands for no credential of this sandbox,';
  return `the credential "${credential}"`;
}

/** An answer in no coding need not be opened and closed again to be looked through. */
function askUncoded(fields: string[]): void {
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i] as string;
    if (name.length === 15 && name.toLowerCase() === 'accept-encoding') fields[i + 1] = 'identity';
  }
}

function hostField({ permit }: Route): string[] {
  const { authority, scheme } = permit.intent;
  return ['Host', formatAuthority(authority, scheme === 'https' ? 443 : 80)];
}
