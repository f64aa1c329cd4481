// Twin of leaf-cache.ts: how often it mints, what it keeps, and that its contexts serve and resume.
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { connect, TLSSocket } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { parseHost } from '../../src/exchange/authority.ts';
import type { Host } from '../../src/exchange/authority.ts';
import { AuthorityError } from '../../src/certificates/authority-error.ts';
import type { CertificateAuthority } from '../../src/certificates/certificate-authority.ts';
import { mintLeaf } from '../../src/certificates/leaf.ts';
import { createLeafCache } from '../../src/certificates/leaf-cache.ts';
import type { LeafCache } from '../../src/certificates/leaf-cache.ts';
import { DAY_MS, host, newIssuer } from './rig.ts';

const START = Date.parse('2026-03-01T00:00:00Z');
const CA = newIssuer(new Date(START));

interface Bench {
  readonly cache: LeafCache;
  readonly issued: Host[];
  readonly counts: { minted: number; found: number };
  clock: number;
}

/** A cache over a fake authority: its leaves and contexts are blank, so that 10,000 are cheap; `real` ones are for the wire. */
function bench(max: number, options: { real?: boolean; life?: number; authorityLife?: number } = {}): Bench {
  const { real = false, life = 30 * DAY_MS, authorityLife = 800 * DAY_MS } = options;
  const issued: Host[] = [];
  const counts = { minted: 0, found: 0 };
  const state = { clock: START };
  const end = START + authorityLife;
  const authority: CertificateAuthority = {
    certificatePem: CA.certificatePem,
    notAfter: new Date(end),
    issue(name) {
      issued.push(name);
      if (state.clock >= end) throw new AuthorityError('the CA expired');
      if (real) return mintLeaf(CA, name, new Date());
      return { host: name, certificatePem: '', keyPem: '', notAfter: new Date(Math.min(state.clock + life, end)) };
    },
  };
  const cache = createLeafCache({
    authority,
    max,
    now: () => state.clock,
    ...(real ? {} : { makeContext: () => ({ context: {} }) }),
    onMint: () => (counts.minted += 1),
    onHit: () => (counts.found += 1),
  });
  return Object.assign(state, { cache, issued, counts });
}

describe('the leaf cache', () => {
  it('mints once for a host, however many ask', () => {
    const { cache, counts } = bench(10);
    const contexts = Array.from({ length: 200 }, () => cache.contextFor(host('api.example.com'))); // G09
    expect(new Set(contexts).size).toBe(1);
    expect(counts).toEqual({ minted: 1, found: 199 });
  });

  it('takes case and dot variants of a name for one host', () => {
    const { cache, issued } = bench(10);
    for (const text of ['api.example.com', 'API.Example.COM', 'api.example.com.']) cache.contextFor(parseHost(text)!); // G09
    expect(issued).toEqual(['api.example.com']);
  });

  it('stays bounded under 10,000 names', () => {
    const { cache, counts } = bench(16);
    for (let i = 0; i < 10_000; i += 1) cache.contextFor(host(`n${i}.example.com`)); // G09
    expect(cache.size).toBe(16);
    expect(counts).toEqual({ minted: 10_000, found: 0 });
  });

  it('lets go of the host that was used longest ago', () => {
    const { cache, issued } = bench(2);
    for (const name of ['a.example', 'b.example', 'a.example', 'c.example', 'a.example', 'b.example'])
      cache.contextFor(host(name));
    expect(issued).toEqual(['a.example', 'b.example', 'c.example', 'b.example']);
  });

  it.each([
    { name: 'keeps a leaf with just over a quarter of its life left', at: 22.5 * DAY_MS - 1, minted: 1 },
    { name: 'mints anew with a quarter of its life left', at: 22.5 * DAY_MS, minted: 2 },
    { name: 'mints anew when it has expired', at: 31 * DAY_MS, minted: 2 },
  ])('$name', ({ at, minted }) => {
    const one = bench(10); // G08
    const before = one.cache.contextFor(host('api.example.com'));
    one.clock = START + at;
    expect(one.cache.contextFor(host('api.example.com')) === before).toBe(minted === 1);
    expect(one.counts.minted).toBe(minted);
    expect(one.cache.size).toBe(1);
  });

  it('does not mint again and again while the CA itself nears its end', () => {
    const one = bench(10, { authorityLife: 10 * DAY_MS });
    one.cache.contextFor(host('api.example.com'));
    one.clock = START + 10 * DAY_MS - 1;
    one.cache.contextFor(host('api.example.com'));
    expect(one.counts).toEqual({ minted: 1, found: 1 });
  });

  it('passes on the error of an expired CA and keeps nothing', () => {
    const one = bench(10, { authorityLife: DAY_MS });
    one.clock = START + DAY_MS;
    expect(() => one.cache.contextFor(host('api.example.com'))).toThrow(AuthorityError);
    expect(one.cache.size).toBe(0);
    expect(one.counts).toEqual({ minted: 0, found: 0 });
  });

  it.each(['TLSv1.2', 'TLSv1.3'] as const)(
    'serves contexts whose sessions resume on the next connection with %s',
    async (version) => {
      const { cache } = bench(10, { real: true });
      const server = createServer((raw) => {
        const socket = new TLSSocket(raw, { isServer: true, secureContext: cache.contextFor(host('api.example.com')) });
        socket.on('error', () => undefined);
        socket.end('hello');
      });
      server.listen(0, '127.0.0.1');
      onTestFinished(() => void server.close());
      await once(server, 'listening');
      const { port } = server.address() as AddressInfo;
      const visit = async (session?: Buffer): Promise<{ resumed: boolean; session: Buffer | undefined }> => {
        const options = { host: '127.0.0.1', port, servername: 'api.example.com', ca: CA.certificatePem, maxVersion: version };
        const socket = connect({ ...options, ...(session === undefined ? {} : { session }) });
        let latest: Buffer | undefined;
        socket.on('session', (given: Buffer) => (latest = given));
        socket.resume();
        await once(socket, 'end');
        expect(socket.getProtocol()).toBe(version);
        return { resumed: socket.isSessionReused(), session: latest };
      };
      const first = await visit();
      expect(first.resumed).toBe(false);
      expect((await visit(first.session)).resumed).toBe(true);
    },
  );
});
