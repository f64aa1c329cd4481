// Requests signed anew at the door, through real sockets: what the upstream gets is signed as the official signer signs it, with our keys
// and over what really arrives; the sandbox's own signature is gone, and the keys never come back.
import { createHash } from 'node:crypto';
import { Sha256 } from '@aws-crypto/sha256-js';
import { SignatureV4 } from '@smithy/signature-v4';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Answering, Outside, Seen, Upstream } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';
import type { Answer } from '../support/sandbox-client.ts';

const KEYS = {
  accessKeyId: 'AKIDEXAMPLE',
  secretAccessKey: 'marker-secret-access-key/0123456789',
  sessionToken: 'marker-session-token-01',
};
/** 2026-03-01T12:00:00Z, the clock of the door */
const NOW = Date.UTC(2026, 2, 1, 12);
const MIB = 1024 * 1024;

let outside: Outside;
let upstream: Upstream;
let house: House;

/** Gives back what came in, and, like a careless service, what it knows of the keys. */
const reflect: Answering = (seen, response) => {
  const body = JSON.stringify({ fields: seen.fields, secret: KEYS.secretAccessKey, token: KEYS.sessionToken });
  response.writeHead(200, { 'content-type': 'application/json', 'x-secret': KEYS.secretAccessKey }).end(body);
};

beforeAll(async () => {
  outside = await openOutside();
  upstream = await startUpstream({ tls: outside, answer: reflect });
  const here = { ports: [upstream.port], addresses: LOOPBACK, redact: true };
  const aws = (service: string, more: object = {}) => ({
    type: 'aws_sigv4',
    access_key_id: KEYS.accessKeyId,
    secret_access_key: { env: 'AWS_SECRET' },
    region: 'eu-central-1',
    service,
    ...more,
  });
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      credentials: {
        s3: aws('s3'),
        dynamo: aws('dynamodb'),
        temporary: aws('dynamodb', { session_token: KEYS.sessionToken }),
        unset: aws('s3', { secret_access_key: { env: 'NOT_SET' } }),
      },
      network: {
        allowlist: [
          { domain: 's3.test', credential: 's3', ...here },
          { domain: 'dynamo.test', credential: 'dynamo', ...here },
          { domain: 'temporary.test', credential: 'temporary', ...here },
          { domain: 'labelled.test', credential: 'dynamo', transform: { 'X-Amz-Meta-Team': 'red' }, ...here },
          { domain: 'over.test', credential: 's3', transform: { Authorization: 'Bearer marker-transform-01' }, ...here },
          { domain: 'replace.test', credential: 's3', mode: 'replace', ...here },
          { domain: 'absent.test', credential: 's3', mode: 'if_absent', ...here },
          { domain: 'unset.test', credential: 'unset', ...here },
        ],
      },
    },
    { names: new Proxy({}, { get: () => ['127.0.0.1'] }), env: { AWS_SECRET: KEYS.secretAccessKey }, now: () => NOW },
  );
});

afterAll(async () => {
  await house.stop();
  await upstream.close();
  await outside.close();
});

async function send(host: string, path: string, lines: readonly string[] = [], body?: string): Promise<Answer> {
  const framing =
    body === undefined || lines.some((line) => /^transfer-encoding/i.test(line)) ? [] : [`Content-Length: ${body.length}`];
  const fields = [...lines, ...framing].map((line) => `${line}\r\n`).join('');
  return ask(house, `https://${host}.test:${upstream.port}${path}`, {
    method: body === undefined ? 'GET' : 'PUT',
    fields,
    body: body ?? '',
  });
}

const lastSeen = (): Seen => upstream.seen.at(-1) as Seen;
const one = (seen: Seen, name: string): string | undefined => valuesOf(seen.fields, name)[0];

/** The Authorization that the official signer gives to what arrived. */
async function officially(seen: Seen, { service, keys }: { readonly service: string; readonly keys: object }): Promise<string> {
  const signer = new SignatureV4({
    credentials: { accessKeyId: KEYS.accessKeyId, secretAccessKey: KEYS.secretAccessKey, ...keys },
    region: 'eu-central-1',
    service,
    sha256: Sha256,
    uriEscapePath: service !== 's3',
    applyChecksum: false,
  });
  const names = /SignedHeaders=([^,]*)/.exec(one(seen, 'authorization') ?? '')?.[1]?.split(';') ?? [];
  const headers = Object.fromEntries(
    names.filter((name) => !/^x-amz-(?:date|security-token)$/.test(name)).map((name) => [name, one(seen, name) ?? '']),
  );
  const url = new URL(`https://${one(seen, 'host') ?? ''}${seen.url}`);
  const query: Record<string, string> = Object.fromEntries(url.searchParams);
  const signed = await signer.sign(
    { method: seen.method, protocol: 'https:', hostname: url.hostname, path: url.pathname, query, headers, body: seen.body },
    { signingDate: new Date(NOW) },
  );
  return signed.headers['authorization'] ?? '';
}

const OWN = [
  'Authorization: AWS4-HMAC-SHA256 Credential=SANDBOX/20260301/eu-central-1/s3/aws4_request, SignedHeaders=host, Signature=00',
  'X-Amz-Date: 20250101T000000Z',
  'X-Amz-Security-Token: of-the-sandbox',
];

