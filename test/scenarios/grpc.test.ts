// gRPC through a whole house: grpc-js on both ends, without a .proto file, by every way that a sandbox's client can take.
// Each call is an exchange of its own: judged by its path, with its credential put on, its trailers and its end handed through.
import { once } from 'node:events';
import http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import * as grpc from '@grpc/grpc-js';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';
import { gate } from '../support/probes.ts';
import type { Gate } from '../support/probes.ts';

type Call = grpc.ServerUnaryCall<Buffer, Buffer> | grpc.ServerDuplexStream<Buffer, Buffer>;
type Bidi = grpc.ClientDuplexStream<Buffer, Buffer>;

const same = (bytes: Buffer): Buffer => bytes;

function method(name: string, requestStream: boolean, responseStream: boolean): grpc.MethodDefinition<Buffer, Buffer> {
  const path = `/test.Echo/${name}`;
  return {
    path,
    requestStream,
    responseStream,
    requestSerialize: same,
    requestDeserialize: same,
    responseSerialize: same,
    responseDeserialize: same,
  };
}

const SERVICE = {
  unary: method('Unary', false, false),
  hang: method('Hang', false, false),
  gather: method('Gather', true, false),
  count: method('Count', false, true),
  chat: method('Chat', true, true),
};

/** What an upstream saw of each call: its metadata. */
const seen: grpc.Metadata[] = [];
/** The call that hangs, once it has arrived; opened anew for each test */
let hanging: Gate<Call>;

function trailers(): grpc.Metadata {
  const metadata = new grpc.Metadata();
  metadata.add('x-trail', 'one');
  metadata.add('x-trail', 'two');
  metadata.add('details-bin', Buffer.from([0, 1, 254, 255]));
  return metadata;
}

const IMPLEMENTATION: grpc.UntypedServiceImplementation = {
  unary: (call: grpc.ServerUnaryCall<Buffer, Buffer>, callback: grpc.sendUnaryData<Buffer>) => {
    seen.push(call.metadata);
    if (call.request.toString() === 'fail')
      callback({ code: grpc.status.NOT_FOUND, details: 'no such thing: 100 % gründlich', metadata: trailers() });
    else callback(null, call.request, trailers());
  },
  hang: (call: grpc.ServerUnaryCall<Buffer, Buffer>) => {
    seen.push(call.metadata);
    hanging.open(call);
  },
  gather: (call: grpc.ServerReadableStream<Buffer, Buffer>, callback: grpc.sendUnaryData<Buffer>) => {
    seen.push(call.metadata);
    const parts: Buffer[] = [];
    call.on('data', (part: Buffer) => parts.push(part));
    call.on('end', () => callback(null, Buffer.concat(parts)));
  },
  count: (call: grpc.ServerWritableStream<Buffer, Buffer>) => {
    seen.push(call.metadata);
    const most = Number(call.request.toString());
    for (let number = 0; number < most; number += 1) call.write(Buffer.from(String(number)));
    if (most === 2) call.emit('error', { code: grpc.status.DATA_LOSS, details: 'the rest is lost', metadata: trailers() });
    else call.end(trailers());
  },
  chat: (call: grpc.ServerDuplexStream<Buffer, Buffer>) => {
    seen.push(call.metadata);
    const opening = new grpc.Metadata();
    opening.add('x-opening', 'hello');
    call.sendMetadata(opening);
    call.on('data', (message: Buffer) => {
      if (message.toString() === 'hang') hanging.open(call);
      else if (!call.write(message)) {
        call.pause();
        call.once('drain', () => call.resume());
      }
    });
    call.on('end', () => call.end());
    call.on('error', () => undefined);
  },
};

let outside: Outside;
let house: House;
let secure: { readonly server: grpc.Server; readonly port: number };
let plain: { readonly server: grpc.Server; readonly port: number };
/** An HTTP/2 server that does what no gRPC library would */
let odd: { readonly server: http2.Http2SecureServer; readonly port: number };
let onOdd: (stream: http2.ServerHttp2Stream) => void = () => undefined;
const clients: grpc.Client[] = [];

async function serve(credentials: grpc.ServerCredentials): Promise<typeof secure> {
  const server = new grpc.Server({ 'grpc.max_receive_message_length': 16 << 20 });
  server.addService(SERVICE, IMPLEMENTATION);
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', credentials, (error, bound) => (error === null ? resolve(bound) : reject(error)));
  });
  return { server, port };
}

async function serveOdd(): Promise<typeof odd> {
  const server = http2.createSecureServer(outside.credentials('odd.test'));
  server.on('stream', (stream) => {
    stream.on('error', () => undefined);
    onOdd(stream);
  });
  server.on('sessionError', () => undefined);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { server, port: (server.address() as AddressInfo).port };
}

