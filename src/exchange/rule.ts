// What an allowlist rule means once compiled: the form that policy matches, network and credentials act on.
// Immutable; made by config from the operator's file, read by one exchange after another.
import type { Host } from './authority.ts';
import type { Secret } from '../foundation/secret.ts';

/** Compiled ranges of addresses. `key` is their canonical text, equal exactly when the ranges are. */
export interface AddressRanges {
  readonly key: string;
  /** `address` is canonical; true where a range covers it. */
  contains(address: Host): boolean;
}

/** A whole-match pattern in linear time (RE2). */
export interface Pattern {
  readonly source: string;
  matches(text: string): boolean;
}

/** What happens when the sandbox sent the injected field itself: `set` drops it, `replace` needs it, `if_absent` yields to it. */
export type InjectionMode = 'set' | 'replace' | 'if_absent';

/** One field that a rule's `transform` puts on. */
export interface TransformField {
  readonly name: string;
  readonly value: Secret;
}

/** What a rule puts on at the door. */
export interface Injection {
  /** Id of the declared credential, resolved for each request; applied before `transform` */
  readonly credential: string | undefined;
  readonly transform: readonly TransformField[];
  /** Why the rule cannot put on what it names, whatever its credential: its requests are refused. For the operator, not for the sandbox */
  readonly unavailable: string | undefined;
  readonly mode: InjectionMode;
  readonly allowPlaintext: boolean;
  /** Names (lower case) of the sandbox's own authenticating fields that pass in spite of a credential */
  readonly keep: ReadonlySet<string>;
}

/** One compiled allowlist rule. */
export interface Rule {
  /** The domain as configured, with `#2`, `#3`, … where several rules share it; a metric label */
  readonly id: string;
  /** `undefined`: 443 for TLS, 80 for plain */
  readonly ports: ReadonlySet<number> | undefined;
  readonly methods: ReadonlySet<string> | undefined;
  readonly paths: readonly Pattern[] | undefined;
  /** Internal ranges that this rule opens */
  readonly opened: AddressRanges;
  /** Tunnel by name, no inspection */
  readonly passthrough: boolean;
  /** Let pass, record what would have been refused */
  readonly monitor: boolean;
  readonly injection: Injection | undefined;
  /** Whether answers are looked through for what was put on. Left out: for the values of placeholders alone */
  readonly redact?: boolean | undefined;
  /** Whether the values of placeholders may go over plain http. Left out: they may not */
  readonly allowPlaintext?: boolean;
}

/** The judgement's index over one sandbox's rules. Lookup costs the same for ten rules and a hundred thousand. */
export interface Policy {
  /** Id of the denylist entry that covers the host, if any. */
  denied(host: Host): string | undefined;
  /** The rules that own the host: those of the most specific domain, in file order; empty where none names it. */
  rulesFor(host: Host): readonly Rule[];
}
