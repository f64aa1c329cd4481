// Twin of src/config/compile-credentials.ts and src/credentials/declared.ts, where credentials are fetched; those whose fields stand in
// the config are in compile.test.ts.
import { describe, expect, it } from 'vitest';
import { compileConfig } from '../../src/config/compile.ts';
import type { Compiled } from '../../src/config/compile.ts';
import { parseConfig } from '../../src/config/parse-config.ts';
import { DeclaredSource, DeclaredSources } from '../../src/credentials/declared.ts';
import type { FreshValue } from '../../src/credentials/fresh-source.ts';
import type { Resolution } from '../../src/exchange/snapshot.ts';
import { Secret } from '../../src/foundation/secret.ts';

async function compiled(text: string, env: NodeJS.ProcessEnv = {}): Promise<Compiled> {
  const parsed = parseConfig(text, 'a.yaml');
  if ('problems' in parsed) throw new Error(JSON.stringify(parsed.problems));
  const result = await compileConfig(parsed.config, { generation: 7, baseDirectory: '/', env });
  if ('problems' in result) throw new Error(JSON.stringify(result.problems));
  return result.compiled;
}

describe('credentials', () => {
  it('that are fetched are declared and not fetched, equal as long as the config says the same', async () => {
    const text = (secret: string) => `network: disabled
credentials:
  crm: { type: oauth2, client_id: a, client_secret: { env: CRM }, refresh_token: r, token_url: "https://login.test/t", token_addresses: [10.0.0.0/8] }
  printed: { type: exec, command: [gh, auth, token], timeout: 2s, env: [GH_HOST], header_name: X-Gh, prefix: "${secret}" }`;
    const of = async (crm: string, prefix: string) => {
      const { credentials, warnings } = await compiled(text(prefix), { CRM: crm });
      expect(warnings).toEqual([]);
      return ['crm', 'printed'].map((id) => credentials.get(id) as DeclaredSource);
    };
    const [crm, printed] = await of('one', 'Key');
    expect([crm?.fetched, printed?.fetched]).toEqual([['Authorization'], ['X-Gh']]);
    expect(printed?.declaration).toMatchObject({
      command: ['gh', 'auth', 'token'],
      timeoutMs: 2000,
      env: ['GH_HOST'],
      prefix: 'Key',
    });
    expect(crm?.declaration).toMatchObject({ opened: { key: '10.0.0.0/8' }, scopes: [] });
    expect((await of('one', 'Key')).map(({ key }) => key)).toEqual([crm?.key, printed?.key]);
    const changed = await of('two', 'Word');
    expect(changed[0]?.key).not.toBe(crm?.key);
    expect(changed[1]?.key).not.toBe(printed?.key);
    expect((await compiled(text('Key'))).credentials.get('crm')).toHaveProperty('unavailable');
  });
});

describe('declared sources', () => {
  const command = (id: string, program: string): DeclaredSource =>
    new DeclaredSource(id, {
      type: 'exec',
      command: [program],
      timeoutMs: 1000,
      env: [],
      header_name: 'Authorization',
      prefix: '',
    });

  function rig() {
    const opened: string[] = [];
    const closed: string[] = [];
    const ends: [string, number | undefined][] = [];
    const sources = new DeclaredSources(
      ({ declaration }, onEnd) => {
        const name = declaration.type === 'exec' ? (declaration.command[0] ?? '') : 'oauth2';
        opened.push(name);
        const value: FreshValue = { value: new Secret(name), endsAt: opened.length };
        onEnd(opened.length);
        return {
          source: { current: () => value, close: () => void closed.push(name) },
          fields: (secret) => ({ fields: [{ name: 'X', value: secret }] }),
        };
      },
      (id, end) => ends.push([id, end]),
    );
    const put = (resolution: Resolution | Promise<Resolution>): string =>
      'fields' in resolution ? (resolution.fields[0]?.value.reveal() ?? '') : 'nothing';
    return { sources, opened, closed, ends, put };
  }

  it('are opened once for the same declaration, whichever load it came with', () => {
    const { sources, opened, closed, put } = rig();
    const [first, second] = [command('a', 'one'), command('a', 'one')];
    sources.use([first]);
    expect(put(sources.resolve(first))).toBe('one');
    sources.use([second, { fields: [] }]);
    expect(put(sources.resolve(second))).toBe('one');
    expect([opened, closed]).toEqual([['one'], []]);
    expect(sources.health(second)).toMatchObject({ health: 'ok' });
  });

  it('are closed when the declaration changes, and an exchange under way still gets what there was', () => {
    const { sources, opened, closed, ends, put } = rig();
    const [old, fresh] = [command('a', 'one'), command('a', 'two')];
    sources.use([old]);
    sources.use([fresh]);
    expect([opened, closed]).toEqual([['one', 'two'], ['one']]);
    expect([put(sources.resolve(old)), put(sources.resolve(fresh))]).toEqual(['one', 'two']);
    expect(ends.at(-1)).toEqual(['a', 2]);
    sources.use([]);
    expect(closed).toEqual(['one', 'two']);
    expect(ends.at(-1)).toEqual(['a', undefined]);
  });

  it('are closed with the house', () => {
    const { sources, closed } = rig();
    sources.use([command('a', 'one'), command('b', 'two')]);
    sources.close();
    expect(closed).toEqual(['one', 'two']);
  });

  it('have nothing for what they do not know', () => {
    const { sources } = rig();
    expect(sources.resolve({ fetched: ['X'] })).toHaveProperty('unavailable');
    expect(sources.health({ fetched: ['X'] })).toEqual({ health: 'unused' });
  });
});
