// What no library sends over HTTP/2, in tables: the bytes of each case, and the answers that RFC 9113 allows for it.
// Bytes only: who connects, and to what, is told by the way that a case is played on.
import type { Socket } from 'node:net';
import { CODE, FLAG, FRAME, frame, section, settings, uint32 } from './h2-frames.ts';
import type { Setting } from './h2-frames.ts';
import type { Upstream } from './outside.ts';

/** One way in. */
export interface Way {
  readonly name: string;
  readonly scheme: 'https' | 'http';
  readonly authority: () => string;
  readonly upstream: () => Upstream;
  readonly connect: () => Promise<Socket>;
}

export type Fields = readonly (readonly [string, string])[];

/** The fields of a good request, with `more` behind them. */
export function fieldsFor(way: Way, path: string, more: Fields = [], method = 'GET'): Fields {
  return [[':method', method], [':scheme', way.scheme], [':authority', way.authority()], [':path', path], ...more];
}

const WHOLE = FLAG.endStream | FLAG.endHeaders;

/** A whole request in one frame. */
export function get(way: Way, path: string, more: Fields = [], stream = 1): Buffer {
  return frame(FRAME.headers, stream, { flags: WHOLE, payload: section(fieldsFor(way, path, more)) });
}

/** The head of a request whose body follows. */
export function post(way: Way, path: string, more: Fields = [], stream = 1): Buffer {
  return frame(FRAME.headers, stream, { flags: FLAG.endHeaders, payload: section(fieldsFor(way, path, more, 'POST')) });
}

function headersOf(fields: Fields, stream = 1): Buffer {
  return frame(FRAME.headers, stream, { flags: WHOLE, payload: section(fields) });
}

export function data(bytes: Buffer | string, { stream = 1, flags = 0 } = {}): Buffer {
  return frame(FRAME.data, stream, { flags, payload: Buffer.from(bytes) });
}

/** Node says of some that it was internal (`internal`), whatever its parser found; what counts is that the connection is over. */
const CONNECTION = (code: string): string[] => [`GOAWAY ${code}`, 'GOAWAY internal'];
/** A stream error may be treated as one of the connection (RFC 9113 section 5.4.2). */
const STREAM = (code: string): string[] => [`RST_STREAM ${code}`, ...CONNECTION(code)];
/** A malformed request may be answered before its stream is reset (section 8.1.1). */
const MALFORMED = [...STREAM('protocol'), 'HEADERS 400'];
const ANSWERED = ['HEADERS 200'];

/** A case. */
export interface Row {
  readonly name: string;
  /** Section of RFC 9113, or another document's */
  readonly by: string;
  readonly bytes: (way: Way) => readonly Buffer[];
  readonly answer: readonly string[];
  /** The stream whose fate is looked at */
  readonly stream?: number;
  readonly settings?: readonly Setting[];
}

