// The command `doctor` and its options. What runs is loaded when it is called.
// Loaded with the table itself, so that it must never import more than the words of the table.
import type { Command } from 'commander';
import type { RunCommand } from '../context.ts';
import { gather, jsonOption } from '../resource-options.ts';

const EXAMPLES = `
Examples, inside a sandbox:
  sallyport doctor --allowed https://api.github.com/
  sallyport doctor --skip icmp,door --json
  sallyport doctor --only tcp-public --probe 203.0.113.7:22 --probe 203.0.113.7:443
An image without Node, from where the proxy is:
  sallyport doctor --script | docker exec -i <container> sh -s -- --json

Exit: 0 nothing is open, 5 a way is open, 1 the door does not work, 6 something could not be told, 2 wrong usage.
Sends a few packets to public resolvers (1.1.1.1, 8.8.8.8) and to addresses that nobody has (192.0.2.251, 2001:db8::251).`;

/** Adds it. */
export function addDoctor(program: Command, run: RunCommand): void {
  program
    .command('doctor')
    .description('inside a sandbox: try every way past the door, say which are open and what closes them')
    .option('--allowed <url>', 'a URL that the door lets through, to see one pass')
    .option('--probe <host:port>', 'try TCP to this in the place of public resolvers; once for each', gather)
    .option('--proxy <url>', 'the proxy; left out, the one that the variables name')
    .option('--admin-port <port>', 'port of the admin listener (default: 9090)')
    .option('--only <ids>', 'these probes alone, with commas between', gather)
    .option('--skip <ids>', 'all but these', gather)
    .option('--timeout <seconds>', 'of each probe (default: 3)')
    .option('--script', 'print the same as a shell script, for images without Node')
    .addOption(jsonOption())
    .addHelpText('after', EXAMPLES)
    .action((options: object) => run(async (context) => (await import('../doctor.ts')).doctor(options, context)));
}
