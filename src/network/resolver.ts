// Names to addresses, as the machine itself would resolve them (so /etc/hosts counts), each question asked once at a time.
// A question keeps a thread until the system gives it up, however long ago its asker left; so they are bounded, for each sandbox and
// in all. It must never remember an answer: every dial is judged on a fresh one, and what it returns is not yet judged.
import { promises as dns } from 'node:dns';
import type { Host } from '../exchange/authority.ts';
import { Fault } from '../exchange/codes.ts';

/** On whose behalf a name is asked for, and until when: `signal` aborts when the asker waits no longer. */
export interface Asker {
  readonly sandbox: string;
  readonly signal: AbortSignal;
}

/** Asks for the addresses of a name. */
export interface Resolver {
  /**
   * Every address of the name, in the order of the answer, as text that nobody has judged yet. Rejects where the name has none, and
   * with Fault `dns_failed` where too many other names are being resolved.
   */
  resolve(host: Host, asker: Asker): Promise<readonly string[]>;
}

/** How many names may be resolved at once, those included whose askers have left. */
export interface ResolverBounds {
  readonly total: number;
  /** Of one sandbox */
  readonly perSandbox: number;
  /** Names of one sandbox that may wait for their turn */
  readonly waiting: number;
}

const MOST_WAITING = 256;
/** Of libuv, where UV_THREADPOOL_SIZE says nothing else */
const USUAL_THREADS = 4;

/**
 * The system's resolver, bounded by the threads that libuv lends to lookups: half of its pool. One sandbox gets a quarter of those,
 * so that names which nobody answers for starve no other sandbox.
 */
export function systemResolver(env: NodeJS.ProcessEnv = process.env): Resolver {
  const threads = Number(env['UV_THREADPOOL_SIZE']);
  const total = Math.ceil((Number.isInteger(threads) && threads > 0 ? Math.min(threads, 1024) : USUAL_THREADS) / 2);
  return boundedResolver(lookUp, { total, perSandbox: Math.ceil(total / 4), waiting: MOST_WAITING });
}

async function lookUp(host: Host): Promise<readonly string[]> {
  // `verbatim` keeps the resolver's own preference among families (RFC 6724), which the dial order starts from.
  const answers = await dns.lookup(host, { all: true, order: 'verbatim' });
  return answers.map((answer) => answer.address);
}

/**
 * A resolver over `ask`. Questions for one name that overlap share one answer; within the bounds each is asked at once, beyond them
 * sandboxes take turns, and a question whose askers have all left before its turn is never asked.
 */
export function boundedResolver(ask: (host: Host) => Promise<readonly string[]>, bounds: ResolverBounds): Resolver {
  return new Lookups(ask, bounds);
}

interface Waiter {
  readonly resolve: (answer: Promise<readonly string[]>) => void;
}

/** The questions of one sandbox. */
interface Queue {
  readonly sandbox: string;
  /** Being asked, counted against the sandbox that asked first */
  underWay: number;
  readonly waiting: Map<Host, Set<Waiter>>;
}

class Lookups implements Resolver {
  readonly #ask: (host: Host) => Promise<readonly string[]>;
  readonly #bounds: ResolverBounds;
  readonly #inFlight = new Map<Host, Promise<readonly string[]>>();
  /** In the order of their turns */
  readonly #queues = new Map<string, Queue>();

  constructor(ask: (host: Host) => Promise<readonly string[]>, bounds: ResolverBounds) {
    this.#ask = ask;
    this.#bounds = bounds;
  }

  resolve(host: Host, { sandbox, signal }: Asker): Promise<readonly string[]> {
    const asked = this.#inFlight.get(host);
    if (asked !== undefined) return asked;
    const queue = this.#queueOf(sandbox);
    if (this.#mayBegin(queue)) return this.#begin(host, queue);
    return this.#wait(host, queue, signal);
  }

  #queueOf(sandbox: string): Queue {
    let queue = this.#queues.get(sandbox);
    if (queue === undefined) this.#queues.set(sandbox, (queue = { sandbox, underWay: 0, waiting: new Map() }));
    return queue;
  }

  #mayBegin(queue: Queue): boolean {
    return this.#inFlight.size < this.#bounds.total && queue.underWay < this.#bounds.perSandbox;
  }

  #begin(host: Host, queue: Queue): Promise<readonly string[]> {
    const asked = this.#ask(host);
    queue.underWay += 1;
    const answer = asked.finally(() => {
      queue.underWay -= 1;
      this.#inFlight.delete(host);
      this.#goOn();
    });
    this.#inFlight.set(host, answer);
    // Whoever waits for this name has no need of a turn any more.
    for (const { waiting } of this.#queues.values()) {
      for (const waiter of waiting.get(host) ?? []) waiter.resolve(answer);
      waiting.delete(host);
    }
    return answer;
  }

  #wait(host: Host, { waiting }: Queue, signal: AbortSignal): Promise<readonly string[]> {
    const waiters = waiting.get(host) ?? new Set<Waiter>();
    if (waiters.size === 0 && waiting.size >= this.#bounds.waiting) return Promise.reject(crowded());
    waiting.set(host, waiters);
    return new Promise((resolve, reject) => {
      const waiter: Waiter = { resolve };
      waiters.add(waiter);
      signal.addEventListener('abort', () => {
        if (!waiters.delete(waiter)) return;
        if (waiters.size === 0 && waiting.get(host) === waiters) waiting.delete(host);
        reject(crowded());
      });
    });
  }

  /** Begins what there is room for, one name of each sandbox at a time. */
  #goOn(): void {
    for (const queue of this.#queues.values()) {
      if (this.#inFlight.size >= this.#bounds.total) return;
      if (queue.underWay === 0 && queue.waiting.size === 0) this.#queues.delete(queue.sandbox);
      const next = queue.waiting.keys().next();
      if (next.done === true || !this.#mayBegin(queue)) continue;
      // Behind the others now; the loop comes by again for its next name.
      this.#queues.delete(queue.sandbox);
      this.#queues.set(queue.sandbox, queue);
      void this.#begin(next.value, queue);
    }
  }
}

function crowded(): Fault {
  return new Fault('dns_failed', 'too many other names of this sandbox are being resolved; retry later');
}
