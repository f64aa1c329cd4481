import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fetchEnvironment } from '../../src/hooks/fetch-environment.ts';

let answer: (request: http.IncomingMessage, response: http.ServerResponse) => void = () => undefined;
const server = http.createServer((request, response) => answer(request, response));
let admin = '';

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  admin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const fetched = (more: object = {}) => fetchEnvironment({ id: 'env_1', admin, token: 'admin-token', ...more });
const says = (status: number, body: string) => {
  answer = (_request, response) => {
    response.statusCode = status;
    response.end(body);
  };
};

describe('the files of an environment', () => {
  it('are asked for with the admin token, those below .agents alone', async () => {
    let asked: string[] = [];
    answer = ({ url = '', headers }, response) => {
      asked = [url, String(headers.authorization)];
      response.end(JSON.stringify({ sources: [{ target: '.agents/hooks.json', content: '{}' }] }));
    };
    expect(await fetched()).toEqual([{ target: '.agents/hooks.json', content: '{}' }]);
    expect(asked).toEqual(['/v1beta/environments/env_1/sources?under=.agents', 'Bearer admin-token']);
    await fetched({ id: '../credentials' });
    expect(asked[0]).toBe('/v1beta/environments/..%2Fcredentials/sources?under=.agents');
  });

  it.each([
    { name: 'no such environment', status: 404, body: '{"error":{}}', says: 'there is no environment "env_1"' },
    { name: 'no right to it', status: 401, body: '{"error":{}}', says: 'status 401' },
    { name: 'no JSON', status: 200, body: 'ok', says: 'did not give the hooks' },
    { name: 'no list', status: 200, body: '{}', says: 'did not give the hooks' },
    { name: 'a file without content', status: 200, body: '{"sources":[{"target":"a"}]}', says: 'did not give the hooks' },
    {
      name: 'another encoding',
      status: 200,
      body: '{"sources":[{"target":"a","content":"","encoding":"hex"}]}',
      says: 'did not give the hooks',
    },
  ])('are an error where there is $name', async ({ status, body, says: text }) => {
    says(status, body);
    await expect(fetched()).rejects.toThrow(text);
  });

  it.each([
    { name: 'breaks off', act: (response: http.ServerResponse) => void (response.write('{"sources":['), response.destroy()) },
    { name: 'never comes', act: () => undefined },
    { name: 'never ends', act: (response: http.ServerResponse) => void response.write('{') },
  ])('are an error where the answer $name', async ({ act }) => {
    answer = (_request, response) => act(response);
    await expect(fetched({ timeoutMs: 300 })).rejects.toThrow('gave no whole answer');
  });

  it('are an error where nobody listens, or the place is none', async () => {
    await expect(fetched({ admin: 'http://127.0.0.1:1' })).rejects.toThrow('gave no whole answer');
    await expect(fetched({ admin: 'ftp://x' })).rejects.toThrow('no URL of an admin listener');
    await expect(fetched({ admin: 'nowhere' })).rejects.toThrow('no URL of an admin listener');
    await expect(fetched({ token: 'a\r\nb' })).rejects.toThrow('cannot be one');
  });
});
