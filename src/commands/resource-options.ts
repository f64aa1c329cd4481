// What the command tables of resources share: the options that say which proxy is asked, and a group that repeats no value of an option.
// Loaded with the table itself, so that it must never import more than the words of the table.
import { Option } from 'commander';
import type { Command } from 'commander';

/** Adds the options that say which proxy is asked. */
export function withPlace(command: Command): Command {
  return command
    .option('--url <admin>', 'the admin listener, as in http://127.0.0.1:9090; left out, the one of the config')
    .option('--token-file <file>', 'the admin token; left out, the file that the config names')
    .addOption(configOption());
}

/** `--config`. */
export function configOption(): Option {
  return new Option('--config <file>', 'the config; default: SALLYPORT_CONFIG, else the shipped one');
}

/** `--json`. */
export function jsonOption(): Option {
  return new Option('--json', 'JSON on a terminal too');
}

/** Gathers an option that may be given more than once. */
export function gather(text: string, before: readonly string[] | undefined): readonly string[] {
  return [...(before ?? []), text];
}

/** Makes a group of commands whose complaints repeat no value of an option that is not known: it may be a secret. */
export function commandGroup(program: Command, name: string, description: string): Command {
  return program
    .command(name)
    .description(description)
    .configureOutput({ outputError: (text, write) => write(text.replace(/'(--[^=']{1,40})=[^\n]*'/, "'$1'")) });
}
