// `credentials create`: a new credential of the running proxy, from options and secrets, or from a file that holds it whole.
// It must never take a secret from an argument.
import { nearestWord } from '../../foundation/edit-distance.ts';
import { findAdmin, isTrouble } from '../admin-door.ts';
import type { AdminOptions, Resource } from '../admin-door.ts';
import { complainOf } from '../context.ts';
import type { AskingContext, Trouble } from '../context.ts';
import { EXIT } from '../exit-codes.ts';
import type { ExitCode } from '../exit-codes.ts';
import { readResource } from '../resource-file.ts';
import { showOne } from '../resource-view.ts';
import type { JsonOption } from '../resource-view.ts';
import { CREDENTIAL_FORMS, isStoredType } from './forms.ts';
import type { MemberOptions } from './forms.ts';
import { gatherSecrets, hasSource, looksLikeSecret, NEVER_AN_ARGUMENT } from './secrets.ts';
import type { SecretOptions } from './secrets.ts';

/** Options of `credentials create`. */
export interface CreateOptions extends AdminOptions, SecretOptions, JsonOption {
  readonly type?: string | undefined;
  /** Left out, the proxy makes one */
  readonly id?: string | undefined;
  readonly members: MemberOptions;
  /** The whole resource as JSON; `-` is standard input */
  readonly file?: string | undefined;
}

type Body = { readonly resource: Resource } | Trouble;

/** Creates it, and shows what the proxy says of it. */
export async function create(options: CreateOptions, context: AskingContext): Promise<ExitCode> {
  const { id, type, members, file } = options;
  const words = [id, type, members.prefix, ...(members.header_name ?? [])];
  if (words.some((word) => word !== undefined && looksLikeSecret(word))) return complainOf(usage(NEVER_AN_ARGUMENT), context);
  const door = await findAdmin(options, context);
  if ('problem' in door) return complainOf(door, context);
  const body = file === undefined ? await bodyOf(options, context) : await bodyIn(file, options, context);
  if ('problem' in body) return complainOf(body, context);
  const made = await door.ask({ method: 'POST', path: '/v1beta/credentials', body: body.resource });
  if (isTrouble(made)) return complainOf(made, context);
  showOne(made, options, context);
  return EXIT.ok;
}

async function bodyIn(file: string, options: CreateOptions, context: AskingContext): Promise<Body> {
  const others: readonly unknown[] = [options.type, options.id, ...Object.values<unknown>({ ...options.members })];
  if (hasSource(options) || others.some((other) => other !== undefined)) {
    return usage('--file holds the whole credential; leave the other options out, or --file');
  }
  return readResource(file, context);
}

async function bodyOf(options: CreateOptions, context: AskingContext): Promise<Body> {
  const { type, id, members } = options;
  if (!isStoredType(type)) return typeTrouble(type);
  const form = CREDENTIAL_FORMS[type];
  const known: readonly string[] = form.options;
  const stranger = Object.entries(members).find(([name, value]) => value !== undefined && !known.includes(name));
  if (stranger !== undefined) return usage(`a credential of type "${type}" has no ${optionOf(stranger[0])}`);
  const { header_name: headers = [], ...others } = members;
  if (type !== 'header' && headers.length > 1) return usage('--header-name is given twice');
  if (type === 'header' && headers.length === 0 && (options.secret ?? []).length === 0) {
    return usage('name the headers: --header-name NAME for each that is asked for, or --secret NAME=FILE');
  }
  const names = type === 'header' ? headers : form.secrets;
  const wanted = { of: id ?? type, names, optional: form.optional, open: type === 'header' };
  const gathered = await gatherSecrets(wanted, options, context);
  if ('problem' in gathered) return gathered;
  const { secrets } = gathered;
  if (type === 'header') return { resource: { type, id, headers: secrets } };
  // JSON leaves out what is undefined
  return { resource: { type, id, header_name: headers[0], ...others, ...secrets } };
}

function typeTrouble(type: string | undefined): Trouble {
  const known = Object.keys(CREDENTIAL_FORMS);
  if (type === undefined) return usage(`say what it is with --type: ${known.join(', ')}; or give it whole with --file`);
  if (type === 'exec') return usage('credentials of type "exec" run a command beside the proxy, and come from its config alone');
  const meant = nearestWord(type, known);
  return usage(
    meant === undefined ? `--type is one of ${known.join(', ')}` : `--type must be a known one; did you mean "${meant}"?`,
  );
}

const OPTION_OF: Readonly<Record<string, string>> = { scopes: '--scope', trusted_domains: '--trusted-domain' };

function optionOf(member: string): string {
  return OPTION_OF[member] ?? `--${member.replaceAll('_', '-')}`;
}

function usage(problem: string): Trouble {
  return { problem, code: EXIT.usage };
}
