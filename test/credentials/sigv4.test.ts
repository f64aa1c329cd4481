// The signature beside the official signer's, on the same requests: what that one would send is what we must send.
// Paths and queries are given to it in the form it takes them, decoded and by name; to ours as they stand on the wire.
import { createHash } from 'node:crypto';
import { SignatureV4 } from '@smithy/signature-v4';
import { Sha256 } from '@aws-crypto/sha256-js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Fault } from '../../src/exchange/codes.ts';
import { fieldValue, fieldValues } from '../../src/exchange/header-fields.ts';
import { EMPTY_PAYLOAD, payloadNeed, signSigV4, UNSIGNED_PAYLOAD, UNSIGNED_TRAILER } from '../../src/credentials/sigv4.ts';
import type { SigV4Keys, SigV4Request } from '../../src/credentials/sigv4.ts';

const NOW = Date.UTC(2026, 8, 24, 7, 8, 9, 123);
const KEYS: SigV4Keys = {
  accessKeyId: 'AKIDEXAMPLE',
  secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
  sessionToken: undefined,
  region: 'eu-central-1',
  service: 'execute-api',
};
const S3 = { ...KEYS, service: 's3' };
const HOST = ['Host', 'bucket.s3.eu-central-1.amazonaws.com'];

function request(over: Partial<SigV4Request> = {}): SigV4Request {
  return { method: 'GET', scheme: 'https', path: '/', query: '', fields: HOST, ...over };
}

interface Official {
  readonly method?: string;
  readonly path?: string;
  readonly query?: Record<string, string | string[]>;
  readonly headers?: Record<string, string>;
}

/** The Authorization that the official signer gives. */
async function official(keys: SigV4Keys, { method = 'GET', path = '/', query = {}, headers = {} }: Official): Promise<string> {
  const { accessKeyId, secretAccessKey, sessionToken, region, service } = keys;
  const signer = new SignatureV4({
    credentials: { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) },
    region,
    service,
    sha256: Sha256,
    uriEscapePath: service !== 's3',
  });
  const signed = await signer.sign(
    {
      method,
      protocol: 'https:',
      hostname: 'unused',
      path,
      query,
      headers: { host: 'bucket.s3.eu-central-1.amazonaws.com', ...headers },
    },
    { signingDate: new Date(NOW) },
  );
  return signed.headers['authorization'] as string;
}

