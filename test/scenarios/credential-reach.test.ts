// Nobody else ever sees a credential: no other host, port, scheme or sandbox, whatever an upstream's redirect asks for (invariant 5).
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startUpstream, valuesOf } from '../support/outside.ts';
import type { Answering, Outside, Seen, Upstream } from '../support/outside.ts';
import { ask, sendRaw } from '../support/sandbox-client.ts';

let outside: Outside;
let secure: Upstream;
let other: Upstream;
let plain: Upstream;
let house: House;

/** Redirects as asked for in the path. */
const answer: Answering = (seen, response) => {
  const [, status, to] = /^\/redirect\/(\d+)\/(.*)$/.exec(seen.url) ?? [];
  if (status === undefined) response.writeHead(200, { 'content-length': 2 }).end('ok');
  else response.writeHead(Number(status), { location: decodeURIComponent(to ?? '') }).end();
};

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside, answer });
  other = await startUpstream({ tls: outside, answer });
  plain = await startUpstream({ answer });
  const here = { ports: [secure.port], addresses: LOOPBACK };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      credentials: {
        token: { type: 'bearer_token', token: { env: 'TOKEN' } },
        key: { type: 'bearer_token', token: 'marker-key', header_name: 'x-goog-api-key', prefix: '' },
      },
      network: {
        denylist: [{ domain: 'denied.test' }],
        allowlist: [
          { domain: 'bearer.test', credential: 'token', ...here },
          { domain: 'key.test', credential: 'key', ...here },
          { domain: 'bare.test', ports: [secure.port, other.port], addresses: LOOPBACK },
          { domain: 'ports.test', credential: 'token', ...here },
          { domain: 'ports.test', ports: [other.port], addresses: LOOPBACK },
          { domain: 'leaky.test', credential: 'token', ports: [secure.port, plain.port], addresses: LOOPBACK },
          { domain: 'portless.test', credential: 'token', addresses: LOOPBACK },
          { domain: 'open.test', credential: 'token', allow_plaintext: true, ports: [plain.port], addresses: LOOPBACK },
        ],
      },
    },
    { names: everyName(['127.0.0.1']), env: { TOKEN: 'marker-token' } },
  );
});

afterAll(async () => {
  await house.stop();
  for (const each of [secure, other, plain]) await each.close();
  await outside.close();
});

/** Resolves whatever it is asked. */
function everyName(answers: readonly string[]): Record<string, readonly string[]> {
  return new Proxy({}, { get: () => answers });
}

describe('over plain http', () => {
  it.each([
    {
      name: 'a rule with the port of the plain service',
      url: () => `http://leaky.test:${plain.port}/`,
      reason: 'plaintext_credential',
    },
    { name: 'a rule without ports', url: () => 'http://portless.test/', reason: 'plaintext_credential' },
    {
      name: 'a rule with the port of the secure service only',
      url: () => `http://bearer.test:${plain.port}/`,
      reason: 'port_denied',
    },
  ])('refuses to put a credential on by $name, and sends nothing', async ({ url, reason }) => {
    // fault E16
    const before = plain.connections;
    const got = await ask(house, url());
    expect([got.status, got.headers['x-sallyport-reason']]).toEqual([403, reason]);
    expect(plain.connections).toBe(before);
  });

  it('refuses it in a tunnel that carries plain http, on the request and not before', async () => {
    // fault E16
    const authority = `leaky.test:${plain.port}`;
    const before = plain.seen.length;
    const got = await sendRaw(
      house.port,
      `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\nGET / HTTP/1.1\r\nHost: ${authority}\r\n\r\n`,
      'CONNECT',
    );
    expect(got.status).toBe(200);
    const refused = await house.outcome(
      (outcome) => outcome.verdict?.code === 'plaintext_credential' && outcome.arrival.ceiling !== undefined,
    );
    expect(refused.decision).toBe('refuse');
    expect(plain.seen.length).toBe(before);
  });

  it('puts it on under allow_plaintext, which the log and the status warn of', async () => {
    // fault E16
    await ask(house, `http://open.test:${plain.port}/`);
    expect(valuesOf((plain.seen.at(-1) as Seen).fields, 'authorization')).toEqual(['Bearer marker-token']);
    expect(house.logged.some((line) => line.startsWith('warn ') && line.includes('allow_plaintext'))).toBe(true);
    expect(house.app.live.current().warnings.some((text) => text.includes('allow_plaintext'))).toBe(true);
  });
});

