// A header section of HTTP/2 as the door reads it.
import { describe, expect, it } from 'vitest';
import { readHead } from '../../src/listen/http2-head.ts';

const PSEUDO = [':method', 'GET', ':scheme', 'https', ':authority', 'api.test', ':path', '/'];

describe('a header section', () => {
  it('has its pseudo-header fields apart', () => {
    expect(readHead([...PSEUDO, ':protocol', 'websocket', 'x-a', '1'])).toMatchObject({
      method: 'GET',
      scheme: 'https',
      authority: 'api.test',
      path: '/',
      protocol: 'websocket',
      fields: ['x-a', '1'],
    });
  });

  it('may do without an authority and a protocol', () => {
    expect(readHead([':method', 'GET', ':scheme', 'https', ':path', '/'])).toMatchObject({
      authority: undefined,
      protocol: undefined,
    });
  });

  it.each([
    { name: 'one cookie', raw: ['cookie', 'a=1'], fields: ['cookie', 'a=1'] },
    { name: 'crumbs', raw: ['cookie', 'a=1', 'cookie', 'b=2', 'cookie', 'c=3'], fields: ['cookie', 'a=1; b=2; c=3'] },
    {
      name: 'crumbs apart',
      raw: ['x', '1', 'cookie', 'a=1', 'y', '2', 'cookie', 'b=2'],
      fields: ['x', '1', 'cookie', 'a=1; b=2', 'y', '2'],
    },
    { name: 'other fields that come twice', raw: ['x', '1', 'x', '2'], fields: ['x', '1', 'x', '2'] },
  ])('with $name keeps the rest as it came', ({ raw, fields }) => {
    expect(readHead([...PSEUDO, ...raw]).fields).toEqual(fields);
  });

  it('is as large as it would be in HTTP/1.1', () => {
    expect(readHead(['ab', 'cde', 'f', '']).bytes).toBe('ab: cde\r\nf: \r\n'.length);
  });
});
