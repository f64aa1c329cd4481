// Rules in rehearsal and rules that share a domain, through real sockets: monitoring lets pass and records, but never opens the walls;
// of several rules for one domain the first that fits decides, and parts of two never make a third.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { verdictIn, WAYS } from '../support/probes.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
let house: House;

const inAbsoluteForm = WAYS[1]!;
const own = (scheme: 'https' | 'http'): Upstream => (scheme === 'https' ? secure : plain);

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside });
  plain = await startUpstream();
  const rule = { ports: [secure.port, plain.port], addresses: LOOPBACK };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: {
        allowlist: [
          {
            domain: 'several.test',
            methods: ['GET'],
            paths: ['/read/.*'],
            transform: { 'X-Rule': 'reader' },
            allow_plaintext: true,
            ...rule,
          },
          {
            domain: 'several.test',
            methods: ['POST'],
            paths: ['/write'],
            transform: { 'X-Rule': 'writer' },
            allow_plaintext: true,
            ...rule,
          },
          { domain: 'watched.test', methods: ['GET'], paths: ['/public'], enforcement: 'monitor', ...rule },
        ],
      },
    },
    { names: { 'several.test': ['127.0.0.1'], 'watched.test': ['127.0.0.1'] } },
  );
});

afterAll(async () => {
  await house.stop();
  await secure.close();
  await plain.close();
  await outside.close();
});

describe('monitoring', () => {
  it.each(WAYS)('lets pass what the rule would refuse, and records it, $name', async ({ send, scheme }) => {
    const upstream = own(scheme);
    const from = house.outcomes.length;
    expect(verdictIn(await send(house, `watched.test:${upstream.port}`, { method: 'DELETE', path: '/x' }))).toBe(
      '200 from the upstream',
    );
    expect(upstream.seen.at(-1)).toMatchObject({ method: 'DELETE', url: '/x' });
    const { decision, trace } = await house.outcome(({ arrival }) => arrival.method === 'DELETE', from);
    expect([decision, trace.permit?.wouldRefuse]).toEqual(['would_refuse', 'method_denied']);
  });

  it('says nothing of what fits', async () => {
    const from = house.outcomes.length;
    await inAbsoluteForm.send(house, `watched.test:${plain.port}`, { path: '/public' });
    expect((await house.outcome(() => true, from)).decision).toBe('allow');
  });

  it('rehearses an allowlist with a catch-all, without weakening denylist or walls', async () => {
    const rehearsal = await startHouse(
      {
        network: {
          denylist: [{ domain: 'denied.test' }],
          allowlist: [
            { domain: 'known.test', ports: [plain.port], addresses: LOOPBACK },
            { domain: '*', enforcement: 'monitor', ports: [plain.port], addresses: ['127.0.0.1/32'] },
          ],
        },
      },
      {
        names: {
          'known.test': ['127.0.0.1'],
          'new.test': ['127.0.0.1'],
          'walled.test': ['10.0.0.1'],
          'denied.test': ['127.0.0.1'],
        },
      },
    );
    const ask = async (host: string) => {
      const from = rehearsal.outcomes.length;
      const verdict = verdictIn(await inAbsoluteForm.send(rehearsal, `${host}:${plain.port}`));
      return [verdict, (await rehearsal.outcome(() => true, from)).decision];
    };
    expect(await ask('known.test')).toEqual(['200 from the upstream', 'allow']);
    expect(await ask('new.test')).toEqual(['200 from the upstream', 'would_refuse']);
    expect(await ask('walled.test')).toEqual(['403 address_denied', 'refuse']);
    expect(await ask('denied.test')).toEqual(['403 denylisted', 'refuse']);
    await rehearsal.stop();
  });
});

describe('several rules for one domain', () => {
  it.each([
    {
      name: 'the first that fits',
      options: { path: '/read/a' },
      verdict: '200 from the upstream',
      rule: 'several.test',
      put: 'reader',
    },
    {
      name: 'the second where the first does not fit',
      options: { method: 'POST', path: '/write', fields: 'Content-Length: 0\r\n' },
      verdict: '200 from the upstream',
      rule: 'several.test#2',
      put: 'writer',
    },
    {
      name: 'none: the method of one and the path of the other',
      options: { path: '/write' },
      verdict: '403 path_denied',
      rule: 'several.test',
      put: undefined,
    },
    {
      name: 'none: another method',
      options: { method: 'DELETE', path: '/write' },
      verdict: '403 method_denied',
      rule: 'several.test',
      put: undefined,
    },
  ])('$name', async ({ options, verdict, rule, put }) => {
    for (const way of WAYS) {
      const upstream = own(way.scheme);
      const from = house.outcomes.length;
      expect(verdictIn(await way.send(house, `several.test:${upstream.port}`, options))).toBe(verdict);
      const outcome = await house.outcome(() => true, from);
      const decided =
        outcome.verdict !== undefined && 'rule' in outcome.verdict ? outcome.verdict.rule : outcome.trace.permit?.rule.id;
      expect(decided).toBe(rule);
      if (put !== undefined) expect(valuesOf(upstream.seen.at(-1)!.fields, 'x-rule')).toEqual([put]);
    }
  });
});
