import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  endToEndFields,
  fieldValue,
  fieldValues,
  isFieldName,
  isFieldValue,
  listMembers,
  looseName,
} from '../../src/exchange/header-fields.ts';

const NONE: ReadonlySet<string> = new Set();

const HOP_BY_HOP = [
  'Connection',
  'Keep-Alive',
  'Proxy-Connection',
  'Proxy-Authorization',
  'Proxy-Authenticate',
  'Proxy-Authentication-Info',
  'TE',
  'Trailer',
  'Transfer-Encoding',
  'Upgrade',
  'HTTP2-Settings',
];

describe('fieldValues and fieldValue', () => {
  const fields = ['Accept', 'a', 'X-Two', '1', 'ACCEPT', 'b', 'accept', ''];

  it('finds every value in wire order, whatever the case, empty ones included', () => {
    expect(fieldValues(fields, 'accept')).toEqual(['a', 'b', '']);
  });

  it('finds the first value', () => {
    expect(fieldValue(fields, 'accept')).toBe('a');
    expect(fieldValue(fields, 'x-two')).toBe('1');
  });

  it('finds nothing under a name that only begins or ends alike, or in a value', () => {
    expect(fieldValues(fields, 'x-tw')).toEqual([]);
    expect(fieldValue(fields, 'two')).toBeUndefined();
    expect(fieldValue(fields, '1')).toBeUndefined();
  });

  it('ignores a name without a value at the end', () => {
    expect(fieldValues(['A', '1', 'B'], 'b')).toEqual([]);
  });
});

describe('listMembers', () => {
  it.each([
    { name: 'one member', value: 'close', members: ['close'] },
    { name: 'several, spaced and in upper case', value: ' Keep-Alive ,\tX-Foo', members: ['keep-alive', 'x-foo'] },
    { name: 'empty ones', value: ',, a,', members: ['a'] },
    { name: 'none', value: '', members: [] },
  ])('reads $name', ({ value, members }) => {
    expect(listMembers(value)).toEqual(members);
  });
});

describe('endToEndFields', () => {
  it.each([
    ...HOP_BY_HOP.map((field) => ({ name: field, field, fault: 'E01' })),
    ...HOP_BY_HOP.map((field) => ({ name: `${field} in upper case`, field: field.toUpperCase(), fault: 'E01' })),
    { name: 'Proxy-Authorization with underscores', field: 'Proxy_Authorization', fault: 'E15' },
    { name: 'Transfer-Encoding with an underscore', field: 'Transfer_Encoding', fault: 'E01' },
  ])('leaves out $name', ({ field }) => {
    expect(endToEndFields(['A', '1', field, 'x', 'B', '2'], NONE)).toEqual(['A', '1', 'B', '2']);
  });

  it.each(['Upgrade-Insecure-Requests', 'Proxy-Authorizations', 'Tea', 'Trailers', 'X-Connection', 'Content-Length', 'Cookie'])(
    'keeps %s, which is none of them',
    (field) => {
      expect(endToEndFields([field, 'x'], NONE)).toEqual([field, 'x']);
    },
  );

  it.each([
    { name: 'a nominated field', connection: ['keep-alive, X-Foo'], sent: 'X-Foo', kept: false, fault: 'E01' },
    { name: 'one nominated in another case', connection: ['x-FOO'], sent: 'X-foo', kept: false, fault: 'E01' },
    { name: 'one nominated by a second Connection', connection: ['close', 'X-Foo'], sent: 'X-Foo', kept: false, fault: 'E01' },
    { name: 'an authenticating one', connection: ['Authorization'], sent: 'authorization', kept: false, fault: 'E02' },
    { name: 'one nominated by part of its name', connection: ['X-Fo'], sent: 'X-Foo', kept: true, fault: 'E01' },
    { name: 'Host', connection: ['Host'], sent: 'Host', kept: true, fault: 'E02' },
    { name: 'Content-Length', connection: ['content-length'], sent: 'Content-Length', kept: true, fault: 'E02' },
    { name: 'Content-Type', connection: ['content-type'], sent: 'Content-Type', kept: true, fault: 'E02' },
    { name: 'Cache-Control', connection: ['cache-control'], sent: 'Cache-Control', kept: true, fault: 'E02' },
  ])('of Connection $connection: keeps $name: $kept', ({ connection, sent, kept }) => {
    const fields = [...connection.flatMap((value) => ['Connection', value]), sent, 'x'];
    expect(endToEndFields(fields, NONE)).toEqual(kept ? [sent, 'x'] : []);
  });

  it('hears a Connection field that comes after the field it nominates', () => {
    expect(endToEndFields(['X-Foo', '1', 'cOnNeCtIoN', 'x-foo'], NONE)).toEqual([]);
  });

  it('leaves out what it is told to, in every spelling of case and underscore, all duplicates included', () => {
    const sent = [
      'authorization',
      '1',
      'AUTHORIZATION',
      '2',
      'X-Api-Key',
      '3',
      'x_api_key',
      '4',
      'X_Api-KEY',
      '5',
      'X-Api-Keys',
      '6',
    ];
    expect(endToEndFields(sent, new Set(['authorization', 'x-api-key']))).toEqual(['X-Api-Keys', '6']); // E03
  });

  it('keeps order, case and duplicates of the rest', () => {
    const fields = ['b', '1', 'A', '2', 'b', '1', 'Set-Thing', ''];
    expect(endToEndFields(fields, NONE)).toEqual(fields);
  });

  it('never lets through a hop-by-hop name, a nominated one or a dropped one, and loses nothing else', () => {
    const plain = fc.constantFrom('Accept', 'X-Foo', 'X-Bar', 'Cookie', 'Host', 'Content-Length');
    const anyCase = fc
      .tuple(fc.oneof(plain, fc.constantFrom(...HOP_BY_HOP)), fc.boolean())
      .map(([name, upper]) => (upper ? name.toUpperCase() : name.toLowerCase()));
    const field = fc.oneof(
      fc.tuple(anyCase, fc.constantFrom('1', '2')),
      fc.tuple(
        fc.constantFrom('Connection', 'CONNECTION'),
        fc.array(anyCase, { maxLength: 3 }).map((names) => names.join(' , ')),
      ),
    );
    fc.assert(
      fc.property(fc.array(field, { maxLength: 12 }), fc.subarray(['cookie', 'x-bar']), (pairs, drop) => {
        const kept = endToEndFields(pairs.flat(), new Set(drop));
        const nominated = pairs
          .filter(([name]) => name.toLowerCase() === 'connection')
          .flatMap(([, value]) => listMembers(value));
        const gone = (name: string): boolean => {
          const lower = name.toLowerCase();
          const framing = lower === 'host' || lower === 'content-length';
          return (
            HOP_BY_HOP.some((hop) => hop.toLowerCase() === lower) ||
            drop.includes(lower) ||
            (nominated.includes(lower) && !framing)
          );
        };
        expect(kept).toEqual(pairs.filter(([name]) => !gone(name)).flat());
      }),
    );
  });
});

