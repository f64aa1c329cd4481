import { describe, expect, it } from 'vitest';
import { readEnvironmentBody } from '../../src/config/environment-body.ts';
import {
  environmentValue,
  environmentView,
  newEnvironmentId,
  newProxyToken,
  openEnvironment,
  sourcesIdOf,
  tokenDigest,
} from '../../src/config/environment-record.ts';
import { mayBeShown } from '../../src/foundation/shown-key.ts';
import type { JsonObject, StoredRecord } from '../../src/exchange/records.ts';

const DIGEST = tokenDigest('a token');

function record(value: JsonObject): StoredRecord {
  return { id: 'env_1', version: 1, value, createdAt: '2026-01-01T00:00:00.000Z', updatedAt: '2026-01-02T00:00:00.000Z' };
}

function partsOf(body: object) {
  const read = readEnvironmentBody(body);
  if ('problem' in read) throw new Error(read.problem);
  return read;
}

describe('what is kept of an environment', () => {
  const full = {
    network: { allowlist: [{ domain: 'a.test', transform: { 'X-Key': 'value' } }] },
    env: { A: 'text' },
    sources: [{ type: 'inline', target: '.agents/hooks.json', content: '{}' }],
  };
  const before = environmentValue({}, partsOf(full), { tokenDigest: DIGEST, sources: 'env_1.aa' });

  it('is each part as it was sent, the sources by the id of their record', () => {
    expect(before).toEqual({
      network: full.network,
      env: { A: 'text' },
      files: [{ target: '.agents/hooks.json', size: 2 }],
      sources: 'env_1.aa',
      token_sha256: DIGEST,
    });
    expect(sourcesIdOf(record(before))).toBe('env_1.aa');
  });

  it.each([
    { name: 'nothing', body: {}, after: before },
    { name: 'a network, whole', body: { network: { allowlist: [] } }, after: { ...before, network: { allowlist: [] } } },
    { name: 'variables, whole', body: { env: { B: 'b' } }, after: { ...before, env: { B: 'b' } } },
    { name: 'no sources any more', body: { sources: [] }, after: { ...before, files: [], sources: undefined } },
  ])('is replaced by a change of $name', ({ body, after }) => {
    expect(environmentValue(before, partsOf(body), { sources: undefined })).toEqual(after);
  });
});

describe('a record', () => {
  it('is opened with its network, variables and the digest of its token', () => {
    const opened = openEnvironment(record({ network: 'disabled', env: { A: { credential: 'x' } }, token_sha256: DIGEST }));
    expect(opened).toEqual({ network: 'disabled', open: false, env: { A: { credential: 'x' } }, tokenDigest: DIGEST });
    expect(openEnvironment(record({ token_sha256: DIGEST }))).toMatchObject({ open: true });
  });

  it.each([
    { name: 'a network that is none', value: { network: 7, token_sha256: DIGEST } },
    {
      name: 'a rule that this version does not know',
      value: { network: { allowlist: [{ domain: 'a.test', later: 1 }] }, token_sha256: DIGEST },
    },
    { name: 'variables that are none', value: { env: 'A', token_sha256: DIGEST } },
    { name: 'no token', value: {} },
    { name: 'a token that is no digest', value: { token_sha256: 'a token' } },
  ])('is refused with $name', ({ value }) => {
    expect(openEnvironment(record(value))).toHaveProperty('problem');
  });
});

describe('what a client is shown', () => {
  it('is names of headers and no value, variables as a list, files without their content', () => {
    const shown = environmentView(
      record({
        network: {
          denylist: [{ domain: 'cut.test' }],
          allowlist: [
            { domain: 'a.test', credential: 'gh', ports: [8443], transform: { Authorization: 'Bearer secret-1' } },
            { domain: 'b.test', transform: [{ 'X-A': 'secret-2' }, { 'X-B': 'secret-3' }] },
            { domain: '*' },
          ],
        },
        env: { A: 'text', B: { credential: 'slack' } },
        files: [
          { target: 'a', size: 5 },
          { target: 'b', size: 7 },
        ],
        sources: 'env_1.aa',
        token_sha256: DIGEST,
      }),
    );
    expect(shown).toEqual({
      id: 'env_1',
      status: 'active',
      create_time: '2026-01-01T00:00:00.000Z',
      update_time: '2026-01-02T00:00:00.000Z',
      created: '2026-01-01T00:00:00.000Z',
      updated: '2026-01-02T00:00:00.000Z',
      network: {
        denylist: [{ domain: 'cut.test' }],
        allowlist: [
          { domain: 'a.test', credential: 'gh', ports: [8443], transform: { Authorization: '[secret]' } },
          { domain: 'b.test', transform: [{ 'X-A': '[secret]' }, { 'X-B': '[secret]' }] },
          { domain: '*' },
        ],
      },
      env: [{ A: 'text' }, { B: { credential: 'slack' } }],
      sources: [
        { type: 'inline', target: 'a' },
        { type: 'inline', target: 'b' },
      ],
      file_count: '2',
      size_bytes: '12',
    });
    expect(JSON.stringify(shown)).not.toContain(DIGEST);
  });

  it('says nothing of a network where there is none, and shows a record of another form without what it does not know', () => {
    expect(environmentView(record({}))).not.toHaveProperty('network');
    expect(environmentView(record({ network: 7, env: 7, files: 7 }))).toMatchObject({ network: {}, env: [], sources: [] });
  });
});

describe('ids and tokens', () => {
  it('are new each time, an id such that problems may name it, a token of 32 bytes', () => {
    const ids = new Set(Array.from({ length: 500 }, newEnvironmentId));
    expect(ids.size).toBe(500);
    for (const id of ids) {
      expect(id).toMatch(/^env_[a-z0-9]{15}$/);
      expect(mayBeShown(id)).toBe(true);
    }
    const { token, digest } = newProxyToken();
    expect(Buffer.from(token, 'base64url')).toHaveLength(32);
    expect(digest).toBe(tokenDigest(token));
    expect(newProxyToken().token).not.toBe(token);
  });
});
