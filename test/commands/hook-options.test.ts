// Twin of src/commands/hook/options.ts and of src/commands/hook/command-table.ts: the quick reading of an event's line, and the table that explains it, agree.
import { describe, expect, it } from 'vitest';
import { commandTable } from '../../src/commands/hook/command-table.ts';
import { readEventLine } from '../../src/commands/hook/options.ts';

/** What the table makes of a line: the event's options, or nothing where it refuses it or runs something else. */
async function byTable(words: readonly string[]): Promise<unknown> {
  const called: unknown[] = [];
  const program = commandTable((command) => {
    called.push(command);
    return Promise.resolve();
  }).configureOutput({ writeErr: () => undefined, writeOut: () => undefined });
  try {
    await program.parseAsync([...words], { from: 'user' });
  } catch {
    return undefined;
  }
  return called.length === 1 ? { event: program.args[0], options: program.opts() } : undefined;
}

describe('the command line of an event', () => {
  const rows = [
    { name: 'an event alone', words: ['Stop'] },
    { name: 'options behind it', words: ['Stop', '--dialect', 'desktop', '--audit', 'a', '--record-arguments'] },
    { name: 'options before it', words: ['--workspace', 'w', '--direct', 'PreToolUse'] },
    { name: 'a list', words: ['PreToolUse', '--hooks', 'a', '--hooks=b', '--plugin', 'c', '--pass-env', 'X', '--ca', 'd'] },
    { name: 'a value that is given twice', words: ['Stop', '--audit', 'a', '--audit', 'b'] },
    {
      name: 'every other option',
      words: [
        'Stop',
        '--tools',
        't',
        '--proxy',
        'p',
        '--allow-http',
        '--max-continuations',
        '3',
        '--environment',
        'e',
        '--admin',
        'u',
        '--token-file',
        'f',
      ],
    },
    { name: 'an event behind --', words: ['--direct', '--', 'Stop'] },
  ];
  it.each(rows)('with $name is read as the table reads it', async ({ words }) => {
    const quick = readEventLine(words);
    expect(quick).toBeDefined();
    expect(quick).toEqual(await byTable(words));
  });

  it.each([
    { name: 'no event', words: [] },
    { name: 'an unknown event', words: ['PreToolUsed'] },
    { name: 'two events', words: ['Stop', 'Stop'] },
    { name: 'an unknown option', words: ['Stop', '--frobnicate'] },
    { name: 'an unknown dialect', words: ['Stop', '--dialect', 'x'] },
    { name: 'a value that is missing', words: ['Stop', '--audit'] },
    { name: 'a value for a switch', words: ['Stop', '--direct=yes'] },
    { name: 'a call for help', words: ['Stop', '--help'] },
    { name: 'a call for the version', words: ['--version'] },
  ])('with $name is left to the table, which refuses or explains it', async ({ words }) => {
    expect(readEventLine(words)).toBeUndefined();
    expect(await byTable(words)).toBeUndefined();
  });

  it.each(['list', 'check', 'map'])('that is "%s" is left to the table, which runs it', async (command) => {
    expect(readEventLine([command])).toBeUndefined();
    expect(await byTable([command])).toBeDefined();
  });
});
