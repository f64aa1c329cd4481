// TLS that was led here, on a real port: what a ClientHello becomes, how a refusal is told, and what is cut.
import { EventEmitter, once } from 'node:events';
import { afterEach, describe, expect, it } from 'vitest';
import { parseAuthority } from '../../src/exchange/authority.ts';
import type { Authority } from '../../src/exchange/authority.ts';
import type { Arrival, TunnelArrival, TunnelEnd } from '../../src/exchange/stages.ts';
import { clientHello, helloMessage, inRecords, serverNames } from '../support/client-hellos.ts';
import { exchange, speakHttp2 } from '../support/http2-client.ts';
import { openLed, readToEnd } from '../support/led-client.ts';
import { connectTo, readAnswer } from '../support/sandbox-client.ts';
import { openRig } from './rig.ts';
import type { Journey, Rig } from './rig.ts';

let rig: Rig;

afterEach(() => rig.close());

const UNRECOGNIZED_NAME = Buffer.from([0x15, 3, 1, 0, 2, 2, 0x70]);
const INTERNAL_ERROR = Buffer.from([0x15, 3, 1, 0, 2, 2, 0x50]);

function isTunnel(arrival: Arrival): arrival is TunnelArrival {
  return arrival.purpose === 'tunnel';
}

/** Where intake would say that it leads. */
function whereTo({ target, origin }: TunnelArrival): Authority {
  const authority = parseAuthority(target === '' ? (origin?.address ?? '') : target, origin?.port);
  if (authority === undefined) throw new Error('leads nowhere');
  return authority;
}

/** Says how a tunnel has ended. */
const ends = new EventEmitter<{ end: [TunnelEnd] }>();

/** Lets tunnels live by `how`, and answers each request inside with 200, its door and its ceiling. */
function living(how: (arrival: TunnelArrival) => Promise<TunnelEnd> | undefined): Journey {
  return async (arrival) => {
    if (isTunnel(arrival)) {
      const end = await how(arrival);
      if (end === undefined) arrival.reply.abort();
      else ends.emit('end', end);
    } else if (arrival.purpose === 'passthrough') arrival.stream.end('passed');
    else {
      arrival.reply.head(arrival.trouble === undefined ? 200 : 400, '', ['X-Door', arrival.door]);
      arrival.reply.write(Buffer.from(`${arrival.trouble?.detail ?? ''} ${JSON.stringify(arrival.ceiling ?? null)}`));
      arrival.reply.end();
    }
  };
}

const opened = living((arrival) => arrival.open(whereTo(arrival), false));
const cut = living(() => undefined);

describe('a ClientHello', () => {
  it.each([
    { name: 'a name', servername: 'Api.Test', address: '127.0.0.1', target: 'Api.Test', dialled: undefined },
    {
      name: 'a name at an address that is not ours',
      servername: 'api.test',
      address: '127.0.0.9',
      target: 'api.test',
      dialled: '127.0.0.9',
    },
    {
      name: 'no name at an address that is not ours',
      servername: undefined,
      address: '127.0.0.9',
      target: '',
      dialled: '127.0.0.9',
    },
  ])('becomes the arrival of a tunnel: $name', async ({ servername, address, target, dialled }) => {
    rig = await openRig(opened);
    const secured = await openLed({
      port: rig.led.tls,
      address,
      ca: rig.ca,
      ...(servername === undefined ? {} : { servername }),
    });
    secured.destroy();
    expect(rig.arrivals[0]).toMatchObject({
      purpose: 'tunnel',
      door: 'transparent',
      protocol: 'http/1.1',
      method: 'CONNECT',
      target,
      fields: [],
      version: '',
      trouble: undefined,
      ceiling: undefined,
      origin: { scheme: 'https', port: 443, address: dialled },
      client: '127.0.0.1',
    });
  });

  it('leads nowhere that is known where it names nobody and a redirect has hidden the address', async () => {
    rig = await openRig(cut);
    await expect(openLed({ port: rig.led.tls, ca: rig.ca })).rejects.toThrow(/unrecognized name/);
    expect(rig.arrivals[0]).toMatchObject({ target: '', trouble: undefined, origin: { address: undefined } });
  });

  it('is read in whatever pieces it comes', async () => {
    rig = await openRig(cut);
    const hello = await clientHello('api.test');
    const socket = await connectTo(rig.led.tls);
    socket.write(hello.subarray(0, 3));
    await new Promise((resolve) => setImmediate(resolve));
    socket.write(hello.subarray(3, 90));
    await new Promise((resolve) => setImmediate(resolve));
    socket.write(hello.subarray(90));
    expect(await readToEnd(socket)).toEqual(UNRECOGNIZED_NAME);
    expect(rig.arrivals).toMatchObject([{ target: 'api.test' }]);
  });

  it.each([
    { name: 'two names', names: serverNames('api.test', 'other.test') },
    { name: 'an empty name', names: serverNames('') },
    { name: 'a name of another type', names: serverNames({ type: 1, name: 'api.test' }) },
  ])('is trouble where it does not name exactly one host: $name', async ({ names }) => {
    rig = await openRig(cut);
    const socket = await connectTo(rig.led.tls);
    socket.write(inRecords(helloMessage([names])));
    expect(await readToEnd(socket)).toEqual(UNRECOGNIZED_NAME);
    expect(rig.arrivals).toMatchObject([{ purpose: 'tunnel', target: '', trouble: { code: 'host_mismatch' } }]);
  });
});

