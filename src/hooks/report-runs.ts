// Tells the proxy what ran, so that its metrics count the hooks: one small POST to the admin listener, straight to it and never through a proxy.
// It must never hold a decision up: no rejection, no retry, a second at most, and Node's HTTP is loaded only when there is something to tell.
import type { ClientRequest, IncomingMessage } from 'node:http';
import type { HandlerRun, HookEvent } from './words.ts';

/** Where the admin listener is, and its key. */
export interface ReportOptions {
  /** Its URL, `http:`, as `http://127.0.0.1:9090` */
  readonly admin: string;
  /** The admin token */
  readonly token: string;
  /** How long a report may take, `ms`. Default: 1,000 */
  readonly timeoutMs?: number;
}

/** Reports the runs of one event. Gives whether they were counted; never rejects. */
export type ReportRuns = (event: Pick<HookEvent, 'name'>, runs: readonly HandlerRun[]) => Promise<boolean>;

/** Most runs of one report; an event with more has them cut. */
const MOST_RUNS = 1_000;
/** Longest duration that the listener takes: a day */
const LONGEST_MS = 86_400_000;

/** Makes the reporter. A URL or token that cannot be used shows as `false` of every report. */
export function createReport(options: ReportOptions): ReportRuns {
  return async (event, runs) => {
    if (runs.length === 0) return true;
    const body = JSON.stringify({
      runs: runs.slice(0, MOST_RUNS).map((run) => ({
        event: event.name,
        handler: run.handler.kind,
        outcome: run.outcome,
        duration_ms: Math.min(Math.max(0, run.raw.durationMs), LONGEST_MS),
      })),
    });
    return post(options, body).catch(() => false);
  };
}

async function post({ admin, token, timeoutMs = 1_000 }: ReportOptions, body: string): Promise<boolean> {
  const { request } = await import('node:http');
  const url = new URL('/v1/hook-runs', admin);
  return new Promise((resolve, reject) => {
    const asked: ClientRequest = request(url, {
      method: 'POST',
      // An agent of its own: a global one may have been told to use a proxy.
      agent: false,
      headers: {
        authorization: `Bearer ${token}`,
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
        connection: 'close',
      },
    });
    const timer = setTimeout(() => {
      resolve(false);
      asked.destroy();
    }, timeoutMs);
    asked.on('response', (response: IncomingMessage) => {
      resolve(response.statusCode === 204);
      asked.destroy();
    });
    asked.on('error', reject);
    asked.on('close', () => {
      clearTimeout(timer);
      resolve(false);
    });
    asked.end(body);
  });
}
