// Redaction alone, in MB of text for each second of CPU: without a hit, with hits, with near misses, and in chunks as small as a stream of events has them.
// Prints one JSON line with the best of several rounds; run alone after a build.
import { createRedactor } from '../../dist/reply/redact.js';

const SECRETS = [
  'ghp_0123456789abcdefABCDEF0123456789abcd',
  'sk-proj-Zq7xY9k3Lm5Np8Rt2Vw4Xz6Bc1Df0Gh',
  'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
];
const MIB = 1024 * 1024;

/** Of this process alone, so that the neighbours' work does not count. */
const cpuNanoseconds = () => process.cpuUsage().user * 1000;

/** The same text every time: lines of JSON with words, numbers and base64 in them. */
function corpus(bytes, insert) {
  let seed = 1;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  const word = () =>
    Math.floor(random() * 1e9)
      .toString(36)
      .slice(0, 2 + Math.floor(random() * 6));
  const lines = [];
  let length = 0;
  for (let i = 0; length < bytes; i += 1) {
    const text = Array.from({ length: 12 }, word).join(' ');
    const blob = Buffer.from(text).toString('base64');
    const line = `{"id":${i},"text":"${text}","blob":"${blob}","url":"https:\\/\\/h.example\\/?q=${encodeURIComponent(text)}"${insert(i)}}\n`;
    lines.push(line);
    length += line.length;
  }
  return Buffer.from(lines.join('')).subarray(0, bytes);
}

function megabytesEach(redactor, text, chunkBytes, rounds) {
  const chunks = [];
  for (let at = 0; at < text.length; at += chunkBytes) chunks.push(text.subarray(at, at + chunkBytes));
  let best = Infinity;
  for (let round = 0; round < rounds; round += 1) {
    const stream = redactor.stream();
    const begun = cpuNanoseconds();
    for (const chunk of chunks) stream.push(chunk);
    stream.end();
    best = Math.min(best, cpuNanoseconds() - begun);
  }
  return Math.round(text.length / (best / 1000));
}

export function measureRedaction({ rounds = 7, bytes = 10 * MIB } = {}) {
  const begun = cpuNanoseconds();
  const redactor = createRedactor(SECRETS);
  const compileMs = (cpuNanoseconds() - begun) / 1e6;
  const clean = corpus(bytes, () => '');
  const hits = corpus(bytes, (i) => (i % 4 === 0 ? `,"token":"${SECRETS[i % 3]}"` : ''));
  const misses = corpus(bytes, (i) => `,"token":"${SECRETS[i % 3].slice(0, -1)}"`);
  // Through a buffer, as values from the wire come.
  const value = Buffer.from(`Bearer realm="api", charset="utf-8", error="none of it", trace=${'a1b2c3d4'.repeat(8)}`).toString(
    'latin1',
  );
  return {
    no_hit_mb_s: megabytesEach(redactor, clean, 64 * 1024, rounds),
    hits_mb_s: megabytesEach(redactor, hits, 64 * 1024, rounds),
    near_misses_mb_s: megabytesEach(redactor, misses, 64 * 1024, rounds),
    sse_200_bytes_mb_s: megabytesEach(redactor, clean, 200, rounds),
    sse_hits_200_bytes_mb_s: megabytesEach(redactor, hits, 200, rounds),
    one_secret_mb_s: megabytesEach(createRedactor(SECRETS.slice(0, 1)), clean, 64 * 1024, rounds),
    periodic_secret_mb_s: megabytesEach(
      createRedactor(['a'.repeat(40)]),
      Buffer.alloc(MIB, `${'a'.repeat(39)}b`),
      64 * 1024,
      rounds,
    ),
    field_ns: nanosecondsEach(redactor, value),
    compile_ms: Math.round(compileMs * 10) / 10,
  };
}

function nanosecondsEach(redactor, value) {
  const times = 200_000;
  for (let i = 0; i < times; i += 1) redactor.text(value);
  const begun = cpuNanoseconds();
  for (let i = 0; i < times; i += 1) redactor.text(value);
  return Math.round((cpuNanoseconds() - begun) / times);
}

if (process.argv[1] === import.meta.filename) process.stdout.write(`${JSON.stringify(measureRedaction())}\n`);
