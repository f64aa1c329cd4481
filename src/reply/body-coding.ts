// Which bodies are text that a secret can be looked for in, and how a compressed one is opened and closed again while it streams.
// It reads two fields and the coded bytes. It must never keep what came in waiting for more, never hold a whole body, and never guess:
// a coding that it does not know is `opaque`, and what becomes of that body the caller decides.
import { Transform, Writable, pipeline } from 'node:stream';
import type { Readable } from 'node:stream';
import zlib from 'node:zlib';
import { Fault } from '../exchange/codes.ts';
import { listMembers } from '../exchange/header-fields.ts';

/** Codings that can be opened and closed again. */
export type Coding = 'gzip' | 'deflate' | 'br';

/**
 * `untouched`: no text, or nothing says that it is. `opaque`: text in a coding, a list of codings or a charset that cannot be read here.
 * `text`: to be looked through, as it is or behind its coding.
 */
export type BodyPlan =
  { readonly kind: 'untouched' } | { readonly kind: 'opaque' } | { readonly kind: 'text'; readonly coding: Coding | 'identity' };

const TEXT_TYPES: ReadonlySet<string> = new Set([
  'application/json',
  'application/x-ndjson',
  'application/ndjson',
  'application/jsonl',
  'application/json-seq',
  'application/xml',
  'application/javascript',
  'application/x-javascript',
  'application/ecmascript',
  'application/x-www-form-urlencoded',
  'application/yaml',
  'application/x-yaml',
  'application/toml',
  'application/graphql',
  'message/http',
]);

const TEXT_SUFFIX = /\+(?:json|xml|yaml)$/;

/** Charsets in which a letter is not the byte that it is in ASCII. */
const WIDE_CHARSET = /;\s*charset\s*=\s*"?\s*(?:utf-?16|utf-?32|ucs-?[24]|iso-10646-ucs)/i;

const CODINGS: ReadonlyMap<string, Coding> = new Map([
  ['gzip', 'gzip'],
  ['x-gzip', 'gzip'],
  ['deflate', 'deflate'],
  ['br', 'br'],
]);

/** What to do with a body, by the values of its Content-Type and Content-Encoding; `undefined` for a field that is not there. */
export function planBody(contentType: string | undefined, contentEncoding: string | undefined): BodyPlan {
  if (!isText(contentType ?? '')) return { kind: 'untouched' };
  const codings = listMembers(contentEncoding ?? '').filter((coding) => coding !== 'identity');
  const [only] = codings;
  if (WIDE_CHARSET.test(contentType ?? '')) return { kind: 'opaque' };
  if (only === undefined) return { kind: 'text', coding: 'identity' };
  const coding = codings.length === 1 ? CODINGS.get(only) : undefined;
  return coding === undefined ? { kind: 'opaque' } : { kind: 'text', coding };
}

function isText(contentType: string): boolean {
  const type = contentType.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  // Of many parts some may be text, and in those that are not nothing is found.
  return type.startsWith('text/') || type.startsWith('multipart/') || TEXT_TYPES.has(type) || TEXT_SUFFIX.test(type);
}

/** An Accept-Encoding that asks for nothing but what can be opened here: `gzip, br;q=0.5, zstd` becomes `gzip, br;q=0.5`. */
export function narrowAcceptEncoding(value: string): string {
  const kept = value.split(',').filter((member) => {
    const name = member.split(';', 1)[0]?.trim().toLowerCase() ?? '';
    return name === 'identity' || CODINGS.has(name);
  });
  return kept.length === 0 ? 'identity' : kept.map((member) => member.trim()).join(', ');
}

/** What the opened body goes through. */
export interface BodyFilter {
  push(chunk: Buffer): Buffer;
  end(): Buffer;
}

/**
 * The coded body goes into `input` and comes out of `output`, in the same coding. Both know backpressure; to give up, destroy `output`.
 * `output` fails where the body is not what its coding says, ends too early, or comes to more than `maxDecodedBytes`: cut the reply then.
 */
export interface Recoder {
  readonly input: Writable;
  readonly output: Readable;
}

/**
 * Opens, filters and closes a body chunk by chunk: what a chunk holds leaves before the next one is there, but for what the filter keeps.
 * A body of no bytes comes out as the coding's own spelling of nothing, so it is not for answers that have no body.
 */
export function createRecoder(coding: Coding, filter: BodyFilter, maxDecodedBytes: number): Recoder {
  const output = encoder(coding);
  let decoder: zlib.Gunzip | zlib.Inflate | zlib.BrotliDecompress | undefined;
  const open = (first: number): NonNullable<typeof decoder> => {
    const opened = decoderFor(coding, first);
    // Errors reach the output, which pipeline destroys with them.
    pipeline(opened, filterStream(filter, maxDecodedBytes), output, () => undefined);
    return opened;
  };
  const input = new Writable({
    write(chunk: Buffer, _encoding, done) {
      const [first] = chunk;
      if (first === undefined) done();
      else (decoder ??= open(first)).write(chunk, done);
    },
    final(done) {
      if (decoder === undefined) output.end(done);
      else decoder.end(done);
    },
    destroy(error, done) {
      // It also comes here by itself, once everything has gone in.
      if (!this.writableFinished) output.destroy(error ?? undefined);
      done(error);
    },
  });
  output.once('close', () => input.destroy());
  // Both can fail while nobody waits for them, which must not end the process; whoever reads the output hears of it all the same.
  for (const end of [input, output]) end.on('error', () => undefined);
  return { input, output };
}

function encoder(coding: Coding): zlib.Gzip | zlib.Deflate | zlib.BrotliCompress {
  const { constants } = zlib;
  // Every chunk is flushed, or an event would wait in the compressor. The level is what a proxy can afford on the way.
  const options = { flush: constants.Z_SYNC_FLUSH, level: 4 };
  if (coding === 'gzip') return zlib.createGzip(options);
  if (coding === 'deflate') return zlib.createDeflate(options);
  return zlib.createBrotliCompress({
    flush: constants.BROTLI_OPERATION_FLUSH,
    params: { [constants.BROTLI_PARAM_QUALITY]: 4 },
  });
}

/** `deflate` means the zlib format, but some servers send the bare one; the first byte tells (RFC 9110 section 8.4.1.2). */
function decoderFor(coding: Coding, first: number): zlib.Gunzip | zlib.Inflate | zlib.BrotliDecompress {
  if (coding === 'gzip') return zlib.createGunzip();
  if (coding === 'br') return zlib.createBrotliDecompress();
  return (first & 0x0f) === 8 ? zlib.createInflate() : zlib.createInflateRaw();
}

function filterStream(filter: BodyFilter, maxDecodedBytes: number): Transform {
  let decoded = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      decoded += chunk.length;
      if (decoded > maxDecodedBytes) {
        done(new Fault('upstream_protocol', `the compressed answer comes to more than ${maxDecodedBytes} bytes`));
        return;
      }
      pass(this, filter.push(chunk));
      done();
    },
    flush(done) {
      pass(this, filter.end());
      done();
    },
  });
}

/** Nothing is passed on for no bytes: each would cost a flush of the compressor. */
function pass(stream: Transform, bytes: Buffer): void {
  if (bytes.length > 0) stream.push(bytes);
}
