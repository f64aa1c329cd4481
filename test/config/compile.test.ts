// Twin of compile.ts, compile-network.ts, compile-credentials.ts and source-reader.ts.
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compileConfig } from '../../src/config/compile.ts';
import type { Compiled, CompileResult } from '../../src/config/compile.ts';
import { parseConfig } from '../../src/config/parse-config.ts';
import { parseAddress, parseHost } from '../../src/exchange/authority.ts';
import type { Host } from '../../src/exchange/authority.ts';
import type { Rule, TransformField } from '../../src/exchange/rule.ts';
import { GRACE_MS } from '../../src/config/source-reader.ts';
import { fixture, problemsOf } from './fixtures.ts';

let baseDirectory: string;

beforeAll(async () => {
  baseDirectory = await mkdtemp(join(tmpdir(), 'compile-'));
});
afterAll(() => rm(baseDirectory, { recursive: true }));

async function compile(
  text: string,
  env: NodeJS.ProcessEnv = {},
  before?: CompileResult,
  now: () => number = Date.now,
): Promise<CompileResult> {
  const parsed = parseConfig(text, 'a.yaml');
  if ('problems' in parsed) throw new Error(JSON.stringify(parsed.problems));
  const last = before !== undefined && 'lastGood' in before ? { lastGood: before.lastGood } : {};
  return compileConfig(parsed.config, { generation: 7, baseDirectory, env, now, ...last });
}

async function compiled(text: string, env: NodeJS.ProcessEnv = {}): Promise<Compiled> {
  const result = await compile(text, env);
  if ('problems' in result) throw new Error(JSON.stringify(result.problems));
  return result.compiled;
}

async function problems(text: string, env: NodeJS.ProcessEnv = {}): Promise<string[]> {
  return problemsOf(await compile(text, env)).map(({ path, message }) => `${path}: ${message}`);
}

function host(text: string): Host {
  const parsed = parseHost(text) ?? parseAddress(text);
  if (parsed === undefined) throw new Error(text);
  return parsed;
}

function rules(from: Compiled, name: string, sandbox = 'default'): readonly Rule[] {
  return from.snapshot.sandboxes.byId(sandbox)?.policy.rulesFor(host(name)) ?? [];
}

function shown(fields: readonly TransformField[] | undefined): string[] {
  return (fields ?? []).map(({ name, value }) => `${name}: ${value.reveal()}`);
}

