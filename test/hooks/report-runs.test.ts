import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createReport } from '../../src/hooks/report-runs.ts';
import { event, http, run } from './samples.ts';

interface Asked {
  readonly method: string | undefined;
  readonly url: string | undefined;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

let server: Server;
let admin: string;
let asked: Asked[];
let answer: (response: ServerResponse) => void;

beforeEach(async () => {
  asked = [];
  answer = (response) => response.writeHead(204).end();
  server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (chunk) => (body += String(chunk)));
    request.on('end', () => {
      asked.push({ method: request.method, url: request.url, headers: request.headers, body });
      answer(response);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  admin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  server.closeAllConnections();
  server.close();
  await once(server, 'close');
});

const failed = run({ handler: http(), outcome: 'timeout', raw: { ...run().raw, durationMs: 1_000 } });

describe('createReport', () => {
  it('posts the runs of an event with the token, in the words of the metrics and no others', async () => {
    expect(await createReport({ admin, token: 'tok' })(event(), [run(), failed])).toBe(true);
    expect(asked).toHaveLength(1);
    expect(asked[0]).toMatchObject({
      method: 'POST',
      url: '/v1/hook-runs',
      headers: { authorization: 'Bearer tok', 'content-type': 'application/json', host: admin.slice('http://'.length) },
    });
    expect(JSON.parse(asked[0]?.body ?? '')).toEqual({
      runs: [
        { event: 'PreToolUse', handler: 'command', outcome: 'allow', duration_ms: 12.5 },
        { event: 'PreToolUse', handler: 'http', outcome: 'timeout', duration_ms: 1_000 },
      ],
    });
  });

  it('asks nothing where nothing ran', async () => {
    expect(await createReport({ admin, token: 'tok' })(event(), [])).toBe(true);
    expect(asked).toEqual([]);
  });

  it('keeps a duration within what the listener takes', async () => {
    const odd = [-1, 1e9].map((durationMs) => run({ raw: { ...run().raw, durationMs } }));
    await createReport({ admin, token: 'tok' })(event(), odd);
    const { runs } = JSON.parse(asked[0]?.body ?? '') as { runs: { duration_ms: number }[] };
    expect(runs.map(({ duration_ms }) => duration_ms)).toEqual([0, 86_400_000]);
  });

  it.each([
    { name: 'another status', answer: (response: ServerResponse) => response.writeHead(400).end() },
    { name: 'a redirect', answer: (response: ServerResponse) => response.writeHead(307, { location: `${admin}/other` }).end() },
    { name: 'an end in the middle', answer: (response: ServerResponse) => response.destroy() },
  ])('gives false for $name, and does not ask again', async ({ answer: other }) => {
    answer = other;
    expect(await createReport({ admin, token: 'tok' })(event(), [run()])).toBe(false);
    expect(asked).toHaveLength(1);
  });

  it('gives up in time where no answer comes', async () => {
    answer = () => undefined;
    const begun = performance.now();
    expect(await createReport({ admin, token: 'tok', timeoutMs: 50 })(event(), [run()])).toBe(false);
    expect(performance.now() - begun).toBeLessThan(1_000);
  });

  it.each([
    { name: 'a URL that is none', options: { admin: 'nowhere', token: 'tok' } },
    { name: 'another scheme', options: { admin: 'https://127.0.0.1:1', token: 'tok' } },
    { name: 'a port where nobody listens', options: { admin: 'http://127.0.0.1:1', token: 'tok' } },
    { name: 'a token that no header can bear', options: { admin: 'http://127.0.0.1:1', token: 'a\r\nb' } },
  ])('gives false for $name', async ({ options }) => {
    expect(await createReport(options)(event(), [run()])).toBe(false);
  });

  it('goes straight to the listener, whatever proxy the environment names', async () => {
    const earlier = process.env['HTTP_PROXY'];
    process.env['HTTP_PROXY'] = 'http://127.0.0.1:1';
    try {
      expect(await createReport({ admin, token: 'tok' })(event(), [run()])).toBe(true);
    } finally {
      if (earlier === undefined) delete process.env['HTTP_PROXY'];
      else process.env['HTTP_PROXY'] = earlier;
    }
  });
});
