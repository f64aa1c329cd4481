// What is text, and bodies that are opened, redacted and closed again: whole, cut anywhere, event by event, broken, and far too large.
import { once } from 'node:events';
import { buffer } from 'node:stream/consumers';
import zlib from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { createRecoder, narrowAcceptEncoding, planBody } from '../../src/reply/body-coding.ts';
import type { Coding, Recoder } from '../../src/reply/body-coding.ts';
import { createRedactor } from '../../src/reply/redact.ts';

describe('a body', () => {
  it.each([
    'text/plain',
    'text/event-stream',
    'TEXT/HTML; charset=utf-8',
    'application/json',
    'application/json;charset="utf-8"',
    'application/problem+json',
    'image/svg+xml',
    'application/xml',
    'application/javascript',
    'application/x-www-form-urlencoded',
    ' application/x-ndjson ',
    'multipart/byteranges; boundary=b',
  ])('of type %j is text', (type) => {
    expect(planBody(type, undefined)).toEqual({ kind: 'text', coding: 'identity' });
  });

  it.each([
    undefined,
    '',
    'image/png',
    'application/octet-stream',
    'application/zip',
    'application/jsonish',
    'x-text/plain',
    'application/grpc',
  ])('of type %j is left untouched, whatever its coding', (type) => {
    expect(planBody(type, undefined)).toEqual({ kind: 'untouched' });
    expect(planBody(type, 'zstd')).toEqual({ kind: 'untouched' });
  });

  it.each<[encoding: string, coding: string | undefined]>([
    ['gzip', 'gzip'],
    ['X-GZip', 'gzip'],
    ['deflate', 'deflate'],
    ['br', 'br'],
    ['identity', 'identity'],
    ['', 'identity'],
    ['identity, gzip', 'gzip'],
    ['zstd', undefined],
    ['compress', undefined],
    ['gzip, br', undefined],
    ['gzip, gzip', undefined],
    ['gzip;q=1', undefined],
    ['aws-chunked', undefined],
  ])('of text in the coding %j is opened as %s', (encoding, coding) => {
    expect(planBody('text/plain', encoding)).toEqual(coding === undefined ? { kind: 'opaque' } : { kind: 'text', coding });
  });

  it.each(['utf-16', 'UTF-16LE', '"utf-32"', 'ucs-2'])('in the charset %s cannot be read', (charset) => {
    expect(planBody(`text/plain; charset=${charset}`, undefined)).toEqual({ kind: 'opaque' });
  });
});

it.each([
  ['gzip, deflate, br, zstd', 'gzip, deflate, br'],
  ['zstd', 'identity'],
  ['*', 'identity'],
  ['', 'identity'],
  ['br;q=0.5, ZSTD;q=1,gzip', 'br;q=0.5, gzip'],
  ['identity;q=0, gzip', 'identity;q=0, gzip'],
])('narrows what is asked for, %j, to what can be opened: %j', (asked, narrowed) => {
  expect(narrowAcceptEncoding(asked)).toBe(narrowed);
});

const CODERS: Readonly<Record<Coding, { readonly close: (text: Buffer) => Buffer; readonly open: (coded: Buffer) => Buffer }>> = {
  gzip: { close: zlib.gzipSync, open: zlib.gunzipSync },
  deflate: { close: zlib.deflateSync, open: zlib.inflateSync },
  br: { close: zlib.brotliCompressSync, open: zlib.brotliDecompressSync },
};
const ENCODERS = { gzip: zlib.createGzip, deflate: zlib.createDeflate, br: zlib.createBrotliCompress } as const;
const DECODERS = { gzip: zlib.createGunzip, deflate: zlib.createInflate, br: zlib.createBrotliDecompress } as const;

const SECRET = 'ghp_0123456789abcdefABCDEF';
const redactor = createRedactor([SECRET]);
const recoder = (coding: Coding, maxDecodedBytes = 1e9): Recoder => createRecoder(coding, redactor.stream(), maxDecodedBytes);

async function recode(coding: Coding, coded: Buffer, size = coded.length): Promise<Buffer> {
  const { input, output } = recoder(coding);
  const whole = buffer(output);
  for (let at = 0; at < coded.length; at += size) if (!input.write(coded.subarray(at, at + size))) await once(input, 'drain');
  input.end();
  return whole;
}

