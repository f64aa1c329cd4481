// What the adapter uses of http-mitm-proxy 1.x, in our own words, so that none of that package's types are in our exports.
// Only shapes stand here. The comments name what the engine has done by the time it hands a value over.
import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { EventEmitter } from 'node:events';

/** Lets the engine go on. It must be called at most once, and never for a request that has been answered. */
export type Proceed = (error?: Error | null) => void;

/** The engine itself; it is `this` in its CONNECT hook and nowhere else. */
export interface Engine {
  readonly httpPort: number;
  /** Listeners that it opened for single hosts, by host */
  readonly sslServers: Readonly<Record<string, { readonly port: number } | undefined>>;
  /** The CONNECT behind each connection that it made to one of its own listeners, by `remotePort:localPort` */
  readonly connectRequests: Readonly<Record<string, IncomingMessage | undefined>>;
}

/** One request. By now the engine has cut scheme and authority out of `clientToProxyRequest.url`, and paused the body. */
export interface EngineExchange {
  readonly isSSL: boolean;
  readonly connectRequest: IncomingMessage | undefined;
  readonly clientToProxyRequest: IncomingMessage;
  readonly proxyToClientResponse: ServerResponse;
  readonly serverToProxyResponse: IncomingMessage | undefined;
  readonly proxyToServerRequest: ClientRequest | undefined;
  /** Goes to `http.request` or `https.request` as it stands */
  proxyToServerRequestOptions: unknown;
  onError(hook: (exchange: unknown, error: unknown, kind?: string) => void): unknown;
  onRequestData(hook: (exchange: unknown, chunk: Buffer, proceed: (error: null, chunk: Buffer) => void) => void): unknown;
  onResponse(hook: (exchange: unknown, proceed: Proceed) => void): unknown;
}

/** A WebSocket of the package `ws`. */
export interface EngineWebSocket extends EventEmitter {
  readonly readyState: number;
  /** The handshake, which the engine has answered with 101 before it asks anyone */
  readonly upgradeReq?: IncomingMessage;
  close(code: number, reason: string): void;
  terminate(): void;
}

/** One WebSocket connection. Its socket is paused until the engine has reached the upstream. */
export interface EngineUpgrade {
  readonly isSSL: boolean;
  readonly connectRequest: IncomingMessage | undefined;
  readonly clientToProxyWebSocket?: EngineWebSocket;
  /** Goes to `new WebSocket(url, options)` as it stands */
  proxyToServerWebSocketOptions?: unknown;
  onWebSocketFrame(hook: FrameHook): unknown;
}

/** Sees each frame: its kind, whether it comes from the upstream, its bytes, its flags; then `proceed(null, bytes, flags)`. */
export type FrameHook = (
  ...frame: readonly [
    upgrade: unknown,
    kind: unknown,
    fromServer: boolean,
    bytes: unknown,
    flags: unknown,
    proceed: (error: null, bytes: unknown, flags: unknown) => void,
  ]
) => void;
