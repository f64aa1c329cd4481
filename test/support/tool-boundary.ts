// A small agent runtime at the boundary where tools are called: a real registry, real hooks asked by the library, and destinations that count what
// really happened to them. It does what the verdict says and nothing else: no call without a permission, no receipt without evidence, no second
// attempt where the first may have had its effect.
import { createHooks, openHookLedger, readTools } from '../../src/hooks/index.ts';
import type { HookResult, Hooks, JsonObject } from '../../src/hooks/index.ts';
import type { Tools } from '../../src/hooks/tools.ts';

/** What the model proposes. */
export interface Proposal {
  readonly tool: string;
  readonly args: JsonObject;
}

/** What only the server knows. Handed to hooks beside the proposal, and never taken from it. */
export interface Trusted {
  readonly action_id: string;
  readonly trace_id: string;
  readonly actor: JsonObject;
  readonly approval?: JsonObject;
  /** The runtime's clock, ISO 8601 */
  readonly now: string;
}

/** What came of a call, as each of those who look at it sees it. */
export interface CallEnd {
  readonly state: 'done' | 'denied' | 'waits' | 'rejected' | 'unknown' | 'degraded';
  readonly publicMessage: string;
  readonly reasonCode: string | undefined;
  /** Who was alerted */
  readonly alerts: readonly string[];
}

/** A destination behind a tool: commits, and answers or is silent. */
export class Destination {
  /** Every commit, with the key of its action: the side effects */
  readonly effects: { readonly key: string; readonly args: JsonObject }[] = [];
  /** How often it was called, whatever came of it */
  attempts = 0;
  readonly #answer: (args: JsonObject, commit: () => void) => JsonObject;

  /** `answer` throws where the destination does not answer in time. */
  constructor(answer: (args: JsonObject, commit: () => void) => JsonObject) {
    this.#answer = answer;
  }

  call(args: JsonObject, key: string): JsonObject {
    this.attempts += 1;
    return this.#answer(args, () => void this.effects.push({ key, args }));
  }

  /** What is known of an action, for who may not try it again before asking. */
  statusOf(key: string): 'committed' | 'unknown' {
    return this.effects.some((effect) => effect.key === key) ? 'committed' : 'unknown';
  }
}

/** The runtime. */
export interface Boundary {
  readonly tools: Tools;
  call(proposal: Proposal, trusted: Trusted): Promise<CallEnd>;
  close(): Promise<void>;
}

/** What the person hears where no hook has words of its own. Nothing happened, or it is not known: never the same sentence for both. */
export const MESSAGES = {
  denied: 'This could not be checked, so nothing was changed.',
  waits: 'Somebody has to look at this first. Nothing was changed yet.',
  unknown: 'This is being checked. Please do not send it again.',
  degraded: 'This was found, and could not be verified.',
  done: 'Done.',
} as const;

/** Opens the boundary over a registry file. */
export function openBoundary(options: {
  readonly workspace: string;
  readonly home: string;
  readonly registry: string;
  readonly destinations: Readonly<Record<string, Destination>>;
  readonly hooks: string;
  readonly ledger: { readonly path: string; readonly spool: string };
  readonly proxy?: string;
}): Boundary {
  const { tools, problems } = readTools(options.registry);
  if (problems.length > 0) throw new Error(JSON.stringify(problems));
  const hooks = createHooks({
    workspace: options.workspace,
    home: options.home,
    files: [options.hooks],
    tools,
    ledger: openHookLedger({ ...options.ledger, pauseMs: 5 }),
    allowHttp: true,
    ...(options.proxy === undefined ? {} : { proxy: options.proxy }),
  });
  return {
    tools,
    call: (proposal, trusted) => call({ hooks, tools, destinations: options.destinations }, proposal, trusted),
    close: () => hooks.close(),
  };
}

interface Inside {
  readonly hooks: Hooks;
  readonly tools: Tools;
  readonly destinations: Readonly<Record<string, Destination>>;
}

async function call({ hooks, tools, destinations }: Inside, { tool, args }: Proposal, trusted: Trusted): Promise<CallEnd> {
  const destination = destinations[tool];
  if (destination === undefined) throw new Error(`the test has no destination for "${tool}"`);
  const payload = { tool_name: tool, tool_input: args, session_id: 'ses_1', hook_event_name: 'PreToolUse', ...trusted };
  const before = await hooks.run('PreToolUse', payload);
  const asked = refused(before);
  if (asked !== undefined) {
    await before.recorded;
    return asked;
  }
  const answered = attempt(destination, { args, key: trusted.action_id, isRead: tools.get(tool)?.risk === 'low' });
  const after = await hooks.run('PostToolUse', { ...payload, hook_event_name: 'PostToolUse', tool_response: answered });
  await Promise.all([before.recorded, after.recorded]);
  return receipt(after);
}

function refused({ verdict }: HookResult): CallEnd | undefined {
  const { decision, answer, alert } = verdict;
  if (decision === 'allow' || decision === 'auto_approve') return undefined;
  const state = decision === 'deny' ? 'denied' : 'waits';
  return {
    state,
    publicMessage: answer.publicMessage ?? MESSAGES[state],
    reasonCode: answer.reasonCode,
    alerts: alert === undefined ? [] : [alert],
  };
}

/** A read is tried once more; what may have had its effect is looked up instead, by the same key. */
function attempt(
  destination: Destination,
  { args, key, isRead }: { readonly args: JsonObject; readonly key: string; readonly isRead: boolean },
): JsonObject {
  try {
    return destination.call(args, key);
  } catch {
    return isRead ? destination.call(args, key) : { error: 'timeout', reconciled: destination.statusOf(key) };
  }
}

function receipt({ verdict }: HookResult): CallEnd {
  const { answer, effect, alert } = verdict;
  const alerts = alert === undefined ? [] : [alert];
  const { reasonCode, publicMessage } = answer;
  if (effect !== 'known') return { state: effect, publicMessage: MESSAGES[effect], reasonCode, alerts };
  if (verdict.decision === 'deny') {
    const state = reasonCode === 'outcome_unknown' ? 'unknown' : 'rejected';
    return { state, publicMessage: publicMessage ?? MESSAGES.unknown, reasonCode, alerts };
  }
  return { state: 'done', publicMessage: publicMessage ?? MESSAGES.done, reasonCode, alerts };
}
