// What an exchange may come to, told without a protocol: each scenario plays the sandbox's and the upstream's part, and says which line
// it leaves in the ledger. Where it takes place is a cell's business, and whether both ends saw the right thing is the scenario's.
import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { expect } from 'vitest';
import { acceptOf } from '../../src/exchange/websocket-key.ts';
import { countOf, valuesOf } from './outside.ts';
import { endToEnd, listenTo, pour, valueOf } from './wire.ts';
import type { Fields } from './wire.ts';
import type { Asked, Incoming, SandboxClient, SandboxExchange, WireWay } from './wire-client.ts';
import type { Spoken, UpstreamExchange, WireUpstream } from './wire-upstream.ts';

/** Where a scenario takes place. */
export interface Cell {
  readonly way: WireWay;
  readonly spoken: Spoken;
}

/** A cell while a scenario takes place in it. */
export interface Stage extends Cell {
  readonly upstream: WireUpstream;
  readonly client: SandboxClient;
  /** Host and port that the sandbox asks for */
  readonly authority: string;
  /** Fields that every request of the cell has beside its own */
  readonly own: Fields;
  /** Whether a refusal is answered in the words of gRPC */
  readonly grpc: boolean;
  /** Sends a request, with fields of the cell's own where it needs them. */
  begin(asked: Asked): Promise<SandboxExchange>;
  /** The same, with the first piece of its body where it has one, and the upstream's end of it. */
  both(asked: Asked, first?: string | Buffer): Promise<{ readonly sandbox: SandboxExchange; readonly far: UpstreamExchange }>;
}

/** What may happen. */
export interface Scenario {
  readonly name: string;
  readonly path: string;
  readonly host?: string;
  /** Whether the upstream hears of it at all */
  readonly reaches: boolean;
  readonly act: (stage: Stage) => Promise<void>;
  /** The line in the ledger, but for what differs from cell to cell; `null` takes any number of bytes */
  readonly line: Record<string, unknown>;
  /** The one protocol of an upstream with which this can take place, and why */
  readonly onlyTo?: { readonly spoken: Spoken; readonly reason: string };
  /** As what the ledger knows it; default: as the protocol of the way */
  readonly websocket?: boolean;
}

/** A line that all went well for. */
function line(path: string, more: Record<string, unknown>): Record<string, unknown> {
  return {
    sandbox: 'default',
    action_id: 'action-7',
    method: 'GET',
    host: 'api.test',
    path,
    rule: 'api.test',
    decision: 'allow',
    reason: null,
    credentials: ['key'],
    address: '127.0.0.1',
    status: 200,
    bytes_sent: 0,
    bytes_received: 0,
    ...more,
  };
}

const OWN: Fields = [
  ...['X-One', '1', 'Accept', '*/*', 'X-One', '2', 'Cookie', 'a=1; b=2; c=3'],
  ...['Authorization', "Bearer the sandbox's own", 'X-Sallyport-Action-Id', 'action-7'],
];
const REACHING = ['accept: */*', 'authorization: Bearer put-on-at-the-door', 'cookie: a=1; b=2; c=3', 'x-one: 1', 'x-one: 2'];

/** What the upstream must have seen of the fields, whatever it speaks. */
function expectFields({ fields, authority }: UpstreamExchange, stage: Stage, more: readonly string[] = []): void {
  expect(endToEnd(fields)).toEqual([...REACHING, ...endToEnd(stage.own), ...more].sort());
  expect(valuesOf(fields, 'authorization')).toEqual(['Bearer put-on-at-the-door']);
  expect(authority).toBe(stage.authority);
}

/** Reads an answer to its end. */
async function whole(answer: Incoming): Promise<string> {
  const body = await listenTo(answer.in).end;
  expect(await answer.ending).toBe('whole');
  return body;
}

