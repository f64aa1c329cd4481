// The options of `sallyport-hook`, once: for the command table, which can explain them, and for the quick reading of an event's command line, since
// a runtime waits for this process before and after each tool call. It must never take a line that the command table would refuse.
import { parseArgs } from 'node:util';
import { EVENT_NAMES } from '../../exchange/hook-words.ts';

/** One option. */
export interface HookOption {
  /** `switch`: no value; `value`: the last one counts; `list`: may be repeated */
  readonly kind: 'switch' | 'value' | 'list';
  /** What its value is, for the help */
  readonly value?: string;
  readonly help: string;
  readonly choices?: readonly string[];
  readonly default?: string;
}

/** Options that say where hooks are; every command has them. */
export const PLACE_OPTIONS: Readonly<Record<string, HookOption>> = {
  workspace: { kind: 'value', value: 'folder', help: "the agent's workspace; default: the working directory" },
  hooks: { kind: 'list', value: 'file', help: 'this file, and none that would be found; may be repeated' },
  plugin: { kind: 'list', value: 'file', help: "a plugin's file beside those that are found; may be repeated" },
  dialect: {
    kind: 'value',
    value: 'name',
    help: 'how files and payload are written',
    choices: ['managed', 'desktop', 'settings'],
  },
  tools: { kind: 'value', value: 'file', help: 'the tool registry: risk, owner; default: SALLYPORT_HOOK_TOOLS' },
  audit: {
    kind: 'value',
    value: 'file',
    help: 'where each run is written down, one JSON object a line; default: SALLYPORT_HOOK_AUDIT',
  },
  'record-arguments': { kind: 'switch', help: "the lines hold the call's arguments" },
  environment: {
    kind: 'value',
    value: 'id',
    help: 'the hooks that the proxy keeps for this environment, and none that are found here; needs --admin',
  },
  admin: {
    kind: 'value',
    value: 'url',
    help: "the proxy's admin listener, which keeps environments and counts the runs; default: SALLYPORT_ADMIN_URL",
  },
  'token-file': { kind: 'value', value: 'file', help: 'its token; default: SALLYPORT_ADMIN_TOKEN_FILE' },
};

/** Options of an event. */
export const EVENT_OPTIONS: Readonly<Record<string, HookOption>> = {
  proxy: { kind: 'value', value: 'url', help: 'where HTTP hooks leave through; default: HTTPS_PROXY or ALL_PROXY' },
  ca: { kind: 'list', value: 'file', help: "the proxy's CA, PEM; may be repeated; default: SSL_CERT_FILE" },
  direct: { kind: 'switch', help: 'HTTP hooks leave without a proxy: the network itself leads through the door' },
  'allow-http': { kind: 'switch', help: 'for tests: let http URLs pass' },
  'pass-env': { kind: 'list', value: 'name', help: 'a further variable that commands get; may be repeated' },
  'max-continuations': {
    kind: 'value',
    value: 'n',
    help: 'how many times in a row a Stop hook may send the loop on',
    default: '10',
  },
};

/** An event's command line, read. */
export interface EventLine {
  readonly event: string;
  /** By name in camelCase, as the command table gives them */
  readonly options: Readonly<Record<string, unknown>>;
}

/** Reads a line that is an event with known options; undefined for every other one, which is for the command table to run or to explain. */
export function readEventLine(words: readonly string[]): EventLine | undefined {
  const table = { ...PLACE_OPTIONS, ...EVENT_OPTIONS };
  const options = Object.entries(table).map(
    ([name, { kind }]) => [name, { type: kind === 'switch' ? 'boolean' : 'string', multiple: kind === 'list' }] as const,
  );
  try {
    const { values, positionals } = parseArgs({ args: [...words], options: Object.fromEntries(options), allowPositionals: true });
    const [event, second] = positionals;
    if (event === undefined || second !== undefined || !EVENT_NAMES.some((name) => name === event)) return undefined;
    const given: Record<string, unknown> = {};
    for (const [name, option] of Object.entries(table)) {
      const value = values[name] ?? option.default;
      if (value === undefined) continue;
      if (option.choices !== undefined && !option.choices.some((choice) => choice === value)) return undefined;
      given[camelCase(name)] = value;
    }
    return { event, options: given };
  } catch {
    return undefined; // what is wrong with it the command table says
  }
}

function camelCase(name: string): string {
  return name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
