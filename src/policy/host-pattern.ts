// A rule's `domain`: an exact host, `*.suffix` (any depth below, never the apex), or `*`. Parsing, matching and printing of one pattern.
// It must never match on raw text: both sides are canonical, and a suffix matches only at a label boundary (fault B01).
import { domainToASCII } from 'node:url';
import { isAddress, parseAddress, parseHost } from '../exchange/authority.ts';
import type { Host } from '../exchange/authority.ts';

/** A parsed `domain`. `text` is its canonical spelling. */
export type DomainPattern =
  | { readonly kind: 'exact'; readonly host: Host; readonly text: string }
  | { readonly kind: 'below'; readonly suffix: Host; readonly text: string }
  | { readonly kind: 'any'; readonly text: '*' };

/** Reads a `domain` as an operator writes it; Unicode names become A-labels (fault A16). The problem states the right spelling. */
export function parseDomain(text: string): DomainPattern | { readonly problem: string } {
  if (text === '*') return { kind: 'any', text };
  const trouble = commonMistake(text);
  if (trouble !== undefined) return { problem: trouble };
  const below = text.startsWith('*.');
  const name = below ? text.slice(2) : text;
  if (name.includes('*')) return { problem: `"${text}": a wildcard stands only at the front, as in "*.example.com"` };
  const host = toHost(name);
  if (host === undefined) return { problem: `"${text}" is not a host name or an IP address` };
  if (!below) return { kind: 'exact', host, text: host };
  if (isAddress(host)) return { problem: `"${text}": a wildcard needs a name, not an address` };
  if (!host.includes('.'))
    return { problem: `"${text}" would open a whole top-level domain; name a domain below it, or use "*"` };
  return { kind: 'below', suffix: host, text: `*.${host}` };
}

function commonMistake(text: string): string | undefined {
  // What stands before the @ of a URL is a password as often as not.
  if (text.includes('@')) return 'holds an "@"; write the host alone, and a user name and password as a credential of type basic';
  const scheme = /^([a-z][a-z0-9+.-]*):\/\/([^/]*)/i.exec(text);
  if (scheme !== null) return `"${text}" is a URL; write the host alone: "${scheme[2] ?? ''}"`;
  if (text.includes('/'))
    return `"${text}" holds a path; write the host alone and use \`paths\` for paths, \`addresses\` for ranges`;
  const port = /^(\[[^\]]*\]|[^:]*):(\d+)$/.exec(text);
  if (port !== null) return `"${text}" holds a port; write domain: "${port[1] ?? ''}" and ports: [${port[2] ?? ''}]`;
  if (text.startsWith('.')) return `"${text}": write "*${text}" for every name below, and a second rule for the apex`;
  return undefined;
}

function toHost(name: string): Host | undefined {
  if (/^[\x21-\x24\x26-\x7e]+$/.test(name)) return parseHost(name) ?? parseAddress(name);
  if (name.includes('%')) return undefined;
  const ascii = domainToASCII(name);
  return ascii === '' ? undefined : parseHost(ascii);
}
