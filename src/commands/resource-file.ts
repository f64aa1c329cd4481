// A resource as a file, or standard input, holds it: one JSON object, read whole.
// It must never quote what it reads, which may be a secret, nor the name of a file that is not there: a secret may stand in its place.
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Resource } from './admin-door.ts';
import type { AskingContext, Trouble } from './context.ts';
import { EXIT } from './exit-codes.ts';
import { textOf } from './input.ts';

/** The text of a file; `-` is standard input. `option` names it in a problem. Never rejects. */
export async function readText(
  file: string,
  option: string,
  context: AskingContext,
): Promise<{ readonly text: string } | Trouble> {
  try {
    if (file === '-') return { text: await context.input.read() };
    return { text: textOf(await readFile(resolve(context.directory, file)), `the file of ${option}`) };
  } catch (error) {
    return { problem: whyUnread(error, option), code: EXIT.failed };
  }
}

function whyUnread(error: unknown, option: string): string {
  if (!(error instanceof Error)) return `the file of ${option} cannot be read`;
  // Of the system's errors only the code: their message bears the name.
  if (!('code' in error)) return error.message;
  const why = error.code === 'ENOENT' ? 'does not exist' : `cannot be read (${String(error.code)})`;
  return `the file of ${option} ${why}; what is wanted is the name of a file, never the content itself`;
}

/** The JSON object of a file, whole. Never rejects. */
export async function readResource(file: string, context: AskingContext): Promise<{ readonly resource: Resource } | Trouble> {
  const read = await readText(file, '--file', context);
  if ('problem' in read) return read;
  let value: unknown;
  try {
    value = JSON.parse(read.text);
  } catch (error) {
    return { problem: `--file is no JSON${placeOf(error, read.text)}; write one JSON object`, code: EXIT.usage };
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { resource: value as Resource };
  return { problem: '--file must hold one JSON object', code: EXIT.usage };
}

/** Where the parser stopped. Its own words quote the text. */
function placeOf(error: unknown, text: string): string {
  const position = /position (\d+)/.exec(error instanceof Error ? error.message : '')?.[1];
  if (position === undefined) return '';
  const before = text.slice(0, Number(position)).split('\n');
  return ` (line ${before.length}, column ${(before.at(-1) ?? '').length + 1})`;
}
