// What a layout promises of its walls: no right that is not needed, no volume with a key within an agent's reach, and no way for an agent
// but the proxy's doors. Where nft can be run, the rules of the layout same-pod are tried in a network namespace of their own.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { javaTrust, sandboxVariables } from '../../src/commands/sandbox-variables.ts';
import { CONFIG, chartObjects, container, envFile, kubernetesLayout, object, podOf } from '../support/layouts.ts';
import type { Container, Manifest, Pod } from '../support/layouts.ts';
import { NETWORK_TOOLS, inWalls } from '../support/walls.ts';

interface Shape {
  readonly name: string;
  readonly read: () => Manifest[] | Promise<Manifest[]>;
  readonly config: string;
  readonly proxy: string;
  readonly agent: string | undefined;
}

const SHAPES: readonly Shape[] = [
  { name: 'same-pod', read: () => kubernetesLayout('same-pod'), config: 'sallyport', proxy: 'agent', agent: 'agent' },
  { name: 'separate-pod', read: () => kubernetesLayout('separate-pod'), config: 'sallyport', proxy: 'sallyport', agent: 'agent' },
  { name: 'the chart in two pods', read: () => chartObjects(), config: 'door', proxy: 'door', agent: undefined },
  {
    name: 'the chart in one pod',
    read: () => chartObjects({ shape: 'same-pod' }),
    config: 'door',
    proxy: 'door-agent',
    agent: 'door-agent',
  },
];

const FACTS = {
  proxy: 'http://192.0.2.1:8080',
  direct: [],
  ca: '/etc/sallyport/ca.pem',
  bundle: '/etc/sallyport/bundle.pem',
  trustStore: '/etc/sallyport/trust.p12',
  wgetrc: '/etc/sallyport/mounted.wgetrc',
};
const everyContainer = (pod: Pod): Container[] => [...(pod.initContainers ?? []), ...pod.containers];
const isAgent = ({ name }: Container): boolean => name === 'agent';

describe.each(SHAPES)('$name', ({ read, config, proxy, agent }) => {
  it('gives nobody a right but the one that puts the rules up', async () => {
    for (const pod of await pods()) {
      for (const { name, securityContext } of everyContainer(pod)) {
        expect(securityContext?.capabilities, name).toEqual(
          name === 'redirect' ? { drop: ['ALL'], add: ['NET_ADMIN'] } : { drop: ['ALL'] },
        );
        expect(securityContext?.allowPrivilegeEscalation, name).toBe(false);
        if (name !== 'redirect') expect(securityContext?.runAsUser ?? pod.securityContext?.runAsUser, name).toBeGreaterThan(0);
      }
      expect(pod.securityContext?.runAsNonRoot).toBe(true);
      expect(pod.automountServiceAccountToken).toBe(false);
      expect(pod.shareProcessNamespace ?? false).toBe(false);
    }
  });

  it('runs all of its own with a read-only root, and bounds the memory of everything', async () => {
    for (const pod of await pods()) {
      for (const each of everyContainer(pod)) {
        if (!isAgent(each)) expect(each.securityContext?.readOnlyRootFilesystem, each.name).toBe(true);
        expect(each.resources?.limits?.['memory'], each.name).toBeDefined();
        expect(each.resources?.requests?.['memory'], each.name).toBeDefined();
      }
    }
  });

  it('has the proxy mount every folder that its config names', async () => {
    const objects = await read();
    const { volumeMounts = [] } = container(podOf(objects, proxy), 'sallyport');
    const writable = volumeMounts.filter(({ readOnly }) => readOnly !== true).map(({ mountPath }) => mountPath);
    expect(writable.sort()).toEqual(['/run/sallyport/public', '/tmp', '/var/lib/sallyport']);
    const named = JSON.stringify(parse(object(objects, 'ConfigMap', config).data!['sallyport.yaml']!));
    for (const [path] of named.matchAll(/\/(?:run|var|etc)\/[\w./-]+/g))
      expect(
        volumeMounts.some(({ mountPath }) => path.startsWith(`${mountPath}/`)),
        path,
      ).toBe(true);
  });

  it('asks the admin listener whether it is ready, and whether it lives', async () => {
    const { startupProbe, readinessProbe, livenessProbe, ports } = container(podOf(await read(), proxy), 'sallyport');
    expect(ports).toContainEqual({ name: 'admin', containerPort: 9090 });
    for (const probe of [startupProbe, readinessProbe]) expect(probe?.httpGet).toEqual({ path: '/readyz', port: 'admin' });
    expect(livenessProbe?.httpGet).toEqual({ path: '/healthz', port: 'admin' });
  });

  it('shows an agent certificates, read-only, and nothing that has ever held a key', async () => {
    if (agent === undefined) return;
    const pod = podOf(await read(), agent);
    const { volumeMounts = [] } = container(pod, 'agent');
    expect(volumeMounts).toEqual([expect.objectContaining({ mountPath: '/etc/sallyport', readOnly: true })]);
    const volume = pod.volumes.find(({ name }) => name === volumeMounts[0]?.name);
    expect(volume?.secret).toBeUndefined();
    if (volume?.configMap !== undefined) expect(volume.configMap.name).toBe('sallyport-ca');
    // where it is shared with a proxy in the same pod, the proxy has it at the folder of the public certificate
    const sharers = everyContainer(pod).filter((each) => !isAgent(each));
    for (const each of sharers) {
      const same = each.volumeMounts?.find(({ name }) => name === volume?.name);
      if (same !== undefined) expect(same.mountPath).toBe('/run/sallyport/public');
    }
  });

  it('tells the tools of an agent where the certificates are, as `sallyport env` does', async () => {
    const objects = await read();
    const { JAVA_TOOL_OPTIONS: java, ...variables } = object(objects, 'ConfigMap', `${config}-trust`).data!;
    const all = sandboxVariables(FACTS);
    for (const [name, value] of Object.entries(variables)) expect(all.get(name), name).toBe(value);
    // without the proxy, which is what the doors are for
    expect(java).toBe(javaTrust(FACTS.trustStore).join(' '));
    expect(Object.keys(variables)).toEqual(expect.arrayContaining(['SSL_CERT_FILE', 'NODE_EXTRA_CA_CERTS', 'GIT_SSL_CAINFO']));
  });

  async function pods(): Promise<Pod[]> {
    const objects = await read();
    return objects.filter(({ kind }) => kind === 'Deployment').map(({ metadata }) => podOf(objects, metadata.name));
  }
});

