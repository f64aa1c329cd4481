// Every query of the alerts and of the dashboard is PromQL, and asks for what a scrape of a real proxy has: metrics by their names, with
// labels that they bear, and values that those labels can have. A misspelt one would be an alert that never comes.
import { parser } from '@prometheus-io/lezer-promql';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CODES } from '../../src/exchange/codes.ts';
import { CHART } from '../support/chart.ts';
import { startHouse, LOOPBACK } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { CONFIG, kubernetesLayout, object, yamlDocuments } from '../support/layouts.ts';
import { askAdmin } from '../support/operator.ts';
import { openOutside, startUpstream } from '../support/outside.ts';
import { ask } from '../support/sandbox-client.ts';

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly description: string };
}

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly datasource?: { readonly uid: string };
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly refId: string; readonly expr: string; readonly legendFormat: string }[];
}

interface Dashboard {
  readonly panels: readonly Panel[];
  readonly annotations: { readonly list: readonly { readonly expr: string }[] };
  readonly templating: { readonly list: readonly { readonly name: string; readonly definition?: string }[] };
}

const rules = (
  object(kubernetesLayout('monitoring'), 'PrometheusRule', 'sallyport').spec as { groups: { name: string; rules: Rule[] }[] }
).groups.flatMap((group) => group.rules);
const dashboardText = readFileSync(join(CONFIG, 'kubernetes', 'monitoring', 'dashboard.json'), 'utf8');
const dashboard = JSON.parse(dashboardText) as Dashboard;

const queries: [string, string][] = [
  ...rules.map(({ alert, expr }): [string, string] => [`alert ${alert}`, expr]),
  ...dashboard.panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ refId, expr }): [string, string] => [`panel "${title}" ${refId}`, expr]),
  ),
  ...dashboard.annotations.list.map(({ expr }): [string, string] => ['annotation', expr]),
];

/** What Prometheus itself adds to everything that it scrapes. */
const OF_THE_TARGET = ['job', 'instance'];
const CLOSED: Readonly<Record<string, readonly string[]>> = {
  decision: ['allow', 'refuse', 'would_refuse', 'fault'],
  side: ['sandbox', 'upstream'],
  result: ['accepted', 'rejected'],
};

/** A metric that a query selects, with the labels that the query takes it to have. */
interface Selected {
  readonly metric: string;
  readonly labels: ReadonlyMap<string, string>;
}

let house: House;
/** Labels by metric, of a proxy that has met everything once */
const scraped = new Map<string, Set<string>>();
const close: (() => Promise<void>)[] = [];

beforeAll(async () => {
  const outside = await openOutside();
  const upstream = await startUpstream({ tls: outside });
  const printing = `process.stdout.write(JSON.stringify({ token: 'fresh-token', expires_at: new Date(Date.now() + 3600000).toISOString() }))`;
  const rule = { ports: [upstream.port], addresses: LOOPBACK };
  const config = {
    upstream: { ca: [outside.caPath] },
    network: {
      allowlist: [
        { domain: 'fetched.test', credential: 'fetched', ...rule },
        { domain: 'broken.test', credential: 'broken', ...rule },
      ],
    },
    credentials: {
      fetched: { type: 'exec', command: [process.execPath, '-e', printing] },
      broken: { type: 'exec', command: [process.execPath, '-e', 'process.exit(1)'] },
    },
  };
  house = await startHouse(config, { names: { 'fetched.test': ['127.0.0.1'], 'broken.test': ['127.0.0.1'] } });
  close.push(
    () => house.stop(),
    () => upstream.close(),
    () => outside.close(),
  );
  expect((await ask(house, `https://fetched.test:${upstream.port}/`)).status).toBe(200);
  expect((await ask(house, `https://broken.test:${upstream.port}/`)).status).toBe(502);
  expect((await ask(house, 'https://elsewhere.test/')).status).toBe(403);
  await house.reconfigure({ ...config, limits: { connections: 100 } });
  await house.reconfigure({ ...config, limits: { connections: 'many' } });
  const run = { event: 'PreToolUse', handler: 'command', outcome: 'deny', duration_ms: 5 };
  const response = await fetch(`http://127.0.0.1:${house.adminPort}/v1/hook-runs`, {
    method: 'POST',
    headers: { authorization: `Bearer ${house.adminToken}`, 'content-type': 'application/json' },
    body: JSON.stringify({ runs: [run] }),
  });
  expect(response.status, await response.text()).toBe(204);
  for (const line of (await house.scrape()).split('\n')) {
    const [, name, labels = ''] = /^([a-z_]\w*)(?:\{(.*)\})? \S+$/.exec(line) ?? [];
    if (name === undefined) continue;
    const present = scraped.get(name) ?? new Set<string>();
    for (const [, label = ''] of labels.matchAll(/(\w+)="(?:[^"\\]|\\.)*"/g)) present.add(label);
    scraped.set(name, present);
  }
}, 60_000);

