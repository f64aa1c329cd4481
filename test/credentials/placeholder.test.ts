// Placeholders in every place where one can stand, in every spelling it can have there, and bodies cut anywhere.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  canBePlaceholder,
  createBodyReplacer,
  findPlaceholders,
  locatePlaceholders,
  MOST_HELD,
  placeholderFor,
  replaceInHeader,
  replaceInQuery,
} from '../../src/credentials/placeholder.ts';
import type { LookUpValue } from '../../src/credentials/placeholder.ts';

const VALUES: Readonly<Record<string, string>> = {
  slack: 'xoxb-1/2+3=',
  'my-key_2': 'a "b"\\ü',
  split: 'line\r\nX-Evil: 1',
};
const lookUp: LookUpValue = (id) => VALUES[id];
const P = placeholderFor('slack');
const everyByte = (text: string): string => Buffer.from(text).toString('hex').replace(/../g, '%$&');
const base64 = (text: string): string => Buffer.from(text).toString('base64');

describe('a placeholder', () => {
  it('is spelled as the dialect has it', () => {
    expect(placeholderFor('slack')).toBe('__GEMINI_CRED_slack__');
  });

  it.each<[text: string, ids: string[]]>([
    ['__GEMINI_CRED_slack__', ['slack']],
    ['x__GEMINI_CRED_slack__y', ['slack']],
    ['__GEMINI_CRED_my-key_2__', ['my-key_2']],
    ['__GEMINI_CRED_a____GEMINI_CRED_b__ __GEMINI_CRED_a__', ['a', 'b']],
    ['___GEMINI_CRED_a___', ['a']],
    ['__GEMINI_CRED___GEMINI_CRED_a__', ['a']],
    [`__GEMINI_CRED_${'a'.repeat(63)}__`, ['a'.repeat(63)]],
    ['%5F%5fGEMINI%5FCRED%5Fslack%5F_', ['slack']],
    [everyByte('__GEMINI_CRED_my-key_2__'), ['my-key_2']],
    [everyByte('__GEMINI_CRED_my-key_2__').toUpperCase(), ['my-key_2']],
    ['__GEMINI_CRED___', []],
    ['__GEMINI_CRED_a_', []],
    ['_GEMINI_CRED_a__', []],
    ['__gemini_cred_a__', []],
    ['__GEMINI_CRED_-a__', []],
    ['__GEMINI_CRED_%2da__', []],
    ['__GEMINI_CRED_a b__', []],
    ['__GEMINI_CRED_%20__', []],
    ['__GEMINI_CRED_%4__', []],
    [`__GEMINI_CRED_${'a'.repeat(64)}__`, []],
    ['the prefix __GEMINI_CRED_ alone', []],
  ])('is found in %j: %j', (text, ids) => {
    expect(findPlaceholders(text)).toEqual(ids);
  });

  it.each([
    ['slack', true],
    ['a', true],
    ['A-b_c-1', true],
    ['a-', true],
    ['a'.repeat(63), true],
    ['a'.repeat(64), false],
    ['a__b', false],
    ['a_', false],
    ['_a', false],
    ['-a', false],
    ['', false],
    ['a b', false],
  ])('can stand for the id %j: %s', (id, can) => {
    expect(canBePlaceholder(id)).toBe(can);
    expect(findPlaceholders(placeholderFor(id)).includes(id)).toBe(can);
  });

  it('is located wherever it stands in a head', () => {
    const fields = [
      'Host',
      'h',
      'X-Key',
      placeholderFor('b'),
      'Authorization',
      `Basic ${base64(`u:${placeholderFor('c')}`)}`,
      'Cookie',
      everyByte(P),
    ];
    expect(locatePlaceholders({ path: `/${everyByte(placeholderFor('p'))}/x`, query: `?${P}=1`, fields })).toEqual([
      { id: 'p', place: 'path', header: undefined },
      { id: 'slack', place: 'query', header: undefined },
      { id: 'b', place: 'header', header: 'x-key' },
      { id: 'c', place: 'header', header: 'authorization' },
      { id: 'slack', place: 'header', header: 'cookie' },
    ]);
    expect(locatePlaceholders({ path: '/a_b', query: '?c=%5F', fields: ['Host', 'h'] })).toEqual([]);
  });
});

