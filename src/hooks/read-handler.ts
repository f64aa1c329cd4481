// Reads one handler of a hooks file: its kind, and what is written beside it. What a dialect allows arrives as a HandlerShape.
// It must never show a command, a header or a URL in a problem: people put secrets there, whatever they were told.
import { at, kindOf } from './json-reader.ts';
import type { ShapeReader } from './json-reader.ts';
import type { CommandHandler, HookHandler, HttpHandler, JsonObject, OnFailure } from './words.ts';

/** What a dialect allows in a handler. */
export interface HandlerShape {
  readonly kinds: readonly HookHandler['kind'][];
  /** What a handler without `type` is; undefined: `type` has to be there */
  readonly defaultKind: HookHandler['kind'] | undefined;
  /** Kinds that the dialect knows and that are not run here */
  readonly kindsNotRun: readonly string[];
  readonly defaultTimeoutMs: number;
  /** Whether seconds may have a fraction */
  readonly fractions: boolean;
  /** Further keys of each kind, beside those that all dialects share */
  readonly keys: Readonly<Record<HookHandler['kind'], readonly string[]>>;
  /** Keys that are read and have no effect here, with what happens instead */
  readonly withoutEffect: Readonly<Record<string, string>>;
  readonly shell: CommandHandler['shell'];
  /** How the dialect spells the list of variables for headers */
  readonly variablesKey: 'allowed_env_vars' | 'allowedEnvVars';
}

/** Where a handler stands. */
export interface HandlerPlace {
  /** In the file, for problems */
  readonly path: string;
  readonly id: string;
  /** From its rule or group */
  readonly onFailure: OnFailure | undefined;
}

/** The words of `on_failure`. */
export const ON_FAILURE: readonly OnFailure[] = ['allow', 'deny', 'review'];

const OURS = ['type', 'timeout', 'on_failure', 'require_decision'];
const OWN_KEYS = { command: ['command'], http: ['url', 'headers'] } as const;
const HEADER_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const VARIABLE_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** A day. Node's timers overflow at 24 days and would fire at once. */
const LONGEST_TIMEOUT = 86_400;
/** From here on somebody probably meant milliseconds. */
const STRANGE_TIMEOUT = 1000;

/** Reads a handler; `undefined` where it is not run, with the reason among the reader's problems. */
export function readHandler(
  reader: ShapeReader,
  value: unknown,
  place: HandlerPlace,
  shape: HandlerShape,
): HookHandler | undefined {
  const form = shape.kinds.includes('http')
    ? '{ "type": "command", "command": "..." } or { "type": "http", "url": "https://..." }'
    : '{ "type": "command", "command": "..." }';
  const object = reader.object(value, place.path, form);
  if (object === undefined) return undefined;
  const kind = readKind(reader, object.type, place, shape);
  if (kind === undefined) return undefined;
  reader.keys(object, place.path, [...OURS, ...OWN_KEYS[kind], ...shape.keys[kind]]);
  for (const [key, instead] of Object.entries(shape.withoutEffect)) {
    if (Object.hasOwn(object, key) && object[key] !== false) reader.warn(at(place.path, key), instead);
  }
  const base = {
    id: place.id,
    onFailure: readOnFailure(reader, object, place.path) ?? place.onFailure,
    requireDecision: reader.flag(object.require_decision, at(place.path, 'require_decision'), false),
    timeoutMs: readTimeout(reader, object.timeout, at(place.path, 'timeout'), shape),
  };
  const rest = kind === 'command' ? readCommand(reader, object, place, shape) : readHttp(reader, object, place, shape);
  return rest === undefined ? undefined : { ...base, ...rest };
}

/** `on_failure` of a group, rule or handler; `undefined` where it is absent or wrong. */
export function readOnFailure(reader: ShapeReader, object: JsonObject, path: string): OnFailure | undefined {
  if (object.on_failure === undefined) return undefined;
  return reader.word(object.on_failure, at(path, 'on_failure'), ON_FAILURE);
}

/** What makes two handlers the same to a dialect that runs each only once: everything but where they stand. */
export function handlerKey(handler: HookHandler): string {
  return JSON.stringify({ ...handler, id: undefined });
}

function readKind(
  reader: ShapeReader,
  type: unknown,
  { path }: HandlerPlace,
  shape: HandlerShape,
): HookHandler['kind'] | undefined {
  if (type === undefined && shape.defaultKind !== undefined) return shape.defaultKind;
  if (typeof type === 'string' && shape.kindsNotRun.includes(type)) {
    reader.warn(at(path, 'type'), `handlers of the type "${type}" are not run here; use "command" or "http"`);
    return undefined;
  }
  return reader.word(type, at(path, 'type'), shape.kinds);
}