describe('a rule', () => {
  it('is compiled with every field', async () => {
    const result = await compiled(await fixture('every-key.yaml'), {
      ONE_TOKEN: 'x'.repeat(20),
      HUB_TOKEN: 'hub',
      DOOR_PASSWORD: 'p',
    });
    const [rule] = rules(result, 'api.example', 'one');
    expect(rule).toMatchObject({ id: 'api.example', monitor: true, passthrough: false });
    expect([...(rule?.ports ?? [])]).toEqual([443, 8443]);
    expect([...(rule?.methods ?? [])]).toEqual(['GET', 'POST']);
    expect(rule?.paths?.map((pattern) => pattern.matches('/v1/x'))).toEqual([true]);
    expect(
      ['10.1.2.255', '10.1.3.0', '10.9.9.9', '10.9.9.8', 'fd00::1', 'fe00::1'].map((text) => rule?.opened.contains(host(text))),
    ).toEqual([true, false, true, false, true, false]);
    expect(rule?.injection).toMatchObject({ credential: 'hub', mode: 'if_absent', allowPlaintext: true });
    expect([...(rule?.injection?.keep ?? [])]).toEqual(['x-api-key']);
    expect(shown(rule?.injection?.transform)).toEqual(['x-a: 3', 'X-B: 2']);
    expect(rules(result, 'pinned.example', 'one')[0]).toMatchObject({ passthrough: true, injection: undefined });
    expect(rules(result, 'pinned.example', 'two')).toEqual([]);
    expect(result.snapshot.sandboxes.byId('one')?.policy.denied(host('a.internal.example'))).toBeDefined();
    expect(result.snapshot.generation).toBe(7);
    expect(result.snapshot.limits).toEqual({
      connections: 10,
      streams: 100,
      headerBytes: 8192,
      headerFields: 20,
      targetBytes: 2048,
      replyHeaderBytes: 1_048_576,
      headerMs: 1000,
      handshakeMs: 2000,
      dnsMs: 250,
      connectMs: 3000,
      replyMs: 3_600_000,
      bodyIdleMs: 240_000,
      tunnelIdleMs: 300_000,
      keepAliveMs: 6000,
      upstreamKeepAliveMs: 7000,
      upstreamConnections: 9,
      drainMs: 8000,
    });
  });

  it('denies a Unicode name by its A-label, and below it', async () => {
    const result = await compiled(await fixture('unicode-domain.yaml')); // A16
    const policy = result.snapshot.sandboxes.byId('default')?.policy;
    expect(policy?.denied(host('shop.xn--bcher-kva.example'))).toBe('deny *.xn--bcher-kva.example');
    expect(policy?.denied(host('xn--bcher-kva.example'))).toBeUndefined();
  });

  it('opens a private address for exactly the port and range that it names, and says so', async () => {
    const result = await compiled(await fixture('address-opened.yaml')); // A23
    const [rule] = rules(result, '172.30.0.30');
    expect([...(rule?.ports ?? [])]).toEqual([10000]);
    expect(['172.30.0.29', '172.30.0.30', '172.30.0.31'].map((text) => rule?.opened.contains(host(text)))).toEqual([
      false,
      true,
      false,
    ]);
    expect(rules(result, '172.30.0.31')).toEqual([]);
    expect(result.warnings).toEqual(['network.allowlist[0]: opens addresses inside the walls: 172.30.0.30/32']);
  });

  it('matches whole paths, wherever its author put anchors', async () => {
    const [rule] = rules(await compiled(await fixture('half-anchored-pattern.yaml')), 'api.example'); // B02
    const [pattern] = rule?.paths ?? [];
    expect(['/api.v1', '/www.v1', '/wwwXv1', '/api.v1.evil', '/evil/www.v1'].map((path) => pattern?.matches(path))).toEqual([
      true,
      true,
      true,
      false,
      false,
    ]);
  });

  it('of the most specific domain injects, whatever the order', async () => {
    const text = await fixture('overlapping-domains.yaml'); // B13
    const lines = text.split('\n');
    const entries = lines.filter((line) => line.includes('- {'));
    for (const order of [entries, [...entries].reverse(), [entries[1], entries[0], entries[2]]]) {
      const rest = lines.filter((line) => !line.includes('- {'));
      const at = rest.findIndex((line) => line.includes('allowlist'));
      const result = await compiled([...rest.slice(0, at + 1), ...order, ...rest.slice(at + 1)].join('\n'));
      expect(rules(result, 'mcp.dev.azure.test')[0]?.injection?.credential).toBe('inner');
      expect(rules(result, 'dev.azure.test')[0]?.injection?.credential).toBe('outer');
      expect(rules(result, 'other.azure.test')[0]?.injection).toBeUndefined();
      expect(rules(result, 'azure.test')).toEqual([]);
    }
  });
});

describe('a network that is not there', () => {
  it.each([
    [
      'missing-network.yaml',
      ['network: is missing: every request is refused; name hosts in `allowlist`, or write "disabled" where that is meant'],
    ],
    ['empty-allowlist.yaml', []],
  ])('allows nothing: %s', async (name, warnings) => {
    const result = await compiled(await fixture(name)); // B03
    expect(rules(result, 'example.com')).toEqual([]);
    expect(result.warnings).toEqual(warnings);
  });

  it('allows nothing: an object without allowlist', async () => {
    const result = await compiled('network: {}');
    expect(rules(result, 'example.com')).toEqual([]);
    expect(result.warnings).toEqual([
      'network: has no `allowlist`: every request is refused; name hosts in `allowlist`, or write "disabled" where that is meant',
    ]);
  });

  it('allows nothing: disabled', async () => {
    const result = await compiled('network: disabled');
    expect(rules(result, 'example.com')).toEqual([]);
    expect(result.warnings).toEqual([]);
  });
});

