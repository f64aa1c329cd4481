import { describe, expect, it } from 'vitest';
import { isRefusal } from '../../src/exchange/codes.ts';
import type { SandboxRegistry } from '../../src/exchange/snapshot.ts';
import type { Sandbox } from '../../src/exchange/stages.ts';
import { identify } from '../../src/policy/identify.ts';
import { DENY_ALL } from '../../src/policy/policy-index.ts';
import { ceilingAt, exchangeArrival, intentOf } from '../support/arrivals.ts';

const sandbox = (id: string): Sandbox => ({ id, policy: DENY_ALL });

function registry(required: boolean): SandboxRegistry {
  return {
    required,
    ids: ['default', 'token', 'source'],
    byToken: (text) => (text === 'Basic good' ? sandbox('token') : undefined),
    bySource: (address) => (address === '192.0.2.10' ? sandbox('source') : undefined),
    byId: (id) => (id === 'default' ? sandbox(id) : undefined),
  };
}

function known(options: {
  readonly required?: boolean;
  readonly token?: string;
  readonly client?: string;
  readonly opener?: string;
}) {
  const more = options.token === undefined ? [] : ['Proxy-Authorization', options.token];
  const client = options.client ?? '192.0.2.10';
  const tunnel = options.opener === undefined ? {} : { ceiling: ceilingAt('example.com:443', { identity: options.opener }) };
  const found = identify(intentOf(exchangeArrival({ more, client, ...tunnel })), registry(options.required ?? true));
  return isRefusal(found) ? found.code : found.id;
}

describe('identify', () => {
  it.each([
    { name: 'knows everyone as the one sandbox where none is configured', options: { required: false }, as: 'default' },
    { name: 'asks no token there either', options: { required: false, token: 'Basic bad' }, as: 'default' },
    { name: 'knows a sandbox by its token', options: { token: 'Basic good', client: '203.0.113.1' }, as: 'token' },
    { name: 'prefers the token to the address', options: { token: 'Basic good' }, as: 'token' },
    { name: 'knows a sandbox without a token by its address', options: {}, as: 'source' },
    { name: 'refuses a wrong token even from a known address', options: { token: 'Basic bad' }, as: 'sandbox_unauthenticated' },
    { name: 'refuses an empty token even from a known address', options: { token: '' }, as: 'sandbox_unauthenticated' },
    { name: 'refuses an unknown address', options: { client: '192.0.2.11' }, as: 'sandbox_unauthenticated' },
    { name: 'knows a request in a tunnel by its opener', options: { opener: 'Basic good', client: '203.0.113.1' }, as: 'token' },
    {
      name: 'hears no other token inside a tunnel',
      options: { opener: 'Basic bad', token: 'Basic good' },
      as: 'sandbox_unauthenticated',
    },
  ])('$name', ({ options, as }) => {
    expect(known(options)).toBe(as);
  });
});
