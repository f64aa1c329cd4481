// The operator's window on a whole house: refusals that say truthfully how they would be allowed, and a listener that lets monitors in,
// asks everyone else for the token, and is nothing that a sandbox or a web page could reach (invariants 3 and 8).
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type net from 'node:net';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { askAdmin } from '../support/operator.ts';
import { openOutside, startUpstream } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { ask, sendRaw } from '../support/sandbox-client.ts';

let outside: Outside;
let secure: Upstream;

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside });
});

afterAll(async () => {
  await secure.close();
  await outside.close();
});

/** Resolves every name to loopback. */
const NAMES = new Proxy({}, { get: () => ['127.0.0.1'] });

function openHouse(allowlist: readonly object[]): Promise<House> {
  return startHouse({ upstream: { ca: [outside.caPath] }, network: { allowlist } }, { names: NAMES });
}

describe('/v1/explain', () => {
  it('names all that is put on, and hears the guard of the running proxy', async () => {
    const house = await startHouse({
      credentials: { key: { type: 'header', headers: { 'X-One': 'a', 'X-Two': 'b' } } },
      network: {
        allowlist: [
          { domain: 'api.test', credential: 'key', transform: { 'x-two': 'c', 'X-Three': 'd' } },
          { domain: 'pass.test', tls: 'passthrough' },
          { domain: '127.0.0.1', ports: [443, secure.port], addresses: LOOPBACK },
        ],
      },
    });
    const say = async (target: string) => (await askAdmin(house, '/v1/explain', { method: 'GET', url: target })).json;
    try {
      expect(await say('https://api.test/')).toMatchObject({ decision: 'allow', injects: ['X-One', 'x-two', 'X-Three'] });
      expect(await say('https://pass.test/')).toMatchObject({ decision: 'allow', passthrough: true, injects: [] });
      expect(await say('https://127.0.0.1/')).toMatchObject({ decision: 'allow' });
      await house.reconfigure({ network: { allowlist: [{ domain: '*', ports: [house.port], addresses: LOOPBACK }] } });
      expect(await say(`https://127.0.0.1:${house.port}/`)).toMatchObject({ decision: 'refuse', reason: 'address_denied' });
    } finally {
      await house.stop();
    }
  });
});

describe('the suggestion of /v1/denials', () => {
  interface Suggested {
    readonly host: string;
    readonly reason: string;
    readonly suggestion: object | null;
    readonly hint: string;
  }

  const here = (): object => ({ ports: [secure.port], addresses: LOOPBACK });

  it.each([
    { name: 'a host that no rule names', rules: () => [], steps: ['not_allowlisted', 'address_denied'] },
    { name: 'a port', rules: () => [{ domain: 'v1.api.test', addresses: LOOPBACK }], steps: ['port_denied', 'address_denied'] },
    {
      name: 'a method',
      rules: () => [{ domain: 'v1.api.test', methods: ['GET'], ...here() }],
      steps: ['method_denied', 'address_denied'],
    },
    {
      name: 'a path',
      rules: () => [{ domain: 'v1.api.test', paths: ['/other/.*'], ...here() }],
      steps: ['path_denied', 'address_denied'],
    },
    {
      name: 'a path below a wildcard',
      rules: () => [{ domain: '*.api.test', paths: ['/other/.*'], ...here() }],
      steps: ['path_denied', 'address_denied'],
    },
    { name: 'an address', rules: () => [{ domain: 'v1.api.test', ports: [secure.port] }], steps: ['address_denied'] },
  ])('allows the request once it stands first in the config: $name', async ({ rules, steps }) => {
    let allowlist: object[] = rules();
    const house = await openHouse(allowlist);
    const request = () =>
      ask(house, `https://v1.api.test:${secure.port}/a.b/(c)+d`, { method: 'POST', fields: 'Content-Length: 0\r\n' });
    try {
      for (const reason of steps) {
        const refused = await request();
        expect([refused.status, refused.headers['x-sallyport-reason']]).toEqual([403, reason]);
        const { denials } = (await askAdmin(house, '/v1/denials')).json as unknown as { denials: Suggested[] };
        const denial = denials.find((each) => each.reason === reason);
        expect(denial).toMatchObject({ host: 'v1.api.test', hint: expect.stringMatching(/./) as string });
        allowlist = [denial?.suggestion as object, ...allowlist];
        await house.reconfigure({ upstream: { ca: [outside.caPath] }, network: { allowlist } });
      }
      expect((await request()).status).toBe(200);
    } finally {
      await house.stop();
    }
  });

  it('is withheld where no rule could allow it', async () => {
    const network = {
      denylist: [{ domain: 'denied.test' }],
      allowlist: [{ domain: '*' }, { domain: '127.0.0.1', ports: [secure.port] }],
    };
    const house = await startHouse({ network }, { names: NAMES });
    try {
      await ask(house, 'https://denied.test/');
      await ask(house, 'http://own.test/', { method: 'TRACE' });
      const { denials } = (await askAdmin(house, '/v1/denials')).json as unknown as { denials: Suggested[] };
      expect(denials.map(({ reason, suggestion }) => [reason, suggestion])).toEqual([['denylisted', null]]);
    } finally {
      await house.stop();
    }
  });
});

