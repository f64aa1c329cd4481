// Reflected secrets, spelled by encoders of the platform and by a capricious one that spells each letter its own way.
// Chunks are cut at random places and at every place; what comes out must not depend on it.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createRedactor, REDACTED, SHORTEST_SECRET } from '../../src/reply/redact.ts';
import type { Redactor } from '../../src/reply/redact.ts';

const SECRET = 'sk-Zq/7+x "Y"&é=k9';
const PLAIN = 'ghp_0123456789abcdefABCDEF';

function redact(redactor: Redactor, chunks: readonly (string | Buffer)[]): string {
  const stream = redactor.stream();
  const out = chunks.map((chunk) => stream.push(typeof chunk === 'string' ? Buffer.from(chunk) : chunk));
  return Buffer.concat([...out, stream.end()]).toString();
}

function cutAt(text: Buffer, cuts: readonly number[]): Buffer[] {
  const places = [0, ...new Set(cuts.map((cut) => cut % (text.length + 1)))].sort((a, b) => a - b);
  return places.map((place, i) => text.subarray(place, places[i + 1] ?? text.length));
}

const base64 = (text: string): string => Buffer.from(text).toString('base64');
const base64url = (text: string): string => Buffer.from(text).toString('base64url');
const everyByte = (text: string): string => Buffer.from(text).toString('hex').replace(/../g, '%$&');
const everyUnit = (text: string): string =>
  text
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');

const FORMS: readonly [name: string, spell: (secret: string) => string][] = [
  ['as it is', (secret) => secret],
  ['percent-encoded', (secret) => encodeURIComponent(secret)],
  ['percent-encoded in lower case', (secret) => encodeURIComponent(secret).replace(/%../g, (escape) => escape.toLowerCase())],
  ['as a form field', (secret) => new URLSearchParams({ s: secret }).toString().slice(2)],
  ['percent-encoded to the last letter', everyByte],
  ['percent-encoded where it need not be', (secret) => secret.replace('k', '%6B')],
  ['as JSON', (secret) => JSON.stringify(secret).slice(1, -1)],
  ['as JSON with slashes escaped', (secret) => JSON.stringify(secret).slice(1, -1).replaceAll('/', '\\/')],
  ['as JSON in ASCII', (secret) => JSON.stringify(secret).slice(1, -1).replaceAll('é', '\\u00E9').replaceAll('&', '\\u0026')],
  ['in units', everyUnit],
  ['in units, upper case', (secret) => everyUnit(secret).toUpperCase().replaceAll('\\U', '\\u')],
  ['in base64', base64],
  ['in base64url', base64url],
  ['in unpadded base64', (secret) => base64(secret).replace(/=+$/, '')],
  ['in base64 with slashes escaped for JSON', (secret) => base64(secret).replaceAll('/', '\\/')],
  ['in base64, percent-encoded', (secret) => encodeURIComponent(base64(secret))],
];

