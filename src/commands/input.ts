// What a command is told beside its arguments: standard input, and the answers of the person at the terminal. Questions go to standard
// error, so that what was asked for stays alone on standard output.
// It must never let a secret show on the terminal, nor leave the terminal mute.
import { setImmediate as soon } from 'node:timers/promises';

/** Where input comes from; `process.stdin` is one. */
export type InputStream = NodeJS.ReadableStream & {
  readonly isTTY?: boolean | undefined;
  setRawMode?(raw: boolean): unknown;
};

/** The ear of a command. */
export interface Input {
  /** Whether there is a person to be asked */
  readonly onTerminal: boolean;
  /** All of standard input, as text in UTF-8. Rejects with one line where it is longer than 8 MiB or no such text. */
  read(): Promise<string>;
  /** One line that is not shown; `undefined` where the person gave up. Rejects where it cannot be asked or is more than one line. */
  secret(question: string): Promise<string | undefined>;
  /** Whether the answer is yes; everything else is no. */
  confirm(question: string): Promise<boolean>;
}

/** Two megabytes of files, as JSON writes them, and some. */
const LONGEST = 8 * 1024 * 1024;
const ENTER = /\r\n|\r|\n/;
const CTRL_C = '\u0003';
const CTRL_D = '\u0004';
const CTRL_U = '\u0015';
const DELETE = '\u007f';

/** Makes the ear over a pair of streams. */
export function createInput(streams: {
  readonly stdin: InputStream;
  readonly stderr: { write(text: string): unknown; readonly isTTY?: boolean | undefined };
}): Input {
  const { stdin, stderr } = streams;
  return {
    onTerminal: stdin.isTTY === true && stderr.isTTY === true,
    read: async () => {
      const pieces: Buffer[] = [];
      let length = 0;
      for await (const piece of stdin) {
        const bytes = Buffer.from(piece);
        length += bytes.length;
        if (length > LONGEST) throw new Error('standard input is longer than 8 MiB; give it a part');
        pieces.push(bytes);
      }
      return textOf(Buffer.concat(pieces), 'standard input');
    },
    secret: async (question) => {
      if (stdin.setRawMode === undefined) throw new Error('a secret can only be asked for on a terminal');
      stdin.setRawMode(true);
      try {
        // Only now: what is typed before would be shown.
        stderr.write(question);
        return await readLine(stdin, true);
      } finally {
        stdin.setRawMode(false);
        stderr.write('\n');
      }
    },
    confirm: async (question) => {
      stderr.write(`${question} [y/N] `);
      return /^y(?:es)?$/i.test(((await readLine(stdin, false)) ?? '').trim());
    },
  };
}

/** Text in UTF-8, without the mark that some editors begin it with. Throws one line that names `where`, and quotes nothing. */
export function textOf(bytes: Buffer, where: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    // the error says no more
    throw new Error(`${where} is no text in UTF-8; write it as such`);
  }
}

/** A line as a terminal gives it: in raw mode key by key. `undefined` where input ended, or at Ctrl-C or Ctrl-D. */
async function readLine(stdin: InputStream, raw: boolean): Promise<string | undefined> {
  let line = '';
  const answer = new Promise<string | undefined>((resolve, reject) => {
    const hear = (piece: Buffer | string): void => {
      const [typed = '', ...rest] = String(piece).split(ENTER);
      for (const character of typed) {
        if (raw && (character === CTRL_C || character === CTRL_D)) {
          leave(() => resolve(undefined));
          return;
        }
        line = raw ? edited(line, character) : line + character;
      }
      if (rest.length === 0) return;
      // A key or certificate that is pasted here would be cut to its first line, and the rest would be typed into the shell.
      if (raw && rest.some((more) => more !== '')) {
        leave(() => reject(new Error('more than one line was pasted; give a secret of several lines in a file')));
      } else leave(() => resolve(line));
    };
    const end = (): void => leave(() => resolve(undefined));
    const leave = (settle: () => void): void => {
      stdin.off('data', hear);
      stdin.off('end', end);
      stdin.pause();
      settle();
    };
    stdin.setEncoding('utf8');
    stdin.on('data', hear);
    stdin.once('end', end);
    stdin.resume();
  });
  const given = await answer;
  // the pause takes hold before the next question
  await soon();
  return given;
}

function edited(line: string, character: string): string {
  switch (character) {
    case DELETE:
    case '\b':
      return Array.from(line).slice(0, -1).join('');
    case CTRL_U:
      return '';
    default:
      return line + character;
  }
}
