// Invariant 5 of the design through real sockets: a secret goes to its host and nowhere else. Every way in which an exchange can end is
// driven with a marker as the secret; then everything that a sandbox, a scraper or an operator can see is searched for it.
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import tls from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { askAdmin, sampled, writeConfig } from '../support/operator.ts';
import { countOf, openOutside, startRaw, startUpstream, valuesOf } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { verdictIn, WAYS } from '../support/probes.ts';
import type { ProbeOptions } from '../support/probes.ts';
import { openSecureTunnel, sendRaw } from '../support/sandbox-client.ts';

const TOKEN = 'sentinel-token-5b1f0c';
const PASSWORD = 'sentinel-password-77aa';
const HEADER = 'sentinel-header-09cd';
const TRANSFORM = 'sentinel-transform-e2e2';
const SANDBOX = 'sentinel-sandbox-4d4d4d4d';
/** What the sandbox itself sends: its own secrets and queries stay out of ledger, log, metrics and admin answers too. */
const OWN = 'sentinel-own-31337';

const BASIC = Buffer.from(`user:${PASSWORD}`).toString('base64');
const SECRETS = [TOKEN, PASSWORD, BASIC, HEADER, TRANSFORM];
const KEPT_FROM_OPERATORS = [...SECRETS, SANDBOX, Buffer.from(`sandbox:${SANDBOX}`).toString('base64'), OWN];

let outside: Outside;
let impostors: Outside;
let good: Upstream;
let untrusted: Upstream;
let garbage: Upstream;
let silent: Upstream;
let breaking: Upstream;
let plain: Upstream;
let cleartext: Upstream;
let house: House;
/** Every byte that any sandbox got to read, as text */
let seenBySandbox = '';
let deadPort = 0;

const proxyFields = `Proxy-Authorization: Basic ${Buffer.from(`sandbox:${SANDBOX}`).toString('base64')}\r\n`;
const ownFields = `Authorization: Bearer ${OWN}\r\nCookie: session=${OWN}\r\nX-Own: ${OWN}\r\n`;

beforeAll(async () => {
  outside = await openOutside();
  impostors = await openOutside();
  const ok = (_seen: unknown, response: { end(text: string): void }): void => response.end('fine');
  good = await startUpstream({ tls: outside, answer: ok });
  untrusted = await startUpstream({ tls: impostors, answer: ok });
  plain = await startUpstream({ answer: ok });
  cleartext = await startRaw((socket) => void socket.once('data', () => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')));
  const secured = (answer: (socket: tls.TLSSocket) => void) =>
    startRaw((socket) => {
      const stream = new tls.TLSSocket(socket, { isServer: true, ...outside.credentials('api.test') });
      stream.on('error', () => undefined);
      stream.once('data', () => answer(stream));
    });
  garbage = await secured((stream) => stream.end('HTTP/1.1 two hundred\r\nContent-Length: banana\r\n\r\n'));
  silent = await secured(() => undefined);
  breaking = await secured((stream) => stream.write('HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf', () => stream.destroy()));
  const dead = await startRaw(() => undefined);
  deadPort = dead.port;
  await dead.close();
  const ports = [good, untrusted, garbage, silent, breaking, plain, cleartext].map(({ port }) => port).concat(deadPort);
  const rule = { ports, addresses: LOOPBACK, transform: { 'X-Transform': TRANSFORM } };
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      log: { level: 'debug' },
      credentials: {
        bearer: { type: 'bearer_token', token: { env: 'TOKEN' } },
        basic: { type: 'basic', username: 'user', password: { env: 'PASSWORD' } },
        header: { type: 'header', headers: { 'X-Api-Key': { env: 'HEADER' }, 'X-Second': HEADER } },
        gone: { type: 'bearer_token', token: { env: 'NOT_SET' } },
      },
      sandboxes: { box: { token: SANDBOX } },
      network: {
        allowlist: [
          { domain: 'api.test', credential: 'bearer', paths: ['/.*'], methods: ['GET'], ...rule },
          { domain: 'basic.test', credential: 'basic', ...rule },
          { domain: 'header.test', credential: 'header', ...rule },
          { domain: 'gone.test', credential: 'gone', ...rule },
          { domain: 'walled.test', credential: 'bearer', ports },
          { domain: 'unresolved.test', credential: 'bearer', ...rule },
          { domain: 'bare.test', ports, addresses: LOOPBACK },
        ],
      },
      limits: { timeouts: { reply: '1s', connect: '5s' } },
    },
    {
      names: {
        'api.test': ['127.0.0.1'],
        'basic.test': ['127.0.0.1'],
        'header.test': ['127.0.0.1'],
        'gone.test': ['127.0.0.1'],
        'walled.test': ['10.0.0.1'],
        'bare.test': ['127.0.0.1'],
      },
      env: { TOKEN, PASSWORD, HEADER },
    },
  );
});

