// Upstreams that speak HTTP/2, asked by a sandbox that speaks HTTP/1.1, through a whole house.
import { afterEach, beforeAll, afterAll, describe, expect, it } from 'vitest';
import { startHttp2Upstream } from '../support/http2-upstream.ts';
import type { Http2Upstream, Http2UpstreamOptions } from '../support/http2-upstream.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';

let outside: Outside;
let upstream: Http2Upstream;
let house: House;

beforeAll(async () => {
  outside = await openOutside();
});

afterAll(() => outside.close());

afterEach(async () => {
  await house.stop();
  await upstream.close();
});

async function open(options: Http2UpstreamOptions = {}, config: object = {}): Promise<void> {
  upstream = await startHttp2Upstream({ tls: outside, ...options });
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: { allowlist: [{ domain: 'api.test', ports: [upstream.port], addresses: LOOPBACK }] },
      ...config,
    },
    { names: { 'api.test': ['127.0.0.1'] } },
  );
}

function url(path: string): string {
  return `https://api.test:${upstream.port}${path}`;
}

describe('an upstream that speaks HTTP/2 only', () => {
  it('answers a GET of HTTP/1.1', async () => {
    await open();
    const answer = await ask(house, url('/hello?x=1'), { fields: 'X-A: 1\r\nX-B: 2\r\nX-A: 3\r\n' });
    expect(answer.status).toBe(200);
    console.log(answer.body, answer.fields);
  });
});
