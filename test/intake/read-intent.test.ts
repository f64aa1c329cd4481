import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatAuthority } from '../../src/exchange/authority.ts';
import { isRefusal, Refusal } from '../../src/exchange/codes.ts';
import type { Limits } from '../../src/exchange/snapshot.ts';
import type { Arrival, Intent } from '../../src/exchange/stages.ts';
import { readIntent } from '../../src/intake/read-intent.ts';
import {
  ceilingAt,
  exchangeArrival,
  passthroughArrival,
  TEST_LIMITS,
  tunnelArrival,
  upgradeArrival,
} from '../support/arrivals.ts';

/** The refusal's code, or where the intent leads: `https example.com:443 /path?query`. */
function saysOf(result: Intent | Refusal): string {
  if (isRefusal(result)) return result.code;
  return `${result.scheme ?? 'tunnel'} ${formatAuthority(result.authority)} ${result.path}${result.query}`.trimEnd();
}

const says = (arrival: Arrival, limits: Limits = TEST_LIMITS): string => saysOf(readIntent(arrival, limits));
const TUNNEL = ceilingAt('allowed.test:443');

/** Spellings of a host that have more than one reading, or none. */
const DOUBTFUL_HOSTS = [
  { name: 'two trailing dots', host: 'blocked.example.test..', fault: 'A14' },
  { name: 'ideographic full stops', host: '127\u30020\u30020\u30021', fault: 'A18' },
  { name: 'their percent-encoded form', host: '127%E3%80%820%E3%80%820%E3%80%821', fault: 'A18' },
  { name: 'a full-width letter', host: '\uff41llowed.test', fault: 'A18' },
  { name: 'a latin1 letter', host: 'b\u00fccher.test', fault: 'A16' },
  { name: 'a NUL', host: 'attacker.test\0.example.test', fault: 'A19' },
  { name: 'an encoded NUL', host: 'attacker.test%00.example.test', fault: 'A19' },
  { name: 'a tab', host: 'allowed\t.test', fault: 'A20' },
  { name: 'a space', host: 'allowed .test', fault: 'A20' },
  { name: 'a CR', host: 'allowed.test\r', fault: 'A20' },
  { name: 'a DEL', host: 'allowed\x7f.test', fault: 'A20' },
  { name: 'a zero-width space', host: 'allowed\u200b.test', fault: 'A20' },
  { name: 'a BOM', host: '\ufeffallowed.test', fault: 'A20' },
  { name: 'an empty label', host: 'a..example.test', fault: 'A20' },
  { name: 'a label over 63 octets', host: `${'a'.repeat(64)}.test`, fault: 'A20' },
  { name: 'a name over 253 octets', host: `${'abcdefghi.'.repeat(25)}abcd`, fault: 'A20' },
  { name: 'a leading hyphen', host: '-allowed.test', fault: 'A20' },
  { name: 'userinfo', host: 'user@allowed.test', fault: 'A21' },
  { name: 'userinfo that looks like a host', host: 'allowed.test:x@attacker.test', fault: 'A21' },
  { name: 'a short IPv4', host: '127.1', fault: 'A02' },
  { name: 'IPv6 without brackets', host: '::1', fault: 'A05' },
  { name: 'a backslash', host: 'allowed.test\\@attacker.test', fault: 'A21' },
  { name: 'nothing', host: '', fault: 'C02' },
];

const DOUBTFUL_PORTS = ['443 ', '+443', '0443', '65536', '0', '', '-1', '4e2', '443x', '443:443'];

