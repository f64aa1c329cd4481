import { describe, expect, it } from 'vitest';
import { logAcceptTrouble } from '../../src/foundation/accept-trouble.ts';
import { createLogger } from '../../src/foundation/logger.ts';

const noFiles = Object.assign(new Error('accept EMFILE'), { code: 'EMFILE' });

describe('logAcceptTrouble', () => {
  it('says so at most once a second, and how often it had kept silent', () => {
    const lines: Record<string, unknown>[] = [];
    const log = createLogger({ stream: { write: (text) => lines.push(JSON.parse(text) as Record<string, unknown>) } });
    let time = 5000;
    const trouble = logAcceptTrouble(log, 'proxy', () => time);
    for (const later of [0, 0, 999, 1, 0, 1000, 5000]) {
      time += later;
      trouble(noFiles);
    }
    const seen = lines.map(({ level, listener, cause, unsaid }) => [level, listener, cause, unsaid]);
    expect(seen).toEqual([
      ['error', 'proxy', 'EMFILE', undefined],
      ['error', 'proxy', 'EMFILE', 2],
      ['error', 'proxy', 'EMFILE', 1],
      ['error', 'proxy', 'EMFILE', undefined],
    ]);
  });
});
