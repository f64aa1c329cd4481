// A credential of type `environment_variable` as the value that a sandbox's placeholder stands for: in which places, and toward whom.
// A host is compared in its canonical form, whole or below a label boundary; it must never be trusted for what it begins or ends with.
import { parseHost } from '../exchange/authority.ts';
import type { Host } from '../exchange/authority.ts';
import type { Resolution } from '../exchange/snapshot.ts';
import type { Credential } from './credential.ts';

/** What an `environment_variable` credential stands for. */
export function placeholderOf(
  credential: Extract<Credential, { type: 'environment_variable' }>,
): Extract<Resolution, { placeholder: unknown }> {
  const { value, injection_location, trusted_domains } = credential;
  return { placeholder: { value, places: new Set(injection_location), trusts: trustIn(trusted_domains) } };
}

/** `x.com` is that host, `*.x.com` every depth below it; what is neither is nobody. */
function trustIn(domains: readonly string[]): (host: Host) => boolean {
  const exact = new Set<Host>();
  const suffixes: string[] = [];
  for (const domain of domains) {
    const below = domain.startsWith('*.');
    const host = parseHost(below ? domain.slice(2) : domain);
    if (host === undefined) continue;
    if (below) suffixes.push(`.${host}`);
    else exact.add(host);
  }
  return (host) => exact.has(host) || suffixes.some((suffix) => host.endsWith(suffix));
}
