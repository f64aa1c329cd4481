// Twin of src/commands/credentials/*.ts, and of admin-door.ts and the resource-*.ts that they share: against a running proxy where it
// matters what comes of a call, against a listener of ours where it matters what is sent.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rotate, update } from '../../src/commands/credentials/change.ts';
import { create } from '../../src/commands/credentials/create.ts';
import type { CreateOptions } from '../../src/commands/credentials/create.ts';
import { get, list, remove } from '../../src/commands/credentials/look.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Seen, Upstream } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';
import { fakeAdmin } from './fake-admin.ts';
import { asking, capture, json, temporaryFolder, writeConfig } from './rig.ts';

const SECRET = 'marker-secret-that-nobody-may-see';
const NEXT = 'marker-successor-that-nobody-may-see';
// What a pasted token looks like: a long run of letters and digits.
const PASTED = 'ghp_a1b2c3d4e5f6g7h8i9j0a1b2c3d4e5f6g7h8';

let outside: Outside;
let upstream: Upstream;
let house: House;

beforeAll(async () => {
  outside = await openOutside();
  upstream = await startUpstream({ tls: outside });
  const rule = { ports: [upstream.port], addresses: LOOPBACK };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: { allowlist: [{ domain: 'api.test', credential: 'wire', ...rule }] },
      credentials: { declared: { type: 'bearer_token', token: { env: 'TOKEN' } } },
    },
    { names: { 'api.test': ['127.0.0.1'] }, env: { TOKEN: SECRET } },
  );
});
afterAll(async () => {
  await house.stop();
  await upstream.close();
  await outside.close();
});

interface Given {
  readonly stdin?: string;
  readonly answers?: readonly (string | undefined)[];
  readonly terminal?: boolean;
}

/** A run against the house: what it was asked and said. */
function rig(given: Given = {}) {
  const captured = capture(temporaryFolder(), { terminal: given.terminal ?? false, env: { NO_COLOR: '1' } });
  const { context, asked } = asking(captured, given);
  const here = { url: `http://127.0.0.1:${house.adminPort}`, tokenFile: join(house.folder, 'admin-token') };
  return { captured, context, asked, here };
}

async function onTheWire(): Promise<string[]> {
  const answer = await ask(house, `https://api.test:${upstream.port}/`);
  return answer.status === 200 ? valuesOf((upstream.seen.at(-1) as Seen).fields, 'authorization') : [String(answer.status)];
}

async function made(options: Partial<CreateOptions>, given: Given = {}): Promise<number> {
  const { context, here } = rig(given);
  return create({ members: {}, ...here, ...options }, context);
}

