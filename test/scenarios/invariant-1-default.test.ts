// Invariant 1 of the design through real sockets: deny by default. No allowlist, an empty one, a disabled network, a config that cannot
// be, a resolver that throws or never answers: refused each time, with no way around it by CONNECT or in absolute-form.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import { startRaw } from '../support/outside.ts';
import type { Upstream } from '../support/outside.ts';
import { gate, verdictIn, WAYS } from '../support/probes.ts';
import { sendRaw } from '../support/sandbox-client.ts';

describe('invariant 1: denies by default', () => {
  let canary: Upstream;

  beforeAll(async () => {
    canary = await startRaw((socket) => socket.end());
  });

  afterAll(() => canary.close());

  const closedConfigs = [
    { name: 'no network at all', config: {} },
    { name: 'a network without an allowlist', config: { network: {} } },
    { name: 'an empty allowlist', config: { network: { allowlist: [] } }, fault: 'B03' },
    { name: 'network: disabled', config: { network: 'disabled' } },
    { name: 'a denylist alone', config: { network: { denylist: [{ domain: 'other.test' }] } } },
    { name: 'a rule for another host', config: { network: { allowlist: [{ domain: 'other.test' }] } } },
    {
      name: 'a sandbox whose own network is disabled under an open one',
      config: {
        network: { allowlist: [{ domain: '*' }] },
        sandboxes: { here: { sources: LOOPBACK, network: 'disabled' } },
      },
    },
  ];

  it.each(closedConfigs)('refuses everything under $name', async ({ config }) => {
    const house = await startHouse(config, { names: { 'open.test': ['127.0.0.1'] } });
    try {
      for (const { send } of WAYS) {
        for (const authority of ['open.test:443', 'open.test:80', `open.test:${canary.port}`, `127.0.0.1:${canary.port}`]) {
          expect([authority, verdictIn(await send(house, authority))]).toEqual([authority, '403 not_allowlisted']);
        }
      }
      expect(house.resolved).toEqual([]);
      expect(canary.connections).toBe(0);
    } finally {
      await house.stop();
    }
  });

  it.each([
    { name: 'a null network', config: { network: null } },
    { name: 'a null allowlist', config: { network: { allowlist: null } } },
    { name: 'an unknown key', config: { network: { allow_list: [] } } },
    { name: 'an unknown word in place of a network', config: { network: 'open' } },
  ])('does not start with $name', async ({ config }) => {
    await expect(startHouse(config)).rejects.toThrow(/network/); // fault B03
  });

  const resolvers = [
    { name: 'answers never', answer: () => new Promise<never>(() => undefined), verdict: '502 dns_failed' },
    {
      name: 'throws',
      answer: (): never => {
        throw new Error('the resolver is broken');
      },
      verdict: '502 dns_failed',
    },
    { name: 'finds no address', answer: () => [], verdict: '502 dns_failed' },
    { name: 'answers with a name', answer: () => ['localhost'], verdict: '403 address_denied' },
    { name: 'answers with an odd spelling', answer: () => ['0x7f.1'], verdict: '403 address_denied' },
    { name: 'answers with no text at all', answer: () => [7] as unknown as string[], verdict: '500 internal_error' },
    { name: 'answers with no list', answer: () => null as unknown as string[], verdict: '502 dns_failed' },
  ];

  it.each(resolvers)('refuses when the resolver $name, and lives on', async ({ answer, verdict }) => {
    const house = await startHouse(
      {
        network: { allowlist: [{ domain: 'open.test', ports: [canary.port], addresses: LOOPBACK }] },
        limits: { timeouts: { dns: '50ms' } },
      },
      { names: { 'open.test': answer } },
    );
    try {
      const before = canary.connections;
      for (const { send } of WAYS) expect(verdictIn(await send(house, `open.test:${canary.port}`))).toBe(verdict);
      expect(house.resolved).toEqual(['open.test', 'open.test']);
      expect(canary.connections).toBe(before);
    } finally {
      await house.stop();
    }
  });

  it('survives a resolver that answers after its deadline', async () => {
    const late = gate<string[]>();
    const house = await startHouse(
      {
        network: { allowlist: [{ domain: 'open.test', ports: [canary.port], addresses: LOOPBACK }] },
        limits: { timeouts: { dns: '50ms' } },
      },
      { names: { 'open.test': () => late.opened } },
    );
    try {
      const before = canary.connections;
      const answer = await sendRaw(
        house.port,
        `GET http://open.test:${canary.port}/ HTTP/1.1\r\nHost: open.test:${canary.port}\r\n\r\n`,
      );
      expect(verdictIn(answer)).toBe('502 dns_failed');
      late.open(['127.0.0.1']);
      expect(verdictIn(await WAYS[1]!.send(house, 'other.test:80'))).toBe('403 not_allowlisted');
      expect(canary.connections).toBe(before);
    } finally {
      await house.stop();
    }
  });
});
