// Invariant 7 of the design through real sockets: one policy for one exchange. Exchanges are held at each stage while the operator
// reloads; those under way keep what they were judged by, the next one is judged anew, and a bad file changes nothing but what is said.
import tls from 'node:tls';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { askAdmin, sampled, writeConfig } from '../support/operator.ts';
import { openOutside, startRaw, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { gate, inside, verdictIn, WAYS } from '../support/probes.ts';
import type { Gate } from '../support/probes.ts';
import { openSecureTunnel } from '../support/sandbox-client.ts';

let outside: Outside;
let plain: Upstream;
let secure: Upstream;
let house: House;
/** Opened when a request for `/slow` has come to an upstream; `release` lets its answer out */
let arrived: Gate;
let release: Gate;
/** Opened when the resolver is asked; `resolved` lets its answer out */
let asked: Gate;
let resolved: Gate;

const inAbsoluteForm = WAYS[1]!;

beforeAll(async () => {
  outside = await openOutside();
  const answer: NonNullable<Parameters<typeof startUpstream>[0]>['answer'] = (seen, response) => {
    if (seen.url !== '/slow') {
      response.end('quick');
      return;
    }
    arrived.open();
    void release.opened.then(() => response.end('slow'));
  };
  plain = await startUpstream({ answer });
  secure = await startUpstream({ tls: outside, answer });
});

afterAll(async () => {
  await plain.close();
  await secure.close();
  await outside.close();
});

beforeEach(async () => {
  arrived = gate();
  release = gate();
  asked = gate();
  resolved = gate();
  house = await startHouse(first(), {
    names: {
      'api.test': ['127.0.0.1'],
      'held.test': async () => {
        asked.open();
        await resolved.opened;
        return ['127.0.0.1'];
      },
    },
  });
});

afterEach(() => house.stop());

/** The config at the start: both hosts allowed, with one value put on. */
function first(value = 'first') {
  const rule = {
    ports: [plain.port, secure.port],
    addresses: LOOPBACK,
    transform: { 'X-Generation': value },
    allow_plaintext: true,
  };
  return {
    upstream: { ca: [outside.caPath] },
    network: {
      allowlist: [
        { domain: 'api.test', ...rule },
        { domain: 'held.test', ...rule },
      ],
    },
  };
}

const nothing = { network: { allowlist: [] } };

function generations(upstream: Upstream): string[] {
  return upstream.seen.flatMap(({ fields }) => valuesOf(fields, 'x-generation'));
}

describe('invariant 7: one policy for one exchange', () => {
  it('lets an exchange end that waits for its upstream while its host is taken off the list', async () => {
    const slow = inAbsoluteForm.send(house, `api.test:${plain.port}`, { path: '/slow' });
    await arrived.opened;
    await house.reconfigure({ ...nothing, upstream: { ca: [outside.caPath] } });
    expect(verdictIn(await inAbsoluteForm.send(house, `api.test:${plain.port}`))).toBe('403 not_allowlisted');
    release.open();
    expect(await slow).toMatchObject({ status: 200, body: 'slow' });
    const { decision } = await house.outcome(({ trace }) => trace.intent?.path === '/slow');
    expect(decision).toBe('allow');
  });

  it('sends an exchange that waits for the resolver by the rule it was judged by', async () => {
    plain.seen.length = 0;
    const held = inAbsoluteForm.send(house, `held.test:${plain.port}`);
    await asked.opened;
    await house.reconfigure(first('second'));
    resolved.open();
    expect((await held).status).toBe(200);
    expect(generations(plain)).toEqual(['first']);
    expect((await inAbsoluteForm.send(house, `held.test:${plain.port}`)).status).toBe(200);
    expect(generations(plain)).toEqual(['first', 'second']);
  });

  it('sends an exchange that waits for the resolver with the secret that its rule meant, though the id stands for another now', async () => {
    const lent = (domain: string, token: string) => ({
      network: {
        allowlist: [{ domain, ports: [plain.port], addresses: LOOPBACK, credential: 'lent', allow_plaintext: true }],
      },
      credentials: { lent: { type: 'bearer_token', token } },
    });
    await house.reconfigure(lent('held.test', 'of-the-old-host'));
    plain.seen.length = 0;
    const held = inAbsoluteForm.send(house, `held.test:${plain.port}`);
    await asked.opened;
    await house.reconfigure(lent('api.test', 'of-the-new-host'));
    resolved.open();
    expect((await held).status).toBe(200);
    expect(plain.seen.flatMap(({ fields }) => valuesOf(fields, 'authorization'))).toEqual(['Bearer of-the-old-host']);
    expect((await inAbsoluteForm.send(house, `api.test:${plain.port}`)).status).toBe(200);
    expect(plain.seen.flatMap(({ fields }) => valuesOf(fields, 'authorization')).slice(1)).toEqual(['Bearer of-the-new-host']);
  });

  it('judges the next request of an open tunnel by the new policy', async () => {
    secure.seen.length = 0;
    const tunnel = await openSecureTunnel(house, `api.test:${secure.port}`);
    expect(verdictIn(await inside(tunnel, `api.test:${secure.port}`))).toBe('200 from the upstream');
    await house.reconfigure(first('second'));
    expect(verdictIn(await inside(tunnel, `api.test:${secure.port}`))).toBe('200 from the upstream');
    expect(generations(secure)).toEqual(['first', 'second']);
    await house.reconfigure(nothing);
    expect(verdictIn(await inside(tunnel, `api.test:${secure.port}`))).toBe('403 not_allowlisted');
    expect(secure.seen).toHaveLength(2);
    tunnel.destroy();
  });

  it('verifies the next upstream connection by the new roots, and keeps none that the old ones verified', async () => {
    const tunnel = await openSecureTunnel(house, `api.test:${secure.port}`);
    expect(verdictIn(await inside(tunnel, `api.test:${secure.port}`))).toBe('200 from the upstream');
    await house.reconfigure({ network: first().network });
    expect(verdictIn(await inside(tunnel, `api.test:${secure.port}`))).toBe('502 upstream_tls');
    tunnel.destroy();
  });

  it('does not keep a connection that was busy during the reload either', async () => {
    const busy = await openSecureTunnel(house, `api.test:${secure.port}`);
    const slow = inside(busy, `api.test:${secure.port}`, { path: '/slow' });
    await arrived.opened;
    await house.reconfigure({ network: first().network });
    release.open();
    expect(verdictIn(await slow)).toBe('200 from the upstream');
    expect(verdictIn(await inside(busy, `api.test:${secure.port}`))).toBe('502 upstream_tls');
    busy.destroy();
  });

  it('does not keep a connection that was shaking hands during the reload either', async () => {
    const shaking = gate();
    const hands = gate();
    const shy = await startRaw((socket) => {
      shaking.open();
      void hands.opened.then(() => {
        const stream = new tls.TLSSocket(socket, { isServer: true, ...outside.credentials('api.test') });
        stream.on('error', () => undefined).on('data', () => stream.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'));
      });
    });
    const network = { allowlist: [{ domain: 'api.test', ports: [shy.port], addresses: LOOPBACK }] };
    await house.reconfigure({ upstream: { ca: [outside.caPath] }, network });
    const tunnel = await openSecureTunnel(house, `api.test:${shy.port}`);
    const early = inside(tunnel, `api.test:${shy.port}`);
    await shaking.opened;
    await house.reconfigure({ network });
    hands.open();
    expect(verdictIn(await early)).toBe('200 from the upstream');
    expect(verdictIn(await inside(tunnel, `api.test:${shy.port}`))).toBe('502 upstream_tls');
    tunnel.destroy();
    await shy.close();
  });

  it('does not dial for an exchange whose address was closed before it dialled again', async () => {
    expect((await inAbsoluteForm.send(house, `api.test:${plain.port}`)).status).toBe(200);
    await house.reconfigure({ network: { allowlist: [{ domain: 'api.test', ports: [plain.port] }] } });
    expect(verdictIn(await inAbsoluteForm.send(house, `api.test:${plain.port}`))).toBe('403 address_denied');
  });
});

describe('invariant 7: an invalid file keeps the last good one and says so', () => {
  const bad = [
    { name: 'no JSON', text: '{ "network": ' },
    { name: 'empty', text: '' },
    { name: 'an unknown key', text: JSON.stringify({ network: { allowlst: [] } }) },
    { name: 'a rule that cannot be', text: JSON.stringify({ network: { allowlist: [{ domain: 'http://api.test/' }] } }) },
    { name: 'a root that is not there', text: JSON.stringify({ upstream: { ca: ['nowhere.pem'] } }) },
    { name: 'null', text: 'null' },
  ];

  it.each(bad)('for a file that holds $name', async ({ text }) => {
    const { generation } = house.app.live.current().snapshot;
    const before = await house.scrape();
    await writeConfig(house, text);
    const answer = await askAdmin(house, '/v1/reload', {});
    expect(answer.status).toBe(422);
    expect(answer.json).toMatchObject({
      error: { message: expect.stringContaining(`generation ${generation} stays in force`) as string },
    });
    expect(verdictIn(await inAbsoluteForm.send(house, `api.test:${plain.port}`))).toBe('200 from the upstream');
    expect(verdictIn(await inAbsoluteForm.send(house, `other.test:${plain.port}`))).toBe('403 not_allowlisted');
    expect((await askAdmin(house, '/v1/status')).json['generation']).toBe(generation);
    const rejected = { result: 'rejected' };
    const grown =
      sampled(await house.scrape(), 'sallyport_config_reloads_total', rejected) -
      sampled(before, 'sallyport_config_reloads_total', rejected);
    // The watcher may have seen the file too.
    expect(grown).toBeGreaterThanOrEqual(1);
    expect(house.logged.some((line) => line.startsWith('error') && line.includes('last good one stays'))).toBe(true);
  });

  it('tells of a good file with its generation', async () => {
    const { generation } = house.app.live.current().snapshot;
    await house.reconfigure(first('second'));
    const answer = await askAdmin(house, '/v1/reload', {});
    expect(answer.status).toBe(200);
    expect(answer.json).toMatchObject({ outcome: 'unchanged', generation: generation + 1 });
  });
});
