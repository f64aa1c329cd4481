// `npm run bench`: CPU time of the proxy's process for one request, beside its peers, in one run. Ratios are what counts; times are this machine's.
// Each contender in turn, on one core, the load and the upstream on the other; many short rounds alternate between contenders.
// The ratio is the median over the rounds of ours by theirs: the two of a round ran within a second of each other, on a machine that was as busy
// for the one as for the other. The times are the least disturbed round's and the median.
// Options: --quick, --json.
import { fork, execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { openAuthority } from '../../dist/certificates/certificate-authority.js';
import { measureDecision } from './decision.mjs';
import * as sallyport from './contenders/sallyport.mjs';
import * as httpMitmProxy from './contenders/http-mitm-proxy.mjs';

const quick = process.argv.includes('--quick');
const json = process.argv.includes('--json');
const connections = 32;
const requests = quick ? 2000 : 5000;
const rounds = quick ? 8 : 28;
/** Over HTTP/2: connections, and streams at once on each */
const multiplexed = { connections: 2, streams: 32 };
const warmup = requests * 4;
const say = (text) => process.stderr.write(`${text}\n`);

const pinning = (() => {
  try {
    execFileSync('taskset', ['-c', '0', 'true'], { stdio: 'ignore' });
    return cpus().length > 1;
  } catch {
    return false;
  }
})();
const pin = (core) => (pinning ? ['taskset', '-c', String(core)] : []);

/** Time on the CPU of all threads of a process, in microseconds; the kernel's scheduler counts it in nanoseconds. */
function cpuMicroseconds(pid) {
  const threads = readdirSync(`/proc/${pid}/task`);
  const nanoseconds = threads.map((thread) =>
    Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]),
  );
  return nanoseconds.reduce((sum, each) => sum + each, 0) / 1000;
}
const residentMiB = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) / 1024;

const message = (child) =>
  new Promise((resolve, reject) =>
    child.once('message', resolve).once('exit', (code) => reject(new Error(`a process of the bench ended early (${code})`))),
  );
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

const folder = mkdtempSync(join(tmpdir(), 'sallyport-bench-'));
const children = [];
const start = (script, variable, value) => {
  const child = fork(join(import.meta.dirname, script), { env: { ...process.env, [variable]: JSON.stringify(value) } });
  if (pinning) execFileSync('taskset', ['-a', '-cp', '1', String(child.pid)], { stdio: 'ignore' });
  children.push(child);
  return child;
};

