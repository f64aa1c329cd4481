// The load over HTTP/2: a few connections through the proxy, each a CONNECT and a TLS handshake and then streams, so many at once.
// Speaks to whoever forked it as load.mjs does.
import http2 from 'node:http2';
import net from 'node:net';
import tls from 'node:tls';
import { readFileSync } from 'node:fs';

const { port, target, ca, connections, streams, requests } = JSON.parse(process.env['BENCH_LOAD']);
const [host] = target.split(':');
const roots = readFileSync(ca);

const connect = () =>
  new Promise((resolve, reject) => {
    const socket = net.connect({ port, host: '127.0.0.1', noDelay: true });
    socket.once('error', reject).once('connect', () => socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`));
    socket.once('data', (head) => {
      if (!head.toString('latin1').startsWith('HTTP/1.1 200')) {
        reject(new Error(head.toString('latin1')));
        return;
      }
      const secured = tls.connect({ socket, servername: host, ca: roots, ALPNProtocols: ['h2'] }, () => {
        const session = http2.connect(`https://${target}`, { createConnection: () => secured });
        session.once('connect', () => resolve(session)).once('error', reject);
      });
      secured.once('error', reject);
    });
  });

/** Asks on one stream after another while `next()` says there is one more. */
const run = (session, next, latencies) =>
  new Promise((resolve, reject) => {
    const ask = () => {
      if (!next()) {
        resolve();
        return;
      }
      const sentAt = performance.now();
      const stream = session.request({ ':path': '/1k', 'user-agent': 'bench', accept: '*/*' });
      stream.once('response', (fields) => {
        if (fields[':status'] !== 200) reject(new Error(`answered ${fields[':status']}`));
      });
      stream.once('error', reject);
      stream.resume().once('end', () => {
        latencies?.push(performance.now() - sentAt);
        ask();
      });
    };
    ask();
  });

const round = async (sessions, count, latencies) => {
  let left = count;
  const lanes = sessions.flatMap((session) => Array.from({ length: streams }, () => session));
  await Promise.all(lanes.map((session) => run(session, () => left-- > 0, latencies)));
};

const sessions = [];
while (sessions.length < connections) sessions.push(await connect());
process.on('message', async ({ warmup }) => {
  const latencies = warmup ? undefined : [];
  const begun = performance.now();
  await round(sessions, warmup ?? requests, latencies);
  const seconds = (performance.now() - begun) / 1000;
  latencies?.sort((a, b) => a - b);
  const at = (share) => latencies?.[Math.min(latencies.length - 1, Math.floor(latencies.length * share))];
  process.send({ seconds, p50: at(0.5), p99: at(0.99), own: process.cpuUsage() });
});
process.send({ ready: true });
