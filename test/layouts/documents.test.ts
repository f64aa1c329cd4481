// Every document under config/ is what the tools that read it expect: YAML without a slip, Kubernetes objects by the schemas of the API and
// without a key that the API does not know (it would drop a misspelt one without a word), compose by its specification.
import { Ajv } from 'ajv';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { CONFIG, chartObjects, kubernetesLayout, kustomization, yamlDocuments } from '../support/layouts.ts';
import type { Manifest } from '../support/layouts.ts';

const ROOT = join(CONFIG, '..');
const VERSION = (JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }).version;
const EVERYTHING = {
  monitoring: { scrape: true, alerts: true, dashboard: true, labels: { release: 'prometheus' } },
  podLabels: { team: 'agents' },
  podAnnotations: { note: 'one' },
  env: [{ name: 'STORE_KEY', valueFrom: { secretKeyRef: { name: 'store', key: 'key' } } }],
  imagePullSecrets: [{ name: 'regcred' }],
  nodeSelector: { disk: 'ssd' },
  tolerations: [{ key: 'agents', operator: 'Exists' }],
  affinity: { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [] } },
  networkPolicy: { egress: [{ to: [{ ipBlock: { cidr: '10.9.0.0/16' } }], ports: [{ port: 5432, protocol: 'TCP' }] }] },
  agent: { command: ['sleep'], args: ['1d'], env: [{ name: 'HOME', value: '/tmp' }] },
};

const layouts: [string, () => Manifest[] | Promise<Manifest[]>][] = [
  ['kubernetes/same-pod', () => kubernetesLayout('same-pod')],
  ['kubernetes/separate-pod', () => kubernetesLayout('separate-pod')],
  ['kubernetes/monitoring', () => kubernetesLayout('monitoring')],
  ['the chart as it is', () => chartObjects()],
  ['the chart in one pod', () => chartObjects({ shape: 'same-pod' })],
  ['the chart in two pods, with all it can make', () => chartObjects(EVERYTHING)],
  ['the chart in one pod, with all it can make', () => chartObjects({ ...EVERYTHING, shape: 'same-pod' })],
];

describe('the documents under config/', () => {
  const files = under('', /\.ya?ml$/).filter((file) => !file.includes('/templates/'));

  it.each(files)('%s is YAML that no strict reader complains of', (file) => {
    expect(() => yamlDocuments(readFileSync(join(CONFIG, file), 'utf8'))).not.toThrow();
  });

  it('are there for compose, Kubernetes and Helm', () => {
    expect(files).toEqual(
      expect.arrayContaining(['compose/compose.yaml', 'kubernetes/monitoring/alerts.yaml', 'helm/sallyport/values.yaml']),
    );
  });

  it('name images by name and tag alone: where they are is for whoever deploys', () => {
    for (const file of ['kubernetes', 'helm'].flatMap((folder) => under(folder, /\.(?:ya?ml|tpl)$/))) {
      const images = [...readFileSync(join(CONFIG, file), 'utf8').matchAll(/^\s*(?:- )?image: ([^\s{}]+)$/gm)];
      for (const [, image] of images) expect(image, file).toMatch(/^[a-z-]+:[\w.-]+$/);
    }
  });
});

