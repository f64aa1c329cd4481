// Twin of src/egress.ts: what the journey makes of a step that ends it by throwing. The road itself is walked in test/scenarios.
import { describe, expect, it } from 'vitest';
import { createEgress } from '../src/egress.ts';
import type { Steps } from '../src/egress.ts';
import { Fault } from '../src/exchange/codes.ts';
import type { Dispatch } from '../src/exchange/stages.ts';
import type { Outcome } from '../src/exchange/trace.ts';
import { writeRefusal } from '../src/reply/write-refusal.ts';
import { exchangeArrival, routeOf, ruleOf, TEST_LIMITS } from './support/arrivals.ts';
import { RecordingReply } from './support/recording-reply.ts';

/** The outcome of an allowed exchange whose last step does as it likes. */
async function travel(send: Steps['send'], reply = new RecordingReply()): Promise<Outcome> {
  const arrival = exchangeArrival({ reply });
  const route = routeOf(arrival, ruleOf({ id: 'api.test' }));
  const outcomes: Outcome[] = [];
  const steps = {
    snapshot: () => ({ limits: TEST_LIMITS, credentials: new Map() }),
    readIntent: () => route.permit.intent,
    identify: () => route.permit.sandbox,
    decide: () => route.permit,
    findRoute: () => route,
    attachCredentials: () => ({ route, fields: [], credentials: [] }) as unknown as Dispatch,
    send,
    writeRefusal,
    record: (outcome: Outcome) => outcomes.push(outcome),
  };
  await createEgress(steps as unknown as Steps)(arrival);
  expect(outcomes).toHaveLength(1);
  return outcomes[0] as Outcome;
}

describe('a step that throws', () => {
  it.each([
    { thrown: new Fault('address_denied', 'no longer allowed'), decision: 'refuse', code: 'address_denied', status: 403 },
    { thrown: new Fault('request_timeout', 'fell silent'), decision: 'refuse', code: 'request_timeout', status: 408 },
    { thrown: new Fault('upstream_connect', 'not reached'), decision: 'fault', code: 'upstream_connect', status: 502 },
    { thrown: new Error('bug'), decision: 'fault', code: 'internal_error', status: 500 },
  ])('ends the journey as $decision, $code, $status', async ({ thrown, decision, code, status }) => {
    const reply = new RecordingReply();
    const outcome = await travel(() => Promise.reject(thrown), reply);
    expect([outcome.decision, outcome.verdict?.code, outcome.trace.status, reply.status]).toEqual([
      decision,
      code,
      status,
      status,
    ]);
  });
});
