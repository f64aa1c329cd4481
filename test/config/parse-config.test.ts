// Twin of parse-config.ts, and of what it is made of: read-document.ts, problem-text.ts, problem.ts, fields.ts and the schemas.
import { describe, expect, it } from 'vitest';
import { parseConfig } from '../../src/config/parse-config.ts';
import { formatPath, formatProblem } from '../../src/config/problem.ts';
import type { Problem } from '../../src/config/problem.ts';
import { fixture, problemsOf } from './fixtures.ts';

function client(tokenUrl: string, fields = ''): string {
  return `{ type: oauth2, client_id: a, client_secret: b, refresh_token: c, token_url: "${tokenUrl}"${fields === '' ? '' : `, ${fields}`} }`;
}

function rule(fields: string): string {
  return `network:\n  allowlist:\n    - { domain: a.example, ${fields} }`;
}

describe('a valid config', () => {
  it.each(['smallest-valid.yaml', 'smallest-valid.json', 'every-key.yaml'])('%s has no problem', async (name) => {
    expect(problemsOf(parseConfig(await fixture(name), name))).toEqual([]);
  });

  it('gets every default', () => {
    const parsed = parseConfig('network: disabled', 'a.yaml');
    expect(JSON.parse(JSON.stringify(parsed))).toMatchObject({
      config: {
        listen: { proxy: { host: '127.0.0.1', port: 8080 } },
        admin: { listen: { host: '127.0.0.1', port: 9090 }, token: { file: 'state/admin-token' } },
        ca: { certificate: 'certs/public/ca.pem', key: 'certs/ca.key' },
        network: 'disabled',
        sandboxes: {},
        credentials: {},
        store: { uri: 'file:state/store.json', key: { kind: 'file', path: 'state/store-key' } },
        audit: { path: '-' },
        log: { level: 'info' },
        limits: {
          connections: 4096,
          header_bytes: 65536,
          header_fields: 1000,
          target_bytes: 16384,
          reply_header_bytes: 131072,
          timeouts: {
            header: 10_000,
            handshake: 10_000,
            dns: 5000,
            connect: 10_000,
            reply: 300_000,
            body_idle: 300_000,
            tunnel_idle: 600_000,
            keep_alive: 75_000,
            upstream_keep_alive: 30_000,
            drain: 10_000,
          },
          upstream_connections: 256,
        },
        upstream: { ca: [], proxy: null },
      },
    });
  });

  it('holds no readable secret once parsed', () => {
    const parsed = parseConfig('credentials: { a: { type: bearer_token, token: hunter2 } }', 'a.yaml');
    expect(problemsOf(parsed)).toEqual([]);
    expect(JSON.stringify(parsed)).not.toContain('hunter2');
  });

  it('follows aliases', () => {
    const text = 'network: { allowlist: [&r { domain: a.example, ports: &p [443] }, { domain: b.example, ports: *p }] }';
    expect(problemsOf(parseConfig(text, 'a.yaml'))).toEqual([]);
  });
});

describe('a fixture with a known fault', () => {
  it.each([
    {
      name: 'leading-zero-range.yaml',
      fault: 'A04',
      problems: [
        'leading-zero-range.yaml:4: network.allowlist[0].addresses[0]: "010.0.0.0/8" is not a range of addresses; write it like "10.0.0.0/8" or "fd00::/8", without leading zeros',
      ],
    },
    {
      name: 'address-with-port.yaml',
      fault: 'A23',
      problems: [
        'address-with-port.yaml:4: network.allowlist[0].domain: "172.30.0.30:10000" holds a port; write domain: "172.30.0.30" and ports: [10000]',
        'address-with-port.yaml:5: network.allowlist[1].domain: "[fd00::30]:10000" holds a port; write domain: "[fd00::30]" and ports: [10000]',
      ],
    },
    {
      name: 'pattern-as-domain.yaml',
      fault: 'B02',
      problems: [
        'pattern-as-domain.yaml:4: network.allowlist[0].domain: "^api\\.example\\.test|www.example.test$" is not a host name or an IP address',
      ],
    },
    {
      name: 'empty.yaml',
      fault: 'B03',
      problems: ['empty.yaml: the config is empty; write at least `network: { allowlist: [...] }`, or `network: disabled`'],
    },
    {
      name: 'null-network.yaml',
      fault: 'B03',
      problems: ['null-network.yaml:2: network: expected "disabled" or an object with `allowlist` and `denylist`, got nothing'],
    },
    {
      name: 'null-allowlist.yaml',
      fault: 'B03',
      problems: ['null-allowlist.yaml:3: network.allowlist: expected a list, got nothing; give it a value or remove the key'],
    },
    {
      name: 'inspected-passthrough.yaml',
      fault: 'H05',
      problems: [
        'inspected-passthrough.yaml:4: network.allowlist[0].tls: passthrough is not inspected and cannot go together with `credential`; remove it, or remove `tls`',
        'inspected-passthrough.yaml:5: network.allowlist[1].tls: passthrough is not inspected and cannot go together with `transform`, `methods`, `paths`; remove them, or remove `tls`',
      ],
    },
  ])('$name ($fault) is refused with its place and remedy', async ({ name, problems }) => {
    const found = problemsOf(parseConfig(await fixture(name), name));
    expect(found.map((problem) => formatProblem(problem, name))).toEqual(problems);
  });
});

