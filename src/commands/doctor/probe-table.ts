// Every way out that the doctor tries, in words: what `sallyport doctor`, config/doctor.sh and the README say of each, in one place.
// It must never name a way that is not tried, in code and in the script alike; tests hold the three together.

/** What a probe is called. */
export type ProbeId =
  | 'door'
  | 'token'
  | 'tcp-public'
  | 'tcp-private'
  | 'ipv6'
  | 'quic'
  | 'icmp'
  | 'dns-udp'
  | 'dns-tcp'
  | 'dns-name'
  | 'metadata'
  | 'admin'
  | 'ca-key'
  | 'state-files'
  | 'capabilities'
  | 'firewall'
  | 'docker-socket'
  | 'cloud-credentials'
  | 'no-proxy';

/** One probe, in words. */
export interface ProbeWords {
  readonly id: ProbeId;
  /** What is tried */
  readonly tries: string;
  /** One sentence: what closes it; of `door`, what makes it work */
  readonly remedy: string;
}

/** All of them, in the order in which they are shown. */
export const PROBES: readonly ProbeWords[] = [
  {
    id: 'door',
    tries: 'a request through the door, its certificate verified by the roots that the environment names',
    remedy: 'see that the proxy is ready, that the URL is allowed, and that the variables of `sallyport env` are set here',
  },
  {
    id: 'token',
    tries: 'the proxy without a token, with one of a made-up sandbox, and with a wrong one of this sandbox',
    remedy: 'give each sandbox a token under `sandboxes`; one that is known by its `sources` may skip this probe',
  },
  {
    id: 'tcp-public',
    tries: 'TCP to public addresses, 443 and 853, past the door',
    remedy: "let the sandbox's network forward nothing: an internal network, a NetworkPolicy, or nftables with policy drop",
  },
  {
    id: 'tcp-private',
    tries: "TCP to the default gateway, the Kubernetes API and the proxy's host, on ports that are no door",
    remedy: "have the firewall of the gateway and of the proxy's host take from the sandbox nothing but the ports of the doors",
  },
  {
    id: 'ipv6',
    tries: 'TCP over IPv6 to public addresses, and the default route of IPv6',
    remedy: 'refuse IPv6 by the same rules as IPv4 (family inet in nftables), or turn it off on the network of the sandbox',
  },
  {
    id: 'quic',
    tries: 'UDP 443 to public addresses, a packet that has QUIC name its versions',
    remedy: 'refuse UDP 443; reject it, so that HTTP/3 falls back to TCP at once',
  },
  {
    id: 'icmp',
    tries: 'an ICMP echo to public addresses',
    remedy: 'refuse ICMP from the sandbox to the outside, for an echo carries whatever data one likes',
  },
  {
    id: 'dns-udp',
    tries: 'another DNS server over UDP',
    remedy: 'lead UDP 53 to the DNS door, or refuse it',
  },
  {
    id: 'dns-tcp',
    tries: 'another DNS server over TCP',
    remedy: 'lead TCP 53 to the DNS door, or refuse it',
  },
  {
    id: 'dns-name',
    tries: "whether the sandbox's own resolver resolves a name that is not allowed, and asks the outside for one that nobody has",
    remedy: "make the DNS door the sandbox's only resolver, for each name that is asked for outside carries data out",
  },
  {
    id: 'metadata',
    tries: 'the metadata services of clouds, directly and through the proxy',
    remedy: 'refuse 169.254.0.0/16 and fd00:ec2::254 on the network of the sandbox, and open them by no rule',
  },
  {
    id: 'admin',
    tries: "the admin listener on the proxy's host, on the gateway, on loopback, and through the proxy",
    remedy: 'let `admin.listen` name an address that the sandbox does not reach, or refuse its port there',
  },
  {
    id: 'ca-key',
    tries: "readable private keys beside and above the CA's certificate, and where folders are commonly mounted",
    remedy: 'mount the folder of `ca.certificate` alone, never the one that holds `ca.key`, and make a new CA now',
  },
  {
    id: 'state-files',
    tries: "the proxy's admin token, store key and store in the same places",
    remedy: "keep the proxy's state in a volume that only the proxy mounts, and replace what has been readable here",
  },
  {
    id: 'capabilities',
    tries: 'capabilities of this process that can take walls down (NET_ADMIN, SYS_ADMIN, SYS_MODULE, SYS_PTRACE)',
    remedy: 'drop all capabilities and set no-new-privileges (`cap_drop: [ALL]`, `allowPrivilegeEscalation: false`)',
  },
  {
    id: 'firewall',
    tries: 'reading the rules with nft or iptables, which only those can who may change them; by sudo too',
    remedy: 'run the sandbox without NET_ADMIN and without sudo, and set its rules from outside or in an init container',
  },
  {
    id: 'docker-socket',
    tries: 'sockets of container engines',
    remedy: 'mount no socket of a container engine into the sandbox: whoever speaks to it owns the host',
  },
  {
    id: 'cloud-credentials',
    tries: 'credentials of clouds, clusters and code hosts in variables and in the usual files',
    remedy: 'give the sandbox placeholders, and put the credentials on at the door',
  },
  {
    id: 'no-proxy',
    tries: 'NO_PROXY and no_proxy for more than loopback: wildcards, suffixes and ranges',
    remedy: 'let NO_PROXY name loopback alone, as `sallyport env` has it',
  },
];

/** Their ids. */
export const PROBE_IDS: readonly ProbeId[] = PROBES.map(({ id }) => id);

/** The table of the README. */
export function probeTable(): string {
  const lines = PROBES.map(({ id, tries, remedy }) => `| \`${id}\` | ${tries} | ${remedy} |`);
  return ['| probe | what is tried | remedy |', '|---|---|---|', ...lines, ''].join('\n');
}
