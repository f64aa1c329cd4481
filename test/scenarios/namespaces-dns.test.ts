// A sandbox that is led by names alone, on a real kernel: its only knowledge of the proxy is the name server in resolv.conf, and its only
// way is to the proxy's address. What it asks and where it goes is seen from the outside, whose own name server writes down every query.
import { randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildCli } from '../support/cli.ts';
import { openOutside } from '../support/outside.ts';
import { openThreeNamespaces, PLACES } from '../support/three-namespaces.ts';
import type { Running, ThreeNamespaces } from '../support/three-namespaces.ts';
import { NETWORK_TOOLS } from '../support/walls.ts';

const ROOT = join(import.meta.dirname, '..', '..');

/** Serves HTTP, HTTPS and names on the outside; prints each name that it is asked for, and each request. */
const OUTSIDE = `
  const { readFileSync } = require('node:fs');
  const packet = require(${JSON.stringify(join(ROOT, 'node_modules', 'dns-packet'))});
  const echo = (scheme) => (request, response) => {
    console.log('request ' + request.headers.host);
    response.end(scheme + ' ' + request.headers.host + ' ' + (request.headers['x-door'] ?? 'nothing'));
  };
  const names = require('node:dgram').createSocket('udp4').on('message', (message, from) => {
    const { id, questions } = packet.decode(message);
    console.log('asked ' + questions[0].name);
    const answers = questions[0].type === 'A' ? [{ type: 'A', name: questions[0].name, ttl: 0, data: '${PLACES.outside}' }] : [];
    names.send(packet.encode({ type: 'response', id, flags: 0x0180, questions, answers }), from.port, from.address);
  });
  names.bind(53, '${PLACES.outside}', () =>
    require('node:http').createServer(echo('http')).listen(80, '${PLACES.outside}', () =>
      require('node:https').createServer({ key: readFileSync('key.pem'), cert: readFileSync('cert.pem') }, echo('https'))
        .listen(443, '${PLACES.outside}', () => console.log('outside is up'))));`;

/** Asks once, as a program that knows of no proxy does, and prints what it is told. */
const CLIENT = `
  const [kind, name, ca] = process.argv.slice(2);
  const say = (text) => { process.stdout.write(text); process.exit(); };
  const fail = (error) => say(error.code ?? error.message);
  const hear = (version) => (response) => {
    let text = '';
    response.on('data', (chunk) => (text += chunk)).on('end', () => say([response.statusCode, version ?? response.httpVersion, text].join(' ')));
  };
  const trusted = { ca: require('node:fs').readFileSync(ca) };
  if (kind === 'lookup') require('node:dns').lookup(name, { all: true }, (error, all) => error ? fail(error) : say(all.map(({ address }) => address).join()));
  if (kind === 'http') require('node:http').get('http://' + name + '/').on('response', hear()).on('error', fail);
  if (kind === 'https') require('node:https').get('https://' + name + '/', trusted).on('response', hear()).on('error', fail);
  if (kind === 'h2') {
    const session = require('node:http2').connect('https://' + name, trusted).on('error', fail);
    const stream = session.request({ ':path': '/' });
    let status = 0;
    let text = '';
    stream.on('response', (fields) => (status = fields[':status'])).on('error', (error) => error.code === 'ERR_HTTP2_STREAM_CANCEL' || fail(error));
    stream.on('data', (chunk) => (text += chunk)).on('end', () => say([status, session.alpnProtocol, text].join(' ')));
  }`;

let networks: ThreeNamespaces;
let outside: Running;
let ca = '';
const close: (() => Promise<void>)[] = [];