describe('a credential of the command line', () => {
  it('is created, put on, rotated, updated and deleted', async () => {
    expect(await onTheWire()).toEqual(['502']);

    const creating = rig({ stdin: `${SECRET}\n` });
    const options = { type: 'bearer_token', id: 'wire', secretStdin: true, members: {}, ...creating.here };
    expect(await create(options, creating.context)).toBe(0);
    expect(json(creating.captured)).toMatchObject({ id: 'wire', type: 'bearer_token', status: 'active', prefix: 'Bearer' });
    expect(await onTheWire()).toEqual([`Bearer ${SECRET}`]);

    const rotating = rig({ answers: [NEXT] });
    expect(await rotate({ id: 'wire', ...rotating.here }, rotating.context)).toBe(0);
    expect(rotating.asked).toEqual(['token of "wire" (not shown): ']);
    expect(await onTheWire()).toEqual([`Bearer ${NEXT}`]);

    const updating = rig({ stdin: '{"prefix": "token"}' });
    expect(await update({ id: 'wire', file: '-', ...updating.here }, updating.context)).toBe(0);
    expect(await onTheWire()).toEqual([`token ${NEXT}`]);

    const deleting = rig({ answers: ['y'] });
    expect(await remove('wire', deleting.here, deleting.context)).toBe(0);
    expect(deleting.asked).toEqual([expect.stringMatching(/^delete the credential "wire"\? requests that need it are refused/)]);
    expect(await onTheWire()).toEqual(['502']);

    for (const { captured } of [creating, rotating, updating, deleting]) {
      expect(captured.out() + captured.err()).not.toContain('marker-');
    }
  });

  it('is listed and shown without its secrets, to a person in a table', async () => {
    expect(await made({ type: 'bearer_token', id: 'seen', secretStdin: true }, { stdin: SECRET })).toBe(0);
    const piped = rig();
    expect(await list(piped.here, piped.context)).toBe(0);
    expect(json(piped.captured)).toEqual({ credentials: [expect.objectContaining({ id: 'seen', type: 'bearer_token' })] });
    const shown = rig({ terminal: true });
    expect(await list(shown.here, shown.context)).toBe(0);
    expect(shown.captured.out()).toMatch(/id +│ type +│ status/);
    expect(await get('seen', shown.here, shown.context)).toBe(0);
    expect(shown.captured.out()).toMatch(/header_name +│ Authorization/);
    const forced = rig({ terminal: true });
    expect(await get('seen', { ...forced.here, json: true }, forced.context)).toBe(0);
    expect(json(forced.captured)).toMatchObject({ id: 'seen', status: 'active' });
    for (const { captured } of [piped, shown, forced]) expect(captured.out() + captured.err()).not.toContain('marker-');
  });

  it('is deleted by a yes alone', async () => {
    expect(await made({ type: 'bearer_token', id: 'kept', secretStdin: true }, { stdin: SECRET })).toBe(0);
    const no = rig({ answers: ['n'] });
    expect(await remove('kept', no.here, no.context)).toBe(1);
    const nobody = rig();
    expect(await remove('kept', nobody.here, nobody.context)).toBe(2);
    expect(nobody.captured.err()).toMatch(/say --yes/);
    expect(await get('kept', nobody.here, nobody.context)).toBe(0);
    const yes = rig();
    expect(await remove('kept', { ...yes.here, yes: true }, yes.context)).toBe(0);
    expect(await get('kept', yes.here, yes.context)).toBe(4);
  });

  it.each([
    {
      name: 'one that is not there',
      run: () => rigged((here, context) => get('nobody', here, context)),
      code: 4,
      says: /no stored/,
    },
    {
      name: 'a rotation of one that the config declares',
      run: () => rigged((here, context) => rotate({ id: 'declared', ...here }, context)),
      code: 4,
      says: /the config declares it, and it is changed there/,
    },
    {
      name: 'an id that is declared',
      run: () =>
        rigged((here, context) =>
          create({ type: 'bearer_token', id: 'declared', secretStdin: true, members: {}, ...here }, context),
        ),
      code: 4,
      says: /declared in the config, which comes first/,
    },
    {
      name: 'a member that is wrong, with the right spelling',
      run: () =>
        rigged((here, context) => create({ file: '-', members: {}, ...here }, context), {
          stdin: '{"type": "bearer_token", "tokn": "x"}',
        }),
      code: 2,
      says: /answered 400: .*did you mean "token"/i,
    },
    {
      name: 'a token of the admin listener that is another',
      run: () => rigged((here, context) => list({ ...here, tokenFile: join(house.folder, 'store-key') }, context)),
      code: 1,
      says: /cannot read the admin token file|does not accept the token/,
    },
    {
      name: 'an id that can be none, unrepeated',
      run: () => rigged((here, context) => get('../status', here, context)),
      code: 2,
      says: /^sallyport: this is no id/,
    },
  ])('exits $code for $name', async ({ run, code, says }) => {
    const ended = await run();
    expect(ended).toEqual({ code, out: '', err: expect.stringMatching(says) as string });
    expect(ended.err).not.toMatch(/marker-|\.\.\/status/);
  });
});

async function rigged(
  run: (
    here: { readonly url: string; readonly tokenFile: string },
    context: ReturnType<typeof rig>['context'],
  ) => Promise<number>,
  given: Given = { stdin: SECRET },
) {
  const { captured, context, here } = rig(given);
  return { code: await run(here, context), out: captured.out(), err: captured.err() };
}

/** What `create` sends, or what it says instead. */
async function sent(options: Partial<CreateOptions>, given: Given = {}, files: Readonly<Record<string, string>> = {}) {
  const admin = await fakeAdmin(({ body }) => ({ status: 200, body: { id: 'x', ...(body as object) } }));
  const folder = temporaryFolder();
  for (const [name, text] of Object.entries({ ...files, token: 'admin' })) writeFileSync(join(folder, name), text);
  const captured = capture(folder);
  const { context, asked } = asking(captured, given);
  const code = await create({ members: {}, url: admin.url, tokenFile: 'token', ...options }, context);
  return { code, body: admin.heard[0]?.body, asked, err: captured.err() };
}

