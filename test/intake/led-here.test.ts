// What intake makes of arrivals that were led here without the sandbox's knowing: at the transparent doors and the DNS door.
import { describe, expect, it } from 'vitest';
import { formatAuthority, parseHost } from '../../src/exchange/authority.ts';
import { isRefusal } from '../../src/exchange/codes.ts';
import type { Arrival } from '../../src/exchange/stages.ts';
import { readIntent } from '../../src/intake/read-intent.ts';
import { exchangeArrival, lookupArrival, TEST_LIMITS, tunnelArrival } from '../support/arrivals.ts';

/** The refusal's code, or where the intent leads. */
function says(arrival: Arrival): string {
  const result = readIntent(arrival, TEST_LIMITS);
  if (isRefusal(result)) return result.code;
  return `${result.scheme ?? 'tunnel'} ${formatAuthority(result.authority)} ${result.path}`.trimEnd();
}

describe('at a transparent door', () => {
  const dialled = (text: string) => parseHost(text);
  const tls = (address?: string) => ({
    scheme: 'https' as const,
    port: 443,
    address: address === undefined ? undefined : dialled(address),
  });
  const plain = (address?: string, port = 80) => ({ ...tls(address), scheme: 'http' as const, port });

  it.each([
    { name: 'a name', target: 'Api.Test', origin: tls(), expected: 'tunnel api.test:443' },
    { name: 'a name at another port', target: 'api.test', origin: { ...tls(), port: 8443 }, expected: 'tunnel api.test:8443' },
    { name: 'no name and a known address', target: '', origin: tls('192.0.2.7'), expected: 'tunnel 192.0.2.7:443' },
    { name: 'no name and no address', target: '', origin: tls(), expected: 'bad_request' },
    { name: 'the address that was dialled', target: '192.0.2.7', origin: tls('192.0.2.7'), expected: 'tunnel 192.0.2.7:443' },
    { name: 'another address', target: '192.0.2.8', origin: tls('192.0.2.7'), expected: 'host_mismatch' },
    { name: 'an address that may not be the one', target: '192.0.2.7', origin: tls(), expected: 'host_mismatch' },
    { name: 'a name with a port', target: 'api.test:443', origin: tls(), expected: 'bad_request' },
    { name: 'a bracketed address', target: '[::1]', origin: tls('[::1]'), expected: 'bad_request' },
  ])('TLS goes where its ClientHello says: $name', ({ target, origin, expected }) => {
    expect(says(tunnelArrival({ target, origin, fields: [] }))).toBe(expected);
  });

  it.each([
    { name: 'Host', fields: ['Host', 'api.test'], origin: plain(), expected: 'http api.test:80 /x' },
    {
      name: 'Host with the port',
      fields: ['Host', 'api.test:8080'],
      origin: plain(undefined, 8080),
      expected: 'http api.test:8080 /x',
    },
    { name: 'Host with another port', fields: ['Host', 'api.test:81'], origin: plain(), expected: 'host_mismatch' },
    { name: 'Host without the port', fields: ['Host', 'api.test'], origin: plain(undefined, 8080), expected: 'host_mismatch' },
    {
      name: 'the address that was dialled',
      fields: ['Host', '192.0.2.7'],
      origin: plain('192.0.2.7'),
      expected: 'http 192.0.2.7:80 /x',
    },
    { name: 'another address', fields: ['Host', '192.0.2.8'], origin: plain('192.0.2.7'), expected: 'host_mismatch' },
    { name: 'an address that may not be the one', fields: ['Host', '192.0.2.7'], origin: plain(), expected: 'host_mismatch' },
    { name: 'no Host in HTTP/1.1', fields: [], origin: plain('192.0.2.7'), expected: 'bad_request' },
    { name: 'two of them', fields: ['Host', 'api.test', 'Host', 'api.test'], origin: plain(), expected: 'bad_request' },
  ])('plain HTTP goes where its Host says: $name', ({ fields, origin, expected }) => {
    expect(says(exchangeArrival({ target: '/x', origin, fields }))).toBe(expected);
  });

  it.each([
    { target: 'http://api.test/x', host: 'api.test', expected: 'http api.test:80 /x' },
    { target: 'https://api.test/x', host: 'api.test', expected: 'host_mismatch' },
    { target: 'http://api.test:81/x', host: 'api.test:81', expected: 'host_mismatch' },
    { target: 'http://other.test/x', host: 'api.test', expected: 'host_mismatch' },
  ])('the absolute-form stays on the connection: $target', ({ target, host, expected }) => {
    expect(says(exchangeArrival({ target, origin: plain(), fields: ['Host', host] }))).toBe(expected);
  });

  it.each([
    { pseudo: { scheme: 'http', authority: 'api.test' }, expected: 'http api.test:80 /x' },
    { pseudo: { scheme: 'https', authority: 'api.test' }, expected: 'host_mismatch' },
    { pseudo: { scheme: 'http', authority: 'api.test:81' }, expected: 'host_mismatch' },
    { pseudo: { scheme: 'http', authority: undefined }, expected: 'bad_request' },
  ])('HTTP/2 goes where its pseudo-header fields say: $pseudo', ({ pseudo, expected }) => {
    expect(says(exchangeArrival({ protocol: 'h2', version: '2.0', target: '/x', pseudo, origin: plain(), fields: [] }))).toBe(
      expected,
    );
  });

  it('hears no token of a sandbox that knows of no proxy', () => {
    const fields = ['Host', 'api.test', 'Proxy-Authorization', 'Basic eDp5'];
    const intent = readIntent(exchangeArrival({ target: '/', origin: plain(), fields }), TEST_LIMITS);
    expect(intent).toMatchObject({ identity: undefined });
  });
});

describe('a lookup', () => {
  it.each([
    { name: 'Api.Test.', expected: 'tunnel api.test:443' },
    { name: '_dmarc.api.test', expected: 'tunnel _dmarc.api.test:443' },
    { name: '192.0.2.7', expected: 'bad_request' },
    { name: '[::1]', expected: 'bad_request' },
    { name: 'a b.test', expected: 'bad_request' },
    { name: '', expected: 'bad_request' },
  ])('of "$name" is $expected', ({ name, expected }) => {
    expect(says(lookupArrival({ target: name }))).toBe(expected);
  });
});
