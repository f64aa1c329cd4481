// Arrivals and the stages after them, made without a socket: each factory gives the smallest good one and takes what a test is about.
// Unless `fields` are given, Host agrees with the target or the tunnel, as a well-behaved client sends it.
import { PassThrough } from 'node:stream';
import type { Duplex, Readable } from 'node:stream';
import { formatAuthority, parseAuthority } from '../../src/exchange/authority.ts';
import type { Authority } from '../../src/exchange/authority.ts';
import { isRefusal } from '../../src/exchange/codes.ts';
import type { Refusal } from '../../src/exchange/codes.ts';
import type { HeaderFields } from '../../src/exchange/header-fields.ts';
import type { AddressRanges, Injection, Rule, TransformField } from '../../src/exchange/rule.ts';
import type { Limits } from '../../src/exchange/snapshot.ts';
import { makePermit, makeRoute } from '../../src/exchange/stages.ts';
import type {
  Arrival,
  Ceiling,
  ExchangeArrival,
  Intent,
  LookupArrival,
  Origin,
  PassthroughArrival,
  Permit,
  Protocol,
  PseudoFields,
  Route,
  Sandbox,
  Scheme,
  TunnelArrival,
  UpgradeArrival,
} from '../../src/exchange/stages.ts';
import { Secret } from '../../src/foundation/secret.ts';
import { readIntent } from '../../src/intake/read-intent.ts';
import { DENY_ALL } from '../../src/policy/policy-index.ts';
import { RecordingReply } from './recording-reply.ts';

/** Limits of a size that no test meets by accident. */
export const TEST_LIMITS: Limits = {
  connections: 100,
  streams: 100,
  headerBytes: 64 * 1024,
  headerFields: 1000,
  targetBytes: 16 * 1024,
  replyHeaderBytes: 64 * 1024,
  headerMs: 5000,
  handshakeMs: 5000,
  dnsMs: 5000,
  connectMs: 5000,
  replyMs: 5000,
  bodyIdleMs: 5000,
  tunnelIdleMs: 5000,
  keepAliveMs: 5000,
  upstreamKeepAliveMs: 5000,
  upstreamConnections: 100,
  drainMs: 5000,
};

/** What every factory takes. */
export interface ArrivalParts {
  readonly requestId?: string;
  readonly method?: string;
  readonly target?: string;
  /** The whole header section; replaces the Host that is made up otherwise */
  readonly fields?: HeaderFields;
  /** Further fields after the made-up Host */
  readonly more?: HeaderFields;
  readonly version?: string;
  readonly pseudo?: PseudoFields;
  readonly protocol?: Protocol;
  readonly trouble?: Refusal;
  readonly ceiling?: Ceiling;
  readonly origin?: Origin;
  readonly client?: string;
  readonly reply?: RecordingReply;
}

/** An arrival whose reply is recorded. */
export type Recorded<A extends Arrival> = A & { readonly reply: RecordingReply };

/** Reads an authority such as `example.com:443` or `[::1]:443`; throws where a test misspells it. */
export function authority(text: string): Authority {
  const parsed = parseAuthority(text);
  if (parsed === undefined) throw new Error(`not an authority with a port: "${text}"`);
  return parsed;
}

/** The ceiling of a tunnel to `text`; TLS inside unless said otherwise. */
export function ceilingAt(text: string, options: { readonly scheme?: Scheme; readonly identity?: string } = {}): Ceiling {
  return { scheme: options.scheme ?? 'https', authority: authority(text), identity: options.identity };
}

/** A request with its reply; `GET http://example.com/` by default, or `GET /` inside a tunnel. */
export function exchangeArrival(parts: ArrivalParts & { readonly body?: Readable } = {}): Recorded<ExchangeArrival> {
  return {
    ...base({ method: 'GET', target: parts.ceiling === undefined ? 'http://example.com/' : '/' }, parts),
    purpose: 'exchange',
    body: parts.body,
  };
}

/** A WebSocket handshake. */
export function upgradeArrival(parts: ArrivalParts = {}): Recorded<UpgradeArrival> {
  const target = parts.ceiling === undefined ? 'http://example.com/socket' : '/socket';
  const more = [
    'Connection',
    'Upgrade',
    'Upgrade',
    'websocket',
    'Sec-WebSocket-Version',
    '13',
    'Sec-WebSocket-Key',
    'dGhlIHNhbXBsZSBub25jZQ==',
  ];
  const made = base({ method: 'GET', target }, { ...parts, more: [...more, ...(parts.more ?? [])] });
  return { ...made, protocol: parts.protocol ?? 'websocket', purpose: 'upgrade' };
}