describe('a single problem', () => {
  const domain = (text: string) => `network: { allowlist: [{ domain: ${text} }] }`;
  const rows: readonly (readonly [name: string, text: string, path: string, message: string])[] = [
    ['a misspelled key', 'netwrok: disabled', 'netwrok', 'unknown key; did you mean `network`?'],
    [
      'a key in camelCase',
      rule('allowPlaintext: true'),
      'network.allowlist[0].allowPlaintext',
      'unknown key; did you mean `allow_plaintext`?',
    ],
    ["a neighbour's key", 'network: { allowedDomains: [] }', 'network.allowedDomains', 'unknown key; did you mean `allowlist`?'],
    ['a key that resembles nothing', 'network: { zebra: 1 }', 'network.zebra', 'unknown key; known here: allowlist, denylist'],
    [
      'an unknown key of a credential',
      'credentials: { a: { type: basic, username: u, password: p, pasword: q } }',
      'credentials.a.pasword',
      'unknown key; did you mean `password`?',
    ],
    [
      'a misspelled source of a secret',
      rule('transform: { X: { envv: A } }'),
      'network.allowlist[0].transform.X.envv',
      'unknown key; did you mean `env`?',
    ],
    [
      'a missing domain',
      'network: { allowlist: [{ ports: [443] }] }',
      'network.allowlist[0].domain',
      'is missing; expected text',
    ],
    [
      'a URL as domain',
      domain('"https://api.example/v1"'),
      'network.allowlist[0].domain',
      '"https://api.example/v1" is a URL; write the host alone: "api.example"',
    ],
    [
      'one port without brackets',
      rule('ports: 443'),
      'network.allowlist[0].ports',
      'expected a list, got a number; put it in brackets: [...]',
    ],
    ['port 0', rule('ports: [0]'), 'network.allowlist[0].ports[0]', 'must be at least 1'],
    ['port 65536', rule('ports: [65536]'), 'network.allowlist[0].ports[0]', 'must be at most 65535'],
    ['no port', rule('ports: []'), 'network.allowlist[0].ports', 'must not be empty; name at least one, or leave the key out'],
    [
      'a method in lower case',
      rule('methods: [get]'),
      'network.allowlist[0].methods[0]',
      '"get" would match nothing, for methods are case-sensitive; write "GET"',
    ],
    ['TRACE as method', rule('methods: [TRACE]'), 'network.allowlist[0].methods[0]', '"TRACE" is never let through; remove it'],
    [
      'CONNECT as method',
      rule('methods: [CONNECT]'),
      'network.allowlist[0].methods[0]',
      '"CONNECT" is judged by name and port; list the methods inside the tunnel',
    ],
    [
      'a range with bits after its prefix',
      rule('addresses: [10.0.0.5/8]'),
      'network.allowlist[0].addresses[0]',
      '"10.0.0.5/8" has bits set after its prefix; write "10.0.0.0/8"',
    ],
    ['an unknown mode', rule('mode: overwrite'), 'network.allowlist[0].mode', 'must be one of "set", "replace", "if_absent"'],
    [
      'a header that frames the message',
      rule('transform: { Content-Length: "0" }'),
      'network.allowlist[0].transform.Content-Length',
      '"Content-Length" frames the message or belongs to one hop, and cannot be put on; remove it',
    ],
    [
      'a header of the hop to the proxy',
      rule('transform: { Proxy-Authorization: x }'),
      'network.allowlist[0].transform.Proxy-Authorization',
      '"Proxy-Authorization" frames the message or belongs to one hop, and cannot be put on; remove it',
    ],
    [
      'a header name with a colon',
      rule('transform: { "X:": x }'),
      'network.allowlist[0].transform.<key not shown>',
      'what stands here is not a header name; use letters, digits and "-", as in "X-Api-Key"',
    ],
    [
      'one header in two spellings',
      rule('transform: { X-Key: a, x-key: b }'),
      'network.allowlist[0].transform',
      '"X-Key" and "x-key" are one header; keep one of them',
    ],
    [
      'a number as header value',
      rule('transform: { X-Version: 5 }'),
      'network.allowlist[0].transform.X-Version',
      'expected text (in quotes where it looks like a number), `{ env: NAME }` or `{ file: PATH }`',
    ],
    [
      'a secret from two places',
      rule('transform: { X: { env: A, file: b } }'),
      'network.allowlist[0].transform.X',
      'needs exactly one of `env` and `file`',
    ],
    [
      'a secret from nowhere',
      rule('transform: { X: {} }'),
      'network.allowlist[0].transform.X',
      'needs exactly one of `env` and `file`',
    ],
    [
      'an unknown type of credential',
      'credentials: { a: { type: bearer } }',
      'credentials.a.type',
      'is not a known type of credential; use "bearer_token", "basic", "header", "oauth2", "environment_variable", "aws_sigv4" or "exec"',
    ],
    [
      'a credential without type',
      'credentials: { a: { token: x } }',
      'credentials.a.type',
      'is missing; use "bearer_token", "basic", "header", "oauth2", "environment_variable", "aws_sigv4" or "exec"',
    ],
    [
      'a token endpoint without TLS',
      `credentials: { a: ${client('http://login.test/token')} }`,
      'credentials.a.token_url',
      'must be an https URL, as in "https://login.example.com/token"',
    ],
    [
      'a range for the token endpoint that is none',
      `credentials: { a: ${client('https://login.test/token', 'token_addresses: ["10.0.0.1/8"]')} }`,
      'credentials.a.token_addresses[0]',
      '"10.0.0.1/8" has bits set after its prefix; write "10.0.0.0/8"',
    ],
    [
      'a command that is a line',
      'credentials: { a: { type: exec, command: "gh auth token" } }',
      'credentials.a.command',
      'expected a list, got text; put it in brackets: [...]',
    ],
    [
      'a command of nothing',
      'credentials: { a: { type: exec, command: [] } }',
      'credentials.a.command',
      'must not be empty; write the program and its arguments as a list',
    ],
    [
      'a command that begins with nothing',
      'credentials: { a: { type: exec, command: ["", "x"] } }',
      'credentials.a.command',
      'must begin with a program',
    ],
    [
      'a variable for a command with its value',
      'credentials: { a: { type: exec, command: [x], env: ["TOKEN=marker"] } }',
      'credentials.a.env[0]',
      'is not a name of an environment variable; use letters, digits and "_"',
    ],
    [
      'an id with a dot',
      'credentials: { a.b: { type: bearer_token, token: x } }',
      'credentials."a.b"',
      '"a.b" is not an id; use up to 63 letters, digits, "-" and "_", a letter or digit first',
    ],
    [
      'a listener without host',
      'listen: { proxy: 8080 }',
      'listen.proxy',
      '"8080" is not a listening address; write "127.0.0.1:8080"',
    ],
    [
      'a listener with a port too high',
      'listen: { proxy: "127.0.0.1:65536" }',
      'listen.proxy',
      '"127.0.0.1:65536" is not a listening address; write "127.0.0.1:8080"',
    ],
    [
      'a duration without unit',
      'limits: { timeouts: { dns: 5 } }',
      'limits.timeouts.dns',
      '"5" is not a duration; write the unit too: "5s" or "5ms"',
    ],
    ['a size in decimal units', 'limits: { header_bytes: 64KB }', 'limits.header_bytes', '"64KB" is not a size; write "64KiB"'],
    [
      'a text in place of the id of a credential',
      rule('credential: "Bearer x"'),
      'network.allowlist[0].credential',
      'is not the id of a credential; use up to 63 letters, digits, "-" and "_", a letter or digit first, and write the secret under that id in `credentials`',
    ],
    [
      'a user name and a password that are both empty',
      'credentials: { a: { type: basic, username: "", password: "" } }',
      'credentials.a.password',
      'must not be empty together with `username`; give one of them its text',
    ],
    [
      'an empty token',
      'credentials: { a: { type: bearer_token, token: "" } }',
      'credentials.a.token',
      'the text is empty; put the secret into it',
    ],
    ['no connection', 'limits: { connections: 0 }', 'limits.connections', 'must be at least 1'],
    [
      'a sandbox that nobody can be',
      'sandboxes: { a: {} }',
      'sandboxes.a',
      'needs `token` or `sources`, or nobody could be known as this sandbox',
    ],
    [
      'a store of an unknown kind',
      'store: { uri: "mysql://u:hunter2@db" }',
      'store.uri',
      'must begin with "file:", "redis://" or "postgresql://"',
    ],
    ['an unknown level', 'log: { level: trace }', 'log.level', 'must be one of "debug", "info", "warn", "error"'],
    [
      'a network that is almost disabled',
      'network: disable',
      'network',
      'expected "disabled" or an object with `allowlist` and `denylist`',
    ],
    [
      'an RE2 pattern with a back-reference',
      rule(String.raw`paths: ['/(a)\1']`),
      'network.allowlist[0].paths[0]',
      String.raw`"/(a)\1" is not an RE2 pattern: invalid escape sequence: \1`,
    ],
    ['a list as config', '[]', '', 'expected an object, got a list'],
    [
      'a key that reaches for the prototype',
      'credentials: { __proto__: { type: basic } }',
      'credentials.__proto__',
      'this key is not allowed; remove it',
    ],
  ];

  it.each(rows)('is reported for %s', (_name, text, path, message) => {
    const found = problemsOf(parseConfig(text, 'a.yaml'));
    expect(found.map(({ path: at, message: says }) => [at, says])).toEqual([[path, message]]);
  });
});