describe('one pod', () => {
  it.each(SHAPES.filter(({ proxy, agent }) => proxy === agent))('$name: rules, proxy, agent, in this order', async (shape) => {
    const pod = podOf(await shape.read(), shape.proxy);
    expect(pod.initContainers?.map(({ name, restartPolicy }) => [name, restartPolicy])).toEqual([
      ['redirect', undefined],
      ['sallyport', 'Always'],
    ]);
    expect(pod.containers.map(({ name }) => name)).toEqual(['agent']);
  });

  it('has the chart bring the same rules as the layout', async () => {
    const rules = object(await chartObjects({ shape: 'same-pod' }), 'ConfigMap', 'door-redirect').data!['redirect.nft']!;
    expect(rules.trim()).toBe(readFileSync(join(CONFIG, 'kubernetes', 'same-pod', 'redirect.nft'), 'utf8').trim());
    const others = object(await chartObjects({ shape: 'same-pod', uid: 70000 }), 'ConfigMap', 'door-redirect').data![
      'redirect.nft'
    ]!;
    expect(others).toContain('define proxy = 70000');
  });

  it('lets out the uid of the proxy, which nobody else has', () => {
    const objects = kubernetesLayout('same-pod');
    const uid = Number(
      /define proxy = (\d+)/.exec(object(objects, 'ConfigMap', 'sallyport-redirect').data!['redirect.nft']!)?.[1],
    );
    const having = everyContainer(podOf(objects, 'agent')).filter(({ securityContext }) => securityContext?.runAsUser === uid);
    expect(having.map(({ name }) => name)).toEqual(['sallyport']);
  });

  it('is not rendered by the chart with one uid for both', async () => {
    await expect(chartObjects({ shape: 'same-pod', agent: { uid: 64100 } })).rejects.toThrow();
  });

  it('leads to the doors of the config', () => {
    const objects = kubernetesLayout('same-pod');
    const rules = object(objects, 'ConfigMap', 'sallyport-redirect').data!['redirect.nft']!;
    const { transparent } = (
      parse(object(objects, 'ConfigMap', 'sallyport').data!['sallyport.yaml']!) as {
        listen: { transparent: Record<string, string> };
      }
    ).listen;
    const port = (at: string | undefined): string | undefined => at?.split(':')[1];
    expect(/dport 443 redirect to :(\d+)/.exec(rules)?.[1]).toBe(port(transparent['tls']));
    expect(/dport 80 redirect to :(\d+)/.exec(rules)?.[1]).toBe(port(transparent['http']));
    expect(/dport 53 redirect to :(\d+)/.exec(rules)?.[1]).toBe(port(transparent['dns']));
  });
});

