// The operator's end of a house: the admin API with the token, and single numbers out of a scrape.
import { writeFile } from 'node:fs/promises';
import type { House } from './house.ts';

/** An answer of the admin API. */
export interface AdminAnswer {
  readonly status: number;
  readonly text: string;
  readonly json: Record<string, unknown>;
}

/** What `/v1/status` says, as far as tests read it. */
export interface Status {
  readonly generation: number;
  readonly credentials: readonly {
    readonly id: string;
    readonly type: string;
    readonly health: string;
    readonly reason?: string;
  }[];
  readonly warnings: readonly string[];
}

/** Asks the admin API with the admin token. A body makes it a POST. */
export async function askAdmin(house: House, path: string, body?: object): Promise<AdminAnswer> {
  const response = await fetch(`http://127.0.0.1:${house.adminPort}${path}`, {
    headers: { authorization: `Bearer ${house.adminToken}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, text, json: JSON.parse(text) as Record<string, unknown> };
}

/** The sum of a metric's samples whose labels hold every given pair. */
export function sampled(scrape: string, name: string, labels: Readonly<Record<string, string>> = {}): number {
  return scrape
    .split('\n')
    .filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `))
    .filter((line) => Object.entries(labels).every(([label, value]) => line.includes(`${label}="${value}"`)))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
}

/** Puts a text into the config file without a reload. */
export function writeConfig(house: House, text: string): Promise<void> {
  return writeFile(house.configPath, text);
}

/** `/v1/status`. */
export async function statusOf(house: House): Promise<Status> {
  return (await askAdmin(house, '/v1/status')).json as unknown as Status;
}

/** Looks at something until it fits; rejects after ten seconds with what was seen last. */
export async function untilIt<Seen>(look: () => Promise<Seen>, fits: (seen: Seen) => boolean): Promise<Seen> {
  for (const end = performance.now() + 10_000; ;) {
    const seen = await look();
    if (fits(seen)) return seen;
    if (performance.now() > end) throw new Error(`this did not come about within 10 s; last seen: ${JSON.stringify(seen)}`);
  }
}

/** The samples of a scrape by series; comments and the metrics of Node itself left out. */
export function seriesOf(text: string): ReadonlyMap<string, number> {
  const series = new Map<string, number>();
  for (const line of text.split('\n')) {
    const sample = /^(sallyport_\S*(?:\{.*\})?) (\S+)$/.exec(line);
    if (sample !== null) series.set(sample[1] as string, Number(sample[2]));
  }
  return series;
}