describe('looseName', () => {
  it.each([
    { name: 'X-Api-Key', loose: 'x-api-key' },
    { name: 'X_API_KEY', loose: 'x-api-key' },
    { name: 'x_Api-key', loose: 'x-api-key' },
    { name: 'XApiKey', loose: 'xapikey' },
  ])('takes $name for $loose', ({ name, loose }) => {
    expect(looseName(name)).toBe(loose);
  });
});

describe('isFieldName', () => {
  it.each(['a', 'X-Api-Key', 'x_y', "!#$%&'*+-.^_`|~0"])('accepts %s', (text) => {
    expect(isFieldName(text)).toBe(true);
  });

  it.each(['', ' ', 'a b', 'a:', 'a\n', 'a\r\nb', 'a(', 'a\0', '\u00e9', 'a\t', 'a/b', 'a"', '\u212aey'])(
    'refuses %j',
    (text) => {
      expect(isFieldName(text)).toBe(false); // D02
    },
  );
});

describe('isFieldValue', () => {
  it.each(['', 'Bearer abc', 'a\tb', '\xa0\xff', '~!@#$%^&*()'])('accepts %j', (text) => {
    expect(isFieldValue(text)).toBe(true);
  });

  it.each([
    { name: 'a line break and a field', text: 'x\r\nX-Evil: 1', fault: 'E08' },
    { name: 'a lone LF', text: 'x\ny', fault: 'E08' },
    { name: 'a lone CR', text: 'x\ry', fault: 'E08' },
    { name: 'an LF at the end', text: 'x\n', fault: 'E08' },
    { name: 'a NUL', text: 'x\0', fault: 'E08' },
    { name: 'a DEL', text: 'x\x7f', fault: 'E08' },
    { name: 'the last control before space', text: '\x1f', fault: 'E08' },
    { name: 'the first character beyond latin1', text: '\u0100', fault: 'E08' },
    { name: 'a character whose low byte is LF', text: '\u010a', fault: 'E08' },
  ])('refuses $name', ({ text }) => {
    expect(isFieldValue(text)).toBe(false);
  });
});