function readTimeout(reader: ShapeReader, value: unknown, path: string, shape: HandlerShape): number {
  if (value === undefined) return shape.defaultTimeoutMs;
  const whole = shape.fractions ? 'a number' : 'a whole number';
  const form = `must be ${whole} of seconds, more than 0 and at most ${LONGEST_TIMEOUT}, without quotes, as 30`;
  if (typeof value !== 'number') {
    reader.fail(path, `${form}; it is ${kindOf(value)}`);
    return shape.defaultTimeoutMs;
  }
  const allowed = value > 0 && value <= LONGEST_TIMEOUT && (shape.fractions || Number.isInteger(value));
  if (!allowed) reader.fail(path, `${form}; it is ${value}`);
  else if (value >= STRANGE_TIMEOUT)
    reader.warn(path, `is in seconds, and ${value} are ${Math.round(value / 60)} minutes; are milliseconds meant`);
  return allowed ? Math.ceil(value * 1000) : shape.defaultTimeoutMs;
}

function readCommand(
  reader: ShapeReader,
  object: JsonObject,
  { path }: HandlerPlace,
  shape: HandlerShape,
): Pick<CommandHandler, 'kind' | 'command' | 'args' | 'shell'> | undefined {
  const command = reader.text(object.command, at(path, 'command'));
  const args = object.args === undefined ? undefined : readTexts(reader, object.args, at(path, 'args'));
  if (object.shell === 'powershell') {
    reader.warn(at(path, 'shell'), 'handlers for powershell are not run here; use "bash"');
    return undefined;
  }
  if (object.shell !== undefined) reader.word(object.shell, at(path, 'shell'), ['bash']);
  return command === undefined ? undefined : { kind: 'command', command, args, shell: shape.shell };
}

function readHttp(
  reader: ShapeReader,
  object: JsonObject,
  { path }: HandlerPlace,
  shape: HandlerShape,
): Pick<HttpHandler, 'kind' | 'url' | 'headers' | 'allowedVariables'> | undefined {
  const url = readUrl(reader, object.url, at(path, 'url'));
  const headers = object.headers === undefined ? [] : readHeaders(reader, object.headers, at(path, 'headers'));
  const variables = object[shape.variablesKey];
  const allowedVariables = variables === undefined ? [] : readVariables(reader, variables, at(path, shape.variablesKey));
  return url === undefined ? undefined : { kind: 'http', url, headers, allowedVariables };
}

function readUrl(reader: ShapeReader, value: unknown, path: string): string | undefined {
  const url = reader.text(value, path);
  if (url === undefined) return undefined;
  const fault = urlFault(url);
  if (fault !== undefined) {
    reader.fail(path, fault);
    return undefined;
  }
  if (new URL(url).protocol === 'http:')
    reader.warn(path, 'is not https, and the hook will fail with not_https; write "https://"');
  return url;
}

function urlFault(url: string): string | undefined {
  // Expanded, it would lead to a place that nobody has looked at (fault M16).
  if (url.includes('$')) return 'takes no variables; write the URL out, and "%24" for a dollar sign';
  if (!URL.canParse(url)) return 'must be an absolute URL, as "https://hooks.example.com/events"';
  const { protocol, username, password } = new URL(url);
  if (protocol !== 'https:' && protocol !== 'http:') return 'must begin with "https://"';
  if (username === '' && password === '') return undefined;
  return 'holds a user name or password; leave them to the proxy, which puts credentials on at the door';
}

function readHeaders(reader: ShapeReader, value: unknown, path: string): readonly (readonly [string, string])[] {
  const object = reader.object(value, path, '{ "X-Event-Source": "agent-sandbox" }');
  const headers: (readonly [string, string])[] = [];
  for (const [name, text] of Object.entries(object ?? {})) {
    if (!HEADER_NAME.test(name)) reader.fail(at(path, name), 'is not the name of a header; letters, digits and hyphens make one');
    else if (typeof text !== 'string') reader.fail(at(path, name), `must be text in double quotes; it is ${kindOf(text)}`);
    else if (/[\r\n\0]/.test(text)) reader.fail(at(path, name), 'must not hold a line break or NUL');
    else headers.push([name, text]);
  }
  return headers;
}

function readVariables(reader: ShapeReader, value: unknown, path: string): readonly string[] {
  const names = readTexts(reader, value, path);
  names.forEach((name, index) => {
    if (!VARIABLE_NAME.test(name)) reader.fail(at(path, index), 'is not the name of a variable; write it without "$"');
  });
  return names;
}

function readTexts(reader: ShapeReader, value: unknown, path: string): readonly string[] {
  const texts: string[] = [];
  for (const [index, text] of (reader.list(value, path, '["one", "two"]') ?? []).entries()) {
    if (typeof text === 'string' && !text.includes('\0')) texts.push(text);
    else reader.fail(at(path, index), `must be text without NUL; it is ${kindOf(text)}`);
  }
  return texts;
}
