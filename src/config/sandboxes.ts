// Who is asking: sandboxes known by the token of their proxy URL or by the address they come from.
// Tokens are looked up by a keyed digest, so that the time a wrong one takes says nothing about the right ones.
import { createHmac, randomBytes } from 'node:crypto';
import { parseAddress } from '../exchange/authority.ts';
import type { Host } from '../exchange/authority.ts';
import type { AddressRanges, Policy } from '../exchange/rule.ts';
import { DEFAULT_SANDBOX } from '../exchange/snapshot.ts';
import type { SandboxRegistry } from '../exchange/snapshot.ts';
import type { Sandbox } from '../exchange/stages.ts';
import type { Secret } from '../foundation/secret.ts';

/** A sandbox and how it is known. */
export interface SandboxEntry {
  readonly sandbox: Sandbox;
  readonly token: Secret | undefined;
  /** One range each */
  readonly sources: readonly AddressRanges[];
}

/**
 * The registry over the sandboxes. Without any, no token is asked for and DEFAULT_SANDBOX is judged by `policy`.
 * Of two entries with the same token or the same range the first wins; the caller reports them as problems.
 */
export function createSandboxRegistry(entries: readonly SandboxEntry[], policy: Policy): SandboxRegistry {
  const only: Sandbox = { id: DEFAULT_SANDBOX, policy };
  const byId = new Map(entries.length === 0 ? [[only.id, only]] : entries.map(({ sandbox }) => [sandbox.id, sandbox]));
  const tokens = tokenIndex(entries);
  const sources = sourceIndex(entries);
  return {
    required: entries.length > 0,
    ids: [...byId.keys()],
    byId: (id) => byId.get(id),
    byToken: (proxyAuthorization) => tokens(proxyAuthorization),
    bySource: (address) => sources(address),
  };
}

/** Sandboxes whose token an earlier one has too (`twins`: later to earlier), and those whose token could be guessed. */
export function tokenFaults(tokens: ReadonlyMap<string, Secret>): {
  readonly twins: ReadonlyMap<string, string>;
  readonly short: readonly string[];
} {
  const owners = new Map<string, string>();
  const twins = new Map<string, string>();
  const short: string[] = [];
  for (const [id, token] of tokens) {
    const text = token.reveal();
    const owner = owners.get(text);
    if (owner === undefined) owners.set(text, id);
    else twins.set(id, owner);
    if (text.length < 16) short.push(id);
  }
  return { twins, short };
}

function tokenIndex(entries: readonly SandboxEntry[]): (proxyAuthorization: string) => Sandbox | undefined {
  const key = randomBytes(32);
  const digest = (token: Buffer) => createHmac('sha256', key).update(token).digest('base64');
  const byDigest = new Map<string, Sandbox>();
  for (const { sandbox, token } of entries) {
    if (token === undefined) continue;
    const own = digest(Buffer.from(token.reveal()));
    if (!byDigest.has(own)) byDigest.set(own, sandbox);
  }
  return (proxyAuthorization) => {
    const token = presentedToken(proxyAuthorization);
    return token === undefined ? undefined : byDigest.get(digest(token));
  };
}

/** The token in a Proxy-Authorization: the password of Basic, whatever its user name, or that of Bearer (RFC 7617, RFC 6750); `undefined` where there is none. */
export function presentedToken(proxyAuthorization: string): Buffer | undefined {
  const parts = /^(basic|bearer) +([A-Za-z0-9+/._~=-]+) *$/i.exec(proxyAuthorization);
  const [, scheme, text] = parts ?? [];
  if (scheme === undefined || text === undefined) return undefined;
  if (scheme.toLowerCase() === 'bearer') return Buffer.from(text);
  const pair = Buffer.from(text, 'base64');
  const colon = pair.indexOf(0x3a);
  return colon < 0 || colon === pair.length - 1 ? undefined : pair.subarray(colon + 1);
}

function sourceIndex(entries: readonly SandboxEntry[]): (address: string) => Sandbox | undefined {
  const ranges = entries.flatMap(({ sandbox, sources }) => sources.map((range) => ({ sandbox, range })));
  // Single addresses are the common case and may be many; only true ranges are walked.
  const single = new Map<string, Sandbox>();
  const wider: { readonly sandbox: Sandbox; readonly range: AddressRanges; readonly prefix: number }[] = [];
  for (const { sandbox, range } of ranges) {
    const address = singleAddress(range);
    if (address === undefined) wider.push({ sandbox, range, prefix: prefixOf(range) });
    else if (!single.has(address)) single.set(address, sandbox);
  }
  wider.sort((a, b) => b.prefix - a.prefix);
  return (text) => {
    const address = canonicalAddress(text);
    if (address === undefined) return undefined;
    return single.get(address) ?? wider.find(({ range }) => range.contains(address))?.sandbox;
  };
}

/** On a dual-stack listener Node shows an IPv4 peer as `::ffff:10.0.0.1`. */
function canonicalAddress(text: string): Host | undefined {
  return parseAddress(text.replace(/^::ffff:(?=\d+\.\d+\.\d+\.\d+$)/i, ''));
}

function prefixOf(range: AddressRanges): number {
  return Number(/\/(\d+)$/.exec(range.key)?.[1] ?? 0);
}

function singleAddress(range: AddressRanges): Host | undefined {
  const full = range.key.includes(':') ? 128 : 32;
  return prefixOf(range) === full ? parseAddress(range.key.slice(0, range.key.indexOf('/'))) : undefined;
}
