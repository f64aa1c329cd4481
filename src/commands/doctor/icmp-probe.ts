// An ICMP echo. Node has no socket for it, so a tool of the system is asked: ping, else Perl or Python with a socket of its own.
// It must never take a tool that may not send for an echo that was not answered.
import { execFile } from 'node:child_process';
import { together } from './finding.ts';
import type { Try } from './finding.ts';
import type { Probe } from './network-probes.ts';
import type { Surroundings } from './surroundings.ts';

type Echo = 'answered' | 'not answered' | 'cannot';

// Exit 0 answered, 1 not, 3 may not send. The kernel knows a datagram socket by its port; a raw one hears everybody's.
const PERL = `use Socket; my ($host, $wait) = @ARGV; my $raw = 0;
socket(S, PF_INET, SOCK_DGRAM, 1) or ($raw = 1 and socket(S, PF_INET, SOCK_RAW, 1)) or exit 3;
my $packet = pack("C2 n3 a6", 8, 0, 0, 4711, 1, "doctor"); my $sum = 0; $sum += $_ for unpack("n*", $packet);
$sum = ($sum >> 16) + ($sum & 0xffff); $packet = pack("C2 n3 a6", 8, 0, ~$sum & 0xffff, 4711, 1, "doctor");
my $to = inet_aton($host) or exit 1; send(S, $packet, 0, pack_sockaddr_in(0, $to)) or exit 1; my $until = time + $wait;
while ((my $left = $until - time) > 0) { my $in = ""; vec($in, fileno(S), 1) = 1; select($in, undef, undef, $left) or exit 1;
  my $from = recv(S, my $got, 1500, 0) or exit 1; my (undef, $who) = unpack_sockaddr_in($from);
  exit 0 if $who eq $to and ord(substr($got, $raw ? 20 : 0, 1)) == 0; } exit 1;`;

const PYTHON = `import socket, struct, sys, time
host, wait = sys.argv[1], float(sys.argv[2])
try: s, raw = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1), 0
except OSError:
  try: s, raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1), 20
  except OSError: sys.exit(3)
packet = lambda c: struct.pack("!BBHHH6s", 8, 0, c, 4711, 1, b"doctor")
total = sum(struct.unpack("!7H", packet(0))); total = (total >> 16) + (total & 0xffff)
until = time.time() + wait
try:
  s.sendto(packet(~total & 0xffff), (host, 0))
  while True:
    s.settimeout(max(0.01, until - time.time())); got, who = s.recvfrom(1500)
    if who[0] == host and got[raw] == 0: sys.exit(0)
except OSError: sys.exit(1)`;

/** ICMP to public addresses. */
export const icmp: Probe = async (around, signal) =>
  together(await Promise.all(around.targets.ping.map((host) => echo(host, around, signal))));

async function echo(host: string, { env, timeoutMs }: Surroundings, signal: AbortSignal): Promise<Try> {
  // Less than the probe's own time, so that the tool can say what it came to.
  const wait = String(Math.max(1, Math.floor(timeoutMs / 1000) - 1));
  const tools: readonly (readonly [string, readonly string[]])[] = [
    ['ping', ['-n', '-c', '1', '-W', wait, host]],
    ['perl', ['-e', PERL, host, wait]],
    ['python3', ['-c', PYTHON, host, wait]],
  ];
  for (const [tool, words] of tools) {
    const came = await run(tool, words, { env, signal });
    if (came === 'answered') return { result: 'open', place: host, why: `an echo came back (${tool})` };
    if (came === 'not answered') return { result: 'closed', place: host, why: `no echo came back (${tool})` };
  }
  return { result: 'unknown', place: host, why: 'there is no ping, perl or python3 that may send an echo here' };
}

function run(
  tool: string,
  words: readonly string[],
  { env, signal }: { readonly env: NodeJS.ProcessEnv; readonly signal: AbortSignal },
): Promise<Echo> {
  const surroundings = { PATH: env['PATH'], LC_ALL: 'C' };
  return new Promise((resolve) => {
    execFile(tool, [...words], { env: surroundings, signal, killSignal: 'SIGKILL' }, (error, _, stderr) => {
      resolve(error === null ? 'answered' : whatFailed(error, stderr));
    });
  });
}

function whatFailed(error: Error & { readonly code?: unknown }, stderr: string): Echo {
  // killed at the end of the time, before it could say; or not there
  if (error.name === 'AbortError' || typeof error.code === 'string' || error.code === 3 || error.code === 127) return 'cannot';
  // ping that may have no socket says so; a send that a filter forbids is an echo that does not get out
  const mayNot = /socket|lacking privilege|are you root|permission denied/i.test(stderr) && !/sendmsg|sendto/.test(stderr);
  return mayNot ? 'cannot' : 'not answered';
}