afterAll(async () => {
  await house.stop();
  for (const upstream of [good, untrusted, garbage, silent, breaking, plain, cleartext]) await upstream.close();
  await outside.close();
  await impostors.close();
});

/** What only an operator may learn of a failure: addresses, the system's and libraries' own words, names of variables. */
const INTERNAL = /127\.0\.0\.1|10\.0\.0\.1|\bE[A-Z]{5,}\b|UND_ERR|HPE_|NOT_SET|Error:|node:/;

interface Row {
  readonly name: string;
  readonly authority: () => string;
  readonly verdict: string;
  readonly way?: 'https' | 'http';
  readonly options?: ProbeOptions;
}

const rows: Row[] = [
  { name: 'success with a bearer token', authority: () => `api.test:${good.port}`, verdict: '200 from the upstream' },
  { name: 'success with basic', authority: () => `basic.test:${good.port}`, verdict: '200 from the upstream' },
  { name: 'success with headers', authority: () => `header.test:${good.port}`, verdict: '200 from the upstream' },
  { name: 'a refused connection', authority: () => `api.test:${deadPort}`, verdict: '502 upstream_connect' },
  { name: 'a certificate from an unknown root', authority: () => `api.test:${untrusted.port}`, verdict: '502 upstream_tls' },
  { name: 'plain HTTP where TLS belongs', authority: () => `api.test:${cleartext.port}`, verdict: '502 upstream_tls' },
  { name: 'a certificate for another name', authority: () => `basic.test:${garbage.port}`, verdict: '502 upstream_tls' },
  { name: 'an answer that is not HTTP', authority: () => `api.test:${garbage.port}`, verdict: '502 upstream_protocol' },
  { name: 'no answer', authority: () => `api.test:${silent.port}`, verdict: '504 upstream_timeout' },
  { name: 'a name that does not resolve', authority: () => `unresolved.test:${good.port}`, verdict: '502 dns_failed' },
  { name: 'an address inside', authority: () => `walled.test:${good.port}`, verdict: '403 address_denied' },
  { name: 'a credential that is not there', authority: () => `gone.test:${good.port}`, verdict: '502 credential_unavailable' },
  {
    name: 'a refused method',
    authority: () => `api.test:${good.port}`,
    verdict: '403 method_denied',
    options: { method: 'DELETE' },
  },
  { name: 'a refused host', authority: () => `nowhere.test:${good.port}`, verdict: '403 not_allowlisted' },
  {
    name: 'a Host that disagrees',
    authority: () => `api.test:${good.port}`,
    verdict: '421 host_mismatch',
    options: { host: 'bare.test' },
  },
  {
    name: 'a header section over the limit',
    authority: () => `api.test:${good.port}`,
    verdict: '431 headers_too_large',
    options: { fields: `X-Big: ${'x'.repeat(70_000)}\r\n` },
  },
  { name: 'plain http', way: 'http', authority: () => `api.test:${plain.port}`, verdict: '403 plaintext_credential' },
  {
    name: 'a wrong sandbox token',
    authority: () => `api.test:${good.port}`,
    verdict: '407 sandbox_unauthenticated',
    options: { proxyFields: `Proxy-Authorization: Bearer ${OWN}\r\n` },
  },
  {
    name: 'a broken request line',
    way: 'http',
    authority: () => `user:${OWN}@api.test:${good.port}`,
    verdict: '400 bad_request',
  },
];

/** Everything an operator, a scraper or whoever has the log gets to see. */
async function operatorsView(): Promise<Record<string, string>> {
  return {
    ledger: JSON.stringify(await house.audit()),
    log: house.logged.join('\n'),
    metrics: await house.scrape(),
    status: (await askAdmin(house, '/v1/status')).text,
    denials: (await askAdmin(house, '/v1/denials')).text,
    explain: (await askAdmin(house, '/v1/explain', { method: 'GET', url: `https://api.test:${good.port}/`, sandbox: 'box' }))
      .text,
    refusedExplain: (await askAdmin(house, '/v1/explain', { method: 'GET', url: `https://${OWN}@api.test/`, sandbox: 'box' }))
      .text,
    reload: (await askAdmin(house, '/v1/reload', {})).text,
  };
}

async function expectNoTrace(): Promise<void> {
  for (const secret of SECRETS) expect(seenBySandbox).not.toContain(secret);
  for (const [place, text] of Object.entries(await operatorsView())) {
    expect(text.length).toBeGreaterThan(2);
    for (const secret of KEPT_FROM_OPERATORS) expect([place, text.includes(secret)]).toEqual([place, false]);
  }
}

