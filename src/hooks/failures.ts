// Every way in which a hook can fail, by name (fault M08): one table, so that the ledger, the metrics, the README and the tests speak of the same.
// It must never hold output of a hook: messages are ours, and the output stands elsewhere, capped.
import { FAILURES } from '../exchange/hook-words.ts';
import type { HookFailureCode } from '../exchange/hook-words.ts';

export { FAILURES };
export type { HookFailureCode };

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
