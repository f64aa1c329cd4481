// `environments`: sandboxes that the running proxy keeps. A guide's environment object is taken as it is pasted.
// The one secret that it shows is the proxy URL of a new environment, once: it is what the sandbox is given.
import { askOne, findAdmin, isTrouble } from '../admin-door.ts';
import type { AdminDoor, AdminOptions, Resource } from '../admin-door.ts';
import { complainOf } from '../context.ts';
import type { AskingContext, Trouble } from '../context.ts';
import { EXIT } from '../exit-codes.ts';
import type { ExitCode } from '../exit-codes.ts';
import { readResource } from '../resource-file.ts';
import { deleteOne, showAll, showAsked, showOne } from '../resource-view.ts';
import type { JsonOption } from '../resource-view.ts';

/** Options that all of them have. */
export type EnvironmentsOptions = AdminOptions & JsonOption;

const COLUMNS = ['id', 'status', 'file_count', 'create_time', 'update_time'];
const LOSS = 'its proxy URL is void from then on';
const ONCE =
  'the proxy URL is shown this once: it bears the token of the sandbox; give it to the sandbox, and keep it out of logs (a new one: sallyport environments rotate)';

/** Makes one of the object in a file, `-` for standard input; without a file, one that may reach every host outside the walls. */
export async function create(
  options: EnvironmentsOptions & { readonly file?: string | undefined },
  context: AskingContext,
): Promise<ExitCode> {
  return withDoor(options, context, async (door) => {
    const body = options.file === undefined ? { resource: {} } : await environmentIn(options.file, context);
    if ('problem' in body) return complainOf(body, context);
    const made = await door.ask({ method: 'POST', path: '/v1beta/environments', body: body.resource });
    if (isTrouble(made)) return complainOf(made, context);
    if (made['proxy_url'] !== undefined) return showUrl(made, options, context);
    // An object that names an environment changes that one, which has its URL already.
    showOne(made, options, context);
    return EXIT.ok;
  });
}

/** Shows all. */
export async function list(options: EnvironmentsOptions, context: AskingContext): Promise<ExitCode> {
  return withDoor(options, context, (door) => showAll({ door, kind: 'environments', columns: COLUMNS }, options, context));
}

/** Shows one, without its token and the values of its transforms. */
export async function get(id: string, options: EnvironmentsOptions, context: AskingContext): Promise<ExitCode> {
  return withDoor(options, context, (door) => showAsked({ door, kind: 'environments', id }, options, context));
}

/** Puts what a file names in the place of what was there, each part whole. */
export async function update(
  id: string,
  options: EnvironmentsOptions & { readonly file: string },
  context: AskingContext,
): Promise<ExitCode> {
  return withDoor(options, context, async (door) => {
    const body = await environmentIn(options.file, context);
    if ('problem' in body) return complainOf(body, context);
    const changed = await askOne(door, { method: 'PATCH', kind: 'environments', id, body: body.resource });
    if (isTrouble(changed)) return complainOf(changed, context);
    showOne(changed, options, context);
    return EXIT.ok;
  });
}

/** Gives one a new proxy URL; the old one is void. */
export async function rotate(id: string, options: EnvironmentsOptions, context: AskingContext): Promise<ExitCode> {
  return withDoor(options, context, async (door) => {
    const renewed = await askOne(door, { method: 'POST', kind: 'environments', id, below: '/token' });
    return isTrouble(renewed) ? complainOf(renewed, context) : showUrl(renewed, options, context);
  });
}

/** Deletes one, once somebody said yes. */
export async function remove(
  id: string,
  options: AdminOptions & { readonly yes?: boolean | undefined },
  context: AskingContext,
): Promise<ExitCode> {
  return withDoor(options, context, (door) => deleteOne({ door, kind: 'environments', id, loss: LOSS }, options, context));
}

async function withDoor(
  options: AdminOptions,
  context: AskingContext,
  work: (door: AdminDoor) => Promise<ExitCode>,
): Promise<ExitCode> {
  const door = await findAdmin(options, context);
  return 'problem' in door ? complainOf(door, context) : work(door);
}

/** The object, also where it is pasted inside the `environment` that it has in a request. */
async function environmentIn(file: string, context: AskingContext): Promise<{ readonly resource: Resource } | Trouble> {
  const read = await readResource(file, context);
  if ('problem' in read) return read;
  const { environment, ...others } = read.resource;
  const wrapped = typeof environment === 'object' && environment !== null && !Array.isArray(environment);
  return wrapped && Object.keys(others).length === 0 ? { resource: environment as Resource } : read;
}

function showUrl({ id, proxy_url: url }: Resource, options: JsonOption, context: AskingContext): ExitCode {
  showOne({ id, proxy_url: url }, options, context);
  context.voice.say(`note: ${ONCE}`);
  return EXIT.ok;
}
