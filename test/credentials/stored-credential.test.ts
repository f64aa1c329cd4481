// Twin of src/credentials/stored-credential.ts, with credential-fields.ts: which bodies are taken, what a patch leaves as it was, and
// that neither a problem nor a view holds a secret.
import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { openCredential, readNew, readPatch, STORED_TYPES, view } from '../../src/credentials/stored-credential.ts';
import type { StoredRecord } from '../../src/exchange/records.ts';

const SECRET = 'marker-5512';

/** A body of each type, with a secret in every place that takes one. */
const BODIES: Readonly<Record<string, object>> = {
  bearer_token: { token: SECRET, header_name: 'x-goog-api-key', prefix: '' },
  basic: { username: SECRET, password: SECRET },
  header: { headers: { 'X-App-Key': SECRET, 'X-App-Id': 'agents' } },
  oauth2: {
    client_id: 'me',
    client_secret: SECRET,
    refresh_token: SECRET,
    token_url: 'https://login.test/token',
    scopes: ['a', 'b'],
  },
  environment_variable: { value: SECRET, injection_location: 'header', trusted_domains: ['*.slack.com', 'slack.com'] },
  aws_sigv4: { access_key_id: 'AKID', secret_access_key: SECRET, session_token: SECRET, region: 'eu-central-1', service: 's3' },
};

function problem(read: object): string {
  return 'problem' in read ? String(read.problem) : 'taken';
}

function recordOf(body: object): StoredRecord {
  const read = readNew(body);
  if ('problem' in read) throw new Error(read.problem);
  return {
    id: read.id,
    version: 1,
    value: read.value,
    createdAt: '2026-12-01T00:00:00.000Z',
    updatedAt: '2026-12-02T00:00:00.000Z',
  };
}

