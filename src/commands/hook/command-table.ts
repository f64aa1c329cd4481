// The command table of `sallyport-hook`: what it understands, in its help's own words. Loaded where a line is not simply an event to be run.
// It must never run anything itself: what was called for is handed to `run`.
import { readFileSync } from 'node:fs';
import { Argument, Command, Option } from 'commander';
import { EVENT_NAMES } from '../../exchange/hook-words.ts';
import { EVENT_OPTIONS, PLACE_OPTIONS } from './options.ts';
import type { HookOption } from './options.ts';

/** Makes the table; each command hands its work to `run`. */
export function commandTable(run: (command: () => Promise<number>) => Promise<void>): Command {
  const { version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')) as { version: string };
  const program = withOptions(new Command('sallyport-hook'), { ...PLACE_OPTIONS, ...EVENT_OPTIONS })
    .description("runs an agent's tool hooks: the event's JSON on stdin, the decision's JSON on stdout")
    .addArgument(new Argument('<event>', 'what happened').choices([...EVENT_NAMES]))
    .version(version)
    .exitOverride()
    .showHelpAfterError('(sallyport-hook --help tells what there is)')
    .action((event: string, options: object) => run(async () => (await import('./run.ts')).run(event, options)));
  const json = () => new Option('--json', 'JSON on a terminal too');
  withOptions(program.command('list'), PLACE_OPTIONS)
    .description('what is active, from which file, in the order in which it runs')
    .addOption(json().conflicts('tsv'))
    .option('--tsv', 'tab-separated lines')
    .action((_: object, command: Command) => run(async () => (await import('./list.ts')).list(command.optsWithGlobals())));
  withOptions(program.command('check'), PLACE_OPTIONS)
    .description('all that is wrong with the hooks files and the tool registry; exit 0, or 78 where something is')
    .addOption(json())
    .action((_: object, command: Command) => run(async () => (await import('./check.ts')).check(command.optsWithGlobals())));
  withOptions(program.command('map'), PLACE_OPTIONS)
    .description('six points for each tool of the registry; exit 1 while one is blank for a tool that runs unattended')
    .addOption(json())
    .action((_: object, command: Command) => run(async () => (await import('./map.ts')).map(command.optsWithGlobals())));
  return program;
}

function withOptions(command: Command, options: Readonly<Record<string, HookOption>>): Command {
  for (const [name, { kind, value, help, choices, default: initial }] of Object.entries(options)) {
    const option = new Option(kind === 'switch' ? `--${name}` : `--${name} <${value ?? 'value'}>`, help);
    if (choices !== undefined) option.choices([...choices]);
    if (initial !== undefined) option.default(initial);
    if (kind === 'list') option.argParser((text: string, before?: readonly string[]) => [...(before ?? []), text]);
    command.addOption(option);
  }
  return command;
}
