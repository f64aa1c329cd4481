// Permits for the tests of this room, as policy would have made them.
import { parseAuthority } from '../../src/exchange/authority.ts';
import type { AddressRanges, Policy, Rule } from '../../src/exchange/rule.ts';
import { makeIntent, makePermit } from '../../src/exchange/stages.ts';
import type { Arrival, Permit, Scheme } from '../../src/exchange/stages.ts';
import { parseRanges } from '../../src/network/address-ranges.ts';

export function ranges(...cidrs: string[]): AddressRanges {
  const parsed = parseRanges(cidrs);
  if ('problem' in parsed) throw new Error(parsed.problem);
  return parsed.ranges;
}

export interface PermitParts {
  readonly to: string;
  readonly opened?: readonly string[];
  readonly sandbox?: string;
  readonly scheme?: Scheme | undefined;
  readonly monitor?: boolean;
  readonly purpose?: Arrival['purpose'];
}

export function permit(parts: PermitParts): Permit {
  const { to, opened = [], sandbox = 'builder', monitor = false, purpose = 'exchange' } = parts;
  const authority = parseAuthority(to, 443);
  if (authority === undefined) throw new Error(`the test holds the unreadable authority "${to}"`);
  const rule: Rule = {
    id: 'the-rule',
    ports: undefined,
    methods: undefined,
    paths: undefined,
    opened: ranges(...opened),
    passthrough: false,
    monitor,
    injection: undefined,
  };
  const policy: Policy = { denied: () => undefined, rulesFor: () => [rule] };
  const intent = makeIntent({
    // The room reads nothing else of an arrival.
    arrival: { purpose } as Arrival,
    scheme: 'scheme' in parts ? parts.scheme : 'https',
    authority,
    path: '/',
    query: '',
    identity: undefined,
  });
  return makePermit({ intent, sandbox: { id: sandbox, policy }, rule, wouldRefuse: undefined });
}
