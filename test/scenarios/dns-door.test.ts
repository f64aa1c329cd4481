// The DNS door of a whole house: names are judged as requests are, answered with the proxy's own address, and asked of nobody.
import { randomBytes } from 'node:crypto';
import { Resolver } from 'node:dns/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { query, streamed, TcpClient, UdpClient } from '../support/dns-client.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { askAdmin, sampled } from '../support/operator.ts';
import { ask } from '../support/sandbox-client.ts';

const ANSWER = '10.77.0.2';
const OWN = '127.0.0.2';
const OTHER = '127.0.0.3';
const STRANGER = '127.0.0.4';

let house: House;
let port: number;

beforeAll(async () => {
  house = await startHouse(config());
  port = house.app.transparent['dns']?.port ?? 0;
});

afterAll(() => house.stop());

function config(more: readonly object[] = []): object {
  return {
    listen: { proxy: '127.0.0.1:0', transparent: { dns: '127.0.0.1:0', answer: ANSWER, answer6: 'fd00::2' } },
    network: { denylist: [{ domain: '*.denied.test' }] },
    sandboxes: {
      own: {
        sources: [`${OWN}/32`],
        network: {
          allowlist: [
            { domain: 'api.test', ports: [8443], methods: ['GET'], paths: ['/v1/.*'] },
            { domain: '*.wide.test' },
            { domain: 'watched.test', enforcement: 'monitor', methods: ['GET'] },
            ...more,
          ],
        },
      },
      other: { sources: [`${OTHER}/32`], network: { allowlist: [{ domain: '*' }] } },
    },
  };
}

/** What a sandbox hears: the addresses, or why there are none. */
async function hears(name: string, from = OWN): Promise<string> {
  const resolver = new Resolver({ tries: 1, timeout: 5000 });
  resolver.setServers([`127.0.0.1:${port}`]);
  resolver.setLocalAddress(from);
  return resolver.resolve4(name).then(
    (addresses) => addresses.join(),
    (error: unknown) => String((error as { code?: unknown }).code),
  );
}

describe('a name that a sandbox asks for', () => {
  it.each([
    { name: 'allowed by name, whatever its ports, methods and paths', asked: 'api.test', from: OWN, heard: ANSWER },
    { name: 'allowed by a wildcard', asked: 'deep.down.wide.test', from: OWN, heard: ANSWER },
    { name: 'allowed in another case', asked: 'API.Test', from: OWN, heard: ANSWER },
    { name: 'the apex of a wildcard', asked: 'wide.test', from: OWN, heard: 'ENOTFOUND' },
    { name: 'below an exact name', asked: 'x.api.test', from: OWN, heard: 'ENOTFOUND' },
    { name: 'not on its own allowlist, but on that of another', asked: 'elsewhere.test', from: OWN, heard: 'ENOTFOUND' },
    { name: 'on the allowlist of the other', asked: 'elsewhere.test', from: OTHER, heard: ANSWER },
    { name: 'denied, for whom everything else is allowed', asked: 'x.denied.test', from: OTHER, heard: 'ENOTFOUND' },
    { name: 'its own loopback, for whom everything is allowed', asked: 'localhost', from: OTHER, heard: 'ENOTFOUND' },
    {
      name: 'of an address inside, for whom everything is allowed',
      asked: '1.0.168.192.in-addr.arpa',
      from: OTHER,
      heard: 'ENOTFOUND',
    },
    { name: 'asked for by a stranger', asked: 'api.test', from: STRANGER, heard: 'EREFUSED' },
  ])('$name', async ({ asked, from, heard }) => {
    expect(await hears(asked, from)).toBe(heard);
    expect(house.resolved).toEqual([]);
  });

  it('leaves a line in the ledger, with the decision and its rule', async () => {
    await hears('one.wide.test');
    await hears('not.there.test');
    await hears('y.denied.test', OTHER);
    await hears('api.test', STRANGER);
    const lines = (await house.audit()).filter(({ protocol }) => protocol === 'dns');
    const of = (host: string, sandbox: string | null): unknown =>
      lines.filter((line) => line['host'] === host && line['sandbox'] === sandbox).at(-1);
    const common = {
      door: 'transparent',
      protocol: 'dns',
      method: 'QUERY',
      credentials: [],
      address: null,
      status: null,
      bytes_sent: 0,
    };
    expect(of('one.wide.test', 'own')).toMatchObject({ ...common, decision: 'allow', reason: null, rule: '*.wide.test' });
    expect(of('not.there.test', 'own')).toMatchObject({ ...common, decision: 'refuse', reason: 'not_allowlisted', rule: null });
    expect(of('y.denied.test', 'other')).toMatchObject({
      ...common,
      decision: 'refuse',
      reason: 'denylisted',
      rule: 'deny *.denied.test',
    });
    expect(of('api.test', null)).toMatchObject({ ...common, decision: 'refuse', reason: 'sandbox_unauthenticated' });
    const scrape = await house.scrape();
    const counted = {
      decision: 'refuse',
      reason: 'denylisted',
      rule: 'deny *.denied.test',
      protocol: 'dns',
      status_class: 'none',
    };
    expect(sampled(scrape, 'sallyport_requests_total', counted)).toBeGreaterThanOrEqual(1);
  });

  it('is let pass by a rule under monitor', async () => {
    expect(await hears('watched.test')).toBe(ANSWER);
  });

  it('is told to the operator with the rule that would allow it', async () => {
    await hears('wanted.test');
    const { text } = await askAdmin(house, '/v1/denials');
    expect(text).toContain('"domain":"wanted.test"');
  });

  it('is judged by the policy of that moment', async () => {
    expect(await hears('soon.test')).toBe('ENOTFOUND');
    await house.reconfigure(config([{ domain: 'soon.test' }]));
    expect(await hears('soon.test')).toBe(ANSWER);
    await house.reconfigure(config());
    expect(await hears('soon.test')).toBe('ENOTFOUND');
  });
});