describe('a doubtful host', () => {
  it.each(DOUBTFUL_HOSTS)('is refused in CONNECT, target and Host alike: $name', ({ host }) => {
    expect(says(tunnelArrival({ target: `${host}:443`, fields: ['Host', 'allowed.test:443'] }))).toBe('bad_request'); // A15
    expect(says(exchangeArrival({ target: `http://${host}/`, fields: ['Host', 'allowed.test'] }))).toBe('bad_request');
    expect(says(exchangeArrival({ ceiling: TUNNEL, fields: ['Host', host] }))).toBe('bad_request');
  });

  it.each(DOUBTFUL_PORTS)('is refused with the port "%s"', (port) => {
    expect(says(tunnelArrival({ target: `allowed.test:${port}`, fields: ['Host', 'allowed.test'] }))).toBe('bad_request'); // A20
    expect(says(exchangeArrival({ target: `http://allowed.test:${port}/`, fields: ['Host', 'allowed.test'] }))).toBe(
      'bad_request',
    );
    expect(says(exchangeArrival({ ceiling: TUNNEL, fields: ['Host', `allowed.test:${port}`] }))).toBe('bad_request');
  });
});

describe('the target of a CONNECT', () => {
  it.each([
    { name: 'a name and a port', target: 'example.com:8443', leads: 'tunnel example.com:8443' },
    {
      name: 'upper case and a trailing dot',
      target: 'API.Example.TEST.:443',
      leads: 'tunnel api.example.test:443',
      fault: 'A14',
    },
    { name: 'an IPv4 address', target: '140.82.114.4:443', leads: 'tunnel 140.82.114.4:443', fault: 'A22' },
    { name: 'an IPv6 address', target: '[2001:DB8::1]:443', leads: 'tunnel [2001:db8::1]:443' },
    { name: 'no port', target: 'example.com', leads: 'bad_request' },
    { name: 'an IPv6 address without a port', target: '[2001:db8::1]', leads: 'bad_request' },
    { name: 'a URL', target: 'https://example.com/', leads: 'bad_request' },
    { name: 'a path', target: 'example.com:443/', leads: 'bad_request' },
    { name: 'userinfo', target: 'user@allowed.test:443', leads: 'bad_request', fault: 'A21' },
    { name: 'an origin-form', target: '/', leads: 'bad_request' },
    { name: 'nothing', target: '', leads: 'bad_request' },
  ])('is read or refused: $name', ({ target, leads }) => {
    expect(says(tunnelArrival({ target }))).toBe(leads);
  });

  it('is refused inside a tunnel', () => {
    expect(says(tunnelArrival({ target: 'example.com:443', ceiling: TUNNEL, fields: ['Host', 'example.com:443'] }))).toBe(
      'bad_request',
    );
    expect(says(exchangeArrival({ method: 'CONNECT', ceiling: TUNNEL }))).toBe('bad_request');
  });
});

describe('the Host of a CONNECT', () => {
  it.each([
    { name: 'the same', host: 'example.com:8443', target: 'example.com:8443', says: 'tunnel example.com:8443' },
    { name: 'another case and a dot', host: 'EXAMPLE.com.:8443', target: 'example.com:8443', says: 'tunnel example.com:8443' },
    { name: 'without the port', host: 'example.com', target: 'example.com:8443', says: 'tunnel example.com:8443' },
    { name: 'IPv6 without the port', host: '[2001:db8::1]', target: '[2001:db8::1]:8443', says: 'tunnel [2001:db8::1]:8443' },
    { name: 'IPv6 written long', host: '[2001:db8:0::1]:443', target: '[2001:db8::1]:443', says: 'tunnel [2001:db8::1]:443' },
    { name: 'without the port, to port 80', host: 'example.com', target: 'example.com:80', says: 'tunnel example.com:80' },
    { name: 'another port', host: 'example.com:443', target: 'example.com:8443', says: 'host_mismatch' },
    { name: 'another host', host: 'other.test', target: 'example.com:443', says: 'host_mismatch' },
    { name: 'a name below', host: 'a.example.com:443', target: 'example.com:443', says: 'host_mismatch' },
    { name: 'an empty port', host: 'example.com:', target: 'example.com:443', says: 'bad_request' },
    { name: 'a URL', host: 'https://example.com', target: 'example.com:443', says: 'bad_request' },
  ])('is $name: $says', ({ host, target, says: expected }) => {
    expect(says(tunnelArrival({ target, fields: ['Host', host] }))).toBe(expected);
  });
});

