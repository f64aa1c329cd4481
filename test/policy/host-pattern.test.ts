import { describe, expect, it } from 'vitest';
import { parseDomain } from '../../src/policy/host-pattern.ts';

describe('parseDomain', () => {
  it.each([
    { name: 'an exact name', domain: 'api.github.com', kind: 'exact', text: 'api.github.com' },
    { name: 'upper case and a trailing dot', domain: 'API.GitHub.com.', kind: 'exact', text: 'api.github.com', fault: 'A14' },
    { name: 'a single label', domain: 'localhost', kind: 'exact', text: 'localhost' },
    { name: 'a wildcard', domain: '*.Example.com', kind: 'below', text: '*.example.com' },
    { name: 'a wildcard with a trailing dot', domain: '*.example.com.', kind: 'below', text: '*.example.com' },
    { name: 'the catch-all', domain: '*', kind: 'any', text: '*' },
    { name: 'a Unicode name', domain: 'b\u00fccher.example', kind: 'exact', text: 'xn--bcher-kva.example', fault: 'A16' },
    {
      name: 'a Unicode name under a wildcard',
      domain: '*.b\u00fccher.example',
      kind: 'below',
      text: '*.xn--bcher-kva.example',
      fault: 'A16',
    },
    { name: 'an A-label', domain: 'XN--BCHER-kva.example', kind: 'exact', text: 'xn--bcher-kva.example', fault: 'A16' },
    { name: 'a dotted quad', domain: '172.30.0.30', kind: 'exact', text: '172.30.0.30', fault: 'A23' },
    { name: 'an IPv6 address', domain: 'FD00:0::30', kind: 'exact', text: 'fd00::30', fault: 'A23' },
    { name: 'an IPv6 address in brackets', domain: '[fd00::30]', kind: 'exact', text: 'fd00::30', fault: 'A23' },
  ])('reads $name as $text', ({ domain, kind, text }) => {
    expect(parseDomain(domain)).toMatchObject({ kind, text });
  });

  it.each([
    { name: 'a URL', domain: 'https://api.github.com/x', says: 'write the host alone: "api.github.com"' },
    { name: 'a path', domain: 'api.github.com/repos', says: 'use `paths` for paths' },
    { name: 'a range', domain: '10.0.0.0/8', says: '`addresses` for ranges' },
    { name: 'a port', domain: 'api.github.com:8443', says: 'domain: "api.github.com" and ports: [8443]' },
    {
      name: 'an IPv4 address with a port',
      domain: '172.30.0.30:10000',
      says: 'domain: "172.30.0.30" and ports: [10000]',
      fault: 'A23',
    },
    {
      name: 'an IPv6 address with a port',
      domain: '[fd00::30]:10000',
      says: 'domain: "[fd00::30]" and ports: [10000]',
      fault: 'A23',
    },
    { name: 'a leading dot', domain: '.example.com', says: 'write "*.example.com"', fault: 'B01' },
    { name: 'a wildcard inside a label', domain: '*example.com', says: 'only at the front', fault: 'B01' },
    { name: 'a wildcard in the middle', domain: 'a.*.example.com', says: 'only at the front' },
    { name: 'two wildcards', domain: '*.*.example.com', says: 'only at the front' },
    { name: 'a wildcard at the end', domain: 'example.*', says: 'only at the front' },
    { name: 'a whole top-level domain', domain: '*.com', says: 'whole top-level domain' },
    { name: 'a wildcard before an IPv4 address', domain: '*.10.0.0.1', says: 'needs a name' },
    { name: 'a wildcard before an IPv6 address', domain: '*.[fd00::a]', says: 'needs a name' },
    { name: 'a wildcard before nothing', domain: '*.', says: 'not a host name' },
    { name: 'nothing', domain: '', says: 'not a host name' },
    { name: 'a short IPv4', domain: '127.1', says: 'not a host name' },
    { name: 'a number', domain: '2130706433', says: 'not a host name' },
    { name: 'a space', domain: 'example .com', says: 'not a host name' },
    { name: 'a percent sign', domain: 'b\u00fccher%2eexample', says: 'not a host name', fault: 'A18' },
    { name: 'a zone id', domain: 'fe80::1%eth0', says: 'not a host name' },
    { name: 'userinfo', domain: 'user@example.com', says: 'holds an "@"', fault: 'A21' },
    { name: 'an empty label', domain: 'a..example.com', says: 'not a host name', fault: 'A20' },
    { name: 'a regular expression', domain: '^api\\.example\\.com$', says: 'not a host name', fault: 'B02' },
  ])('refuses $name and says how to write it', ({ domain, says }) => {
    const parsed = parseDomain(domain);
    expect('problem' in parsed ? parsed.problem : parsed).toContain(says);
  });

  it.each(['https://bot:hunter2@example.com/', 'bot:hunter2@example.com', '*.bot:hunter2@example.com'])(
    'does not repeat the password of %s',
    (domain) => {
      expect(JSON.stringify(parseDomain(domain))).not.toContain('hunter2');
    },
  );
});
