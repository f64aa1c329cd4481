// What would the door say: judges a made-up request with the journey's own steps as far as they need no network, and sends nothing.
// It must never resolve a name, show a value, or judge in any way but by the same functions that judge real requests.
import { PassThrough } from 'node:stream';
import { resolveDeclared } from './credentials/attach.ts';
import type { ResolveCredential } from './credentials/attach.ts';
import { overlay, plaintextTrouble } from './credentials/injection.ts';
import { formatAuthority, parseAuthority } from './exchange/authority.ts';
import type { Authority } from './exchange/authority.ts';
import { CODES, isRefusal, Refusal } from './exchange/codes.ts';
import type { Code } from './exchange/codes.ts';
import type { ReplyPort } from './exchange/reply-port.ts';
import type { InjectionMode, TransformField } from './exchange/rule.ts';
import { DEFAULT_SANDBOX } from './exchange/snapshot.ts';
import type { Snapshot } from './exchange/snapshot.ts';
import type { Arrival, Permit, Route, Sandbox } from './exchange/stages.ts';
import { Trace } from './exchange/trace.ts';
import { Secret } from './foundation/secret.ts';
import { readIntent } from './intake/read-intent.ts';
import { decide } from './policy/decide.ts';

/** A question of the form "may this sandbox do that". */
export interface Question {
  readonly method: string;
  /** Absolute http or https URL */
  readonly url: string;
  /** Id; may be left out where there is only one sandbox */
  readonly sandbox?: string | undefined;
}

/** What the question is judged by. */
export interface Grounds {
  readonly snapshot: Snapshot;
  /** The network's step, whose guard knows the machine; asked for IP literals only, which it judges at once */
  readonly findRoute: (permit: Permit, trace: Trace, dnsMs: number) => Route | Refusal | Promise<Route | Refusal>;
  /** Looks up the rule's credential as the door does; left out, among those that the configuration declares */
  readonly resolve?: ResolveCredential;
}

/** The resolver for a step that judges literals only. */
export const NO_RESOLVER = {
  resolve: (): Promise<never> => Promise.reject(new Error('internal error: to explain, no name is resolved')),
};

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
  /** Names of all fields that would be put on: those of the credential, with `transform` on top */
  readonly injects: readonly string[];
  readonly mode: InjectionMode | null;
  readonly passthrough: boolean;
}

/** Judges the question. Where the host is a name, its addresses are not: they show only when it is resolved, which this never does. */
export async function explain(question: Question, grounds: Grounds): Promise<Explanation> {
  const { snapshot, findRoute } = grounds;
  const { ids } = snapshot.sandboxes;
  const only = ids.length === 1 ? ids[0] : undefined;
  const id = question.sandbox ?? (snapshot.sandboxes.required ? only : DEFAULT_SANDBOX);
  const sandbox = id === undefined ? undefined : snapshot.sandboxes.byId(id);
  if (sandbox === undefined) {
    const known = ids.join(', ');
    const detail = id === undefined ? `say which sandbox asks: ${known}` : `there is no sandbox "${id}"; there are: ${known}`;
    return refusedBy(new Refusal('sandbox_unauthenticated', detail));
  }
  const permit = permitFor(question, snapshot, sandbox);
  if (isRefusal(permit)) return refusedBy(permit);
  const walled = addressTrouble(permit, findRoute);
  return walled === undefined ? permitted(permit, grounds) : refusedBy(walled);
}

/** What policy says of the way that a client takes: TLS through a CONNECT, which is judged first, plain HTTP in absolute form. */
function permitFor(question: Question, { limits }: Snapshot, sandbox: Sandbox): Permit | Refusal {
  const judge = (arrival: Arrival): Permit | Refusal => {
    const intent = readIntent(arrival, limits);
    return isRefusal(intent) ? intent : decide(intent, sandbox);
  };
  const authority = tunnelTo(question.url);
  if (authority !== undefined) {
    const tunnel = judge(imaginedTunnel(authority));
    if (isRefusal(tunnel)) return tunnel;
    if (tunnel.rule.passthrough) return judge(imaginedPassthrough(authority));
  }
  return judge(imaginedExchange(question));
}