describe('a request is signed with our keys, over what goes out,', () => {
  it.each<{
    name: string;
    host: string;
    service?: string;
    keys?: object;
    path?: string;
    lines?: string[];
    body?: string;
    hash: string;
  }>([
    { name: 'without a body', host: 's3', path: '/bucket/a%20b?list-type=2&prefix=x%2Fy', hash: sha256('') },
    { name: 'in place of its own signature', host: 's3', path: '/bucket/key', lines: OWN, hash: sha256('') },
    {
      name: 'to S3 with a body that is not read for it',
      host: 's3',
      path: '/bucket/key',
      body: 'x'.repeat(2 * MIB),
      hash: 'UNSIGNED-PAYLOAD',
    },
    {
      name: 'with the hash of its body',
      host: 'dynamo',
      service: 'dynamodb',
      lines: ['Content-Type: application/x-amz-json-1.0', 'X-Amz-Target: D.List'],
      body: '{"a":1}',
      hash: sha256('{"a":1}'),
    },
    {
      name: 'with the hash of a body in chunks',
      host: 'dynamo',
      service: 'dynamodb',
      lines: ['Transfer-Encoding: chunked'],
      body: '3\r\nabc\r\n0\r\n\r\n',
      hash: sha256('abc'),
    },
    {
      name: 'with the hash of the largest body that is held',
      host: 'dynamo',
      service: 'dynamodb',
      body: 'y'.repeat(MIB),
      hash: sha256('y'.repeat(MIB)),
    },
    {
      name: 'with a session token',
      host: 'temporary',
      service: 'dynamodb',
      keys: { sessionToken: KEYS.sessionToken },
      body: '{}',
      hash: sha256('{}'),
    },
    { name: 'with what a transform has put on', host: 'labelled', service: 'dynamodb', body: '{}', hash: sha256('{}') },
    { name: 'under `replace`, where it bears a signature', host: 'replace', lines: OWN, hash: sha256('') },
    { name: 'under `if_absent`, where it bears none', host: 'absent', hash: sha256('') },
  ])('$name', async ({ host, service = 's3', keys = {}, path = '/', lines, body, hash }) => {
    const answer = await send(host, path, lines, body);
    expect(answer.status).toBe(200);
    const seen = lastSeen();
    expect(valuesOf(seen.fields, 'x-amz-date')).toEqual(['20260301T120000Z']);
    expect(valuesOf(seen.fields, 'x-amz-content-sha256')).toEqual([hash]);
    expect(valuesOf(seen.fields, 'x-amz-security-token')).toEqual(Object.values(keys));
    expect(valuesOf(seen.fields, 'authorization')).toEqual([await officially(seen, { service, keys })]);
    expect(answer.body + answer.fields.join()).not.toContain(KEYS.secretAccessKey);
    expect(answer.headers['x-secret']).toBe('[redacted]');
  });

  it('also where the signature stood in the query', async () => {
    await send('s3', '/bucket/key?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=00&versionId=7');
    expect(lastSeen().url).toBe('/bucket/key?versionId=7');
    expect(valuesOf(lastSeen().fields, 'authorization')).toEqual([await officially(lastSeen(), { service: 's3', keys: {} })]);
  });

  it('and counts the credential in the ledger and the metrics', async () => {
    const before = house.outcomes.length;
    await send('dynamo', '/', [], '{}');
    const { trace } = await house.outcome(({ arrival }) => arrival.purpose === 'exchange', before);
    expect([trace.credentials, trace.bytesSent]).toEqual([['dynamo'], 2]);
  });
});

describe('a request is not signed', () => {
  it.each([
    { name: 'where a transform has its Authorization', host: 'over', lines: OWN, reach: ['Bearer marker-transform-01'] },
    { name: 'under `replace`, where it bears no signature', host: 'replace', lines: [], reach: [] },
    {
      name: 'under `if_absent`, where it bears one',
      host: 'absent',
      lines: OWN,
      reach: [OWN[0]?.replace('Authorization: ', '')],
    },
  ])('$name', async ({ host, lines, reach }) => {
    expect((await send(host, '/', lines)).status).toBe(200);
    expect(valuesOf(lastSeen().fields, 'authorization')).toEqual(reach);
  });
});

describe('a request is refused, and nothing of it sent,', () => {
  it.each([
    {
      name: 'whose body is too large to be held',
      host: 'dynamo',
      lines: [],
      body: 'z'.repeat(MIB + 1),
      says: 'over 1048576 bytes',
    },
    {
      name: 'whose body in chunks turns out too large',
      host: 'dynamo',
      lines: ['Transfer-Encoding: chunked'],
      body: `${(MIB + 1).toString(16)}\r\n${'z'.repeat(MIB + 1)}\r\n0\r\n\r\n`,
      says: 'over 1048576 bytes',
    },
    {
      name: 'whose chunks are signed by the sandbox',
      host: 's3',
      lines: ['X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD', 'Content-Encoding: aws-chunked'],
      body: '0;chunk-signature=00\r\n\r\n',
      says: 'aws-chunked',
    },
    { name: 'whose keys are not there', host: 'unset', lines: [], body: 'x', says: 'cannot be resolved' },
  ])('$name', async ({ host, lines, body, says }) => {
    const before = upstream.connections;
    const answer = await send(host, '/', lines, body);
    expect([answer.status, answer.headers['x-sallyport-reason']]).toEqual([502, 'credential_unavailable']);
    expect(answer.body).toContain(says);
    expect(answer.body).not.toContain('marker');
    expect(upstream.connections).toBe(before);
  });
});

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
