import { once } from 'node:events';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { parseAddress } from '../../src/exchange/authority.ts';
import type { Host } from '../../src/exchange/authority.ts';
import { makeRoute } from '../../src/exchange/stages.ts';
import type { Route } from '../../src/exchange/stages.ts';
import { Trace } from '../../src/exchange/trace.ts';
import { createDial } from '../../src/network/dial.ts';
import type { Connect } from '../../src/network/dial.ts';
import { createFindRoute } from '../../src/network/find-route.ts';
import { createGuard } from '../../src/network/guard.ts';
import type { Guard } from '../../src/network/guard.ts';
import { permit } from './permits.ts';

const guard = createGuard({ listeners: () => [], interfaces: () => [] });
const LOOPBACK = ['127.0.0.0/8', '::1'];
const cleanups: (() => void)[] = [];

afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

interface Canary {
  readonly port: number;
  readonly server: net.Server;
  readonly accepted: net.Socket[];
}

/** A listener that greets each connection and counts them. */
async function canary(address: string, port = 0): Promise<Canary> {
  const accepted: net.Socket[] = [];
  const server = net.createServer((socket) => {
    accepted.push(socket.on('error', () => undefined));
    socket.write(address);
  });
  server.listen(port, address);
  await once(server, 'listening');
  cleanups.push(() => {
    accepted.forEach((socket) => socket.destroy());
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, server, accepted };
}

/** A port on which nothing listens at any loopback address. */
async function closedPort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

function routeTo(addresses: readonly string[], port: number, opened: readonly string[] = LOOPBACK): Route {
  const hosts = addresses.map((address) => parseAddress(address) ?? (address as Host));
  return makeRoute({ permit: permit({ to: `api.example.test:${port}`, opened }), addresses: hosts, lane: 'lane' });
}

/** Connects for real, but for the black holes, whose sockets stay silent for ever; keeps every socket it made. */
function watched(...blackHoles: string[]) {
  const sockets: { readonly host: string | undefined; readonly noDelay: boolean | undefined; readonly socket: net.Socket }[] = [];
  const connect: Connect = (options) => {
    const socket = blackHoles.includes(options.host ?? '') ? new net.Socket() : net.connect(options);
    sockets.push({ host: options.host, noDelay: options.noDelay, socket });
    cleanups.push(() => socket.destroy());
    return socket;
  };
  return { connect, sockets, hosts: () => sockets.map(({ host }) => host) };
}

const isDead = ({ socket }: { readonly socket: net.Socket }): boolean => socket.destroyed;

describe('createDial', () => {
  it('gives a socket to the first address, without delay and with an error listener', async () => {
    const upstream = await canary('127.0.0.1');
    const { connect, hosts, sockets } = watched();
    const socket = await createDial({ guard, connect })(routeTo(['127.0.0.1', '127.0.0.2'], upstream.port), 5000);
    expect([socket.remoteAddress, socket.remotePort]).toEqual(['127.0.0.1', upstream.port]);
    expect(hosts()).toEqual(['127.0.0.1']);
    expect(sockets[0]?.socket).toBe(socket);
    expect(sockets[0]?.noDelay).toBe(true);
    expect(socket.listenerCount('error')).toBe(1);
    expect(socket.listenerCount('connect')).toBe(0);
    expect(String((await once(socket, 'data'))[0])).toBe('127.0.0.1');
    const closed = new Promise((resolve) => socket.once('close', resolve));
    socket.destroy(new Error('an error that its next owner has not listened for'));
    expect(await closed).toBe(true);
  });

  it('connects to an IPv4-mapped address and takes the peer for the same', async () => {
    const upstream = await canary('127.0.0.1');
    const socket = await createDial({ guard, ...watched() })(routeTo(['::ffff:127.0.0.1'], upstream.port), 5000);
    expect(socket.remotePort).toBe(upstream.port);
    socket.destroy();
  });

  it('goes on to the next address at once where one refuses', async () => {
    const upstream = await canary('127.0.0.2');
    const { connect, sockets, hosts } = watched();
    const dial = createDial({ guard, connect, staggerMs: 60_000 });
    const socket = await dial(routeTo(['127.0.0.1', '127.0.0.2', '127.0.0.3'], upstream.port), 5000);
    expect(socket.remoteAddress).toBe('127.0.0.2');
    expect(hosts()).toEqual(['127.0.0.1', '127.0.0.2']);
    expect(sockets.map(isDead)).toEqual([true, false]);
  });

  it('goes on to the next address after the stagger where one is silent (A28)', async () => {
    const upstream = await canary('127.0.0.2');
    const { connect, sockets } = watched('::1');
    const startedAt = performance.now();
    const socket = await createDial({ guard, connect })(routeTo(['::1', '127.0.0.2'], upstream.port), 10_000);
    const tookMs = performance.now() - startedAt;
    expect(socket.remoteAddress).toBe('127.0.0.2');
    expect(tookMs).toBeGreaterThanOrEqual(240);
    expect(tookMs).toBeLessThan(1500);
    expect(sockets.map(isDead)).toEqual([true, false]);
  });

  it('keeps the silent one in the race: it wins where the later ones fail', async () => {
    const upstream = await canary('127.0.0.1');
    const late = new net.Socket();
    const hosts: string[] = [];
    const connect: Connect = (options) => {
      hosts.push(options.host ?? '');
      if (options.host === '127.0.0.1') return late;
      const socket = net.connect(options);
      socket.once('close', () => late.connect({ host: '127.0.0.1', port: upstream.port }));
      return socket;
    };
    const socket = await createDial({ guard, connect, staggerMs: 1 })(routeTo(['127.0.0.1', '127.0.0.3'], upstream.port), 5000);
    expect(hosts).toEqual(['127.0.0.1', '127.0.0.3']);
    expect(socket).toBe(late);
    socket.destroy();
  });

  it('destroys the losers: one winner, every other socket closed', async () => {
    const upstream = await canary('127.0.0.3');
    const { connect, sockets } = watched('127.0.0.1', '127.0.0.2');
    const socket = await createDial({ guard, connect, staggerMs: 1 })(
      routeTo(['127.0.0.1', '127.0.0.2', '127.0.0.3'], upstream.port),
      5000,
    );
    expect(socket.remoteAddress).toBe('127.0.0.3');
    expect(sockets.map(isDead)).toEqual([true, true, false]);
    expect(sockets.map((made) => made.socket.listenerCount('error'))).toEqual([1, 1, 1]);
  });

  it('fails with upstream_connect where every address refuses, and names none of them', async () => {
    const port = await closedPort();
    const { connect, sockets } = watched();
    const dialled = createDial({ guard, connect, staggerMs: 1 })(routeTo(['127.0.0.1', '127.0.0.2'], port), 5000);
    const fault = await dialled.catch((error: unknown) => error as Error);
    expect(fault).toMatchObject({
      name: 'Fault',
      code: 'upstream_connect',
      message: 'no connection to the upstream could be opened',
    });
    expect(((fault as Error).cause as AggregateError).errors).toHaveLength(2);
    expect(sockets.map(isDead)).toEqual([true, true]);
  });

  it('fails with upstream_connect where there is no address', async () => {
    await expect(createDial({ guard })(routeTo([], 443), 5000)).rejects.toMatchObject({ code: 'upstream_connect' });
  });

  it('fails with upstream_timeout at the deadline and leaves nothing behind', async () => {
    const { connect, sockets } = watched('127.0.0.1', '127.0.0.2');
    const dialled = createDial({ guard, connect, staggerMs: 1 })(routeTo(['127.0.0.1', '127.0.0.2'], 443), 30);
    await expect(dialled).rejects.toMatchObject({
      code: 'upstream_timeout',
      message: 'the upstream was not reached within 30 ms',
    });
    expect(sockets.map(isDead)).toEqual([true, true]);
  });

  it('stops when the sandbox leaves', async () => {
    const { connect, sockets } = watched('127.0.0.1');
    const leaving = new AbortController();
    const dialled = createDial({ guard, connect })(routeTo(['127.0.0.1'], 443), 5000, leaving.signal);
    leaving.abort();
    await expect(dialled).rejects.toMatchObject({ code: 'client_closed' });
    expect(sockets.map(isDead)).toEqual([true]);
  });

  it('does not begin for a sandbox that has left', async () => {
    const { connect, sockets } = watched();
    await expect(createDial({ guard, connect })(routeTo(['127.0.0.1'], 443), 5000, AbortSignal.abort())).rejects.toMatchObject({
      code: 'client_closed',
    });
    expect(sockets).toEqual([]);
  });

  it('judges each address again before it connects', async () => {
    const upstream = await canary('127.0.0.1');
    const { connect, sockets } = watched();
    await expect(createDial({ guard, connect })(routeTo(['127.0.0.1'], upstream.port, []), 5000)).rejects.toMatchObject({
      code: 'address_denied',
    });
    const listening = createGuard({ listeners: () => [{ address: '127.0.0.1', port: upstream.port }], interfaces: () => [] });
    await expect(createDial({ guard: listening, connect })(routeTo(['127.0.0.1'], upstream.port), 5000)).rejects.toMatchObject({
      code: 'address_denied',
    });
    expect(sockets).toEqual([]);
  });

  it('gives up all attempts when a later address is denied', async () => {
    const { connect, sockets } = watched('127.0.0.1');
    const dialled = createDial({ guard, connect, staggerMs: 1 })(routeTo(['127.0.0.1', '10.0.0.1'], 443), 5000);
    await expect(dialled).rejects.toMatchObject({ code: 'address_denied' });
    expect(sockets.map(isDead)).toEqual([true]);
  });

  it('connects nowhere where the guard throws', async () => {
    const broken: Guard = {
      judge: () => {
        throw new Error('no interface table');
      },
    };
    const { connect, sockets } = watched();
    await expect(createDial({ guard: broken, connect })(routeTo(['127.0.0.1'], 443), 5000)).rejects.toMatchObject({
      code: 'internal_error',
    });
    expect(sockets).toEqual([]);
  });

  it('drops a connection whose peer is not the address that was dialled (A26)', async () => {
    const elsewhere = await canary('127.0.0.2');
    const sockets: net.Socket[] = [];
    const connect: Connect = (options) => {
      const socket = net.connect({ ...options, host: '127.0.0.2' });
      sockets.push(socket);
      return socket;
    };
    const dialled = createDial({ guard, connect })(routeTo(['127.0.0.1'], elsewhere.port), 5000);
    await expect(dialled).rejects.toMatchObject({
      code: 'upstream_connect',
      message: 'the connection reached another address than the one dialled',
    });
    expect(sockets.map((socket) => socket.destroyed)).toEqual([true]);
  });

  it('resolves no name, were a route ever to hold one (A26)', async () => {
    const lenient: Guard = { judge: () => ({ allowed: true }) };
    const loopback = await canary('127.0.0.1');
    const dialled = createDial({ guard: lenient })(routeTo(['localhost'], loopback.port), 5000);
    await expect(dialled).rejects.toMatchObject({ code: 'upstream_connect' });
    expect(loopback.accepted).toEqual([]);
  });

  it('never reaches loopback for a name that is rebound between question and connect (A26)', async () => {
    const loopback = await canary('127.0.0.1');
    const { connect, hosts } = watched('93.184.216.34');
    const answers = [['93.184.216.34'], ['127.0.0.1']];
    const findRoute = createFindRoute({ resolver: { resolve: async () => answers.shift() ?? [] }, guard, warm: () => false });
    const dial = createDial({ guard, connect });
    const rebound = permit({ to: `rebind.example.test:${loopback.port}` });
    const route = await findRoute(rebound, new Trace(), 1000);
    await expect(dial(route as Route, 20)).rejects.toMatchObject({ code: 'upstream_timeout' });
    expect(await findRoute(rebound, new Trace(), 1000)).toMatchObject({ code: 'address_denied' });
    expect(hosts()).toEqual(['93.184.216.34']);
    expect(loopback.accepted).toEqual([]);
    expect(answers).toEqual([]);
  });
});