describe('a warning', () => {
  const allow = (rule: string) => `network: { allowlist: [${rule}] }`;
  it.each([
    [
      'the domain *',
      allow('{ domain: "*" }'),
      ['network.allowlist[0]: the domain "*" allows every host outside the walls that nothing else names'],
    ],
    [
      'a transform for the domain *',
      allow('{ domain: "*", transform: { X-A: b } }'),
      [
        'network.allowlist[0]: the domain "*" allows every host outside the walls that nothing else names',
        'network.allowlist[0]: the domain "*" sends what this rule puts on to every such host; name the hosts that may see it',
      ],
    ],
    [
      'a credential that no entry names',
      allow('{ domain: a.example, credential: hunter2 }'),
      [
        'network.allowlist[0].credential: names no credential of this file, and its requests are refused until one of that id is stored',
      ],
    ],
    [
      'a credential that is misspelt',
      `${allow('{ domain: a.example, credential: githbu }')}\ncredentials: { github: { type: bearer_token, token: a } }`,
      [
        'network.allowlist[0].credential: names no credential of this file, and its requests are refused until one of that id is stored; did you mean "github"?',
      ],
    ],
    [
      'an address inside the walls that is not opened',
      allow('{ domain: 172.30.0.30 }, { domain: 8.8.8.8 }, { domain: "fd00::1", addresses: ["fd00::2"] }'),
      [
        'network.allowlist[0]: "172.30.0.30" lies inside the walls and stays refused until this rule opens it with addresses: ["172.30.0.30"]',
        'network.allowlist[2]: opens addresses inside the walls: fd00::2/128',
        'network.allowlist[2]: "fd00::1" lies inside the walls and stays refused until this rule opens it with addresses: ["fd00::1"]',
      ],
    ],
    [
      'a mode without anything to inject',
      allow('{ domain: a.example, mode: set }'),
      ['network.allowlist[0]: `mode` and `keep` have no effect without `credential` or `transform`'],
    ],
    [
      'a glob where RE2 is meant',
      allow('{ domain: a.example, paths: ["/a/*", "/b/.*", "/c/[a-z]*"] }'),
      ['network.allowlist[0].paths[0]: "/a/*" is an RE2 pattern, in which "/*" repeats the slash; "/a/.*" is every path below'],
    ],
    [
      'a door that others reach',
      `listen: { proxy: "0.0.0.0:0" }\n${allow('')}`,
      [
        'listen.proxy: whoever reaches this address may use the door and its credentials; name `sandboxes` with tokens or sources',
      ],
    ],
    [
      'a short token',
      `sandboxes: { a: { token: short } }\n${allow('')}`,
      ['sandboxes.a.token: is shorter than 16 characters and could be guessed'],
    ],
  ])('is given for %s', async (_name, text, warnings) => {
    expect((await compiled(text)).warnings).toEqual(warnings);
  });

  it.each([
    [
      'plaintext-credential.yaml',
      'E16',
      'network.allowlist[0]: `allow_plaintext` sends the credential over plain http, where everyone on the way can read it',
    ],
    [
      'hidden-rule.yaml',
      'B13',
      'network.allowlist[1]: never applies: allowlist[0] has the same domain and ports and no methods or paths',
    ],
    [
      'missing-secret.yaml',
      'L04',
      'credentials.hub: credential "hub" is unavailable and its requests are refused: file "secrets/none" does not exist; create it or correct the path',
    ],
  ])('is given for %s (%s)', async (name, _fault, warning) => {
    expect((await compiled(await fixture(name))).warnings).toEqual([warning]);
  });
});

