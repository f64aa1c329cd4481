// Twin of src/commands/start.ts.
import { createSocket } from 'node:dgram';
import { EventEmitter, once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { start } from '../../src/commands/start.ts';
import { capture, temporaryFolder } from './rig.ts';

interface Started {
  readonly folder: string;
  readonly signals: EventEmitter;
  readonly ended: Promise<number>;
  readonly banner: string;
  readonly proxyPort: number;
}

function baseConfig(folder: string): Record<string, unknown> {
  return {
    listen: { proxy: '127.0.0.1:0' },
    admin: { listen: '127.0.0.1:0', token: { file: join(folder, 'admin-token') } },
    ca: { certificate: join(folder, 'public', 'ca.pem'), key: join(folder, 'ca.key') },
    audit: { path: join(folder, 'audit.log') },
    log: { level: 'error' },
  };
}

function write(folder: string, config: object): string {
  const path = join(folder, 'sallyport.json');
  writeFileSync(path, JSON.stringify({ ...baseConfig(folder), ...config }));
  return path;
}

async function startDoor(config: object = {}): Promise<Started> {
  const folder = temporaryFolder();
  const signals = new EventEmitter();
  const captured = capture(folder, { terminal: true, env: { NO_COLOR: '1' } });
  const ended = start({ config: write(folder, config) }, captured.context, signals);
  await vi.waitFor(() => expect(captured.err()).toContain('169.254.169.254'), 10_000);
  onTestFinished(async () => {
    signals.emit('SIGTERM', 'SIGTERM');
    await ended;
  });
  const proxyPort = Number(/proxy {3}http:\/\/127\.0\.0\.1:(\d+)/.exec(captured.err())?.[1]);
  return { folder, signals, ended, banner: captured.err(), proxyPort };
}

function withDnsDoor(address: string): object {
  return { listen: { proxy: '127.0.0.1:0', transparent: { dns: address, answer: '10.0.0.2' } } };
}

/** What starting a door that cannot start says. */
async function failToStart(prepare: (folder: string) => string): Promise<{ code: number; err: string }> {
  const folder = temporaryFolder();
  const captured = capture(folder);
  const code = await start({ config: prepare(folder) }, captured.context, new EventEmitter());
  return { code, err: captured.err() };
}

async function slowUpstream(): Promise<{ readonly port: number; readonly arrived: Promise<http.ServerResponse> }> {
  let seen: (response: http.ServerResponse) => void = () => undefined;
  const arrived = new Promise<http.ServerResponse>((resolve) => (seen = resolve));
  const server = http.createServer((_request, response) => seen(response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, arrived };
}

function get(proxyPort: number, url: string): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    http
      .get({ host: '127.0.0.1', port: proxyPort, path: url, agent: false, headers: { Host: new URL(url).host } }, (response) => {
        let body = '';
        response.setEncoding('utf8').on('data', (chunk: string) => (body += chunk));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
        response.on('error', reject);
      })
      .on('error', reject);
  });
}

const openLoopback = (port: number) => ({
  network: { allowlist: [{ domain: '127.0.0.1', ports: [port], addresses: ['127.0.0.1'] }] },
});

