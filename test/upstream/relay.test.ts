import { once } from 'node:events';
import type net from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Trace } from '../../src/exchange/trace.ts';
import { relay } from '../../src/upstream/relay.ts';
import { startRaw } from '../support/outside.ts';
import type { Upstream } from '../support/outside.ts';
import { connectTo } from '../support/sandbox-client.ts';

let server: Upstream;
let accepted: net.Socket[];

beforeEach(async () => {
  accepted = [];
  server = await startRaw((socket) => accepted.push(socket));
});
afterEach(() => server.close());

/** Both ends of a connection: ours, which is relayed, and the one of whoever we talk to. */
async function pair(): Promise<{ readonly ours: net.Socket; readonly theirs: net.Socket }> {
  const theirs = await connectTo(server.port);
  while (accepted.length === 0) await once(server.server, 'connection');
  return { ours: accepted.shift()!, theirs };
}

const far = { trace: new Trace(), idleMs: 60_000 };

describe('relay', () => {
  it.each([
    { name: 'the sandbox', left: 0, reason: 'client_closed' },
    { name: 'the upstream', left: 1, reason: 'upstream_protocol' },
  ])('ends at once where $name is gone before it begins, and lets go of the other', async ({ left, reason }) => {
    const sides = [await pair(), await pair()] as const;
    const gone = sides[left as 0 | 1].ours;
    gone.destroy();
    await once(gone, 'close');
    expect((await relay(sides[0].ours, sides[1].ours, far))?.code).toBe(reason);
    expect(sides.map(({ ours }) => ours.destroyed)).toEqual([true, true]);
    for (const { theirs } of sides) theirs.destroy();
  });

  it('ends at once where both are gone before it begins', async () => {
    const sides = [await pair(), await pair()] as const;
    const closed = sides.map(({ ours }) => once(ours.destroy(), 'close'));
    await Promise.all(closed);
    expect((await relay(sides[0].ours, sides[1].ours, far))?.code).toBe('client_closed');
    for (const { theirs } of sides) theirs.destroy();
  });

  it('passes on that one side had ended before it began, and hears the other out', async () => {
    const [sandbox, upstream] = [await pair(), await pair()];
    sandbox.theirs.end();
    await once(sandbox.ours.resume(), 'end');
    const over = relay(sandbox.ours, upstream.ours, far);
    await once(upstream.theirs.resume(), 'end');
    const heard = once(sandbox.theirs, 'data');
    upstream.theirs.end('late');
    expect(String((await heard)[0])).toBe('late');
    expect(await over).toBeUndefined();
    for (const { theirs } of [sandbox, upstream]) theirs.destroy();
  });
});