describe('a reflected secret', () => {
  const secrets = [
    SECRET,
    PLAIN,
    'a%2Fb\\u0041%%\\\\c',
    'tab\there\nand\r\b\fthere',
    '☃ snowman 😀 secret',
    'ÀÃÂ-only-latin1',
    'pass word+plus',
  ];
  const redactor = createRedactor(secrets);

  describe.each(FORMS)('%s', (_, spell) => {
    it.each(secrets)('is replaced: %j', (secret) => {
      const spelled = Buffer.from(`{"before":"${spell(secret)}","after":1}`);
      const expected = /^\{"before":"\[redacted\]={0,2}(?:%3D){0,2}","after":1\}$/i;
      expect(redact(redactor, [spelled])).toMatch(expected);
      for (let cut = 0; cut <= spelled.length; cut += 1) {
        expect(redact(redactor, [spelled.subarray(0, cut), spelled.subarray(cut)])).toMatch(expected);
      }
      expect(redact(redactor, cutAt(spelled, [...spelled.keys()]))).toMatch(expected);
    });
  });

  it.each([0, 1, 2, 3, 4, 5])('is replaced inside base64 that begins %i bytes before it and goes on after it', (length) => {
    for (const after of ['', 'x', 'xy', 'xyz']) {
      for (const encode of [base64, base64url]) {
        const out = redact(redactor, [`Basic ${encode('user:'.slice(0, length) + PLAIN + after)}.`]);
        expect(out).toContain(REDACTED);
        // What is left stands for no more than the foreign letters and a few bits of the first one.
        expect(out.replace(REDACTED, '').length).toBeLessThanOrEqual('Basic .'.length + 8 + 6);
        expect(Buffer.from(out.replace('Basic ', ''), 'base64').includes(PLAIN.slice(0, 3))).toBe(false);
      }
    }
  });

  it('is replaced in latin1', () => {
    const latin1 = Buffer.from('ÀÃÂ-only-latin1', 'latin1');
    expect(redact(redactor, [latin1])).toBe(REDACTED);
    expect(redact(redactor, [latin1.toString('base64')])).toMatch(/^\[redacted\]=*$/);
  });

  it('is replaced as often as it stands there', () => {
    expect(redact(redactor, [`${PLAIN}${PLAIN} ${PLAIN}`])).toBe(`${REDACTED}${REDACTED} ${REDACTED}`);
  });

  it('leaves no tail of a longer one that begins the same, or that begins inside it', () => {
    const longer = createRedactor(['abcdefgh', 'abcdefghij', 'ghijklmnop']);
    for (const [text, expected] of [
      ['<abcdefghij>', '<[redacted]>'],
      ['<abcdefghi>', '<[redacted]i>'],
      ['<abcdefghijklmnop>', '<[redacted]>'],
      ['<abcdefghijklmno>', '<[redacted]klmno>'],
      ['<abcdefghabcdefgh>', '<[redacted][redacted]>'],
    ] as const) {
      expect(redact(longer, [text])).toBe(expected);
      expect(redact(longer, text.split(''))).toBe(expected);
    }
  });

  it('is replaced whole where it overlaps itself', () => {
    const periodic = createRedactor(['abababab']);
    expect(redact(periodic, ['<ababababababa>'])).toBe('<[redacted]a>');
    expect(redact(periodic, '<ababababababa>'.split(''))).toBe('<[redacted]a>');
    expect(redact(periodic, ['<aabababab'])).toBe('<a[redacted]');
  });

  it.each([
    { name: 'shorter than the shortest', secret: 'x'.repeat(SHORTEST_SECRET - 1), text: `<${'x'.repeat(SHORTEST_SECRET - 1)}>` },
    { name: 'with its last letter missing', secret: PLAIN, text: `<${PLAIN.slice(0, -1)}>` },
    { name: 'with its first letter missing', secret: PLAIN, text: `<${PLAIN.slice(1)}>` },
    { name: 'in another case', secret: PLAIN, text: `<${PLAIN.toUpperCase()}>` },
    { name: 'with a plus for what is no blank', secret: 'pass-word-plus', text: 'pass+word+plus' },
    { name: 'with a blank for a plus', secret: 'pass+word+plus', text: 'pass word plus' },
    { name: 'with a broken escape', secret: PLAIN, text: `%6${PLAIN}`.replace('ghp', 'g%6hp') },
    { name: 'of which nothing is known', secret: '', text: PLAIN },
  ])('is left alone: $name', ({ secret, text }) => {
    expect(redact(createRedactor([secret]), [text])).toBe(text);
  });

  it('is found among hundreds', () => {
    const many = Array.from({ length: 120 }, (_, i) => `${(i * 7919).toString(36).padStart(4, 'q')}-secret-${i}`);
    const redactor = createRedactor(many);
    expect(redact(redactor, [many.map((secret) => `<${secret}>`).join('')])).toBe('<[redacted]>'.repeat(120));
    expect(redact(redactor, [many.map((secret) => `<${base64(secret)}>`).join('')])).toMatch(/^(?:<\[redacted\]=*>){120}$/);
    expect(redact(redactor, [many.map((secret) => `<${everyUnit(secret)}>`).join('')])).toBe('<[redacted]>'.repeat(120));
  });

  it('is found at the shortest length', () => {
    expect(redact(createRedactor(['x'.repeat(SHORTEST_SECRET)]), ['<xxxxxxxx>'])).toBe('<[redacted]>');
  });

  it('leaves bytes that are no text as they are', () => {
    const bytes = Buffer.from(Array.from({ length: 512 }, (_, i) => i & 255));
    const stream = redactor.stream();
    expect(Buffer.concat([stream.push(bytes), stream.end()]).equals(bytes)).toBe(true);
  });
});

