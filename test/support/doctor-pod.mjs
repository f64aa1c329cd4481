// Runs as root in a network and mount namespace of its own, the proxy's; makes two more, the sandbox and the outside, with a cable to each.
// Between them stand walls that let the sandbox reach the proxy's port and nothing else, until a case opens a hole on purpose.
// Reads a case a line on standard input, runs the doctor in the sandbox, and answers with a line of JSON. All of it goes with this process.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';

const [folder, checkout] = process.argv.slice(2);
const SANDBOX = '10.77.1.2';
const PROXY = '10.77.1.1';
const TOKEN = 'a-token-of-this-sandbox-alone';
const at = (name) => join(folder, name);

const hold = (flags, program) =>
  spawn('unshare', [...flags, process.execPath, '-e', program], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, FOLDER: folder },
  });
const outside = hold(
  ['--net'],
  `
  const { execFileSync } = require('node:child_process');
  const { readFileSync } = require('node:fs');
  const net = require('node:net'), dgram = require('node:dgram'), https = require('node:https'), http = require('node:http');
  execFileSync('ip', ['link', 'set', 'lo', 'up']);
  for (const a of ['1.1.1.1/32', '8.8.8.8/32', '169.254.169.254/32', '203.0.113.7/32', '2606:4700:4700::1111/128', '2001:4860:4860::8888/128'])
    execFileSync('ip', ['address', 'add', a, 'dev', 'lo', ...(a.includes(':') ? ['nodad'] : [])]);
  const answer = (q) => Buffer.concat([q.subarray(0, 2), Buffer.from([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]), q.subarray(12),
    Buffer.from([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 8, 8, 4, 4])]);
  for (const host of ['1.1.1.1', '8.8.8.8']) {
    const dns = dgram.createSocket('udp4'); dns.on('message', (q, f) => dns.send(answer(q), f.port, f.address)).bind(53, host);
    net.createServer((s) => s.on('error', () => 0).once('data', (q) => { const a = answer(q.subarray(2)); s.end(Buffer.concat([Buffer.from([0, a.length]), a])); })).listen(53, host);
    const quic = dgram.createSocket('udp4'); quic.on('message', (q, f) => quic.send(Buffer.from([0x80, 0, 0, 0, 0]), f.port, f.address)).bind(443, host);
  }
  const tls = { key: readFileSync(process.env.FOLDER + '/out.key'), cert: readFileSync(process.env.FOLDER + '/out.pem') };
  https.createServer(tls, (_, r) => r.end('out')).listen(443, '0.0.0.0');
  https.createServer(tls, (_, r) => r.end('out')).listen(853, '0.0.0.0');
  https.createServer(tls, (_, r) => r.end('out')).listen({ port: 443, host: '::', ipv6Only: true });
  http.createServer((_, r) => r.end('iam')).listen(80, '169.254.169.254', () => process.stdout.write('up'));
  process.stdin.resume().on('end', () => process.exit());`,
);
const sandbox = hold(['--net', '--mount'], `process.stdout.write('up'); process.stdin.resume().on('end', () => process.exit());`);

const run = (words) => execFileSync(words[0], words.slice(1), { stdio: ['ignore', 'ignore', 'inherit'] });
const within = (child, more = []) => ['nsenter', '-t', String(child.pid), '-n', ...more];
const ip = (text, child) => run([...(child === undefined ? [] : within(child)), 'ip', ...text.split(' ')]);
const set = (path, value, child) =>
  run([...(child === undefined ? [] : within(child)), 'sh', '-c', `echo '${value}' > /proc/sys/net/${path}`]);

execFileSync(
  'openssl',
  [
    'req',
    '-x509',
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-keyout',
    at('out.key'),
    '-out',
    at('out.pem'),
    '-days',
    '2',
    '-subj',
    '/CN=out.test',
    '-addext',
    'subjectAltName=DNS:out.test',
  ],
  { stdio: 'ignore' },
);
await Promise.all([once(sandbox.stdout, 'data')]);
ip('link set lo up');
ip('link set lo up', sandbox);
ip(`link add toward-box type veth peer name box netns ${sandbox.pid}`);
ip(`link add toward-out type veth peer name out netns ${outside.pid}`);
for (const [cable, address, child] of [
  ['toward-box', `${PROXY}/24`],
  ['toward-out', '10.77.2.1/24'],
  ['box', `${SANDBOX}/24`, sandbox],
  ['out', '10.77.2.2/24', outside],
  ['toward-box', 'fd77:1::1/64'],
  ['toward-out', 'fd77:2::1/64'],
  ['box', 'fd77:1::2/64', sandbox],
  ['out', 'fd77:2::2/64', outside],
]) {
  ip(`address add ${address} dev ${cable}${address.includes('::') ? ' nodad' : ''}`, child);
  ip(`link set ${cable} up`, child);
}
for (const [way, child] of [
  [`via ${PROXY}`, sandbox],
  ['via 10.77.2.2', undefined],
  ['via 10.77.2.1', outside],
])
  ip(`route add default ${way}`, child);