describe('a redirect', () => {
  it.each([301, 302, 303, 307, 308])('of status %i is handed to the sandbox and not followed', async (status) => {
    // fault E14
    const before = [secure.seen.length, other.seen.length];
    const location = `https://bare.test:${other.port}/landed`;
    const got = await ask(house, `https://bearer.test:${secure.port}/redirect/${status}/${encodeURIComponent(location)}`);
    expect([got.status, got.headers['location']]).toEqual([status, location]);
    expect([secure.seen.length, other.seen.length]).toEqual([(before[0] as number) + 1, before[1]]);
  });

  it.each([
    {
      name: 'another allowed host gets nothing of it',
      to: () => `https://bare.test:${secure.port}/landed`,
      status: 200,
      at: () => secure,
    },
    {
      name: 'another port of the same host gets nothing of it',
      to: () => `https://ports.test:${other.port}/landed`,
      status: 200,
      at: () => other,
    },
    {
      name: 'a host with a credential of its own gets that one',
      to: () => `https://key.test:${secure.port}/landed`,
      status: 200,
      at: () => secure,
      own: ['marker-key'],
    },
    { name: 'a denied host is refused', to: () => `https://denied.test:${secure.port}/landed`, status: 403 },
    { name: 'a port that the rule does not have is refused', to: () => `https://bearer.test:${other.port}/landed`, status: 403 },
    { name: 'the same host over plain http is refused', to: () => `http://leaky.test:${plain.port}/landed`, status: 403 },
  ])('is judged anew when the sandbox follows it: $name', async ({ to, status, at, own = [] }) => {
    // fault E14
    const first = await ask(house, `https://ports.test:${secure.port}/redirect/307/${encodeURIComponent(to())}`);
    expect(valuesOf((secure.seen.at(-1) as Seen).fields, 'authorization')).toEqual(['Bearer marker-token']);
    const counts = (): number[] => [secure, other, plain].map((each) => each.seen.length);
    const before = counts();
    const landed = await ask(house, first.headers['location'] as string);
    expect(landed.status).toBe(status);
    const upstream = at?.();
    if (upstream === undefined) {
      expect(counts()).toEqual(before);
      return;
    }
    const { url, fields } = upstream.seen.at(-1) as Seen;
    expect(url).toBe('/landed');
    expect([valuesOf(fields, 'authorization'), valuesOf(fields, 'x-goog-api-key')]).toEqual([[], own]);
  });
});

describe('two sandboxes behind one door', () => {
  it('never have their credentials mixed, though they ask for the same host by turns', async () => {
    const network = (credential: string) => ({
      allowlist: [{ domain: 'bearer.test', credential, ports: [secure.port], addresses: LOOPBACK }],
    });
    const shared = await startHouse(
      {
        upstream: { ca: [outside.caPath] },
        credentials: { a: { type: 'bearer_token', token: 'marker-a' }, b: { type: 'bearer_token', token: 'marker-b' } },
        sandboxes: {
          a: { token: 'token-of-sandbox-a', network: network('a') },
          b: { token: 'token-of-sandbox-b', network: network('b') },
        },
      },
      { names: everyName(['127.0.0.1']) },
    );
    try {
      for (const id of ['a', 'b', 'a', 'b']) {
        const login = Buffer.from(`${id}:token-of-sandbox-${id}`).toString('base64');
        const tunnelFields = `Proxy-Authorization: Basic ${login}\r\n`;
        const got = await ask(shared, `https://bearer.test:${secure.port}/`, { tunnelFields });
        expect(got.status).toBe(200);
        const { fields } = secure.seen.at(-1) as Seen;
        expect([valuesOf(fields, 'authorization'), valuesOf(fields, 'proxy-authorization')]).toEqual([
          [`Bearer marker-${id}`],
          [],
        ]);
      }
      expect((await ask(shared, `https://bearer.test:${secure.port}/`)).status).toBe(407);
    } finally {
      await shared.stop();
    }
  });
});