describe('a field', () => {
  const redactor = createRedactor([PLAIN, 'geheim-é-geheim']);
  it('is the same string where it holds no secret', () => {
    expect(redactor.text('ghp_ is how they begin')).toBe('ghp_ is how they begin');
  });
  it.each([
    [`Bearer ${PLAIN}`, 'Bearer [redacted]'],
    [`https://host/?token=${PLAIN}&a=b`, 'https://host/?token=[redacted]&a=b'],
    ['x geheim-é-geheim y', 'x [redacted] y'],
    [Buffer.from('geheim-é-geheim').toString('latin1'), '[redacted]'],
    ['ÿ: ghp_0123456789abcdefABCDEF', 'ÿ: [redacted]'],
    ['☃ ghp_0123456789abcdefABCDEF', '☃ [redacted]'],
  ])('%j becomes %j', (value, expected) => {
    expect(redactor.text(value)).toBe(expected);
  });
});

describe('a stream', () => {
  const redactor = createRedactor([PLAIN]);
  const spelled = FORMS.map(([name, spell]) => [name, spell(PLAIN)] as const);

  it('lets an event leave at once', () => {
    const stream = redactor.stream();
    for (const event of [`data: ${PLAIN}\n\n`, 'data: ghp_\n\n', `data: ${PLAIN.slice(0, -1)}\n\n`, ': %\n\n', 'data: \\\n\n']) {
      expect(stream.push(Buffer.from(event)).toString()).toBe(event.replace(PLAIN, REDACTED));
    }
    expect(stream.end()).toHaveLength(0);
  });

  it.each(spelled)('holds exactly what may begin a secret %s, and lets it go when it does not', (_, text) => {
    const core = text.replace(/(?:=|%3D)+$/, '');
    for (let length = 1; length < core.length; length += 1) {
      const stream = redactor.stream();
      expect(stream.push(Buffer.from(`before ${core.slice(0, length)}`)).toString()).toBe('before ');
      expect(stream.push(Buffer.from('~')).toString()).toBe(`${core.slice(0, length)}~`);
      const cut = redactor.stream();
      cut.push(Buffer.from(core.slice(0, length)));
      expect(cut.end().toString()).toBe(core.slice(0, length));
    }
  });

  it('holds half an escape only where its other half could fit', () => {
    expect(redactor.stream().push(Buffer.from('a%6')).toString()).toBe('a');
    expect(redactor.stream().push(Buffer.from('a%2')).toString()).toBe('a%2');
    expect(redactor.stream().push(Buffer.from('a\\u006')).toString()).toBe('a');
    expect(redactor.stream().push(Buffer.from('a\\u1')).toString()).toBe('a\\u1');
    // No escape can begin inside a letter of two bytes.
    const umlaut = createRedactor(['é-geheim-geheim']).stream();
    expect([...umlaut.push(Buffer.from([0xc3, 0x5c]))]).toEqual([0xc3]);
  });

  it('passes a chunk without a secret on as it is, uncopied', () => {
    const chunk = Buffer.from('nothing to see here.');
    const out = redactor.stream().push(chunk);
    expect([out.buffer, out.byteOffset, out.length]).toEqual([chunk.buffer, chunk.byteOffset, chunk.length]);
  });

  it('holds no more than it says', () => {
    const worst = everyUnit(PLAIN).slice(0, -1);
    expect(redactor.stream().push(Buffer.from(worst))).toHaveLength(0);
    expect(worst.length).toBeLessThanOrEqual(redactor.maxHeld);
  });

  it('holds nothing where there is nothing to find', () => {
    expect(createRedactor(['short']).maxHeld).toBe(0);
    expect(createRedactor([]).stream().push(Buffer.from('s')).toString()).toBe('s');
  });
});

