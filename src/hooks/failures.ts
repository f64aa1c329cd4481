// Every way in which a hook can fail, by name (fault M08): one table, so that the ledger, the metrics, the README and the tests speak of the same.
// It must never hold output of a hook: messages are ours, and the output stands elsewhere, capped.

/** What each failure means, for people. */
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
  unresolved_variable: 'a header holds a variable that cannot be resolved',
  invalid_header: 'a header is not one that may be sent',
} as const;

/** One of their names; also an `outcome` of the metrics. */
export type HookFailureCode = keyof typeof FAILURES;

/** A failure with what is known about it. */
export interface HookFailure {
  readonly code: HookFailureCode;
  /** One line, lower case, no output of the hook */
  readonly message: string;
}

/** Makes a failure; `detail` follows the table's text after a colon. */
export function failed(code: HookFailureCode, detail?: string): HookFailure {
  return { code, message: detail === undefined ? FAILURES[code] : `${FAILURES[code]}: ${detail}` };
}