describe('start', () => {
  it('tells a person where it listens, where the CA is, and two lines to try', async () => {
    const { banner, folder } = await startDoor({ network: { allowlist: [{ domain: '*.wild.test' }, { domain: 'api.test' }] } });
    expect(banner).toMatch(/admin +http:\/\/127\.0\.0\.1:\d+/);
    expect(banner).toContain(`ca      ${join(folder, 'public', 'ca.pem')}`);
    expect(banner).toMatch(/curl --proxy http:\/\/127\.0\.0\.1:\d+ --cacert .*bundle\.pem https:\/\/api\.test\/\n/);
  });

  it('says that nothing is allowed yet where nothing is', async () => {
    expect((await startDoor({ network: 'disabled' })).banner).toContain('nothing is allowed yet');
  });

  it('shows where the token of a sandbox goes, and not the token', async () => {
    const { banner } = await startDoor({ sandboxes: { one: { token: 'hunter2-hunter2-hunter2' } } });
    expect(banner).toContain('//SANDBOX:TOKEN@');
    expect(banner).not.toContain('hunter2');
  });

  it('lets an exchange under way end when it is told to stop, and exits 0', async () => {
    const upstream = await slowUpstream();
    const door = await startDoor(openLoopback(upstream.port));
    const reply = get(door.proxyPort, `http://127.0.0.1:${upstream.port}/`);
    const response = await upstream.arrived;
    door.signals.emit('SIGTERM', 'SIGTERM');
    response.end('to the end');
    expect(await reply).toEqual({ status: 200, body: 'to the end' });
    expect(await door.ended).toBe(0);
  });

  it('stops at once at a second signal, whatever is under way', async () => {
    const upstream = await slowUpstream();
    const door = await startDoor(openLoopback(upstream.port));
    const reply = get(door.proxyPort, `http://127.0.0.1:${upstream.port}/`).catch(() => undefined);
    const response = await upstream.arrived;
    door.signals.emit('SIGINT', 'SIGINT');
    door.signals.emit('SIGINT', 'SIGINT');
    expect(await door.ended).toBe(1);
    response.end();
    await reply;
  });

  it('opens the audit log anew at SIGHUP', async () => {
    const door = await startDoor();
    const log = join(door.folder, 'audit.log');
    renameSync(log, `${log}.1`);
    door.signals.emit('SIGHUP', 'SIGHUP');
    await vi.waitFor(() => expect(existsSync(log)).toBe(true), 5000);
    door.signals.emit('SIGTERM', 'SIGTERM');
    expect(await door.ended).toBe(0);
  });

  it('reads the config again at SIGHUP', async () => {
    const door = await startDoor();
    expect((await get(door.proxyPort, 'http://127.0.0.1:1/')).body).toContain('not_allowlisted');
    write(door.folder, { network: { denylist: [{ domain: '127.0.0.1' }] } });
    door.signals.emit('SIGHUP', 'SIGHUP');
    await vi.waitFor(async () => expect((await get(door.proxyPort, 'http://127.0.0.1:1/')).body).toContain('"denylisted"'), 5000);
  });

  it.each(['uncaughtException', 'unhandledRejection'])('ends with 1 after %s, what is under way first', async (event) => {
    const upstream = await slowUpstream();
    const door = await startDoor({ ...openLoopback(upstream.port), log: { level: 'error' } });
    const reply = get(door.proxyPort, `http://127.0.0.1:${upstream.port}/`);
    const response = await upstream.arrived;
    door.signals.emit(event, new Error('an invariant of this test'));
    response.end('to the end');
    expect(await reply).toEqual({ status: 200, body: 'to the end' });
    expect(await door.ended).toBe(1);
  });

  // Fault L04: each of these once was a stack trace somewhere.
  it.each([
    {
      name: 'a config that does not exist',
      prepare: (folder: string) => join(folder, 'gone.yaml'),
      code: 78,
      says: /gone\.yaml: the config file does not exist; name one with --config/,
    },
    {
      name: 'a config that is a folder',
      prepare: (folder: string) => folder,
      code: 78,
      says: /cannot be read \(EISDIR\); name one/,
    },
    {
      name: 'an unknown key',
      prepare: (folder: string) => write(folder, { netwrok: {} }),
      code: 78,
      says: /sallyport\.json:1: netwrok: unknown key; did you mean `network`\?/,
    },
    {
      name: 'a secret that is not there',
      prepare: (folder: string) =>
        write(folder, { network: { allowlist: [{ domain: 'a.test', transform: { X: { env: 'GONE' } } }] } }),
      code: 78,
      says: /network\.allowlist\[0\]\.transform\.X: .*"GONE" is not set/,
    },
    {
      name: 'a CA certificate without its key',
      prepare: (folder: string) => {
        mkdirSync(join(folder, 'public'));
        writeFileSync(join(folder, 'public', 'ca.pem'), '');
        return write(folder, {});
      },
      code: 1,
      says: /restore the key, or remove the certificate/,
    },
    {
      name: 'a CA folder that is a file',
      prepare: (folder: string) => {
        writeFileSync(join(folder, 'public'), '');
        return write(folder, {});
      },
      code: 1,
      says: /"[^"]*ca\.pem".*: \w/,
    },
    {
      name: 'an audit log that is a folder',
      prepare: (folder: string) => write(folder, { audit: { path: folder } }),
      code: 1,
      says: /cannot open the audit log .*audit\.path/,
    },
    {
      name: 'an address that is not of this machine',
      prepare: (folder: string) => write(folder, { listen: { proxy: '192.0.2.1:8080' } }),
      code: 1,
      says: /192\.0\.2\.1:8080.*EADDRNOTAVAIL.*listen\.proxy/,
    },
  ])('says in one line what to do about $name', async ({ prepare, code, says }) => {
    const failed = await failToStart(prepare);
    expect(failed.code).toBe(code);
    expect(failed.err).toMatch(says);
    expect(failed.err.trimEnd().split('\n')).toHaveLength(1);
    expect(failed.err).not.toMatch(/\n\s+at /);
  });

  it.each([
    { key: 'listen.proxy', config: (address: string) => ({ listen: { proxy: address } }) },
    {
      key: 'admin.listen',
      config: (address: string) => ({ admin: { listen: address, token: { file: join(temporaryFolder(), 'token') } } }),
    },
    { key: 'listen.transparent.dns', config: withDnsDoor },
  ])('names $key where its port is in use (L04)', async ({ key, config }) => {
    const taken = net.createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    onTestFinished(() => void taken.close());
    const address = `127.0.0.1:${(taken.address() as AddressInfo).port}`;
    const { code, err } = await failToStart((folder) => write(folder, config(address)));
    expect(code).toBe(1);
    expect(err).toBe(`sallyport: ${err.slice('sallyport: '.length).trimEnd()}\n`);
    for (const part of [address, 'EADDRINUSE', 'free the port', key]) expect(err).toContain(part);
  });

  it('names listen.transparent.dns where its port of UDP is in use (L04)', async () => {
    const taken = createSocket('udp4').bind(0, '127.0.0.1');
    await once(taken, 'listening');
    onTestFinished(() => void taken.close());
    const address = `127.0.0.1:${taken.address().port}`;
    const { code, err } = await failToStart((folder) => write(folder, withDnsDoor(address)));
    expect(code).toBe(1);
    for (const part of [address, 'EADDRINUSE', 'free the port', 'listen.transparent.dns']) expect(err).toContain(part);
  });

  it('leaves its ledger whole when it stops', async () => {
    const door = await startDoor();
    await get(door.proxyPort, 'http://refused.test/');
    door.signals.emit('SIGTERM', 'SIGTERM');
    await door.ended;
    expect(readFileSync(join(door.folder, 'audit.log'), 'utf8')).toMatch(/^\{.*"host":"refused\.test".*\}\n$/);
  });
});