/** Spells each letter by its own number: as it is, percent-encoded, in short or in units. */
function capricious(secret: string, moods: readonly number[]): string {
  return Array.from(secret, (letter, i) => {
    const mood = (moods[i % moods.length] ?? 0) & 7;
    if (mood === 1 || letter === '%') return everyByte(letter);
    if (mood === 2) return everyByte(letter).toUpperCase();
    if (mood === 3 || letter === '\\') return everyUnit(letter);
    if (mood === 4) return JSON.stringify(letter).slice(1, -1);
    return mood === 5 && letter === ' ' ? '+' : letter;
  }).join('');
}

describe('for any secrets, texts and chunks', () => {
  // Marks of our own inside a secret would let it be put together from what was put in its place.
  const secret = fc.oneof(
    fc
      .string({ minLength: 8, maxLength: 24, unit: 'grapheme' })
      .filter((text) => !/[[\]]|redacted/.test(text) && text.length >= 8),
    fc.string({ minLength: 8, maxLength: 12, unit: fc.constantFrom('a', 'b', '%', '\\', '6', '1', 'u', '0') }),
    fc.base64String({ minLength: 12, maxLength: 40 }),
  );
  const moods = fc.array(fc.nat(7), { minLength: 1, maxLength: 12 });
  const cuts = fc.array(fc.nat(), { maxLength: 24 });

  it('gives the same, however the text is cut', () => {
    const text = fc.array(fc.oneof(fc.tuple(fc.nat(), moods), fc.string({ maxLength: 12 })), { maxLength: 8 });
    fc.assert(
      fc.property(fc.array(secret, { minLength: 1, maxLength: 3 }), text, cuts, (secrets, parts, places) => {
        const redactor = createRedactor(secrets);
        const whole = Buffer.from(
          parts
            .map((part) => (typeof part === 'string' ? part : capricious(secrets[part[0] % secrets.length] as string, part[1])))
            .join(''),
        );
        const expected = redact(redactor, [whole]);
        expect(redact(redactor, cutAt(whole, places))).toBe(expected);
        expect(redact(redactor, cutAt(whole, [...whole.keys()]))).toBe(expected);
      }),
      { numRuns: 200 },
    );
  });

  it('lets no form through', () => {
    const around = fc.tuple(fc.string({ maxLength: 12 }), fc.string({ maxLength: 12 }));
    const spelling = fc.tuple(fc.nat(FORMS.length), moods);
    fc.assert(
      fc.property(secret, around, spelling, cuts, (text, [before, after], [form, mood], places) => {
        const spell = FORMS[form]?.[1] ?? ((plain: string) => capricious(plain, mood));
        const spelled = spell(text);
        // No secret holds a line break, so nothing outside the lines can belong to it; the padding of base64 tells nothing.
        const out = redact(createRedactor([text]), cutAt(Buffer.from(`${before}\n${spelled}\n${after}`), places));
        const padding = /(?:=|%3D)*$/.exec(spelled)?.[0] ?? '';
        const line = out.slice(before.length + 1, out.length - after.length - 1);
        expect([REDACTED, `${REDACTED}${padding}`]).toContain(line);
        expect(out).toBe(`${before}\n${line}\n${after}`);
      }),
      { numRuns: 300 },
    );
  });

  it('lets no secret through in larger base64', () => {
    fc.assert(
      fc.property(secret, fc.string({ maxLength: 9 }), fc.string({ maxLength: 9 }), cuts, (text, before, after, places) => {
        for (const encoding of ['base64', 'base64url'] as const) {
          const whole = Buffer.from(Buffer.from(before + text + after).toString(encoding));
          const out = redact(createRedactor([text]), cutAt(whole, places));
          expect(out).toContain(REDACTED);
        }
      }),
      { numRuns: 200 },
    );
  });

  it('touches nothing else', () => {
    fc.assert(
      fc.property(
        fc.array(secret, { minLength: 1, maxLength: 3 }),
        fc.uint8Array({ maxLength: 200 }),
        cuts,
        (secrets, bytes, places) => {
          // Without the letters of the secrets, of hex and of escapes there is nothing to find.
          const letters = new Set(Buffer.from(secrets.join('')));
          const foreign = Buffer.from(bytes.filter((byte) => !letters.has(byte) && byte > 127));
          const stream = createRedactor(secrets).stream();
          const out = cutAt(foreign, places).map((chunk) => stream.push(chunk));
          expect(Buffer.concat([...out, stream.end()]).equals(foreign)).toBe(true);
        },
      ),
    );
  });
});
