// Twin of src/egress.ts: what the journey makes of a step that ends it by throwing. The road itself is walked in test/scenarios.
import { describe, expect, it } from 'vitest';
import { createEgress } from '../src/egress.ts';
import type { Steps } from '../src/egress.ts';
import { Fault, Refusal } from '../src/exchange/codes.ts';
import type { Arrival, Dispatch } from '../src/exchange/stages.ts';
import type { Outcome } from '../src/exchange/trace.ts';
import { writeRefusal } from '../src/reply/write-refusal.ts';
import {
  exchangeArrival,
  intentOf,
  lookupArrival,
  permitOf,
  routeOf,
  ruleOf,
  TEST_LIMITS,
  tunnelArrival,
} from './support/arrivals.ts';
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

/** The outcomes of an arrival that policy lets pass or not. */
async function judge(arrival: Arrival, verdict?: Refusal): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  const steps = {
    snapshot: () => ({ limits: TEST_LIMITS, credentials: new Map() }),
    readIntent: () => intentOf(arrival),
    identify: () => ({ id: 'default' }),
    decide: () => verdict ?? permitOf(arrival),
    writeRefusal,
    record: (outcome: Outcome) => outcomes.push(outcome),
  };
  await createEgress(steps as unknown as Steps)(arrival);
  return outcomes;
}

const REFUSED = new Refusal('not_allowlisted', 'no rule names it');

describe('the refusal of a tunnel that has no words of its own', () => {
  const telling = (carried: number) => {
    const told: string[] = [];
    const tell = ({ host, port }: { readonly host: string; readonly port: number }) => {
      told.push(`${host}:${port}`);
      return Promise.resolve({ carried, verdict: undefined });
    };
    return { told, arrival: { ...tunnelArrival(), tell } };
  };

  it('is told to the requests inside, which have their own lines', async () => {
    const { arrival, told } = telling(2);
    expect(await judge(arrival, REFUSED)).toEqual([]);
    expect(told).toEqual(['example.com:443']);
  });

  it('has a line where no request came to hear it', async () => {
    const [outcome] = await judge(telling(0).arrival, REFUSED);
    expect(outcome).toMatchObject({ decision: 'refuse', verdict: REFUSED });
  });
});

describe('a lookup', () => {
  const asked = () => {
    const heard: string[] = [];
    const arrival = lookupArrival({ answer: () => heard.push('answer'), decline: (code) => heard.push(code) });
    return { heard, arrival };
  };

  it('is answered where policy knows the name, and nobody else is asked', async () => {
    const { arrival, heard } = asked();
    expect(await judge(arrival)).toMatchObject([{ decision: 'allow', verdict: undefined }]);
    expect(heard).toEqual(['answer']);
  });

  it('is declined where it does not', async () => {
    const { arrival, heard } = asked();
    expect(await judge(arrival, REFUSED)).toMatchObject([{ decision: 'refuse', trace: { status: 0 } }]);
    expect(heard).toEqual(['not_allowlisted']);
  });
});
