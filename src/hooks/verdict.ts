// Many answers become one: the strictest decision wins, arguments are merged in order, steps are strung together.
// It must never let a later, milder answer take back an earlier one.
import { DECISIONS } from './words.ts';
import type { HandlerRun, HookAnswer, HookDecision } from './words.ts';

/** What the answers of an event come to. */
export interface Merged {
  readonly decision: HookDecision;
  readonly answer: HookAnswer;
  /** Keys of `answer.overwrite`, in the order in which they were first changed */
  readonly changedKeys: readonly string[];
}

const NO_ANSWER: HookAnswer = {};

/** The strictest of the answers. Where none has an opinion, `allow` with an answer that holds no decision. */
export function mergeAnswers(runs: readonly Pick<HandlerRun, 'answer'>[]): Merged {
  const answer = runs.reduce((merged, run) => mergeTwo(merged, run.answer), NO_ANSWER);
  return { decision: answer.decision ?? 'allow', answer, changedKeys: Object.keys(answer.overwrite ?? {}) };
}

/** How strict a decision is; no opinion is less than any. */
export function strictness(decision: HookDecision | undefined): number {
  return decision === undefined ? -1 : DECISIONS.indexOf(decision);
}

function mergeTwo(before: HookAnswer, after: HookAnswer): HookAnswer {
  const stricter = strictness(after.decision) > strictness(before.decision) ? after : before;
  const stopAgent = before.stopAgent ?? after.stopAgent;
  return {
    ...worded(stricter),
    ...joined(before, after),
    ...((before.overwrite ?? after.overwrite) && { overwrite: { ...before.overwrite, ...after.overwrite } }),
    ...((before.permissionOverrides ?? after.permissionOverrides) && {
      permissionOverrides: [...new Set([...(before.permissionOverrides ?? []), ...(after.permissionOverrides ?? [])])],
    }),
    ...((before.injectSteps ?? after.injectSteps) && {
      injectSteps: [...(before.injectSteps ?? []), ...(after.injectSteps ?? [])],
    }),
    ...endOf(before, after),
    ...(stopAgent === undefined ? {} : { stopAgent }),
  };
}

/** A decision with the words that belong to it alone. */
function worded({ decision, reason, reasonCode, publicMessage }: HookAnswer): HookAnswer {
  return {
    ...(decision === undefined ? {} : { decision }),
    ...(reason === undefined ? {} : { reason }),
    ...(reasonCode === undefined ? {} : { reasonCode }),
    ...(publicMessage === undefined ? {} : { publicMessage }),
  };
}

/** What every hook may add to. A loop that goes on is told the reason of each hook that wants it to. */
function joined(before: HookAnswer, after: HookAnswer): HookAnswer {
  const continueLoop = before.continueLoop === true || after.continueLoop === true;
  const reason =
    before.continueLoop === true && after.continueLoop === true ? lines(before.reason, after.reason) : wanted(before, after);
  const additionalContext = lines(before.additionalContext, after.additionalContext);
  const systemMessage = lines(before.systemMessage, after.systemMessage);
  return {
    ...(continueLoop ? { continueLoop, ...(reason === undefined ? {} : { reason }) } : {}),
    ...(additionalContext === undefined ? {} : { additionalContext }),
    ...(systemMessage === undefined ? {} : { systemMessage }),
  };
}

function wanted(before: HookAnswer, after: HookAnswer): string | undefined {
  return before.continueLoop === true ? before.reason : after.reason;
}

function lines(first: string | undefined, second: string | undefined): string | undefined {
  return first === undefined || second === undefined ? (first ?? second) : `${first}\n${second}`;
}

/** Ending beats going on, and going on beats nothing. */
function endOf(before: HookAnswer, after: HookAnswer): HookAnswer {
  const both = [before.terminationBehavior, after.terminationBehavior];
  const terminationBehavior =
    both.find((end) => end === 'terminate') ?? both.find((end) => end === 'force_continue') ?? both[0] ?? both[1];
  return terminationBehavior === undefined ? {} : { terminationBehavior };
}
