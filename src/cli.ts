// The command table, and the only place that ends the process; sallyport.cts loads it. Commands are loaded when they are called, so that --help is quick.
// It must never show a stack to a user: what a command throws is one line, said once.
import { readFileSync } from 'node:fs';
import { Command, CommanderError, Option } from 'commander';
import type { RunCommand } from './commands/context.ts';
import { addCredentials } from './commands/credentials/command-table.ts';
import { addDoctor } from './commands/doctor/command-table.ts';
import { addEnvironments } from './commands/environments/command-table.ts';
import { addStore } from './commands/store/command-table.ts';

const version = (JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as { version: string }).version;

const USAGE = 2;
const FAILED = 1;

/** Every command with its options. `run` is told what was asked for. */
function commandTable(run: RunCommand): Command {
  const program = new Command('sallyport')
    .description("the one door out of an agent's sandbox: allowlist, address guard, credentials put on at the door")
    .version(version)
    .exitOverride()
    .showHelpAfterError('(sallyport --help tells what there is)');
  const config = () => new Option('--config <file>', 'the config; default: SALLYPORT_CONFIG, else the shipped one');
  const json = () => new Option('--json', 'JSON on a terminal too');

  program
    .command('start')
    .description('run the proxy until SIGTERM or SIGINT; SIGHUP reads the config again')
    .addOption(config())
    .action((options: object) => run(async (context) => (await import('./commands/start.ts')).start(options, context)));
  program
    .command('check')
    .description('say all that is wrong with the config, or what it amounts to; exit 0 or 78')
    .addOption(config())
    .addOption(json())
    .action((options: object) => run(async (context) => (await import('./commands/check.ts')).check(options, context)));
  program
    .command('explain')
    .description('would this request be let through, and why; exit 0 allowed, 3 refused')
    .argument('<method>', 'such as GET')
    .argument('<url>', 'such as https://api.github.com/user')
    .option('--sandbox <id>', 'the sandbox that asks')
    .option('--url <admin>', 'ask the running proxy, as in http://127.0.0.1:9090; left out, the config is judged by itself')
    .option('--token-file <file>', 'the admin token; left out, the file that the config names')
    .addOption(config())
    .addOption(json())
    .action((method: string, target: string, options: object) =>
      run(async (context) => (await import('./commands/explain.ts')).explain({ ...options, method, target }, context)),
    );
  program
    .command('ca')
    .description('where the CA is and how to have it trusted; makes it where there is none')
    .addOption(config())
    .addOption(new Option('--path', 'the path of the certificate alone').conflicts(['pem', 'fingerprint', 'bundle', 'json']))
    .addOption(new Option('--pem', 'the certificate itself').conflicts(['fingerprint', 'bundle', 'json']))
    .addOption(new Option('--fingerprint', 'the SHA-256 fingerprint alone').conflicts(['bundle', 'json']))
    .addOption(new Option('--bundle', "the path of the bundle: the system's roots and the CA").conflicts('json'))
    .addOption(json())
    .action((options: object) => run(async (context) => (await import('./commands/ca.ts')).ca(options, context)));
  program
    .command('env')
    .description('the variables that make curl, git, Node, Python, Java, Go, cargo and others use and trust the proxy')
    .addOption(new Option('--shell <shell>', 'what reads the lines').choices(['bash', 'fish', 'powershell']).default('bash'))
    .addOption(new Option('--docker', 'lines for docker run --env-file'))
    .addOption(json())
    .option('--ca <path>', 'the CA certificate as the sandbox sees it')
    .option('--bundle <path>', 'the bundle as the sandbox sees it; left out, bundle.pem beside the certificate')
    .option('--proxy <url>', 'the proxy as the sandbox reaches it')
    .option('--sandbox <id>', 'the sandbox that it is for; with --url, an environment')
    .option('--url <admin>', 'ask the running proxy for the variables of an environment, as in http://127.0.0.1:9090')
    .option('--token-file <file>', 'the admin token; left out, the file that the config names')
    .addOption(config())
    .action((options: object) => run(async (context) => (await import('./commands/env.ts')).env(options, context)));
  addCredentials(program, run);
  addEnvironments(program, run);
  addStore(program, run);
  addDoctor(program, run);
  program
    .command('demo')
    .description('the whole of it in a few seconds, on loopback, with no network')
    .addOption(json())
    .action((options: object) => run(async (context) => (await import('./commands/demo.ts')).demo(options, context)));
  return program;
}

async function main(): Promise<number> {
  let code = 0;
  const program = commandTable(async (command) => {
    const [{ createVoice }, { createInput }] = await Promise.all([import('./commands/voice.ts'), import('./commands/input.ts')]);
    const input = createInput({ stdin: process.stdin, stderr: process.stderr });
    const voice = createVoice({ stdout: process.stdout, stderr: process.stderr, env: process.env });
    try {
      code = await command({ voice, input, env: process.env, directory: process.cwd(), version });
    } catch (error) {
      voice.complain(error instanceof Error ? error.message : 'internal error: something was thrown that is no error');
      code = FAILED;
    }
  });
  try {
    await program.parseAsync();
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    // Help that was asked for ends with 0; help that stands in for a missing command does not.
    return error.exitCode === 0 ? 0 : USAGE;
  }
  return code;
}

// A reader that has had enough (`| head`) is no failure.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined);

const code = await main();
// eslint-disable-next-line no-process-exit -- the one place; sockets that are still draining must not keep a stopped process
process.stdout.write('', () => process.exit(code));
