// What lies under config/ for docker compose, Kubernetes, Prometheus, Grafana and Helm, read as the tools would read it.
// A kustomization is followed: its resources, the ConfigMaps that it makes of files, its namespace.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { renderChart } from './chart.ts';

/** The folder of all layouts. */
export const CONFIG = join(import.meta.dirname, '..', '..', 'config');

/** A Kubernetes object, of which the tests look at parts. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels?: Record<string, string> };
  readonly spec?: Record<string, unknown>;
  readonly data?: Record<string, string>;
}

interface Kustomization {
  readonly namespace: string;
  readonly resources: readonly string[];
  readonly configMapGenerator: readonly {
    name: string;
    files?: string[];
    envs?: string[];
    options?: { labels: Record<string, string> };
  }[];
  readonly images?: readonly { name: string; newTag: string }[];
}

/** The documents of a YAML text. Throws for what a strict reader would complain of: errors, warnings, a key twice. */
export function yamlDocuments(text: string): unknown[] {
  return parseAllDocuments(text, { uniqueKeys: true }).flatMap((document) => {
    const [problem] = [...document.errors, ...document.warnings];
    if (problem !== undefined) throw problem;
    const value: unknown = document.toJS();
    return value === null ? [] : [value];
  });
}

/** The kustomization of a folder under config/kubernetes. */
export function kustomization(folder: string): Kustomization {
  return yamlDocuments(readFileSync(join(CONFIG, 'kubernetes', folder, 'kustomization.yaml'), 'utf8'))[0] as Kustomization;
}

/** The objects that `kubectl apply -k config/kubernetes/<folder>` would make. */
export function kubernetesLayout(folder: string): Manifest[] {
  const read = (file: string): string => readFileSync(join(CONFIG, 'kubernetes', folder, file), 'utf8');
  const { resources, configMapGenerator } = kustomization(folder);
  return [
    ...resources.flatMap((file) => yamlDocuments(read(file)) as Manifest[]),
    ...configMapGenerator.map(({ name, files = [], envs = [], options }) => ({
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name, ...options },
      data: Object.fromEntries([
        ...files.map((file): [string, string] => [file, read(file)]),
        ...envs.flatMap((file) => [...envFile(read(file))]),
      ]),
    })),
  ];
}

/** The objects of the chart, with values laid over its own. */
export async function chartObjects(values: Record<string, unknown> = {}): Promise<Manifest[]> {
  const rendered = Object.entries(await renderChart(values)).filter(([file]) => file.endsWith('.yaml'));
  return rendered.flatMap(([, text]) => yamlDocuments(text) as Manifest[]);
}

/** NAME=value lines, without comments. */
export function envFile(text: string): Map<string, string> {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]));
}

/** The one object of that kind and name. */
export function object(manifests: readonly Manifest[], kind: string, name: string): Manifest {
  const [found, ...more] = manifests.filter((each) => each.kind === kind && each.metadata.name === name);
  if (found === undefined || more.length > 0) throw new Error(`${kind} "${name}": ${found === undefined ? 'none' : 'several'}`);
  return found;
}

/** A container of a pod, of which the tests look at parts. */
export interface Container {
  readonly name: string;
  readonly image: string;
  readonly restartPolicy?: string;
  readonly securityContext?: {
    readonly runAsUser?: number;
    readonly runAsNonRoot?: boolean;
    readonly allowPrivilegeEscalation?: boolean;
    readonly readOnlyRootFilesystem?: boolean;
    readonly capabilities?: { readonly drop?: string[]; readonly add?: string[] };
  };
  readonly resources?: { readonly requests?: Record<string, string>; readonly limits?: Record<string, string> };
  readonly ports?: readonly { readonly name: string; readonly containerPort: number; readonly protocol?: string }[];
  readonly envFrom?: readonly { readonly configMapRef: { readonly name: string } }[];
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string; readonly readOnly?: boolean }[];
  readonly startupProbe?: Probe;
  readonly readinessProbe?: Probe;
  readonly livenessProbe?: Probe;
}

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}

/** A pod, of which the tests look at parts. */
export interface Pod {
  readonly automountServiceAccountToken?: boolean;
  readonly shareProcessNamespace?: boolean;
  readonly dnsPolicy?: string;
  readonly dnsConfig?: { readonly nameservers: string[] };
  readonly securityContext?: { readonly runAsUser?: number; readonly runAsNonRoot?: boolean; readonly fsGroup?: number };
  readonly initContainers?: readonly Container[];
  readonly containers: readonly Container[];
  readonly volumes: readonly {
    readonly name: string;
    readonly emptyDir?: { readonly medium?: string };
    readonly secret?: { readonly secretName: string; readonly defaultMode?: number };
    readonly configMap?: { readonly name: string };
  }[];
}

/** The pod of a Deployment. */
export function podOf(manifests: readonly Manifest[], deployment: string): Pod {
  return (object(manifests, 'Deployment', deployment).spec as { template: { spec: Pod } }).template.spec;
}

/** One container of a pod, whichever kind. */
export function container(pod: Pod, name: string): Container {
  const found = [...(pod.initContainers ?? []), ...pod.containers].find((each) => each.name === name);
  if (found === undefined) throw new Error(`no container "${name}"`);
  return found;
}
