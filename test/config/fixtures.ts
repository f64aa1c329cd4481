// Where the config fixtures lie, and how tests read results of either kind.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Problem } from '../../src/config/problem.ts';

/** Path of a fixture. */
export function fixturePath(name: string): string {
  return join(import.meta.dirname, '..', 'fixtures', 'config', name);
}

/** Text of a fixture. */
export function fixture(name: string): Promise<string> {
  return readFile(fixturePath(name), 'utf8');
}

/** The problems of a result, none where it has none. */
export function problemsOf(result: object | { readonly problems: readonly Problem[] }): readonly Problem[] {
  return 'problems' in result ? result.problems : [];
}