const IGNORED: readonly Row[] = [
  {
    name: 'a frame of an unknown type',
    by: '5.5',
    bytes: (way) => [frame(0xfa, 0, { flags: 0xff, payload: Buffer.alloc(8) }), get(way, '/x'), frame(0xfa, 1)],
    answer: ANSWERED,
  },
  {
    name: 'flags that mean nothing',
    by: '4.1',
    bytes: (way) => [frame(FRAME.ping, 0, { flags: 0x16, payload: Buffer.alloc(8) }), get(way, '/x')],
    answer: ANSWERED,
  },
  {
    name: 'the reserved bit',
    by: '4.1',
    bytes: (way) => [frame(FRAME.windowUpdate, 0x80000000, { payload: uint32(1) }), get(way, '/x')],
    answer: ANSWERED,
  },
  {
    name: 'a setting that nobody knows',
    by: '6.5.2',
    settings: [[0xff, 1]],
    bytes: (way) => [get(way, '/x')],
    answer: ANSWERED,
  },
  {
    name: 'priorities, whatever they say',
    by: '5.3.2',
    bytes: (way) => [frame(FRAME.priority, 3, { payload: Buffer.from([0, 0, 0, 9, 200]) }), get(way, '/x')],
    answer: ANSWERED,
  },
  {
    name: 'padding of a body and of fields',
    by: '6.1',
    bytes: (way) => {
      const fields = section(fieldsFor(way, '/x', [], 'POST'));
      const padded = Buffer.concat([Buffer.from([5]), fields, Buffer.alloc(5)]);
      return [
        frame(FRAME.headers, 1, { flags: FLAG.endHeaders | FLAG.padded, payload: padded }),
        frame(FRAME.data, 1, { flags: FLAG.endStream | FLAG.padded, payload: Buffer.from([2, 0x61, 0x62, 0, 0]) }),
      ];
    },
    answer: ANSWERED,
  },
  {
    name: 'where a field section is cut into frames',
    by: '6.10',
    bytes: (way) => {
      const fields = section(fieldsFor(way, '/x'));
      return [
        frame(FRAME.headers, 1, { flags: FLAG.endStream, payload: fields.subarray(0, 1) }),
        frame(FRAME.continuation, 1, { payload: fields.subarray(1, 20) }),
        frame(FRAME.continuation, 1),
        frame(FRAME.continuation, 1, { flags: FLAG.endHeaders, payload: fields.subarray(20) }),
      ];
    },
    answer: ANSWERED,
  },
  {
    name: 'trailers of a request',
    by: '8.1',
    bytes: (way) => [post(way, '/x'), data('abc'), headersOf([['x-checksum', '1']])],
    answer: ANSWERED,
  },
  { name: 'te: trailers', by: '8.2.2', bytes: (way) => [get(way, '/x', [['te', 'trailers']])], answer: ANSWERED },
  {
    name: 'a GOAWAY of the client',
    by: '6.8',
    bytes: (way) => [get(way, '/x'), frame(FRAME.goaway, 0, { payload: uint32(0, 0) })],
    answer: ANSWERED,
  },
  // It ought to be malformed (section 8.2.1). Node leaves the field out without a word; at least nobody else gets to see it.
  ...[
    ['x space', '1'],
    ['x-line', 'a\r\nx-smuggled: 1'],
    ['x-feed', 'a\nb'],
    ['x-nul', 'a\0b'],
    ['x-control', 'a\x01b'],
    ['x-padded', ' a'],
    ['', 'no name'],
    ['x:colon', '1'],
  ].map(([name, value]): Row => ({
    name: `the field ${name!}: ${value!}, which goes nowhere`,
    by: '8.2.1',
    bytes: (way) => [get(way, '/clean', [[name!, value!]])],
    answer: [...MALFORMED, ...ANSWERED],
  })),
];

