// What a store holds and which key it is sealed with, found without any key: what is sealed says so itself, in the clear.
// It must never open a record, make a store that is not there, or show anything of a key but its id.
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Engine } from './engine.ts';
import { keyFromEnvironment, openKeyFile, readNextKey } from './key-file.ts';
import { CHECK_KEY } from './keyring.ts';
import type { KeyPlace } from './on-demand.ts';
import { filePath, openEngine } from './open-engine.ts';
import type { EnginePlace } from './open-engine.ts';
import { CALL_MS, startPatience } from './patience.ts';
import { RECORD_KINDS } from './record-store.ts';
import type { RecordKind } from './record-store.ts';
import { keyIdOf, sealKey } from './seal.ts';
import { StoreAway } from './store-error.ts';

/** What was found. */
export interface StoreReport {
  /** Without user, password and options */
  readonly place: string;
  readonly records: Readonly<Record<RecordKind, number>>;
  /** Ids of the keys in use, the one that is sealed with last; two while a rotation goes on, none where nothing was stored */
  readonly keys: readonly string[];
  /** Records that are sealed with none of them, or damaged so that it shows */
  readonly unreadable: number;
}

type Step = <T>(work: () => Promise<T>) => Promise<T>;

const PAGE = 1_000;

/** Whether there is a store to look at: a server always is, a file only once something was written. */
export function isThere(uri: string, baseDirectory: string): boolean {
  return !uri.startsWith('file:') || existsSync(filePath(uri, baseDirectory));
}

/** The ids of the keys at hand: the key's own, and that of a rotation that was begun and not finished. Makes no key. Rejects as reading it does. */
export async function keysAtHand(
  key: KeyPlace,
  { env, baseDirectory }: { readonly env: NodeJS.ProcessEnv; readonly baseDirectory: string },
): Promise<{ readonly key?: string; readonly next?: string }> {
  if (key.kind === 'env') return { key: sealKey(keyFromEnvironment(key.name, env)).id };
  const path = resolve(baseDirectory, key.path);
  const next = await readNextKey(path);
  const own = existsSync(path) ? { key: sealKey((await openKeyFile(path)).key).id } : {};
  return next === undefined ? own : { ...own, next: sealKey(next).id };
}

/** Looks at a store that is there. Rejects with StoreAway where it gives no answer, or an Error fit for the operator where it cannot be opened. */
export async function inspectStore(place: EnginePlace): Promise<StoreReport> {
  const engine = await openEngine(place);
  const step: Step = (work) =>
    startPatience(engine.place, CALL_MS, () => engine.silent())
      .wait(work)
      .catch((error: unknown) => {
        throw error instanceof StoreAway ? error : new StoreAway(engine.place, engine.reason(error));
      });
  try {
    const check = await step(() => engine.read(CHECK_KEY));
    const keys = (check ?? '').split(' ').flatMap((text) => keyIdOf(text) ?? []);
    const records: Record<RecordKind, number> = { credentials: 0, environments: 0, sources: 0, tokens: 0 };
    let unreadable = 0;
    for (const kind of RECORD_KINDS) {
      for await (const text of textsOf(engine, kind, step)) {
        records[kind] += 1;
        if (!keys.includes(keyIdOf(text) ?? '')) unreadable += 1;
      }
    }
    return { place: engine.place, records, keys, unreadable };
  } finally {
    // What was asked for is known by now, or will not be.
    await step(() => engine.close()).catch(() => undefined);
  }
}

async function* textsOf(engine: Engine, kind: RecordKind, step: Step): AsyncGenerator<string, void> {
  let after: string | undefined;
  for (;;) {
    const range = { prefix: `${kind}:`, after, limit: PAGE };
    const entries = await step(() => engine.range(range));
    for (const { text } of entries) yield text;
    if (entries.length < PAGE) return;
    after = entries.at(-1)?.key;
  }
}
