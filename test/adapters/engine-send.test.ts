import type net from 'node:net';
import { expect, it } from 'vitest';
import { openRoad } from '../../src/adapters/engine-send.ts';
import { Trace } from '../../src/exchange/trace.ts';
import { createTrust } from '../../src/upstream/secure.ts';
import { ceilingAt, exchangeArrival, routeOf, TEST_LIMITS } from '../support/arrivals.ts';
import { startRaw } from '../support/outside.ts';
import { connectTo } from '../support/sandbox-client.ts';

it('gives connect and handshake one deadline together', async () => {
  const silent = await startRaw(() => undefined);
  const connectMs = 1000;
  const dial = async (): Promise<net.Socket> => {
    // An upstream whose connection takes most of the time that there is.
    await new Promise((resolve) => setTimeout(resolve, 750));
    return connectTo(silent.port);
  };
  const route = routeOf(exchangeArrival({ ceiling: ceilingAt('api.test:443') }));
  const begun = performance.now();
  const opened = openRoad({ dial, trust: () => createTrust([]) }, route, {
    trace: new Trace(),
    limits: { ...TEST_LIMITS, connectMs },
  });
  await expect(opened).rejects.toMatchObject({ code: 'upstream_timeout' });
  expect(performance.now() - begun).toBeLessThan(connectMs + 500);
  await silent.close();
});