describe('credentials', () => {
  it('become the fields that they put on', async () => {
    const { credentials } = await compiled(await fixture('every-key.yaml'), {
      ONE_TOKEN: 'x'.repeat(20),
      HUB_TOKEN: 'hub',
      DOOR_PASSWORD: 'p',
    });
    const fieldsOf = (id: string) => {
      const credential = credentials.get(id);
      if (credential === undefined || 'fetched' in credential) return undefined;
      if ('unavailable' in credential) return credential.unavailable;
      return 'fields' in credential ? shown(credential.fields) : Object.keys(credential).join();
    };
    expect(fieldsOf('hub')).toEqual(['X-Hub: hub']);
    expect(fieldsOf('door')).toEqual([`Authorization: Basic ${Buffer.from('ci:p').toString('base64')}`]);
    expect(fieldsOf('many')).toEqual(['X-One: literal', 'X-Two: hub']);
  });

  it('bear the word Bearer where nothing else is said', async () => {
    const { credentials } = await compiled('network: disabled\ncredentials: { a: { type: bearer_token, token: t } }');
    expect(credentials.get('a')).toMatchObject({ id: 'a', type: 'bearer_token', fields: [{ name: 'Authorization' }] });
    const a = credentials.get('a');
    expect(a !== undefined && 'fields' in a && shown(a.fields)).toEqual(['Authorization: Bearer t']);
  });

  it.each([
    { name: 'an empty password', pair: 'username: sk_live, password: ""', sent: 'sk_live:' },
    { name: 'an empty user name', pair: 'username: "", password: { env: PASSWORD }', sent: ':hunter2' },
  ])('of type basic may have $name', async ({ pair, sent }) => {
    const { credentials } = await compiled(`network: disabled\ncredentials: { a: { type: basic, ${pair} } }`, {
      PASSWORD: 'hunter2',
    });
    const a = credentials.get('a');
    expect(a !== undefined && 'fields' in a && shown(a.fields)).toEqual([
      `Authorization: Basic ${Buffer.from(sent).toString('base64')}`,
    ]);
  });

  it('of type basic take a variable that is empty for a missing one', async () => {
    const text = 'network: disabled\ncredentials: { a: { type: basic, username: u, password: { env: PASSWORD } } }';
    const { credentials } = await compiled(text, { PASSWORD: '' });
    expect(credentials.get('a')).toHaveProperty('unavailable');
  });

  it('are unavailable while their secret is missing, and do not keep the door from starting', async () => {
    const result = await compiled(await fixture('missing-secret.yaml')); // L04
    expect(result.credentials.get('hub')).toEqual({
      id: 'hub',
      type: 'bearer_token',
      unavailable: 'file "secrets/none" does not exist; create it or correct the path',
    });
    expect(result.watched).toEqual([join(baseDirectory, 'secrets', 'none')]);
  });

  it.each([
    {
      name: 'CR LF',
      secret: 'hunter2\r\nX-Evil: 1',
      trouble: 'holds a line break inside; store the secret on one line',
      fault: 'E08',
    },
    { name: 'a lone LF', secret: 'hun\nter2', trouble: 'holds a line break inside; store the secret on one line', fault: 'E08' },
    { name: 'a NUL', secret: 'hunter2\0', trouble: 'holds a NUL; store the bare secret as text', fault: 'E08' },
    {
      name: 'a character beyond latin1',
      secret: 'hunter2\u0105',
      trouble: 'holds a character beyond latin1, which no header field can carry; store the secret as ASCII text',
      fault: 'E08',
    },
  ])('with $name are a problem that names them and not the value', async ({ secret, trouble }) => {
    const found = await problems(await fixture('secret-with-line-break.yaml'), { BROKEN: secret });
    expect(found).toEqual([
      `network.allowlist[1].transform.X-Key: environment variable "BROKEN" ${trouble}`,
      `credentials.hub.token: credential "hub": environment variable "BROKEN" ${trouble}`,
      `credentials.door.password: credential "door": environment variable "BROKEN" ${trouble}`,
    ]);
  });

  it('cannot have a colon in the user name of Basic', async () => {
    expect(await problems('credentials: { a: { type: basic, username: "a:b", password: c } }')).toEqual([
      'credentials.a.username: credential "a": holds a colon, which a user name of Basic cannot',
    ]);
  });

  it('are nowhere to be seen in what was compiled', async () => {
    const result = await compiled(await fixture('every-key.yaml'), {
      ONE_TOKEN: 'hunter2hunter2hunter2',
      HUB_TOKEN: 'hunter2',
      DOOR_PASSWORD: 'hunter2',
    });
    expect(JSON.stringify([result, [...result.credentials.values()], result.snapshot.sandboxes])).not.toContain('hunter2');
  });
});

