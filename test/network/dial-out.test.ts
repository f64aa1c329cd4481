// Twin of dial-out.ts, request-tunnel.ts and corporate-proxy.ts: the way through a corporate proxy, over real sockets.
import { once } from 'node:events';
import type net from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { parseAddress, parseAuthority } from '../../src/exchange/authority.ts';
import type { Host } from '../../src/exchange/authority.ts';
import { Fault, Refusal } from '../../src/exchange/codes.ts';
import { Trace } from '../../src/exchange/trace.ts';
import { Secret } from '../../src/foundation/secret.ts';
import { leaveName } from '../../src/network/corporate-proxy.ts';
import type { CorporateProxy as Declared } from '../../src/network/corporate-proxy.ts';
import { createDialTo } from '../../src/network/dial.ts';
import type { DialTarget } from '../../src/network/dial.ts';
import { createDialOut } from '../../src/network/dial-out.ts';
import type { DialOut } from '../../src/network/dial-out.ts';
import { createFindRoute } from '../../src/network/find-route.ts';
import { createGuard } from '../../src/network/guard.ts';
import type { Listener } from '../../src/network/guard.ts';
import { createReach } from '../../src/network/reach.ts';
import type { Resolver } from '../../src/network/resolver.ts';
import { answering, silent, startCorporateProxy } from '../support/corporate-proxy.ts';
import type { CorporateProxy, CorporateProxyOptions } from '../support/corporate-proxy.ts';
import { startDeaf } from '../support/deaf-port.ts';
import { startRaw } from '../support/outside.ts';
import type { Upstream } from '../support/outside.ts';
import { permit, ranges } from './permits.ts';

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** An address of the public net, which nobody here can reach: whatever arrives came through the proxy. */
const PUBLIC = '93.184.216.34' as Host;

async function echo(): Promise<Upstream> {
  const upstream = await startRaw((socket) => socket.pipe(socket));
  closing.push(() => upstream.close());
  return upstream;
}

async function corporate(options: CorporateProxyOptions): Promise<CorporateProxy> {
  const proxy = await startCorporateProxy(options);
  closing.push(() => proxy.close());
  return proxy;
}

interface Parts {
  readonly declared?: Partial<Declared>;
  readonly listeners?: readonly Listener[];
  readonly resolver?: Resolver;
}

function declare(port: number, more: Partial<Declared> = {}): Declared {
  return {
    at: { host: '127.0.0.1' as Host, port, address: true },
    secure: false,
    authorization: undefined,
    resolve: 'here',
    connectBy: 'name',
    plainHttp: 'connect',
    direct: () => false,
    ...more,
  };
}

const NOBODY: Resolver = { resolve: (host) => Promise.reject(new Error(`ENOTFOUND ${host}`)) };

function outOver(port: number, { declared, listeners = [], resolver = NOBODY }: Parts = {}): DialOut {
  const guard = createGuard({ listeners: () => listeners, interfaces: () => [] });
  const proxy = declare(port, declared);
  return createDialOut({
    guard,
    resolver,
    proxy: () => proxy,
    dial: createDialTo({ guard }),
    secure: () => Promise.reject(new Fault('upstream_tls', "the upstream's certificate has expired")),
  });
}

function target(text: string, addresses: readonly string[] = [PUBLIC], opened: readonly string[] = []): DialTarget {
  const authority = parseAuthority(text, 443);
  if (authority === undefined) throw new Error(`unreadable "${text}"`);
  return { authority, addresses: addresses.map((each) => parseAddress(each) as Host), opened: ranges(...opened) };
}

async function ends(promise: Promise<net.Socket>): Promise<string> {
  return promise.then(
    (socket) => {
      socket.destroy();
      return 'connected';
    },
    (thrown: unknown) => (thrown instanceof Fault ? `${thrown.code}: ${thrown.message}` : String(thrown)),
  );
}

