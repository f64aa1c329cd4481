// The road of an event: the rules that it matches, their handlers one after another, one verdict, one line for each run. Read it first.
// A deny ends it at once. What a failure comes to stands in failure-policy.ts, what an answer means in its dialect; neither is decided here.
import type { Dialect } from './dialect.ts';
import { isFailure } from './dialect.ts';
import { alertFor, effectAfter, evidenceFor, mayRetry, onFailureOf } from './failure-policy.ts';
import type { HookFailure } from './failures.ts';
import { callLine, hookLine } from './hook-line.ts';
import { handlerKey } from './read-handler.ts';
import type { Tool } from './tools.ts';
import { mergeAnswers } from './verdict.ts';
import type {
  HandlerRun,
  HookAnswer,
  HookEvent,
  HookHandler,
  HookLedger,
  HookLine,
  HookRule,
  HookSet,
  RawRun,
  Verdict,
} from './words.ts';

/** What the road needs of the rest of the house. */
export interface EventRoad {
  readonly dialect: Dialect;
  /** Runs one handler; never rejects */
  readonly run: (handler: HookHandler, rule: HookRule, event: HookEvent) => Promise<RawRun>;
  readonly ledger: HookLedger;
  /** What the registry knows of the event's tool */
  readonly tool: Tool | undefined;
  /** Whether lines hold the call's arguments */
  readonly recordArguments: boolean;
  /** `Stop`: how many times in a row the loop may be sent on */
  readonly maxContinuations: number;
}

/** What came of an event. */
export interface EventEnd {
  readonly verdict: Verdict;
  /** What became of its lines; where no evidence is required, nobody has waited for it */
  readonly recorded: ReturnType<HookLedger['write']>;
}

/** Runs what the event matches. Never rejects. */
export async function runEvent(event: HookEvent, set: HookSet, road: EventRoad): Promise<EventEnd> {
  const broken = event.moment === 'before' ? set.problems.find(({ severity }) => severity === 'error') : undefined;
  if (broken !== undefined) {
    const place = broken.path === '' ? broken.file : `${broken.file}: ${broken.path}`;
    return endWith(event, road, {
      runs: [],
      refusal: { decision: 'deny', reasonCode: 'hooks_invalid', reason: `${place}: ${broken.message}` },
    });
  }
  const runs: HandlerRun[] = [];
  let current = event;
  for (const { rule, handler } of matching(event, set, road.dialect)) {
    const run = await runOnce(current, { rule, handler }, road);
    runs.push(run);
    if (event.moment === 'before' && run.answer.decision === 'deny') break;
    current = withOverwrite(current, run.answer, road.dialect);
  }
  return endWith(event, road, { runs, refusal: undefined });
}

/** A handler with the rule that it stands in. */
interface Place {
  readonly rule: HookRule;
  readonly handler: HookHandler;
}

function matching(event: HookEvent, set: HookSet, { twinsRunOnce }: Dialect): Place[] {
  const { tool } = event;
  const places = set.rules
    .filter((rule) => rule.enabled && rule.event === event.name && rule.dialect === event.dialect)
    .filter((rule) => tool === undefined || rule.matcher.matches(tool.name))
    .flatMap((rule) => rule.handlers.map((handler) => ({ rule, handler })));
  return twinsRunOnce
    ? [...new Map(places.map((place) => [handlerKey(place.handler), place] as const).reverse()).values()].reverse()
    : places;
}

async function runOnce(event: HookEvent, { rule, handler }: Place, road: EventRoad): Promise<HandlerRun> {
  const risk = road.tool?.risk;
  let raw = await road.run(handler, rule, event);
  let read = readRun(event, handler, raw, road.dialect);
  if (isFailure(read) && mayRetry(risk, read.code, raw.status)) {
    raw = await road.run(handler, rule, event);
    read = readRun(event, handler, raw, road.dialect);
  }
  if (!isFailure(read))
    return { handler, rule, raw, answer: read, outcome: outcomeOf(read), failure: undefined, onFailure: undefined };
  const onFailure = event.moment === 'before' ? onFailureOf({ handler, risk, dialect: road.dialect.onFailure }) : undefined;
  const answer = onFailure === undefined || onFailure === 'allow' ? {} : refusalFor(read, onFailure);
  return { handler, rule, raw, answer, outcome: read.code, failure: read, onFailure };
}

