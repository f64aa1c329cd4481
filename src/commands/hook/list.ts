// `sallyport-hook list`: what is active, from which file, in the order in which it runs. A table on a terminal, JSON in a pipe, TSV where asked.
// It must never show a header's value, or of a command more than its line.
import type { HookRule } from '../../hooks/words.ts';
import { EXIT } from '../exit-codes.ts';
import { createVoice } from '../voice.ts';
import { hooksToShow } from './environment.ts';
import { problemText } from './places.ts';
import type { PlaceOptions } from './places.ts';

interface Row {
  readonly group: string;
  readonly event: string;
  readonly matcher: string;
  readonly kind: string;
  readonly runs: string;
  readonly timeout_s: number;
  readonly on_failure: string;
  readonly enabled: boolean;
  readonly dialect: string;
  readonly file: string;
}

/** Lists the handlers. Exit 0, or 78 where a file cannot be used; 1 and 2 where an environment's are not to be had. */
export async function list(options: PlaceOptions & { readonly json?: boolean; readonly tsv?: boolean }): Promise<number> {
  const voice = createVoice({ stdout: process.stdout, stderr: process.stderr, env: process.env, name: 'sallyport-hook' });
  const set = await hooksToShow(options, voice);
  if (typeof set === 'number') return set;
  const rows = set.rules.flatMap(rowsOf);
  if (options.tsv === true) for (const row of rows) voice.data(Object.values(row).map(plain).join('\t'));
  else if (options.json === true || !voice.onTerminal) voice.json({ files: set.files, hooks: rows });
  else if (rows.length === 0)
    voice.say(`no hooks are active; they are looked for in .agents/hooks.json${sourceOf(options)}`, 'quiet');
  else
    voice.table(
      rows.map((row) => Object.values(row).map(String)),
      Object.keys(rows[0] as Row).map((key) => key.replace('_', ' ')),
    );
  for (const problem of set.problems) voice.complain(problemText(problem));
  return set.problems.some(({ severity }) => severity === 'error') ? EXIT.config : EXIT.ok;
}

function sourceOf({ environment }: PlaceOptions): string {
  return environment === undefined ? '' : ' among the sources of the environment';
}

function rowsOf(rule: HookRule): Row[] {
  return rule.handlers.map((handler) => ({
    group: rule.group,
    event: rule.event,
    matcher: rule.matcher.source ?? '',
    kind: handler.kind,
    runs: handler.kind === 'http' ? handler.url : [handler.command, ...(handler.args ?? [])].join(' '),
    timeout_s: handler.timeoutMs / 1000,
    on_failure: handler.onFailure ?? '',
    enabled: rule.enabled,
    dialect: rule.dialect,
    file: rule.file,
  }));
}

function plain(value: string | number | boolean): string {
  return String(value).replace(/[\t\r\n]/g, ' ');
}