describe('a text that cannot be read', () => {
  const bomb = [
    'a: &a [x,x,x,x,x,x,x,x,x]',
    ...'bcdefgh'.split('').map(
      (key, i) =>
        `${key}: &${key} [${Array(9)
          .fill(`*${'abcdefg'[i] ?? ''}`)
          .join(',')}]`,
    ),
  ];
  const rows: readonly (readonly [name: string, text: string, file: string, problem: Problem])[] = [
    [
      'a key that stands twice',
      'log: {}\nlog: {}',
      'a.yaml',
      { path: '', line: 2, message: 'this key stands twice in one mapping; keep one of them' },
    ],
    [
      'a key that stands twice in JSON',
      '{\n"log": {},\n"log": {} }',
      'a.json',
      { path: '', line: 3, message: 'this key stands twice in one mapping; keep one of them' },
    ],
    ['a tab', 'log:\n\tlevel: info', 'a.yaml', { path: '', line: 2, message: 'a tab is used as indentation; use blanks' }],
    [
      'a second document',
      'log: {}\n---\nnetwork: disabled',
      'a.yaml',
      { path: '', line: 2, message: 'more than one document; remove the `---` between them' },
    ],
    [
      'a tag',
      'network: !secret hunter2',
      'a.yaml',
      { path: '', line: 1, message: 'tags (`!name`) are not understood; use { env: NAME } or { file: PATH } for secrets' },
    ],
    [
      'JSON with a comment',
      '{\n// hunter2\n}',
      'a.json',
      { path: '', line: 2, message: 'not valid JSON; check quotes, commas and brackets' },
    ],
    ['an alias bomb', bomb.join('\n'), 'a.yaml', { path: '', message: 'too many aliases; write the values out' }],
  ];

  it.each(rows)('has its problem: %s', (_name, text, file, problem) => {
    expect(problemsOf(parseConfig(text, file))).toEqual([problem]);
  });

  it('never shows the text around the fault, which may be a secret', () => {
    for (const text of ['token: "hunter2', 'a: b: hunter2', '{"a": hunter2}', 'hunter2: [', '- hunter2\nb: 1']) {
      for (const file of ['a.yaml', 'a.json']) {
        const found = problemsOf(parseConfig(text, file));
        expect(found).not.toEqual([]);
        if (!text.startsWith('hunter2')) expect(JSON.stringify(found)).not.toContain('hunter2');
      }
    }
  });

  it('survives aliases that lead in a circle and nesting without end', () => {
    expect(problemsOf(parseConfig('network: &n { allowlist: [*n] }', 'a.yaml'))).not.toEqual([]);
    expect(problemsOf(parseConfig('['.repeat(100_000), 'a.yaml'))).not.toEqual([]);
  });
});

