// Fields as Node's HTTP/2 takes them: by lower-case name, several values of one name as a list. Pure.
// What belongs to a connection of HTTP/1.1 is never written (RFC 9113 section 8.2.2), and no duplicate is lost on the way.
import type { OutgoingHttpHeaders } from 'node:http2';
import type { HeaderFields } from '../exchange/header-fields.ts';

const CONNECTION_SPECIFIC: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
  'te',
]);

// Node throws at a second value of each of these.
const SINGLE: ReadonlySet<string> = new Set([
  'access-control-allow-credentials',
  'access-control-max-age',
  'access-control-request-method',
  'age',
  'authorization',
  'content-encoding',
  'content-language',
  'content-length',
  'content-location',
  'content-md5',
  'content-range',
  'content-type',
  'date',
  'dnt',
  'etag',
  'expires',
  'from',
  'host',
  'if-match',
  'if-modified-since',
  'if-none-match',
  'if-range',
  'if-unmodified-since',
  'last-modified',
  'location',
  'max-forwards',
  'proxy-authorization',
  'range',
  'referer',
  'retry-after',
  'tk',
  'upgrade-insecure-requests',
  'user-agent',
  'x-content-type-options',
]);

/** Statuses that no content goes with, so that a length would be missed. */
const NO_LENGTH: ReadonlySet<number> = new Set([204, 205]);

/** The field section of an answer's head. A status beyond 599, which HTTP/2 has no room for in Node, counts as 502 (RFC 9110 section 15). */
export function headSection(status: number, fields: HeaderFields): OutgoingHttpHeaders {
  const section = collect(fields);
  section[':status'] = status > 599 ? 502 : status;
  if (NO_LENGTH.has(status) || status < 200) delete section['content-length'];
  return section;
}

/** A trailer section. */
export function trailerSection(fields: HeaderFields): OutgoingHttpHeaders {
  return collect(fields);
}

function collect(fields: HeaderFields): OutgoingHttpHeaders {
  // Without a prototype: a field may be called as a property of every object is.
  const section = Object.create(null) as OutgoingHttpHeaders;
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = (fields[i] as string).toLowerCase();
    const value = fields[i + 1] as string;
    if (CONNECTION_SPECIFIC.has(name) || name.startsWith(':')) continue;
    const before = section[name];
    if (before === undefined) section[name] = value;
    else section[name] = SINGLE.has(name) ? joined(String(before), value) : ([...[before].flat(), value] as string[]);
  }
  return section;
}

/** One line for several (RFC 9110 section 5.3); the same again says nothing new. */
function joined(before: string, value: string): string {
  return before === value ? before : `${before}, ${value}`;
}