describe('a name that is to carry something out', () => {
  const smuggled = (suffix: string): string => `${randomBytes(31).toString('hex')}.${randomBytes(31).toString('hex')}.${suffix}`;

  it.each([
    {
      name: 'below a domain that is refused is asked of nobody',
      suffix: 'evil.test',
      heard: 'ENOTFOUND',
      reason: 'not_allowlisted',
    },
    {
      name: 'below a wildcard that is allowed is answered here, and asked of nobody',
      suffix: 'wide.test',
      heard: ANSWER,
      reason: null,
    },
  ])('$name', async ({ suffix, heard, reason }) => {
    const names = Array.from({ length: 50 }, () => smuggled(suffix));
    expect([...new Set(await Promise.all(names.map((name) => hears(name))))]).toEqual([heard]);
    expect(house.resolved).toEqual([]);
    const lines = (await house.audit()).filter(({ host }) => names.includes(host as string));
    expect(lines).toHaveLength(names.length);
    expect(lines.every((line) => line['reason'] === reason && line['sandbox'] === 'own')).toBe(true);
  });

  it('has nowhere else to put it: other types and classes, options and transfers are asked of nobody either', async () => {
    const client = await UdpClient.open(port, OWN);
    for (const type of ['TXT', 'NULL', 'MX', 'SRV', 'CNAME'] as const) {
      const reply = await client.ask(query(smuggled('wide.test'), { type, edns: 1232 }));
      expect([reply.rcode, reply.answers]).toEqual(['NOERROR', []]);
    }
    expect((await client.ask(query('wide.test', { type: 'AXFR' }))).rcode).toBe('REFUSED');
    client.close();
    expect(house.resolved).toEqual([]);
  });
});

describe('what is no question', () => {
  it('leaves a line too, and what gets no answer is counted', async () => {
    const after = house.outcomes.length;
    const client = await UdpClient.open(port, OWN);
    expect((await client.ask(query('api.test').subarray(0, 20))).rcode).toBe('FORMERR');
    expect(house.outcomes.slice(after)).toMatchObject([{ decision: 'refuse', verdict: { code: 'bad_request' } }]);
    const before = sampled(await house.scrape(), 'sallyport_dns_dropped_total', { reason: 'malformed' });
    client.send(Buffer.from('?'));
    await client.ask(query('api.test'));
    client.close();
    expect(sampled(await house.scrape(), 'sallyport_dns_dropped_total', { reason: 'malformed' })).toBe(before + 1);
  });

  it('nor is a flood: it is cut off, counted, and the other sandbox hears its answers', async () => {
    const flood = new TcpClient(port, OTHER);
    const many = Array.from({ length: 1500 }, () => query('elsewhere.test'));
    flood.socket.write(streamed(...many));
    await flood.closed();
    expect(flood.answers.length).toBeLessThan(1500);
    expect(await hears('api.test')).toBe(ANSWER);
    expect(sampled(await house.scrape(), 'sallyport_dns_dropped_total', { reason: 'rate' })).toBeGreaterThanOrEqual(1);
  });
});

it('the door is no place to be sent to, not even by a rule that opens its address', async () => {
  const listen = { proxy: '127.0.0.1:0', transparent: { dns: '127.0.0.1:0', answer: ANSWER } };
  const own = await startHouse({ listen });
  const at = own.app.transparent['dns']?.port ?? 0;
  await own.reconfigure({ listen, network: { allowlist: [{ domain: '127.0.0.1', ports: [at], addresses: LOOPBACK }] } });
  expect(await ask(own, `http://127.0.0.1:${at}/`)).toMatchObject({
    status: 403,
    body: expect.stringContaining('address_denied') as string,
  });
  await own.stop();
});

it('the door is shut with the house', async () => {
  const own = await startHouse(config());
  const at = own.app.transparent['dns']?.port ?? 0;
  const idle = new TcpClient(at, OWN);
  idle.socket.write(streamed(query('api.test')));
  await idle.whenAnswered(1);
  await own.stop();
  await idle.closed();
  const late = new TcpClient(at, OWN);
  await late.closed();
  expect(late.answers).toEqual([]);
});
