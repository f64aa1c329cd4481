// The load: connections through the proxy, each a CONNECT and a TLS handshake and then one request after another.
// Raw bytes in and out, so that the load itself costs as little as it can. Runs until told the number of requests is done.
import net from 'node:net';
import tls from 'node:tls';
import { readFileSync } from 'node:fs';

const { port, target, ca, connections, requests, direct } = JSON.parse(process.env['BENCH_LOAD']);
const [host] = target.split(':');
const request = Buffer.from(`GET /1k HTTP/1.1\r\nHost: ${target}\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n`);
const roots = readFileSync(ca);

const connect = () =>
  new Promise((resolve, reject) => {
    const socket = net.connect({ port: direct ?? port, host: '127.0.0.1', noDelay: true });
    socket.once('error', reject);
    const secure = () => {
      const secured = tls.connect({ socket, servername: host, ca: roots, ALPNProtocols: ['http/1.1'] }, () => resolve(secured));
      secured.once('error', reject);
    };
    if (direct !== undefined) {
      socket.once('connect', secure);
      return;
    }
    socket.once('connect', () => socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`));
    let head = '';
    socket.on('data', function onHead(chunk) {
      head += chunk.toString('latin1');
      if (!head.endsWith('\r\n\r\n')) return;
      socket.off('data', onHead);
      if (head.startsWith('HTTP/1.1 200')) secure();
      else reject(new Error(head));
    });
  });

/** Sends requests one after another on one connection while `next()` says there is one more; resolves when there is none. */
const run = (socket, next, latencies) =>
  new Promise((resolve, reject) => {
    let pending = 0;
    let head = '';
    let sentAt = 0;
    const send = () => {
      if (!next()) {
        socket.removeAllListeners('data');
        resolve();
        return;
      }
      sentAt = performance.now();
      socket.write(request);
    };
    socket.on('data', (chunk) => {
      let at = 0;
      if (pending === 0) {
        head += chunk.toString('latin1');
        const end = head.indexOf('\r\n\r\n');
        if (end < 0) return;
        if (!head.startsWith('HTTP/1.1 200')) reject(new Error(head.slice(0, 300)));
        const length = /content-length: (\d+)/i.exec(head);
        pending = length === null ? -1 : Number(length[1]);
        if (pending < 0) {
          // chunked: the last chunk ends the answer
          if (!head.endsWith('0\r\n\r\n')) {
            pending = 0;
            return;
          }
          at = chunk.length;
          pending = 0;
        } else {
          at = chunk.length - (head.length - end - 4);
        }
        head = '';
      }
      pending -= chunk.length - at;
      if (pending <= 0) {
        pending = 0;
        latencies?.push(performance.now() - sentAt);
        send();
      }
    });
    send();
  });

const round = async (sockets, count, latencies) => {
  let left = count;
  await Promise.all(sockets.map((socket) => run(socket, () => left-- > 0, latencies)));
};

// One after another: some proxies mint a certificate for each connection that comes before the first is ready.
const sockets = [];
while (sockets.length < connections) sockets.push(await connect());
const lost = () => {
  throw new Error(
    'the proxy closed a connection: it may have been idle for too long on a machine that is busy with something else',
  );
};
for (const socket of sockets) socket.once('error', lost).once('close', lost);
process.on('message', async ({ warmup }) => {
  const latencies = warmup ? undefined : [];
  const begun = performance.now();
  await round(sockets, warmup ?? requests, latencies);
  const seconds = (performance.now() - begun) / 1000;
  latencies?.sort((a, b) => a - b);
  const at = (share) => latencies?.[Math.min(latencies.length - 1, Math.floor(latencies.length * share))];
  process.send({ seconds, p50: at(0.5), p99: at(0.99), own: process.cpuUsage() });
});
process.send({ ready: true });
