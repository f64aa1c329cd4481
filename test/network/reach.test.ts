// Connections of the proxy's own: every answer is judged before anything is dialled, by the guard that judges the exchanges.
import type net from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseAuthority } from '../../src/exchange/authority.ts';
import { Fault } from '../../src/exchange/codes.ts';
import { createGuard } from '../../src/network/guard.ts';
import { createReach } from '../../src/network/reach.ts';
import { startRaw } from '../support/outside.ts';
import type { Upstream } from '../support/outside.ts';
import { ranges } from './permits.ts';

let upstream: Upstream;
let own: Upstream;

beforeAll(async () => {
  upstream = await startRaw((socket) => void socket.end('hello'));
  own = await startRaw((socket) => void socket.end());
});

afterAll(async () => {
  await upstream.close();
  await own.close();
});

const reachOver = (answers: readonly string[] | Error, asked: string[] = []) =>
  createReach({
    guard: createGuard({ listeners: () => [{ address: '127.0.0.1', port: own.port }], interfaces: () => [] }),
    resolver: {
      resolve: (host) => {
        asked.push(host);
        return answers instanceof Error ? Promise.reject(answers) : Promise.resolve(answers);
      },
    },
  });

function to(text: string, cidrs: readonly string[] = []) {
  const authority = parseAuthority(text, 443);
  if (authority === undefined) throw new Error(`unreadable "${text}"`);
  return { authority, opened: ranges(...cidrs), deadlineMs: 5_000 };
}

async function codeOf(promise: Promise<net.Socket>): Promise<string> {
  return promise.then(
    (socket) => {
      socket.destroy();
      return 'connected';
    },
    (error: unknown) => (error instanceof Fault ? error.code : String(error)),
  );
}

describe('a connection of the proxy’s own', () => {
  it('goes to the judged address of a name that was asked for once', async () => {
    const asked: string[] = [];
    const socket = await reachOver(['127.0.0.1'], asked)(to(`tokens.test:${upstream.port}`, ['127.0.0.0/8']));
    expect([socket.remoteAddress, socket.remotePort, asked]).toEqual(['127.0.0.1', upstream.port, ['tokens.test']]);
    socket.destroy();
  });

  it.each([
    { name: 'loopback', answers: ['127.0.0.1'], cidrs: [] },
    { name: 'the metadata service', answers: ['169.254.169.254'], cidrs: ['127.0.0.0/8'] },
    { name: 'one address inside among others', answers: ['127.0.0.1', '10.0.0.1'], cidrs: ['127.0.0.0/8'] }, // fault A25
    { name: 'an address beside the opened range', answers: ['127.0.0.2'], cidrs: ['127.0.0.1'] },
    { name: 'what cannot be read', answers: ['0x7f.1'], cidrs: ['127.0.0.0/8'] }, // fault A01
  ])('is refused where the name leads to $name', async ({ answers, cidrs }) => {
    const before = upstream.connections;
    expect(await codeOf(reachOver(answers)(to(`tokens.test:${upstream.port}`, cidrs)))).toBe('address_denied');
    expect(upstream.connections).toBe(before);
  });

  it('is refused to an address written out, without asking a name', async () => {
    const asked: string[] = [];
    expect(await codeOf(reachOver([], asked)(to(`127.0.0.1:${upstream.port}`)))).toBe('address_denied');
    expect(asked).toEqual([]);
  });

  it('never reaches a listener of the proxy, whatever is opened', async () => {
    // fault B16
    expect(await codeOf(reachOver(['127.0.0.1'])(to(`tokens.test:${own.port}`, ['127.0.0.0/8'])))).toBe('address_denied');
    expect(own.connections).toBe(0);
  });

  it.each([
    { name: 'does not resolve', answers: new Error('ENOTFOUND') },
    { name: 'has no address', answers: [] },
  ])('fails by name where the name $name', async ({ answers }) => {
    expect(await codeOf(reachOver(answers)(to('tokens.test')))).toBe('dns_failed');
  });
});
