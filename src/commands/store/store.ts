// `store status` and `store rekey`: the store of the config, whether a proxy runs or not.
// It must never make a store, or show anything of a key but its id, which stands in the clear in whatever is sealed with it.
import type { Logger } from '../../foundation/logger.ts';
import { inspectStore, isThere, keysAtHand } from '../../store/inspect.ts';
import type { KeyPlace } from '../../store/on-demand.ts';
import { RECORD_KINDS } from '../../store/record-store.ts';
import { rotateKey } from '../../store/rotation.ts';
import { complainOfConfig, configPath, readConfig } from '../context.ts';
import type { CommandContext, ConfigOption } from '../context.ts';
import { EXIT } from '../exit-codes.ts';
import type { ExitCode } from '../exit-codes.ts';
import { showOne } from '../resource-view.ts';
import type { JsonOption } from '../resource-view.ts';
import type { Voice } from '../voice.ts';

/** Options of both. */
export interface StoreOptions extends ConfigOption, JsonOption {}

/** Shows the engine, how many records of each kind there are, and which key seals them. 1 where the key at hand is not it. */
export async function status(options: StoreOptions, context: CommandContext): Promise<ExitCode> {
  const { voice, env, directory } = context;
  const place = await placeOf(options, context);
  if (typeof place === 'number') return place;
  const { uri, key } = place;
  const atHand = await keysAtHand(key, { env, baseDirectory: directory });
  const engine = uri.slice(0, uri.indexOf(':'));
  if (!isThere(uri, directory)) {
    showOne({ engine, stored: false, key_at_hand: atHand.key ?? null }, options, context);
    voice.say('nothing is stored yet: the file is made with the first record');
    return EXIT.ok;
  }
  const report = await inspectStore({ uri, baseDirectory: directory, warn: (text) => voice.say(`warning: ${text}`) });
  const { keys, unreadable } = report;
  const rotating = keys.length > 1 || atHand.next !== undefined;
  const facts = {
    engine,
    place: report.place,
    stored: keys.length > 0,
    records: Object.fromEntries(RECORD_KINDS.map((kind) => [kind, report.records[kind]])),
    unreadable,
    key_in_use: keys.at(-1) ?? null,
    key_at_hand: atHand.key ?? null,
    rotation: rotating ? 'begun' : 'none',
  };
  showOne(facts, options, context);
  if (rotating) voice.say('warning: a rotation of the key goes on, or was interrupted; sallyport store rekey finishes it');
  if (unreadable > 0) voice.say(`warning: records that are sealed with no key in use: ${unreadable}; delete them`, 'bad');
  if (keys.length === 0 || [atHand.key, atHand.next].some((id) => id !== undefined && keys.includes(id))) return EXIT.ok;
  voice.complain('the store is sealed with another key than the one that store.key names; put the right one there');
  return EXIT.failed;
}

/** Seals the store anew with another key. Rejects with one line where that cannot be. */
export async function rekey(
  options: StoreOptions & { readonly newKeyFile?: string | undefined },
  context: CommandContext,
): Promise<ExitCode> {
  const { voice, env, directory } = context;
  const place = await placeOf(options, context);
  if (typeof place === 'number') return place;
  const { newKeyFile } = options;
  const rotation = await rotateKey({ ...place, newKeyFile, env, baseDirectory: directory, log: logOver(voice) });
  showOne({ records_sealed: rotation.records, key_in_use: rotation.keyId }, options, context);
  voice.say(nextStep(place.key, rotation.unchanged), 'good');
  return EXIT.ok;
}

function nextStep(key: KeyPlace, unchanged: boolean): string {
  if (unchanged) return 'this key was in use already';
  if (key.kind === 'env') {
    return `put the new key into the variable "${key.name}" of every proxy now, and start each again: until then it reads nothing of the store`;
  }
  return `"${key.path}" holds the new key now, and the proxies that read it there go on with it; where there is another copy of it, put the new key there`;
}

async function placeOf(
  options: ConfigOption,
  { voice, env, directory }: CommandContext,
): Promise<{ readonly uri: string; readonly key: KeyPlace } | ExitCode> {
  const file = configPath(options, env);
  const parsed = await readConfig(file, directory);
  if ('problems' in parsed) return complainOfConfig(voice, parsed.problems, file);
  const { uri, key } = parsed.config.store;
  if (key.kind === 'text') throw new Error('internal error: the key of the store stands in the config');
  return { uri, key };
}

/** What the store says to an operator's log, said to the person. */
function logOver(voice: Voice): Logger {
  const warn = (message: string): void => voice.say(`warning: ${message}`);
  const quiet = (): void => undefined;
  return { debug: quiet, info: quiet, warn, error: warn };
}