afterAll(async () => {
  for (const each of close) await each();
});

describe('the queries', () => {
  it.each(queries)('%s is PromQL', (_name, query) => {
    expect(slips(query)).toEqual([]);
  });

  it.each(queries)('%s asks for what a scrape has', (_name, query) => {
    const selected = selectors(query);
    expect(selected.length).toBeGreaterThan(0);
    for (const { metric, labels } of selected) {
      expect([...scraped.keys()]).toContain(metric);
      const borne = [...(scraped.get(metric) ?? []), ...OF_THE_TARGET];
      for (const [label, value] of labels) {
        expect(borne, metric).toContain(label);
        for (const one of alternatives(value)) expect(known(metric, label), `${label}=${one}`).toSatisfy(fitting(one));
      }
    }
  });

  it.each(queries)('%s groups by what its metrics bear', (_name, query) => {
    const borne = new Set([...OF_THE_TARGET, ...selectors(query).flatMap(({ metric }) => [...(scraped.get(metric) ?? [])])]);
    for (const label of grouped(query)) expect([...borne]).toContain(label);
  });

  it('are read with care: a slip, another metric, another label and another value are seen', () => {
    expect(slips('sum by (job (rate(sallyport_requests_total[5m]))')).not.toEqual([]);
    expect(selectors('rate(a{b="c", d=~"e|f"}[5m]) / on (g) h')).toEqual([
      {
        metric: 'a',
        labels: new Map([
          ['b', 'c'],
          ['d', 'e|f'],
        ]),
      },
      { metric: 'h', labels: new Map() },
    ]);
    expect(grouped('sum by (x, le) (a) / on (y) b')).toEqual(['x', 'le', 'y']);
    expect(scraped.get('sallyport_requests_total')).toEqual(new Set(['decision', 'reason', 'rule', 'protocol', 'status_class']));
    expect(known('sallyport_requests_total', 'reason')).not.toSatisfy(fitting('not_alowlisted'));
  });
});

