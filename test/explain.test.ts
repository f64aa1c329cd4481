// Twin of src/explain.ts: the way that a client takes, the guard's word on literals, and what is put on as things stand.
import { describe, expect, it } from 'vitest';
import { compileConfig } from '../src/config/compile.ts';
import { parseConfig } from '../src/config/parse-config.ts';
import { explain, NO_RESOLVER } from '../src/explain.ts';
import type { Explanation } from '../src/explain.ts';
import { createFindRoute } from '../src/network/find-route.ts';
import { createGuard } from '../src/network/guard.ts';

const SECRET = 'hunter2hunter2hunter2';
const LISTENERS = [{ address: '127.0.0.1', port: 9090 }];
const findRoute = createFindRoute({
  guard: createGuard({ listeners: () => LISTENERS, interfaces: () => ['198.18.0.1', '8.8.4.4'] }),
  resolver: NO_RESOLVER,
  warm: () => false,
});

async function answer(config: object, url: string, more: { method?: string; sandbox?: string } = {}): Promise<Explanation> {
  const parsed = parseConfig(JSON.stringify(config), 'a.json');
  if ('problems' in parsed) throw new Error(JSON.stringify(parsed.problems));
  const result = await compileConfig(parsed.config, { generation: 1, baseDirectory: '/nowhere', env: {} });
  if ('problems' in result) throw new Error(JSON.stringify(result.problems));
  const explanation = await explain(
    { method: more.method ?? 'GET', url, sandbox: more.sandbox },
    { snapshot: result.compiled.snapshot, findRoute },
  );
  expect(JSON.stringify(explanation)).not.toContain(SECRET);
  return explanation;
}

const allow = (...allowlist: object[]) => ({ network: { allowlist } });

describe('explain of an https URL judges the CONNECT first', () => {
  const pinned = { domain: 'pinned.test', tls: 'passthrough' };
  it.each([
    {
      name: 'a tunnel that is passed through',
      config: allow(pinned),
      url: 'https://pinned.test/any/path',
      wanted: { decision: 'allow', rule: 'pinned.test', passthrough: true, injects: [] },
    },
    {
      name: 'a passed-through tunnel to a port that is not in the rule',
      config: allow(pinned),
      url: 'https://pinned.test:8443/',
      wanted: { decision: 'refuse', reason: 'port_denied', rule: 'pinned.test' },
    },
    {
      name: 'plain http to a host that is passed through, whose rule means TLS and port 80 alike',
      config: allow(pinned),
      url: 'http://pinned.test/',
      wanted: { decision: 'allow', rule: 'pinned.test' },
    },
    {
      name: 'the first of two rules, which passes through',
      config: allow(pinned, { domain: 'pinned.test', methods: ['GET'] }),
      url: 'https://pinned.test/',
      wanted: { decision: 'allow', rule: 'pinned.test', passthrough: true },
    },
    {
      name: 'the first of two rules, which inspects',
      config: allow({ domain: 'pinned.test', methods: ['GET'] }, pinned),
      url: 'https://pinned.test/',
      wanted: { decision: 'allow', rule: 'pinned.test', passthrough: false },
    },
    {
      name: 'a host on no list, whatever the method inside',
      config: allow(),
      url: 'https://other.test/',
      method: 'TRACE',
      wanted: { decision: 'refuse', reason: 'not_allowlisted' },
    },
    {
      name: 'a method that is never let through, to a host that is',
      config: allow({ domain: 'a.test' }),
      url: 'https://a.test/',
      method: 'TRACE',
      wanted: { decision: 'refuse', reason: 'method_forbidden' },
    },
  ])('as the door does: $name', async ({ config, url, method = 'GET', wanted }) => {
    expect(await answer(config, url, { method })).toMatchObject(wanted);
  });
});

