// The shipped command as a container runs it: a read-only root, a user that is nobody, no capability, one core and 128 MiB; under load, with
// refusals and scrapes in between. Ten seconds; SALLYPORT_CONTAINER_SECONDS=60 for as long as the promise says.
// Where cgroup v2 hands out memory limits the kernel holds the process to them; where not, what the
// kernel could not take back (its anonymous memory; pages of files are dropped under pressure) is held against the same bound.
import { execFileSync, fork, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { endChild } from '../support/child-server.ts';
import { buildCli } from '../support/cli.ts';
import { LOOPBACK } from '../support/house.ts';
import { sampled } from '../support/operator.ts';
import { openOutside } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const BENCH = join(ROOT, 'test', 'bench');
const MIB = 1024 * 1024;
const LIMIT = Number(process.env['SALLYPORT_CONTAINER_MIB'] ?? 128) * MIB;
const SECONDS = Number(process.env['SALLYPORT_CONTAINER_SECONDS'] ?? 10);
const NOBODY = '64100';
/** Requests of one turn of the load; between two turns comes a refusal and a scrape */
const TURN = 500;
const CONNECTIONS = 8;

/** Becomes the program in `"$@"`, with nothing of the machine writable but the folders that the Dockerfile names. */
const ENTER = `set -e
folder=$1; cgroup=$2; shift 2
if [ -n "$cgroup" ]; then echo $$ > "$cgroup/cgroup.procs"; fi
mount --make-rprivate /
mount -t tmpfs -o size=8m,mode=0755 state /var/lib
mount -t tmpfs -o size=8m,mode=0755 public /run
install -d -o ${NOBODY} -g ${NOBODY} -m 0700 /var/lib/sallyport
install -d -o ${NOBODY} -g ${NOBODY} -m 0755 /run/sallyport /run/sallyport/public
install -m 0444 "$folder/sallyport.json" "$folder/outside.pem" /run
mount -o remount,bind,ro /
if ( : > "/written-$$" ) 2> /dev/null; then rm "/written-$$"; echo "the root is writable" >&2; exit 70; fi
cd /
exec setpriv --reuid=${NOBODY} --regid=${NOBODY} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"`;

const absent = whatIsAbsent();
const cgroup = absent === undefined ? cgroupToMake() : undefined;
const heldBy =
  cgroup === undefined
    ? 'by its anonymous memory, looked at each turn; skipped: the limit itself, no cgroup v2 with memory'
    : 'by its cgroup';

/** Why it cannot be tried here; undefined where it can. */
function whatIsAbsent(): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root';
  for (const tool of ['unshare', 'setpriv', 'taskset', 'mount', 'install']) {
    try {
      execFileSync('sh', ['-c', `command -v ${tool}`], { stdio: 'ignore' });
    } catch {
      return `needs ${tool}`;
    }
  }
  try {
    execFileSync('unshare', ['--mount', 'sh', '-c', 'mount --make-rprivate / && mount -t tmpfs none /run'], { stdio: 'ignore' });
  } catch {
    return 'may not mount in a namespace of its own';
  }
  try {
    const probe = [
      '--reuid',
      NOBODY,
      '--regid',
      NOBODY,
      '--clear-groups',
      process.execPath,
      '-e',
      'require("fs").accessSync(".")',
    ];
    execFileSync('setpriv', probe, { stdio: 'ignore', cwd: ROOT });
    return undefined;
  } catch {
    return 'needs a checkout and a node that other users may read';
  }
}

/** The cgroup that this test may make; undefined where cgroup v2 hands out no memory limits, or may not be written. */
function cgroupToMake(): string | undefined {
  try {
    if (!readFileSync('/sys/fs/cgroup/cgroup.subtree_control', 'utf8').includes('memory')) return undefined;
    accessSync('/sys/fs/cgroup', constants.W_OK);
    return `/sys/fs/cgroup/sallyport-container-${process.pid}`;
  } catch {
    return undefined;
  }
}

/** Makes it, with the limit and without swap. */
function makeCgroup(folder: string): void {
  mkdirSync(folder);
  writeFileSync(join(folder, 'memory.max'), String(LIMIT));
  if (existsSync(join(folder, 'memory.swap.max'))) writeFileSync(join(folder, 'memory.swap.max'), '0');
}