describe('a new credential', () => {
  it.each([...STORED_TYPES])('of type %s is taken, shown without its secrets, and opened with them', (type) => {
    const record = recordOf({ id: 'one', type, ...BODIES[type] });
    const shown = view(record);
    expect(shown).toMatchObject({
      id: 'one',
      type,
      status: 'active',
      create_time: record.createdAt,
      update_time: record.updatedAt,
    });
    expect(JSON.stringify(shown)).not.toContain(SECRET);
    const opened = openCredential(record);
    expect(opened).toMatchObject({ type });
    // A Secret shows nothing of itself, so that what shows one here holds it in the clear.
    expect(inspect(opened, { depth: 5 })).not.toContain(SECRET);
  });

  it.each([
    ['bearer_token', { header_name: 'x-goog-api-key', prefix: '' }],
    ['oauth2', { client_id: 'me', token_url: 'https://login.test/token', scopes: ['a', 'b'] }],
    ['environment_variable', { injection_location: ['header'], trusted_domains: ['*.slack.com', 'slack.com'] }],
    ['header', { header_names: ['X-App-Key', 'X-App-Id'] }],
    ['aws_sigv4', { access_key_id: 'AKID', region: 'eu-central-1', service: 's3' }],
  ])('of type %s shows what is no secret', (type, wanted) => {
    expect(view(recordOf({ type, ...BODIES[type] }))).toMatchObject(wanted);
  });

  it('has the standard header and prefix where the body names none', () => {
    expect(view(recordOf({ type: 'bearer_token', token: SECRET }))).toMatchObject({
      header_name: 'Authorization',
      prefix: 'Bearer',
    });
  });

  it('gets a UUID where the body names no id', () => {
    expect(recordOf({ type: 'bearer_token', token: 'a' }).id).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  });

  it('is kept without one trailing newline', () => {
    expect(recordOf({ type: 'bearer_token', token: 'a\n' }).value['token']).toBe('a');
  });

  const bearer = { type: 'bearer_token', token: SECRET };
  it.each([
    { name: 'a list', body: [], says: 'the body must be a JSON object' },
    { name: 'no body', body: undefined, says: 'the body must be a JSON object' },
    { name: 'no type', body: { token: SECRET }, says: /^"type" is missing; it is one of "bearer_token"/ },
    { name: 'a type that is misspelt', body: { type: 'bearer-token', token: SECRET }, says: /did you mean "bearer_token"\?/ },
    { name: 'a type of its own', body: { type: 'kerberos' }, says: /^"type" must be one of "bearer_token"/ },
    { name: 'a type from the prototype', body: { type: 'constructor' }, says: /^"type" must be/ },
    {
      name: 'exec',
      body: { type: 'exec', command: ['id'] },
      says: /"exec" run a command beside the proxy, and come from its config alone/,
    },
    {
      name: 'camelCase',
      body: { ...bearer, headerName: 'X-A' },
      says: 'unknown field "headerName"; did you mean "header_name"?',
    },
    {
      name: 'a member of another type',
      body: { ...bearer, client_id: 'a' },
      says: /^unknown field "client_id"; known here: type, token/,
    },
    {
      name: 'a member whose name may be a secret',
      body: { ...bearer, [`${SECRET}: x`]: 1 },
      says: /^a field of a name that is not known/,
    },
    { name: 'no token', body: { type: 'bearer_token' }, says: '"token" is missing' },
    { name: 'a token that is a number', body: { ...bearer, token: 5512 }, says: '"token" must be text' },
    { name: 'a token that is null', body: { ...bearer, token: null }, says: '"token" must be text' },
    { name: 'an empty token', body: { ...bearer, token: '' }, says: '"token": is empty' },
    {
      name: 'a token with a line break',
      body: { ...bearer, token: `${SECRET}\r\nX: y` },
      says: /^"token": holds a line break/,
      fault: 'E08',
    },
    { name: 'a token with a NUL', body: { ...bearer, token: `${SECRET}\0` }, says: /^"token": holds a NUL/, fault: 'E08' },
    { name: 'a header that frames', body: { ...bearer, header_name: 'Transfer-Encoding' }, says: /frames the message/ },
    { name: 'a header of no name', body: { ...bearer, header_name: 'a b' }, says: /is not a header name/ },
    { name: 'a prefix of two words', body: { ...bearer, prefix: 'a b' }, says: /one word of ASCII/ },
    { name: 'its own status', body: { ...bearer, status: 'active' }, says: '"status" is set by the server; leave it out' },
    { name: 'an id with a slash', body: { ...bearer, id: 'a/b' }, says: /^"id" must be at most 128 letters/ },
    { name: 'an id that begins with a dot', body: { ...bearer, id: '..' }, says: /^"id" must be at most 128 letters/ },
    { name: 'an id of 129 letters', body: { ...bearer, id: 'a'.repeat(129) }, says: /^"id" must be at most 128 letters/ },
    { name: 'an id of 128 letters', body: { ...bearer, id: 'a'.repeat(128) }, says: 'taken' },
    { name: 'an id with a dot', body: { ...bearer, id: 'a.b' }, says: 'taken' },
    { name: 'an id that is a number', body: { ...bearer, id: 5 }, says: '"id" must be text' },
    {
      name: 'a user name with a colon',
      body: { type: 'basic', username: 'a:b', password: SECRET },
      says: /^"username": holds a colon/,
    },
    {
      name: 'neither user nor password',
      body: { type: 'basic', username: '', password: '' },
      says: /^"password": must not be empty/,
    },
    { name: 'a user alone', body: { type: 'basic', username: 'a', password: '' }, says: 'taken' },
    { name: 'no header', body: { type: 'header', headers: {} }, says: /^"headers": must not be empty/ },
    {
      name: 'one header twice',
      body: { type: 'header', headers: { 'X-A': 'a', 'x-a': 'b' } },
      says: /"X-A" and "x-a" are one header/,
    },
    {
      name: 'a header with a line break',
      body: { type: 'header', headers: { 'X-A': 'a\nb' } },
      says: /^"headers.X-A": holds a line break/,
    },
    {
      name: 'a token endpoint in plain http',
      body: { type: 'oauth2', ...BODIES['oauth2'], token_url: 'http://login.test/' },
      says: /must be an https URL/,
    },
    {
      name: 'a token endpoint with a password',
      body: { type: 'oauth2', ...BODIES['oauth2'], token_url: 'https://u:p@login.test/' },
      says: /no user, password or fragment/,
    },
    {
      name: 'a place that is none',
      body: { type: 'environment_variable', value: 'a', injection_location: 'cookie' },
      says: /must be "header", "query" or "body"/,
    },
    {
      name: 'no place',
      body: { type: 'environment_variable', value: 'a', injection_location: [] },
      says: /must be "header", "query" or "body"/,
    },
    {
      name: 'every host',
      body: { type: 'environment_variable', ...BODIES['environment_variable'], trusted_domains: ['*'] },
      says: /must not be "\*"/,
    },
    {
      name: 'a host with a scheme',
      body: { type: 'environment_variable', ...BODIES['environment_variable'], trusted_domains: ['https://a.test'] },
      says: /is not a host/,
    },
    {
      name: 'a region with a slash',
      body: { type: 'aws_sigv4', ...BODIES['aws_sigv4'], region: 'a/b' },
      says: /lower-case letters/,
    },
  ])('with $name: $says', ({ body, says }) => {
    const said = problem(readNew(body));
    if (typeof says === 'string') expect(said).toBe(says);
    else expect(said).toMatch(says);
    expect(said).not.toContain(SECRET);
  });
});

