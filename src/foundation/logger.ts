// The operator's log: what happened to the process, for people and collectors; the audit line of an exchange is another thing.
// JSON lines, or short readable ones on a terminal. It must never show a secret, the properties of a thrown thing (they may hold
// header fields), or a raw control character, and it never throws.
import { pino } from 'pino';
import { showUnseen } from './visible-text.ts';

/** How loudly something is said; `silent` only as a threshold. */
export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

/** What goes with a message. Errors are reduced to name and message; a field `stack` is shown on lines of its own on a terminal. */
export type LogFields = Readonly<Record<string, unknown>>;

/** The operator's log. Messages are lower case, without full stop, and hold no secret. */
export interface Logger {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

/** Where log lines go; `process.stderr` is one. */
export interface LogStream {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  on?(event: 'error', listener: (error: Error) => void): unknown;
}

/** `level` is the least that is written; `stream` is standard error where left out. */
export interface LoggerOptions {
  readonly level?: LogLevel | 'silent';
  readonly stream?: LogStream;
}

type Emit = (level: LogLevel, message: string, fields: LogFields) => void;

const RANK: Readonly<Record<LogLevel | 'silent', number>> = { debug: 20, info: 30, warn: 40, error: 50, silent: Infinity };
// JSON.stringify leaves these raw inside a string; as \uXXXX they are the same JSON.
const RAW_IN_JSON = /[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Makes the log. A stream that fails is ignored: losing the log must not stop the door. */
export function createLogger(options: LoggerOptions = {}): Logger {
  const stream: LogStream = options.stream ?? process.stderr;
  stream.on?.('error', () => undefined);
  const threshold = RANK[options.level ?? 'info'];
  const emit = stream.isTTY === true ? readableLines(stream) : jsonLines(stream);
  const say =
    (level: LogLevel) =>
    (message: string, fields: LogFields = {}): void => {
      if (RANK[level] < threshold) return;
      try {
        emit(level, message, fields);
      } catch {
        // a field that cannot be turned into text, or a stream that is gone, costs one line and nothing else
      }
    };
  return { debug: say('debug'), info: say('info'), warn: say('warn'), error: say('error') };
}

function jsonLines(stream: LogStream): Emit {
  const log = pino(
    {
      level: 'debug',
      base: null,
      messageKey: 'message',
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    { write: (line: string) => stream.write(line.replace(RAW_IN_JSON, escapeUnit)) },
  );
  return (level, message, fields) => {
    log[level](reduced(fields), message);
  };
}

function escapeUnit(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

function readableLines(stream: LogStream): Emit {
  return (level, message, fields) => {
    let line = `${new Date().toISOString().slice(11, 19)} ${level.padEnd(5)} ${showUnseen(message)}`;
    let stack = '';
    for (const [name, value] of Object.entries(reduced(fields))) {
      if (value === undefined) continue;
      const text = typeof value === 'string' ? value : JSON.stringify(value);
      if (name === 'stack') stack = text.split('\n').reduce((lines, each) => `${lines}\n    ${showUnseen(each)}`, '');
      else line += ` ${name}=${showUnseen(/[\s"=]/.test(text) && typeof value === 'string' ? JSON.stringify(text) : text)}`;
    }
    stream.write(`${line}${stack}\n`);
  };
}

function reduced(fields: LogFields): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, value instanceof Error ? `${value.name}: ${value.message}` : value]),
  );
}
