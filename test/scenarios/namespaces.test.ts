// A sandbox that knows of no proxy, on a real kernel: three networks with the proxy between the sandbox and the outside, the walls of
// config/gateway around it, and each of the two ways to lead connections to the doors. What gets out is counted outside.
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildCli } from '../support/cli.ts';
import { openOutside } from '../support/outside.ts';
import { openThreeNamespaces, PLACES } from '../support/three-namespaces.ts';
import type { Place, Running, ThreeNamespaces } from '../support/three-namespaces.ts';
import { NETWORK_TOOLS } from '../support/walls.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const GATEWAY = join(ROOT, 'config', 'gateway');
const MODULES = join(ROOT, 'node_modules');

/** The same cables in IPv6, and a second address of the outside, which has no name. */
const SIX = { sandbox: 'fd77:1::2', inner: 'fd77:1::1', outer: 'fd77:2::1', outside: 'fd77:2::2' } as const;
const NAMELESS = '10.77.2.3';
/** Another address on the sandbox's cable, of which no sandbox is known */
const STRANGER = '10.77.1.9';
/** Where the sandbox believes that every name is; nothing has it */
const NOWHERE = '203.0.113.7';

/** Serves on the outside, and prints a line for each connection and each datagram that reaches it. */
const OUTSIDE = `
  const { readFileSync } = require('node:fs');
  const { WebSocketServer } = require(${JSON.stringify(join(MODULES, 'ws'))});
  const tls = require('node:tls');
  const pair = (name) => ({ key: readFileSync(name + '.key'), cert: readFileSync(name + '.pem') });
  const sockets = new WebSocketServer({ noServer: true });
  sockets.on('connection', (client, request) =>
    client.on('message', (text) => client.send(text + ' ' + (request.headers.authorization ?? 'none'))));
  const answer = (request, response) =>
    response.end([request.httpVersion, request.headers.host ?? request.headers[':authority'], request.headers.authorization ?? 'none'].join(' '));
  const http = require('node:http').createServer(answer);
  const https = require('node:http2').createSecureServer({
    ...pair('nameless'), allowHTTP1: true,
    SNICallback: (name, done) => done(null, tls.createSecureContext(pair('named'))),
  }, answer);
  for (const server of [http, https])
    server.on('upgrade', (request, socket, head) => sockets.handleUpgrade(request, socket, head, (client) => sockets.emit('connection', client, request)));
  const seen = (socket) => console.log('reached ' + socket.localPort);
  https.on('sessionError', () => 0).on('tlsClientError', () => 0).on('connection', seen);
  http.on('connection', seen);
  const second = require('node:net').createServer((socket) => https.emit('connection', socket)).on('connection', seen);
  const other = require('node:net').createServer((socket) => socket.on('error', () => 0).end('out')).on('connection', seen);
  const listen = (server, port) => new Promise((resolve) => server.listen(port, '::', resolve));
  const datagrams = (port) => new Promise((resolve) =>
    require('node:dgram').createSocket('udp6').on('message', () => console.log('reached udp ' + port)).bind(port, '::', resolve));
  Promise.all([listen(https, 443), listen(http, 80), listen(second, 8443), listen(other, 22), datagrams(53), datagrams(443)])
    .then(() => console.log('outside is up'));`;

/** Speaks WebSocket once and prints what it hears. */
const SOCKET = `
  const { WebSocket } = require(${JSON.stringify(join(MODULES, 'ws'))});
  const client = new WebSocket(process.argv[2], { ca: require('node:fs').readFileSync('public/ca.pem') });
  client.on('open', () => client.send('hello')).on('message', (text) => { console.log(String(text)); client.close(); });
  client.on('unexpected-response', (request, response) => { console.log(response.statusCode, response.headers['x-sallyport-reason']); request.destroy(); });
  client.on('error', (error) => console.log(error.message));`;

