// WebSockets through http-mitm-proxy: judged like any request, dialled by our own rooms, framed anew by the engine.
// The engine has answered 101 before it asks, so a refusal is a close frame. Until the upstream socket exists nothing of the engine's
// may hear from the sandbox: its listeners reach for that socket unconditionally, and what they throw ends the process.
import type { ClientRequest } from 'node:http';
import type { Socket } from 'node:net';
import { Fault } from '../exchange/codes.ts';
import type { Limits } from '../exchange/snapshot.ts';
import type { Dispatch } from '../exchange/stages.ts';
import type { Trace } from '../exchange/trace.ts';
import type { Steps } from '../egress.ts';
import { byName, openRoad, refuseUnfinished } from './engine-send.ts';
import type { Road } from './engine-send.ts';
import type { EngineUpgrade, EngineWebSocket, Proceed } from './engine.ts';

const HELD_EVENTS = ['message', 'ping', 'pong', 'close'] as const;

/** Takes the engine's listeners off a socket; the function it returns puts them back. */
export function hold(socket: EngineWebSocket): () => void {
  const held = HELD_EVENTS.map((event) => [event, socket.listeners(event)] as const);
  for (const event of HELD_EVENTS) socket.removeAllListeners(event);
  return () => {
    for (const [event, listeners] of held) {
      for (const listener of listeners) socket.on(event, listener as (...values: unknown[]) => void);
    }
  };
}

/** One WebSocket on its way through the engine. */
export interface UpgradePassage {
  readonly upgrade: EngineUpgrade;
  readonly socket: EngineWebSocket;
  /** Gives the engine its listeners back */
  readonly release: () => void;
  readonly proceed: Proceed;
  /** Closes with a fault at once: the engine would close without a reason in the same turn */
  readonly answer: (fault: Fault) => void;
}

/** The `send` step of a WebSocket. Resolves when the connection has ended; rejects with a Fault where the upstream never took it up. */
export function webSocketSend(road: Road, passage: UpgradePassage): Steps['send'] {
  return async (dispatch, trace, limits) => {
    refuseUnfinished(dispatch);
    const upstream = await openRoad(road, dispatch.route, { trace, limits });
    try {
      if (passage.socket.readyState > 1) throw new Fault('client_closed', 'the sandbox left before the upstream was reached');
      await relay(passage, { dispatch, upstream, trace, limits });
    } finally {
      upstream.destroy();
    }
    return undefined;
  };
}

interface Load {
  readonly dispatch: Dispatch;
  readonly upstream: Socket;
  readonly trace: Trace;
  readonly limits: Limits;
}

function relay(
  { upgrade, socket, release, proceed, answer }: UpgradePassage,
  { dispatch, upstream, trace, limits }: Load,
): Promise<void> {
  const { intent } = dispatch.route.permit;
  return new Promise((resolve, reject) => {
    upstream.setTimeout(limits.tunnelIdleMs, () => upstream.destroy());
    upstream.once('close', () => {
      if (trace.status === 101) resolve();
      else reject(declined());
    });
    socket.once('close', () => upstream.destroy());
    upgrade.onWebSocketFrame((...[, , fromServer, bytes, flags, next]) => {
      const length = Buffer.isBuffer(bytes) ? bytes.length : 0;
      if (fromServer) trace.bytesReceived += length;
      else trace.bytesSent += length;
      next(null, bytes, flags);
    });
    const { host, port } = intent.authority;
    upgrade.proxyToServerWebSocketOptions = {
      url: `${intent.scheme === 'https' ? 'wss' : 'ws'}://${host.includes(':') ? `[${host}]` : host}:${port}/`,
      headers: handshakeFields(dispatch),
      createConnection: () => upstream,
      finishRequest: (request: ClientRequest) => {
        // Set here because the client library would read the target as a URL and tidy it: what was judged is what is sent.
        request.path = intent.path + (dispatch.query ?? intent.query);
        request.prependOnceListener('upgrade', () => (trace.status = 101));
        request.prependOnceListener('response', () => answer(declined()));
        request.prependOnceListener('error', () => {
          if (trace.status !== 101) answer(declined());
        });
        request.end();
      },
    };
    trace.dispatchedAt = performance.now();
    proceed();
    release();
  });
}

function declined(): Fault {
  return new Fault('upstream_protocol', 'the upstream did not take the WebSocket up');
}

/** The Dispatch's fields without the handshake's own, which the engine's WebSocket client makes anew. */
function handshakeFields(dispatch: Dispatch): Record<string, string[]> {
  const fields = dispatch.fields.filter((_, index) => !/^sec-websocket-/i.test(dispatch.fields[index - (index % 2)] as string));
  return byName(fields);
}
