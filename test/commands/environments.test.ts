// Twin of src/commands/environments/environments.ts: against a running proxy.
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { create, get, list, remove, rotate, update } from '../../src/commands/environments/environments.ts';
import type { AskingContext } from '../../src/commands/context.ts';
import { environmentAt } from '../support/admin-rest.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { startUpstream } from '../support/outside.ts';
import type { Upstream } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';
import { asking, capture, json, temporaryFolder } from './rig.ts';

let upstream: Upstream;
let house: House;

beforeAll(async () => {
  upstream = await startUpstream();
  house = await startHouse({}, { names: { 'api.test': ['127.0.0.1'] } });
});
afterAll(async () => {
  await house.stop();
  await upstream.close();
});

/** As a guide prints it. */
const PASTED = {
  type: 'remote',
  sources: [{ type: 'inline', target: '.agents/hooks.json', content: '{}' }],
  network: { allowlist: [{ domain: 'github.com', transform: { Authorization: 'Basic marker-secret' } }, { domain: '*' }] },
};

function rig(stdin = '', options: { readonly terminal?: boolean; readonly answers?: readonly string[] } = {}) {
  const captured = capture(temporaryFolder(), { terminal: options.terminal ?? false, env: { NO_COLOR: '1' } });
  const { context, asked } = asking(captured, { stdin, ...(options.answers === undefined ? {} : { answers: options.answers }) });
  const here = { url: `http://127.0.0.1:${house.adminPort}`, tokenFile: join(house.folder, 'admin-token') };
  return { captured, context, asked, here };
}

async function made(body: object): Promise<{ readonly id: string; readonly identity: string }> {
  const { captured, context, here } = rig(JSON.stringify(body));
  expect(await create({ ...here, file: '-' }, context)).toBe(0);
  return environmentAt(String(json(captured)['proxy_url']));
}

async function statusFor(identity: string): Promise<number> {
  return (await ask(house, `http://api.test:${upstream.port}/`, { fields: identity })).status;
}

const ALLOWS = () => ({ network: { allowlist: [{ domain: 'api.test', ports: [upstream.port], addresses: LOOPBACK }] } });

describe('an environment of the command line', () => {
  it.each([
    { name: 'pasted whole', body: PASTED },
    { name: 'pasted inside its name', body: { environment: PASTED } },
  ])('is made as $name, and answers with id and proxy URL, once', async ({ body }) => {
    const { captured, context, here } = rig(JSON.stringify(body));
    expect(await create({ ...here, file: '-' }, context)).toBe(0);
    const { id, proxy_url: url, ...more } = json(captured);
    expect([id, url, more]).toEqual([expect.stringMatching(/^env_/), expect.stringMatching(/^http:\/\/env_\w+:.{43}@/), {}]);
    expect(captured.err()).toMatch(/shown this once/);
    const shown = rig();
    expect(await get(String(id), shown.here, shown.context)).toBe(0);
    expect(json(shown.captured)).toMatchObject({ id, file_count: '1' });
    expect(shown.captured.out()).not.toMatch(/marker-secret|proxy_url/);
  });

  it('holds what its network says, is updated, renewed and deleted', async () => {
    const { id, identity } = await made({ network: { allowlist: [] } });
    expect(await statusFor(identity)).toBe(403);
    const updating = rig(JSON.stringify(ALLOWS()));
    expect(await update(id, { ...updating.here, file: '-' }, updating.context)).toBe(0);
    expect(await statusFor(identity)).toBe(200);

    const renewing = rig();
    expect(await rotate(id, renewing.here, renewing.context)).toBe(0);
    const renewed = environmentAt(String(json(renewing.captured)['proxy_url']));
    expect([await statusFor(identity), await statusFor(renewed.identity)]).toEqual([407, 200]);

    const deleting = rig('', { answers: ['y'] });
    expect(await remove(id, deleting.here, deleting.context)).toBe(0);
    expect(deleting.asked).toEqual([`delete the environment "${id}"? its proxy URL is void from then on`]);
    expect(await statusFor(renewed.identity)).toBe(407);
    expect(await get(id, deleting.here, deleting.context)).toBe(4);
  });

  it('is listed, to a person in a table', async () => {
    const { id } = await made(ALLOWS());
    const piped = rig();
    expect(await list(piped.here, piped.context)).toBe(0);
    expect(json(piped.captured)['environments']).toContainEqual(expect.objectContaining({ id }));
    const shown = rig('', { terminal: true });
    expect(await list(shown.here, shown.context)).toBe(0);
    expect(shown.captured.out()).toContain(`│ ${id} `);
    expect(await get(id, shown.here, shown.context)).toBe(0);
    expect(shown.captured.out()).toMatch(/network +│ \{/);
  });

  it.each<{
    readonly name: string;
    readonly run: (here: ReturnType<typeof rig>['here'], context: AskingContext) => Promise<number>;
    readonly stdin?: string;
    readonly code: number;
    readonly says: RegExp;
  }>([
    {
      name: 'a member that is misspelt',
      run: (here, context) => create({ ...here, file: '-' }, context),
      stdin: '{"netwrk": {}}',
      code: 2,
      says: /did you mean "network"/i,
    },
    {
      name: 'a credential that is not there',
      run: (here, context) => create({ ...here, file: '-' }, context),
      stdin: '{"network": {"allowlist": [{"domain": "a.test", "credential": "nobody"}]}}',
      code: 4,
      says: /names a credential that is not there; create it first/,
    },
    {
      name: 'a file that does not exist',
      run: (here, context) => create({ ...here, file: 'nowhere.json' }, context),
      code: 1,
      says: /the file of --file does not exist/,
    },
    {
      name: 'an environment that is not there',
      run: (here, context) => update('env_nobody', { ...here, file: '-' }, context),
      stdin: '{}',
      code: 4,
      says: /there is no environment of this id/,
    },
    {
      name: 'a new URL for one that is not there',
      run: (here, context) => rotate('env_nobody', here, context),
      code: 4,
      says: /there is no environment of this id/,
    },
  ])('exits $code for $name', async ({ run, stdin = '', code, says }) => {
    const { captured, context, here } = rig(stdin);
    expect(await run(here, context)).toBe(code);
    expect([captured.out(), captured.err()]).toEqual(['', expect.stringMatching(says)]);
  });
});
