// Runs the probes side by side, each within its time, and gathers what they found in the order of the table.
// It must never wait for a probe longer than its time and a little, and never take one that failed for one that found nothing.
import { setMaxListeners } from 'node:events';
import { admin, door, metadata, token } from './door-probes.ts';
import type { Finding } from './finding.ts';
import { icmp } from './icmp-probe.ts';
import { caKey, capabilities, cloudCredentials, dockerSocket, firewall, noProxy, stateFiles } from './local-probes.ts';
import { dnsName, dnsTcp, dnsUdp, ipv6, quic, tcpPrivate, tcpPublic } from './network-probes.ts';
import type { Probe } from './network-probes.ts';
import { PROBES } from './probe-table.ts';
import type { ProbeId, ProbeWords } from './probe-table.ts';
import type { Surroundings } from './surroundings.ts';

const RUNS = {
  door,
  token,
  'tcp-public': tcpPublic,
  'tcp-private': tcpPrivate,
  ipv6,
  quic,
  icmp,
  'dns-udp': dnsUdp,
  'dns-tcp': dnsTcp,
  'dns-name': dnsName,
  metadata,
  admin,
  'ca-key': caKey,
  'state-files': stateFiles,
  capabilities,
  firewall,
  'docker-socket': dockerSocket,
  'cloud-credentials': cloudCredentials,
  'no-proxy': noProxy,
} satisfies Record<ProbeId, Probe>;

/** A probe and what it found. */
export interface Probed extends ProbeWords, Finding {}

/** After its time a probe may still say what it came to. */
const GRACE_MS = 500;

/** Runs those of `ids`. `onEnd` hears of each as it ends. Never rejects. */
export async function runProbes(
  ids: readonly ProbeId[],
  around: Surroundings,
  onEnd: (probed: Probed) => void = () => undefined,
): Promise<readonly Probed[]> {
  return Promise.all(
    PROBES.filter(({ id }) => ids.includes(id)).map(async (words) => {
      const probed = { ...words, ...(await bounded(RUNS[words.id], around)) };
      onEnd(probed);
      return probed;
    }),
  );
}

async function bounded(probe: Probe, around: Surroundings): Promise<Finding> {
  const over = new AbortController();
  // each place that is tried listens
  setMaxListeners(0, over.signal);
  const unknown = (why: string): Finding => ({ result: 'unknown', tried: 'what the probe is for', why });
  const timer = setTimeout(() => over.abort(), around.timeoutMs);
  let last: NodeJS.Timeout | undefined;
  const late = new Promise<Finding>((resolve) => {
    last = setTimeout(resolve, around.timeoutMs + GRACE_MS, unknown('it took longer than its time'));
  });
  try {
    return await Promise.race([probe(around, over.signal), late]);
  } catch (error) {
    return unknown(`internal error: ${error instanceof Error ? error.message : 'something was thrown that is no error'}`);
  } finally {
    clearTimeout(timer);
    clearTimeout(last);
    over.abort();
  }
}
