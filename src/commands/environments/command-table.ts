// The commands `environments …` and their options. What runs is loaded when it is called.
// It must never take the body of one from an argument: it may hold secrets.
import type { Command } from 'commander';
import type { RunCommand } from '../context.ts';
import { commandGroup, jsonOption, withPlace } from '../resource-options.ts';

/** Adds them. */
export function addEnvironments(program: Command, run: RunCommand): void {
  const environments = commandGroup(
    program,
    'environments',
    'sandboxes that the running proxy keeps: network, variables and files',
  );
  const add = (name: string, description: string): Command => withPlace(environments.command(name).description(description));
  const load = () => import('./environments.ts');
  add('create', 'make an environment; its proxy URL is shown this once')
    .option('--file <file>', 'its network, env and sources as JSON, as pasted from a guide; "-" for standard input')
    .addOption(jsonOption())
    .action((options: object) => run(async (context) => (await load()).create(options, context)));
  add('list', 'the environments')
    .addOption(jsonOption())
    .action((options: object) => run(async (context) => (await load()).list(options, context)));
  add('get', 'one environment, without its token and the values of its transforms')
    .argument('<id>')
    .addOption(jsonOption())
    .action((id: string, options: object) => run(async (context) => (await load()).get(id, options, context)));
  add('update', 'put what a file names in the place of what was there; what it omits stays')
    .argument('<id>')
    .requiredOption('--file <file>', 'network, env or sources as JSON; "-" for standard input')
    .addOption(jsonOption())
    .action((id: string, options: { readonly file: string }) =>
      run(async (context) => (await load()).update(id, options, context)),
    );
  add('rotate', 'give an environment a new proxy URL; the old one is void')
    .argument('<id>')
    .addOption(jsonOption())
    .action((id: string, options: object) => run(async (context) => (await load()).rotate(id, options, context)));
  add('delete', 'delete an environment')
    .argument('<id>')
    .option('--yes', 'without being asked')
    .action((id: string, options: object) => run(async (context) => (await load()).remove(id, options, context)));
}