describe('the absolute-form', () => {
  it.each([
    { name: 'a URL', target: 'http://example.com/a?b=c', leads: 'http example.com:80 /a?b=c' },
    { name: 'https', target: 'https://example.com/', leads: 'https example.com:443 /' },
    { name: 'another port', target: 'http://svc.test:8080/api', leads: 'http svc.test:8080 /api', fault: 'C06' },
    { name: 'upper case and a trailing dot', target: 'HTTP://Example.COM./A', leads: 'http example.com:80 /A', fault: 'A14' },
    { name: 'IPv6', target: 'http://[2001:db8::1]:8080/', leads: 'http [2001:db8::1]:8080 /' },
    { name: 'no path', target: 'http://example.com', leads: 'http example.com:80 /' },
    { name: 'a query without a path', target: 'http://example.com?a=/../b', leads: 'http example.com:80 /?a=/../b' },
    { name: 'a question mark in the query', target: 'http://example.com/?a?b', leads: 'http example.com:80 /?a?b' },
    { name: 'a fragment', target: 'http://example.com/#x', leads: 'bad_request' },
    { name: 'a fragment behind the host', target: 'http://example.com#@attacker.test/', leads: 'bad_request', fault: 'A21' },
    { name: 'userinfo', target: 'http://allowed.test@attacker.test/', leads: 'bad_request', fault: 'A21' },
    { name: 'an empty host', target: 'http:///path', leads: 'bad_request' },
    { name: 'one slash', target: 'http:/example.com/', leads: 'bad_request' },
    { name: 'another scheme', target: 'ftp://example.com/', leads: 'bad_request' },
    { name: 'a scheme that begins alike', target: 'httpss://example.com/', leads: 'bad_request' },
    { name: 'a WebSocket scheme', target: 'ws://example.com/', leads: 'bad_request' },
    { name: 'a line break', target: 'http://example.com/\nx', leads: 'bad_request' },
    { name: 'the asterisk-form', target: '*', leads: 'bad_request' },
    { name: 'the authority-form', target: 'example.com:443', leads: 'bad_request' },
    { name: 'a path outside a tunnel', target: '/path', leads: 'bad_request' },
    { name: 'a path outside a tunnel that names a host', target: '//example.com/', leads: 'bad_request' },
    { name: 'nothing', target: '', leads: 'bad_request' },
  ])('is read or refused: $name', ({ target, leads }) => {
    expect(says(exchangeArrival({ target, method: target === '*' ? 'OPTIONS' : 'GET', more: [] }))).toBe(leads);
  });

  it.each([
    { name: 'another host', host: 'other.test', says: 'host_mismatch' },
    { name: 'another port', host: 'allowed.test:8080', says: 'host_mismatch' },
    { name: "another scheme's port", host: 'allowed.test:443', says: 'host_mismatch' },
    { name: 'the default port spelled out', host: 'allowed.test:80', says: 'http allowed.test:80 /' },
    { name: 'another case', host: 'ALLOWED.test', says: 'http allowed.test:80 /' },
    { name: 'a trailing dot', host: 'allowed.test.', says: 'http allowed.test:80 /' },
  ])('agrees with Host or is refused: $name', ({ host, says: expected }) => {
    expect(says(exchangeArrival({ target: 'http://allowed.test/', fields: ['Host', host] }))).toBe(expected); // C04
  });

  it('needs the port in Host where it is not the default one', () => {
    expect(says(exchangeArrival({ target: 'http://allowed.test:8080/', fields: ['Host', 'allowed.test'] }))).toBe(
      'host_mismatch',
    );
  });
});

