// Which hosts a sandbox's tools may reach without the proxy: its own loopback, and of that only what no rule names.
// A host in NO_PROXY never comes to the door, so an allowlisted one there would be unreachable (fault B15). Pure.
import { parseAddress } from '../exchange/authority.ts';
import type { Network } from '../config/rule-schema.ts';

type Rule = NonNullable<Exclude<Network, 'disabled'>['allowlist']>[number];

const LOOPBACK = [
  { name: 'localhost', addresses: ['127.0.0.1', '::1'] },
  { name: '127.0.0.1', addresses: ['127.0.0.1'] },
  { name: '::1', addresses: ['::1'] },
] as const;

/** The entries of NO_PROXY beside these networks. */
export function directHosts(networks: readonly (Network | undefined)[]): readonly string[] {
  const rules = networks.flatMap((network) => (typeof network === 'object' ? (network.allowlist ?? []) : []));
  return LOOPBACK.filter((host) => !rules.some((rule) => names(rule, host))).map((host) => host.name);
}

function names({ domain, addresses = [] }: Rule, host: (typeof LOOPBACK)[number]): boolean {
  switch (domain.kind) {
    case 'exact':
      return covers(host.name, domain.host);
    case 'below':
      return covers(host.name, domain.suffix);
    case 'any':
      // Only a rule that opens loopback lets anything through to it.
      return host.addresses.some((text) => {
        const address = parseAddress(text);
        return address !== undefined && addresses.some((ranges) => ranges.contains(address));
      });
  }
}

/** An entry of NO_PROXY stands for every name below it too. */
function covers(entry: string, host: string): boolean {
  return host === entry || host.endsWith(`.${entry}`);
}
