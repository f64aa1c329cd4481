// The upstream of a bench: HTTPS, 1 KiB for every request, and a count of the requests that bore the header that the proxy puts on,
// told to whoever asks.
import https from 'node:https';
import { readFileSync } from 'node:fs';

const { key, cert } = JSON.parse(process.env['BENCH_TLS']);
const body = Buffer.alloc(1024, 'x');
let requests = 0;
let credentialed = 0;
const server = https.createServer(
  { key: readFileSync(key), cert: readFileSync(cert), keepAliveTimeout: 60_000 },
  (request, response) => {
    requests += 1;
    if (request.headers.authorization === 'Bearer bench-token') credentialed += 1;
    response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': body.length }).end(body);
  },
);
process.on('message', () => process.send({ requests, credentialed }));
server.listen(0, '127.0.0.1', () => process.send({ port: server.address().port }));
