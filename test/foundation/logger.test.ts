import { describe, expect, it } from 'vitest';
import { createLogger } from '../../src/foundation/logger.ts';
import type { LoggerOptions } from '../../src/foundation/logger.ts';
import { Secret } from '../../src/foundation/secret.ts';
import { stackFrames } from '../../src/foundation/stack-frames.ts';

function logTo(options: { level?: LoggerOptions['level']; isTTY?: boolean } = {}) {
  const written: string[] = [];
  const stream = { write: (text: string) => written.push(text), isTTY: options.isTTY };
  return { written, log: createLogger({ level: options.level ?? 'debug', stream }) };
}

describe('createLogger into a pipe', () => {
  it('writes one JSON object a line with level, time and message, and no pid or hostname', () => {
    const { written, log } = logTo();
    log.warn('the token can be read by others', { path: '/x', count: 2 });
    expect(written).toHaveLength(1);
    expect(written[0]).toMatch(/\n$/);
    const line = JSON.parse(written[0] ?? '') as Record<string, unknown>;
    expect(Object.keys(line)).toEqual(['level', 'time', 'path', 'count', 'message']);
    expect(line).toMatchObject({ level: 'warn', message: 'the token can be read by others', path: '/x', count: 2 });
  });

  it('shows no secret and no property of an error', () => {
    const { written, log } = logTo();
    const error = Object.assign(new Error('failed'), { headers: { authorization: 'SENTINEL' } });
    log.error('it failed', { error, token: new Secret('SENTINEL'), nested: { token: new Secret('SENTINEL') } });
    expect(written.join('')).not.toContain('SENTINEL'); // fault E17
    expect(JSON.parse(written[0] ?? '')).toMatchObject({
      error: 'Error: failed',
      token: '[secret]',
      nested: { token: '[secret]' },
    });
  });

  it('leaves no separator or control raw, and the value as it was', () => {
    const { written, log } = logTo();
    const odd = 'a\u0085b\u2028c\u009bd\u202ee\u001b[2Jf\ng';
    log.info(odd, { odd });

    expect(written[0]?.slice(0, -1)).not.toMatch(/[^\x20-\x7e]/); // fault L01
    expect(JSON.parse(written[0] ?? '')).toMatchObject({ message: odd, odd });
  });
});

describe('createLogger on a terminal', () => {
  it('writes short lines with fields, quoting what has blanks', () => {
    const { written, log } = logTo({ isTTY: true });
    log.info('listening', { address: '127.0.0.1:8080', note: 'two words', none: undefined, many: ['a'] });
    expect(written[0]).toMatch(/^\d\d:\d\d:\d\d info {2}listening address=127\.0\.0\.1:8080 note="two words" many=\["a"\]\n$/);
  });

  it('writes a stack on lines of its own, and nothing a terminal could act on', () => {
    const { written, log } = logTo({ isTTY: true });
    log.error('bad \u001b[2J\nforged', { value: '\u009b31m', stack: '    at a\n    at \u001bb' });

    expect(written[0]).not.toMatch(/[\x00-\x09\x0b-\x1f\x7f-\x9f]/); // fault L01
    expect(written[0]?.split('\n')).toHaveLength(4);
  });
});

describe('createLogger', () => {
  it.each([
    { level: 'debug', written: 4 },
    { level: 'info', written: 3 },
    { level: 'warn', written: 2 },
    { level: 'error', written: 1 },
    { level: 'silent', written: 0 },
  ] as const)('writes $written of the four levels at $level', ({ level, written: expected }) => {
    for (const isTTY of [false, true]) {
      const { written, log } = logTo({ level, isTTY });
      for (const each of ['debug', 'info', 'warn', 'error'] as const) log[each]('said');
      expect(written).toHaveLength(expected);
    }
  });

  it('never throws: neither for a circle, nor for a stream that is gone', () => {
    const circle: Record<string, unknown> = {};
    circle['self'] = circle;
    const broken = {
      write: () => {
        throw new Error('EPIPE');
      },
    };
    for (const isTTY of [false, true]) {
      expect(() => logTo({ isTTY }).log.info('round', { circle })).not.toThrow();
      expect(() => createLogger({ stream: { ...broken, isTTY } }).error('gone')).not.toThrow();
    }
  });
});

describe('stackFrames', () => {
  it('has frames and no message', () => {
    const frames = stackFrames(new Error('SENTINEL\nSENTINEL'));
    expect(frames).toMatch(/^\s+at .*logger\.test/);
    expect(frames).not.toContain('SENTINEL');
  });
});
