// What a probe comes to, and how several tries of one probe make one finding.
// It must never call a way closed that was not tried: what could not be tried is unknown, and says why.

/** What a probe found. `works` and `broken` are said of the door alone. */
export type Result = 'open' | 'closed' | 'unknown' | 'works' | 'broken';

/** One try: a place, and what came of it. */
export interface Try {
  readonly result: 'open' | 'closed' | 'unknown';
  readonly place: string;
  readonly why: string;
}

/** What a probe found, with its reasons. */
export interface Finding {
  readonly result: Result;
  /** What was tried, place by place */
  readonly tried: string;
  readonly why: string;
}

/** One finding of several tries: open where one is, else unknown where one is, else closed. Without any it is closed, for `nothing`. */
export function together(tries: readonly Try[], nothing = 'there was nothing to try'): Finding {
  if (tries.length === 0) return { result: 'closed', tried: 'nothing', why: nothing };
  const result = (['open', 'unknown', 'closed'] as const).find((each) => tries.some((one) => one.result === each)) ?? 'unknown';
  const reasons = new Map<string, string[]>();
  for (const { result: each, place, why } of tries) {
    if (each !== result) continue;
    reasons.set(why, [...(reasons.get(why) ?? []), place]);
  }
  return {
    result,
    tried: [...new Set(tries.map(({ place }) => place))].join(', '),
    why: [...reasons].map(([why, places]) => `${[...new Set(places)].join(', ')}: ${why}`).join('; '),
  };
}
