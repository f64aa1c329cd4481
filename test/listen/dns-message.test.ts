import { decode } from 'dns-packet';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { longestByUdp, RCODE, readQuery, writeReply } from '../../src/listen/dns-message.ts';
import type { Asked, Reply } from '../../src/listen/dns-message.ts';
import { answered, extendedErrors, query } from '../support/dns-client.ts';

/** A message with other bytes at a place. */
function patched(message: Buffer, at: number, ...bytes: readonly number[]): Buffer {
  const copy = Buffer.from(message);
  copy.set(bytes, at);
  return copy;
}

/** A query for labels of any bytes. */
function raw(labels: readonly (string | Buffer)[], more: readonly number[] = [0, 1, 0, 1]): Buffer {
  const name = labels.flatMap((label) => [Buffer.from([label.length]), Buffer.from(label as string, 'latin1')]);
  return Buffer.concat([query('.').subarray(0, 12), ...name, Buffer.from([0, ...more])]);
}

const plain = query('example.com');
const withEdns = query('example.com', { edns: 1232 });
const END = plain.length;
const OPT = withEdns.subarray(END);
const LONGEST = [`${'a'.repeat(63)}.`, `${'b'.repeat(63)}.`, `${'c'.repeat(63)}.`, 'd'.repeat(61)].join('');

