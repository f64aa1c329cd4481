// Where hook-runners report what they ran, so that one scrape of the proxy tells of its hooks too: they live too short to be scraped.
// Words that are not in the closed lists are refused, and of a report that holds one nothing is counted (fault L02).
import { z } from 'zod';
import { EVENT_NAMES, HANDLER_KINDS, HOOK_OUTCOMES } from '../exchange/hook-words.ts';
import type { CountedRun } from '../exchange/hook-words.ts';
import { AdminError } from './admin-error.ts';
import type { AdminRoute } from './admin-routes.ts';

/** Most runs of one report. */
export const MOST_RUNS = 1_000;

const MAX_BODY = 256 * 1024;
const LONGEST_MS = 24 * 60 * 60 * 1000;
const MOST_PROBLEMS = 3;

const REPORT = z.strictObject({
  runs: z
    .array(
      z.strictObject({
        event: z.enum(EVENT_NAMES),
        handler: z.enum(HANDLER_KINDS),
        outcome: z.enum(HOOK_OUTCOMES),
        duration_ms: z.number().min(0).max(LONGEST_MS),
      }),
    )
    .max(MOST_RUNS),
});

/** `POST /v1/hook-runs`: hands each run to `count`; answers 204, or 400 `invalid_request` with nothing counted. */
export function hookRunsRoute(count: (run: CountedRun) => void): AdminRoute {
  return {
    method: 'POST',
    url: '/v1/hook-runs',
    maxBody: MAX_BODY,
    summary: 'count {runs: [{event, handler, outcome, duration_ms}]} of a hook-runner',
    answer: ({ body }) => {
      for (const run of readReport(body)) count(run);
      return { status: 204, body: undefined };
    },
  };
}

function readReport(body: unknown): readonly CountedRun[] {
  const parsed = REPORT.safeParse(body);
  if (parsed.success) return parsed.data.runs.map(({ duration_ms, ...run }) => ({ ...run, durationMs: duration_ms }));
  const problems = parsed.error.issues
    .slice(0, MOST_PROBLEMS)
    .map((issue) => `${issue.path.join('.') || 'body'}: ${issue.message}`);
  throw new AdminError(
    'invalid_request',
    `expected {"runs": [{"event", "handler", "outcome", "duration_ms"}]}; ${problems.join('; ')}`,
  );
}