describe.each(['gzip', 'deflate', 'br'] as const)('a body in %s', (coding) => {
  const { close, open } = CODERS[coding];
  const text = Buffer.from(`before ${SECRET} after, and some more of it; `.repeat(5000));
  const expected = text.toString().replaceAll(SECRET, '[redacted]');

  it.each([1 << 20, 1000, 7])('is redacted behind its coding, in chunks of %i bytes', async (size) => {
    expect(open(await recode(coding, close(text), size)).toString()).toBe(expected);
  });

  it('may be empty', async () => {
    expect(open(await recode(coding, Buffer.alloc(0)))).toHaveLength(0);
    expect(open(await recode(coding, close(Buffer.alloc(0))))).toHaveLength(0);
  });

  it('keeps an end that might have begun a secret', async () => {
    expect(open(await recode(coding, close(Buffer.from('ends in ghp_')))).toString()).toBe('ends in ghp_');
  });

  it('takes no more in once its output is given up', async () => {
    const { input, output } = recoder(coding);
    output.destroy();
    await once(input, 'close');
    expect(input.destroyed).toBe(true);
  });

  it('lets each event leave before the next one comes', async () => {
    const source = ENCODERS[coding]({
      flush: coding === 'br' ? zlib.constants.BROTLI_OPERATION_FLUSH : zlib.constants.Z_SYNC_FLUSH,
    });
    const { input, output } = recoder(coding);
    const client = DECODERS[coding]();
    source.pipe(input);
    output.pipe(client);
    for (const event of ['data: one\n\n', `data: ${SECRET}\n\n`, 'data: ghp_\n\n']) {
      source.write(event);
      let seen = '';
      const wanted = event.replace(SECRET, '[redacted]');
      while (seen.length < wanted.length) {
        const [chunk] = (await once(client, 'data')) as [Buffer];
        seen += chunk.toString();
      }
      expect(seen).toBe(wanted);
    }
    source.end();
    await once(client, 'end');
  });

  it.each([
    { name: 'ends too early', body: () => close(text).subarray(0, -9) },
    { name: 'is not what it says', body: () => Buffer.from('no such coding at all, just text') },
  ])('fails where it $name', async ({ body }) => {
    await expect(recode(coding, body())).rejects.toThrow();
  });

  it('fails where it comes to more than it may', async () => {
    const bomb = close(Buffer.alloc(4 << 20));
    const { input, output } = recoder(coding, 1 << 20);
    let passed = 0;
    const opened = DECODERS[coding]().on('data', (chunk: Buffer) => (passed += chunk.length));
    output.pipe(opened);
    input.end(bomb);
    const [error] = (await once(output, 'error')) as [Error];
    expect(error.message).toBe('the compressed answer comes to more than 1048576 bytes');
    expect(passed).toBeLessThanOrEqual(1 << 20);
    opened.destroy();
  });

  it('comes to just as much as it may', async () => {
    const { input, output } = recoder(coding, 1 << 20);
    input.end(close(Buffer.alloc(1 << 20)));
    expect(open(await buffer(output))).toHaveLength(1 << 20);
  });

  it('holds its writer back while nobody reads', async () => {
    const noise = close(
      Buffer.from(Array.from({ length: 400_000 }, (_, i) => (Math.imul(i ^ 0x5bd1e995, 0x9e3779b1) >>> 13) & 255)),
    );
    const { input, output } = recoder(coding);
    let accepted = 0;
    for (let at = 0; at < noise.length && input.write(noise.subarray(at, at + 1024)); at += 1024) accepted += 1024;
    expect(accepted).toBeLessThan(noise.length);
    const closed = new Promise((resolve) => input.once('close', resolve));
    output.destroy();
    await closed;
  });

  it('ends with its input where that is given up', async () => {
    const { input, output } = recoder(coding);
    input.write(close(text).subarray(0, 50));
    input.destroy(new Error('given up'));
    const [error] = (await once(output, 'error')) as [Error];
    expect(error.message).toBe('given up');
  });
});

it('opens a bare deflate too', async () => {
  const text = Buffer.from(`bare ${SECRET}`);
  expect(zlib.inflateSync(await recode('deflate', zlib.deflateRawSync(text))).toString()).toBe('bare [redacted]');
});
