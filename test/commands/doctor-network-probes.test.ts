// Twin of network-probes.ts, ask-dns.ts, icmp-probe.ts and wire.ts: each way past the door seen open and closed, over real sockets on loopback.
import { createServer as createTlsServer } from 'node:tls';
import { chmodSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { ProbeId } from '../../src/commands/doctor/probe-table.ts';
import { openOutside } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';
import { dnsAnswer, http, listening, NOWHERE, OTHER, OUTSIDE, probe, REFUSAL, tcp, treeOf, udp } from './doctor-rig.ts';
import type { Scene } from './doctor-rig.ts';

let ours: Outside;
let theirs: Outside;
beforeAll(async () => {
  ours = await openOutside();
  theirs = await openOutside();
});
afterAll(() => Promise.all([ours.close(), theirs.close()]));

interface Row {
  readonly id: ProbeId;
  readonly name: string;
  readonly scene: () => Promise<Scene> | Scene;
  readonly result: 'open' | 'closed' | 'unknown';
  readonly why: RegExp;
}

const silent = (): void => undefined;
const answering = async (host: string, port = 0) => tcp(host, silent, port);

/** A TLS server with a certificate of one authority or the other. */
async function secure(host: string, authority: Outside, port = 0) {
  const server = createTlsServer(authority.credentials('anything.test'), (socket) => socket.on('error', silent));
  server.on('tlsClientError', silent);
  onTestFinished(() => void server.close());
  return listening(server, host, port);
}

const dnsOverTcp = (host: string, port = 0) =>
  tcp(
    host,
    (socket) =>
      socket.once('data', (question) => {
        const answer = dnsAnswer(question.subarray(2), { addresses: ['8.8.8.8'] });
        // in two pieces, as it may come
        socket.write(Buffer.from([0, answer.length]), () => socket.end(answer));
      }),
    port,
  );

const resolving = async (answer: Parameters<typeof dnsAnswer>[1]) => {
  const { port } = await udp(OUTSIDE, (question) => dnsAnswer(question, answer));
  return { targets: { dnsPort: port }, files: { 'etc/resolv.conf': `search test\nnameserver ${OUTSIDE}\n` } };
};

const rows: readonly Row[] = [
  {
    id: 'tcp-public',
    name: 'somebody who takes the connection',
    scene: async () => ({ targets: { publicTcp: [await answering(OUTSIDE)] } }),
    result: 'open',
    why: /somebody takes the connection/,
  },
  {
    id: 'tcp-public',
    name: 'nobody',
    scene: () => ({ targets: { publicTcp: [{ host: OUTSIDE, port: 1 }] } }),
    result: 'closed',
    why: /refused/,
  },
  {
    id: 'tcp-public',
    name: 'a redirect to a door that ends what has no name',
    scene: async () => {
      const place = await tcp(OUTSIDE, (socket) => socket.once('data', () => socket.end()));
      await tcp(NOWHERE, (socket) => socket.once('data', () => socket.end()), place.port);
      return { targets: { publicTcp: [place] } };
    },
    result: 'closed',
    why: /led to the door, which answers for addresses that nobody has too/,
  },
  {
    id: 'tcp-public',
    name: 'a door that shows its certificate',
    scene: async () => ({ targets: { publicTcp: [await secure(OUTSIDE, ours)] }, env: { SSL_CERT_FILE: ours.caPath } }),
    result: 'closed',
    why: /led to the door/,
  },
  {
    id: 'tcp-public',
    name: 'a redirect that lets one address through',
    scene: async () => {
      const place = await secure(OUTSIDE, theirs);
      await tcp(NOWHERE, (socket) => socket.once('data', () => socket.end()), place.port);
      return { targets: { publicTcp: [place] }, env: { NODE_EXTRA_CA_CERTS: ours.caPath } };
    },
    result: 'open',
    why: /a certificate that is not the door's/,
  },
  {
    id: 'tcp-public',
    name: 'a certificate of nobody knows whom, behind a redirect',
    scene: async () => {
      const place = await secure(OUTSIDE, theirs);
      await secure(NOWHERE, theirs, place.port);
      return { targets: { publicTcp: [place] } };
    },
    result: 'unknown',
    why: /no variable names the CA/,
  },
  {
    id: 'tcp-private',
    name: 'the API of a cluster',
    scene: async () => {
      const { host, port } = await answering(OUTSIDE);
      return { env: { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: String(port) } };
    },
    result: 'open',
    why: /somebody takes/,
  },
  {
    id: 'tcp-private',
    name: 'the API of a cluster that nobody reaches',
    scene: () => ({ env: { KUBERNETES_SERVICE_HOST: OUTSIDE, KUBERNETES_SERVICE_PORT: '1' } }),
    result: 'closed',
    why: /refused/,
  },
  { id: 'tcp-private', name: 'no gateway at all', scene: () => ({}), result: 'closed', why: /no gateway/ },
  {
    id: 'ipv6',
    name: 'somebody, and a default route',
    scene: async () => ({
      targets: { publicTcp6: [await answering('::1')], nowhere6: '::2' },
      files: { 'proc/net/ipv6_route': `${'0'.repeat(32)} 00 ${'0'.repeat(32)} 00 fe80 400 1 0 3 eth0\n` },
    }),
    result: 'open',
    why: /somebody takes.*; there is a default route/,
  },
  {
    id: 'ipv6',
    name: 'nobody, and the route over lo that leads nowhere',
    scene: () => ({
      targets: { publicTcp6: [{ host: '::1', port: 1 }], nowhere6: '::2' },
      files: { 'proc/net/ipv6_route': `${'0'.repeat(32)} 00 ${'0'.repeat(32)} 00 0 ffffffff 1 0 200200 lo\n` },
    }),
    result: 'closed',
    why: /there is no default route/,
  },
  {
    id: 'quic',
    name: 'a server that names its versions',
    scene: async () => ({ targets: { quic: [await udp(OUTSIDE, () => Buffer.from([0x80, 0, 0, 0, 0]))] } }),
    result: 'open',
    why: /something came back/,
  },
  {
    id: 'quic',
    name: 'a refusal',
    scene: () => ({ targets: { quic: [{ host: OUTSIDE, port: 1 }] } }),
    result: 'closed',
    why: /refused/,
  },
  {
    id: 'quic',
    name: 'silence',
    scene: async () => ({ targets: { quic: [await udp(OUTSIDE, () => undefined)] }, timeoutMs: 150 }),
    result: 'closed',
    why: /no answer in time/,
  },
  {
    id: 'quic',
    name: 'what answers for every address',
    scene: async () => {
      const place = await udp(OUTSIDE, (packet) => packet);
      await udp(NOWHERE, (packet) => packet, place.port);
      return { targets: { quic: [place] } };
    },
    result: 'closed',
    why: /answers for addresses that nobody has/,
  },
  {
    id: 'dns-udp',
    name: 'a resolver that answers',
    scene: async () => ({
      targets: { resolvers: [await udp(OUTSIDE, (question) => dnsAnswer(question, { addresses: ['8.8.8.8'] }))] },
    }),
    result: 'open',
    why: /it answers/,
  },
  {
    id: 'dns-udp',
    name: 'one that answers another question',
    scene: async () => ({
      targets: {
        resolvers: [await udp(OUTSIDE, (question) => dnsAnswer(Buffer.from(question).fill(question[0] === 1 ? 2 : 1, 0, 1), {}))],
      },
      timeoutMs: 150,
    }),
    result: 'closed',
    why: /no answer in time/,
  },
  {
    id: 'dns-udp',
    name: 'a DNS door that every address leads to',
    scene: async () => {
      const refuse = (question: Buffer) => dnsAnswer(question, { rcode: 3 });
      const place = await udp(OUTSIDE, refuse);
      await udp(NOWHERE, refuse, place.port);
      return { targets: { resolvers: [place] } };
    },
    result: 'closed',
    why: /led to the door/,
  },
  {
    id: 'dns-udp',
    name: 'a resolver past a DNS door',
    scene: async () => {
      const place = await udp(OUTSIDE, (question) => dnsAnswer(question, { addresses: ['8.8.8.8'] }));
      await udp(NOWHERE, (question) => dnsAnswer(question, { rcode: 3 }), place.port);
      return { targets: { resolvers: [place] } };
    },
    result: 'open',
    why: /in another way/,
  },
  {
    id: 'dns-tcp',
    name: 'a resolver that answers',
    scene: async () => ({ targets: { resolvers: [await dnsOverTcp(OUTSIDE)] } }),
    result: 'open',
    why: /it answers/,
  },
  {
    id: 'dns-tcp',
    name: 'somebody who takes the connection and says nothing',
    scene: async () => ({ targets: { resolvers: [await tcp(OUTSIDE, (socket) => socket.end())] } }),
    result: 'open',
    why: /does not answer/,
  },
  {
    id: 'dns-tcp',
    name: 'a DNS door that every address leads to',
    scene: async () => {
      const place = await dnsOverTcp(OUTSIDE);
      await dnsOverTcp(NOWHERE, place.port);
      return { targets: { resolvers: [place] } };
    },
    result: 'closed',
    why: /led to the door/,
  },
  {
    id: 'dns-tcp',
    name: 'nobody',
    scene: () => ({ targets: { resolvers: [{ host: OUTSIDE, port: 1 }] } }),
    result: 'closed',
    why: /refused/,
  },
  {
    id: 'dns-name',
    name: 'a resolver that knows the outside',
    scene: () => resolving({ addresses: ['8.8.4.4'] }),
    result: 'open',
    why: /resolves to 8\.8\.4\.4/,
  },
  {
    id: 'dns-name',
    name: 'a resolver that has asked outside for a name that nobody has',
    scene: () => resolving({ rcode: 3, authority: true }),
    result: 'open',
    why: /the question went out/,
  },
  {
    id: 'dns-name',
    name: 'a DNS door that refuses',
    scene: () => resolving({ rcode: 3 }),
    result: 'closed',
    why: /does not resolve/,
  },
  {
    id: 'dns-name',
    name: 'a DNS door that answers with its own address',
    scene: () => resolving({ addresses: ['10.0.0.2'] }),
    result: 'closed',
    why: /the door's own address/,
  },
  { id: 'dns-name', name: 'no resolver', scene: () => ({}), result: 'closed', why: /no resolver is named/ },
  { id: 'metadata', name: 'a service', scene: () => metadata(OTHER), result: 'open', why: /answered 200/ },
  { id: 'metadata', name: "the door's refusal", scene: () => metadata(REFUSAL), result: 'closed', why: /refused by the door/ },
  {
    id: 'metadata',
    name: 'nobody',
    scene: () => ({ targets: { metadata: [{ host: OUTSIDE, port: 1 }] } }),
    result: 'closed',
    why: /refused/,
  },
  {
    id: 'metadata',
    name: 'a proxy that goes there',
    scene: async () => ({ targets: { metadata: [{ host: OUTSIDE, port: 1 }] }, proxy: await proxyThat(OTHER) }),
    result: 'open',
    why: /no refusal of the door/,
  },
  {
    id: 'metadata',
    name: 'a proxy that does not',
    scene: async () => ({ targets: { metadata: [{ host: OUTSIDE, port: 1 }] }, proxy: await proxyThat(REFUSAL) }),
    result: 'closed',
    why: /refused by the door/,
  },
];

async function metadata(answer: string): Promise<Scene> {
  return { targets: { metadata: [await http(OUTSIDE, answer)] } };
}

async function proxyThat(answer: string): Promise<string> {
  const { host, port } = await http('127.0.0.63', answer);
  return `http://${host}:${port}`;
}

describe('past the door', () => {
  it.each(rows)('$id calls $name $result', async ({ id, scene, result, why }) => {
    const probed = await probe(id, await scene());
    expect(probed).toMatchObject({ id, result });
    expect(probed.why).toMatch(why);
  });
});

// A tool of ours in the place of ping, for loopback answers whether it may or not.
describe('icmp', () => {
  const ping = (script: string): NodeJS.ProcessEnv => {
    const bin = treeOf({ ping: `#!/bin/sh\n${script}\n` });
    chmodSync(join(bin, 'ping'), 0o755);
    return { PATH: `${bin}:/nowhere` };
  };
  const forbidden = 'echo "ping: socktype: SOCK_RAW" >&2; echo "ping: socket: Operation not permitted" >&2; exit 2';

  it.each([
    { name: 'open where an echo comes back', env: () => ping('exit 0'), result: 'open' },
    { name: 'closed where none does', env: () => ping('exit 1'), result: 'closed' },
    {
      name: 'closed where a filter forbids the sending',
      env: () => ping('echo "ping: sendmsg: Operation not permitted" >&2; exit 1'),
      result: 'closed',
    },
    { name: 'unknown where ping may have no socket and nothing else is there', env: () => ping(forbidden), result: 'unknown' },
    { name: 'unknown where there is no tool', env: () => ({ PATH: '/nowhere' }), result: 'unknown' },
  ])('is $name', async ({ env, result }) => {
    expect(await probe('icmp', { targets: { ping: ['192.0.2.1'] }, env: env() })).toMatchObject({ result });
  });
});