/** Asks again and again whether the proxy is ready, and then at once whether its doors are open; until it is. */
const WATCH = `
  const ports = process.argv.slice(2).map(Number);
  const ready = () => new Promise((resolve) => require('node:http').get('http://127.0.0.1:9090/readyz', { agent: false }, (response) => {
    response.resume().on('end', () => resolve(String(response.statusCode)));
  }).on('error', () => resolve('000')));
  const door = (port) => new Promise((resolve) => {
    const socket = require('node:net').connect(port, '127.0.0.1');
    socket.on('connect', () => resolve('open')).on('error', () => resolve('shut')).on('connect', () => socket.destroy());
  });
  const look = async () => {
    const status = await ready();
    console.log([status, ...(await Promise.all(ports.map(door)))].join(' '));
    if (status !== '200') setImmediate(look);
  };
  look();`;

/** Sends one datagram to each place. */
const DATAGRAMS = `
  const socket = require('node:dgram').createSocket(process.argv[2].includes(':') ? 'udp6' : 'udp4').on('error', () => 0);
  const send = (port) => new Promise((resolve) => socket.send('?', port, process.argv[2], resolve));
  Promise.all([53, 443].map(send)).then(() => socket.close());`;

interface Way {
  readonly way: string;
  /** Listeners of the doors */
  readonly doors: { readonly tls: string; readonly http: string; readonly other: string };
  /** Whether the proxy sees the address that was dialled */
  readonly seesAddress: boolean;
  /** Leads what comes in by that interface of the proxy to the doors */
  readonly lead: (networks: ThreeNamespaces, device: string) => Promise<unknown>;
}

const nft = (device: string, file: string): string[] => ['nft', '-D', `sandboxes=${device}`, '-f', join(GATEWAY, file)];

const WAYS: readonly Way[] = [
  {
    way: 'a redirect of nftables',
    doors: { tls: '[::]:8443', http: '[::]:8081', other: '[::]:9443' },
    seesAddress: false,
    lead: async (networks, device) => {
      await networks.run('proxy', nft(device, 'redirect.nft'));
      const rule = `add rule inet sallyport_lead lead iifname ${device} tcp dport 8443 redirect to :9443`;
      await networks.run('proxy', ['nft', `${rule}; add element inet sallyport doors { 9443 }`]);
    },
  },
  {
    way: 'a local route',
    doors: { tls: '[::]:443', http: '[::]:80', other: '[::]:8443' },
    seesAddress: true,
    lead: (networks, device) => networks.run('proxy', ['sh', join(GATEWAY, 'local-route.sh'), device]),
  },
];

const missing = NETWORK_TOOLS === undefined ? '' : ` (${NETWORK_TOOLS})`;

