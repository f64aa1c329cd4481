import { describe, expect, it } from 'vitest';
import { readClientHello } from '../../src/listen/client-hello.ts';
import type { ServerName } from '../../src/listen/client-hello.ts';
import { clientHello, extension, helloMessage, inRecords, serverNames, sized } from '../support/client-hellos.ts';

const hello = (...extensions: readonly Buffer[]): Buffer => inRecords(helloMessage(extensions));
const GREASE = extension(0x0a0a, Buffer.alloc(0));
const PINNED = serverNames('pinned.test');

describe('readClientHello', () => {
  it.each<{ name: string; bytes: Buffer; serverName: ServerName }>([
    { name: 'one host', bytes: hello(PINNED), serverName: { host: 'pinned.test' } },
    { name: 'one host among other extensions', bytes: hello(GREASE, PINNED, GREASE), serverName: { host: 'pinned.test' } },
    { name: 'a host as it is written', bytes: hello(serverNames('Pinned.TEST.')), serverName: { host: 'Pinned.TEST.' } },
    // 0xf0 is `p` with the high bit set.
    { name: 'no octet as another', bytes: hello(serverNames('\xf0inned.test')), serverName: { host: 'ðinned.test' } },
    { name: 'no extensions', bytes: inRecords(helloMessage(undefined)), serverName: 'absent' },
    { name: 'an empty list of extensions', bytes: hello(), serverName: 'absent' },
    { name: 'other extensions alone', bytes: hello(GREASE), serverName: 'absent' },
  ])('reads $name', ({ bytes, serverName }) => {
    expect(readClientHello(bytes)).toEqual({ serverName });
  });

  it.each([
    { name: 'another type before the host', bytes: hello(serverNames({ type: 1, name: 'x' }, 'evil.test')) },
    { name: 'another type after the host', bytes: hello(serverNames('pinned.test', { type: 1, name: 'x' })) },
    { name: 'another type alone', bytes: hello(serverNames({ type: 1, name: 'pinned.test' })) },
    { name: 'two hosts', bytes: hello(serverNames('pinned.test', 'evil.test')) },
    { name: 'the same host twice', bytes: hello(serverNames('pinned.test', 'pinned.test')) },
    { name: 'the extension twice', bytes: hello(PINNED, PINNED) },
    { name: 'the extension twice, empty first', bytes: hello(serverNames(), PINNED) },
    { name: 'the extension three times', bytes: hello(PINNED, PINNED, PINNED) },
    { name: 'an empty host', bytes: hello(serverNames('')) },
    { name: 'an empty list', bytes: hello(serverNames()) },
    { name: 'an empty extension', bytes: hello(extension(0, Buffer.alloc(0))) },
    { name: 'a list longer than its extension', bytes: hello(extension(0, Buffer.from([0, 9, 0, 0, 1, 0x61]))) },
    { name: 'a list shorter than its extension', bytes: hello(extension(0, Buffer.from([0, 4, 0, 0, 1, 0x61, 0x62]))) },
    { name: 'a host longer than its list', bytes: hello(extension(0, Buffer.from([0, 4, 0, 0, 2, 0x61]))) },
    { name: 'a host shorter than its list', bytes: hello(extension(0, Buffer.from([0, 5, 0, 0, 1, 0x61, 0x62]))) },
  ])('takes $name for a name that has no one reading', ({ bytes }) => {
    expect(readClientHello(bytes)).toEqual({ serverName: 'unreadable' });
  });

  const message = helloMessage([PINNED]);

  it.each([
    { name: 'two records', bytes: inRecords(message, 50) },
    { name: 'records that part the head of the message', bytes: inRecords(message, 3) },
    { name: 'records of one octet', bytes: inRecords(message, 1) },
  ])('reads a hello in $name', ({ bytes }) => {
    expect(readClientHello(bytes)).toEqual({ serverName: { host: 'pinned.test' } });
  });

  it.each([
    { name: 'one record', bytes: inRecords(message) },
    { name: 'several', bytes: inRecords(message, 40) },
  ])('waits for the rest, wherever it is cut: in $name', ({ bytes }) => {
    for (let length = 1; length < bytes.length; length += 1)
      expect([length, readClientHello(bytes.subarray(0, length))]).toEqual([length, 'partial']);
  });

  it('reads what a real client sends', async () => {
    expect(readClientHello(await clientHello('pinned.test'))).toEqual({ serverName: { host: 'pinned.test' } });
  });

  const padded = (octets: number): Buffer => helloMessage([PINNED, extension(21, Buffer.alloc(octets))]);
  const spare = 16 * 1024 - inRecords(padded(0)).length;

  it('reads what takes 16 KiB, and does not wait for more', () => {
    const within = inRecords(padded(spare));
    expect([within.length, readClientHello(within)]).toEqual([16 * 1024, { serverName: { host: 'pinned.test' } }]);
    expect(readClientHello(inRecords(padded(spare + 1)))).toBe('malformed');
    expect(readClientHello(inRecords(padded(spare + 1)).subarray(0, 5))).toBe('malformed');
    const beyond = inRecords(padded(60_000), 8000);
    // as soon as the head of the third record says how long it is
    expect(readClientHello(beyond.subarray(0, 2 * 8005 + 4))).toBe('partial');
    expect(readClientHello(beyond.subarray(0, 2 * 8005 + 5))).toBe('malformed');
  });

  it('leaves alone what comes after it', () => {
    const early = inRecords(message).subarray(0, 60);
    expect(readClientHello(Buffer.concat([hello(PINNED), early]))).toEqual({ serverName: { host: 'pinned.test' } });
  });

  it.each([
    { name: 'another record', bytes: Buffer.concat([Buffer.from([0x17]), inRecords(message).subarray(1)]) },
    {
      name: 'another record among its own',
      bytes: Buffer.concat([inRecords(message.subarray(0, 9)), Buffer.from([0x15, 3, 1, 0, 2])]),
    },
    { name: 'a record of SSL 2', bytes: Buffer.concat([Buffer.from([0x16, 2]), inRecords(message).subarray(2)]) },
    { name: 'an empty record', bytes: Buffer.from([0x16, 3, 1, 0, 0]) },
    { name: 'another message', bytes: inRecords(Buffer.concat([Buffer.from([2]), message.subarray(1)])) },
    { name: 'a message behind it', bytes: inRecords(Buffer.concat([message, Buffer.from([0])])) },
    {
      name: 'a body behind its extensions',
      bytes: inRecords(Buffer.concat([Buffer.from([1]), sized(Buffer.concat([message.subarray(4), Buffer.from([0])]), 3)])),
    },
    { name: 'a body that ends too soon', bytes: inRecords(Buffer.from([1, 0, 0, 2, 3, 3])) },
    { name: 'an extension longer than its list', bytes: hello(extension(0x0a0a, Buffer.alloc(4)).subarray(0, 6)) },
    { name: 'half an extension', bytes: hello(Buffer.from([0, 0, 0])) },
  ])('takes $name for no ClientHello', ({ bytes }) => {
    expect(readClientHello(bytes)).toBe('malformed');
  });
});