function ours(keys: SigV4Keys, over: Partial<SigV4Request>, payloadHash = EMPTY_PAYLOAD): string {
  return fieldValue(signSigV4(request(over), keys, { now: NOW, payloadHash }).fields, 'authorization') as string;
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

describe('signing, beside the official signer', () => {
  const paths = [
    '/',
    '/plain',
    '/folder/',
    '//',
    '//double//slash//',
    '/a/./b/../c',
    '/a/..',
    '/../above',
    '/%20blank%20',
    '/caf%C3%A9/%E2%98%83',
    '/caf%c3%a9',
    '/a%2Fb',
    '/a%252Fb',
    '/model/vendor.name-v2%3A1/invoke',
    "/!'()*~-._",
    '/plus+and=equals&and;semi,comma:colon@at$dollar',
    '/...',
    '/.well-known/',
  ];
  it.each(paths)('signs the path %s for a service that encodes twice', async (path) => {
    expect(ours(KEYS, { path })).toBe(await official(KEYS, { path }));
  });
  it.each(paths)('signs the path %s as it stands for S3', async (path) => {
    expect(ours(S3, { path })).toBe(await official(S3, { path }));
  });

  it.each<[wire: string, query: Record<string, string | string[]>]>([
    ['', {}],
    ['?', {}],
    ['?a=1', { a: '1' }],
    ['?b=2&a=1', { a: '1', b: '2' }],
    ['?a=2&a=1&a=10', { a: ['2', '1', '10'] }],
    ['?a=&a=x', { a: ['', 'x'] }],
    ['?acl', { acl: '' }],
    ['?acl=', { acl: '' }],
    ['?a=1&&b=2&', { a: '1', b: '2' }],
    ['?=value', { '': 'value' }],
    ['?a=b=c==', { a: 'b=c==' }],
    ['?a-b=1&a=2&a.b=3&aB=4&A=5', { 'a-b': '1', a: '2', 'a.b': '3', aB: '4', A: '5' }],
    ['?q=a%20b', { q: 'a b' }],
    ['?q=a+b', { q: 'a b' }],
    ['?q=a%2Bb', { q: 'a+b' }],
    ['?q=%2fslash%2F/raw', { q: '/slash//raw' }],
    ['?q=caf%c3%a9%E2%98%83', { q: 'café☃' }],
    ['?na%20me=%26%3D%25', { 'na me': '&=%' }],
    ["?q=!'()*~-._", { q: "!'()*~-._" }],
    ['?q=%41%7e', { q: 'A~' }],
    ['?q=100%', { q: '100%' }],
    ['?q=%zz', { q: '%zz' }],
    ['?list-type=2&prefix=a/b&delimiter=/', { 'list-type': '2', prefix: 'a/b', delimiter: '/' }],
    ['?x-amz-meta=kept', { 'x-amz-meta': 'kept' }],
  ])('signs the query %j', async (wire, query) => {
    for (const keys of [KEYS, S3]) expect(ours(keys, { query: wire })).toBe(await official(keys, { query }));
  });

  it.each<[name: string, fields: string[], headers: Record<string, string>]>([
    [
      'trims a value and makes runs of blanks one',
      ['X-Amz-Meta-Note', '  a   b\t\tc  '],
      { 'x-amz-meta-note': '  a   b\t\tc  ' },
    ],
    ['keeps the blanks of a quoted value no more than others', ['X-Amz-Meta-Q', '"a   b"'], { 'x-amz-meta-q': '"a   b"' }],
    ['signs an empty value', ['x-amz-meta-empty', ''], { 'x-amz-meta-empty': '' }],
    ['joins two fields of one name', ['X-Amz-Meta-A', 'one', 'x-amz-meta-a', 'two'], { 'x-amz-meta-a': 'one,two' }],
    [
      'signs the content type',
      ['Content-Type', 'application/json; charset=utf-8'],
      { 'content-type': 'application/json; charset=utf-8' },
    ],
    [
      'sorts names',
      ['X-Amz-Target', 'T', 'Content-Type', 'a', 'X-Amz-Acl', 'private'],
      { 'x-amz-target': 'T', 'content-type': 'a', 'x-amz-acl': 'private' },
    ],
    ['leaves a field of no account unsigned', ['User-Agent', 'curl'], {}],
    ['leaves a trace id unsigned', ['X-Amzn-Trace-Id', 'Root=1'], {}],
  ])('%s', async (_, fields, headers) => {
    for (const keys of [KEYS, S3]) expect(ours(keys, { fields: [...HOST, ...fields] })).toBe(await official(keys, { headers }));
  });

  it('signs the bytes of a value beyond ASCII', async () => {
    const wire = Buffer.from('café').toString('latin1');
    const headers = { 'x-amz-meta-note': 'café' };
    expect(ours(S3, { fields: [...HOST, 'x-amz-meta-note', wire] })).toBe(await official(S3, { headers }));
  });

  it('signs with a session token, which goes along', async () => {
    const keys = { ...KEYS, sessionToken: 'token/with+signs==' };
    expect(ours(keys, {})).toBe(await official(keys, {}));
    const { fields } = signSigV4(request(), keys, { now: NOW, payloadHash: EMPTY_PAYLOAD });
    expect(fieldValues(fields, 'x-amz-security-token')).toEqual(['token/with+signs==']);
  });

  it.each(['a body', '{"k":"é"}'])('signs the hash of the body %j', async (body) => {
    const headers = { 'content-type': 'application/json', 'x-amz-content-sha256': sha256(body) };
    const fields = [...HOST, 'Content-Type', 'application/json'];
    for (const keys of [KEYS, S3])
      expect(ours(keys, { method: 'POST', fields }, sha256(body))).toBe(await official(keys, { method: 'POST', headers }));
  });

  it.each([UNSIGNED_PAYLOAD, UNSIGNED_TRAILER])('signs %s for S3', async (payloadHash) => {
    const headers = { 'x-amz-content-sha256': payloadHash };
    expect(ours(S3, { method: 'PUT' }, payloadHash)).toBe(await official(S3, { method: 'PUT', headers }));
  });

  it('agrees on queries and values of any text', async () => {
    const name = fc.string({ minLength: 1, unit: 'grapheme' }).filter((text) => text !== '__proto__');
    const value = fc.string({ unit: 'grapheme' });
    const query = fc.dictionary(name, fc.array(value, { minLength: 1, maxLength: 3 }), { maxKeys: 4 });
    await fc.assert(
      fc.asyncProperty(query, async (parsed) => {
        const own = Object.keys(parsed).filter((key) => !/^x-amz-/i.test(key));
        const wire = own.flatMap((key) =>
          (parsed[key] as string[]).map((v) => `${encodeURIComponent(key)}=${encodeURIComponent(v)}`),
        );
        const theirs = Object.fromEntries(own.map((key) => [key, parsed[key] as string[]]));
        expect(ours(KEYS, { query: `?${wire.join('&')}` })).toBe(await official(KEYS, { query: theirs }));
      }),
      { numRuns: 200 },
    );
  });
});

describe("the sandbox's own signature", () => {
  it('is gone from the fields, however its names are spelled', () => {
    const fields = [...HOST, 'AUTHORIZATION', 'theirs', 'x-amz-date', 'theirs', 'X-Amz-Security-Token', 'theirs'];
    fields.push('X_Amz_Content_Sha256', 'theirs', 'Accept', '*/*');
    const signed = signSigV4(request({ fields }), KEYS, { now: NOW, payloadHash: EMPTY_PAYLOAD });
    expect(signed.fields.join('\n')).not.toContain('theirs');
    expect(fieldValues(signed.fields, 'authorization')).toHaveLength(1);
    expect(fieldValues(signed.fields, 'x-amz-date')).toEqual(['20260924T070809Z']);
    expect(fieldValues(signed.fields, 'accept')).toEqual(['*/*']);
  });

  it.each([
    {
      name: 'is gone from a query that was signed',
      query:
        '?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=A%2F20260924&X-Amz-Date=20260924T000000Z&X-Amz-Expires=60' +
        '&X-Amz-SignedHeaders=host&versionId=3&X-Amz-Signature=ab&X-Amz-Security-Token=t&X-Amz-Content-Sha256=UNSIGNED-PAYLOAD',
      left: '?versionId=3',
    },
    { name: 'takes the question mark with it', query: '?X-Amz-Signature=ab', left: '' },
    { name: 'is known in another case', query: '?a=1&x-amz-SIGNATURE=ab', left: '?a=1' },
    { name: 'is known in escapes', query: '?X%2dAmz%2DSignature=ab&a=1', left: '?a=1' },
    { name: 'is known letter by letter', query: '?a=1&%58-%41%6d%7a-Signature=ab', left: '?a=1' },
    { name: 'leaves everything else to the byte', query: '?b=%7e&&a=+&X-Amz-Sig=kept&', left: '?b=%7e&&a=+&X-Amz-Sig=kept&' },
  ])('$name', ({ query, left }) => {
    const signed = signSigV4(request({ query }), S3, { now: NOW, payloadHash: EMPTY_PAYLOAD });
    expect(signed.query).toBe(left);
    expect(fieldValue(signed.fields, 'authorization')).toBe(ours(S3, { query: left }));
  });
});

describe('the payload', () => {
  const declaring = (hash: string): readonly string[] => [...HOST, 'x-amz-content-sha256', hash];
  it.each<{ name: string; over?: Partial<SigV4Request>; service: string; body?: false; need: string }>([
    { name: 'is empty without a body', service: 's3', body: false, need: 'empty' },
    { name: 'may go unread to S3 over https', service: 's3', need: 'unsigned' },
    { name: 'is hashed for S3 over http', over: { scheme: 'http' }, service: 's3', need: 'hash' },
    { name: 'is hashed for any other service', service: 'execute-api', need: 'hash' },
    { name: 'is hashed for a service that only sounds like S3', service: 's3tables', need: 'hash' },
    {
      name: "keeps S3's unsigned chunks",
      over: { fields: declaring(UNSIGNED_TRAILER) },
      service: 's3',
      need: 'unsigned_trailer',
    },
    {
      name: 'cannot be unsigned chunks over http',
      over: { scheme: 'http', fields: declaring(UNSIGNED_TRAILER) },
      service: 's3',
      need: 'signed_chunks',
    },
    {
      name: 'cannot be chunks signed by the sandbox',
      over: { fields: declaring('STREAMING-AWS4-HMAC-SHA256-PAYLOAD') },
      service: 's3',
      need: 'signed_chunks',
    },
    {
      name: "ignores the sandbox's own hash",
      over: { fields: declaring('0'.repeat(64)) },
      service: 'execute-api',
      need: 'hash',
    },
  ])('$name', ({ over, service, body, need }) => {
    expect(payloadNeed(request(over), service, body ?? true)).toBe(need);
  });

  it.each<[name: string, over: Partial<SigV4Request>, keys: SigV4Keys, payloadHash: string]>([
    ['an unread body for another service', {}, KEYS, UNSIGNED_PAYLOAD],
    ['an unread body over http', { scheme: 'http' }, S3, UNSIGNED_PAYLOAD],
    ['unsigned chunks for another service', {}, KEYS, UNSIGNED_TRAILER],
    ['a hash in upper case', {}, KEYS, EMPTY_PAYLOAD.toUpperCase()],
    ['a hash with a digit too few', {}, KEYS, EMPTY_PAYLOAD.slice(1)],
    ['no hash', {}, KEYS, ''],
  ])('is refused: %s', (_, over, keys, payloadHash) => {
    const sign = (): unknown => signSigV4(request(over), keys, { now: NOW, payloadHash });
    expect(sign).toThrow(Fault);
    expect(sign).toThrow('without the hash of its body');
  });
});
