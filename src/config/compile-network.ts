// One `network` of the config to what a Policy is built of: secrets of `transform` read, fields merged, doubtful rules pointed out.
// It must never leave a rule out: what cannot be compiled is a problem, and a network that is not there allows nothing (fault B03).
import { isAddress } from '../exchange/authority.ts';
import type { Injection, Rule, TransformField } from '../exchange/rule.ts';
import type { SecretSource } from '../credentials/secret-source.ts';
import { classify, facesOf } from '../network/address-class.ts';
import { NO_RANGES, parseRanges } from '../network/address-ranges.ts';
import type { AllowlistEntry, PolicyParts } from '../policy/policy-index.ts';
import type { Findings, KeyPath } from './problem.ts';
import type { Network, RuleEntry } from './rule-schema.ts';
import type { SourceReader } from './source-reader.ts';
import { suggestKey } from './spelling.ts';

/** What compiling a network needs beside the network. */
export interface NetworkContext {
  readonly sources: SourceReader;
  readonly findings: Findings;
  /** Ids that the config declares */
  readonly credentialIds: ReadonlySet<string>;
}

/**
 * What the policy of a network is built of; `path` is where it stands in the config. Problems and warnings go to the findings. The
 * standard `redact` is not in it: it may change while the network stays.
 */
export async function compileNetwork(network: Network | undefined, path: KeyPath, context: NetworkContext): Promise<PolicyParts> {
  if (network === 'disabled') return { denylist: [], allowlist: [], facesOf };
  if (network?.allowlist === undefined) {
    const missing = network === undefined ? 'is missing' : 'has no `allowlist`';
    context.findings.warn(
      path,
      `${missing}: every request is refused; name hosts in \`allowlist\`, or write "disabled" where that is meant`,
    );
  }
  const rules = network?.allowlist ?? [];
  const allowlist: AllowlistEntry[] = [];
  for (const [index, entry] of rules.entries()) {
    const place = [...path, 'allowlist', index];
    allowlist.push({ pattern: entry.domain, rule: await compileRule(entry, place, context) });
    warnOfRule(entry, place, context);
  }
  warnOfShadows(rules, path, context.findings);
  return { denylist: (network?.denylist ?? []).map((entry) => entry.domain), allowlist, facesOf };
}

async function compileRule(entry: RuleEntry, path: KeyPath, context: NetworkContext): Promise<Omit<Rule, 'id'>> {
  const opened = parseRanges((entry.addresses ?? []).map((ranges) => ranges.key));
  return {
    ports: setOf(entry.ports),
    methods: setOf(entry.methods),
    paths: entry.paths,
    // Each range was read once already; that the whole cannot be is impossible, and then it opens nothing.
    opened: 'ranges' in opened ? opened.ranges : NO_RANGES,
    passthrough: entry.tls === 'passthrough',
    monitor: entry.enforcement === 'monitor',
    redact: entry.redact,
    allowPlaintext: entry.allow_plaintext ?? false,
    injection: await compileInjection(entry, path, context),
  };
}

function setOf<Value>(values: readonly Value[] | undefined): ReadonlySet<Value> | undefined {
  return values === undefined ? undefined : new Set(values);
}

async function compileInjection(entry: RuleEntry, path: KeyPath, context: NetworkContext): Promise<Injection | undefined> {
  const { fields, unavailable } = await compileTransform(entry.transform ?? [], [...path, 'transform'], context);
  const { credential } = entry;
  if (credential === undefined && fields.length === 0 && unavailable === undefined) return undefined;
  return {
    // Where no entry has it, one that is stored may.
    credential,
    transform: fields,
    unavailable,
    mode: entry.mode ?? 'set',
    allowPlaintext: entry.allow_plaintext ?? false,
    keep: new Set(entry.keep ?? []),
  };
}

type Fields = Readonly<Record<string, SecretSource>>;

