// The reading desk: Arrival in, Intent or Refusal out. One authority, one path, one reading of the framing. Pure.
// Node's parser (llhttp, strict) has refused most malformed framing before; what it leaves open is refused here.
// It must never take the authority from Host where the tunnel or the target names one, and never repair a target.
import { formatAuthority, isAddress, parseAuthority, parseHost, sameAuthority } from '../exchange/authority.ts';
import type { Authority } from '../exchange/authority.ts';
import { isRefusal, Refusal } from '../exchange/codes.ts';
import { fieldValues, isFieldName, listMembers } from '../exchange/header-fields.ts';
import { makeIntent } from '../exchange/stages.ts';
import type { Arrival, Intent, Origin, PseudoFields, Scheme } from '../exchange/stages.ts';
import type { Limits } from '../exchange/snapshot.ts';

/** What the request line says, before Host has been heard. */
interface Target {
  readonly scheme: Scheme | undefined;
  readonly authority: Authority;
  readonly path: string;
  readonly query: string;
}

/** Reads an arrival. A refusal is `bad_request`, `host_mismatch`, `method_forbidden`, `expectation_failed` or a size limit. */
export function readIntent<A extends Arrival>(arrival: A, limits: Limits): Intent<A> | Refusal {
  const early = arrival.trouble ?? overLimit(arrival, limits);
  if (early !== undefined) return early;
  if (arrival.purpose === 'passthrough') return readPassthrough(arrival);
  if (arrival.purpose === 'lookup') return readLookup(arrival);
  const target = readTarget(arrival);
  if (isRefusal(target)) return target;
  const trouble =
    hostTrouble(arrival, target) ??
    framingTrouble(arrival) ??
    contentTrouble(arrival) ??
    methodTrouble(arrival) ??
    upgradeTrouble(arrival);
  if (trouble !== undefined) return trouble;
  const identities = fieldValues(arrival.fields, 'proxy-authorization');
  if (identities.length > 1) return malformed('more than one Proxy-Authorization field');
  // Inside a tunnel whoever opened it is asking; the field would be another proxy's, further on.
  const identity = isForUs(arrival) ? identities[0] : arrival.ceiling?.identity;
  const { scheme, authority, path, query } = target;
  return makeIntent({ arrival, scheme, authority, path, query, identity });
}

/** Whether the sandbox knows that it speaks to a proxy, whose fields are then its own. */
function isForUs({ ceiling, origin }: Arrival): boolean {
  return ceiling === undefined && origin === undefined;
}

function malformed(detail: string): Refusal {
  return new Refusal('bad_request', detail);
}

function overLimit(arrival: Arrival, limits: Limits): Refusal | undefined {
  if (arrival.target.length > limits.targetBytes)
    return new Refusal('uri_too_long', `the request target is over ${limits.targetBytes} bytes`);
  if (arrival.fields.length / 2 > limits.headerFields) {
    return new Refusal('headers_too_large', `more than ${limits.headerFields} header fields`);
  }
  return undefined;
}

function readPassthrough<A extends Arrival>(arrival: A): Intent<A> | Refusal {
  if (arrival.ceiling === undefined) return malformed('a passed-through connection needs a tunnel');
  const { authority, identity } = arrival.ceiling;
  return makeIntent({ arrival, scheme: 'https', authority, path: '', query: '', identity });
}

/** A name is looked up before anyone knows what it will be used for: TLS, as nearly everything. */
function readLookup<A extends Arrival>(arrival: A): Intent<A> | Refusal {
  const host = parseHost(arrival.target);
  if (host === undefined || isAddress(host)) return malformed('this is not a name of a host');
  const authority = { host, port: 443, address: false };
  return makeIntent({ arrival, scheme: undefined, authority, path: '', query: '', identity: undefined });
}

