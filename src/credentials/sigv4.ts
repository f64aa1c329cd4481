// AWS Signature Version 4 in the header form: a request that the sandbox signed with keys of its own, or not at all, is signed anew.
// Pure: the same request, keys, time and payload hash give the same fields. It reads no clock and no body.
// It must never leave a part of the sandbox's own signature standing, and never sign a body unread where the service would not know it.
import { createHash, createHmac } from 'node:crypto';
import { Fault } from '../exchange/codes.ts';
import { fieldValue, looseName } from '../exchange/header-fields.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { Scheme } from '../exchange/stages.ts';

/** What stands for the hash where S3 is not told it. */
export const UNSIGNED_PAYLOAD = 'UNSIGNED-PAYLOAD';

/** What stands for the hash of a body in `aws-chunked` frames that bear no signatures, with a checksum in the trailer. */
export const UNSIGNED_TRAILER = 'STREAMING-UNSIGNED-PAYLOAD-TRAILER';

/** SHA-256 of nothing, in hex. */
export const EMPTY_PAYLOAD = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

/** The keys of one `aws_sigv4` credential, revealed. */
export interface SigV4Keys {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken: string | undefined;
  readonly region: string;
  readonly service: string;
}

/** A request as it will go upstream. */
export interface SigV4Request {
  readonly method: string;
  readonly scheme: Scheme;
  /** As on the wire */
  readonly path: string;
  /** With its `?`, or empty, as on the wire */
  readonly query: string;
  /** End-to-end fields, Host among them, in latin1 text */
  readonly fields: HeaderFields;
}

/** What the signature changes of a request. `fields` hold a signature and perhaps a session token: never log them. */
export interface SigV4Signed {
  readonly fields: HeaderFields;
  /** With its `?`, or empty; without what signed it before */
  readonly query: string;
}

/**
 * What has to be given as `payloadHash`: EMPTY_PAYLOAD, the hex SHA-256 of the whole body, UNSIGNED_PAYLOAD, or UNSIGNED_TRAILER.
 * `signed_chunks` cannot be signed at all: each chunk of the body bears a signature made with the sandbox's keys.
 */
export type PayloadNeed = 'empty' | 'hash' | 'unsigned' | 'unsigned_trailer' | 'signed_chunks';

/** Services that take a path as it stands and need not be told the hash of a body. */
const S3_LIKE: ReadonlySet<string> = new Set(['s3', 's3express', 's3-outposts', 's3-object-lambda']);

const SIGNATURE_FIELDS: ReadonlySet<string> = new Set([
  'authorization',
  'x-amz-date',
  'x-amz-security-token',
  'x-amz-content-sha256',
]);

const SIGNATURE_PARAMETERS: ReadonlySet<string> = new Set([
  'x-amz-algorithm',
  'x-amz-credential',
  'x-amz-date',
  'x-amz-expires',
  'x-amz-signedheaders',
  'x-amz-signature',
  'x-amz-security-token',
  'x-amz-content-sha256',
]);

const HEX_SHA256 = /^[0-9a-f]{64}$/;

/** What the payload of a request needs, so that a body is held and hashed only where the service insists. */
export function payloadNeed(request: SigV4Request, service: string, hasBody: boolean): PayloadNeed {
  const declared = fieldValue(request.fields, 'x-amz-content-sha256') ?? '';
  const mayStream = S3_LIKE.has(service) && request.scheme === 'https';
  if (declared.startsWith('STREAMING-')) return declared === UNSIGNED_TRAILER && mayStream ? 'unsigned_trailer' : 'signed_chunks';
  if (!hasBody) return 'empty';
  return mayStream ? 'unsigned' : 'hash';
}

/**
 * Signs: the fields and the query to send in place of the request's own. The path goes on the wire as it is.
 * `now` in ms since 1970. Throws the fault `credential_unavailable` where the payload hash is none that this request may have.
 */
export function signSigV4(request: SigV4Request, keys: SigV4Keys, stamp: { now: number; payloadHash: string }): SigV4Signed {
  const { payloadHash } = stamp;
  refuseUnfit(request, keys.service, payloadHash);
  const amzDate = new Date(stamp.now).toISOString().replace(/[-:]|\.\d+/g, '');
  const query = withoutSignature(request.query);
  const fields = request.fields.filter((_, i, all) => !SIGNATURE_FIELDS.has(looseName(all[i - (i % 2)] ?? '')));
  fields.push('X-Amz-Date', amzDate, 'X-Amz-Content-Sha256', payloadHash);
  if (keys.sessionToken !== undefined) fields.push('X-Amz-Security-Token', keys.sessionToken);

  const headers = canonicalHeaders(fields);
  const signed = headers.map(([name]) => name).join(';');
  const canonical = [
    request.method,
    canonicalPath(request.path, keys.service),
    canonicalQuery(query),
    ...headers.map(([name, value]) => `${name}:${value}`),
    '',
    signed,
    payloadHash,
  ].join('\n');
  const scope = `${amzDate.slice(0, 8)}/${keys.region}/${keys.service}/aws4_request`;
  // latin1: what the service hashes is the bytes on the wire, and that is how fields hold them.
  const digest = createHash('sha256').update(canonical, 'latin1').digest('hex');
  const signature = hmac(signingKey(keys, scope), `AWS4-HMAC-SHA256\n${amzDate}\n${scope}\n${digest}`).toString('hex');
  const credential = `Credential=${keys.accessKeyId}/${scope}`;
  fields.push('Authorization', `AWS4-HMAC-SHA256 ${credential}, SignedHeaders=${signed}, Signature=${signature}`);
  return { fields, query };
}

