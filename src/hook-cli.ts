#!/usr/bin/env node
// `sallyport-hook`. An event is read and run at once; everything else, the command table included, is loaded only where it is called for, since a
// runtime waits for this process before and after each tool call. It must never show a stack to a user.
import { readEventLine } from './commands/hook/options.ts';

const USAGE = 2;
const FAILED = 1;

async function attempt(command: () => Promise<number>): Promise<number> {
  try {
    return await command();
  } catch (error) {
    process.stderr.write(`sallyport-hook: ${error instanceof Error ? error.message : 'internal error'}\n`);
    return FAILED;
  }
}

async function main(): Promise<number> {
  const line = readEventLine(process.argv.slice(2));
  if (line !== undefined) {
    const { run } = await import('./commands/hook/run.ts');
    return attempt(() => run(line.event, line.options));
  }
  const [{ CommanderError }, { commandTable }] = await Promise.all([
    import('commander'),
    import('./commands/hook/command-table.ts'),
  ]);
  let code = 0;
  const program = commandTable(async (command) => {
    code = await attempt(command);
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
