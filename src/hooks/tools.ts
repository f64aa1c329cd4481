// The tool registry: what an operator knows of each tool, and a hook cannot know: its risk, its owner, what runs around it elsewhere.
// Everything that is wrong is told at once, with path and allowed form (fault M13). It must never guess a risk.
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { RISKS } from './failure-policy.ts';
import type { Risk } from './failure-policy.ts';
import { ShapeReader, at } from './json-reader.ts';
import { readJson } from './json-text.ts';
import type { HookProblem, JsonObject } from './words.ts';

/** A tool, as the registry has it. Texts are for people, but for `owner`. */
export interface Tool {
  readonly name: string;
  readonly risk: Risk;
  /** Whether it may run with nobody looking on */
  readonly unattended: boolean;
  /** Who sees it at all */
  readonly visibleTo: string | undefined;
  /** Which facts come from trusted systems */
  readonly facts: readonly string[];
  /** How a failure behaves, where no hook of ours runs before the tool */
  readonly failure: string | undefined;
  /** What is logged, where no hook of ours logs */
  readonly logged: string | undefined;
  /** Who gets the alert */
  readonly owner: string | undefined;
  /** What runs before and after it, where no hook of ours does */
  readonly before: string | undefined;
  readonly after: string | undefined;
}

/** The tools by name. */
export type Tools = ReadonlyMap<string, Tool>;

/** What a registry file holds. With an `error` among the problems `tools` is empty, and nothing may run by it. */
export interface ReadTools {
  readonly tools: Tools;
  readonly problems: readonly HookProblem[];
}

const KEYS = ['risk', 'unattended', 'visible_to', 'facts', 'failure', 'logged', 'owner', 'before', 'after'];
const FORM = '{ "my_tool": { "risk": "high", "unattended": false } }';
const TOOL_FORM = '{ "risk": "low", "unattended": true }';
const FACTS_FORM = '["the order, read from the shop"]';

/** Reads the registry. Never throws: a file that is not there, or not JSON, is a problem like any other. */
export function readTools(path: string): ReadTools {
  const file = resolve(path);
  const reader = new ShapeReader(file);
  const tools = new Map<string, Tool>();
  const groups = reader.object(readValue(reader, file), '', FORM);
  for (const [name, value] of Object.entries(groups ?? {})) {
    const tool = readTool(reader, name, value);
    if (tool !== undefined) tools.set(name, tool);
  }
  if (reader.problems.some(({ severity }) => severity === 'error')) tools.clear();
  return { tools, problems: reader.problems };
}

/** The file's value; `{}` where a problem says why there is none, so that only that one is told. */
function readValue(reader: ShapeReader, file: string): unknown {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    reader.fail('', `cannot be read (${code}); name a readable file`);
    return {};
  }
  const json = readJson(text);
  if ('problem' in json) {
    reader.fail('', `is not JSON at line ${json.line}, column ${json.column}: ${json.problem}`);
    return {};
  }
  for (const { path, line, firstLine } of json.duplicates) {
    reader.fail(path, `stands twice, in line ${firstLine} and in line ${line}; keep one`);
  }
  return json.value;
}

function readTool(reader: ShapeReader, name: string, value: unknown): Tool | undefined {
  const path = at('', name);
  if (name.trim() === '') reader.fail(path, 'must be the name of a tool, exactly as the runtime has it');
  const object = reader.object(value, path, TOOL_FORM);
  if (object === undefined) return undefined;
  reader.keys(object, path, KEYS);
  const risk = reader.word(object.risk, at(path, 'risk'), RISKS);
  if (object.unattended === undefined)
    reader.fail(at(path, 'unattended'), 'must be true or false, without quotes; it is missing');
  const unattended = reader.flag(object.unattended, at(path, 'unattended'), false);
  const textOf = (key: string): string | undefined => optionalText(reader, object, { key, path });
  const rest = {
    visibleTo: textOf('visible_to'),
    facts: readFacts(reader, object.facts, at(path, 'facts')),
    failure: textOf('failure'),
    logged: textOf('logged'),
    owner: textOf('owner'),
    before: textOf('before'),
    after: textOf('after'),
  };
  return risk === undefined ? undefined : { name, risk, unattended, ...rest };
}

function optionalText(
  reader: ShapeReader,
  object: JsonObject,
  { key, path }: { readonly key: string; readonly path: string },
): string | undefined {
  const value = object[key];
  return value === undefined ? undefined : reader.text(value, at(path, key));
}

function readFacts(reader: ShapeReader, value: unknown, path: string): readonly string[] {
  if (value === undefined) return [];
  const list = reader.list(value, path, FACTS_FORM) ?? [];
  return list.flatMap((fact, index) => reader.text(fact, at(path, index)) ?? []);
}
