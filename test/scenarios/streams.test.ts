// Large bodies and many streams at once: what passes through is counted and not kept, both directions of an exchange are free of each
// other, and a stream that nobody reads costs its neighbours nothing. The house is a process of its own where its memory is looked at.
import { once } from 'node:events';
import type { Readable, Writable } from 'node:stream';
import { brotliCompressSync, crc32, deflateSync, gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { buildCli, cliFolder, startCli } from '../support/cli.ts';
import type { Started } from '../support/cli.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { sampled, untilIt } from '../support/operator.ts';
import { openOutside } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';
import { gate } from '../support/probes.ts';
import type { Door } from '../support/sandbox-client.ts';
import { endToEnd, pour } from '../support/wire.ts';
import { WIRE_WAYS } from '../support/wire-client.ts';
import type { Asked, SandboxClient, SandboxExchange, WireWay } from '../support/wire-client.ts';
import { startWireUpstream } from '../support/wire-upstream.ts';
import type { Spoken, UpstreamExchange, WireUpstream } from '../support/wire-upstream.ts';

const MIB = 1024 * 1024;

let outside: Outside;
let upstreams: Readonly<Record<Spoken, WireUpstream>>;

beforeAll(async () => {
  outside = await openOutside();
  upstreams = { 'http/1.1': await startWireUpstream('http/1.1', outside), h2: await startWireUpstream('h2', outside) };
});

afterAll(async () => {
  await upstreams['http/1.1'].close();
  await upstreams.h2.close();
  await outside.close();
});

const clients: SandboxClient[] = [];

afterEach(() => {
  for (const client of clients.splice(0)) client.close();
});

async function opened(way: WireWay, door: Door, authority: string): Promise<SandboxClient> {
  const client = await way.open(door, authority);
  clients.push(client);
  return client;
}

/** What came in on a stream: how much, and a sum over all of it. */
interface Tally {
  readonly bytes: number;
  readonly sum: number;
}

/** Reads a stream to its end and keeps nothing of it. */
async function tally(stream: Readable): Promise<Tally> {
  let bytes = 0;
  let sum = 0;
  stream.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    sum = crc32(chunk, sum);
  });
  if (!stream.readableEnded) await once(stream, 'end');
  return { bytes, sum };
}

/** Writes so many bytes, no two pieces alike, as fast as they are taken; gives what they come to. `look` is called every 16 MiB. */
async function generate(stream: Writable, total: number, look?: () => Promise<void>): Promise<Tally> {
  let sum = 0;
  let bytes = 0;
  for (let turn = 0; bytes < total; turn += 1) {
    const piece = Buffer.alloc(Math.min(65_536, total - bytes), turn % 251);
    piece.writeUInt32BE(turn, 0);
    sum = crc32(piece, sum);
    bytes += piece.length;
    if (!stream.write(piece)) await once(stream, 'drain');
    if (look !== undefined && turn % 256 === 255) await look();
  }
  return { bytes, sum };
}

/** Both ends of one exchange. */
interface Ends {
  readonly sandbox: SandboxExchange;
  readonly far: UpstreamExchange;
}

async function both(client: SandboxClient, spoken: Spoken, asked: Asked): Promise<Ends> {
  const arrived = upstreams[spoken].next(asked.path);
  const sandbox = await client.begin(asked);
  if (asked.body === true) sandbox.out.write('first');
  return { sandbox, far: await arrived };
}

function wayOf(name: string): WireWay {
  const way = WIRE_WAYS.find((one) => one.name === name);
  if (way === undefined) throw new Error(`there is no way "${name}"`);
  return way;
}

const h1 = wayOf('CONNECT, TLS, HTTP/1.1');
const h2 = wayOf('CONNECT, TLS, h2');

