import { describe, expect, it } from 'vitest';
import { isRefusal } from '../../src/exchange/codes.ts';
import type { Refusal } from '../../src/exchange/codes.ts';
import type { Pattern, Rule } from '../../src/exchange/rule.ts';
import type { Arrival, Permit } from '../../src/exchange/stages.ts';
import { decide } from '../../src/policy/decide.ts';
import { facesOf } from '../../src/network/address-class.ts';
import { parseDomain } from '../../src/policy/host-pattern.ts';
import { compilePattern } from '../../src/foundation/pattern.ts';
import { buildPolicy } from '../../src/policy/policy-index.ts';
import {
  ceilingAt,
  exchangeArrival,
  intentOf,
  passthroughArrival,
  ruleOf,
  tunnelArrival,
  upgradeArrival,
} from '../support/arrivals.ts';

type Entry = readonly [domain: string, rule?: Partial<Rule>];

function judge(arrival: Arrival, allowlist: readonly Entry[], denylist: readonly string[] = []): Permit | Refusal {
  const pattern = (text: string) => {
    const parsed = parseDomain(text);
    if ('problem' in parsed) throw new Error(parsed.problem);
    return parsed;
  };
  const policy = buildPolicy({
    allowlist: allowlist.map(([domain, rule]) => ({ pattern: pattern(domain), rule: ruleOf(rule) })),
    denylist: denylist.map(pattern),
    facesOf,
  });
  return decide(intentOf(arrival), { id: 'default', policy });
}

/** `allow <rule>`, `would_refuse <code> by <rule>` or `<code> by <rule>`. */
function saysOf(verdict: Permit | Refusal): string {
  if (isRefusal(verdict)) return verdict.rule === undefined ? verdict.code : `${verdict.code} by ${verdict.rule}`;
  return verdict.wouldRefuse === undefined
    ? `allow ${verdict.rule.id}`
    : `would_refuse ${verdict.wouldRefuse} by ${verdict.rule.id}`;
}

const says = (arrival: Arrival, allowlist: readonly Entry[], denylist: readonly string[] = []): string =>
  saysOf(judge(arrival, allowlist, denylist));

function paths(...sources: readonly string[]): readonly Pattern[] {
  return sources.map((source) => {
    const compiled = compilePattern(source);
    if ('problem' in compiled) throw new Error(compiled.problem);
    return compiled;
  });
}

const https = (host: string, parts: Parameters<typeof exchangeArrival>[0] = {}) =>
  exchangeArrival({ ceiling: ceilingAt(host.includes(':') ? host : `${host}:443`), ...parts });

const METHODS = new Set(['GET', 'HEAD']);

describe('by name', () => {
  it.each([
    { name: 'nothing under an empty allowlist', allowlist: [], host: 'example.test', verdict: 'not_allowlisted', fault: 'B03' },
    { name: 'a host that no rule names', allowlist: [['a.test']], host: 'b.test', verdict: 'not_allowlisted' },
    { name: 'a host by its own rule', allowlist: [['*'], ['a.test']], host: 'a.test', verdict: 'allow a.test', fault: 'B13' },
    { name: 'an unlisted address', allowlist: [['a.test']], host: '140.82.114.4', verdict: 'not_allowlisted', fault: 'A22' },
    { name: 'an address under the catch-all', allowlist: [['*']], host: '140.82.114.4', verdict: 'allow *', fault: 'A22' },
  ] satisfies { name: string; allowlist: Entry[]; host: string; verdict: string; fault?: string }[])(
    'judges $name: $verdict, as CONNECT and as request alike',
    ({ allowlist, host, verdict }) => {
      expect(says(tunnelArrival({ target: `${host}:443` }), allowlist)).toBe(verdict); // A15
      expect(says(exchangeArrival({ target: `http://${host}/` }), allowlist)).toBe(verdict);
      expect(says(https(host), allowlist)).toBe(verdict);
      expect(says(upgradeArrival({ target: `http://${host}/` }), allowlist)).toBe(verdict);
    },
  );

  it.each(['private.example.test', 'PRIVATE.Example.TEST', 'private.example.test.', 'x.internal.example.test'])(
    'lets the denylist win over every rule for %s',
    (host) => {
      const allowlist: Entry[] = [
        ['private.example.test'],
        ['*.example.test'],
        ['x.internal.example.test', { monitor: true }],
        ['*'],
      ];
      const verdict = judge(tunnelArrival({ target: `${host}:443` }), allowlist, [
        '*.internal.example.test',
        'private.example.test',
      ]);
      expect(verdict).toMatchObject({ code: 'denylisted' }); // A14, B11
    },
  );

  it('does not let a field choose the host, the rule or the next proxy', () => {
    const more = ['X-Upstream-Https-Proxy', 'http://b.test:3128', 'Forwarded', 'host=b.test', 'X-Forwarded-Host', 'b.test'];
    expect(says(tunnelArrival({ target: 'a.test:443', more }), [['a.test']])).toBe('allow a.test'); // B14
    expect(says(tunnelArrival({ target: 'a.test:443', more }), [['b.test']])).toBe('not_allowlisted');
  });

  it('asks no wider rule once one owns the host', () => {
    const allowlist: Entry[] = [['*'], ['*.a.test'], ['x.a.test', { methods: METHODS }]];
    expect(says(https('x.a.test', { method: 'POST' }), allowlist)).toBe('method_denied by x.a.test');
    expect(says(https('y.a.test', { method: 'POST' }), allowlist)).toBe('allow *.a.test');
  });
});