describe('a query', () => {
  it.each([
    { name: 'a name', message: plain, asked: 'example.com' },
    { name: 'a name in mixed case, as it is', message: query('eXamPLe.CoM'), asked: 'eXamPLe.CoM' },
    { name: 'the longest name', message: query(LONGEST), asked: LONGEST },
    { name: 'the root', message: query('.'), asked: '.' },
    { name: 'a name with EDNS', message: withEdns, asked: 'example.com' },
    { name: 'a name with an unknown option of EDNS', message: edns([0, 77, 0, 2, 1, 2]), asked: 'example.com' },
    { name: 'a name with EDNS and a signature', message: signed(), asked: 'example.com' },
  ])('is read: $name', ({ message, asked }) => {
    expect(readQuery(message)).toMatchObject({ name: asked, type: 1, trouble: undefined });
  });

  it.each([
    { name: 'nothing', message: Buffer.alloc(0) },
    { name: 'less than a header', message: plain.subarray(0, 11) },
    { name: 'an answer', message: patched(plain, 2, 0x81) },
  ])('it is none: $name', ({ message }) => {
    expect(readQuery(message)).toBeUndefined();
  });

  it.each([
    { name: 'an operation other than QUERY (NOTIFY)', message: patched(plain, 2, 0x20), rcode: RCODE.notImp },
    { name: 'an operation other than QUERY (UPDATE)', message: patched(plain, 2, 0x28), rcode: RCODE.notImp },
    { name: 'no question', message: patched(plain.subarray(0, 12), 5, 0), rcode: RCODE.formErr },
    { name: 'a question that is announced and missing', message: plain.subarray(0, 12), rcode: RCODE.formErr },
    { name: 'two questions', message: patched(Buffer.concat([plain, plain.subarray(12)]), 5, 2), rcode: RCODE.formErr },
    { name: 'as many questions as a header can name', message: patched(plain, 4, 0xff, 0xff), rcode: RCODE.formErr },
    { name: 'an answer beside its question', message: patched(plain, 7, 1), rcode: RCODE.formErr },
    { name: 'an authority beside its question', message: patched(plain, 9, 1), rcode: RCODE.formErr },
    { name: 'more records than EDNS and a signature', message: patched(plain, 11, 3), rcode: RCODE.formErr },
    { name: 'a record that is announced and missing', message: patched(plain, 11, 1), rcode: RCODE.formErr },
    { name: 'bytes after its end', message: Buffer.concat([plain, Buffer.from([0])]), rcode: RCODE.formErr },
    { name: 'a type that is cut off', message: plain.subarray(0, END - 3), rcode: RCODE.formErr },
    { name: 'a label that is cut off', message: plain.subarray(0, 15), rcode: RCODE.formErr },
    { name: 'a label of 64 bytes', message: patched(plain, 12, 0x40), rcode: RCODE.formErr },
    {
      name: 'a name of 256 bytes',
      message: raw(['a'.repeat(63), 'b'.repeat(63), 'c'.repeat(63), 'd'.repeat(62)]),
      rcode: RCODE.formErr,
    },
    { name: 'a pointer to itself', message: pointing(12), rcode: RCODE.formErr },
    { name: 'a pointer into its header', message: pointing(5), rcode: RCODE.formErr },
    { name: 'a pointer forward', message: pointing(14), rcode: RCODE.formErr },
    { name: 'pointers in a circle', message: circle(), rcode: RCODE.formErr },
    { name: 'a dot inside a label', message: raw(['api.example', 'com']), rcode: RCODE.formErr },
    { name: 'a dot at the end of its last label', message: raw(['example', 'com.']), rcode: RCODE.formErr },
    { name: 'a dot before its first label', message: raw(['.example', 'com']), rcode: RCODE.formErr },
    { name: 'a label of a dot', message: raw(['.']), rcode: RCODE.formErr },
    { name: 'a line break before a dot', message: raw(['example\n', 'com']), rcode: RCODE.formErr },
    { name: 'bytes that are no text', message: raw([Buffer.from([0xff, 0xfe]), 'com']), rcode: RCODE.formErr },
    { name: 'EDNS twice', message: patched(Buffer.concat([withEdns, OPT]), 11, 2), rcode: RCODE.formErr },
    {
      name: 'EDNS with a name',
      message: patched(Buffer.concat([plain, Buffer.from([1, 97]), OPT]), 11, 1),
      rcode: RCODE.formErr,
    },
    { name: 'EDNS that is longer than its message', message: patched(withEdns, withEdns.length - 1, 9), rcode: RCODE.formErr },
    { name: 'an option of EDNS that is longer than its record', message: edns([0, 77, 0, 9, 1, 2]), rcode: RCODE.formErr },
    {
      name: 'a version of EDNS that is to come',
      message: query('example.com', { edns: 1232, ednsVersion: 1 }),
      rcode: RCODE.badVers,
    },
    { name: 'another class (CH)', message: raw(['version', 'bind'], [0, 16, 0, 3]), rcode: RCODE.refused },
    { name: 'any class', message: raw(['example', 'com'], [0, 1, 0, 255]), rcode: RCODE.refused },
    { name: 'a class that has no name', message: raw(['example', 'com'], [0, 1, 0x80, 1]), rcode: RCODE.refused },
    { name: 'a transfer of the zone (AXFR)', message: query('example.com', { type: 'AXFR' }), rcode: RCODE.refused },
    { name: 'a transfer of the zone (IXFR)', message: query('example.com', { type: 'IXFR' }), rcode: RCODE.refused },
    { name: 'the type of EDNS as a question', message: query('example.com', { type: 'OPT' }), rcode: RCODE.refused },
    { name: 'type 0', message: raw(['example', 'com'], [0, 0, 0, 1]), rcode: RCODE.refused },
  ])('is answered with an error: $name', ({ message, rcode }) => {
    const asked = readQuery(message);
    expect(asked?.trouble?.rcode).toBe(rcode);
    const reply = answered(writeReply(asked as Asked, { rcode }, 512));
    expect(reply).toMatchObject({ id: 4711, flag_qr: true, flag_aa: false, answers: [] });
    expect(reply.bytes.length).toBeLessThanOrEqual(message.length + 11);
    expect((reply.bytes[3] ?? 0) & 0xf).toBe(rcode & 0xf);
  });
});