// fault I08
describe('a body of a gibibyte', () => {
  let started: Started;
  let folder: Awaited<ReturnType<typeof cliFolder>>;
  let door: Door;

  beforeAll(async () => {
    await buildCli();
    folder = await cliFolder({
      upstream: { ca: [outside.caPath] },
      network: {
        allowlist: [{ domain: '127.0.0.1', ports: Object.values(upstreams).map(({ port }) => port), addresses: LOOPBACK }],
      },
    });
    started = await startCli({ folder: folder.folder, config: folder.config });
    door = { port: started.port, ca: started.ca };
  }, 120_000);

  afterAll(async () => {
    await started.stop();
    await folder.close();
  });

  /** Resident memory of the house, in bytes. */
  async function resident(): Promise<number> {
    const scrape = await (await fetch(`http://127.0.0.1:${started.adminPort}/metrics`)).text();
    return sampled(scrape, 'process_resident_memory_bytes');
  }

  /** How much is carried, and who looks on */
  interface Load {
    readonly total: number;
    readonly look?: () => Promise<void>;
  }

  async function upload(client: SandboxClient, spoken: Spoken, { total, look }: Load): Promise<void> {
    const { sandbox, far } = await both(client, spoken, { method: 'POST', path: '/upload', body: true });
    const counted = tally(far.in);
    const sent = await generate(sandbox.out, total, look);
    sandbox.finish();
    const { bytes } = await counted;
    expect(bytes).toBe(sent.bytes + 'first'.length);
    far.head(200, ['Content-Length', '0']);
    far.finish();
    expect((await sandbox.answer).status).toBe(200);
  }

  async function download(client: SandboxClient, spoken: Spoken, { total, look }: Load): Promise<void> {
    const { sandbox, far } = await both(client, spoken, { path: '/download' });
    far.head(200, ['Content-Type', 'application/octet-stream']);
    const answer = await sandbox.answer;
    const counted = tally(answer.in);
    const sent = await generate(far.out, total, look);
    far.finish();
    expect(await counted).toEqual(sent);
    expect(await answer.ending).toBe('whole');
  }

  it.each([
    { title: 'up through HTTP/1.1', way: h1, spoken: 'http/1.1', carry: upload },
    { title: 'down through HTTP/1.1', way: h1, spoken: 'http/1.1', carry: download },
    { title: 'up through HTTP/2', way: h2, spoken: 'h2', carry: upload },
    { title: 'down through HTTP/2', way: h2, spoken: 'h2', carry: download },
  ] as const)(
    '$title is passed on whole, in less than 64 MiB of memory',
    async ({ way, spoken, carry }) => {
      const client = await opened(way, door, `127.0.0.1:${upstreams[spoken].port}`);
      // What the process takes for itself, once, is no part of the growth.
      await carry(client, spoken, { total: 64 * MIB });
      const before = await resident();
      let most = 0;
      const look = async (): Promise<void> => void (most = Math.max(most, await resident()));
      await carry(client, spoken, { total: 1024 * MIB, look });
      expect(most).toBeGreaterThan(0);
      expect(most - before).toBeLessThan(64 * MIB);
    },
    120_000,
  );
});