describe.skipIf(NETWORK_TOOLS !== undefined)(
  `a sandbox that is led by names alone${NETWORK_TOOLS === undefined ? '' : ` (${NETWORK_TOOLS})`}`,
  () => {
    beforeAll(async () => {
      await buildCli();
      const authority = await openOutside();
      close.push(() => authority.close());
      networks = await openThreeNamespaces();
      close.push(() => networks.close());
      const file = (name: string): string => join(networks.folder, name);
      const { key, cert } = authority.credentials('allowed.test');
      await writeFile(file('key.pem'), key);
      await writeFile(file('cert.pem'), cert);
      await writeFile(file('outside.cjs'), OUTSIDE);
      await writeFile(file('client.cjs'), CLIENT);
      ca = file('public/ca.pem');
      outside = await networks.start('outside', [process.execPath, 'outside.cjs'], 'outside is up');
      await networks.etc('proxy', 'resolv.conf', `nameserver ${PLACES.outside}\n`);
      await networks.etc('sandbox', 'resolv.conf', `nameserver ${PLACES.inner}\n`);
      const rule = { addresses: [`${PLACES.outside}/32`], transform: { 'X-Door': 'put-on-at-the-door' }, allow_plaintext: true };
      const config = {
        listen: {
          proxy: '127.0.0.1:8080',
          transparent: {
            tls: `${PLACES.inner}:443`,
            http: `${PLACES.inner}:80`,
            dns: `${PLACES.inner}:53`,
            answer: PLACES.inner,
          },
        },
        admin: { listen: '127.0.0.1:9090', token: { file: file('token') } },
        ca: { certificate: ca, key: file('ca.key') },
        audit: { path: file('audit.ndjson') },
        store: { uri: `file:${file('store')}`, key: { file: file('store-key') } },
        upstream: { ca: [authority.caPath] },
        network: {
          allowlist: [
            { domain: 'allowed.test', ...rule },
            { domain: '*.wide.test', ...rule },
          ],
        },
      };
      await writeFile(file('sallyport.json'), JSON.stringify(config));
      const cli = join(ROOT, 'dist', 'sallyport.cjs');
      await networks.start('proxy', [process.execPath, cli, 'start', '--config', 'sallyport.json'], '"message":"listening"');
    }, 90_000);

    afterAll(async () => {
      for (const each of close.reverse()) await each();
    });

    const ask = (kind: string, name: string): Promise<string> =>
      networks.run('sandbox', [process.execPath, 'client.cjs', kind, name, ca]);
    const audit = async (): Promise<Record<string, unknown>[]> =>
      (await readFile(join(networks.folder, 'audit.ndjson'), 'utf8'))
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Record<string, unknown>);

    it('is told the address of the proxy, and of nothing else', async () => {
      expect(await ask('lookup', 'allowed.test')).toBe(PLACES.inner);
      expect(await ask('lookup', 'a.wide.test')).toBe(PLACES.inner);
      expect(await ask('lookup', 'refused.test')).toBe('ENOTFOUND');
      expect(outside.printed()).not.toContain('asked');
    });

    it.each([
      { name: 'TLS', kind: 'https', heard: '200 1.1 https allowed.test put-on-at-the-door' },
      { name: 'plain HTTP', kind: 'http', heard: '200 1.1 http allowed.test put-on-at-the-door' },
      { name: 'HTTP/2', kind: 'h2', heard: '200 h2 https allowed.test put-on-at-the-door' },
    ])('reaches an allowed host over $name, with the credential put on', async ({ kind, heard }) => {
      expect(await ask(kind, 'allowed.test')).toBe(heard);
      expect(outside.printed()).toContain('asked allowed.test');
    });

    it('reaches it too where it asks for names by TCP alone', async () => {
      await networks.etc('sandbox', 'resolv.conf', `nameserver ${PLACES.inner}\noptions use-vc\n`);
      expect(await ask('https', 'allowed.test')).toBe('200 1.1 https allowed.test put-on-at-the-door');
      await networks.etc('sandbox', 'resolv.conf', `nameserver ${PLACES.inner}\n`);
    });

    it.each(['https', 'http', 'h2'])(
      'finds no way to a refused host over %s, and the outside hears nothing of it',
      async (kind) => {
        expect(await ask(kind, 'refused.test')).toBe('ENOTFOUND');
        expect(outside.printed()).not.toContain('refused.test');
        const line = (await audit()).findLast(({ host }) => host === 'refused.test');
        expect(line).toMatchObject({ protocol: 'dns', decision: 'refuse', reason: 'not_allowlisted' });
      },
    );

    it('carries nothing out in names, neither in those that are refused nor in those that are allowed', async () => {
      for (const suffix of ['refused.test', 'wide.test']) {
        const secret = randomBytes(30).toString('hex');
        expect(await ask('lookup', `${secret}.${suffix}`)).toBe(suffix === 'wide.test' ? PLACES.inner : 'ENOTFOUND');
        expect(outside.printed()).not.toContain(secret);
      }
    });

    it('has no other way: not to the outside, not to its name server', async () => {
      await networks.etc('sandbox', 'resolv.conf', `nameserver ${PLACES.outside}\noptions timeout:1 attempts:1\n`);
      expect(await ask('lookup', 'allowed.test')).toMatch(/^(?:EAI_AGAIN|ENOTFOUND)$/);
      expect(await ask('http', PLACES.outside)).toBe('ENETUNREACH');
      await networks.etc('sandbox', 'resolv.conf', `nameserver ${PLACES.inner}\n`);
    });
  },
);