beforeAll(async () => {
  outside = await openOutside();
  const { key, cert } = outside.credentials('api.test');
  const pair = { private_key: Buffer.from(key), cert_chain: Buffer.from(cert) };
  secure = await serve(grpc.ServerCredentials.createSsl(null, [pair]));
  plain = await serve(grpc.ServerCredentials.createInsecure());
  odd = await serveOdd();
  const put = { addresses: LOOPBACK, transform: { Authorization: 'Bearer put-on' }, allow_plaintext: true };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      network: {
        allowlist: [
          { domain: 'api.test', ports: [secure.port], paths: ['/test\\.Echo/.*'], ...put },
          { domain: 'plain.test', ports: [plain.port], paths: ['/test\\.Echo/.*'], ...put },
          { domain: 'guarded.test', ports: [plain.port], ...put, allow_plaintext: false },
          { domain: 'odd.test', ports: [odd.port], addresses: LOOPBACK },
          { domain: 'gone.test', addresses: LOOPBACK, ports: [1] },
        ],
      },
    },
    { names: Object.fromEntries(['api', 'plain', 'guarded', 'odd', 'gone'].map((name) => [`${name}.test`, ['127.0.0.1']])) },
  );
});

beforeEach(() => {
  hanging = gate<Call>();
  seen.length = 0;
});

afterEach(() => {
  for (const client of clients.splice(0)) client.close();
});

afterAll(async () => {
  await house.stop();
  secure.server.forceShutdown();
  plain.server.forceShutdown();
  odd.server.close();
  await outside.close();
});

const Client = grpc.makeGenericClientConstructor(SERVICE, 'Echo');
const ROOM = { 'grpc.max_receive_message_length': 16 << 20, 'grpc.enable_retries': 0 };

/** Methods of the generic client, as they are called here. */
interface Echo extends grpc.Client {
  unary(
    request: Buffer,
    options: grpc.CallOptions,
    callback: (error: grpc.ServiceError | null, answer?: Buffer) => void,
  ): grpc.ClientUnaryCall;
  hang(request: Buffer, options: grpc.CallOptions, callback: (error: grpc.ServiceError | null) => void): grpc.ClientUnaryCall;
  gather(callback: (error: grpc.ServiceError | null, answer?: Buffer) => void): grpc.ClientWritableStream<Buffer>;
  count(request: Buffer): grpc.ClientReadableStream<Buffer>;
  chat(): Bidi;
}

function connect(target: string, credentials: grpc.ChannelCredentials, options: grpc.ChannelOptions = {}): Echo {
  const client = new Client(target, credentials, { ...ROOM, ...options }) as unknown as Echo;
  clients.push(client);
  return client;
}

/** A client that finds the proxy in its environment and opens a tunnel. */
function throughTunnel(target: string, credentials: grpc.ChannelCredentials): Echo {
  process.env.grpc_proxy = `http://127.0.0.1:${house.port}`;
  try {
    return connect(target, credentials);
  } finally {
    delete process.env.grpc_proxy;
  }
}

/** Credentials of a client that trusts whoever stands in front of it to speak TLS: `:scheme` https on a connection without. */
function entrusted(): grpc.ChannelCredentials {
  const credentials = grpc.credentials.createInsecure();
  const make = credentials._createSecureConnector.bind(credentials);
  credentials._createSecureConnector = (...given) => {
    const connector = make(...given);
    return { ...connector, connect: (socket) => Promise.resolve({ socket, secure: true }) };
  };
  return credentials;
}

interface Way {
  readonly name: string;
  readonly authority: () => string;
  readonly to: (authority: string) => Echo;
  /** Messages of each of a hundred conversations at once */
  readonly messages: number;
}

const direct = (credentials: () => grpc.ChannelCredentials) => (authority: string) =>
  connect(`127.0.0.1:${house.port}`, credentials(), { 'grpc.default_authority': authority });

const WAYS: readonly Way[] = [
  {
    name: 'by TLS in a tunnel',
    authority: () => `api.test:${secure.port}`,
    to: (authority) => throughTunnel(authority, grpc.credentials.createSsl(Buffer.from(house.ca))),
    messages: 1000,
  },
  {
    name: 'by cleartext in a tunnel',
    authority: () => `plain.test:${plain.port}`,
    to: (authority) => throughTunnel(authority, grpc.credentials.createInsecure()),
    messages: 100,
  },
  {
    name: 'to the listener, scheme http',
    authority: () => `plain.test:${plain.port}`,
    to: direct(() => grpc.credentials.createInsecure()),
    messages: 100,
  },
  {
    name: 'to the listener, scheme https',
    authority: () => `api.test:${secure.port}`,
    to: direct(entrusted),
    messages: 100,
  },
];