describe('by port', () => {
  it.each([
    { target: 'a.test:443', verdict: 'allow a.test' },
    { target: 'a.test:80', verdict: 'allow a.test', fault: 'B05' },
    { target: 'a.test:22', verdict: 'port_denied by a.test' },
    { target: 'a.test:25', verdict: 'port_denied by a.test' },
    { target: 'a.test:5432', verdict: 'port_denied by a.test' },
    { target: 'a.test:442', verdict: 'port_denied by a.test' },
    { target: 'a.test:444', verdict: 'port_denied by a.test' },
    { target: 'a.test:79', verdict: 'port_denied by a.test' },
    { target: 'a.test:81', verdict: 'port_denied by a.test' },
  ])('a rule without ports says of CONNECT $target: $verdict', ({ target, verdict }) => {
    expect(says(tunnelArrival({ target }), [['a.test']])).toBe(verdict); // B04
  });

  it.each([
    { target: 'http://a.test/', verdict: 'allow a.test' },
    { target: 'http://a.test:80/', verdict: 'allow a.test' },
    { target: 'http://a.test:8080/', verdict: 'port_denied by a.test' },
    { target: 'http://a.test:443/', verdict: 'port_denied by a.test' },
    { target: 'https://a.test/', verdict: 'allow a.test' },
    { target: 'https://a.test:80/', verdict: 'port_denied by a.test' },
  ])('a rule without ports says of $target: $verdict', ({ target, verdict }) => {
    expect(says(exchangeArrival({ target }), [['a.test']])).toBe(verdict); // B04
  });

  it('judges the scheme again inside a tunnel', () => {
    const inside = (host: string, scheme: 'http' | 'https') =>
      says(exchangeArrival({ ceiling: ceilingAt(host, { scheme }) }), [['a.test']]);
    expect(inside('a.test:80', 'http')).toBe('allow a.test'); // B05
    expect(inside('a.test:80', 'https')).toBe('port_denied by a.test');
    expect(inside('a.test:443', 'http')).toBe('port_denied by a.test');
  });

  it('opens the ports that a rule names and no others', () => {
    const allowlist: Entry[] = [['a.test', { ports: new Set([8443]) }]];
    expect(says(tunnelArrival({ target: 'a.test:8443' }), allowlist)).toBe('allow a.test');
    expect(says(tunnelArrival({ target: 'a.test:443' }), allowlist)).toBe('port_denied by a.test');
    expect(says(exchangeArrival({ target: 'http://a.test/' }), allowlist)).toBe('port_denied by a.test');
  });
});