describe('explain of an IP literal hears the guard', () => {
  const everything = { domain: '*', ports: [443, 9090] };
  it.each([
    { name: 'a metadata address', url: 'https://169.254.169.254/', wanted: ['refuse', 'address_denied'] },
    { name: 'a metadata address by plain http', url: 'http://169.254.169.254:443/', wanted: ['refuse', 'address_denied'] },
    { name: 'loopback in IPv6', url: 'https://[::1]/', wanted: ['refuse', 'address_denied'] },
    { name: 'an embedded private address', url: 'https://[::ffff:10.0.0.1]/', wanted: ['refuse', 'address_denied'] },
    { name: 'an address of the machine itself', url: 'https://8.8.4.4/', wanted: ['refuse', 'address_denied'] },
    { name: 'the listener of the proxy', url: 'https://127.0.0.1:9090/', wanted: ['refuse', 'address_denied'] },
    { name: 'a public address', url: 'https://8.8.8.8/', wanted: ['allow', null] },
    { name: 'a name, which is not resolved', url: 'https://localhost.test/', wanted: ['allow', null] },
  ])('$name: $wanted', async ({ url, wanted }) => {
    const { decision, reason, detail } = await answer(allow(everything), url);
    expect([decision, reason]).toEqual(wanted);
    if (url.includes('localhost')) expect(detail).toContain('not resolved');
  });

  it.each([
    { name: 'opens an address', rule: { addresses: ['10.0.0.0/8'] }, wanted: 'allow' },
    { name: 'opens another range', rule: { addresses: ['10.0.1.0/24'] }, wanted: 'refuse' },
    { name: 'only monitors', rule: { enforcement: 'monitor' }, wanted: 'refuse' },
    { name: 'passes through', rule: { tls: 'passthrough' }, wanted: 'refuse' },
  ])('under a rule that $name', async ({ rule, wanted }) => {
    expect((await answer(allow({ domain: '10.0.0.1', ...rule }), 'https://10.0.0.1/')).decision).toBe(wanted);
  });
});

describe('explain of what is put on', () => {
  const good = { type: 'header', headers: { 'X-One': SECRET, 'X-Two': SECRET } };
  const gone = { type: 'bearer_token', token: { env: 'NOT_SET' } };
  const config = (rule: object) => ({
    ...allow({ domain: 'a.test', ...rule }),
    credentials: { good, gone },
  });
  it.each([
    {
      name: "a credential's fields with the transform on top",
      rule: { credential: 'good', transform: { x_one: SECRET, 'X-Three': SECRET } },
      wanted: {
        decision: 'allow',
        credentials: ['good'],
        transform: ['x_one', 'X-Three'],
        injects: ['x_one', 'X-Two', 'X-Three'],
      },
    },
    {
      name: 'a credential that is unavailable',
      rule: { credential: 'gone' },
      wanted: {
        decision: 'refuse',
        reason: 'credential_unavailable',
        rule: 'a.test',
        detail: expect.stringMatching(/"gone" cannot be resolved: .*"NOT_SET" is not set/) as string,
        injects: [],
      },
    },
    {
      name: 'a credential that is unavailable, under monitor',
      rule: { credential: 'gone', enforcement: 'monitor' },
      wanted: { decision: 'refuse', reason: 'credential_unavailable' },
    },
    {
      name: 'a credential that nobody declares',
      rule: { credential: SECRET },
      wanted: { decision: 'refuse', reason: 'credential_unavailable', rule: 'a.test', credentials: [] },
    },
  ])('says $name', async ({ rule, wanted }) => {
    expect(await answer(config(rule), 'https://a.test/')).toMatchObject(wanted);
  });

  it('is the same sentence for plain http as the door has', async () => {
    expect(await answer(config({ credential: 'gone' }), 'http://a.test/')).toMatchObject({
      reason: 'plaintext_credential',
      detail: 'the rule puts fields on, which plain http would show to everyone on the way',
    });
  });
});

describe('the sandbox that asks', () => {
  const sandbox = (domain: string, source: string) => ({ sources: [source], network: { allowlist: [{ domain }] } });
  const one = { sandboxes: { one: sandbox('one.test', '10.0.0.1') } };
  const two = { sandboxes: { ...one.sandboxes, two: sandbox('two.test', '10.0.0.2') } };
  it.each([
    { name: 'the only one where none is configured', config: allow({ domain: 'one.test' }), sandbox: undefined, wanted: 'allow' },
    { name: 'the only one where one is configured', config: one, sandbox: undefined, wanted: 'allow' },
    { name: 'the one that is named', config: two, sandbox: 'one', wanted: 'allow' },
    { name: 'the other one', config: two, sandbox: 'two', wanted: 'refuse' },
    { name: 'nobody where there are two', config: two, sandbox: undefined, wanted: 'refuse' },
    { name: 'nobody of that name', config: one, sandbox: 'default', wanted: 'refuse' },
  ])('is $name', async ({ config, sandbox: id, wanted }) => {
    const { decision, reason } = await answer(config, 'https://one.test/', id === undefined ? {} : { sandbox: id });
    expect(decision).toBe(wanted);
    if (id === undefined && wanted === 'refuse') expect(reason).toBe('sandbox_unauthenticated');
  });
});