describe('what a new credential is made of', () => {
  it.each<{
    readonly name: string;
    readonly options: Partial<CreateOptions>;
    readonly given?: Given;
    readonly files?: Record<string, string>;
    readonly body: object;
    readonly asked?: readonly string[];
  }>([
    {
      name: 'a secret in a file, without the end of its line',
      options: { type: 'bearer_token', id: 'a', secretFile: 's' },
      files: { s: `${SECRET}\r\n` },
      body: { type: 'bearer_token', id: 'a', token: SECRET },
    },
    {
      name: 'a header and a prefix of its own',
      options: { type: 'bearer_token', secretStdin: true, members: { header_name: ['x-api-key'], prefix: '' } },
      given: { stdin: SECRET },
      body: { type: 'bearer_token', header_name: 'x-api-key', prefix: '', token: SECRET },
    },
    {
      name: 'the two secrets of basic, asked for in turn',
      options: { type: 'basic', id: 'a' },
      given: { answers: ['u', 'p'] },
      body: { type: 'basic', id: 'a', username: 'u', password: 'p' },
      asked: ['username of "a" (not shown): ', 'password of "a" (not shown): '],
    },
    {
      name: 'one of two in a file, and the other asked for',
      options: { type: 'basic', secret: ['username=s'] },
      given: { answers: ['p'] },
      files: { s: 'u' },
      body: { type: 'basic', username: 'u', password: 'p' },
      asked: ['password of "basic" (not shown): '],
    },
    {
      name: 'one of two in a file, and the other from standard input',
      options: { type: 'basic', secret: ['username=s'], secretStdin: true },
      given: { stdin: 'p\n' },
      files: { s: 'u' },
      body: { type: 'basic', username: 'u', password: 'p' },
    },
    {
      name: 'headers that are named, and one that its file names',
      options: { type: 'header', secret: ['X-Two=s'], members: { header_name: ['X-One'] } },
      given: { answers: ['1'] },
      files: { s: '2' },
      body: { type: 'header', headers: { 'X-One': '1', 'X-Two': '2' } },
      asked: ['X-One of "header" (not shown): '],
    },
    {
      name: 'oauth2',
      options: {
        type: 'oauth2',
        secret: ['client_secret=s', 'refresh_token=r'],
        members: { client_id: 'c', token_url: 'https://login.test/token', scopes: ['a', 'b'] },
      },
      files: { s: '1', r: '2' },
      body: {
        ...{ type: 'oauth2', client_id: 'c', token_url: 'https://login.test/token', scopes: ['a', 'b'] },
        ...{ client_secret: '1', refresh_token: '2' },
      },
    },
    {
      name: 'a value that a placeholder stands for',
      options: {
        type: 'environment_variable',
        secretStdin: true,
        members: { injection_location: ['header', 'query'], trusted_domains: ['*.slack.com', 'slack.com'] },
      },
      given: { stdin: SECRET },
      body: {
        ...{ type: 'environment_variable', injection_location: ['header', 'query'] },
        ...{ trusted_domains: ['*.slack.com', 'slack.com'], value: SECRET },
      },
    },
    {
      name: 'a key of AWS, whose session token may be left out',
      options: { type: 'aws_sigv4', members: { access_key_id: 'AKIA', region: 'eu-central-1', service: 's3' } },
      given: { answers: ['k', ''] },
      body: { type: 'aws_sigv4', access_key_id: 'AKIA', region: 'eu-central-1', service: 's3', secret_access_key: 'k' },
      asked: [
        'secret_access_key of "aws_sigv4" (not shown): ',
        'session_token of "aws_sigv4" (not shown; empty to leave it out): ',
      ],
    },
    {
      name: 'a whole one in a file',
      options: { file: 's' },
      files: { s: '{"type": "later", "any": 1}' },
      body: { type: 'later', any: 1 },
    },
  ])('takes $name', async ({ options, given, files, body, asked = [] }) => {
    expect(await sent(options, given, files)).toEqual({ code: 0, body, asked, err: '' });
  });

  it.each<{ readonly name: string; readonly options: Partial<CreateOptions>; readonly given?: Given; readonly says: RegExp }>([
    { name: 'no type', options: { secretStdin: true }, says: /say what it is with --type: bearer_token, basic/ },
    { name: 'a type that is misspelt', options: { type: 'bearer-tokn' }, says: /did you mean "bearer_token"\?/ },
    { name: 'a type that comes from the config alone', options: { type: 'exec' }, says: /come from its config alone/ },
    {
      name: 'an option of another type',
      options: { type: 'basic', members: { trusted_domains: ['a'] } },
      says: /type "basic" has no --trusted-domain/,
    },
    {
      name: 'no secret and nobody to be asked',
      options: { type: 'bearer_token' },
      says: /nobody is here to be asked; give --secret-stdin/,
    },
    {
      name: 'one source for two secrets',
      options: { type: 'basic', secretStdin: true },
      says: /this takes username and password/,
    },
    {
      name: 'a source too many',
      options: { type: 'bearer_token', secret: ['token=token'], secretStdin: true },
      says: /every secret is given already/,
    },
    { name: 'a header without a name', options: { type: 'header', secretStdin: true }, says: /name the headers/ },
    { name: 'a secret in the place of its file', options: { type: 'bearer_token', secretFile: PASTED }, says: /does not exist/ },
    {
      name: 'a secret behind its name',
      options: { type: 'bearer_token', secret: [`token=${PASTED}`] },
      says: /never the content/,
    },
    { name: 'a secret in the place of a pair', options: { type: 'bearer_token', secret: [PASTED] }, says: /takes NAME=FILE/ },
    {
      name: 'a secret in the place of a name',
      options: { type: 'bearer_token', secret: [`${PASTED}=token`] },
      says: /what --secret names/,
    },
    {
      name: 'a secret in the place of an id',
      options: { type: 'bearer_token', id: PASTED },
      says: /never taken from an argument/,
    },
    {
      name: 'a secret in the place of a prefix',
      options: { type: 'bearer_token', secretStdin: true, members: { prefix: PASTED } },
      says: /never taken from an argument/,
    },
    { name: 'a file beside other options', options: { file: 'token', id: 'a' }, says: /--file holds the whole credential/ },
    { name: 'standard input twice', options: { type: 'basic', secret: ['username=-', 'password=-'] }, says: /one secret only/ },
    {
      name: 'JSON that is none, unquoted',
      options: { file: '-' },
      given: { stdin: `{"token":\n "${PASTED}" oops}` },
      says: /^sallyport: --file is no JSON( \(line 2, column \d+\))?; write one JSON object\n$/,
    },
    { name: 'JSON that is no object', options: { file: '-' }, given: { stdin: '[]' }, says: /must hold one JSON object/ },
    {
      name: 'a question that was given up',
      options: { type: 'bearer_token' },
      given: { answers: [undefined] },
      says: /nothing was sent/,
    },
  ])('refuses $name, and sends nothing', async ({ options, given, says }) => {
    const { code, body, err } = await sent(options, given);
    expect([code === 0, body, err]).toEqual([false, undefined, expect.stringMatching(says) as string]);
    expect(err).not.toContain('a1b2c3d4');
  });
});

