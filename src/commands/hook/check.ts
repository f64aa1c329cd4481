// `sallyport-hook check`: everything that is wrong with the hooks files and the tool registry, with place and allowed form.
// It must never run a hook.
import type { HookProblem } from '../../hooks/words.ts';
import { EXIT } from '../exit-codes.ts';
import { createVoice } from '../voice.ts';
import { hooksToShow } from './environment.ts';
import { problemText, toolsOf } from './places.ts';
import type { PlaceOptions } from './places.ts';

/**
 * Checks. Exit 0 where nothing is wrong, 78 otherwise: a matcher that never matches is a gate that never closes. 1 and 2 where an
 * environment's hooks are not to be had.
 */
export async function check(options: PlaceOptions & { readonly json?: boolean }): Promise<number> {
  const voice = createVoice({ stdout: process.stdout, stderr: process.stderr, env: process.env, name: 'sallyport-hook' });
  const set = await hooksToShow(options, voice);
  if (typeof set === 'number') return set;
  const problems: readonly HookProblem[] = [...set.problems, ...toolsOf(options).problems];
  if (options.json === true || !voice.onTerminal) voice.json({ files: set.files, problems });
  for (const problem of problems) voice.complain(`${problem.severity}: ${problemText(problem)}`);
  const handlers = set.rules.reduce((count, rule) => count + rule.handlers.length, 0);
  if (problems.length === 0 && voice.onTerminal)
    voice.say(`${set.files.length} files, ${handlers} handlers, nothing wrong`, 'good');
  return problems.length === 0 ? EXIT.ok : EXIT.config;
}