describe('a problem', () => {
  it.each([
    [
      'two listeners at one address',
      'listen: { proxy: "10.0.0.2:8080", transparent: { tls: "0.0.0.0:8080", http: "[::1]:8080" } }',
      ['listen.transparent.tls: would listen where `listen.proxy` does; give each a port of its own'],
    ],
    [
      'a listener at the address of the admin listener',
      'listen: { transparent: { ports: { "8443": { tls: "[::]:9090" } } } }',
      ['admin.listen: would listen where `listen.transparent.ports.8443.tls` does; give each a port of its own'],
    ],
    [
      'a corporate proxy',
      'upstream: { proxy: { url: "http://proxy.example:3128", username: "a:b", password: { env: NOT_SET } } }',
      [
        'upstream.proxy.password: environment variable "NOT_SET" is not set; set it before the start',
        'upstream.proxy.username: holds a colon, which a user name of Basic cannot',
      ],
    ],
    [
      'a missing root',
      'upstream: { ca: [none.pem] }',
      ['upstream.ca[0]: file "none.pem" does not exist; create it or correct the path'],
    ],
    [
      'a root that is none',
      'upstream: { ca: [bad.pem] }',
      ['upstream.ca[0]: file "bad.pem" holds no valid PEM certificate; name a PEM file'],
    ],
    [
      'a token of two sandboxes',
      'sandboxes: { a: { token: hunter2hunter2hunter2 }, b: { token: { env: TWIN } } }',
      ['sandboxes.b.token: is the token of sandbox "a" too; give each its own'],
    ],
    [
      'a source of two sandboxes',
      'sandboxes: { a: { sources: [10.0.0.0/8] }, b: { sources: [10.1.0.0/16, 10.0.0.0/8] } }',
      ['sandboxes.b.sources[1]: "10.0.0.0/8" is a source of sandbox "a" too; give each its own'],
    ],
    [
      'a token that is not there',
      'sandboxes: { a: { token: { env: NOT_SET } } }',
      ['sandboxes.a.token: environment variable "NOT_SET" is not set; set it before the start'],
    ],
  ])('is reported for %s', async (_name, text, found) => {
    await writeFile(join(baseDirectory, 'bad.pem'), '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n');
    expect(await problems(text, { TWIN: 'hunter2hunter2hunter2' })).toEqual(found);
  });

  it('is reported for a transform without its value', async () => {
    expect(await problems(await fixture('missing-transform.yaml'))).toEqual([
      'network.allowlist[0].transform.X-Key: environment variable "NOT_SET" is not set; set it before the start', // L04
    ]);
  });
});

describe('a secret file', () => {
  const text = 'network: disabled\ncredentials: { a: { type: bearer_token, token: { file: token } } }';

  it('that others can read is warned of', async () => {
    await writeFile(join(baseDirectory, 'token'), 'one');
    await chmod(join(baseDirectory, 'token'), 0o644);
    expect((await compiled(text)).warnings).toEqual([
      'credentials.a.token: file "token" can be read by every user of this machine; run: chmod 600 token',
    ]);
    await chmod(join(baseDirectory, 'token'), 0o600);
    expect((await compiled(text)).warnings).toEqual([]);
  });

  it('changes the digest with its content only', async () => {
    const digest = async () => {
      const result = await compile(text);
      return 'digest' in result ? result.digest : undefined;
    };
    await writeFile(join(baseDirectory, 'token'), 'one');
    const first = await digest();
    expect(await digest()).toBe(first);
    await writeFile(join(baseDirectory, 'token'), 'two');
    expect(await digest()).not.toBe(first);
  });

  it('that vanishes or is emptied keeps its last good value, with a warning', async () => {
    await writeFile(join(baseDirectory, 'token'), 'one');
    const good = await compile(text);
    for (const spoil of [() => writeFile(join(baseDirectory, 'token'), ''), () => rm(join(baseDirectory, 'token'))]) {
      await spoil();
      const result = await compile(text, {}, good);
      if ('problems' in result) throw new Error('rejected');
      const a = result.compiled.credentials.get('a');
      expect(a !== undefined && 'fields' in a && shown(a.fields)).toEqual(['Authorization: Bearer one']);
      expect(result.compiled.warnings).toEqual([expect.stringContaining('its last good value stays in use')]);
    }
  });

  it('that stays away goes out of use after its grace, and not a moment before (fault E06)', async () => {
    await writeFile(join(baseDirectory, 'token'), 'one');
    const good = await compile(text);
    await rm(join(baseDirectory, 'token'));
    const goneAt = 1_000_000;
    const gone = await compile(text, {}, good, () => goneAt);
    const credentialAt = async (now: number) => {
      const result = await compile(text, {}, gone, () => now);
      if ('problems' in result) throw new Error('rejected');
      return result.compiled.credentials.get('a');
    };
    expect(await credentialAt(goneAt + GRACE_MS - 1)).toHaveProperty('fields');
    expect(await credentialAt(goneAt + GRACE_MS)).toHaveProperty('unavailable');
  });
});

