import { describe, expect, it } from 'vitest';
import { createLogger } from '../../src/foundation/logger.ts';
import { UnderWay } from '../../src/record/under-way.ts';
import { gate } from '../support/probes.ts';
import { outcome } from './outcomes.ts';

const logged: string[] = [];
const log = createLogger({ stream: { write: (text) => logged.push(text) } });
const request = outcome();
const connect = outcome({ purpose: 'tunnel' });

/** Resolves with whether the promise settles before anything else that is due now has happened. */
async function isDone(promise: Promise<unknown>): Promise<boolean> {
  let done = false;
  void promise.then(() => (done = true));
  await new Promise((resolve) => setImmediate(resolve));
  return done;
}

describe('UnderWay', () => {
  it('has nothing to wait for before the first exchange', async () => {
    expect(await isDone(new UnderWay().settle(log))).toBe(true);
  });

  it('waits for the line of each exchange, not for the end of its journey', async () => {
    const underWay = new UnderWay();
    const egress = underWay.watch(() => Promise.resolve());
    await egress(request.arrival);
    await egress(request.arrival);
    const settled = underWay.settle(log);
    underWay.recorded(request);
    expect(await isDone(settled)).toBe(false);
    underWay.recorded(request);
    expect(await isDone(settled)).toBe(true);
  });

  it('waits for the end of a tunnel, which may come without a line or with one', async () => {
    const underWay = new UnderWay();
    const ends = [gate(), gate()];
    let turn = 0;
    const egress = underWay.watch(() => ends[turn++]!.opened);
    void egress(connect.arrival);
    void egress(connect.arrival);
    const settled = underWay.settle(log);
    underWay.recorded(connect);
    ends[0]!.open();
    expect(await isDone(settled)).toBe(false);
    ends[1]!.open();
    expect(await isDone(settled)).toBe(true);
    expect(logged).toEqual([]);
  });

  it('does not wait for ever, and says how many lines are missing', async () => {
    const underWay = new UnderWay();
    void underWay.watch(() => new Promise(() => undefined))(request.arrival);
    await underWay.settle(log);
    expect(logged.map((line) => JSON.parse(line) as unknown)).toMatchObject([{ level: 'error', count: 1 }]);
  });
});
