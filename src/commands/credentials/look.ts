// `credentials list`, `get` and `delete`: what the proxy shows of stored credentials, which is never a secret.
// It must never delete one that nobody said yes to.
import { findAdmin } from '../admin-door.ts';
import type { AdminOptions } from '../admin-door.ts';
import { complainOf } from '../context.ts';
import type { AskingContext } from '../context.ts';
import type { ExitCode } from '../exit-codes.ts';
import { deleteOne, showAll, showAsked } from '../resource-view.ts';
import type { JsonOption } from '../resource-view.ts';

const COLUMNS = ['id', 'type', 'status', 'create_time', 'update_time'];
const LOSS = 'requests that need it are refused from then on, and the secret cannot be had back';

/** Shows all stored credentials. */
export async function list(options: AdminOptions & JsonOption, context: AskingContext): Promise<ExitCode> {
  const door = await findAdmin(options, context);
  if ('problem' in door) return complainOf(door, context);
  return showAll({ door, kind: 'credentials', columns: COLUMNS }, options, context);
}

/** Shows one. */
export async function get(id: string, options: AdminOptions & JsonOption, context: AskingContext): Promise<ExitCode> {
  const door = await findAdmin(options, context);
  if ('problem' in door) return complainOf(door, context);
  return showAsked({ door, kind: 'credentials', id }, options, context);
}

/** Deletes one, once somebody said yes. */
export async function remove(
  id: string,
  options: AdminOptions & { readonly yes?: boolean | undefined },
  context: AskingContext,
): Promise<ExitCode> {
  const door = await findAdmin(options, context);
  if ('problem' in door) return complainOf(door, context);
  return deleteOne({ door, kind: 'credentials', id, loss: LOSS }, options, context);
}
