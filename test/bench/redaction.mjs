// What it costs to look answers through, by hand: `npm run build && node test/bench/redaction.mjs`. CPU time of the proxy's process for a
// 10 MiB text answer and for a stream of events, with and without `redact`; and what an exchange of 1 KiB costs with a credential beside one
// with a transform alone. One proxy; the upstream listens on a port for each rule. Ratios count, medians over rounds that alternate.
import { fork } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import tls from 'node:tls';
import { openAuthority } from '../../dist/certificates/certificate-authority.js';
import * as sallyport from './contenders/sallyport.mjs';

const MIB = 1024 * 1024;
const EVENTS = 10_000;
const KINDS = ['credential', 'transform', 'unredacted'];

if (process.env['BENCH_PORTS'] !== undefined) serve(JSON.parse(process.env['BENCH_PORTS']));
else await measure();

function serve({ key, cert }) {
  const line = `${JSON.stringify({ id: 1, text: 'the quick brown fox', url: 'https:\\/\\/h.example\\/', blob: 'aGVsbG8gd29ybGQ' })}\n`;
  const text = Buffer.from(line.repeat(Math.ceil((10 * MIB) / line.length))).subarray(0, 10 * MIB);
  const small = Buffer.alloc(1024, 'x');
  const server = (type) => (request, response) => {
    if (request.url === '/text') response.writeHead(200, { 'content-type': 'application/json' }).end(text);
    else if (request.url === '/events') {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const some = (left) => {
        for (let i = 0; i < 100; i += 1) response.write(`data: ${line}\n`);
        if (left > 100) setImmediate(some, left - 100);
        else response.end();
      };
      some(EVENTS);
    } else response.writeHead(200, { 'content-type': type, 'content-length': small.length }).end(small);
  };
  const options = { key: readFileSync(key), cert: readFileSync(cert), keepAliveTimeout: 60_000 };
  const listening = KINDS.map(
    () =>
      new Promise((resolve) => {
        const one = https.createServer(options, server('application/octet-stream'));
        one.listen(0, '127.0.0.1', () => resolve(one.address().port));
      }),
  );
  Promise.all(listening).then((ports) => process.send(ports));
}

async function measure() {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-bench-'));
  const children = [];
  const forked = (script, variable, value) => {
    const child = fork(join(import.meta.dirname, script), { env: { ...process.env, [variable]: JSON.stringify(value) } });
    children.push(child);
    return child;
  };
  const message = (child) => new Promise((resolve) => child.once('message', resolve));
  try {
    const outsideCa = join(folder, 'outside/ca.pem');
    const leaf = (await openAuthority({ certificate: outsideCa, key: undefined })).issue('localhost');
    const files = { key: join(folder, 'up.key'), cert: join(folder, 'up.pem') };
    writeFileSync(files.key, leaf.keyPem);
    writeFileSync(files.cert, leaf.certificatePem);
    const ports = await message(forked('redaction.mjs', 'BENCH_PORTS', files));
    const putOn = {
      credential: { credential: 'bench', redact: true },
      transform: { transform: { Authorization: 'Bearer bench-token' }, redact: true },
      unredacted: { credential: 'bench', redact: false },
    };
    const rules = KINDS.map((kind, index) => ({
      domain: 'localhost',
      ...putOn[kind],
      ports: [ports[index]],
      addresses: ['127.0.0.0/8', '::1'],
    }));
    const running = await sallyport.start({ folder, upstreamPort: ports[0], outsideCa, pin: [], rules });
    children.push(running.child);
    const cpu = () =>
      readdirSync(`/proc/${running.child.pid}/task`).reduce(
        (sum, thread) => sum + Number(readFileSync(`/proc/${running.child.pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]),
        0,
      ) / 1e6;
    const costOf = async (act) => {
      const before = cpu();
      await act();
      return cpu() - before;
    };
    const ask = (kind, path) => fetchThrough(running, ports[KINDS.indexOf(kind)], path);
    const result = { node: process.version };
    for (const [path, name] of [
      ['/text', 'text_10_mib'],
      ['/events', 'sse_10000_events'],
    ]) {
      const costs = await alternately(['credential', 'unredacted'], 12, (kind) => costOf(() => ask(kind, path)));
      result[name] = {
        redacted_ms: round(median(costs.credential)),
        untouched_ms: round(median(costs.unredacted)),
        ratio: ratio(costs.credential, costs.unredacted),
      };
    }
    const loads = {};
    for (const [index, kind] of KINDS.entries()) {
      loads[kind] = forked('load.mjs', 'BENCH_LOAD', {
        port: running.port,
        target: `localhost:${ports[index]}`,
        ca: running.ca,
        connections: 16,
        requests: 2000,
      });
      await message(loads[kind]);
      loads[kind].send({ warmup: 6000 });
      await message(loads[kind]);
    }
    const costs = await alternately(KINDS, 16, (kind) =>
      costOf(async () => {
        loads[kind].send({});
        await message(loads[kind]);
      }),
    );
    result.exchange_1_kib = {
      credential_us: round(median(costs.credential) / 2),
      transform_us: round(median(costs.transform) / 2),
      unredacted_us: round(median(costs.unredacted) / 2),
      credential_by_transform: ratio(costs.credential, costs.transform),
      credential_by_unredacted: ratio(costs.credential, costs.unredacted),
    };
    process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
  } finally {
    for (const child of children) child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Every kind in turn; the first two rounds warm up. */
async function alternately(kinds, rounds, run) {
  const costs = Object.fromEntries(kinds.map((kind) => [kind, []]));
  for (let i = 0; i < rounds + 2; i += 1) {
    for (const kind of kinds) {
      const cost = await run(kind);
      if (i >= 2) costs[kind].push(cost);
    }
  }
  return costs;
}

function fetchThrough({ port, ca }, target, path) {
  return new Promise((resolve, reject) => {
    const authority = `localhost:${target}`;
    const connect = http.request({ port, host: '127.0.0.1', method: 'CONNECT', path: authority, headers: { host: authority } });
    connect.once('connect', (_answer, socket) => {
      const secured = tls.connect({ socket, servername: 'localhost', ca: readFileSync(ca) });
      const request = https.get({ createConnection: () => secured, path, headers: { host: authority } }, (answer) => {
        answer.once('end', () => {
          secured.destroy();
          resolve();
        });
        answer.resume();
      });
      request.once('error', reject);
    });
    connect.once('error', reject);
    connect.end();
  });
}

function median(values) {
  return [...values].sort((a, b) => a - b)[values.length >> 1];
}

function ratio(ours, theirs) {
  return Number(median(ours.map((cost, index) => cost / theirs[index])).toFixed(3));
}

function round(value) {
  return Number(value.toFixed(1));
}
