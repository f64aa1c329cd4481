// One problem of a config and how it is shown. Texts are lower case, quote only what cannot be a secret, and state the remedy.
// It must never hold the value of a key that may bear a secret, nor a key that may be one: where the blank after a colon is
// forgotten, `Authorization:Bearer …` is a key.

import { mayBeShown } from '../foundation/shown-key.ts';

export { shownKey } from '../foundation/shown-key.ts';

/** One thing that is wrong with a config. */
export interface Problem {
  /** Where, as in `network.allowlist[2].domain`; empty for the file as a whole */
  readonly path: string;
  /** Line in the file, from 1, where it is known */
  readonly line?: number;
  readonly message: string;
}

/** The steps from the top of a config to a value. */
export type KeyPath = readonly PropertyKey[];

/** `['network', 'allowlist', 2, 'domain']` as `network.allowlist[2].domain`; keys with dots in quotes, what may be a secret left out. */
export function formatPath(path: KeyPath): string {
  let text = '';
  for (const step of path) {
    if (typeof step === 'number') text += `[${step}]`;
    else {
      const key = String(step);
      const shown = !mayBeShown(key) ? '<key not shown>' : key.includes('.') ? `"${key}"` : key;
      text += text === '' ? shown : `.${shown}`;
    }
  }
  return text;
}

/** One line for a terminal or a log: `sallyport.yaml:12: network.allowlist[2].domain: …`. */
export function formatProblem(problem: Problem, file: string): string {
  const place = problem.line === undefined ? file : `${file}:${problem.line}`;
  return problem.path === '' ? `${place}: ${problem.message}` : `${place}: ${problem.path}: ${problem.message}`;
}

/** What compiling a config comes upon, gathered so that all of it is reported at once. */
export class Findings {
  readonly problems: Problem[] = [];
  readonly warnings: string[] = [];

  /** Something that makes the config invalid. */
  problem(path: KeyPath, message: string): void {
    this.problems.push({ path: formatPath(path), message });
  }

  /** Something that holds but that the operator should know of. */
  warn(path: KeyPath, message: string): void {
    this.warnings.push(`${formatPath(path)}: ${message}`);
  }
}
