// Squid as a corporate proxy, where Debian's package is installed: with credentials, names of its own, and tunnels to one port alone.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A running Squid. */
export interface Squid {
  readonly port: number;
  /** The access log so far */
  log(): Promise<string>;
  close(): Promise<void>;
}

const SQUID = '/usr/sbin/squid';

/** Why there is no Squid to test with; `undefined` where there is one. */
export function squidMissing(): string | undefined {
  return spawnSync(SQUID, ['-v']).status === 0 ? undefined : 'squid is not installed';
}

/** Starts one. `credentials` are `user:password`; `hosts` the names that it knows, all on loopback; `tunnelPort` the only one for CONNECT. */
export async function startSquid(options: {
  readonly credentials: string;
  readonly hosts: readonly string[];
  readonly tunnelPort: number;
}): Promise<Squid> {
  const folder = await mkdtemp(join(tmpdir(), 'squid-'));
  // It gives up root for a user of its own.
  await chmod(folder, 0o777);
  const port = await freePort();
  const [user = '', password = ''] = options.credentials.split(':');
  const ask = join(folder, 'ask.sh');
  await writeFile(ask, `#!/bin/sh\nwhile read line; do [ "$line" = "${user} ${password}" ] && echo OK || echo ERR; done\n`);
  await chmod(ask, 0o755);
  await writeFile(join(folder, 'hosts'), options.hosts.map((host) => `127.0.0.1 ${host}\n`).join(''));
  await writeFile(join(folder, 'squid.conf'), configOf({ ...options, folder, port, ask }));
  const child = spawn(SQUID, ['-N', '-f', join(folder, 'squid.conf')], { stdio: 'ignore' });
  const ended = once(child, 'exit');
  const close = async (): Promise<void> => {
    child.kill('SIGKILL');
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await listening(port, () => child.exitCode === null);
  } catch (error) {
    const said = await readFile(join(folder, 'cache.log'), 'utf8').catch(() => '');
    await close();
    throw new Error(`squid did not start: ${said}`, { cause: error });
  }
  return { port, log: () => readFile(join(folder, 'access.log'), 'utf8'), close };
}

function configOf({
  folder,
  port,
  ask,
  tunnelPort,
}: {
  readonly folder: string;
  readonly port: number;
  readonly ask: string;
  readonly tunnelPort: number;
}): string {
  return `
http_port 127.0.0.1:${port}
visible_hostname corporate.test
hosts_file ${folder}/hosts
dns_nameservers 127.0.0.1
dns_timeout 1 second
pid_filename ${folder}/squid.pid
access_log stdio:${folder}/access.log
cache_log ${folder}/cache.log
coredump_dir ${folder}
cache deny all
pinger_enable off
shutdown_lifetime 0 seconds
buffered_logs off
auth_param basic program ${ask}
auth_param basic children 1 startup=1 idle=1
auth_param basic realm corporate
acl known proxy_auth REQUIRED
acl tunnelled port ${tunnelPort}
http_access deny CONNECT !tunnelled
http_access allow known
http_access deny all
`;
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Resolves once something answers there. */
async function listening(port: number, alive: () => boolean): Promise<void> {
  for (const until = Date.now() + 20_000; ;) {
    const socket = net.connect(port, '127.0.0.1');
    try {
      await once(socket, 'connect');
      return;
    } catch (error) {
      if (!alive() || Date.now() > until) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    } finally {
      socket.destroy();
    }
  }
}
