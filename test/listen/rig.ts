// The doors and the port without a house behind them: the test is the journey, and answers each arrival as it likes.
import { createLeafCache } from '../../src/certificates/leaf-cache.ts';
import { parseAuthority } from '../../src/exchange/authority.ts';
import type { Authority } from '../../src/exchange/authority.ts';
import type { Limits } from '../../src/exchange/snapshot.ts';
import type { Arrival } from '../../src/exchange/stages.ts';
import { createDoors } from '../../src/listen/doors.ts';
import { plainEntrance, proxyEntrance } from '../../src/listen/entrance.ts';
import { Listeners } from '../../src/listen/listeners.ts';
import { TlsEntrance } from '../../src/listen/tls-entrance.ts';
import { TEST_LIMITS } from '../support/arrivals.ts';
import { openOutside } from '../support/outside.ts';

/** Doors on a port. */
export interface Rig {
  readonly port: number;
  /** Transparent doors at every address, for connections to ports 443 and 80; of 127.0.0.1 they take it that the machine has it */
  readonly led: { readonly tls: number; readonly http: number };
  /** PEM of the CA that tunnels show */
  readonly ca: string;
  /** Every arrival so far, in order */
  readonly arrivals: Arrival[];
  /** Connections from sandboxes */
  readonly open: number;
  /** Resolves when there is none. */
  emptied(): Promise<void>;
  /** Resolves with the first arrival (from now or before, from index `after`) that fits. */
  arrival(fits: (arrival: Arrival) => boolean, after?: number): Promise<Arrival>;
  /** Stops as a house does. */
  drain(drainMs: number): Promise<void>;
  close(): Promise<void>;
}

/** Where a CONNECT wants to go, as intake would read it. */
export function targetOf({ target }: Arrival): Authority {
  const authority = parseAuthority(target);
  if (authority === undefined) throw new Error(`not an authority: "${target}"`);
  return authority;
}

/** Plays the journey. */
export type Journey = (arrival: Arrival) => Promise<void> | void;

/** Answers an exchange with 200 and its target, and lets every tunnel live. */
export const answerAll: Journey = async (arrival) => {
  if (arrival.trouble !== undefined) {
    arrival.reply.head(400, '', ['X-Trouble', arrival.trouble.code]);
    arrival.reply.end();
  } else if (arrival.purpose === 'tunnel') await arrival.open(targetOf(arrival), false);
  else if (arrival.purpose === 'exchange') {
    arrival.reply.head(200, 'OK', ['Content-Type', 'text/plain']);
    arrival.reply.write(Buffer.from(arrival.target));
    arrival.reply.end();
  }
};

/** Opens doors on a port of loopback. */
export async function openRig(journey: Journey = answerAll, limits: Partial<Limits> = {}): Promise<Rig> {
  const outside = await openOutside();
  const leaves = createLeafCache({ authority: outside.authority, max: 10, onMint: () => undefined, onHit: () => undefined });
  const arrivals: Arrival[] = [];
  const waiting = new Set<() => void>();
  let open = 0;
  const inForce = { ...TEST_LIMITS, ...limits };
  const egress = async (arrival: Arrival): Promise<void> => {
    arrivals.push(arrival);
    for (const look of waiting) look();
    await journey(arrival);
  };
  const doors = createDoors({
    egress,
    contextFor: (host) => leaves.contextFor(host),
    limits: () => inForce,
  });
  const listeners = new Listeners({
    doors,
    maxConnections: () => inForce.connections,
    onOpen: () => (open += 1),
    onClose: () => {
      open -= 1;
      for (const look of waiting) look();
    },
    log: { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined },
  });
  const { port } = await listeners.bind('proxy', { host: '127.0.0.1', port: 0 }, proxyEntrance(doors, inForce.headerMs));
  const isOwnAddress = (address: string): boolean => address === '127.0.0.1';
  const everywhere = { host: '0.0.0.0', port: 0 };
  const forTls = new TlsEntrance({
    doors,
    egress,
    destination: { port: 443, isOwnAddress },
    withinMs: inForce.handshakeMs,
  });
  const forPlain = plainEntrance(doors, inForce.headerMs, { port: 80, isOwnAddress });
  return {
    port,
    led: {
      tls: (await listeners.bind('tls', everywhere, forTls)).port,
      http: (await listeners.bind('http', everywhere, forPlain)).port,
    },
    ca: outside.authority.certificatePem,
    arrivals,
    get open() {
      return open;
    },
    arrival: (fits, after = 0) =>
      new Promise((resolve) => {
        const look = (): void => {
          const found = arrivals.slice(after).find(fits);
          if (found === undefined) return;
          waiting.delete(look);
          resolve(found);
        };
        waiting.add(look);
        look();
      }),
    emptied: () =>
      new Promise((resolve) => {
        const look = (): void => {
          if (open > 0) return;
          waiting.delete(look);
          resolve();
        };
        waiting.add(look);
        look();
      }),
    drain: (drainMs) => listeners.close(drainMs),
    close: async () => {
      await listeners.close(0);
      await outside.close();
    },
  };
}