/** Sends a text through and reads as much back. */
async function through(socket: net.Socket, text: string): Promise<string> {
  let got = '';
  socket.on('data', (piece: Buffer) => (got += piece.toString('latin1')));
  socket.write(text, 'latin1');
  while (got.length < text.length) await once(socket, 'data');
  socket.destroy();
  return got;
}

describe('a dial through a corporate proxy', () => {
  it.each([
    { name: 'a name', to: 'api.test:443', addresses: [PUBLIC], asked: 'CONNECT api.test:443' },
    { name: 'a name on port 80', to: 'api.test:80', addresses: [PUBLIC], asked: 'CONNECT api.test:80' },
    { name: 'an IPv4 address', to: `${PUBLIC}:443`, addresses: [PUBLIC], asked: `CONNECT ${PUBLIC}:443` },
    {
      name: 'an IPv6 address',
      to: '[2606:2800:220:1::1]:443',
      addresses: ['2606:2800:220:1::1'],
      asked: 'CONNECT [2606:2800:220:1::1]:443',
    },
  ])('asks for a tunnel to $name and gives it over unread', async ({ to, addresses, asked }) => {
    const upstream = await echo();
    const proxy = await corporate({ leads: { [to]: upstream.port } });
    const socket = await outOver(proxy.port).dial(target(to, addresses), 5000);
    expect(await through(socket, 'hello')).toBe('hello');
    expect([proxy.asked, proxy.fields[0]]).toEqual([[asked], ['Host', to]]);
  });

  it('shows the credentials that are configured, and none else', async () => {
    const upstream = await echo();
    const proxy = await corporate({ leads: { 'api.test': upstream.port }, credentials: 'ann:pass word' });
    const authorization = new Secret(`Basic ${Buffer.from('ann:pass word').toString('base64')}`);
    const socket = await outOver(proxy.port, { declared: { authorization } }).dial(target('api.test'), 5000);
    expect(await through(socket, 'x')).toBe('x');
    expect(proxy.fields[0]).toEqual(['Host', 'api.test:443', 'Proxy-Authorization', authorization.reveal()]);
  });

  it.each([
    { name: 'in one piece', pieces: ['HTTP/1.1 200 Connection established\r\n\r\nfirst'] },
    { name: 'byte by byte', pieces: Array.from('HTTP/1.1 200 OK\r\nVia: x\r\n\r\nfirst') },
    { name: 'cut before the first byte of the tunnel', pieces: ['HTTP/1.1 200 OK\r\n\r\n', 'first'] },
    { name: 'cut in its empty line', pieces: ['HTTP/1.1 200 OK\r\n\r', '\nfirst'] },
    { name: 'by a proxy of HTTP/1.0 without a phrase', pieces: ['HTTP/1.0 200\r\n\r\nfirst'] },
    { name: 'with another 2xx', pieces: ['HTTP/1.1 204 No Content\r\n\r\nfirst'] },
    {
      name: 'with a length, which has no meaning there',
      pieces: ['HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst'],
      fault: 'D08',
    },
    {
      name: 'with a coding, which has no meaning there',
      pieces: ['HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfirst'],
      fault: 'D08',
    },
    {
      name: 'after interim answers',
      pieces: ['HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\nfirst'],
      fault: 'D08',
    },
  ])('takes an answer $name, and loses no byte behind it', async ({ pieces }) => {
    const proxy = await corporate({
      answer: (socket) => {
        const next = (at: number): void => {
          const piece = pieces[at];
          if (piece === undefined) socket.on('data', (data) => socket.end(data));
          else socket.write(piece, 'latin1', () => setImmediate(next, at + 1));
        };
        next(0);
      },
    });
    const socket = await outOver(proxy.port).dial(target('api.test'), 5000);
    let got = '';
    socket.on('data', (piece: Buffer) => (got += piece.toString('latin1')));
    socket.write(' second');
    await once(socket, 'end');
    expect(got).toBe('first second');
    socket.destroy();
  });

  it.each([
    {
      name: '407 with a body',
      text: 'HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 6\r\n\r\nsecret',
      ends: 'upstream_connect: the corporate proxy wants credentials, and none are configured (407)',
      fault: 'D08',
    },
    {
      name: '502 with a chunked body',
      text: 'HTTP/1.1 502 Bad Gateway\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nsecret\r\n0\r\n\r\n',
      ends: 'upstream_connect: the corporate proxy could not reach the upstream (502)',
      fault: 'D08',
    },
    {
      name: '403',
      text: 'HTTP/1.1 403 Forbidden\r\n\r\n',
      ends: 'upstream_connect: the corporate proxy refused to connect to the upstream (403)',
    },
    {
      name: 'a redirect',
      text: 'HTTP/1.1 302 Found\r\nLocation: http://login.corp/\r\n\r\n',
      ends: 'upstream_connect: the corporate proxy refused to connect to the upstream (302)',
    },
    { name: '101', text: 'HTTP/1.1 101 Switching Protocols\r\n\r\n', ends: NOT_HTTP() },
    { name: 'a banner', text: 'SSH-2.0-OpenSSH_9.2\r\n', ends: NOT_HTTP() },
    { name: 'a banner without an end', text: '220 mail', ends: NOT_HTTP() },
    { name: 'another version', text: 'HTTP/2 200\r\n\r\n', ends: NOT_HTTP() },
    { name: 'bare line feeds', text: 'HTTP/1.1 200 OK\n\n', ends: NOT_HTTP() },
    { name: 'a status of four digits', text: 'HTTP/1.1 2000 OK\r\n\r\n', ends: NOT_HTTP() },
    { name: 'a head without an end', text: `HTTP/1.1 200 OK\r\nX: ${'x'.repeat(70_000)}`, ends: NOT_HTTP() },
    {
      name: 'half a head',
      text: 'HTTP/1.1 200 OK\r\nVia:',
      ends: 'upstream_connect: the corporate proxy closed the connection before it had answered',
    },
    { name: 'nothing', text: '', ends: 'upstream_connect: the corporate proxy closed the connection before it had answered' },
  ])('fails where the proxy answers $name, without a word of it, and leaves no connection', async ({ text, ends: end }) => {
    const proxy = await corporate({ answer: answering(text) });
    expect(await ends(outOver(proxy.port).dial(target('api.test'), 5000))).toBe(end);
    await expect.poll(() => proxy.open).toBe(0);
  });

  function NOT_HTTP(): string {
    return 'upstream_connect: the corporate proxy answered with something that is not HTTP';
  }

  it('says that the credentials are the wrong ones where some were shown', async () => {
    const proxy = await corporate({ credentials: 'ann:right' });
    const authorization = new Secret(`Basic ${Buffer.from('ann:wrong').toString('base64')}`);
    expect(await ends(outOver(proxy.port, { declared: { authorization } }).dial(target('api.test'), 5000))).toBe(
      'upstream_connect: the corporate proxy wants other credentials (407)',
    );
  });

  it('names the remedy where a tunnel to port 80 is refused', async () => {
    // fault H04
    const proxy = await corporate({ tunnelPorts: [443] });
    expect(await ends(outOver(proxy.port).dial(target('api.test:80'), 5000))).toContain('plain_http to forward');
  });

  it('fails by the proxy where nobody listens, where its name is unknown, and where TLS with it fails', async () => {
    const gone = await startRaw(() => undefined);
    await gone.close();
    expect(await ends(outOver(gone.port).dial(target('api.test'), 5000))).toBe(
      'upstream_connect: the corporate proxy could not be reached',
    );
    const named = { at: { host: 'proxy.corp' as Host, port: 1, address: false } };
    expect(await ends(outOver(1, { declared: named }).dial(target('api.test'), 5000))).toBe(
      'upstream_connect: the name of the corporate proxy could not be resolved',
    );
    const proxy = await corporate({});
    expect(await ends(outOver(proxy.port, { declared: { secure: true } }).dial(target('api.test'), 5000))).toBe(
      'upstream_connect: the TLS handshake with the corporate proxy failed',
    );
    expect(proxy.asked).toEqual([]);
  });

  it('gives up in time on a proxy that does not answer, and on one that cannot be connected to', async () => {
    const mute = await corporate({ answer: silent });
    expect(await ends(outOver(mute.port).dial(target('api.test'), 100))).toBe(
      'upstream_timeout: the corporate proxy did not open the connection in time',
    );
    await expect.poll(() => mute.open).toBe(0);
    const deaf = await startDeaf();
    closing.push(() => deaf.close());
    expect(await ends(outOver(deaf.port).dial(target('api.test'), 100))).toBe(
      'upstream_timeout: the corporate proxy was not reached within 100 ms',
    );
  });

  it('gives up when the sandbox leaves, before and while the proxy is asked', async () => {
    const proxy = await corporate({
      answer: (socket) => {
        silent(socket);
        leaving.abort();
      },
    });
    const leaving = new AbortController();
    const left = 'client_closed: the sandbox left before the upstream was reached';
    expect(await ends(outOver(proxy.port).dial(target('api.test'), 5000, leaving.signal))).toBe(left);
    await expect.poll(() => proxy.open).toBe(0);
    expect(await ends(outOver(proxy.port).dial(target('api.test'), 5000, leaving.signal))).toBe(left);
    expect(proxy.asked).toHaveLength(1);
  });

  it('resolves the name of the proxy here, and goes on to its next address', async () => {
    const upstream = await echo();
    const proxy = await corporate({ leads: { 'api.test': upstream.port } });
    const at = { host: 'proxy.corp' as Host, port: proxy.port, address: false };
    const resolver: Resolver = { resolve: () => Promise.resolve(['127.0.0.9', '127.0.0.1']) };
    const socket = await outOver(1, { declared: { at }, resolver }).dial(target('api.test'), 5000);
    expect(socket.remoteAddress).toBe('127.0.0.1');
    socket.destroy();
  });

  it.each([
    { name: 'as an address', at: '127.0.0.1', answers: [] },
    { name: 'by a name', at: 'proxy.corp', answers: ['127.0.0.1'] },
  ])('never reaches a listener of its own, given $name', async ({ at, answers }) => {
    const own = await corporate({});
    const resolver: Resolver = { resolve: () => Promise.resolve(answers) };
    const declared = { at: { host: at as Host, port: own.port, address: answers.length === 0 } };
    const out = outOver(1, { declared, resolver, listeners: [{ address: '127.0.0.1', port: own.port }] });
    expect(await ends(out.dial(target('api.test'), 5000))).toBe(
      'address_denied: the corporate proxy that is configured is a listener of this proxy itself',
    );
    expect(own.connections).toBe(0);
  });

  it('judges the target again before the proxy hears of it, and asks for nothing that nobody has judged', async () => {
    const proxy = await corporate({});
    const out = outOver(proxy.port);
    expect(await ends(out.dial(target('api.test', [PUBLIC, '10.0.0.1']), 5000))).toContain('address_denied');
    expect(await ends(out.dial(target('api.test', []), 5000))).toBe('upstream_connect: no address of the upstream is known');
    expect(await ends(outOver(proxy.port, { declared: { resolve: 'there' } }).dial(target('10.0.0.1', []), 5000))).toBe(
      'upstream_connect: no address of the upstream is known',
    );
    expect(proxy.connections).toBe(0);
  });

  it('dials a host directly where it is among those', async () => {
    const upstream = await echo();
    const proxy = await corporate({});
    const direct = (host: Host): boolean => host === 'near.test';
    const out = outOver(proxy.port, { declared: { direct, resolve: 'there', plainHttp: 'forward' } });
    const near = target(`near.test:${upstream.port}`, ['127.0.0.1'], ['127.0.0.0/8']);
    expect(await through(await out.dial(near, 5000), 'x')).toBe('x');
    expect([out.forward(near, 5000), out.leaves('near.test' as Host), out.leaves('far.test' as Host)]).toEqual([
      undefined,
      false,
      true,
    ]);
    expect(proxy.connections).toBe(0);
  });

  it('asks by the judged address where that is declared, and by the next one where the first leads nowhere', async () => {
    const upstream = await echo();
    const proxy = await corporate({ leads: { '93.184.216.35:443': upstream.port } });
    const out = outOver(proxy.port, { declared: { connectBy: 'address' } });
    expect(await through(await out.dial(target('api.test', [PUBLIC, '93.184.216.35']), 5000), 'x')).toBe('x');
    expect(proxy.asked).toEqual([`CONNECT ${PUBLIC}:443`, 'CONNECT 93.184.216.35:443']);
  });

  it('connects to the proxy itself for a request that it forwards', async () => {
    const proxy = await corporate({});
    const authorization = new Secret('Basic x');
    const forwarding = await outOver(proxy.port, { declared: { plainHttp: 'forward', authorization } }).forward(
      target('api.test:80'),
      5000,
    );
    expect([forwarding?.socket.remotePort, forwarding?.authorization]).toEqual([proxy.port, authorization]);
    forwarding?.socket.destroy();
    expect(outOver(proxy.port).forward(target('api.test:80'), 5000)).toBeUndefined();
  });
});

