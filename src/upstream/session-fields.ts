// A request's fields as HTTP/2 has them: pseudo-header fields first, lower case, nothing that belongs to one connection (RFC 9113 section 8).
// It must never drop a duplicate, and never take the authority from anywhere but the Host that the credentials room built.
import type { OutgoingHttpHeaders } from 'node:http2';
import { fieldValues, listMembers } from '../exchange/header-fields.ts';
import type { Scheme } from '../exchange/stages.ts';
import type { Outgoing } from './carrier.ts';

/** What says how a connection is used, and what is said in pseudo-header fields. */
const NOT_SENT: ReadonlySet<string> = new Set([
  'host',
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'te',
  'http2-settings',
]);

/** Fields of an extended CONNECT that would only prove that the peer speaks WebSocket over HTTP/1.1 (RFC 8441 section 5). */
const KEY_FIELD = 'sec-websocket-key';

/** The fields of a request; several of one name become one list, in their order. */
export function sessionFields(request: Outgoing, scheme: Scheme): OutgoingHttpHeaders {
  const { headers, body } = request;
  const isUpgrade = request.upgrade !== undefined;
  const fields = Object.create(null) as OutgoingHttpHeaders;
  fields[':method'] = isUpgrade ? 'CONNECT' : request.method;
  if (isUpgrade) fields[':protocol'] = 'websocket';
  fields[':scheme'] = scheme;
  fields[':authority'] = undefined;
  fields[':path'] = request.path;
  for (let i = 0; i + 1 < headers.length; i += 2) {
    const name = (headers[i] as string).toLowerCase();
    const value = headers[i + 1] as string;
    if (name === 'host') fields[':authority'] ??= value;
    if (NOT_SENT.has(name) || (isUpgrade && name === KEY_FIELD)) continue;
    const before = fields[name];
    if (before === undefined) fields[name] = value;
    else if (Array.isArray(before)) before.push(value);
    else fields[name] = [String(before), value];
  }
  if (takesTrailers(request)) fields['te'] = 'trailers';
  if (body instanceof Buffer) fields['content-length'] ??= String(body.length);
  return fields;
}

/** The same with one value for each name, for a library that takes no second value of some (RFC 9110 section 5.3). */
export function joined(fields: OutgoingHttpHeaders): OutgoingHttpHeaders {
  const result = Object.create(null) as OutgoingHttpHeaders;
  for (const [name, value] of Object.entries(fields)) {
    result[name] = Array.isArray(value) ? value.join(name === 'cookie' ? '; ' : ', ') : value;
  }
  return result;
}

/** The one word of TE that HTTP/2 has; it is the sandbox's to say, for the trailers go to it. */
function takesTrailers({ arrival }: Outgoing): boolean {
  return fieldValues(arrival.fields, 'te').some((value) => listMembers(value).includes('trailers'));
}

/** The size of a header section as HTTP/2 counts it, in bytes (RFC 9113 section 6.5.2). */
export function sectionSize(raw: readonly string[]): number {
  let size = 0;
  for (const text of raw) size += text.length + 16;
  return size;
}
