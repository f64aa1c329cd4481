import net from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  formatAuthority,
  isAddress,
  parseAddress,
  parseAuthority,
  parseHost,
  parsePort,
  sameAuthority,
} from '../../src/exchange/authority.ts';
import type { Authority, Host } from '../../src/exchange/authority.ts';

const label63 = 'a'.repeat(63);
const name253 = `${'abcdefghi.'.repeat(25)}abc`;

const REFUSED = [
  { name: 'a short hex IPv4', input: '0x7f.1', fault: 'A01' },
  { name: 'an IPv4 of hex octets', input: '0x7f.0x0.0x0.0x1', fault: 'A01' },
  { name: 'a hex last label after names', input: 'example.0x7f', fault: 'A01' },
  { name: 'a bare hex mark as last label', input: 'example.0x', fault: 'A01' },
  { name: 'an upper-case hex IPv4', input: '0X7F.1', fault: 'A01' },
  { name: 'a two-part IPv4', input: '127.1', fault: 'A02' },
  { name: 'a three-part IPv4', input: '127.0.1', fault: 'A02' },
  { name: 'a long octal number', input: '01200034567', fault: 'A02' },
  { name: 'an octal first octet', input: '012.1.2.3', fault: 'A02' },
  { name: 'one octal number', input: '017700000001', fault: 'A03' },
  { name: 'one decimal number', input: '2130706433', fault: 'A03' },
  { name: 'one hex number', input: '0x7f000001', fault: 'A03' },
  { name: 'zero', input: '0', fault: 'A09' },
  { name: 'hex zero', input: '0x0', fault: 'A09' },
  { name: 'a leading zero', input: '0127.0.0.1', fault: 'A04' },
  { name: 'a leading zero in a public address', input: '010.8.8.8', fault: 'A04' },
  { name: 'an octet of octal form with a 9', input: '019.0.0.1', fault: 'A04' },
  { name: 'a leading zero in the last octet', input: '127.0.0.01', fault: 'A04' },
  { name: 'a leading zero inside IPv6', input: '[::ffff:010.0.0.1]', fault: 'A04' },
  { name: 'an octal octet that URL reads as another address', input: '012.0.0.1', fault: 'A05' },
  { name: 'an octet too large', input: '256.0.0.1', fault: 'A05' },
  { name: 'a fifth octet', input: '1.2.3.4.5', fault: 'A05' },
  { name: 'a dotted quad with a trailing dot', input: '127.0.0.1.', fault: 'A05' },
  { name: 'an IPv4 in brackets', input: '[127.0.0.1]', fault: 'A05' },
  { name: 'a hex octet in brackets', input: '[::0x7f.0.0.1]', fault: 'A05' },
  { name: 'a short IPv4 in brackets', input: '[::127.1]', fault: 'A05' },
  { name: 'two compressions', input: '[1::2::3]', fault: 'A05' },
  { name: 'nine groups', input: '[1:2:3:4:5:6:7:8:9]', fault: 'A05' },
  { name: 'seven groups', input: '[1:2:3:4:5:6:7]', fault: 'A05' },
  { name: 'a group of five digits', input: '[00000::1]', fault: 'A05' },
  { name: 'an open bracket', input: '[::1', fault: 'A05' },
  { name: 'a closed bracket only', input: '::1]', fault: 'A05' },
  { name: 'text after the bracket', input: '[::1].example', fault: 'A05' },
  { name: 'empty brackets', input: '[]', fault: 'A05' },
  { name: 'two pairs of brackets', input: '[[::1]]', fault: 'A05' },
  { name: 'a zone id', input: '[fe80::1%eth0]', fault: 'A18' },
  { name: 'an encoded zone id', input: '[fe80::1%25eth0]', fault: 'A18' },
  { name: 'two trailing dots', input: 'blocked.example.test..', fault: 'A14' },
  { name: 'ideographic full stops', input: '127\u30020\u30020\u30021', fault: 'A18' },
  { name: 'percent-encoded full stops', input: '127%E3%80%820%E3%80%820%E3%80%821', fault: 'A18' },
  { name: 'a full-width letter', input: '\uff45xample.test', fault: 'A18' },
  { name: 'a full-width full stop', input: 'example\uff0etest', fault: 'A18' },
  { name: 'a Kelvin sign, which lower-cases to an ASCII letter', input: '\u212aeys.example.test', fault: 'A18' },
  { name: 'a long s, which upper-cases to an ASCII letter', input: '\u017fecure.example.test', fault: 'A18' },
  { name: 'a dotted capital I', input: '\u0130.example.test', fault: 'A18' },
  { name: 'raw non-ASCII', input: 'b\u00fccher.example', fault: 'A18' },
  { name: 'a percent sign', input: 'ex%61mple.test', fault: 'A18' },
  { name: 'a NUL', input: 'attacker.test\0.example.test', fault: 'A19' },
  { name: 'a NUL at the end', input: 'example.test\0', fault: 'A19' },
  { name: 'an encoded NUL', input: 'attacker.test%00.example.test', fault: 'A19' },
  { name: 'a tab', input: 'exam\tple.test', fault: 'A20' },
  { name: 'a space', input: 'exam ple.test', fault: 'A20' },
  { name: 'a space before', input: ' example.test', fault: 'A20' },
  { name: 'a space after', input: 'example.test ', fault: 'A20' },
  { name: 'a carriage return', input: 'example.test\r', fault: 'A20' },
  { name: 'a line feed at the end', input: 'example.test\n', fault: 'A20' },
  { name: 'a line feed after a dotted quad', input: '8.8.8.8\n', fault: 'A20' },
  { name: 'a line feed in brackets', input: '[::1\n]', fault: 'A20' },
  { name: 'a delete', input: 'exam\x7fple.test', fault: 'A20' },
  { name: 'a zero-width space', input: 'exam\u200bple.test', fault: 'A20' },
  { name: 'a byte order mark', input: '\ufeffexample.test', fault: 'A20' },
  { name: 'an empty label', input: 'a..example.test', fault: 'A20' },
  { name: 'a leading dot', input: '.example.test', fault: 'A20' },
  { name: 'nothing', input: '', fault: 'A20' },
  { name: 'a dot', input: '.', fault: 'A20' },
  { name: 'a label of 64 octets', input: `a${label63}.test`, fault: 'A20' },
  { name: 'a name of 254 octets', input: `${name253}d`, fault: 'A20' },
  { name: 'a leading hyphen', input: '-a.example.test', fault: 'A20' },
  { name: 'a trailing hyphen', input: 'a-.example.test', fault: 'A20' },
  { name: 'userinfo', input: 'allowed.test@attacker.test', fault: 'A21' },
  { name: 'userinfo with a password', input: 'user:x@allowed.test', fault: 'A21' },
  { name: 'userinfo before brackets', input: 'user@[::1]', fault: 'A21' },
  { name: 'userinfo within brackets', input: '[::1@::2]', fault: 'A21' },
  { name: 'a slash', input: 'allowed.test/x', fault: 'A21' },
  { name: 'a backslash', input: 'allowed.test\\x', fault: 'A21' },
  { name: 'a query', input: 'allowed.test?x', fault: 'A21' },
  { name: 'a fragment', input: 'allowed.test#x', fault: 'A21' },
  { name: 'a comma', input: 'allowed.test,attacker.test', fault: 'A21' },
  { name: 'a wildcard', input: '*.example.test', fault: 'A21' },
];

