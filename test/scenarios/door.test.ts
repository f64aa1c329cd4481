// The main job through real sockets: allowed and credentialed, refused, recorded.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { countOf, openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
let house: House;

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside });
  plain = await startUpstream();
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      credentials: { gh: { type: 'bearer_token', token: { env: 'GH' } } },
      network: {
        denylist: [{ domain: 'blocked.test' }],
        allowlist: [
          {
            domain: 'api.test',
            credential: 'gh',
            transform: { 'X-Env': 'prod' },
            ports: [443, secure.port],
            addresses: LOOPBACK,
          },
          { domain: 'plain.test', ports: [plain.port], addresses: LOOPBACK },
          { domain: '*' },
        ],
      },
    },
    { names: { 'api.test': ['127.0.0.1'], 'plain.test': ['127.0.0.1'] }, env: { GH: 'marker-secret' } },
  );
});

afterAll(async () => {
  await house.stop();
  await secure.close();
  await plain.close();
  await outside.close();
});

describe('the door', () => {
  it('lets an allowed request out with the credential and the transform put on exactly once', async () => {
    const answer = await ask(house, `https://api.test:${secure.port}/a?b=1`, {
      fields: 'authorization: mine\r\nAUTHORIZATION: two\r\n',
    });
    expect(answer.status).toBe(200);
    const seen = secure.seen.at(-1)!;
    expect(seen.url).toBe('/a?b=1');
    expect(countOf(seen.fields, 'authorization')).toBe(1);
    expect(valuesOf(seen.fields, 'authorization')).toEqual(['Bearer marker-secret']);
    expect(valuesOf(seen.fields, 'x-env')).toEqual(['prod']);
  });

  it('relays a plain request in absolute-form', async () => {
    const answer = await ask(house, `http://plain.test:${plain.port}/x`, {
      method: 'POST',
      fields: 'Content-Length: 5\r\n',
      body: 'hello',
    });
    expect(answer.status).toBe(200);
    expect(plain.seen.at(-1)).toMatchObject({ method: 'POST', url: '/x', body: 'hello' });
  });

  it('refuses a denylisted name on the CONNECT itself, with the reason', async () => {
    const answer = await ask(house, 'https://blocked.test/');
    expect(answer.status).toBe(403);
    expect(answer.headers['x-sallyport-reason']).toBe('denylisted');
    expect(JSON.parse(answer.body)).toMatchObject({ code: 'denylisted', status: 403 });
  });
});
