// How resources of the proxy are shown, as a table to a person and as the proxy's own JSON to everybody else, and how one is deleted.
// It must never delete anything that nobody said yes to.
import { askOne, isTrouble, listAll } from './admin-door.ts';
import type { AdminDoor, Kind, Resource } from './admin-door.ts';
import { complainOf } from './context.ts';
import type { AskingContext, CommandContext } from './context.ts';
import { EXIT } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';
import type { Cell } from './voice.ts';

/** The option that all of them have. */
export interface JsonOption {
  readonly json?: boolean | undefined;
}

/** Shows one resource. */
export function showOne(resource: Resource, { json }: JsonOption, { voice }: CommandContext): void {
  if (json === true || !voice.onTerminal) voice.json(resource);
  else voice.table(Object.entries(resource).map(([name, value]): [string, Cell] => [name, cellOf(value)]));
}

/** Shows all resources of a kind; `columns` are members of each. */
export async function showAll(
  { door, kind, columns }: { readonly door: AdminDoor; readonly kind: Kind; readonly columns: readonly string[] },
  { json }: JsonOption,
  context: CommandContext,
): Promise<ExitCode> {
  const { voice } = context;
  const listed = await listAll(door, kind);
  if ('problem' in listed) return complainOf(listed, context);
  const { entries, unreadable } = listed;
  const rows = entries.map((entry) => columns.map((name) => cellOf(entry[name])));
  if (json === true || !voice.onTerminal) voice.json({ [kind]: entries, ...(unreadable.length === 0 ? {} : { unreadable }) });
  else if (rows.length === 0) voice.say(`there are no ${kind}`);
  else voice.table(rows, columns);
  if (unreadable.length > 0) {
    voice.say(`warning: these do not open, and are to be deleted and made anew: ${unreadable.join(', ')}`, 'bad');
  }
  return EXIT.ok;
}

/** Shows one that is asked for. */
export async function showAsked(
  { door, kind, id }: { readonly door: AdminDoor; readonly kind: Kind; readonly id: string },
  options: JsonOption,
  context: CommandContext,
): Promise<ExitCode> {
  const found = await askOne(door, { method: 'GET', kind, id });
  if (isTrouble(found)) return complainOf(found, context);
  showOne(found, options, context);
  return EXIT.ok;
}

/** Deletes one resource, once somebody said yes. `loss` is what it comes to, for the question. */
export async function deleteOne(
  { door, kind, id, loss }: { readonly door: AdminDoor; readonly kind: Kind; readonly id: string; readonly loss: string },
  { yes }: { readonly yes?: boolean | undefined },
  context: AskingContext,
): Promise<ExitCode> {
  const { voice, input } = context;
  const noun = kind.slice(0, -1);
  if (yes !== true) {
    if (!input.onTerminal) {
      return complainOf({ problem: 'nobody is here to be asked; say --yes to delete it', code: EXIT.usage }, context);
    }
    if (!(await input.confirm(`delete the ${noun} "${id}"? ${loss}`))) {
      voice.say('nothing was deleted');
      return EXIT.failed;
    }
  }
  const answer = await askOne(door, { method: 'DELETE', kind, id });
  if (isTrouble(answer)) return complainOf(answer, context);
  voice.say(`the ${noun} "${id}" is deleted`, 'good');
  return EXIT.ok;
}

function cellOf(value: unknown): Cell {
  if (typeof value === 'string') return value;
  if (value === undefined) return '';
  if (Array.isArray(value)) return value.map((each) => (typeof each === 'string' ? each : JSON.stringify(each)));
  return JSON.stringify(value, undefined, 2).split('\n');
}