describe('inside a tunnel', () => {
  it.each([
    { name: 'a path', target: '/a?b', leads: 'https allowed.test:443 /a?b' },
    {
      name: 'a path that looks like an authority',
      target: '//attacker.test/a',
      leads: 'https allowed.test:443 //attacker.test/a',
      fault: 'C08',
    },
    { name: 'the same place in full', target: 'https://allowed.test/a', leads: 'https allowed.test:443 /a' },
    { name: 'another host in full', target: 'https://other.test/', leads: 'host_mismatch', fault: 'C08' },
    { name: 'another port in full', target: 'https://allowed.test:8443/', leads: 'host_mismatch', fault: 'C08' },
    { name: 'another scheme in full', target: 'http://allowed.test:443/', leads: 'host_mismatch', fault: 'C08' },
    { name: 'userinfo in full', target: 'https://allowed.test@other.test/', leads: 'bad_request', fault: 'A21' },
  ])('the target stays in it: $name', ({ target, leads }) => {
    expect(says(exchangeArrival({ ceiling: TUNNEL, target }))).toBe(leads);
  });

  it.each([
    { name: 'another host', fields: ['Host', 'other.test'], says: 'host_mismatch', fault: 'C02' },
    { name: 'a host that has a credential', fields: ['Host', 'api.provider.test'], says: 'host_mismatch', fault: 'C03' },
    { name: 'another port', fields: ['Host', 'allowed.test:8443'], says: 'host_mismatch', fault: 'C02' },
    { name: 'the port spelled out', fields: ['Host', 'allowed.test:443'], says: 'https allowed.test:443 /', fault: 'C02' },
    { name: 'none', fields: [], says: 'bad_request', fault: 'C02' },
    { name: 'two that differ', fields: ['Host', 'allowed.test', 'hOST', 'other.test'], says: 'bad_request', fault: 'C02' },
    { name: 'two that agree', fields: ['Host', 'allowed.test', 'host', 'allowed.test'], says: 'bad_request', fault: 'C02' },
    { name: 'an empty one', fields: ['Host', ''], says: 'bad_request', fault: 'C02' },
    { name: 'two in one', fields: ['Host', 'allowed.test, other.test'], says: 'bad_request', fault: 'C02' },
  ])('Host agrees with it or is refused: $name', ({ fields, says: expected }) => {
    expect(says(exchangeArrival({ ceiling: TUNNEL, fields }))).toBe(expected);
    expect(says(upgradeArrival({ ceiling: TUNNEL, target: '/', fields: [...fields, 'Upgrade', 'websocket'] }))).toBe(expected);
  });

  it('leaves the scheme of the tunnel to no target, even where Host agrees', () => {
    const fields = ['Host', 'allowed.test:443'];
    expect(says(exchangeArrival({ ceiling: TUNNEL, target: 'http://allowed.test:443/', fields }))).toBe('host_mismatch'); // C08
  });

  it('keeps a port that is not the default one', () => {
    const ceiling = ceilingAt('svc.test:8443');
    expect(says(exchangeArrival({ ceiling }))).toBe('https svc.test:8443 /'); // C06
    expect(says(exchangeArrival({ ceiling, fields: ['Host', 'svc.test'] }))).toBe('host_mismatch');
  });

  it('takes no other authority from fields that name one', () => {
    const more = ['X-Forwarded-Host', 'other.test', 'Forwarded', 'host=other.test', 'X-Original-URL', 'https://other.test/'];
    expect(says(exchangeArrival({ ceiling: TUNNEL, more }))).toBe('https allowed.test:443 /'); // B14
  });

  it('reads a passed-through connection as its tunnel, and refuses one without', () => {
    expect(says(passthroughArrival({ ceiling: TUNNEL }))).toBe('https allowed.test:443');
    expect(says({ ...passthroughArrival(), ceiling: undefined })).toBe('bad_request');
  });
});

