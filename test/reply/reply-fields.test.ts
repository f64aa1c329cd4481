import { describe, expect, it } from 'vitest';
import { replyFields, replyTrailers } from '../../src/reply/reply-fields.ts';

const raw = (...texts: readonly string[]): Buffer[] => texts.map((text) => Buffer.from(text, 'latin1'));

const OURS = ['Proxy-Status', 'proxy-status', 'PROXY-STATUS', 'X-Sallyport-Reason', 'x-sallyport-reason', 'X-SALLYPORT-REASON'];
const HOP_BY_HOP = [
  'Connection',
  'keep-alive',
  'Proxy-Connection',
  'Proxy-Authenticate',
  'Proxy-Authorization',
  'Proxy-Authentication-Info',
  'TE',
  'Transfer-Encoding',
  'UPGRADE',
];

describe('replyFields', () => {
  it('keeps order, case, duplicates and latin1 bytes', () => {
    const fields = ['Set-Cookie', 'a=1', 'set-cookie', 'b=2', 'Content-Type', 'text/html', 'X-Name', 'caf\xe9', 'Empty', ''];
    expect(replyFields(raw(...fields))).toEqual(fields);
  });

  it.each([...OURS, ...HOP_BY_HOP])('drops %s from an upstream', (name) => {
    expect(replyFields(raw('A', '1', name, 'sallyport; error=x', 'B', '2'))).toEqual(['A', '1', 'B', '2']); // E01
  });

  it.each(['X-Sallyport-Reasons', 'Proxy-Statuses', 'X-Proxy-Status', 'Upgrades', 'Content-Length', 'WWW-Authenticate'])(
    'keeps %s, which only looks alike',
    (name) => {
      expect(replyFields(raw(name, 'x'))).toEqual([name, 'x']);
    },
  );

  it.each([
    { name: 'a nominated field', connection: ['X-Foo'], sent: 'x-foo', kept: false },
    { name: 'one nominated by a second Connection', connection: ['close', ' a ,X-FOO'], sent: 'X-Foo', kept: false },
    { name: 'one that is not nominated', connection: ['X-Fo'], sent: 'X-Foo', kept: true },
    { name: 'Content-Length, which cannot be nominated', connection: ['Content-Length'], sent: 'Content-Length', kept: true },
  ])('of Connection $connection: keeps $name: $kept', ({ connection, sent, kept }) => {
    const fields = [sent, 'x', ...connection.flatMap((value) => ['Connection', value])];
    expect(replyFields(raw(...fields))).toEqual(kept ? [sent, 'x'] : []); // E01
  });
});

describe('replyTrailers', () => {
  it('keeps what a trailer section may hold', () => {
    expect(replyTrailers(raw('Digest', 'x', 'Grpc-Status', '0'))).toEqual(['Digest', 'x', 'Grpc-Status', '0']);
  });

  it.each([
    ...OURS,
    ...HOP_BY_HOP,
    'Content-Length',
    'content-type',
    'Content-Encoding',
    'HOST',
    'Authorization',
    'Set-Cookie',
    'Trailer',
  ])('drops %s', (name) => {
    expect(replyTrailers(raw('A', '1', name, 'x'))).toEqual(['A', '1']);
  });
});