describe('a rotation', () => {
  /** What it sends for a credential of a type, or what it says instead. */
  async function rotated(
    resource: object,
    options: { readonly secret?: readonly string[]; readonly accessKeyId?: string; readonly secretStdin?: boolean },
    given: Given = {},
  ) {
    let patched: { path: string; body: unknown } | undefined;
    const admin = await fakeAdmin(({ path, body }, method) => {
      if (method === 'PATCH') patched = { path, body };
      return { status: 200, body: { id: 'x', ...resource } };
    });
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'token'), 'admin');
    writeFileSync(join(folder, 's'), NEXT);
    const captured = capture(folder);
    const { context, asked } = asking(captured, given);
    const code = await rotate({ id: 'x', url: admin.url, tokenFile: 'token', ...options }, context);
    return { code, patched, asked: asked.length, err: captured.err() };
  }

  const path = '/v1beta/credentials/x';
  const KEYS = 'secret_access_key,access_key_id,session_token';

  it.each([
    {
      name: 'the password alone from standard input',
      resource: { type: 'basic' },
      options: { secretStdin: true },
      given: { stdin: NEXT },
      patched: { path, body: { type: 'basic', password: NEXT } },
    },
    {
      name: 'both of basic from a person, who leaves one as it is',
      resource: { type: 'basic' },
      options: {},
      given: { answers: ['', NEXT] },
      patched: { path, body: { type: 'basic', password: NEXT } },
    },
    {
      name: 'the client secret by its name, and no refresh token',
      resource: { type: 'oauth2' },
      options: { secret: ['client_secret=s'] },
      patched: { path, body: { type: 'oauth2', client_secret: NEXT } },
    },
    {
      name: 'a key of AWS with its id, so that no older session token stays',
      resource: { type: 'aws_sigv4' },
      options: { secretStdin: true, accessKeyId: 'AKIB' },
      given: { stdin: NEXT },
      patched: {
        path: `${path}?update_mask=${KEYS}`,
        body: { type: 'aws_sigv4', secret_access_key: NEXT, access_key_id: 'AKIB' },
      },
    },
    {
      name: 'every header, since they are one member',
      resource: { type: 'header', header_names: ['X-One', 'X-Two'] },
      options: { secret: ['x-one=s'] },
      given: { answers: ['2'] },
      patched: { path, body: { type: 'header', headers: { 'X-One': NEXT, 'X-Two': '2' } } },
    },
  ])('sends $name', async ({ resource, options, given = {}, patched }) => {
    const asked = 'answers' in given ? given.answers.length : 0;
    expect(await rotated(resource, options, given)).toMatchObject({ code: 0, patched, asked });
  });

  it.each([
    {
      name: 'a header that would be lost',
      resource: { type: 'header', header_names: ['A', 'B'] },
      options: { secret: ['a=s'] },
      code: 2,
    },
    { name: 'a member that it has not', resource: { type: 'basic' }, options: { secret: ['token=s'] }, code: 2 },
    { name: 'an id of a key where there is none', resource: { type: 'basic' }, options: { accessKeyId: 'A' }, code: 2 },
    { name: 'a type of a later version', resource: { type: 'unknown' }, options: { secretStdin: true }, code: 1 },
  ])('refuses $name, and sends nothing', async ({ resource, options, code }) => {
    expect(await rotated(resource, options)).toMatchObject({ code, patched: undefined });
  });
});