describe('Host where it may be missing', () => {
  it.each([
    { name: 'HTTP/1.0', version: '1.0', leads: 'tunnel example.com:443' },
    { name: 'HTTP/1.1', version: '1.1', leads: 'bad_request' },
  ])('in $name: $leads', ({ version, leads }) => {
    expect(says(tunnelArrival({ version, fields: [] }))).toBe(leads);
  });

  it('still agrees where HTTP/1.0 sends it', () => {
    expect(says(tunnelArrival({ version: '1.0', fields: ['Host', 'other.test'] }))).toBe('host_mismatch');
  });

  it('in h2, which has :authority', () => {
    expect(says(exchangeArrival({ protocol: 'h2', version: '2.0', ceiling: TUNNEL, fields: [] }))).toBe(
      'https allowed.test:443 /',
    );
  });

  it('in a WebSocket over h2 too', () => {
    const pseudo = { scheme: 'https', authority: 'allowed.test' };
    expect(says(upgradeArrival({ version: '2.0', target: '/chat', pseudo, ceiling: TUNNEL, fields: [] }))).toBe(
      'https allowed.test:443 /chat',
    );
  });
});

describe('dot segments', () => {
  it.each([
    '/..',
    '/.',
    '/../admin',
    '/v1/../admin',
    '/v1/./admin',
    '/v1/..',
    '/v1/.',
    '/%2e%2e/admin',
    '/%2E%2e/admin',
    '/.%2e/admin',
    '/%2e/admin',
    '/a/..%2fadmin',
    '/a%2f..%2Fb',
    '/a%2f%2e%2e',
    '/a\\..\\b',
    '/a%5c..%5cb',
    '/a/..\\b',
    '/v1/..;/x',
    '/v1/..;a=b/x',
    '/v1/.;/x',
    '/v1/%2e%2e;/x',
    '/v1/..%3bx/y',
    '/v1/..%00/x',
    '/v1/..%3f/x',
    '/v1/..%23',
    '/a;/../b',
    '/%252e%252e/admin',
    '/a/..%252fadmin',
    '/a%25252f%25252e%25252e',
    '//../x',
  ])('are refused: %s', (path) => {
    expect(says(exchangeArrival({ ceiling: TUNNEL, target: path }))).toBe('bad_request');
    expect(says(exchangeArrival({ target: `http://example.com${path}?q` }))).toBe('bad_request');
  });

  it.each([
    '/...',
    '/.well-known/x',
    '/a..b/c',
    '/a../b',
    '/..a',
    '/a.',
    '/a/.b',
    '/v1..2',
    '/a%2fb',
    '/%2e%2ea/b',
    '/a%252fb',
    '/x.%2f',
    '/%c3%a9',
    '/a;b=..c/d',
    '/',
    '/x?../..',
    '/x?/%2e%2e/',
  ])('are not seen where there are none: %s', (path) => {
    expect(says(exchangeArrival({ ceiling: TUNNEL, target: path }))).toBe(`https allowed.test:443 ${path}`);
  });

  it.each(['/a b', '/a\tb', '/a#b', '/\x7f', '/\xe9', '/\u0101', '/a\r\nHost: x', '/?q= ', '/\0'])(
    'nor may the path hold %j',
    (path) => {
      expect(says(exchangeArrival({ ceiling: TUNNEL, target: path }))).toBe('bad_request');
    },
  );
});

