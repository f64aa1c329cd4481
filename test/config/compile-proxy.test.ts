// Twin of compile-proxy.ts and proxy-schema.ts: a corporate proxy as an operator writes it down, and what is wrong with it in clear texts.
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compileConfig } from '../../src/config/compile.ts';
import type { Compiled, CompileResult } from '../../src/config/compile.ts';
import { parseConfig } from '../../src/config/parse-config.ts';
import type { Host } from '../../src/exchange/authority.ts';

let baseDirectory: string;
beforeAll(async () => {
  baseDirectory = await mkdtemp(join(tmpdir(), 'compile-proxy-'));
});
afterAll(() => rm(baseDirectory, { recursive: true }));

/** What a config with this `upstream.proxy` comes to: compiled, or its problems. */
async function outcome(
  text: string,
  env: NodeJS.ProcessEnv = {},
  before?: CompileResult,
  now = 0,
): Promise<CompileResult | string[]> {
  const parsed = parseConfig(`network: disabled\nupstream: { proxy: ${text} }`, 'a.yaml');
  const show = (problems: readonly { readonly path: string; readonly message: string }[]): string[] =>
    problems.map(({ path, message }) => `${path}: ${message}`);
  if ('problems' in parsed) return show(parsed.problems);
  const lastGood = before !== undefined && 'lastGood' in before ? { lastGood: before.lastGood } : {};
  const result = await compileConfig(parsed.config, { generation: 1, baseDirectory, env, now: () => now, ...lastGood });
  return 'problems' in result ? show(result.problems) : result;
}

async function compiled(text: string, env: NodeJS.ProcessEnv = {}): Promise<Compiled> {
  const result = await outcome(text, env);
  if (!('compiled' in result)) throw new Error(JSON.stringify(result));
  return result.compiled;
}

const URL_PROXY = 'url: "http://proxy.example:3128"';

describe('upstream.proxy', () => {
  it('is none by default, and none where it is null', async () => {
    expect((await compiled('null')).corporateProxy).toBeUndefined();
  });

  it('is resolved here, asked by name and asked for tunnels where nothing else is said', async () => {
    expect((await compiled(`{ ${URL_PROXY} }`)).corporateProxy).toMatchObject({
      at: { host: 'proxy.example', port: 3128, address: false },
      secure: false,
      authorization: undefined,
      resolve: 'here',
      connectBy: 'name',
      plainHttp: 'connect',
    });
  });

  it.each([
    ['https://proxy.example:443', { host: 'proxy.example', port: 443, address: false }, true],
    ['HTTP://PROXY.example.:3128/', { host: 'proxy.example', port: 3128, address: false }, false],
    ['http://10.0.0.9:3128', { host: '10.0.0.9', port: 3128, address: true }, false],
    ['http://[fd00::1]:3128', { host: 'fd00::1', port: 3128, address: true }, false],
  ])('reads %s', async (url, at, secure) => {
    expect((await compiled(`{ url: "${url}" }`)).corporateProxy).toMatchObject({ at, secure });
  });

  it('asks by Basic, from text, a variable or a file, and shows neither', async () => {
    await writeFile(join(baseDirectory, 'password'), 'hunter2\n');
    await chmod(join(baseDirectory, 'password'), 0o600);
    const expected = `Basic ${Buffer.from('corp\\ann:hunter2').toString('base64')}`;
    for (const [username, password] of [
      [`'corp\\ann'`, 'hunter2'],
      ['{ env: USER_NAME }', '{ file: password }'],
    ]) {
      const result = await compiled(`{ ${URL_PROXY}, username: ${username}, password: ${password} }`, { USER_NAME: 'corp\\ann' });
      expect(result.corporateProxy?.authorization?.reveal()).toBe(expected);
      expect(inspect(result, { depth: 20 }) + JSON.stringify(result)).not.toMatch(/hunter2|aHVudGVyM/);
    }
    const result = await compiled(`{ ${URL_PROXY}, username: ann }`);
    expect(result.corporateProxy?.authorization?.reveal()).toBe(`Basic ${Buffer.from('ann:').toString('base64')}`);
  });

  it('is watched for the files of its secrets, and asked without credentials once they are gone for good', async () => {
    const text = `{ ${URL_PROXY}, username: ann, password: { file: rotating } }`;
    await writeFile(join(baseDirectory, 'rotating'), 'one');
    const first = await outcome(text);
    if (!('compiled' in first)) throw new Error(JSON.stringify(first));
    expect(first.compiled.watched).toEqual([join(baseDirectory, 'rotating')]);
    await rm(join(baseDirectory, 'rotating'));
    const grace = await outcome(text, {}, first, 1000);
    if (!('compiled' in grace)) throw new Error(JSON.stringify(grace));
    expect(grace.compiled.corporateProxy?.authorization).toBeDefined();
    const later = await outcome(text, {}, grace, 60_000);
    if (!('compiled' in later)) throw new Error(JSON.stringify(later));
    expect([later.compiled.corporateProxy?.authorization, later.compiled.warnings]).toEqual([
      undefined,
      [
        'upstream.proxy.password: is unavailable and the corporate proxy is asked without it: file "rotating" does not exist; create it or correct the path',
      ],
    ]);
  });

  it('is passed by for the hosts of no_proxy, at label boundaries', async () => {
    const { corporateProxy } = await compiled(`{ ${URL_PROXY}, no_proxy: [near.test, "*.corp.test", 10.0.0.1] }`);
    const hosts = ['near.test', 'a.near.test', 'x.corp.test', 'a.b.corp.test', 'corp.test', 'xcorp.test', '10.0.0.1', '10.0.0.2'];
    expect(hosts.filter((host) => corporateProxy?.direct(host as Host))).toEqual([
      'near.test',
      'x.corp.test',
      'a.b.corp.test',
      '10.0.0.1',
    ]);
    expect((await compiled(`{ ${URL_PROXY}, no_proxy: ["*"] }`)).corporateProxy?.direct('any.test' as Host)).toBe(true);
  });
});

