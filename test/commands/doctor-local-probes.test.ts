// Twin of local-probes.ts: what lies in a sandbox and should not, in a tree of files made for it.
import { chmodSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ProbeId } from '../../src/commands/doctor/probe-table.ts';
import { listeningAt, probe, treeOf } from './doctor-rig.ts';
import type { Scene } from './doctor-rig.ts';

const KEY = '-----BEGIN PRIVATE KEY-----\nnever shown\n';
const CERTIFICATE = '-----BEGIN CERTIFICATE-----\n';

interface Row extends Scene {
  readonly id: ProbeId;
  readonly name: string;
  readonly result: 'open' | 'closed' | 'unknown';
  readonly why?: RegExp;
}

const status = (mask: string): Record<string, string> => ({ 'proc/self/status': `Name:\tdoctor\nCapEff:\t${mask}\n` });

const rows: readonly Row[] = [
  {
    id: 'ca-key',
    name: 'a key at a usual mount',
    files: { 'etc/sallyport/ca.key': KEY },
    result: 'open',
    why: /\/etc\/sallyport\/ca\.key/,
  },
  { id: 'ca-key', name: 'a key in the working folder', files: { 'work/certs/ca.key': KEY }, result: 'open' },
  { id: 'ca-key', name: 'a key of another name', files: { 'var/lib/sallyport/of-the-ca': KEY }, result: 'open' },
  { id: 'ca-key', name: 'certificates alone', files: { 'etc/sallyport/ca.pem': CERTIFICATE }, result: 'closed' },
  { id: 'ca-key', name: 'a key that is none of the proxy', files: { 'etc/ssl/private/other.key': KEY }, result: 'closed' },
  { id: 'state-files', name: 'the admin token', files: { 'run/sallyport/admin-token': 'x' }, result: 'open', why: /admin-token/ },
  { id: 'state-files', name: 'the store key in a folder of state', files: { 'work/state/store-key': 'x' }, result: 'open' },
  { id: 'state-files', name: 'an empty file', files: { 'run/sallyport/admin-token': '' }, result: 'closed' },
  { id: 'capabilities', name: 'none', files: status('0000000000000000'), result: 'closed' },
  { id: 'capabilities', name: 'NET_ADMIN', files: status('0000000000001000'), result: 'open', why: /NET_ADMIN$/ },
  {
    id: 'capabilities',
    name: 'SYS_ADMIN, beyond 2^31 others',
    files: status('000001ff00200000'),
    result: 'open',
    why: /SYS_ADMIN$/,
  },
  { id: 'capabilities', name: 'those just beside', files: status('0000000000002800'), result: 'closed' },
  { id: 'capabilities', name: 'nothing to read', result: 'unknown' },
  {
    id: 'firewall',
    name: 'no tool and no right',
    env: { PATH: '/nowhere' },
    files: status('0000000000000000'),
    result: 'closed',
  },
  {
    id: 'cloud-credentials',
    name: 'a secret in a variable',
    env: { AWS_SECRET_ACCESS_KEY: 'never shown' },
    result: 'open',
    why: /AWS_SECRET/,
  },
  { id: 'cloud-credentials', name: 'a placeholder in its place', env: { GITHUB_TOKEN: '__GEMINI_CRED_gh__' }, result: 'closed' },
  {
    id: 'cloud-credentials',
    name: 'the token of a service account',
    files: { 'var/run/secrets/kubernetes.io/serviceaccount/token': 'never shown' },
    result: 'open',
  },
  { id: 'cloud-credentials', name: 'a named file that is not there', env: { KUBECONFIG: '/not/there' }, result: 'closed' },
  { id: 'no-proxy', name: 'neither variable', result: 'closed', why: /neither is set/ },
  { id: 'no-proxy', name: 'loopback', env: { NO_PROXY: 'localhost,127.0.0.1, ::1,[::1]:80,127.0.0.0/8' }, result: 'closed' },
  {
    id: 'no-proxy',
    name: 'one exact host, which is said',
    env: { no_proxy: 'db.test' },
    result: 'closed',
    why: /see that it has to be/,
  },
  { id: 'no-proxy', name: 'everything', env: { no_proxy: '*' }, result: 'open', why: /no_proxy: "\*"/ },
  { id: 'no-proxy', name: 'a wildcard', env: { NO_PROXY: 'localhost *.test' }, result: 'open' },
  { id: 'no-proxy', name: 'a suffix', env: { NO_PROXY: '.svc.cluster.local' }, result: 'open' },
  { id: 'no-proxy', name: 'a range', env: { NO_PROXY: '10.0.0.0/8' }, result: 'open' },
];

describe('in the sandbox', () => {
  it.each(rows)('$id: $name is $result', async ({ id, result, why = /./, ...scene }) => {
    // The machine that tests run on may let its rules be read.
    const probed = await probe(id, scene);
    if (id === 'firewall' && probed.why.includes('can be read')) return;
    expect(probed).toMatchObject({ result });
    expect(probed.why).toMatch(why);
    expect(JSON.stringify(probed)).not.toContain('never shown');
  });

  it('finds a key beside and above the certificate that a variable names', async () => {
    const root = treeOf({ 'mount/public/ca.pem': CERTIFICATE, 'mount/ca.key': KEY });
    const env = { NODE_EXTRA_CA_CERTS: join(root, 'mount/public/ca.pem') };
    expect(await probe('ca-key', { env })).toMatchObject({
      result: 'open',
      why: expect.stringContaining('mount/ca.key') as unknown,
    });
  });

  it('finds credentials in the home folder', async () => {
    const home = treeOf({ '.aws/credentials': 'never shown' });
    expect(await probe('cloud-credentials', { env: { HOME: home } })).toMatchObject({ result: 'open' });
    expect(await probe('cloud-credentials', { env: { HOME: treeOf({}) } })).toMatchObject({ result: 'closed' });
  });

  it.each([
    { name: 'open where the rules can be read', script: 'exit 0', result: 'open' },
    { name: 'closed where they cannot', script: 'echo "Operation not permitted" >&2; exit 1', result: 'closed' },
  ])('firewall is $name', async ({ script, result }) => {
    const bin = treeOf({ nft: `#!/bin/sh\n${script}\n`, iptables: '#!/bin/sh\nexit 3\n', sudo: '#!/bin/sh\nexit 1\n' });
    for (const tool of ['nft', 'iptables', 'sudo']) chmodSync(join(bin, tool), 0o755);
    expect(await probe('firewall', { env: { PATH: bin }, files: status('0000000000000000') })).toMatchObject({ result });
    expect(await probe('firewall', { env: { PATH: bin }, files: status('0000000000001000') })).toMatchObject({ result: 'open' });
  });

  it('finds the socket of an engine that takes connections, and none that is a mere file', async () => {
    const folder = treeOf({ file: '' });
    const server = createServer((socket) => socket.end());
    onTestFinished(() => void server.close());
    await listeningAt(server, join(folder, 'engine.sock'));
    const at = (name: string) => probe('docker-socket', { env: { DOCKER_HOST: `unix://${join(folder, name)}` } });
    expect(await at('engine.sock')).toMatchObject({
      result: 'open',
      why: expect.stringContaining('takes connections') as unknown,
    });
    expect(await at('file')).toMatchObject({ result: 'closed' });
    expect(await at('nothing')).toMatchObject({ result: 'closed' });
  });
});