describe('framing', () => {
  it.each([
    { name: 'no body', fields: [], says: 'ok' },
    { name: 'a plain length', fields: ['Content-Length', '5'], says: 'ok' },
    { name: 'zero', fields: ['Content-Length', '0'], says: 'ok' },
    { name: 'the longest length', fields: ['Content-Length', '9'.repeat(16)], says: 'ok' },
    { name: 'a length one digit longer', fields: ['Content-Length', '1'.repeat(17)], says: 'bad_request', fault: 'D02' },
    { name: 'a sign', fields: ['Content-Length', '+5'], says: 'bad_request', fault: 'D02' },
    { name: 'a negative length', fields: ['Content-Length', '-5'], says: 'bad_request', fault: 'D02' },
    { name: 'a list', fields: ['Content-Length', '5,5'], says: 'bad_request', fault: 'D02' },
    { name: 'hex', fields: ['Content-Length', '0x5'], says: 'bad_request', fault: 'D02' },
    { name: 'a leading zero', fields: ['Content-Length', '05'], says: 'bad_request', fault: 'D02' },
    { name: 'a space', fields: ['Content-Length', ' 5 '], says: 'bad_request', fault: 'D02' },
    { name: 'an empty length', fields: ['Content-Length', ''], says: 'bad_request', fault: 'D02' },
    { name: 'two lengths', fields: ['Content-Length', '5', 'content-length', '6'], says: 'bad_request', fault: 'D02' },
    { name: 'two equal lengths', fields: ['Content-Length', '5', 'Content-Length', '5'], says: 'bad_request', fault: 'D02' },
    { name: 'chunks', fields: ['Transfer-Encoding', 'chunked'], says: 'ok' },
    { name: 'chunks in upper case', fields: ['TRANSFER-ENCODING', 'CHUNKED'], says: 'ok' },
    {
      name: 'length and chunks',
      fields: ['Content-Length', '6', 'Transfer-Encoding', 'chunked'],
      says: 'bad_request',
      fault: 'D01',
    },
    { name: 'chunks, then identity', fields: ['Transfer-Encoding', 'chunked, identity'], says: 'bad_request', fault: 'D01' },
    { name: 'gzip, then chunks', fields: ['Transfer-Encoding', 'gzip, chunked'], says: 'bad_request', fault: 'D01' },
    { name: 'a coding that ends alike', fields: ['Transfer-Encoding', 'xchunked'], says: 'bad_request', fault: 'D01' },
    { name: 'chunks twice in one field', fields: ['Transfer-Encoding', 'chunked, chunked'], says: 'bad_request', fault: 'D01' },
    {
      name: 'chunks in two fields',
      fields: ['Transfer-Encoding', 'chunked', 'transfer-encoding', 'chunked'],
      says: 'bad_request',
      fault: 'D01',
    },
    { name: 'a tab before it', fields: ['Transfer-Encoding', '\tchunked'], says: 'bad_request', fault: 'D01' },
    { name: 'an empty coding', fields: ['Transfer-Encoding', ''], says: 'bad_request', fault: 'D01' },
  ])('has one reading or is refused: $name', ({ fields, says: expected }) => {
    const result = says(exchangeArrival({ method: 'POST', ceiling: TUNNEL, more: fields }));
    expect(result).toBe(expected === 'ok' ? 'https allowed.test:443 /' : expected);
  });

  it.each(['1.0', '0.9', '2.0'])('has no chunks in HTTP/%s', (version) => {
    expect(says(exchangeArrival({ method: 'POST', version, more: ['Transfer-Encoding', 'chunked'] }))).toBe('bad_request'); // D01
  });

  it.each([
    { name: 'a length', more: ['Content-Length', '5'], ok: false },
    { name: 'chunks', more: ['Transfer-Encoding', 'chunked'], ok: false },
    { name: 'a length of zero', more: ['Content-Length', '0'], ok: true },
  ])('of a CONNECT or a WebSocket handshake announces no body: $name is let through: $ok', ({ more, ok }) => {
    expect(says(tunnelArrival({ more }))).toBe(ok ? 'tunnel example.com:443' : 'bad_request'); // D01
    expect(says(upgradeArrival({ ceiling: TUNNEL, more }))).toBe(ok ? 'https allowed.test:443 /socket' : 'bad_request');
  });
});

