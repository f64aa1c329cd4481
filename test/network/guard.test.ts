import { describe, expect, it } from 'vitest';
import { parseAddress } from '../../src/exchange/authority.ts';
import type { Host } from '../../src/exchange/authority.ts';
import { NO_RANGES, parseRanges } from '../../src/network/address-ranges.ts';
import { createGuard, createOwnAddresses } from '../../src/network/guard.ts';
import type { GuardVerdict, Listener } from '../../src/network/guard.ts';

const EVERYTHING = ['0.0.0.0/0', '::/0'];
const OWN = ['127.0.0.1', '::1', '10.1.0.5', 'fd00::5', 'fe80::1%eth0', '45.60.70.80', '2a00:1450::80'];

interface Question {
  readonly address: string;
  readonly port?: number;
  readonly opened?: readonly string[];
  readonly listener?: Listener;
}

function judge({ address, port = 443, opened = [], listener }: Question): GuardVerdict {
  const parsed = parseRanges(opened);
  const guard = createGuard({ listeners: () => (listener === undefined ? [] : [listener]), interfaces: () => OWN });
  const ranges = 'ranges' in parsed ? parsed.ranges : NO_RANGES;
  return guard.judge(parseAddress(address) ?? (address as Host), port, ranges);
}

const reasonOf = (question: Question): string => {
  const verdict = judge(question);
  return verdict.allowed ? 'allowed' : verdict.reason;
};