/** The fields, and why one of them is missing where it is. */
async function compileTransform(
  objects: readonly Fields[],
  path: KeyPath,
  context: NetworkContext,
): Promise<{ readonly fields: readonly TransformField[]; readonly unavailable: string | undefined }> {
  const { findings, sources } = context;
  const merged = new Map<string, TransformField>();
  let unavailable: string | undefined;
  for (const object of objects) {
    for (const [name, source] of Object.entries(object)) {
      const place = [...path, name];
      const reading = await sources.secret(source, place);
      if (reading.kind === 'read') merged.set(name.toLowerCase(), { name, value: reading.secret });
      else if (reading.kind === 'lost') {
        // A rejected load would keep the removed secret in force, and hold back whatever else has changed.
        unavailable ??= reading.problem;
        findings.warn(place, `is unavailable and the requests of its rule are refused: ${reading.problem}`);
      } else findings.problem(place, reading.problem);
    }
  }
  return { fields: [...merged.values()], unavailable };
}

function warnOfRule(entry: RuleEntry, path: KeyPath, { findings, credentialIds }: NetworkContext): void {
  const { credential, addresses } = entry;
  const injects = credential !== undefined || (entry.transform ?? []).some((object) => Object.keys(object).length > 0);
  if (entry.domain.kind === 'any') {
    findings.warn(path, 'the domain "*" allows every host outside the walls that nothing else names');
    if (injects)
      findings.warn(path, 'the domain "*" sends what this rule puts on to every such host; name the hosts that may see it');
  }
  if (addresses !== undefined) {
    findings.warn(path, `opens addresses inside the walls: ${addresses.map((ranges) => ranges.key).join(', ')}`);
  }
  const host = entry.domain.kind === 'exact' ? entry.domain.host : undefined;
  const walled = host !== undefined && isAddress(host) && classify(host) !== 'public';
  if (walled && !(addresses ?? []).some((ranges) => ranges.contains(host))) {
    findings.warn(path, `"${host}" lies inside the walls and stays refused until this rule opens it with addresses: ["${host}"]`);
  }
  if (entry.allow_plaintext === true) {
    const what = injects ? 'the credential' : 'the values of placeholders';
    findings.warn(path, `\`allow_plaintext\` sends ${what} over plain http, where everyone on the way can read it`);
  }
  if (!injects && (entry.mode !== undefined || entry.keep !== undefined)) {
    findings.warn(path, '`mode` and `keep` have no effect without `credential` or `transform`');
  }
  if (credential !== undefined && !credentialIds.has(credential)) {
    const meant = suggestKey(credential, [...credentialIds]);
    const until = 'names no credential of this file, and its requests are refused until one of that id is stored';
    findings.warn([...path, 'credential'], meant === undefined ? until : `${until}; did you mean "${meant}"?`);
  }
  for (const [index, pattern] of (entry.paths ?? []).entries()) {
    if (!/(?<![.\])])\/\*$/.test(pattern.source)) continue;
    const meant = pattern.source.replace(/\*$/, '.*');
    findings.warn(
      [...path, 'paths', index],
      `"${pattern.source}" is an RE2 pattern, in which "/*" repeats the slash; "${meant}" is every path below`,
    );
  }
}

/** Of several rules with one domain the first that fits decides, so that one without conditions hides the rest. */
function warnOfShadows(rules: readonly RuleEntry[], path: KeyPath, findings: Findings): void {
  const open = new Map<string, number>();
  for (const [index, { domain, ports, methods, paths }] of rules.entries()) {
    const key = `${domain.text} ${[...(ports ?? [])].sort((a, b) => a - b).join(',')}`;
    const earlier = open.get(key);
    if (earlier !== undefined) {
      findings.warn(
        [...path, 'allowlist', index],
        `never applies: allowlist[${earlier}] has the same domain and ports and no methods or paths`,
      );
    } else if (methods === undefined && paths === undefined) open.set(key, index);
  }
}
