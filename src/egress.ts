// THE journey: every arrival, whichever door it came through, takes this road and leaves one line in the ledger, a tunnel whose
// exchanges left theirs excepted. Read it first.
// Each step takes what the one before it made, so that none can be skipped; the first refusal ends the journey.
// Nothing is decided here, and there is no second road.
import { Fault, isRefusal, Refusal, toVerdict } from './exchange/codes.ts';
import type { Snapshot, Limits } from './exchange/snapshot.ts';
import type { Arrival, Dispatch, Intent, Permit, Route, Sandbox, TunnelArrival } from './exchange/stages.ts';
import { Trace } from './exchange/trace.ts';
import type { Decision, Outcome } from './exchange/trace.ts';

/** A step that is done at once most of the time; then nobody waits for it. */
type Later<T> = T | Promise<T>;

/** The steps, each from its own room. A Refusal ends the journey as policy's answer, a thrown Fault as the world's. */
export interface Steps {
  readonly snapshot: () => Snapshot;
  readonly readIntent: (arrival: Arrival, limits: Limits) => Intent | Refusal;
  readonly identify: (intent: Intent, registry: Snapshot['sandboxes']) => Sandbox | Refusal;
  readonly decide: (intent: Intent, sandbox: Sandbox) => Permit | Refusal;
  readonly findRoute: (permit: Permit, trace: Trace, dnsMs: number) => Later<Route | Refusal>;
  readonly attachCredentials: (route: Route, declared: Snapshot['credentials']) => Later<Dispatch | Refusal>;
  readonly send: (dispatch: Dispatch, trace: Trace, limits: Limits) => Promise<Refusal | undefined>;
  readonly writeRefusal: (arrival: Arrival, verdict: Refusal | Fault) => number;
  readonly record: (outcome: Outcome) => void;
}

/** Builds the journey. The function it returns never rejects. */
export function createEgress(steps: Steps): (arrival: Arrival) => Promise<void> {
  return async function egress(arrival) {
    const trace = new Trace();
    let verdict: Refusal | Fault | undefined;
    try {
      verdict = await journey(arrival, steps.snapshot(), trace);
      if (verdict instanceof Refusal && arrival.purpose === 'tunnel') trace.carried = await told(arrival, trace);
    } catch (thrown) {
      verdict = toVerdict(thrown);
    }
    if (verdict !== undefined) trace.status = steps.writeRefusal(arrival, verdict) || trace.status;
    if (arrival.purpose === 'tunnel' && trace.carried > 0) return;
    const durationMs = performance.now() - arrival.arrivedAt;
    steps.record({ arrival, trace, verdict, decision: decisionOf(verdict, trace), durationMs });
  };

  async function journey(arrival: Arrival, snapshot: Snapshot, trace: Trace): Promise<Refusal | Fault | undefined> {
    const { limits } = snapshot;
    const intent = steps.readIntent(arrival, limits);
    if (isRefusal(intent)) return intent;
    trace.intent = intent;
    const sandbox = steps.identify(intent, snapshot.sandboxes);
    if (isRefusal(sandbox)) return sandbox;
    trace.sandbox = sandbox.id;
    const permit = steps.decide(intent, sandbox);
    if (isRefusal(permit)) return permit;
    trace.permit = permit;
    if (arrival.purpose === 'lookup') {
      arrival.answer();
      return undefined;
    }
    const isTunnel = arrival.purpose === 'tunnel';
    // A name is resolved once, for the request inside; an address needs no resolver, so a CONNECT to one inside the walls ends here.
    if (isTunnel && !intent.authority.address) return live(await arrival.open(intent.authority, permit.rule.passthrough), trace);
    const found = steps.findRoute(permit, trace, limits.dnsMs);
    const route = found instanceof Promise ? await found : found;
    if (isRefusal(route)) return route;
    if (isTunnel) return live(await arrival.open(intent.authority, permit.rule.passthrough), trace);
    const attached = steps.attachCredentials(route, snapshot.credentials);
    const dispatch = attached instanceof Promise ? await attached : attached;
    if (isRefusal(dispatch)) return dispatch;
    trace.credentials = dispatch.credentials;
    return await steps.send(dispatch, trace, limits);
  }
}

/** How many requests heard the refusal of their tunnel, each in an exchange of its own; see TunnelArrival. */
async function told(arrival: TunnelArrival, { intent }: Trace): Promise<number> {
  if (intent === undefined || arrival.tell === undefined) return 0;
  return (await arrival.tell(intent.authority)).carried;
}

/** What was carried in a tunnel has its own lines in the ledger; a tunnel that carried nothing has this one. */
function live(
  end: { readonly carried: number; readonly verdict: Refusal | Fault | undefined },
  trace: Trace,
): Refusal | Fault | undefined {
  trace.carried = end.carried;
  trace.status = 200;
  return end.verdict;
}

function decisionOf(verdict: Refusal | Fault | undefined, trace: Trace): Decision {
  if (verdict instanceof Refusal) return 'refuse';
  if (verdict instanceof Fault) return 'fault';
  return trace.permit?.wouldRefuse === undefined ? 'allow' : 'would_refuse';
}
