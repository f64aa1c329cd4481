// Header fields as they travel: one flat list, name then value, in wire order, duplicates kept.
// It must never pass through a map on the way: Node's own `headers` object drops duplicates silently (fault E03).

/** `[name, value, name, value, …]` in wire order and wire case. */
export type HeaderFields = readonly string[];

/** Every value of a field, in order. `name` is lower case. */
export function fieldValues(fields: HeaderFields, name: string): string[] {
  const values: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const candidate = fields[i] as string;
    if (candidate.length === name.length && candidate.toLowerCase() === name) values.push(fields[i + 1] as string);
  }
  return values;
}

/** The first value of a field, if any. `name` is lower case. */
export function fieldValue(fields: HeaderFields, name: string): string | undefined {
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const candidate = fields[i] as string;
    if (candidate.length === name.length && candidate.toLowerCase() === name) return fields[i + 1];
  }
  return undefined;
}

/**
 * A field name as upstreams tell names apart: lower case, and `_` as `-`, for what came through CGI, WSGI or Rack has lost the difference
 * (`X_Api_Key` there stands for `X-Api-Key`).
 */
export function looseName(name: string): string {
  const lower = name.toLowerCase();
  return lower.includes('_') ? lower.replaceAll('_', '-') : lower;
}

/** The members of a comma-separated list field (RFC 9110 section 5.6.1), lower case, empty ones dropped. */
export function listMembers(value: string): string[] {
  const members: string[] = [];
  for (const part of value.split(',')) {
    const member = part.trim().toLowerCase();
    if (member !== '') members.push(member);
  }
  return members;
}

/** Fields that end at the next hop (RFC 9110 section 7.6.1) and the ones a proxy consumes. */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authorization',
  'proxy-authenticate',
  'proxy-authentication-info',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);

/** Fields that a Connection field cannot nominate away: routing and framing belong to the message (fault E02). */
const NOT_NOMINABLE: ReadonlySet<string> = new Set(['host', 'content-length', 'content-type', 'cache-control']);

/**
 * The fields that go on to the next hop: hop-by-hop ones and those that Connection nominates are left out, and every name
 * in `dropped` with them, which are names as `looseName` gives them. They are appended to `kept`, which is returned.
 */
export function endToEndFields(fields: HeaderFields, dropped: ReadonlySet<string>, kept: string[] = []): string[] {
  const nominated = nominatedFields(fields);
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i] as string;
    const loose = looseName(name);
    if (HOP_BY_HOP.has(loose) || dropped.has(loose) || nominated?.has(loose)) continue;
    kept.push(name, fields[i + 1] as string);
  }
  return kept;
}

function nominatedFields(fields: HeaderFields): Set<string> | undefined {
  let nominated: Set<string> | undefined;
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i] as string;
    if (name.length !== 10 || name.toLowerCase() !== 'connection') continue;
    for (const member of listMembers(fields[i + 1] as string)) {
      if (member === 'close' || member === 'keep-alive' || NOT_NOMINABLE.has(member)) continue;
      (nominated ??= new Set()).add(looseName(member));
    }
  }
  return nominated;
}

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Whether the text is a field name: an RFC 9110 token. */
export function isFieldName(text: string): boolean {
  return TOKEN.test(text);
}

/** Whether the text can stand as a field value: no CR, LF, NUL or other control, nothing beyond latin1 (fault E08). */
export function isFieldValue(text: string): boolean {
  return VALUE.test(text);
}

// Many upstreams act on these in place of the request line, so a rule that names methods or paths hears them too.
const OVERRIDES: Readonly<Record<'method' | 'path', ReadonlySet<string>>> = {
  method: new Set(['x-http-method-override', 'x-http-method', 'x-method-override']),
  path: new Set(['x-original-url', 'x-original-uri', 'x-rewrite-url']),
};

/** What fields ask for in place of the request line's method or path, trimmed and in upper case. */
export function overrides(fields: HeaderFields, of: 'method' | 'path'): string[] {
  const names = OVERRIDES[of];
  const values: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if (names.has(looseName(fields[i] as string))) values.push((fields[i + 1] as string).trim().toUpperCase());
  }
  return values;
}
