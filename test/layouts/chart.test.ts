// The chart as Helm would read it: values that fit their schema and are each explained, templates that use no value that is not there, and
// what it refuses. What it renders is held in the other files here, beside the layouts that it must not drift from.
import { Ajv } from 'ajv';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { CHART, at, chartValues, renderChart, valuePaths } from '../support/chart.ts';
import { chartObjects, container, podOf } from '../support/layouts.ts';

const VERSION = (JSON.parse(readFileSync(join(CHART, '..', '..', '..', 'package.json'), 'utf8')) as { version: string }).version;
const text = (file: string): string => readFileSync(join(CHART, file), 'utf8');
const fits = new Ajv({ strict: false, allErrors: true, validateFormats: false }).compile(
  JSON.parse(text('values.schema.json')) as object,
);

describe('the chart', () => {
  it('bears the version of the package', () => {
    expect(parse(text('Chart.yaml'))).toMatchObject({
      apiVersion: 'v2',
      name: 'sallyport',
      version: VERSION,
      appVersion: VERSION,
    });
  });

  it('has values that fit their schema', () => {
    expect(fits(chartValues()), JSON.stringify(fits.errors)).toBe(true);
  });

  it.each([
    ['a shape that there is not', { shape: 'sidecar' }],
    ['a misspelt key', { replica: 3 }],
    ['a misspelt key further in', { networkPolicy: { enable: true } }],
    ['a section of the config that is the chart’s', { config: { listen: { proxy: '0.0.0.0:1' } } }],
    ['root as the proxy', { uid: 0 }],
    ['root as the agent', { agent: { uid: 0 } }],
    ['no address for the Service', { service: { clusterIP: '' } }],
    ['a store that nobody knows', { store: { uri: 'mysql://db' } }],
    ['no proxy', { replicas: 0 }],
    ['a number for a variable, which a ConfigMap cannot hold', { trust: { UV_NATIVE_TLS: true } }],
  ])('refuses %s', (_what, over) => {
    expect(fits(chartValues(over))).toBe(false);
  });

  it('explains every value in values.yaml, in its schema, or with the key above it', () => {
    const lines = text('values.yaml').split('\n');
    const keys = lines.flatMap((line, index) => (/^\w+:/.test(line) ? [{ line, above: lines[index - 1] ?? '', index }] : []));
    const properties = (JSON.parse(text('values.schema.json')) as { properties: Record<string, { description?: string }> })
      .properties;
    for (const { line, above, index } of keys) {
      const key = line.slice(0, line.indexOf(':'));
      const below = lines.slice(index + 1, index + 3).some((next) => /^ {2}#/.test(next));
      const together = keys.some((other) => other.index === index - 1);
      expect(above.startsWith('#') || below || together, key).toBe(true);
      expect(properties[key]?.description, key).toMatch(/\.$/);
    }
  });

  it('takes every section of a config but those that are its own', () => {
    const sections = Object.keys(
      (JSON.parse(readFileSync(join(CHART, '..', '..', 'sallyport.schema.json'), 'utf8')) as { properties: object }).properties,
    ).filter((key) => !['listen', 'admin', 'ca', 'store'].includes(key));
    const { properties } = JSON.parse(text('values.schema.json')) as { properties: { config: { properties: object } } };
    expect(Object.keys(properties.config.properties)).toEqual(expect.arrayContaining(sections));
  });

  it('uses no value that values.yaml has not', () => {
    const values = chartValues();
    const paths = [...valuePaths()];
    expect(paths.length).toBeGreaterThan(20);
    for (const path of paths) expect(() => at(values, path)).not.toThrow();
  });

  it('has no value that no template uses', () => {
    const used = [...valuePaths()].map((path) => path.split('.')[0]);
    for (const key of Object.keys(chartValues())) expect(used, key).toContain(key);
  });

  it.each(readdirSync(join(CHART, 'templates')))('%s closes every block that it opens', (file) => {
    const actions = [...text(join('templates', file)).matchAll(/\{\{-?\s*(\w+)/g)].map(([, word]) => word);
    const opened = actions.filter((word) => ['if', 'range', 'with', 'define', 'block'].includes(word ?? '')).length;
    expect(actions.filter((word) => word === 'end')).toHaveLength(opened);
  });

  it('renders no Secret, and nothing of one but its name', async () => {
    for (const shape of ['same-pod', 'separate-pod']) {
      const objects = await chartObjects({ shape });
      expect(objects.filter(({ kind }) => kind === 'Secret')).toEqual([]);
    }
  });

  it('follows the values that are most often set', async () => {
    const objects = await chartObjects({
      nameOverride: 'egress',
      image: { repository: 'mirror/sallyport', tag: '9.9' },
      uid: 70001,
      replicas: 5,
      resources: { limits: { memory: '1Gi' } },
      ca: { keySecret: 'own-key', configMap: 'own-ca' },
      credentials: { secret: 'own-credentials' },
      networkPolicy: { enabled: false },
    });
    expect(objects.map(({ kind }) => kind)).not.toContain('NetworkPolicy');
    const pod = podOf(objects, 'egress');
    const proxy = container(pod, 'sallyport');
    expect(proxy).toMatchObject({ image: 'mirror/sallyport:9.9', resources: { limits: { memory: '1Gi' } } });
    expect(proxy.securityContext?.runAsUser).toBe(70001);
    expect(pod.securityContext).toMatchObject({ runAsUser: 70001, fsGroup: 70001 });
    const secrets = pod.volumes.flatMap(({ secret }) => (secret === undefined ? [] : [secret.secretName]));
    expect(secrets.sort()).toEqual(['own-credentials', 'own-key']);
  });

  it('says in its notes what is left to do, and warns where nothing shuts agents in', async () => {
    const { 'NOTES.txt': notes } = await renderChart();
    expect(notes).toContain('kubectl -n agents create secret generic sallyport-ca-key --from-file=certs/ca.key');
    expect(notes).not.toContain('WARNING');
    const { 'NOTES.txt': open } = await renderChart({ networkPolicy: { enabled: false } });
    expect(open).toContain('WARNING: networkPolicy.enabled is false');
    const { 'NOTES.txt': same } = await renderChart({ shape: 'same-pod' });
    expect(same).not.toContain('sallyport ca\n');
  });
});