describe('the way to the proxy', () => {
  it('reads every page of a list once', async () => {
    const pages: Record<string, object> = {
      '': { credentials: [{ id: 'a' }], next_page_token: 'p2' },
      p2: { credentials: [{ id: 'b' }], unreadable: ['c'], next_page_token: 'p2' },
    };
    const admin = await fakeAdmin(({ path }) => ({
      status: 200,
      body: pages[new URL(path, 'http://x').searchParams.get('page_token') ?? ''],
    }));
    const { captured, context, here } = rig();
    expect(await list({ ...here, url: admin.url }, context)).toBe(0);
    expect(json(captured)).toEqual({ credentials: [{ id: 'a' }, { id: 'b' }], unreadable: ['c'] });
    expect(captured.err()).toMatch(/do not open, and are to be deleted and made anew: c/);
  });

  it.each([
    { listen: '0.0.0.0:PORT', name: 'every interface' },
    { listen: '127.0.0.1:PORT', name: 'loopback' },
  ])('finds a listener on $name by the config', async ({ listen }) => {
    const admin = await fakeAdmin(() => ({ status: 200, body: { credentials: [] } }));
    const token = { file: join(house.folder, 'admin-token') };
    const { directory, config } = writeConfig({ admin: { listen: listen.replace('PORT', new URL(admin.url).port), token } });
    const captured = capture(directory);
    expect(await list({ config }, asking(captured).context)).toBe(0);
    expect(json(captured)).toEqual({ credentials: [] });
  });

  it.each([
    {
      name: 'a port that only the proxy knows',
      config: { admin: { listen: '127.0.0.1:0' } },
      code: 2,
      says: /name the URL .* with --url/,
    },
    { name: 'a config that is wrong', config: { oops: 1 }, code: 78, says: /oops/ },
  ])('exits $code for $name', async ({ config: content, code, says }) => {
    const { directory, config } = writeConfig(content);
    const captured = capture(directory);
    expect(await list({ config }, asking(captured).context)).toBe(code);
    expect(captured.err()).toMatch(says);
  });

  it('takes an answer that is no object for somebody else', async () => {
    const admin = await fakeAdmin(() => ({ status: 200, body: '[]' }));
    const { captured, context, here } = rig();
    expect(await list({ ...here, url: admin.url }, context)).toBe(1);
    expect(captured.err()).toMatch(/is it the admin listener\?/);
  });
});