/** Where an https URL's CONNECT leads; undefined for plain http, and for a URL that the exchange itself will be refused for. */
function tunnelTo(url: string): Authority | undefined {
  const text = /^https:\/\/([^/?#]*)/i.exec(url)?.[1];
  return text === undefined ? undefined : parseAuthority(text, 443);
}

function addressTrouble(permit: Permit, findRoute: Grounds['findRoute']): Refusal | undefined {
  if (!permit.intent.authority.address) return undefined;
  const found = findRoute(permit, new Trace(), 0);
  if (found instanceof Promise) throw new Error('internal error: an address needs no resolver');
  return isRefusal(found) ? found : undefined;
}

function refusedBy({ code, detail, rule }: Refusal): Explanation {
  return {
    decision: 'refuse',
    reason: code,
    rule: rule ?? null,
    detail,
    hint: CODES[code].hint,
    credentials: [],
    transform: [],
    injects: [],
    mode: null,
    passthrough: false,
  };
}

async function permitted(permit: Permit, grounds: Grounds): Promise<Explanation> {
  const { rule, wouldRefuse, intent } = permit;
  const fields = await fieldsOf(permit, grounds);
  if (isRefusal(fields)) return refusedBy(fields);
  const { injection } = rule;
  const transform = injection?.transform ?? [];
  const allowed = intent.authority.address
    ? 'allowed'
    : 'allowed, if the addresses behind the name, which is not resolved here, are outside the walls';
  return {
    decision: wouldRefuse === undefined ? 'allow' : 'would_refuse',
    reason: wouldRefuse ?? null,
    rule: rule.id,
    detail: wouldRefuse === undefined ? allowed : `let through under monitor; would be refused as ${wouldRefuse}`,
    hint: wouldRefuse === undefined ? null : CODES[wouldRefuse].hint,
    credentials: injection?.credential === undefined ? [] : [injection.credential],
    transform: transform.map(({ name }) => name),
    injects: overlay(fields, transform).map(({ name }) => name),
    mode: injection?.mode ?? null,
    passthrough: rule.passthrough,
  };
}

/** The fields of the rule's credential as it stands, or why nothing can be put on. */
async function fieldsOf(
  permit: Permit,
  { snapshot, resolve = resolveDeclared }: Grounds,
): Promise<readonly TransformField[] | Refusal> {
  const { rule, sandbox } = permit;
  if (rule.injection === undefined) return [];
  const { credential, unavailable } = rule.injection;
  const exposed = plaintextTrouble(permit);
  if (exposed !== undefined) return exposed;
  if (unavailable !== undefined)
    return new Refusal('credential_unavailable', `what the rule puts on cannot be resolved: ${unavailable}`, rule.id);
  if (credential === undefined) return [];
  const declared = snapshot.credentials.get(credential);
  // Nothing is fetched for a question.
  if (declared !== undefined && 'fetched' in declared) return declared.fetched.map((name) => ({ name, value: UNFETCHED }));
  const resolution = await resolve(credential, sandbox.id, snapshot.credentials);
  if ('fields' in resolution) return resolution.fields;
  if ('signer' in resolution) return resolution.signer.names.map((name) => ({ name, value: UNFETCHED }));
  if ('placeholder' in resolution) return new Refusal('credential_unavailable', NOT_PUT_ON, rule.id);
  const which = resolution.unknown === true ? "the rule's credential" : `the credential "${credential}"`;
  const detail = `${which} cannot be resolved: ${resolution.unavailable}`;
  return new Refusal('credential_unavailable', detail, rule.id);
}

const UNFETCHED = new Secret('');
const NOT_PUT_ON =
  "the rule's credential is the value of an environment variable, which a rule cannot put on; bind it in the `env` of a sandbox";

function imaginedExchange({ method, url }: Question): Arrival {
  const host = /^https?:\/\/([^/?#]*)/i.exec(url)?.[1] ?? '';
  const fields = ['Host', host];
  return { ...IMAGINED, purpose: 'exchange', protocol: 'http/1.1', method, target: url, fields, body: undefined };
}

function imaginedTunnel(authority: Authority): Arrival {
  const target = formatAuthority(authority);
  const open = () => Promise.reject(new Error('internal error: an imagined tunnel cannot be opened'));
  return { ...IMAGINED, purpose: 'tunnel', protocol: 'http/1.1', target, fields: ['Host', target], open };
}

function imaginedPassthrough(authority: Authority): Arrival {
  const ceiling = { scheme: 'https', authority, identity: undefined } as const;
  return { ...IMAGINED, purpose: 'passthrough', protocol: 'passthrough', ceiling, stream: new PassThrough() };
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

/** What every imagined arrival shares; a CONNECT until something else is said. */
const IMAGINED = {
  requestId: 'explain',
  arrivedAt: 0,
  door: 'proxy',
  method: 'CONNECT',
  target: '',
  pseudo: undefined,
  fields: [],
  version: '1.1',
  trouble: undefined,
  ceiling: undefined,
  origin: undefined,
  client: '',
  reply: NO_REPLY,
} as const;
