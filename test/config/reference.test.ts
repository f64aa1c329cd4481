import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { configReference } from '../../src/config/reference.ts';

describe('configReference', () => {
  const lines = configReference().split('\n');

  it('is one table with a row for each key', () => {
    expect(lines.slice(0, 2)).toEqual(['| key | type | default | meaning |', '|---|---|---|---|']);
    expect(lines.at(-1)).toBe('');
    const keys = lines.slice(2, -1).map((line) => line.split('`')[1]);
    expect(new Set(keys).size).toBe(keys.length);
    expect(keys).toEqual(
      expect.arrayContaining([
        'listen.proxy',
        'network.allowlist[].domain',
        'sandboxes.<id>.token',
        'credentials.<id>.token',
        'limits.timeouts.dns',
      ]),
    );
  });

  it.each([
    ['network.allowlist[].tls', '`passthrough`', ''],
    ['limits.timeouts.dns', 'text', '`"5s"`'],
    ['limits.header_bytes', 'number or text', '`"64KiB"`'],
    ['ca.key', 'text or null', '`"certs/ca.key"`'],
    ['upstream.proxy', 'object or null', '`null`'],
    ['upstream.proxy.password', 'text, `{ env }` or `{ file }`', ''],
    ['upstream.proxy.resolve', '`here` or `there`', '`"here"`'],
    [
      'credentials.<id>.type',
      '`bearer_token` or `basic` or `header` or `oauth2` or `environment_variable` or `aws_sigv4` or `exec`',
      '',
    ],
    ['sandboxes.<id>.token', 'text, `{ env }` or `{ file }`', ''],
    ['network.allowlist[].ports', 'list of number', ''],
  ])('shows type and default of %s', (key, type, standard) => {
    const line = lines.find((candidate) => candidate.startsWith(`| \`${key}\` |`)) ?? '';
    expect(line.split(' | ').slice(1, 3)).toEqual([type, standard]);
  });
});

describe('the README', () => {
  it('holds the table as the schema gives it; run `npm run schema` where it is stale', async () => {
    const readme = await readFile(join(import.meta.dirname, '..', '..', 'README.md'), 'utf8');
    expect(readme).toContain(`<!-- config reference: begin -->\n${configReference()}<!-- config reference: end -->`);
  });
});
