// How this program speaks. The rules: what was asked for goes to standard output, what is said about it to standard error; no
// capital at the start, no full stop at the end; colours only on a terminal and without NO_COLOR; a table on a terminal, JSON in a
// pipe or with --json, save where the output is a script or a file, which is the same everywhere.
// It must never let through a control character that somebody else chose: a terminal would act on it (fault L01).
import Table from 'cli-table3';
import picocolors from 'picocolors';
import { showUnseen } from '../foundation/visible-text.ts';

/** Where output goes; `process.stdout` is one. */
export interface OutputStream {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
}

/** What a text means, shown as colour. */
export type Tone = 'good' | 'bad' | 'quiet' | 'strong';

/** One cell of a table; lists make several lines. */
export type Cell = string | number | readonly string[] | { readonly text: string; readonly tone: Tone };

/** The program's voice. */
export interface Voice {
  /** Whether the asked-for output is read by a person */
  readonly onTerminal: boolean;
  /** Whether what is said about it is */
  readonly heard: boolean;
  /** Data as it is, and a line end. For texts of our own making, such as scripts and PEM. */
  data(text: string): void;
  /** Data as JSON; indented on a terminal, one line in a pipe. */
  json(value: unknown): void;
  /** Data as a table. Without `head` the first column names the second. */
  table(rows: readonly (readonly Cell[])[], head?: readonly string[]): void;
  /** One line to the person at the terminal. */
  say(text: string, tone?: Tone): void;
  /** What went wrong, one line for each line of the text, under the program's name. */
  complain(text: string): void;
}

/** Makes the voice over two streams; `env` is asked for NO_COLOR only. */
export function createVoice(streams: {
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  readonly env: NodeJS.ProcessEnv;
  /** The program's name, before each complaint. Default: sallyport */
  readonly name?: string;
}): Voice {
  const { stdout, stderr, env, name = 'sallyport' } = streams;
  const mayPaint = (env['NO_COLOR'] ?? '') === '';
  const paintOut = painter(mayPaint && stdout.isTTY === true);
  const paintErr = painter(mayPaint && stderr.isTTY === true);
  return {
    onTerminal: stdout.isTTY === true,
    heard: stderr.isTTY === true,
    data: (text) => void stdout.write(text.endsWith('\n') ? text : `${text}\n`),
    json: (value) => void stdout.write(`${escapedJson(value, stdout.isTTY === true ? 2 : 0)}\n`),
    table: (rows, head) => void stdout.write(`${drawTable(rows, head, paintOut)}\n`),
    say: (text, tone) => void stderr.write(`${paintErr(showUnseen(text), tone)}\n`),
    complain: (text) => {
      for (const line of text.split('\n')) stderr.write(`${paintErr(`${name}:`, 'bad')} ${showUnseen(line)}\n`);
    },
  };
}

type Paint = (text: string, tone: Tone | undefined) => string;

function painter(on: boolean): Paint {
  const { green, red, dim, bold } = picocolors.createColors(on);
  const tones = { good: green, bad: red, quiet: dim, strong: bold } satisfies Record<Tone, (text: string) => string>;
  return (text, tone) => (tone === undefined ? text : tones[tone](text));
}

function drawTable(rows: readonly (readonly Cell[])[], head: readonly string[] | undefined, paint: Paint): string {
  const table = new Table({
    style: { head: [], border: [] },
    // No lines between rows: half the height, and as easy to read.
    chars: { mid: '', 'left-mid': '', 'mid-mid': '', 'right-mid': '' },
    ...(head === undefined ? {} : { head: head.map((title) => paint(title, 'strong')) }),
  });
  for (const row of rows) table.push(row.map((cell, column) => drawCell(cell, head === undefined && column === 0, paint)));
  return table.toString();
}

function drawCell(cell: Cell, isName: boolean, paint: Paint): string {
  if (typeof cell === 'object' && 'tone' in cell) return paint(showUnseen(cell.text), cell.tone);
  const lines = typeof cell === 'object' ? cell : [String(cell)];
  return lines.map((line) => paint(showUnseen(line), isName ? 'strong' : undefined)).join('\n');
}

/** JSON.stringify leaves C1 controls and direction overrides raw; as `\uXXXX` they are the same JSON. */
function escapedJson(value: unknown, indent: number): string {
  const text = JSON.stringify(value, undefined, indent);
  return text.split('\n').map(showUnseen).join('\n');
}
