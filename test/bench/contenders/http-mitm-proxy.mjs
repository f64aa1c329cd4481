// http-mitm-proxy with one header put on in its request callback and kept-alive upstream connections: no policy, no guard, no audit, no metrics.
import { spawn } from 'node:child_process';
import { join } from 'node:path';

export const name = 'http-mitm-proxy';

export async function start({ folder, outsideCa, pin }) {
  const [program, ...before] = [...pin, process.execPath];
  const script = join(import.meta.dirname, 'http-mitm-proxy-process.mjs');
  const child = spawn(program, [...before, script], {
    env: { ...process.env, MITM_FOLDER: join(folder, 'mitm'), MITM_CA: outsideCa },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const { port } = await new Promise((resolve, reject) => {
    child.once('message', resolve);
    child.once('exit', () => reject(new Error('http-mitm-proxy did not start')));
  });
  return { child, port, ca: join(folder, 'mitm/certs/ca.pem') };
}
