// Reads parsed JSON by shape and collects everything that is wrong at once, each with its path and the form that is allowed (fault M13).
// It must never repeat a value that may be a secret: only `word` shows what it found, and headers and commands are not read with it.
import { editDistance } from '../foundation/edit-distance.ts';
import { showWire } from '../foundation/visible-text.ts';
import type { HookProblem, JsonObject } from './words.ts';

const LONGEST_SHOWN = 60;
const PLAIN_KEY = /^[\w$-]+$/;

/** Names that other hook-runners have for ours, written without case and separators. */
const ELSEWHERE: Readonly<Record<string, readonly string[]>> = {
  beforetool: ['PreToolUse', 'pre_tool_execution'],
  beforetooluse: ['PreToolUse', 'pre_tool_execution'],
  pretool: ['PreToolUse', 'pre_tool_execution'],
  pretoolcall: ['PreToolUse', 'pre_tool_execution'],
  pretooluse: ['PreToolUse', 'pre_tool_execution'],
  pretoolexecution: ['PreToolUse', 'pre_tool_execution'],
  aftertool: ['PostToolUse', 'post_tool_execution'],
  aftertooluse: ['PostToolUse', 'post_tool_execution'],
  posttool: ['PostToolUse', 'post_tool_execution'],
  posttoolcall: ['PostToolUse', 'post_tool_execution'],
  posttooluse: ['PostToolUse', 'post_tool_execution'],
  posttoolexecution: ['PostToolUse', 'post_tool_execution'],
  beforemodel: ['PreInvocation'],
  aftermodel: ['PostInvocation'],
  timeoutms: ['timeout'],
  timeoutsec: ['timeout'],
  timeoutseconds: ['timeout'],
  cmd: ['command'],
  run: ['command'],
  script: ['command'],
  uri: ['url'],
  endpoint: ['url'],
  match: ['matcher'],
  pattern: ['matcher'],
  regex: ['matcher'],
  tool: ['matcher'],
  tools: ['matcher'],
  handlers: ['hooks'],
  commands: ['hooks'],
  disabled: ['enabled'],
  onerror: ['on_failure'],
  failmode: ['on_failure'],
  required: ['require_decision'],
  requiredecision: ['require_decision'],
};

/** Whether a value is a JSON object: no list, no null. */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The path of a member: `gate.hooks[0]`, and `["odd key"]` where a key is no plain word. */
export function at(path: string, step: string | number): string {
  if (typeof step === 'number') return `${path}[${step}]`;
  if (!PLAIN_KEY.test(step)) return `${path}[${JSON.stringify(showWire(step, LONGEST_SHOWN))}]`;
  return path === '' ? step : `${path}.${step}`;
}

/** The known word that `unknown` most probably means: another case, another separator, another runner's name, a slip of the pen. */
export function nearest(unknown: string, known: readonly string[]): string | undefined {
  const bare = bared(unknown);
  const same = known.find((word) => bared(word) === bare);
  if (same !== undefined) return same;
  const elsewhere = Object.hasOwn(ELSEWHERE, bare) ? ELSEWHERE[bare] : undefined;
  const translated = elsewhere?.find((word) => known.includes(word));
  if (translated !== undefined) return translated;
  let best: string | undefined;
  let least = Math.min(4, Math.floor(bare.length / 3) + 1);
  for (const word of known) {
    const distance = editDistance(bare, bared(word));
    if (distance < least) [best, least] = [word, distance];
  }
  return best;
}

function bared(word: string): string {
  return word.replace(/[\s_-]+/g, '').toLowerCase();
}

/** Words in quotes, as `"allow", "deny" or "review"`. */
export function oneOf(words: readonly string[]): string {
  const quoted = words.map((word) => `"${word}"`);
  return quoted.length < 2 ? quoted.join('') : `${quoted.slice(0, -1).join(', ')} or ${quoted.at(-1) ?? ''}`;
}

/** Which kind of value this is, for people. */
export function kindOf(value: unknown): string {
  if (value === undefined) return 'missing';
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object') return 'an object';
  if (typeof value === 'string') return 'text';
  return typeof value === 'boolean' ? String(value) : `a ${typeof value}`;
}

/** Reads values of one file. Each method answers `undefined` where the value is not of its kind, and then a problem tells why. */
export class ShapeReader {
  readonly problems: HookProblem[] = [];
  readonly #file: string;

  /** `file`: its absolute path, for the problems. */
  constructor(file: string) {
    this.#file = file;
  }

  /** Something for which the file cannot be used. */
  fail(path: string, message: string): void {
    this.problems.push({ file: this.#file, path, severity: 'error', message });
  }

  /** Something that people should know of. */
  warn(path: string, message: string): void {
    this.problems.push({ file: this.#file, path, severity: 'warning', message });
  }

  /** `form` is how it is to be written. */
  object(value: unknown, path: string, form: string): JsonObject | undefined {
    if (isJsonObject(value)) return value;
    this.fail(path, `must be an object, as ${form}; it is ${kindOf(value)}`);
    return undefined;
  }

  /** `form` is how it is to be written. */
  list(value: unknown, path: string, form: string): readonly unknown[] | undefined {
    if (Array.isArray(value)) return value as readonly unknown[];
    this.fail(path, `must be a list, as ${form}; it is ${kindOf(value)}`);
    return undefined;
  }

  /** Text that says something: not empty, no blanks alone, no NUL. The value itself is not shown. */
  text(value: unknown, path: string): string | undefined {
    if (typeof value === 'string' && value.trim() !== '' && !value.includes('\0')) return value;
    if (typeof value !== 'string') this.fail(path, `must be text in double quotes; it is ${kindOf(value)}`);
    else this.fail(path, value.trim() === '' ? 'must not be empty' : 'must not hold the character NUL');
    return undefined;
  }

  /** `true` or `false`; `otherwise` where it is absent. */
  flag(value: unknown, path: string, otherwise: boolean): boolean {
    if (value === undefined) return otherwise;
    if (typeof value === 'boolean') return value;
    this.fail(path, `must be true or false, without quotes; it is ${kindOf(value)}`);
    return otherwise;
  }

  /** One of a closed list of words, exactly as written there. */
  word<W extends string>(value: unknown, path: string, words: readonly W[]): W | undefined {
    const found = words.find((word) => word === value);
    if (found !== undefined) return found;
    if (typeof value === 'string') {
      const meant = nearest(value.trim(), words);
      const remedy = meant === undefined ? '' : `; did you mean "${meant}"`;
      this.fail(path, `must be ${oneOf(words)}; it is "${showWire(value, LONGEST_SHOWN)}"${remedy}`);
    } else this.fail(path, `must be ${oneOf(words)}; it is ${kindOf(value)}`);
    return undefined;
  }

  /** A problem for each key that is not among `known`, with the nearest spelling. */
  keys(object: JsonObject, path: string, known: readonly string[]): void {
    for (const key of Object.keys(object)) {
      if (!known.includes(key)) this.fail(at(path, key), unknownKey(key, known));
    }
  }
}

/** What is said of an unknown key. */
export function unknownKey(key: string, known: readonly string[]): string {
  const meant = nearest(key, known);
  const remedy = meant === undefined ? '' : `did you mean "${meant}"; `;
  return `unknown key "${showWire(key, LONGEST_SHOWN)}"; ${remedy}allowed are ${known.join(', ')}`;
}
