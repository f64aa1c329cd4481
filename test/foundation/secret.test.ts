import { format, inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { Secret } from '../../src/foundation/secret.ts';

const TEXT = 'hunter2-sentinel';

describe('Secret', () => {
  const secret = new Secret(TEXT);

  it('gives its text to whoever asks for it by name', () => {
    expect(secret.reveal()).toBe(TEXT);
  });

  it.each([
    { name: 'String', shown: String(secret) },
    { name: 'concatenation', shown: ['', secret].join('') },
    { name: 'JSON', shown: JSON.stringify({ secret, list: [secret] }) },
    { name: 'inspection', shown: inspect({ deep: { secret } }, { depth: 9 }) },
    { name: 'inspection of hidden parts', shown: inspect(secret, { showHidden: true }) },
    { name: 'inspection without custom inspectors', shown: inspect(secret, { customInspect: false, showHidden: true }) },
    { name: 'format', shown: format('%s %o %O %j', secret, secret, secret, secret) },
    {
      name: 'enumeration of its properties',
      shown: JSON.stringify([Object.entries(secret), Object.assign({}, secret), Reflect.ownKeys(secret)]),
    },
    { name: 'an error that bears it', shown: inspect(new Error('failed', { cause: { secret } })) },
    { name: 'structured cloning', shown: inspect(structuredClone({ secret })) },
  ])('does not show in $name', ({ shown }) => {
    expect(shown).not.toContain(TEXT);
  });

  it('shows a placeholder in text, JSON and inspection', () => {
    expect([String(secret), JSON.stringify(secret), inspect(secret)]).toEqual(['[secret]', '"[secret]"', '[secret]']);
  });
});