describe('a patch', () => {
  const kept = recordOf({ id: 'one', type: 'bearer_token', token: SECRET, header_name: 'X-Key', prefix: '' });
  const patched = (body: object, mask?: string[]): object => {
    const read = readPatch(kept, body, mask);
    return 'problem' in read ? read : read.value;
  };

  it('changes what it names and leaves the rest', () => {
    expect(patched({ type: 'bearer_token', token: 'new' })).toEqual({ ...kept.value, token: 'new' });
    expect(patched({ type: 'bearer_token', prefix: 'Token' })).toEqual({ ...kept.value, prefix: 'Token' });
    expect(patched({ type: 'bearer_token' })).toEqual(kept.value);
  });

  it('takes with a mask what the mask names and nothing else, and the standard value where the body omits it', () => {
    expect(patched({ type: 'bearer_token', token: 'new', prefix: 'Token' }, ['token'])).toEqual({ ...kept.value, token: 'new' });
    expect(patched({ type: 'bearer_token' }, ['header_name'])).toEqual({ ...kept.value, header_name: 'Authorization' });
    expect(patched({ type: 'bearer_token', token: 'new' }, ['*'])).toEqual({
      ...kept.value,
      token: 'new',
      header_name: 'Authorization',
      prefix: 'Bearer',
    });
  });

  it('makes a revoked credential active, and drops what its source had kept', () => {
    const revoked = { ...kept, value: { ...kept.value, status: 'revoked', state: { access_token: SECRET } } };
    expect(readPatch(revoked, { type: 'bearer_token', token: 'new' })).toEqual({ value: { ...kept.value, token: 'new' } });
    expect(openCredential(revoked)).toEqual({ unavailable: 'it is revoked; give it new secrets' });
    expect(view(revoked)).toMatchObject({ status: 'revoked' });
    expect(JSON.stringify(view(revoked))).not.toContain(SECRET);
  });

  it.each([
    { name: 'no type', body: { token: 'new' }, says: /^"type" is missing/ },
    {
      name: 'another type',
      body: { type: 'basic', username: 'a', password: 'b' },
      says: /type of a credential cannot be changed: it is "bearer_token"/,
    },
    { name: 'another id', body: { type: 'bearer_token', id: 'two' }, says: /id of a credential cannot be changed/ },
    { name: 'its own id', body: { type: 'bearer_token', id: 'one' }, says: /^taken$/ },
    { name: 'camelCase', body: { type: 'bearer_token', headerName: 'X-A' }, says: /did you mean "header_name"\?/ },
    { name: 'a status', body: { type: 'bearer_token', status: 'revoked' }, says: /^"status" is set by the server/ },
    { name: 'an empty token', body: { type: 'bearer_token', token: '' }, says: /^"token": is empty/ },
    { name: 'a mask that names no member', body: { type: 'bearer_token' }, mask: ['tokens'], says: /did you mean "token"\?/ },
    { name: 'a mask that takes the token away', body: { type: 'bearer_token' }, mask: ['token'], says: /^"token" is missing$/ },
  ])('with $name: $says', ({ body, mask, says }) => {
    expect(problem(patched(body, mask))).toMatch(says);
  });
});

describe('a record of another form', () => {
  it.each([
    { name: 'a type that nobody knows', value: { type: 'quantum', status: 'active', key: SECRET } },
    { name: 'a member too many', value: { type: 'bearer_token', status: 'active', token: SECRET, later: 1 } },
  ])('is unavailable and shows nothing it holds: $name', ({ value }) => {
    const record = { ...recordOf({ type: 'bearer_token', token: 'a' }), value };
    expect(openCredential(record)).toMatchObject({ unavailable: expect.stringContaining('does not know') as string });
    expect(JSON.stringify(view(record))).not.toContain(SECRET);
  });
});
