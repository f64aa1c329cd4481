// The closed lists of the hooks that more than one room speaks of: the runner, the metrics and the admin route that hears of runs.
// Lists and one type, nothing else; a value that is not in them must never become a label (fault L02).

/** Every event of every dialect. PreToolUse and PostToolUse are known to two of them. */
export const EVENT_NAMES = [
  'pre_tool_execution',
  'post_tool_execution',
  'SessionStart',
  'PreToolUse',
  'PostToolUse',
  'PreInvocation',
  'PostInvocation',
  'Stop',
] as const;

/** One of them. */
export type EventName = (typeof EVENT_NAMES)[number];

/** How a tool call is gated, from the least strict to the strictest. */
export const DECISIONS = ['allow', 'auto_approve', 'ask', 'force_ask', 'review', 'deny_unless_prior_grant', 'deny'] as const;

/** One of them. `review` is ours: a human has to look. */
export type HookDecision = (typeof DECISIONS)[number];

/** The kinds of handler. */
export const HANDLER_KINDS = ['command', 'http'] as const;

/** One of them. */
export type HandlerKind = (typeof HANDLER_KINDS)[number];

/** Every way in which a hook can fail (fault M08), and what it means, for people. */
export const FAILURES = {
  exit_status: 'the command ended with a status that is not 0',
  signal: 'the command was ended by a signal',
  not_started: 'the command could not be started',
  timeout: 'no answer within the time limit',
  output_too_large: 'the output is larger than the cap',
  not_json: 'the output is not JSON',
  broken_json: 'the output begins as JSON and does not end as such',
  unknown_answer: 'the output is JSON that means nothing for this event',
  no_decision: 'the hook must decide and said nothing',
  http_status: 'the endpoint answered with a status that is not 2xx',
  redirect: 'the endpoint answered with a redirect, and none is followed',
  unreachable: 'the endpoint or the proxy could not be reached',
  tls: 'the TLS handshake failed',
  refused_by_proxy: 'the proxy refused the request',
  no_proxy: 'no proxy is named, and hooks go out through one',
  not_https: 'the URL is not https',
  invalid_url: 'the URL is not one that may be posted to',
  unresolved_variable: 'a header holds a variable that cannot be resolved',
  invalid_header: 'a header is not one that may be sent',
} as const;

/** One of their names. */
export type HookFailureCode = keyof typeof FAILURES;

/** What came of one handler's run: what it said, `none` where it had no opinion, or how it failed. */
export type HookOutcome = HookDecision | 'none' | HookFailureCode;

/** All of them. */
export const HOOK_OUTCOMES: readonly HookOutcome[] = [...DECISIONS, 'none', ...(Object.keys(FAILURES) as HookFailureCode[])];

/** One handler's run, as the metrics count it. */
export interface CountedRun {
  readonly event: EventName;
  readonly handler: HandlerKind;
  readonly outcome: HookOutcome;
  /** From the moment the handler had started, `ms` */
  readonly durationMs: number;
}