/** Everything that may come of an exchange, on any way to any upstream. */
export const SCENARIOS: readonly Scenario[] = [
  {
    name: 'GET: fields both ways, each as often and in the order as it was sent',
    path: '/m/get',
    reaches: true,
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ path: '/m/get?q=%20a&q', fields: OWN });
      expect([far.protocol, far.method, far.path]).toEqual([stage.spoken, 'GET', '/m/get?q=%20a&q']);
      expectFields(far, stage);
      expect(valuesOf(far.fields, 'x-one')).toEqual(['1', '2']);
      far.head(200, ['Content-Type', 'text/plain', 'Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'X-B', '', 'Content-Length', '5']);
      far.out.write('hello');
      far.finish();
      const answer = await sandbox.answer;
      expect(answer.status).toBe(200);
      expect(endToEnd(answer.fields)).toEqual([
        'content-length: 5',
        'content-type: text/plain',
        'set-cookie: a=1',
        'set-cookie: b=2',
        'x-b: ',
      ]);
      expect(await whole(answer)).toBe('hello');
    },
    line: line('/m/get', { bytes_received: 5 }),
  },
  {
    name: 'HEAD: the fields of a body that does not come',
    path: '/m/head',
    reaches: true,
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ method: 'HEAD', path: '/m/head', fields: OWN });
      expect(far.method).toBe('HEAD');
      expectFields(far, stage);
      far.head(200, ['Content-Length', '1234', 'ETag', '"a"']);
      far.finish();
      const answer = await sandbox.answer;
      expect(endToEnd(answer.fields)).toEqual(['content-length: 1234', 'etag: "a"']);
      expect(await whole(answer)).toBe('');
    },
    line: line('/m/head', { method: 'HEAD' }),
  },
  {
    name: 'POST stream: request and answer overlap, piece by piece',
    path: '/m/post',
    reaches: true,
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ method: 'POST', path: '/m/post', fields: OWN, body: true }, 'ping-0 ');
      expectFields(far, stage);
      const uploaded = listenTo(far.in);
      await uploaded.until('ping-0 ');
      far.head(200, ['Content-Type', 'text/plain']);
      const answer = await sandbox.answer;
      const downloaded = listenTo(answer.in);
      for (const turn of [1, 2, 3]) {
        far.out.write(`pong-${turn} `);
        await downloaded.until(`pong-${turn} `);
        sandbox.out.write(`ping-${turn} `);
        await uploaded.until(`ping-${turn} `);
      }
      sandbox.finish();
      expect(await uploaded.end).toBe('ping-0 ping-1 ping-2 ping-3 ');
      far.out.write('the end');
      far.finish();
      expect(await downloaded.end).toBe('pong-1 pong-2 pong-3 the end');
      expect(await answer.ending).toBe('whole');
    },
    line: line('/m/post', { method: 'POST', bytes_sent: 28, bytes_received: 28 }),
  },
  {
    name: 'POST stream: the answer begins before the body of the request does',
    path: '/m/first-word',
    reaches: true,
    onlyTo: { spoken: 'h2', reason: 'toward an HTTP/1.1 upstream a head goes out with the first piece of its body' },
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ method: 'POST', path: '/m/first-word', fields: OWN, body: true });
      far.head(200, ['Content-Type', 'text/plain']);
      far.out.write('you first');
      const answer = await sandbox.answer;
      const downloaded = listenTo(answer.in);
      await downloaded.until('you first');
      const uploaded = listenTo(far.in);
      sandbox.out.write('after you');
      await uploaded.until('after you');
      far.finish();
      expect(await downloaded.end).toBe('you first');
      sandbox.finish();
    },
    line: line('/m/first-word', { method: 'POST', bytes_sent: 9, bytes_received: 9 }),
  },
  {
    // fault I07
    name: 'POST with a coded body: its bytes are no business of ours',
    path: '/m/coded',
    reaches: true,
    act: async (stage) => {
      const coded = gzipSync('coded '.repeat(5000));
      const { sandbox, far } = await stage.both(
        {
          method: 'POST',
          path: '/m/coded',
          fields: [...OWN, 'Content-Encoding', 'gzip'],
          body: true,
        },
        coded,
      );
      expectFields(far, stage, ['content-encoding: gzip']);
      const uploaded = listenTo(far.in);
      sandbox.finish();
      expect(hashOf(await uploaded.end)).toBe(hashOf(coded));
      // What says gzip and is none goes through as well.
      far.head(200, ['Content-Encoding', 'gzip', 'Content-Length', '8']);
      far.out.write('no gzip!');
      far.finish();
      const answer = await sandbox.answer;
      expect(endToEnd(answer.fields)).toEqual(['content-encoding: gzip', 'content-length: 8']);
      expect(await whole(answer)).toBe('no gzip!');
    },
    line: line('/m/coded', { method: 'POST', bytes_sent: gzipSync('coded '.repeat(5000)).length, bytes_received: 8 }),
  },
  {
    // fault I01
    name: 'SSE: the head before the first event, and each event at once',
    path: '/m/events',
    reaches: true,
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ path: '/m/events', fields: OWN });
      far.head(200, ['Content-Type', 'text/event-stream']);
      const answer = await sandbox.answer;
      expect(endToEnd(answer.fields)).toEqual(['content-type: text/event-stream']);
      const heard = listenTo(answer.in);
      for (const event of ['data: one\n\n', ': a comment\n\n', 'data: two\n\n']) {
        far.out.write(event);
        await heard.until(event);
      }
      far.finish();
      expect(await heard.end).toBe('data: one\n\n: a comment\n\ndata: two\n\n');
      expect(await answer.ending).toBe('whole');
    },
    line: line('/m/events', { bytes_received: 35 }),
  },
  {
    // fault I03
    name: 'trailers: those of the answer, but for framing; none of the request',
    path: '/m/trailers',
    reaches: true,
    act: async (stage) => {
      const asked = { method: 'POST', path: '/m/trailers', fields: [...OWN, 'TE', 'trailers'], body: true };
      const { sandbox, far } = await stage.both(asked, 'body');
      expectFields(far, stage);
      if (stage.spoken === 'h2') expect(valuesOf(far.fields, 'te')).toEqual(['trailers']);
      const uploaded = listenTo(far.in);
      sandbox.finish(['X-Api-Key', 'slipped in', 'X-Sum', 'up']);
      expect(await uploaded.end).toBe('body');
      expect(far.trailers()).toEqual([]);
      far.head(200, ['Content-Type', 'text/plain', 'Trailer', 'X-Sum']);
      far.out.write('answer');
      far.finish(['X-Sum', 'abc', 'Grpc-Status', '0', 'X-Sallyport-Reason', 'forged', 'Set-Cookie', 'a=b']);
      const answer = await sandbox.answer;
      expect(await whole(answer)).toBe('answer');
      expect(endToEnd(answer.trailers())).toEqual(['grpc-status: 0', 'x-sum: abc']);
      expect(countOf(answer.fields, 'grpc-status')).toBe(0);
    },
    line: line('/m/trailers', { method: 'POST', bytes_sent: 4, bytes_received: 6 }),
  },
  {
    name: 'an early hint: 103 before the answer',
    path: '/m/hint',
    reaches: true,
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ path: '/m/hint', fields: OWN });
      far.interim(103, ['Link', '</a.css>; rel=preload']);
      far.head(200, ['Content-Length', '2']);
      far.out.write('ok');
      far.finish();
      expect(await whole(await sandbox.answer)).toBe('ok');
      expect(sandbox.interims.map(({ status, fields }) => [status, valueOf(fields, 'link')])).toEqual([
        [103, '</a.css>; rel=preload'],
      ]);
    },
    line: line('/m/hint', { bytes_received: 2 }),
  },
  {
    // fault D11
    name: 'Expect: 100-continue: asked for once, when the upstream is there',
    path: '/m/continue',
    reaches: true,
    act: async (stage) => {
      const asked = { method: 'PUT', path: '/m/continue', fields: [...OWN, 'Expect', '100-continue'], body: true };
      const { sandbox, far } = await stage.both(asked, 'body');
      const uploaded = listenTo(far.in);
      sandbox.finish();
      expect(await uploaded.end).toBe('body');
      far.head(201, ['Content-Length', '0']);
      far.finish();
      const answer = await sandbox.answer;
      expect([answer.status, await whole(answer)]).toEqual([201, '']);
      expect(sandbox.interims.map(({ status }) => status)).toEqual([100]);
    },
    line: line('/m/continue', { method: 'PUT', status: 201, bytes_sent: 4 }),
  },
  {
    // fault I04
    name: 'WebSocket: the handshake with what the rule puts on, bytes both ways, an end from each side',
    path: '/m/socket',
    reaches: true,
    websocket: true,
    act: async (stage) => {
      const offered = ['Sec-WebSocket-Protocol', 'chat.v2'];
      const { sandbox, far } = await stage.both({ path: '/m/socket', fields: [...OWN, ...offered], websocket: true });
      expect([far.websocket, far.method, far.protocol]).toEqual([true, 'GET', stage.spoken]);
      expectFields(far, stage, ['sec-websocket-protocol: chat.v2', 'sec-websocket-version: 13']);
      expect(countOf(far.fields, 'sec-websocket-key')).toBe(stage.spoken === 'h2' ? 0 : 1);
      const theirs = far.accept(offered);
      const ours = await sandbox.switched;
      const { fields } = await sandbox.answer;
      expect(endToEnd(fields)).toEqual(['sec-websocket-protocol: chat.v2']);
      expect(valuesOf(fields, 'sec-websocket-accept')).toEqual(
        stage.way.protocol === 'h2' ? [] : [acceptOf('dGhlIHNhbXBsZSBub25jZQ==')],
      );
      const heardThere = listenTo(theirs);
      const heardHere = listenTo(ours);
      ours.write(Buffer.from('\x81\x82\0\0\0\0hi', 'latin1'));
      await heardThere.until('hi');
      theirs.write(Buffer.from('\x81\x05hello', 'latin1'));
      await heardHere.until('hello');
      ours.end('bye');
      expect(await heardThere.end).toBe('\x81\x82\0\0\0\0hibye');
      theirs.end('and bye');
      expect(await heardHere.end).toBe('\x81\x05helloand bye');
    },
    line: line('/m/socket', {
      status: 101,
      bytes_sent: 11,
      bytes_received: 14,
    }),
  },
  {
    // fault I05
    name: 'WebSocket: an upstream that declines, with its answer',
    path: '/m/declined',
    reaches: true,
    websocket: true,
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ path: '/m/declined', fields: OWN, websocket: true });
      far.head(401, ['WWW-Authenticate', 'Bearer', 'Content-Length', '7']);
      far.out.write('no pass');
      far.finish();
      const answer = await sandbox.answer;
      expect([answer.status, valueOf(answer.fields, 'www-authenticate'), await whole(answer)]).toEqual([
        401,
        'Bearer',
        'no pass',
      ]);
      await expect(sandbox.switched).rejects.toThrow();
    },
    line: line('/m/declined', { status: 401, bytes_received: 7 }),
  },
  {
    // fault I05
    name: 'WebSocket: an upstream that breaks off instead of answering: 502',
    path: '/m/unanswered',
    reaches: true,
    websocket: true,
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ path: '/m/unanswered', fields: OWN, websocket: true });
      far.reset();
      expect(await verdictOf(await sandbox.answer)).toBe('502 upstream_protocol');
      await expect(sandbox.switched).rejects.toThrow();
    },
    line: line('/m/unanswered', { decision: 'fault', reason: 'upstream_protocol', status: 502 }),
  },
  {
    // faults I08, J02
    name: 'WebSocket: a side that breaks off takes the other along',
    path: '/m/torn',
    reaches: true,
    websocket: true,
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ path: '/m/torn', fields: OWN, websocket: true });
      const theirs = far.accept();
      const heard = listenTo(theirs);
      (await sandbox.switched).write('some');
      await heard.until('some');
      sandbox.leave();
      expect(await heard.end).toBe('some');
      theirs.destroy();
    },
    line: line('/m/torn', { decision: 'fault', reason: 'client_closed', status: 101, bytes_sent: 4 }),
  },
  {
    // fault D10
    name: 'an early 413: the answer is whole though the upload goes on, and the next request is answered',
    path: '/m/large',
    reaches: true,
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ method: 'PUT', path: '/m/large', fields: OWN, body: true }, 'first');
      far.in.once('data', () => {
        far.in.pause();
        far.head(413, ['Content-Length', '9']);
        far.out.write('too large');
        far.finish();
      });
      const upload = pour(sandbox.out);
      const answer = await sandbox.answer;
      expect(answer.status).toBe(413);
      expect(await whole(answer)).toBe('too large');
      upload.stop();
      const next = await stage.both({ path: '/m/next', fields: OWN });
      next.far.head(204, []);
      next.far.finish();
      expect((await next.sandbox.answer).status).toBe(204);
    },
    line: line('/m/large', { method: 'PUT', status: 413, bytes_sent: null, bytes_received: 9 }),
  },
  {
    // faults I08, J02
    name: 'the sandbox breaks off in the middle of the answer',
    path: '/m/left',
    reaches: true,
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ path: '/m/left', fields: OWN });
      far.head(200, ['Content-Type', 'text/plain']);
      far.out.write('some');
      await listenTo((await sandbox.answer).in).until('some');
      sandbox.leave();
      await far.over;
    },
    line: line('/m/left', { decision: 'fault', reason: 'client_closed', bytes_received: 4 }),
  },
  {
    // fault J02
    name: 'the sandbox breaks off in the middle of its upload',
    path: '/m/stopped',
    reaches: true,
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ method: 'POST', path: '/m/stopped', fields: OWN, body: true }, 'some');
      const uploaded = listenTo(far.in);
      await uploaded.until('some');
      let complete = false;
      far.in.once('end', () => (complete = far.protocol === 'http/1.1'));
      sandbox.leave();
      await far.over;
      expect(complete).toBe(false);
    },
    line: line('/m/stopped', { method: 'POST', decision: 'fault', reason: 'client_closed', status: null, bytes_sent: 4 }),
  },
  {
    // fault J08
    name: 'the upstream breaks off in the middle of the body: the sandbox sees that it is not whole',
    path: '/m/cut',
    reaches: true,
    act: async (stage) => {
      const { sandbox, far } = await stage.both({ path: '/m/cut', fields: OWN });
      far.head(200, ['Content-Type', 'text/plain']);
      far.out.write('some');
      const answer = await sandbox.answer;
      const heard = listenTo(answer.in);
      await heard.until('some');
      far.reset();
      expect(await heard.end).toBe('some');
      expect(await answer.ending).toBe('cut');
    },
    line: line('/m/cut', { decision: 'fault', reason: 'upstream_protocol', bytes_received: 4 }),
  },
  {
    // fault J08
    name: 'the upstream breaks off before its answer: 502, and it is not asked again',
    path: '/m/none',
    reaches: true,
    act: async (stage) => {
      const before = stage.upstream.requests();
      const { sandbox, far } = await stage.both({ method: 'POST', path: '/m/none', fields: OWN, body: true }, 'some');
      const uploaded = listenTo(far.in);
      await uploaded.until('some');
      far.reset();
      const answer = await sandbox.answer;
      expect(await verdictOf(answer)).toBe(stage.grpc ? '200 upstream_protocol' : '502 upstream_protocol');
      expect(stage.upstream.requests() - before).toBe(1);
    },
    line: line('/m/none', { method: 'POST', decision: 'fault', reason: 'upstream_protocol', status: 502, bytes_sent: 4 }),
  },
  {
    name: 'a name that no rule has is refused',
    path: '/m/name',
    host: 'denied.test',
    reaches: false,
    act: (stage) => expectRefusal(stage, { path: '/m/name', verdict: '403 not_allowlisted' }),
    line: line('/m/name', {
      host: 'denied.test',
      rule: null,
      decision: 'refuse',
      reason: 'not_allowlisted',
      credentials: [],
      address: null,
      status: 403,
    }),
  },
  {
    name: 'a path that the rule does not have is refused',
    path: '/elsewhere',
    reaches: false,
    act: (stage) => expectRefusal(stage, { path: '/elsewhere', verdict: '403 path_denied' }),
    line: line('/elsewhere', { decision: 'refuse', reason: 'path_denied', credentials: [], address: null, status: 403 }),
  },
  {
    name: 'a name that leads inside the walls is refused',
    path: '/m/inside',
    host: 'walled.test',
    reaches: false,
    act: (stage) => expectRefusal(stage, { path: '/m/inside', verdict: '403 address_denied' }),
    line: line('/m/inside', {
      host: 'walled.test',
      rule: 'walled.test',
      decision: 'refuse',
      reason: 'address_denied',
      credentials: [],
      address: '10.0.0.7',
      status: 403,
    }),
  },
];

function hashOf(bytes: string | Buffer): string {
  return createHash('sha256')
    .update(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes)
    .digest('hex');
}

/** Status and Sallyport's own reason, the answer read to its end. */
async function verdictOf(answer: Incoming): Promise<string> {
  await whole(answer);
  return `${answer.status} ${valueOf(answer.fields, 'x-sallyport-reason')}`;
}

async function expectRefusal(
  stage: Stage,
  { path, verdict }: { readonly path: string; readonly verdict: string },
): Promise<void> {
  const before = stage.upstream.connections();
  const sandbox = await stage.begin({ path, fields: OWN });
  const answer = await sandbox.answer;
  const problem = JSON.parse(await whole(answer)) as Record<string, unknown>;
  expect(`${answer.status} ${valueOf(answer.fields, 'x-sallyport-reason')}`).toBe(verdict);
  expect(problem).toMatchObject({ status: answer.status, code: verdict.slice(4) });
  expect(valueOf(answer.fields, 'content-type')).toBe('application/problem+json');
  expect(stage.upstream.connections()).toBe(before);
}