describe('the alerts', () => {
  it('have each a name of their own, a severity, a summary and what to do', () => {
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
    for (const { alert, labels, annotations } of rules) {
      expect(alert).toMatch(/^Sallyport[A-Z]/);
      expect(['critical', 'warning', 'info']).toContain(labels.severity);
      expect(annotations.summary.length).toBeGreaterThan(10);
      expect(annotations.description.length).toBeGreaterThan(40);
    }
  });

  it('name in their texts only labels that their queries keep', () => {
    for (const { alert, expr, annotations } of rules) {
      const kept = new Set([
        ...OF_THE_TARGET,
        ...grouped(expr),
        ...selectors(expr).flatMap(({ metric }) => [...(scraped.get(metric) ?? [])]),
      ]);
      const aggregated = /\bby \(/.test(expr) ? new Set(grouped(expr)) : kept;
      for (const [, label = ''] of Object.values(annotations)
        .join(' ')
        .matchAll(/\$labels\.(\w+)/g))
        expect([...aggregated], alert).toContain(label);
    }
  });

  it('are about refusals, credentials, upstreams, reloads, the store, faults and latency', () => {
    const names = rules.map(({ alert }) => alert).join(' ');
    for (const subject of [
      'Refusals',
      'CredentialExpiring',
      'UpstreamFailing',
      'ReloadRejected',
      'StoreAway',
      'Faults',
      'Slow',
      'NotReady',
    ])
      expect(names).toContain(`Sallyport${subject}`);
  });

  it('are the same in the chart', () => {
    const [inChart] = yamlDocuments(readFileSync(join(CHART, 'files', 'alerts.yaml'), 'utf8'));
    expect(inChart).toEqual(object(kubernetesLayout('monitoring'), 'PrometheusRule', 'sallyport').spec);
  });
});

describe('the dashboard', () => {
  it('shows every metric of ours but the sums and counts of histograms', () => {
    const shown = new Set(queries.flatMap(([, query]) => selectors(query).map(({ metric }) => metric)));
    const ours = [...scraped.keys()].filter((name) => name.startsWith('sallyport_') && !/_(?:sum|count)$/.test(name));
    expect(ours.filter((name) => !shown.has(name))).toEqual([]);
  });

  it('has panels with ids of their own that do not lie over each other, and fit the 24 columns', () => {
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    const taken = new Set<string>();
    for (const { title, gridPos } of dashboard.panels) {
      expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          expect(taken.has(`${x},${y}`), title).toBe(false);
          taken.add(`${x},${y}`);
        }
      }
    }
  });

  it('asks the data source that is chosen, by variables that it defines', () => {
    const variables = dashboard.templating.list.map(({ name }) => name);
    expect(variables).toEqual(['datasource', 'job', 'instance']);
    for (const { type, title, datasource, targets } of dashboard.panels) {
      if (type === 'row') continue;
      expect(datasource?.uid, title).toBe('${datasource}');
      expect(targets?.length, title).toBeGreaterThan(0);
    }
    for (const [, variable = ''] of dashboardText.matchAll(/\$\{?(\w+)\}?/g))
      expect([...variables, '__rate_interval']).toContain(variable);
    for (const { definition = '' } of dashboard.templating.list) {
      const [, metric] = /^label_values\((\w+)/.exec(definition) ?? [];
      if (metric !== undefined) expect([...scraped.keys()]).toContain(metric);
    }
  });

  it('is the same in the chart', () => {
    expect(readFileSync(join(CHART, 'files', 'dashboard.json'), 'utf8')).toBe(dashboardText);
  });
});

it('a proxy that is ready says so in its scrape', async () => {
  expect((await askAdmin(house, '/readyz')).status).toBe(200);
  expect(await house.scrape()).toMatch(/^sallyport_ready 1$/m);
});

/** The query as Prometheus gets it: Grafana's interval filled in. */
const filled = (query: string): string => query.replaceAll('$__rate_interval', '1m');

/** Names and texts of all nodes. */
function nodes(query: string): { readonly name: string; readonly text: string; readonly from: number; readonly to: number }[] {
  const text = filled(query);
  const found: { name: string; text: string; from: number; to: number }[] = [];
  parser.parse(text).iterate({
    enter: ({ name, from, to }) => void found.push({ name, text: text.slice(from, to), from, to }),
  });
  return found;
}

/** Where the grammar does not fit. */
function slips(query: string): string[] {
  return nodes(query)
    .filter(({ name }) => name === '⚠')
    .map(({ from }) => `at ${from}`);
}

function selectors(query: string): Selected[] {
  return nodes(query)
    .filter(({ name }) => name === 'VectorSelector')
    .map(({ text }) => {
      const [, metric = '', inside = ''] = /^(\w+)(?:\{(.*)\})?$/s.exec(text) ?? [];
      const matchers = [...inside.matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"/g)];
      return { metric, labels: new Map(matchers.map(([, label = '', value = '']) => [label, value])) };
    });
}

function grouped(query: string): string[] {
  return nodes(query)
    .filter(({ name }) => name === 'GroupingLabels')
    .flatMap(({ text }) => text.replaceAll(/[()\s]/g, '').split(','));
}

const alternatives = (value: string): string[] => value.split('|').filter((one) => !one.startsWith('$'));

/** The values that a label can have, where its list is closed; undefined where it is not. */
function known(metric: string, label: string): readonly string[] | undefined {
  if (label === 'reason') return metric === 'sallyport_requests_total' ? Object.keys(CODES) : FAILURES;
  return CLOSED[label];
}

const FAILURES = ['unavailable', 'store_away', 'store_broken'];

const fitting =
  (pattern: string) =>
  (values: readonly string[] | undefined): boolean =>
    values === undefined || values.some((value) => new RegExp(`^(?:${pattern})$`).test(value));
