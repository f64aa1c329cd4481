// The same journey behind another engine: a module for `proxy.use()` of http-mitm-proxy 1.x. Every request takes our own steps; the
// engine only ends TLS, frames HTTP and moves bytes. It must never judge anything here, nor let the engine reach an upstream by itself.
//
// What that engine cannot carry, and what happens instead:
// - HTTP/2: it speaks HTTP/1.1 on both sides. Interim answers (103) and trailers are lost; connections to upstreams serve one request.
// - `tls: passthrough` and IPv6 authorities in a CONNECT: it must decrypt, and it cuts a host at its first colon. Refused (bad_request).
// - WebSockets: it answers 101 before it asks, so a refusal is close code 1008 with the reason as text. It frames anew: subprotocols and
//   extensions are not handed on, and an upstream that declines is close code 1011. A handshake without Host ends its process, whatever
//   modules it has: keep a supervisor.
// - Requests that Node's parser refuses (no Host, headers over its own 16 KiB, unknown expectations) never reach a module: they are
//   answered by Node without our reason, have no line in the ledger, and inside TLS not even an answer.
// - `Expect: 100-continue` is answered before the judgement. A wrong SNI is refused with the first request, not in the handshake.
// - Bodies move without backpressure, so that a slow reader costs memory. Client-side limits (connections, deadlines) are its options'.
// - Answers are not looked through for what was put on (`redact` has no effect), placeholders in bodies are not swapped and requests are
//   not signed: a request that needs the latter is refused (credential_unavailable).
// - It opens a TCP listener for each host, reachable by whoever reaches its address, and writes each leaf's key to disk. What comes to
//   such a listener without a tunnel is refused here, and the guard lets nothing lead to one. Give it `host: '127.0.0.1'`.
// - It writes errors to the console. A module after this one that replaces `proxyToServerRequestOptions` is outside the judgement.
import { randomUUID } from 'node:crypto';
import diagnostics from 'node:diagnostics_channel';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import type { Compiled } from '../config/compile.ts';
import { createAttach, resolveDeclared } from '../credentials/attach.ts';
import { createEgress } from '../egress.ts';
import type { Steps } from '../egress.ts';
import { parseAuthority } from '../exchange/authority.ts';
import { Fault, Refusal } from '../exchange/codes.ts';
import { fieldValue } from '../exchange/header-fields.ts';
import type { Arrival, Ceiling, TunnelEnd } from '../exchange/stages.ts';
import type { Outcome } from '../exchange/trace.ts';
import { readIntent } from '../intake/read-intent.ts';
import { dialRoutes } from '../network/dial.ts';
import { createFindRoute } from '../network/find-route.ts';
import { createGuard } from '../network/guard.ts';
import type { Listener } from '../network/guard.ts';
import { systemResolver } from '../network/resolver.ts';
import type { Resolver } from '../network/resolver.ts';
import { openDialOut } from '../outward.ts';
import { decide } from '../policy/decide.ts';
import { identify } from '../policy/identify.ts';
import { writeRefusal } from '../reply/write-refusal.ts';
import { createTrustOver, rootsOfTheMachine } from '../upstream/trust.ts';
import { ConnectReply, RequestReply, WebSocketReply } from './engine-reply.ts';
import { engineSend } from './engine-send.ts';
import type { Road } from './engine-send.ts';
import { hold, webSocketSend } from './engine-websocket.ts';
import { isLoopback, tunnelTrouble } from './engine-tunnel.ts';
import type { Engine, EngineExchange, EngineUpgrade, Proceed } from './engine.ts';

export { loadConfig } from '../config/load.ts';
export { auditLine } from '../record/audit-line.ts';
export type { Compiled } from '../config/compile.ts';
export type { Outcome } from '../exchange/trace.ts';

/** What the module needs. */
export interface SallyportOptions {
  /** The config in force, as `loadConfig` gives it; asked for each exchange, so that a reload is a matter of returning another one */
  readonly compiled: () => Compiled;
  /** Gets one Outcome for each exchange; `auditLine` makes a line of it. Must not throw */
  readonly record: (outcome: Outcome) => void;
  /** Default: the system's resolver */
  readonly resolver?: Resolver;
  /** Default: the environment of the process. NODE_EXTRA_CA_CERTS names roots that are trusted beside those of `upstream.ca` */
  readonly env?: NodeJS.ProcessEnv;
  /** Further listeners that nothing may reach through the door, such as an admin port. The engine's own are known */
  readonly listeners?: () => readonly Listener[];
}

