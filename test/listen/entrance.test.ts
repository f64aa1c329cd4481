// Plain HTTP that was led here, on a real port, and what is known of a connection that was led to any port.
import type { Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { ledHere } from '../../src/listen/entrance.ts';
import { exchange, speakHttp2 } from '../support/http2-client.ts';
import { connectTo, readAnswer, sendRaw } from '../support/sandbox-client.ts';
import { answerAll, openRig } from './rig.ts';
import type { Rig } from './rig.ts';

describe('where a connection was going before it was led here', () => {
  const own = new Set(['10.0.0.2', 'fd00::2', 'fe80::1']);
  const destination = { port: 8443, isOwnAddress: (address: string) => own.has(address) };

  it.each([
    { name: 'the address that was dialled', local: '192.0.2.7', address: '192.0.2.7' },
    { name: 'the same at a socket for both families', local: '::ffff:192.0.2.7', address: '192.0.2.7' },
    { name: 'an IPv6 address', local: '2001:DB8:0::7', address: '2001:db8::7' },
    { name: 'an IPv6 address with a zone', local: 'fe80::7%eth0', address: 'fe80::7' },
    { name: 'an IPv4 address in the hex of IPv6 is one of IPv6', local: '::ffff:c000:207', address: '::ffff:c000:207' },
    { name: 'one of our own', local: '10.0.0.2', address: undefined },
    { name: 'one of our own at a socket for both families', local: '::ffff:10.0.0.2', address: undefined },
    { name: 'one of our own in IPv6', local: 'fd00::2', address: undefined },
    { name: 'one of our own with a zone', local: 'fe80::1%eth0', address: undefined },
    { name: 'nothing, as the sandbox has left', local: undefined, address: undefined },
  ])('is $name: $local', ({ local, address }) => {
    const socket = { localAddress: local, remoteAddress: '10.0.7.3' } as Socket;
    expect(ledHere(socket, 'https', destination)).toEqual({
      origin: { scheme: 'https', port: 8443, address },
      client: '10.0.7.3',
    });
  });
});

describe('plain HTTP that was led here', () => {
  let rig: Rig;

  afterEach(() => rig.close());

  it('is an arrival with where it came from and where it was going', async () => {
    rig = await openRig();
    const socket = await connectTo(rig.led.http, '127.0.0.9');
    socket.write('GET /x HTTP/1.1\r\nHost: api.test\r\n\r\n');
    expect(await readAnswer(socket)).toMatchObject({ status: 200, body: '/x' });
    expect(rig.arrivals[0]).toMatchObject({
      purpose: 'exchange',
      door: 'transparent',
      protocol: 'http/1.1',
      target: '/x',
      fields: ['Host', 'api.test'],
      trouble: undefined,
      ceiling: undefined,
      origin: { scheme: 'http', port: 80, address: '127.0.0.9' },
      client: '127.0.0.1',
    });
    socket.destroy();
  });

  it('may be HTTP/2 by prior knowledge', async () => {
    rig = await openRig();
    const session = speakHttp2(await connectTo(rig.led.http), 'api.test', 'http');
    expect((await exchange(session, { ':path': '/x', ':authority': 'api.test', ':scheme': 'http' })).status).toBe(200);
    session.destroy();
    expect(rig.arrivals[0]).toMatchObject({
      door: 'transparent',
      protocol: 'h2',
      pseudo: { scheme: 'http', authority: 'api.test' },
      origin: { scheme: 'http', port: 80, address: undefined },
    });
  });

  it('may be a WebSocket', async () => {
    rig = await openRig();
    const socket = await connectTo(rig.led.http);
    socket.write('GET /s HTTP/1.1\r\nHost: api.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
    expect(await rig.arrival(() => true)).toMatchObject({
      purpose: 'upgrade',
      door: 'transparent',
      origin: { scheme: 'http', port: 80 },
    });
    socket.destroy();
  });

  it('is no way to open a tunnel, over HTTP/1.1 or HTTP/2', async () => {
    rig = await openRig();
    const answer = await sendRaw(rig.led.http, 'CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n', 'CONNECT');
    expect(answer).toMatchObject({ status: 400, headers: { 'x-trouble': 'bad_request' } });
    const session = speakHttp2(await connectTo(rig.led.http), 'api.test', 'http');
    expect((await exchange(session, { ':method': 'CONNECT', ':authority': 'api.test:443' })).status).toBe(400);
    session.destroy();
    expect(rig.arrivals).toMatchObject(
      Array(2).fill({
        purpose: 'tunnel',
        door: 'transparent',
        trouble: { code: 'bad_request', detail: 'CONNECT is for the proxy port' },
      }),
    );
  });

  it.each([
    { name: 'what is not HTTP', bytes: '\x16\x03\x01\x00\x05hello', code: 'bad_request', limits: {} },
    {
      name: 'what begins like HTTP/2 and comes no further',
      bytes: 'PRI * HT',
      code: 'request_timeout',
      limits: { headerMs: 50 },
    },
  ])('is answered in its own words where it is refused: $name', async ({ bytes, code, limits }) => {
    rig = await openRig(answerAll, limits);
    const socket = await connectTo(rig.led.http);
    socket.write(Buffer.from(bytes, 'latin1'));
    expect(await readAnswer(socket)).toMatchObject({ status: 400, headers: { 'x-trouble': code } });
    expect(rig.arrivals).toMatchObject([{ door: 'transparent', origin: { scheme: 'http', port: 80 } }]);
    socket.destroy();
  });

  it('is turned away in its own words where it is too much', async () => {
    rig = await openRig(answerAll, { connections: 1 });
    const first = await connectTo(rig.led.http);
    expect(await readAnswer(await connectTo(rig.led.http))).toMatchObject({ headers: { 'x-trouble': 'limit_reached' } });
    expect(rig.arrivals).toMatchObject([{ door: 'transparent', origin: { scheme: 'http', port: 80 } }]);
    first.destroy();
  });
});