const READ = [
  { name: 'a name', input: 'api.example.test', host: 'api.example.test', address: false, fault: 'A14' },
  { name: 'a name in capitals', input: 'BLOCKED.example.test', host: 'blocked.example.test', address: false, fault: 'A14' },
  { name: 'a name with its root dot', input: 'API.Example.TEST.', host: 'api.example.test', address: false, fault: 'A14' },
  { name: 'a name of one label', input: 'localhost', host: 'localhost', address: false, fault: 'A14' },
  { name: 'an A-label', input: 'XN--bcher-kva.example', host: 'xn--bcher-kva.example', address: false, fault: 'A18' },
  { name: 'a label of 63 octets', input: `${label63}.test`, host: `${label63}.test`, address: false, fault: 'A20' },
  { name: 'a name of 253 octets', input: name253, host: name253, address: false, fault: 'A20' },
  { name: 'a name of 253 octets with its root dot', input: `${name253}.`, host: name253, address: false, fault: 'A20' },
  { name: 'an underscore', input: '_dmarc.example.test', host: '_dmarc.example.test', address: false, fault: 'A20' },
  {
    name: 'digits in a label that is not the last',
    input: '127.0.0.example',
    host: '127.0.0.example',
    address: false,
    fault: 'A01',
  },
  { name: 'a last label that only looks like hex', input: 'example.0xg', host: 'example.0xg', address: false, fault: 'A01' },
  { name: 'a dotted quad', input: '127.0.0.1', host: '127.0.0.1', address: true, fault: 'A05' },
  { name: 'the largest dotted quad', input: '255.255.255.255', host: '255.255.255.255', address: true, fault: 'A05' },
  { name: 'uncompressed IPv6 loopback', input: '[000:0:0000::01]', host: '::1', address: true, fault: 'A02' },
  { name: 'IPv4-mapped in mixed case', input: '[::fFFf:127.0.0.1]', host: '::ffff:7f00:1', address: true, fault: 'A02' },
  { name: 'IPv4-mapped in hex', input: '[::FFFF:7F00:1]', host: '::ffff:7f00:1', address: true, fault: 'A02' },
  { name: 'IPv4-compatible, not taken for mapped', input: '[::127.0.0.1]', host: '::7f00:1', address: true, fault: 'A05' },
  { name: 'a dotted quad after NAT64', input: '[64:ff9b::10.0.0.1]', host: '64:ff9b::a00:1', address: true, fault: 'A05' },
  { name: 'a single zero group, kept', input: '[1:0:1:1:1:1:1:1]', host: '1:0:1:1:1:1:1:1', address: true, fault: 'A05' },
  { name: 'the longest run of zeros compressed', input: '[1:0:0:2:0:0:0:3]', host: '1:0:0:2::3', address: true, fault: 'A05' },
  {
    name: 'the first of two equal runs compressed',
    input: '[1:0:0:2:3:0:0:4]',
    host: '1::2:3:0:0:4',
    address: true,
    fault: 'A05',
  },
];