describe('many problems', () => {
  it('come all at once, in the order of the file, with their lines', () => {
    const text = [
      'netwrok: {}',
      'listen: { proxy: 8080 }',
      'network:',
      '  allowlist:',
      '    - domian: a.example',
      '    - { domain: b.example, ports: [0, 443, 70000], methods: [get] }',
      '    - { domain: c.example, tls: passthrough, credential: hub, transform: { Host: x } }',
      'limits: { timeouts: { dns: 5 } }',
    ].join('\n');
    const found = problemsOf(parseConfig(text, 'a.yaml'));
    expect(found.map(({ line, path }) => `${line ?? 0} ${path}`)).toEqual([
      '1 netwrok',
      '2 listen.proxy',
      '5 network.allowlist[0].domain',
      '5 network.allowlist[0].domian',
      '6 network.allowlist[1].ports[0]',
      '6 network.allowlist[1].ports[2]',
      '6 network.allowlist[1].methods[0]',
      '7 network.allowlist[2].transform.Host',
      '7 network.allowlist[2].tls',
      '8 limits.timeouts.dns',
    ]);
  });

  it('never show a value of a wrong type', () => {
    const text =
      'credentials: { a: { type: bearer_token, token: 8675309 } }\nsandboxes: { b: { token: [8675309] } }\nadmin: { token: 8675309 }';
    const found = problemsOf(parseConfig(text, 'a.yaml'));
    expect(found).toHaveLength(3);
    expect(JSON.stringify(found)).not.toContain('8675309');
  });
});