describe('methods', () => {
  it.each(['TRACE', 'trace', 'TRACK', 'Track'])('%s is forbidden on every host, in a tunnel and outside', (method) => {
    expect(says(exchangeArrival({ method }))).toBe('method_forbidden'); // E11
    expect(says(exchangeArrival({ method, ceiling: TUNNEL }))).toBe('method_forbidden');
  });

  it.each([
    { name: 'OPTIONS that ends here', method: 'OPTIONS', more: ['Max-Forwards', '0'], says: 'method_forbidden', fault: 'E11' },
    {
      name: 'OPTIONS that ends here, in two digits',
      method: 'OPTIONS',
      more: ['max-forwards', ' 00 '],
      says: 'method_forbidden',
      fault: 'E11',
    },
    {
      name: 'OPTIONS with a second limit',
      method: 'OPTIONS',
      more: ['Max-Forwards', '5', 'Max-Forwards', '0'],
      says: 'method_forbidden',
      fault: 'E11',
    },
    { name: 'OPTIONS that goes on', method: 'OPTIONS', more: ['Max-Forwards', '10'], says: 'http example.com:80 /' },
    { name: 'OPTIONS', method: 'OPTIONS', more: [], says: 'http example.com:80 /' },
    { name: 'GET with a limit, which means nothing', method: 'GET', more: ['Max-Forwards', '0'], says: 'http example.com:80 /' },
    { name: 'a method of its own', method: 'FOO', more: [], says: 'http example.com:80 /', fault: 'E11' },
    { name: 'a method with a space', method: 'GET /', more: [], says: 'bad_request' },
    { name: 'a method with a line break', method: 'GET\r\nX', more: [], says: 'bad_request' },
    { name: 'no method', method: '', more: [], says: 'bad_request' },
  ])('$name: $says', ({ method, more, says: expected }) => {
    expect(says(exchangeArrival({ method, more }))).toBe(expected);
  });
});

describe('expectations', () => {
  it.each([
    { name: '100-continue', more: ['Expect', '100-continue'], says: 'http example.com:80 /' },
    { name: '100-continue in upper case', more: ['EXPECT', '100-Continue'], says: 'http example.com:80 /' },
    { name: 'something else', more: ['Expect', 'something-else'], says: 'expectation_failed' },
    { name: 'something more', more: ['Expect', '100-continue, x'], says: 'expectation_failed' },
    { name: 'two', more: ['Expect', '100-continue', 'Expect', '100-continue'], says: 'expectation_failed' },
    { name: 'nothing', more: ['Expect', ''], says: 'expectation_failed' },
  ])('of $name: $says', ({ more, says: expected }) => {
    expect(says(exchangeArrival({ method: 'POST', more }))).toBe(expected); // D11
  });
});

describe('upgrades', () => {
  const upgrade = (...values: readonly string[]) => ['Host', 'example.com', ...values.flatMap((value) => ['Upgrade', value])];

  it.each([
    { name: 'websocket', fields: upgrade('websocket'), says: 'http example.com:80 /socket' },
    { name: 'WebSocket', fields: upgrade('WebSocket'), says: 'http example.com:80 /socket' },
    { name: 'h2c', fields: upgrade('h2c'), says: 'bad_request', fault: 'E01' },
    { name: 'websocket beside h2c', fields: upgrade('websocket, h2c'), says: 'bad_request', fault: 'E01' },
    { name: 'websocket and h2c in two fields', fields: upgrade('websocket', 'h2c'), says: 'bad_request', fault: 'E01' },
    { name: 'nothing', fields: upgrade(), says: 'bad_request' },
  ])('to $name: $says', ({ fields, says: expected }) => {
    expect(says(upgradeArrival({ fields }))).toBe(expected);
  });

  it('are GET', () => {
    expect(says(upgradeArrival({ method: 'POST' }))).toBe('bad_request');
  });
});

describe('identity', () => {
  const identityOf = (arrival: Arrival): string | undefined => {
    const intent = readIntent(arrival, TEST_LIMITS);
    return isRefusal(intent) ? intent.code : intent.identity;
  };
  const more = ['Proxy-Authorization', 'Basic a'];

  it.each([
    { name: 'comes with the request', arrival: exchangeArrival({ more }), identity: 'Basic a' },
    { name: 'comes with the CONNECT', arrival: tunnelArrival({ more }), identity: 'Basic a' },
    { name: 'is none where none is sent', arrival: exchangeArrival(), identity: undefined },
    {
      name: 'is that of the tunnel inside it',
      arrival: exchangeArrival({ ceiling: ceilingAt('a.test:443', { identity: 'Basic t' }) }),
      identity: 'Basic t',
    },
    {
      name: 'is that of the tunnel, whatever a request inside says',
      arrival: exchangeArrival({ ceiling: ceilingAt('a.test:443', { identity: 'Basic t' }), more }),
      identity: 'Basic t',
    },
    {
      name: 'is not taken from inside a tunnel that had none',
      arrival: exchangeArrival({ ceiling: TUNNEL, more }),
      identity: undefined,
    },
    {
      name: 'is refused when sent twice',
      arrival: exchangeArrival({ more: [...more, 'proxy-authorization', 'Basic b'] }),
      identity: 'bad_request',
    },
  ])('$name', ({ arrival, identity }) => {
    expect(identityOf(arrival)).toBe(identity);
  });
});