describe('parseHost', () => {
  it.each(REFUSED)('refuses $name ($fault)', ({ input }) => {
    expect(parseHost(input)).toBeUndefined();
  });

  it.each(READ)('reads $name ($fault)', ({ input, host, address }) => {
    expect(parseHost(input)).toBe(host);
    expect(isAddress(host as Host)).toBe(address);
  });

  it('is idempotent: what is canonical reads as itself', () => {
    for (const { host, address } of READ) expect(parseHost(host.includes(':') && address ? `[${host}]` : host)).toBe(host);
  });

  const part = fc.oneof(
    fc.nat(300).map(String),
    fc.nat(0xffffffff).map(String),
    fc.nat(0xffff).map((n) => `0x${n.toString(16)}`),
    fc.nat(0xffff).map((n) => `0X${n.toString(16).toUpperCase()}`),
    fc.nat(0x1ff).map((n) => `0${n.toString(8)}`),
    fc.nat(0xffff).map((n) => n.toString(16)),
    fc.constantFrom('', '0', '00', '0x', '0X', '09', '1e3', '-1', '+1', ' 1', '1 ', '1_0', '\u0661', '\uff11', 'a'),
  );
  const numericHost = fc
    .tuple(fc.array(part, { minLength: 1, maxLength: 5 }), fc.constantFrom('', '', '', '.', '..'))
    .map(([parts, end]) => parts.join('.') + end);

  it('never disagrees with the URL standard on a numeric host (A05)', () => {
    fc.assert(
      fc.property(numericHost, (text) => {
        const host = parseHost(text);
        if (host === undefined) return;
        // Names may stop at what only a URL minds; a host that a URL turns into another one is the fault.
        const reached = new URL(`http://${text}/`).hostname.replace(/\.$/, '');
        expect(reached).toBe(host);
        expect(net.isIPv4(reached)).toBe(isAddress(host));
        expect(net.isIP(host) !== 0).toBe(isAddress(host));
      }),
      { numRuns: 5000 },
    );
  });

  const group = fc.oneof(
    fc.nat(0xffff).map((n) => n.toString(16)),
    fc.constantFrom(
      '0',
      '0',
      '0000',
      '01',
      'FFFF',
      '',
      '',
      '00000',
      '1.2.3.4',
      '127.0.0.1',
      '010.0.0.1',
      '1.2.3',
      '0x1.2.3.4',
      'g',
    ),
  );
  const bracketed = fc.array(group, { minLength: 1, maxLength: 9 }).map((groups) => groups.join(':'));

  it('reads exactly the IPv6 texts that the URL standard and inet_pton read, as the same address (A05)', () => {
    fc.assert(
      fc.property(bracketed, (text) => {
        const host = parseHost(`[${text}]`);
        expect([text, host !== undefined]).toEqual([text, net.isIPv6(text)]);
        if (host !== undefined) expect(new URL(`http://[${text}]/`).hostname).toBe(`[${host}]`);
      }),
      { numRuns: 10_000 },
    );
  });
});

