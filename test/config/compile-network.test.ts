// Twin of compile-network.ts, for what a rule takes from the top level; the rest of it is in compile.test.ts.
import { describe, expect, it } from 'vitest';
import { compileConfig } from '../../src/config/compile.ts';
import type { Compiled } from '../../src/config/compile.ts';
import { parseConfig } from '../../src/config/parse-config.ts';
import type { Host } from '../../src/exchange/authority.ts';
import { problemsOf } from './fixtures.ts';

async function compiled(text: string): Promise<Compiled> {
  const parsed = parseConfig(text, 'a.yaml');
  if ('problems' in parsed) throw new Error(JSON.stringify(parsed.problems));
  const result = await compileConfig(parsed.config, { generation: 1, baseDirectory: '/', env: {} });
  if ('problems' in result) throw new Error(JSON.stringify(result.problems));
  return result.compiled;
}

describe('the top-level `redact`', () => {
  const NETWORK = (more: string) => `
${more}
sandboxes:
  one:
    token: a-token-of-more-than-16
    network:
      allowlist: [{ domain: own.example, transform: { X-A: a } }]
  two: { token: another-token-of-more-than-16 }
network:
  allowlist:
    - { domain: unsaid.example, transform: { X-A: a } }
    - { domain: on.example, transform: { X-A: a }, redact: true }
    - { domain: off.example, transform: { X-A: a }, redact: false }
    - { domain: pinned.example, tls: passthrough }
`;

  it.each([
    { name: 'true', more: 'redact: true', unsaid: true },
    { name: 'false', more: 'redact: false', unsaid: false },
    { name: 'left out', more: '', unsaid: undefined },
  ])('is for the rules that do not say it, of sandboxes too, and not for what passes uninspected: $name', async (row) => {
    const result = await compiled(NETWORK(row.more));
    const of = (name: string, sandbox: string) =>
      result.snapshot.sandboxes
        .byId(sandbox)
        ?.policy.rulesFor(name as Host)
        .map(({ redact }) => redact);
    expect([of('own.example', 'one'), of('unsaid.example', 'two')]).toEqual([[row.unsaid], [row.unsaid]]);
    expect([of('on.example', 'two'), of('off.example', 'two'), of('pinned.example', 'two')]).toEqual([
      [true],
      [false],
      [undefined],
    ]);
    expect(result.warnings).toEqual([]);
  });

  it('is no excuse for a passthrough rule that says it itself', () => {
    const parsed = parseConfig(NETWORK('redact: true').replace('tls: passthrough', 'tls: passthrough, redact: true'), 'a.yaml');
    expect(problemsOf(parsed)).toMatchObject([
      { path: 'network.allowlist[3].tls', message: expect.stringContaining('`redact`') as string },
    ]);
  });
});