describe('an answer', () => {
  const address: Reply = { rcode: RCODE.noError, record: { type: 'A', address: '10.0.0.2', ttl: 60 } };

  it('repeats the question, its id and the wishes of whoever asks, and says that names are resolved here', () => {
    const message = query('eXamPLe.CoM', { id: 65_535, flags: 0x0110, edns: 1232 });
    const reply = answered(writeReply(readQuery(message) as Asked, address, 512));
    expect(reply).toMatchObject({
      id: 65_535,
      flag_qr: true,
      flag_rd: true,
      flag_cd: true,
      flag_ra: true,
      flag_ad: false,
      rcode: 'NOERROR',
    });
    expect(reply.questions).toEqual([{ name: 'eXamPLe.CoM', type: 'A', class: 'IN' }]);
    expect(reply.answers).toEqual([
      expect.objectContaining({ name: 'eXamPLe.CoM', type: 'A', class: 'IN', ttl: 60, data: '10.0.0.2' }),
    ]);
  });

  it('repeats a class and a type that nobody knows', () => {
    const message = raw(['example', 'com'], [0xaa, 0xbb, 0xcc, 0xdd]);
    const reply = writeReply(readQuery(message) as Asked, { rcode: RCODE.refused }, 512);
    expect(reply.subarray(12)).toEqual(message.subarray(12));
  });

  it('has EDNS, its DNSSEC bit and an extended error only for a client that speaks it', () => {
    const refused: Reply = { rcode: RCODE.nxDomain, extended: { info: 15, text: 'not_allowlisted' } };
    const told = answered(writeReply(readQuery(withEdns) as Asked, refused, 512));
    expect(told).toMatchObject({
      rcode: 'NXDOMAIN',
      additionals: [{ type: 'OPT', udpPayloadSize: 1232, ednsVersion: 0, flag_do: false }],
    });
    expect(extendedErrors(told)).toEqual(['15 not_allowlisted']);
    const dnssec = patched(withEdns, withEdns.length - 4, 0x80);
    expect(answered(writeReply(readQuery(dnssec) as Asked, refused, 512)).additionals).toMatchObject([{ flag_do: true }]);
    expect(answered(writeReply(readQuery(plain) as Asked, refused, 512)).additionals).toEqual([]);
  });

  it('tells a version of EDNS that is to come which one is spoken here', () => {
    const asked = readQuery(query('example.com', { edns: 1232, ednsVersion: 1 })) as Asked;
    const reply = answered(writeReply(asked, { rcode: RCODE.badVers }, 512));
    expect(reply).toMatchObject({ rcode: 'NOERROR', additionals: [{ extendedRcode: 1, ednsVersion: 0 }] });
  });

  it.each([
    { name: '512 bytes without EDNS', message: plain, longest: 512 },
    { name: 'what EDNS says', message: query('example.com', { edns: 1000 }), longest: 1000 },
    { name: 'no less than 512 bytes', message: query('example.com', { edns: 511 }), longest: 512 },
    { name: 'no more than what crosses any network whole', message: query('example.com', { edns: 65_535 }), longest: 1232 },
  ])('is by UDP at most $name', ({ message, longest }) => {
    expect(longestByUdp(readQuery(message) as Asked)).toBe(longest);
  });

  it('that is longer has no record, and says that there is more', () => {
    const asked = readQuery(query(LONGEST)) as Asked;
    const whole = writeReply(asked, address, Infinity);
    expect(writeReply(asked, address, whole.length)).toEqual(whole);
    const cut = answered(writeReply(asked, address, whole.length - 1));
    expect(cut).toMatchObject({ flag_tc: true, rcode: 'NOERROR', answers: [] });
    expect(cut.questions).toEqual([{ name: LONGEST, type: 'A', class: 'IN' }]);
  });
});