describe('a tunnel that was led here', () => {
  it('is opened without a word, and its requests are bound to where it leads', async () => {
    rig = await openRig(opened);
    const secured = await openLed({ port: rig.led.tls, servername: 'api.test', ca: rig.ca });
    expect(secured.getPeerCertificate().subjectaltname).toBe('DNS:api.test');
    secured.write('GET /x HTTP/1.1\r\nHost: api.test\r\n\r\n');
    const answer = await readAnswer(secured);
    secured.end();
    expect(answer).toMatchObject({ status: 200, headers: { 'x-door': 'transparent' } });
    expect(JSON.parse(answer.body)).toEqual({
      scheme: 'https',
      authority: { host: 'api.test', port: 443, address: false },
    });
    expect(rig.arrivals[1]).toMatchObject({ target: '/x', origin: undefined, client: '127.0.0.1' });
    expect(await once(ends, 'end')).toMatchObject([{ carried: 1 }]);
  });

  it('speaks HTTP/2 where the client offers it', async () => {
    rig = await openRig(opened);
    const secured = await openLed({ port: rig.led.tls, servername: 'api.test', ca: rig.ca, alpn: ['h2', 'http/1.1'] });
    const session = speakHttp2(secured, 'api.test');
    expect(await exchange(session, { ':path': '/x' })).toMatchObject({ status: 200, headers: { 'x-door': 'transparent' } });
    session.destroy();
    expect(rig.arrivals[1]).toMatchObject({ protocol: 'h2', ceiling: { authority: { host: 'api.test' } } });
  });

  it('has the certificate of the address where no name was named', async () => {
    rig = await openRig(opened);
    const secured = await openLed({ port: rig.led.tls, address: '127.0.0.9', ca: rig.ca });
    expect(secured.getPeerCertificate().subjectaltname).toBe('IP Address:127.0.0.9');
    secured.destroy();
  });

  it('tells each request inside that it is refused', async () => {
    rig = await openRig(living((arrival) => arrival.tell?.(whereTo(arrival))));
    const secured = await openLed({ port: rig.led.tls, servername: 'no.test', ca: rig.ca });
    secured.write('GET / HTTP/1.1\r\nHost: no.test\r\n\r\n');
    expect(await readAnswer(secured)).toMatchObject({ status: 200, headers: { 'x-door': 'transparent' } });
    secured.end();
    expect(await once(ends, 'end')).toMatchObject([{ carried: 1 }]);
  });

  it('goes on as it came where nobody is to look into it', async () => {
    rig = await openRig(living((arrival) => arrival.open(whereTo(arrival), true)));
    const hello = await clientHello('pinned.test');
    const socket = await connectTo(rig.led.tls);
    socket.write(hello);
    expect((await readToEnd(socket)).toString()).toBe('passed');
    expect(rig.arrivals[1]).toMatchObject({
      purpose: 'passthrough',
      door: 'transparent',
      ceiling: { scheme: 'https', authority: { host: 'pinned.test', port: 443 }, identity: undefined },
    });
  });

  it('opens no tunnel inside itself', async () => {
    rig = await openRig(opened);
    const secured = await openLed({ port: rig.led.tls, servername: 'api.test', ca: rig.ca });
    secured.write('CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n');
    await rig.arrival(({ target }) => target === 'other.test:443');
    expect(rig.arrivals.at(-1)).toMatchObject({ trouble: { code: 'bad_request', detail: 'CONNECT inside a tunnel' } });
    secured.destroy();
  });
});

