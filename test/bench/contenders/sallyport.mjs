// Sallyport as it is shipped: the built start command with audit and metrics on.
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

export const name = 'sallyport';

export async function start({ folder, upstreamPort, h2Port = upstreamPort, outsideCa, pin, rules }) {
  const config = {
    listen: { proxy: '127.0.0.1:0' },
    admin: { listen: '127.0.0.1:0', token: { file: join(folder, 'admin-token') } },
    ca: { certificate: join(folder, 'public/ca.pem'), key: join(folder, 'ca.key') },
    audit: { path: join(folder, 'audit.ndjson') },
    upstream: { ca: [outsideCa] },
    credentials: { bench: { type: 'bearer_token', token: { env: 'BENCH_TOKEN' } } },
    network: {
      allowlist: rules ?? [
        { domain: 'localhost', credential: 'bench', ports: [upstreamPort, h2Port], addresses: ['127.0.0.0/8', '::1'] },
      ],
    },
  };
  const file = join(folder, 'sallyport.json');
  writeFileSync(file, JSON.stringify(config));
  const command = join(import.meta.dirname, '../../../dist/sallyport.cjs');
  const [program, ...before] = [...pin, process.execPath];
  const child = spawn(program, [...before, command, 'start', '--config', file], {
    env: { ...process.env, BENCH_TOKEN: 'bench-token' },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  const port = await new Promise((resolve, reject) => {
    child.stderr.on('data', (chunk) => {
      said += chunk;
      const found = /127\.0\.0\.1:(\d+)/.exec(said);
      if (found !== null) resolve(Number(found[1]));
    });
    child.once('exit', () => reject(new Error(`sallyport did not start: ${said}`)));
  });
  return { child, port, ca: join(folder, 'public/ca.pem') };
}