try {
  const outsideCa = join(folder, 'outside/ca.pem');
  const outside = await openAuthority({ certificate: outsideCa, key: undefined });
  const leaf = outside.issue('localhost');
  const tls = { key: join(folder, 'up.key'), cert: join(folder, 'up.pem') };
  writeFileSync(tls.key, leaf.keyPem);
  writeFileSync(tls.cert, leaf.certificatePem);
  const upstream = start('upstream.mjs', 'BENCH_TLS', tls);
  const { port: upstreamPort, h2Port } = await message(upstream);
  const target = `localhost:${upstreamPort}`;

  const runners = [];
  for (const contender of [sallyport, httpMitmProxy]) {
    say(`starting ${contender.name}`);
    const running = await contender.start({ folder, upstreamPort, h2Port, outsideCa, pin: pin(0) });
    children.push(running.child);
    const load = start('load.mjs', 'BENCH_LOAD', { port: running.port, target, ca: running.ca, connections, requests });
    await message(load);
    runners.push({ name: contender.name, protocol: 'http/1.1', running, load, cpu: [], rate: [], p50: [], p99: [] });
  }
  // The same process once more, HTTP/2 on both sides of it.
  const { running } = runners[0];
  const h2Load = start('load-h2.mjs', 'BENCH_LOAD', {
    port: running.port,
    target: `localhost:${h2Port}`,
    ca: running.ca,
    ...multiplexed,
    requests,
  });
  await message(h2Load);
  // Before the peer, which closes a connection that was idle for five seconds.
  runners.splice(1, 0, { name: sallyport.name, protocol: 'h2', running, load: h2Load, cpu: [], rate: [], p50: [], p99: [] });
  const direct = start('load.mjs', 'BENCH_LOAD', { target, ca: outsideCa, connections, requests, direct: upstreamPort });
  await message(direct);
  direct.send({});
  const unproxied = await message(direct);
  say(`the load by itself, without a proxy: ${Math.round(requests / unproxied.seconds)} requests a second`);

  for (const runner of runners) {
    runner.load.send({ warmup });
    await message(runner.load);
  }
  for (let round = 1; round <= rounds; round += 1) {
    for (const runner of runners) {
      const before = cpuMicroseconds(runner.running.child.pid);
      runner.load.send({});
      const { seconds, p50, p99 } = await message(runner.load);
      runner.cpu.push((cpuMicroseconds(runner.running.child.pid) - before) / requests);
      runner.rate.push(requests / seconds);
      runner.p50.push(p50);
      runner.p99.push(p99);
    }
    const costs = runners.map(({ name, protocol, cpu }) => `${name} ${protocol} ${cpu.at(-1).toFixed(1)}`).join(', ');
    say(`round ${round} of ${rounds}: ${costs} us of CPU a request`);
  }
  // A proxy that forgot the header would be quicker.
  upstream.send({});
  const { requests: seen, credentialed } = await message(upstream);
  const proxied = runners.length * (warmup + rounds * requests);
  if (credentialed !== proxied || seen !== proxied + requests) {
    throw new Error(`of ${proxied} requests through the proxies ${credentialed} bore the header; ${seen} came in all`);
  }
  const least = (values) => Math.min(...values);
  const ratioTo = (runner) => median(runner.cpu.map((theirs, round) => runners[0].cpu[round] / theirs));
  const rows = runners.map((runner) => ({
    proxy: runner.name,
    protocol: runner.protocol,
    cpu_us: Number(least(runner.cpu).toFixed(1)),
    cpu_us_median: Number(median(runner.cpu).toFixed(1)),
    ratio: Number(ratioTo(runner).toFixed(3)),
    requests_a_second: Math.round(median(runner.rate)),
    p50_ms: Number(median(runner.p50).toFixed(2)),
    p99_ms: Number(median(runner.p99).toFixed(2)),
    resident_mib: Math.round(residentMiB(runner.running.child.pid)),
  }));
  const decision = measureDecision(quick ? { rounds: 50_000, times: 5 } : {});
  const result = {
    workload: 'HTTPS kept alive, 1 KiB, one header put on',
    connections,
    multiplexed,
    requests,
    rounds,
    node: process.version,
    cpu: cpus()[0]?.model,
    pinned: pinning,
    rows,
    decision,
  };
  if (json || !process.stdout.isTTY) process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
  if (!json) process.stderr.write(markdown(result));
} finally {
  for (const child of children) child.kill('SIGKILL');
  rmSync(folder, { recursive: true, force: true });
}

function markdown({ workload, rows, decision }) {
  const lines = rows.map(
    (row) =>
      `| ${row.proxy} | ${row.protocol} | ${row.cpu_us} | ${row.cpu_us_median} | ${row.ratio} | ${row.requests_a_second} | ${row.p50_ms} | ${row.p99_ms} | ${row.resident_mib} |`,
  );
  return [
    '',
    `${workload}; \`ours / theirs\` is the ratio of CPU time, ours being HTTP/1.1's`,
    '',
    '| proxy | protocol | CPU us a request | median | ours / theirs | requests a second | p50 ms | p99 ms | MiB |',
    '|---|---|---|---|---|---|---|---|---|',
    ...lines,
    '',
    `a decision on 10 rules: ${decision.small_ns} ns, on 100,000: ${decision.large_ns} ns (ratio ${decision.ratio.toFixed(2)})`,
    '',
  ].join('\n');
}
