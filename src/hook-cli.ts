#!/usr/bin/env node
// The command table of `sallyport-hook`. An event is run by commands/hook/run.ts; everything else is loaded only where it is called for,
// since a runtime waits for this process before and after each tool call. It must never show a stack to a user.
import { readFileSync } from 'node:fs';
import { Argument, Command, CommanderError, Option } from 'commander';
import { EVENT_NAMES } from './exchange/hook-words.ts';

const version = (JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }).version;

const USAGE = 2;
const FAILED = 1;

type Run = () => Promise<number>;

function collect(value: string, before: readonly string[] = []): readonly string[] {
  return [...before, value];
}

/** Options that say where hooks are. */
function placed(command: Command): Command {
  return command
    .option('--workspace <folder>', "the agent's workspace; default: the working directory")
    .option('--hooks <file>', 'this file, and none that would be found; may be repeated', collect)
    .option('--plugin <file>', "a plugin's file beside those that are found; may be repeated", collect)
    .addOption(new Option('--dialect <name>', 'how files and payload are written').choices(['managed', 'desktop', 'settings']))
    .option('--tools <file>', 'the tool registry: risk, owner; default: SALLYPORT_HOOK_TOOLS')
    .option('--audit <file>', 'where each run is written down, one JSON object a line; default: SALLYPORT_HOOK_AUDIT')
    .option('--record-arguments', "the lines hold the call's arguments");
}

function commandTable(run: (command: Run) => Promise<void>): Command {
  const program = placed(new Command('sallyport-hook'))
    .description("runs an agent's tool hooks: the event's JSON on stdin, the decision's JSON on stdout")
    .addArgument(new Argument('<event>', 'what happened').choices([...EVENT_NAMES]))
    .option('--proxy <url>', 'where HTTP hooks leave through; default: HTTPS_PROXY or ALL_PROXY')
    .option('--ca <file>', "the proxy's CA, PEM; may be repeated; default: SSL_CERT_FILE", collect)
    .option('--direct', 'HTTP hooks leave without a proxy: the network itself leads through the door')
    .option('--allow-http', 'for tests: let http URLs pass')
    .option('--pass-env <name>', 'a further variable that commands get; may be repeated', collect)
    .option('--max-continuations <n>', 'how many times in a row a Stop hook may send the loop on', '10')
    .option('--admin <url>', "the proxy's admin listener, which counts the runs; default: SALLYPORT_ADMIN_URL")
    .option('--token-file <file>', 'its token; default: SALLYPORT_ADMIN_TOKEN_FILE')
    .version(version)
    .exitOverride()
    .showHelpAfterError('(sallyport-hook --help tells what there is)')
    .action((event: string, options: object) => run(async () => (await import('./commands/hook/run.ts')).run(event, options)));
  const json = () => new Option('--json', 'JSON on a terminal too');
  placed(program.command('list'))
    .description('what is active, from which file, in the order in which it runs')
    .addOption(json().conflicts('tsv'))
    .option('--tsv', 'tab-separated lines')
    .action((_: object, command: Command) =>
      run(async () => (await import('./commands/hook/list.ts')).list(command.optsWithGlobals())),
    );
  placed(program.command('check'))
    .description('all that is wrong with the hooks files and the tool registry; exit 0, or 78 where something is')
    .addOption(json())
    .action((_: object, command: Command) =>
      run(async () => (await import('./commands/hook/check.ts')).check(command.optsWithGlobals())),
    );
  placed(program.command('map'))
    .description('six points for each tool of the registry; exit 1 while one is blank for a tool that runs unattended')
    .addOption(json())
    .action((_: object, command: Command) =>
      run(async () => (await import('./commands/hook/map.ts')).map(command.optsWithGlobals())),
    );
  return program;
}

async function main(): Promise<number> {
  let code = 0;
  const program = commandTable(async (command) => {
    try {
      code = await command();
    } catch (error) {
      process.stderr.write(`sallyport-hook: ${error instanceof Error ? error.message : 'internal error'}\n`);
      code = FAILED;
    }
  });
  try {
    await program.parseAsync();
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return error.exitCode === 0 ? 0 : USAGE;
  }
  return code;
}

// A reader that has had enough (`| head`) is no failure.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined);

const code = await main();
// eslint-disable-next-line no-process-exit -- the one place; what a hook left behind must not keep its runtime waiting
process.stdout.write('', () => process.exit(code));
