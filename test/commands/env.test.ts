// Twin of src/commands/env.ts.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { env } from '../../src/commands/env.ts';
import type { EnvOptions } from '../../src/commands/env.ts';
import { fakeAdmin } from './fake-admin.ts';
import { capture, json, temporaryFolder, writeConfig } from './rig.ts';

interface Printed {
  readonly code: number;
  readonly variables: Readonly<Record<string, string>>;
  readonly err: string;
  readonly out: string;
  readonly directory: string;
}

async function print(config: unknown, options: EnvOptions = {}, environment: NodeJS.ProcessEnv = {}): Promise<Printed> {
  const written = writeConfig(config);
  const captured = capture(written.directory, { env: environment });
  const code = await env({ json: true, config: written.config, ...options }, captured.context);
  const variables = code === 0 && options.json !== false ? (json(captured)['variables'] as Record<string, string>) : {};
  return { code, variables, err: captured.err(), out: captured.out(), directory: written.directory };
}

const TOKEN = 'p@ss/w:rd\'%"$';
const TWO = { sandboxes: { one: { token: { env: 'ONE' } }, two: { sources: ['10.0.0.0/8'] } } };

describe('env', () => {
  it('prints lines that bash takes as they are meant', async () => {
    const { out, directory } = await print({}, { json: false });
    const printed = execFileSync(
      'bash',
      ['--norc', '-c', `eval "$1"; printf '%s %s' "$HTTPS_PROXY" "$SSL_CERT_FILE"`, 'bash', out],
      {
        encoding: 'utf8',
        env: {},
      },
    );
    expect(printed).toBe(`http://127.0.0.1:8080 ${join(directory, 'certs/public/bundle.pem')}`);
  });

  it('says notes on standard error only, so that the lines can be evaluated', async () => {
    const { out, err } = await print({}, { json: false });
    for (const line of out.trimEnd().split('\n')) expect(line).toMatch(/^export \w+='/);
    expect(err).toMatch(/^note: Node before 22\.21 dials past the proxy/m);
  });

  it('works where the secrets of the config are not', async () => {
    const config = { network: { allowlist: [{ domain: 'a.test', transform: { Authorization: { env: 'GONE' } } }] } };
    expect((await print(config)).code).toBe(0);
  });

  it.each([
    {
      name: 'the listening address',
      config: { listen: { proxy: '127.0.0.1:18080' } },
      options: {},
      wanted: 'http://127.0.0.1:18080',
    },
    {
      name: 'loopback for every interface',
      config: { listen: { proxy: '0.0.0.0:8080' } },
      options: {},
      wanted: 'http://127.0.0.1:8080',
    },
    {
      name: 'an IPv6 address in brackets',
      config: { listen: { proxy: '[fd00::2]:8080' } },
      options: {},
      wanted: 'http://[fd00::2]:8080',
    },
    {
      name: 'the host as a container sees it',
      config: { listen: { proxy: '0.0.0.0:8080' } },
      options: { docker: true },
      wanted: 'http://host.docker.internal:8080',
    },
    { name: 'what --proxy names', config: {}, options: { proxy: 'http://door.test:3128/' }, wanted: 'http://door.test:3128' },
    {
      name: 'the port even where it is the standard one, for curl takes 1080',
      config: {},
      options: { proxy: 'http://door.test:80' },
      wanted: 'http://door.test:80',
    },
    {
      name: 'the token that --proxy bears',
      config: TWO,
      options: { proxy: 'http://one:secret@door.test:80' },
      wanted: 'http://one:secret@door.test:80',
    },
  ])('names $name as the proxy', async ({ config, options, wanted }) => {
    expect((await print(config, options)).variables['HTTPS_PROXY']).toBe(wanted);
  });

  it("puts the sandbox's token into the URL so that every reader gets it back", async () => {
    const { variables, err } = await print(TWO, { sandbox: 'one' }, { ONE: TOKEN });
    const url = new URL(variables['HTTP_PROXY'] ?? '');
    expect([url.username, decodeURIComponent(url.password)]).toEqual(['one', TOKEN]);
    expect(variables['HTTP_PROXY']).toMatch(/^http:\/\/one:[\w%.-]+@127\.0\.0\.1:8080$/);
    expect(err).not.toContain(TOKEN);
  });

  it('asks for no token where the sandbox is known by its address', async () => {
    expect((await print(TWO, { sandbox: 'two' })).variables['HTTP_PROXY']).toBe('http://127.0.0.1:8080');
  });

  it.each([
    { name: 'which of several sandboxes is meant', config: TWO, options: {}, code: 2, message: /--sandbox: one, two/ },
    {
      name: 'for a sandbox that there is',
      config: TWO,
      options: { sandbox: 'three' },
      code: 2,
      message: /no sandbox "three"; there are: one, two/,
    },
    {
      name: 'for no sandbox where there is none',
      config: {},
      options: { sandbox: 'one' },
      code: 2,
      message: /leave --sandbox out/,
    },
    {
      name: 'for the URL where the port is any free one',
      config: { listen: { proxy: '127.0.0.1:0' } },
      options: {},
      code: 2,
      message: /--proxy/,
    },
    { name: 'for an http URL', config: {}, options: { proxy: 'socks5://u:hunter2@x:1' }, code: 2, message: /--proxy is no URL/ },
    { name: 'for a URL without path', config: {}, options: { proxy: 'http://x:1/path' }, code: 2, message: /--proxy is no URL/ },
    {
      name: 'for the token',
      config: TWO,
      options: { sandbox: 'one' },
      code: 78,
      message: /sandboxes\.one\.token: .*"ONE" is not set/,
    },
    { name: 'for a valid config', config: { netwrok: {} }, options: {}, code: 78, message: /did you mean `network`/ },
  ])('asks $name', async ({ config, options, code, message }) => {
    const printed = await print(config, options);
    expect([printed.code, printed.out]).toEqual([code, '']);
    expect(printed.err).toMatch(message);
    expect(printed.err).not.toContain('hunter2');
  });

  const GIVEN = {
    sandboxes: {
      one: {
        token: 'a-token-0123456789',
        env: { MODE: "it's $HOME", LEVEL: { value: '7' }, SLACK: { credential: 'slack-bot' }, HTTPS_PROXY: 'http://elsewhere' },
      },
    },
  };

  it('prints what the sandbox was given of its own, a placeholder in the place of a credential', async () => {
    const { variables, err } = await print(GIVEN, { sandbox: 'one' });
    expect(variables).toMatchObject({ MODE: "it's $HOME", LEVEL: '7', SLACK: '__GEMINI_CRED_slack-bot__' });
    // What would lead past the door is not the sandbox's to say.
    expect(variables['HTTPS_PROXY']).toBe('http://one:a-token-0123456789@127.0.0.1:8080');
    expect(err + JSON.stringify(variables)).not.toContain('elsewhere');
  });

  it('prints them so that bash takes them as they are meant', async () => {
    const { out } = await print(GIVEN, { sandbox: 'one', json: false });
    const script = 'eval "$1"; printf %s "$MODE"';
    expect(execFileSync('bash', ['--norc', '-c', script, 'bash', out], { encoding: 'utf8', env: {} })).toBe("it's $HOME");
  });

  describe('for an environment of the running proxy', () => {
    const proxy = 'http://env_1:its-token@door.test:8080';
    const environment = { id: 'env_1', env: [{ MODE: 'text' }, { SLACK: { credential: 'slack' } }] };

    it('asks for its variables, and takes its proxy URL as it was shown when it was made', async () => {
      const network = { allowlist: [{ domain: 'localhost', transform: { 'X-A': '[secret]' } }] };
      const admin = await fakeAdmin(() => ({ status: 200, body: { ...environment, network } }));
      const tokenFile = join(temporaryFolder(), 'token');
      writeFileSync(tokenFile, 'admin-token\n');
      const { variables } = await print({}, { sandbox: 'env_1', url: admin.url, tokenFile, proxy });
      expect(variables).toMatchObject({
        MODE: 'text',
        SLACK: '__GEMINI_CRED_slack__',
        HTTPS_PROXY: proxy,
        NO_PROXY: '127.0.0.1,::1',
      });
      expect(admin.heard).toEqual([{ path: '/v1beta/environments/env_1', authorization: 'Bearer admin-token', body: undefined }]);
    });

    it.each([
      { name: 'no id', options: { proxy }, answer: environment, status: 200, code: 2, message: /named with --sandbox/ },
      { name: 'no proxy URL', options: { sandbox: 'env_1' }, answer: environment, status: 200, code: 2, message: /with --proxy/ },
      {
        name: 'none of this id',
        options: { sandbox: 'env_1', proxy },
        answer: { error: { message: 'there is no environment of this id' } },
        status: 404,
        code: 1,
        message: /404: there is no environment/,
      },
      {
        name: 'another answer',
        options: { sandbox: 'env_1', proxy },
        answer: {},
        status: 200,
        code: 1,
        message: /is no environment/,
      },
    ])('says so where there is $name', async ({ options, answer, status, code, message }) => {
      const admin = await fakeAdmin(() => ({ status, body: answer }));
      const tokenFile = join(temporaryFolder(), 'token');
      writeFileSync(tokenFile, 'admin-token');
      const printed = await print({}, { ...options, url: admin.url, tokenFile });
      expect([printed.code, printed.out]).toEqual([code, '']);
      expect(printed.err).toMatch(message);
      expect(printed.err).not.toContain('its-token');
    });
  });

  it("judges NO_PROXY by the asked sandbox's own network (B15)", async () => {
    const config = {
      sandboxes: {
        one: { sources: ['10.0.0.1'], network: { allowlist: [{ domain: 'localhost' }] } },
        two: { sources: ['10.0.0.2'] },
      },
    };
    expect((await print(config, { sandbox: 'one' })).variables['NO_PROXY']).toBe('127.0.0.1,::1');
    expect((await print(config, { sandbox: 'two' })).variables['NO_PROXY']).toBe('localhost,127.0.0.1,::1');
  });

  it.each([
    {
      name: 'where they are made',
      options: {},
      ca: 'certs/public/ca.pem',
      bundle: 'certs/public/bundle.pem',
      trust: 'certs/public/trust.p12',
      wget: 'certs/public/wgetrc',
    },
    {
      name: 'beside each other in what is mounted into a container',
      options: { docker: true },
      ca: '/etc/sallyport/ca.pem',
      bundle: '/etc/sallyport/bundle.pem',
      trust: '/etc/sallyport/trust.p12',
      wget: '/etc/sallyport/mounted.wgetrc',
    },
    {
      name: 'where --ca says, the others beside it',
      options: { ca: '/opt/x/root.pem' },
      ca: '/opt/x/root.pem',
      bundle: '/opt/x/bundle.pem',
      trust: '/opt/x/trust.p12',
      wget: undefined,
    },
    {
      name: 'where --ca and --bundle say',
      options: { ca: '/a/ca.pem', bundle: '/b/all.pem' },
      ca: '/a/ca.pem',
      bundle: '/b/all.pem',
      trust: '/b/trust.p12',
      wget: undefined,
    },
  ])('places the files $name', async ({ options, ca, bundle, trust, wget }) => {
    const { variables, directory, out } = await print({}, options);
    const at = (path: string): string => resolve(directory, path);
    expect([variables['NODE_EXTRA_CA_CERTS'], variables['SSL_CERT_FILE']]).toEqual([at(ca), at(bundle)]);
    expect(variables['JAVA_TOOL_OPTIONS']).toContain(` -Djavax.net.ssl.trustStore=${at(trust)} `);
    expect(variables['SYSTEM_WGETRC']).toBe(wget === undefined ? undefined : at(wget));
    const { files, notes } = JSON.parse(out) as { files: unknown; notes: string[] };
    expect(files).toEqual({
      ca: at(ca),
      bundle: at(bundle),
      trust_store: at(trust),
      ...(wget === undefined ? {} : { wgetrc: at(wget) }),
    });
    expect(notes.some((note) => note.includes('have /etc/wgetrc say'))).toBe(wget === undefined);
  });

  it('prints an env file for docker', async () => {
    const { out, err } = await print({}, { docker: true, json: false });
    expect(out).toContain('\nHTTPS_PROXY=http://host.docker.internal:8080\n');
    expect(err).toMatch(/docker run --env-file .*certs\/public:\/etc\/sallyport:ro/);
    expect(err).toMatch(/listen\.proxy is on loopback, which containers do not reach/);
  });
});
