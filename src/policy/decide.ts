// The judge: Intent and policy in, Permit or Refusal out, always with the rule and the reason. Pure.
// It must never await, look at a clock or at anything from the wire but the Intent, and it never asks a wider rule once one owns the host.
import { Refusal } from '../exchange/codes.ts';
import type { Code } from '../exchange/codes.ts';
import { overrides } from '../exchange/header-fields.ts';
import type { Rule } from '../exchange/rule.ts';
import { makePermit } from '../exchange/stages.ts';
import type { Arrival, Intent, Permit, Sandbox, Scheme } from '../exchange/stages.ts';

/** Why a rule that owns the host still does not fit. */
interface Misfit {
  readonly code: 'port_denied' | 'method_denied' | 'path_denied';
  readonly detail: string;
}

/** How far a rule was read before it did not fit: the order of judgement. */
const DEPTH: Readonly<Record<Misfit['code'], number>> = { port_denied: 0, method_denied: 1, path_denied: 2 };

/**
 * Judges an intent: denylist, then the rules that own the host, in order, by port, method and path.
 * Where none fits, the first rule under monitor lets it pass all the same; without one, the refusal names the misfit of the rule
 * that came closest. A CONNECT is judged by name and port alone, a lookup by its name.
 */
export function decide<A extends Arrival>(intent: Intent<A>, sandbox: Sandbox): Permit<A> | Refusal {
  const { host } = intent.authority;
  const deniedBy = sandbox.policy.denied(host);
  if (deniedBy !== undefined) return new Refusal('denylisted', `the denylist covers ${host}`, deniedBy);
  const rules = sandbox.policy.rulesFor(host);
  let closest: { readonly rule: Rule; readonly misfit: Misfit } | undefined;
  for (const rule of rules) {
    const misfit = misfitOf(rule, intent);
    if (misfit === undefined) return makePermit({ intent, sandbox, rule, wouldRefuse: rehearsed(rule) });
    if (closest === undefined || DEPTH[misfit.code] > DEPTH[closest.misfit.code]) closest = { rule, misfit };
  }
  if (closest === undefined) return new Refusal('not_allowlisted', `no allowlist rule names ${host}`);
  const { rule, misfit } = closest;
  const monitoring = rules.find((candidate) => candidate.monitor);
  if (monitoring === undefined) return new Refusal(misfit.code, misfit.detail, rule.id);
  return makePermit({ intent, sandbox, rule: monitoring, wouldRefuse: rehearsed(monitoring) ?? misfit.code });
}

/** A catch-all under monitor is an allowlist in rehearsal: what only it lets through is what the allowlist would refuse. */
function rehearsed(rule: Rule): Code | undefined {
  return rule.monitor && isCatchAll(rule) ? 'not_allowlisted' : undefined;
}

/** `*`, and `*#2` where several rules share it; `*.example.com` is none. */
function isCatchAll({ id }: Rule): boolean {
  return id === '*' || id.startsWith('*#');
}

function misfitOf(rule: Rule, intent: Intent): Misfit | undefined {
  if (intent.arrival.purpose === 'lookup') return undefined;
  return portMisfit(rule, intent) ?? (intent.arrival.purpose === 'tunnel' ? undefined : requestMisfit(rule, intent));
}

function portMisfit(rule: Rule, { authority: { host, port }, scheme }: Intent): Misfit | undefined {
  if (portFits(rule, port, scheme)) return undefined;
  return { code: 'port_denied', detail: `port ${port} of ${host} is not among the ports of its rule` };
}

/** Without `ports` a rule means 443 for TLS and 80 for plain; a CONNECT has not said yet which it will be. */
function portFits(rule: Rule, port: number, scheme: Scheme | undefined): boolean {
  if (rule.ports !== undefined) return rule.ports.has(port);
  if (scheme === undefined) return port === 443 || port === 80;
  return port === (scheme === 'https' ? 443 : 80);
}

function requestMisfit(rule: Rule, intent: Intent): Misfit | undefined {
  const { arrival, authority, scheme, path } = intent;
  const { host, port } = authority;
  // A tunnel that nobody looks into fits only a rule that says so, and TLS that is looked into fits none that does.
  const blind = arrival.purpose === 'passthrough';
  if (scheme === 'https' && blind !== rule.passthrough) {
    const done = blind ? 'inspected, and this tunnel is not' : 'passed through, and this request is not';
    return { code: 'port_denied', detail: `TLS to port ${port} of ${host} is to be ${done}` };
  }
  const { methods, paths } = rule;
  if (methods !== undefined) {
    const refused = [arrival.method, ...overrides(arrival.fields, 'method')].find((method) => !methods.has(method));
    if (refused !== undefined)
      return { code: 'method_denied', detail: `the rule for ${host} does not allow the method ${refused}` };
  }
  if (paths === undefined) return undefined;
  const elsewhere = overrides(arrival.fields, 'path').length > 0;
  if (!elsewhere && paths.some((pattern) => pattern.matches(path))) return undefined;
  const subject = elsewhere ? 'a field that asks for another path' : 'this path';
  return { code: 'path_denied', detail: `the rule for ${host} does not allow ${subject}` };
}
