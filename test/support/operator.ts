// The operator's end of a house: the admin API with the token, and single numbers out of a scrape.
import { writeFile } from 'node:fs/promises';
import type { House } from './house.ts';

/** An answer of the admin API. */
export interface AdminAnswer {
  readonly status: number;
  readonly text: string;
  readonly json: Record<string, unknown>;
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