describe('a secret in the place of a key', () => {
  const LONG = 'ghp_0123456789abcdef0123456789ABCDEF0123';
  it.each([
    { name: 'a header without the blank after its colon', text: rule('transform: { "Authorization:Bearer hunter2" }') },
    { name: 'two of them in two cases', text: rule('transform: { "X:hunter2": a, "x:hunter2": b }') },
    { name: 'one in a list of objects', text: rule('transform: [{ "Authorization:Bearer hunter2": "" }]') },
    { name: 'one in a credential', text: 'credentials: { a: { type: header, headers: { "X-Key:hunter2": "" } } }' },
    { name: 'a key of a rule', text: rule('"credential:hunter2"') },
    { name: 'a hop-by-hop header with a token', text: rule(`transform: { proxy-${LONG}: "" }`) },
    { name: 'a kept header', text: rule('keep: ["Cookie: hunter2"]') },
    { name: 'an id of a credential', text: 'credentials: { "github:hunter2": { type: bearer_token, token: a } }' },
    { name: 'a token as id', text: `credentials: { ${LONG}.x: { type: bearer_token, token: a } }` },
    { name: 'a token as key', text: `${LONG}: 1` },
    { name: 'a key at the top', text: '"token hunter2": 1' },
    { name: 'a reference to a credential', text: rule('credential: ".hunter2"') },
    { name: 'a reference of a variable', text: 'sandboxes: { a: { token: b, env: { A: { credential: "hunter2 x" } } } }' },
  ])('is not repeated: $name', ({ text }) => {
    const found = problemsOf(parseConfig(text, 'a.yaml')).map((problem) => formatProblem(problem, 'a.yaml'));
    expect(found).not.toEqual([]);
    expect(found.join('\n')).not.toMatch(/hunter2|0123456789abcdef/);
  });
});

describe('formatPath', () => {
  it.each([
    [['network', 'allowlist', 2, 'domain'], 'network.allowlist[2].domain'],
    [['credentials', 'a.b'], 'credentials."a.b"'],
    [['credentials', '3f2504e0-4f89-11d3-9a0c-0305e82c3301'], 'credentials.3f2504e0-4f89-11d3-9a0c-0305e82c3301'],
    [['x'.repeat(40)], 'x'.repeat(40)],
    [['x'.repeat(41)], '<key not shown>'],
    [['abcdefghijklmn1'], 'abcdefghijklmn1'],
    [['abcdefghijklmno1'], '<key not shown>'],
    [['1234567890123456'], '1234567890123456'],
    [['a b'], '<key not shown>'],
    [['a:b'], '<key not shown>'],
    [[], ''],
  ])('writes %j', (path, text) => {
    expect(formatPath(path)).toBe(text);
  });
});
