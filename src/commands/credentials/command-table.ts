// The commands `credentials …` and their options. What runs is loaded when it is called.
// It must never let a secret through as an argument: options that would bear one are known here, and refused with the reason.
import { Option } from 'commander';
import type { Command } from 'commander';
import type { AskingContext, RunCommand } from '../context.ts';
import { commandGroup, gather, jsonOption, withPlace } from '../resource-options.ts';
import type { RotateOptions, UpdateOptions } from './change.ts';
import type { CreateOptions } from './create.ts';
import type { MemberOptions } from './forms.ts';

/** Where one would look for them. */
const REFUSED = [
  ...['token', 'username', 'user', 'password', 'value', 'header', 'headers'],
  ...['client-secret', 'refresh-token', 'secret-access-key', 'session-token'],
];

type Given = Readonly<Record<string, unknown>>;

/** Adds them. */
export function addCredentials(program: Command, run: RunCommand): void {
  const credentials = commandGroup(program, 'credentials', 'credentials that the running proxy keeps; secrets are write-only');
  const add = (name: string, description: string): Command => credentials.command(name).description(description);
  const look = () => import('./look.ts');
  addCreate(
    add('create', 'store a credential; its secrets come from standard input, files or a prompt, never from an argument'),
    run,
  );
  withPlace(add('list', 'the stored credentials'))
    .addOption(jsonOption())
    .action((options: object) => run(async (context) => (await look()).list(options, context)));
  withPlace(add('get', 'one stored credential, without its secrets').argument('<id>'))
    .addOption(jsonOption())
    .action((id: string, options: object) => run(async (context) => (await look()).get(id, options, context)));
  withPlace(add('update', 'change what a file names; what it omits stays').argument('<id>'))
    .requiredOption('--file <file>', 'the members as JSON; "-" for standard input')
    .addOption(jsonOption())
    .action((id: string, options: Omit<UpdateOptions, 'id'>) =>
      run(async (context) => (await import('./change.ts')).update({ ...options, id }, context)),
    );
  const rotate = add('rotate', 'give a credential its new secret, and change nothing else')
    .argument('<id>')
    .option('--access-key-id <id>', 'aws_sigv4: id of the new access key');
  runWithoutSecrets(withSecrets(rotate), run, async ([id = ''], given, context) =>
    (await import('./change.ts')).rotate({ ...(given as Partial<RotateOptions>), id }, context),
  );
  withPlace(add('delete', 'delete a stored credential').argument('<id>'))
    .option('--yes', 'without being asked')
    .action((id: string, options: object) => run(async (context) => (await look()).remove(id, options, context)));
}

function addCreate(create: Command, run: RunCommand): void {
  create
    .option('--type <type>', 'bearer_token, basic, header, oauth2, environment_variable or aws_sigv4')
    .option('--id <id>', 'what rules call it; left out, the proxy makes one')
    .option('--file <file>', 'the whole credential as JSON; "-" for standard input')
    .option('--header-name <name>', 'header that bears it; of "header" each of them', gather)
    .option('--prefix <word>', 'word before the token; "" for none')
    .option('--client-id <id>', 'oauth2: id of the client')
    .option('--token-url <url>', 'oauth2: the token endpoint')
    .option('--scope <scope>', 'oauth2: a scope to ask for; once for each', gather)
    .option('--injection-location <place>', 'environment_variable: header, query or body; once for each', gather)
    .option('--trusted-domain <host>', 'environment_variable: a host that may get the value; once for each', gather)
    .option('--access-key-id <id>', 'aws_sigv4: id of the access key')
    .option('--region <region>', 'aws_sigv4: region of the service')
    .option('--service <service>', 'aws_sigv4: name of the service, such as s3');
  runWithoutSecrets(withSecrets(create), run, async (_, given, context) =>
    (await import('./create.ts')).create({ ...(given as Partial<CreateOptions>), members: membersOf(given) }, context),
  );
}

function withSecrets(command: Command): Command {
  for (const name of REFUSED) command.addOption(new Option(`--${name} [value]`).hideHelp());
  command.addOption(new Option('--secret-stdin', 'the secret is all of standard input').conflicts(['secretFile']));
  command.option('--secret-file <file>', 'file of the secret');
  command.option('--secret <name=file>', 'file of one secret, where there are several; once for each', gather);
  return withPlace(command).addOption(jsonOption());
}

/** Runs a command unless a secret stands among its arguments. */
function runWithoutSecrets(
  command: Command,
  run: RunCommand,
  work: (words: readonly string[], given: Given, context: AskingContext) => Promise<number>,
): void {
  command.allowExcessArguments().action(() => {
    const given: Given = command.opts();
    const named = REFUSED.some((name) => given[camelCase(name)] !== undefined);
    const refused = named || command.args.length > command.registeredArguments.length;
    return run(async (context) => (refused ? refuse(context) : work(command.args, given, context)));
  });
}

async function refuse({ voice }: AskingContext): Promise<number> {
  const { NEVER_AN_ARGUMENT } = await import('./secrets.ts');
  voice.complain(NEVER_AN_ARGUMENT);
  return (await import('../exit-codes.ts')).EXIT.usage;
}

/** Options that are members of the resource, by the member's name. */
function membersOf(given: Given): MemberOptions {
  const { headerName, prefix, clientId, tokenUrl, scope, injectionLocation, trustedDomain, accessKeyId, region, service } = given;
  return {
    ...{ header_name: headerName, prefix, client_id: clientId, token_url: tokenUrl, scopes: scope },
    ...{ injection_location: injectionLocation, trusted_domains: trustedDomain },
    ...{ access_key_id: accessKeyId, region, service },
  } as MemberOptions;
}

function camelCase(name: string): string {
  return name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase());
}
