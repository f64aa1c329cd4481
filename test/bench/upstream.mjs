// The upstream of a bench: HTTPS on two ports, one for HTTP/1.1 and one for HTTP/2, 1 KiB for every request, and a count of the requests
// that bore the header that the proxy puts on, told to whoever asks.
import http2 from 'node:http2';
import https from 'node:https';
import { readFileSync } from 'node:fs';

const { key, cert } = JSON.parse(process.env['BENCH_TLS']);
const tls = { key: readFileSync(key), cert: readFileSync(cert) };
const body = Buffer.alloc(1024, 'x');
let requests = 0;
let credentialed = 0;
const answer = (request, response) => {
  requests += 1;
  if (request.headers.authorization === 'Bearer bench-token') credentialed += 1;
  response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': body.length });
  response.end(body);
};
const servers = [https.createServer({ ...tls, keepAliveTimeout: 60_000 }, answer), http2.createSecureServer(tls, answer)];
process.on('message', () => process.send({ requests, credentialed }));
for (const server of servers) await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const [port, h2Port] = servers.map((server) => server.address().port);
process.send({ port, h2Port });
