// The credentials of the config whose values are fetched: a client of OAuth 2.0, or a command. One source for each as long as the config
// declares the same; a reload that changes one closes its source, and leaves the others alone.
// It must never fetch for a config that is only read or checked: that begins with `use`.
import type { Fetched, Resolution } from '../exchange/snapshot.ts';
import type { ExecCommand } from './exec.ts';
import { freshUse } from './in-use.ts';
import type { FreshFields, InUse, UseHealth } from './in-use.ts';
import { digestOf } from './token-records.ts';
import type { Grant } from './token-records.ts';

/** What the config declares. */
export type Declaration = (Grant & { readonly type: 'oauth2' }) | (ExecCommand & { readonly type: 'exec' });

/** A declared credential whose value is fetched, as the snapshot bears it. */
export class DeclaredSource implements Fetched {
  readonly id: string;
  readonly type: Declaration['type'];
  readonly fetched: readonly string[];
  readonly declaration: Declaration;
  /** Equal exactly when the config declares the same under the same id; of secrets, and not to be shown */
  readonly key: string;

  constructor(id: string, declaration: Declaration) {
    this.id = id;
    this.type = declaration.type;
    this.fetched = [declaration.type === 'exec' ? declaration.header_name : 'Authorization'];
    this.declaration = declaration;
    this.key = `${id} ${declaration.type === 'exec' ? JSON.stringify(declaration) : oauth2Key(declaration)}`;
  }
}

function oauth2Key(grant: Grant): string {
  return `${digestOf(grant)} ${grant.opened?.key ?? ''}`;
}

/** Makes the fields of a declaration; `onEnd` hears of each new end, epoch `ms`. */
export type OpenDeclared = (source: DeclaredSource, onEnd: (endsAt: number | undefined) => void) => FreshFields;

interface Used {
  readonly id: string;
  readonly use: InUse;
  /** When its value ends, epoch `ms` */
  readonly end: { at: number | undefined };
}

/** The sources in force. */
export class DeclaredSources {
  readonly #open: OpenDeclared;
  readonly #onEnd: (id: string, endsAt: number | undefined) => void;
  readonly #uses = new Map<string, Used>();
  /** By the object of the snapshot, so that a request costs one look */
  readonly #found = new WeakMap<Fetched, InUse>();

  constructor(open: OpenDeclared, onEnd: (id: string, endsAt: number | undefined) => void) {
    this.#open = open;
    this.#onEnd = onEnd;
  }

  /** What a declared credential stands for now; never rejects. */
  resolve(declared: Fetched): Resolution | Promise<Resolution> {
    const use = this.#found.get(declared) ?? this.#use(declared);
    return use?.resolve() ?? { unavailable: 'nothing here fetches it' };
  }

  health(declared: Fetched): UseHealth {
    return this.#found.get(declared)?.health() ?? { health: 'unused' };
  }

  /**
   * The config in force: begins to fetch what it declares, so that the first request need not wait, and closes what it declares no
   * more. An exchange that was judged by the one before still gets what had been fetched.
   */
  use(declared: Iterable<Fetched | Resolution>): void {
    const keys = new Set<string>();
    for (const source of declared) {
      if (!(source instanceof DeclaredSource)) continue;
      keys.add(source.key);
      void this.resolve(source);
    }
    for (const [key, { use, id }] of this.#uses) {
      if (keys.has(key)) continue;
      use.close();
      this.#uses.delete(key);
      // Its end counts no more; that of whatever came in its place does.
      this.#onEnd(id, [...this.#uses.values()].find((other) => other.id === id)?.end.at);
    }
  }

  /** Ends all renewals. */
  close(): void {
    for (const { use } of this.#uses.values()) use.close();
    this.#uses.clear();
  }

  #use(declared: Fetched): InUse | undefined {
    if (!(declared instanceof DeclaredSource)) return undefined;
    const used = this.#uses.get(declared.key) ?? this.#begin(declared);
    this.#found.set(declared, used.use);
    return used.use;
  }

  #begin(declared: DeclaredSource): Used {
    const { key, id } = declared;
    const end: Used['end'] = { at: undefined };
    const onEnd = (endsAt: number | undefined): void => {
      end.at = endsAt;
      this.#onEnd(id, endsAt);
    };
    const used: Used = { id, use: freshUse(this.#open(declared, onEnd), onEnd), end };
    this.#uses.set(key, used);
    return used;
  }
}
