// Several sandboxes behind one door, through real sockets: who is asking is known by token or by address, each is judged by its own
// policy, a token that is taken back counts from the next request on, and no sandbox rides on another one's upstream connections.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { countOf, openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { inside, verdictIn, WAYS } from '../support/probes.ts';
import { connectTo, openSecureTunnel, openTunnel, sendRaw } from '../support/sandbox-client.ts';

const RED = 'red-token-0123456789';
const BLUE = 'blue-token-0123456789';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;

const own = (scheme: 'https' | 'http'): Upstream => (scheme === 'https' ? secure : plain);
const basic = (token: string, user = 'sandbox') =>
  `Proxy-Authorization: Basic ${Buffer.from(`${user}:${token}`).toString('base64')}\r\n`;
const bearer = (token: string) => `Proxy-Authorization: Bearer ${token}\r\n`;
const names = { 'red.test': ['127.0.0.1'], 'blue.test': ['127.0.0.1'], 'both.test': ['127.0.0.1'] };

beforeAll(async () => {
  outside = await openOutside();
  // Each connection of the outside has a number, and says it with every answer.
  secure = await startUpstream({ tls: outside, answer: numbered() });
  plain = await startUpstream({ answer: numbered() });
});

afterAll(async () => {
  await secure.close();
  await plain.close();
  await outside.close();
});

function numbered(): NonNullable<NonNullable<Parameters<typeof startUpstream>[0]>['answer']> {
  const numbers = new WeakMap<object, number>();
  let count = 0;
  return (_seen, response, request) => {
    const number = numbers.get(request.socket) ?? (count += 1);
    numbers.set(request.socket, number);
    response.end(String(number));
  };
}

function config(tokens: { readonly red?: string | undefined; readonly blue?: string | undefined } = { red: RED, blue: BLUE }) {
  const rule = { ports: [secure.port, plain.port], addresses: LOOPBACK, allow_plaintext: true };
  const sandboxOf = (color: 'red' | 'blue') => ({
    token: tokens[color],
    network: {
      allowlist: [
        { domain: `${color}.test`, ...rule },
        { domain: 'both.test', transform: { 'X-Color': color }, ...rule },
      ],
    },
  });
  return {
    upstream: { ca: [outside.caPath] },
    sandboxes: {
      ...(tokens.red === undefined ? {} : { red: sandboxOf('red') }),
      ...(tokens.blue === undefined ? {} : { blue: sandboxOf('blue') }),
    },
  };
}