describe('what is no ClientHello', () => {
  it.each([
    { name: 'bytes of another protocol', bytes: Buffer.from('SSH-2.0-OpenSSH_9.6\r\n') },
    { name: 'a broken ClientHello', bytes: inRecords(Buffer.from([1, 0, 0, 2, 3, 3])) },
    { name: 'another handshake message', bytes: inRecords(Buffer.from([2, 0, 0, 0])) },
    { name: 'the preface of HTTP/2', bytes: Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n') },
  ])('is trouble, and the connection closes in silence: $name', async ({ bytes }) => {
    rig = await openRig(cut);
    const socket = await connectTo(rig.led.tls);
    socket.write(bytes);
    expect(await readToEnd(socket)).toHaveLength(0);
    expect(rig.arrivals).toMatchObject([
      { purpose: 'tunnel', door: 'transparent', target: '', trouble: { code: 'bad_request' } },
    ]);
  });

  it('is answered in its own words where it is plain HTTP', async () => {
    rig = await openRig(cut);
    const socket = await connectTo(rig.led.tls);
    socket.write('GET / HTTP/1.1\r\nHost: api.test\r\n\r\n');
    expect(await readAnswer(socket)).toMatchObject({
      status: 400,
      headers: { 'x-door': 'transparent' },
      body: expect.stringContaining('plain HTTP was sent to a port for TLS') as string,
    });
    expect(rig.arrivals).toMatchObject([{ door: 'transparent', trouble: { code: 'bad_request' } }]);
  });

  it('is no arrival where nothing was said', async () => {
    rig = await openRig(cut, { handshakeMs: 30 });
    const leaves = await connectTo(rig.led.tls);
    leaves.end();
    const stays = await connectTo(rig.led.tls);
    expect(await readToEnd(stays)).toHaveLength(0);
    await rig.emptied();
    expect(rig.arrivals).toEqual([]);
  });

  it('is trouble where it ends too soon, or does not come in time', async () => {
    rig = await openRig(cut, { handshakeMs: 50 });
    const part = (await clientHello('api.test')).subarray(0, 40);
    const leaves = await connectTo(rig.led.tls);
    leaves.end(part);
    await rig.arrival(({ trouble }) => trouble?.code === 'bad_request');
    const stays = await connectTo(rig.led.tls);
    stays.write(part);
    await rig.arrival(({ trouble }) => trouble?.code === 'request_timeout');
    await rig.emptied();
    expect(rig.arrivals).toHaveLength(2);
  });
});

describe('a port for TLS', () => {
  it('turns away what is too much, in the ledger and with an alert that blames nobody', async () => {
    rig = await openRig(cut, { connections: 1 });
    const first = await connectTo(rig.led.tls);
    expect(await once(await connectTo(rig.led.tls), 'data')).toEqual([INTERNAL_ERROR]);
    expect(rig.arrivals).toMatchObject([{ purpose: 'tunnel', door: 'transparent', trouble: { code: 'limit_reached' } }]);
    first.destroy();
  });

  it('shares that number with every other port', async () => {
    rig = await openRig(undefined, { connections: 1 });
    const first = await connectTo(rig.port);
    await connectTo(rig.led.tls);
    expect((await rig.arrival(() => true)).trouble?.code).toBe('limit_reached');
    first.destroy();
  });

  it('lets go of connections that have said nothing when it is closed', async () => {
    rig = await openRig(cut);
    const silent = await connectTo(rig.led.tls);
    const begun = await connectTo(rig.led.tls);
    begun.write(Buffer.from([0x16]));
    await Promise.all([rig.drain(60_000), readToEnd(silent), readToEnd(begun).catch(() => undefined)]);
    expect(rig.open).toBe(0);
  });

  it('waits for a tunnel under way when it is closed', async () => {
    rig = await openRig(opened);
    const secured = await openLed({ port: rig.led.tls, servername: 'api.test', ca: rig.ca });
    secured.write('GET / HTTP/1.1\r\nHost: api.test\r\n');
    await rig.arrival(isTunnel);
    const drained = rig.drain(60_000);
    secured.write('\r\n');
    expect((await readAnswer(secured)).status).toBe(200);
    await drained;
  });
});