describe('two pods', () => {
  const objects = kubernetesLayout('separate-pod');
  const service = object(objects, 'Service', 'sallyport').spec as {
    clusterIP: string;
    ports: { port: number; targetPort: string; protocol?: string }[];
  };
  const doors = [
    { port: 8443, protocol: 'TCP' },
    { port: 8081, protocol: 'TCP' },
    { port: 8080, protocol: 'TCP' },
    { port: 5353, protocol: 'UDP' },
    { port: 5353, protocol: 'TCP' },
  ];

  it('has one address in three places: the Service, the answer of the DNS door, the resolver of the agent', () => {
    const config = parse(object(objects, 'ConfigMap', 'sallyport').data!['sallyport.yaml']!) as {
      listen: { transparent: { answer: string } };
    };
    const agent = podOf(objects, 'agent');
    expect(config.listen.transparent.answer).toBe(service.clusterIP);
    expect(agent).toMatchObject({ dnsPolicy: 'None', dnsConfig: { nameservers: [service.clusterIP] } });
  });

  it('has the Service lead from the ports that clients know to the doors', () => {
    const { ports = [] } = container(podOf(objects, 'sallyport'), 'sallyport');
    const led = service.ports.map(({ port, targetPort, protocol = 'TCP' }) => {
      return [port, ports.find(({ name }) => name === targetPort)?.containerPort, protocol];
    });
    expect(led).toEqual([
      [443, 8443, 'TCP'],
      [80, 8081, 'TCP'],
      [53, 5353, 'UDP'],
      [53, 5353, 'TCP'],
      [8080, 8080, 'TCP'],
    ]);
  });

  it.each([
    ['the layout', () => objects, 'agents', 'sallyport'],
    ['the chart', () => chartObjects(), 'door-agents', 'door'],
  ] as const)(
    '%s: an agent reaches the doors of a proxy and nothing else, and nobody an agent',
    async (_name, read, agents, proxies) => {
      const made = await read();
      const shut = object(made, 'NetworkPolicy', agents).spec as { egress: { to: object[]; ports: object[] }[] };
      expect(shut).toMatchObject({ policyTypes: ['Ingress', 'Egress'], ingress: [] });
      expect(shut.egress).toHaveLength(1);
      expect(shut.egress[0]?.ports).toEqual(doors);
      expect(shut.egress[0]?.to).toEqual([
        { podSelector: { matchLabels: expect.objectContaining({ 'app.kubernetes.io/name': 'sallyport' }) as object } },
      ]);
      const open = object(made, 'NetworkPolicy', proxies).spec as { ingress: { from: object[]; ports: { port: number }[] }[] };
      const fromHere = open.ingress.filter(({ from }) => from.every((peer) => !('namespaceSelector' in peer)));
      expect(fromHere.map(({ ports }) => ports)).toEqual([doors]);
    },
  );

  it('has the chart bring the same policies as the layout', async () => {
    const made = await chartObjects();
    const bare = (manifest: Manifest): unknown =>
      JSON.parse(JSON.stringify(manifest.spec).replaceAll(/,"app.kubernetes.io\/instance":"door"/g, '')) as unknown;
    expect(bare(object(made, 'NetworkPolicy', 'door-agents'))).toEqual(object(objects, 'NetworkPolicy', 'agents').spec);
    const proxies = bare(object(made, 'NetworkPolicy', 'door')) as { egress: object[] };
    expect(proxies.egress).toEqual((object(objects, 'NetworkPolicy', 'sallyport').spec as { egress: object[] }).egress);
  });

  it('hands the key to the proxies by name alone, and never in a ConfigMap', () => {
    const pod = podOf(objects, 'sallyport');
    expect(pod.volumes.find(({ name }) => name === 'ca-key')?.secret?.secretName).toBe('sallyport-ca-key');
    expect(container(pod, 'sallyport').volumeMounts?.map(({ name }) => name)).not.toContain('ca-key');
    expect(objects.some(({ kind }) => kind === 'Secret')).toBe(false);
    expect(JSON.stringify(objects)).not.toContain('PRIVATE KEY');
  });
});

