// Config to what runs: one immutable Snapshot, the credentials of the file, the roots for upstreams. Reads the files and
// variables that the config names and nothing else; reports all problems at once.
// It must never make half a snapshot: with one problem there is none, and the caller keeps what it has.
import { X509Certificate } from 'node:crypto';
import type { Policy } from '../exchange/rule.ts';
import type { Limits, SandboxRegistry, Snapshot } from '../exchange/snapshot.ts';
import type { Secret } from '../foundation/secret.ts';
import type { CorporateProxy } from '../network/corporate-proxy.ts';
import { buildPolicy, underDenylistOf } from '../policy/policy-index.ts';
import { compileCredentials } from './compile-credentials.ts';
import type { CompiledCredential } from './compile-credentials.ts';
import { compileCorporateProxy } from './compile-proxy.ts';
import { compileNetwork } from './compile-network.ts';
import type { NetworkContext } from './compile-network.ts';
import { boundIn } from './environment-body.ts';
import { reportListeners, warnOfOpenDoors } from './listeners.ts';
import { Findings } from './problem.ts';
import type { Problem } from './problem.ts';
import { createSandboxRegistry, tokenFaults } from './sandboxes.ts';
import type { SandboxEntry } from './sandboxes.ts';
import type { Config } from './schema.ts';
import { NOTHING_YET, SourceReader } from './source-reader.ts';
import type { LastGood } from './source-reader.ts';

export type { CompiledCredential } from './compile-credentials.ts';

/** A config that can run. */
export interface Compiled {
  readonly snapshot: Snapshot;
  /** Of the top-level `network` */
  readonly policy: Policy;
  readonly credentials: ReadonlyMap<string, CompiledCredential>;
  /** PEM texts of the further roots, one for each file */
  readonly upstreamCa: readonly string[];
  /** What upstreams are reached through; `undefined`: nothing */
  readonly corporateProxy: CorporateProxy | undefined;
  readonly warnings: readonly string[];
  /** Absolute paths of every file that the config names a secret or a root in */
  readonly watched: readonly string[];
  readonly config: Config;
}

/** How to compile. Paths of the config are relative to `baseDirectory`: the working directory of the process. */
export interface CompileOptions {
  readonly generation: number;
  readonly baseDirectory: string;
  readonly env: NodeJS.ProcessEnv;
  /** Of the load before, for files that vanish in the middle of a rotation or for good */
  readonly lastGood?: LastGood;
  /** Wall clock, epoch `ms` */
  readonly now?: () => number;
}

/** What compiling gave. `digest` changes when anything that was read changed; it is of secrets and must not be shown. */
export type CompileResult =
  | { readonly compiled: Compiled; readonly digest: string; readonly lastGood: LastGood }
  | { readonly problems: readonly Problem[]; readonly watched: readonly string[] };

/** Compiles a parsed config. Never throws for anything an operator can write. */
export async function compileConfig(config: Config, options: CompileOptions): Promise<CompileResult> {
  const findings = new Findings();
  const { baseDirectory, env, lastGood = NOTHING_YET } = options;
  const sources = new SourceReader({ baseDirectory, env, lastGood, now: options.now ?? Date.now }, findings);
  reportListeners(config, findings);
  const context: NetworkContext = { sources, findings, credentialIds: new Set(Object.keys(config.credentials)) };
  const policy = buildPolicy(await compileNetwork(config.network, ['network'], context), config.redact);
  const sandboxes = await compileSandboxes(config, policy, context);
  const credentials = await compileCredentials(config.credentials, context);
  const upstreamCa = await readRoots(config.upstream.ca, context);
  const corporateProxy = await compileCorporateProxy(config.upstream.proxy, context);
  warnOfOpenDoors(config, findings);
  if (findings.problems.length > 0) return { problems: findings.problems, watched: sources.watched };
  const snapshot: Snapshot = { generation: options.generation, sandboxes, limits: limitsOf(config), credentials };
  const { warnings } = findings;
  const compiled = { snapshot, policy, credentials, upstreamCa, corporateProxy, warnings, watched: sources.watched, config };
  return { compiled, digest: sources.digest(), lastGood: sources.lastGood };
}

