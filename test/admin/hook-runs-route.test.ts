import { once } from 'node:events';
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startAdmin } from '../../src/admin/admin-server.ts';
import type { AdminServer } from '../../src/admin/admin-server.ts';
import { hookRunsRoute } from '../../src/admin/hook-runs-route.ts';
import type { CountedRun } from '../../src/exchange/hook-words.ts';
import { createLogger } from '../../src/foundation/logger.ts';

const TOKEN = 'tok-0123456789abcdef';
const RUN = { event: 'PreToolUse', handler: 'command', outcome: 'deny', duration_ms: 12.5 };

let admin: AdminServer;
let counted: CountedRun[];

beforeEach(async () => {
  counted = [];
  admin = await startAdmin({
    host: '127.0.0.1',
    port: 0,
    token: TOKEN,
    ready: () => [],
    scrape: async () => ({ contentType: 'text/plain', body: '' }),
    reload: async () => ({ outcome: 'unchanged', generation: 1, problems: [] }),
    explain: () => ({}),
    status: () => ({}),
    denials: () => [],
    routes: [hookRunsRoute((run) => counted.push(run))],
    log: createLogger({ level: 'error', stream: { write: () => undefined } }),
  });
});
afterEach(() => admin.close());

interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly text: string;
}

async function post(body: string, token = TOKEN): Promise<Answer> {
  const asked = request({
    host: '127.0.0.1',
    port: admin.address.port,
    method: 'POST',
    path: '/v1/hook-runs',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    agent: false,
  });
  asked.end(body);
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += String(chunk);
  return { status: response.statusCode ?? 0, headers: response.headers, text };
}

describe('POST /v1/hook-runs', () => {
  it('counts each run and answers 204 without a body', async () => {
    const answer = await post(JSON.stringify({ runs: [RUN, { ...RUN, handler: 'http', outcome: 'timeout', duration_ms: 0 }] }));
    expect(answer).toMatchObject({ status: 204, text: '' });
    expect(answer.headers).not.toHaveProperty('content-length');
    expect(answer.headers).not.toHaveProperty('content-type');
    expect(counted).toEqual([
      { event: 'PreToolUse', handler: 'command', outcome: 'deny', durationMs: 12.5 },
      { event: 'PreToolUse', handler: 'http', outcome: 'timeout', durationMs: 0 },
    ]);
  });

  it('takes a report of no runs, and one of 1,000', async () => {
    expect((await post('{"runs":[]}')).status).toBe(204);
    expect((await post(JSON.stringify({ runs: Array.from({ length: 1_000 }, () => RUN) }))).status).toBe(204);
    expect(counted).toHaveLength(1_000);
  });

  it.each([
    { name: 'no body', body: '', says: 'body: ' },
    { name: 'a list', body: '[]', says: 'body: ' },
    { name: 'no runs', body: '{}', says: 'runs: ' },
    { name: 'an unknown key', body: { runs: [], host: 'a' }, says: 'host' },
    { name: 'an unknown key of a run', body: { runs: [{ ...RUN, tool: 'x' }] }, says: 'runs.0: ' },
    {
      name: 'a missing key',
      body: { runs: [{ event: 'Stop', handler: 'http', outcome: 'none' }] },
      says: 'runs.0.duration_ms: ',
    },
    { name: 'an event in another case', body: { runs: [{ ...RUN, event: 'pretooluse' }] }, says: 'runs.0.event: ', fault: 'L02' },
    { name: 'another kind of handler', body: { runs: [{ ...RUN, handler: 'prompt' }] }, says: 'runs.0.handler: ', fault: 'L02' },
    {
      name: 'an outcome of its own',
      body: { runs: [{ ...RUN, outcome: 'evil.example' }] },
      says: 'runs.0.outcome: ',
      fault: 'L02',
    },
    { name: 'a duration below zero', body: { runs: [{ ...RUN, duration_ms: -1 }] }, says: 'runs.0.duration_ms: ' },
    { name: 'a duration of more than a day', body: { runs: [{ ...RUN, duration_ms: 86_400_001 }] }, says: 'duration_ms: ' },
    { name: 'a duration as text', body: { runs: [{ ...RUN, duration_ms: '5' }] }, says: 'duration_ms: ' },
    { name: 'an endless duration', body: JSON.stringify({ runs: [RUN] }).replace('12.5', '1e999'), says: 'duration_ms: ' },
    { name: '1,001 runs', body: { runs: Array.from({ length: 1_001 }, () => RUN) }, says: 'runs: ' },
    { name: 'a wrong run behind a right one', body: { runs: [RUN, { ...RUN, event: '' }] }, says: 'runs.1.event: ' },
  ])('refuses $name and counts nothing', async ({ body, says }) => {
    const answer = await post(typeof body === 'string' ? body : JSON.stringify(body));
    expect(answer.status).toBe(400);
    const { error } = JSON.parse(answer.text) as { error: { code: string; message: string } };
    expect(error.code).toBe('invalid_request');
    expect(error.message).toContain('expected {"runs"');
    expect(error.message).toContain(says);
    expect(error.message.length).toBeLessThan(2_000);
    expect(counted).toEqual([]);
  });

  it('refuses a body over 256 KiB, and one without the token', async () => {
    const large = await post(JSON.stringify({ runs: [{ ...RUN, event: 'x'.repeat(256 * 1024) }] }));
    expect(large.status).toBe(413);
    expect(large.text).toContain('262144 bytes');
    expect((await post(JSON.stringify({ runs: [RUN] }), 'wrong')).status).toBe(401);
    expect(counted).toEqual([]);
  });
});
