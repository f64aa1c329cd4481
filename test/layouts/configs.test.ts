// The config that each layout mounts passes `sallyport check`, and the layout gives the proxy what that config names: folders that it may
// write to, doors that somebody leads to, and an admin listener that probes reach and agents do not.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { check } from '../../src/commands/check.ts';
import { capture, json, writeConfig } from '../commands/rig.ts';
import { CONFIG, chartObjects, kubernetesLayout, object } from '../support/layouts.ts';

interface LayoutConfig {
  readonly listen: { readonly proxy: string; readonly transparent?: { tls: string; http: string; dns: string; answer: string } };
  readonly admin: { readonly listen: string; readonly token: { readonly file: string } };
  readonly ca: { readonly certificate: string; readonly key: string };
  readonly store: { readonly uri: string; readonly key: { readonly file: string } };
}

const mounted = (objects: Parameters<typeof object>[0], name: string): string =>
  object(objects, 'ConfigMap', name).data!['sallyport.yaml']!;

const configs: [string, () => string | Promise<string>][] = [
  ['container.yaml', () => readFileSync(join(CONFIG, 'container.yaml'), 'utf8')],
  ['compose', () => readFileSync(join(CONFIG, 'compose', 'sallyport', 'sallyport.yaml'), 'utf8')],
  ['kubernetes/same-pod', () => mounted(kubernetesLayout('same-pod'), 'sallyport')],
  ['kubernetes/separate-pod', () => mounted(kubernetesLayout('separate-pod'), 'sallyport')],
  ['the chart in two pods', async () => mounted(await chartObjects(), 'door')],
  ['the chart in one pod', async () => mounted(await chartObjects({ shape: 'same-pod' }), 'door')],
];

describe('the config of a layout', () => {
  it.each(configs)('%s passes `sallyport check`', async (_name, read) => {
    const config = parse(await read()) as LayoutConfig;
    const { directory, config: file } = writeConfig(config);
    const captured = capture(directory);
    expect(await check({ config: file, json: true }, captured.context), captured.out()).toBe(0);
    expect(json(captured)).toMatchObject({ valid: true, summary: { listeners: { proxy: config.listen.proxy } } });
    const { tls, http, dns } = config.listen.transparent ?? {};
    if (tls === undefined) return;
    expect(json(captured)).toMatchObject({
      summary: { listeners: { 'transparent.tls': tls, 'transparent.http': http, 'transparent.dns': dns } },
    });
  });

  it.each(configs)('%s writes where the image lets it, and never beside the public certificate', async (_name, read) => {
    const { ca, admin, store } = parse(await read()) as LayoutConfig;
    expect(ca.certificate).toBe('/run/sallyport/public/ca.pem');
    for (const path of [ca.key, admin.token.file, store.uri.replace('file:', ''), store.key.file])
      expect(path).toMatch(/^\/var\/lib\/sallyport\//);
  });

  it.each(configs.slice(1))('%s has doors for agents that know of no proxy', async (_name, read) => {
    const { transparent } = (parse(await read()) as LayoutConfig).listen;
    expect(Object.keys(transparent ?? {})).toEqual(['tls', 'http', 'dns', 'answer']);
  });

  it('is the same in the chart and in the layout beside it', async () => {
    const [, , same, separate, chartSeparate, chartSame] = await Promise.all(
      configs.map(async ([, read]) => parse(await read()) as object),
    );
    expect(chartSame).toEqual(same);
    expect({ sandboxes: {}, ...chartSeparate }).toEqual(separate);
  });
});
