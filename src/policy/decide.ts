// The judge: Intent and policy in, Permit or Refusal out, always with the rule and the reason. Pure.
// It must never await, look at a clock or at anything from the wire but the Intent, and it never asks a wider rule once one owns the host.
import { Refusal } from '../exchange/codes.ts';
import type { Code } from '../exchange/codes.ts';
import type { Rule } from '../exchange/rule.ts';
import { makePermit } from '../exchange/stages.ts';
import type { Arrival, Intent, Permit, Sandbox, Scheme } from '../exchange/stages.ts';

/** The three ways in which a rule that owns the host can still not fit, in the order of judgement. */
type Misfit = 'port_denied' | 'method_denied' | 'path_denied';

/**
 * Judges an intent: denylist, then the rules that own the host, in order, by port, method and path.
 * Where none fits, the refusal names the misfit of the rule that came closest. A CONNECT is judged by name and port alone.
 */
export function decide<A extends Arrival>(intent: Intent<A>, sandbox: Sandbox): Permit<A> | Refusal {
  const { host } = intent.authority;
  const deniedBy = sandbox.policy.denied(host);
  if (deniedBy !== undefined) return new Refusal('denylisted', `the denylist covers ${host}`, deniedBy);
  const rules = sandbox.policy.rulesFor(host);
  const first = rules[0];
  if (first === undefined) return new Refusal('not_allowlisted', `no allowlist rule names ${host}`);
  let closest: { readonly rule: Rule; readonly misfit: Misfit } | undefined;
  for (const rule of rules) {
    const misfit = misfitOf(rule, intent);
    if (misfit === undefined) return makePermit({ intent, sandbox, rule, wouldRefuse: rehearsed(rule) });
    if (closest === undefined || RANK[misfit] > RANK[closest.misfit]) closest = { rule, misfit };
  }
  const monitoring = rules.find((rule) => rule.monitor);
  if (monitoring !== undefined && closest !== undefined) {
    return makePermit({ intent, sandbox, rule: monitoring, wouldRefuse: closest.misfit });
  }
  return refuseMisfit(closest?.misfit ?? 'port_denied', closest?.rule ?? first, intent);
}

/** A catch-all under monitor is an allowlist in rehearsal: what only it lets through is what the allowlist would refuse. */
function rehearsed(rule: Rule): Code | undefined {
  return rule.monitor && rule.id.startsWith('*') && !rule.id.startsWith('*.') ? 'not_allowlisted' : undefined;
}

const RANK: Readonly<Record<Misfit, number>> = { port_denied: 0, method_denied: 1, path_denied: 2 };

function misfitOf(rule: Rule, intent: Intent): Misfit | undefined {
  if (!portFits(rule, intent.authority.port, intent.scheme)) return 'port_denied';
  if (intent.arrival.purpose === 'tunnel') return undefined;
  if (rule.passthrough ? intent.scheme === 'https' && !isBlind(intent) : isBlind(intent)) return 'port_denied';
  if (rule.methods !== undefined && !rule.methods.has(intent.arrival.method)) return 'method_denied';
  if (rule.paths !== undefined && !rule.paths.some((pattern) => pattern.matches(intent.path))) return 'path_denied';
  return undefined;
}

/** A tunnel that nobody looks into fits only a rule that says so, and TLS that is looked into fits none that does not. */
function isBlind(intent: Intent): boolean {
  return intent.arrival.purpose === 'passthrough';
}

/** Without `ports` a rule means 443 for TLS and 80 for plain; a CONNECT has not said yet which it will be. */
function portFits(rule: Rule, port: number, scheme: Scheme | undefined): boolean {
  if (rule.ports !== undefined) return rule.ports.has(port);
  if (scheme === undefined) return port === 443 || port === 80;
  return port === (scheme === 'https' ? 443 : 80);
}

function refuseMisfit(misfit: Misfit, rule: Rule, intent: Intent): Refusal {
  const { host, port } = intent.authority;
  switch (misfit) {
    case 'port_denied':
      return new Refusal(misfit, `port ${port} of ${host} is not among the ports of its rule`, rule.id);
    case 'method_denied':
      return new Refusal(misfit, `the rule for ${host} does not allow the method ${intent.arrival.method}`, rule.id);
    case 'path_denied':
      return new Refusal(misfit, `the rule for ${host} does not allow this path`, rule.id);
  }
}