/** A line of `/proc/PID/status`. */
function statusLine(pid: number | undefined, name: string): string {
  const line = readFileSync(`/proc/${pid}/status`, 'utf8')
    .split('\n')
    .find((text) => text.startsWith(`${name}:`));
  return (line ?? '').slice(name.length + 1).trim();
}

/** The words that the image starts with, with this checkout for its folder. */
async function entrypoint(): Promise<readonly string[]> {
  const line = /^ENTRYPOINT (\["node".*\])$/m.exec(await readFile(join(ROOT, 'Dockerfile'), 'utf8'));
  const [, ...words] = JSON.parse(line?.[1] ?? '[]') as string[];
  return [process.execPath, ...words.map((word) => word.replace(/^\/app\//, `${ROOT}/`))];
}

/** The next message of a child; rejects when it ends instead. */
async function hear(child: ChildProcess): Promise<Record<string, number>> {
  const stop = new AbortController();
  const ended = once(child, 'exit', { signal: stop.signal }).then(([code]) =>
    Promise.reject(new Error(`the child ended with ${code}`)),
  );
  try {
    return (await Promise.race([once(child, 'message', { signal: stop.signal }), ended]))[0] as Record<string, number>;
  } finally {
    ended.catch(() => undefined);
    stop.abort();
  }
}

describe.skipIf(absent !== undefined)(`a container${absent === undefined ? '' : ` (skipped: ${absent})`}`, () => {
  const children: ChildProcess[] = [];
  const log: Record<string, unknown>[] = [];
  const cleanup: (() => unknown)[] = [];
  let folder: string;
  let upstream: ChildProcess;
  let target: string;
  let program: ChildProcess;
  let door: { readonly port: number; readonly ca: string };
  let admin: string;

  beforeAll(async () => {
    await buildCli();
    const outside = await openOutside();
    cleanup.push(() => outside.close());
    folder = await mkdtemp(join(tmpdir(), 'container-'));
    cleanup.push(() => rm(folder, { recursive: true, force: true }));
    if (cgroup !== undefined) {
      makeCgroup(cgroup);
      cleanup.push(() => rmdirSync(cgroup));
    }
    const { key, cert } = outside.credentials('localhost');
    const tls = { key: join(folder, 'up.key'), cert: join(folder, 'up.pem') };
    await writeFile(tls.key, key);
    await writeFile(tls.cert, cert);
    await writeFile(join(folder, 'outside.pem'), await readFile(outside.caPath));
    upstream = fork(join(BENCH, 'upstream.mjs'), { env: { ...process.env, BENCH_TLS: JSON.stringify(tls) }, execArgv: [] });
    children.push(upstream);
    const { port } = await hear(upstream);
    target = `localhost:${port}`;
    const shipped = parse(await readFile(join(ROOT, 'config', 'container.yaml'), 'utf8')) as Record<string, object>;
    const config = {
      ...shipped,
      listen: { proxy: '127.0.0.1:0' },
      admin: { ...shipped['admin'], listen: '127.0.0.1:0' },
      credentials: { main: { type: 'bearer_token', token: { env: 'MAIN_TOKEN' } } },
      upstream: { ca: ['/run/outside.pem'] },
      network: { allowlist: [{ domain: 'localhost', ports: [port], addresses: [...LOOPBACK, '::1/128'], credential: 'main' }] },
    };
    await writeFile(join(folder, 'sallyport.json'), JSON.stringify(config));
    program = await start();
  }, 180_000);

  afterAll(async () => {
    for (const child of children) await endChild(child, 'SIGKILL');
    for (const close of cleanup) await close();
  });

  async function start(): Promise<ChildProcess> {
    const core = /^\d+/.exec(statusLine(process.pid, 'Cpus_allowed_list'))?.[0] ?? '0';
    const enter = ['-c', core, 'unshare', '--mount', 'sh', '-c', ENTER, 'enter', folder, cgroup ?? ''];
    const words = [...enter, ...(await entrypoint()), 'start', '--config', '/run/sallyport.json'];
    const env = { PATH: process.env['PATH'] ?? '', NODE_ENV: 'production', MAIN_TOKEN: 'bench-token' };
    const child = spawn('taskset', words, { env, stdio: ['ignore', 'pipe', 'pipe'] });
    children.push(child);
    child.stdout.resume();
    let said = '';
    const first = await new Promise<Record<string, unknown>>((resolve, reject) => {
      createInterface({ input: child.stderr }).on('line', (line) => {
        said += `${line}\n`;
        if (!line.startsWith('{')) return;
        const entry = JSON.parse(line) as Record<string, unknown>;
        log.push(entry);
        if (entry['message'] === 'listening') resolve(entry);
      });
      child.once('close', (code, signal) => reject(new Error(`the program ended with ${code ?? signal}: ${said}`)));
    });
    door = {
      port: Number(new URL(String(first['proxy'])).port),
      ca: await readFile(`/proc/${child.pid}/root/run/sallyport/public/ca.pem`, 'utf8'),
    };
    admin = String(first['admin']);
    return child;
  }

  it('is one: nobody, without rights, on one core', () => {
    expect(statusLine(program.pid, 'Uid').split('\t')).toEqual([NOBODY, NOBODY, NOBODY, NOBODY]);
    expect(statusLine(program.pid, 'Groups')).toBe('');
    for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb']) expect(statusLine(program.pid, set)).toMatch(/^0+$/);
    expect(statusLine(program.pid, 'NoNewPrivs')).toBe('1');
    expect(statusLine(program.pid, 'Cpus_allowed_list')).toMatch(/^\d+$/);
    if (cgroup !== undefined) expect(readFileSync(join(cgroup, 'cgroup.procs'), 'utf8').trim()).toBe(String(program.pid));
  });

  it(
    `does the main job for ${SECONDS} s under load within ${LIMIT / MIB} MiB (${heldBy})`,
    { timeout: SECONDS * 1000 + 60_000 },
    async () => {
      const ca = `/proc/${program.pid}/root/run/sallyport/public/ca.pem`;
      const words = { port: door.port, target, ca, connections: CONNECTIONS, requests: TURN };
      const load = fork(join(BENCH, 'load.mjs'), { env: { ...process.env, BENCH_LOAD: JSON.stringify(words) }, execArgv: [] });
      children.push(load);
      await hear(load);
      const kilobytes = (name: string): number => Number.parseInt(statusLine(program.pid, name), 10);
      let anonymous = 0;
      let turns = 0;
      for (const end = performance.now() + SECONDS * 1000; performance.now() < end; turns += 1) {
        const done = hear(load);
        load.send({});
        const [refused, scrape] = await Promise.all([ask(door, 'https://elsewhere.test/'), fetch(`${admin}/metrics`)]);
        expect([refused.status, refused.headers['x-sallyport-reason'], scrape.status]).toEqual([403, 'not_allowlisted', 200]);
        await Promise.all([done, scrape.text()]);
        anonymous = Math.max(anonymous, (kilobytes('RssAnon') + kilobytes('RssShmem')) * 1024);
      }
      const told = hear(upstream);
      upstream.send({});
      expect(await told).toEqual({ requests: turns * TURN, credentialed: turns * TURN });
      const scrape = await (await fetch(`${admin}/metrics`)).text();
      expect(sampled(scrape, 'sallyport_requests_total', { decision: 'allow', status_class: '2xx' })).toBeGreaterThanOrEqual(
        turns * TURN,
      );
      expect([program.exitCode, program.signalCode]).toEqual([null, null]);
      // the rule that opens loopback is warned of, as it should be
      const complaints = log.filter(({ level, message }) => level !== 'info' && !/opens addresses/.test(String(message)));
      expect(complaints).toEqual([]);
      const resident = kilobytes('VmHWM') / 1024;
      const peak = cgroup === undefined ? anonymous : peakOf(cgroup);
      console.log(
        `container: ${turns * TURN} requests, ${turns} refusals and scrapes in ${SECONDS} s; peak ${(peak / MIB).toFixed(1)} MiB (${heldBy}), with the pages of files ${resident.toFixed(1)} MiB`,
      );
      expect(peak).toBeLessThanOrEqual(LIMIT);
      if (cgroup !== undefined) expect(readFileSync(join(cgroup, 'memory.events'), 'utf8')).toMatch(/^oom_kill 0$/m);
    },
  );

  it('ends in order when it is told to', async () => {
    const gone = once(program, 'exit');
    for (const child of children.filter((one) => one !== program && one !== upstream)) await endChild(child, 'SIGKILL');
    program.kill('SIGTERM');
    expect(await gone).toEqual([0, null]);
  });
});

/** The most memory that a cgroup was charged with; kernels before 5.19 do not keep it, and the present charge stands in. */
function peakOf(folder: string): number {
  const kept = join(folder, 'memory.peak');
  return Number(readFileSync(existsSync(kept) ? kept : join(folder, 'memory.current'), 'utf8'));
}