describe('invariant 5: secrets stay outside', () => {
  it.each(rows)('after $name', async ({ authority, verdict, way = 'https', options }) => {
    const from = house.outcomes.length;
    const { send } = WAYS.find(({ scheme }) => scheme === way)!;
    const answer = await send(house, authority(), {
      path: `/p?q=${OWN}`,
      proxyFields,
      ...options,
      fields: `${ownFields}${options?.fields ?? ''}`,
    });
    seenBySandbox += JSON.stringify(answer);
    expect(verdictIn(answer)).toBe(verdict);
    expect(answer.body).not.toMatch(INTERNAL);
    await house.outcome(() => true, from);
    await expectNoTrace();
  });

  it('after an answer that breaks off in the middle', async () => {
    const from = house.outcomes.length;
    const tunnel = await openSecureTunnel(house, `api.test:${breaking.port}`, { fields: proxyFields });
    let text = '';
    tunnel.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
    const end = new Promise((resolve) => tunnel.once('end', resolve).once('close', resolve));
    tunnel.write(`GET /?q=${OWN} HTTP/1.1\r\nHost: api.test:${breaking.port}\r\n${ownFields}\r\n`);
    await end;
    expect(text).toContain('half');
    seenBySandbox += text;
    const { verdict } = await house.outcome(({ arrival }) => arrival.purpose === 'exchange', from);
    expect(verdict?.code).toBe('upstream_protocol');
    await expectNoTrace();
  });

  it('after a sandbox that leaves before the answer', async () => {
    const from = house.outcomes.length;
    const tunnel = await openSecureTunnel(house, `api.test:${silent.port}`, { fields: proxyFields });
    const before = silent.bytes;
    tunnel.write(`GET /?q=${OWN} HTTP/1.1\r\nHost: api.test:${silent.port}\r\n${ownFields}\r\n`);
    await new Promise<void>((resolve) => {
      const look = (): void => (silent.bytes > before ? resolve() : void setImmediate(look));
      look();
    });
    tunnel.destroy();
    await house.outcome(({ arrival }) => arrival.purpose === 'exchange', from);
    await expectNoTrace();
  });

  it('after bytes that are no HTTP, with a secret in them', async () => {
    const answer = await sendRaw(house.port, `BREW /${OWN} ${OWN}\r\n${proxyFields}\r\n`);
    seenBySandbox += JSON.stringify(answer);
    expect(verdictIn(answer)).toBe('400 bad_request');
    await expectNoTrace();
  });

  it('after a config with a secret that cannot be a header is rejected', async () => {
    const good = await readFile(house.configPath, 'utf8');
    const config = JSON.parse(good) as { credentials: Record<string, unknown> };
    config.credentials['bearer'] = { type: 'bearer_token', token: `${TOKEN}\nX-Evil: 1` };
    await writeConfig(house, JSON.stringify(config));
    const { status, text } = await askAdmin(house, '/v1/reload', {});
    expect(status).toBe(422);
    expect(text).not.toContain(TOKEN);
    await writeConfig(house, good);
    await expectNoTrace();
  });

  it('has put each on, toward its own host, as the one value of its field', () => {
    const values = (name: string) => good.seen.map(({ fields }) => valuesOf(fields, name)).filter((found) => found.length > 0);
    expect(values('authorization')).toEqual([[`Bearer ${TOKEN}`], [`Basic ${BASIC}`]]);
    expect(values('x-api-key')).toEqual([[HEADER]]);
    for (const { fields } of good.seen) {
      expect(valuesOf(fields, 'x-transform')).toEqual([TRANSFORM]);
      expect(countOf(fields, 'proxy-authorization')).toBe(0);
      expect(countOf(fields, 'cookie')).toBe(0);
      expect(JSON.stringify(fields)).not.toContain(SANDBOX);
    }
  });

  it('sends nothing at all to an upstream whose certificate does not verify', () => {
    expect(untrusted.connections).toBeGreaterThan(0);
    expect(untrusted.seen).toEqual([]);
  });

  it('names the credential in ledger and metrics by its id', async () => {
    const lines = await house.audit();
    expect(lines.filter(({ credentials }) => JSON.stringify(credentials) === '["bearer"]').length).toBeGreaterThan(0);
    expect(sampled(await house.scrape(), 'sallyport_credential_injections_total', { credential: 'bearer' })).toBeGreaterThan(0);
    expect(sampled(await house.scrape(), 'sallyport_credential_failures_total', { credential: 'gone' })).toBe(1);
  });

  it('puts nothing on for a host whose rule names no credential', async () => {
    const before = good.seen.length;
    const answer = await WAYS[0]!.send(house, `bare.test:${good.port}`, { proxyFields, fields: ownFields });
    expect(answer.status).toBe(200);
    const sent = JSON.stringify(good.seen.slice(before));
    for (const secret of SECRETS) expect(sent).not.toContain(secret);
    expect(sent).toContain(OWN);
  });

  it('keeps every private key away from the folder that a sandbox may see', async () => {
    const folder = join(house.folder, 'public');
    const files = await readdir(folder);
    expect(files.length).toBeGreaterThan(0);
    for (const file of files) expect(await readFile(join(folder, file), 'latin1')).not.toContain('PRIVATE KEY');
  });
});