describe('a field value', () => {
  it.each([
    { name: 'whole', value: P, text: 'xoxb-1/2+3=' },
    { name: 'behind a scheme', value: `Bearer ${P}`, text: 'Bearer xoxb-1/2+3=' },
    { name: 'as it stands behind Basic', value: `Basic ${P}`, text: 'Basic xoxb-1/2+3=' },
    { name: 'inside Basic', value: `Basic ${base64(`user:${P}`)}`, text: `Basic ${base64('user:xoxb-1/2+3=')}` },
    {
      name: 'inside basic, unpadded',
      value: `basic  ${base64(`:${P}ab`).replace(/=+$/, '')}`,
      text: `basic  ${base64(':xoxb-1/2+3=ab')}`,
    },
    {
      name: 'inside base64url',
      value: `Basic ${Buffer.from(`ÿ>?:${P}`).toString('base64url')}`,
      text: `Basic ${base64('ÿ>?:xoxb-1/2+3=')}`,
    },
    {
      name: 'inside Basic, with a value beyond ASCII',
      value: `Basic ${base64(placeholderFor('my-key_2'))}`,
      text: `Basic ${base64('a "b"\\ü')}`,
      id: 'my-key_2',
    },
    { name: 'percent-encoded', value: `https://h/?k=${everyByte(P)}`, text: 'https://h/?k=xoxb-1%2F2%2B3%3D' },
    { name: 'twice', value: `${P},${P}`, text: 'xoxb-1/2+3=,xoxb-1/2+3=' },
  ])('has its placeholder swapped: $name', ({ value, text, id }) => {
    expect(replaceInHeader(value, lookUp)).toEqual({ text, found: [id ?? 'slack'], missing: [] });
  });

  it.each([
    { name: 'without one', value: 'Bearer abc_def', found: [] },
    { name: 'whose base64 holds none', value: `Basic ${base64('user:password_')}`, found: [] },
    { name: 'that only looks like base64', value: 'Basic a', found: [] },
    { name: 'whose id is unknown', value: `Bearer ${placeholderFor('nobody')}`, found: ['nobody'] },
    {
      name: 'whose id is unknown inside Basic',
      value: `Basic ${base64(`us:${placeholderFor('nobody')}`).replace('==', '')}`,
      found: ['nobody'],
    },
    { name: 'whose value would be a second field', value: `Bearer ${placeholderFor('split')}`, found: ['split'] },
  ])('stays to the byte: $name', ({ value, found }) => {
    expect(replaceInHeader(value, lookUp)).toEqual({ text: value, found, missing: found });
  });
});

describe('a query', () => {
  it.each([
    { query: `?token=${P}&a=1`, text: '?token=xoxb-1%2F2%2B3%3D&a=1', id: 'slack' },
    { query: `?a=%7e&token=x${everyByte(P)}y&b=+`, text: '?a=%7e&token=xxoxb-1%2F2%2B3%3Dy&b=+', id: 'slack' },
    { query: `?${P}`, text: '?xoxb-1%2F2%2B3%3D', id: 'slack' },
    { query: `?q=${placeholderFor('my-key_2')}`, text: '?q=a%20%22b%22%5C%C3%BC', id: 'my-key_2' },
    { query: `?q=${placeholderFor('split')}`, text: '?q=line%0D%0AX-Evil%3A%201', id: 'split' },
  ])('$query becomes $text', ({ query, text, id }) => {
    expect(replaceInQuery(query, lookUp)).toEqual({ text, found: [id], missing: [] });
  });

  it('stays to the byte where the id is unknown', () => {
    const query = `?a=${placeholderFor('nobody')}&b=%5f%5F`;
    expect(replaceInQuery(query, lookUp)).toEqual({ text: query, found: ['nobody'], missing: ['nobody'] });
  });
});

interface Outcome {
  readonly text: string;
  readonly found: string[];
  readonly missing: string[];
}

function replaceBody(type: string | undefined, chunks: readonly Buffer[]): Outcome {
  const replacer = createBodyReplacer(lookUp, type);
  const out = chunks.map((chunk) => replacer.push(chunk));
  const text = Buffer.concat([...out, replacer.end()]).toString();
  return { text, found: [...replacer.found], missing: [...replacer.missing] };
}

const singly = (body: Buffer): Buffer[] => Array.from(body, (_, i) => body.subarray(i, i + 1));