async function compileSandboxes(config: Config, policy: Policy, context: NetworkContext): Promise<SandboxRegistry> {
  const { sources, findings } = context;
  const entries: SandboxEntry[] = [];
  const tokens = new Map<string, Secret>();
  const ranges = new Map<string, string>();
  for (const [id, entry] of Object.entries(config.sandboxes)) {
    const path = ['sandboxes', id];
    const own =
      entry.network === undefined
        ? policy
        : underDenylistOf(policy, buildPolicy(await compileNetwork(entry.network, [...path, 'network'], context), config.redact));
    const reading = entry.token === undefined ? undefined : await sources.secret(entry.token, [...path, 'token']);
    if (reading?.kind === 'read') tokens.set(id, reading.secret);
    else if (reading?.kind === 'lost')
      findings.warn([...path, 'token'], `is unavailable and nobody is known by it: ${reading.problem}`);
    else if (reading !== undefined) findings.problem([...path, 'token'], reading.problem);
    for (const [index, range] of (entry.sources ?? []).entries()) {
      const twin = ranges.get(range.key);
      if (twin !== undefined && twin !== id) {
        findings.problem([...path, 'sources', index], `"${range.key}" is a source of sandbox "${twin}" too; give each its own`);
      } else ranges.set(range.key, id);
    }
    entries.push({
      sandbox: { id, policy: own, bound: new Set(boundIn(entry.env)) },
      token: tokens.get(id),
      sources: entry.sources ?? [],
    });
  }
  reportTokens(tokens, findings);
  return createSandboxRegistry(entries, policy);
}

function reportTokens(tokens: ReadonlyMap<string, Secret>, findings: Findings): void {
  const { twins, short } = tokenFaults(tokens);
  for (const [id, twin] of twins) {
    findings.problem(['sandboxes', id, 'token'], `is the token of sandbox "${twin}" too; give each its own`);
  }
  for (const id of short) findings.warn(['sandboxes', id, 'token'], 'is shorter than 16 characters and could be guessed');
}

/** The roots as they stand in their files. One that is gone for good is trusted no more, and what it vouched for fails to verify. */
async function readRoots(paths: readonly string[], { sources, findings }: NetworkContext): Promise<string[]> {
  const texts: string[] = [];
  for (const [index, path] of paths.entries()) {
    const place = ['upstream', 'ca', index];
    const reading = await sources.text(path, place);
    if (reading.kind === 'missing') findings.problem(place, reading.problem);
    else if (reading.kind === 'lost') findings.warn(place, `${reading.problem}; its roots are trusted no more`);
    else if (!holdsCertificates(reading.text))
      findings.problem(place, `file "${path}" holds no valid PEM certificate; name a PEM file`);
    else texts.push(reading.text);
  }
  return texts;
}

function holdsCertificates(text: string): boolean {
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----/g) ?? [];
  try {
    for (const block of blocks) new X509Certificate(block);
    return blocks.length > 0;
  } catch {
    // Any block that OpenSSL cannot read makes the file invalid, and the caller says so.
    return false;
  }
}

function limitsOf({ limits }: Config): Limits {
  const { timeouts } = limits;
  return {
    connections: limits.connections,
    streams: limits.streams,
    headerBytes: limits.header_bytes,
    headerFields: limits.header_fields,
    targetBytes: limits.target_bytes,
    replyHeaderBytes: limits.reply_header_bytes,
    headerMs: timeouts.header,
    handshakeMs: timeouts.handshake,
    dnsMs: timeouts.dns,
    connectMs: timeouts.connect,
    replyMs: timeouts.reply,
    bodyIdleMs: timeouts.body_idle,
    tunnelIdleMs: timeouts.tunnel_idle,
    keepAliveMs: timeouts.keep_alive,
    upstreamKeepAliveMs: timeouts.upstream_keep_alive,
    upstreamConnections: limits.upstream_connections,
    drainMs: timeouts.drain,
  };
}
