// The index over one sandbox's rules: which rules own a host, and whether the denylist covers it.
// Lookups walk the labels of the host, never the list of rules, so that ten rules and a hundred thousand cost the same.
import type { Host } from '../exchange/authority.ts';
import { isAddress } from '../exchange/authority.ts';
import type { Policy, Rule } from '../exchange/rule.ts';
import type { DomainPattern } from './host-pattern.ts';

/** One allowlist entry before it has its id. */
export interface AllowlistEntry {
  readonly pattern: DomainPattern;
  readonly rule: Omit<Rule, 'id'>;
}

/** What an index is made of. */
export interface PolicyParts {
  readonly denylist: readonly DomainPattern[];
  readonly allowlist: readonly AllowlistEntry[];
  /** Every address under which a packet to this one may arrive: a denied IPv4 address is denied in its IPv6 spellings too */
  readonly facesOf: (address: Host) => readonly Host[];
}

/**
 * Builds the immutable index. Rules that share a domain keep their file order (design section 3). `redact` is for rules that do not
 * say so themselves; what passes uninspected has nothing that could be looked through.
 */
export function buildPolicy(options: PolicyParts, redact?: boolean): Policy {
  const allowed = new DomainMap<Rule[]>();
  for (const { pattern, rule } of options.allowlist) {
    const owners = allowed.getOrAdd(pattern, () => []);
    const id = owners.length === 0 ? pattern.text : `${pattern.text}#${owners.length + 1}`;
    owners.push({ ...rule, id, redact: rule.redact ?? (rule.passthrough ? undefined : redact) });
  }
  const denied = new DomainMap<string>();
  for (const pattern of options.denylist) denied.getOrAdd(pattern, () => `deny ${pattern.text}`);
  return {
    denied: (host) => denied.mostSpecific(host) ?? deniedByFace(host),
    rulesFor: (host) => allowed.mostSpecific(host) ?? NO_RULES,
  };

  /** Or a catch-all would let the other spellings of a denied address through. */
  function deniedByFace(host: Host): string | undefined {
    if (!host.includes(':')) return undefined;
    for (const face of options.facesOf(host)) {
      const by = denied.mostSpecific(face);
      if (by !== undefined) return by;
    }
    return undefined;
  }
}

/** A policy to which the denylist of another one applies too: the denylist of the whole door always wins (design section 3). */
export function underDenylistOf(above: Policy, own: Policy): Policy {
  return { denied: (host) => above.denied(host) ?? own.denied(host), rulesFor: (host) => own.rulesFor(host) };
}

const NO_RULES: readonly Rule[] = [];

/** A map from domain patterns, asked for the most specific one that covers a host: exact, longest suffix, `*`. */
class DomainMap<Value> {
  readonly #exact = new Map<string, Value>();
  readonly #below = new Map<string, Value>();
  #any: Value | undefined = undefined;

  getOrAdd(pattern: DomainPattern, make: () => Value): Value {
    switch (pattern.kind) {
      case 'any':
        return (this.#any ??= make());
      case 'exact':
        return DomainMap.#getOrAdd(this.#exact, pattern.host, make);
      case 'below':
        return DomainMap.#getOrAdd(this.#below, pattern.suffix, make);
    }
  }

  mostSpecific(host: Host): Value | undefined {
    const exact = this.#exact.get(host);
    if (exact !== undefined) return exact;
    return (this.#below.size > 0 && !isAddress(host) ? this.#longestSuffix(host) : undefined) ?? this.#any;
  }

  #longestSuffix(host: Host): Value | undefined {
    for (let dot = host.indexOf('.'); dot >= 0; dot = host.indexOf('.', dot + 1)) {
      const value = this.#below.get(host.slice(dot + 1));
      if (value !== undefined) return value;
    }
    return undefined;
  }

  static #getOrAdd<V>(map: Map<string, V>, key: string, make: () => V): V {
    const present = map.get(key);
    if (present !== undefined) return present;
    const made = make();
    map.set(key, made);
    return made;
  }
}

/** The policy of `network: disabled`, of no network at all, and of an unready config: nothing is allowed. */
export const DENY_ALL: Policy = buildPolicy({ denylist: [], allowlist: [], facesOf: (address) => [address] });