/** How a unary call ended. */
interface Ended {
  readonly error: grpc.ServiceError | null;
  readonly answer: string | undefined;
  readonly status: grpc.StatusObject;
}

function unary(client: Echo, request: Buffer | string, options: grpc.CallOptions = {}): Promise<Ended> {
  return new Promise((resolve) => {
    let ended: Omit<Ended, 'status'> | undefined;
    let status: grpc.StatusObject | undefined;
    const look = (): void => {
      if (ended !== undefined && status !== undefined) resolve({ ...ended, status });
    };
    const call = client.unary(Buffer.from(request), options, (error, answer) => {
      ended = { error, answer: answer?.toString('latin1') };
      look();
    });
    call.on('status', (given) => {
      status = given;
      look();
    });
  });
}

/** Everything that a stream of answers brought, and its end. */
function drain(call: grpc.ClientReadableStream<Buffer> | Bidi): Promise<{ readonly got: string[]; status: grpc.StatusObject }> {
  const got: string[] = [];
  call.on('data', (message: Buffer) => got.push(message.toString()));
  call.on('error', () => undefined);
  return new Promise((resolve) => call.on('status', (status) => resolve({ got, status })));
}

function credentialsSeen(): unknown[] {
  return seen.map((metadata) => metadata.get('authorization'));
}