/** A CONNECT; `example.com:443` by default. Its tunnel ends at once, having carried nothing, unless `open` is given. */
export function tunnelArrival(parts: ArrivalParts & { readonly open?: TunnelArrival['open'] } = {}): Recorded<TunnelArrival> {
  const open = parts.open ?? (() => Promise.resolve({ carried: 0, verdict: undefined }));
  return { ...base({ method: 'CONNECT', target: 'example.com:443' }, parts), purpose: 'tunnel', open };
}

/** The bytes of a tunnel that nobody looks into; to `example.com:443` by default. */
export function passthroughArrival(parts: ArrivalParts & { readonly stream?: Duplex } = {}): Recorded<PassthroughArrival> {
  const ceiling = parts.ceiling ?? ceilingAt('example.com:443');
  const made = base({ method: 'CONNECT', target: '' }, { fields: [], ...parts, ceiling });
  return { ...made, protocol: 'passthrough', purpose: 'passthrough', stream: parts.stream ?? new PassThrough() };
}

/** A question for a name; `example.com` by default. */
export function lookupArrival(
  parts: ArrivalParts & Partial<Pick<LookupArrival, 'answer' | 'decline'>> = {},
): Recorded<LookupArrival> {
  const made = base({ method: 'QUERY', target: 'example.com' }, { fields: [], ...parts });
  const { answer = () => undefined, decline = () => undefined } = parts;
  return { ...made, door: 'transparent', protocol: 'dns', purpose: 'lookup', answer, decline };
}

function base(usual: { readonly method: string; readonly target: string }, parts: ArrivalParts) {
  const target = parts.target ?? usual.target;
  return {
    requestId: parts.requestId ?? '00000000-0000-4000-8000-000000000000',
    arrivedAt: performance.now(),
    door:
      parts.origin !== undefined
        ? ('transparent' as const)
        : parts.ceiling === undefined
          ? ('proxy' as const)
          : ('tunnel' as const),
    protocol: parts.protocol ?? ('http/1.1' as const),
    method: parts.method ?? usual.method,
    target,
    pseudo: parts.pseudo,
    fields: parts.fields ?? ['Host', hostFor(target, parts.ceiling), ...(parts.more ?? [])],
    version: parts.version ?? '1.1',
    trouble: parts.trouble,
    ceiling: parts.ceiling,
    origin: parts.origin,
    client: parts.client ?? '192.0.2.10',
    reply: parts.reply ?? new RecordingReply(),
  };
}

function hostFor(target: string, ceiling: Ceiling | undefined): string {
  if (ceiling !== undefined) return formatAuthority(ceiling.authority, ceiling.scheme === 'https' ? 443 : 80);
  return /^https?:\/\/([^/?#]*)/i.exec(target)?.[1] ?? target;
}

/** The intent of an arrival; throws where intake refuses it. */
export function intentOf<A extends Arrival>(arrival: A): Intent<A> {
  const intent = readIntent(arrival, TEST_LIMITS);
  if (isRefusal(intent)) throw new Error(`intake refuses the arrival: ${intent.code}: ${intent.detail}`);
  return intent;
}

const NOTHING_OPENED: AddressRanges = { key: '', contains: () => false };

/** A rule that allows everything on the default ports. */
export function ruleOf(parts: Partial<Rule> = {}): Rule {
  return {
    id: 'example.com',
    ports: undefined,
    methods: undefined,
    paths: undefined,
    opened: NOTHING_OPENED,
    passthrough: false,
    monitor: false,
    injection: undefined,
    ...parts,
  };
}

/** An injection that puts nothing on, in mode `set`. `transform` is written as an object of texts. */
export function injectionOf(
  parts: Partial<Omit<Injection, 'transform'>> & { readonly transform?: Readonly<Record<string, string>> } = {},
): Injection {
  return {
    credential: undefined,
    unavailable: undefined,
    mode: 'set',
    allowPlaintext: false,
    keep: new Set(),
    ...parts,
    transform: secretFields(parts.transform ?? {}),
  };
}

/** Fields to inject, from an object of texts. */
export function secretFields(fields: Readonly<Record<string, string>>): readonly TransformField[] {
  return Object.entries(fields).map(([name, value]) => ({ name, value: new Secret(value) }));
}

/** The sandbox of a door without `sandboxes`. */
export const DEFAULT_SANDBOX: Sandbox = { id: 'default', policy: DENY_ALL };

/** A permit for an arrival under a rule, as if policy had given it. */
export function permitOf<A extends Arrival>(arrival: A, rule: Rule = ruleOf(), sandbox: Sandbox = DEFAULT_SANDBOX): Permit<A> {
  return makePermit({ intent: intentOf(arrival), sandbox, rule, wouldRefuse: undefined });
}

/** A route for an arrival under a rule, to a public documentation address. */
export function routeOf<A extends Arrival>(arrival: A, rule: Rule = ruleOf()): Route<A> {
  const permit = permitOf(arrival, rule);
  return makeRoute({ permit, addresses: [authority('192.0.2.1:443').host], lane: `default ${permit.intent.authority.host}` });
}