describe('createGuard', () => {
  it.each([
    { name: 'a public IPv4 address', address: '8.8.8.8', says: 'allowed' },
    { name: 'a public IPv6 address', address: '2606:4700::1', says: 'allowed' },
    { name: 'loopback', address: '127.0.0.1', says: 'loopback' },
    { name: 'private', address: '10.0.0.1', says: 'private' },
    { name: 'cloud metadata', address: '169.254.169.254', says: 'metadata' },
    { name: 'unspecified', address: '0.0.0.0', says: 'unspecified' },
    { name: 'unspecified IPv6', address: '::', says: 'unspecified' },
    { name: 'a mapped private address', address: '::ffff:10.0.0.1', says: 'private' },
    { name: 'a spelling that is no address', address: '127.1', says: 'unreadable' },
    { name: 'a name', address: 'localhost', says: 'unreadable' },
    { name: "the machine's own public address", address: '45.60.70.80', says: 'own_interface' },
    { name: 'a wrapper of that', address: '64:ff9b::45.60.70.80', says: 'own_interface' },
    { name: 'a public address beside it', address: '45.60.70.81', says: 'allowed' },
    { name: "the machine's own public IPv6 address", address: '2a00:1450::80', says: 'own_interface' },
    { name: "the machine's own private address", address: '10.1.0.5', says: 'private' },
  ])('with nothing opened says of $name: $says', ({ address, says }) => {
    expect(reasonOf({ address })).toBe(says);
  });

  it.each([
    { name: 'an address in the range', opened: ['10.0.0.0/8'], address: '10.0.0.1', says: 'allowed' },
    { name: 'its mapped form', opened: ['10.0.0.0/8'], address: '::ffff:10.0.0.1', says: 'allowed' },
    { name: 'its 6to4 form', opened: ['10.0.0.0/8'], address: '2002:a00:1::', says: 'private' },
    { name: 'an address outside the range', opened: ['10.0.0.0/9'], address: '10.128.0.0', says: 'private' },
    { name: "the machine's own address", opened: ['45.60.70.80'], address: '45.60.70.80', says: 'allowed' },
    { name: 'metadata, opened on purpose', opened: ['169.254.169.254'], address: '169.254.169.254', says: 'allowed' },
    { name: 'a name, everything opened', opened: EVERYTHING, address: 'localhost', says: 'unreadable' },
  ])('with $opened opened says of $name: $says', ({ opened, address, says }) => {
    expect(reasonOf({ address, opened })).toBe(says);
  });

  const anywhere = { address: '0.0.0.0', port: 8080 };
  const anywhereIPv6 = { address: '::', port: 8080 };
  const loopback = { address: '127.0.0.1', port: 8080 };
  const loopbackIPv6 = { address: '::1', port: 8080 };
  const outer = { address: '45.60.70.80', port: 8080 };
  it.each([
    { name: 'its own address', listener: loopback, address: '127.0.0.1', denied: true },
    { name: 'its mapped form', listener: loopback, address: '::ffff:127.0.0.1', denied: true },
    { name: 'its 6to4 form', listener: loopback, address: '2002:7f00:1::1', denied: true },
    { name: 'its NAT64 form', listener: loopback, address: '64:ff9b::7f00:1', denied: true },
    { name: 'its local NAT64 form', listener: loopback, address: '64:ff9b:1::7f00:1', denied: true },
    { name: 'its ISATAP form', listener: loopback, address: 'fe80::5efe:7f00:1', denied: true },
    { name: 'its Teredo form', listener: loopback, address: '2001:0:1:1:0:0:80ff:fffe', denied: true },
    { name: 'the unspecified address', listener: loopback, address: '0.0.0.0', denied: true },
    { name: 'the unspecified IPv6 address', listener: loopback, address: '::', denied: true },
    { name: 'another loopback address, where nothing listens', listener: loopback, address: '127.0.0.2', denied: false },
    { name: 'IPv6 loopback', listener: loopbackIPv6, address: '::1', denied: true },
    { name: 'loopback, listening everywhere', listener: anywhere, address: '127.0.0.1', denied: true },
    { name: 'any loopback address, listening everywhere', listener: anywhere, address: '127.9.8.7', denied: true },
    { name: 'IPv6 loopback, listening everywhere', listener: anywhere, address: '::1', denied: true },
    { name: 'an interface, listening everywhere', listener: anywhere, address: '10.1.0.5', denied: true },
    { name: 'a mapped interface, listening everywhere', listener: anywhere, address: '::ffff:10.1.0.5', denied: true },
    { name: 'an interface with a zone, listening everywhere', listener: anywhere, address: 'fe80::1', denied: true },
    { name: 'a public interface, listening everywhere', listener: anywhere, address: '45.60.70.80', denied: true },
    { name: "a neighbour's address, listening everywhere", listener: anywhere, address: '10.1.0.6', denied: false },
    { name: 'loopback, listening everywhere by IPv6', listener: anywhereIPv6, address: '127.0.0.1', denied: true },
    { name: 'an IPv6 interface, listening everywhere', listener: anywhereIPv6, address: 'fd00::5', denied: true },
    {
      name: 'the mapped form of a listener given as mapped',
      listener: { ...loopback, address: '::ffff:127.0.0.1' },
      address: '127.0.0.1',
      denied: true,
    },
    {
      name: 'loopback, a listener whose address cannot be read',
      listener: { ...loopback, address: 'localhost' },
      address: '127.0.0.1',
      denied: true,
    },
    { name: 'a public address it listens on', listener: outer, address: '45.60.70.80', denied: true },
    { name: 'another port', listener: anywhere, address: '127.0.0.1', port: 8081, denied: false },
  ])(
    'though everything is opened, keeps closed its listener at $name ($denied)',
    ({ listener, address, port = 8080, denied }) => {
      // Fault B16
      expect(reasonOf({ address, port, listener, opened: EVERYTHING })).toBe(denied ? 'own_listener' : 'allowed');
    },
  );

  it('reads the listeners anew for each judgement', () => {
    const listeners: Listener[] = [];
    const guard = createGuard({ listeners: () => listeners, interfaces: () => [] });
    const address = parseAddress('8.8.4.4') as Host;
    expect(guard.judge(address, 80, NO_RANGES)).toEqual({ allowed: true });
    listeners.push({ address: '8.8.4.4', port: 80 });
    expect(guard.judge(address, 80, NO_RANGES)).toEqual({ allowed: false, reason: 'own_listener' });
  });

  it('reads the interfaces again after five seconds and not before', () => {
    let time = 100;
    let own: string[] = [];
    const guard = createGuard({ listeners: () => [], interfaces: () => own, now: () => time });
    const allowed = (): boolean => guard.judge('45.60.70.80' as Host, 443, NO_RANGES).allowed;
    expect(allowed()).toBe(true);
    own = ['45.60.70.80'];
    time += 4999;
    expect(allowed()).toBe(true);
    time += 1;
    expect(allowed()).toBe(false);
  });

  it('allows nothing public while the interfaces cannot be read', () => {
    const guard = createGuard({
      listeners: () => [],
      interfaces: () => {
        throw new Error('no interface table');
      },
    });
    expect(() => guard.judge('8.8.8.8' as Host, 443, NO_RANGES)).toThrow('no interface table');
    expect(() => guard.judge('8.8.8.8' as Host, 443, NO_RANGES)).toThrow('no interface table');
  });

  it("knows the machine's own interfaces by default", () => {
    const guard = createGuard({ listeners: () => [{ address: '0.0.0.0', port: 8080 }] });
    expect(guard.judge('127.0.0.1' as Host, 8080, NO_RANGES)).toEqual({ allowed: false, reason: 'own_listener' });
    expect(guard.judge('8.8.8.8' as Host, 8080, NO_RANGES)).toEqual({ allowed: true });
  });
});

describe('createOwnAddresses', () => {
  it('knows the addresses of the interfaces and no others', () => {
    const isOwn = createOwnAddresses({ interfaces: () => ['10.0.0.2', 'fe80::1%eth0', 'FD00:0::2'] });
    expect(['10.0.0.2', '10.0.0.3', 'fe80::1', 'fd00::2', 'fd00::3'].map((text) => isOwn(text as Host))).toEqual([
      true,
      false,
      true,
      true,
      false,
    ]);
  });

  it('takes every address for its own while the interfaces cannot be read', () => {
    const isOwn = createOwnAddresses({
      interfaces: () => {
        throw new Error('no interfaces');
      },
    });
    expect(isOwn('192.0.2.7' as Host)).toBe(true);
  });
});
