import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseAddress, parseHost } from '../../src/exchange/authority.ts';
import type { Host } from '../../src/exchange/authority.ts';
import { facesOf } from '../../src/network/address-class.ts';
import { parseDomain } from '../../src/policy/host-pattern.ts';
import type { DomainPattern } from '../../src/policy/host-pattern.ts';
import { buildPolicy, DENY_ALL } from '../../src/policy/policy-index.ts';
import { ruleOf } from '../support/arrivals.ts';

function pattern(text: string): DomainPattern {
  const parsed = parseDomain(text);
  if ('problem' in parsed) throw new Error(parsed.problem);
  return parsed;
}

function host(text: string): Host {
  const parsed = parseHost(text) ?? parseAddress(text);
  if (parsed === undefined) throw new Error(`not a host: "${text}"`);
  return parsed;
}

function policyOf(allowlist: readonly string[], denylist: readonly string[] = []) {
  return buildPolicy({
    allowlist: allowlist.map((domain) => ({ pattern: pattern(domain), rule: ruleOf() })),
    denylist: denylist.map(pattern),
    facesOf,
  });
}

const owners = (allowlist: readonly string[], name: string): string[] =>
  policyOf(allowlist)
    .rulesFor(host(name))
    .map((rule) => rule.id);

describe('rulesFor', () => {
  const both = ['example.test', '*.example.test'];

  it.each([
    { name: 'a name that only ends alike', host: 'evil-example.test', rules: [], fault: 'B01' },
    { name: 'a name that ends alike without a mark', host: 'notexample.test', rules: [], fault: 'B01' },
    { name: 'a name that begins alike', host: 'example.test.evil.test', rules: [], fault: 'B01' },
    { name: 'a longer top-level domain', host: 'example.testing', rules: [], fault: 'B01' },
    { name: 'a name two levels below', host: 'a.b.example.test', rules: ['*.example.test'], fault: 'B01' },
    { name: 'a name one level below', host: 'a.example.test', rules: ['*.example.test'], fault: 'B01' },
    { name: 'the apex', host: 'example.test', rules: ['example.test'], fault: 'B01' },
    { name: 'the parent', host: 'test', rules: [], fault: 'B01' },
    { name: 'the apex in upper case with a dot', host: 'EXAMPLE.test.', rules: ['example.test'], fault: 'A14' },
  ])('of an apex and its wildcard gives $name: $rules', ({ host: name, rules }) => {
    expect(owners(both, name)).toEqual(rules);
  });

  it('does not take the apex for below itself', () => {
    expect(owners(['*.example.test'], 'example.test')).toEqual([]); // B01
  });

  it.each([
    { name: 'the exact name', host: 'dev.azure.test', rules: ['dev.azure.test'], fault: 'B13' },
    { name: 'the exact name below it', host: 'mcp.dev.azure.test', rules: ['mcp.dev.azure.test'], fault: 'B13' },
    { name: 'the longer wildcard', host: 'x.dev.azure.test', rules: ['*.dev.azure.test'], fault: 'B13' },
    { name: 'the shorter wildcard', host: 'x.azure.test', rules: ['*.azure.test'], fault: 'B13' },
    { name: 'the catch-all', host: 'azure.test', rules: ['*'], fault: 'B13' },
  ])('gives $host to $name, whatever the order', ({ host: name, rules }) => {
    const domains = ['*', '*.azure.test', 'dev.azure.test', '*.dev.azure.test', 'mcp.dev.azure.test'];
    expect(owners(domains, name)).toEqual(rules);
    expect(owners(domains.toReversed(), name)).toEqual(rules);
  });

  it('keeps several rules of one domain in file order and numbers them', () => {
    const policy = policyOf(['*', 'a.test', '*', 'A.test.', '*.a.test', '*']);
    expect(policy.rulesFor(host('b.test')).map((rule) => rule.id)).toEqual(['*', '*#2', '*#3']);
    expect(policy.rulesFor(host('a.test')).map((rule) => rule.id)).toEqual(['a.test', 'a.test#2']);
  });

  it.each([
    {
      name: 'a Unicode rule',
      domain: 'b\u00fccher.test',
      host: 'xn--bcher-kva.test',
      rules: ['xn--bcher-kva.test'],
      fault: 'A16',
    },
    {
      name: 'an A-label rule',
      domain: 'xn--bcher-kva.test',
      host: 'XN--bcher-KVA.test',
      rules: ['xn--bcher-kva.test'],
      fault: 'A16',
    },
    { name: 'an IPv4 rule', domain: '172.30.0.30', host: '172.30.0.30', rules: ['172.30.0.30'], fault: 'A23' },
    { name: 'an IPv6 rule', domain: 'fd00::30', host: '[FD00:0:0::30]', rules: ['fd00::30'], fault: 'A23' },
    { name: 'an IPv4 rule, its neighbour', domain: '172.30.0.30', host: '172.30.0.31', rules: [], fault: 'A23' },
    { name: 'an IPv4 rule, its mapped spelling', domain: '140.82.114.4', host: '[::ffff:140.82.114.4]', rules: [], fault: 'A22' },
    { name: 'a name rule, an address', domain: 'example.test', host: '140.82.114.4', rules: [], fault: 'A22' },
    { name: 'a wildcard rule, an address', domain: '*.example.test', host: '140.82.114.4', rules: [], fault: 'A22' },
    { name: 'a catch-all, an IPv4 address', domain: '*', host: '140.82.114.4', rules: ['*'], fault: 'A22' },
    { name: 'a catch-all, an IPv6 address', domain: '*', host: '[2606:4700::1]', rules: ['*'], fault: 'A22' },
  ])('of $name finds for $host: $rules', ({ domain, host: name, rules }) => {
    expect(owners([domain], name)).toEqual(rules);
  });

  it('gives nothing under an empty allowlist', () => {
    expect(owners([], 'example.test')).toEqual([]); // B03
    expect(DENY_ALL.rulesFor(host('example.test'))).toEqual([]);
  });
});

