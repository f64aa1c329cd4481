// The operator's end of the wire: the admin listener of a house, asked as an operator or a monitor would ask it.
// Waiting is bounded and by looking again, for a watched file is the one thing that no event of ours announces.
import type { House } from './house.ts';

/** An answer of the admin listener. */
export interface AdminAnswer {
  readonly status: number;
  readonly body: Record<string, unknown>;
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

/** Asks with the admin token. */
export async function askAdmin(house: House, path: string, init: RequestInit = {}): Promise<AdminAnswer> {
  const headers = { ...(init.headers as Record<string, string> | undefined), authorization: `Bearer ${house.adminToken}` };
  const answer = await fetch(`http://127.0.0.1:${house.adminPort}${path}`, { ...init, headers });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
}

/** `/v1/status`. */
export async function statusOf(house: House): Promise<Status> {
  return (await askAdmin(house, '/v1/status')).body as unknown as Status;
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