describe('whatever bytes come', () => {
  const replies: readonly Reply[] = [
    { rcode: RCODE.noError },
    { rcode: RCODE.noError, record: { type: 'A', address: '10.0.0.2', ttl: 60 } },
    { rcode: RCODE.noError, record: { type: 'AAAA', address: 'fd00::2', ttl: 60 } },
    { rcode: RCODE.nxDomain, extended: { info: 15, text: 'not_allowlisted' } },
  ];

  const check = (bytes: Buffer): void => {
    const asked = readQuery(bytes);
    if (asked === undefined) return;
    for (const reply of asked.trouble === undefined ? replies : [{ rcode: asked.trouble.rcode }]) {
      const written = writeReply(asked, reply, longestByUdp(asked));
      const packet = decode(written);
      expect(packet.flag_qr).toBe(true);
      expect(decode.bytes).toBe(written.length);
      expect(written.subarray(12, asked.questionEnd)).toEqual(bytes.subarray(12, asked.questionEnd));
      expect(written.length).toBeLessThanOrEqual(longestByUdp(asked));
      // No more than twice the question, and a record.
      expect(written.length).toBeLessThanOrEqual(2 * bytes.length + 28);
    }
  };

  it('it is read without a throw, and what is answered is a message that repeats the question', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 600 }), (bytes) => check(Buffer.from(bytes))),
      { numRuns: 2000 },
    );
  });

  it('so are queries that begin well and go wrong', () => {
    const seeds = [
      plain,
      withEdns,
      query(LONGEST),
      edns([0, 8, 0, 7, 0, 1, 24, 0, 1, 2, 3]),
      edns([0, 14, 0, 4, 0, 1, 0, 2]),
      signed(),
    ];
    const mutation = fc.record({
      seed: fc.constantFrom(...seeds),
      patches: fc.array(fc.tuple(fc.nat({ max: 300 }), fc.integer({ min: 0, max: 255 })), { maxLength: 6 }),
      cut: fc.option(fc.nat({ max: 300 }), { nil: undefined }),
      more: fc.uint8Array({ maxLength: 20 }),
    });
    fc.assert(
      fc.property(mutation, ({ seed, patches, cut, more }) => {
        const bytes = Buffer.concat([seed.subarray(0, cut ?? seed.length), more]);
        for (const [at, value] of patches) if (at < bytes.length) bytes[at] = value;
        if (bytes.length > 2) bytes[2] = (bytes[2] ?? 0) & 0x07;
        check(bytes);
      }),
      { numRuns: 5000 },
    );
  });

  it('a name has one reading: it is the labels that stand there, between dots', () => {
    const label = fc.uint8Array({ minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(fc.array(label, { minLength: 1, maxLength: 5 }), (labels) => {
        const asked = readQuery(raw(labels.map((bytes) => Buffer.from(bytes))));
        if (asked === undefined || asked.trouble !== undefined) return;
        expect(asked.name.split('.')).toEqual(labels.map((bytes) => Buffer.from(bytes).toString('utf8')));
      }),
      { numRuns: 2000 },
    );
  });

  it('a chain of pointers over the whole message takes no time to speak of', () => {
    // Each record is named by the longest chain of pointers that is left.
    const pointers = Buffer.alloc(600);
    for (let at = 0; at < 600; at += 2) pointers.writeUInt16BE(0xc000 | (12 + Math.max(at - 2, 0)), at);
    const before = performance.now();
    for (let i = 0; i < 1000; i += 1) readQuery(patched(Buffer.concat([plain.subarray(0, 12), pointers, pointers]), 11, 2));
    expect(performance.now() - before).toBeLessThan(1000);
  });
});

function edns(options: readonly number[]): Buffer {
  const message = Buffer.concat([withEdns, Buffer.from(options)]);
  message.writeUInt16BE(options.length, withEdns.length - 2);
  return message;
}

/** With EDNS, and a record of a type whose content nobody reads here. */
function signed(): Buffer {
  const signature = Buffer.from([0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 3, 1, 2, 3]);
  return patched(Buffer.concat([withEdns, signature]), 11, 2);
}

function pointing(to: number): Buffer {
  return Buffer.concat([plain.subarray(0, 12), Buffer.from([0xc0, to, 0, 1, 0, 1])]);
}

function circle(): Buffer {
  return Buffer.concat([plain.subarray(0, 12), Buffer.from([1, 97, 0xc0, 16, 0xc0, 14, 0, 1, 0, 1])]);
}
