// The environments of the store as sandboxes, laid over those of the config. Each is compiled once for each of its versions, by the rules of
// the config; what was changed here is in force at once, what another proxy changed on the same store within POLL_MS.
// It must never take the door down: an environment that cannot be read is refused, and said in the log, and the others go on.
import { createHmac, randomBytes } from 'node:crypto';
import type { Records, StoredRecord } from '../exchange/records.ts';
import type { Policy } from '../exchange/rule.ts';
import type { SandboxRegistry, Snapshot } from '../exchange/snapshot.ts';
import type { Sandbox } from '../exchange/stages.ts';
import type { Logger } from '../foundation/logger.ts';
import { buildPolicy, underDenylistOf } from '../policy/policy-index.ts';
import type { PolicyParts } from '../policy/policy-index.ts';
import { compileNetwork } from './compile-network.ts';
import { boundIn } from './environment-body.ts';
import { openEnvironment, tokenDigest } from './environment-record.ts';
import { Findings } from './problem.ts';
import { presentedToken } from './sandboxes.ts';
import { NOTHING_YET, SourceReader } from './source-reader.ts';

/** What of the config environments are laid over. */
export interface Base {
  readonly snapshot: Snapshot;
  /** Of the top-level `network`: its denylist holds for every environment too */
  readonly policy: Policy;
  /** Its `redact` is for rules of environments that do not say it */
  readonly config: { readonly redact?: boolean | undefined };
}

/** How an environment is, for the status. */
export interface EnvironmentState {
  readonly id: string;
  readonly network: 'open' | 'disabled' | 'allowlist';
  readonly health: 'ok' | 'refused';
  readonly reason?: string;
}

/** The environments in force. */
export interface Environments {
  /** The config's snapshot with the environments among its sandboxes; the same one as long as nothing has changed. */
  over(base: Base): Snapshot;
  /** An environment was written here; in force when this resolves. Never rejects. */
  changed(record: StoredRecord): Promise<void>;
  /** An environment was deleted here; nobody is known by its token any more. */
  removed(id: string): void;
  /** Looks at the store now. Never rejects. */
  look(): Promise<void>;
  /** Looks every POLL_MS from now on. */
  watch(): void;
  states(): readonly EnvironmentState[];
  close(): void;
}

/** How often the store is looked at: with the 2 s that it may take, a change is in force everywhere within 10 s. */
export const POLL_MS = 5_000;
/** How long what was read is in force while the store is away. */
export const AWAY_MS = 5 * 60_000;
const PAGE = 100;

/** What the environments are made of. */
export interface EnvironmentsOptions {
  readonly records: Pick<Records, 'list'>;
  readonly log: Logger;
  /** Whether there is a store that could hold, or could have held, an environment. Default: there is */
  readonly mayHold?: () => boolean;
  readonly pollMs?: number;
  /** A monotonic clock in `ms` */
  readonly now?: () => number;
}

/** Makes the set, empty until the first look. */
export function createEnvironments(options: EnvironmentsOptions): Environments {
  return new LiveEnvironments(options);
}

/** The policy of an environment's own network under the config's `redact`. */
type OwnPolicy = (redact: boolean | undefined) => Policy;

interface Compiled {
  readonly version: number;
  readonly own: OwnPolicy;
  readonly bound: ReadonlySet<string>;
  readonly digest: string | undefined;
  readonly state: EnvironmentState;
}

class LiveEnvironments implements Environments {
  readonly #options: EnvironmentsOptions;
  readonly #now: () => number;
  readonly #key = randomBytes(32);
  readonly #compiled = new Map<string, Compiled>();
  /** Ids that were written or deleted here while a look is under way: what it has read of them may be older */
  readonly #touched = new Set<string>();
  #looking: Promise<void> | undefined = undefined;
  #seenAt: number;
  #away = false;
  #troubled = false;
  #timer: NodeJS.Timeout | undefined = undefined;
  #closed = false;
  #base: Base | undefined = undefined;
  #snapshot: Snapshot | undefined = undefined;

  constructor(options: EnvironmentsOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    this.#seenAt = this.#now();
  }

