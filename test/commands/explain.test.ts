// Twin of src/commands/explain.ts.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { explain } from '../../src/commands/explain.ts';
import { fakeAdmin } from './fake-admin.ts';
import { capture, json, writeConfig } from './rig.ts';

const SECRET = 'a-secret-that-nobody-may-see';
const CONFIG = {
  network: {
    allowlist: [
      { domain: 'bearer.test', credential: 'bearer', transform: { 'X-Extra': SECRET } },
      { domain: 'basic.test', credential: 'basic' },
      { domain: 'header.test', credential: 'header', transform: { 'x-one': SECRET } },
      { domain: 'read.test', methods: ['GET'] },
      { domain: 'tried.test', methods: ['GET'], enforcement: 'monitor' },
      { domain: 'stored.test', credential: 'stored' },
    ],
  },
  credentials: {
    bearer: { type: 'bearer_token', token: { env: 'TOKEN' }, header_name: 'X-Api-Key', prefix: '' },
    basic: { type: 'basic', username: 'u', password: SECRET },
    header: { type: 'header', headers: { 'X-One': SECRET, 'X-Two': SECRET } },
  },
};

const written = () => writeConfig(CONFIG);

describe('explain', () => {
  it.each([
    {
      name: 'an allowed request',
      method: 'GET',
      target: 'https://read.test/',
      code: 0,
      answer: { decision: 'allow', rule: 'read.test', injects: [] },
    },
    {
      name: 'a name on no list',
      method: 'GET',
      target: 'https://other.test/',
      code: 3,
      answer: { decision: 'refuse', reason: 'not_allowlisted' },
    },
    {
      name: 'a method not in the rule',
      method: 'POST',
      target: 'https://read.test/',
      code: 3,
      answer: { reason: 'method_denied', rule: 'read.test' },
    },
    {
      name: 'a rule under monitor',
      method: 'POST',
      target: 'https://tried.test/',
      code: 0,
      answer: { decision: 'would_refuse', reason: 'method_denied' },
    },
    {
      name: 'a credential over plain http',
      method: 'GET',
      target: 'http://basic.test/',
      code: 3,
      answer: { reason: 'plaintext_credential' },
    },
    {
      name: 'the fields of a bearer token and a transform',
      method: 'GET',
      target: 'https://bearer.test/',
      code: 0,
      answer: { credentials: ['bearer'], injects: ['X-Api-Key', 'X-Extra'] },
    },
    { name: 'the field of basic', method: 'GET', target: 'https://basic.test/', code: 0, answer: { injects: ['Authorization'] } },
    {
      name: 'each field once, whatever its case',
      method: 'GET',
      target: 'https://header.test/',
      code: 0,
      answer: { injects: ['x-one', 'X-Two'] },
    },
    { name: 'an odd URL', method: 'GET', target: 'https://u:p@read.test/', code: 3, answer: { reason: 'bad_request' } },
  ])('judges $name', async ({ method, target, code, answer }) => {
    const { directory, config } = written();
    const captured = capture(directory, { env: { TOKEN: SECRET } });
    expect(await explain({ config, method, target }, captured.context)).toBe(code);
    expect(json(captured)).toMatchObject(answer);
    expect(captured.out() + captured.err()).not.toContain(SECRET);
  });

  it('says to a person what, why, and how to have it allowed', async () => {
    const { directory, config } = written();
    const captured = capture(directory, { terminal: true, env: { NO_COLOR: '1' } });
    expect(await explain({ config, method: 'GET', target: 'https://other.test/\u001b[2J' }, captured.context)).toBe(3);
    expect(captured.out()).toMatch(/decision +│ refused/);
    expect(captured.out()).toMatch(/hint +│ /);
    expect(captured.out()).not.toContain('\u001b');
  });

  it.each([
    {
      name: 'a credential that the config does not hold',
      target: 'https://stored.test/',
      detail: /the rule's credential cannot be resolved: no credential of this id is declared/,
    },
    {
      name: 'a credential that is unavailable here',
      target: 'https://bearer.test/',
      detail: /"bearer" cannot be resolved: .*"TOKEN" is not set/,
    },
  ])('refuses under $name, and says whose environment it judged by', async ({ target, detail }) => {
    const { directory, config } = written();
    const captured = capture(directory);
    expect(await explain({ config, method: 'GET', target }, captured.context)).toBe(3);
    expect(json(captured)).toMatchObject({
      decision: 'refuse',
      reason: 'credential_unavailable',
      detail: expect.stringMatching(detail) as string,
    });
    expect(captured.err()).toMatch(/files of this shell; --url asks the running proxy/);
  });

  it.each([
    { target: 'https://169.254.169.254/', code: 3 },
    { target: 'https://127.0.0.1:9090/', code: 3 },
    { target: 'https://[2606:4700:4700::1111]/', code: 0 },
  ])('hears the guard of this machine on $target: $code', async ({ target, code }) => {
    const { directory, config } = writeConfig({
      network: { allowlist: [{ domain: '*' }, { domain: '127.0.0.1', ports: [9090], addresses: ['127.0.0.1'] }] },
    });
    expect(await explain({ config, method: 'GET', target }, capture(directory).context)).toBe(code);
  });

  it('takes a URL without scheme for a mistake and exits 2', async () => {
    const { directory, config } = written();
    const captured = capture(directory);
    expect(await explain({ config, method: 'GET', target: 'read.test' }, captured.context)).toBe(2);
    expect([captured.out(), captured.err()]).toEqual(['', expect.stringMatching(/write it whole/)]);
  });

  it('asks which sandbox where there are several', async () => {
    const { directory, config } = writeConfig({
      sandboxes: {
        one: { sources: ['10.0.0.1'], network: { allowlist: [{ domain: 'a.test' }] } },
        other: { sources: ['10.0.0.2'], network: 'disabled' },
      },
    });
    const ask = (sandbox?: string) =>
      explain({ config, method: 'GET', target: 'https://a.test/', sandbox }, capture(directory).context);
    expect([await ask(), await ask('one'), await ask('two')]).toEqual([3, 0, 3]);
  });

  it('exits 78 for an invalid config', async () => {
    const { directory, config } = writeConfig({ nope: 1 });
    expect(await explain({ config, method: 'GET', target: 'https://a.test/' }, capture(directory).context)).toBe(78);
  });

  it('asks the running proxy with the token that the config names', async () => {
    const admin = await fakeAdmin(() => ({ status: 200, body: { decision: 'refuse', reason: 'denylisted' } }));
    const { directory, config } = writeConfig({ admin: { token: { file: 'the-token' } } });
    writeFileSync(join(directory, 'the-token'), 'admin-token\n');
    const captured = capture(directory);
    expect(
      await explain({ config, method: 'GET', target: 'https://a.test/', sandbox: 'one', url: admin.url }, captured.context),
    ).toBe(3);
    expect(json(captured)).toEqual({ decision: 'refuse', reason: 'denylisted' });
    expect(admin.heard).toEqual([
      {
        path: '/v1/explain',
        authorization: 'Bearer admin-token',
        body: { method: 'GET', url: 'https://a.test/', sandbox: 'one' },
      },
    ]);
  });

  it.each([
    { name: 'an answer that is none', body: { hello: 1 }, message: /no explanation; is it the admin listener\?/ },
    { name: 'a decision that nobody knows', body: { decision: 'maybe' }, message: /no explanation/ },
  ])('takes $name for a failure and not for a yes', async ({ body, message }) => {
    const admin = await fakeAdmin(() => ({ status: 200, body }));
    const { directory } = writeConfig({});
    writeFileSync(join(directory, 'token'), 't');
    const captured = capture(directory);
    const code = await explain(
      { method: 'GET', target: 'https://a.test/', url: admin.url, tokenFile: 'token' },
      captured.context,
    );
    expect([code, captured.out()]).toEqual([1, '']);
    expect(captured.err()).toMatch(message);
  });
});
