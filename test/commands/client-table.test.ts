// The README's table of clients says what is so: variables that there are, scenarios that run, tools that CI has.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { SANDBOX_VARIABLES } from '../../src/commands/sandbox-variables.ts';
import { CLIENT_ROWS, clientTable, TESTED_TOOLS } from '../support/client-table.ts';
import { RUNNABLES } from '../support/clients.ts';
import type { Runnable } from '../support/run-client.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const scenarios: Readonly<Record<string, readonly Runnable[]>> = RUNNABLES;

describe('the table of clients', () => {
  it('stands in the README as it stands in code', async () => {
    const readme = await readFile(join(ROOT, 'README.md'), 'utf8');
    expect(readme).toContain(`<!-- clients: begin -->\n${clientTable()}<!-- clients: end -->`);
  });

  it('names variables that are printed, and every one of them', () => {
    const named = new Set(CLIENT_ROWS.flatMap(({ variables }) => variables));
    const printed = new Set(SANDBOX_VARIABLES.map(({ name }) => name));
    // Read by all of them, and said once above the table.
    for (const name of ['NO_PROXY', 'no_proxy']) printed.delete(name);
    expect([...named].sort()).toEqual([...printed].sort());
  });

  it('calls tested exactly what has a scenario', () => {
    expect(CLIENT_ROWS.filter(({ tested }) => tested !== 'no').map(({ tool }) => tool)).toEqual(TESTED_TOOLS);
  });

  it.each(CLIENT_ROWS.filter(({ tested }) => tested === 'in CI'))('has CI install what $tool needs', async ({ tool }) => {
    const script = await readFile(join(ROOT, '.ci', 'run'), 'utf8');
    const commands = (scenarios[tool] ?? []).flatMap((runnable) => runnable.commands);
    expect(commands.length).toBeGreaterThan(0);
    // Node and npm run the tests themselves.
    for (const command of commands.filter((name) => !['node', 'npm'].includes(name))) {
      expect(script).toContain(` ${command}:`);
    }
  });
});
