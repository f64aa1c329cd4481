// Twin of src/commands/ask-admin.ts.
import { writeFileSync } from 'node:fs';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { askAdmin } from '../../src/commands/ask-admin.ts';
import { fakeAdmin } from './fake-admin.ts';
import { temporaryFolder } from './rig.ts';

function tokenFile(text: string): string {
  const file = join(temporaryFolder(), 'token');
  writeFileSync(file, text);
  return file;
}

describe('a question to the admin listener', () => {
  it('bears the token and brings back the answer', async () => {
    const admin = await fakeAdmin(({ body }) => ({ status: 200, body: { echo: body } }));
    const answer = await askAdmin({ url: admin.url, path: '/v1/x', tokenFile: tokenFile('hunter2\n'), body: { a: 1 } });
    expect(answer).toEqual({ body: { echo: { a: 1 } } });
    expect(admin.heard).toEqual([{ path: '/v1/x', authorization: 'Bearer hunter2', body: { a: 1 } }]);
  });

  it('does not go through the proxy that the environment names', async () => {
    const admin = await fakeAdmin(() => ({ status: 200, body: {} }));
    process.env['HTTP_PROXY'] = process.env['http_proxy'] = 'http://127.0.0.1:1';
    onTestFinished(() => {
      delete process.env['HTTP_PROXY'];
      delete process.env['http_proxy'];
    });
    expect(await askAdmin({ url: admin.url, path: '/', tokenFile: tokenFile('t'), body: {} })).toEqual({ body: {} });
  });

  it.each([
    {
      name: 'a token that is not accepted',
      status: 401,
      body: {},
      wanted: /does not accept the token of ".*token"; name its own with --token-file/,
    },
    {
      name: 'a refusal with its reason',
      status: 400,
      body: { error: { message: 'url: too long' } },
      wanted: /answered 400: url: too long/,
    },
    { name: 'a refusal without one', status: 500, body: 'null', wanted: /answered 500: no reason given/ },
    { name: 'an answer that is no JSON', status: 200, body: '<html>', wanted: /did not answer with JSON/ },
  ])('reports $name', async ({ status, body, wanted }) => {
    const admin = await fakeAdmin(() => ({ status, body }));
    const answer = await askAdmin({ url: admin.url, path: '/', tokenFile: tokenFile('hunter2'), body: {} });
    expect('problem' in answer && answer.problem).toMatch(wanted);
    expect(JSON.stringify(answer)).not.toContain('hunter2');
  });

  it.each([
    { name: 'a URL that is none', url: 'localhost:9090', token: 't', wanted: /write it like "http:\/\/127\.0\.0\.1:9090"/ },
    { name: 'an empty token file', url: 'http://127.0.0.1:1', token: ' \n', wanted: /holds no admin token/ },
    {
      name: 'a token file that is something else',
      url: 'http://127.0.0.1:1',
      token: 'hunter2 and more\nlines',
      wanted: /holds no admin token/,
    },
  ])('asks nobody with $name', async ({ url, token, wanted }) => {
    const answer = await askAdmin({ url, path: '/', tokenFile: tokenFile(token), body: {} });
    expect('problem' in answer && answer.problem).toMatch(wanted);
    expect(JSON.stringify(answer)).not.toContain('hunter2');
  });

  it('names the token file that cannot be read', async () => {
    const answer = await askAdmin({ url: 'http://127.0.0.1:1', path: '/', tokenFile: '/nowhere/token', body: {} });
    expect(answer).toEqual({ problem: 'cannot read the admin token file "/nowhere/token" (ENOENT); name it with --token-file' });
  });

  it('says where it found nobody', async () => {
    const server = net.createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    const answer = await askAdmin({ url: `http://127.0.0.1:${port}`, path: '/', tokenFile: tokenFile('t'), body: {} });
    expect('problem' in answer && answer.problem).toMatch(/cannot reach .*\(ECONNREFUSED\); is the proxy running/);
  });
});
