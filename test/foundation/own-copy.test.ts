import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { ownCopy } from '../../src/foundation/own-copy.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Bytes that a thousand names cut from a thousand targets of 16 KiB keep on the heap. */
function kept(keep: (name: string) => string): number {
  collect();
  const before = process.memoryUsage().heapUsed;
  const names: string[] = [];
  for (let i = 0; i < 1000; i += 1) {
    const target = Buffer.alloc(16 * 1024, `${i} `).toString('latin1');
    names.push(keep(target.slice(10, 40)));
  }
  collect();
  const grown = process.memoryUsage().heapUsed - before;
  expect(names).toHaveLength(1000);
  return grown;
}

describe('ownCopy', () => {
  it.each(['', 'api.test', '/caf\u00e9', '\u0000\u00ff'])('gives the same text: %j', (text) => {
    expect(ownCopy(text)).toBe(text);
  });

  it('keeps nothing of the text that it was cut from, which a bare cut does', () => {
    expect(kept((name) => name)).toBeGreaterThan(8 * 1024 * 1024);
    expect(kept(ownCopy)).toBeLessThan(1024 * 1024);
  });
});
