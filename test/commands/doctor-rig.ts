// What the doctor's tests share: servers on loopback that a probe meets, and surroundings that lead it to them and nowhere else.
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { ProbeId } from '../../src/commands/doctor/probe-table.ts';
import { runProbes } from '../../src/commands/doctor/run-probes.ts';
import type { Probed } from '../../src/commands/doctor/run-probes.ts';
import { lookAround } from '../../src/commands/doctor/surroundings.ts';
import type { Targets } from '../../src/commands/doctor/surroundings.ts';
import type { Place } from '../../src/commands/doctor/wire.ts';

export const OUTSIDE = '127.0.0.61';
/** Where nobody listens, unless a test has somebody answer for every address */
export const NOWHERE = '127.0.0.62';

/** Every place that a probe goes to by itself leads to loopback. */
export const HARMLESS: Partial<Targets> = {
  ...{ publicTcp: [], publicTcp6: [], resolvers: [], quic: [], ping: [], metadata: [], privatePorts: [], nowhere: NOWHERE },
  ...{ metadataName: 'metadata.test', nowhere6: '::1' },
};

export interface Scene {
  readonly targets?: Partial<Targets>;
  readonly env?: NodeJS.ProcessEnv;
  /** Files below the root, by their path */
  readonly files?: Readonly<Record<string, string>>;
  readonly proxy?: string;
  readonly allowed?: string;
  readonly timeoutMs?: number;
}

/** Runs one probe in surroundings of its own. */
export async function probe(id: ProbeId, scene: Scene): Promise<Probed> {
  const root = `${treeOf(scene.files ?? {})}/`;
  const around = await lookAround({
    env: scene.env ?? {},
    directory: join(root, 'work'),
    root,
    targets: { ...HARMLESS, ...scene.targets },
    timeoutMs: scene.timeoutMs ?? 1_000,
    ...(scene.proxy === undefined ? {} : { proxy: new URL(scene.proxy) }),
    ...(scene.allowed === undefined ? {} : { allowed: new URL(scene.allowed) }),
  });
  const [probed] = await runProbes([id], around);
  if (probed === undefined) throw new Error(`no probe ${id}`);
  return probed;
}

export function treeOf(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(join(tmpdir(), 'doctor-'));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  mkdirSync(join(root, 'work'));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

/** A TCP server that goes with the test. */
export async function tcp(host: string, onSocket: (socket: Socket) => void, port = 0): Promise<Place> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => undefined));
    onSocket(socket);
  });
  const place = await listening(server, host, port);
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return place;
}

export async function listening(server: Server, host: string, port = 0): Promise<Place> {
  server.listen(port, host);
  await once(server, 'listening');
  return { host, port: (server.address() as AddressInfo).port };
}

export async function listeningAt(server: Server, path: string): Promise<void> {
  server.listen(path);
  await once(server, 'listening');
}

/** A UDP server that goes with the test. */
export async function udp(host: string, answer: (packet: Buffer) => Buffer | undefined, port = 0): Promise<Place> {
  const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
  socket.on('message', (packet, from) => {
    const said = answer(packet);
    if (said !== undefined) socket.send(said, from.port, from.address);
  });
  socket.bind(port, host);
  await once(socket, 'listening');
  onTestFinished(() => void socket.close());
  return { host, port: socket.address().port };
}

/** An HTTP server that says the same to everybody. */
export function http(host: string, answer: string | ((head: string) => string), port = 0): Promise<Place> {
  return tcp(
    host,
    (socket) => socket.once('data', (head) => socket.end(typeof answer === 'string' ? answer : answer(head.toString('latin1')))),
    port,
  );
}

const head = (status: string, fields: readonly string[], body: string): string =>
  [`HTTP/1.1 ${status}`, ...fields, `Content-Length: ${body.length}`, 'Connection: close', '', body].join('\r\n');

export const REFUSAL = head('403 Forbidden', ['X-Sallyport-Reason: not_allowlisted'], '');
export const NO_TOKEN = head('407 Proxy Authentication Required', ['X-Sallyport-Reason: sandbox_unauthenticated'], '');
export const ADMIN = head('200 OK', [], '{"status":"ok"}');
export const OTHER = head('200 OK', [], 'hello');

/** A DNS server's answer: its addresses, or an error; `authority` names somebody in charge. */
export function dnsAnswer(
  question: Buffer,
  options: { readonly rcode?: number; readonly addresses?: readonly string[]; readonly authority?: boolean },
): Buffer {
  const { rcode = 0, addresses = [], authority = false } = options;
  const records = addresses.map((address) =>
    Buffer.from([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, ...address.split('.').map(Number)]),
  );
  const counts = [0, 1, 0, addresses.length, 0, authority ? 1 : 0, 0, 0];
  const soa = authority ? [Buffer.from([0xc0, 0x0c, 0, 6, 0, 1, 0, 0, 1, 0, 0, 0])] : [];
  return Buffer.concat([
    question.subarray(0, 2),
    Buffer.from([0x81, 0x80 | rcode, ...counts]),
    question.subarray(12),
    ...records,
    ...soa,
  ]);
}