describe('in one house', () => {
  const SPOKEN = ['http/1.1', 'h2'] as const;
  const cells = [h1, h2, wayOf('h2 to the listener, :scheme https')].flatMap((way) => SPOKEN.map((spoken) => ({ way, spoken })));

  let house: House;

  beforeAll(async () => {
    house = await startHouse(
      {
        upstream: { ca: [outside.caPath] },
        network: {
          allowlist: ['api.test', '*.late.test'].map((domain) => ({
            domain,
            ports: Object.values(upstreams).map(({ port }) => port),
            addresses: LOOPBACK,
          })),
        },
      },
      {
        names: { 'api.test': ['127.0.0.1'], ...Object.fromEntries(cells.map((_, i) => [`${i}.late.test`, () => resolveLate()])) },
      },
    );
  });

  afterAll(() => house.stop());

  /** Answers with the address of a host that nobody has been to, when it is time */
  let resolveLate: () => Promise<readonly string[]> = () => Promise.reject(new Error('nobody asked yet'));

  for (const [index, { way, spoken }] of cells.entries()) {
    const open = (): Promise<SandboxClient> => opened(way, house, `api.test:${upstreams[spoken].port}`);

    describe(`${way.name}; upstream ${spoken}`, () => {
      it('both directions of an exchange run at once, each at its own speed', async () => {
        const client = await open();
        const { sandbox, far } = await both(client, spoken, { method: 'POST', path: '/echo', body: true });
        far.head(200, ['Content-Type', 'application/octet-stream']);
        const answer = await sandbox.answer;
        const down = tally(answer.in);
        // The upstream says something of its own all the while, and hears the upload out: an answer that is over ends the upload.
        const [sentUp, heardUp, sentDown] = await Promise.all([
          generate(sandbox.out, 16 * MIB).finally(() => sandbox.finish()),
          tally(far.in),
          generate(far.out, 24 * MIB),
        ]);
        far.finish();
        const heardDown = await down;
        expect(heardUp.bytes).toBe(sentUp.bytes + 'first'.length);
        expect(heardDown).toEqual(sentDown);
      });

      // fault I09
      it('an upload that begins before its upstream is there is held and not lost', async () => {
        const asked = gate();
        const found = gate<readonly string[]>();
        resolveLate = () => {
          asked.open();
          return found.opened;
        };
        const client = await opened(way, house, `${index}.late.test:${upstreams[spoken].port}`);
        const before = upstreams[spoken].connections();
        const arrived = upstreams[spoken].next('/late');
        const sandbox = await client.begin({ method: 'PUT', path: '/late', body: true });
        const uploaded = generate(sandbox.out, 8 * MIB).finally(() => sandbox.finish());
        await asked.opened;
        expect(upstreams[spoken].connections()).toBe(before);
        found.open(['127.0.0.1']);
        const far = await arrived;
        expect(await tally(far.in)).toEqual(await uploaded);
        far.head(201, ['Content-Length', '0']);
        far.finish();
        expect((await sandbox.answer).status).toBe(201);
      });

      // fault I07
      it.each(coded())('a body $name passes byte for byte, both ways', async ({ coding, bytes, more = [] }) => {
        const client = await open();
        const fields = ['Content-Encoding', coding, ...more];
        const arrived = upstreams[spoken].next('/coded');
        const sandbox = await client.begin({ method: 'PUT', path: '/coded', fields, body: true });
        sandbox.out.write(bytes);
        sandbox.finish();
        const far = await arrived;
        const sum = crc32(bytes);
        expect(await tally(far.in)).toEqual({ bytes: bytes.length, sum });
        expect(endToEnd(far.fields)).toContain(`content-encoding: ${coding}`);
        far.head(more.length > 0 ? 206 : 200, [...fields, 'Content-Length', String(bytes.length)]);
        far.out.write(bytes);
        far.finish();
        const answer = await sandbox.answer;
        expect(endToEnd(answer.fields)).toEqual(
          [
            ...(more.length > 0 ? ['content-range: bytes 0-99/1000'] : []),
            `content-encoding: ${coding}`,
            `content-length: ${bytes.length}`,
          ].sort(),
        );
        expect(await tally(answer.in)).toEqual({ bytes: bytes.length, sum });
      });
    });
  }

  for (const { way, spoken } of cells.filter(({ way: { protocol } }) => protocol === 'h2')) {
    describe(`a stream that never reads: ${way.name}; upstream ${spoken}`, () => {
      it('its answer waits in the upstream, and its neighbours on the same connection do not', async () => {
        const client = await opened(way, house, `api.test:${upstreams[spoken].port}`);
        const deaf = await both(client, spoken, { path: '/deaf' });
        deaf.far.head(200, ['Content-Type', 'application/octet-stream']);
        const answer = await deaf.sandbox.answer;
        const endless = pour(deaf.far.out);
        for (let turn = 0; turn < 3; turn += 1) {
          const { sandbox, far } = await both(client, spoken, { path: '/neighbour' });
          far.head(200, ['Content-Type', 'application/octet-stream']);
          const near = await sandbox.answer;
          const [sent, heard] = await Promise.all([generate(far.out, 8 * MIB).finally(() => far.finish()), tally(near.in)]);
          expect(heard).toEqual(sent);
        }
        // What is on the way is what the windows and socket buffers hold, and no more.
        expect(endless.poured()).toBeLessThan(16 * MIB);
        const before = endless.poured();
        answer.in.resume();
        await untilIt(
          () => new Promise<number>((resolve) => setImmediate(() => resolve(endless.poured()))),
          (poured) => poured > before + 8 * MIB,
        );
        endless.stop();
      });

      it('an upload that its upstream does not read waits in the sandbox, and its neighbours do not', async () => {
        const client = await opened(way, house, `api.test:${upstreams[spoken].port}`);
        const deaf = await both(client, spoken, { method: 'POST', path: '/deaf', body: true });
        deaf.far.in.pause();
        const endless = pour(deaf.sandbox.out);
        for (let turn = 0; turn < 3; turn += 1) {
          const { sandbox, far } = await both(client, spoken, { method: 'POST', path: '/neighbour', body: true });
          const [sent, heard] = await Promise.all([
            generate(sandbox.out, 8 * MIB).finally(() => sandbox.finish()),
            tally(far.in),
          ]);
          expect(heard.bytes).toBe(sent.bytes + 'first'.length);
          far.head(204, []);
          far.finish();
          expect((await sandbox.answer).status).toBe(204);
        }
        expect(endless.poured()).toBeLessThan(16 * MIB);
        const before = endless.poured();
        deaf.far.in.resume();
        await untilIt(
          () => new Promise<number>((resolve) => setImmediate(() => resolve(endless.poured()))),
          (poured) => poured > before + 8 * MIB,
        );
        endless.stop();
      });
    });
  }
});

/** Bodies and what is said of them, not always truly. */
function coded(): {
  readonly name: string;
  readonly coding: string;
  readonly bytes: Buffer;
  readonly more?: readonly string[];
}[] {
  const text = Buffer.from('a body that is worth coding. '.repeat(20_000));
  return [
    { name: 'in gzip', coding: 'gzip', bytes: gzipSync(text) },
    { name: 'in br', coding: 'br', bytes: brotliCompressSync(text) },
    { name: 'coded twice', coding: 'deflate, gzip', bytes: gzipSync(deflateSync(text)) },
    { name: 'in a coding that nobody here knows', coding: 'zstd', bytes: Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0, 1, 2, 3]) },
    { name: 'in gzip that is cut short', coding: 'gzip', bytes: gzipSync(text).subarray(0, 500) },
    { name: 'that is said to be gzip and is none', coding: 'gzip', bytes: Buffer.from('no gzip at all') },
    { name: 'that is said to be identity', coding: 'identity', bytes: text },
    {
      name: 'that is a range of one in gzip',
      coding: 'gzip',
      bytes: gzipSync(text).subarray(0, 100),
      more: ['Content-Range', 'bytes 0-99/1000'],
    },
  ];
}