describe('a secret that is removed for good', () => {
  const path = (name: string) => join(baseDirectory, name);
  /** Good with `text`, then without the file, from the moment on that its grace is over. */
  const afterGrace = async (text: string, name: string): Promise<Compiled> => {
    await writeFile(path(name), 'hunter2hunter2hunter2', { mode: 0o600 });
    const good = await compile(text);
    await rm(path(name));
    const gone = await compile(text, {}, good, () => 1_000_000);
    const over = await compile(text, {}, gone, () => 1_000_000 + GRACE_MS);
    if ('problems' in over) throw new Error(JSON.stringify(over.problems));
    // Nor does it come back, or reject a load, when the file is changed for another reason.
    const later = await compile(`${text}\nlog: { level: warn }`, {}, over, () => 2_000_000);
    if ('problems' in later) throw new Error(JSON.stringify(later.problems));
    expect(later.compiled.warnings).toEqual(over.compiled.warnings);
    return later.compiled;
  };

  it('takes the transform that needs it out of use, and nothing else', async () => {
    const text =
      'network: { denylist: [{ domain: b.example }], allowlist: [{ domain: a.example, transform: { X-A: a, X-Key: { file: key } } }] }';
    const over = await afterGrace(text, 'key');
    const problem = 'file "key" does not exist; create it or correct the path';
    expect(rules(over, 'a.example')[0]?.injection).toMatchObject({ credential: undefined, unavailable: problem });
    expect(over.snapshot.sandboxes.byId('default')?.policy.denied(host('b.example'))).toBe('deny b.example');
    expect(over.warnings).toEqual([
      `network.allowlist[0].transform.X-Key: is unavailable and the requests of its rule are refused: ${problem}`,
    ]);
  });

  it('leaves nobody known by the token that it was', async () => {
    const { snapshot, warnings } = await afterGrace('network: disabled\nsandboxes: { a: { token: { file: door } } }', 'door');
    const basic = (token: string) => `Basic ${Buffer.from(`a:${token}`).toString('base64')}`;
    expect(snapshot.sandboxes.required).toBe(true);
    expect([basic('hunter2hunter2hunter2'), basic('')].map((each) => snapshot.sandboxes.byToken(each))).toEqual([
      undefined,
      undefined,
    ]);
    expect(warnings).toEqual([
      'sandboxes.a.token: is unavailable and nobody is known by it: file "door" does not exist; create it or correct the path',
    ]);
  });

  it('is no excuse for one that was never there: a slip of the pen rejects the load', async () => {
    const good = await compile('network: disabled');
    const slips = await compile(
      'network: { allowlist: [{ domain: a.example, transform: { X-Key: { file: kye } } }] }\nsandboxes: { a: { token: { env: KYE } } }\nupstream: { ca: [roto.pem] }',
      {},
      good,
    );
    expect(problemsOf(slips).map(({ path: at }) => at)).toEqual([
      'network.allowlist[0].transform.X-Key',
      'sandboxes.a.token',
      'upstream.ca[0]',
    ]);
  });

  it('is in use to the last moment of its grace', async () => {
    const text = 'network: { allowlist: [{ domain: a.example, transform: { X-Key: { file: key } } }] }';
    await writeFile(path('key'), 'hunter2', { mode: 0o600 });
    const good = await compile(text);
    await rm(path('key'));
    const gone = await compile(text, {}, good, () => 1_000_000);
    const still = await compile(text, {}, gone, () => 1_000_000 + GRACE_MS - 1);
    expect('compiled' in still && rules(still.compiled, 'a.example')[0]?.injection).toMatchObject({ unavailable: undefined });
  });
});