describe('Kubernetes objects', () => {
  it.each(layouts)('%s: each is valid by the schema of its kind', async (_name, read) => {
    const objects = await read();
    expect(objects.length).toBeGreaterThan(2);
    for (const each of objects) await validate(each);
  });

  it.each(layouts)('%s: none has a key that its kind does not know', async (_name, read) => {
    expect(unknownKeys(await read())).toEqual([]);
  });

  it('sees a wrong type, a missing key and a misspelt one', async () => {
    const service = { apiVersion: 'v1', kind: 'Service', metadata: { name: 'x' } };
    const policy = { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy', metadata: { name: 'x' } };
    await expect(validate({ ...service, spec: { ports: [{ port: 'http' }] } })).rejects.toThrow(/integer/);
    await expect(validate({ ...service, spec: { ports: [{ name: 'http' }] } })).rejects.toThrow(/port/);
    expect(unknownKeys([{ ...policy, spec: { podSelector: {}, policyType: ['Egress'] } }])).toEqual([
      expect.stringContaining('"policyType"'),
    ]);
  });

  it.each(layouts)('%s: no name twice, and selectors that fit the pods', async (_name, read) => {
    const objects = await read();
    const names = objects.map(({ kind, metadata }) => `${kind} ${metadata.name}`);
    expect(new Set(names).size).toBe(names.length);
    for (const { kind, spec } of objects) {
      if (kind !== 'Deployment') continue;
      const { selector, template } = spec as { selector: { matchLabels: object }; template: { metadata: { labels: object } } };
      expect(template.metadata.labels).toMatchObject(selector.matchLabels);
    }
  });

  it.each(['same-pod', 'separate-pod'])('%s runs the images of this version', (folder) => {
    for (const { newTag } of kustomization(folder).images ?? []) expect(newTag).toBe(VERSION);
    const text = JSON.stringify(kubernetesLayout(folder));
    for (const [, tag] of text.matchAll(/"image":"sallyport(?:-redirect)?:([^"]+)"/g)) expect(tag).toBe(VERSION);
  });
});

describe('compose.yaml', () => {
  const compose = yamlDocuments(readFileSync(join(CONFIG, 'compose', 'compose.yaml'), 'utf8'))[0];
  const schema = JSON.parse(
    readFileSync(join(ROOT, 'node_modules', 'dclint', 'schemas', 'compose.schema.json'), 'utf8'),
  ) as object;
  const ajv = new Ajv({ strict: false, allErrors: true, validateFormats: false, validateSchema: false });
  const fits = ajv.compile(schema);

  it('is valid by the compose specification', () => {
    expect(fits(compose), JSON.stringify(fits.errors)).toBe(true);
  });

  it('would not be with a key that the specification does not know', () => {
    const text = readFileSync(join(CONFIG, 'compose', 'compose.yaml'), 'utf8').replace('read_only: true', 'readonly: true');
    expect(fits(parse(text))).toBe(false);
  });

  it('runs the image of this version', () => {
    expect(compose).toMatchObject({ services: { sallyport: { image: `sallyport:${VERSION}` } } });
  });
});

/** Files below a folder of config/, by their paths in it. */
function under(folder: string, name: RegExp): string[] {
  const files = readdirSync(join(CONFIG, folder), { recursive: true, encoding: 'utf8' });
  return files.filter((file) => name.test(file)).map((file) => join(folder, file));
}

const group = (apiVersion: string): string =>
  apiVersion.startsWith('monitoring.coreos.com/')
    ? `@kubernetes-models/prometheus-operator/${apiVersion}`
    : `kubernetes-models/${apiVersion}`;

/** Rejects with the first problem that the schema of the object's kind finds. */
async function validate(manifest: object): Promise<void> {
  const { apiVersion, kind } = manifest as Manifest;
  const models = (await import(group(apiVersion))) as Record<string, new (data: object) => { validate(): void }>;
  const Model = models[kind];
  if (Model === undefined) throw new Error(`${apiVersion} has no ${kind}`);
  new Model(manifest).validate();
}

/** What the compiler says of the objects written out as literals of their kinds' types, which lets no unknown key pass. */
function unknownKeys(manifests: readonly Manifest[]): string[] {
  const folder = mkdtempSync(join(ROOT, 'node_modules', '.layouts-'));
  try {
    const file = join(folder, 'objects.ts');
    const lines = manifests.map(
      (each, at) => `import type { I${each.kind} as T${at} } from '${group(each.apiVersion)}';
export const o${at}: T${at} = ${JSON.stringify(each)};`,
    );
    writeFileSync(file, lines.join('\n'));
    const program = ts.createProgram([file], {
      target: ts.ScriptTarget.ES2023,
      module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext,
      strict: true,
      noEmit: true,
      skipLibCheck: true,
      types: [],
    });
    return ts.getPreEmitDiagnostics(program).map(({ messageText, file: where }) => {
      return `${where === undefined ? '' : relative(folder, where.fileName)}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`;
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
