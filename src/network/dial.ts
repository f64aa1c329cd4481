// Route to socket: the judged addresses are tried in order with a staggered start, the first that connects wins (RFC 8305).
// It must never resolve a name, connect to an address the route does not hold, or leave a socket behind on any path.
import net from 'node:net';
import { parseAddress } from '../exchange/authority.ts';
import type { Authority, Host } from '../exchange/authority.ts';
import { Fault } from '../exchange/codes.ts';
import type { AddressRanges } from '../exchange/rule.ts';
import type { Route } from '../exchange/stages.ts';
import type { Guard } from './guard.ts';

/**
 * Opens a connection along a route, within `deadlineMs` from the call. The caller owns the socket it gets; everything else is
 * destroyed. Rejects with a Fault: `upstream_connect` where no address answers, `upstream_timeout` at the deadline,
 * `address_denied` where an address is no longer allowed, `client_closed` where `signal` aborts.
 */
export type Dial = (route: Route, deadlineMs: number, signal?: AbortSignal) => Promise<net.Socket>;

/** Makes a socket that is connecting. */
export type Connect = (options: net.TcpNetConnectOpts) => net.Socket;

/** What dialling needs. */
export interface DialOptions {
  readonly guard: Guard;
  /** How long one address may be silent before the next is tried beside it, in `ms`; default 250 */
  readonly staggerMs?: number;
  /** Default `net.connect` */
  readonly connect?: Connect;
}

/** See Dial. */
export function createDial(options: DialOptions): Dial {
  return dialRoutes(createDialTo(options));
}

/** A Dial over what opens connections to targets. */
export function dialRoutes(dial: DialTo): Dial {
  return (route, deadlineMs, signal) => dial(targetOf(route), deadlineMs, signal);
}

/** Where a route leads. */
export function targetOf({ addresses, permit }: Route): DialTarget {
  return { authority: permit.intent.authority, addresses, opened: permit.rule.opened };
}

/** Where a dial goes: judged addresses of an authority, and the ranges that were open when they were judged. */
export interface DialTarget {
  readonly authority: Authority;
  readonly addresses: readonly Host[];
  readonly opened: AddressRanges;
}

/** Opens a connection to a target; like Dial in all else. */
export type DialTo = (target: DialTarget, deadlineMs: number, signal?: AbortSignal) => Promise<net.Socket>;

/** A dial of addresses that stand in no route. */
export function createDialTo({ guard, staggerMs = 250, connect = net.connect }: DialOptions): DialTo {
  return ({ authority: { port }, addresses, opened }, deadlineMs, signal) =>
    new Promise((resolve, reject) => {
      const race = new Race({
        addresses,
        port,
        staggerMs,
        connect,
        isAllowed: (address) => guard.judge(address, port, opened).allowed,
        won: resolve,
        lost: reject,
      });
      race.run(deadlineMs, signal);
    });
}

interface RaceTerms {
  readonly addresses: readonly Host[];
  readonly port: number;
  readonly staggerMs: number;
  readonly connect: Connect;
  readonly isAllowed: (address: Host) => boolean;
  readonly won: (socket: net.Socket) => void;
  readonly lost: (fault: Fault) => void;
}

/** One dial: the attempts under way and the one end they come to. */
class Race {
  readonly #terms: RaceTerms;
  /** Each attempt with what takes the race's listeners off it again */
  readonly #attempts = new Map<net.Socket, () => void>();
  readonly #failures: unknown[] = [];
  #next = 0;
  #over = false;
  #stagger: NodeJS.Timeout | undefined;
  #release = (): void => undefined;

  constructor(terms: RaceTerms) {
    this.#terms = terms;
  }

  run(deadlineMs: number, signal: AbortSignal | undefined): void {
    const leave = (): void => this.#lose(new Fault('client_closed', 'the sandbox left before the upstream was reached'));
    if (signal?.aborted === true) {
      leave();
      return;
    }
    const expire = (): void => {
      this.#lose(new Fault('upstream_timeout', `the upstream was not reached within ${deadlineMs} ms`, this.#cause()));
    };
    const deadline = setTimeout(expire, deadlineMs);
    signal?.addEventListener('abort', leave);
    this.#release = () => {
      clearTimeout(deadline);
      signal?.removeEventListener('abort', leave);
    };
    this.#tryNext();
  }

  #tryNext(): void {
    clearTimeout(this.#stagger);
    const address = this.#terms.addresses[this.#next++];
    if (address !== undefined) this.#try(address);
    else if (this.#attempts.size === 0) {
      this.#lose(new Fault('upstream_connect', 'no connection to the upstream could be opened', this.#cause()));
    }
  }

  #try(address: Host): void {
    try {
      // Judged again: the machine's own addresses may have changed since the route was found.
      if (this.#terms.isAllowed(address)) this.#attempt(address);
      else this.#lose(new Fault('address_denied', 'the address of the upstream is no longer allowed'));
    } catch (error) {
      this.#lose(new Fault('internal_error', 'the connection to the upstream could not be begun', error));
    }
    if (!this.#over) this.#stagger = setTimeout(() => this.#tryNext(), this.#terms.staggerMs);
  }

  #attempt(address: Host): void {
    const { port, connect } = this.#terms;
    const socket = connect({ host: address, port, noDelay: true, autoSelectFamily: false, lookup: refuseToResolve });
    const onError = (error: Error): void => this.#failed(socket, error);
    const onClose = (): void => this.#failed(socket, new Error('closed before it was connected'));
    const onConnect = (): void => this.#connected(socket, address);
    // Stays for the life of the socket, so that an error between two owners cannot end the process.
    socket.on('error', ignoreError);
    socket.on('error', onError).on('close', onClose).on('connect', onConnect);
    // Taken off when the race is over: a pooled socket must not keep the exchange that opened it in memory.
    this.#attempts.set(socket, () => socket.off('error', onError).off('close', onClose).off('connect', onConnect));
  }

  #failed(socket: net.Socket, error: Error): void {
    this.#attempts.get(socket)?.();
    this.#attempts.delete(socket);
    socket.destroy();
    this.#failures.push(error);
    this.#tryNext();
  }

  #connected(socket: net.Socket, address: Host): void {
    const peer = socket.remoteAddress;
    if (peer === undefined) {
      this.#failed(socket, new Error('closed as soon as it was connected'));
    } else if (parseAddress(peer) !== address || socket.remotePort !== this.#terms.port) {
      this.#lose(new Fault('upstream_connect', 'the connection reached another address than the one dialled'));
    } else {
      this.#finish(socket);
      this.#terms.won(socket);
    }
  }

  #lose(fault: Fault): void {
    this.#finish(undefined);
    this.#terms.lost(fault);
  }

  /** Ends the race: no timer, listener or socket of it is left but the winner. */
  #finish(winner: net.Socket | undefined): void {
    this.#over = true;
    clearTimeout(this.#stagger);
    this.#release();
    for (const [socket, detach] of this.#attempts) {
      detach();
      if (socket !== winner) socket.destroy();
    }
    this.#attempts.clear();
  }

  #cause(): AggregateError | undefined {
    return this.#failures.length === 0 ? undefined : new AggregateError(this.#failures, 'every address that was tried failed');
  }
}

function ignoreError(): void {
  // The owner of the socket hears of it through its own listener.
}

// A route holds addresses only; were one ever a name, asking DNS here would undo the judgement (fault A26).
const refuseToResolve: net.LookupFunction = (host, _options, callback) => {
  callback(new Error(`internal error: the dial was given the name "${host}"`), '');
};
