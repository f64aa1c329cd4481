// Outcomes for the tests of the ledger: real values of every stage, made in one line, each place open to a change.
import { parseAuthority } from '../../src/exchange/authority.ts';
import { Fault } from '../../src/exchange/codes.ts';
import type { Refusal } from '../../src/exchange/codes.ts';
import type { ReplyPort } from '../../src/exchange/reply-port.ts';
import type { Rule } from '../../src/exchange/rule.ts';
import { makeIntent, makePermit } from '../../src/exchange/stages.ts';
import type { Arrival, Ceiling, Door, Permit, Protocol, Scheme } from '../../src/exchange/stages.ts';
import { Trace } from '../../src/exchange/trace.ts';
import type { Decision, Outcome } from '../../src/exchange/trace.ts';
import { Secret } from '../../src/foundation/secret.ts';
import type { Code } from '../../src/exchange/codes.ts';

export interface Wanted {
  method?: string;
  target?: string;
  fields?: readonly string[];
  door?: Door;
  protocol?: Protocol;
  purpose?: 'exchange' | 'tunnel';
  ceiling?: Ceiling;
  /** `null`: the syntax failed, there is no Intent */
  authority?: string | null;
  scheme?: Scheme | null;
  path?: string;
  query?: string;
  identity?: string;
  rule?: string | null;
  wouldRefuse?: Code;
  secret?: string;
  verdict?: Refusal | Fault;
  decision?: Decision;
  durationMs?: number;
  trace?: Partial<Trace>;
}

const reply: ReplyPort = {
  headSent: true,
  closed: false,
  listen: () => undefined,
  invite: () => undefined,
  interim: () => undefined,
  head: () => undefined,
  write: () => true,
  end: () => undefined,
  switchProtocols: () => {
    throw new Error('internal error: nobody upgrades here');
  },
  abort: () => undefined,
};

export function ruleNamed(id: string, secret = 'transform-value'): Rule {
  return {
    id,
    ports: undefined,
    methods: undefined,
    paths: undefined,
    opened: { key: '', contains: () => false },
    passthrough: false,
    monitor: false,
    injection: {
      credential: 'github',
      transform: [{ name: 'Authorization', value: new Secret(secret) }],
      unavailable: undefined,
      mode: 'set',
      allowPlaintext: false,
      keep: new Set(),
    },
  };
}

/** An allowed GET https://api.github.com/repos?page=2 unless told otherwise. */
export function outcome(wanted: Wanted = {}): Outcome {
  const arrival = arrivalOf(wanted);
  const trace = Object.assign(new Trace(), { sandbox: 'box-1', status: 200 }, wanted.trace);
  if (wanted.authority !== null) Object.assign(trace, stagesOf(wanted, arrival));
  const { verdict } = wanted;
  const decision = wanted.decision ?? (verdict === undefined ? 'allow' : verdict instanceof Fault ? 'fault' : 'refuse');
  return { arrival, trace, verdict, decision, durationMs: wanted.durationMs ?? 12.34567 };
}

function arrivalOf(wanted: Wanted): Arrival {
  const base = {
    requestId: '7b1c0e52-8a53-4b9e-9a39-0c1f3b1f0a11',
    arrivedAt: 1000,
    door: wanted.door ?? 'tunnel',
    protocol: wanted.protocol ?? 'http/1.1',
    method: wanted.method ?? 'GET',
    target: wanted.target ?? '/repos?page=2',
    fields: wanted.fields ?? [],
    pseudo: undefined,
    version: '1.1',
    trouble: undefined,
    ceiling: wanted.ceiling,
    origin: undefined,
    client: '10.1.2.3',
    reply,
  } as const;
  if (wanted.purpose === 'tunnel') return { ...base, purpose: 'tunnel', open: async () => ({ carried: 0, verdict: undefined }) };
  return { ...base, purpose: 'exchange', body: undefined };
}

function stagesOf(wanted: Wanted, arrival: Arrival): Pick<Trace, 'intent' | 'permit'> {
  const authority = parseAuthority(wanted.authority ?? 'api.github.com:443');
  if (authority === undefined) throw new Error(`internal error: no authority "${String(wanted.authority)}"`);
  const intent = makeIntent({
    arrival,
    scheme: wanted.scheme === null ? undefined : (wanted.scheme ?? 'https'),
    authority,
    path: wanted.path ?? '/repos',
    query: wanted.query ?? '?page=2',
    identity: wanted.identity,
  });
  if (wanted.rule === null) return { intent, permit: undefined };
  const policy = { denied: () => undefined, rulesFor: () => [] };
  const rule = ruleNamed(wanted.rule ?? 'api.github.com', wanted.secret);
  const permit: Permit = makePermit({ intent, sandbox: { id: 'box-1', policy }, rule, wouldRefuse: wanted.wouldRefuse });
  return { intent, permit };
}
