// What was measured on the way: numbers only, filled in by the rooms that do the work, read once by the ledger.
// It must never hold a decision or a secret; decisions are stages, and stages do not change.
import type { Refusal, Fault } from './codes.ts';
import type { Arrival, Intent, Permit } from './stages.ts';
import type { Host } from './authority.ts';

/** The measurements of one exchange. All durations in `ms`; -1 where the phase did not take place. */
export class Trace {
  intent: Intent | undefined = undefined;
  permit: Permit | undefined = undefined;
  sandbox = '';
  credentials: readonly string[] = [];
  /** The upstream address that was dialled or reused */
  address: Host | undefined = undefined;
  /** Exchanges that came out of a tunnel, where the arrival was one */
  carried = 0;
  /** Status that the sandbox got; 0 where none was sent */
  status = 0;
  /** Body bytes toward the upstream */
  bytesSent = 0;
  /** Body bytes from the upstream */
  bytesReceived = 0;
  dnsMs = -1;
  connectMs = -1;
  tlsMs = -1;
  /** From the request being handed over to the first byte of the answer */
  waitMs = -1;
  /** `performance.now()` when the request was handed to the upstream connection */
  dispatchedAt = 0;
}

/** How an exchange ended. */
export type Decision = 'allow' | 'refuse' | 'would_refuse' | 'fault';

/** The one value from which the ledger line and the metrics of an exchange are made. */
export interface Outcome {
  readonly arrival: Arrival;
  readonly trace: Trace;
  readonly verdict: Refusal | Fault | undefined;
  readonly decision: Decision;
  readonly durationMs: number;
}
