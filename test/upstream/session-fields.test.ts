import { describe, expect, it } from 'vitest';
import type { HeaderFields } from '../../src/exchange/header-fields.ts';
import type { Outgoing } from '../../src/upstream/carrier.ts';
import { joined, sectionSize, sessionFields } from '../../src/upstream/session-fields.ts';
import { exchangeArrival, upgradeArrival } from '../support/arrivals.ts';

function request(headers: HeaderFields, more: Partial<Outgoing> = {}): Outgoing {
  return {
    method: 'GET',
    path: '/a?b',
    headers: ['Host', 'api.test', ...headers],
    body: null,
    arrival: exchangeArrival(),
    ...more,
  };
}

const fieldsOf = (headers: HeaderFields, more?: Partial<Outgoing>): Record<string, unknown> => ({
  ...sessionFields(request(headers, more), 'https'),
});

const PSEUDO = { ':method': 'GET', ':scheme': 'https', ':authority': 'api.test', ':path': '/a?b' };

describe('sessionFields', () => {
  it.each<{ name: string; headers: HeaderFields; becomes: object }>([
    { name: 'the request line and Host are pseudo-header fields', headers: [], becomes: {} },
    { name: 'names are lower case', headers: ['X-A', 'B'], becomes: { 'x-a': 'B' } },
    {
      name: 'every value of a name is kept, in order',
      headers: ['X-A', '1', 'x-b', '2', 'x-A', '3', 'X-A', '4'],
      becomes: { 'x-a': ['1', '3', '4'], 'x-b': '2' },
    },
    { name: 'an empty value is one', headers: ['X-A', ''], becomes: { 'x-a': '' } },
    {
      name: 'Connection and its like stay here',
      headers: [
        'Connection',
        'close',
        'Keep-Alive',
        '5',
        'Proxy-Connection',
        'a',
        'Transfer-Encoding',
        'chunked',
        'Upgrade',
        'h2c',
        'HTTP2-Settings',
        'x',
      ],
      becomes: {},
    },
    { name: 'TE is not for whoever puts fields on to say', headers: ['TE', 'trailers'], becomes: {} },
    {
      name: 'a name of an object is a name like any other',
      headers: ['__proto__', '1', 'constructor', '2'],
      becomes: { ['__proto__']: '1', constructor: '2' },
    },
    { name: 'the first Host is the authority', headers: ['host', 'other.test'], becomes: {} },
    {
      name: 'what only looks like one of a connection goes on',
      headers: ['X-Connection', '1', 'Upgrade-Insecure-Requests', '1'],
      becomes: { 'x-connection': '1', 'upgrade-insecure-requests': '1' },
    },
  ])('$name', ({ headers, becomes }) => {
    expect(Object.entries(fieldsOf(headers))).toEqual(Object.entries({ ...PSEUDO, ...becomes }));
  });

  it('begins with the pseudo-header fields, whatever comes first', () => {
    const [names] = [Object.keys(sessionFields({ ...request([]), headers: ['X-A', '1', 'Host', 'api.test'] }, 'http'))];
    expect(names).toEqual([':method', ':scheme', ':authority', ':path', 'x-a']);
  });

  it('is an extended CONNECT without a key where protocols are to be switched', () => {
    const headers = ['Sec-WebSocket-Version', '13', 'Sec-WebSocket-Key', 'key', 'Sec-WebSocket-Protocol', 'chat'];
    const arrival = upgradeArrival();
    expect(fieldsOf(headers, { arrival, upgrade: 'websocket' })).toEqual({
      ...PSEUDO,
      ':method': 'CONNECT',
      ':protocol': 'websocket',
      'sec-websocket-version': '13',
      'sec-websocket-protocol': 'chat',
    });
  });

  it.each([
    { name: 'a body that is there whole has its length', headers: [], length: '4' },
    { name: 'a length that is said is kept', headers: ['Content-Length', '4'], length: '4' },
  ])('$name', ({ headers, length }) => {
    expect(fieldsOf(headers, { body: Buffer.from('once') })['content-length']).toBe(length);
  });

  it.each([
    { te: ['TE', 'trailers'], sent: 'trailers' },
    { te: ['te', 'gzip;q=0.5, Trailers'], sent: 'trailers' },
    { te: ['TE', 'gzip', 'TE', 'trailers'], sent: 'trailers' },
    { te: ['TE', 'gzip'], sent: undefined },
    { te: ['TE', 'trailers-not'], sent: undefined },
    { te: [], sent: undefined },
  ])('says of $te that the sandbox takes $sent', ({ te, sent }) => {
    expect(fieldsOf([], { arrival: exchangeArrival({ more: te }) })['te']).toBe(sent);
  });
});

describe('joined', () => {
  it('has one value for each name, and joins cookies in their own way', () => {
    const fields = sessionFields(request(['A', '1', 'A', '2', 'Cookie', 'a=1', 'Cookie', 'b=2', 'C', '3']), 'https');
    expect({ ...joined(fields) }).toEqual({ ...PSEUDO, a: '1, 2', cookie: 'a=1; b=2', c: '3' });
  });
});

describe('sectionSize', () => {
  it('counts names, values and 32 bytes for each field (RFC 9113 section 6.5.2)', () => {
    expect(sectionSize([])).toBe(0);
    expect(sectionSize(['ab', 'cde', '', ''])).toBe(5 + 32 + 32);
  });
});
