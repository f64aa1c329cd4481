import { describe, expect, it } from 'vitest';
import { boundIn, HIDDEN, openNetwork, readEnvironmentBody } from '../../src/config/environment-body.ts';

const SECRET = 'ghp_AbCdEfGh0123456789';
const problemOf = (body: unknown) => {
  const read = readEnvironmentBody(body);
  return 'problem' in read ? read.problem : undefined;
};

describe('a body', () => {
  it.each([
    { name: 'none', body: undefined, kept: { credentials: [] } },
    { name: 'an empty one', body: {}, kept: { credentials: [] } },
    { name: 'the pasted form', body: { type: 'remote' }, kept: { credentials: [] } },
    {
      name: 'an environment to be changed',
      body: { environment_id: 'env_1' },
      kept: { environmentId: 'env_1', credentials: [] },
    },
    { name: 'no network at all', body: { network: 'disabled' }, kept: { network: 'disabled', credentials: [] } },
    {
      name: "the vendor's type for that",
      body: { network: { allowlist: 'disabled' } },
      kept: { network: 'disabled', credentials: [] },
    },
    {
      name: 'rules with credentials, each told once',
      body: {
        network: {
          allowlist: [
            { domain: 'a.test', credential: 'gh' },
            { domain: 'b.test', credential: 'gh', transform: [{ 'X-A': '1' }, { 'X-B': '2' }] },
            { domain: '*' },
          ],
        },
      },
      kept: {
        network: {
          allowlist: [
            { domain: 'a.test', credential: 'gh' },
            { domain: 'b.test', credential: 'gh', transform: [{ 'X-A': '1' }, { 'X-B': '2' }] },
            { domain: '*' },
          ],
        },
        credentials: [{ id: 'gh', variable: false }],
      },
    },
    {
      name: 'variables in their three forms',
      body: { env: { A: 'text', B: { value: 'more' }, C: { credential: 'slack' } } },
      kept: { env: { A: 'text', B: 'more', C: { credential: 'slack' } }, credentials: [{ id: 'slack', variable: true }] },
    },
    {
      name: 'variables as an answer shows them',
      body: { env: [{ A: 'text' }, { C: { credential: 'slack' } }] },
      kept: { env: { A: 'text', C: { credential: 'slack' } }, credentials: [{ id: 'slack', variable: true }] },
    },
  ])('is read: $name', ({ body, kept }) => {
    expect(readEnvironmentBody(body)).toEqual(kept);
  });

  it.each([
    { name: 'a list', body: [], says: 'must be a JSON object' },
    { name: 'a misspelled member', body: { netwrok: 'disabled' }, says: 'did you mean "network"' },
    { name: 'what the server sets', body: { id: 'env_1' }, says: '"id" is set by the server' },
    { name: 'a copy of another one', body: { from_environment: 'env_1' }, says: 'not available in this version' },
    { name: 'another type', body: { type: 'local' }, says: 'can only be "remote"' },
    { name: 'an id that is no text', body: { environment_id: 7 }, says: '"environment_id" must be text' },
    { name: 'no network by a word of its own', body: { network: 'off' }, says: 'network: expected "disabled"' },
    { name: 'null, which says neither', body: { network: null }, says: 'network: expected "disabled"' },
    {
      name: 'a rule with a misspelled key',
      body: { network: { allowlist: [{ domian: 'a.test' }] } },
      says: 'network.allowlist[0].domian: unknown key; did you mean `domain`',
    },
    {
      name: 'a domain with a port',
      body: { network: { allowlist: [{ domain: 'a.test:443' }] } },
      says: 'network.allowlist[0].domain',
    },
    {
      name: 'a value out of a file of this machine',
      body: { network: { allowlist: [{ domain: 'a.test', transform: { 'X-A': { file: '/etc/shadow' } } }] } },
      says: 'values are text here',
    },
    {
      name: 'a value out of the environment of the proxy',
      body: { network: { allowlist: [{ domain: 'a.test' }, { domain: 'b.test', transform: [{}, { 'X-A': { env: 'HOME' } }] }] } },
      says: 'network.allowlist[1].transform: values are text here',
    },
    {
      name: 'what an answer shows in place of a value',
      body: { network: { allowlist: [{ domain: 'a.test', transform: { 'X-A': HIDDEN } }] } },
      says: 'send the value, or leave "network" out',
    },
    {
      name: 'a value with a line break',
      body: { network: { allowlist: [{ domain: 'a.test', transform: { 'X-A': 'a\r\nX-B: b' } }] } },
      says: 'line break',
      fault: 'E08',
    },
    { name: 'variables that are none', body: { env: 'A=1' }, says: '"env" must be an object' },
    { name: 'a name that no variable has', body: { env: { 'A-B': '1' } }, says: 'names of variables' },
    { name: 'a variable that stands twice', body: { env: [{ A: '1' }, { A: '2' }] }, says: '"env.A" stands twice' },
    { name: 'a variable that is a number', body: { env: { A: 1 } }, says: '"env.A" must be text' },
    { name: 'a variable with both forms', body: { env: { A: { value: '1', credential: 'x' } } }, says: 'exactly one' },
    { name: 'a variable with none', body: { env: { A: {} } }, says: 'exactly one' },
    { name: 'a variable with a NUL', body: { env: { A: 'a\0b' } }, says: 'NUL' },
    { name: 'a credential that is no id', body: { env: { A: { credential: 'a b' } } }, says: 'not the id of a credential' },
    {
      name: 'a credential that no placeholder can name',
      body: { env: { A: { credential: 'a.b' } } },
      says: 'cannot stand in a placeholder',
    },
    { name: 'a source of another type', body: { sources: [{ type: 'gcs' }] }, says: '"sources[0]" is of the type "gcs"' },
  ])('is refused, and the right form said: $name', ({ body, says }) => {
    expect(problemOf(body)).toContain(says);
  });

  it.each([
    { name: 'in place of a member', body: { [SECRET]: '1' } },
    { name: 'in place of a variable', body: { env: { [`${SECRET}-`]: '1' } } },
    {
      name: 'in place of a header',
      body: { network: { allowlist: [{ domain: 'a.test', transform: { [`X:${SECRET}`]: '1' } }] } },
    },
    { name: 'in place of a credential', body: { env: { A: { credential: `${SECRET}!` } } } },
    { name: 'in place of a key of a rule', body: { network: { allowlist: [{ domain: 'a.test', [SECRET]: '1' }] } } },
  ])('never has a secret repeated that stands $name', ({ body }) => {
    expect(problemOf(body)).toBeDefined();
    expect(problemOf(body)).not.toContain(SECRET);
  });

  it('tells all that is wrong with a network at once, up to a bound', () => {
    const allowlist = Array.from({ length: 8 }, () => ({ domain: '' }));
    expect(problemOf({ network: { allowlist } })).toMatch(/allowlist\[0\].*allowlist\[4\].*and 3 more$/);
  });
});

describe('a network that is kept', () => {
  it('is one rule for every host where there is none', () => {
    const read = openNetwork(undefined);
    expect(read).toMatchObject({ network: { allowlist: [{ domain: { kind: 'any' } }] } });
  });

  it('is checked again when it is opened: a record is not trusted further than a body', () => {
    expect(openNetwork({ allowlist: [{ domain: 'a.test', transform: { 'X-A': { file: '/etc/shadow' } } }] })).toHaveProperty(
      'problem',
    );
  });
});

describe('bound credentials', () => {
  it('are those of the variables, each once', () => {
    expect(boundIn({ A: 'text', B: { credential: 'x' }, C: { credential: 'x' }, D: { value: 'y' } })).toEqual(['x']);
    expect(boundIn()).toEqual([]);
  });
});