const FRAMING: readonly Row[] = [
  {
    name: 'a frame over the size that was allowed',
    by: '4.2',
    bytes: (way) => [post(way, '/x'), data(Buffer.alloc(16385))],
    answer: STREAM('frameSize'),
  },
  {
    name: 'a field section in a frame over that size',
    by: '4.2',
    bytes: (way) => [get(way, '/x', [['x-large', 'x'.repeat(17000)]])],
    answer: CONNECTION('frameSize'),
  },
  {
    name: 'a field section that is none',
    by: '4.3',
    bytes: () => [frame(FRAME.headers, 1, { flags: WHOLE, payload: Buffer.from([0x80]) })],
    answer: CONNECTION('compression'),
  },
  {
    name: 'a reference into an empty table',
    by: '4.3',
    bytes: () => [frame(FRAME.headers, 1, { flags: WHOLE, payload: Buffer.from([0xff, 0x7f]) })],
    answer: CONNECTION('compression'),
  },
  {
    name: 'a table over the size that was allowed',
    by: 'RFC 7541 section 6.3',
    bytes: () => [frame(FRAME.headers, 1, { flags: WHOLE, payload: Buffer.from([0x3f, 0xff, 0xff, 0x7f]) })],
    answer: CONNECTION('compression'),
  },
  { name: 'a body on stream 0', by: '6.1', bytes: () => [data('x', { stream: 0 })], answer: CONNECTION('protocol') },
  { name: 'fields on stream 0', by: '6.2', bytes: (way) => [get(way, '/malformed', [], 0)], answer: CONNECTION('protocol') },
  {
    name: 'a priority on stream 0',
    by: '6.3',
    bytes: () => [frame(FRAME.priority, 0, { payload: Buffer.alloc(5) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a priority of another length',
    by: '6.3',
    bytes: (way) => [post(way, '/x'), frame(FRAME.priority, 1, { payload: Buffer.alloc(4) })],
    answer: STREAM('frameSize'),
  },
  {
    name: 'a reset of stream 0',
    by: '6.4',
    bytes: () => [frame(FRAME.reset, 0, { payload: uint32(CODE.cancel) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a reset of another length',
    by: '6.4',
    bytes: (way) => [post(way, '/x'), frame(FRAME.reset, 1, { payload: Buffer.alloc(3) })],
    answer: CONNECTION('frameSize'),
  },
  { name: 'settings on a stream', by: '6.5', bytes: () => [frame(FRAME.settings, 1)], answer: CONNECTION('protocol') },
  {
    name: 'settings of a broken length',
    by: '6.5',
    bytes: () => [frame(FRAME.settings, 0, { payload: Buffer.alloc(5) })],
    answer: CONNECTION('frameSize'),
  },
  {
    name: 'an acknowledgement that says something',
    by: '6.5',
    bytes: () => [frame(FRAME.settings, 0, { flags: FLAG.ack, payload: Buffer.alloc(6) })],
    answer: CONNECTION('frameSize'),
  },
  {
    name: 'an ENABLE_PUSH of 2',
    by: '6.5.2',
    bytes: () => [frame(FRAME.settings, 0, { payload: settings([2, 2]) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a window of 2^31',
    by: '6.5.2',
    bytes: () => [frame(FRAME.settings, 0, { payload: settings([4, 0x80000000]) })],
    answer: CONNECTION('flowControl'),
  },
  {
    name: 'a frame size below the least',
    by: '6.5.2',
    bytes: () => [frame(FRAME.settings, 0, { payload: settings([5, 16383]) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a frame size above the most',
    by: '6.5.2',
    bytes: () => [frame(FRAME.settings, 0, { payload: settings([5, 0x1000000]) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a PUSH_PROMISE of a client',
    by: '8.4',
    bytes: (way) => [
      post(way, '/x'),
      frame(FRAME.push, 1, {
        flags: FLAG.endHeaders,
        payload: Buffer.concat([uint32(2), section(fieldsFor(way, '/malformed'))]),
      }),
    ],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a ping on a stream',
    by: '6.7',
    bytes: () => [frame(FRAME.ping, 1, { payload: Buffer.alloc(8) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a ping of another length',
    by: '6.7',
    bytes: () => [frame(FRAME.ping, 0, { payload: Buffer.alloc(7) })],
    answer: CONNECTION('frameSize'),
  },
  {
    name: 'a GOAWAY on a stream',
    by: '6.8',
    bytes: () => [frame(FRAME.goaway, 1, { payload: uint32(0, 0) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a window that grows by nothing',
    by: '6.9',
    bytes: () => [frame(FRAME.windowUpdate, 0, { payload: uint32(0) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: "a stream's window that grows by nothing",
    by: '6.9',
    bytes: (way) => [post(way, '/x'), frame(FRAME.windowUpdate, 1, { payload: uint32(0) })],
    answer: STREAM('protocol'),
  },
  {
    name: 'a window update of another length',
    by: '6.9',
    bytes: () => [frame(FRAME.windowUpdate, 0, { payload: Buffer.alloc(3) })],
    answer: CONNECTION('frameSize'),
  },
  {
    name: 'a window over 2^31-1',
    by: '6.9.1',
    bytes: () => Array.from({ length: 2 }, () => frame(FRAME.windowUpdate, 0, { payload: uint32(0x7fffffff) })),
    answer: CONNECTION('flowControl'),
  },
  {
    name: "a stream's window over 2^31-1",
    by: '6.9.1',
    bytes: (way) => [post(way, '/x'), frame(FRAME.windowUpdate, 1, { payload: uint32(0x7fffffff) })],
    answer: STREAM('flowControl'),
  },
  {
    name: 'a body padded with more than there is',
    by: '6.1',
    bytes: (way) => [post(way, '/x'), frame(FRAME.data, 1, { flags: FLAG.padded, payload: Buffer.from([9, 1, 2]) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'fields padded with more than there are',
    by: '6.2',
    bytes: () => [frame(FRAME.headers, 1, { flags: WHOLE | FLAG.padded, payload: Buffer.from([9, 0x82]) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a continuation of nothing',
    by: '6.10',
    bytes: (way) => [
      post(way, '/x'),
      frame(FRAME.continuation, 1, { flags: FLAG.endHeaders, payload: section([['x-more', '1']]) }),
    ],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a continuation on stream 0',
    by: '6.10',
    bytes: () => [
      frame(FRAME.headers, 1, { payload: Buffer.from([0x82]) }),
      frame(FRAME.continuation, 0, { flags: FLAG.endHeaders }),
    ],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a frame among continuations',
    by: '6.10',
    bytes: () => [frame(FRAME.headers, 1, { payload: Buffer.from([0x82]) }), frame(FRAME.ping, 0, { payload: Buffer.alloc(8) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: "another stream's fields among continuations",
    by: '6.10',
    bytes: (way) => [frame(FRAME.headers, 1, { payload: Buffer.from([0x82]) }), get(way, '/malformed', [], 3)],
    answer: CONNECTION('protocol'),
  },
];

const STATES: readonly Row[] = [
  { name: 'a body on a stream that nobody opened', by: '5.1', bytes: () => [data('x')], answer: CONNECTION('protocol') },
  {
    name: 'a reset of a stream that nobody opened',
    by: '5.1',
    bytes: () => [frame(FRAME.reset, 1, { payload: uint32(8) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a window of a stream that nobody opened',
    by: '5.1',
    bytes: () => [frame(FRAME.windowUpdate, 1, { payload: uint32(8) })],
    answer: CONNECTION('protocol'),
  },
  {
    name: 'a body after the end of the request',
    by: '5.1',
    bytes: (way) => [get(way, '/hang'), data('x')],
    answer: STREAM('streamClosed'),
  },
  {
    name: 'fields after the end of the request',
    by: '5.1',
    bytes: (way) => [get(way, '/hang'), get(way, '/malformed')],
    answer: STREAM('streamClosed'),
  },
  {
    name: 'a body after the reset of the request',
    by: '5.1',
    bytes: (way) => [post(way, '/x'), frame(FRAME.reset, 1, { payload: uint32(8) }), data('x'), get(way, '/x', [], 3)],
    answer: [...STREAM('streamClosed'), ...ANSWERED],
    stream: 3,
  },
  {
    name: 'a stream of an even number',
    by: '5.1.1',
    bytes: (way) => [get(way, '/malformed', [], 2)],
    answer: CONNECTION('protocol'),
    stream: 2,
  },
  {
    name: 'a stream with a lower number than the last, which it may take for one that is over',
    by: '5.1.1',
    bytes: (way) => [get(way, '/hang', [], 5), get(way, '/malformed', [], 3), get(way, '/x', [], 7)],
    answer: [...CONNECTION('protocol'), ...ANSWERED],
    stream: 7,
  },
  {
    name: 'more streams at once than allowed',
    by: '5.1.2',
    bytes: (way) => Array.from({ length: 11 }, (_, index) => get(way, '/hang', [], 2 * index + 1)),
    // Node ends the whole connection over it, and may not get round to a GOAWAY.
    answer: [...STREAM('refused'), ...STREAM('protocol'), 'closed'],
    stream: 21,
  },
];

const without = (way: Way, name: string, more: Fields = []): Fields =>
  fieldsFor(way, '/malformed', more).filter(([field]) => field !== name);

const PSEUDO: readonly Row[] = [
  ...[':method', ':scheme', ':path'].map((name): Row => ({
    name: `a request without ${name}`,
    by: '8.3.1',
    bytes: (way) => [headersOf(without(way, name))],
    answer: MALFORMED,
  })),
  ...[':method', ':scheme', ':path', ':authority'].map((name): Row => ({
    name: `a request with two ${name}`,
    by: '8.3.1',
    bytes: (way) => {
      const [field] = fieldsFor(way, '/malformed').filter(([one]) => one === name);
      return [headersOf([field!, ...fieldsFor(way, '/malformed')])];
    },
    answer: MALFORMED,
  })),
  {
    name: 'an empty :path',
    by: '8.3.1',
    bytes: (way) => [headersOf([...without(way, ':path'), [':path', '']])],
    answer: MALFORMED,
  },
  {
    name: 'a :path without its slash',
    by: '8.3.1',
    bytes: (way) => [headersOf([...without(way, ':path'), [':path', 'malformed']])],
    answer: MALFORMED,
  },
  {
    name: 'a pseudo-header field that nobody knows',
    by: '8.3',
    bytes: (way) => [headersOf([[':unknown', '1'], ...fieldsFor(way, '/malformed')])],
    answer: MALFORMED,
  },
  {
    name: "an answer's pseudo-header field",
    by: '8.3',
    bytes: (way) => [headersOf([[':status', '200'], ...fieldsFor(way, '/malformed')])],
    answer: MALFORMED,
  },
  {
    name: 'a pseudo-header field after another field',
    by: '8.3',
    bytes: (way) => [headersOf([...without(way, ':path', [['x-early', '1']]), [':path', '/malformed']])],
    answer: MALFORMED,
  },
  {
    name: 'a pseudo-header field in the trailers',
    by: '8.1',
    bytes: (way) => [post(way, '/malformed'), headersOf([[':method', 'POST']])],
    answer: MALFORMED,
  },
  {
    name: 'trailers that are not the end',
    by: '8.1',
    bytes: (way) => [
      post(way, '/malformed'),
      frame(FRAME.headers, 1, { flags: FLAG.endHeaders, payload: section([['x-trail', '1']]) }),
    ],
    answer: MALFORMED,
  },
  {
    name: 'a :protocol without CONNECT',
    by: 'RFC 8441 section 4',
    bytes: (way) => [headersOf([[':protocol', 'websocket'], ...fieldsFor(way, '/malformed')])],
    answer: MALFORMED,
  },
  {
    name: 'a :scheme of its own',
    by: '8.3.1',
    bytes: (way) => [headersOf([...without(way, ':scheme'), [':scheme', 'ftp']])],
    answer: MALFORMED,
  },
  {
    name: 'an :authority with a user',
    by: '8.3.1',
    bytes: (way) => [headersOf([...without(way, ':authority'), [':authority', `mallory@${way.authority()}`]])],
    answer: MALFORMED,
  },
  {
    name: 'a Host that says something else',
    by: '8.3.1',
    bytes: (way) => [get(way, '/malformed', [['host', 'other.test']])],
    answer: [...MALFORMED, 'HEADERS 421'],
  },
];

const FIELDS: readonly Row[] = [
  ...[
    ['connection', 'close'],
    ['keep-alive', 'timeout=5'],
    ['proxy-connection', 'keep-alive'],
    ['transfer-encoding', 'chunked'],
    ['upgrade', 'websocket'],
    ['te', 'gzip'],
    ['te', 'trailers, deflate'],
    ['X-Upper', '1'],
    ['Host', 'api.test'],
  ].map(([name, value]): Row => ({
    name: `the field ${name!}: ${value!}`,
    by: name!.startsWith('t') || /^[a-z]/.test(name!) ? '8.2.2' : '8.2.1',
    bytes: (way) => [get(way, '/malformed', [[name!, value!]])],
    answer: MALFORMED,
  })),
  {
    name: 'a Content-Length over what came',
    by: '8.1.1',
    bytes: (way) => [post(way, '/malformed', [['content-length', '5']]), data('abc', { flags: FLAG.endStream })],
    answer: MALFORMED,
  },
  {
    name: 'a Content-Length below what came',
    by: '8.1.1',
    bytes: (way) => [post(way, '/malformed', [['content-length', '2']]), data('a'), data('bc', { flags: FLAG.endStream })],
    answer: MALFORMED,
  },
  {
    name: 'a Content-Length without a body',
    by: '8.1.1',
    bytes: (way) => [get(way, '/malformed', [['content-length', '5']])],
    answer: MALFORMED,
  },
  {
    name: 'two of Content-Length',
    by: '8.1.1',
    bytes: (way) => [
      post(way, '/malformed', [
        ['content-length', '1'],
        ['content-length', '1'],
      ]),
      data('a', { flags: FLAG.endStream }),
    ],
    answer: MALFORMED,
  },
  {
    name: 'a Content-Length that is no number',
    by: '8.1.1',
    bytes: (way) => [post(way, '/malformed', [['content-length', '+1']]), data('a', { flags: FLAG.endStream })],
    answer: MALFORMED,
  },
];

/** All of them */
export const TABLES = [
  { title: 'takes no notice of', rows: IGNORED },
  { title: 'is not taken in by', rows: FRAMING },
  { title: 'minds the state of a stream:', rows: STATES },
  { title: 'refuses', rows: PSEUDO },
  { title: 'refuses', rows: FIELDS },
];