for (const [way, child] of [
  ['via fd77:1::1', sandbox],
  ['via fd77:2::2', undefined],
  ['via fd77:2::1', outside],
])
  ip(`-6 route add default ${way}`, child);
set('ipv4/ip_forward', 1);
set('ipv6/conf/all/forwarding', 1);
set('ipv4/ping_group_range', '0 2147483647', sandbox);
await once(outside.stdout, 'data');

// Each world has its own /etc/hosts and /etc/resolv.conf; the sandbox has program and runtime where any user may read them.
writeFileSync(at('hosts'), '127.0.0.1 localhost\n203.0.113.7 out.test\n');
writeFileSync(at('resolv.conf'), `nameserver ${PROXY}\n`);
const mounted = (more, words) => run([...more, ...words]);
mounted([], ['mount', '--bind', at('hosts'), realpathSync('/etc/hosts')]);
const inside = within(sandbox, ['-m']);
mounted(inside, ['mount', '--bind', at('resolv.conf'), realpathSync('/etc/resolv.conf')]);
mkdirSync(at('box/checkout'), { recursive: true });
mkdirSync(at('box/runtime'), { recursive: true });
mounted(inside, ['mount', '--bind', checkout, at('box/checkout')]);
mounted(inside, ['mount', '--bind', dirname(realpathSync(process.execPath)), at('box/runtime')]);
mkdirSync(at('box/ca'), { recursive: true });
mkdirSync(at('box/tmp'), { recursive: true });
chmodSync(at('box/tmp'), 0o777);
chmodSync(folder, 0o755);

const config = (more) => ({
  listen: { proxy: '0.0.0.0:8080' },
  admin: { listen: '0.0.0.0:9090', token: { file: at('state/admin-token') } },
  ca: { certificate: at('public/ca.pem'), key: at('state/ca.key') },
  audit: { path: at('audit') },
  store: { uri: `file:${at('state/store.json')}`, key: { file: at('state/store-key') } },
  upstream: { ca: [at('out.pem')] },
  network: { allowlist: [{ domain: 'out.test', addresses: ['203.0.113.7/32'] }] },
  sandboxes: { box: { token: { file: at('token') }, ...more } },
});
mkdirSync(at('state'), { mode: 0o700 });
writeFileSync(at('token'), TOKEN);
const configure = (more) => writeFileSync(at('sallyport.json'), JSON.stringify(config(more)));
configure({});
const proxy = spawn(process.execPath, [join(checkout, 'dist', 'sallyport.cjs'), 'start', '--config', at('sallyport.json')], {
  cwd: folder,
  stdio: ['ignore', 'ignore', 'pipe'],
});
let log = '';
const listening = new Promise((resolve) => {
  proxy.stderr.on('data', (chunk) => {
    log += chunk;
    if (log.includes('listening')) resolve();
  });
});
proxy.once('exit', () => {
  process.stdout.write(`${JSON.stringify({ failed: log })}\n`);
  process.exitCode = 1;
  process.stdin.destroy();
});
await listening;
const ca = readFileSync(at('public/ca.pem'));
writeFileSync(at('box/ca/ca.pem'), ca);
writeFileSync(at('box/ca/wgetrc'), `ca_certificate = ${at('box/ca/ca.pem')}\n`);

const reconfigure = async (more) => {
  configure(more);
  const token = readFileSync(at('state/admin-token'), 'utf8').trim();
  const answer = await fetch('http://127.0.0.1:9090/v1/reload', {
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
  });
  if (!answer.ok) throw new Error(`reload: ${answer.status} ${await answer.text()}`);
};