/** Hooks for `proxy.use()`. */
export interface SallyportModule {
  onConnect(this: Engine, request: IncomingMessage, socket: Duplex, head: Buffer, proceed: Proceed): void;
  onRequest(exchange: EngineExchange, proceed: Proceed): void;
  onWebSocketConnection(upgrade: EngineUpgrade, proceed: Proceed): void;
  /** Lets go of what the module holds outside the engine. Call it after the engine's own `close`; requests after it are refused. */
  close(): void;
}

/** Makes the module. It fails closed: whatever it cannot judge is refused. */
export function sallyport(options: SallyportOptions): SallyportModule {
  const house = new House(options);
  return {
    onConnect(request, socket, head, proceed) {
      house.connect(this, { request, socket: socket as Socket, head, proceed });
    },
    onRequest: (exchange, proceed) => house.request(exchange, proceed),
    onWebSocketConnection: (upgrade, proceed) => house.webSocket(upgrade, proceed),
    close: () => house.close(),
  };
}

/** A CONNECT as the engine hands it over. */
interface Connect {
  readonly request: IncomingMessage;
  readonly socket: Socket;
  /** What came with it before it was answered */
  readonly head: Buffer;
  readonly proceed: Proceed;
}

/** A tunnel that was let through. */
interface Tunnel {
  readonly ceiling: Omit<Ceiling, 'scheme'>;
  readonly client: string;
  carried: number;
}

/** Answers an arrival with a verdict; gives the status. */
type Answer = (verdict: Refusal | Fault) => number;

/** A fault may have to be answered before the journey hears of it; the journey then finds it answered. */
function once(arrival: Arrival): Answer {
  let answered: number | undefined;
  return (verdict) => (answered ??= writeRefusal(arrival, verdict));
}

/** Published by Node before anyone is told of a request: the only place where its target stands as it was sent. */
const REQUEST_START = 'http.server.request.start';

class House {
  readonly #steps: Omit<Steps, 'send' | 'writeRefusal'>;
  readonly #road: Road;
  readonly #targets = new WeakMap<IncomingMessage, string>();
  readonly #tunnels = new WeakMap<IncomingMessage, Tunnel>();
  /** Ports that requests have come in by */
  readonly #ports = new Set<number>();
  #engine: Engine | undefined = undefined;