describe('a body', () => {
  const two = `${P}|${placeholderFor('my-key_2')}|${placeholderFor('nobody')}|__GEMINI_CRED_`;
  const rest = `|${placeholderFor('nobody')}|__GEMINI_CRED_`;
  it.each([
    { type: 'application/json; charset=utf-8', text: `xoxb-1/2+3=|a \\"b\\"\\\\ü${rest}` },
    { type: 'Application/Vnd.Api+JSON', text: `xoxb-1/2+3=|a \\"b\\"\\\\ü${rest}` },
    { type: 'application/x-www-form-urlencoded', text: `xoxb-1%2F2%2B3%3D|a%20%22b%22%5C%C3%BC${rest}` },
    { type: 'text/plain', text: `xoxb-1/2+3=|a "b"\\ü${rest}` },
    { type: undefined, text: `xoxb-1/2+3=|a "b"\\ü${rest}` },
  ])('has its placeholders swapped as $type, however it is cut', ({ type, text }) => {
    const body = Buffer.from(two);
    const expected = { text, found: ['slack', 'my-key_2', 'nobody'], missing: ['nobody'] };
    expect(replaceBody(type, [body])).toEqual(expected);
    expect(replaceBody(type, singly(body))).toEqual(expected);
    for (let cut = 0; cut <= body.length; cut += 1)
      expect(replaceBody(type, [body.subarray(0, cut), body.subarray(cut)])).toEqual(expected);
  });

  it('knows percent escapes in a form alone', () => {
    const body = Buffer.from(`a=${everyByte(P)}&b=%5f`);
    const form = { text: 'a=xoxb-1%2F2%2B3%3D&b=%5f', found: ['slack'], missing: [] };
    expect(replaceBody('application/x-www-form-urlencoded', [body])).toEqual(form);
    expect(replaceBody('application/x-www-form-urlencoded', singly(body))).toEqual(form);
    expect(replaceBody('text/plain', [body])).toEqual({ text: body.toString(), found: [], missing: [] });
  });

  it.each([
    { name: 'the prefix alone', text: 'says __GEMINI_CRED_ twice: __GEMINI_CRED_!', fault: 'E07' },
    { name: 'one that never ends', text: `__GEMINI_CRED_${'a'.repeat(300)}` },
    { name: 'no text', text: '\0\xff_\x80__' },
  ])('passes to the byte what is $name', ({ text }) => {
    const body = Buffer.from(text, 'latin1');
    for (const type of ['application/json', 'application/x-www-form-urlencoded']) {
      for (const chunks of [[body], singly(body)]) {
        const replacer = createBodyReplacer(lookUp, type);
        const out = chunks.map((chunk) => replacer.push(chunk));
        expect(Buffer.concat([...out, replacer.end()]).equals(body)).toBe(true);
      }
    }
  });

  it('holds nothing but what may begin a placeholder', () => {
    const push = (text: string, type = 'text/plain'): string =>
      createBodyReplacer(lookUp, type).push(Buffer.from(text)).toString();
    for (let length = 1; length < P.length; length += 1) expect(push(`data ${P.slice(0, length)}`)).toBe('data ');
    for (const text of ['data: x\n\n', 'data _GEMINI', '__GEMINI_CRED_a b', 'data %', '__GEMINI_CRED_-', 'a__b'])
      expect(push(text)).toBe(text);
    const form = 'application/x-www-form-urlencoded';
    const encoded = everyByte(P);
    for (let length = 1; length < encoded.length; length += 1) expect(push(`a=${encoded.slice(0, length)}`, form)).toBe('a=');
    expect(push('a=%2', form)).toBe('a=%2');
    const longest = everyByte(placeholderFor('a'.repeat(63)));
    expect(push(longest.slice(0, -1), form)).toBe('');
    expect(MOST_HELD).toBe(longest.length - 1);
  });

  it('lets a placeholder leave as soon as it is whole', () => {
    const replacer = createBodyReplacer(lookUp, undefined);
    expect(replacer.push(Buffer.from(P.slice(0, 9))).toString()).toBe('');
    expect(replacer.push(Buffer.from(P.slice(9))).toString()).toBe('xoxb-1/2+3=');
  });

  it('is the same, however it is cut', () => {
    const piece = fc.constantFrom(
      P,
      everyByte(P),
      '_',
      '__',
      '%5f',
      '%',
      '5',
      'GEMINI_CRED_',
      '__GEMINI_CRED_',
      'a',
      '-',
      '__GEMINI_CRED_split__',
      ' ',
    );
    const type = fc.constantFrom('application/json', 'application/x-www-form-urlencoded', 'text/plain');
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 12 }),
        type,
        fc.array(fc.nat(), { maxLength: 12 }),
        (pieces, contentType, cuts) => {
          const body = Buffer.from(pieces.join(''));
          const places = [0, ...cuts.map((cut) => cut % (body.length + 1))].sort((a, b) => a - b);
          const chunks = places.map((place, i) => body.subarray(place, places[i + 1] ?? body.length));
          const expected = replaceBody(contentType, [body]);
          expect(replaceBody(contentType, chunks)).toEqual(expected);
          expect(replaceBody(contentType, singly(body))).toEqual(expected);
          if (contentType === 'application/x-www-form-urlencoded')
            expect(findPlaceholders(expected.text)).toEqual(expected.missing);
        },
      ),
      { numRuns: 500 },
    );
  });
});