function readRun(event: HookEvent, handler: HookHandler, raw: RawRun, dialect: Dialect): HookAnswer | HookFailure {
  const read = dialect.readAnswer(event, raw, handler.kind);
  const silent = !isFailure(read) && event.moment === 'before' && read.decision === undefined;
  return silent && handler.requireDecision ? { code: 'no_decision', message: 'the hook must decide and said nothing' } : read;
}

function outcomeOf(answer: HookAnswer): HandlerRun['outcome'] {
  return answer.decision ?? 'none';
}

function refusalFor(failure: HookFailure, decision: 'deny' | 'review'): HookAnswer {
  return { decision, reason: `a hook failed: ${failure.message}`, reasonCode: `hook_${failure.code}` };
}

/** Later handlers judge the arguments that will really be used. */
function withOverwrite(event: HookEvent, answer: HookAnswer, dialect: Dialect): HookEvent {
  if (answer.overwrite === undefined || event.tool === undefined) return event;
  const args = { ...event.tool.args, ...answer.overwrite };
  return { ...event, tool: { ...event.tool, args }, payload: dialect.withArguments(event.payload, args) };
}

/** The verdict over the runs; a consequential call waits until its evidence is kept. */
async function endWith(
  event: HookEvent,
  road: EventRoad,
  { runs, refusal }: { readonly runs: readonly HandlerRun[]; readonly refusal: HookAnswer | undefined },
): Promise<EventEnd> {
  const merged = mergeAnswers(refusal === undefined ? runs : [{ answer: refusal }]);
  const failed = runs.some(({ failure }) => failure !== undefined);
  const alert = failed ? alertFor(road.tool) : undefined;
  const effect = event.moment === 'after' && failed ? effectAfter(road.tool).effect : 'known';
  const verdict: Verdict = { ...guardLoop(event, merged, road.maxContinuations), effect, alert, runs };
  const evidence = event.moment === 'before' ? evidenceFor(road.tool?.risk) : undefined;
  const recorded = record(event, verdict, { road, refusal });
  if (evidence === undefined || verdict.decision === 'deny') return { verdict, recorded };
  const lack = evidence(await recorded);
  if (lack === undefined) return { verdict, recorded };
  const { decision = 'deny' } = lack;
  const held = { ...verdict, decision, answer: { ...verdict.answer, ...lack }, alert: alertFor(road.tool) };
  // The lines that wait say what the hooks said; this one says that the call did not go on.
  return { verdict: held, recorded: road.ledger.write([callLine(event, held, { arguments: road.recordArguments })]) };
}

function record(
  event: HookEvent,
  verdict: Verdict,
  { road, refusal }: { readonly road: EventRoad; readonly refusal: HookAnswer | undefined },
): EventEnd['recorded'] {
  const options = { arguments: road.recordArguments };
  const lines: HookLine[] = verdict.runs.map((run) => hookLine(event, run, options));
  // A call that no hook was asked about leaves a line where it was refused, or where its evidence is wanted.
  if (lines.length === 0 && (refusal !== undefined || (event.moment !== 'loop' && road.tool?.risk === 'high'))) {
    lines.push(callLine(event, verdict, options));
  }
  return lines.length === 0 ? Promise.resolve('written') : road.ledger.write(lines);
}

/** A loop whose Stop hook is never content ends all the same. */
function guardLoop(
  event: HookEvent,
  merged: ReturnType<typeof mergeAnswers>,
  maxContinuations: number,
): ReturnType<typeof mergeAnswers> {
  const { executionNum } = event.payload;
  if (event.name !== 'Stop' || merged.answer.continueLoop !== true) return merged;
  if (typeof executionNum === 'number' && executionNum <= maxContinuations) return merged;
  const reason = `a Stop hook asked to go on, and the loop has been sent on ${maxContinuations} times already`;
  return { ...merged, answer: { ...merged.answer, continueLoop: false, reason, reasonCode: 'continuation_limit' } };
}