const walls = ({ forward = '', enter = '', lead = '', silent = false }) => `
  flush ruleset
  table inet walls {
    chain lead { type nat hook prerouting priority dstnat; policy accept;
      ${lead}
    }
    chain onward { type filter hook forward priority 0; policy drop;
      ct state established,related accept
      ${forward}
      ${silent ? '' : 'reject with icmpx admin-prohibited'}
    }
    chain enter { type filter hook input priority 0; policy drop;
      ct state established,related accept
      iifname != "toward-box" accept
      icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } accept
      tcp dport 8080 accept
      ${enter}
      ${silent ? '' : 'reject with icmpx admin-prohibited'}
    }
  }`;

const listen = async (server, port) => {
  server.listen(port, '0.0.0.0');
  await once(server, 'listening');
  return server;
};

const HOLE = { forward: 'ip daddr { 1.1.1.1, 8.8.8.8 } tcp dport 443 accept; udp dport 443 accept; udp dport 53 accept' };

/** What each case opens, and what it takes. */
const cases = {
  'walls that refuse': {},
  'walls that are silent': { rules: { silent: true } },
  'walls that lead everything to a door': {
    rules: {
      lead: 'iifname "toward-box" tcp dport { 443, 853 } redirect to :8443; iifname "toward-box" tcp dport 80 redirect to :8081; iifname "toward-box" meta l4proto { tcp, udp } th dport 53 redirect to :5353',
      enter: 'tcp dport { 8443, 8081, 5353 } accept; udp dport 5353 accept',
    },
    door: true,
  },
  'tcp-public': { rules: { forward: 'ip daddr { 1.1.1.1, 8.8.8.8 } tcp dport 443 accept' } },
  'tcp-private': { rules: { enter: 'tcp dport 5432 accept' }, listener: 5432 },
  ipv6: { rules: { forward: 'meta nfproto ipv6 tcp dport 443 accept' } },
  quic: { rules: { forward: 'udp dport 443 accept' } },
  icmp: { rules: { forward: 'icmp type echo-request accept' } },
  'dns-udp': { rules: { forward: 'udp dport 53 accept' } },
  'dns-tcp': { rules: { forward: 'meta nfproto ipv4 tcp dport 53 accept' } },
  'dns-name': {
    rules: { lead: 'iifname "toward-box" ip daddr 10.77.1.1 udp dport 53 dnat ip to 8.8.8.8', forward: 'ct status dnat accept' },
  },
  metadata: { rules: { forward: 'ip daddr 169.254.169.254 tcp dport 80 accept' } },
  admin: { rules: { enter: 'tcp dport 9090 accept' } },
  token: { sandbox: { sources: ['10.77.1.0/24'] } },
  'ca-key': { file: ['box/ca.key', '-----BEGIN PRIVATE KEY-----\n'] },
  'state-files': { file: ['box/ca/admin-token', 'token'] },
  capabilities: { capability: true },
  'docker-socket': { socket: true },
  'cloud-credentials': { env: { AWS_SECRET_ACCESS_KEY: 'of somebody' } },
  'no-proxy': { env: { NO_PROXY: 'localhost,*.internal' } },
  'an untrusted door': { env: { NODE_EXTRA_CA_CERTS: '', CURL_CA_BUNDLE: at('out.pem') } },
  'a hole, and Perl to find it': { rules: HOLE, tools: ['perl', 'curl'] },
  'a hole, and Python to find it': { rules: HOLE, tools: ['python3', 'curl'] },
  'a hole, and curl alone': { rules: HOLE, tools: ['curl'] },
  'a hole, and wget alone': { rules: HOLE, tools: ['wget'] },
  'a hole, and no tool': { rules: HOLE, tools: [] },
};

const fakeDoor = async () => {
  const { createSocket } = await import('node:dgram');
  const refusal =
    'HTTP/1.1 403 Forbidden\r\nX-Sallyport-Reason: not_allowlisted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n';
  const noSuchName = (q) => Buffer.concat([q.subarray(0, 2), Buffer.from([0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0]), q.subarray(12)]);
  const quiet = (socket) => socket.on('error', () => undefined);
  const servers = [
    await listen(
      createServer((socket) => quiet(socket).once('data', () => socket.end())),
      8443,
    ),
    await listen(
      createServer((socket) => quiet(socket).once('data', () => socket.end(refusal))),
      8081,
    ),
    await listen(
      createServer((socket) =>
        quiet(socket).once('data', (q) => {
          const a = noSuchName(q.subarray(2));
          socket.end(Buffer.concat([Buffer.from([0, a.length]), a]));
        }),
      ),
      5353,
    ),
  ];
  const dns = createSocket('udp4');
  dns.on('message', (q, from) => dns.send(noSuchName(q), from.port, from.address));
  await new Promise((resolve) => dns.bind(5353, resolve));
  return [...servers, dns];
};