describe('a name that does not resolve here', () => {
  const out = outOver(1, { declared: { resolve: 'there' } });
  const guard = createGuard({ listeners: () => [], interfaces: () => [] });
  const finding = (resolver: Resolver, name = 'api.example.test', dnsMs = 5000) =>
    createFindRoute({ resolver, guard, warm: () => false, leaves: (host) => out.leaves(host) })(
      permit({ to: name }),
      new Trace(),
      dnsMs,
    );

  it('is left to the corporate proxy, with no address of its own', async () => {
    const found = await finding(NOBODY);
    expect(found).toMatchObject({ addresses: [] });
    expect(await finding({ resolve: () => Promise.resolve([]) })).toMatchObject({ addresses: [] });
  });

  it('is left to it also where nobody answers, within a second', async () => {
    const begun = performance.now();
    expect(await finding({ resolve: () => new Promise(() => undefined) })).toMatchObject({ addresses: [] });
    expect(performance.now() - begun).toBeLessThan(2500);
  });

  it.each([
    ['localhost'],
    ['a.localhost'],
    ['localhost.localdomain'],
    ['metadata.google.internal'],
    ['internal'],
    ['printer.local'],
    ['nas.home.arpa'],
    ['metadata'],
    ['intranet'],
  ])('is refused where it is one of a machine or its network: %s', async (name) => {
    const found = await finding(NOBODY, name);
    expect(found instanceof Refusal && found.code).toBe('address_denied');
  });

  it.each([['localhost.example.com'], ['internal.example.com'], ['notlocalhost.com'], ['home.arpa.example']])(
    'is no such name: %s',
    (name) => {
      expect(leaveName(name as Host, new Fault('dns_failed', 'x'))).toBeUndefined();
    },
  );

  it('is still judged by every answer where there are some', async () => {
    const resolver: Resolver = { resolve: () => Promise.resolve([PUBLIC, '10.0.0.1']) };
    const found = await finding(resolver);
    expect(found instanceof Refusal && found.code).toBe('address_denied');
    expect(await finding({ resolve: () => Promise.resolve([PUBLIC]) })).toMatchObject({ addresses: [PUBLIC] });
  });

  it('is left to it by the proxy’s own questions too, and never one of its own network', async () => {
    const upstream = await echo();
    const proxy = await corporate({ leads: { 'tokens.test': upstream.port } });
    const ways = outOver(proxy.port, { declared: { resolve: 'there' } });
    const reach = createReach({ resolver: NOBODY, guard, ...ways });
    const order = (text: string) => ({ authority: target(text).authority, deadlineMs: 5000 });
    expect(await through(await reach(order('tokens.test')), 'x')).toBe('x');
    expect(await ends(reach(order('metadata.google.internal')))).toContain('address_denied');
    expect(await ends(reach(order('10.0.0.1')))).toContain('address_denied');
    expect(proxy.asked).toEqual(['CONNECT tokens.test:443']);
  });
});