describe('parseAuthority', () => {
  it.each(REFUSED)('refuses $name, with and without a port ($fault)', ({ input }) => {
    expect(parseAuthority(input, 443)).toBeUndefined();
    expect(parseAuthority(`${input}:443`)).toBeUndefined();
  });

  it.each(READ)('reads $name, with and without a port ($fault)', ({ input, host, address }) => {
    expect(parseAuthority(input, 443)).toEqual({ host, port: 443, address });
    expect(parseAuthority(`${input}:8443`, 443)).toEqual({ host, port: 8443, address });
  });

  it.each([
    { name: 'a space after the port', input: 'a.test:443 ' },
    { name: 'a sign', input: 'a.test:+443' },
    { name: 'a leading zero', input: 'a.test:0443' },
    { name: 'a port too large', input: 'a.test:65536' },
    { name: 'port zero', input: 'a.test:0' },
    { name: 'an empty port', input: 'a.test:' },
    { name: 'an empty port after brackets', input: '[::1]:' },
    { name: 'a hex port', input: 'a.test:0x1bb' },
    { name: 'a port of six digits', input: 'a.test:100000' },
    { name: 'two ports', input: 'a.test:80:443' },
    { name: 'IPv6 without brackets', input: '::1' },
    { name: 'IPv6 without brackets, with what may be a port', input: 'fd00::1:443' },
    { name: 'text between bracket and port', input: '[::1]x:443' },
    { name: 'a port within brackets', input: '[::1:443' },
    { name: 'userinfo that ends like a port', input: 'allowed.test:443@attacker.test' },
    { name: 'no host', input: ':443' },
    { name: 'a line feed after the port', input: 'a.test:443\n' },
  ])('refuses $name', ({ input }) => {
    // Faults A20 and A21
    expect(parseAuthority(input, 443)).toBeUndefined();
  });

  it('asks for a port where there is no default', () => {
    expect(parseAuthority('a.test')).toBeUndefined();
    expect(parseAuthority('[::1]')).toBeUndefined();
  });

  it('refuses a long line of digits at once', () => {
    const startedAt = performance.now();
    expect(parseAuthority(`[${'1'.repeat(1_000_000)}x]`, 443)).toBeUndefined();
    expect(parseAuthority('1.'.repeat(500_000), 443)).toBeUndefined();
    expect(performance.now() - startedAt).toBeLessThan(500);
  });
});

describe('parsePort', () => {
  it.each([
    { text: '1', port: 1 },
    { text: '65535', port: 65535 },
    { text: '65536', port: undefined },
    { text: '0', port: undefined },
    { text: '00', port: undefined },
    { text: '-1', port: undefined },
    { text: '1.0', port: undefined },
    { text: '1e3', port: undefined },
    { text: '\uff11', port: undefined },
    { text: '', port: undefined },
  ])('reads "$text" as $port', ({ text, port }) => {
    expect(parsePort(text)).toBe(port);
  });
});

describe('parseAddress', () => {
  it.each([
    { name: 'a dotted quad', input: '8.8.8.8', address: '8.8.8.8' },
    { name: 'an IPv6 address', input: '2606:4700:0::1', address: '2606:4700::1' },
    { name: 'a mapped address as sockets report it', input: '::ffff:127.0.0.1', address: '::ffff:7f00:1' },
    { name: 'a zone id, which it drops', input: 'fe80::1%eth0', address: 'fe80::1' },
    { name: 'a name', input: 'example.test', address: undefined },
    { name: 'localhost', input: 'localhost', address: undefined },
    { name: 'brackets', input: '[::1]', address: undefined },
    { name: 'a zone id on IPv4', input: '8.8.8.8%eth0', address: undefined },
    { name: 'a short IPv4', input: '127.1', address: undefined },
    { name: 'an address with a port', input: '8.8.8.8:53', address: undefined },
    { name: 'nothing', input: '', address: undefined },
  ])('reads $name as $address', ({ input, address }) => {
    expect(parseAddress(input)).toBe(address);
  });
});

describe('formatAuthority', () => {
  const authority = (text: string): Authority => parseAuthority(text, 443)!;

  it.each([
    { input: 'a.test', scheme: 443, text: 'a.test' },
    { input: 'a.test:8443', scheme: 443, text: 'a.test:8443' },
    { input: 'a.test:443', scheme: 80, text: 'a.test:443' },
    { input: '[::1]', scheme: 443, text: '[::1]' },
    { input: '[::1]:80', scheme: 443, text: '[::1]:80' },
    { input: 'a.test', scheme: undefined, text: 'a.test:443' },
  ])('writes $input as $text where the scheme has port $scheme', ({ input, scheme, text }) => {
    // Fault C06
    expect(formatAuthority(authority(input), scheme)).toBe(text);
  });

  it('tells places apart by host and port, not by spelling', () => {
    expect(sameAuthority(authority('A.test.:443'), authority('a.test'))).toBe(true);
    expect(sameAuthority(authority('a.test:80'), authority('a.test'))).toBe(false);
    expect(sameAuthority(authority('b.test'), authority('a.test'))).toBe(false);
  });
});