function refuseUnfit(request: SigV4Request, service: string, payloadHash: string): void {
  const unread = payloadHash === UNSIGNED_PAYLOAD || payloadHash === UNSIGNED_TRAILER;
  if (unread ? S3_LIKE.has(service) && request.scheme === 'https' : HEX_SHA256.test(payloadHash)) return;
  throw new Fault('credential_unavailable', 'the request cannot be signed without the hash of its body');
}

function hmac(key: Buffer | string, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

function signingKey(keys: SigV4Keys, scope: string): Buffer {
  let key: Buffer | string = `AWS4${keys.secretAccessKey}`;
  for (const part of scope.split('/')) key = hmac(key, part);
  return key as Buffer;
}

/** Names sorted; several fields of one name as one, comma-separated; blanks inside a value as one. */
function canonicalHeaders(fields: HeaderFields): [name: string, value: string][] {
  const byName = new Map<string, string>();
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = (fields[i] as string).toLowerCase();
    if (name !== 'host' && name !== 'content-type' && !name.startsWith('x-amz-')) continue;
    const value = (fields[i + 1] as string).replace(/[ \t]+/g, ' ').replace(/^ | $/g, '');
    const before = byName.get(name);
    byName.set(name, before === undefined ? value : `${before},${value}`);
  }
  return [...byName].sort(([a], [b]) => (a < b ? -1 : 1));
}

/** S3 takes the path as it stands; every other service resolves dots and empty segments and encodes what is encoded already. */
function canonicalPath(path: string, service: string): string {
  if (S3_LIKE.has(service)) return path === '' ? '/' : path;
  const segments: string[] = [];
  for (const segment of path.split('/')) {
    if (segment === '..') segments.pop();
    else if (segment !== '' && segment !== '.') segments.push(encodeURIComponent(segment).replace(UNENCODED, percentEncoded));
  }
  return segments.length === 0 ? '/' : `/${segments.join('/')}${path.endsWith('/') ? '/' : ''}`;
}

/** What encodeURIComponent leaves and RFC 3986 reserves. */
const UNENCODED = /[!'()*]/g;

function percentEncoded(character: string): string {
  return `%${character.charCodeAt(0).toString(16).toUpperCase()}`;
}

function parameters(query: string): string[] {
  return query
    .replace(/^\?/, '')
    .split('&')
    .filter((parameter) => parameter !== '');
}

/** The query as it was, byte for byte, but for the parameters that signed it; a query without any stays exactly the same. */
function withoutSignature(query: string): string {
  if (!/amz/i.test(query) && !query.includes('%')) return query;
  const all = query.replace(/^\?/, '').split('&');
  const kept = all.filter((parameter) => !SIGNATURE_PARAMETERS.has(normalised(nameOf(parameter)).toLowerCase()));
  if (kept.length === all.length) return query;
  return kept.length === 0 ? '' : `?${kept.join('&')}`;
}

function nameOf(parameter: string): string {
  const equals = parameter.indexOf('=');
  return equals < 0 ? parameter : parameter.slice(0, equals);
}

/** Sorted by name, then value, both encoded; a parameter without `=` has an empty value. */
function canonicalQuery(query: string): string {
  return parameters(query)
    .map((parameter) => {
      const name = nameOf(parameter);
      return [normalised(name), normalised(parameter.slice(name.length + 1))] as const;
    })
    .sort(([a, x], [b, y]) => (a === b ? compare(x, y) : compare(a, b)))
    .map(([name, value]) => `${name}=${value}`)
    .join('&');
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

const UNRESERVED_ONLY = /^[A-Za-z0-9._~-]*$/;
const ESCAPE = /^%./;

/**
 * Decoded and encoded again, so that there is one spelling: upper-case hex, nothing encoded that need not be, everything else encoded.
 * A `+` is a blank, as the services read it; a `%` that begins no escape is itself.
 */
function normalised(text: string): string {
  if (UNRESERVED_ONLY.test(text)) return text;
  return text.replace(/%[0-9A-Fa-f]{2}|[^A-Za-z0-9._~-]/gu, (found) => {
    if (found === '+') return '%20';
    if (!ESCAPE.test(found)) return encodeURIComponent(found).replace(UNENCODED, percentEncoded);
    const decoded = String.fromCharCode(Number.parseInt(found.slice(1), 16));
    return UNRESERVED_ONLY.test(decoded) ? decoded : found.toUpperCase();
  });
}
