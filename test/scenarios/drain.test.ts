// The end of a process through real sockets: what is under way ends well, what comes now is told to come again, and whoever watches
// readiness hears of it before the door is shut.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { gate, inside, verdictIn } from '../support/probes.ts';
import type { Gate } from '../support/probes.ts';
import { openSecureTunnel } from '../support/sandbox-client.ts';

let outside: Outside;
let upstream: Upstream;
let arrived: Gate;
let release: Gate;
let house: House;
/** What the wall clock says */
let now: () => number;

beforeEach(async () => {
  arrived = gate();
  release = gate();
  now = Date.now;
  outside = await openOutside();
  upstream = await startUpstream({
    tls: outside,
    answer: (_seen, response) => {
      arrived.open();
      void release.opened.then(() => response.end('slow'));
    },
  });
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: { allowlist: [{ domain: 'api.test', ports: [upstream.port], addresses: LOOPBACK }] },
    },
    { names: { 'api.test': ['127.0.0.1'] }, now: () => now() },
  );
});

afterEach(async () => {
  release.open();
  await house.stop();
  await upstream.close();
  await outside.close();
});

async function readiness(): Promise<{ readonly status: number; readonly missing: unknown }> {
  const answer = await fetch(`http://127.0.0.1:${house.adminPort}/readyz`, { headers: { connection: 'close' } });
  const { missing } = (await answer.json()) as { readonly missing?: unknown };
  return { status: answer.status, missing };
}

describe('a stop', () => {
  it('lets what is under way end, turns away what comes now, and says so to whoever watches', async () => {
    const to = `api.test:${upstream.port}`;
    const busy = await openSecureTunnel(house, to);
    const late = await openSecureTunnel(house, to);
    const slow = inside(busy, to);
    await arrived.opened;
    expect(await readiness()).toEqual({ status: 200, missing: undefined });

    const stopped = house.app.stop();
    expect(await readiness()).toEqual({ status: 503, missing: ['proxy (shutting down)'] });
    const answer = await inside(late, to);
    expect(verdictIn(answer)).toBe('503 shutting_down');
    expect(answer.headers['connection']).toBe('close');
    late.destroy();

    release.open();
    expect(await slow).toMatchObject({ status: 200, body: 'slow' });
    await stopped;
    await expect(readiness()).rejects.toThrow();
    expect(house.outcomes.map(({ decision, verdict }) => [decision, verdict?.code])).toEqual([
      ['refuse', 'shutting_down'],
      ['allow', undefined],
    ]);
  });
});

describe('readiness', () => {
  it('ends with the CA, while the process is healthy', async () => {
    now = () => Date.UTC(2099, 0, 1);
    expect(await readiness()).toEqual({ status: 503, missing: [expect.stringMatching(/^ca \(expired 20\d\d-/) as string] });
    expect((await fetch(`http://127.0.0.1:${house.adminPort}/healthz`)).status).toBe(200);
  });
});
