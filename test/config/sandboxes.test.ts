import { describe, expect, it } from 'vitest';
import { createSandboxRegistry } from '../../src/config/sandboxes.ts';
import type { SandboxEntry } from '../../src/config/sandboxes.ts';
import { Secret } from '../../src/foundation/secret.ts';
import { parseRanges } from '../../src/network/address-ranges.ts';
import { DENY_ALL } from '../../src/policy/policy-index.ts';

function entry(id: string, token: string | undefined, ...sources: string[]): SandboxEntry {
  return {
    sandbox: { id, policy: DENY_ALL },
    token: token === undefined ? undefined : new Secret(token),
    sources: sources.map((source) => {
      const parsed = parseRanges([source]);
      if ('problem' in parsed) throw new Error(parsed.problem);
      return parsed.ranges;
    }),
  };
}

const basic = (pair: string) => `Basic ${Buffer.from(pair).toString('base64')}`;

describe('a registry with sandboxes', () => {
  const registry = createSandboxRegistry(
    [
      entry('one', 'token-of-one', '10.0.0.0/8', '10.1.2.3'),
      entry('two', 'token:with:colons', '10.1.0.0/16', 'fd00::/8'),
      entry('three', undefined, '10.1.2.0/24', 'fd00::7'),
      entry('four', 'caf\u00e9'),
    ],
    DENY_ALL,
  );

  it('asks for a token and knows the ids', () => {
    expect(registry.required).toBe(true);
    expect(registry.ids).toEqual(['one', 'two', 'three', 'four']);
    expect(registry.byId('two')?.id).toBe('two');
    expect(registry.byId('default')).toBeUndefined();
  });

  it.each([
    ['the password of Basic', basic('one:token-of-one'), 'one'],
    ['any user name', basic('someone:token-of-one'), 'one'],
    ['no user name', basic(':token-of-one'), 'one'],
    ['colons in the password', basic('two:token:with:colons'), 'two'],
    ['UTF-8 in the password', basic('four:caf\u00e9'), 'four'],
    ['a scheme in another case', basic('one:token-of-one').replace('Basic', 'bASIC'), 'one'],
    ['Bearer', 'Bearer token-of-one', 'one'],
    ['a wrong password', basic('one:token-of-onf'), undefined],
    ['a beginning of the password', basic('one:token-of-on'), undefined],
    ['more than the password', basic('one:token-of-one1'), undefined],
    ['the token as user name', basic('token-of-one:'), undefined],
    ['an empty password', basic('three:'), undefined],
    ['no colon', basic('token-of-one'), undefined],
    ['an unknown scheme', 'Digest token-of-one', undefined],
    ['two values', `Bearer token-of-one, Bearer token-of-one`, undefined],
    ['no scheme', 'token-of-one', undefined],
    ['nothing', '', undefined],
  ])('judges a Proxy-Authorization with %s', (_name, value, id) => {
    expect(registry.byToken(value)?.id).toBe(id);
  });

  it.each([
    ['10.200.0.1', 'one'],
    ['10.1.200.1', 'two'],
    ['10.1.2.200', 'three'],
    ['10.1.2.3', 'one'],
    ['::ffff:10.1.2.3', 'one'],
    ['fd00::8', 'two'],
    ['fd00::7', 'three'],
    ['9.255.255.255', undefined],
    ['11.0.0.0', undefined],
    ['fe00::1', undefined],
    ['nonsense', undefined],
  ])('knows %s by the longest prefix', (address, id) => {
    expect(registry.bySource(address)?.id).toBe(id);
  });
});

describe('a registry without sandboxes', () => {
  const registry = createSandboxRegistry([], DENY_ALL);

  it('asks for no token and has one sandbox', () => {
    expect(registry.required).toBe(false);
    expect(registry.ids).toEqual(['default']);
    expect(registry.byId('default')).toEqual({ id: 'default', policy: DENY_ALL });
    expect(registry.byToken(basic('a:b'))).toBeUndefined();
    expect(registry.bySource('127.0.0.1')).toBeUndefined();
  });
});