// fault I02
describe.each(WAYS)('$name', ({ authority, to, messages }) => {
  // fault I03
  it('carries a unary call with its metadata both ways, and puts the credential on in place of its own', async () => {
    const metadata = new grpc.Metadata();
    metadata.add('x-own', 'mine');
    metadata.add('x-own-bin', Buffer.from([255, 0]));
    metadata.add('authorization', 'Bearer of the sandbox');
    const client = to(authority());
    const after = house.outcomes.length;
    const ended = await new Promise<Ended>((resolve) => {
      const call = client.makeUnaryRequest(SERVICE.unary.path, same, same, Buffer.from('one'), metadata, (error, answer) => {
        call.once('status', (status) => resolve({ error, answer: answer?.toString(), status }));
      });
    });
    expect(ended).toMatchObject({ error: null, answer: 'one', status: { code: grpc.status.OK } });
    expect(ended.status.metadata.get('x-trail').join()).toMatch(/^one, ?two$/);
    expect(ended.status.metadata.get('details-bin')).toEqual([Buffer.from([0, 1, 254, 255])]);
    expect(seen).toHaveLength(1);
    expect(credentialsSeen()).toEqual([['Bearer put-on']]);
    expect(seen[0]!.get('x-own')).toEqual(['mine']);
    expect(seen[0]!.get('x-own-bin')).toEqual([Buffer.from([255, 0])]);
    const outcome = await house.outcome(({ arrival }) => arrival.target === SERVICE.unary.path, after);
    expect(outcome).toMatchObject({ decision: 'allow', verdict: undefined, trace: { status: 200 } });
    expect(outcome.arrival.protocol).toBe('h2');
  });

  // fault I03
  it('hands through the status of a call that failed before any answer', async () => {
    const { error } = await unary(to(authority()), 'fail');
    expect(error).toMatchObject({ code: grpc.status.NOT_FOUND, details: 'no such thing: 100 % gründlich' });
    expect(error!.metadata.get('details-bin')).toEqual([Buffer.from([0, 1, 254, 255])]);
  });

  it('carries the messages of a client that streams', async () => {
    const answer = new Promise<string | undefined>((resolve, reject) => {
      const call = to(authority()).gather((error, got) => (error === null ? resolve(got?.toString()) : reject(error)));
      for (const part of ['a', 'b', 'c']) call.write(Buffer.from(part));
      call.end();
    });
    expect(await answer).toBe('abc');
    expect(credentialsSeen()).toEqual([['Bearer put-on']]);
  });

  it('carries the messages of a server that streams, and the trailers behind them', async () => {
    const { got, status } = await drain(to(authority()).count(Buffer.from('300')));
    expect(got).toEqual(Array.from({ length: 300 }, (_, number) => String(number)));
    expect(status.code).toBe(grpc.status.OK);
    expect(status.metadata.get('x-trail').join()).toMatch(/^one, ?two$/);
    const lost = await drain(to(authority()).count(Buffer.from('2')));
    expect(lost.got).toEqual(['0', '1']);
    expect(lost.status).toMatchObject({ code: grpc.status.DATA_LOSS, details: 'the rest is lost' });
    expect(credentialsSeen()).toEqual([['Bearer put-on'], ['Bearer put-on']]);
  });

  it('carries each message of a conversation while it goes on', async () => {
    const call = to(authority()).chat();
    const [opening] = (await once(call, 'metadata')) as [grpc.Metadata];
    expect(opening.get('x-opening')).toEqual(['hello']);
    for (const message of ['ping', 'pong', '']) {
      call.write(Buffer.from(message));
      expect(String((await once(call, 'data'))[0])).toBe(message);
    }
    call.end();
    expect((await drain(call)).status.code).toBe(grpc.status.OK);
  });

  it('carries messages of many windows', async () => {
    const large = Buffer.alloc(3 << 20, 'x').toString();
    const client = to(authority());
    expect((await unary(client, large)).answer === large).toBe(true);
  });

  it('ends a call upstream when its deadline has passed, and says upstream when that is', async () => {
    const deadline = Date.now() + 1000;
    const ended = new Promise<grpc.ServiceError | null>((resolve) => {
      to(authority()).hang(Buffer.from('x'), { deadline }, resolve);
    });
    const call = await hanging.opened;
    expect(Math.abs(Number(call.getDeadline()) - deadline)).toBeLessThan(900);
    await Promise.all([call.cancelled ? undefined : once(call, 'cancelled'), ended]);
    expect((await ended)!.code).toBe(grpc.status.DEADLINE_EXCEEDED);
  });

  it('ends a call upstream when the client cancels it', async () => {
    const client = to(authority());
    const after = house.outcomes.length;
    const ended = new Promise<grpc.ServiceError | null>((resolve) => {
      const call = client.hang(Buffer.from('x'), {}, resolve);
      void hanging.opened.then(() => call.cancel());
    });
    const call = await hanging.opened;
    if (!call.cancelled) await once(call, 'cancelled');
    expect((await ended)!.code).toBe(grpc.status.CANCELLED);
    const outcome = await house.outcome(({ arrival }) => arrival.target === SERVICE.hang.path, after);
    expect(outcome.verdict?.code).toBe('client_closed');
    // and what else goes over the same connection goes on
    expect((await unary(client, 'next')).answer).toBe('next');
  });

  it('ends a conversation upstream when the client leaves it in the middle', async () => {
    const call = to(authority()).chat();
    call.on('error', () => undefined);
    call.write(Buffer.from('hang'));
    const upstream = await hanging.opened;
    const cancelled = upstream.cancelled ? undefined : once(upstream, 'cancelled');
    call.cancel();
    await cancelled;
  });

  it("hands through the server's own end of a conversation", async () => {
    const call = to(authority()).chat();
    const ended = drain(call);
    call.write(Buffer.from('first'));
    call.write(Buffer.from('hang'));
    (await hanging.opened).emit('error', { code: grpc.status.ABORTED, details: 'enough' });
    expect(await ended).toMatchObject({ got: ['first'], status: { code: grpc.status.ABORTED, details: 'enough' } });
  });

  it('refuses a path that the rule does not allow, as permission denied with the reason, and goes on', async () => {
    const client = to(authority());
    const after = house.outcomes.length;
    const denied = await new Promise<grpc.ServiceError | null>((resolve) => {
      client.makeUnaryRequest('/test.Other/Unary', same, same, Buffer.from('x'), resolve);
    });
    expect(denied!.code).toBe(grpc.status.PERMISSION_DENIED);
    expect(denied!.details).toMatch(/^path_denied: .*\(request [0-9a-f-]{36}\)$/);
    expect(denied!.metadata.get('x-sallyport-reason')).toEqual(['path_denied']);
    expect(seen).toEqual([]);
    const outcome = await house.outcome(({ arrival }) => arrival.target === '/test.Other/Unary', after);
    expect(outcome).toMatchObject({ decision: 'refuse', verdict: { code: 'path_denied' } });
    expect((await unary(client, 'next')).answer).toBe('next');
  });

  it('loses and reorders nothing in a hundred conversations at once', { timeout: 120_000 }, async () => {
    const client = to(authority());
    const after = house.outcomes.length;
    const talks = await Promise.all(Array.from({ length: 100 }, (_, talk) => converse(client.chat(), talk, messages)));
    for (const { talk, got, code } of talks) {
      expect(code).toBe(grpc.status.OK);
      expect(got).toEqual(Array.from({ length: messages }, (_, number) => `${talk}:${number}`));
    }
    expect(seen).toHaveLength(100);
    expect(new Set(credentialsSeen().map(String))).toEqual(new Set(['Bearer put-on']));
    await house.outcome(() => house.outcomes.slice(after).filter(isChat).length === 100);
    expect(house.outcomes.slice(after).filter((one) => isChat(one) && one.decision === 'allow')).toHaveLength(100);
  });
});