function readTarget(arrival: Arrival): Target | Refusal {
  const { target, ceiling, pseudo, origin } = arrival;
  if (arrival.purpose === 'tunnel') {
    if (origin !== undefined) return readOpened(target, origin);
    return ceiling === undefined ? readAuthorityForm(target) : malformed('CONNECT inside a tunnel');
  }
  if (pseudo !== undefined) return readPseudo(arrival, pseudo);
  if (target === '*') return malformed('the asterisk-form has no host to judge');
  if (target.startsWith('/')) {
    if (ceiling !== undefined) return splitPath(target, ceiling.scheme, ceiling.authority);
    if (origin === undefined) return malformed('this is a proxy: send an absolute target such as http://host/path, or CONNECT');
    const authority = readLed(fieldValues(arrival.fields, 'host')[0], origin);
    return isRefusal(authority) ? authority : splitPath(target, origin.scheme, authority);
  }
  const absolute = readAbsoluteForm(target);
  if (isRefusal(absolute)) return absolute;
  if (origin !== undefined && absolute.scheme !== origin.scheme) return ledAway('the request target');
  const ends = origin === undefined ? absolute.authority : whereTo(absolute.authority, origin);
  if (isRefusal(ends)) return ends;
  if (ceiling === undefined) return absolute;
  if (absolute.scheme !== ceiling.scheme || !sameAuthority(absolute.authority, ceiling.authority)) {
    return new Refusal('host_mismatch', 'the request target leads out of its tunnel');
  }
  return absolute;
}

/**
 * HTTP/2 (RFC 9113 section 8.3.1): `:authority`, or Host where a client that speaks for HTTP/1.1 left it out, and inside a tunnel the
 * tunnel's own authority, which the others must be.
 */
function readPseudo({ target, ceiling, origin, fields }: Arrival, pseudo: PseudoFields): Target | Refusal {
  const scheme = pseudo.scheme.toLowerCase();
  if (scheme !== 'https' && scheme !== 'http') return malformed('the :scheme is http or https');
  if (!target.startsWith('/')) return malformed('the :path is a path, beginning with a slash');
  const text = pseudo.authority ?? fieldValues(fields, 'host')[0];
  if (origin !== undefined) {
    const led = scheme === origin.scheme ? readLed(text, origin) : ledAway('the :scheme');
    return isRefusal(led) ? led : splitPath(target, scheme, led);
  }
  if (text === undefined && ceiling === undefined) return malformed('the request has neither :authority nor Host');
  const authority = text === undefined ? ceiling?.authority : parseAuthority(text, defaultPort(scheme));
  if (authority === undefined) return malformed('the :authority holds no valid host');
  if (ceiling !== undefined && (scheme !== ceiling.scheme || !sameAuthority(authority, ceiling.authority))) {
    return new Refusal('host_mismatch', 'the :scheme and :authority lead out of their tunnel');
  }
  return splitPath(target, scheme, authority);
}

/** TLS at a transparent door: the name that its ClientHello asks for, which has no port, or none. */
function readOpened(name: string, origin: Origin): Target | Refusal {
  const host = parseHost(name);
  if (name !== '' && (host === undefined || name.startsWith('['))) return malformed('the ClientHello names no valid host');
  const named = host === undefined ? undefined : { host, port: origin.port, address: isAddress(host) };
  const authority = whereTo(named, origin);
  return isRefusal(authority) ? authority : { scheme: undefined, authority, path: '', query: '' };
}

/** A Host field or `:authority` at a transparent door. */
function readLed(text: string | undefined, origin: Origin): Authority | Refusal {
  const named = text === undefined ? undefined : parseAuthority(text, defaultPort(origin.scheme));
  if (text !== undefined && named === undefined) return malformed('the Host field holds no valid host');
  return whereTo(named, origin);
}

/**
 * Where a connection that was led here was going: to the host that it names, at the port that it dialled. An address has to be the one
 * that it dialled, and where no host is named that address is all there is; where a redirect has hidden it there is nothing to judge.
 */
function whereTo(named: Authority | undefined, { port, address }: Origin): Authority | Refusal {
  if (named === undefined) {
    if (address === undefined) return malformed('no host is named, and the address that was dialled is not known here');
    return { host: address, port, address: true };
  }
  if (named.port !== port || (named.address && named.host !== address)) return ledAway('the host in the request');
  return named;
}