// What the script needs of a system, and nothing that speaks to a network.
const BASIC = [
  'sh',
  'cat',
  'sed',
  'tr',
  'grep',
  'head',
  'tail',
  'od',
  'sort',
  'cut',
  'date',
  'mkdir',
  'rm',
  'dirname',
  'sleep',
  'timeout',
  'env',
  'dd',
  'base64',
];
const pathWith = (tools) => {
  const bin = at(`box/bin-${tools.join('-')}`);
  mkdirSync(bin, { recursive: true });
  for (const tool of [...BASIC, ...tools]) {
    rmSync(join(bin, tool), { force: true });
    symlinkSync(join('/usr/bin', tool), join(bin, tool));
  }
  return bin;
};

const doctor = async (kind, { env = {}, capability = false, tools }) => {
  const rights = capability
    ? ['--inh-caps=-all,+net_admin', '--ambient-caps=-all,+net_admin', '--bounding-set=-all,+net_admin']
    : ['--inh-caps=-all', '--bounding-set=-all'];
  const program =
    kind === 'sh'
      ? ['sh', at('box/checkout/config/doctor.sh')]
      : [join(at('box/runtime'), 'node'), at('box/checkout/dist/sallyport.cjs'), 'doctor'];
  const surroundings = {
    PATH: tools === undefined ? '/usr/bin:/bin' : pathWith(tools),
    TMPDIR: at('box/tmp'),
    HTTPS_PROXY: `http://box:${TOKEN}@${PROXY}:8080`,
    NODE_EXTRA_CA_CERTS: at('box/ca/ca.pem'),
    CURL_CA_BUNDLE: at('box/ca/ca.pem'),
    SYSTEM_WGETRC: at('box/ca/wgetrc'),
    ...env,
  };
  const variables = Object.entries(surroundings).map(([name, value]) => `${name}=${value}`);
  const agent = ['setpriv', '--reuid=1000', '--regid=1000', '--clear-groups', '--no-new-privs', ...rights];
  const words = [
    ...agent,
    'env',
    '-i',
    '-C',
    at('box/tmp'),
    ...variables,
    ...program,
    '--timeout',
    '2',
    '--allowed',
    'https://out.test/',
  ];
  const child = spawn(inside[0], [...inside.slice(1), ...words], { cwd: '/', stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '';
  let err = '';
  child.stdout.on('data', (chunk) => (out += chunk));
  child.stderr.on('data', (chunk) => (err += chunk));
  const startedAt = performance.now();
  const [code] = await once(child, 'close');
  return { code, out, err, seconds: (performance.now() - startedAt) / 1000 };
};

process.stdout.write(`${JSON.stringify({ up: Object.keys(cases) })}\n`);
for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const one = cases[asked.name];
  const closing = [];
  try {
    if (one.sandbox !== undefined) await reconfigure(one.sandbox);
    if (one.listener !== undefined)
      closing.push(
        await listen(
          createServer((socket) => socket.on('error', () => undefined)),
          one.listener,
        ),
      );
    if (one.door === true) closing.push(...(await fakeDoor()));
    if (one.file !== undefined) writeFileSync(at(one.file[0]), one.file[1], { mode: 0o644 });
    const env = { ...one.env };
    if (one.socket === true) {
      const server = createServer((socket) => socket.end());
      server.listen(at('box/tmp/engine.sock'));
      await once(server, 'listening');
      chmodSync(at('box/tmp/engine.sock'), 0o777);
      closing.push(server);
      env.DOCKER_HOST = `unix://${at('box/tmp/engine.sock')}`;
    }
    execFileSync('nft', ['-f', '-'], { input: walls(one.rules ?? {}) });
    const kinds = one.tools === undefined ? ['js', 'sh'] : ['sh'];
    const results = await Promise.all(kinds.map(async (kind) => [kind, await doctor(kind, { ...one, env })]));
    process.stdout.write(`${JSON.stringify(Object.fromEntries(results))}\n`);
  } catch (error) {
    process.stdout.write(`${JSON.stringify({ failed: String(error) })}\n`);
  }
  if (one.file !== undefined) rmSync(at(one.file[0]), { force: true });
  for (const server of closing) server.close();
  if (one.sandbox !== undefined) await reconfigure({});
}
proxy.removeAllListeners('exit');
proxy.kill('SIGKILL');
outside.stdin.end();
sandbox.stdin.end();
