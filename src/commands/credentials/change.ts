// `credentials update` and `rotate`: what is stored changes, and what is not named stays. A rotation asks for the new secret alone.
// It must never take a secret from an argument, nor leave a session token in force beside a key that it does not belong to.
import { askOne, findAdmin, isTrouble } from '../admin-door.ts';
import type { AdminDoor, AdminOptions, Resource } from '../admin-door.ts';
import { complainOf } from '../context.ts';
import type { AskingContext, Trouble } from '../context.ts';
import { EXIT } from '../exit-codes.ts';
import type { ExitCode } from '../exit-codes.ts';
import { readResource } from '../resource-file.ts';
import { showOne } from '../resource-view.ts';
import type { JsonOption } from '../resource-view.ts';
import { CREDENTIAL_FORMS, isStoredType } from './forms.ts';
import { gatherSecrets } from './secrets.ts';
import type { SecretOptions } from './secrets.ts';

/** Arguments and options of `credentials update`. */
export interface UpdateOptions extends AdminOptions, JsonOption {
  readonly id: string;
  /** Members to be changed, as JSON; `-` is standard input */
  readonly file: string;
}

/** Arguments and options of `credentials rotate`. */
export interface RotateOptions extends AdminOptions, SecretOptions, JsonOption {
  readonly id: string;
  /** Of `aws_sigv4`, whose keys come in pairs */
  readonly accessKeyId?: string | undefined;
}

/** A change that is to be sent. */
interface Change {
  readonly body: Resource;
  /** Members that count even where the body has none */
  readonly mask?: readonly string[];
}

/** Changes the members that the file names. */
export async function update(options: UpdateOptions, context: AskingContext): Promise<ExitCode> {
  const door = await findAdmin(options, context);
  if ('problem' in door) return complainOf(door, context);
  const read = await readResource(options.file, context);
  if ('problem' in read) return complainOf(read, context);
  if (read.resource['type'] !== undefined) return send(door, { ...options, body: read.resource }, context);
  const now = await askOne(door, { method: 'GET', kind: 'credentials', id: options.id });
  if (isTrouble(now)) return complainOf(now, context);
  return send(door, { ...options, body: { type: now['type'], ...read.resource } }, context);
}

/** Gives it new secrets. */
export async function rotate(options: RotateOptions, context: AskingContext): Promise<ExitCode> {
  const door = await findAdmin(options, context);
  if ('problem' in door) return complainOf(door, context);
  const now = await askOne(door, { method: 'GET', kind: 'credentials', id: options.id });
  if (isTrouble(now)) return complainOf(now, context);
  const change = await changeOf(now, options, context);
  return 'problem' in change ? complainOf(change, context) : send(door, { ...options, ...change }, context);
}

async function changeOf(now: Resource, options: RotateOptions, context: AskingContext): Promise<Change | Trouble> {
  const { type } = now;
  const { id, accessKeyId } = options;
  if (!isStoredType(type)) return { problem: `"${id}" has a type that this version does not know`, code: EXIT.failed };
  if (accessKeyId !== undefined && type !== 'aws_sigv4') {
    return { problem: `a credential of type "${type}" has no --access-key-id`, code: EXIT.usage };
  }
  if (type === 'header') {
    // The proxy keeps the headers as one member, and shows no value that could be sent along with a new one.
    const names = Array.isArray(now['header_names']) ? now['header_names'].map(String) : [];
    const gathered = await gatherSecrets({ of: id, names, optional: [] }, options, context);
    return 'problem' in gathered ? gathered : { body: { type, headers: gathered.secrets } };
  }
  const { secrets: names, rotated } = CREDENTIAL_FORMS[type];
  // By name each may be rotated alone; else it is about one, and a person is asked for the others too.
  const optional = (options.secret ?? []).length > 0 ? names : names.filter((name) => name !== rotated);
  const gathered = await gatherSecrets({ of: id, names, optional }, options, context);
  if ('problem' in gathered) return gathered;
  const { secrets } = gathered;
  const members = { ...secrets, ...(accessKeyId === undefined ? {} : { access_key_id: accessKeyId }) };
  const body = { type, ...members };
  // A session token belongs to the key that it came with: without a new one, the old one is dropped.
  if (secrets['secret_access_key'] === undefined) return { body };
  return { body, mask: [...new Set([...Object.keys(members), 'session_token'])] };
}

async function send(
  door: AdminDoor,
  { id, body, mask, json }: JsonOption & Change & { readonly id: string },
  context: AskingContext,
): Promise<ExitCode> {
  const below = mask === undefined ? '' : `?update_mask=${mask.join(',')}`;
  const changed = await askOne(door, { method: 'PATCH', kind: 'credentials', id, below, body });
  if (isTrouble(changed)) return complainOf(changed, context);
  showOne(changed, { json }, context);
  context.voice.say('in force on this proxy now, and within 10 s on every other that shares the store', 'good');
  return EXIT.ok;
}
