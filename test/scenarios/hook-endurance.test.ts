// A runner that is asked all day: a thousand events in a row leave no process, no descriptor and no growing memory behind.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createHooks, openHookLedger, runHooks } from '../../src/hooks/index.ts';
import type { HookOptions } from '../../src/hooks/index.ts';
import { children, openDescriptors } from '../hooks/children.ts';
import { openHookWorkspace } from '../support/hook-workspace.ts';
import type { HookWorkspace } from '../support/hook-workspace.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';

const CALL = { tool_call: { name: 'view_file', args: { path: '/workspace/a' } }, environment_id: 'env_1' };
const MIB = 1024 * 1024;

let space: HookWorkspace;
let outside: Outside;
let endpoint: Upstream;
let house: House;
let options: HookOptions;

beforeAll(async () => {
  outside = await openOutside();
  endpoint = await startUpstream({ tls: outside, answer: (_, response) => response.end('{}') });
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: { allowlist: [{ domain: 'hooks.test', ports: [endpoint.port], addresses: LOOPBACK }] },
    },
    { names: { 'hooks.test': ['127.0.0.1'] } },
  );
  space = await openHookWorkspace({
    gate: { pre_tool_execution: [{ matcher: '.*_file', hooks: [{ type: 'command', command: 'true' }] }] },
    audit: { post_tool_execution: [{ hooks: [{ type: 'http', url: `https://hooks.test:${endpoint.port}/` }] }] },
  });
  options = {
    workspace: space.folder,
    home: space.home,
    proxy: `http://127.0.0.1:${house.port}`,
    ca: [house.ca],
    ledger: openHookLedger({ path: space.at('audit.ndjson'), spool: `${space.home}/spool` }),
    env: { PATH: process.env['PATH'] },
  };
});
afterAll(async () => {
  await house.stop();
  await endpoint.close();
  await outside.close();
  await space.close();
});

/** The least of some looks at resident memory: what is there between two collections says nothing. */
class Memory {
  #least = Number.POSITIVE_INFINITY;
  look(): void {
    this.#least = Math.min(this.#least, process.memoryUsage().rss);
  }
  get least(): number {
    return this.#least;
  }
}

describe('events without end', () => {
  it('of commands, a thousand in a row, leave no zombie, no descriptor and no growing memory', { timeout: 240_000 }, async () => {
    for (let i = 0; i < 50; i += 1) await runHooks('pre_tool_execution', CALL, options);
    const descriptors = openDescriptors();
    const [early, late] = [new Memory(), new Memory()];
    for (let i = 0; i < 1000; i += 1) {
      const { output, recorded } = await runHooks('pre_tool_execution', CALL, options);
      if (output.decision !== 'allow') throw new Error('every one of them allows');
      await recorded;
      if (i < 250) early.look();
      if (i >= 750) late.look();
    }
    expect(children()).toEqual([]); // fault M02
    expect(openDescriptors()).toBeLessThanOrEqual(descriptors);
    expect(late.least - early.least).toBeLessThan(32 * MIB); // fault M05
    expect(await space.lines('audit.ndjson')).toHaveLength(1050);
  });

  it('posted, a runner for each or one for all, leave no descriptor', { timeout: 120_000 }, async () => {
    const posts = async (times: number): Promise<void> => {
      for (let i = 0; i < times; i += 1) await runHooks('post_tool_execution', CALL, options);
      const hooks = createHooks(options);
      for (let i = 0; i < times; i += 1) await hooks.run('post_tool_execution', CALL);
      await hooks.close();
    };
    await posts(5);
    const connections = endpoint.connections;
    const descriptors = openDescriptors();
    const seen = endpoint.seen.length;
    await posts(50);
    expect(endpoint.seen.length - seen).toBe(100);
    // The door keeps its connections to the endpoint; a runner's own end with it.
    expect(endpoint.connections - connections).toBeLessThanOrEqual(2);
    expect(openDescriptors()).toBeLessThanOrEqual(descriptors + 2);
  });

  it('that come all at once are answered each by its own hook', async () => {
    const ends = await Promise.all(
      Array.from({ length: 40 }, (_, index) =>
        runHooks('pre_tool_execution', { ...CALL, action_id: `act_${index}` }, options).then(
          ({ verdict }) => verdict.runs[0]?.outcome,
        ),
      ),
    );
    expect(new Set(ends)).toEqual(new Set(['none']));
    expect(children()).toEqual([]); // fault M02
  });
});
