// `sallyport-hook map`: six points for each tool of the registry, and which of them nobody has filled in.
// It must never run a hook.
import { dialects } from '../../hooks/dialects.ts';
import { CELLS, hookMap } from '../../hooks/map.ts';
import { EXIT } from '../exit-codes.ts';
import { createVoice } from '../voice.ts';
import { hooksToShow } from './environment.ts';
import { auditOf, problemText, setting, toolsOf } from './places.ts';
import type { PlaceOptions } from './places.ts';

/**
 * Prints the map. Exit 0; 1 while a cell is blank for a tool that runs unattended; 2 without a registry; 78 where a file is wrong. 1 and 2
 * also where an environment's hooks are not to be had.
 */
export async function map(options: PlaceOptions & { readonly json?: boolean }): Promise<number> {
  const voice = createVoice({ stdout: process.stdout, stderr: process.stderr, env: process.env, name: 'sallyport-hook' });
  if (options.tools === undefined && setting('SALLYPORT_HOOK_TOOLS') === undefined) {
    voice.complain('the map is drawn for the tools of a registry; name one with --tools');
    return EXIT.usage;
  }
  const { tools, problems } = toolsOf(options);
  const set = await hooksToShow(options, voice);
  if (typeof set === 'number') return set;
  const wrong = [...problems, ...set.problems].filter(({ severity }) => severity === 'error');
  if (wrong.length > 0) {
    for (const problem of wrong) voice.complain(problemText(problem));
    return EXIT.config;
  }
  const drawn = hookMap(tools, set, { dialects, audit: auditOf(options), recordArguments: options.recordArguments ?? false });
  if (options.json === true || !voice.onTerminal) voice.json(drawn);
  else
    voice.table(
      drawn.rows.map((row) => [
        row.tool,
        row.risk,
        row.unattended ? 'yes' : 'no',
        ...CELLS.map((cell) => (row[cell].length === 0 ? { text: 'blank', tone: 'bad' as const } : row[cell])),
      ]),
      ['tool', 'risk', 'unattended', ...CELLS],
    );
  if (drawn.unready.length > 0) voice.complain(`not ready to run unattended: ${drawn.unready.join(', ')}`);
  return drawn.unready.length === 0 ? EXIT.ok : EXIT.failed;
}
