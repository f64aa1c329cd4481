// Runs as root in a network namespace of its own, the pod: cables it to a second one, the outside, puts the rules up, opens the doors, and
// prints as JSON what a client of each uid meets. Programs of the agent have uid 1000, those of the proxy 64100.
import { execFileSync, spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer } from 'node:net';

const POD = '10.77.0.2';
const GATEWAY = '10.77.0.1';
const ELSEWHERE = '203.0.113.9';
const WAIT_MS = 1_500;

const listener = (text) => createServer((socket) => socket.on('error', () => undefined).end(text));
const outsideProgram = `
  const udp = require('node:dgram').createSocket('udp4');
  udp.on('message', (text, from) => udp.send('sent', from.port, from.address)).bind(443);
  const server = () => require('node:net').createServer((socket) => socket.end('sent'));
  server().listen(22, '0.0.0.0');
  server().listen(443, '0.0.0.0', () => process.stdout.write('up'));
  process.stdin.resume().on('end', () => process.exit());`;

// One client: prints what it was sent first, or how it was turned away.
const clientProgram = `
  const [kind, host, port] = process.argv.slice(1);
  const say = (word) => { process.stdout.write(word); process.exit(); };
  setTimeout(() => say('silence'), ${WAIT_MS});
  if (kind === 'udp') {
    const socket = require('node:dgram').createSocket('udp4').on('error', () => say('refused')).on('message', (text) => say(String(text)));
    socket.connect(Number(port), host, () => socket.send('?', (error) => error && say('refused')));
  } else {
    require('node:net').connect(Number(port), host).on('error', () => say('refused')).on('data', (text) => say(String(text)));
  }`;

const outside = spawn('unshare', ['--net', process.execPath, '-e', outsideProgram], { stdio: ['pipe', 'pipe', 'inherit'] });
await once(outside.stdout, 'data');

const ip = (...words) => execFileSync('ip', words);
const outsideIp = (...words) => execFileSync('nsenter', ['-t', String(outside.pid), '-n', 'ip', ...words]);
ip('link', 'set', 'lo', 'up');
ip('link', 'add', 'pod', 'type', 'veth', 'peer', 'name', 'out');
ip('link', 'set', 'out', 'netns', String(outside.pid));
ip('address', 'add', `${POD}/24`, 'dev', 'pod');
ip('link', 'set', 'pod', 'up');
outsideIp('link', 'set', 'lo', 'up');
outsideIp('address', 'add', `${GATEWAY}/24`, 'dev', 'out');
outsideIp('address', 'add', `${ELSEWHERE}/32`, 'dev', 'lo');
outsideIp('link', 'set', 'out', 'up');
ip('route', 'add', 'default', 'via', GATEWAY);

execFileSync('nft', ['-f', process.argv[2]]);
// as a container that is started again does
execFileSync('nft', ['-f', process.argv[2]]);

const doors = [
  [8443, '127.0.0.1', 'tls'],
  [8081, '127.0.0.1', 'http'],
  [5353, '127.0.0.1', 'dns'],
  [8080, '127.0.0.1', 'proxy'],
  [9090, '0.0.0.0', 'admin'],
  [443, '127.0.0.1', 'own'],
  [3000, '0.0.0.0', 'agent'],
].map(([port, host, text]) => listener(text).listen(port, host));
await Promise.all(doors.map((door) => once(door, 'listening')));
const dns = createSocket('udp4');
dns.on('message', (_text, from) => dns.send('dns', from.port, from.address));
await new Promise((resolve) => dns.bind(5353, '127.0.0.1', resolve));

const client = async (words, target) => {
  const child = spawn(words[0], [...words.slice(1), process.execPath, '-e', clientProgram, '--', ...target.map(String)], {
    cwd: '/',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  child.stdout.on('data', (chunk) => (text += chunk));
  await once(child, 'close');
  return text;
};
const as = (uid) => ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', '--no-new-privs', '--bounding-set=-all'];
const from = { agent: as(1000), proxy: as(64100), outside: ['nsenter', '-t', String(outside.pid), '-n'] };

const trials = {
  'agent tls': [from.agent, ['tcp', ELSEWHERE, 443]],
  'agent http': [from.agent, ['tcp', ELSEWHERE, 80]],
  'agent dns udp': [from.agent, ['udp', ELSEWHERE, 53]],
  'agent dns tcp': [from.agent, ['tcp', ELSEWHERE, 53]],
  'agent own service': [from.agent, ['tcp', '127.0.0.1', 443]],
  'agent proxy': [from.agent, ['tcp', '127.0.0.1', 8080]],
  'agent admin by loopback': [from.agent, ['tcp', '127.0.0.1', 9090]],
  'agent admin by address': [from.agent, ['tcp', POD, 9090]],
  'agent ssh': [from.agent, ['tcp', ELSEWHERE, 22]],
  'agent quic': [from.agent, ['udp', ELSEWHERE, 443]],
  'proxy tls': [from.proxy, ['tcp', ELSEWHERE, 443]],
  probe: [from.outside, ['tcp', POD, 9090]],
  'call to the agent': [from.outside, ['tcp', POD, 3000]],
};
const results = await Promise.all(
  Object.entries(trials).map(async ([name, [words, target]]) => [name, await client(words, target)]),
);
process.stdout.write(JSON.stringify(Object.fromEntries(results)));
outside.stdin.end();
for (const door of doors) door.close();
dns.close();
