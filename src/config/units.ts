// The units of the config: durations ("250ms", "30s", "5m", "2h") and sizes (a plain number of bytes, "64KiB", "1MiB").
// It must never guess a unit: a bare number is a size but not a duration, and "KB" is refused because two readings exist.

/** A duration with its unit, as the JSON Schema shows it. */
export const DURATION = /^\d{1,9}(?:ms|s|m|h)$/;

/** A size with a binary unit, as the JSON Schema shows it. */
export const SIZE = /^\d{1,10}(?:B|KiB|MiB|GiB)$/;

/** A timer of Node overflows above 2^31 ms and then fires at once, so that a longer deadline would be none. */
const LONGEST_MS = 24 * 3_600_000;
const LARGEST_BYTES = 2 ** 40;

const MS_PER: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const BYTES_PER: Readonly<Record<string, number>> = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3 };

/** A duration in `ms`, 1 ms to 24 hours; the problem states the right spelling. */
export function parseDuration(text: string): { readonly ms: number } | { readonly problem: string } {
  const unit = DURATION.test(text) ? /[a-z]+$/.exec(text)?.[0] : undefined;
  const factor = unit === undefined ? undefined : MS_PER[unit];
  if (factor === undefined) return { problem: `"${text}" is not a duration; write ${spelledDuration(text)}` };
  const ms = Number.parseInt(text, 10) * factor;
  if (ms < 1 || ms > LONGEST_MS) return { problem: `"${text}" is out of range; write a duration from "1ms" to "24h"` };
  return { ms };
}

function spelledDuration(text: string): string {
  const loose = /^\s*(\d+)\s*([a-z]*)\s*$/i.exec(text);
  const digits = loose?.[1];
  const word = loose?.[2]?.toLowerCase() ?? '';
  if (digits === undefined) return 'a number and a unit, such as "30s", "5m" or "250ms"';
  if (word === '') return `the unit too: "${digits}s" or "${digits}ms"`;
  if (word.startsWith('ms') || word.startsWith('mil')) return `"${digits}ms"`;
  if (word.startsWith('m')) return `"${digits}m"`;
  if (word.startsWith('h')) return `"${digits}h"`;
  return word.startsWith('s') ? `"${digits}s"` : 'one of the units ms, s, m, h';
}

/** A size in bytes, 1 byte to 1 TiB; the problem states the right spelling. */
export function parseSize(value: string | number): { readonly bytes: number } | { readonly problem: string } {
  const bytes = typeof value === 'number' ? value : sizeFromText(value);
  if (bytes === undefined) return { problem: `"${value}" is not a size; write ${spelledSize(String(value))}` };
  if (!Number.isInteger(bytes) || bytes < 1 || bytes > LARGEST_BYTES) {
    return { problem: `"${value}" is out of range; write a size from 1 to "1024GiB"` };
  }
  return { bytes };
}

function sizeFromText(text: string): number | undefined {
  const unit = SIZE.test(text) ? /[A-Za-z]+$/.exec(text)?.[0] : undefined;
  const factor = unit === undefined ? undefined : BYTES_PER[unit];
  return factor === undefined ? undefined : Number.parseInt(text, 10) * factor;
}

function spelledSize(text: string): string {
  const loose = /^\s*(\d+)\s*([kmg])?(?:i?b)?\s*$/i.exec(text);
  const digits = loose?.[1];
  if (digits === undefined) return 'a number of bytes, or one with a unit, such as "64KiB" or "1MiB"';
  const unit = loose?.[2];
  return unit === undefined ? digits : `"${digits}${unit.toUpperCase()}iB"`;
}