describe('compose', () => {
  const text = readFileSync(join(CONFIG, 'compose', 'compose.yaml'), 'utf8');
  const { services, networks } = parse(text) as {
    services: Record<'sallyport' | 'agent', Record<string, unknown> & { networks: Record<string, { ipv4_address?: string }> }>;
    networks: Record<string, { internal?: boolean; driver_opts?: Record<string, string> }>;
  };
  const config = parse(readFileSync(join(CONFIG, 'compose', 'sallyport', 'sallyport.yaml'), 'utf8')) as {
    admin: { listen: string };
    listen: { transparent: { answer: string } };
  };

  it('has the agent on a network that leads nowhere, not even to the host', () => {
    expect(Object.keys(services.agent.networks)).toEqual(['sandbox']);
    expect(networks['sandbox']).toMatchObject({
      internal: true,
      enable_ipv6: false,
      driver_opts: { 'com.docker.network.bridge.gateway_mode_ipv4': 'isolated' },
    });
    for (const way of ['ports', 'network_mode', 'extra_hosts', 'cap_add', 'privileged', 'devices', 'pid'])
      expect(services.agent).not.toHaveProperty(way);
  });

  it('takes every right away, and writes to volumes alone', () => {
    for (const service of Object.values(services))
      expect(service).toMatchObject({ cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'], user: '1000:1000' });
    expect(services.sallyport).toMatchObject({
      read_only: true,
      healthcheck: { test: ['CMD', 'node', '-e', expect.any(String)] },
    });
  });

  it('hands over certificates by a volume of their own, which the agent cannot write to', () => {
    const volumes = (of: 'sallyport' | 'agent'): { source: string; target: string; read_only?: boolean }[] =>
      services[of]['volumes'] as never;
    expect(volumes('agent')).toEqual([{ type: 'volume', source: 'ca', target: '/etc/sallyport', read_only: true }]);
    expect(volumes('sallyport').find(({ source }) => source === 'ca')?.target).toBe('/run/sallyport/public');
    expect(volumes('sallyport').find(({ source }) => source === 'state')?.target).toBe('/var/lib/sallyport');
  });

  it('has one address in three places, and the operator listener on the other network', () => {
    const address = services.sallyport.networks['sandbox']?.ipv4_address;
    expect(services.agent['dns']).toEqual([address]);
    expect(config.listen.transparent.answer).toBe(address);
    const admin = services.sallyport.networks['outside']?.ipv4_address ?? '';
    expect(config.admin.listen).toBe(`${admin}:9090`);
    expect(JSON.stringify(services.sallyport['healthcheck'])).toContain(`http://${admin}:9090/readyz`);
  });

  it('waits with the agent until the proxy is ready', () => {
    expect(services.agent['depends_on']).toEqual({ sallyport: { condition: 'service_healthy' } });
  });

  it('has the variables of the other layouts', () => {
    const variables = Object.fromEntries(envFile(readFileSync(join(CONFIG, 'compose', 'agent.env'), 'utf8')));
    for (const folder of ['same-pod', 'separate-pod'])
      expect(object(kubernetesLayout(folder), 'ConfigMap', 'sallyport-trust').data).toEqual(variables);
  });
});

describe('the Dockerfile', () => {
  const text = readFileSync(join(CONFIG, '..', 'Dockerfile'), 'utf8');

  it('makes the folders that the layouts mount volumes over, and runs as a user whom Kubernetes knows not to be root', () => {
    expect(text).toMatch(/VOLUME \["\/var\/lib\/sallyport", "\/run\/sallyport\/public"\]/);
    expect(text).toMatch(/^USER 1000:1000$/m);
  });

  it('has a stage for the init container, and is the proxy where no stage is named', () => {
    const stages = [...text.matchAll(/^FROM \S+(?: AS (\S+))?$/gm)].map(([, stage]) => stage);
    expect(stages).toEqual(['build', 'redirect', undefined]);
  });
});

// A process with the agent's uid behind the rules, the proxy's doors beside it, and a network whose other end nobody answers at.
describe.skipIf(NETWORK_TOOLS !== undefined)(
  `the rules of one pod${NETWORK_TOOLS === undefined ? '' : ` (${NETWORK_TOOLS})`}`,
  () => {
    const tried = inWalls(join(CONFIG, 'kubernetes', 'same-pod', 'redirect.nft'));

    it.each([
      ['lead TLS to any address to the TLS door', 'agent tls', 'tls'],
      ['lead plain HTTP to any address to the HTTP door', 'agent http', 'http'],
      ['lead DNS over UDP to the DNS door, whatever resolver is asked', 'agent dns udp', 'dns'],
      ['lead DNS over TCP to the DNS door', 'agent dns tcp', 'dns'],
      ['leave loopback to the services of the agent', 'agent own service', 'own'],
      ['leave the proxy port to tools that know it', 'agent proxy', 'proxy'],
      ['keep the agent from the admin listener by loopback', 'agent admin by loopback', 'refused'],
      ['keep the agent from the admin listener by the address of the pod', 'agent admin by address', 'refused'],
      ['refuse every other port', 'agent ssh', 'refused'],
      ['refuse UDP, so that HTTP/3 falls back at once', 'agent quic', 'refused'],
      ['let the proxy out', 'proxy tls', 'sent'],
      ['let probes in', 'probe', 'admin'],
      ['let nobody in to the agent', 'call to the agent', 'silence'],
    ])('%s', async (_behaviour, trial, expected) => {
      expect((await tried())[trial]).toBe(expected);
    });
  },
);