  constructor({ compiled, record, resolver = systemResolver(), env = process.env, listeners = () => [] }: SallyportOptions) {
    const guard = createGuard({ listeners: () => [...listeners(), ...this.#ownListeners()] });
    const machine = rootsOfTheMachine(env, (message) => process.emitWarning(message));
    const trust = createTrustOver(() => compiled().upstreamCa, machine);
    const { dial, leaves } = openDialOut({ resolver, guard, trust, proxy: () => compiled().corporateProxy });
    this.#steps = {
      snapshot: () => compiled().snapshot,
      readIntent,
      identify,
      decide,
      findRoute: createFindRoute({ resolver, guard, leaves, warm: () => false }),
      attachCredentials: createAttach({ resolve: resolveDeclared }),
      record,
    };
    this.#road = { dial: dialRoutes(dial), trust };
    diagnostics.subscribe(REQUEST_START, this.#remember);
  }

  close(): void {
    diagnostics.unsubscribe(REQUEST_START, this.#remember);
  }

  connect(engine: Engine, connect: Connect): void {
    const { request, socket } = connect;
    this.#engine = engine;
    const connectRequest = engine.connectRequests[`${socket.remotePort}:${socket.localPort}`];
    const base = this.#describe(request, { isSSL: socket instanceof TLSSocket, connectRequest });
    const arrival: Arrival = {
      ...base,
      purpose: 'tunnel',
      protocol: 'http/1.1',
      target: request.url ?? '',
      trouble: tunnelTrouble(socket, base.ceiling),
      reply: new ConnectReply(request, socket),
      open: (_authority, passthrough) => this.#open(connect, passthrough),
    };
    this.#run(arrival, once(arrival), () => Promise.reject(new Error('internal error: a CONNECT is not sent anywhere')));
  }

  request(exchange: EngineExchange, proceed: Proceed): void {
    const { clientToProxyRequest: request, proxyToClientResponse: response } = exchange;
    const body = announcesBody(request.rawHeaders);
    const base = this.#describe(request, exchange);
    const arrival: Arrival = {
      ...base,
      purpose: 'exchange',
      protocol: 'http/1.1',
      target: this.#targets.get(request) ?? '',
      trouble: tunnelTrouble(request.socket, base.ceiling),
      reply: new RequestReply(request, response, body),
      body: body ? request : undefined,
    };
    const answer = once(arrival);
    this.#run(arrival, answer, engineSend(this.#road, { exchange, proceed, answer }));
  }

  webSocket(upgrade: EngineUpgrade, proceed: Proceed): void {
    const { clientToProxyWebSocket: socket } = upgrade;
    const request = socket?.upgradeReq;
    if (socket === undefined || request === undefined) {
      socket?.terminate();
      return;
    }
    const release = hold(socket);
    const base = this.#describe(request, upgrade);
    const arrival: Arrival = {
      ...base,
      purpose: 'upgrade',
      protocol: 'websocket',
      target: request.url ?? '',
      trouble: tunnelTrouble(request.socket, base.ceiling),
      reply: new WebSocketReply(socket),
    };
    const answer = once(arrival);
    this.#run(arrival, answer, webSocketSend(this.#road, { upgrade, socket, release, proceed, answer }));
  }

  #run(arrival: Arrival, answer: Answer, send: Steps['send']): void {
    void createEgress({ ...this.#steps, writeRefusal: (_arrival, verdict) => answer(verdict), send })(arrival);
  }

  #open({ request, socket, head, proceed }: Connect, passthrough: boolean): Promise<TunnelEnd> {
    const authority = parseAuthority(request.url ?? '');
    if (authority === undefined) throw new Error('internal error: a tunnel without an authority was let through');
    const cannot = (detail: string): Promise<TunnelEnd> =>
      Promise.resolve({ carried: 0, verdict: new Refusal('bad_request', detail) });
    if (passthrough) return cannot('this engine cannot pass TLS through uninspected');
    if (authority.host.includes(':')) return cannot('this engine reads no IPv6 authority in a CONNECT');
    const identity = fieldValue(request.rawHeaders, 'proxy-authorization');
    const tunnel: Tunnel = { ceiling: { authority, identity }, client: socket.remoteAddress ?? '', carried: 0 };
    this.#tunnels.set(request, tunnel);
    return new Promise((resolve) => {
      const before = socket.bytesRead;
      const unused = (): boolean => head.length === 0 && socket.bytesRead === before;
      const closed = (): void => {
        const verdict = unused()
          ? new Fault('client_closed', 'the sandbox closed the tunnel before it said anything')
          : undefined;
        resolve({ carried: tunnel.carried, verdict });
      };
      if (socket.destroyed) {
        closed();
        return;
      }
      socket.once('close', closed);
      // The engine waits for the first byte of a tunnel and hears of nothing else.
      socket.once('end', () => {
        if (unused()) socket.destroy();
      });
      proceed();
    });
  }

  /** Everything that an arrival takes from its request and the tunnel it came out of. */
  #describe(request: IncomingMessage, within: { readonly isSSL: boolean; readonly connectRequest: IncomingMessage | undefined }) {
    const { socket } = request;
    if (socket.localPort !== undefined) this.#ports.add(socket.localPort);
    const tunnel =
      within.connectRequest !== undefined && isLoopback(socket) ? this.#tunnels.get(within.connectRequest) : undefined;
    if (tunnel !== undefined) tunnel.carried += 1;
    const scheme = within.isSSL ? ('https' as const) : ('http' as const);
    return {
      requestId: randomUUID(),
      arrivedAt: performance.now(),
      door: tunnel === undefined ? ('proxy' as const) : ('tunnel' as const),
      method: request.method ?? '',
      pseudo: undefined,
      fields: request.rawHeaders,
      version: request.httpVersion,
      ceiling: tunnel === undefined ? undefined : { ...tunnel.ceiling, scheme },
      origin: undefined,
      client: tunnel?.client ?? socket.remoteAddress ?? '',
    };
  }

  #ownListeners(): Listener[] {
    const { httpPort, sslServers = {} } = this.#engine ?? {};
    const opened = Object.values(sslServers).flatMap((server) => server?.port ?? []);
    const ports = new Set([...this.#ports, ...opened, ...(httpPort === undefined ? [] : [httpPort])]);
    return [...ports].map((port) => ({ address: '0.0.0.0', port }));
  }

  readonly #remember = (message: unknown): void => {
    const { request } = message as { readonly request: IncomingMessage };
    this.#targets.set(request, request.url ?? '');
  };
}

function announcesBody(fields: readonly string[]): boolean {
  if (fieldValue(fields, 'transfer-encoding') !== undefined) return true;
  return (fieldValue(fields, 'content-length') ?? '0') !== '0';
}