describe('a token', () => {
  let house: House;

  beforeAll(async () => {
    house = await startHouse(config(), { names });
  });

  afterAll(() => house.stop());

  const good = [
    { name: 'Basic', fields: basic(RED) },
    { name: 'Basic with another user name', fields: basic(RED, 'anyone') },
    { name: 'Basic without a user name', fields: basic(RED, '') },
    { name: 'Bearer', fields: bearer(RED) },
    { name: 'bearer in lower case', fields: bearer(RED).replace('Bearer', 'bearer') },
  ];

  it.each(good.flatMap((row) => WAYS.map((way) => ({ ...row, way }))))(
    'is taken as $name, $way.name',
    async ({ fields, way }) => {
      const upstream = own(way.scheme);
      const from = house.outcomes.length;
      expect(verdictIn(await way.send(house, `red.test:${upstream.port}`, { proxyFields: fields }))).toBe(
        '200 from the upstream',
      );
      expect((await house.outcome(() => true, from)).trace.sandbox).toBe('red');
      expect(countOf(upstream.seen.at(-1)!.fields, 'proxy-authorization')).toBe(0);
    },
  );

  const bad = [
    { name: 'none', fields: '' },
    { name: 'a wrong one', fields: basic('wrong-token-0123456789') },
    { name: 'the start of a right one', fields: basic(RED.slice(0, -1)) },
    { name: 'a right one and more', fields: basic(`${RED}0`) },
    { name: 'a right one in other letters', fields: basic(RED.toUpperCase()) },
    { name: 'an empty one', fields: basic('') },
    { name: 'the id of the sandbox', fields: basic('red', 'red') },
    { name: 'Basic that is no base64', fields: 'Proxy-Authorization: Basic !!!\r\n' },
    { name: 'another scheme', fields: `Proxy-Authorization: Digest ${RED}\r\n` },
    { name: 'the field of the upstream', fields: `Authorization: Bearer ${RED}\r\n` },
  ];

  it.each(bad.flatMap((row) => WAYS.map((way) => ({ ...row, way }))))(
    'is asked for with 407 where there is $name, $way.name',
    async ({ fields, way }) => {
      const before = { asked: house.resolved.length, bytes: secure.bytes + plain.bytes };
      const answer = await way.send(house, `red.test:${own(way.scheme).port}`, { proxyFields: fields });
      expect(verdictIn(answer)).toBe('407 sandbox_unauthenticated');
      expect(answer.headers['proxy-authenticate']).toMatch(/^Basic realm=/);
      expect(house.resolved).toHaveLength(before.asked);
      expect(secure.bytes + plain.bytes).toBe(before.bytes);
    },
  );

  it('is refused when it stands there twice', async () => {
    expect(verdictIn((await openTunnel(house, `red.test:${secure.port}`, basic(RED) + basic(BLUE))).answer)).toBe(
      '400 bad_request',
    );
  });

  it('gets the same answer wrong or missing, for a host that is allowed to somebody and for one that is not', async () => {
    const bodies = await Promise.all(
      ['', basic('wrong-token-0123456789')].flatMap((fields) =>
        ['red.test:443', 'nowhere.test:443'].map(async (authority) => {
          const { answer } = await openTunnel(house, authority, fields);
          return answer.body.replace(/"request_id":"[^"]+"/, '');
        }),
      ),
    );
    expect(new Set(bodies).size).toBe(1);
  });

  it('shows each its own policy', async () => {
    for (const { send, scheme } of WAYS) {
      const { port } = own(scheme);
      expect(verdictIn(await send(house, `red.test:${port}`, { proxyFields: basic(BLUE) }))).toBe('403 not_allowlisted');
      expect(verdictIn(await send(house, `blue.test:${port}`, { proxyFields: basic(RED) }))).toBe('403 not_allowlisted');
      expect(verdictIn(await send(house, `blue.test:${port}`, { proxyFields: basic(BLUE) }))).toBe('200 from the upstream');
    }
  });

  it('is that of the CONNECT for the whole tunnel: one inside changes nothing', async () => {
    const tunnel = await openSecureTunnel(house, `both.test:${secure.port}`, { fields: basic(RED) });
    for (const fields of [basic(BLUE), basic('wrong-token-0123456789'), '']) {
      expect((await inside(tunnel, `both.test:${secure.port}`, { fields })).status).toBe(200);
      expect(valuesOf(secure.seen.at(-1)!.fields, 'x-color')).toEqual(['red']);
      expect(countOf(secure.seen.at(-1)!.fields, 'proxy-authorization')).toBe(0);
    }
    tunnel.destroy();
  });

  it('is asked for again with each request on a kept-alive connection of the proxy port', async () => {
    const socket = await connectTo(house.port);
    const target = { path: `http://both.test:${plain.port}/` };
    const color = () => valuesOf(plain.seen.at(-1)!.fields, 'x-color');
    expect((await inside(socket, `both.test:${plain.port}`, { ...target, fields: basic(RED) })).status).toBe(200);
    expect(color()).toEqual(['red']);
    expect((await inside(socket, `both.test:${plain.port}`, { ...target, fields: basic(BLUE) })).status).toBe(200);
    expect(color()).toEqual(['blue']);
    expect(verdictIn(await inside(socket, `both.test:${plain.port}`, target))).toBe('407 sandbox_unauthenticated');
    socket.destroy();
  });
});