function ledAway(what: string): Refusal {
  return new Refusal('host_mismatch', `${what} leads elsewhere than the connection that was led here`);
}

function readAuthorityForm(target: string): Target | Refusal {
  const authority = parseAuthority(target);
  if (authority === undefined) return malformed('CONNECT needs one valid host and a port, as in example.com:443');
  return { scheme: undefined, authority, path: '', query: '' };
}

const ABSOLUTE = /^(https?):\/\/([^/?#]*)(.*)$/i;

function readAbsoluteForm(target: string): Target | Refusal {
  if (/^wss?:/i.test(target)) return malformed('the scheme of a WebSocket request target is http or https');
  const parts = ABSOLUTE.exec(target);
  if (parts === null) return malformed('the request target is neither absolute nor a path');
  const scheme: Scheme = (parts[1] as string).toLowerCase() === 'https' ? 'https' : 'http';
  const authority = parseAuthority(parts[2] as string, defaultPort(scheme));
  if (authority === undefined) return malformed('the request target holds no valid host');
  return splitPath(parts[3] as string, scheme, authority);
}

/** Visible ASCII only (RFC 3986 section 2); llhttp lets some others through. */
const PATH_AND_QUERY = /^[\x21\x22\x24-\x7e]*$/;

function splitPath(text: string, scheme: Scheme, authority: Authority): Target | Refusal {
  if (!PATH_AND_QUERY.test(text)) return malformed('the request target holds a character that a URI may not hold');
  const mark = text.indexOf('?');
  const path = mark < 0 ? text : text.slice(0, mark);
  if (hasDotSegment(path))
    return malformed('the path holds a dot segment, which an upstream may read in another way than its rule');
  return { scheme, authority, path: path === '' ? '/' : path, query: mark < 0 ? '' : text.slice(mark) };
}

const MAY_HOLD_DOTS = /\.|%(?:25)*2e/i;
const ENCODED_DOT = /%(?:25)*2e/gi;
/** What ends a segment for some reader: `/`, `\`, the `;` of a path parameter, and `?`, `#`, NUL once decoded. */
const ENCODED_END = /%(?:25)*(?:2f|5c|3b|3f|23|00)/gi;

/**
 * A rule matches the path as sent, an upstream may resolve `/../` or `%2e%2e` first, or decode twice; so no such segment passes,
 * nor one in any of those disguises.
 */
function hasDotSegment(path: string): boolean {
  if (!MAY_HOLD_DOTS.test(path)) return false;
  const decoded = path.replace(ENCODED_DOT, '.').replace(ENCODED_END, '/');
  return /(?:^|[/\\;])\.\.?(?:$|[/\\;])/.test(decoded);
}

/** The port that a scheme means when none is written. */
function defaultPort(scheme: Scheme): number {
  return scheme === 'https' ? 443 : 80;
}

/** RFC 9112 section 3.2: exactly one Host (HTTP/1.0 and h2 may do without), and it agrees with the target or the tunnel. */
function hostTrouble(arrival: Arrival, target: Target): Refusal | undefined {
  const hosts = fieldValues(arrival.fields, 'host');
  if (hosts.length !== 1) {
    if (hosts.length === 0 && mayLackHost(arrival)) return undefined;
    return malformed(hosts.length === 0 ? 'the Host field is missing' : 'more than one Host field');
  }
  const scheme = target.scheme ?? (target.authority.port === 80 ? 'http' : 'https');
  if (isSpelledAs(hosts[0] as string, target.authority, defaultPort(scheme))) return undefined;
  const host = parseAuthority(hosts[0] as string, defaultPort(scheme));
  if (host === undefined) return malformed('the Host field holds no valid host');
  if (sameAuthority(host, target.authority)) return undefined;
  // Many clients write a CONNECT's Host without the port; the host alone must then agree.
  if (arrival.purpose === 'tunnel' && host.host === target.authority.host && !hasPort(hosts[0] as string)) return undefined;
  return new Refusal(
    'host_mismatch',
    `the Host field and the request disagree about the host: expected ${formatAuthority(target.authority)}`,
  );
}

/** HTTP/1.0 and HTTP/2 may, and TLS that was led here has no fields at all. */
function mayLackHost({ version, purpose, origin }: Arrival): boolean {
  return version === '2.0' || version === '1.0' || (purpose === 'tunnel' && origin !== undefined);
}

/** Whether the text is the authority in one of its two canonical spellings; nearly every Host is, and need not be parsed. */
function isSpelledAs(text: string, authority: Authority, schemePort: number): boolean {
  return authority.port === schemePort && text === authority.host
    ? !authority.host.includes(':')
    : text === formatAuthority(authority);
}

function hasPort(text: string): boolean {
  return /:\d*$/.test(text.slice(text.indexOf(']') + 1));
}

/** Framing that llhttp accepts but that another reader may take differently (faults D01, D02). */
function framingTrouble(arrival: Arrival): Refusal | undefined {
  const lengths = fieldValues(arrival.fields, 'content-length');
  if (lengths.length > 1 || (lengths[0] !== undefined && !/^(?:0|[1-9]\d{0,15})$/.test(lengths[0]))) {
    return malformed('Content-Length is not one plain decimal number');
  }
  const codings = fieldValues(arrival.fields, 'transfer-encoding');
  if (codings.length === 0) return undefined;
  if (arrival.version !== '1.1') return malformed('Transfer-Encoding needs HTTP/1.1');
  if (codings.length > 1 || (codings[0] as string).toLowerCase() !== 'chunked')
    return malformed('the only transfer coding is chunked');
  if (lengths.length > 0) return malformed('Content-Length beside Transfer-Encoding');
  return undefined;
}

/** What follows a CONNECT or a WebSocket handshake belongs to the new protocol; announced as a body too, it could be read twice. */
function contentTrouble(arrival: Arrival): Refusal | undefined {
  if (arrival.purpose === 'exchange') return undefined;
  const length = fieldValues(arrival.fields, 'content-length')[0] ?? '0';
  if (length === '0' && fieldValues(arrival.fields, 'transfer-encoding').length === 0) return undefined;
  return malformed('a request to change the protocol has no body');
}

const FORBIDDEN_METHODS: ReadonlySet<string> = new Set(['TRACE', 'TRACK']);

function methodTrouble(arrival: Arrival): Refusal | undefined {
  if (FORBIDDEN_METHODS.has(arrival.method.toUpperCase())) {
    return new Refusal('method_forbidden', `${arrival.method.toUpperCase()} would reflect what is put on at the door`);
  }
  if (!isFieldName(arrival.method)) return malformed('the method is not a token');
  if (arrival.method === 'OPTIONS' && fieldValues(arrival.fields, 'max-forwards').some((value) => /^\s*0+\s*$/.test(value))) {
    return new Refusal('method_forbidden', 'OPTIONS that ends at the proxy is not answered');
  }
  if ((arrival.method === 'CONNECT') !== (arrival.purpose === 'tunnel'))
    return malformed('CONNECT opens a tunnel and does nothing else');
  const expectations = fieldValues(arrival.fields, 'expect');
  if (expectations.length === 0) return undefined;
  if (expectations.length === 1 && (expectations[0] as string).toLowerCase() === '100-continue') return undefined;
  return new Refusal('expectation_failed', 'the only known expectation is 100-continue');
}

function upgradeTrouble(arrival: Arrival): Refusal | undefined {
  if (arrival.purpose !== 'upgrade') return undefined;
  // An extended CONNECT (RFC 8441) has said so in its `:protocol`.
  if (arrival.pseudo !== undefined) return undefined;
  const wanted = fieldValues(arrival.fields, 'upgrade').flatMap(listMembers);
  if (wanted.length !== 1 || wanted[0] !== 'websocket') return malformed('the only upgrade let through is to websocket');
  if (arrival.method !== 'GET') return malformed('a WebSocket handshake is a GET');
  return undefined;
}