describe('by method and path', () => {
  const allowlist: Entry[] = [['a.test', { methods: METHODS, paths: paths('/public/.*', '/exact') }]];

  it.each([
    { name: 'what fits both', method: 'GET', path: '/public/x', verdict: 'allow a.test' },
    { name: 'another method that is named', method: 'HEAD', path: '/exact', verdict: 'allow a.test' },
    { name: 'a method that is not named', method: 'POST', path: '/public/x', verdict: 'method_denied by a.test' },
    { name: 'the same method in lower case', method: 'get', path: '/public/x', verdict: 'method_denied by a.test' },
    { name: 'a method that begins alike', method: 'GETX', path: '/public/x', verdict: 'method_denied by a.test' },
    { name: 'an unknown method', method: 'FOO', path: '/public/x', verdict: 'method_denied by a.test', fault: 'E11' },
    { name: 'OPTIONS that is not named', method: 'OPTIONS', path: '/public/x', verdict: 'method_denied by a.test', fault: 'E11' },
    { name: 'another path', method: 'GET', path: '/admin', verdict: 'path_denied by a.test' },
    { name: 'a path with more before', method: 'GET', path: '/x/public/y', verdict: 'path_denied by a.test' },
    { name: 'a path with more behind', method: 'GET', path: '/exact/', verdict: 'path_denied by a.test' },
    { name: 'a path in another case', method: 'GET', path: '/EXACT', verdict: 'path_denied by a.test' },
    { name: 'a path with its first slash twice', method: 'GET', path: '//public/x', verdict: 'path_denied by a.test' },
    { name: 'a path with an encoded slash', method: 'GET', path: '/public%2fx', verdict: 'path_denied by a.test' },
    {
      name: 'a path that a query only seems to make fit',
      method: 'GET',
      path: '/admin?/public/x',
      verdict: 'path_denied by a.test',
    },
    { name: 'a query that the pattern does not name', method: 'GET', path: '/exact?a=/../b', verdict: 'allow a.test' },
  ])('says of $name: $verdict, over TLS and in plain alike', ({ method, path, verdict }) => {
    expect(says(https('a.test', { method, target: path }), allowlist)).toBe(verdict);
    expect(says(exchangeArrival({ method, target: `http://a.test${path}` }), allowlist)).toBe(verdict); // B07
  });

  it.each([
    {
      name: 'an override to a method that is not named',
      more: ['X-HTTP-Method-Override', 'DELETE'],
      verdict: 'method_denied by a.test',
    },
    { name: 'one with underscores', more: ['x_http_method_override', 'DELETE'], verdict: 'method_denied by a.test' },
    { name: 'one under another name', more: ['X-Method-Override', 'PUT'], verdict: 'method_denied by a.test' },
    { name: 'a second one', more: ['X-HTTP-Method', 'HEAD', 'X-HTTP-Method', 'PUT'], verdict: 'method_denied by a.test' },
    { name: 'one to a method that is named', more: ['X-HTTP-Method-Override', ' head '], verdict: 'allow a.test' },
    { name: 'a rewritten path', more: ['X-Original-URL', '/admin'], verdict: 'path_denied by a.test', fault: 'B14' },
    { name: 'one under another name', more: ['X_Rewrite_Url', '/public/x'], verdict: 'path_denied by a.test', fault: 'B14' },
    { name: 'a field that is none of them', more: ['X-Original-Host', 'b.test'], verdict: 'allow a.test' },
  ])('hears $name: $verdict', ({ more, verdict }) => {
    expect(says(https('a.test', { target: '/public/x', more }), allowlist)).toBe(verdict);
  });

  it('leaves such fields alone under a rule that names neither methods nor paths', () => {
    const more = ['X-HTTP-Method-Override', 'DELETE', 'X-Original-URL', '/admin'];
    expect(says(https('a.test', { more }), [['a.test']])).toBe('allow a.test');
  });

  it('judges a CONNECT by name and port alone, and a WebSocket handshake by all', () => {
    expect(says(tunnelArrival({ target: 'a.test:443' }), allowlist)).toBe('allow a.test');
    const socket = (target: string) => says(upgradeArrival({ ceiling: ceilingAt('a.test:443'), target }), allowlist);
    expect([socket('/public/ws'), socket('/ws')]).toEqual(['allow a.test', 'path_denied by a.test']);
  });
});

describe('several rules of one domain', () => {
  const allowlist: Entry[] = [
    ['a.test', { methods: METHODS }],
    ['a.test', { methods: new Set(['POST']), paths: paths('/upload') }],
    ['a.test', { ports: new Set([8443]) }],
  ];

  it.each([
    { name: 'the first that fits', method: 'GET', target: '/upload', verdict: 'allow a.test' },
    { name: 'the second where the first does not', method: 'POST', target: '/upload', verdict: 'allow a.test#2' },
    { name: 'the misfit of the one that came closest', method: 'POST', target: '/x', verdict: 'path_denied by a.test#2' },
    { name: 'the first of two that came equally close', method: 'PUT', target: '/x', verdict: 'method_denied by a.test' },
  ])('answers with $name', ({ method, target, verdict }) => {
    expect(says(https('a.test', { method, target }), allowlist)).toBe(verdict);
  });

  it('goes on to a later port', () => {
    expect(says(https('a.test:8443', { method: 'PUT' }), allowlist)).toBe('allow a.test#3');
    expect(says(https('a.test:9443'), allowlist)).toBe('port_denied by a.test');
  });
});

describe('passthrough', () => {
  const passed: Entry[] = [['a.test', { passthrough: true }]];
  const blind = (host = 'a.test:443') => passthroughArrival({ ceiling: ceilingAt(host) });

  it('lets an uninspected tunnel pass under a rule that says so, on its ports', () => {
    expect(says(blind(), passed)).toBe('allow a.test');
    expect(says(blind('a.test:8443'), passed)).toBe('port_denied by a.test');
  });

  it('refuses an uninspected tunnel under a rule that does not', () => {
    const verdict = judge(blind(), [['a.test', { methods: METHODS }]]);
    expect(verdict).toMatchObject({
      code: 'port_denied',
      detail: 'TLS to port 443 of a.test is to be inspected, and this tunnel is not',
    });
  });

  it('refuses inspected TLS under a rule that passes it through', () => {
    expect(says(https('a.test'), passed)).toBe('port_denied by a.test');
    expect(says(exchangeArrival({ target: 'https://a.test/' }), passed)).toBe('port_denied by a.test');
  });

  it('lets plain HTTP to the same host pass, for there is nothing to pass through', () => {
    expect(says(exchangeArrival({ target: 'http://a.test/' }), passed)).toBe('allow a.test');
  });

  it('finds the fitting one of two rules', () => {
    const allowlist: Entry[] = [['a.test'], ['a.test', { passthrough: true, ports: new Set([8443]) }]];
    expect(says(blind('a.test:8443'), allowlist)).toBe('allow a.test#2');
    expect(says(https('a.test'), allowlist)).toBe('allow a.test');
    expect(says(blind(), allowlist)).toBe('port_denied by a.test');
  });
});