describe('a token that is taken back', () => {
  it.each([
    { name: 'rotated', after: { red: 'new-red-token-0123456789', blue: BLUE } },
    { name: 'removed with its sandbox', after: { red: undefined, blue: BLUE } },
  ])('ends a live tunnel with its next request: $name', async ({ after }) => {
    const house = await startHouse(config(), { names });
    const red = await openSecureTunnel(house, `both.test:${secure.port}`, { fields: basic(RED) });
    const blue = await openSecureTunnel(house, `both.test:${secure.port}`, { fields: basic(BLUE) });
    for (const tunnel of [red, blue]) expect((await inside(tunnel, `both.test:${secure.port}`)).status).toBe(200);
    await house.reconfigure(config(after));
    const sent = secure.seen.length;
    expect(verdictIn(await inside(red, `both.test:${secure.port}`))).toBe('407 sandbox_unauthenticated');
    expect(secure.seen).toHaveLength(sent);
    expect(verdictIn(await inside(blue, `both.test:${secure.port}`))).toBe('200 from the upstream');
    expect(verdictIn((await openTunnel(house, `both.test:${secure.port}`, basic(RED))).answer)).toBe(
      '407 sandbox_unauthenticated',
    );
    for (const tunnel of [red, blue]) tunnel.destroy();
    await house.stop();
  });

  it('counts for the sandbox that holds it now, where it was given to another', async () => {
    const house = await startHouse(config(), { names });
    const tunnel = await openSecureTunnel(house, `both.test:${secure.port}`, { fields: basic(RED) });
    await house.reconfigure(config({ red: 'new-red-token-0123456789', blue: RED }));
    const from = house.outcomes.length;
    expect((await inside(tunnel, `both.test:${secure.port}`)).status).toBe(200);
    expect((await house.outcome(() => true, from)).trace.sandbox).toBe('blue');
    expect(valuesOf(secure.seen.at(-1)!.fields, 'x-color')).toEqual(['blue']);
    tunnel.destroy();
    await house.stop();
  });
});

describe('sources', () => {
  const network = (color: string) => ({
    allowlist: [
      { domain: 'both.test', transform: { 'X-Color': color }, ports: [plain.port], addresses: LOOPBACK, allow_plaintext: true },
    ],
  });
  const head = (fields = '') => `GET http://both.test:${plain.port}/ HTTP/1.1\r\nHost: both.test:${plain.port}\r\n${fields}\r\n`;

  it('know a sandbox by its address, the longest prefix first, and a token goes before it', async () => {
    const house = await startHouse(
      {
        sandboxes: {
          wide: { sources: ['127.0.0.0/8'], network: network('wide') },
          narrow: { sources: ['127.0.0.1/32'], network: network('narrow') },
          holder: { token: RED, network: network('holder') },
        },
      },
      { names },
    );
    const color = async (fields?: string) => {
      expect(verdictIn(await sendRaw(house.port, head(fields)))).toBe('200 from the upstream');
      return valuesOf(plain.seen.at(-1)!.fields, 'x-color')[0];
    };
    expect(await color()).toBe('narrow');
    expect(await color(bearer(RED))).toBe('holder');
    // A wrong token is not forgiven because of the address.
    expect(verdictIn(await sendRaw(house.port, head(bearer('wrong-token-0123456789'))))).toBe('407 sandbox_unauthenticated');
    await house.stop();
  });

  it('do not know an address outside of them, and no field of the request moves it inside', async () => {
    const house = await startHouse({ sandboxes: { far: { sources: ['10.0.0.0/8'], network: network('far') } } }, { names });
    for (const fields of ['', 'X-Forwarded-For: 10.0.0.1\r\n', 'Forwarded: for=10.0.0.1\r\n', 'X-Real-IP: 10.0.0.1\r\n']) {
      expect(verdictIn(await sendRaw(house.port, head(fields)))).toBe('407 sandbox_unauthenticated');
    }
    await house.stop();
  });

  it('know who opened a tunnel for every request in it', async () => {
    const house = await startHouse({ sandboxes: { near: { sources: ['127.0.0.1/32'], network: network('near') } } }, { names });
    const { socket } = await openTunnel(house, `both.test:${plain.port}`);
    expect((await inside(socket, `both.test:${plain.port}`)).status).toBe(200);
    expect(valuesOf(plain.seen.at(-1)!.fields, 'x-color')).toEqual(['near']);
    socket.destroy();
    await house.stop();
  });
});

describe('pooled upstream connections', () => {
  it.each(WAYS)("serve their own sandbox again, and never another one's requests, $name", async ({ send, scheme }) => {
    const house = await startHouse(config(), { names });
    const { port } = own(scheme);
    const connection = async (token: string, host = 'both.test') => {
      const answer = await send(house, `${host}:${port}`, { proxyFields: basic(token) });
      expect(answer.status).toBe(200);
      return answer.body;
    };
    const red = await connection(RED);
    const blue = await connection(BLUE);
    expect(blue).not.toBe(red);
    expect(await connection(RED)).toBe(red);
    expect(await connection(BLUE)).toBe(blue);
    // Nor requests for another host that shares the address.
    const other = await connection(RED, 'red.test');
    expect([red, blue]).not.toContain(other);
    await house.stop();
  });
});
