// Where the secrets of a credential come from: standard input, a file, a file for each, or a question that does not show the answer.
// It must never take one from an argument, which other users see in the list of processes and the shell keeps in its history, nor
// repeat what may be one.
import { looksLikeToken, mayBeShown } from '../../foundation/shown-key.ts';
import type { AskingContext, Trouble } from '../context.ts';
import { EXIT } from '../exit-codes.ts';
import { readText } from '../resource-file.ts';

/** Options that say where secrets are. */
export interface SecretOptions {
  /** The one secret is all of standard input */
  readonly secretStdin?: boolean | undefined;
  /** File of the one secret */
  readonly secretFile?: string | undefined;
  /** `NAME=FILE`, one for each */
  readonly secret?: readonly string[] | undefined;
}

/** Which secrets are wanted. */
export interface Wanted {
  /** Id of the credential, or what stands for it in a question */
  readonly of: string;
  readonly names: readonly string[];
  /** Those that may be left out */
  readonly optional: readonly string[];
  /** Whether further names may be given, as those of headers */
  readonly open?: boolean;
}

/** Secrets by name. */
export type Secrets = Readonly<Record<string, string>>;

/** What became of the gathering. */
export type Gathered = { readonly secrets: Secrets } | Trouble;

/** Why a secret that was found among the arguments is not taken. */
export const NEVER_AN_ARGUMENT =
  'a secret is never taken from an argument: every user of this machine sees it in the list of processes, and the shell keeps it in its ' +
  'history; give it by --secret-stdin, --secret-file, --secret NAME=FILE or at the prompt, and take this one for known: have another issued';

const SHORTEST_TOKEN = 20;

/** Whether an argument looks like a secret that landed in the wrong place. */
export function looksLikeSecret(argument: string): boolean {
  return argument.length >= SHORTEST_TOKEN && looksLikeToken(argument);
}

/** Whether the options name any source. */
export function hasSource({ secretStdin, secretFile, secret = [] }: SecretOptions): boolean {
  return secretStdin === true || secretFile !== undefined || secret.length > 0;
}

/** Gathers them; asks for what no option gives where there is somebody to ask. Never rejects. */
export async function gatherSecrets(wanted: Wanted, options: SecretOptions, context: AskingContext): Promise<Gathered> {
  if (!hasSource(options)) return askFor(wanted, {}, context);
  const given = await fromFiles(wanted, options, context);
  if ('problem' in given) return given;
  const left = wanted.names.filter((name) => given.secrets[name] === undefined);
  const required = left.filter((name) => !wanted.optional.includes(name));
  const single = options.secretStdin === true ? '-' : options.secretFile;
  // Who gives some by options is asked for those alone that cannot be left out.
  if (single === undefined) return required.length === 0 ? given : askFor({ ...wanted, names: required }, given.secrets, context);
  const [name, ...more] = required.length === 0 ? left : required;
  if (name === undefined) return usage('every secret is given already; leave --secret-stdin or --secret-file out');
  if (more.length > 0) {
    return usage(
      `--secret-stdin and --secret-file give one secret, and this takes ${required.join(' and ')}; use --secret NAME=FILE`,
    );
  }
  const read = await secretIn(single, options.secretStdin === true ? '--secret-stdin' : '--secret-file', context);
  return 'problem' in read ? read : { secrets: { ...given.secrets, [name]: read.secret } };
}

async function fromFiles(
  wanted: Wanted,
  { secret: pairs = [], secretStdin }: SecretOptions,
  context: AskingContext,
): Promise<Gathered> {
  const secrets: Record<string, string> = {};
  let inputs = secretStdin === true ? 1 : 0;
  for (const pair of pairs) {
    const cut = pair.indexOf('=');
    if (cut < 1) return usage('--secret takes NAME=FILE, the name of a member and that of a file; never the secret itself');
    const asked = pair.slice(0, cut);
    const known = wanted.names.find((name) => name.toLowerCase() === asked.toLowerCase());
    if (known === undefined && wanted.open !== true) {
      const shown = mayBeShown(asked) ? `"${asked}"` : 'what --secret names';
      return usage(`${shown} is no secret of this credential; it has ${wanted.names.join(', ')}`);
    }
    const name = known ?? asked;
    if (secrets[name] !== undefined) return usage('--secret gives one of them twice');
    const file = pair.slice(cut + 1);
    inputs += file === '-' ? 1 : 0;
    if (inputs > 1) return usage('standard input can give one secret only');
    const read = await secretIn(file, '--secret', context);
    if ('problem' in read) return read;
    secrets[name] = read.secret;
  }
  return { secrets };
}

async function secretIn(file: string, option: string, context: AskingContext): Promise<{ readonly secret: string } | Trouble> {
  const read = await readText(file, option, context);
  return 'problem' in read ? read : { secret: read.text.replace(/\r?\n$/, '') };
}

async function askFor(wanted: Wanted, given: Secrets, { input }: AskingContext): Promise<Gathered> {
  if (!input.onTerminal) {
    const single = '--secret-stdin, --secret-file FILE or --secret NAME=FILE for';
    const how = wanted.names.length > 1 ? '--secret NAME=FILE for each of' : single;
    return usage(`nobody is here to be asked; give ${how} ${wanted.names.join(', ')}`);
  }
  const secrets: Record<string, string> = { ...given };
  for (const name of wanted.names) {
    const optional = wanted.optional.includes(name);
    let answer: string | undefined;
    try {
      answer = await input.secret(`${name} of "${wanted.of}" (not shown${optional ? '; empty to leave it out' : ''}): `);
    } catch (error) {
      return usage(error instanceof Error ? error.message : 'the secret could not be asked for');
    }
    if (answer === undefined) return { problem: 'nothing was sent', code: EXIT.failed };
    if (answer !== '' || !optional) secrets[name] = answer;
  }
  return { secrets };
}

function usage(problem: string): Trouble {
  return { problem, code: EXIT.usage };
}
