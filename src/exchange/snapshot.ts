// What one exchange is judged by: an immutable picture of the live configuration, taken once when the request arrives.
// A reload makes a new one and swaps the reference; nothing in it may be edited (invariant 7).
import type { Secret } from '../foundation/secret.ts';
import type { Host } from './authority.ts';
import type { HeaderFields } from './header-fields.ts';
import type { TransformField } from './rule.ts';
import type { Sandbox, Scheme } from './stages.ts';

/** Limits and deadlines in force. Durations in `ms`, sizes in bytes. */
export interface Limits {
  /** Connections from sandboxes open at once */
  readonly connections: number;
  /** Request line and header section together */
  /** Streams at once on one HTTP/2 connection of a sandbox */
  readonly streams: number;
  readonly headerBytes: number;
  /** Header fields in one section */
  readonly headerFields: number;
  readonly targetBytes: number;
  /** Header section of an upstream's answer */
  readonly replyHeaderBytes: number;
  /** Whole request header section, from its first byte */
  readonly headerMs: number;
  /** First bytes and whole ClientHello of a tunnel, and the TLS handshake with the sandbox */
  readonly handshakeMs: number;
  readonly dnsMs: number;
  /** TCP connect and TLS handshake with the upstream, together */
  readonly connectMs: number;
  /** First byte of the upstream's answer */
  readonly replyMs: number;
  /** Silence inside a body, either way */
  readonly bodyIdleMs: number;
  /** Silence in an upgraded or passed-through connection, both ways */
  readonly tunnelIdleMs: number;
  /** Idle keep-alive connection of a sandbox */
  readonly keepAliveMs: number;
  /** Idle pooled connection to an upstream */
  readonly upstreamKeepAliveMs: number;
  /** Connections to one upstream for one sandbox */
  readonly upstreamConnections: number;
  /** How long `stop` waits for exchanges under way */
  readonly drainMs: number;
}

/** Id of the one sandbox that there is where the configuration names none. */
export const DEFAULT_SANDBOX = 'default';

/** Finds out who is asking. */
export interface SandboxRegistry {
  /** False: the one sandbox is DEFAULT_SANDBOX, and no token is asked for */
  readonly required: boolean;
  /** Whether a token that is shown counts although none is asked for: then it names a sandbox, or it is wrong */
  readonly heedsTokens?: boolean;
  /** By the credentials of Proxy-Authorization; `undefined` where they fit no sandbox. Constant time. */
  byToken(proxyAuthorization: string): Sandbox | undefined;
  /** By the address the connection came from. */
  bySource(address: string): Sandbox | undefined;
  /** By id, for `explain` and the admin listener. */
  byId(id: string): Sandbox | undefined;
  readonly ids: readonly string[];
}

/** A request as far as a signature covers it. */
export interface Unsigned {
  readonly method: string;
  readonly scheme: Scheme;
  readonly path: string;
  /** With its `?`, or empty */
  readonly query: string;
  /** As they go upstream, in latin1 text */
  readonly fields: HeaderFields;
}

/** The body of a request that is to be signed. */
export interface UnsignedBody {
  /** The whole of it, where it was asked for */
  readonly bytes: Buffer | undefined;
  /** Whether there is one that streams */
  readonly streams: boolean;
}

/** What is put on of a credential that signs each request. */
export interface Signer {
  /** Names of the fields that it puts on, for whoever is asked */
  readonly names: readonly string[];
  /** What must be known of the body before: nothing, all of it, or why no signature of ours can be put on such a request. */
  need(request: Unsigned, hasBody: boolean): 'nothing' | 'body' | { readonly unfit: string };
  /** `now` in epoch `ms`. The fields hold a signature: never log them. */
  sign(request: Unsigned, body: UnsignedBody, now: number): { readonly fields: HeaderFields; readonly query: string };
}

/** Where in a request a placeholder may be swapped for its value. */
export type PlaceholderPlace = 'header' | 'query' | 'body';

/** What a sandbox's placeholder stands for. */
export interface PlaceholderValue {
  readonly value: Secret;
  readonly places: ReadonlySet<PlaceholderPlace>;
  readonly trusts: (host: Host) => boolean;
}

/**
 * What a credential id stands for: the fields that it puts on, with the bare values that no answer may show to the sandbox; what signs
 * its requests; the value of a placeholder; or why it is nothing. The same object as long as nothing has changed.
 */
export type Resolution =
  | { readonly fields: readonly TransformField[]; readonly secrets?: readonly Secret[] }
  | { readonly signer: Signer; readonly secrets: readonly Secret[] }
  | { readonly placeholder: PlaceholderValue }
  | {
      readonly unavailable: string;
      /** Nobody knows the id: it may be a secret in the wrong place, and is not to be repeated */
      readonly unknown?: true;
    };

/**
 * Stands in place of a declared credential whose value is fetched when it is used: the names of the fields that it puts on, as far as
 * the configuration says.
 */
export interface Fetched {
  readonly fetched: readonly string[];
}

/** The live configuration as one exchange sees it. */
export interface Snapshot {
  /** Rises by one with each accepted reload */
  readonly generation: number;
  readonly sandboxes: SandboxRegistry;
  readonly limits: Limits;
  /** The credentials that the configuration declares, by id. Beside the rules that name them: a reload must not give an id another secret half-way */
  readonly credentials: ReadonlyMap<string, Resolution | Fetched>;
}