describe('a problem of upstream.proxy', () => {
  it.each([
    [
      'a text',
      '"http://u:hunter2@proxy.example:3128"',
      [
        'upstream.proxy: expected an object, got text; write { url: "http://host:port" }, with `username` and `password` where the proxy asks for them',
      ],
    ],
    [
      'credentials in the url',
      '{ url: "http://u:hunter2@proxy.example:3128" }',
      ['upstream.proxy.url: holds an "@"; write a user name and password as `username` and `password` beside the url'],
    ],
    ['a url without port', '{ url: "http://proxy.example" }', [`upstream.proxy.url: names no port; ${LIKE()}`]],
    ['a url without scheme', '{ url: "proxy.example:3128" }', [`upstream.proxy.url: is not a URL; ${LIKE()}`]],
    [
      'another scheme',
      '{ url: "socks5://proxy.example:1080" }',
      ['upstream.proxy.url: "socks5" is not the scheme of a proxy that is spoken to here; use http or https'],
    ],
    ['a path', '{ url: "http://p.example:1/proxy.pac" }', [`upstream.proxy.url: holds more than a host and a port; ${LIKE()}`]],
    ['a port too high', '{ url: "http://p.example:65536" }', [`upstream.proxy.url: does not name a host and a port; ${LIKE()}`]],
    ['a doubtful host', '{ url: "http://0x7f.1:1" }', [`upstream.proxy.url: does not name a host and a port; ${LIKE()}`]], // fault A01
    ['no url', '{ username: ann }', ['upstream.proxy.url: is missing; expected text']],
    [
      'a password alone',
      `{ ${URL_PROXY}, password: x }`,
      ['upstream.proxy.password: stands without `username`; Basic needs both'],
    ],
    [
      'a variable that is not set',
      `{ ${URL_PROXY}, username: { env: NOT_SET } }`,
      ['upstream.proxy.username: environment variable "NOT_SET" is not set; set it before the start'],
    ],
    [
      'a colon in the user name',
      `{ ${URL_PROXY}, username: "hun:ter2", password: x }`,
      ['upstream.proxy.username: holds a colon, which a user name of Basic cannot'],
    ],
    [
      'a password of two lines',
      `{ ${URL_PROXY}, username: ann, password: "hun\\nter2" }`,
      ['upstream.proxy.password: the text holds a line break inside; store the secret on one line'],
    ],
    [
      'asking by address and leaving names to the proxy',
      `{ ${URL_PROXY}, connect_by: address, resolve: there }`,
      [
        'upstream.proxy.connect_by: "address" does not go together with `resolve: there`, which leaves names to the proxy; use one of the two',
      ],
    ],
    [
      'asking by address and forwarding',
      `{ ${URL_PROXY}, connect_by: address, plain_http: forward }`,
      [
        'upstream.proxy.connect_by: "address" does not go together with `plain_http: forward`, which leaves names to the proxy; use one of the two',
      ],
    ],
    ['a misspelt key', `{ ${URL_PROXY}, no_prxy: [] }`, ['upstream.proxy.no_prxy: unknown key; did you mean `no_proxy`?']],
    [
      'a suffix as other programs write it',
      `{ ${URL_PROXY}, no_proxy: [.corp.test] }`,
      ['upstream.proxy.no_proxy[0]: ".corp.test": write "*.corp.test" for every name below, and a second rule for the apex'],
    ],
  ])('is reported for %s', async (_name, text, problems) => {
    const found = await outcome(text);
    expect(found).toEqual(problems);
    expect(JSON.stringify(found)).not.toContain('hunter2');
  });

  function LIKE(): string {
    return 'write it like "http://proxy.example:3128"';
  }
});
