// The words for "where to": Host, Port, Authority, each born in one parser here and canonical from then on.
// Canonical means lower case, no trailing dot, A-labels only, IPv4 as a dotted quad, IPv6 compressed and without brackets.
// It must never repair a doubtful spelling: two readers that disagree about a host is how allowlists are passed (faults A01-A21).
import ipaddr from 'ipaddr.js';

declare const hostBrand: unique symbol;

/** A canonical host: a DNS name in A-labels, a dotted quad, or an IPv6 address without brackets. */
export type Host = string & { readonly [hostBrand]: true };

/** A host and the port it is spoken to at. `address` says that the host is an IP literal and needs no resolver. */
export interface Authority {
  readonly host: Host;
  /** 1 to 65535 */
  readonly port: number;
  readonly address: boolean;
}

const NAME_OR_QUAD = /^[a-zA-Z0-9._-]{1,254}$/;
const IN_BRACKETS = /^[0-9a-fA-F:.]{2,45}$/;
const LABEL = /^(?!-)[a-z0-9_-]{1,63}(?<!-)$/;
const NUMERIC_LABEL = /^(?:\d+|0x[0-9a-f]*)$/;
const DOTTED_QUAD = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;
const PORT = /^[1-9]\d{0,4}$/;

/**
 * Reads a host as it stands in an authority: a name, a dotted quad, or an IPv6 address in brackets.
 * Anything else (percent signs, userinfo, raw non-ASCII, `127.1`, `0x7f.1`, zone ids, double dots) is `undefined`.
 */
export function parseHost(text: string): Host | undefined {
  if (text.startsWith('[')) return parseBracketed(text);
  // Before lower-casing, which turns U+212A KELVIN SIGN into an ASCII `k` (fault A18).
  if (!NAME_OR_QUAD.test(text)) return undefined;
  const name = (text.endsWith('.') ? text.slice(0, -1) : text).toLowerCase();
  if (name.length === 0 || name.length > 253) return undefined;
  const labels = name.split('.');
  const last = labels[labels.length - 1] ?? '';
  if (NUMERIC_LABEL.test(last)) return DOTTED_QUAD.test(name) && !text.endsWith('.') ? (name as Host) : undefined;
  return labels.every((label) => LABEL.test(label)) ? (name as Host) : undefined;
}

function parseBracketed(text: string): Host | undefined {
  const inside = text.slice(1, -1);
  if (!text.endsWith(']') || !IN_BRACKETS.test(inside)) return undefined;
  const groups = inside.includes('.') ? withoutQuad(inside) : inside;
  return groups !== undefined && ipaddr.IPv6.isValid(groups) ? (ipaddr.IPv6.parse(groups).toRFC5952String() as Host) : undefined;
}

/**
 * An IPv6 text whose last 32 bits stand as a dotted quad, in hex groups. ipaddr.js is not left to it: it reads `::ffff:010.0.0.1`,
 * which the URL standard and inet_pton refuse, and takes `::8.8.8.8` for `::ffff:8.8.8.8` (faults A04, A05).
 */
function withoutQuad(text: string): string | undefined {
  const start = text.lastIndexOf(':') + 1;
  if (!DOTTED_QUAD.test(text.slice(start))) return undefined;
  const [a = 0, b = 0, c = 0, d = 0] = text.slice(start).split('.').map(Number);
  return `${text.slice(0, start)}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
}

/** True for a dotted quad or an IPv6 address. */
export function isAddress(host: Host): boolean {
  return host.includes(':') || DOTTED_QUAD.test(host);
}

/** The canonical text of an address from a resolver or a socket (zone id of IPv6 dropped); `undefined` where it is none. */
export function parseAddress(text: string): Host | undefined {
  if (text.includes(':')) return parseBracketed(`[${text.split('%', 1)[0] ?? ''}]`);
  return DOTTED_QUAD.test(text) ? (text as Host) : undefined;
}

/** A port in its one decimal spelling, 1 to 65535; `undefined` for `0443`, `+443`, `0`, `65536` and the like. */
export function parsePort(text: string): number | undefined {
  if (!PORT.test(text)) return undefined;
  const port = Number(text);
  return port <= 65535 ? port : undefined;
}

/**
 * Reads `host`, `host:port`, `[v6]` or `[v6]:port`. Without a port `defaultPort` is taken; with `defaultPort` undefined
 * a missing port is an error, as in the authority-form of CONNECT (RFC 9112 section 3.2.3).
 */
export function parseAuthority(text: string, defaultPort?: number): Authority | undefined {
  const colon = text.startsWith('[') ? text.indexOf(':', text.indexOf(']')) : text.indexOf(':');
  const host = parseHost(colon < 0 ? text : text.slice(0, colon));
  const port = colon < 0 ? defaultPort : parsePort(text.slice(colon + 1));
  if (host === undefined || port === undefined) return undefined;
  return { host, port, address: isAddress(host) };
}

/** Whether two authorities name the same place. */
export function sameAuthority(a: Authority, b: Authority): boolean {
  return a.host === b.host && a.port === b.port;
}

/** The text for a Host field or a URL: IPv6 in brackets, the port left out where it is the scheme's own (fault C06). */
export function formatAuthority(authority: Authority, schemePort?: number): string {
  const host = authority.host.includes(':') ? `[${authority.host}]` : authority.host;
  return authority.port === schemePort ? host : `${host}:${authority.port}`;
}
