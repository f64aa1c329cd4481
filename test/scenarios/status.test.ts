// `/v1/status` of a proxy that keeps much: it lists so many and no more, and says so.
import { afterAll, beforeAll, expect, it } from 'vitest';
import { rest } from '../support/admin-rest.ts';
import { startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { askAdmin } from '../support/operator.ts';

let house: House;

beforeAll(async () => {
  house = await startHouse({});
});
afterAll(() => house.stop());

/** A few at a time. */
async function makeMany(path: 'credentials' | 'environments', from: number, to: number): Promise<void> {
  let next = from;
  const make = async (): Promise<void> => {
    while (next < to) {
      const at = (next += 1);
      const body =
        path === 'credentials'
          ? { type: 'bearer_token', id: `c${at}`, token: `a-token-that-is-number-${at}` }
          : { network: 'disabled' };
      expect((await rest(house, `POST /v1beta/${path}`, body)).status).toBe(200);
    }
  };
  await Promise.all(Array.from({ length: 16 }, make));
}

it.each(['credentials', 'environments'] as const)(
  'lists 1,000 stored %s, and says so where there are more',
  async (path) => {
    const said = async () => {
      const { [path]: listed, [`${path}_truncated`]: truncated } = (await askAdmin(house, '/v1/status')).json;
      return [(listed as unknown[]).length, truncated];
    };
    await makeMany(path, 0, 1_000);
    expect(await said()).toEqual([1_000, undefined]);
    await makeMany(path, 1_000, 1_001);
    expect(await said()).toEqual([1_000, true]);
  },
  60_000,
);