describe('the admin listener of a house', () => {
  let house: House;

  beforeAll(async () => {
    house = await openHouse([]);
  });

  afterAll(() => house.stop());

  const get = (path: string, fields: string): Promise<{ readonly status: number; readonly body: string }> =>
    sendRaw(house.adminPort, `GET ${path} HTTP/1.1\r\n${fields}\r\n`);

  it.each(['/healthz', '/readyz', '/metrics'])('answers %s without a token', async (path) => {
    expect((await get(path, `Host: 127.0.0.1:${house.adminPort}\r\n`)).status).toBe(200);
  });

  it.each(['/v1/status', '/v1/denials'])('asks for the token on %s', async (path) => {
    const host = `Host: localhost:${house.adminPort}\r\n`;
    expect((await get(path, host)).status).toBe(401);
    expect((await get(path, `${host}Authorization: Bearer wrong\r\n`)).status).toBe(401);
    expect((await get(path, `${host}Authorization: Bearer ${house.adminToken}\r\n`)).status).toBe(200);
    expect((await get(path, `${host}x-goog-api-key: ${house.adminToken}\r\n`)).status).toBe(200);
  });

  it.each([
    { name: 'the name of a page that was rebound to this address', fields: 'Host: attacker.example\r\n', status: 421 },
    { name: 'no name', fields: '', status: 421 },
    {
      name: 'the right name and the page of another origin',
      fields: 'Host: localhost\r\nOrigin: http://attacker.example\r\n',
      status: 403,
    },
    { name: 'the right name', fields: 'Host: localhost\r\n', status: 200 },
  ])('answers a caller that comes with $name with $status, on open paths too', async ({ fields, status }) => {
    const token = `Authorization: Bearer ${house.adminToken}\r\n`;
    for (const path of ['/metrics', '/v1/status'])
      expect([path, (await get(path, fields + token)).status]).toEqual([path, status]);
  });

  it('is no way out: the sandbox cannot reach it through the door', async () => {
    const open = await openHouse([{ domain: '127.0.0.1', ports: [house.adminPort], addresses: LOOPBACK }]);
    try {
      const own = await sendRaw(
        open.port,
        `GET http://127.0.0.1:${open.adminPort}/metrics HTTP/1.1\r\nHost: 127.0.0.1:${open.adminPort}\r\n\r\n`,
      );
      expect(own.status).toBe(403);
      await open.reconfigure({ network: { allowlist: [{ domain: '127.0.0.1', ports: [open.adminPort], addresses: LOOPBACK }] } });
      const again = await sendRaw(
        open.port,
        `GET http://127.0.0.1:${open.adminPort}/metrics HTTP/1.1\r\nHost: 127.0.0.1:${open.adminPort}\r\n\r\n`,
      );
      expect(again.headers['x-sallyport-reason']).toBe('address_denied');
    } finally {
      await open.stop();
    }
  });
});

describe('a listener that cannot take a connection up', () => {
  it.each([
    { listener: 'proxy', portOf: (house: House) => house.port },
    { listener: 'admin', portOf: (house: House) => house.adminPort },
  ])('stays open and says so, once for a flood of them: $listener', async ({ listener, portOf }) => {
    const house = await openHouse([]);
    try {
      const port = portOf(house);
      const server = await serverOf(port);
      const trouble = Object.assign(new Error('accept ENOBUFS'), { code: 'ENOBUFS' });
      for (let i = 0; i < 10; i += 1) server.emit('error', trouble);
      const said = house.logged.filter((line) => line.includes('could not be taken up'));
      expect(said).toEqual([`error a connection could not be taken up {"listener":"${listener}","cause":"ENOBUFS"}`]);
      expect((await anything(port)).status).toBeGreaterThan(0);
    } finally {
      await house.stop();
    }
  });

  const anything = (port: number): ReturnType<typeof sendRaw> =>
    sendRaw(port, `GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\n\r\n`);

  /** The server behind a port of this process, as Node's own diagnostics name it. */
  async function serverOf(port: number): Promise<net.Server> {
    let found: net.Server | undefined;
    const look = (message: unknown): void => {
      const { server } = (message as { readonly socket: { readonly server?: net.Server } }).socket;
      if ((server?.address() as AddressInfo | null | undefined)?.port === port) found = server;
    };
    subscribe('net.server.socket', look);
    await anything(port);
    unsubscribe('net.server.socket', look);
    if (found === undefined) throw new Error(`no server of this process listens on ${port}`);
    return found;
  }
});