function isChat(outcome: House['outcomes'][number]): boolean {
  return outcome.arrival.target === SERVICE.chat.path;
}

/** Says its messages as fast as they are taken, and hears them back. */
async function converse(
  call: Bidi,
  talk: number,
  messages: number,
): Promise<{ readonly talk: number; readonly got: string[]; readonly code: number }> {
  const ended = drain(call);
  for (let number = 0; number < messages; number += 1)
    if (!call.write(Buffer.from(`${talk}:${number}`))) await once(call, 'drain');
  call.end();
  const { got, status } = await ended;
  return { talk, got, code: status.code };
}

describe('a call that is refused', () => {
  it.each([
    { name: 'a host that is not allowed', host: 'denied.test', port: () => plain.port, code: 'not_allowlisted', status: 7 },
    { name: 'a credential without TLS', host: 'guarded.test', port: () => plain.port, code: 'plaintext_credential', status: 7 },
    { name: 'an upstream that is not there', host: 'gone.test', port: () => 1, code: 'upstream_connect', status: 14 },
  ])('says why: $name', async ({ host, port, code, status }) => {
    const client = direct(() => grpc.credentials.createInsecure())(`${host}:${port()}`);
    const { error } = await unary(client, 'x');
    expect(error!.code).toBe(status);
    expect(error!.details).toContain(`${code}: `);
    expect(seen).toEqual([]);
  });

  it('by its CONNECT is unavailable, and nothing is resolved for it', async () => {
    const client = throughTunnel(`denied.test:${secure.port}`, grpc.credentials.createSsl(Buffer.from(house.ca)));
    const { error } = await unary(client, 'x');
    expect(error!.code).toBe(grpc.status.UNAVAILABLE);
    expect(house.resolved).not.toContain('denied.test');
  });
});

describe('an upstream that breaks a call off', () => {
  const call = (): Bidi => throughTunnel(`odd.test:${odd.port}`, grpc.credentials.createSsl(Buffer.from(house.ca))).chat();
  const HEAD = { ':status': 200, 'content-type': 'application/grpc' };

  it('before its answer is unavailable', async () => {
    onOdd = (stream) => stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
    const { status } = await drain(call());
    expect(status.code).toBe(grpc.status.UNAVAILABLE);
    expect(status.details).toContain('upstream_protocol');
  });

  it('in the middle of its answer breaks it off for the client too, after what came before', async () => {
    onOdd = (stream) => {
      stream.respond(HEAD);
      stream.write(Buffer.from([0, 0, 0, 0, 1, 0x61]), () => stream.close(http2.constants.NGHTTP2_CANCEL));
    };
    const { status } = await drain(call());
    expect([grpc.status.CANCELLED, grpc.status.INTERNAL, grpc.status.UNAVAILABLE]).toContain(status.code);
  });

  it('by ending it without trailers leaves the client without a status, and makes none up', async () => {
    onOdd = (stream) => {
      stream.respond(HEAD);
      stream.end(Buffer.from([0, 0, 0, 0, 1, 0x61]));
    };
    const { got, status } = await drain(call());
    expect(got).toEqual(['a']);
    expect(status.code).not.toBe(grpc.status.OK);
  });

  it('with another status than 200 is what the client hears of', async () => {
    onOdd = (stream) => stream.respond({ ':status': 404, 'content-type': 'text/plain' }, { endStream: true });
    expect((await drain(call())).status.code).toBe(grpc.status.UNIMPLEMENTED);
  });

  it('by leaving with GOAWAY lets what is under way end, and the next call takes a new connection', async () => {
    const first = gate<http2.ServerHttp2Stream>();
    const echo = (stream: http2.ServerHttp2Stream): void => {
      stream.respond(HEAD, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
      stream.pipe(stream);
      first.open(stream);
    };
    onOdd = echo;
    const running = call();
    const ended = drain(running);
    running.write(Buffer.from('before'));
    const { session } = await first.opened;
    session!.goaway(0);
    const next = call();
    const other = drain(next);
    next.end(Buffer.from('x'));
    expect((await other).status.code).toBe(grpc.status.OK);
    running.end(Buffer.from('after'));
    expect(await ended).toMatchObject({ got: ['before', 'after'], status: { code: grpc.status.OK } });
  });
});
