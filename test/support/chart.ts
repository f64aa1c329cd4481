// Renders the Helm chart with Go's own template engine (compiled to WebAssembly), without Helm: the few functions of Helm that the chart
// uses are written out before the engine sees a template. It knows no other function, so a template that needs one fails here.
import { parse as render } from '@evertdespiegeleer/go-template';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { parse, stringify } from 'yaml';

/** The folder of the chart. */
export const CHART = join(import.meta.dirname, '..', '..', 'config', 'helm', 'sallyport');

type Values = Record<string, unknown>;

/** The values of values.yaml with others laid over them, as Helm lays them: objects are merged, everything else is replaced. */
export function chartValues(over: Values = {}): Values {
  return merged(parse(readFileSync(join(CHART, 'values.yaml'), 'utf8')) as Values, over);
}

/** Each template that is no library, by its file name, rendered for a release `door` in the namespace `agents`. */
export async function renderChart(over: Values = {}): Promise<Record<string, string>> {
  const values = chartValues(over);
  const shim: Record<string, string> = {};
  const templates = readdirSync(join(CHART, 'templates')).sort();
  const texts = new Map(
    templates.map((name) => [name, withoutHelm(readFileSync(join(CHART, 'templates', name), 'utf8'), { values, shim })]),
  );
  const libraries = templates.filter((name) => name.endsWith('.tpl')).map((name) => texts.get(name)!);
  const chart = parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8')) as { appVersion: string };
  const context = {
    Values: values,
    Release: { Name: 'door', Namespace: 'agents', Service: 'Helm' },
    Chart: { AppVersion: chart.appVersion },
    Shim: shim,
  };
  const rendered: Record<string, string> = {};
  for (const name of templates.filter((each) => !each.endsWith('.tpl')))
    rendered[name] = (await render(`${libraries.join('')}${texts.get(name)!}`, context)).trim();
  return rendered;
}

/** Every `.Values` path that a template names, without the root. */
export function valuePaths(): Set<string> {
  const paths = new Set<string>();
  for (const name of readdirSync(join(CHART, 'templates'))) {
    for (const [, path = ''] of readFileSync(join(CHART, 'templates', name), 'utf8').matchAll(/\.Values\.([\w.]+)/g))
      paths.add(path);
  }
  return paths;
}

/** `toYaml`, `.Files.Get`, `nindent`, `quote` and `fail` as the engine itself can say them. */
function withoutHelm(template: string, { values, shim }: { values: Values; shim: Record<string, string> }): string {
  const place = (key: string, text: string, indent: string): string => {
    shim[key] = `\n${text.trimEnd()}`.replaceAll(/\n(?=.)/g, `\n${' '.repeat(Number(indent))}`);
    return `index $.Shim ${JSON.stringify(key)}`;
  };
  return template
    .replaceAll(/toYaml \.Values\.([\w.]+) \| nindent (\d+)/g, (_all, path: string, indent: string) =>
      place(`${path} at ${indent}`, stringify(at(values, path)), indent),
    )
    .replaceAll(/\.Files\.Get "([^"]+)" \| nindent (\d+)/g, (_all, file: string, indent: string) =>
      place(`${file} at ${indent}`, readFileSync(join(CHART, file), 'utf8'), indent),
    )
    .replaceAll(/(\.[\w.]+) \| quote/g, 'printf "%q" $1')
    .replaceAll(/\bfail "/g, 'template "');
}

/** What is at a path such as `image.tag`. Throws where nothing is. */
export function at(values: unknown, path: string): unknown {
  return path.split('.').reduce((inner: unknown, key) => {
    if (typeof inner !== 'object' || inner === null || !(key in inner)) throw new Error(`values.yaml has no "${path}"`);
    return (inner as Values)[key];
  }, values);
}

function merged(below: Values, over: Values): Values {
  const result = { ...below };
  for (const [key, value] of Object.entries(over)) {
    const present = result[key];
    result[key] = isObject(present) && isObject(value) ? merged(present, value) : value;
  }
  return result;
}

function isObject(value: unknown): value is Values {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