describe('denied', () => {
  const denylist = ['private.example.test', '*.internal.example.test', '198.51.100.7', '2001:db8::7'];
  const policy = policyOf(['*.example.test', 'private.example.test', '*'], denylist);

  it.each([
    { name: 'an exact name', host: 'private.example.test', by: 'deny private.example.test', fault: 'B11' },
    { name: 'in upper case', host: 'PRIVATE.example.test', by: 'deny private.example.test', fault: 'A14' },
    { name: 'with a trailing dot', host: 'private.example.test.', by: 'deny private.example.test', fault: 'A14' },
    { name: 'a name below', host: 'a.b.internal.example.test', by: 'deny *.internal.example.test', fault: 'B11' },
    { name: 'the apex of a wildcard', host: 'internal.example.test', by: undefined, fault: 'B11' },
    { name: 'a name below an exact one', host: 'a.private.example.test', by: undefined, fault: 'B11' },
    { name: 'a neighbour', host: 'public.example.test', by: undefined, fault: 'B11' },
    { name: 'an IPv4 address', host: '198.51.100.7', by: 'deny 198.51.100.7' },
    { name: 'its IPv4-mapped spelling', host: '[::ffff:198.51.100.7]', by: 'deny 198.51.100.7', fault: 'A05' },
    { name: 'its hex IPv4-mapped spelling', host: '[0:0:0:0:0:FFFF:c633:6407]', by: 'deny 198.51.100.7', fault: 'A05' },
    { name: 'its NAT64 spelling', host: '[64:ff9b::198.51.100.7]', by: 'deny 198.51.100.7' },
    { name: 'its 6to4 spelling', host: '[2002:c633:6407::1]', by: 'deny 198.51.100.7' },
    { name: 'its ISATAP spelling', host: '[2001:db8:1::5efe:c633:6407]', by: 'deny 198.51.100.7' },
    { name: 'the address before, mapped', host: '[::ffff:198.51.100.6]', by: undefined },
    { name: 'the address after', host: '198.51.100.8', by: undefined },
    { name: 'an IPv6 address, written long', host: '[2001:0db8:0:0::0007]', by: 'deny 2001:db8::7' },
  ])('of $name: $by', ({ host: name, by }) => {
    expect(policy.denied(host(name))).toBe(by);
  });

  it('covers everything with "*", addresses included', () => {
    const all = policyOf(['example.test'], ['*']);
    expect(['example.test', '8.8.8.8', '[2606:4700::1]', '[::ffff:8.8.8.8]'].map((name) => all.denied(host(name)))).toEqual(
      Array.from({ length: 4 }, () => 'deny *'),
    );
  });
});

describe('against a naive reading of the rules', () => {
  const label = fc.constantFrom('a', 'b', 'ab', 'test');
  const name = fc.array(label, { minLength: 2, maxLength: 4 }).map((labels) => labels.join('.'));
  const address = fc.constantFrom('192.0.2.1', '192.0.2.2', '[2606:4700::1]');
  const domain = fc.oneof(
    { weight: 4, arbitrary: name },
    { weight: 4, arbitrary: name.map((below) => `*.${below}`) },
    { weight: 1, arbitrary: address },
    { weight: 1, arbitrary: fc.constant('*') },
  );

  function covers(rule: string, asked: Host): boolean {
    if (rule === '*') return true;
    const canonical = rule.replace(/[[\]]/g, '');
    return canonical.startsWith('*.') ? /[a-z]$/.test(asked) && asked.endsWith(canonical.slice(1)) : asked === canonical;
  }

  function specificity(rule: string): number {
    if (rule === '*') return 0;
    return rule.startsWith('*.') ? rule.length : 1000;
  }

  it('finds the same rules in the same order: the most specific domain wins', () => {
    fc.assert(
      fc.property(
        fc.array(domain, { maxLength: 10 }),
        fc.array(fc.oneof(name, address), { minLength: 1, maxLength: 8 }),
        (domains, hosts) => {
          const policy = buildPolicy({
            allowlist: domains.map((text, index) => ({ pattern: pattern(text), rule: ruleOf({ ports: new Set([index + 1]) }) })),
            denylist: domains.map(pattern),
            facesOf,
          });
          for (const text of hosts) {
            const asked = host(text);
            const covering = domains.filter((rule) => covers(rule, asked));
            const best = Math.max(...covering.map(specificity));
            const expected = domains.flatMap((rule, index) =>
              covers(rule, asked) && specificity(rule) === best ? [index + 1] : [],
            );
            expect(policy.rulesFor(asked).flatMap((rule) => [...(rule.ports ?? [])])).toEqual(expected);
            expect(policy.denied(asked) !== undefined).toBe(covering.length > 0);
          }
        },
      ),
      { numRuns: 500 },
    );
  });
});