describe("a rule's credential", () => {
  it('that nobody declares is left to the store, and in no warning, for it may be the secret itself', async () => {
    const result = await compiled('network: { allowlist: [{ domain: a.example, credential: hunter2 }] }');
    const [rule] = rules(result, 'a.example');
    expect(rule?.injection).toMatchObject({ credential: 'hunter2', unavailable: undefined });
    expect(JSON.stringify(result.warnings)).not.toContain('hunter2');
  });
});

describe('the denylist of the top-level network', () => {
  it.each([
    { name: 'its own network', network: '{ denylist: [{ domain: own.example }], allowlist: [{ domain: "*" }] }', own: true },
    { name: 'a network without denylist', network: '{ allowlist: [{ domain: "*" }] }', own: false },
  ])('holds for a sandbox with $name too', async ({ network, own }) => {
    const result = await compiled(
      `network: { denylist: [{ domain: "*.top.example" }], allowlist: [] }\nsandboxes: { a: { sources: [10.0.0.1], network: ${network} } }`,
    );
    const policy = result.snapshot.sandboxes.byId('a')?.policy;
    const denied = ['x.top.example', 'own.example', 'other.example'].map((name) => policy?.denied(host(name)));
    expect(denied).toEqual(['deny *.top.example', own ? 'deny own.example' : undefined, undefined]);
    expect(policy?.rulesFor(host('other.example')).map(({ id }) => id)).toEqual(['*']);
  });
});

describe('roots for upstreams', () => {
  const text = 'network: disabled\nupstream: { ca: [root.pem] }';

  it('are read as they stand, watched, and kept while their file is gone', async () => {
    const [pem = ''] = rootCertificates;
    await writeFile(join(baseDirectory, 'root.pem'), pem);
    const good = await compile(text);
    expect('compiled' in good && [good.compiled.upstreamCa, good.compiled.watched]).toEqual([
      [pem],
      [join(baseDirectory, 'root.pem')],
    ]);
    await rm(join(baseDirectory, 'root.pem'));
    const later = await compile(text, {}, good);
    expect('compiled' in later && [later.compiled.upstreamCa, later.compiled.warnings]).toEqual([
      [pem],
      [
        'upstream.ca[0]: file "root.pem" does not exist; create it or correct the path; its last good content stays in use for 30 s',
      ],
    ]);
    expect('digest' in later && later.digest).toBe('digest' in good && good.digest);
  });

  it('are trusted no more when their file has been gone for its grace', async () => {
    const [pem = ''] = rootCertificates;
    await writeFile(join(baseDirectory, 'root.pem'), pem);
    const good = await compile(text);
    await rm(join(baseDirectory, 'root.pem'));
    const gone = await compile(text, {}, good, () => 1_000_000);
    const rootsAt = async (now: number) => {
      const result = await compile(text, {}, gone, () => now);
      return 'compiled' in result ? [result.compiled.upstreamCa.length, result.compiled.warnings] : result.problems;
    };
    expect(await rootsAt(1_000_000 + GRACE_MS - 1)).toEqual([1, [expect.stringContaining('stays in use')]]);
    expect(await rootsAt(1_000_000 + GRACE_MS)).toEqual([
      0,
      ['upstream.ca[0]: file "root.pem" does not exist; create it or correct the path; its roots are trusted no more'],
    ]);
  });
});