  over(base: Base): Snapshot {
    if (this.#snapshot !== undefined && this.#base === base) return this.#snapshot;
    this.#base = base;
    this.#snapshot = { ...base.snapshot, sandboxes: this.#registryOver(base) };
    return this.#snapshot;
  }

  async changed(record: StoredRecord): Promise<void> {
    this.#touched.add(record.id);
    const compiled = await this.#compile(record);
    // Two writes may be under way at once, and the later one must stay.
    if ((this.#compiled.get(record.id)?.version ?? 0) < record.version) this.#put(record.id, compiled);
  }

  removed(id: string): void {
    this.#touched.add(id);
    if (this.#compiled.delete(id)) this.#snapshot = undefined;
  }

  look(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  watch(): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => void this.look().finally(() => this.watch()), this.#options.pollMs ?? POLL_MS).unref();
  }

  states(): readonly EnvironmentState[] {
    return [...this.#compiled.values()].map(({ state }) =>
      this.#away ? { ...state, health: 'refused', reason: STORE_AWAY } : state,
    );
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  async #look(): Promise<void> {
    this.#touched.clear();
    const asked = this.#now();
    try {
      const there = new Set<string>();
      for (let after: string | undefined; ;) {
        const page = await this.#options.records.list('environments', { limit: PAGE, ...(after === undefined ? {} : { after }) });
        for (const record of page.records) {
          there.add(record.id);
          await this.#adopt(record);
        }
        for (const id of page.broken) {
          there.add(id);
          this.#refuse(id, 'its record in the store does not open');
        }
        if (page.next === undefined) break;
        after = page.next;
      }
      for (const id of this.#compiled.keys()) {
        if (!there.has(id) && !this.#touched.has(id) && this.#compiled.delete(id)) this.#snapshot = undefined;
      }
      this.#seenAt = asked;
      this.#troubled = false;
    } catch (error) {
      // The store says itself that it is away; anything else is for the log, once.
      if (!this.#troubled) this.#options.log.warn('the environments of the store cannot be looked at', { cause: error });
      this.#troubled = true;
    }
    const away = this.#now() - this.#seenAt >= AWAY_MS;
    if (away !== this.#away) this.#snapshot = undefined;
    if (away && !this.#away) this.#options.log.error(`${STORE_AWAY}: every environment is refused until it is back`);
    this.#away = away;
  }

  async #adopt(record: StoredRecord): Promise<void> {
    const known = this.#compiled.get(record.id);
    if (known?.version === record.version || this.#touched.has(record.id)) return;
    const compiled = await this.#compile(record);
    if (!this.#touched.has(record.id)) this.#put(record.id, compiled);
  }

  #put(id: string, compiled: Compiled): void {
    const { state } = compiled;
    if (state.health === 'refused') this.#options.log.error(`environment "${id}" is refused: ${state.reason ?? ''}`);
    this.#compiled.set(id, compiled);
    this.#snapshot = undefined;
  }

  /** Whoever shows the last token that is known of it is refused under its name. */
  #refuse(id: string, reason: string): void {
    const known = this.#compiled.get(id);
    if (known?.version === BROKEN || this.#touched.has(id)) return;
    this.#put(id, refusedFor(id, { version: BROKEN, digest: known?.digest, reason }));
  }

  async #compile(record: StoredRecord): Promise<Compiled> {
    const { id, version } = record;
    const opened = openEnvironment(record);
    const digest = 'tokenDigest' in opened ? opened.tokenDigest : this.#compiled.get(id)?.digest;
    if ('problem' in opened) return refusedFor(id, { version, digest, reason: opened.problem });
    const findings = new Findings();
    const sources = new SourceReader({ baseDirectory: '/', env: {}, lastGood: NOTHING_YET }, findings);
    try {
      const { network } = opened;
      const parts = await compileNetwork(network, ['network'], { sources, findings, credentialIds: new Set() });
      const [problem] = findings.problems;
      if (problem !== undefined) return refusedFor(id, { version, digest, reason: `${problem.path}: ${problem.message}` });
      const own = builtOf(parts);
      // Here, and not while the first request waits for it
      own(this.#base?.config.redact);
      const kind = network === 'disabled' ? 'disabled' : opened.open ? 'open' : 'allowlist';
      const state = { id, network: kind, health: 'ok' } as const;
      return { version, own, bound: new Set(boundIn(opened.env)), digest, state };
    } catch (error) {
      this.#options.log.error('internal error: an environment could not be compiled', { environment: id, cause: error });
      return refusedFor(id, { version, digest, reason: 'internal error; see the log' });
    }
  }

  #registryOver({ snapshot, policy, config }: Base): SandboxRegistry {
    const { sandboxes: base } = snapshot;
    const byId = new Map<string, Sandbox>();
    const byDigest = new Map<string, Sandbox>();
    const keyed = (digest: string): string => createHmac('sha256', this.#key).update(digest).digest('base64');
    for (const [id, { own, bound, digest }] of this.#compiled) {
      // One of the config comes first.
      if (base.byId(id) !== undefined) continue;
      const judged = this.#away ? refusing(STORE_AWAY) : underDenylistOf(policy, own(config.redact));
      const sandbox: Sandbox = { id, bound, policy: judged };
      byId.set(id, sandbox);
      if (digest !== undefined) byDigest.set(keyed(digest), sandbox);
    }
    return {
      required: base.required,
      // Where nothing was ever stored, nobody was given a token, and what is shown is a stray one.
      heedsTokens: this.#compiled.size > 0 || (this.#options.mayHold ?? always)(),
      ids: [...base.ids, ...byId.keys()],
      byId: (id) => base.byId(id) ?? byId.get(id),
      bySource: (address) => base.bySource(address),
      byToken: (shown) => {
        const token = presentedToken(shown);
        if (token === undefined) return undefined;
        // By a keyed digest, so that the time a wrong one takes says nothing about the right ones.
        return byDigest.get(keyed(tokenDigest(token))) ?? (base.required ? base.byToken(shown) : undefined);
      },
    };
  }
}

function always(): boolean {
  return true;
}

const STORE_AWAY = 'the store has been away for longer than what it holds is used';
/** No record has it. */
const BROKEN = -1;

function refusedFor(
  id: string,
  { version, digest, reason }: { readonly version: number; readonly digest: string | undefined; readonly reason: string },
): Compiled {
  const state = { id, network: 'disabled', health: 'refused', reason } as const;
  return { version, digest, own: () => UNAVAILABLE, bound: new Set(), state };
}

/** Built anew only where the config's `redact` has changed: the set is put together with each change of any environment. */
function builtOf(parts: PolicyParts): OwnPolicy {
  let last: { readonly redact: boolean | undefined; readonly policy: Policy } | undefined;
  return (redact) => {
    if (last === undefined || last.redact !== redact) last = { redact, policy: buildPolicy(parts, redact) };
    return last.policy;
  };
}

/** Refuses every host, by a denylist of that name, so that the ledger tells it from a host that nobody allowed. */
function refusing(why: string): Policy {
  return { denied: () => why, rulesFor: () => [] };
}

const UNAVAILABLE = refusing('environment unavailable');
