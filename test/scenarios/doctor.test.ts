// The doctor in a sandbox behind walls of nftables, with a whole Sallyport as the door: finds no way out, and finds each hole that is
// opened on purpose, and that one only; the command and its twin in POSIX sh alike.
import { existsSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildCli } from '../support/cli.ts';
import { DOCTOR_TOOLS, openDoctorWalls } from '../support/doctor-walls.ts';
import type { DoctorWalls } from '../support/doctor-walls.ts';

/** The exit statuses: nothing open, door broken, open, could not be told */
const [CLOSED, BROKEN, OPEN, UNKNOWN] = [0, 1, 5, 6];
const PATIENCE_MS = 60_000;
/** Two seconds of each step, and the start of tools on a busy machine */
const LONGEST_SECONDS = 30;

describe.skipIf(DOCTOR_TOOLS !== undefined)(
  `the doctor in network namespaces${DOCTOR_TOOLS === undefined ? '' : ` (${DOCTOR_TOOLS})`}`,
  () => {
    let walls: DoctorWalls;
    beforeAll(async () => {
      await buildCli();
      walls = await openDoctorWalls();
    }, PATIENCE_MS);
    afterAll(() => walls.close());

    it.each(['walls that refuse', 'walls that are silent', 'walls that lead everything to a door'])(
      'finds no way out behind %s, and the door works',
      async (name) => {
        for (const visit of Object.values(await walls.visit(name))) {
          expect(visit).toMatchObject({ code: CLOSED, verdict: 'closed', open: [], unknown: [], door: 'works', err: '' });
          expect(visit.seconds).toBeLessThan(LONGEST_SECONDS);
        }
      },
      PATIENCE_MS,
    );

    it.each([
      { hole: 'tcp-public', name: 'TCP 443 that is forwarded to the outside' },
      { hole: 'tcp-private', name: "a database on the proxy's host" },
      { hole: 'ipv6', name: 'TCP over IPv6 that is forwarded' },
      { hole: 'quic', name: 'UDP 443 that is forwarded' },
      { hole: 'icmp', name: 'echoes that are forwarded' },
      { hole: 'dns-udp', name: 'another DNS server over UDP' },
      { hole: 'dns-tcp', name: 'another DNS server over TCP' },
      { hole: 'dns-name', name: 'a resolver that asks outside for every name' },
      { hole: 'metadata', name: 'the metadata service' },
      { hole: 'admin', name: 'the admin listener' },
      { hole: 'token', name: 'a door that takes whoever comes from the address' },
      { hole: 'ca-key', name: "the CA's key beside the mounted folder" },
      { hole: 'state-files', name: 'the admin token in the mounted folder' },
      { hole: 'docker-socket', name: 'the socket of a container engine' },
      { hole: 'cloud-credentials', name: 'a credential in a variable' },
      { hole: 'no-proxy', name: 'a wildcard in NO_PROXY' },
      // the right to change rules is the one, and that it suffices the other
      { hole: 'capabilities', also: ['firewall'], name: 'NET_ADMIN' },
    ])(
      'finds $name, and nothing else',
      async ({ hole, also = [] }) => {
        for (const visit of Object.values(await walls.visit(hole)))
          expect(visit).toMatchObject({ code: OPEN, verdict: 'open', open: [hole, ...also], unknown: [], door: 'works' });
      },
      PATIENCE_MS,
    );

    it(
      'says that the door does not work where its CA is not trusted',
      async () => {
        for (const visit of Object.values(await walls.visit('an untrusted door'))) {
          expect(visit).toMatchObject({ code: BROKEN, verdict: 'broken', open: [], door: 'broken' });
          expect(visit.why('door')).toMatch(/the certificate is not trusted/);
        }
      },
      PATIENCE_MS,
    );

    // What curl and wget cannot say: packets of UDP and words of our own.
    const raw = ['token', 'quic', 'icmp', 'dns-udp', 'dns-tcp', 'dns-name'];
    const all = ['door', 'token', 'tcp-public', 'tcp-private', 'ipv6', ...raw.slice(1), 'metadata', 'admin'];
    const holes = ['tcp-public', 'quic', 'dns-udp'];
    it.for([
      { tools: 'Perl to find it', code: OPEN, open: holes, unknown: [], door: 'works', runs: true },
      { tools: 'Python to find it', code: OPEN, open: holes, unknown: [], door: 'works', runs: existsSync('/usr/bin/python3') },
      { tools: 'curl alone', code: OPEN, open: ['tcp-public'], unknown: raw, door: 'works', runs: true },
      { tools: 'wget alone', code: OPEN, open: ['tcp-public'], unknown: raw, door: 'works', runs: true },
      { tools: 'no tool', code: UNKNOWN, open: [], unknown: all, door: 'unknown', runs: true },
    ])(
      'the script, with $tools, finds what it can and says what it cannot',
      { timeout: PATIENCE_MS },
      async ({ tools, runs, ...expected }, { skip }) => {
        skip(!runs, 'needs Python');
        const { js, sh } = await walls.visit(`a hole, and ${tools}`);
        expect(js).toBeUndefined();
        expect(sh).toMatchObject(expected);
      },
    );
  },
);