describe.skipIf(NETWORK_TOOLS !== undefined).each(WAYS)(
  `a sandbox that is led here by $way${missing}`,
  ({ doors, seesAddress, lead }) => {
    let networks: ThreeNamespaces;
    let outside: Running;
    let proxy: Running;
    const close: (() => Promise<unknown>)[] = [];

    const start = async (): Promise<void> => {
      const command = [process.execPath, join(ROOT, 'dist', 'sallyport.cjs'), 'start', '--config', 'sallyport.json'];
      proxy = await networks.start('proxy', command, '"message":"listening"');
    };

    beforeAll(async () => {
      await buildCli();
      const authority = await openOutside();
      close.push(() => authority.close());
      networks = await openThreeNamespaces();
      close.push(() => networks.close());
      const file = (name: string): string => join(networks.folder, name);
      for (const [name, host] of [
        ['named', 'out.test'],
        ['nameless', NAMELESS],
      ] as const) {
        const { key, cert } = authority.credentials(host);
        await writeFile(file(`${name}.key`), key);
        await writeFile(file(`${name}.pem`), cert);
      }
      await Promise.all([
        writeFile(file('outside.cjs'), OUTSIDE),
        writeFile(file('socket.cjs'), SOCKET),
        writeFile(file('watch.cjs'), WATCH),
        writeFile(file('datagrams.cjs'), DATAGRAMS),
        writeFile(file('sallyport.json'), JSON.stringify(config(file, authority.caPath))),
      ]);
      await layCables();
      const names = 'out.test no.test rebound.test six.test';
      await networks.etc('sandbox', 'hosts', `127.0.0.1 localhost\n${NOWHERE} ${names}\n`);
      const truth = `${PLACES.outside} out.test no.test\n${PLACES.outer} rebound.test\n${SIX.outside} six.test\n`;
      await networks.etc('proxy', 'hosts', `127.0.0.1 localhost\n${truth}`);
      outside = await networks.start('outside', [process.execPath, 'outside.cjs'], 'outside is up');
      await start();
    }, 120_000);

    afterAll(async () => {
      for (const each of close.reverse()) await each();
    });

    function config(file: (name: string) => string, caPath: string): object {
      const rule = { addresses: [`${PLACES.outside}/32`], transform: { Authorization: 'Bearer door' } };
      return {
        listen: {
          proxy: `${PLACES.inner}:8080`,
          transparent: { tls: doors.tls, http: doors.http, ports: { '8443': { tls: doors.other } } },
        },
        admin: { listen: '127.0.0.1:9090', token: { file: file('token') } },
        ca: { certificate: file('public/ca.pem'), key: file('ca.key') },
        audit: { path: file('audit.ndjson') },
        store: { uri: `file:${file('store')}`, key: { file: file('store-key') } },
        upstream: { ca: [caPath] },
        sandboxes: { agent: { sources: [PLACES.sandbox, SIX.sandbox] } },
        network: {
          allowlist: [
            { domain: 'out.test', ...rule, ports: [443, 80, 8443], allow_plaintext: true },
            { domain: 'six.test', addresses: [`${SIX.outside}/128`] },
            { domain: 'rebound.test' },
            { domain: NAMELESS, addresses: [`${NAMELESS}/32`] },
          ],
        },
      };
    }

    /** IPv6, a default route for the sandbox, a proxy that would forward if nothing kept it from it, the walls, and the way to the doors. */
    async function layCables(): Promise<void> {
      const inner = await deviceOf('proxy', PLACES.inner);
      const cables: (readonly [Place, string, string])[] = [
        ['sandbox', `${SIX.sandbox}/64`, await deviceOf('sandbox', PLACES.sandbox)],
        ['sandbox', `${STRANGER}/24`, await deviceOf('sandbox', PLACES.sandbox)],
        ['proxy', `${SIX.inner}/64`, inner],
        ['proxy', `${SIX.outer}/64`, await deviceOf('proxy', PLACES.outer)],
        ['outside', `${SIX.outside}/64`, await deviceOf('outside', PLACES.outside)],
        ['outside', `${NAMELESS}/24`, await deviceOf('outside', PLACES.outside)],
      ];
      for (const [place, address, device] of cables)
        await networks.run(place, ['ip', 'address', 'add', address, 'dev', device, ...(address.includes(':') ? ['nodad'] : [])]);
      await networks.run('sandbox', ['ip', 'route', 'add', 'default', 'via', PLACES.inner]);
      await networks.run('sandbox', ['ip', '-6', 'route', 'add', 'default', 'via', SIX.inner]);
      await networks.run('outside', ['ip', 'route', 'add', 'default', 'via', PLACES.outer]);
      await networks.run('outside', ['ip', '-6', 'route', 'add', 'default', 'via', SIX.outer]);
      const forward = 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding';
      await networks.run('proxy', ['sh', '-c', forward]);
      await networks.run('proxy', nft(inner, 'walls.nft'));
      await lead(networks, inner);
      // what is run again changes nothing
      await networks.run('proxy', nft(inner, 'walls.nft'));
      await lead(networks, inner);
    }

    async function deviceOf(place: Place, address: string): Promise<string> {
      const line = await networks.run(place, ['ip', '-o', 'address', 'show', 'to', address]);
      return /^\d+: (\S+)/.exec(line)?.[1] ?? '';
    }

    /** What curl prints, whatever becomes of it: status, version, reason and body, or `failed` and its exit status. */
    async function curl(url: string, ...words: string[]): Promise<string> {
      const format = '\\n%{http_code} %{http_version} %header{x-sallyport-reason}\\n';
      const all = ['curl', '-sg', '--noproxy', '', '--max-time', '5', '--cacert', 'public/ca.pem', '-w', format, ...words, url];
      const shell = ['sh', '-c', '"$@" || echo "failed $?"', 'sh', ...all];
      const [body = '', ...rest] = (await networks.run('sandbox', shell)).trim().split('\n');
      const last = rest.at(-1) ?? body;
      return last.startsWith('failed') ? last : body.startsWith('{') ? last.trim() : `${last.trim()} ${body}`;
    }

    const reached = (): string[] =>
      outside
        .printed()
        .split('\n')
        .filter((line) => line.startsWith('reached'));

    /** The ledger's line of a request. */
    const lineOf = async (path: string): Promise<unknown> =>
      (await readFile(join(networks.folder, 'audit.ndjson'), 'utf8'))
        .split('\n')
        .find((line) => line.includes(`"path":"${path}"`));

    it.each([
      { name: 'TLS', url: 'https://out.test', words: ['--http1.1'], heard: '200 1.1 1.1 out.test Bearer door' },
      { name: 'plain HTTP', url: 'http://out.test', words: [], heard: '200 1.1 1.1 out.test Bearer door' },
      { name: 'HTTP/2', url: 'https://out.test', words: ['--http2'], heard: '200 2 2.0 out.test Bearer door' },
      {
        name: 'TLS at another port',
        url: 'https://out.test:8443',
        words: ['--http1.1'],
        heard: '200 1.1 1.1 out.test:8443 Bearer door',
      },
      {
        name: 'TLS, dialled over IPv6',
        url: 'https://out.test',
        words: ['--http1.1', '--resolve', `out.test:443:${SIX.outside}`],
        heard: '200 1.1 1.1 out.test Bearer door',
      },
      {
        name: 'plain HTTP at an upstream that has IPv6 alone',
        url: 'http://six.test',
        words: [],
        heard: '200 1.1 1.1 six.test none',
      },
    ])('reaches an allowed host with its credential put on: $name', async ({ name, url, words, heard }) => {
      const path = `/${name.replaceAll(/[, ]/g, '-')}`;
      expect(await curl(`${url}${path}`, ...words)).toBe(heard);
      await expect.poll(() => lineOf(path)).toMatch(/"sandbox":"agent".*"door":"transparent".*"decision":"allow"/);
    });

    it.each(['wss', 'ws'])('reaches one by WebSocket: %s', async (scheme) => {
      expect(await networks.run('sandbox', [process.execPath, 'socket.cjs', `${scheme}://out.test/`])).toBe(
        'hello Bearer door\n',
      );
    });

    it.each([
      { name: 'a name, over TLS', url: 'https://no.test/', heard: '403 1.1 not_allowlisted', words: ['--http1.1'] },
      { name: 'a name, over HTTP/2', url: 'https://no.test/', heard: '403 2 not_allowlisted', words: ['--http2'] },
      { name: 'a name, over plain HTTP', url: 'http://no.test/', heard: '403 1.1 not_allowlisted', words: [] },
      {
        name: 'a name at the address of an allowed one',
        url: 'https://no.test/',
        heard: '403 1.1 not_allowlisted',
        words: ['--http1.1', '--resolve', `no.test:443:${PLACES.outside}`],
      },
      {
        name: 'a name over IPv6',
        url: 'https://no.test/',
        heard: '403 1.1 not_allowlisted',
        words: ['--http1.1', '--resolve', `no.test:443:${SIX.outside}`],
      },
      {
        name: 'an allowed name at a port that is not',
        url: 'https://six.test:8443/',
        heard: '403 1.1 port_denied',
        words: ['--http1.1'],
      },
      {
        name: 'SNI of one, Host of another',
        url: 'https://out.test/',
        heard: '421 1.1 host_mismatch',
        words: ['--http1.1', '-H', 'Host: no.test'],
      },
      {
        name: 'SNI of one, :authority of another',
        url: 'https://out.test/',
        heard: '421 2 host_mismatch',
        words: ['--http2', '-H', 'Host: no.test'],
      },
      {
        name: 'a name that leads inside the walls',
        url: 'https://rebound.test/',
        heard: '403 1.1 address_denied',
        words: ['--http1.1'],
      },
      {
        name: 'a sandbox that nobody knows',
        url: 'https://out.test/',
        heard: '407 1.1 sandbox_unauthenticated',
        words: ['--http1.1', '--interface', STRANGER],
      },
    ])('is told what it is refused, and nothing of it gets out: $name', async ({ url, words, heard }) => {
      const before = reached().length;
      expect(await curl(url, ...words)).toBe(heard);
      expect(reached()).toHaveLength(before);
    });

    it('is told over WebSocket too', async () => {
      expect(await networks.run('sandbox', [process.execPath, 'socket.cjs', 'wss://no.test/'])).toBe('403 not_allowlisted\n');
    });

    it('finds a literal address judged as such where the proxy sees it, and refused where it does not', async () => {
      const url = (address: string, scheme = 'http') => `${scheme}://${address}/`;
      const known = seesAddress;
      expect(await curl(url(NAMELESS))).toBe(known ? `200 1.1 1.1 ${NAMELESS} none` : '421 1.1 host_mismatch');
      // curl's exit status 35: the handshake was ended by an alert
      expect(await curl(url(NAMELESS, 'https'), '--http1.1')).toBe(known ? `200 1.1 1.1 ${NAMELESS} none` : 'failed 35');
      expect(await curl(url(PLACES.outside, 'https'), '--http1.1')).toBe(known ? '403 1.1 not_allowlisted' : 'failed 35');
      expect(await curl(url(`[${SIX.outside}]`, 'https'), '--http1.1')).toBe(known ? '403 1.1 not_allowlisted' : 'failed 35');
      expect(await curl(url(`[${SIX.outside}]`))).toBe(known ? '403 1.1 not_allowlisted' : '421 1.1 host_mismatch');
    });

    it('finds the address of the proxy itself leading nowhere', async () => {
      for (const address of [PLACES.inner, `[${SIX.inner}]`]) {
        expect(await curl(`https://${address}/`, '--http1.1')).toBe('failed 35');
        expect(await curl(`http://${address}/`)).toBe('421 1.1 host_mismatch');
      }
    });

    it('has no other way: no other port, no datagram, no ping, in neither family, and not the admin listener', async () => {
      expect(await curl('https://out.test/', '--http1.1')).toMatch(/^200 /);
      await expect.poll(reached).toContain('reached 443');
      const before = reached().length;
      for (const url of [
        `http://${PLACES.outside}:22/`,
        `http://[${SIX.outside}]:22/`,
        `http://${PLACES.outer}:22/`,
        `http://${PLACES.inner}:9090/healthz`,
        `http://${PLACES.outer}:9090/healthz`,
        `http://[${SIX.inner}]:9090/healthz`,
      ])
        expect(await curl(url), url).toMatch(/^failed (?:7|28)$/);
      for (const address of [PLACES.outside, SIX.outside]) {
        await networks.run('sandbox', [process.execPath, 'datagrams.cjs', address]);
        const ping = ['sh', '-c', `command -v ping > /dev/null || exit 0; ! ping -c 1 -W 1 ${address} > /dev/null 2>&1`];
        await networks.run('sandbox', ping);
      }
      expect(reached().slice(before)).toEqual([]);
    });

    it('is cut off while the proxy is dead, and goes on when that is ready again', async () => {
      await proxy.stop('SIGKILL');
      const before = reached().length;
      for (const url of [
        'https://out.test/',
        'http://out.test/',
        'https://out.test:8443/',
        `http://${PLACES.outside}/`,
        `http://[${SIX.outside}]/`,
      ])
        expect(await curl(url), url).toMatch(/^failed (?:7|28)$/);
      expect(reached()).toHaveLength(before);

      const ports = Object.values(doors).map((door) => door.slice(door.lastIndexOf(':') + 1));
      const watching = networks.run('proxy', [process.execPath, 'watch.cjs', ...ports]);
      await start();
      const seen = (await watching).trim().split('\n');
      expect(await curl('https://out.test/', '--http1.1')).toBe('200 1.1 1.1 out.test Bearer door');
      // Green came last, and once every door was open.
      expect(seen.at(-1)).toBe('200 open open open');
      expect(seen[0]).toBe('000 shut shut shut');
    });
  },
);