describe('limits', () => {
  const limits: Limits = { ...TEST_LIMITS, targetBytes: 30, headerFields: 3 };

  it.each([
    { name: 'a target at the limit', arrival: exchangeArrival({ target: `http://example.com/${'a'.repeat(11)}` }), ok: true },
    {
      name: 'a target over it',
      arrival: exchangeArrival({ target: `http://example.com/${'a'.repeat(12)}` }),
      code: 'uri_too_long',
    },
    { name: 'fields at the limit', arrival: exchangeArrival({ more: ['a', '1', 'b', '2'] }), ok: true },
    { name: 'fields over it', arrival: exchangeArrival({ more: ['a', '1', 'b', '2', 'c', '3'] }), code: 'headers_too_large' },
  ])('hold: $name', ({ arrival, code }) => {
    const result = readIntent(arrival, limits);
    expect(isRefusal(result) ? result.code : undefined).toBe(code);
  });

  it("are not asked where the door's parser has found trouble already", () => {
    const trouble = new Refusal('request_timeout', 'the header section did not arrive in time');
    expect(readIntent(exchangeArrival({ target: 'x'.repeat(99), trouble }), limits)).toBe(trouble);
  });
});

describe('whatever arrives', () => {
  const wire = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 30 }),
    fc
      .array(
        fc.constantFrom(
          '/',
          '.',
          '..',
          '%2e',
          '%252e',
          '%2f',
          '%5c',
          '\\',
          ';',
          '?',
          '#',
          '@',
          ':',
          'a',
          'http://',
          'https://',
          'allowed.test',
          '[::1]',
          '443',
        ),
        { maxLength: 8 },
      )
      .map((parts) => parts.join('')),
  );
  const name = fc.oneof(
    fc.constantFrom('Host', 'Content-Length', 'Transfer-Encoding', 'Expect', 'Upgrade', 'Max-Forwards', 'Proxy-Authorization'),
    wire,
  );
  const fields = fc.array(fc.tuple(name, wire), { maxLength: 4 }).map((pairs) => pairs.flat());
  const parts = fc.record({
    target: wire,
    fields: fc.oneof(fields, fc.constant(['Host', 'allowed.test'])),
    method: fc.constantFrom('GET', 'OPTIONS', 'CONNECT', ''),
    inside: fc.boolean(),
  });

  it('is read or refused without a throw, and an intent is of one authority and one path', () => {
    fc.assert(
      fc.property(
        parts,
        fc.constantFrom(exchangeArrival, upgradeArrival, tunnelArrival, passthroughArrival),
        ({ inside, ...rest }, make) => {
          const arrival = make(inside ? { ...rest, ceiling: TUNNEL } : rest);
          const result = readIntent(arrival, TEST_LIMITS);
          if (isRefusal(result)) return;
          if (arrival.ceiling !== undefined) expect(result.authority).toEqual(arrival.ceiling.authority);
          expect(result.path).toMatch(arrival.purpose === 'exchange' || arrival.purpose === 'upgrade' ? /^\// : /^$/);
          expect(result.path).not.toMatch(/[?#\s]|[^\x21-\x7e]/);
          let decoded = result.path;
          for (let i = 0; i < 4; i += 1)
            decoded = decoded.replace(/%([2][5ef]|5c|3b)/gi, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
          expect(decoded.split(/[/\\;]/)).not.toContain('..');
          expect(decoded.split(/[/\\;]/)).not.toContain('.');
        },
      ),
      { numRuns: 3000 },
    );
  });
});
