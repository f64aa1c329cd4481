// The recent refusals, by where they were aimed and why, each with the rule that would allow it: what an operator asks first.
// Bounded: the one not seen for longest makes room. It must never suggest what a rule cannot open, and holds no field, query or secret.
import { CODES } from '../exchange/codes.ts';
import type { Code } from '../exchange/codes.ts';
import type { Host } from '../exchange/authority.ts';
import { overrides } from '../exchange/header-fields.ts';
import type { Intent } from '../exchange/stages.ts';
import type { Decision, Outcome } from '../exchange/trace.ts';
import { ownCopy } from '../foundation/own-copy.ts';
import { showWire } from '../foundation/visible-text.ts';
import { reasonOf, ruleOf, shownPath } from './audit-line.ts';

/** An allowlist entry as it would stand in the configuration, before the entries that are there: of one domain the first that fits decides. */
export interface SuggestedRule {
  readonly domain: string;
  readonly ports?: readonly number[];
  readonly methods?: readonly string[];
  readonly paths?: readonly string[];
  readonly addresses?: readonly string[];
}

/** One kind of refusal. `method`, `path`, `rule` and `suggestion` are those of the latest. */
export interface Denial {
  readonly host: string;
  readonly port: number;
  readonly reason: Code;
  /** `would_refuse` under `enforcement: monitor` */
  readonly decision: Decision;
  readonly sandbox: string | null;
  readonly method: string;
  readonly path: string | null;
  readonly rule: string | null;
  readonly count: number;
  readonly first_time: string;
  readonly last_time: string;
  /** Another entry, to be put first in network.allowlist, that would allow it; `null` where none can */
  readonly suggestion: SuggestedRule | null;
  /** What to do, in one sentence */
  readonly hint: string;
}

/** The memory of refusals. */
export interface Denials {
  /** Takes note where the outcome is a refusal of a request whose host is known; ignores everything else. */
  add(outcome: Outcome): void;
  /** Newest first. */
  list(): readonly Denial[];
}

/** `max` kinds are kept. `isOwnListener` says whether an address and port belong to this proxy: no rule opens those. */
export interface DenialsOptions {
  readonly max: number;
  readonly isOwnListener?: (address: Host, port: number) => boolean;
}

type Latest = Omit<Denial, 'count' | 'first_time' | 'last_time'>;

interface Kept {
  latest: Latest;
  count: number;
  readonly firstAt: number;
  lastAt: number;
}

/** Makes an empty memory. */
export function createDenials(options: DenialsOptions): Denials {
  const isOwnListener = options.isOwnListener ?? (() => false);
  const kept = new Map<string, Kept>();
  return {
    add(outcome) {
      const latest = readDenial(outcome, isOwnListener);
      if (latest === undefined) return;
      const key = JSON.stringify([latest.sandbox, latest.host, latest.port, latest.reason, latest.decision]);
      const now = Date.now();
      const earlier = kept.get(key);
      // Deleting first moves the entry to the end of the Map's order, so that its start is always the longest unseen.
      kept.delete(key);
      kept.set(key, { latest, count: (earlier?.count ?? 0) + 1, firstAt: earlier?.firstAt ?? now, lastAt: now });
      if (kept.size > options.max) kept.delete(kept.keys().next().value ?? key);
    },
    list: () => [...kept.values()].reverse().map(shown),
  };
}

function shown({ latest, count, firstAt, lastAt }: Kept): Denial {
  return { ...latest, count, first_time: new Date(firstAt).toISOString(), last_time: new Date(lastAt).toISOString() };
}

function readDenial(outcome: Outcome, isOwnListener: (address: Host, port: number) => boolean): Latest | undefined {
  const { intent } = outcome.trace;
  const reason = reasonOf(outcome);
  const refused = outcome.decision === 'refuse' || outcome.decision === 'would_refuse';
  if (!refused || intent === undefined || reason === undefined) return undefined;
  const address = outcome.trace.address;
  const openable = address !== undefined && !isOwnListener(address, intent.authority.port) ? address : undefined;
  const path = shownPath(outcome);
  return {
    host: ownCopy(intent.authority.host),
    port: intent.authority.port,
    reason,
    decision: outcome.decision,
    sandbox: outcome.trace.sandbox === '' ? null : outcome.trace.sandbox,
    method: showWire(outcome.arrival.method, 32),
    path: path === null ? null : ownCopy(path),
    rule: ruleOf(outcome) ?? null,
    suggestion: suggest(intent, reason, { rule: ruleOf(outcome), address: openable }) ?? null,
    hint: CODES[reason].hint,
  };
}

interface Grounds {
  readonly rule: string | undefined;
  readonly address: Host | undefined;
}

function suggest(intent: Intent, reason: Code, { rule, address }: Grounds): SuggestedRule | undefined {
  const { host, port } = intent.authority;
  // Rules that share a domain are told apart by `#2`, `#3`, …; the entry to add has the domain itself.
  const domain = rule?.replace(/#\d+$/, '') ?? host;
  const ports = usualPorts(intent).includes(port) ? {} : { ports: [port] };
  switch (reason) {
    case 'not_allowlisted':
      return { domain: host, ...ports };
    case 'port_denied':
      return { domain, ports: [port] };
    case 'method_denied':
      // A field asked for another method: the one on the request line is not what was refused.
      if (overrides(intent.arrival.fields, 'method').some((method) => method !== intent.arrival.method)) return undefined;
      return /^[A-Z-]{1,32}$/.test(intent.arrival.method) ? { domain, ...ports, methods: [intent.arrival.method] } : undefined;
    case 'path_denied':
      // No pattern opens a path that a field asks for.
      if (overrides(intent.arrival.fields, 'path').length > 0) return undefined;
      return showWire(intent.path, 1024) === intent.path ? { domain, ...ports, paths: [literalPattern(intent.path)] } : undefined;
    case 'address_denied':
      return address === undefined
        ? undefined
        : { domain, ...ports, addresses: [`${address}/${address.includes(':') ? 128 : 32}`] };
    default:
      return undefined;
  }
}

/** The ports a rule without `ports` allows; a CONNECT has not said yet what it will speak. */
function usualPorts({ scheme }: Intent): readonly number[] {
  if (scheme === undefined) return [443, 80];
  return [scheme === 'https' ? 443 : 80];
}

function literalPattern(path: string): string {
  return path.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
