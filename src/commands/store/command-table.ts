// The commands `store …` and their options. What runs is loaded when it is called.
// It must never take a key from an argument: a key is named by its file.
import type { Command } from 'commander';
import type { RunCommand } from '../context.ts';
import { commandGroup, configOption, jsonOption } from '../resource-options.ts';

/** Adds them. */
export function addStore(program: Command, run: RunCommand): void {
  const store = commandGroup(program, 'store', 'where the proxy keeps credentials and environments');
  store
    .command('status')
    .description('the engine, how many records there are, and which key seals them; exit 1 where the key at hand is another one')
    .addOption(configOption())
    .addOption(jsonOption())
    .action((options: object) => run(async (context) => (await import('./store.ts')).status(options, context)));
  store
    .command('rekey')
    .description('seal every record with a new key, while proxies run; what was interrupted is finished by doing it again')
    .option('--new-key-file <file>', 'the new key, made there where it is not; left out, made in the place of the old one')
    .addOption(configOption())
    .addOption(jsonOption())
    .action((options: object) => run(async (context) => (await import('./store.ts')).rekey(options, context)));
}
