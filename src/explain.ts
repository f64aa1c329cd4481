// What would the door say: judges a made-up request with the journey's own intake and policy, and sends nothing.
// It must never resolve a name, reveal a value, or judge in any way but by the same functions that judge real requests.
import { CODES, isRefusal } from './exchange/codes.ts';
import type { Code, Refusal } from './exchange/codes.ts';
import type { ReplyPort } from './exchange/reply-port.ts';
import type { InjectionMode } from './exchange/rule.ts';
import type { Snapshot } from './exchange/snapshot.ts';
import type { ExchangeArrival, Permit } from './exchange/stages.ts';
import { readIntent } from './intake/read-intent.ts';
import { decide } from './policy/decide.ts';

/** A question of the form "may this sandbox do that". */
export interface Question {
  readonly method: string;
  /** Absolute http or https URL */
  readonly url: string;
  /** Id; left out: the only sandbox */
  readonly sandbox?: string | undefined;
}

/** The answer. Holds names and ids, never a value. */
export interface Explanation {
  readonly decision: 'allow' | 'refuse' | 'would_refuse';
  readonly reason: Code | null;
  readonly rule: string | null;
  readonly detail: string;
  readonly hint: string | null;
  /** Id of the credential that would be put on */
  readonly credentials: readonly string[];
  /** Names of the fields that `transform` would put on */
  readonly transform: readonly string[];
  readonly mode: InjectionMode | null;
  readonly passthrough: boolean;
}

/** Judges the question by a snapshot. Whether the addresses behind the name are allowed shows only when it is resolved, which this never does. */
export function explain(snapshot: Snapshot, question: Question): Explanation {
  const id = question.sandbox ?? (snapshot.sandboxes.required ? undefined : 'default');
  const sandbox = id === undefined ? undefined : snapshot.sandboxes.byId(id);
  if (sandbox === undefined) {
    const known = snapshot.sandboxes.ids.join(', ');
    return refused(
      'sandbox_unauthenticated',
      id === undefined ? `say which sandbox asks: ${known}` : `there is no sandbox "${id}"; there are: ${known}`,
    );
  }
  const intent = readIntent(imagined(question), snapshot.limits);
  if (isRefusal(intent)) return refusedBy(intent);
  const permit = decide(intent, sandbox);
  return isRefusal(permit) ? refusedBy(permit) : allowed(permit);
}

function refusedBy(refusal: Refusal): Explanation {
  return refused(refusal.code, refusal.detail, refusal.rule);
}

function refused(reason: Code, detail: string, rule?: string): Explanation {
  return {
    decision: 'refuse',
    reason,
    rule: rule ?? null,
    detail,
    hint: CODES[reason].hint,
    credentials: [],
    transform: [],
    mode: null,
    passthrough: false,
  };
}

function allowed({ rule, intent, wouldRefuse }: Permit): Explanation {
  const { injection } = rule;
  if (injection !== undefined && intent.scheme === 'http' && !injection.allowPlaintext) {
    return refused(
      'plaintext_credential',
      'the rule puts fields on, which plain http would show to everyone on the way',
      rule.id,
    );
  }
  return {
    decision: wouldRefuse === undefined ? 'allow' : 'would_refuse',
    reason: wouldRefuse ?? null,
    rule: rule.id,
    detail:
      wouldRefuse === undefined
        ? 'allowed, if the addresses behind the name are outside the walls'
        : `let through under monitor; would be refused as ${wouldRefuse}`,
    hint: wouldRefuse === undefined ? null : CODES[wouldRefuse].hint,
    credentials: injection?.credential === undefined ? [] : [injection.credential],
    transform: injection?.transform.map((field) => field.name) ?? [],
    mode: injection?.mode ?? null,
    passthrough: rule.passthrough,
  };
}

function imagined({ method, url }: Question): ExchangeArrival {
  const host = /^https?:\/\/([^/?#]*)/i.exec(url)?.[1] ?? '';
  return {
    purpose: 'exchange',
    requestId: 'explain',
    arrivedAt: 0,
    door: 'proxy',
    protocol: 'http/1.1',
    method,
    target: url,
    fields: ['Host', host],
    version: '1.1',
    trouble: undefined,
    ceiling: undefined,
    client: '',
    reply: NO_REPLY,
    body: undefined,
  };
}

/** A reply that nobody hears: an imagined request is never answered. */
const NO_REPLY: ReplyPort = {
  headSent: false,
  closed: true,
  listen: () => undefined,
  invite: () => undefined,
  interim: () => undefined,
  head: () => undefined,
  write: () => true,
  end: () => undefined,
  switchProtocols: () => {
    throw new Error('internal error: an imagined request cannot switch protocols');
  },
  abort: () => undefined,
};