describe('enforcement: monitor', () => {
  const monitor = true;
  const watched: Entry[] = [['a.test', { monitor, methods: METHODS, paths: paths('/public/.*') }]];

  it.each([
    { name: 'what fits', method: 'GET', host: 'a.test:443', target: '/public/x', verdict: 'allow a.test' },
    { name: 'a POST', method: 'POST', host: 'a.test:443', target: '/public/x', verdict: 'would_refuse method_denied by a.test' },
    { name: 'a PUT', method: 'PUT', host: 'a.test:443', target: '/public/x', verdict: 'would_refuse method_denied by a.test' },
    {
      name: 'an OPTIONS',
      method: 'OPTIONS',
      host: 'a.test:443',
      target: '/public/x',
      verdict: 'would_refuse method_denied by a.test',
    },
    { name: 'a HEAD elsewhere', method: 'HEAD', host: 'a.test:443', target: '/x', verdict: 'would_refuse path_denied by a.test' },
    {
      name: 'another port',
      method: 'GET',
      host: 'a.test:8443',
      target: '/public/x',
      verdict: 'would_refuse port_denied by a.test',
    },
    { name: 'another host', method: 'GET', host: 'b.test:443', target: '/public/x', verdict: 'not_allowlisted' },
  ])('records what it lets pass: $name is $verdict', ({ method, host, target, verdict }) => {
    expect(says(https(host, { method, target }), watched)).toBe(verdict);
  });

  it('records the port of a CONNECT', () => {
    expect(says(tunnelArrival({ target: 'a.test:22' }), watched)).toBe('would_refuse port_denied by a.test');
  });

  it('does not soften the denylist', () => {
    expect(says(https('a.test', { target: '/public/x' }), watched, ['a.test'])).toBe('denylisted by deny a.test');
  });

  it('lets an enforced rule of the same domain that fits go first, wherever it stands', () => {
    const allowlist: Entry[] = [
      ['a.test', { monitor, methods: METHODS }],
      ['a.test', { methods: new Set(['POST']) }],
    ];
    expect(says(https('a.test', { method: 'POST' }), allowlist)).toBe('allow a.test#2');
    expect(says(https('a.test', { method: 'PUT' }), allowlist)).toBe('would_refuse method_denied by a.test');
  });

  it.each([
    {
      name: 'an unlisted host',
      allowlist: [['*', { monitor }], ['a.test']],
      host: 'b.test',
      verdict: 'would_refuse not_allowlisted by *',
    },
    { name: 'a listed host', allowlist: [['*', { monitor }], ['a.test']], host: 'a.test', verdict: 'allow a.test' },
    {
      name: 'an unlisted host, as second catch-all',
      allowlist: [
        ['*', { ports: new Set([8443]) }],
        ['*', { monitor }],
      ],
      host: 'b.test',
      verdict: 'would_refuse not_allowlisted by *#2',
    },
    {
      name: 'an unlisted host on another port',
      allowlist: [['*', { monitor }]],
      host: 'b.test:8443',
      verdict: 'would_refuse not_allowlisted by *',
    },
    { name: 'a host below a wildcard', allowlist: [['*.b.test', { monitor }]], host: 'x.b.test', verdict: 'allow *.b.test' },
    { name: 'an unlisted host, unmonitored', allowlist: [['*']], host: 'b.test', verdict: 'allow *' },
  ] satisfies { name: string; allowlist: Entry[]; host: string; verdict: string }[])(
    'rehearses an allowlist with a catch-all: $name is $verdict',
    ({ allowlist, host, verdict }) => {
      expect(says(https(host), allowlist)).toBe(verdict);
    },
  );
});

describe('the permit', () => {
  it('carries the intent, the sandbox and the rule that was asked', () => {
    const permit = judge(https('a.test'), [['a.test', { opened: { key: '10.0.0.0/8', contains: () => true } }]]);
    expect(permit).toMatchObject({
      sandbox: { id: 'default' },
      rule: { id: 'a.test', opened: { key: '10.0.0.0/8' } },
      wouldRefuse: undefined,
    });
  });
});
