// The process that http-mitm-proxy is measured in.
import { readFileSync } from 'node:fs';
import https from 'node:https';
import { createRequire } from 'node:module';

const { Proxy } = createRequire(import.meta.url)('http-mitm-proxy');
const proxy = new Proxy();
proxy.onError((_context, error) => process.stderr.write(`${error}\n`));
proxy.onRequest((context, callback) => {
  context.proxyToServerRequestOptions.headers['authorization'] = 'Bearer bench-token';
  callback();
});
const httpsAgent = new https.Agent({ keepAlive: true, ca: readFileSync(process.env['MITM_CA']) });
proxy.listen({ host: '127.0.0.1', port: 0, keepAlive: true, sslCaDir: process.env['MITM_FOLDER'], httpsAgent }, (error) => {
  if (error) throw error;
  process.send({ port: proxy.httpPort });
});
